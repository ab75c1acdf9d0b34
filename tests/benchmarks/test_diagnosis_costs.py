"""What a diagnosis costs: cases, rows and what is said of them."""

from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.harness import Verdict
from benchmarks.speed import diagnosis
from benchmarks.speed.runs import ANSWERED, TIME_LIMIT


def test_networks_have_the_weights_that_they_should() -> None:
    weights = [
        sum(part.numel() for part in case.network().parameters())
        for case in diagnosis.GRID
        if case.kind == "convolutions" and case.call == "record"
    ]
    assert weights == pytest.approx([1e5, 1e6, 1e7], rel=0.05)


@pytest.mark.slow
def test_a_case_is_measured_and_one_without_time_says_so() -> None:
    case = diagnosis.QUICK[1]
    row = {"name": case.name, **diagnosis.measure_case(case, 120.0)}
    assert row["outcome"] == ANSWERED
    assert row["weights"] == 64 * 16 + 16 * 10
    late = replace(case, N=61)
    frame = pd.DataFrame([row, {"name": late.name, **diagnosis.measure_case(late, 1e-3)}])
    assert frame["outcome"].tolist() == [ANSWERED, TIME_LIMIT]
    assert TIME_LIMIT in diagnosis.tabulate(frame)["seconds"].tolist()
    assert late.name in diagnosis.found(frame)
    assert diagnosis.verdict(frame) is Verdict.IN_PART
    assert diagnosis.draw(frame).axes


@pytest.mark.slow
def test_a_mixed_norm_is_measured_and_compared_with_its_parts() -> None:
    row = diagnosis.measure_case(diagnosis.QUICK[2], 120.0)
    assert row["outcome"] == ANSWERED
    assert 0.0 <= row["gap_lower"] <= row["gap"] <= 1.0
    frame = pd.DataFrame([row] * 6)
    frame["name"] = [case.name for case in diagnosis.BESIDE]
    frame["seconds"] = [1.0, 2.0, 3.0, 4.5, 1.0, 1.1]
    said = diagnosis.found(frame)
    assert all(f"{share} of t" in said for share in (1.5, 0.75, 1.1))
