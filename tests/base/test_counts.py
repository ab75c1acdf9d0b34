"""Counts and paired differences: by definition, by published numbers, and by coverage."""

import math

import numpy as np
import pytest
from scipy.stats import binom, norm

from implicit_bias.base.counts import CONFIDENCE, Count, PairedDifference


@pytest.mark.parametrize(("count", "total"), [(0, 10), (12, 359), (10, 10), (500, 1000)])
def test_an_interval_ends_where_the_score_test_rejects(count: int, total: int) -> None:
    z = norm.ppf(0.5 + CONFIDENCE / 2)
    for end in Count(count, total).interval:
        if 0 < end < 1:
            score = (count / total - end) / math.sqrt(end * (1 - end) / total)
            assert abs(score) == pytest.approx(z)
    low, high = Count(count, total).interval
    assert 0 <= low <= count / total <= high <= 1


def test_no_samples_say_nothing() -> None:
    assert math.isnan(Count(0, 0).share)
    assert Count(0, 0).interval == (0.0, 1.0)


def test_an_interval_is_newcombes() -> None:
    """Newcombe (1998), table II, method 10."""
    assert PairedDifference(36, 12, 2, 0).interval == pytest.approx((0.0569, 0.3404), abs=6e-5)


def test_differences_by_loop() -> None:
    rng = np.random.default_rng(1)
    first, second = rng.random(200) < 0.3, rng.random(200) < 0.2
    found = PairedDifference.of(first, second)
    pairs = list(zip(first.tolist(), second.tolist(), strict=True))
    assert found.both == pairs.count((True, True))
    assert found.only_first == pairs.count((True, False))
    assert found.only_second == pairs.count((False, True))
    assert found.total == 200
    assert found.difference == pytest.approx(first.mean() - second.mean())
    swapped = PairedDifference.of(second, first)
    assert swapped.interval == pytest.approx(tuple(-end for end in reversed(found.interval)))


def test_no_ranking_that_one_sample_would_turn_round() -> None:
    """What is decided stays decided, by McNemar's test, whichever sample changes sides."""
    for b in range(12):
        for c in range(12):
            decided = PairedDifference(2, b, c, 100).decided
            if decided:
                less, n = min(b, c) + 1, b + c
                assert 2 * binom.cdf(less, n, 0.5) <= 1 - CONFIDENCE + 1e-12
                assert (b - c) * ((b - 1) - (c + 1)) > 0 or (b - c) * ((b + 1) - (c - 1)) > 0
    assert not PairedDifference(0, 1, 0, 5).decided
    assert not PairedDifference(0, 0, 0, 5).decided
    assert PairedDifference(0, 20, 0, 5).decided
