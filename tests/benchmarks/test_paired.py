"""Paired differences: intervals clustered by seed, by brute force."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from benchmarks.harness import Verdict
from benchmarks.lippl2022.paired import Paired, difference, matched


def test_the_interval_is_that_of_the_seeds_means() -> None:
    """Three seeds of different sizes: each seed counts once, however many cells it has."""
    rng = np.random.default_rng(0)
    seeds = pd.Series([1] * 5 + [2] * 2 + [3] * 9)
    values = pd.Series(rng.normal(0.01, 0.02, size=16))
    found = Paired.of(values, seeds)
    means = [values[seeds == s].mean() for s in (1, 2, 3)]
    low, high = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    assert found.mean == pytest.approx(np.mean(means))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert (found.cells, found.seeds) == (16, 3)
    assert found.positive == int((values > 0).sum())


def test_signs_are_judged_by_the_interval() -> None:
    seeds = pd.Series([1, 2, 3])
    sure = Paired.of(pd.Series([0.01, 0.011, 0.012]), seeds)
    unsure = Paired.of(pd.Series([0.03, -0.01, 0.01]), seeds)
    assert sure.judged() is Verdict.STANDS
    assert sure.judged(-1) is Verdict.FALLS
    assert unsure.judged() is Verdict.IN_PART
    alone = Paired.of(pd.Series([0.01]), pd.Series([1]))
    assert alone.judged() is Verdict.IN_PART
    assert "no interval" in str(alone)
    with pytest.raises(ValueError, match="matched"):
        Paired.of(pd.Series([np.nan]), pd.Series([1]))


@pytest.mark.parametrize(("end", "word"), [(-4e-4, "−0.04"), (4e-4, "+0.04"), (6e-4, "+0.1")])
def test_the_end_of_an_interval_tells_its_side_of_zero(end: float, word: str) -> None:
    assert f"to {word};" in str(Paired(-0.01, -0.02, end, 3, 1, 2, 3))


def test_only_cells_with_both_models_count() -> None:
    values = pd.DataFrame(
        {
            "model": ["a", "b", "a", "b", "a"],
            "units": [10, 10, 20, 20, 50],
            "seed": [1, 1, 2, 2, 3],
            "error": [0.1, 0.08, 0.2, 0.17, 0.9],
        }
    )
    found = difference(matched(values, "error", ["units", "seed"]), "a", "b")
    assert found is not None
    assert found.cells == 2
    assert found.mean == pytest.approx(0.025)
    assert difference(matched(values, "error", ["units", "seed"]), "a", "c") is None
