"""Attention as token selection: against CVXPY, by hand, and errors of input."""

from types import SimpleNamespace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest

from implicit_bias import Status, attention_margin, solve
from implicit_bias.base.rounding import Enclosure
from implicit_bias.base.validation import Array
from implicit_bias.norms import L2, GroupNorm, Nuclear, SumOverGroups

N, T, D, E = 6, 4, 5, 3
RNG = np.random.default_rng(0)
TOKENS = RNG.normal(size=(N, T, D))
QUERY = RNG.normal(size=(N, E))
BEST = np.arange(N) % T
ATOMS: dict[str, Any] = {
    "l1": lambda W: cp.sum(cp.abs(W)),
    "l2": lambda W: cp.norm(W, "fro"),
    "linf": lambda W: cp.max(cp.abs(W)),
    "spectral": cp.sigma_max,
    "nuclear": cp.normNuc,
}


def scores(W: Any, n: int) -> list[Any]:
    """x_best' W q - x_t' W q of a sample's other tokens, in their order."""
    rest = [t for t in range(T) if t != BEST[n]]
    return [TOKENS[n, BEST[n]] @ W @ QUERY[n] - TOKENS[n, t] @ W @ QUERY[n] for t in rest]


@pytest.mark.parametrize("norm", ATOMS)
def test_the_optimum_is_that_of_the_definition(norm: str) -> None:
    W = cp.Variable((D, E))
    program = cp.Problem(
        cp.Minimize(ATOMS[norm](W)), [score >= 1 for n in range(N) for score in scores(W, n)]
    )
    program.solve(solver="CLARABEL")
    problem = attention_margin(TOKENS, QUERY, BEST, norm)
    solution = solve(problem)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.upper == pytest.approx(program.value, rel=1e-5)
    assert solution.coef.shape == (E, D)
    margins = np.concatenate([scores(solution.coef.T, n) for n in range(N)])
    np.testing.assert_allclose(problem.margins(problem.decision(solution.coef)), margins)
    assert solution.alpha.reshape(N, T - 1).sum() == pytest.approx(program.value, rel=1e-5)


def test_norms_that_see_rows_or_groups() -> None:
    """Groups of features are blocks of columns of W', groups of gate columns those of rows."""
    coef = RNG.normal(size=(E, D))
    columns = SumOverGroups(Nuclear(), np.array([0, 0, 1, 1, 1]), axis=-1)
    rows = SumOverGroups(Nuclear(), np.array([0, 0, 1]))
    for norm, parts in ((columns, (coef[:, :2], coef[:, 2:])), (rows, (coef[:2], coef[2:]))):
        found = attention_margin(TOKENS, QUERY, BEST, norm).norm.value(coef)
        assert found == pytest.approx(sum(np.linalg.norm(part, "nuc") for part in parts))


def test_equal_norms_of_groups_of_rows_have_the_same_optimum() -> None:
    groups = np.array([0, 0, 1])
    problems = [
        attention_margin(TOKENS, QUERY, BEST, norm)
        for norm in (GroupNorm(groups), SumOverGroups(L2(), groups))
    ]
    one, other = [solve(problem).certificate.upper for problem in problems]
    assert one == pytest.approx(other, rel=1e-6)


def test_a_custom_norm_sees_three_axes() -> None:
    norm = SimpleNamespace(value=lambda coef: coef.ndim, dual=lambda V: V.ndim)
    problem = attention_margin(TOKENS, QUERY, BEST, norm)
    assert problem.norm.value(np.ones((E, D))) == problem.norm.dual(np.ones((1, E, D))) == 3.0


def test_bounds_of_an_enclosure_are_those_of_the_matrix() -> None:
    """They hold for the array of the enclosure that is farthest from its centre, too."""
    norm = attention_margin(TOKENS, QUERY, BEST, "nuclear").norm
    V = np.abs(RNG.normal(size=(1, E, D)))
    radius = 0.1 * np.abs(RNG.normal(size=(1, E, D)))
    exact = np.linalg.norm((V + radius)[0], 2)
    bound = norm.dual_bounds(Enclosure(V, radius)).item()
    assert exact <= bound <= np.linalg.norm(V[0], 2) + 1.02 * np.linalg.norm(radius)


def test_a_finite_C_is_passed_on() -> None:  # noqa: N802 - as it is called
    problem = attention_margin(TOKENS, QUERY, BEST, C=0.01)
    assert solve(problem).alpha.max() <= 0.01 * (1 + 1e-9)


@pytest.mark.parametrize(
    ("tokens", "query", "best", "word"),
    [(TOKENS[:, :1], QUERY, BEST, "at least two"), (TOKENS, QUERY, BEST + 1, "from 0 to 3")],
)
def test_bad_input_is_named(tokens: Array, query: Array, best: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        attention_margin(tokens, query, best)
