"""LIBLINEAR: coordinate ascent in the dual of the squared norm; of many classes, Crammer-Singer."""

import numpy as np
from sklearn.svm import LinearSVC

from benchmarks.speed.guarded import Answer, GuardedSolver
from benchmarks.speed.reference import Reference, is_euclidean, is_linear
from implicit_bias import MarginProblem

# Many more steps than its time allows.
ENDLESS = 10**8


class Solver(GuardedSolver):
    """scikit-learn's LinearSVC, which keeps its dual variables to itself."""

    name = "LIBLINEAR"
    requirements = ["pip::scikit-learn"]
    parameters = {"formulation": ["squared"], "tol": [1e-3, 1e-5, 1e-7, 1e-9]}

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem, or ""."""
        if is_linear(problem) and is_euclidean(problem) and not problem.intercept:
            return ""
        return "no linear predictor under the Euclidean norm, or one with an intercept"

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Minimise ||w||^2 / 2 + C' sum xi."""
        svc = LinearSVC(
            loss="hinge",
            multi_class="ovr" if problem.classes is None else "crammer_singer",
            C=reference.C,
            tol=tol,
            fit_intercept=False,
            max_iter=ENDLESS,
            random_state=0,
        )
        coef = svc.fit(problem.X, problem.y).coef_
        return Answer(np.asarray(coef).reshape(problem.coef_shape))
