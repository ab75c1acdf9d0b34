"""Numbers as people read them, on pages, in tables and in messages."""

import math

UNKNOWN, INFINITE, NO_BREAK = "–", "∞", "\u00a0"


def percent(share: float, decimals: int | None = None, *, space: str = NO_BREAK) -> str:
    """Write a share for people: 0.0332 as "3.3 %", with a space that does not break.

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
