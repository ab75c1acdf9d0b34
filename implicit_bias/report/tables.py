"""The tables of a page: their columns, what each means, and how its values are written."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from implicit_bias.base.counts import Count
from implicit_bias.base.wording import INFINITE, UNKNOWN, minus, number, percent, percent_range
from implicit_bias.comparison import Comparison, ModelResult
from implicit_bias.problem import C_in_words
from implicit_bias.report.conclusion import WORDS, plain
from implicit_bias.report.words import ranks, refusal, trained, unlike


@dataclass(frozen=True)
class Column:
    """A column of a table, as `page.toml` has it.

    Attributes
    ----------
    key : str
        Where its values are in the frame.
    kind : str
        How its values are written, one of `WRITE`; "words" are no numbers.
    meaning : str
        What its values are.
    heading : str
        What stands above the column.
    """

    key: str
    kind: str
    meaning: str
    heading: str

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.kind != "words"


@dataclass(frozen=True)
class Cell:
    """What a table shows, and the number that it is sorted by; none for text."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Table:
    """What a page shows: columns, rows of cells, and notes; a terminal has the short ones alone."""

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    short: tuple[str, ...] = ()


def _known(value: float) -> str:
    if value == math.inf:
        return f"{INFINITE} (not separable)"
    return UNKNOWN if value == 0 else number(value)


def _gap(value: float) -> str:
    return number(value, 1) if math.isfinite(value) else UNKNOWN


def _count(value: float) -> str:
    return UNKNOWN if math.isnan(value) else f"{value:,.0f}"


def _counted(value: Any) -> str:
    return str(value) if isinstance(value, Count) else UNKNOWN


def _points(value: float) -> str:
    """Write a difference of shares with its sign."""
    return f"{'+' if value > 0 else ''}{percent(value)}"


def _text(value: Any) -> str:
    return UNKNOWN if pd.isna(value) else str(value)


WRITE: dict[str, Callable[[Any], str]] = {
    **{"words": _text, "interval": _text, "share": percent, "points": _points},
    **{"number": number, "bound": _known, "gap": _gap, "count": _count, "counted": _counted},
}
COLUMNS = {
    key: Column(key, **{"heading": key.replace("_", " "), **said})
    for key, said in WORDS["columns"].items()
}


def definitions(shown: Sequence[Table]) -> dict[str, tuple[str, str]]:
    """Return heading and meaning of each column of some tables, and of the words, by key."""
    columns = (column for table in shown for column in table.columns)
    known = {column.key: (column.heading, column.meaning) for column in columns}
    return {key: (key, meaning) for key, meaning in WORDS["words"].items()} | known


def tables(comparison: Comparison, names: Sequence[str]) -> list[Table]:
    """Lay out the tables of a comparison, whose classes have these names."""
    models = _shown_models(comparison)
    laid_out = [_table("Models", models, _notes(comparison), short_notes(comparison))]
    if any(math.isfinite(pair.disagreement) for pair in comparison.pairs):
        laid_out.append(_table("Pairs of models", comparison.pair_frame()))
        frame, said = pd.DataFrame(list(_differences(comparison))), WORDS["notes"]
        short = [said["undecided"]] if frame["left_open"].any() else []
        if not ranks(comparison) and (refused := refusal(comparison)):
            short.append(plain(refused))
        laid_out.append(_table("Differences of errors", frame, [said["paired"]], short))
    if rows := list(_errors_by_class(comparison, names)):
        laid_out.append(_table("Errors by class", pd.DataFrame(rows)))
    return laid_out


def _errors_by_class(comparison: Comparison, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    labels = np.asarray(comparison.of.y)
    for model in (model for model in comparison.models if model.count.total):
        for label, name in zip(comparison.classes, names, strict=True):
            wrong = model.wrong[labels == label]
            if len(wrong):
                count = Count(int(wrong.sum()), len(wrong))
                row = {"model": model.name, "class": name, "class_wrong": count}
                yield row | {"recall": 1 - count.share}


def _differences(comparison: Comparison) -> Iterator[dict[str, Any]]:
    """Yield one row a pair of models that both predict: how often one is wrong more often."""
    unlikes = [set(names) for names in unlike(comparison)]
    for pair in comparison.pairs:
        found = comparison.difference(pair.first, pair.second)
        if found is None:
            continue
        alike = not all(names & {pair.first, pair.second} for names in unlikes)
        winner = pair.second if found.difference > 0 else pair.first
        low, high = found.interval
        yield {
            "first": pair.first,
            "second": pair.second,
            "difference": found.difference,
            "only_first": found.only_first,
            "only_second": found.only_second,
            "difference_interval": percent_range(low, high),
            "left_open": alike and not found.decided and (low > 0 or high < 0),
            "decided": "not ranked" if not alike else winner if found.decided else "not decided",
        }


def _shown_models(comparison: Comparison) -> pd.DataFrame:
    """Return the models' numbers less those that mean nothing, with the steps of networks."""
    frame = comparison.model_frame().replace({"C": math.inf}, math.nan)
    if "status" not in frame:
        frame["status"] = None
    # A bound on the norm that only rounding keeps finite, and what follows from it.
    meaningless = ["min_margin", "norm", "active_units", "support_vectors", "train_error"]
    counts = [model.count for model in comparison.models]
    frame["wrong"] = pd.Series([c if c.total else None for c in counts], dtype=object)
    frame["interval"] = [percent_range(*c.interval) if c.total else None for c in counts]
    for row, model in enumerate(comparison.models):
        if model.history:
            frame.loc[row, "status"] = trained(model)
        if model.inseparable:
            frame.loc[row, "optimum"] = math.inf
            frame.loc[row, ["excess", "gap"]] = math.nan
        if model.inseparable and not model.history:
            frame.loc[row, meaningless] = math.nan
            frame.loc[row, "status"] = "not separable: proven"
    return frame


def _said(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Say the notes of page.toml with these names, each of some models, unless there are none."""
    for note, models in found.items():
        if models:
            yield WORDS["notes"][note].format(models=", ".join(models))


def _notes(comparison: Comparison) -> Iterator[str]:
    models, total = comparison.models, comparison.n_samples
    return _said(
        {
            "relaxed": [m.name for m in models if m.fitted is not None and m.fitted.relaxed],
            "piped": [_with_inputs(model) for model in models if model.transformed],
            "unseen": [f"{m.name} {m.unseen} of {total}" for m in models if m.unseen],
        }
    )


def _with_inputs(model: ModelResult) -> str:
    """Name a pipeline and how many inputs its last step reads, where that is known."""
    fitted = model.fitted
    if fitted is None or fitted.architecture.representation is not None:
        return model.name
    return f"{model.name} ({fitted.coef.shape[-1]:,} inputs)"


def short_notes(comparison: Comparison) -> Iterator[str]:
    """Say what a terminal says, too: of samples without a class, and of soft margins."""
    predicting = [model for model in comparison.models if model.count.total]
    counts = {m.name: sum(one is None for one in m.predicted.tolist()) for m in predicting}
    without = [f"{name} {n} of {comparison.n_samples}" for name, n in counts.items() if n]
    yield from _said({"without a class": without})
    soft = [m for m in comparison.models if m.margin and not m.margin.hard_margin]
    solved = [m for m in predicting if m.margin and m.margin.status and m not in soft]
    # Of which otherwise headline or differences speak.
    hard = [m.name for m in solved] if soft and not refusal(comparison) else []
    yield from _said(
        {
            "failed": [m.name for m in comparison.models if m.fitted and m.fitted.failure],
            "soft": [f"{m.name} (C = {C_in_words(m.known_margin.C)})" for m in soft],
            "hard": hard,
        }
    )


def _table(
    caption: str, frame: pd.DataFrame, notes: Iterable[str] = (), short: Iterable[str] = ()
) -> Table:
    keys = [key for key in WORDS["tables"][caption] if key in frame and frame[key].notna().any()]
    shown = tuple(COLUMNS[key] for key in keys)
    records = frame.to_dict("records")
    rows = tuple(tuple(_cell(column, row[column.key]) for column in shown) for row in records)
    return Table(caption, shown, rows, (*notes,), (*short,))


def _cell(column: Column, value: Any) -> Cell:
    sorted_by = value.count if isinstance(value, Count) else value
    known = isinstance(sorted_by, int | float) and not math.isnan(sorted_by)
    text = WRITE[column.kind](value)
    return Cell(minus(text) if column.numeric else text, float(sorted_by) if known else None)
