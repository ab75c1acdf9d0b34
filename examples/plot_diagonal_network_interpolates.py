"""
A diagonal network interpolates between l1 and l2
=================================================

On a squared loss the scale of the initialization decides where w = u * u - v * v ends: at the
minimizer of Q_alpha (Woodworth et al. 2020), near the l1 or the l2 solution of minimum norm.
The l1 solution needs CVXPY: ``pip install 'implicit-bias[cvxpy]'``.
"""

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import min_norm

rng = np.random.default_rng(0)
X, truth = rng.normal(size=(20, 50)), np.zeros(50)
truth[:3] = 1.0, -1.0, 0.5
y = X @ truth
optima = {norm: min_norm(X, y, norm).lower for norm in ("l1", "l2")}

# Gradient descent from u = v = alpha, of all scales at once; small steps follow the gradient flow.
scales = np.geomspace(1e-4, 3, 10)
u = v = np.tile(scales[:, None], 50)
rates = 0.02 / (1 + 4 * scales[:, None] ** 2)
for _ in range(60_000):
    slope = ((u * u - v * v) @ X.T - y) @ X / len(y)
    u, v = u - 2 * rates * u * slope, v + 2 * rates * v * slope

# The minimizer of Q_alpha is 2 alpha^2 sinh(X' nu): Newton's method, from large scales to small.
nu, curve, fine = np.zeros(20), [], np.geomspace(5, 1e-4, 200)
for scale in fine:
    for _ in range(20):
        rest = y - 2 * scale**2 * X @ np.sinh(X.T @ nu)
        nu = nu + np.linalg.solve(2 * scale**2 * (np.cosh(X.T @ nu) * X) @ X.T, rest)
    curve.append(2 * scale**2 * np.sinh(X.T @ nu))
for order, (norm, optimum) in enumerate(optima.items(), 1):
    dots = np.linalg.norm(u * u - v * v, order, axis=1) / optimum
    plt.semilogx(scales, dots, "o", color=f"C{order}", label=f"{norm} norm of the network")
    plt.semilogx(fine, np.linalg.norm(curve, order, axis=1) / optimum, color=f"C{order}")
plt.gca().set(xlabel="scale of the initialization", ylabel="norm over the certified minimum")
plt.legend(title="lines: minimizer of Q_alpha")
