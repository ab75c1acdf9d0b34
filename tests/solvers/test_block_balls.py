"""The interior point in balls of blocks: its scaling against dense matrices, optima by CVXPY."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from implicit_bias import Status, max_margin, solve
from implicit_bias.base.validation import UnsuitableError
from implicit_bias.norms import L1, LInf, Nuclear, Spectral
from implicit_bias.norms.blocks import Block, OverBlocks
from implicit_bias.solvers.base import Tolerances
from implicit_bias.solvers.block_balls import BlockBalls, SingularBall

SHAPES = [(3, 5), (5, 3)]


def definite(order: int) -> Tensor:
    A = torch.tensor(np.random.default_rng(order).normal(size=(order, order)))
    return A @ A.T + torch.eye(order)


def symmetric_of(W: Tensor) -> Tensor:
    """[0, W; W', 0]."""
    a, b = W.shape
    return torch.cat([torch.cat([W.new_zeros(a, a), W], 1), torch.cat([W.T, W.new_zeros(b, b)], 1)])


def inside(shape: tuple[int, int]) -> Tensor:
    W = torch.tensor(np.random.default_rng(1).normal(size=shape))
    return 0.7 * W / torch.linalg.matrix_norm(W, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scaling_of_singular_values_is_that_of_its_definition(shape: tuple[int, int]) -> None:
    """Also off the central path, where slack and multipliers have no basis in common."""
    W = inside(shape)
    R = definite(sum(shape))
    thin = W if shape[0] <= shape[1] else W.T
    ball = SingularBall(shape, W.reshape(-1), R, 0.1)
    X = torch.eye(sum(shape)) - symmetric_of(thin)
    k = len(thin)
    L = torch.linalg.cholesky(X)
    inverse = torch.linalg.inv(L)
    # The only S of S X S = R, by square roots: S = L^-T (L' R L)^(1/2) L^-1.
    sizes, Q = torch.linalg.eigh(L.T @ R @ L)
    S = inverse.T @ (Q * sizes.sqrt()) @ Q.T @ inverse
    torch.testing.assert_close(S @ X @ S, R)

    def K(U: Tensor) -> Tensor:
        flat = U.reshape(shape)
        U = flat if shape[0] <= shape[1] else flat.T
        found = 2.0 * (S @ symmetric_of(U) @ S)[:k, k:]
        return (found if shape[0] <= shape[1] else found.T).reshape(-1)

    rows = torch.tensor(np.random.default_rng(2).normal(size=(4, W.numel())))
    solved = torch.stack([ball.solved(row) for row in rows])
    torch.testing.assert_close(torch.stack([K(row) for row in solved]), rows)
    scaled = ball.scaled(rows)
    torch.testing.assert_close(scaled @ scaled.T, rows @ solved.T)
    change = ball.change(R, rows[0])
    torch.testing.assert_close(ball.pull(change), K(rows[0]))


BLOCKS = (Block(Spectral(), (3, 2)), Block(LInf(), (1, 4)))


@pytest.mark.parametrize("first_rows", [5, 256])
def test_the_optimum_is_that_of_a_conic_solver(first_rows: int) -> None:
    """Also where rows join on the way."""
    rng = np.random.default_rng(0)
    y = rng.choice([-1.0, 1.0], 30)
    J = rng.normal(size=(30, 10)) + 0.6
    problem = max_margin(J * y[:, None], y, OverBlocks(BLOCKS, LInf()))
    method = BlockBalls(first_rows=first_rows, tolerances=Tolerances(gap=1e-7))
    found = solve(problem, method)
    assert method.run(problem).status is Status.OPTIMAL  # by its own bounds
    w, m = cp.Variable(10), cp.Variable()
    matrix = cp.reshape(w[:6], (3, 2), order="C")
    limits = [J @ w >= m, cp.sigma_max(matrix) <= 1, cp.norm_inf(w[6:]) <= 1]
    margin = cp.Problem(cp.Maximize(m), limits).solve(solver=cp.CLARABEL)
    assert found.status is Status.OPTIMAL
    assert found.certificate.lower == pytest.approx(1.0 / margin, rel=1e-6)
    assert found.certificate.upper == pytest.approx(1.0 / margin, rel=1e-6)


def test_other_norms_are_refused() -> None:
    for norm in (LInf(), OverBlocks(BLOCKS, L1()), OverBlocks((Block(Nuclear(), (2, 5)),), LInf())):
        with pytest.raises(UnsuitableError, match="blocks"):
            BlockBalls().run(max_margin(np.ones((2, 10)), [1, 1], norm))
