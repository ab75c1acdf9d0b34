"""libsvm: decomposition in the dual of the squared norm, of two classes."""

import numpy as np
from sklearn.svm import SVC

from benchmarks.speed.guarded import Answer, GuardedSolver
from benchmarks.speed.reference import Reference, is_euclidean, is_linear
from implicit_bias import MarginProblem

# MiB of kernel rows that it may keep.
CACHE = 1000


class Solver(GuardedSolver):
    """scikit-learn's SVC, on the kernel of gated predictors; kernels are in single precision.

    It fits an offset, which these problems have not. With each sample mirrored, (-x, -y), the
    offset is 0 by symmetry, and the constraints are the same twice, each with half of C'.
    """

    name = "libsvm"
    requirements = ["pip::scikit-learn"]
    parameters = {"formulation": ["squared"], "tol": [1e-3, 1e-5, 1e-7]}

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem, or ""."""
        if is_euclidean(problem) and problem.classes is None and not problem.intercept:
            return ""
        return "not two classes under the Euclidean norm, or with an intercept"

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Minimise ||w||^2 / 2 + C' sum xi."""
        scale = problem.scale
        labels = np.concatenate([problem.y, -problem.y])
        C = reference.C * scale**2 / 2
        linear = is_linear(problem)
        if linear:
            inputs = np.concatenate([problem.X, -problem.X]) / scale
        else:
            kernel = problem.features.row_gram(0) / scale**2
            inputs = np.block([[kernel, -kernel], [-kernel, kernel]])
        kind = "linear" if linear else "precomputed"
        svc = SVC(kernel=kind, C=C, tol=tol, cache_size=CACHE).fit(inputs, labels)
        multipliers = np.zeros(len(labels))
        multipliers[svc.support_] = np.abs(svc.dual_coef_[0])
        multipliers = multipliers.reshape(2, -1).sum(axis=0)  # the samples, their mirror images
        coef = problem.coef_of(multipliers, np.ones(1)) / scale**2
        return Answer(coef, multipliers / (np.linalg.norm(coef) * scale**2))
