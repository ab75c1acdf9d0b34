"""
A deep linear network with one output
=====================================

Layers without activations form one linear predictor. With one output, gradient descent converges in
direction to the l2 max-margin predictor at each depth (Ji, Telgarsky 2019). The speed differs.
"""

from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import torch

from implicit_bias import certify, max_margin, solve

rng = np.random.default_rng(0)
y = np.repeat([-1.0, 1.0], 20)
X = rng.normal(size=(40, 10)) + 1.2 * y[:, None]
problem = max_margin(X, y, "l2")
optimum = solve(problem).certificate.lower

signed, steps = torch.tensor(X * y[:, None]), np.unique(np.geomspace(10, 6000, 40).astype(int))
for depth in (1, 2, 3):
    sizes = [10, *[8] * (depth - 1), 1]
    layers = [torch.tensor(0.4 * rng.normal(size=shape[::-1])) for shape in pairwise(sizes)]
    excess = []
    for step in range(1, 6001):
        layers = [layer.detach().requires_grad_() for layer in layers]
        w = torch.linalg.multi_dot([*reversed(layers), torch.eye(10, dtype=torch.float64)])
        slopes = torch.autograd.grad(torch.logsumexp(-(signed @ w[0]), 0), layers)
        # The curvature grows with this power of the weights, so that the step must shrink with it.
        rate = 0.1 / sum(float(a.detach().square().sum()) for a in layers) ** (depth - 1)
        layers = [a - rate * b for a, b in zip(layers, slopes, strict=True)]
        if step in steps:
            excess.append(100 * (certify(problem, w.detach().numpy()).upper / optimum - 1))
    plt.loglog(steps, excess, label=f"{depth} layers")
    print(f"{depth} layers: {excess[-1]:.2g} % above the smallest norm")
plt.gca().set(xlabel="step", ylabel="norm above the smallest, %")
plt.legend()
