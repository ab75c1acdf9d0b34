"""The benchmark of the solvers: limits, what is kept from run to run, and the table and picture."""

import importlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer
from typer.testing import CliRunner, Result

from cases import separable
from implicit_bias.certificate import certify

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
TOL = 1e-6


@pytest.fixture(scope="module")
def bench() -> Iterator[ModuleType]:
    """Import the script as a module that the processes it starts find, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("solvers")


def cell(bench: ModuleType, N: int = 60, H: int = 3, C: int = 2, **other: str) -> Any:
    return bench.Cell(**{"dataset": "digits", "model": "svm-gln", **other}, N=N, H=H, C=C)


def peer(bench: ModuleType, solver: str = "clarabel", formulation: str = "dual") -> Any:
    return bench.Peer(solver=solver, formulation=formulation)


def limits(bench: ModuleType, seconds: float) -> Any:
    return bench.Limits(seconds=seconds, memory=64.0)


def run_grid(
    bench: ModuleType, rows: list[dict[str, Any]], cells: list[Any], seconds: float
) -> tuple[list[dict[str, Any]], int]:
    """Rows after a run with this limit, and how many were measured anew."""
    saved: list[int] = []
    rows = bench.run_grid(
        cells,
        rows,
        tol=TOL,
        limits=limits(bench, seconds),
        solvers=[peer(bench)],
        save=lambda rows: saved.append(len(rows)),
    )
    return rows, len(saved)


def test_a_peer_that_hits_the_limit_is_recorded_as_such(bench: ModuleType) -> None:
    cells = [cell(bench), cell(bench, N=100)]
    rows, measured = run_grid(bench, [], cells, 1e-6)
    assert measured == 2
    first, second = rows
    assert (first["outcome"], first["detail"]) == ("time limit", "more than 1e-06 s")
    assert first["native_seconds"] > 0
    assert "gap" not in first
    assert (second["outcome"], second["detail"]) == ("not tried", "time limit at N=60 H=3 C=2")
    # Under the same limit both rows stand; under a wider one both are measured again.
    assert run_grid(bench, rows, cells, 1e-6) == (rows, 0)
    rows, measured = run_grid(bench, rows, cells, 60.0)
    assert measured == len(rows) == 2
    for row in rows:
        assert row["outcome"] == "answered"
        assert row["status"] == "OPTIMAL"
        assert row["gap"] <= TOL
        assert row["lower"] <= row["upper"]
        assert row["ratio"] == pytest.approx(row["seconds"] / row["native_seconds"])
    # An answer stands under any limit.
    assert run_grid(bench, rows, cells, 1e-6) == (rows, 0)


def test_a_peer_that_fails_is_recorded_as_such(bench: ModuleType) -> None:
    stranger = peer(bench, "stranger")
    row = bench.measure(stranger, separable("gln"), tol=TOL, limits=limits(bench, 60.0))
    assert (row["outcome"], row["detail"]) == ("crashed", "KeyError: 'stranger'")


def test_a_limit_counts_on_larger_cells_of_the_same_peer_only(bench: ModuleType) -> None:
    stopped = {
        "dataset": "digits",
        "model": "svm-gln",
        **{"N": 100, "H": 10, "C": 2},
        **{"solver": "clarabel", "formulation": "dual", "device": "cpu"},
        **{"tol": TOL, "outcome": "time limit"},
    }

    def reason(cell: Any, peer: Any, row: dict[str, Any] = stopped, tol: float = TOL) -> str:
        return str(bench.exceeded([row], cell, peer, tol))

    larger, same = cell(bench, 200, 10, 4), peer(bench)
    assert reason(larger, same) == "time limit at N=100 H=10 C=2"
    assert reason(larger, same, {**stopped, "outcome": "out of memory"})
    assert not reason(larger, same, {**stopped, "outcome": "answered"})
    assert not reason(larger, same, {**stopped, "outcome": "crashed"})
    assert not reason(larger, same, tol=1e-3)
    assert not reason(larger, peer(bench, formulation="primal"))
    assert not reason(cell(bench, 200, 5, 2), same)  # more samples, fewer units
    assert not reason(cell(bench, 200, 10, 2, model="svm-l2"), same)
    assert not reason(cell(bench, 200, 10, 2, dataset="mnist"), same)


def test_the_grid_grows(bench: ModuleType) -> None:
    """No cell comes after a larger one, which its failures would have ruled out."""
    for n, before in enumerate(bench.GRID):
        for after in bench.GRID[n + 1 :]:
            same = (before.dataset, before.model) == (after.dataset, after.model)
            larger = before.N >= after.N and before.H >= after.H and before.C >= after.C
            assert not (same and larger)
    assert set(bench.QUICK) < set(bench.GRID)


def test_peers_take_what_they_can_solve(bench: ModuleType) -> None:
    several, one = cell(bench), cell(bench, model="svm-l2")
    everyone = list(bench.peers())
    assert all(peer.takes(one) for peer in everyone)
    refused = {peer.solver for peer in everyone if not peer.takes(several)}
    assert refused == {"osqp", "svc"}


@pytest.mark.parametrize("name", ["svm-l2", "linear", "shallow-gln", "one-group"])
def test_svc_solves_the_same_program(bench: ModuleType, name: str) -> None:
    problem = separable(name)
    svc = bench.Peer(solver="svc", formulation="kernel")
    found = svc.solve(problem, TOL)
    certificate = certify(problem, coef=found.coef, alpha=found.alpha)
    assert certificate.gap <= 1e-5  # libsvm keeps the kernel in single precision
    best = bench.NATIVE.solve(problem, 1e-9)
    expected = problem.group_norms(best.coef).sum()
    assert certificate.upper == pytest.approx(expected, rel=1e-5)


def invoke(bench: ModuleType, *arguments: str) -> Result:
    app = typer.Typer()
    app.command()(bench.main)
    return CliRunner().invoke(app, arguments)


def test_table_and_picture_show_every_outcome(bench: ModuleType, tmp_path: Path) -> None:
    small, large = cell(bench, 100, 10), cell(bench, 300, 10)
    answered: dict[str, Any] = {
        "outcome": "answered",
        "status": "OPTIMAL",
        "seconds": 0.5,
        "native_seconds": 0.1,
        "ratio": 5.0,
        "gap": 1e-7,
    }
    stopped: dict[str, Any] = {"outcome": "time limit", "detail": "more than 9 s"}
    rows = [
        {**asdict(each), **asdict(solver), "tol": TOL, "limit": 9.0, "memory": 8.0, **outcome}
        for each, outcome in [(small, answered), (large, stopped)]
        for solver in bench.peers()
        if solver.takes(each)
    ]
    results, picture = kept(tmp_path), tmp_path / "pictures" / "solvers.png"
    pd.DataFrame(rows).to_parquet(results)
    # Nothing is left to measure, so the command shows what is there.
    arguments = ["--quick", "--only", "svm-gln", "--time-limit", "9", "--folder", str(tmp_path)]
    shown = invoke(bench, *arguments)
    assert shown.exit_code == 0, shown.output
    assert "0 rows to measure" in shown.output
    assert shown.output.count("time limit: more than 9") == shown.output.count("optimal") == 10
    assert shown.output.count("ecos dual") == 2
    assert picture.stat().st_size > 0
    # Who did not answer is drawn as hollow marks, side by side.
    frame = pd.DataFrame(rows)
    panels = [ax for ax in bench.draw(frame).axes if ax.lines]
    marks = [[line for line in ax.lines if line.get_marker() != "None"] for ax in panels]
    assert all(line.get_markerfacecolor() != "none" for line in marks[0])
    assert all(line.get_markerfacecolor() == "none" for line in marks[1])
    places = [float(np.asarray(line.get_xdata())[0]) for line in marks[1]]
    assert len(set(places)) == len(places) == 10


def kept(folder: Path) -> Path:
    """Return where the rows are, and make room for them."""
    file = folder / "results" / "solvers.parquet"
    file.parent.mkdir(parents=True)
    return file


def test_results_of_another_kind_are_refused(bench: ModuleType, tmp_path: Path) -> None:
    pd.DataFrame({"solver": ["ecos"]}).to_parquet(kept(tmp_path))
    shown = invoke(bench, "--quick", "--folder", str(tmp_path))
    assert shown.exit_code == 2
    assert "--fresh" in shown.output


def test_cells_that_do_not_exist_are_refused(bench: ModuleType) -> None:
    shown = invoke(bench, "--only", "N=123456")
    assert shown.exit_code == 2
    assert "N=500 H=10 C=2" in shown.output
