"""
A published margin that is not the maximum
==========================================

A public data set of ten clusters stores 1.292968 as its maximum l_inf margin, and 14.708888 is
attainable. A certificate detects this. Here it is shown on similar clusters: the stored value, the
margin of the stored matrix, that of another matrix, and an upper bound on all margins.
"""

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax

from implicit_bias import certify, certify_run, max_margin, solve

rng = np.random.default_rng(0)
labels = np.repeat(np.arange(10), 20)
inputs = rng.normal(size=(10, 25))[labels] + 0.1 * rng.normal(size=(200, 25))
problem = max_margin(inputs, labels, "linf")

# The stored matrix: sign descent, one step of 0.05. Its own gradient bounds what is possible.
errors = np.eye(10)[labels] - softmax(np.zeros((200, 10)), axis=1)
theirs = 0.05 * np.sign(errors.T @ inputs)
bounds = certify_run(problem, theirs)  # of the smallest norm at unit margin: a margin is 1 / norm
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
