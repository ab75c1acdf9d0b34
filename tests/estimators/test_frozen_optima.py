"""Optima are those that earlier versions certified: digits, by recipes that need no file."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from sklearn.datasets import load_digits

import implicit_bias as ib
from implicit_bias.base.validation import Array

# Certified bounds (lower, upper) of each recipe, to a gap of 1e-9.
FROZEN: dict[str, tuple[float, float]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "optima.json").read_text()
)
RECIPES: dict[str, Any] = {
    "gln": ib.GLNSVC(20, random_state=0),
    "gln-two-hyperplanes": ib.GLNSVC(10, 2, random_state=1, threshold="random"),
    "gln-soft": ib.GLNSVC(10, random_state=2, C=0.01),
    "l2-two-hyperplanes": ib.GLNSVC(10, 2, norm="l2", random_state=1),
    "l2-ten-classes": ib.GLNSVC(10, norm="l2", random_state=0),
    "shallow": ib.GLNSVC(1, 4, random_state=0),
    "rc-soft-intercept": ib.GatedReLUSVC(10, random_state=0, C=0.1, fit_intercept=True),
    "max-margin-l1": ib.MaxMarginSVC("l1"),
    "max-margin-linf": ib.MaxMarginSVC("linf"),
    "max-margin-ten-classes-spectral": ib.MaxMarginSVC("spectral"),
    "max-margin-ten-classes-nuclear": ib.MaxMarginSVC("nuclear"),
}


@cache
def digits() -> tuple[Array, Array]:
    """Two hundred images of 8 x 8 pixels, and their digits."""
    X, y = load_digits(return_X_y=True)
    return X[:200] / 16.0, y[:200]


@pytest.mark.parametrize("name", RECIPES)
def test_optima_are_those_of_before(name: str) -> None:
    X, y = digits()
    labels = y if "ten-classes" in name else y % 2
    model = RECIPES[name].set_params(tol=1e-8, on_failure="raise").fit(X, labels)
    found, (lower, upper) = model.solution_.certificate, FROZEN[name]
    assert found.gap <= 1e-8
    assert found.lower <= upper * (1 + 1e-12)
    assert found.upper >= lower * (1 - 1e-12)
