"""
A linear model under five norms
===============================

The norm of the steepest descent determines the max-margin separator: l2 for gradient descent, l_inf
for sign descent, l1 for coordinate descent and boosting (Gunasekar et al. 2018).
"""

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import max_margin, solve
from implicit_bias.norms import Lp

rng = np.random.default_rng(0)
y = np.repeat([-1.0, 1.0], 30)
X = rng.normal(size=(60, 12)) + np.outer(y, np.r_[3.0, 2.0, 1.5, np.zeros(9)])
norms = {"l1": "l1", "l1.5": Lp(1.5), "l2": "l2", "l3": Lp(3.0), "l_inf": "linf"}

figure, axes = plt.subplots(1, 5, figsize=(10, 2.6), sharey=True)
for axis, (name, norm) in zip(axes, norms.items(), strict=True):
    solution = solve(max_margin(X, y, norm))
    coef = solution.coef.ravel() / np.abs(solution.coef).max()
    print(f"{name}: maximum margin {1 / solution.certificate.upper:.4f}, {solution.status.name}")
    axis.stem(coef, basefmt=" ", markerfmt=".")
    axis.axhline(0, color="0.7", linewidth=0.8)
    axis.set(title=name, xlabel="feature")
axes[0].set_ylabel("weight / largest")
figure.tight_layout()
