"""
Diagnose a convolutional network
================================

A convolutional network without biases is trained by a plain PyTorch loop with Adam. `diagnose`
measures its distance from KKT points of the l2 and l_inf max-margin problems, layer by layer. Adam
with full batches belongs to l_inf. Gaps of different norms compare only near 0, so the smaller one
does not identify the norm.
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
