"""The experiments on the activation Gram matrix: they run, and the page is that of the results."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
FOLDER = BENCHMARKS / "panigrahi2020"
NAMES = ["spectra", "zeros", "decay", "training", "depth"]


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("activation_gram")


@pytest.fixture(scope="module")
def kept(script: ModuleType) -> dict[str, pd.DataFrame]:
    return {
        experiment.name: pd.read_parquet(experiment.results(BENCHMARKS))
        for experiment in script.EXPERIMENTS
    }


def test_page_has_the_numbers_of_the_results(script: ModuleType) -> None:
    page = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert page == script.page(BENCHMARKS), "write it anew: activation_gram.py page"
    for name in NAMES:
        assert (FOLDER / f"../pictures/panigrahi2020/{name}.png").is_file()


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


def test_kept_depth(kept: dict[str, pd.DataFrame]) -> None:
    frame = kept["depth"]
    assert (frame["smallest"] >= frame["lower"] - 1e-11).all()  # rounding, a hundred layers deep
    assert (frame["smallest"] <= frame["upper"]).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_quick_version(script: ModuleType, name: str, tmp_path: Path) -> None:
    result = CliRunner().invoke(
        script.app, [name, "--quick", "--folder", str(tmp_path)], catch_exceptions=False
    )
    assert result.exit_code == 0
    assert "The paper." in result.output
    frame = pd.read_parquet(tmp_path / f"results/panigrahi2020/{name}.parquet")
    assert frame.attrs["cpu_seconds"] > 0
    numbers = frame.drop(columns=["exact", "theory", "smallest"], errors="ignore")
    assert numbers.notna().all(axis=None)
    picture = tmp_path / f"pictures/panigrahi2020/{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_quick_version_keeps_nothing(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("a file was written")

    monkeypatch.setattr(script, "write_atomically", refuse)
    result = CliRunner().invoke(script.app, ["decay", "--quick"], catch_exceptions=False)
    assert result.exit_code == 0
