"""Appendix B of Fiat et al. (2019), statement by statement, by brute force at small sizes."""

import itertools
import math

import numpy as np
import pytest

from benchmarks.fiat2019 import galu_clusters as clusters
from drawn import sphere
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import normalise
from implicit_bias.kernels.least_squares import gated_features


def test_centre_kernel_is_the_mean_of_gates() -> None:
    V = sphere(6, 3)
    A = clusters.centre_gates(sphere(200_000, 3, seed=1), V)
    np.testing.assert_allclose(A @ A.T / 200_000, clusters.centre_kernel(V), atol=0.006)
    np.testing.assert_allclose(np.diag(clusters.centre_kernel(V)), 0.5)


@pytest.mark.parametrize("d", [2, 3, 100])
def test_band(d: int) -> None:
    """Lemma 5, against draws and against lengths and areas on the circle and the sphere."""
    u = sphere(20_000, d)[:, 0]
    for radius in (0.01, 0.1, 0.5, 1.0):
        exact = clusters.band_probability(radius, d)
        assert exact == pytest.approx(np.mean(np.abs(u) <= radius), abs=0.01)
        assert exact <= min(1.0, clusters.band_bound(radius, d)) + 1e-12
    if d == 2:
        assert clusters.band_probability(0.5, d) == pytest.approx(2 / math.pi * math.asin(0.5))
    if d == 3:
        assert clusters.band_probability(0.5, d) == pytest.approx(0.5)


def test_splits_by_points_of_the_ball() -> None:
    """A filter that splits no cluster has one gate on all points of it."""
    V, U, radius = sphere(4, 3), sphere(50, 3, seed=1), 0.2
    split = clusters.splits(U, V, radius)
    assert 0 < split.mean() < 1
    data = clusters.draw_clusters(V, sphere(4, 3, seed=2), 4000, radius, random_state=0)
    gates = clusters.centre_gates(U, data.X)
    for i, j in itertools.product(range(4), range(50)):
        if not split[i, j]:
            assert len(np.unique(gates[data.cluster == i, j])) == 1


def unsplit(n: int, d: int, k: int, radius: float) -> tuple[Array, Array, Array]:
    """Centres, maps, and filters none of which splits a cluster."""
    V, U = sphere(n, d), sphere(4 * k, d, seed=1)
    U = U[~clusters.splits(U, V, radius).any(axis=0)][:k]
    assert len(U) == k
    return V, np.random.default_rng(2).normal(size=(n, d)), U


def test_an_exact_solution() -> None:
    """Lemma 8: it predicts new samples of all clusters exactly."""
    V, L, U = unsplit(4, 5, 40, 0.1)
    A = clusters.centre_gates(U, V)
    W = clusters.cluster_solution(A, L)
    data = clusters.draw_clusters(V, L, 200, 0.1, random_state=3)
    phi = gated_features(data.X, clusters.centre_gates(U, data.X))
    np.testing.assert_allclose(phi @ W.reshape(-1), data.y, atol=1e-10)


def test_every_exact_solution_predicts_alike() -> None:
    """Lemma 9 and theorem 7: in the span of a cluster's training inputs, and not outside it."""
    V, L, U = unsplit(3, 4, 60, 0.2)
    train = clusters.draw_clusters(V, L, 30, 0.2, random_state=3)
    keep = np.ones(30, dtype=bool)
    keep[np.flatnonzero(train.cluster == 0)[2:]] = False  # cluster 0: two samples of a space of 4
    phi = gated_features(train.X[keep], clusters.centre_gates(U, train.X[keep]))
    least = np.linalg.lstsq(phi, train.y[keep], rcond=1e-12)[0]
    noise = np.random.default_rng(4).normal(size=phi.shape[1])
    other = least + noise - np.linalg.pinv(phi, rcond=1e-12) @ (phi @ noise)
    np.testing.assert_allclose(phi @ other, train.y[keep], atol=1e-8)

    new = clusters.draw_clusters(V, L, 300, 0.2, random_state=5)
    new_phi = gated_features(new.X, clusters.centre_gates(U, new.X))
    spanned = new.cluster != 0
    for solution in (least, other):
        np.testing.assert_allclose(new_phi[spanned] @ solution, new.y[spanned], atol=1e-7)
    assert np.abs(new_phi[~spanned] @ other - new.y[~spanned]).max() > 0.1
    # A point of cluster 0 in the span of its two samples is predicted, too.
    two = train.X[keep][train.cluster[keep] == 0]
    between = normalise(two.mean(axis=0, keepdims=True))
    features = gated_features(between, clusters.centre_gates(U, between))
    np.testing.assert_allclose(features @ other, between @ L[0], atol=1e-7)
