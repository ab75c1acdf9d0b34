"""Factors of the Gram matrices, in which CVXPY's solvers see the groups."""

from cases import separable
from implicit_bias.solvers.cvxpy_solver import cholesky_factor


def test_a_cholesky_factor_is_as_wide_as_the_rank_and_as_sparse_as_the_contexts() -> None:
    """Samples of different contexts share no feature, and no entry of the factor."""
    problem = separable("linear-n-greater-d")  # 80 samples, 3 features
    assert cholesky_factor(problem, 0).B.shape == (80, 3)
    B = cholesky_factor(separable("gln"), 0).B
    assert B.nnz < 0.6 * B.shape[0] * B.shape[1]
