"""Appendices F, G and H: Hermite and Chebyshev coefficients of phi'."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial

import numpy as np
import pandas as pd
from numpy.polynomial import chebyshev
from scipy.optimize import minimize_scalar
from scipy.special import expit

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, otherwise, parts, whole
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.shared import LOOK, number, plain_numbers, power
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.report.style import BLACK, COLOURS, GREY, MARKERS

# Values of c_20 and c_100 of tanh' that the paper's rate can be held against.
CHECKED = (20, 100)
GRID = np.linspace(-1, 1, 4001)


def positive_power(x: Array, exponent: int) -> Array:
    """Return max(0, x)^exponent."""
    return np.asarray(np.maximum(x, 0.0) ** exponent)


# Functions for H.1: max(0, x)^(k + 2) has k + 1 continuous derivatives, and tanh'(3 x) has its
# nearest poles at i pi / 6, on the ellipse of r = pi / 6 + sqrt(1 + (pi / 6)^2).
ELLIPSE = math.pi / 6 + math.hypot(1, math.pi / 6)
SMOOTHNESS: dict[str, Callable[[Array], Array]] = {
    **{f"max(0, x)^{power}": partial(positive_power, exponent=power) for power in (3, 4, 5)},
    "tanh'(3 x)": lambda x: np.cosh(3 * x) ** -2.0,
}


def measure(quick: bool) -> Rows:
    """Hermite coefficients, and errors of truncated Chebyshev series."""
    terms = 60 if quick else 240
    for activation in ("relu", "tanh", "swish"):
        squares = grams.ACTIVATIONS[activation].hermite_squares
        tails = squares[::-1].cumsum()[::-1]
        yield from (
            {
                "part": "hermite",
                "activation": activation,
                "k": k,
                "measured": math.sqrt(squares[k]),
                "tail": tails[k + 1] if k + 1 < len(tails) else 0.0,
            }
            for k in range(1, terms)
        )
    for scale, error in itertools.product((1.0, 4.0, 16.0), (1e-2, 1e-4, 1e-6)):
        degree = bounds.chebyshev_degree(scale, error)
        sigmoid = series(scaled(expit, scale), degree)
        swish_degree = bounds.chebyshev_degree(scale, error, swish=True)
        swish = series(scaled(swish_slope, scale), swish_degree)
        # tanh(k x / 2) = 2 sigmoid(k x) - 1 is right to eps if the sigmoid is to half of it.
        half = bounds.chebyshev_degree(scale, error / 2)
        tanh = series(scaled(np.tanh, scale / 2), half)
        measured = {
            "sigmoid(k x)": (degree, sigmoid(GRID) - expit(scale * GRID)),
            "swish'(k x)": (swish_degree, swish(GRID) - swish_slope(scale * GRID)),
            "tanh'(k x / 2)": (
                half,
                ((1 + tanh(GRID)) * (1 - tanh(GRID)) - np.cosh(scale * GRID / 2) ** -2.0) / 3,
            ),
        }
        yield from (
            {
                "part": "chebyshev",
                "activation": name,
                "k": of_degree,
                "scale": scale,
                "error": error,
                "measured": float(np.abs(off).max()),
            }
            for name, (of_degree, off) in measured.items()
        )
    for name, function in SMOOTHNESS.items():
        yield from (
            {
                "part": "rate",
                "activation": name,
                "k": degree,
                "measured": float(np.abs(series(function, degree)(GRID) - function(GRID)).max()),
            }
            for degree in (4, 8, 16, 32, 64)
        )


def series(function: Callable[[Array], Array], degree: int) -> chebyshev.Chebyshev:
    """Return the Chebyshev series of a function on [-1, 1], cut at a degree."""
    return chebyshev.Chebyshev(chebyshev.Chebyshev.interpolate(function, 2000).coef[: degree + 1])


def scaled(function: Callable[[Array], Array], scale: float) -> Callable[[Array], Array]:
    """Return a function of scale x."""
    return lambda x: function(scale * x)


def swish_slope(t: Array) -> Array:
    """Return the derivative of swish."""
    return np.asarray(expit(t) * (1 + t * expit(-t)))


def hermite(frame: pd.DataFrame, activation: str) -> pd.DataFrame:
    """Coefficients that are not 0 by symmetry, nor rounding."""
    rows = frame[(frame["part"] == "hermite") & (frame["activation"] == activation)]
    return rows[rows["measured"] > 1e-11]


def draw(frame: pd.DataFrame) -> Figure:
    """Draw coefficients against the root of k with three rates, and Chebyshev errors."""
    figure, (left, right) = subplots((10, 4.4), 1, 2)
    for activation in ("relu", "tanh", "swish"):
        rows = hermite(frame, activation)
        look = LOOK[activation] | {"ls": "", "ms": 3.5, "label": activation}
        left.plot(np.sqrt(rows["k"]), rows["measured"], **look)
    k = range(1, int(frame.loc[frame["part"] == "hermite", "k"].max()) + 1)
    root = np.sqrt(k)
    left.plot(root, [bounds.coefficient_bound(i) for i in k], color=BLACK, label="F.7.1")
    left.plot(root, [bounds.boyd_coefficient(i) for i in k], "--", color=GREY, label="equation 34")
    left.plot(root, np.exp(-math.pi / 2 * root), ":", color=BLACK, label="exp(-(pi/2) sqrt k)")
    left.set(yscale="log", xlabel="sqrt k", ylabel="|c_k| of phi'", ylim=(1e-11, 3))
    left.legend()
    for i, (name, rows) in enumerate(parts(frame[frame["part"] == "rate"], "activation")):
        shown = rows[rows["measured"] > 1e-13]
        right.plot(shown["k"], shown["measured"], MARKERS[i] + "-", color=COLOURS[i], label=name)
    degrees = np.array([4.0, 64.0])
    right.plot(degrees, degrees**-1, ":", color=BLACK, label="1/N: H.1, two derivatives")
    right.set(xscale="log", yscale="log", xlabel="degree N", ylabel="Chebyshev error on [-1, 1]")
    plain_numbers(right, ordinate=False)
    right.legend()
    return figure


def rates(frame: pd.DataFrame) -> dict[str, float]:
    """Fitted laws: powers of k, or the factor of sqrt k in the exponent."""
    relu, tanh = hermite(frame, "relu"), hermite(frame, "tanh")
    relu, tanh = relu[relu["k"] >= 20], tanh[tanh["k"] >= 20]
    return {
        "relu": power(relu["k"], relu["measured"]),
        "tanh": float(np.polyfit(np.sqrt(tanh["k"]), np.log(tanh["measured"]), 1)[0]),
    }


def smoothness(frame: pd.DataFrame) -> tuple[dict[int, float], float]:
    """Powers of N of the errors by k of theorem H.1, and how the error times r^N grows."""
    cells = frame[frame["part"] == "rate"]
    powers = {}
    for k in (1, 2, 3):
        rows = cells[cells["activation"] == f"max(0, x)^{k + 2}"].iloc[-3:]
        powers[k] = power(rows["k"], rows["measured"])
    tanh = cells[(cells["activation"] == "tanh'(3 x)") & (cells["measured"] > 1e-13)]
    slope = np.polyfit(tanh["k"], np.log(tanh["measured"]), 1)[0]
    return powers, math.exp(-float(slope))


def worst(frame: pd.DataFrame) -> dict[str, float]:
    """Largest ratio of a measured number to its bound."""
    tanh, gates = hermite(frame, "tanh"), frame[frame["part"] == "chebyshev"]
    ratios = gates["measured"] / gates["error"]
    return {
        "coefficients": float((tanh["measured"] / tanh["k"].map(bounds.coefficient_bound)).max()),
        "tails": float((tanh["tail"] / tanh["k"].map(bounds.tail_bound)).max()),
        **{
            str(name): float(ratio)
            for name, ratio in ratios.groupby(gates["activation"]).max().items()
        },
    }


def boyd(frame: pd.DataFrame) -> pd.Series[float]:
    """Coefficients of tanh' over equation 34, by k from 20 on."""
    tanh = hermite(frame, "tanh").set_index("k")["measured"]
    tanh = tanh[tanh.index >= CHECKED[0]]
    return tanh / [bounds.boyd_coefficient(int(k)) for k in tanh.index]


def spread(frame: pd.DataFrame, rate: float, free: float = 0.0) -> float:
    """How much c_k over (2k + 1)^(free - 1/4) exp(-rate sqrt(2k + 1)) varies, from k = 20 on."""
    quotient = boyd(frame)
    size = 2 * quotient.index.to_numpy() + 1
    logs = np.log(quotient) + (rate - math.pi / 4) * np.sqrt(size) - free * np.log(size)
    return math.exp(logs.max() - logs.min())


def least_spread(frame: pd.DataFrame, rate: float) -> float:
    """Return the least of these variations over all powers."""
    found = minimize_scalar(lambda free: spread(frame, rate, free), (-2.0, 2.0))
    return float(found.fun)


def found(frame: pd.DataFrame) -> str:
    """Say how fast they fall."""
    fitted, tanh = rates(frame), hermite(frame, "tanh").set_index("k")["measured"]
    shown = ", ".join(f"c_{k} = {tanh[k]:.1e}" for k in CHECKED if k in tanh.index)
    return (
        f"Of tanh': {shown}. log |c_k| falls as {fitted['tanh']:.2f} sqrt k, near -(pi/2) sqrt k "
        "with a power of k."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Degrees of F.4, F.5 and G.1."""
    return frame[frame["part"] == "chebyshev"]


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    fitted, ratio, quotient = rates(frame), worst(frame), boyd(frame)
    powers, analytic = smoothness(frame)
    chebyshev_ratios = {name: ratio[name] for name in ratio if "(" in name}
    printed, true = math.pi / 4, math.pi / 2 / math.sqrt(2)
    hidden = max(ratio["coefficients"], ratio["tails"])
    return {
        "corollary-f7": Judged(
            verdict=Verdict.of(hidden <= 2),
            remark=otherwise(Verdict.of(hidden <= 1), "1"),
            result=f"The hidden constants need not exceed {ratio['coefficients']:.2f} and "
            f"{number(ratio['tails'])}; the rate is half of the true one, exp(-(pi/2) sqrt k).",
        ),
        "equation-34": Judged(
            verdict=Verdict.UNTESTED,
            remark=": its formula is illegible in our copy",
            result=f"From k = {quotient.index[0]} to {quotient.index[-1]} c_k over it varies by a "
            f"factor of {spread(frame, printed):.0f} with pi/4 alone, of "
            f"{least_spread(frame, printed):.1f} with a free power of 2k + 1, too, of "
            f"{least_spread(frame, true):.2f} with pi / (2 sqrt 2) and a power.",
        ),
        "step-coefficients": Judged(
            verdict=Verdict.of(abs(fitted["relu"] + 0.75) < 0.05),
            result=f"c_k ~ k^{fitted['relu']:.2f}.",
        ),
        "theorem-g1": Judged(
            verdict=Verdict.of(max(chebyshev_ratios.values()) <= 1),
            result="The largest error over the one asked for is "
            + ", ".join(f"{number(value)} ({name})" for name, value in chebyshev_ratios.items())
            + ".",
        ),
        "theorem-h1": Judged(
            verdict=Verdict.of(
                all(fall <= -k for k, fall in powers.items()) and analytic > 0.95 * ELLIPSE
            ),
            result="With k + 1 = "
            + ", ".join(str(k + 1) for k in powers)
            + " continuous derivatives the error falls as "
            + ", ".join(f"N^{fall:.1f}" for fall in powers.values())
            + f"; for tanh'(3 x) as {analytic:.2f}^-N (ellipse: {ELLIPSE:.2f}).",
        ),
    }


EXPERIMENT = Experiment(whole(measure), found, tabulate, draw=draw, judge=judge)
