"""The objective of benchopt: an answer is graded by `certify`, whoever found it."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.speed.bases import BaseObjective
from benchmarks.speed.reference import reference_of
from implicit_bias import MarginProblem, certify
from implicit_bias.base.validation import Array


class Objective(BaseObjective):
    """Minimise Omega(w) + C sum_n xi_n; the value of an answer is a certified upper bound."""

    name = "Maximum margin"
    url = "https://github.com/implicit-bias/implicit-bias"
    min_benchopt_version = "1.10"
    sampling_strategy = "run_once"

    def set_data(self, problem: MarginProblem) -> None:
        """Keep a problem, and solve it outside of the timing."""
        self.problem = problem
        self.reference = reference_of(problem)

    def get_objective(self) -> dict[str, Any]:
        """Return what the solvers get."""
        return {"problem": self.problem, "reference": self.reference}

    def evaluate_result(self, coef: Array, alpha: Array | None) -> dict[str, float]:
        """Grade an answer.

        Returns
        -------
        dict
            ``value`` and ``lower``, the certified bounds on the optimum by the answer; ``gap``,
            between these; and ``excess`` of the value over the best lower bound that is known: an
            answer without dual variables proves none of its own.
        """
        bounds = certify(self.problem, coef, alpha)
        lower = max(bounds.lower, self.reference.lower)
        return {
            "value": bounds.upper,
            "lower": bounds.lower,
            "gap": bounds.gap,
            "excess": excess(bounds.upper, lower),
        }

    def get_one_result(self) -> dict[str, Any]:
        """Return an answer of the right shape."""
        return {"coef": np.ones(self.problem.coef_shape), "alpha": None}


def excess(upper: float, lower: float) -> float:
    """Return by how much an upper bound exceeds a lower bound, as a fraction of that."""
    return upper / lower - 1.0 if lower > 0 else np.inf
