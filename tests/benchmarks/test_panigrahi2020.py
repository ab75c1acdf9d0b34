"""The experiments on the activation Gram matrix: they run, and the page is that of the results."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from benchmarks import catalogue, harness

STUDY = catalogue.study("panigrahi2020")
NAMES = ["spectra", "zeros", "decay", "training", "depth"]


@pytest.fixture(scope="module")
def kept() -> dict[str, pd.DataFrame]:
    return {name: harness.read(STUDY, STUDY.entry(name)) for name in NAMES}


def test_kept_spectra(kept: dict[str, pd.DataFrame]) -> None:
    frame = kept["spectra"]
    top = frame.groupby(["data", "activation"])["infinite"].transform("max")
    assert (frame["infinite"] <= frame["bound"] + 1e-12 * top).all()
    exact = frame.dropna(subset="exact")
    assert set(exact["activation"]) == {"tanh", "swish"}
    error = (exact["infinite"] - exact["exact"]).abs() / top[exact.index]
    assert error.max() < 1e-9
    circles = frame[frame["data"].str.contains("circle")]
    assert (circles["width"] == 10**6).all()
    assert set(circles.groupby("data").size() / frame["activation"].nunique()) == {10, 50}


def test_kept_zeros(kept: dict[str, pd.DataFrame]) -> None:
    frame = kept["zeros"]
    assert (frame["finite"] == frame["theory"]).all()
    assert (frame["infinite"] == frame["theory"]).all()
    assert (frame["theory"] < frame["n"]).any()


def test_kept_training(kept: dict[str, pd.DataFrame]) -> None:
    """The error of equation (3) falls with the width, for every activation."""
    frame = kept["training"]
    error = (frame["loss"] ** 0.5 - frame["predicted"] ** 0.5).abs()
    worst = error.groupby([frame["n"], frame["activation"], frame["width"]]).max().unstack()
    for _, errors in worst.iterrows():
        assert (np.diff(errors.dropna()) < 0).all()
    # Of the widest networks ReLU and SELU are ahead, and swish is last.
    for _, curves in frame.groupby("n"):
        widest = curves[curves["width"] == curves["width"].max()]
        left = widest.groupby("activation")["loss"].last().sort_values()
        assert list(left.index[:2]) == ["relu", "selu"]
        assert left.index[-1] == "swish"


def test_kept_depth(kept: dict[str, pd.DataFrame]) -> None:
    frame = kept["depth"]
    assert (frame["smallest"] >= frame["lower"] - 1e-11).all()  # rounding, a hundred layers deep
    assert (frame["smallest"] <= frame["upper"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_quick_version(name: str, tmp_path: Path) -> None:
    entry = STUDY.entry(name)
    frame = harness.run(STUDY, entry, quick=True, folder=tmp_path)
    numbers = frame.drop(columns=["exact", "theory", "smallest"], errors="ignore")
    assert numbers.notna().all(axis=None)
    assert "|" in harness.findings(entry, harness.load(STUDY, entry), frame)
