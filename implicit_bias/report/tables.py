"""The tables of a page: their columns, what each means, and how its values are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from implicit_bias.base.counts import Count
from implicit_bias.base.wording import INFINITE, UNKNOWN, minus, number, percent, percent_range
from implicit_bias.comparison import Comparison
from implicit_bias.comparison.verdict import WORDS, Conclusion, Verdict
from implicit_bias.problem import C_in_words
from implicit_bias.report.words import training_in_words


@dataclass(frozen=True)
class Term:
    """A term of a page, as words.toml has it.

    Attributes
    ----------
    key : str
        Name of its definition, to which numbers in a verdict link.
    heading : str
        How the page calls it.
    meaning : str
        Its definition in one sentence; empty where it needs none.
    """

    key: str
    heading: str
    meaning: str = ""


@dataclass(frozen=True)
class Column(Term):
    """A column of a table; ``key`` is where its values are in the frame.

    Attributes
    ----------
    kind : str
        How its values are written, see `value_in_words`; "words" are no numbers.
    """

    kind: str = "words"

    @property
    def numeric(self) -> bool:
        """Whether its values are numbers."""
        return self.kind != "words"

    def cell(self, value: Any) -> str:
        """Write a value of this column."""
        if pd.isna(value):
            return UNKNOWN
        text = value_in_words(self.kind, value)
        if self.numeric:
            text = minus(text)
        return text


@dataclass(frozen=True)
class Table:
    """What a page shows: columns, rows of text, notes, and the terms that it is the first to use.

    Attributes
    ----------
    main : bool
        Whether it stands above the figures, and not among the details at the end.
    terms : tuple of Term
        Those of its columns that are defined below it, and nowhere before.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    main: bool = False
    terms: tuple[Term, ...] = ()


# --- how values are written ----------------------------------------------------------------------


def value_in_words(kind: str, value: Any) -> str:
    """Write a value of a column of this kind, which words.toml names.

    Examples
    --------
    >>> value_in_words("number", 2.01512), value_in_words("bound", math.inf)
    ('2.015', '∞ (not separable)')
    """
    match kind:
        case "words" | "interval" | "counted":
            text = str(value)
        case "share":
            text = percent(value)
        case "points":  # a difference of fractions, with its sign
            text = percent(value)
            if value > 0:
                text = f"+{text}"
        case "number":
            text = number(value)
        case "bound":  # a lower bound: an infinite one proves that nothing separates the samples
            text = number(value)
            if value == math.inf:
                text = f"{INFINITE} (not separable)"
            elif value == 0:
                text = UNKNOWN
        case "gap":  # an infinite one says that there is one bound only
            text = UNKNOWN
            if math.isfinite(value):
                text = number(value, 1)
        case "count":
            text = f"{value:,.0f}"
        case _:
            raise ValueError(f"no column is of the kind {kind!r}")
    return text


# --- tables --------------------------------------------------------------------------------------


def tables(comparison: Comparison, names: Sequence[str]) -> list[Table]:
    """Lay out the tables of a comparison, whose classes have these names; the main ones first."""
    models = pd.DataFrame(_models(comparison))
    found = [_table("Models", models, notes_on_models(comparison), main=True)]
    agreements = pd.DataFrame(_agreements(comparison))
    if not agreements.empty:
        found.append(_table("Agreement between models", agreements, main=True))
    found.append(_table("More numbers of each model", models))
    differences = pd.DataFrame(_differences(comparison))
    if not differences.empty:
        notes = [WORDS["notes"]["paired"]]
        # The note explains what looks like a contradiction: an interval without 0, and no decision.
        if differences["left_open"].any():
            notes.append(WORDS["notes"]["not_decided"])
        found.append(_table("Differences of errors", differences, notes))
    by_class = pd.DataFrame(_errors_by_class(comparison, names))
    if not by_class.empty:
        found.append(_table("Errors by class", by_class))
    return found


def terms_of_verdicts(comparison: Comparison, conclusions: Iterable[Conclusion]) -> list[Term]:
    """Return the terms that are defined below the verdicts of a comparison."""
    keys: list[str] = []
    if any(model.margin for model in comparison.models):
        keys += ["margin", "norm", "max_margin", "optimum", "excess"]
    if any(conclusion.verdict is Verdict.DEAD_UNITS for conclusion in conclusions):
        keys.append("dead")
    kind = "two_classes"
    if comparison.many_classes:
        kind = "many_classes"
    found = []
    for key in keys:
        words = (WORDS["terms"] | WORDS["columns"])[key]
        meaning = words["meaning"].format(margin=WORDS["margin"][kind])
        found.append(Term(key, words["heading"], meaning))
    return found


def define_once(known: Iterable[Term], shown: Iterable[Table]) -> list[Table]:
    """Give each table the terms of its columns that no table before it, nor ``known``, has."""
    defined = {term.key for term in known}
    found = []
    for table in shown:
        terms = []
        for column in table.columns:
            if column.meaning and column.key not in defined:
                terms.append(column)
                defined.add(column.key)
        found.append(replace(table, terms=tuple(terms)))
    return found


def _table(
    caption: str, frame: pd.DataFrame, notes: Iterable[str] = (), *, main: bool = False
) -> Table:
    """Lay out a frame in the columns of words.toml, without those of which nothing is known."""
    columns = []
    for key in WORDS["tables"][caption]:
        # A column of unknown values alone is left out.
        if key in frame and frame[key].notna().any():
            # words.toml has the kind, and a heading where the key does not serve as one.
            words = {"heading": key} | WORDS["columns"][key]
            columns.append(Column(key, **words))
    rows = []
    for record in frame.to_dict("records"):
        rows.append(tuple(column.cell(record[column.key]) for column in columns))
    return Table(caption, tuple(columns), tuple(rows), tuple(notes), main)


def _models(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per model: its numbers, without those that mean nothing for it.

    The status of a network is how long it was trained.
    """
    rows = []
    for model in comparison.models:
        row = {"status": None, **model.row()}
        if row.get("C") == math.inf:  # a hard margin has no C
            row["C"] = math.nan
        if model.has_predictor:
            row["wrong"] = model.count
            row["interval"] = percent_range(*model.count.interval)
        if model.history:
            row["status"] = training_in_words(model)
        if model.inseparable:
            # The minimum over an empty set is infinite, and no norm has a distance from it.
            row |= {"optimum": math.inf, "excess": math.nan, "gap": math.nan}
        if model.inseparable and not model.history:
            # An SVM without a predictor: its norm is finite only by rounding, and the other numbers
            # are of the same coefficients.
            meaningless = ["min_margin", "norm", "active_units", "support_vectors", "train_error"]
            row |= dict.fromkeys(meaningless, math.nan)
            row["status"] = "not separable: proven"
        rows.append(row)
    return rows


def _agreements(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per pair of models that both predict: on how many samples they agree."""
    rows = []
    for pair in comparison.pairs:
        agreement = comparison.agreement(pair.first, pair.second)
        if agreement is None:
            continue
        row = {
            "first": pair.first,
            "second": pair.second,
            "agreement": agreement.share,
            "chance_agreement": 1.0 - pair.by_chance,
            "agreed_samples": agreement,
        }
        rows.append(row)
    return rows


def _differences(comparison: Comparison) -> list[dict[str, Any]]:
    """Return a row per pair of models that both predict: which one has the lower error."""
    rows = []
    for pair in comparison.pairs:
        difference = comparison.difference(pair.first, pair.second)
        if difference is None:
            continue
        low, high = difference.interval
        if not difference.decided:
            decided = "not decided"
        elif difference.difference > 0:
            decided = pair.second
        else:
            decided = pair.first
        row = {
            "first": pair.first,
            "second": pair.second,
            "difference": difference.difference,
            "difference_interval": percent_range(low, high),
            "only_first": difference.only_first,
            "only_second": difference.only_second,
            "decided": decided,
            # The interval excludes 0, and the test does not decide.
            "left_open": decided == "not decided" and (low > 0 or high < 0),
        }
        rows.append(row)
    return rows


def _errors_by_class(comparison: Comparison, names: Sequence[str]) -> list[dict[str, Any]]:
    """Return a row per model and class of the test samples."""
    rows = []
    for model in comparison.predicting:
        for label, name in zip(comparison.classes, names, strict=True):
            # A class without test samples has no recall.
            wrong = model.wrong[comparison.y == label]
            if len(wrong) == 0:
                continue
            count = Count(int(wrong.sum()), len(wrong))
            row = {
                "model": model.name,
                "class": name,
                "class_wrong": count,
                "recall": 1 - count.share,
            }
            rows.append(row)
    return rows


# --- notes ---------------------------------------------------------------------------------------


def notes_on_models(comparison: Comparison) -> list[str]:
    """Return the notes below the table of the models: what their numbers do not say."""
    found: dict[str, list[str]] = {"undecided_samples": [], "fallback": [], "soft": []}
    for model in comparison.models:
        n_undecided = sum(label is None for label in model.predicted.tolist())
        if model.has_predictor and n_undecided:
            found["undecided_samples"].append(
                f"{model.name} {n_undecided} of {comparison.n_samples}"
            )
        fitted = model.fitted
        # If no other problem was solved, ``failure`` is the solution itself: nothing replaces it.
        if fitted is not None and fitted.failure not in (None, fitted.solution):
            found["fallback"].append(model.name)
        if model.margin is not None and model.soft_margin:
            found["soft"].append(f"{model.name} (C = {C_in_words(model.margin.C)})")
    notes = []
    if comparison.note_on_norms:
        notes.append(comparison.note_on_norms)
    for name, models in found.items():
        if models:
            notes.append(WORDS["notes"][name].format(models=", ".join(models)))
    return notes
