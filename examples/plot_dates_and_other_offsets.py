"""
Features with a large offset
============================

Seconds since 1970 separate two classes at noon. The coefficients need a constant of 1.7e9 beside a
slope of 1, and dual variables that cancel to 17 digits, more than float64 has. The certified bounds
stay apart, and the message names the feature to center.
"""

import matplotlib.pyplot as plt
import numpy as np

from implicit_bias import MarginProblem, solve

rng = np.random.default_rng(0)
y = np.tile([-1.0, 1.0], 20)
seconds = 1.7e9 + y * rng.integers(60, 40_000, size=40)
X = np.column_stack([seconds, np.ones(40)])
problem = MarginProblem(X, y, np.ones((40, 1)), np.zeros(1, dtype=int))

solution = solve(problem)
print(solution)
print(solution.message)

# %%
# The same data are easy after centering; the unpenalized intercept absorbs the shift.
centred = MarginProblem(
    X[:, :1] - 1.7e9, y, np.ones((40, 1)), np.zeros(1, dtype=int), intercept=True
)
print(easy := solve(centred))
gaps = {"raw": solution.certificate.gap, "centred": easy.certificate.gap}
plt.figure(figsize=(5, 1.8), layout="constrained").gca().barh(list(gaps), list(gaps.values()))
plt.gca().set(xscale="log", xlabel="certified relative gap")
