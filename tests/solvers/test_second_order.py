"""Second-order cones and their scaling, against dense matrices of single cones."""

import numpy as np
import pytest
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.solvers.second_order import ConeVectors, Groups, SecondOrderCones

SIZES = [3, 1, 4]
INDEX = torch.repeat_interleave(torch.arange(3), torch.tensor(SIZES))
GROUPS = Groups(INDEX, 3)
# How far inside of the cones: in the middle, and near the end of a solve.
INSIDE = [1.0, 1e-6]


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.tensor(np.random.default_rng(seed).normal(size=shape))


def cones_at(inside: float) -> SecondOrderCones:
    """At s = (||w|| + e, w) and z = (tau, -V), V close to w where s and z are near the boundary."""
    w = drawn(8, seed=0)
    V = w / GROUPS.norms(w)[INDEX] + inside * drawn(8, seed=1)
    e = inside * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    f = inside * torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64)
    return SecondOrderCones(GROUPS, w, V, e, f)


def vectors(cones: SecondOrderCones, x: ConeVectors) -> list[Array]:
    """Return (x_0, x_1) of each cone."""
    tail = cones.tail(x)
    return [np.append(x.head[g], tail[INDEX == g]) for g in range(3)]


def parts(cones: SecondOrderCones, head: Tensor, tail: Tensor) -> ConeVectors:
    """Return a vector of each cone, split along the axis and across it."""
    along = GROUPS.sums(cones.axis * tail)
    return ConeVectors(head - along, head + along, tail - along[INDEX] * cones.axis)


def root(A: Array) -> Array:
    values, Q = np.linalg.eigh(A)
    return np.asarray((Q * np.sqrt(values)) @ Q.T)


def scaling(s: Array, z: Array) -> Array:
    """W by definition: W^2 is 2 p p' - J at Nesterov and Todd's point p, in units of eta^2."""
    J = np.diag([1.0] + [-1.0] * (len(s) - 1))
    s_size = np.sqrt(s @ J @ s)
    z_size = np.sqrt(z @ J @ z)
    gamma = np.sqrt(0.5 * (1.0 + s @ z / (s_size * z_size)))
    p = (s / s_size + J @ z / z_size) / (2.0 * gamma)
    return root((2.0 * np.outer(p, p) - J) * s_size / z_size)


def product(a: Array, b: Array) -> Array:
    """Jordan product, a o b."""
    return np.append(a @ b, a[0] * b[1:] + b[0] * a[1:])


def arrow(a: Array) -> Array:
    """Return the matrix of b -> a o b."""
    return np.stack([product(a, unit) for unit in np.eye(len(a))], 1)


@pytest.mark.parametrize("inside", INSIDE)
def test_products_and_the_scaling_take_z_to_s(inside: float) -> None:
    cones = cones_at(inside)
    pairs = list(zip(vectors(cones, cones.s), vectors(cones, cones.z), strict=True))
    np.testing.assert_allclose(cones.products, [s @ z for s, z in pairs], rtol=1e-8)
    assert cones.square(cones.z) == pytest.approx(float(cones.products.sum()), rel=1e-9)


def test_the_scaling_is_that_of_nesterov_and_todd() -> None:
    cones = cones_at(1.0)
    dz = parts(cones, drawn(3, seed=2), drawn(8, seed=3))
    T = drawn(8, 5, seed=4)
    square = 0.0
    normal = np.zeros((5, 5))
    for g, (s, z) in enumerate(zip(vectors(cones, cones.s), vectors(cones, cones.z), strict=True)):
        W = scaling(s, z)
        np.testing.assert_allclose(W @ W @ z, s)
        square += float(np.square(W @ vectors(cones, dz)[g]).sum())
        # The rows of T in the tail; the head is free: the best one for each direction.
        D = np.linalg.inv(W @ W)
        D = D[1:, 1:] - np.outer(D[1:, 0], D[0, 1:]) / D[0, 0]
        own = T[INDEX == g].numpy()
        normal += own.T @ D @ own
    assert float(cones.square(dz)) == pytest.approx(square)
    rows = cones.weighted(T)
    np.testing.assert_allclose(rows.T @ rows, normal, atol=1e-12)


def test_targets_are_those_of_the_jordan_algebra() -> None:
    cones = cones_at(1.0)
    mu = torch.tensor(0.2, dtype=torch.float64)
    ds = parts(cones, drawn(3, seed=5), drawn(8, seed=6))
    dz = parts(cones, drawn(3, seed=7), drawn(8, seed=8))
    first = vectors(cones, cones.target(mu, None))
    corrected = vectors(cones, cones.target(mu, (ds, dz)))
    for g, (s, z) in enumerate(zip(vectors(cones, cones.s), vectors(cones, cones.z), strict=True)):
        W = scaling(s, z)
        inverse = np.linalg.inv(arrow(z))[:, 0]
        np.testing.assert_allclose(first[g], 0.2 * inverse - s)
        a = np.linalg.inv(W) @ vectors(cones, ds)[g]
        b = W @ vectors(cones, dz)[g]
        second = W @ np.linalg.inv(arrow(W @ z)) @ product(a, b)
        np.testing.assert_allclose(corrected[g], 0.2 * inverse - s - second)


@pytest.mark.parametrize("inside", INSIDE)
def test_steps_end_at_the_boundary(inside: float) -> None:
    cones = cones_at(inside)
    step = parts(cones, inside * drawn(3, seed=12), inside * drawn(8, seed=13))
    length = 1.0 / cones.rate(cones.s, cones.s_size, step)
    assert length > 0.0
    left = []
    for share in (0.99, 1.0, 1.01):
        moved = vectors(cones, cones.s.moved(step, share * length))
        left.append(min(x[0] - np.linalg.norm(x[1:]) for x in moved))
    assert left[0] > 0.0 > left[2]
    assert abs(left[1]) < 1e-8 * inside


def test_what_is_left_of_a_cone_near_its_boundary_keeps_its_digits() -> None:
    cones = cones_at(1e-12)
    norms = GROUPS.norms(cones.tail(cones.s))
    expected = 1e-12 * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    np.testing.assert_allclose(cones.head_less_tail(cones.s, norms), expected, rtol=1e-6)
