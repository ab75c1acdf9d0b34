"""The benchmark of many classes: what is posed, how rows are kept, and what is said of them."""

from dataclasses import replace

import pytest

from benchmarks import catalogue
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
