"""HiGHS on a working set: known optima, rows and columns that join, and proofs."""

from fractions import Fraction

import numpy as np
import pytest

from implicit_bias import Status, max_margin, solve
from implicit_bias.norms import L1, LInf, Norm, SumOverGroups
from implicit_bias.solvers import LinearProgram, Tolerances

FINE = LinearProgram(tolerances=Tolerances(gap=1e-9))


def test_orthogonal_inputs_of_many_sizes() -> None:
    """zeta_n = y_n / x_n: the sum of these is the l1 norm, the largest the l_inf norm."""
    sizes = np.logspace(-6, 6, 7)
    y = np.array([1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0])
    exact = [1 / Fraction(size) for size in sizes]
    halves = SumOverGroups(LInf(), np.array([0, 0, 0, 1, 1, 1, 1]), axis=-1)
    optima: list[tuple[Norm, Fraction]] = [
        (L1(), sum(exact, Fraction(0))),
        (LInf(), max(exact)),
        (halves, max(exact[:3]) + max(exact[3:])),
    ]
    for norm, optimum in optima:
        found = solve(max_margin(np.diag(sizes), y, norm), FINE)
        assert found.status is Status.OPTIMAL
        assert found.certificate.lower <= optimum <= found.certificate.upper
        assert found.certificate.gap <= 1e-9


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("intercept", [False, True])
def test_rows_and_columns_that_join_make_the_whole_program(classes: int, intercept: bool) -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(90) % classes
    X = rng.normal(size=(90, 120)) + 2.0 * rng.normal(size=(classes, 120))[labels]
    problem = max_margin(X, labels, "l1", intercept=intercept, classes=classes)
    whole = solve(problem, LinearProgram(first_rows=200, first_columns=10.0))
    few = solve(problem, LinearProgram(first_rows=4, first_columns=0.5))
    assert whole.stats.iterations == 1
    assert few.stats.iterations > 1
    assert few.status is whole.status is Status.OPTIMAL
    assert few.certificate.upper == pytest.approx(whole.certificate.upper, rel=1e-6)
    # No more than the rows of the last program, and fewer than all columns.
    rows, columns = (int(word) for word in few.stats.detail.split() if word.isdigit())
    assert rows < 90 * (classes - 1)
    assert columns < 120 * classes


def test_few_rows_prove_that_nothing_separates_all() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    problem = max_margin(X, rng.choice([-1.0, 1.0], 300), "linf")
    found = solve(problem, LinearProgram(first_rows=40))
    assert found.status is Status.NOT_SEPARABLE
    assert np.count_nonzero(found.alpha) <= 40
