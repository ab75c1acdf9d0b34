"""The benchmark of growth: points, what is kept from run to run, exponents, and the picture."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.former import main
from benchmarks.processes import Pipe, Process
from benchmarks.speed import runs, scaling
from implicit_bias import Status, solve


def point(N: int = 60, H: int = 3, C: int = 2, **other: Any) -> scaling.Point:
    return scaling.Point(**{"dataset": "digits", **other}, N=N, H=H, C=C)


def test_lines_meet_in_the_first_point() -> None:
    points = scaling.lines("digits", N=(300, 100), H=(20, 10), C=(2, 4))
    sizes = [(one.N, one.H, one.C) for one in points]
    assert sizes == [(300, 20, 2), (300, 20, 4), (300, 10, 2), (100, 20, 2)]


def test_smaller_points_are_parts_of_larger_ones() -> None:
    small, large = point(60).problem(), point(100).problem()
    np.testing.assert_array_equal(small.X, large.X[:60])
    np.testing.assert_array_equal(small.y, large.y[:60])


@pytest.mark.parametrize("conflict", ["twin", "between"])
def test_conflicts_are_not_separable(conflict: str) -> None:
    found = solve(point(conflict=conflict).problem())
    assert found.status is Status.NOT_SEPARABLE
    assert (found.stats.conflict is not None) == (conflict == "twin")


def test_rows_are_kept() -> None:
    key = scaling.key_of(point(60), 1e-6, "cpu")
    row = {**key, "limit": 60.0, "outcome": "answered"}

    def done(limit: float = 60.0, **changes: object) -> bool:
        return runs.is_done([{**row, **changes}], key, limit=limit)

    assert done()
    assert done(limit=1e6)
    assert done(outcome="time limit")
    assert done(30.0, outcome="time limit")
    assert not done(90.0, outcome="time limit")
    for changes in ({"N": 80}, {"tol": 1e-4}, {"device": "cuda"}, {"outcome": "crashed"}):
        assert not done(**changes)


def test_exponents() -> None:
    x = np.array([500.0, 1000.0, 4000.0])
    assert scaling.exponent(x, 3e-6 * x**1.7) == pytest.approx((1.7, 3e-6))


def test_a_law_holds_for_one_solver() -> None:
    """Along N the working set takes over: its points are fitted apart; two points have no law."""
    N = np.array([500, 1000, 2000, 5000, 10_000])
    frame = pd.DataFrame({"N": N, "H": 1, "ratio": 1.0, "solve_gib": [0.01, 0.02, 0.2, 1, 2]})
    assert [part["N"].tolist() for part in scaling.pieces(frame, "N", "ratio")] == [
        [500, 1000, 2000]
    ]
    (memory,) = scaling.pieces(frame, "H", "solve_gib")  # what is too little to measure is left out
    assert memory["N"].tolist() == [2000, 5000, 10_000]


def test_the_picture_shows_every_row() -> None:
    """Who did not answer stands above a panel, small memory hollow; of one device alone."""
    middle = point(60)
    common = {**middle.__dict__, "device": "cpu", "outcome": "answered", "ratio": 1.0}
    rows = [
        {**common, "N": 60, "solver": "interior-point", "solve_gib": 0.01},
        {**common, "N": 5000, "solver": "working-set", "solve_gib": 0.5},
        {**common, "N": 5000, "solver": "working-set", "solve_gib": 0.5, "device": "cuda:0"},
        {**common, "N": 9000, "outcome": "time limit", "ratio": np.nan, "solve_gib": np.nan},
        {**common, "N": 9999, "outcome": "out of memory", "ratio": np.nan, "solve_gib": np.nan},
    ]
    times, memories = scaling.draw(pd.DataFrame(rows), middle).axes  # H and C have one value
    for ax in (times, memories):
        marks = [line for line in ax.lines if line.get_marker() in ("o", "s", "^")]
        places = [np.asarray(line.get_xdata()) for line in marks]
        assert sum(map(len, places)) == len(rows) - 1
        above = [line for line in marks if line.get_marker() == "^"]
        assert [np.asarray(line.get_xdata()).tolist() for line in above] == [[9000, 9999]]
        assert all((np.asarray(line.get_ydata()) > 1).all() for line in above)
        assert not any(line.get_clip_on() for line in above)
        colours = {line.get_color() for line in marks if line.get_marker() != "^"}
        assert len(colours) == 2
    hollow = [line for line in memories.lines if line.get_markerfacecolor() == "none"]
    assert [np.asarray(line.get_xdata()).tolist() for line in hollow] == [[60]]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux alone forgets peaks")
def test_a_peak_is_that_of_the_process_since_it_was_forgotten() -> None:
    """What this process, and the one that started it, held before is not counted."""
    held = np.ones(40 * 2**20)  # 320 MiB
    before = runs.peak_memory("cpu")
    with Process(_peaks) as process:
        assert process.receive() < before  # a large parent has small children
    del held
    runs.forget_peak("cpu")
    assert runs.peak_memory("cpu") < before - 200 * 2**20


def _peaks(pipe: Pipe) -> None:
    runs.forget_peak("cpu")
    pipe.send(runs.peak_memory("cpu"))


@pytest.mark.slow
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = catalogue.study("speed")
    entry = study.entry("scaling")

    def run(*options: str) -> tuple[str, list[dict[str, Any]]]:
        arguments = ["--quick", "--only", "N=100", "--folder", str(tmp_path), *options]
        assert main(["speed", "scaling", *arguments]) == 0
        frame = harness.read(study, entry, tmp_path)
        return capsys.readouterr().out, harness.rows_of(frame)

    output, (stopped,) = run("--time-limit", "0.001")
    assert stopped["outcome"] == "time limit"
    output, (row,) = run()
    assert "1 rows, 1 to measure" in output
    assert (row["outcome"], row["status"], row["solver"]) == (
        "answered",
        "OPTIMAL",
        "interior-point",
    )
    assert row["gap"] <= 1e-6
    yardstick = (row["yardstick_before"] + row["yardstick_after"]) / 2
    assert row["ratio"] == pytest.approx(row["seconds"] / yardstick)
    assert row["peak_gib"] >= row["solve_gib"] >= 0
    assert study.picture(entry, tmp_path).stat().st_size > 0
    output, again = run()
    assert "0 to measure" in output
    assert again == [row]
