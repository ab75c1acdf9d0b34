"""Factors of the Gram matrices, in which CVXPY's solvers see the groups."""

import numpy as np
import pytest

from cases import separable
from implicit_bias.solvers.cvxpy_solver import FORMULATIONS, Formulation
from oracles import loop_decision, loop_group_norms


@pytest.mark.parametrize("formulation", FORMULATIONS)
@pytest.mark.parametrize(
    "name",
    ["gln", "sparse-gates", "linear-n-greater-d", "rank-deficient-x", "metric-rank-deficient"],
)
def test_factors_are_coordinates_of_the_features(name: str, formulation: Formulation) -> None:
    """B B' is the Gram matrix; the coefficients of u have its norm, and the margins B u."""
    problem = separable(name)
    factors = [
        FORMULATIONS[formulation].factor(problem, group) for group in range(problem.n_groups)
    ]
    for g, factor in enumerate(factors):
        Q = problem.gram(g) / problem.scale**2
        np.testing.assert_allclose((factor.B @ factor.B.T).toarray(), Q, atol=1e-12)
        u = np.random.default_rng(g).normal(size=factor.B.shape[1])
        plain = np.zeros((len(problem.plain_groups), problem.X.shape[1]))
        plain[problem.plain_groups == g] = factor.lift(u)
        coef = np.asarray(problem.root @ plain) / problem.scale
        expected = np.linalg.norm(u) / problem.scale
        assert loop_group_norms(problem, coef)[g] == pytest.approx(expected, rel=1e-7)
        margins = problem.y * loop_decision(problem, coef)
        np.testing.assert_allclose(margins, factor.B @ u, atol=1e-9)


def test_a_cholesky_factor_is_as_wide_as_the_rank_and_as_sparse_as_the_contexts() -> None:
    """Samples of different contexts share no feature, and no entry of the factor."""
    problem = separable("linear-n-greater-d")  # 80 samples, 3 features
    assert FORMULATIONS["dual"].factor(problem, 0).B.shape == (80, 3)
    B = FORMULATIONS["reduced"].factor(separable("gln"), 0).B
    assert B.nnz < 0.6 * B.shape[0] * B.shape[1]
