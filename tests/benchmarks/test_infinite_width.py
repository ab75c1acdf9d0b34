"""The study of infinite width: data, training and what each experiment measures."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness, page
from benchmarks.infinite_width import (
    certified,
    convex_reformulations,
    escape,
    live_and_frozen,
    pictures,
)
from benchmarks.infinite_width.clusters import CACHED_ENTRIES, Trained, clusters, train
from implicit_bias import MarginProblem, solve
from implicit_bias.base.validation import Array
from implicit_bias.infinite_width import certify, max_margin

STUDY = catalogue.study("infinite_width")


@pytest.mark.slow
def test_a_stopped_run_goes_on(tmp_path: Path) -> None:
    """What is kept of some settings comes first; other sizes start anew."""
    entry = STUDY.entry("neurons")
    experiment = harness.load(STUDY, entry)

    def run(kept: pd.DataFrame, *, quick: bool) -> harness.Run[harness.Options]:
        return harness.Run(
            quick=quick, options=harness.Options(), kept=kept, file=tmp_path, say=lambda _: None
        )

    first, second, *_ = experiment.measure(run(pd.DataFrame(), quick=True))
    assert first.attrs["done"] == 1
    again = next(experiment.measure(run(first, quick=True)))
    kept = [name for name in second if name != "seconds"]
    pd.testing.assert_frame_equal(again[kept], second[kept])
    assert again.attrs["done"] == 2
    assert next(experiment.measure(run(first, quick=False))).attrs["done"] == 1
    assert "so far: 1 of 4" in page.findings(page.Result(STUDY, entry, first))


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


def test_networks_trained_side_by_side_are_those_trained_alone() -> None:
    """More activations than are held at once are trained in parts."""
    data = [clusters(3, 256, seed) for seed in range(3)]
    X, y = np.stack([X for X, _ in data]), np.stack([y for _, y in data])
    together = train(X, y, 600, 20)
    assert 2 * 256 * 600 > CACHED_ENTRIES  # so that each is a part
    alone = train(X[:1], y[:1], 600, 20)
    assert together.margins.shape == (len(together.steps), 3)
    np.testing.assert_allclose(together.margins[-1, 0], y_margin(together, X, y, 0), rtol=1e-12)
    assert alone.margins.shape == (len(alone.steps), 1)


def y_margin(trained: Trained, X: Array, y: Array, which: int) -> float:
    """Smallest margin over the path norm, by loops over units."""
    outputs, norm = np.zeros(X.shape[1]), 0.0
    for weights, a in zip(trained.first[which], trained.readout[which], strict=True):
        outputs += a * np.maximum(X[which].astype(np.float32) @ weights, 0.0)
        norm += abs(a) * float(np.linalg.norm(weights))
    return float((y[which] * outputs).min() / norm)


@pytest.mark.parametrize("n", [8, 24])
def test_gated_optimum_by_the_gates_that_it_needs(n: int) -> None:
    X, y = clusters(2, n, 0)
    gates = live_and_frozen.all_gates(max_margin(X, y))
    coef, certificate = live_and_frozen.gated_optimum(X, y, gates)
    direct = solve(MarginProblem(X, y, gates, np.arange(gates.shape[1])))
    assert certificate.gap < live_and_frozen.GAP
    assert certificate.upper == pytest.approx(direct.certificate.upper, rel=2e-4)
    assert coef.shape == (gates.shape[1], 3)


def test_gates_that_cannot_separate() -> None:
    X, y = np.array([[1.0, 0.5], [1.0, 0.6], [1.0, 0.7]]), np.array([1.0, -1.0, 1.0])
    _, certificate = live_and_frozen.gated_optimum(X, y, np.ones((3, 1)))
    assert certificate.upper == np.inf


@pytest.mark.slow
def test_frozen_gates_of_all_cells_bound_the_live_norm() -> None:
    sizes = live_and_frozen.QUICK
    frame = pd.DataFrame(
        row
        for each in live_and_frozen.settings(sizes)
        for row in live_and_frozen.rows(sizes, **each)
    )
    everything = frame[frame["gates"] == "all cells"]
    assert (everything["ratio"] > 1).all()
    optimum = frame[frame["gates"] == "gates of the optimum"]
    assert (optimum["ratio"] > 1 - 1e-3).all()
    in_cones = frame[frame["gates"] == live_and_frozen.IN_CONES]
    assert len(in_cones) == len(everything)
    np.testing.assert_allclose(in_cones["ratio"], 1.0, rtol=1e-4)


def test_a_plane_is_read_back_as_it_was() -> None:
    X, y = clusters(2, 24, 0)
    best = max_margin(X, y)
    plane = pictures.Plane.of(X, y, best.decision, best.directions, best.coef)
    values = plane.values.reshape(pictures.GRID, pictures.GRID)
    # Row i, column j is the point (AXIS[j], AXIS[i]).
    one, two = pictures.AXIS[7], pictures.AXIS[90]
    assert values[90, 7] == pytest.approx(best.decision([[1.0, one, two]])[0], rel=1e-5)
    np.testing.assert_allclose(plane.points.reshape(-1, 2), X[:, 1:], rtol=1e-6)
    lengths = np.linalg.norm(plane.neurons.reshape(-1, 3), axis=1)
    assert lengths.sum() == pytest.approx(best.certificate.upper, rel=1e-5)
    again = pictures.Plane.of_row(pd.Series(plane.cells()))
    np.testing.assert_array_equal(again.values, plane.values)


@pytest.mark.slow
def test_the_oracle_through_a_point_does_not_exceed_the_oracle() -> None:
    X, y = clusters(2, 24, 0)
    trained = train(X[None], y[None], 6, 500)
    grade = certify((trained.first[0], trained.readout[0]), X, y)
    through = escape.largest_through(grade, pictures.grid_inputs())
    assert 0.9 * grade.escape_value < through.max() <= grade.escape_value * (1 + 1e-9)


@pytest.mark.slow
def test_statuses_of_degenerate_sets() -> None:
    for case in certified.degenerate():
        row = next(certified.rows(certified.QUICK, case.kind, case.name))
        assert row["expected"] in ("", row["status"])
        assert not row["attacked"] > row["bound"]


def test_fista_goes_to_the_optimum() -> None:
    sizes = convex_reformulations.QUICK
    for setting in convex_reformulations.settings(sizes)[:4]:
        frame = pd.DataFrame(list(convex_reformulations.rows(sizes, **setting)))
        gaps = frame.loc[frame["method"] == convex_reformulations.FISTA, "gap"].to_list()
        assert gaps == sorted(gaps, reverse=True)
        assert gaps[-1] < 1e-2


def test_answers_of_scnn_are_among_those_kept() -> None:
    frame = harness.read(STUDY, STUDY.entry("convex_reformulations"))
    assert {convex_reformulations.SCNN, convex_reformulations.FISTA} < set(frame["method"])
