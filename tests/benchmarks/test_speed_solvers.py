"""The benchmark of the solvers: limits, what is kept from run to run, and the table and picture."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue
from benchmarks.former import main
from benchmarks.harness import Run, rows_of
from benchmarks.speed import solvers
from cases import separable
from implicit_bias.bounds.certificate import certify

STUDY = catalogue.study("speed")
TOL = 1e-6


def cell(N: int = 60, H: int = 3, C: int = 2, **other: Any) -> solvers.Cell:
    return solvers.Cell(**{"dataset": "digits", "model": "svm-gln", **other}, N=N, H=H, C=C)


def peer(solver: str = "clarabel", formulation: Any = "dual") -> solvers.Peer:
    return solvers.Peer(solver=solver, formulation=formulation)


def measured(
    rows: list[dict[str, Any]], cells: list[Any], seconds: float
) -> tuple[list[dict[str, Any]], int]:
    """Rows after a run with this limit, and how many were measured anew."""
    asked = solvers.SolverOptions(time_limit=seconds, memory_limit=64.0)
    run = Run(quick=False, options=asked, kept=pd.DataFrame(rows), file=Path(), say=print)
    grown = list(solvers.measure(run, cells, [peer()]))
    return (rows_of(grown[-1]) if grown else rows), len(grown)


@pytest.mark.slow
def test_a_peer_that_hits_the_limit_is_recorded_as_such() -> None:
    cells = [cell(), cell(N=100)]
    rows, count = measured([], cells, 1e-6)
    assert count == 2
    first, second = rows
    assert (first["outcome"], first["detail"]) == ("time limit", "more than 1e-06 s")
    assert first["native_seconds"] > 0
    assert "gap" not in first
    assert (second["outcome"], second["detail"]) == ("not tried", "time limit at N=60 H=3 C=2")
    # Under the same limit both rows stand; under a wider one both are measured again.
    assert measured(rows, cells, 1e-6) == (rows, 0)
    rows, count = measured(rows, cells, 60.0)
    assert count == len(rows) == 2
    for row in rows:
        assert row["outcome"] == "answered"
        assert row["status"] == "OPTIMAL"
        assert row["gap"] <= TOL
        assert row["lower"] <= row["upper"]
        assert row["ratio"] == pytest.approx(row["seconds"] / row["native_seconds"])
    # An answer stands under any limit.
    assert measured(rows, cells, 1e-6) == (rows, 0)


@pytest.mark.slow
def test_a_peer_that_fails_is_recorded_as_such() -> None:
    allowed = {"tol": TOL, "limit": 60.0, "memory": 64.0}
    row = solvers.measure_peer(peer("stranger"), separable("gln"), **allowed)
    assert (row["outcome"], row["detail"]) == ("crashed", "KeyError: 'stranger'")


def test_a_limit_counts_on_larger_cells_of_the_same_peer_only() -> None:
    stopped = {
        "dataset": "digits",
        "model": "svm-gln",
        **{"N": 100, "H": 10, "C": 2},
        **{"solver": "clarabel", "formulation": "dual", "device": "cpu"},
        **{"tol": TOL, "outcome": "time limit"},
    }

    def reason(cell: Any, peer: Any, row: dict[str, Any] = stopped, tol: float = TOL) -> str:
        return str(solvers.exceeded([row], cell, peer, tol))

    larger, same = cell(200, 10, 4), peer()
    assert reason(larger, same) == "time limit at N=100 H=10 C=2"
    assert reason(larger, same, {**stopped, "outcome": "out of memory"})
    assert not reason(larger, same, {**stopped, "outcome": "answered"})
    assert not reason(larger, same, {**stopped, "outcome": "crashed"})
    assert not reason(larger, same, tol=1e-3)
    assert not reason(larger, peer(formulation="primal"))
    assert not reason(cell(200, 5, 2), same)  # more samples, fewer units
    assert not reason(cell(200, 10, 2, model="svm-l2"), same)
    assert not reason(cell(200, 10, 2, dataset="mnist"), same)


def test_the_grid_grows() -> None:
    """No cell comes after a larger one, which its failures would have ruled out."""
    for n, before in enumerate(solvers.GRID):
        for after in solvers.GRID[n + 1 :]:
            same = (before.dataset, before.model) == (after.dataset, after.model)
            larger = before.N >= after.N and before.H >= after.H and before.C >= after.C
            assert not (same and larger)
    assert set(solvers.QUICK) < set(solvers.GRID)


def test_peers_take_what_they_can_solve() -> None:
    several, one = cell(), cell(model="svm-l2")
    everyone = list(solvers.peers())
    assert all(peer.takes(one) for peer in everyone)
    refused = {peer.solver for peer in everyone if not peer.takes(several)}
    assert refused == {"osqp", "svc"}


@pytest.mark.parametrize("name", ["svm-l2", "linear", "shallow-gln", "one-group"])
def test_svc_solves_the_same_program(name: str) -> None:
    problem = separable(name)
    svc = solvers.Peer(solver="svc", formulation="kernel")
    found = svc.solve(problem, TOL)
    certificate = certify(problem, coef=found.coef, alpha=found.alpha)
    assert certificate.gap <= 1e-5  # libsvm keeps the kernel in single precision
    best = solvers.NATIVE.solve(problem, 1e-9)
    expected = problem.group_norms(best.coef).sum()
    assert certificate.upper == pytest.approx(expected, rel=1e-5)


@pytest.mark.slow
def test_table_and_picture_show_every_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small, large = cell(100, 10), cell(300, 10)
    answered: dict[str, Any] = {
        "outcome": "answered",
        "status": "OPTIMAL",
        "seconds": 0.5,
        "native_seconds": 0.1,
        "threads": 2,
        "machine": "x86_64",
        "ratio": 5.0,
        "gap": 1e-7,
    }
    stopped: dict[str, Any] = {"outcome": "time limit", "detail": "more than 9 s"}
    rows = [
        {**asdict(each), **asdict(solver), "tol": TOL, "limit": 9.0, "memory": 8.0, **outcome}
        for each, outcome in [(small, answered), (large, stopped)]
        for solver in solvers.peers()
        if solver.takes(each)
    ]
    results, picture = kept(tmp_path), STUDY.picture(STUDY.entry("solvers"), tmp_path)
    pd.DataFrame(rows).to_parquet(results)
    # Nothing is left to measure, so the command shows what is there.
    arguments = ["--quick", "--only", "svm-gln", "--time-limit", "9", "--folder", str(tmp_path)]
    assert main(["speed", "solvers", *arguments]) == 0
    shown = capsys.readouterr().out
    assert "20 rows, 0 to measure" in shown
    assert "N=100 H=10 C=2" in shown
    # The second cell has no answer of any peer.
    table = pd.DataFrame(solvers.tabulate(pd.DataFrame(rows)))
    peers = table[["ECOS primal", "ECOS", "CLARABEL", "SCS"]].to_numpy().tolist()
    assert peers == [["5", "5 primal", "5 primal", "5 primal"], ["limit"] * 4]
    assert table["native"].tolist() == ["0.5 s", ""]
    assert picture.stat().st_size > 0
    # Who did not answer is drawn as hollow marks, side by side.
    frame = pd.DataFrame(rows)
    panels = [ax for ax in solvers.draw(frame).axes if ax.lines]
    marks = [[line for line in ax.lines if line.get_marker() != "None"] for ax in panels]
    assert all(line.get_markerfacecolor() != "none" for line in marks[0])
    assert all(line.get_markerfacecolor() == "none" for line in marks[1])
    places = [float(np.asarray(line.get_xdata())[0]) for line in marks[1]]
    assert len(set(places)) == len(places) == 10


def kept(folder: Path) -> Path:
    """Return where the rows are, and make room for them."""
    file = STUDY.table(STUDY.entry("solvers"), folder)
    file.parent.mkdir(parents=True)
    return file


def test_rows_that_do_not_exist_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["speed", "solvers", "--quick", "--only", "svm-gln nobody"])
    shown = capsys.readouterr().err
    assert "'svm-gln nobody'" in shown
    assert "N=100 H=10 C=2 clarabel primal" in shown
