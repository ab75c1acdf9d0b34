"""
Ten classes under three norms
=============================

The weights of K classes are a matrix. The norm of the steepest descent selects a max-margin matrix:
l2 for gradient descent, l_inf for sign descent, nuclear for descent in the nuclear norm.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from implicit_bias import MaxMarginSVC, norms

X, digits = load_digits(return_X_y=True)
X = X / 16
train, rest = slice(0, 150), slice(150, 500)
figure, axes = plt.subplots(3, 1, figsize=(6, 3.4), sharex=True)
for axis, name in zip(axes, ("l2", "linf", "nuclear"), strict=True):
    model = MaxMarginSVC(name, tol=1e-3, on_failure="raise").fit(X[train], digits[train])
    matrix = model.solution_.coef[:, 0]  # one weight vector per class, (K, D)
    margin, rank = 1 / model.solution_.certificate.upper, np.linalg.matrix_rank(matrix, tol=1e-4)
    error = 100 * np.mean(model.predict(X[rest]) != digits[rest])
    print(f"{name}: maximum margin {margin:.4g}, rank {rank}, {error:.1f} % errors on other digits")
    largest = np.abs(matrix).max()
    axis.imshow(matrix, cmap="PuOr_r", aspect="auto", vmin=-largest, vmax=largest)
    axis.set(ylabel="class", title=f"{name}, value {norms.as_norm(name).value(matrix):.3g}")
axes[-1].set_xlabel("pixel")
figure.tight_layout()
