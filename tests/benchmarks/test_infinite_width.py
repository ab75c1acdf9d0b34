"""The study of infinite width: data, training and what each experiment measures."""

import numpy as np
import pytest

from benchmarks.infinite_width import live_and_frozen, margin_reached
from benchmarks.infinite_width.clusters import (
    Trained,
    clusters,
    train,
)
from implicit_bias import MarginProblem, solve
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import max_margin


def test_clusters_as_published() -> None:
    X, y = clusters(3, 500, 0, n_features=5)
    assert X.shape == (500, 5)
    assert set(y) == {-1.0, 1.0}
    delta = 1 / 8
    inside = np.hypot(*(np.mod(X[:, 1:3] + 0.5, 3 * delta) - delta).T) < delta + 1e-12
    assert inside.all()


def y_margin(trained: Trained, X: Array, y: Array, which: int) -> float:
    """Smallest margin over the path norm, by loops over units."""
    outputs, norm = np.zeros(X.shape[1]), 0.0
    for weights, a in zip(trained.first[which], trained.readout[which], strict=True):
        outputs += a * np.maximum(X[which].astype(np.float32) @ weights, 0.0)
        norm += abs(a) * float(np.linalg.norm(weights))
    return float((y[which] * outputs).min() / norm)


def test_gated_optimum_by_the_gates_that_it_needs() -> None:
    X, y = clusters(2, 12, 0)
    gates = live_and_frozen.all_gates(max_margin(X, y))
    coef, certificate = live_and_frozen.gated_optimum(X, y, gates)
    direct = solve(MarginProblem(X, y, gates, np.arange(gates.shape[1])))
    assert certificate.gap < live_and_frozen.GAP
    assert certificate.upper == pytest.approx(direct.certificate.upper, rel=2e-4)
    assert coef.shape == (gates.shape[1], 3)


def test_shares_are_margins_over_the_certified_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of networks that are trained one after the other: their activations fill the cache."""
    monkeypatch.setattr("benchmarks.infinite_width.clusters.CACHED_ENTRIES", 10 * 8)
    rows = list(margin_reached.published("published", 10, 2, 8, 100, 5, 2))
    assert {row["draw"] for row in rows} == {0, 1}
    X, y = (np.stack(arrays) for arrays in zip(*(clusters(2, 10, d) for d in (0, 1)), strict=True))
    trained = train(X, y, 8, 100, seed=8, n_points=5)
    for draw in (0, 1):
        best = max_margin(*clusters(2, 10, draw))
        last = [row for row in rows if row["draw"] == draw][-1]
        assert last["step"] == 100
        norm = best.certificate.upper
        assert last["share"] == pytest.approx(y_margin(trained, X, y, draw) * norm, rel=1e-6)
        assert last["neurons"] == len(best.coef)
