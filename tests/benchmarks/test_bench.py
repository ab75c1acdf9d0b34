"""The framework of the studies, on a toy study: tables go on, pages have the tables' numbers."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import benchmarks
from benchmarks import bench, fill
from benchmarks.__main__ import FAILED, MISUSE, main
from benchmarks.effects import Effect, paired
from implicit_bias.datasets.files import DataError

TOY = '''"""Squares of numbers."""

from benchmarks.bench import part
from benchmarks.drawing import subplots

COST = 0.5
CALLS = []

def rows(number):
    CALLS.append(number)
    if number == STOP:
        raise KeyboardInterrupt
    yield {"square": number**2}

STOP = 3

def measure(quick):
    for number in range(2 if quick else 5):
        yield part(rows, number=number)

def numbers(frame):
    return {"largest": frame["square"].max(), "all": frame[["number", "square"]]}

def draw(frame):
    figure, ax = subplots((3, 2))
    ax.plot(frame["number"], frame["square"])
    return figure
'''
PAGE = """# Squares

The largest is {{squares.largest:.1f}}.

{{squares.all}}
"""


@pytest.fixture
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[bench.Study]:
    """Make a study in a folder of its own."""
    folder = tmp_path / "toy_study"
    folder.mkdir()
    (folder / "squares.py").write_text(TOY, "utf-8")
    (folder / "page.md").write_text(PAGE, "utf-8")
    (folder / "__init__.py").touch()
    monkeypatch.setattr(bench, "HOME", tmp_path)
    monkeypatch.setattr(benchmarks, "__path__", [*benchmarks.__path__, str(tmp_path)])
    bench.study.cache_clear()
    for name in ("toy_study", "toy_study.squares"):
        monkeypatch.delitem(sys.modules, f"benchmarks.{name}", raising=False)
    study = bench.study("toy-study")
    yield study
    bench.study.cache_clear()


def test_a_stopped_run_goes_on_after_the_last_part(
    toy: bench.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    squares = toy.experiment("squares")
    with pytest.raises(KeyboardInterrupt):
        bench.measure(squares, folder=tmp_path)
    assert squares.read(tmp_path)["number"].tolist() == [0, 1, 2]
    monkeypatch.setattr(squares.module, "STOP", None)
    squares.module.CALLS.clear()
    frame = bench.measure(squares, folder=tmp_path)
    assert squares.module.CALLS == [3, 4]
    assert frame["square"].tolist() == [0, 1, 4, 9, 16]
    # What is measured is kept; parts that are no longer asked for are left out.
    few = bench.measure(squares, folder=tmp_path, quick=True)
    assert few["number"].tolist() == [0, 1]
    assert squares.module.CALLS == [3, 4]
    bench.measure(squares, folder=tmp_path, fresh=True)
    assert squares.module.CALLS == [3, 4, 0, 1, 2, 3, 4]


def test_the_page_has_the_numbers_of_the_tables(
    toy: bench.Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy.experiment("squares").module, "STOP", None)
    assert main(["toy_study"]) == 0
    text = (tmp_path / "toy_study" / "README.md").read_text("utf-8")
    assert "The largest is 16.0." in text
    assert "| number | square |\n| --- | --- |\n| 0 | 0 |" in text
    assert (tmp_path / "pictures" / "toy_study" / "squares.png").is_file()
    assert fill.page(toy, tmp_path) == text


def test_what_a_page_or_a_user_misnames_is_said(toy: bench.Study, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="measure it first"):
        fill.page(toy, tmp_path)
    bench.measure(toy.experiment("squares"), folder=tmp_path, quick=True)
    with pytest.raises(KeyError, match="no number 'least'"):
        fill.Numbers(toy, tmp_path)["squares", "least"]
    assert main(["toy_study", "square"]) == MISUSE
    assert main(["toy_study", "page", "--folder", str(tmp_path / "empty")]) == FAILED


def test_the_interval_is_that_of_the_seeds_means() -> None:
    """Three seeds of different sizes: each seed counts once, however many cells it has."""
    rng = np.random.default_rng(0)
    seeds = pd.Series([1] * 5 + [2] * 2 + [3] * 9)
    values = pd.Series(rng.normal(0.01, 0.02, size=16))
    found = Effect.of(values, seeds)
    means = [values[seeds == seed].mean() for seed in (1, 2, 3)]
    low, high = stats.ttest_1samp(means, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.mean == pytest.approx(np.mean(means))
    assert found.seeds == 3


def test_only_cells_with_both_models_count() -> None:
    frame = pd.DataFrame(
        {
            "model": ["a", "b", "a", "b", "a"],
            "units": [10, 10, 20, 20, 50],
            "seed": [1, 1, 2, 2, 3],
            "error": [0.1, 0.08, 0.2, 0.17, 0.9],
        }
    )
    assert paired(frame, "error", "a", "b", ["units", "seed"]).mean == pytest.approx(0.025)
    with pytest.raises(ValueError, match="no cell has both"):
        paired(frame, "error", "a", "c", ["units", "seed"])
