"""The published protocol on MNIST: certified optima, and the published accuracies to the digit.

Run with ``IMPLICIT_BIAS_DATA=<folder with mnist/> pytest -m slow``.
"""

import numpy as np
import pytest

from benchmarks.lippl2022 import draws
from implicit_bias import MarginProblem, Solution, Status, solve
from implicit_bias.base.validation import Array
from implicit_bias.problem import decision
from implicit_bias.problem.gating import Gating, NoGates, UnitGates
from mnist import mnist, needs_mnist, parts

pytestmark = [pytest.mark.slow, needs_mnist]

# The printed accuracies have four to six digits; 12,000 validation images.
ACCURACY_ATOL = 1e-4
# Our own values are exact counts.
EXACT_ATOL = 1e-6


def certified(problem: MarginProblem, tol: float = 1e-6) -> Solution:
    solution = solve(problem, tol=tol)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < tol
    return solution


def accuracy(gating: Gating, solution: Solution) -> float:
    """Share of y f(x) > 0 of the validation images: a prediction of 0 is an error."""
    unseen = parts().validation
    outputs = decision(unseen.X, gating.gates(unseen.X), solution.coef)
    return float(np.mean(unseen.y * outputs > 0))


@pytest.mark.parametrize(("train_size", "norm"), [(1000, 14.84515273)])
def test_linear(train_size: int, norm: float) -> None:
    train = parts(train_size).train
    gating = NoGates(785)
    problem = MarginProblem(train.X, train.y, gating.gates(train.X), gating.groups)
    solution = certified(problem, tol=1e-9)
    assert solution.certificate.upper == pytest.approx(norm, rel=1e-8)
    assert np.linalg.norm(solution.coef) == pytest.approx(norm, rel=1e-8)


def svm_rc(gating: UnitGates, gates: Array) -> float:
    train = parts().train
    return accuracy(gating, certified(MarginProblem(train.X, train.y, gates, gating.groups)))


@pytest.mark.parametrize(("n_units", "seed", "published"), [(10, 1, 0.82475), (20, 3, 0.842417)])
def test_svm_rc(n_units: int, seed: int, published: float) -> None:
    gating = draws.draw_unit_gates(n_units, reference=mnist().X, seed=seed)
    found = svm_rc(gating, gating.gates(parts().train.X))
    assert found == pytest.approx(published, abs=ACCURACY_ATOL)
