"""
A gated network in the plane and its SVM
========================================

Each hidden unit of a gated linear network has one weight vector on each side of a random line. Its
limit under gradient descent is an SVM with one group per unit; the boundary bends at the lines.
"""

from functools import partial

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import GLNSVC, GLNClassifier, LimitConfig, train_to_limit
from implicit_bias.datasets import make_toy

circles = make_toy("circles", 80)  # the last column is a constant 1
X, y = circles.X, circles.y
svm = GLNSVC(n_units=20, random_state=0, on_failure="raise").fit(X, y)
print(svm.solution_)

network = GLNClassifier(n_units=20, random_state=0, steps=300).fit(X, y)
limit = GLNClassifier(n_units=20, random_state=0)
limit.fit_by(X, y, partial(train_to_limit, config=LimitConfig(steps=1000)))

# %%
# The trained network, the same one near its limit, and the SVM.
grid = np.linspace(1.1 * X[:, :2].min(), 1.1 * X[:, :2].max(), 150)
plane = np.column_stack([*(part.ravel() for part in np.meshgrid(grid, grid)), np.ones(150**2)])
figure, axes = plt.subplots(1, 3, figsize=(9, 3.2), sharex=True, sharey=True)
models = {"trained": network, "near its limit": limit, "SVM": svm}
for axis, (name, model) in zip(axes, models.items(), strict=True):
    values = model.decision_function(plane).reshape(150, 150)
    axis.contourf(grid, grid, np.sign(values), levels=[-2, 0, 2], colors=["#f4c095", "#a9c9e8"])
    axis.scatter(*X[:, :2].T, c=y, s=12, cmap="coolwarm_r", edgecolors="black", linewidths=0.3)
    axis.set(title=name, aspect="equal")
figure.tight_layout()
