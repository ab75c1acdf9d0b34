"""Write a comparison as one self-contained HTML page, with its tables and figures as files.

================================  ==========================================================
report.html                       the page: no script, nothing loaded from elsewhere
models.csv, models.parquet        one row a model, the numbers of `Comparison.model_frame`
pairs.csv, pairs.parquet          one row a pair; where there are two models at least
history.csv, history.parquet      training histories; where there is a trained network
figures/*.png                     each figure of the page
================================  ==========================================================
"""

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

from implicit_bias.comparison import Comparison, Predicts
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.report.figures.base import Plot, Subject
from implicit_bias.report.figures.limit import limit_plots, unit_weights_plots
from implicit_bias.report.figures.sections import sections
from implicit_bias.report.figures.trajectory import trajectory_figure
from implicit_bias.report.style import style
from implicit_bias.report.tables import tables
from implicit_bias.report.words import data_facts, headlines
from implicit_bias.storage.atomic import write_atomically, write_tables, write_text
from implicit_bias.training.limit import LimitResult

__all__ = ["write_limit", "write_report", "write_trajectory"]

TITLE = "Where does gradient descent go?"
# Neither states when it was made: the same numbers give the same bytes.
METADATA = {"svg": {"Date": None, "Creator": None}, "png": {"Software": None}}
MEDIA_TYPES = {"svg": "image/svg+xml", "png": "image/png"}


def write_report(
    folder: str | Path,
    comparison: Comparison,
    models: Mapping[str, Predicts],
    *,
    train: Dataset,
    evaluation: Dataset,
    title: str = TITLE,
    facts: Mapping[str, str] | None = None,
) -> Path:
    """Write the page, the tables and the figures of a comparison.

    Each file is replaced only once it is whole, the page last of all.

    Parameters
    ----------
    folder : str or Path
        Where to write; made if need be.
    comparison : Comparison
        What `compare` returned for these models and data.
    models : mapping from name to fitted classifier
        The models compared.
    train, evaluation : Dataset
        The samples they were fitted to and evaluated on.
    title : str
        Heading of the page.
    facts : mapping from name to value, optional
        What else to state of the run: seeds, versions.

    Returns
    -------
    Path
        The page, ``folder/report.html``.

    Raises
    ------
    ValueError
        The models are not those of the comparison.
    """
    names = [model.name for model in comparison.models]
    if sorted(names) != sorted(models):
        raise ValueError(f"the comparison has the models {names}, not {list(models)}")
    folder = Path(folder)
    _write_tables(folder, comparison)
    with style():
        drawn = sections(Subject(comparison, models, train))
        for old in (folder / "figures").glob("*.png"):  # of an earlier report
            old.unlink()
        for plot in (plot for section in drawn for plot in section.plots):
            _write_picture(folder / "figures" / f"{plot.name}.png", plot.figure)
        page = _template().render(
            title=title,
            headlines=headlines(comparison, held_out=not np.array_equal(train.X, evaluation.X)),
            facts=data_facts(train, evaluation, facts or {}),
            tables=tables(comparison),
            sections=drawn,
            has_margins=any(model.margin for model in comparison.models),
            source=_source,
        )
    write_text(folder / "report.html", page)
    return folder / "report.html"


def write_trajectory(folder: str | Path, frame: pd.DataFrame) -> Path:
    """Write SVM-LC along a training as table (CSV, Parquet) and picture (PNG).

    Parameters
    ----------
    folder : str or Path
        Where to write; made if need be.
    frame : DataFrame
        One row a `TrajectoryPoint`.

    Returns
    -------
    Path
        The picture, ``folder/trajectory.png``.
    """
    write_tables(folder, {"trajectory": frame})
    with style():
        return _write_picture(Path(folder) / "trajectory.png", trajectory_figure(frame))


def write_limit(folder: str | Path, name: str, result: LimitResult) -> tuple[Path, ...]:
    """Write the pictures (PNG) of a training towards the limit.

    Excess, disagreement, the caller's own measures, smallest margin and balance against the
    steps, as far as they are known, and, with one hidden layer, the weights of each unit.

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
        plots = [*limit_plots({name: result}, columns), *unit_weights_plots(result.network)]
        return tuple(
            _write_picture(Path(folder) / f"{name}-{plot.name}.png", plot.figure) for plot in plots
        )


def _write_picture(path: Path, figure: Figure) -> Path:
    image = _image(figure, "png")
    write_atomically(path, lambda draft: draft.write_bytes(image))
    return path


# --- files ---------------------------------------------------------------------------------


def _write_tables(folder: Path, comparison: Comparison) -> None:
    frames = {
        "models": comparison.model_frame(),
        "pairs": comparison.pair_frame(),
        "history": comparison.history_frame(),
    }
    write_tables(folder, {name: frame for name, frame in frames.items() if not frame.empty})
    for name in (name for name, frame in frames.items() if frame.empty):
        for kind in ("csv", "parquet"):  # nor must one remain of an earlier report
            (folder / f"{name}.{kind}").unlink(missing_ok=True)


def _image(figure: Figure, kind: str) -> bytes:
    buffer = BytesIO()
    figure.savefig(buffer, format=kind, metadata=METADATA[kind])
    return buffer.getvalue()


def _source(plot: Plot) -> str:
    """Figure as a data URL, which keeps the identifiers of each SVG to itself."""
    kind = "png" if plot.raster else "svg"
    return f"data:{MEDIA_TYPES[kind]};base64,{base64.b64encode(_image(plot.figure, kind)).decode()}"


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("implicit_bias.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")
