"""The page: whole, true to the comparison, safe to open, and readable on a phone."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, cast

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
from comparison.samples import TEST, TRAIN, compared, fitted_models
from implicit_bias.base.wording import minus, percent
from implicit_bias.comparison.verdict import Verdict
from implicit_bias.datasets import make_toy, split
from implicit_bias.report.page import write_report
from implicit_bias.report.tables import tables
from report.written import ATTACK, Page, Report, fit_and_write, no_margins

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
WIDTHS = (390, 1280)
LAST = ["details", "setting"]


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
    assert all((folder / name).read_bytes().startswith(b"\x89PNG") for name in pixels)
    drawn = figures - pixels
    assert drawn
    assert all("<svg" in (folder / name).read_text("utf-8")[:1000] for name in drawn)
    assert {name.replace(".svg", ".png") for name in drawn} < pixels
    assert digits.path.stat().st_size < 3e6


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_tables_hold_the_numbers_of_the_comparison(digits: Report, kind: str) -> None:
    readers: dict[str, Any] = {"csv": pd.read_csv, "parquet": pd.read_parquet}
    read = readers[kind]
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
    expected = [p.normalised_margin for p in points]
    np.testing.assert_allclose(history["normalised_margin"], expected, rtol=1e-12)


@pytest.mark.slow
def test_a_second_report_replaces_the_first_and_leaves_no_stale_table(bare: Report) -> None:
    first = bare.path.read_bytes()
    stale = bare.path.parent / "history.csv"
    stale.write_text("of an earlier report")
    second = no_margins(bare.path.parent).path.read_bytes()
    assert first == second, "the same numbers must give the same bytes"
    assert not stale.exists()


@pytest.mark.slow
def test_pictures_of_a_report_stay_until_another_is_written(tmp_path: Path) -> None:
    X = np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]])
    y = np.array([1, 2, 1])
    comparison = ib.compare(
        {"a": ib.MaxMarginSVC().fit(X, y), "b": ib.MaxMarginSVC("linf").fit(X, y)}, X, y
    )
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
@pytest.mark.parametrize("name", ["digits", "plane"])
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
    defined = {name for name in page.attributes("div", "id") if name.startswith("def-")}
    assert asked
    assert asked <= defined
    # The first figure is above the tables, and each term has one definition.
    assert tags.index("figure") < tags.index("table")
    identifiers = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(set(identifiers)) == len(identifiers)


@pytest.mark.slow
def test_tables_show_the_numbers_that_matter_first(plane: Report, bare: Report) -> None:
    for model in plane.comparison.models:
        assert f"{model.known_margin.norm:.4g}" in plane.page.text
    assert "SVM-GLN: l2 over groups, hyperplane contexts, hard margin" in plane.page.text
    for pair in plane.comparison.pairs:
        assert percent(1 - pair.disagreement) in plane.page.text
    for words in ("do <it>", "logistic, neighbours on moons", "logistic: of <odds>"):
        assert words in bare.page.text


@pytest.mark.slow
def test_sections_follow_the_data(digits: Report, plane: Report, bare: Report) -> None:
    def sections(report: Report) -> list[str]:
        return report.page.attributes("section", "id")

    assert sections(digits) == ["margins", "numbers", "errors", "support", *LAST]
    assert sections(plane) == ["margins", "numbers", "training", "plane", "errors", *LAST]
    assert sections(bare) == ["errors", "numbers", "plane", *LAST]  # the verdict is on errors
    assert "certified" not in bare.page.text
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
        report = fit_and_write(tmp_path, {"linear": ib.GatedSVC(on_failure="warn")}, data)
    (conclusion,) = report.comparison.conclusions()
    assert conclusion.verdict is Verdict.NO_PREDICTOR
    assert conclusion.headline in report.page.text
    assert "∞ (not separable)" in report.page.text  # the certified minimum
    shown = tables(report.comparison, ["-1", "+1"])
    columns = {column.key for table in shown for column in table.columns}
    assert not {"norm", "min_margin", "active_units", "train_error"} & columns
    assert not {"margins", "plane", "support"} & {*report.page.attributes("section", "id")}


@pytest.mark.slow
def test_a_network_beside_a_failed_solve(spoilt: Report) -> None:
    page = spoilt.page
    assert np.isnan(spoilt.comparison.model("svm").error)
    # The network has margins, and no maximum margin to hold them against.
    margin = spoilt.comparison.model("net").known_margin
    assert f"net: normalized margin {minus(f'{margin.min_margin:.3g}')}." in page.text
    assert page.text.count("∞ (not separable)") == 2  # the certified minimum of each
    drawn = {path.stem for path in (spoilt.path.parent / "figures").iterdir()}
    assert not {"regions-1", "training-excess"} & drawn, "svm has no predictor"
    assert {"errors", "regions-2"} <= drawn


# --- Comparison.report ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("others", [0, 1])
def test_a_report_on_inputs_that_a_pipeline_encodes(tmp_path: Path, others: int) -> None:
    """Texts and missing values; two inputs are no plane then."""
    kinds = np.where(TRAIN.y > 0, "yes", "no")
    inputs = pd.DataFrame({"kind": kinds, "size": TRAIN.X[:, 0]})
    inputs.loc[3, "size"] = np.nan
    inputs = inputs.assign(**{f"other {i}": 0.0 for i in range(others)})
    encoder = ("kind", OneHotEncoder(), ["kind"])
    encode = ColumnTransformer([encoder], remainder=SimpleImputer(), sparse_threshold=1.0)
    model = make_pipeline(encode, ib.GLNSVC(2, random_state=0)).fit(inputs, TRAIN.y)
    assert sp.issparse(encode.fit_transform(inputs))
    train = (inputs, TRAIN.y)
    written = ib.compare({"svm": model}, inputs, TRAIN.y, train=train).report(tmp_path)
    assert written.is_file()
    assert not [*(tmp_path / "figures").glob("regions-*.svg")]


def test_a_report_needs_a_title_of_text_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="text"):
        compared().report(tmp_path, title=cast(Any, pd.NA))
    (tmp_path / "file").write_text("kept")
    for place in ("file", "file/deeper"):
        with pytest.raises((FileExistsError, NotADirectoryError), match="file"):
            compared().report(tmp_path / place)
    assert (tmp_path / "file").read_text() == "kept"


@pytest.mark.slow
def test_a_report_replaces_no_file_of_another_origin(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    holiday = tmp_path / "figures" / "holiday.png"
    holiday.write_bytes(b"mine")
    one = ib.compare({"near": fitted_models()["neighbours"]}, TEST.X, TEST.y)
    with pytest.raises(FileExistsError, match="figures"):
        one.report(tmp_path)
    assert holiday.read_bytes() == b"mine"
    for _ in range(2):
        assert one.report(tmp_path / "mine").is_file()


# --- a browser -----------------------------------------------------------------------------------

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
    start = html.index("<meta http-equiv")
    policy = html[start : html.index(">", start) + 1]
    copy_of = tmp_path / "page.html"  # without the policy, under which axe could not run
    html = html.replace(policy, "").replace("</body>", RUN_AXE.format(axe=axe) + "</body>")
    copy_of.write_text(html, encoding="utf-8")
    (found,) = Page(opened(copy_of, tmp_path, *flags)).attributes("html", "data-found")
    result = json.loads(found)
    assert result["violations"] == []
    assert {"color-contrast", "image-alt", "heading-order"} <= set(result["passed"])


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
