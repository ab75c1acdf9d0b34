"""The study of infinite width: every experiment measures, draws and says on small sizes."""

from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from benchmarks import catalogue, harness
from benchmarks.infinite_width import live_and_frozen, plane, shared
from benchmarks.infinite_width.clusters import clusters, train
from implicit_bias.theory.infinite_width import certify, max_margin

STUDY = catalogue.study("infinite_width")


@pytest.mark.parametrize("name", [entry.name for entry in STUDY.experiments])
def test_quick_version(name: str, tmp_path: Path) -> None:
    entry = STUDY.entry(name)
    frame = harness.run(STUDY, entry, quick=True, folder=tmp_path)
    assert len(frame)
    assert STUDY.picture(entry, tmp_path).is_file()
    text = harness.findings(entry, harness.load(STUDY, entry), frame)
    assert "%" in text or "times" in text
    assert "Sizes: " in text


def test_kept_tables_are_of_the_default_sizes() -> None:
    for entry in STUDY.experiments:
        sizes = harness.read(STUDY, entry).attrs["sizes"]
        module = import_module(f"benchmarks.infinite_width.{entry.name}")
        assert sizes == shared.in_words(module.MINUTES)


def test_every_experiment_is_listed() -> None:
    files = (catalogue.HOME / "infinite_width").glob("*.py")
    assert {entry.name for entry in STUDY.experiments} == {
        file.stem for file in files if "EXPERIMENT = " in file.read_text("utf-8")
    }


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
