"""Strict JSON: what the standard library writes for NaN and infinity, other programs cannot read.

==================  ==============================
value               in JSON
==================  ==============================
nan                 null
inf, -inf           the words "inf", "-inf"
tuple               list
path                its text
numpy scalar        the number or truth value
==================  ==============================
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

INFINITIES = ("inf", "-inf")


def encode(value: Any) -> Any:
    """Return a value as strict JSON can hold it, in mappings and lists throughout."""
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item) for item in value]
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Path):
        return str(value)
    import numpy as np  # only here, so that the command line's help needs no numpy

    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def decode(value: Any) -> Any:
    """Undo `encode` for infinity; null stays None, for what is missing may have been no number."""
    if isinstance(value, Mapping):
        return {key: decode(item) for key, item in value.items()}
    if isinstance(value, list):
        return [decode(item) for item in value]
    return float(value) if value in INFINITIES else value


def dumps(value: Any, *, indent: int | None = None) -> str:
    """Write a value as strict JSON text.

    Raises
    ------
    TypeError
        A value of a type that JSON does not know.
    """
    return json.dumps(encode(value), indent=indent, allow_nan=False)
