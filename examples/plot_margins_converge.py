"""
Another optimizer, another max-margin solution
==============================================

A linear model of five classes, trained by steepest descent in three norms. The direction of each
run converges to the max-margin solution of its own norm, and stays away from the other two.
"""

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import max_margin, norms, solve

rng = np.random.default_rng(0)
labels = np.arange(100) % 5
X = rng.normal(size=(100, 20)) + 2.0 * rng.normal(size=(5, 20))[labels]
descents = {"l2": "gradient descent", "linf": "sign descent", "spectral": "spectral descent (Muon)"}
best = {norm: 1 / solve(max_margin(X, labels, norm)).certificate.upper for norm in descents}
own, rivals = np.eye(5)[labels], 1 - np.eye(5)[labels]
steps = np.unique(np.geomspace(2, 10_000, 80).astype(int))
figure, axes = plt.subplots(1, 3, figsize=(9, 2.9), sharey=True)
for norm, name in descents.items():
    W, curves = np.zeros((5, 1, 20)), []  # one weight vector per class
    for step in range(1, steps[-1] + 1):
        scores = X @ W[:, 0].T
        margins = (own * scores).sum(axis=1, keepdims=True) - scores
        smallest = margins[rivals == 1].min()
        losses = rivals * np.exp(smallest - margins)  # the exponential loss, up to a factor
        slope = (losses - own * losses.sum(axis=1, keepdims=True)).T @ X
        if step in steps:
            curves.append([smallest / norms.as_norm(n).value(W) / best[n] for n in best])
        W -= 0.1 / step**0.5 * norms.as_norm(norm).maximiser(slope[:, None])
    reached = dict(zip(best, curves[-1], strict=True))[norm]
    print(f"{name}: {100 * reached:.1f} % of the certified maximum {norm} margin")
    for axis, other, curve in zip(axes, best, np.transpose(curves), strict=True):
        axis.semilogx(steps, curve, label=name)
        axis.set(title=f"{other} margin", xlabel="steps", ylim=(0, 1.08))
axes[0].set_ylabel("fraction of the certified maximum")
axes[-1].legend(fontsize="small", loc="lower right")
figure.tight_layout()
