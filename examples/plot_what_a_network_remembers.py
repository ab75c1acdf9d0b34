"""
The support vectors of a trained network
========================================

Near a KKT point the weights of a homogeneous network are a weighted sum of the margin gradients of
a few samples. `diagnose` finds these Lagrange multipliers for any trained module, here for a ReLU
network on 100 digits. Each image shows its fraction of the multipliers, its digit, and the class
that it is compared with.
"""

import torch
from sklearn.datasets import load_digits
from torch import nn

from implicit_bias import LimitConfig, diagnose, train_to_limit

digits = load_digits()
images, y = torch.tensor(digits.images[:100] / 16), torch.tensor(digits.target[:100])
X = images.reshape(100, 64)

torch.manual_seed(0)
module = nn.Sequential(nn.Linear(64, 32, bias=False), nn.ReLU(), nn.Linear(32, 10, bias=False))
train_to_limit(module.double(), X, y, LimitConfig(steps=500))

found = diagnose(module, X, y)
print(found.verdict)
shares = found.sample_shares
print(f"{(shares > 0).sum()} of 100 samples have multipliers", end=", ")
print(f"the largest 16 of them {sum(sorted(shares)[-16:]):.0%} of the sum")
figure = found.plot_support(images)
