"""The gap of weights that are on kinks of their ReLU units, or beside them."""

import math
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import nn

from example_modules import Square, drawn, frozen, layers, of, own_labels, seeded
from implicit_bias import LimitConfig, diagnose, train_to_limit
from implicit_bias.base.deadline import NEVER
from implicit_bias.base.validation import Array
from implicit_bias.modules.kinks import KinkSearch, Pieces, gap_across_kinks
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.modules.tangent_program import Multipliers
from implicit_bias.norms.tensors import PARAMETER_NORMS
from modules.programs import check_products

RADIUS = KinkSearch.radius
# Of the second order, or of as many steps of the radius.
NEAR = 20 * RADIUS


def at_a_kkt_point(c: float) -> tuple[nn.Module, Array, list[int]]:
    """Return relu(<w, x>) - relu(<v, x>), two samples at an angle of cosine c, and their labels.

    With s = sqrt(1 - c^2), w = (1, -c / s) and v = (0, 1 / s) have margins 1. w is perpendicular to
    the second sample and v to the first: multipliers 1 / s^2 of both, and slopes c of the ReLU at
    these two kinks, make it a KKT point. All is rotated, so that no entry is 0.
    """
    s, turn = math.sqrt(1 - c**2), 0.7
    rotation = np.array([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
    X = np.array([[1.0, 0.0], [c, s]]) @ rotation
    units = np.array([[1.0, -c / s], [0.0, 1.0 / s]]) @ rotation
    module = of(units, np.array([[1.0, -1.0]]), between=nn.ReLU)
    return frozen(module, "2.weight"), X, [1, -1]


def best_of(module: nn.Module, X: Array, y: Any, norm: str = "l2") -> Multipliers:
    return Subject.of(margins_of(module, X, y)).measure(PARAMETER_NORMS[norm])


def test_a_kkt_point_on_kinks_is_one_across_them() -> None:
    c = 0.2
    module, X, y = at_a_kkt_point(c)
    best = best_of(module, X, y)
    assert best.gap > c**2 / 2
    assert gap_across_kinks(best) <= NEAR
    assert diagnose(module, X, y).gap_across_kinks <= NEAR


def test_other_points_on_kinks_are_none() -> None:
    """The norm of w could fall, though it is on its kink."""
    module, X, y = at_a_kkt_point(0.5)
    with torch.no_grad():
        module.get_parameter("0.weight")[0] *= 2.0
    best = best_of(module, X, y)
    assert 0.1 < gap_across_kinks(best) <= best.gap


def test_smooth_margins_that_change_a_lot_meet_no_kinks() -> None:
    """The smallest margin is a small difference of outputs: nearby it is several per cent other."""
    X = drawn(12, 4)
    module = seeded(layers(4, 6, 1, between=Square), 3)
    best = best_of(module, X.numpy(), own_labels(module, X), "spectral")
    assert best.gap > NEAR
    assert gap_across_kinks(best) == best.gap


def exact(W: Array, a: Array, X: Array, y: Array, radius: float, norm: str) -> float:
    """Gap with any slope in [0, 1] of the units that are within the radius of their kink."""
    Z = X @ W.T
    smallest = (y * (np.maximum(Z, 0) @ a)).min()
    W, a, Z = W / math.sqrt(smallest), a / math.sqrt(smallest), Z / math.sqrt(smallest)
    near = np.abs(Z) <= radius * (np.abs(X) @ np.abs(W).T)
    shares, weights = cp.Variable(Z.shape, nonneg=True), cp.Variable(len(X), nonneg=True)
    ones = np.ones((1, len(a)))
    upper, lower = (Z > 0) | near, (Z > 0) & ~near
    of_samples = cp.reshape(weights, (len(X), 1), order="C") @ ones
    limits = [
        shares <= cp.multiply(upper.astype(float), of_samples),
        shares >= cp.multiply(lower.astype(float), of_samples),
        2 * cp.sum(weights) == 1,
    ]
    V = cp.diag(a) @ shares.T @ (y[:, None] * X)
    parts = [cp.vec(V, order="C"), np.maximum(Z, 0).T @ cp.multiply(y, weights)]
    theta = np.concatenate([W.ravel(), a])
    dual = {"l2": 2, "linf": 1}[norm]
    problem = cp.Problem(cp.Minimize(cp.norm(cp.hstack(parts), dual)), limits)
    problem.solve(solver="CLARABEL")
    size = np.linalg.norm(theta, {"l2": 2, "linf": np.inf}[norm])
    return 1 - (1 / (problem.value * size)) ** 2


@pytest.mark.slow
def test_drawn_gradients_are_of_the_subdifferential() -> None:
    """Their gap is one of all slopes at the kinks, which a convex program finds."""
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(12, 4)), np.repeat([-1, 1], 6)
    torch.manual_seed(0)
    module = layers(4, 12, 1).double()
    train_to_limit(module, X, y, LimitConfig(steps=1000))
    W, a = (p.detach().numpy() for p in module.parameters())
    for norm in ("l2", "linf"):
        best = best_of(module, X, y, norm)
        assert best.gap == pytest.approx(exact(W, a[0], X, y, 0.0, norm), abs=1e-4)
        across = gap_across_kinks(best)
        least = exact(W, a[0], X, y, RADIUS, norm)
        assert max(0.0, least) - NEAR <= across <= best.gap


def test_rows_of_pieces_are_gradients_nearby_for_which_eulers_identity_holds_at_theta() -> None:
    module, X = seeded(layers(4, 6, 3), 3), drawn(5, 4)
    program = best_of(module, X.numpy(), own_labels(module, X)).program
    search = KinkSearch(radius=0.1, draws=2)
    points, factors = zip(*search._drawn(program, NEVER), strict=True)
    for point in points:
        moved = (point - program.theta).abs() / program.theta.abs()
        np.testing.assert_allclose(moved, 0.1)
    pieces = Pieces(program.function, list(points), np.stack(factors))
    every = np.arange(len(program.margins))
    parts = []
    for point, factor in zip(points, factors, strict=True):
        parts.append(factor[:, None] * program.function.rows(point, every))
    J = np.concatenate(parts)
    np.testing.assert_allclose(J @ program.theta.numpy(), np.tile(2.0 * program.margins, 2))
    check_products(pieces, program.theta, J)
