"""The report: whole, true to the comparison, safe to open, and readable on a phone."""

import base64
import copy
import hashlib
import json
import math
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

import implicit_bias as ib
from cases import clusters
from example_modules import known
from implicit_bias import report as report_package
from implicit_bias.base.counts import Count
from implicit_bias.base.wording import percent
from implicit_bias.cli.compare import print_comparison
from implicit_bias.comparison import Predicts
from implicit_bias.datasets import Dataset, Split, load_digits, make_toy, split
from implicit_bias.report.conclusion import Conclusion, Standing, Verdict, conclude, plain
from implicit_bias.report.figures.base import Subject
from implicit_bias.report.figures.training import training_plots
from implicit_bias.report.page import write_report
from implicit_bias.report.style import logarithmic, panel, style
from implicit_bias.report.tables import short_notes, tables
from implicit_bias.report.words import TRAIN_ON, conclusions, programs_in_words
from implicit_bias.runs.configuration import RunConfig

ATTACK = "<script>alert(1)</script>"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (390, 1280)
EVERYWHERE = ["numbers", "errors"]


class Page(HTMLParser):
    """Tags of a page with their attributes, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        """Keep text."""
        self.text += data

    def attributes(self, tag: str, name: str) -> list[str]:
        """Return the values of an attribute in all tags of a name that have it."""
        values = (attrs.get(name) for found, attrs in self.tags if found == tag)
        return [value for value in values if value is not None]


@dataclass(frozen=True)
class Report:
    """A written report and what it is of."""

    path: Path
    comparison: ib.Comparison

    @property
    def page(self) -> Page:
        """The page, parsed."""
        return Page(self.path.read_text(encoding="utf-8"))


def fit_and_write(folder: Path, models: Mapping[str, Any], data: Split, **options: Any) -> Report:
    for model in models.values():
        model.fit(data.train.X, data.train.y)
    comparison = compared(models, data)
    path = write_report(folder, comparison, train=data.train, evaluation=data.validation, **options)
    return Report(path, comparison)


def compared(models: Mapping[str, Predicts], data: Split) -> ib.Comparison:
    train = (data.train.X, data.train.y)
    return ib.compare(models, data.validation.X, data.validation.y, train=train)


def no_margins(folder: Path) -> Report:
    models = {"logistic": LogisticRegression(), "neighbours": KNeighborsClassifier()}
    data = split(make_toy("moons", 60, noise=0.3), 40)
    said = {"logistic": "of <odds>"}
    return fit_and_write(folder, models, data, meanings=said, command="do <it>")


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "_$x_": ib.GLNSVC(5, random_state=0),
        ATTACK: ib.GLNClassifier(5, random_state=0, steps=40),
    }
    return fit_and_write(
        tmp_path_factory.mktemp("digits"),
        models,
        split(load_digits(), 100),
        title=ATTACK,
        facts={"seed": "0", ATTACK: ATTACK},
    )


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "GD-GLN": ib.GLNClassifier(4, random_state=0, steps=600, learning_rate=0.3),
        "SVM-GLN": ib.GLNSVC(4, random_state=0),
        "shallow": ib.GLNSVC(1, 3, random_state=0),
    }
    toy = make_toy("xor", 160)
    named = Dataset(toy.name, toy.X, toy.y, (ATTACK, "B & C"))
    return fit_and_write(tmp_path_factory.mktemp("plane"), models, split(named, 100))


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Report:
    return no_margins(tmp_path_factory.mktemp("bare"))


@pytest.fixture(scope="module")
def spoilt(tmp_path_factory: pytest.TempPathFactory) -> Report:
    data = split(make_toy("moons", 60, noise=0.3), 40)
    X, y = np.vstack([data.train.X, data.train.X[:1]]), np.append(data.train.y, -data.train.y[0])
    train = Dataset("spoilt", X, y, ("no", "yes"), has_constant=data.train.has_constant)
    models = {
        "svm": ib.GLNSVC(2, random_state=0, on_failure="warn"),
        "net": ib.GLNClassifier(2, random_state=0, steps=20),
    }
    folder = tmp_path_factory.mktemp("spoilt")
    with pytest.warns(ConvergenceWarning):
        return fit_and_write(folder, models, replace(data, train=train))


# --- files -----------------------------------------------------------------------------------


def test_all_files_are_there(digits: Report) -> None:
    folder = digits.path.parent
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = ("models", "pairs", "predictions", "history")
    tables = {f"{name}.{ext}" for name in names for ext in ("csv", "parquet")}
    figures = {name for name in written if name.startswith("figures/")}
    assert written == {"report.html"} | tables | figures
    pixels = {name for name in figures if name.endswith(".png")}
    assert len(pixels) == len(digits.page.attributes("img", "src"))
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in pixels)
    drawn = figures - pixels
    assert drawn
    assert all("<svg" in (folder / name).read_text("utf-8")[:1000] for name in drawn)
    assert {name.replace(".svg", ".png") for name in drawn} < pixels
    assert digits.path.stat().st_size < 3e6


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_hold_the_numbers_of_the_comparison(digits: Report, kind: str) -> None:
    read = pd.read_csv if kind == "csv" else pd.read_parquet
    folder, comparison = digits.path.parent, digits.comparison
    for name, frame in [("models", comparison.model_frame()), ("pairs", comparison.pair_frame())]:
        found = read(folder / f"{name}.{kind}")
        if kind == "csv":  # where nothing is written for nan and for None
            found, frame = (
                each.astype(object).where(each.notna(), None) for each in (found, frame)
            )
        pd.testing.assert_frame_equal(found, frame, check_dtype=kind == "parquet", rtol=1e-12)
    history = read(folder / f"history.{kind}")
    points = comparison.model(ATTACK).history
    assert history["model"].unique().tolist() == [ATTACK]
    np.testing.assert_allclose(history["loss"], [p.loss for p in points], rtol=1e-12)
    expected = [p.normalised_margin for p in points]
    np.testing.assert_allclose(history["normalised_margin"], expected, rtol=1e-12)


@pytest.mark.slow
def test_a_second_report_replaces_the_first_and_leaves_no_stale_table(bare: Report) -> None:
    first, stale = bare.path.read_bytes(), bare.path.parent / "history.csv"
    stale.write_text("of an earlier report")
    second = no_margins(bare.path.parent).path.read_bytes()
    assert first == second, "the same numbers must give the same bytes"
    assert not stale.exists()


# --- the page --------------------------------------------------------------------------------


@pytest.mark.every(2)
@pytest.mark.parametrize("name", ["digits", "plane"])
def test_a_page_is_safe_self_contained_and_described(
    name: str, request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(name)
    page = report.page
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 1, "the page's own: what users wrote is escaped"
    assert ATTACK in page.text
    references = [
        value
        for _, attrs in page.tags
        for name, value in attrs.items()
        if name in ("src", "href", "srcset", "action") and value is not None
    ]
    assert all(value.startswith(("data:", "#")) for value in references)
    assert len(page.attributes("img", "alt")) == len(page.attributes("img", "src"))
    assert tags.count("figcaption") == tags.count("figure") == tags.count("img")
    assert page.attributes("html", "lang") == ["en"]
    assert "viewport" in page.attributes("meta", "name")
    asked = {link[1:] for link in page.attributes("a", "href") if link.startswith("#def-")}
    defined = {name for name in page.attributes("div", "id") if name.startswith("def-")}
    assert asked
    assert asked <= defined


@pytest.mark.slow
def test_pictures_of_a_report_stay_until_another_is_written(tmp_path: Path) -> None:
    X, y = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), np.array([1, 2, 1])
    comparison = ib.compare(
        {"a": ib.MaxMarginSVC().fit(X, y), "b": ib.MaxMarginSVC("linf").fit(X, y)}, X, y
    )
    comparison.report(tmp_path)
    pictures = sorted((tmp_path / "figures").iterdir())
    pictures[-1].unlink()
    pictures[-1].mkdir()  # so that it cannot be written
    with pytest.raises(OSError, match="directory|regular file"):
        comparison.report(tmp_path)
    assert sorted((tmp_path / "figures").iterdir()) == pictures
    pictures[-1].rmdir()
    (tmp_path / "figures" / "of-before.png").touch()
    comparison.report(tmp_path)
    assert sorted((tmp_path / "figures").iterdir()) == pictures


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Glyph")  # the font has none
def test_no_control_character_reaches_a_page(tmp_path: Path) -> None:
    X, y = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]), np.array(["a\0b", "=c", "a\0b"])
    models = {"m\x1b[31m": ib.MaxMarginSVC().fit(X, y), "m\0": ib.MaxMarginSVC("linf").fit(X, y)}
    page = ib.compare(models, X, y).report(tmp_path)
    assert not set(page.read_bytes()) & ({*range(32)} - {*b"\t\n\r"})
    for picture in (tmp_path / "figures").glob("*.svg"):
        ElementTree.parse(picture)


def test_the_only_script_is_the_one_that_sorts(digits: Report) -> None:
    """The page's policy allows this script alone, by its hash."""
    html = digits.path.read_text("utf-8")
    start, end = html.index("<script>") + len("<script>"), html.index("</script>")
    script = files("implicit_bias.report").joinpath("page.js").read_text("utf-8")
    assert html[start:end] == script
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = (text for text in digits.page.attributes("meta", "content") if "script" in text)
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


@pytest.mark.slow
def test_tables_show_the_numbers_that_matter_first(plane: Report, bare: Report) -> None:
    headings = plane.page.attributes("button", "aria-label")
    assert headings[:3] == ["Sort by model", "Sort by error", "Sort by wrong"]
    first, *_ = plane.comparison.models
    values = plane.page.attributes("td", "data-value")
    assert float(values[0]) == first.error
    assert float(values[headings.index("Sort by excess") - 2]) == first.known_margin.excess
    for model in plane.comparison.models:
        assert f"{model.known_margin.norm:.4g}" in plane.page.text
    assert "SVM-GLN: l2 over groups, hyperplane contexts, hard margin" in plane.page.text
    for pair in plane.comparison.pairs:
        assert percent(pair.disagreement) in plane.page.text
    for words in (
        *("do <it>", "logistic, neighbours on moons"),
        "logistic: of <odds>",
    ):
        assert words in bare.page.text


@pytest.mark.slow
def test_sections_follow_the_data(digits: Report, plane: Report, bare: Report) -> None:
    def sections(report: Report) -> list[str]:
        return report.page.attributes("section", "id")

    assert sections(digits) == [*EVERYWHERE, "margins", "support", "reading"]
    assert sections(plane) == [*EVERYWHERE, "margins", "training", "plane", "reading"]
    assert sections(bare) == [*EVERYWHERE, "plane", "reading"]
    assert "Certificate" not in bare.page.text
    for report in (digits, plane, bare):
        links = report.page.attributes("a", "href")
        assert [link for link in links if not link.startswith("#def-")] == [
            f"#{i}" for i in sections(report)
        ]


@pytest.mark.slow
def test_one_model_and_no_training_samples(tmp_path: Path) -> None:
    data = split(make_toy("blobs", 40), 24)
    model = ib.GLNSVC(2, random_state=0).fit(data.train.X, data.train.y)
    comparison = ib.compare({"only": model}, data.validation.X, data.validation.y)
    path = write_report(tmp_path, comparison, train=data.train, evaluation=data.validation)
    assert not (tmp_path / "pairs.csv").exists()
    assert "training error" not in Page(path.read_text(encoding="utf-8")).text


def test_a_failed_solve_is_shown(tmp_path: Path) -> None:
    data = split(make_toy("xor", 60), 40)
    with pytest.warns(ConvergenceWarning):
        page = fit_and_write(tmp_path, {"linear": ib.GatedSVC(on_failure="warn")}, data).page
    for words in ("not separable: proven", "∞ (not separable)", "linear: not separable, proven."):
        assert words in page.text
    assert not {"margins", "plane", "support"} & {*page.attributes("section", "id")}


@pytest.mark.slow
def test_a_network_beside_a_failed_solve(spoilt: Report) -> None:
    page = spoilt.page
    assert np.isnan(spoilt.comparison.model("svm").error)
    assert (
        "none is positive for any predictor with these gates (not separable: proven)" in page.text
    )
    assert "at most" not in " ".join(page.attributes("img", "alt"))
    assert page.text.count("∞ (not separable)") == 2
    drawn = {path.stem for path in (spoilt.path.parent / "figures").iterdir()}
    assert not {"disagreement", "regions-1", "training-excess"} & drawn, "svm has no predictor"
    assert {"errors", "regions-2"} <= drawn


@pytest.fixture(scope="module")
def moons(tmp_path_factory: pytest.TempPathFactory) -> Report:
    models = {
        "soft": ib.GLNSVC(3, C=1.0, random_state=0),
        "net": ib.GLNClassifier(3, random_state=0, steps=5),
        "relu": ib.ReLUClassifier(6, random_state=0, steps=1200, learning_rate=0.3),
    }
    data = split(make_toy("moons", 60, noise=0.3), 40)
    return fit_and_write(tmp_path_factory.mktemp("moons"), models, data)


@pytest.mark.slow
def test_what_is_said_of_soft_svms_and_trained_gates(moons: Report) -> None:
    text = moons.page.text
    assert "the C = 1 of soft is finite, so that is another program" in text
    assert "Finite C: soft (C = 1). " in text
    assert "trained, 1,200 steps" in text
    assert moons.comparison.model("relu").gates_moved
    assert "of class +1 / −1" in text, "toy data have no names of classes"


@pytest.mark.slow
def test_soft_margins_are_compared_by_errors(moons: Report) -> None:
    net, soft = (moons.comparison.model(name) for name in ("net", "soft"))
    said = conclusions(moons.comparison)[0]
    assert said.verdict is Verdict.SOFT
    differ = percent(moons.comparison.pair("net", "soft").disagreement)
    assert plain(said.headline) == (
        f"net is wrong on {percent(net.error)} of the unseen samples, soft on "
        f"{percent(soft.error)}; the two differ on {differ}. The SVM has a soft margin, C = 1."
    )


def test_predictions_have_a_row_a_sample(tmp_path: Path) -> None:
    """With the index of a frame, labels as they are, and nothing where a model has no predictor."""
    frame = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0]}, index=[7, 5, 3, 1])
    labels = np.array(["no", "yes", "no", "yes"])
    with pytest.warns(ConvergenceWarning):
        none = ib.MaxMarginSVC(on_failure="warn").fit(frame, labels)
    models: dict[str, Any] = {"none": none, "one": Fixed(labels), "other": Fixed(labels[::-1])}
    ib.compare(models, frame, labels, train=(frame, labels)).report(tmp_path)
    found = pd.read_csv(tmp_path / "predictions.csv")
    assert found["row"].tolist() == [7, 5, 3, 1]
    assert found["true label"].tolist() == found["one"].tolist() == labels.tolist()
    assert found["none"].isna().all()
    assert found["models differ"].all()


@pytest.mark.parametrize("high", [1.001, 1.3, 4.0, 7.0, 9.0, 30.0, 70.0, 99.0, 900.0, 1e4, 1e12])
@pytest.mark.parametrize("low", [1.1, 1.3, 1.6, 2.1, 6.0])
def test_a_log_axis_has_three_numbers(low: float, high: float) -> None:
    figure, ax = panel()
    ax.plot([0.0, 1.0], [low, low * high])
    logarithmic(ax, x=False)
    figure.draw_without_rendering()
    bottom, top = ax.get_ylim()
    shown = {f"{tick:g}" for tick in ax.get_yticks() if bottom <= tick <= top}
    assert 3 <= len(shown) <= 9
    assert ax.get_xscale() == "linear"


def test_the_excess_is_drawn_of_the_points_that_separate(plane: Report) -> None:
    network = plane.comparison.model("GD-GLN")
    with style():
        (plot,) = training_plots(Subject(plane.comparison, make_toy("xor", 160)))
        plot.figure.draw_without_rendering()  # a layout that collapses warns
    (line,) = plot.figure.axes[0].get_lines()
    expected = [
        point.norm / point.min_margin / network.known_margin.optimum - 1
        if point.min_margin > 0
        else np.nan
        for point in network.history
    ]
    np.testing.assert_allclose(np.asarray(line.get_ydata()), expected)


@pytest.mark.parametrize("norm", [0.0, 1e-300])
def test_an_excess_that_no_logarithm_has_ends_within_its_picture(
    plane: Report, norm: float
) -> None:
    """As of a network whose norm is below the optimum, by rounding."""
    network, *others = plane.comparison.models
    *history, last = network.history
    changed = replace(network, history=(*history, replace(last, norm=norm)))
    comparison = replace(plane.comparison, models=(changed, *others))
    with style():
        (plot,) = training_plots(Subject(comparison, make_toy("xor", 160)))
        plot.figure.draw_without_rendering()
    assert float(plot.figure.axes[0].texts[0].get_position()[1]) == 0.0


# --- words -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_headline_of_a_network_beside_its_svm(plane: Report) -> None:
    comparison = plane.comparison
    (conclusion,) = conclusions(comparison)
    margin = comparison.model("GD-GLN").known_margin
    assert margin.excess > 0.01
    assert conclusion.verdict is Verdict.NOT_AT_LIMIT
    sentence, evidence = str(conclusion).split("\n")
    assert sentence.startswith(
        f"Not at its limit: the norm of GD-GLN is {percent(margin.excess)} above"
    )
    assert "Train on: " in sentence
    agreement = known(comparison.agreement("GD-GLN", "SVM-GLN"))
    assert f"{agreement.count} of {agreement.total} unseen samples" in evidence
    of = comparison.of
    of_training = replace(comparison, of=replace(of, train=(of.X, of.y)))
    assert "training samples" in str(conclusions(of_training)[0])


def test_headline_of_a_network_that_does_not_separate(digits: Report) -> None:
    (conclusion,) = conclusions(digits.comparison)
    assert conclusion.verdict is Verdict.NOT_SEPARATED
    wrong = known(digits.comparison.model(ATTACK).train_wrong)
    assert f"{wrong.count} of {wrong.total} training samples" in str(conclusion)


@pytest.mark.slow
def test_headlines_of_other_comparisons() -> None:
    data = split(make_toy("blobs", 60), 40)
    models: dict[str, Any] = {
        "svm": ib.GLNSVC(3, random_state=0),
        "net": ib.GLNClassifier(3, random_state=1, steps=5),  # of other hyperplanes
        "knn": KNeighborsClassifier(),
    }
    for steps in (3, 600):  # whether or not it separates
        options: Any = {"steps": steps, "rule": "local", "learning_rate": 0.3}
        models[f"local {steps}"] = ib.GLNClassifier(3, random_state=0, **options)
    for model in models.values():
        model.fit(data.train.X, data.train.y)

    def conclusion(*names: str) -> Conclusion:
        (only,) = conclusions(compared({name: models[name] for name in names}, data))
        return only

    assert "no SVM of its program" in str(conclusion("svm", "net"))
    assert str(conclusion("svm", "net")).startswith("net is wrong on ")
    assert re.search(r"of the optimum, within .* \(svm\)", str(conclusion("svm", "knn")))
    assert str(conclusion("knn")).startswith("knn is wrong on")
    for steps in (3, 600):
        for other in ("svm", "knn"):
            found = conclusion(f"local {steps}", other)
            assert found.verdict is Verdict.LOCAL
            assert "No SVM is known to be the limit" in str(found)
            assert " yet" not in str(found)


@pytest.mark.slow
def test_headline_where_nothing_separates(spoilt: Report) -> None:
    (conclusion,) = conclusions(spoilt.comparison)
    assert conclusion.verdict is Verdict.INSEPARABLE
    assert "no weights with the gates of net separate" in str(conclusion)
    wrong = spoilt.comparison.model("net").error
    assert str(conclusion).startswith(f"net is wrong on {percent(wrong)} of the unseen samples. ")


@pytest.mark.slow
def test_headline_at_the_limit_and_with_a_dead_unit() -> None:
    """The same network: trained to its limit; and with a unit that the SVM uses switched off."""
    moons = make_toy("moons", 60, noise=0.05)
    X, y = moons.X, moons.y
    svm = ib.GLNSVC(4, random_state=0).fit(X, y)
    limit = ib.GLNClassifier(n_units=4, random_state=0)
    limit.fit_by(X, y, partial(ib.train_to_limit, config=ib.LimitConfig(steps=3000)))
    (conclusion,) = conclusions(ib.compare({"net": limit, "svm": svm}, X, y, train=(X, y)))
    assert conclusion.verdict is Verdict.AT_LIMIT
    assert "net is its SVM" in str(conclusion)
    unit = int(np.flatnonzero(svm.solution_.active)[-1])
    dead, small = copy.deepcopy(limit), copy.deepcopy(limit)
    with torch.no_grad():
        for network, factor in ((dead.network_, 0.0), (small.network_, 0.01)):
            for weights in network.hidden_weights:
                weights.view(4, 2, -1)[unit] *= factor  # (H C, D), row-major
            network.readout[0, unit] *= factor
    (conclusion,) = conclusions(ib.compare({"net": small, "svm": svm}, X, y, train=(X, y)))
    assert conclusion.verdict in (Verdict.NOT_AT_LIMIT, Verdict.NOT_SEPARATED)  # it may grow
    retrained = partial(ib.train_to_limit, config=ib.LimitConfig(steps=3000))
    dead.training_ = retrained(dead.network_, X, y)
    (conclusion,) = conclusions(ib.compare({"net": dead, "svm": svm}, X, y, train=(X, y)))
    assert conclusion.verdict is Verdict.HELD_BACK
    assert f"unit {unit} of net is dead" in str(conclusion)


def test_advice_in_python_has_its_imports() -> None:
    trainers: list[Any] = []
    network = SimpleNamespace(fit_by=lambda X, y, trainer: trainers.append(trainer))
    exec(TRAIN_ON.format("a net"), {"models": {"a net": network}, "X": [], "y": []})
    assert trainers[0] is ib.train_to_limit


STANDING = Standing(network="net", svm="svm", excess=0.5, train_on="more")


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, Verdict.NOT_AT_LIMIT),
        ({"excess": 0.002}, Verdict.AT_LIMIT),
        ({"excess": 0.002, "dead": [1]}, Verdict.AT_LIMIT),
        ({"dead": [1]}, Verdict.HELD_BACK),
        ({"dead": list(range(9))}, Verdict.HELD_BACK),
        ({"excess": math.inf}, Verdict.NOT_SEPARATED),
        ({"train_wrong": Count(1, 9)}, Verdict.NOT_SEPARATED),
        ({"excess": math.nan}, Verdict.UNKNOWN),
        ({"svm": None}, Verdict.UNKNOWN),
        ({"inseparable": True, "excess": math.inf}, Verdict.INSEPARABLE),
        ({"inseparable": True, "gates_moved": True}, Verdict.INSEPARABLE),
        ({"inseparable": True, "soft": "2"}, Verdict.INSEPARABLE),
        ({"soft": "2", "geometry": "linf"}, Verdict.SOFT),
        ({"geometry": "linf", "excess": 0.001}, Verdict.OTHER_GEOMETRY),
        ({"local": True}, Verdict.LOCAL),
    ],
)
def test_verdicts(changes: dict[str, Any], verdict: Verdict) -> None:
    conclusion = conclude(replace(STANDING, **changes))
    assert conclusion.verdict is verdict
    advised = verdict in (Verdict.NOT_AT_LIMIT, Verdict.NOT_SEPARATED)
    assert ("Train on: more" in str(conclusion)) is advised


def test_no_ranking_where_the_samples_do_not_tell() -> None:
    """One sample apart is level; far apart is a ranking."""
    X, y = np.arange(200.0)[:, None], np.tile([0, 1], 100)
    good, level, poor = (Fixed(np.where(np.arange(200) < n, 1 - y, y)) for n in (10, 11, 60))
    (conclusion,) = conclusions(ib.compare({"good": good, "level": level, "poor": poor}, X, y))
    assert str(conclusion).startswith("No ranking: good is wrong on")
    assert "level" in str(conclusion)
    assert "poor" not in str(conclusion)
    (conclusion,) = conclusions(ib.compare({"good": good, "poor": poor}, X, y))
    assert str(conclusion).startswith("good is wrong least often")
    assert f"The two differ on {percent(50 / 200)}." in str(conclusion)


@pytest.mark.parametrize(("n_wrong", "told"), [(60, False), (39, True), (22, False)])
def test_a_terminal_says_why_the_test_may_leave_open_what_the_interval_decides(
    n_wrong: int, told: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places, y = np.arange(240), np.tile([0, 1], 120)
    left = Fixed(np.where(places < n_wrong, 1 - y, y))
    right = Fixed(np.where(places >= 217, 1 - y, y))
    compared = ib.compare({"left": left, "right": right}, places[:, None], y)
    print_comparison(compared, tmp_path / "report.html", RunConfig(), False)
    assert ("an approximation, just decides" in capsys.readouterr().out) is told


def test_errors_come_first_on_data_of_ones_own_and_by_class() -> None:
    X, y = np.arange(100.0)[:, None], np.repeat([-1.0, 1.0], [77, 23])
    own = Dataset("own", X, y, ("no", "yes"), has_constant=False)
    late = Fixed(np.where(np.arange(100) < 80, -1.0, 1.0))
    comparison = replace(ib.compare({"late": late}, X, y, train=(X, y)), own=Split(own, own))
    (conclusion,) = conclusions(comparison)
    baseline = f"Always answering “no” would be wrong on {percent(0.23)}."
    assert plain(conclusion.headline).endswith(baseline)
    assert "Always answering “-1” would" in str(conclusions(replace(comparison, own=None))[0])
    assert "Always" not in str(conclusions(ib.compare({"late": late}, X, y))[0])
    by_class = tables(comparison, ["no", "-1 (a)"])[-1]
    rows = [[cell.text for cell in row] for row in by_class.rows]
    other = ["late", "-1 (a)", "3 of 23", percent(20 / 23)]  # a name keeps its hyphen
    assert rows == [["late", "no", "0 of 77", percent(1.0)], other]


@pytest.mark.parametrize(
    ("n_wrong", "tail"), [(5, "."), (35, ", and too few .* tell it from that."), (40, ".*better.")]
)
def test_models_are_read_against_the_commonest_class(n_wrong: int, tail: str) -> None:
    X, y = np.arange(100.0)[:, None], np.repeat(["a", "b"], [60, 40])
    answers = Fixed(np.where(np.arange(100) < n_wrong, np.where(y == "a", "b", "a"), y))
    (said,) = conclusions(ib.compare({"it": answers}, X, y, train=(X, y)))
    expected = f"answering “a” would be wrong on {percent(0.4, space=' ')}{tail}$"
    assert re.search(expected, said.title)


def test_a_soft_margin_for_want_of_a_hard_one_is_not_ranked_beside_a_hard_one() -> None:
    moons = make_toy("moons", 40, noise=0.05, random_state=0)
    with pytest.warns(ib.NotSeparableWarning):
        linear = ib.MaxMarginSVC().fit(moons.X, moons.y)
    models = {"linear": linear, "gated": ib.GLNSVC(10, random_state=0).fit(moons.X, moons.y)}
    compared = ib.compare(models, moons.X, moons.y)
    (conclusion,) = conclusions(compared)
    assert conclusion.title.startswith("No ranking: a hard margin (gated) is beside a soft one")
    assert "--C 0.1" in conclusion.title
    assert "--C 0.1" not in " ".join(short_notes(compared))  # which would say it again
    _, _, differences, _ = tables(compared, compared.classes.tolist())
    assert [row[-1].text for row in differences.rows] == ["not ranked"]
    network = ib.GLNClassifier(4, steps=5, random_state=0).fit(moons.X, moons.y)
    models |= {"net": network}  # of which the headline is, so that the note stands by the table
    compared = ib.compare(models, moons.X, moons.y, train=(moons.X, moons.y))
    assert "(C = " in next(line for line in str(compared).splitlines() if "linear" in line)
    _, _, differences, _ = tables(compared, compared.classes.tolist())
    assert ["not ranked" == row[-1].text for row in differences.rows] == [True, False, False]
    assert "No ranking: a hard margin (gated)" in " ".join(differences.short)


def test_a_hard_margin_beside_a_soft_one_is_told() -> None:
    blobs = make_toy("blobs", 30)
    svms = {C: ib.MaxMarginSVC(C=C).fit(blobs.X, blobs.y) for C in (math.inf, 0.01)}
    both = {"hard": svms[math.inf], "soft": svms[0.01]}
    for models, told in ((both, True), ({"hard": both["hard"]}, False)):
        comparison = ib.compare(models, blobs.X, blobs.y, train=(blobs.X, blobs.y))
        models_table, *_ = tables(comparison, ["-1", "+1"])
        programs = ["l2, no gates, hard margin", "l2, no gates, C = 0.01"]
        assert [*programs_in_words(comparison).values()] == programs[: len(models)]
        assert any("soft (C = 0.01)" in note for note in models_table.short) is told
        assert any("hard: a hard margin" in note for note in models_table.short) is told


def test_programs_of_other_gates_are_told_apart() -> None:
    moons = make_toy("moons", 20, random_state=0)
    seeds = {"svm": 0, "other": 1, "same": 0}
    models = {name: ib.GLNSVC(4, random_state=s).fit(moons.X, moons.y) for name, s in seeds.items()}
    comparison = ib.compare(models, moons.X, moons.y, train=(moons.X, moons.y))
    told = {name for name, said in programs_in_words(comparison).items() if "than svm" in said}
    assert told == {"other"}


@dataclass(frozen=True)
class Fixed:
    """A classifier that answers what it was told."""

    answers: NDArray[Any]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return the answers."""
        return self.answers[: len(np.asarray(X))]


@pytest.mark.parametrize(
    ("share", "text"),
    [
        *((0.0332, "3.3 %"), (0.0, "0 %"), (1.563, "156 %")),
        *((3e-7, "< 0.001 %"), (np.inf, "∞"), (np.nan, "–")),
    ],
)
def test_percent(share: float, text: str) -> None:
    assert percent(share) == text.replace(" ", "\u00a0")
    assert percent(0.0332, 2) == "3.32\u00a0%"


def test_writers_are_names_of_the_package() -> None:
    assert report_package.write_report is write_report
    with pytest.raises(AttributeError, match="nonsense"):
        report_package.nonsense  # noqa: B018


# --- a browser -------------------------------------------------------------------------------

HARNESS = """<!doctype html>
<body style="margin:0">
<iframe src="{url}" style="border:0;width:{width}px;height:900px"></iframe>
<script>
const look = (page, width) => {{ {script} }};
onload = () => {{
  const page = document.querySelector("iframe").contentDocument;
  document.documentElement.dataset.found = JSON.stringify(look(page, {width}));
}};
</script>
"""
MEASURE = """
  const all = (what) => [...page.querySelectorAll(what)];
  return {
    width: page.documentElement.scrollWidth,
    broken: [...page.images].filter((image) => !image.naturalWidth).length,
    cut: all("p, figure, img, dl, nav, .scroll")
      .filter((element) => element.getBoundingClientRect().right > width).length,
    hidden: all(".scroll").filter((element) => element.scrollWidth > element.clientWidth).length,
  };
"""


def seen(report: Report, script: str, folder: Path, width: int = max(WIDTHS)) -> Any:
    """Open a page in a frame of the browser, and return what a script finds there."""
    harness = folder / "harness.html"
    content = HARNESS.format(url=report.path.as_uri(), width=width, script=script)
    harness.write_text(content, encoding="utf-8")
    (found,) = Page(opened(harness, folder)).attributes("html", "data-found")
    return json.loads(found)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary")
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["digits", "plane"])
def test_nothing_is_cut_off_in_a_browser(
    name: str, width: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report: Report = request.getfixturevalue(name)
    found = seen(report, MEASURE, tmp_path, width)
    assert (found["width"], found["broken"], found["cut"]) == (width, 0, 0)
    if width == max(WIDTHS):
        assert found["hidden"] == 0  # all columns are seen without scrolling


def opened(page: Path, folder: Path, *flags: str) -> str:
    """Open a page in the browser, and return its document once its scripts are done."""
    options = [
        *("--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
        *("--disable-background-networking", "--allow-file-access-from-files"),
        *("--hide-scrollbars", "--enable-logging=stderr", "--v=0"),
        *(f"--user-data-dir={folder / 'profile'}", "--window-size=1400,1000"),
        *("--virtual-time-budget=20000", *flags, "--dump-dom", page.as_uri()),
    ]
    ran = subprocess.run(
        [str(CHROMIUM), *options], capture_output=True, text=True, timeout=120, check=True
    )
    # The browser's own pages say so where there is no network.
    told = [line for line in ran.stderr.splitlines() if "CONSOLE" in line]
    assert [line for line in told if "source: chrome://" not in line] == []
    return ran.stdout


RUN_AXE = """
<script>{axe}</script>
<script>
axe.run(document, {{runOnly: ["wcag2a", "wcag2aa", "best-practice"]}}).then((found) => {{
  const said = found.violations.map((v) => v.id + " " + v.nodes[0].html.slice(0, 200));
  document.documentElement.dataset.found =
    JSON.stringify({{passed: found.passes.map((rule) => rule.id), violations: said}});
}});
</script>
"""
DARK = "--blink-settings=preferredColorScheme=0"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary")
@pytest.mark.parametrize("flags", [(), (DARK,)], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["digits", "plane"])
def test_a_screen_reader_can_follow(
    name: str, flags: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """By axe, which judges names, roles, headings, landmarks and contrast."""
    package = pytest.importorskip("axe_core_python")
    axe = (Path(package.__file__).parent / "axe.min.js").read_text("utf-8")
    report: Report = request.getfixturevalue(name)
    html = report.path.read_text("utf-8")
    policy = html[(start := html.index("<meta http-equiv")) : html.index(">", start) + 1]
    copy_of = tmp_path / "page.html"  # without the policy, under which axe could not run
    html = html.replace(policy, "").replace("</body>", RUN_AXE.format(axe=axe) + "</body>")
    copy_of.write_text(html, encoding="utf-8")
    (found,) = Page(opened(copy_of, tmp_path, *flags)).attributes("html", "data-found")
    result = json.loads(found)
    assert result["violations"] == []
    assert {"color-contrast", "image-alt", "heading-order", "button-name"} <= set(result["passed"])


SORT = """
  const rows = () => [...page.querySelectorAll("table")[0].tBodies[0].rows];
  const names = () => rows().map((row) => row.cells[0].textContent.trim());
  const heading = page.querySelector("th:nth-child(3)");
  const found = [names()];
  for (const press of [1, 2]) {
    heading.querySelector("button").click();
    found.push(names(), heading.getAttribute("aria-sort"));
  }
  return found;
"""


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium binary")
def test_tables_sort(plane: Report, tmp_path: Path) -> None:
    """Under the page's own policy, which allows its script."""
    before, up, first, down, second = seen(plane, SORT, tmp_path)
    errors = {model.name: model.error for model in plane.comparison.models}
    assert before == list(errors)
    assert [errors[name] for name in up] == sorted(errors.values())
    assert [errors[name] for name in down] == sorted(errors.values(), reverse=True)
    assert (first, second) == ("ascending", "descending")


# --- many classes ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Report:
    points, y = clusters(60, 2, spread=0.3, seed=0)
    models = {
        "GD-GLN": ib.GLNClassifier(3, random_state=0, steps=60, learning_rate=0.3),
        "SVM-GLN": ib.GLNSVC(3, fit_intercept=False, random_state=0),
        "live": ib.ReLUClassifier(4, random_state=0, steps=60, shared=True),
    }
    data = Dataset("three", np.column_stack([points, y >= 0]), y, ("ant", ATTACK, "cow"))
    return fit_and_write(tmp_path_factory.mktemp("classes"), models, split(data, 40))


@pytest.mark.slow
def test_classes_have_regions_and_a_table_of_their_errors(classes: Report) -> None:
    figures = {path.stem for path in (classes.path.parent / "figures").glob("*.png")}
    assert {f"regions-{i}" for i in (1, 2, 3)} <= figures
    frame = pd.read_csv(classes.path.parent / "predictions.csv")
    error = (frame["SVM-GLN"] != frame["true label"]).mean()
    assert error == pytest.approx(classes.comparison.model("SVM-GLN").error)
    text = classes.page.text
    assert "3 classes" in text
    assert "Errors by class" in text
    assert ATTACK in text
    assert "class +1" not in text
    assert "lower bound" in text  # of the network whose classes share their units
