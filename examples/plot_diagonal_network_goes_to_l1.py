"""
A diagonal network converges to the max-margin solution in l1
=============================================================

Written as w = u * u - v * v, a linear predictor has another implicit bias: gradient descent on u
and v maximizes the l1 margin, whose solution is sparse, and not the l2 margin.
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from implicit_bias import diagnose


class Diagonal(torch.nn.Module):
    """Two layers, each with one weight per input: w = u * u - v * v."""

    def __init__(self):
        super().__init__()
        self.u, self.v = (torch.nn.Parameter(torch.full((30,), 0.1).double()) for _ in range(2))

    def forward(self, x):
        """Return <w, x> of each sample."""
        return x @ (self.u**2 - self.v**2)


X, y = np.random.default_rng(0).normal(size=(20, 30)), np.repeat([-1.0, 1.0], 10)
X[:, :2] += 1.5 * y[:, None]
network, steps = Diagonal(), np.unique(np.geomspace(500, 20_000, 20).astype(int))
for step in range(1, steps[-1] + 1):
    loss = torch.logsumexp(-network(torch.tensor(X * y[:, None])), 0)  # the log of the loss
    slopes = torch.autograd.grad(loss, weights := list(network.parameters()))
    for w, slope in zip(weights, slopes, strict=True):
        w.data -= 0.05 / sum(float(each.detach().norm()) ** 2 for each in weights) * slope
    if step in steps:
        found = diagnose(network, X, y)
        plt.loglog(step, 100 * found.function_space.excess, "k.")
print(found)
plt.gca().set(xlabel="step", ylabel="l1 norm above the certified optimum, %")
