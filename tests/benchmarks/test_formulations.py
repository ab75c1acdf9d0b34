"""Factors of the Gram matrices, in which CVXPY's solvers see the groups."""

import numpy as np
import pytest

from benchmarks.speed.formulations import cholesky_factor, feature_factor
from cases import separable


@pytest.mark.parametrize("name", ["gln", "svm-l2", "sparse-gates", "linear-n-greater-d"])
@pytest.mark.parametrize("make", [feature_factor, cholesky_factor])
def test_a_factor_is_one_of_the_gram_matrix(name: str, make: type) -> None:
    """And its coordinates stand for coefficients of the same norm and the same margins."""
    problem = separable(name)
    for g in range(problem.n_groups):
        factor = make(problem, g)
        B = factor.B.toarray() * problem.scale
        Q = problem.gram(g)
        np.testing.assert_allclose(B @ B.T, Q, atol=1e-9 * np.abs(Q).max())
        u = np.random.default_rng(g).normal(size=B.shape[1])
        coef = np.zeros(problem.coef_shape)
        coef[problem.groups == g] = factor.coefficients(u)
        margins = problem.margins(problem.decision(coef))
        np.testing.assert_allclose(margins, B @ u, atol=1e-7 * np.abs(margins).max())
        assert np.linalg.norm(coef) == pytest.approx(np.linalg.norm(u), rel=1e-7)


def test_a_cholesky_factor_is_as_wide_as_the_rank_and_as_sparse_as_the_contexts() -> None:
    """Samples of different contexts share no feature, and no entry of the factor."""
    problem = separable("linear-n-greater-d")  # 80 samples, 3 features
    assert cholesky_factor(problem, 0).B.shape == (80, 3)
    B = cholesky_factor(separable("gln"), 0).B
    assert B.nnz < 0.6 * B.shape[0] * B.shape[1]
