"""The solver in multiple precision: problems that float64 cannot hold, limits."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

from cases import cloud, plain
from implicit_bias import MarginProblem, Status, certify, max_margin, solvers
from implicit_bias.bounds.exact import certify_exact
from implicit_bias.solvers.choice import Fallback, fallbacks
from oracles import fractions


def dates(offset: float, n: int = 20, seed: int = 0) -> MarginProblem:
    """Whole numbers about an offset, as (t, 1): separated by (1, -offset), margin 5 or more."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    t = offset + y * rng.integers(5, 96, size=n)
    return max_margin(np.column_stack([t, np.ones(n)]), y)


@pytest.mark.every(5)
@pytest.mark.parametrize("offset", [1e4, 1e6, 1e8, 1.7e9, 1e10, 1e13])
@pytest.mark.parametrize("free", [False, True])
def test_offsets(offset: float, free: bool) -> None:
    """The constant in the norm, or a free intercept, whose optimum the offset leaves as it is."""
    problem = dates(offset)
    if free:
        problem = replace(problem, X=problem.X[:, :1], intercept=True)
    found = solvers.solve(problem)
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap <= 1e-6
    t = problem.X[:, 0]
    low, high = t[problem.y < 0].max(), t[problem.y > 0].min()
    half = 0.5 * (high - low)
    w, b = 1 / half, -0.5 * (high + low) / half
    if free:
        assert found.certificate.upper == pytest.approx(w, rel=1e-6)
    else:
        # The nearest samples of both classes have the margin 1.
        assert found.certificate.upper == pytest.approx(np.hypot(w, b), rel=1e-5)


@pytest.mark.parametrize("offset", [1e10, 1e13])
def test_rational_numbers_attain_the_bounds(offset: float) -> None:
    problem = dates(offset)
    found = solvers.solve(problem)
    assert found.exact is not None
    assert "rational" in found.message
    assert "center" in found.message
    again = certify_exact(problem, found.exact)
    assert (again.lower, again.upper) == (found.certificate.lower, found.certificate.upper)
    assert again.gap <= 1e-6
    assert (found.exact.margins(problem) >= 1 - 1e-12).all()
    # By hand: V and the margins in fractions.
    alpha, coef = found.exact.alpha, found.exact.plain_coef[0]
    signed = fractions(problem.y[:, None] * problem.X)
    V, smallest = alpha @ signed, (signed @ coef).min()
    assert Fraction(found.certificate.lower) ** 2 * (V @ V) <= alpha.sum() ** 2
    assert coef @ coef <= (Fraction(found.certificate.upper) * smallest) ** 2
    # Rounded to float64 they bound less.
    assert not certify(problem, found.coef, found.alpha).gap <= 1e-6


def test_a_balance_that_is_exact() -> None:
    X, y = cloud(20, 3, shift=3.0)
    problem = plain(X[:, :-1] * [1.0, 1e9] + 1e10, y, intercept=True)
    found = solvers.solve(problem, solvers.MultiPrecision(tolerances=solvers.Tolerances(gap=1e-14)))
    assert found.status is Status.OPTIMAL
    assert found.exact is not None
    assert sum(a * int(s) for a, s in zip(found.exact.alpha, y, strict=True)) == 0


@pytest.mark.slow
def test_many_samples_of_few_features() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2))
    y = np.where(X @ [1.0, -2.0] > 0, 1.0, -1.0)
    X = X + 0.3 * y[:, None] * [1.0, -2.0]
    problem = plain(X, y)
    found, other = solvers.solve(problem, "multiprecision"), solvers.solve(problem)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=1e-5)


def test_auto_takes_it_where_float64_fails() -> None:
    problem = dates(1e10)
    first = solvers.choose_solver(problem)
    assert "multiprecision" in [one.solver for one in fallbacks(problem, first)]
    found = solvers.solve(problem)
    assert found.stats.solver == "multiprecision"
    assert f"after {first}: " in found.stats.detail
    large = plain(np.random.default_rng(0).normal(size=(400, 300)), np.tile([1.0, -1.0], 200))
    assert "multiprecision" not in [one.solver for one in fallbacks(large, "interior-point")]


def test_precision_is_local() -> None:
    before = flint.ctx.prec
    seen: list[solvers.BoundsAt] = []

    def on_progress(bounds: solvers.BoundsAt) -> None:
        assert flint.ctx.prec == before
        seen.append(bounds)

    found = solvers.solve(dates(1e8), solvers.MultiPrecision(), on_progress=on_progress)
    assert flint.ctx.prec == before
    assert found.stats.history == tuple(seen)


def test_limits() -> None:
    with pytest.raises(MemoryError, match="max_memory"):
        solvers.solve(dates(1e8), solvers.MultiPrecision(max_memory=1e-9))
    with pytest.raises(ValueError, match="bits"):
        solvers.MultiPrecision(bits=64)
    with pytest.raises(ValueError, match="CPU"):
        solvers.MultiPrecision(device="cuda")


@pytest.mark.parametrize("samples", [10, 60])
def test_a_step_ends_when_its_time_is_up(samples: int) -> None:
    """Whether the normal matrix is that of the samples or of the features."""
    X, y = cloud(samples, 30, shift=1.0)
    stopped = solvers.solve(plain(X, y), solvers.MultiPrecision(max_seconds=1e-9))
    assert stopped.status is Status.TIME_LIMIT
    assert stopped.stats.history == ()
    assert stopped.certificate.lower <= stopped.certificate.upper


def test_too_little_memory_for_it_costs_no_answer() -> None:
    offset = dates(1e10)
    columns = np.random.default_rng(0).normal(size=(20, 100))
    problem = replace(offset, X=np.hstack([offset.X, 1e10 + columns]))
    room = 1e-3
    with pytest.raises(MemoryError, match="max_memory"):
        solvers.solve(problem, solvers.MultiPrecision(max_memory=room))
    kept = solvers.solve(problem, max_memory=room)
    assert "multiprecision: memory limit" in kept.stats.detail
    assert kept.certificate.lower > 0


def test_the_last_resort_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small problems of numbers far apart took more than a minute, which ends without a limit."""

    def hurried(*problem: Any) -> list[Fallback]:
        return [Fallback(one.solver, 1e-9) for one in fallbacks(*problem)]

    monkeypatch.setattr(solvers.choice, "fallbacks", hurried)
    found = solvers.solve(dates(1e10))
    assert "multiprecision: time limit" in found.stats.detail
    assert found.status is Status.ITERATION_LIMIT  # of its own, as the user gave none
    assert 0 < found.certificate.lower <= found.certificate.upper
    # It is of the last resort alone: asked for by name, the method takes as long as it takes.
    assert solvers.solve(dates(1e10), "multiprecision").status is Status.OPTIMAL
