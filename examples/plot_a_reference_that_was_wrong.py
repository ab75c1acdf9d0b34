"""
A reference that was wrong
==========================

A public set of ten clusters, N = 500, stores 1.292968 as its largest l_inf margin. The matrix
stored with it has 1.955 once it is divided by its norm, the l2 matrix beside it 6.265, and the
largest is 14.708888. A certificate would have told, by the same four questions as here, on clusters
drawn alike: what was claimed, what the matrix has, what any other has, and what none can have.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax

from implicit_bias import certify, certify_run, max_margin, solve

rng = np.random.default_rng(0)
labels = np.repeat(np.arange(10), 20)
inputs = rng.normal(size=(10, 25))[labels] + 0.1 * rng.normal(size=(200, 25))
problem = max_margin(inputs, labels, "linf")

# Somebody's matrix: sign descent, one step of 0.05. Its own gradient bounds what is possible.
errors = np.eye(10)[labels] - softmax(np.zeros((200, 10)), axis=1)
theirs = 0.05 * np.sign(errors.T @ inputs)
bounds = certify_run(problem, theirs)  # of the smallest norm at margin 1: a margin is 1 / norm
other = solve(max_margin(inputs, labels, "l2")).coef
margins = {
    "claimed": problem.margins(problem.decision(theirs[:, None])).min(),  # not over its norm
    "of their matrix": 1 / bounds.upper,
    "of the l2 matrix": 1 / certify(problem, other).upper,
    "certified": 1 / solve(problem).certificate.upper,
}
for name, margin in margins.items():
    print(f"l_inf margin {name}: {margin:.4f}")
print(f"none is above {1 / bounds.lower:.4f}, by the gradient at their matrix")
figure, axis = plt.subplots(figsize=(6, 2.6), layout="constrained")
axis.barh(list(margins), list(margins.values()))
axis.axvline(1 / bounds.lower, color="black", linestyle="--")
axis.set(xlabel="l_inf margin; dashed: none is above")
axis.invert_yaxis()
