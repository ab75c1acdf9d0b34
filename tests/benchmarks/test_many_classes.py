"""The benchmark of many classes: what is posed, how rows are kept, and what is said of them."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.__main__ import main
from benchmarks.speed import many_classes as benchmark
from implicit_bias import max_margin, solve

STUDY = catalogue.study("speed")


def a_row(data: str, norm: str, **values: object) -> dict[str, object]:
    row: dict[str, object] = {
        "data": data,
        "N": 500,
        "norm": norm,
        "tol": 1e-6,
        "line": math.nan,
        "solver": "native",
        "method": "feature-space",
        "limit": 10.0,
        "memory": 8.0,
        "stored": math.nan,
        "outcome": "answered",
        "status": "OPTIMAL",
        "lower": 0.5,
        "upper": 0.5,
        "gap": 0.0,
        "seconds": 2.0,
        "wall_seconds": 1.0,
        "gib": 0.1,
    }
    return row | values


def test_whole_linear_programs_are_the_problems() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(12) % 3
    X = 3.0 * rng.normal(size=(3, 4))[y] + 0.1 * rng.normal(size=(12, 4))
    for norm in ("l1", "linf"):
        problem = max_margin(X, y, norm)
        found = benchmark.answer_of("highs", problem, norm, 1e-6)
        known = solve(problem).certificate
        assert found["status"] == "OPTIMAL"
        assert found["upper"] == pytest.approx(known.upper, rel=1e-6)


def test_linear_svc_is_near_the_hard_margin() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = 4.0 * rng.normal(size=(3, 4))[y] + 0.1 * rng.normal(size=(30, 4))
    problem = max_margin(X, y)
    found = benchmark.answer_of("linear svc", problem, "l2", 1e-6)
    assert found["lower"] == 0.0
    assert found["upper"] == pytest.approx(solve(problem).certificate.upper, rel=1e-2)


@pytest.mark.slow
def test_a_million_samples_in_small() -> None:
    for name, proven in [("gaussian, separable", False), ("gaussian, not separable", True)]:
        case = benchmark.Case(data=name, N=400, norm="l2")
        found = solve(case.problem())
        assert (found.status.name == "NOT_SEPARABLE") == proven


def test_the_wrong_margin_is_named_and_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmark, "GRID", [])
    right = a_row("k10-sigma1", "l2", stored=2.0)
    wrong = a_row("k10-sigma01", "linf", stored=1.0)
    frame = pd.DataFrame([right, wrong])
    assert "k10-sigma01 under linf, where 1 is stored" in benchmark.found(frame)
    assert benchmark.verdict(frame) is harness.Verdict.STANDS
    other = pd.DataFrame([right | {"stored": 1.0}, wrong])
    assert benchmark.verdict(other) is harness.Verdict.FALLS
    late = pd.DataFrame([right, wrong, a_row("mnist", "l2", line=0.5)])
    assert benchmark.verdict(late) is harness.Verdict.IN_PART
    assert "mnist N=500 l2" in benchmark.found(late)
    monkeypatch.setattr(benchmark, "GRID", [benchmark.Case(data="mnist", N=60_000, norm="l2")])
    assert benchmark.verdict(frame) is harness.Verdict.IN_PART
    assert "mnist N=60000 l2" in benchmark.found(frame)


def test_a_peer_without_an_answer_is_an_entry() -> None:
    peer = a_row("mnist", "l2", solver="scs", outcome="time limit", status="", gap=math.nan)
    svc = a_row("mnist", "l2", solver="linear svc", lower=0.0, upper=0.505, gap=math.inf)
    table = benchmark.tabulate(pd.DataFrame([a_row("mnist", "l2"), peer, svc]))
    by_solver = table.set_index("solver")
    assert by_solver.loc["scs", "seconds"] == "no answer: time limit (10 s, 8 GiB)"
    assert by_solver.loc["linear svc", "gap"] == "0.01"
    near = a_row("mnist", "l2", solver="linear svc", lower=0.0, upper=0.5000002, gap=math.inf)
    for answer, words in ((svc, "linear svc: 0 of 1"), (near, "linear svc: 1 of 1")):
        assert words in benchmark.found(pd.DataFrame([a_row("mnist", "l2"), answer]))


@pytest.mark.slow
def test_rows_are_measured_in_a_process() -> None:
    case = benchmark.QUICK[0]
    row = benchmark.measure_row(replace(case, N=60), "native", seconds=60.0, memory=8.0)
    assert row["outcome"] == "answered"
    assert row["gap"] <= row["tol"]
    assert row["gib"] > 0


@pytest.mark.slow
def test_command(tmp_path: Path) -> None:
    arguments = ["speed", "classes", "--quick", "--folder", str(tmp_path), "--only", "native"]
    assert main(arguments) == 0
    frame = harness.read(STUDY, STUDY.entry("classes"), tmp_path)
    assert len(frame) == len(benchmark.QUICK)
    assert benchmark.settled(frame).all()
    assert main(arguments) == 0
    again = harness.read(STUDY, STUDY.entry("classes"), tmp_path)
    pd.testing.assert_frame_equal(frame, again)
