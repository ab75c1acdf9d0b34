"""
Depth changes the norm: l2 with one layer, nuclear with two
===========================================================

Layers without activations compute one matrix. Gradient descent on one layer converges to the
max-margin matrix in l2, on two in the nuclear norm. `diagnose` certifies the optimum of either.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch

from implicit_bias import diagnose

torch.manual_seed(0)
y = torch.arange(60) % 4
X = torch.randn(60, 10, dtype=torch.float64) + 3 * torch.eye(4, 10, dtype=torch.float64)[y]
rivals = torch.arange(4) != y[:, None]
steps = np.unique(np.geomspace(300, 6000, 12).astype(int))
for sizes in ([10, 4], [10, 8, 4]):
    layers = [torch.nn.Linear(a, b, bias=False) for a, b in pairwise(sizes)]
    network, excess = torch.nn.Sequential(*layers).double(), []
    for step in range(1, steps[-1] + 1):
        scores = network(X)
        # The logarithm of the exponential loss: its steps do not shrink as the loss does.
        loss = torch.logsumexp((scores - scores.gather(1, y[:, None]))[rivals], 0)
        slopes = torch.autograd.grad(loss, weights := list(network.parameters()))
        # The curvature grows with the other layer's weights, so the step shrinks with them.
        rate = 0.1 / sum(float(w.detach().square().sum()) for w in weights) ** (len(weights) - 1)
        for weight, slope in zip(weights, slopes, strict=True):
            weight.data -= rate * slope
        if step in steps:
            found = diagnose(network, X, y)
            excess.append(100 * found.function_space.excess)
    plt.loglog(steps, excess, label=f"{found.function_space.family}, {found.function_space.norm}")
    print(found)
plt.gca().set(xlim=(100, 1e4), xlabel="step", ylabel="norm above the certified optimum, %")
plt.legend()
