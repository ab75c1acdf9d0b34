"""The replication study: points and figures, from frames of known answers."""

import re
from dataclasses import replace
from io import BytesIO
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from PIL import Image

from benchmarks import catalogue, harness
from benchmarks.drawing import of_few_colours
from benchmarks.lippl2022 import claims, figures, published
from benchmarks.lippl2022.grids import MODELS, exported
from benchmarks.lippl2022.values import Tables, all_values, our_values
from implicit_bias.report.style import COLOURS, style

SEEDS = (1, 2, 3)


# --- a study whose results are chosen ----------------------------------------------------------

SETTING = {
    "dataset": "mnist",
    "positive": None,
    "negative": None,
    "train_size": 500,
    "units": 10,
    "hyperplanes": 1,
    "seed": 1,
    "split_seed": 1,
    "threshold": "median",
    "momentum": 0.0,
}


class Study:
    """Cells as study.py exports them, one by one, and published values."""

    def __init__(self) -> None:
        self.cells: list[dict[str, Any]] = []
        self.models: list[dict[str, Any]] = []
        self.pairs: list[dict[str, Any]] = []
        self.printed: list[dict[str, Any]] = []

    def cell(
        self,
        errors: dict[str, float],
        *,
        grid: str = "gln",
        facts: dict[str, Any] | None = None,
        **changes: object,
    ) -> str:
        """Add a cell: errors of its models, which differ from each other on a tenth."""
        key = f"{len(self.cells):020x}"
        setting = {"cell": key, "grid": grid, **SETTING, **changes}
        self.cells.append({**setting, "status": "done", "models": ",".join(errors)})
        of_model = {"train_error": 0.0, "unseen": 0, "dropped": 0.0, "seconds": 30.0}
        for name, error in errors.items():
            svm = name.startswith("svm")
            solved = {"status": "optimal" if svm else None, "gap": 1e-9 if svm else np.inf}
            row = {**setting, **of_model, **solved, "excess": 0.0 if svm else 0.5, **(facts or {})}
            self.models.append({**row, "model": name, "validation_error": error})
        for first, second in combinations(errors, 2):
            self.pairs.append({**setting, "first": first, "second": second, "disagreement": 0.1})
        return key

    def print(self, model: str, value: float, metric: str = "val_accuracy", **changes: Any) -> None:
        """Add a published value."""
        setting = {**SETTING, "momentum": np.nan, **changes}
        median = {"median": True, "random": False}[str(setting["threshold"])]
        kept = {name: setting[name] for name in ("train_size", "hyperplanes", "seed", "momentum")}
        row = {**kept, "hidden_units": setting["units"], "median_init": median}
        self.printed.append({**row, "model": model, "metric": metric, "value": value})

    def tables(self) -> Any:
        """Return what study.py and published.py write."""
        cells, models, pairs = (
            pd.DataFrame(rows) for rows in (self.cells, self.models, self.pairs)
        )
        theirs = published.theirs(pd.DataFrame(self.printed))
        ours = published.ours(models, pairs).assign(other_draws=False)
        points = published.compared(theirs, ours)
        return Tables(cells, models, pairs, points)

    def values(self) -> pd.DataFrame:
        """Return the table of values."""
        frame: pd.DataFrame = all_values(self.tables())
        return frame


@pytest.fixture
def study() -> Study:
    return Study()


def known(study: Study) -> Study:
    """Three seeds and two widths: printed SVM-L2 errors of 0.3, corrected ones of 0.17."""
    for units in (10, 50):
        for seed in SEEDS:
            at: dict[str, Any] = {"units": units, "seed": seed}
            shift = 0.01 * (seed - 2)
            errors = {"gd-gln": 0.16, "svm-gln": 0.15, "svm-l2": 0.17, "svm-gln-published": 0.152}
            study.cell({name: error + shift for name, error in errors.items()}, **at)
            study.print("GD-GLN", 0.84 - shift, momentum=0.0, **at)
            study.print("SVM-GLN", 0.848 - shift, **at)
            study.print("SVM-GLN", 0.82 - shift, "agreement_with_GD", **at)
            study.print("SVM-L2", 0.7, **at)
            study.print("SVM-L2", 0.69, "agreement_with_GD", **at)
    return study


# --- point by point ----------------------------------------------------------------------------


@pytest.mark.slow
def test_the_points_are_made_of_the_other_tables() -> None:
    """Each verdict and reason anew; "their failure" would be that of values that are not there."""
    study = catalogue.study("lippl2022")
    names = ("published", *published.BESIDE, *MODELS)
    kept, networks, agreements, learned, *packed = (
        harness.read(study, study.entry(name)) for name in names
    )
    tables = exported(dict(zip(MODELS, packed, strict=True)))
    grids = published.ours(tables["models"], tables["pairs"])
    others = published.other_draws(tables["cells"])
    exact = published.with_exact(grids, networks, agreements, others)
    points = published.compared(kept[[*published.KEY, "theirs"]], exact)
    found = published.with_learned(points, learned).fillna({"other_draws": False})
    pd.testing.assert_frame_equal(found, kept.fillna({"other_draws": False}), check_dtype=False)
    failed = published.compared(points[[*published.KEY]].assign(theirs=np.nan), exact)
    assert {*kept["verdict"], *failed["verdict"]} == {*published.VERDICTS}
    text = published.EXPERIMENT.found(kept.assign(reason=""))
    assert re.search(r"- SVM-LC, \d+ values: not explained", text)


def test_a_program_without_a_solution_is_no_missing_cell(study: Study) -> None:
    for metric in published.METRICS:
        study.print("SVM-LC", np.nan, metric, momentum=0.0)
    study.cell({"gd-relu": 0.9, "svm-lc": np.nan})
    study.models[-1] |= {"train_error": np.nan, "status": "not separable"}
    study.pairs[-1]["disagreement"] = np.nan
    assert study.tables().points["verdict"].tolist() == ["no solution"] * 3


def test_a_value_that_is_printed_for_both_momenta_is_that_with_momentum(study: Study) -> None:
    for momentum, value in ((0.0, 0.8), (0.9, 0.9)):
        study.print("SVM-RC", value, seed=2, momentum=momentum)
    theirs = published.theirs(pd.DataFrame(study.printed))
    assert theirs["theirs"].tolist() == [0.9]
    assert theirs["momentum"].isna().all()


@pytest.mark.parametrize(
    ("changes", "ours", "reason"),
    [
        ({"our_model": "svm-l2-published", "model": "SVM-L2"}, 0.9, "MANY"),
        ({"our_model": "gd-relu", "model": "GD-ReLU"}, 0.4, "ROUNDING"),
        ({"our_model": "svm-lc", "model": "SVM-LC"}, 0.4, None),
        ({"our_model": "svm-l2-published", "model": "SVM-L2"}, 0.5, ""),
    ],
)
def test_reasons(changes: dict[str, object], ours: float, reason: str | None) -> None:
    """Theirs is 0.5, so the last one is the same."""
    key = {"model": "SVM-GLN", "train_size": 500, "units": 10, "hyperplanes": 1, "seed": 1}
    row = {**key, "threshold": "median", "momentum": 0.0, "metric": "val_accuracy"}
    facts = {"our_model": "", "network": None, "dropped": 0.0, "gap": 0.0, "grid": "", "cell": ""}
    study = pd.DataFrame([{**row, **facts, "status": "optimal", "ours": ours, **changes}])
    theirs = study[published.KEY].assign(theirs=0.5)
    found = published.compared(theirs, study.assign(other_draws=False))["reason"].tolist()
    assert found == [getattr(published, reason) if reason else ""]


# --- claims ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_correlations_of_errors_are_of_further_seeds_too(study: Study) -> None:
    """And of the first three alone where there are no others."""
    further = Study()
    for seed in range(1, 11):
        of = study if seed <= 3 else further
        for units, error in ((10, 0.2), (20, 0.1 + 0.004 * seed), (50, 0.1)):
            of.cell({"gd-gln": error, "svm-l2": 0.9 * error**1.1}, units=units, seed=seed)
    study.print("SVM-L2", 0.7)
    tables, values = study.tables(), study.values()
    cells, models, pairs = map(pd.DataFrame, (further.cells, further.models, further.pairs))
    more = our_values(Tables(cells, models, pairs, points=pd.DataFrame()), "corrected")
    assert "seeds" not in claims.judge_one("weak", values, tables).result
    found = claims.judge_one("weak", values, replace(tables, more_seeds=more))
    assert "at N = 500, 10 seeds." in found.result


def test_every_claim_of_the_paper_has_its_own_words_and_a_judge() -> None:
    study = catalogue.study("lippl2022")
    assert {each.name for each in study.claims_of("")} == set(claims.JUDGES)
    for each in study.claims:
        if each.quote:
            assert re.fullmatch("“[^“”]+”", each.quote), each.name
        else:
            assert "ours" in each.where or "open" in each.where


# --- figures -----------------------------------------------------------------------------------


def test_figures_draw_both_sides_and_nothing_that_is_missing(study: Study) -> None:
    values = known(study).values()
    with style():
        figure = figures.figure_2(values)
    assert len(figure.axes) == 8
    for left, right in zip(figure.axes[::2], figure.axes[1::2], strict=True):
        assert (*left.get_xlim(), *left.get_ylim()) == (*right.get_xlim(), *right.get_ylim())
    line = next(
        line
        for line in figure.axes[7].lines
        if line.get_color() == figures.COLOURS["SVM-L2"] and line.get_linestyle() == ":"
    )
    means = np.asarray(line.get_ydata(), dtype=float)
    # Widths 20 and 100 are not there: neither drawn nor bridged.
    np.testing.assert_allclose(means, [17, np.nan, 17, np.nan])


@pytest.mark.slow
def test_a_side_without_values_says_so(study: Study) -> None:
    values = known(study).values()
    with style():
        drawn = [figures.figure_3(values), figures.shallow(values)]
    for figure in drawn:
        texts = [text.get_text() for ax in figure.axes for text in ax.texts]
        assert "not yet computed" in texts
        assert "not released" in texts


@pytest.mark.slow
def test_marks_say_what_was_left_out_and_failed_and_only_then_have_a_key(study: Study) -> None:
    at: dict[str, Any] = {"grid": "relu", "momentum": 0.9}
    study.cell({"gd-relu": 0.1, "svm-lc": np.nan}, **at)
    study.cell({"gd-relu": 0.1, "svm-lc": 0.12}, units=20, facts={"dropped": 3.0}, **at)
    study.print("SVM-LC", np.nan, momentum=0.9)
    study.print("SVM-LC", np.nan, momentum=0.9, units=20)
    values = study.values()
    with style():
        figure = figures.figure_3(values)
        without = figures.figure_2(known(Study()).values())
    colour = figures.COLOURS["SVM-LC"]
    crosses = [[line for line in ax.lines if line.get_marker() == "x"] for ax in figure.axes[6:8]]
    assert [np.size(lines[0].get_xdata()) for lines in crosses] == [2, 1]
    assert all(line.get_color() == colour for lines in crosses for line in lines)
    assert any(line.get_markerfacecolor() == "white" for line in figure.axes[7].lines)
    keys = [[text.get_text() for text in each.legends[0].get_texts()] for each in (figure, without)]
    assert {"samples left out", "no predictor"} <= set(keys[0])
    assert not {"samples left out", "no predictor"} & set(keys[1])


def test_models_of_a_figure_differ_for_the_colour_blind_and_in_grey() -> None:
    """Each has a colour of the palette of Okabe and Ito and a marker of its own."""
    for models in ((*figures.GLN, *figures.SHALLOW), (*figures.RELU, "SVM-GLN")):
        assert len({figures.MARKERS[name] for name in models}) == len(models)
        assert len({figures.COLOURS[name] for name in models} & {*COLOURS}) == len(models)


def test_pictures_keep_the_colours_of_small_marks() -> None:
    """A picture of few colours must not mix those of markers that are a few pixels large."""
    wanted = [figures.COLOURS[name] for name in (*figures.GLN, *figures.SHALLOW)]
    figure = Figure(figsize=(4, 3))
    ax = figure.subplots()
    for i, colour in enumerate(wanted):
        ax.plot([i], [i], "o", color=colour, ms=figures.DOT)
        ax.plot(range(60), np.linspace(0, i, 60), color=str(0.1 + 0.15 * i), linewidth=0.5)
    drawn = np.array(Image.open(BytesIO(of_few_colours(figure, 100))).convert("RGB"))
    for colour in wanted:
        assert np.abs(drawn - 255 * np.array(to_rgb(colour))).max(axis=2).min() <= 12


def test_figure_1_has_the_seven_panels_of_the_paper() -> None:
    with style():
        figure = figures.figure_1()
    assert len(figure.axes) == 8
    output = figure.axes[6]
    classes = {
        line.get_marker(): line.get_xydata() for line in output.lines if line.get_marker() != "None"
    }
    assert set(classes) == {"o", "^"}


def test_the_differences_are_those_of_matched_cells(study: Study) -> None:
    with style():
        figure = figures.differences(known(study).values())
    lines = [line for line in figure.axes[0].lines if np.size(line.get_xdata()) == 2]
    drawn = [np.asarray(line.get_ydata()) for line in lines if line.get_marker() in ("s", "o")]
    np.testing.assert_allclose(drawn, [[14.8, 14.8], [2.0, 2.0]])


@pytest.mark.slow
def test_further_splits_are_no_other_task(study: Study) -> None:
    errors = {"gd-gln": 0.1, "svm-gln": 0.1, "svm-l2": 0.12}
    for seed, split in zip(SEEDS, (2, 3, 2), strict=True):
        study.cell(errors, grid="splits", split_seed=split, seed=seed)
    study.print("SVM-GLN", 0.85)
    tables = study.tables()
    assert figures.other_tasks(tables) is None
    assert all_values(tables)["source"].eq("paper").all()


def test_chance_is_that_of_independent_classifiers() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.random((2, 200_000)) < 0.2
    (level,) = figures.chance(pd.Series([0.2]))
    assert level == pytest.approx((first != second).mean(), abs=5e-3)
