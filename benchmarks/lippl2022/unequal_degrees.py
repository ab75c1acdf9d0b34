"""Theorem 3.1 where contexts have different degrees: gradient flow does not end at (6).

Two contexts of degrees 1 and 2 share two weights (`context_shares.counterexample`). Program (6) has
its one stationary point at 45 degrees. Gradient flow goes to the separator of the context of degree
1, which alone keeps a share of the gradient, although its normalised margin is the larger one. Each
row is a norm of the weights: their angle in degrees, and of each context the share of the gradient
and the normalised margin.

Source: Lippl, Abbott, Chung (2022), (5) to (7) and theorem 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.lippl2022 import context_shares
from implicit_bias.training.losses import LOSSES

COST = 0.02
NORMS = (10.0, 20.0, 27.0, 35.0, 50.0, 80.0, 128.0, 300.0, 1e3, 1e4, 1e5, 1e6)


def measure(quick: bool) -> Iterator[Part]:
    """Yield the only part."""
    yield part(gradient_flow, largest_norm=35.0 if quick else 1e6)


def gradient_flow(largest_norm: float) -> Iterator[dict[str, float]]:
    """Follow gradient flow of the logistic loss on the counterexample."""
    margins, log_loss = context_shares.counterexample(), LOSSES["logistic"].log_loss
    norms = [norm for norm in NORMS if norm <= largest_norm]
    for w in context_shares.gradient_path(margins, [1.0, 1.0], norms, log_loss=log_loss):
        found = context_shares.record(margins, w, [0, 1], log_loss=log_loss)
        yield {
            "norm": found.norm,
            "angle": math.degrees(math.atan2(float(w[1]), float(w[0]))),
            "share_1": found.shares[0],
            "share_2": found.shares[1],
            "margin_1": found.margins[0],
            "margin_2": found.margins[1],
        }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return angle and shares at the largest norm."""
    last = frame.iloc[-1]
    return {
        "norm": float(last["norm"]),
        "angle": float(last["angle"]),
        "share": float(last["share_1"]),
    }
