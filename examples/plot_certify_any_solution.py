"""
Certify the solution of another solver
======================================

A certificate needs coefficients and dual variables, from any solver: here scikit-learn's SVC at
several tolerances. SVC has an intercept, so the dual variables of the two classes must have equal
sums; `repaired` corrects the rounding errors.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.svm import SVC

from implicit_bias import MarginProblem, certify, solve
from implicit_bias.bounds.balance import repaired
from implicit_bias.datasets import load_digits

digits = load_digits()
X, y = digits.X[:300, :-1], digits.y[:300]
gates, groups = np.ones((len(X), 1)), np.zeros(1, dtype=int)
problem = MarginProblem(X, y, gates, groups, intercept=True)

tolerances, gaps = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5], []
for tolerance in tolerances:
    svc = SVC(kernel="linear", C=1e9, tol=tolerance).fit(X, y)
    alpha = np.zeros(len(X))
    alpha[svc.support_] = np.abs(svc.dual_coef_[0])
    bounds = certify(problem, svc.coef_, repaired(problem, alpha))
    gaps.append(bounds.gap)
    print(f"SVC, tol {tolerance:g}: optimum in [{bounds.lower:.6f}, {bounds.upper:.6f}]")
print(solve(problem))

figure, axis = plt.subplots(figsize=(5.5, 3.5))
axis.loglog(tolerances, gaps, "o-")
axis.set(xlabel="tolerance that SVC was given", ylabel="certified relative gap")
figure.tight_layout()
