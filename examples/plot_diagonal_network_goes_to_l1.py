"""
A diagonal network maximizes the l1 margin
==========================================

A linear predictor is written as w = u * u - v * v. Gradient descent on u and v approaches the l1
max-margin solution, which is sparse, and not that in l2 (Gunasekar et al. 2018).
"""

import matplotlib.pyplot as plt
import numpy as np
import torch

from implicit_bias import certify, max_margin, solve

rng = np.random.default_rng(0)
X, y = rng.normal(size=(20, 30)), np.repeat([-1.0, 1.0], 10)
X[:, :2] += 1.5 * y[:, None]
problems = {norm: max_margin(X, y, norm) for norm in ("l1", "l2")}
optima = {norm: solve(problem).certificate.lower for norm, problem in problems.items()}

signed = torch.tensor(X * y[:, None])
u, v = (torch.full((30,), 0.1, dtype=torch.float64, requires_grad=True) for _ in range(2))
steps, excess = np.unique(np.geomspace(100, 20_000, 40).astype(int)), {"l1": [], "l2": []}
for step in range(1, 20_001):
    # The gradient of the loss's logarithm: its steps do not shrink as the loss does.
    loss = -torch.logsumexp(-(signed @ (u * u - v * v)), 0)
    rate = 0.05 / (u.norm() ** 2 + v.norm() ** 2)
    for weight, slope in zip((u, v), torch.autograd.grad(loss, (u, v)), strict=True):
        weight.data += rate * slope
    if step in steps:
        coef = (u * u - v * v).detach().numpy()[None]
        for norm, problem in problems.items():
            excess[norm].append(100 * (certify(problem, coef).upper / optima[norm] - 1))
for norm, values in excess.items():
    plt.loglog(steps, values, label=f"over the {norm} optimum")
    print(f"{norm} norm {values[-1]:.2g} % above the smallest")
plt.gca().set(xlabel="step", ylabel="norm above the smallest, %")
plt.legend()
