"""The benchmark of many classes: what is posed, how rows are kept, and what is said of them."""

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.__main__ import main
from benchmarks.speed import many_classes as benchmark
from cases import clusters
from implicit_bias import max_margin, solve

STUDY = catalogue.study("speed")


def test_whole_linear_programs_are_the_problems() -> None:
    X, y = clusters(12, 4, spread=0.1, seed=0)
    for norm in ("l1", "linf"):
        problem = max_margin(X, y, norm)
        found = benchmark.answer_of("highs", problem, norm, 1e-6)
        known = solve(problem).certificate
        assert found["status"] == "OPTIMAL"
        assert found["upper"] == pytest.approx(known.upper, rel=1e-6)


def test_linear_svc_is_near_the_hard_margin() -> None:
    problem = max_margin(*clusters(30, 4, spread=0.05, seed=0))
    found = benchmark.answer_of("linear svc", problem, "l2", 1e-6)
    assert found["lower"] == 0.0
    assert found["upper"] == pytest.approx(solve(problem).certificate.upper, rel=1e-2)


@pytest.mark.slow
def test_a_million_samples_in_small() -> None:
    for name, proven in [("gaussian, separable", False), ("gaussian, not separable", True)]:
        case = benchmark.Case(data=name, N=400, norm="l2")
        found = solve(case.problem())
        assert (found.status.name == "NOT_SEPARABLE") == proven


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
