"""What the experiments on activation Gram matrices share: looks, cuts, and small helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import normalise
from implicit_bias.report.style import COLOURS, MARKERS

DRAWN = ("relu", "leaky-relu", "selu", "elu", "swish", "tanh", "quadratic")
COLOUR = dict(zip(DRAWN, COLOURS, strict=True))
LOOK: dict[str, dict[str, Any]] = {
    name: {"color": COLOUR[name], "marker": marker}
    for name, marker in zip(DRAWN, MARKERS, strict=False)
}
TRAINED = ("relu", "selu", "elu", "swish", "tanh")
# The activations of figure 1 of the paper.
FIGURE_1 = ("relu", "elu", "swish", "tanh", "quadratic")
SMOOTH = ("swish", "tanh")
# Relative to the largest, an eigenvalue of a float64 matrix below this is rounding.
ROUNDING = 1e-13


def number(value: float) -> str:
    """Write a number to two digits."""
    return f"{value:.2g}"


def power(x: Array | pd.Series[float], y: Array | pd.Series[float]) -> float:
    """Fit the exponent of a power law y ~ x^exponent."""
    return float(np.polyfit(np.log(x), np.log(y), 1)[0])


def powers(rows: pd.DataFrame, x: str, y: str) -> Array:
    """Fit that exponent to the last three points of each run."""
    return np.array([power(run[x].iloc[-3:], run[y].iloc[-3:]) for _, run in rows.groupby("run")])


def in_subspace(n_samples: int, dimension: int, n_features: int = 10, *, seed: int = 1) -> Array:
    """Draw unit vectors (n_samples, n_features) in a random subspace."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((n_features, dimension)))
    return normalise(rng.standard_normal((n_samples, dimension)) @ basis.T)


def plain_numbers(ax: Axes, *, ordinate: bool = True) -> None:
    """Write small numbers on logarithmic axes as they are, and only some of them."""
    for axis in (ax.xaxis, ax.yaxis) if ordinate else (ax.xaxis,):
        if axis.get_scale() == "log":
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
