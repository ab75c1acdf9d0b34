"""Numbers and lists as people read them, on pages, in tables and in messages."""

from __future__ import annotations

import html
import math
import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

# The command line shows its help without numpy.
if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

UNKNOWN, INFINITE, NO_BREAK = "–", "∞", "\u00a0"


def percent(share: float, decimals: int | None = None, *, space: str = NO_BREAK) -> str:
    """Write a fraction for people: 0.0332 as "3.3 %", with a space that does not break.

    Two significant digits, three from 100 % on; or a number of digits behind the point.
    """
    if not math.isfinite(share):
        return INFINITE if share > 0 else UNKNOWN
    if decimals is not None:
        return f"{100 * share:.{decimals}f}{space}%"
    if 0 < share < 1e-5:
        return f"<{space}0.001{space}%"
    return f"{float(f'{100 * share:.{3 if abs(share) >= 1 else 2}g}'):g}{space}%"


def number(value: float, digits: int = 4) -> str:
    """Write a number for people, with this many significant digits."""
    if math.isnan(value):
        return UNKNOWN
    return f"{value + 0.0:.{digits}g}" if math.isfinite(value) else INFINITE  # 0.0 turns -0 into 0


def minus(text: str) -> str:
    """Write the signs of numbers as minus signs; not those of exponents.

    Examples
    --------
    >>> minus("-2e-05 to -1 %")
    '−2e-05 to −1 %'
    """
    return re.sub(r"(?<!\S)-(?=\d)", "−", text)


def percent_range(low: float, high: float, *, space: str = NO_BREAK) -> str:
    """Write an interval of shares: "1.9 to 5.7 %"."""
    ends = [percent(end, space="").removesuffix("%") for end in (low, high)]
    return f"{ends[0]}{space}to{space}{ends[1]}{space}%"


def percent_bounds(low: float, high: float) -> str:
    """Write a fraction by its bounds: "between 86 and 87 %", "at most 87 %"."""
    ends = [percent(end, space="").removesuffix("%") for end in (low, high)]
    if ends[0] == ends[1]:
        return percent(high, space=" ")
    if low < 5e-5:
        return f"at most {percent(high, space=' ')}"
    return f"between {ends[0]} and {ends[1]} %"


def listed_parts(names: Collection[str]) -> str:
    """List parts or parameters of a module by name, the first four of them."""
    shown = list[str]()
    for name in list(names)[:4]:
        if name:
            shown.append(repr(name))
        else:  # the module itself, whose name among its own parts is empty
            shown.append("the module's forward")
    text = ", ".join(shown)
    if len(names) > 4:
        text += f" and {len(names) - 4} more"
    return text


def listed_samples(samples: NDArray[np.int64]) -> str:
    """List some samples, the first five of them."""
    more = ", ..." if len(samples) > 5 else ""
    return ", ".join(map(str, samples[:5])) + more


def text_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table as lines of text, with columns two spaces apart."""
    lines = [headings, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    padded = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)
    return "\n".join(padded)


def html_table(headings: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "") -> str:
    """Lay out a table for a notebook; what the user wrote is escaped."""
    head = "".join(f'<th scope="col">{html.escape(heading)}</th>' for heading in headings)
    body = "".join(
        "<tr>"
        + f'<th scope="row">{html.escape(row[0])}</th>'
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
