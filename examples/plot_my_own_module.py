"""
How far is my own training from its limit?
==========================================

A convolutional network without biases, trained by its own loop with Adam: a module that this
package knows nothing of. `diagnose` says how far it is from where gradient descent (l2) and where
sign descent (linf) can end, and which layer is farthest. Adam with full batches belongs to linf,
though its bar may be the longer one: across norms only gaps of 0 compare (`which_norm`).
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from implicit_bias import diagnose

digits = load_digits()
X = torch.tensor(digits.images[:200, None] / 16, dtype=torch.float32)
y = torch.tensor(digits.target[:200])

torch.manual_seed(0)
module = nn.Sequential(
    nn.Conv2d(1, 8, 3, bias=False),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(72, 10, bias=False),
)
optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
loss = nn.CrossEntropyLoss()
for _ in range(500):
    optimizer.zero_grad()
    loss(module(X), y).backward()
    optimizer.step()

module.eval()
print(diagnose(module, X, y, norm="l2"))
found = diagnose(module, X, y, norm="linf", loss=loss, optimizer=optimizer)
print(found)
figure = found.plot()
