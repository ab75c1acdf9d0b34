"""Write a comparison as one self-contained HTML page, with its tables and figures as files.

================================  ==========================================================
report.html                       the page: one script that sorts tables, nothing from elsewhere
models.csv, models.parquet        one row a model, the numbers of `Comparison.model_frame`
pairs.csv, pairs.parquet          one row a pair; where there are two models at least
predictions.csv, .parquet         one row an evaluation sample: where it is in the user's file, its
                                  label, the class by each model, whether these differ, the scores
history.csv, history.parquet      training histories; where there is a trained network
figures/*.png, figures/*.svg      each figure of the page; images of pixels as PNG only
================================  ==========================================================
"""

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from io import BytesIO
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from matplotlib import rcParams
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from implicit_bias.base.atomic import make_folder, write_atomically, write_tables, write_text
from implicit_bias.base.packaged import text_of
from implicit_bias.base.validation import as_finite
from implicit_bias.comparison import TRUE, Comparison
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.labels import label_text
from implicit_bias.estimators.base import dense
from implicit_bias.report.conclusion import MARKED
from implicit_bias.report.figures.base import Plot, Subject
from implicit_bias.report.figures.limit import limit_plots
from implicit_bias.report.figures.sections import sections
from implicit_bias.report.style import style
from implicit_bias.report.tables import definitions, tables
from implicit_bias.report.words import class_names, conclusions, data_facts, programs_in_words
from implicit_bias.training.limit import LimitResult

__all__ = ["write_limit", "write_report"]

# The question that every report answers, below its own title.
QUESTION = "Where does gradient descent go?"
# What a report writes into its folder.
TABLES = ("models", "pairs", "predictions", "history")
WRITTEN = (
    *("report.html", "figures"),
    *(f"{name}.{kind}" for name in TABLES for kind in ("csv", "parquet")),
)
MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png"}
OPTION = re.compile(r"(?<!\S)--?[\w-]+")
# Neither image states when it was made: the same numbers give the same bytes.
PRINT = {
    "png": (FigureCanvasAgg, {"Software": None}),
    "svg": (FigureCanvasSVG, {"Date": None, "Creator": None}),
}
# Characters that neither HTML nor SVG can hold, and what is shown for them.
CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in range(32) if chr(code) not in "\t\n\r"}


def write_report(
    folder: str | Path,
    comparison: Comparison,
    *,
    train: Dataset | None,
    evaluation: Dataset,
    title: str | None = None,
    facts: Mapping[str, str] | None = None,
    command: str = "",
    train_on: Mapping[str, str] | None = None,
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
        The samples they were evaluated on.
    title : str, optional
        Heading of the page; by default the models and the data.
    facts : mapping from name to value, optional
        What else to state of the run: seeds, versions.
    command : str
        The command that makes the page again; empty where there is none.
    train_on : mapping from name to command, optional
        How to train each network towards its limit; by default as in Python.
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
    # Without training samples the samples of the evaluation show what the models do.
    described = evaluation if train is None else train
    with style():
        drawn = sections(Subject(comparison, described))
        old, sources = set((folder / "figures").glob("*.[ps][nv]g")), {}  # of an earlier report
        for plot in (plot for section in drawn for plot in section.plots):
            kinds = ("png",) if plot.raster else ("png", "svg")
            files = _write_pictures(folder / "figures", plot.name, plot.figure, kinds)
            sources[plot.name] = _source(plot, files[-1].read_bytes())
            old.difference_update(files)
        rows = tables(comparison, class_names(comparison, evaluation))
        script = text_of("report/page.js")
        page = _template().render(
            title=title or f"{', '.join(m.name for m in comparison.models)} on {described.name}",
            question=QUESTION,
            meanings=meanings or programs_in_words(comparison),
            made=f"{datetime.now(UTC):%Y-%m-%d}",
            command=command and _code(command),
            conclusions=conclusions(comparison, train_on=train_on),
            facts=data_facts(train, evaluation, facts or {}),
            linked=_linked,
            tables=rows,
            definitions=definitions(rows),
            sections=drawn,
            many_classes=comparison.many_classes,
            has_margins=any(model.margin for model in comparison.models),
            sources=sources,
            script=script,
            script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        )
    write_text(folder / "report.html", page.translate(CONTROLS))
    for file in old:
        file.unlink()
    return folder / "report.html"


def report_on(
    comparison: Comparison, folder: str | Path, *, title: str | None, data_name: str
) -> Path:
    """Write the page of a comparison of anybody's models on anybody's data.

    See `Comparison.report`.
    """
    if not isinstance(title, str | None) or not isinstance(data_name, str):
        raise TypeError(f"title and data_name must be text, got {title!r:.99}, {data_name!r:.99}")
    of = comparison.of
    _check_own(Path(folder))
    classes = comparison.classes

    def data(X: ArrayLike, y: ArrayLike) -> Dataset:
        try:
            inputs = as_finite(dense(X), "X", 2)
        except (TypeError, ValueError):  # texts and gaps, which a pipeline encodes and fills
            inputs = np.zeros(np.shape(X))
        constant = bool(inputs.shape[1]) and bool((inputs[:, -1] == 1.0).all())
        names = tuple(map(label_text, classes.tolist()))
        labels = np.searchsorted(classes, np.asarray(y))
        if not comparison.many_classes:
            labels = np.where(np.asarray(y) == classes[-1], 1.0, -1.0)
            names = (names[0], names[-1])
        return Dataset(data_name, inputs, labels, names, has_constant=constant)

    given = data(of.X, of.y)
    return write_report(
        folder,
        comparison,
        train=None if of.train is None else data(*of.train),
        evaluation=given,
        title=title,
    )


def _check_own(folder: Path) -> None:
    """Refuse to overwrite files that belong to no report."""
    page = folder / "report.html"
    if page.is_file() and QUESTION in page.read_text("utf-8", errors="replace"):
        return
    if theirs := [name for name in WRITTEN if (folder / name).exists()]:
        raise FileExistsError(
            f"{folder} has {', '.join(theirs)} of another origin, which a report would overwrite: "
            "name another folder"
        )


def write_limit(folder: str | Path, name: str, result: LimitResult) -> tuple[Path, ...]:
    """Write the pictures (PNG) of a training towards the limit.

    Excess, disagreement, the caller's own measures, smallest margin and balance against the
    steps, as far as they are known.

    Parameters
    ----------
    folder : str or Path
        Where to write; made if need be.
    name : str
        How the network is called: in the pictures, and in the names of their files.
    result : LimitResult
        The training.

    Returns
    -------
    tuple of Path
        The pictures, ``folder/NAME-PLOT.png``.
    """
    columns = ["excess", "disagreement", *result.history[-1].measures, "min_margin", "balance"]
    with style():
        return tuple(
            file
            for plot in limit_plots(name, result, columns)
            for file in _write_pictures(Path(folder), f"{name}-{plot.name}", plot.figure)
        )


def _write_pictures(
    folder: Path, name: str, figure: Figure, kinds: Sequence[str] = ("png",)
) -> list[Path]:
    """Write a figure as NAME.KIND for each of the kinds, and return the files.

    `Figure.savefig` would lay the figure out anew for each of them, and draw it once for that
    alone, which together takes longer than to draw it.
    """
    figure.dpi = rcParams["savefig.dpi"]
    files = []
    for kind in kinds:
        image = BytesIO()
        canvas, metadata = PRINT[kind]
        getattr(canvas(figure), f"print_{kind}")(image, metadata=metadata)
        figure.set_layout_engine("none")  # the first drawing has made the layout
        files.append(folder / f"{name}.{kind}")
        data = image.getvalue()
        if kind == "svg":
            data = data.decode().translate(CONTROLS).encode()
        write_atomically(files[-1], methodcaller("write_bytes", data))
    return files


# --- files ---------------------------------------------------------------------------------


def _write_tables(folder: Path, comparison: Comparison, evaluation: Dataset) -> None:
    predictions = _predictions(comparison, evaluation)
    found = (comparison.model_frame(), comparison.pair_frame(), predictions)
    frames = dict(zip(TABLES, (*found, comparison.history_frame()), strict=True))
    write_tables(folder, {name: frame for name, frame in frames.items() if not frame.empty})
    for name in (name for name, frame in frames.items() if frame.empty):
        for kind in ("csv", "parquet"):  # nor must one remain of an earlier report
            (folder / f"{name}.{kind}").unlink(missing_ok=True)


def _predictions(comparison: Comparison, evaluation: Dataset) -> pd.DataFrame:
    """Return the predictions behind what is carried along of each sample, or else its index."""
    found = comparison.prediction_frame(class_names(comparison, evaluation))
    classes = [TRUE, *(model.name for model in comparison.models)]
    carried = evaluation.carried or {"row": found.index.to_numpy()}
    told = {name if name not in found else f"{name} (file)": carried[name] for name in carried}
    found = _by_name(found, classes, comparison, evaluation)
    return pd.concat([pd.DataFrame(told, index=found.index), found], axis=1)


def _by_name(
    frame: pd.DataFrame, columns: Sequence[str], comparison: Comparison, data: Dataset
) -> pd.DataFrame:
    """Write the classes in some columns of a table by the names that a data set has for them."""
    names = dict(zip(comparison.classes.tolist(), class_names(comparison, data), strict=True))
    return frame.assign(**{name: frame[name].map(names) for name in columns if name in frame})


def _source(plot: Plot, image: bytes) -> str:
    """Figure as a data URL, which keeps the identifiers of each SVG to itself."""
    kind = "png" if plot.raster else "svg"
    return f"data:{MEDIA_TYPES[kind]};base64,{base64.b64encode(image).decode()}"


def _linked(sentence: str) -> Markup:
    """Write a sentence of `conclusion` with links to definitions, and commands as code."""

    def written(found: re.Match[str]) -> str:
        key, text = found.groups()
        return f'<a href="#def-{key}">{text}</a>' if key else _code(Markup(text))

    return Markup(MARKED.sub(written, escape(sentence)))


def _code(text: str) -> Markup:
    """Write what is to be typed; a line does not end within the name of an option."""
    return Markup("<code>%s</code>") % Markup(OPTION.sub(r"<span>\g<0></span>", str(escape(text))))


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("implicit_bias.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
