"""The interior point in balls of tensors: its scaling against dense matrices, and what joins."""

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor

from implicit_bias.modules.tensor_balls import CentralPath, EntryBall, SingularBall, has_balls
from implicit_bias.norms import L1, LInf, Spectral
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm

SHAPES = [(3, 5), (5, 3), (4, 4), (1, 6), (6, 1)]


def definite(order: int) -> Tensor:
    A = torch.tensor(np.random.default_rng(order).normal(size=(order, order)))
    return A @ A.T + torch.eye(order)


def block(W: Tensor) -> Tensor:
    """[0, W; W', 0]."""
    a, b = W.shape
    return torch.cat([torch.cat([W.new_zeros(a, a), W], 1), torch.cat([W.T, W.new_zeros(b, b)], 1)])


def inside(shape: tuple[int, int]) -> Tensor:
    W = torch.tensor(np.random.default_rng(1).normal(size=shape))
    return 0.7 * W / torch.linalg.matrix_norm(W, 2)


@pytest.mark.parametrize("shape", SHAPES)
def test_the_scaling_of_singular_values_is_that_of_its_definition(shape: tuple[int, int]) -> None:
    """Also off the central path, where slack and multipliers have no basis in common."""
    W, P = inside(shape), definite(sum(shape))
    thin = W if shape[0] <= shape[1] else W.T
    ball = SingularBall(shape, W.reshape(-1), P, 0.1)
    X, k = torch.eye(sum(shape)) - block(thin), len(thin)
    L = torch.linalg.cholesky(X)
    inverse = torch.linalg.inv(L)
    # The only S of S X S = P, by square roots: S = L^-T (L' P L)^(1/2) L^-1.
    sizes, Q = torch.linalg.eigh(L.T @ P @ L)
    S = inverse.T @ (Q * sizes.sqrt()) @ Q.T @ inverse
    torch.testing.assert_close(S @ X @ S, P)

    def K(U: Tensor) -> Tensor:
        flat = U.reshape(shape)
        U = flat if shape[0] <= shape[1] else flat.T
        found = 2.0 * (S @ block(U) @ S)[:k, k:]
        return (found if shape[0] <= shape[1] else found.T).reshape(-1)

    rows = torch.tensor(np.random.default_rng(2).normal(size=(4, W.numel())))
    solved = torch.stack([ball.solved(row) for row in rows])
    torch.testing.assert_close(torch.stack([K(row) for row in solved]), rows)
    scaled = ball.scaled(rows)
    torch.testing.assert_close(scaled @ scaled.T, rows @ solved.T)
    change = ball.change(P, rows[0])
    torch.testing.assert_close(ball.pull(change), K(rows[0]))


@pytest.mark.parametrize("kind", ["entries", "singular values"])
def test_steps_stay_inside_up_to_their_rates(kind: str) -> None:
    shape, rng = (3, 4), np.random.default_rng(0)
    w, dw = inside(shape).reshape(-1), torch.tensor(rng.normal(size=12))
    entries = kind == "entries"
    ball = EntryBall(w, None, 0.1) if entries else SingularBall(shape, w, None, 0.1)
    dP = ball.change(ball.at_products(0.0, None), dw)
    of_slack, of_multipliers = ball.rates(dw, dP)

    def least(length: float) -> tuple[float, float]:
        W = (w + length * dw).reshape(shape)
        P = ball.P + length * dP
        if entries:
            return 1.0 - float(W.abs().max()), float(P.min())
        return 1.0 - float(torch.linalg.matrix_norm(W, 2)), float(torch.linalg.eigvalsh(P)[0])

    assert least(1.0 / of_slack)[0] == pytest.approx(0.0, abs=1e-12)
    assert least(1.0 / of_multipliers)[1] == pytest.approx(0.0, abs=1e-10)


def test_rows_that_join_on_the_way_lead_to_the_same_margin() -> None:
    shapes = {"first": torch.Size([3, 2]), "second": torch.Size([4])}
    norm = ComposedNorm({"first": Spectral(), "second": LInf()}, LInf())
    J = torch.tensor(np.random.default_rng(0).normal(size=(30, 10)) + 0.6)
    path = CentralPath(norm, shapes, J[:5], 50.0)
    for step in range(60):
        path.advance()
        if step < 5:
            path.join(J[5 * step + 5 : 5 * step + 10])
    w, m = cp.Variable(10), cp.Variable()
    matrix = cp.reshape(w[:6], (3, 2), order="C")
    rows = [J.numpy() @ w >= m, cp.sigma_max(matrix) <= 1, cp.norm_inf(w[6:]) <= 1]
    optimum = cp.Problem(cp.Maximize(m), rows).solve(solver=cp.CLARABEL)
    assert path.m == pytest.approx(optimum, rel=1e-6)
    assert float(path.weights.sum()) == pytest.approx(1.0)
    v = {"first": J[:, :6].T @ path.weights, "second": J[:, 6:].T @ path.weights}
    dual = norm.dual({"first": v["first"].reshape(3, 2), "second": v["second"]})
    assert dual == pytest.approx(optimum, rel=1e-6)


def test_only_the_largest_of_norms_of_entries_and_small_matrices_has_balls() -> None:
    shapes = {"first": torch.Size([3, 2]), "second": torch.Size([4, 300, 2])}
    assert has_balls(as_parameter_norm("linf"), shapes)
    assert not has_balls(as_parameter_norm("spectral"), shapes)  # of 4 rows and 600 columns
    assert has_balls(ComposedNorm({"": Spectral(), "second": LInf()}, LInf()), shapes)
    assert not has_balls(as_parameter_norm("l1"), shapes)
    assert not has_balls(ComposedNorm(Spectral(), L1()), shapes)
