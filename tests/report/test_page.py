"""The page: whole, true to the comparison, safe to open, and readable on a phone."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import ColumnTransformer
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import implicit_bias as ib
from browser import DARK, check_by_axe, needs_browser
from comparison.samples import TEST, TRAIN, fitted_models
from implicit_bias.comparison.verdict import Verdict
from implicit_bias.datasets import make_toy, split
from implicit_bias.report.tables import tables
from report.written import ATTACK, Report, fit_and_write

# --- files ---------------------------------------------------------------------------------------


def test_all_files_are_there(digits: Report) -> None:
    folder = digits.path.parent
    written = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    names = ("models", "pairs", "predictions", "history")
    frames = {f"{name}.{ext}" for name in names for ext in ("csv", "parquet")}
    figures = {name for name in written if name.startswith("figures/")}
    assert written == {"report.html"} | frames | figures
    pixels = {name for name in figures if name.endswith(".png")}
    assert len(pixels) == len(digits.page.attributes("img", "src"))
    drawn = figures - pixels  # images of pixels are no drawings
    assert drawn
    assert {name.replace(".svg", ".png") for name in drawn} < pixels


@pytest.mark.parametrize(("kind", "read"), [("csv", pd.read_csv), ("parquet", pd.read_parquet)])
def test_tables_hold_the_numbers_of_the_comparison(digits: Report, kind: str, read: Any) -> None:
    folder = digits.path.parent
    comparison = digits.comparison
    for name, frame in [("models", comparison.model_frame()), ("pairs", comparison.pair_frame())]:
        found = read(folder / f"{name}.{kind}")
        if kind == "csv":  # where nothing is written for nan and for None
            found = found.astype(object).where(found.notna(), None)
            frame = frame.astype(object).where(frame.notna(), None)
        pd.testing.assert_frame_equal(found, frame, check_dtype=kind == "parquet", rtol=1e-12)
    history = read(folder / f"history.{kind}")
    points = comparison.model(ATTACK).history
    assert history["model"].unique().tolist() == [ATTACK]
    np.testing.assert_allclose(history["loss"], [p.loss for p in points], rtol=1e-12)
    predictions = read(folder / f"predictions.{kind}")
    error = (predictions[ATTACK] != predictions["true label"]).mean()
    assert error == pytest.approx(comparison.model(ATTACK).error)


@pytest.mark.slow
def test_pictures_of_a_report_stay_until_another_is_written(tmp_path: Path) -> None:
    comparison = ib.compare({"near": fitted_models()["neighbours"]}, TEST.X, TEST.y)
    comparison.report(tmp_path)
    pictures = sorted((tmp_path / "figures").iterdir())
    pictures[-1].unlink()
    pictures[-1].mkdir()  # so that it cannot be written
    with pytest.raises(OSError, match="cannot write"):
        comparison.report(tmp_path)
    assert sorted((tmp_path / "figures").iterdir()) == pictures
    pictures[-1].rmdir()
    (tmp_path / "figures" / "of-before.png").touch()
    comparison.report(tmp_path)
    assert sorted((tmp_path / "figures").iterdir()) == pictures


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.fast("digits")
@pytest.mark.parametrize("name", ["digits", "classes"])
def test_a_page_is_safe_self_contained_and_described(
    name: str, request: pytest.FixtureRequest
) -> None:
    report: Report = request.getfixturevalue(name)
    page = report.page
    tags = [tag for tag, _ in page.tags]
    assert tags.count("script") == 0, "what users wrote is escaped"
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
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert asked
    assert asked <= {*identifiers}
    assert len(set(identifiers)) == len(identifiers)


def test_a_failed_solve_is_shown(tmp_path: Path) -> None:
    data = split(make_toy("xor", 60), 40)
    with pytest.warns(ConvergenceWarning):
        report = fit_and_write(tmp_path, {"linear": ib.GatedSVC(on_failure="warn")}, data)
    (conclusion,) = report.comparison.conclusions()
    assert conclusion.verdict is Verdict.NO_PREDICTOR
    assert conclusion.headline in report.page.text
    assert "∞ (not separable)" in report.page.text  # the certified minimum
    shown = tables(report.comparison, ["-1", "+1"])
    columns = {column.key for table in shown for column in table.columns}
    assert not {"norm", "min_margin", "active_units", "train_error"} & columns
    assert not {"margins", "plane", "support"} & {*report.page.attributes("section", "id")}
    assert not (tmp_path / "pairs.csv").exists()


# --- Comparison.report ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_report_on_inputs_that_a_pipeline_encodes(tmp_path: Path) -> None:
    """Texts and missing values; two inputs are no plane then."""
    kinds = np.where(TRAIN.y > 0, "yes", "no")
    inputs = pd.DataFrame({"kind": kinds, "size": TRAIN.X[:, 0]})
    inputs.loc[3, "size"] = np.nan
    encoder = ("kind", OneHotEncoder(), ["kind"])
    encode = ColumnTransformer([encoder], remainder=SimpleImputer(), sparse_threshold=1.0)
    assert sp.issparse(encode.fit_transform(inputs))
    model = make_pipeline(encode, ib.GLNSVC(2, random_state=0)).fit(inputs, TRAIN.y)
    train = (inputs, TRAIN.y)
    written = ib.compare({"svm": model}, inputs, TRAIN.y, train=train).report(tmp_path)
    assert written.is_file()
    assert not [*(tmp_path / "figures").glob("regions-*.svg")]


def test_a_report_replaces_no_file_of_another_origin(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    holiday = tmp_path / "figures" / "holiday.png"
    holiday.write_bytes(b"mine")
    one = ib.compare({"near": fitted_models()["neighbours"]}, TEST.X, TEST.y)
    with pytest.raises(FileExistsError, match="figures"):
        one.report(tmp_path)
    assert holiday.read_bytes() == b"mine"


@pytest.mark.slow
@needs_browser
@pytest.mark.parametrize(("name", "flags"), [("digits", ()), ("classes", (DARK,))])
def test_a_screen_reader_can_follow(
    name: str, flags: tuple[str, ...], request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    report: Report = request.getfixturevalue(name)
    check_by_axe(report.path, tmp_path, *flags)
