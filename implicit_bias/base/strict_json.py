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

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

INFINITIES = ("inf", "-inf")
# What `as_objects` writes.
NONFINITE = [{"nonfinite": word} for word in (*INFINITIES, "nan")]


def as_words(value: float) -> str | None:
    """Write what is not finite as in the table above, for other programs."""
    return None if math.isnan(value) else str(value)


def as_objects(value: float) -> dict[str, str]:
    """Write what is not finite as {"nonfinite": "inf"}, which `of_object` reads back, nan too."""
    return {"nonfinite": str(value)}


def of_object(entry: dict[str, Any]) -> Any:
    """Undo `as_objects`, as an ``object_hook`` of `json.loads`."""
    return float(entry["nonfinite"]) if entry in NONFINITE else entry


def attributes(value: object, *names: str) -> dict[str, Any]:
    """Return some attributes under their names, as JSON and tables have them."""
    return {name: getattr(value, name) for name in names}


def encode(value: Any, nonfinite: Callable[[float], Any] = as_words) -> Any:
    """Return a value as strict JSON can hold it, in mappings and lists throughout."""
    if value is None or type(value) in (str, int, bool):
        return value
    if isinstance(value, Mapping):
        return {key: encode(item, nonfinite) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [encode(item, nonfinite) for item in value]
    if isinstance(value, Path):
        return str(value)
    import numpy as np  # only here, so that the command line's help needs no numpy

    if isinstance(value, np.generic):
        return encode(value.item(), nonfinite)
    if isinstance(value, float) and not math.isfinite(value):
        return nonfinite(float(value))
    return value


def loads(text: str, object_hook: Callable[[dict[str, Any]], Any] | None = None) -> Any:
    """Read JSON text.

    Raises
    ------
    ValueError
        It is none, or nested too deeply.
    """
    try:
        return json.loads(text, object_hook=object_hook)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def dumps(
    value: Any, *, indent: int | None = None, nonfinite: Callable[[float], Any] = as_words
) -> str:
    """Write a value as strict JSON text.

    Raises
    ------
    TypeError
        A value of a type that JSON does not know.
    """
    return json.dumps(encode(value, nonfinite), indent=indent, allow_nan=False)
