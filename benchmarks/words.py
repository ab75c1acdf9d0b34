"""How numbers, tables and paragraphs are written, in Markdown."""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent

# Longest line of a page.
LINE = 100
# A space before what would make a list or a quotation of a line that began with it.
BEFORE_MARKER = re.compile(r" (?=(?:[-+*>]|\d+[.)]) )")
PLACE = re.compile(r"\{\{(\w+)(?::([^}]*))?\}\}")
EMPHASISED = re.compile(r"\*\*([^*]+\.)\*\*")
END = re.compile(r"(?<=[^.][.!?])\s+(?=[A-Z(*`\[])|\n")


def filled(text: str, values: Mapping[Any, Any]) -> str:
    """Put values in the places of a text, ``{{NAME}}`` or ``{{NAME:g}}``.

    The format "%" is that of `percent`, "%1" with one digit behind the point. Truth is yes or no.
    """
    return PLACE.sub(lambda place: _written(values[place[1]], place[2] or ""), text)


def _written(value: Any, form: str) -> str:
    if form.startswith("%"):
        return percent(value, int(form[1:]) if form[1:] else None)
    return ("no", "yes")[value] if isinstance(value, bool) else format(value, form)


def cells(rows: pd.DataFrame, columns: Mapping[str, str]) -> pd.DataFrame:
    """Write rows of values in columns, each a text with places; "-" where a number is missing."""
    return pd.DataFrame(
        {name: filled(text, row) for name, text in columns.items()}
        for row in rows.to_dict("records")
    ).replace("nan", "-")


def decisive(text: str) -> str:
    """Return what a text emphasises as whole sentences, ``**Like this.**``, or else its first one.

    That is the first of a list, where the text has but one sentence before it.
    """
    if emphasised := EMPHASISED.search(text):
        return emphasised[1]
    opening, listed, items = text.partition("\n\n- ")
    sentences = END.split(opening.strip())
    return END.split(items)[0] if listed and len(sentences) == 1 else sentences[0]


def span(values: pd.Series[Any] | Array, write: str | Callable[[Any], str] = "") -> str:
    """Write the least and the largest of some numbers: "2 to 5", or "2" where both are written so.

    ``write`` is a format, or writes one of them.
    """
    ends = [
        format(end, write) if isinstance(write, str) else write(end)
        for end in (values.min(), values.max())
    ]
    return " to ".join(dict.fromkeys(ends))


def share_span(shares: pd.Series[float]) -> str:
    """Write the least and the largest of some shares, with one digit behind the point."""
    return span(shares, lambda share: percent(share, 1))


def with_interval(draws: pd.Series[Any] | Array, write: str = ".2f") -> str:
    """Write the mean of some draws and, of several, its 95 % interval by Student's t."""
    if len(draws) < 2:
        return format(draws.mean(), write)
    return f"{draws.mean():{write}} ± {half_interval(draws):{write}}"


def half_interval(draws: pd.Series[Any] | Array, cells: Sequence[str] = ()) -> float:
    """Half of the 95 % interval of the mean of some draws, by Student's t; NaN of one.

    With ``cells``, levels of the index, of the mean of each cell, by the spread within all cells.
    """
    found = pd.Series(draws)
    grouped = found.groupby([*cells] or np.zeros(len(found)))
    free = len(found) - grouped.ngroups
    squares = ((found - grouped.transform("mean")) ** 2).sum(skipna=False)
    error = math.sqrt(squares / free * grouped.ngroups / len(found)) if free else math.nan
    return float(stats.t.ppf(0.975, free)) * error


def vanishing(value: float) -> str:
    """Write what is 0 but for rounding, which differs between processors."""
    return "below 1e-12" if abs(value) < 1e-12 else f"{abs(value):.0e}"


def wrapped(text: str) -> str:
    """Break paragraphs and list items, a line each, into lines of at most 100 characters.

    Lines of tables stay as they are.
    """
    return "\n".join(
        line
        if line.startswith("|")
        else textwrap.fill(
            BEFORE_MARKER.sub("\0", line),
            LINE,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    ).replace("\0", " ")


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown; a bar within a cell is escaped."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    lines.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def markdown_table(cells: pd.DataFrame) -> str:
    """Write a table of strings in Markdown."""
    return table([str(name) for name in cells.columns], cells.to_numpy().tolist())
