"""Strict JSON: what other programs can read, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from implicit_bias.base.strict_json import dumps, encode


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": (1, 2.5), "b": None, "c": "word"}, '{"a": [1, 2.5], "b": null, "c": "word"}'),
        ([math.inf, -math.inf, math.nan], '["inf", "-inf", null]'),
        ([np.float64(0.1), np.float32(0.5), np.int64(3), np.bool_(True)], "[0.1, 0.5, 3, true]"),
        ([np.float64("inf"), np.float32("nan")], '["inf", null]'),
        ({"file": Path("a/b")}, '{"file": "a/b"}'),
    ],
    ids=["plain", "not-finite", "numpy", "numpy-not-finite", "path"],
)
def test_text(value: Any, text: str) -> None:
    assert dumps(value) == text
    assert json.dumps(encode(value), allow_nan=False) == text


def test_other_types_are_refused() -> None:
    with pytest.raises(TypeError, match="set"):
        dumps({"seeds": {1, 2}})
