"""Write a comparison as one self-contained HTML page, with its tables and figures as files.

================================  ==========================================================
report.html                       the page: no script, nothing loaded from elsewhere
models.csv, models.parquet        one row a model, the numbers of `Comparison.model_frame`
pairs.csv, pairs.parquet          one row a pair; where there are two models at least
history.csv, history.parquet      training histories; where there is a trained network
figures/*.png                     each figure of the page
================================  ==========================================================
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.figure import Figure

import implicit_bias
from implicit_bias.comparison import Comparison, ModelResult, Predicts, margin_view
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.estimators.base import MarginView
from implicit_bias.report.figures.base import Plot, Subject, has_class_names
from implicit_bias.report.figures.limit import limit_plots, unit_weights_plots
from implicit_bias.report.figures.questions import gates_moved, not_separable, programs, svm_among
from implicit_bias.report.figures.sections import sections
from implicit_bias.report.figures.trajectory import trajectory_figure
from implicit_bias.report.style import style
from implicit_bias.report.words import percent
from implicit_bias.storage.atomic import write_atomically
from implicit_bias.training.history import history_frame
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
    views = _views(models)
    with style():
        drawn = sections(Subject(comparison, models, views, train))
        for old in (folder / "figures").glob("*.png"):  # of an earlier report
            old.unlink()
        for plot in (plot for section in drawn for plot in section.plots):
            _write(folder / "figures" / f"{plot.name}.png", _image(plot, "png"))
        page = _template().render(
            title=title,
            headlines=headlines(
                comparison,
                unseen=not np.array_equal(train.X, evaluation.X),
                other_programs=_other_programs(views, train),
            ),
            facts=_facts(train, evaluation, facts or {}),
            tables=_tables(comparison, views),
            sections=drawn,
            has_margins=any(model.margin for model in comparison.models),
            source=_source,
        )
    _write(folder / "report.html", page.encode())
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
    folder = Path(folder)
    _write(folder / "trajectory.csv", frame.to_csv(index=False).encode())
    _write(folder / "trajectory.parquet", frame.to_parquet(index=False))
    with style():
        return _write_picture(folder / "trajectory.png", trajectory_figure(frame))


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
    buffer = BytesIO()
    figure.savefig(buffer, format="png", metadata=METADATA["png"])
    _write(path, buffer.getvalue())
    return path


def _views(models: Mapping[str, Predicts]) -> dict[str, MarginView]:
    views = {name: margin_view(model) for name, model in models.items()}
    return {name: view for name, view in views.items() if view is not None}


def _other_programs(views: Mapping[str, MarginView], train: Dataset) -> dict[str, str]:
    """For networks: SVMs of the same gates and groups that solve another program, and why."""
    reasons: dict[str, list[str]] = {}
    for network, name in product(views, views):
        view = views[name]
        if views[network].solution is not None or view.solution is None:
            continue
        if math.isfinite(view.C) and _same_gates(views[network], view, train):
            reasons.setdefault(network, []).append(
                f"the C = {view.C:g} of {name} is finite, so that is another program"
            )
    return {network: "; ".join(found) for network, found in reasons.items()}


def _same_gates(first: MarginView, second: MarginView, train: Dataset) -> bool:
    a, b = (view.structure.problem(train.X, train.y) for view in (first, second))
    return a.has_gates_of(b)


# --- files ---------------------------------------------------------------------------------


def _write(path: Path, content: bytes) -> None:
    write_atomically(path, lambda partial: partial.write_bytes(content))


def _write_tables(folder: Path, comparison: Comparison) -> None:
    frames = {
        "models": comparison.model_frame(),
        "pairs": comparison.pair_frame(),
        "history": _history_frame(comparison),
    }
    for name, frame in frames.items():
        csv, parquet = folder / f"{name}.csv", folder / f"{name}.parquet"
        if frame.empty:  # nor must one remain of an earlier report
            csv.unlink(missing_ok=True)
            parquet.unlink(missing_ok=True)
        else:
            _write(csv, frame.to_csv(index=False).encode())
            _write(parquet, frame.to_parquet(index=False))


def _history_frame(comparison: Comparison) -> pd.DataFrame:
    points = [(model.name, point) for model in comparison.models for point in model.history]
    frame = history_frame(point for _, point in points)
    frame.insert(0, "model", [name for name, _ in points])
    return frame


def _image(plot: Plot, kind: str) -> bytes:
    buffer = BytesIO()
    plot.figure.savefig(buffer, format=kind, metadata=METADATA[kind])
    return buffer.getvalue()


def _source(plot: Plot) -> str:
    """Figure as a data URL, which keeps the identifiers of each SVG to itself."""
    kind = "png" if plot.raster else "svg"
    return f"data:{MEDIA_TYPES[kind]};base64,{base64.b64encode(_image(plot, kind)).decode()}"


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("implicit_bias.report.page", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html.j2")


# --- words ---------------------------------------------------------------------------------


def headlines(
    comparison: Comparison,
    *,
    unseen: bool = True,
    other_programs: Mapping[str, str] | None = None,
) -> list[str]:
    """State the result in sentences: one for each trained network, or one for all models.

    Parameters
    ----------
    comparison : Comparison
        The numbers.
    unseen : bool
        Whether the evaluation samples are others than the training samples.
    other_programs : mapping from network to text, optional
        Why SVMs that share a network's gates do not solve its program.
    """
    samples = f"{comparison.n_samples:,} {'unseen' if unseen else 'training'} samples"
    networks = [model for model in comparison.models if model.history]
    if networks:
        return [
            _network_headline(
                comparison, network, samples, (other_programs or {}).get(network.name)
            )
            for network in networks
        ]
    solved = [model for model in comparison.models if model.margin]
    return [_solved_headline(solved, samples) if solved else _plain_headline(comparison, samples)]


def _network_headline(
    comparison: Comparison, network: ModelResult, samples: str, other_program: str | None
) -> str:
    twin = _svm_twin(comparison, network)
    wrong = f"{network.name} is wrong on {percent(network.error)} of {samples}"
    local = network.margin is not None and network.margin.local
    alone = " Each of its units learned by itself, so no SVM is known to be its limit." * local
    if local and twin is None:
        return f"{wrong}.{alone}"
    if twin is None or network.margin is None:
        missing = other_program or "no SVM of its program is among the models"
        return f"{wrong}; {missing}. How far it is from its limit is not known."
    if not_separable(comparison, network):
        program = f"No weights of {network.name}’s program separate the training samples"
        if gates_moved(network):
            program = f"With the gates {network.name} has now no weights separate its samples"
        return f"{program} (proven by {twin.name}), so there is no limit to go to. {wrong}."
    pair = comparison.pair(network.name, twin.name)
    disagreement = (
        f"it disagrees with {twin.name} on {percent(pair.disagreement)} of {samples} (chance "
        f"would give {percent(pair.by_chance)})"
    )
    if not math.isfinite(network.margin.norm):
        return (
            f"{network.name} does not separate its training samples{'' if local else ' yet'} "
            f"({percent(network.train_error)} are wrong), so its norm at margin 1 is infinite; "
            f"{disagreement}.{alone}"
        )
    gates = ", with the gates it has now," if gates_moved(network) else ""
    return (
        f"{network.name}’s norm{gates} exceeds the certified optimum of {twin.name}’s program by "
        f"{percent(network.margin.excess)}; {disagreement}.{alone}"
    )


def _svm_twin(comparison: Comparison, network: ModelResult) -> ModelResult | None:
    """SVM whose program the network's is, if it is among the models."""
    return next((svm_among(twins) for twins in programs(comparison) if network in twins), None)


def _solved_headline(solved: Sequence[ModelResult], samples: str) -> str:
    found = [model for model in solved if not math.isnan(model.error)]
    if not found:
        names = ", ".join(model.name for model in solved)
        return f"{names}: not separable, proven. There is no predictor to evaluate."
    best = min(found, key=lambda model: model.error)
    count = f"Of {len(solved)} SVMs {best.name}" if len(solved) > 1 else best.name
    gap = math.nan if best.margin is None else best.margin.certificate.gap
    if math.isfinite(gap):
        quality = f"its norm is certified to be within {_gap(gap)} of the optimum (relative)"
    else:
        quality = "its training samples are not separated"
    least = "is wrong least often" if len(solved) > 1 else "is wrong"
    return f"{count} {least}, on {percent(best.error)} of {samples}; {quality}."


def _plain_headline(comparison: Comparison, samples: str) -> str:
    found = [model for model in comparison.models if not math.isnan(model.error)]
    if not found:
        return "No model has a predictor: not separable, proven."
    best = min(found, key=lambda model: model.error)
    if not any(math.isfinite(pair.disagreement) for pair in comparison.pairs):
        return f"{best.name} is wrong on {percent(best.error)} of {samples}."
    known = [pair for pair in comparison.pairs if math.isfinite(pair.disagreement)]
    apart = max(known, key=lambda pair: pair.disagreement)
    return (
        f"{best.name} is wrong least often, on {percent(best.error)} of {samples}; "
        f"{apart.first} and {apart.second} disagree on {percent(apart.disagreement)} (chance "
        f"would give {percent(apart.by_chance)})."
    )


def _facts(train: Dataset, evaluation: Dataset, given: Mapping[str, str]) -> dict[str, str]:
    negative, positive = train.class_names
    classes = {"class +1": positive, "class −1": negative}
    if not has_class_names(train):
        n_positive = int(np.count_nonzero(train.y == 1))
        classes = {"of class +1 / −1": f"{n_positive:,} / {len(train) - n_positive:,} (training)"}
    return {
        "data set": train.name,
        "training samples": f"{len(train):,}",
        "evaluation samples": f"{len(evaluation):,}",
        "inputs": f"{train.n_features - train.has_constant:,}"
        + (" and the constant 1" if train.has_constant else ""),
        **classes,
        "implicit_bias": implicit_bias.__version__,
        **given,
    }


# --- tables --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column:
    """A column of a table: where its values are, its heading, what it means, how to write it."""

    key: str
    heading: str
    meaning: str
    write: Callable[[Any], str]
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """What the template shows: columns, and rows of text."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def _number(value: float) -> str:
    if math.isnan(value):
        return "–"
    return f"{value + 0.0:.4g}" if math.isfinite(value) else "∞"  # 0.0 turns -0 into 0


def _known(value: float) -> str:
    if value == math.inf:
        return "∞ (not separable)"
    return "–" if value == 0 else _number(value)


def _gap(value: float) -> str:
    return f"{value:.1g}" if math.isfinite(value) else "–"


def _count(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:,.0f}"


def _dropped(value: float) -> str:
    return "–" if not value > 0 else _count(value)


def _text(value: Any) -> str:
    return "–" if pd.isna(value) else str(value)


MODEL_COLUMNS = (
    Column("model", "model", "As it was named.", _text, numeric=False),
    Column("error", "error", "Share of the evaluation samples that are misclassified.", percent),
    Column(
        "train_error",
        "training error",
        "Share of the training samples that are misclassified.",
        percent,
    ),
    Column(
        "min_margin",
        "smallest margin",
        "Smallest y f(x) over the training samples, divided by the norm: at most 1 / optimum; "
        "negative where a sample is misclassified.",
        _number,
    ),
    Column(
        "norm",
        "norm",
        "Norm of the weights once they are scaled to smallest margin 1; ∞ where the training "
        "samples are not separated.",
        _number,
    ),
    Column(
        "optimum",
        "certified optimum",
        "No weights of this program have a smaller norm at margin 1: a proven lower bound.",
        _known,
    ),
    Column(
        "excess",
        "excess",
        "How much the norm exceeds the certified optimum: norm / optimum − 1.",
        percent,
    ),
    Column(
        "gap",
        "gap",
        "Relative distance of the two proven bounds on the optimum, both from this model alone; "
        "a network proves one of them only.",
        _gap,
    ),
    Column("active_units", "active units", "Units that the norm has not switched off.", _count),
    Column("units", "units", "Groups in the norm.", _count),
    Column(
        "support_vectors",
        "support vectors",
        "Training samples that hold the margin in place.",
        _count,
    ),
    Column(
        "status", "status", "How the solve ended, or how long it was trained.", _text, numeric=False
    ),
)
PAIR_COLUMNS = (
    Column("first", "model", "The first of the two.", _text, numeric=False),
    Column("second", "and model", "The second of the two.", _text, numeric=False),
    Column(
        "disagreement",
        "disagreement",
        "Share of the evaluation samples on which their predictions differ.",
        percent,
    ),
    Column(
        "by_chance",
        "by chance",
        "What independent models with errors p and q would show: p (1 − q) + q (1 − p).",
        percent,
    ),
    Column(
        "ratio",
        "ratio",
        "Disagreement over the level of chance: 1 is no more alike than their errors make them, "
        "0 is one and the same classifier.",
        _number,
    ),
    Column(
        "kappa", "kappa", "Cohen's kappa: 1 is full agreement, 0 is none beyond chance.", _number
    ),
)


def _tables(comparison: Comparison, views: Mapping[str, MarginView]) -> list[Table]:
    models = _table("Models", MODEL_COLUMNS, _shown_models(comparison))
    tables = [replace(models, notes=tuple(_notes(comparison, views)))]
    if any(math.isfinite(pair.disagreement) for pair in comparison.pairs):
        tables.append(_table("Pairs of models", PAIR_COLUMNS, comparison.pair_frame()))
    return tables


def _shown_models(comparison: Comparison) -> pd.DataFrame:
    """Return the models' numbers less those that mean nothing, with the steps of networks."""
    frame = comparison.model_frame()
    if "status" not in frame:
        frame["status"] = None
    # A bound on the norm that only rounding keeps finite, and what follows from it.
    meaningless = ("min_margin", "norm", "excess", "gap", "active_units", "support_vectors")
    for row, model in enumerate(comparison.models):
        if model.history:
            frame.loc[row, "status"] = f"trained, {model.history[-1].step:,} steps"
        if not_separable(comparison, model):
            frame.loc[row, "optimum"] = math.inf
            frame.loc[row, ["excess", "gap"]] = math.nan
            if not model.history:
                frame.loc[row, list(meaningless)] = math.nan
                frame.loc[row, "train_error"] = math.nan
                frame.loc[row, "status"] = "not separable: proven"
    return frame


def _notes(comparison: Comparison, views: Mapping[str, MarginView]) -> Iterator[str]:
    soft = [f"{name} (C = {view.C:g})" for name, view in views.items() if math.isfinite(view.C)]
    if soft and comparison.n_train:
        yield (
            f"Finite C: {', '.join(soft)}. There “norm” is the value of the soft-margin program, "
            "the norm plus C times the sum of the hinge losses, and “certified optimum” is a lower "
            "bound on that: neither compares with a norm at margin 1."
        )


def _table(caption: str, columns: Sequence[Column], frame: pd.DataFrame) -> Table:
    shown = tuple(c for c in columns if c.key in frame and frame[c.key].notna().any())
    return Table(caption, shown, tuple(_rows(shown, frame)))


def _rows(columns: Sequence[Column], frame: pd.DataFrame) -> Iterator[tuple[str, ...]]:
    for record in frame.to_dict("records"):
        yield tuple(column.write(record[column.key]) for column in columns)
