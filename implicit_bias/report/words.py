"""Numbers and sentences for people."""

from __future__ import annotations

import numpy as np


def percent(share: float, decimals: int | None = None) -> str:
    """Write a share for people: 0.0332 as "3.3 %", with a space that does not break.

    Two significant digits, three from 100 % on; or a number of digits behind the point.
    """
    if not np.isfinite(share):
        return "∞" if share > 0 else "–"
    if decimals is not None:
        return f"{100 * share:.{decimals}f}\u00a0%"
    if 0 < share < 1e-5:
        return "<\u00a00.001\u00a0%"
    digits = 3 if abs(share) >= 1 else 2
    return f"{float(f'{100 * share:.{digits}g}'):g}\u00a0%"
