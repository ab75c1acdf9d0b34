"""Write a comparison as one self-contained HTML page, with its tables and figures as files.

================================  ==========================================================
report.html                       the page: no script, and nothing from elsewhere
models.csv, models.parquet        one row per model, the numbers of `Comparison.model_frame`
pairs.csv, pairs.parquet          one row per pair; where there are two models at least
predictions.csv, .parquet         one row per test sample: where it is in the user's file, its
                                  label, the class by each model, whether these differ, the scores
history.csv, history.parquet      training histories; where there is a trained network
figures/*.png, figures/*.svg      each figure of the page; images of pixels as PNG only
================================  ==========================================================
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.atomic import make_folder, write_atomically, write_tables, write_text
from implicit_bias.base.style import style
from implicit_bias.base.validation import as_finite
from implicit_bias.comparison import Comparison
from implicit_bias.comparison.comparison import TRUE_LABEL
from implicit_bias.comparison.verdict import WORDS
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.labels import label_text
from implicit_bias.estimators.base import dense
from implicit_bias.report.conclusion import as_code, linked
from implicit_bias.report.figures import (
    Section,
    error_plots,
    looks,
    margin_plots,
    plane_plots,
    support_plots,
    training_plots,
)
from implicit_bias.report.tables import define_once, tables, terms_of_verdicts
from implicit_bias.report.words import class_names, class_note, data_facts, problems_in_words

# What a report writes into its folder.
TABLES = ("models", "pairs", "predictions", "history")
WRITTEN = (
    "report.html",
    "figures",
    *(f"{table}.csv" for table in TABLES),
    *(f"{table}.parquet" for table in TABLES),
)
# A line by which the page of a report is recognized.
GENERATOR = '<meta name="generator" content="implicit_bias">'


def write_report(
    folder: str | Path,
    comparison: Comparison,
    *,
    train: Dataset | None,
    evaluation: Dataset,
    title: str | None = None,
    facts: Mapping[str, str] | None = None,
    command: str = "",
    to_limit: Mapping[str, str] | None = None,
    meanings: Mapping[str, str] | None = None,
) -> Path:
    """Write the page, the tables and the figures of a comparison.

    Each file is replaced only once it is whole, the page last of all.

    Parameters
    ----------
    folder : str or Path
        Where to write; made if need be.
    comparison : Comparison
        What `compare` returned for these data.
    train : Dataset or None
        The samples they were fitted to; None where these are not known.
    evaluation : Dataset
        The test samples.
    title : str, optional
        Heading of the page; by default the models and the data.
    facts : mapping from name to value, optional
        What else to state of the run: seeds, versions.
    command : str
        The command that makes the page again; empty where there is none.
    to_limit : mapping from name to command, optional
        How to train the networks to their limits; by default as in Python.
    meanings : mapping from name to text, optional
        What the names of the models mean; by default norm, gates and C of each.

    Returns
    -------
    Path
        The page, ``folder/report.html``.

    Raises
    ------
    OSError
        The folder cannot be made or written to.
    """
    folder = make_folder(folder)
    _write_tables(folder, comparison, evaluation)

    # Without training samples the test samples show what the models do.
    described = train
    if described is None:
        described = evaluation
    # Figures of an earlier report may have other names than those of this one.
    figures = folder / "figures"
    earlier = {*figures.glob("*.png"), *figures.glob("*.svg")}
    with style():
        drawn = _sections(comparison, described)
        sources, pictures = _write_figures(figures, drawn)

    if title is None:
        title = f"{', '.join(model.name for model in comparison.models)} on {described.name}"
    # Each term is defined once, where it first stands: below the verdicts, or below a table.
    conclusions = comparison.conclusions(to_limit)
    terms = terms_of_verdicts(comparison, conclusions)
    shown = define_once(terms, tables(comparison, class_names(comparison, evaluation)))
    # Numbers in the verdicts link to all terms that have a definition on the page.
    defined = {term.key for term in terms}
    for table in shown:
        defined |= {term.key for term in table.terms}
    # The template escapes all that it is given, what users wrote included, but for `Markup`.
    environment = Environment(
        loader=PackageLoader("implicit_bias.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page = environment.get_template("page.html.j2").render(
        generator=GENERATOR,
        title=title,
        meanings=meanings or problems_in_words(comparison),
        made=f"{datetime.now(UTC):%Y-%m-%d}",
        command=as_code(command),
        conclusions=conclusions,
        facts=data_facts(train, evaluation, facts or {}),
        linked=partial(linked, defined=defined),
        terms=terms,
        tables=[table for table in shown if table.main],
        details=[table for table in shown if not table.main],
        defined=defined,
        sections=drawn,
        sources=sources,
    )
    write_text(folder / "report.html", page)
    # Only now: a page that could not be written leaves the earlier one whole.
    for picture in earlier - pictures:
        picture.unlink()
    return folder / "report.html"


def report_on(
    comparison: Comparison, folder: str | Path, *, title: str | None, data_name: str
) -> Path:
    """Write the page of a comparison alone, without what a run knows; see `Comparison.report`."""
    if not isinstance(title, str | None) or not isinstance(data_name, str):
        raise TypeError(f"title and data_name must be text, got {title!r:.99}, {data_name!r:.99}")

    # A folder with a page of this package is a report, and may be replaced as a whole. Files of
    # another origin are not overwritten.
    page = Path(folder) / "report.html"
    if not (page.is_file() and GENERATOR in page.read_text("utf-8", errors="replace")):
        others = [name for name in WRITTEN if (Path(folder) / name).exists()]
        if others:
            raise FileExistsError(
                f"{folder} has {', '.join(others)} of another origin, which a report would "
                "overwrite: name another folder"
            )

    train = None
    if comparison.train is not None:
        train = _as_dataset(comparison, data_name, *comparison.train)
    test = _as_dataset(comparison, data_name, comparison.X, comparison.y)
    return write_report(folder, comparison, train=train, evaluation=test, title=title)


def _as_dataset(comparison: Comparison, name: str, X: ArrayLike, y: NDArray[Any]) -> Dataset:
    """Return samples of a comparison with the labels that a `Dataset` has."""
    try:
        inputs = as_finite(dense(X), "X", 2)
    except (TypeError, ValueError):  # text or missing values, which a pipeline encodes
        inputs = np.zeros(np.shape(X))
    # A last column of ones is the constant that stands for a bias.
    has_constant = inputs.shape[1] > 0 and bool((inputs[:, -1] == 1.0).all())
    classes = comparison.classes
    names = tuple(map(label_text, classes.tolist()))
    if comparison.many_classes:
        labels = np.searchsorted(classes, y)
    else:
        labels = np.where(y == classes[-1], 1.0, -1.0)
        names = (names[0], names[-1])  # one class alone has one name
    return Dataset(name, inputs, labels, names, has_constant=has_constant)


# --- figures, in sections ------------------------------------------------------------------------


def _sections(comparison: Comparison, train: Dataset) -> list[Section]:
    """Draw all sections for which there are data; call it inside `style`.

    The first one shows what the first verdict is on.

    Parameters
    ----------
    comparison : Comparison
        The numbers, and the models compared.
    train : Dataset
        The samples that the models were fitted to; the test samples where these are not known.
    """
    drawn_as = looks(comparison)
    plots_of = {
        "margins": margin_plots(comparison, drawn_as),
        "training": training_plots(comparison, drawn_as),
        "plane": plane_plots(comparison, train),
        "errors": error_plots(comparison, drawn_as),
        "support": support_plots(comparison, train),
    }
    if comparison.ranks_models:  # the first verdict is on the errors
        plots_of = {"errors": plots_of.pop("errors"), **plots_of}
    drawn = []
    for name, plots in plots_of.items():
        # Each generator draws only what it has data for; a section without figures has no heading.
        shown = tuple(plots)
        if shown:
            words = WORDS["sections"][name]
            note = words["note"].format(classes=class_note(train)).rstrip()
            drawn.append(Section(name, words["title"], note, shown))
    return drawn


# --- files ---------------------------------------------------------------------------------------


def _write_figures(folder: Path, drawn: Sequence[Section]) -> tuple[dict[str, str], set[Path]]:
    """Write the figures of a page; return each as a data URL, by its name, and the files."""
    sources = {}
    files = set()
    for section in drawn:
        for plot in section.plots:
            png = folder / f"{plot.name}.png"
            image = _write_figure(png, plot.figure)
            files.add(png)
            media_type = "image/png"
            if not plot.raster:
                svg = folder / f"{plot.name}.svg"
                image = _write_figure(svg, plot.figure)
                files.add(svg)
                media_type = "image/svg+xml"
            # A data URL keeps the identifiers of each SVG to itself.
            sources[plot.name] = f"data:{media_type};base64,{base64.b64encode(image).decode()}"
    return sources, files


def _write_figure(file: Path, figure: Figure) -> bytes:
    """Write a figure in the format of the file's name, and return what was written."""
    image = BytesIO()
    # No image states when it was made: the same numbers give the same bytes.
    if file.suffix == ".png":
        figure.savefig(image, format="png", metadata={"Software": None})
    else:
        figure.savefig(image, format="svg", metadata={"Date": None, "Creator": None})
    figure.set_layout_engine("none")  # the first drawing has made the layout
    write_atomically(file, methodcaller("write_bytes", image.getvalue()))
    return image.getvalue()


def _write_tables(folder: Path, comparison: Comparison, test: Dataset) -> None:
    """Write the tables that have rows, and remove the others, which may be of an earlier report."""
    frames = {
        "models": comparison.model_frame(),
        "pairs": comparison.pair_frame(),
        "predictions": _predictions(comparison, test),
        "history": comparison.history_frame(),
    }
    write_tables(folder, {name: frame for name, frame in frames.items() if not frame.empty})
    for name, frame in frames.items():
        if frame.empty:
            (folder / f"{name}.csv").unlink(missing_ok=True)
            (folder / f"{name}.parquet").unlink(missing_ok=True)


def _predictions(comparison: Comparison, test: Dataset) -> pd.DataFrame:
    """Return the table of predictions: columns carried from the user's file, then predictions."""
    # Labels become the names of their classes; an undecided model (None) stays without one.
    names = class_names(comparison, test)
    frame = comparison.prediction_frame(names)
    name_of = dict(zip(comparison.classes.tolist(), names, strict=True))
    for column in (TRUE_LABEL, *(model.name for model in comparison.models)):
        frame[column] = frame[column].map(name_of)
    carried: dict[str, Any] = {}
    for name, values in (test.carried or {"row": frame.index.to_numpy()}).items():
        heading = name
        if name in frame:  # a model or a class is called so
            heading = f"{name} (file)"
        carried[heading] = values
    return pd.concat([pd.DataFrame(carried, index=frame.index), frame], axis=1)
