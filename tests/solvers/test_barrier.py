"""The barrier method in multiple precision: any norm, any classes, numbers of any size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import flint
import numpy as np
import pytest

from benchmarks.speed import stress
from benchmarks.speed.exact import find_lies
from cases import GATES, Stranger, plain
from cases import NORMS as OF_NAMES
from implicit_bias import MarginProblem, Status, max_margin, norms, solve
from implicit_bias.bounds.exact import certify_exact
from implicit_bias.solvers import MultiPrecision, Tolerances
from implicit_bias.solvers.barrier import Ball, Entries, MatrixFraction, Powers, SpectralBall, Term
from oracles import check_overlap

N, D, M = 6, 3, 2
TIGHT = MultiPrecision(tolerances=Tolerances(gap=1e-9))
# Those of gates are of two here.
NORMS: dict[str, Any] = {
    **{name: norm for name, norm in OF_NAMES.items() if not hasattr(norm, "groups")},
    "l1.5": norms.Lp(1.5),
    "almost linf": norms.Lp(1e16),
    "groups": norms.GroupNorm(np.array([0, 1])),
    "groups of classes": norms.GroupNorm(np.array([0, 1]), apart=True),
    "metric": norms.GroupNorm(np.arange(M), {0: np.array([[2.0]])}),
    "sum of nuclear": norms.SumOverGroups(norms.Nuclear(), GATES, axis=-1),
    "sum of powers": norms.SumOverGroups(norms.Lp(3.0), np.array([0, 1])),
    "max of l2": norms.MaxOverGroups(norms.L2(), np.array([0, 1])),
    "max of spectral": norms.MaxOverGroups(norms.Spectral(), GATES, axis=-1),
    "rows": norms.InRows(norms.Nuclear(), 2),
}


def drawn(
    norm: norms.Norm, classes: int, C: float = np.inf, intercept: bool = False
) -> MarginProblem:
    rng = np.random.default_rng(5)
    X, gates = rng.normal(size=(N, D)), np.abs(rng.normal(size=(N, M)))
    y: Any = np.arange(N) % classes if classes > 2 else np.where(np.arange(N) % 2, 1.0, -1.0)
    K = classes if classes > 2 else None
    return MarginProblem(X, y, gates, np.arange(M), None, C, norm, intercept, classes=K)


# Rows are those of gates, of one class.
@pytest.mark.every(21)
@pytest.mark.parametrize(
    ("name", "classes"), [(name, k) for name in NORMS for k in (2, 3) if k == 2 or name != "rows"]
)
@pytest.mark.parametrize(("C", "intercept"), [(np.inf, False), (np.inf, True), (0.7, True)])
def test_every_norm(name: str, classes: int, C: float, intercept: bool) -> None:
    problem = drawn(NORMS[name], classes, C, intercept)
    usual = solve(problem, "auto", 1e-7).certificate
    found = solve(problem, TIGHT)
    assert found.status in (Status.OPTIMAL, Status.NOT_SEPARABLE, Status.NEARLY_INSEPARABLE)
    check_overlap(found.certificate, usual, 0.0)
    if name != "rows":  # of which the grader does not know
        assert find_lies(found, problem, 1e-9) == []


@pytest.mark.slow
def test_classes_without_samples_share_their_coefficients() -> None:
    X = np.random.default_rng(2).normal(size=(4, 2))
    y = np.where(X[:, 0] > 0, 0, 3)
    by_features = norms.SumOverGroups(norms.Lp(3.0), np.array([0, 1]), -1)
    for norm in (norms.L2(), norms.Lp(1.5), norms.Spectral(), norms.Nuclear(), by_features):
        problem = plain(X, y, norm=norm, classes=9)
        found = solve(problem, TIGHT)
        assert found.status is Status.OPTIMAL
        np.testing.assert_array_equal(found.coef[1], found.coef[8])
        with_offsets = replace(problem, intercept=True)
        found = solve(with_offsets, TIGHT)
        assert found.status is Status.OPTIMAL
        assert find_lies(found, with_offsets, 1e-8) == []


@pytest.mark.every(15)
@pytest.mark.parametrize(
    ("family", "index"),
    [
        (family, index)
        for family, numbers in {
            "many classes": (22, 53, 100),
            "metrics": (18, 24, 43, 58),
            "C": (14, 58),
            "classes": (31, 60),
            "gate scales": (36, 43, 50, 57),
        }.items()
        for index in numbers
    ],
)
def test_numbers_of_any_size(family: str, index: int) -> None:
    """Gates, metrics and C that differ by so much that float64 ends far from the optimum."""
    problem = stress.draw(index, family).problem
    found = solve(problem, MultiPrecision())
    assert found.status is Status.OPTIMAL
    assert find_lies(found, problem, 1e-6) == []


@pytest.mark.every(7)
@pytest.mark.parametrize("size", [1e-140, 1e-90, 1e90, 1e140])
@pytest.mark.parametrize("name", ["l1", "spectral", "nuclear"])
def test_features_of_any_size(name: str, size: float) -> None:
    """In a common unit, of which the solver takes no more bits than of 1."""
    X, y = np.array([[1.0, -1.0], [0.0, 1.0], [2.0, 1.0]]), np.array([0, 1, 2])
    plain = solve(max_margin(X, y, name), MultiPrecision())
    found = solve(max_margin(size * X, y, name), MultiPrecision())
    assert found.status is plain.status is Status.OPTIMAL
    assert size * found.certificate.upper == pytest.approx(plain.certificate.upper, rel=1e-5)


@pytest.mark.slow
def test_a_box_of_any_size() -> None:
    """C and the features may be a thousand bits apart, and the path from one to the other long."""
    X, y = np.random.default_rng(0).normal(size=(8, 1)), np.arange(8) % 5
    found = solve(max_margin(X, y, "l2", C=1e280), MultiPrecision())
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap <= 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("size", [1e-300, 1e-305, 5e-324])
def test_features_near_the_smallest_numbers(size: float) -> None:
    """They alone separate these samples: an optimum beyond 1e308 is said to be out of reach."""
    X, y = np.array([[1.0, size], [1.0, -size], [1.0, 3 * size]]), np.array([1.0, -1.0, 1.0])
    found = solve(max_margin(X, y, "linf"))
    if size > 1e-308:
        assert found.status is Status.OPTIMAL
        assert found.certificate.upper == pytest.approx(1 / size, rel=1e-6)
    else:
        assert found.status is Status.NEARLY_INSEPARABLE


def test_answers_that_float64_cannot_hold() -> None:
    """Offsets of 1e20 leave no digit of a difference of 1 in the coefficients' products."""
    X = 1e20 + np.array([[0.0], [1e5], [2e5]])
    problem = plain(X, np.array([0, 1, 2]), norm=norms.Spectral(), intercept=True)
    found = solve(problem, MultiPrecision())
    assert found.status is Status.OPTIMAL
    exact = found.exact
    if exact is not None:
        assert certify_exact(problem, exact).gap <= 1e-6
        assert sum(exact.alpha.ravel()) > 0


@pytest.mark.slow
def test_what_is_not_separable_has_no_optimum() -> None:
    X = np.array([[1.0], [2.0], [3.0]])
    problem = max_margin(X, np.array([0, 1, 2]), norms.Lp(3.0))
    found = solve(problem, MultiPrecision())
    assert found.status is not Status.OPTIMAL
    assert np.isinf(found.certificate.upper)
    assert solve(problem).status is Status.NOT_SEPARABLE


def test_a_class_without_samples_never_wins_under_any_norm() -> None:
    X = np.random.default_rng(2).normal(size=(6, 2))
    y = np.where(X[:, 0] > 0, 0, 2)
    problem = plain(X, y, norm=norms.as_norm(Stranger()), intercept=True, classes=4)
    found = solve(problem, TIGHT)
    assert found.status is Status.OPTIMAL
    assert found.certificate.min_margin > 0.999


def test_norms_of_matrices_are_not_taken_for_those_of_their_entries() -> None:
    def largest(zeta: Any, shape: Any, cp: Any) -> Any:
        return cp.norm(cp.reshape(zeta, (shape[0], shape[1] * shape[2]), order="C"), 2)

    problem = max_margin(np.eye(3), np.arange(3), norms.as_norm(Stranger(said=largest)))
    with pytest.raises(ValueError, match="vectors"):
        solve(problem, MultiPrecision())


def test_a_function_without_a_barrier() -> None:
    norm = Stranger(said=lambda zeta, shape, cp: cp.sqrt(cp.sum_squares(zeta)))
    problem = max_margin(np.eye(2), np.array([1.0, -1.0]), norm)
    with pytest.raises(ValueError, match="sqrt"):
        solve(problem, "multiprecision")
    assert solve(problem).status is Status.OPTIMAL


# --- derivatives, by brute force -------------------------------------------------------------


def numbers(values: Any) -> Any:
    return np.array([flint.arb(float(v)) for v in np.ravel(values)], dtype=object)


def terms() -> Iterator[Any]:
    """Each barrier, with a point of its domain."""
    rng = np.random.default_rng(0)
    yield pytest.param(Ball(np.arange(3), numbers([1, 3])), [0.2, -0.3, 1.0], id="ball")
    yield pytest.param(Entries(np.arange(4)), [0.2, -0.3, 1.0, 0.4], id="entries")
    powers = Powers(np.arange(6), flint.arb(0.25))
    yield pytest.param(powers, [0.2, -0.3, 0.5, 0.6, 1.0, 0.9], id="powers")
    Z = 0.2 * rng.normal(size=6)
    ball = SpectralBall(np.arange(7), (2, 3), numbers(np.sqrt([1, 1, 1, 2, 2, 2])))
    yield pytest.param(ball, [*Z, 1.0], id="spectral")
    fraction = MatrixFraction(np.arange(10), (2, 3), numbers(np.ones(6)))
    yield pytest.param(fraction, [*Z, 1.0, 0.1, 0.8, 2.0], id="fraction")


@pytest.mark.parametrize(("term", "point"), list(terms()))
def test_derivatives_are_those_of_the_barrier(term: Term, point: list[float]) -> None:
    with flint.ctx.workprec(400):
        x, step = numbers(point), flint.arb(2) ** -100
        gradient, rows, columns, values = term.derivatives(x)
        hessian = np.zeros((len(x), len(x)))
        np.add.at(hessian, (rows, columns), values.astype(float))
        slope = np.zeros(len(x))
        np.add.at(slope, np.arange(len(x)), gradient.astype(float))
        hessian += np.outer(slope, slope) * term.adds_square

        def moved(*places: int) -> Any:
            shifted = x.copy()
            for place in places:
                shifted[place] = shifted[place] + step
            value = term.value(shifted)
            assert value is not None
            return value

        for i in range(len(x)):
            assert float((moved(i) - moved()) / step) == pytest.approx(slope[i], abs=1e-9)
            for j in range(len(x)):
                second = (moved(i, j) - moved(i) - moved(j) + moved()) / step**2
                assert float(second) == pytest.approx(hessian[i, j], rel=1e-9, abs=1e-9)


@pytest.mark.parametrize(("term", "point"), list(terms()))
def test_outside_of_the_domain(term: Term, point: list[float]) -> None:
    with flint.ctx.workprec(200):
        x = numbers(point)
        x[-1] = -x[-1] * 100
        assert term.value(x) is None
