"""Infinite time and paths: quick versions run, and go on from what is kept."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness, page
from benchmarks.infinite_time import deep_gln, excess
from benchmarks.infinite_time.deep_gln import DeepOptions
from benchmarks.infinite_time.excess import ExcessOptions
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


@pytest.mark.slow
def test_trainings_that_are_kept_are_not_trained_again(tmp_path: Path) -> None:
    said: list[str] = []

    def run(name: str, options: harness.Options) -> pd.DataFrame:
        said.clear()
        entry = STUDY.entry(name)
        return harness.run(
            STUDY, entry, quick=True, folder=tmp_path, options=options, say=said.append
        )

    first = run("excess", ExcessOptions())
    assert len(said) == len(excess.PUBLISHED) + len(excess.LOOKS) + 1  # of another seed
    pd.testing.assert_frame_equal(run("excess", ExcessOptions()), first)
    assert not said
    deep = run("deep_gln", DeepOptions())
    assert len(said) == 2
    pd.testing.assert_frame_equal(run("deep_gln", DeepOptions()), deep)
    assert not said


@pytest.mark.slow
def test_quick_paths_go_on(tmp_path: Path) -> None:
    study = catalogue.study("speed")
    entry = study.entry("paths")
    frame = harness.run(study, entry, quick=True, folder=tmp_path)
    part = frame[frame["path"] != "N"]
    part.to_parquet(study.table(entry, tmp_path))
    said: list[str] = []
    harness.run(study, entry, quick=True, folder=tmp_path, say=said.append)
    assert said == ["base digits N=300 H=10, path N, tol 1e-06"]
    assert "|" in page.findings(page.Result(study, entry, frame))
