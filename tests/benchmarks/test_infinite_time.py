"""Infinite time and paths: quick versions run, and go on from what is kept."""

import numpy as np
import pytest

from benchmarks import catalogue, harness
from benchmarks.infinite_time import deep_gln, excess
from implicit_bias.problem.gating import HyperplaneContexts

STUDY = catalogue.study("infinite_time")


def test_units_are_dealt_out_evenly() -> None:
    X = np.random.default_rng(0).normal(size=(20, 3))
    contexts = HyperplaneContexts.random(X, 6, 1, random_state=0)
    layers = deep_gln.dealt_out(contexts, 3, X)
    assert [layer.n_units for layer in layers] == [2, 2, 2]
    np.testing.assert_array_equal(
        np.concatenate([layer.weights for layer in layers]), contexts.weights
    )
    with pytest.raises(harness.Misuse, match="divide"):
        deep_gln.dealt_out(contexts, 4, X)


def test_kept_excess() -> None:
    """Of the sentences that are not made of numbers of the table."""
    frame = harness.read(STUDY, STUDY.entry("excess"))
    ends = frame.groupby("training").last()
    assert ends["excess"].drop(list(excess.PUBLISHED)).idxmin() == "accelerated"
    dead = ends.loc["accelerated, one unit dead"]
    assert dead["excess"] == pytest.approx(dead["dead_level"], rel=0.02)
    assert (ends["excess"][list(excess.PUBLISHED)] > 0.5).all()


def test_exponent_of_the_tail() -> None:
    steps = np.geomspace(1, 1000, 31)
    values = np.where(steps < 99, 7.0, 3.0 * steps**-1.5)
    assert excess.decay_exponent(steps.tolist(), values.tolist()) == pytest.approx(-1.5)
    gaps = np.where(np.arange(31) % 3, values, 0.0)
    assert excess.decay_exponent(steps.tolist(), gaps.tolist()) == pytest.approx(-1.5)
    assert np.isnan(excess.decay_exponent([], []))
    assert np.isnan(excess.decay_exponent([1, 2, 3], [0.0, np.inf, 1.0]))
