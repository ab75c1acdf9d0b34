"""The study of infinite width: every experiment measures, draws and says on small sizes."""

from types import ModuleType

import numpy as np
import pytest
from matplotlib.figure import Figure

from benchmarks.infinite_width import live_and_frozen, local_minima, margin_reached, plane
from benchmarks.infinite_width.clusters import clusters, train
from implicit_bias.theory.infinite_width import certify, max_margin


@pytest.mark.parametrize("study", [live_and_frozen, local_minima, margin_reached, plane])
def test_experiments_run(study: ModuleType) -> None:
    frame = study.measure(study.QUICK)
    assert len(frame)
    assert isinstance(study.draw(frame), Figure)
    assert "%" in study.found(frame) or "times" in study.found(frame)


def test_clusters_as_published() -> None:
    X, y = clusters(3, 500, 0, n_features=5)
    assert X.shape == (500, 5)
    assert set(y) == {-1.0, 1.0}
    delta = 1 / 8
    inside = np.hypot(*(np.mod(X[:, 1:3] + 0.5, 3 * delta) - delta).T) < delta + 1e-12
    assert inside.all()


def test_training_is_below_the_maximum_and_comes_near() -> None:
    X, y = clusters(2, 24, 0)
    best = max_margin(X, y)
    trained = train(X[None], y[None], 128, 4000)
    shares = trained.margins[:, 0] * best.certificate.upper
    assert shares.max() <= 1 + 1e-6
    assert shares[-1] > 0.8
    grade = certify((trained.first[0], trained.readout[0] / 128), X, y, solution=best)
    assert grade.share[0] == pytest.approx(shares[-1], rel=1e-4)


def test_frozen_gates_of_all_cells_bound_the_live_norm() -> None:
    frame = live_and_frozen.measure(live_and_frozen.QUICK)
    everything = frame[frame["gates"] == "all cells"]
    assert (everything["ratio"] > 1).all()
    optimum = frame[frame["gates"] == "gates of the optimum"]
    assert (optimum["ratio"] > 1 - 1e-3).all()


def test_pictures() -> None:
    X, y = clusters(2, 24, 0)
    shown = plane.predictors(X, y, features=200, gates=30, width=64, steps=1000)
    assert len(plane.draw_row(X, y, shown).axes) == 4
    trained = train(X[None], y[None], 6, 500)
    grade = certify((trained.first[0], trained.readout[0]), X, y)
    assert len(plane.draw_escape(X, y, grade, shown[0].decision).axes) == 3
