r"""Linear predictors: margins of each optimizer over the certified maxima, in every norm.

Many classes: the cross-entropy of all samples, from zero, by the optimizers of `descent`. On two
classes mirror descent with the potential ||w||_p^p / p, whose limit is the largest margin in l_p:

    z_t = z_{t-1} + eta sum_n softmax(-y_n <w_{t-1}, x_n>)_n y_n x_n,
    w_t = sign(z_t) |z_t|^(1 / (p - 1))

on the exponential loss. The gradient is divided by the loss, which the paper does not do: that
changes the speed, not the limit. With p = 10 steps of one size overshoot where the potential is
flat, and the share goes up and down; so of mirror descent the largest recorded share counts.

Adam's steps of 0.001 / sqrt(t), as published, add up to 0.2 after 10,000 steps and to 0.6 after
100,000, so that its loss is far from small and its limit is not seen (`adam_memory`).

The slope of a run is the exponent a of its shortfall 1 - share like t^a in the last decade.

Sources: Fan, Schmidt, Thrampoulidis (2025) for steepest descent in any norm; Sun, Ahn,
Thrampoulidis, Azizan (2022) for mirror descent.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from benchmarks.bench import Part, part, rows_of
from benchmarks.data import SEPARABLE_SETS
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.fill import written
from benchmarks.illustrations.data import NORMS, optimum, samples, slope, two_classes
from benchmarks.illustrations.descent import OPTIMIZERS, iterates, margin
from benchmarks.summaries import log_spaced
from implicit_bias import max_margin, solve
from implicit_bias.base.style import COLOURS, GREY, LINES
from implicit_bias.base.validation import Array
from implicit_bias.norms import Lp, as_norm

COST = 10.0
DIGITS = "mnist-1000"
FEW_DIGITS = "mnist-100"
MIRROR, POWERS, STEP_SIZE = "mirror descent", (1.1, 1.5, 2.0, 3.0, 10.0), 0.1
TWO_CLASSES = "two classes of k10-sigma1"
BY_NAME = {optimizer.name: optimizer for optimizer in OPTIMIZERS}
NORMALISED = ("normalised GD", "sign descent", "spectral descent", "nuclear descent")


def measure(quick: bool) -> Iterator[Part]:
    """Run every optimizer on every set, and mirror descent with every potential on two classes."""
    if quick:
        steps_of = {SEPARABLE_SETS[0]: 200, FEW_DIGITS: 20}
    else:
        steps_of = dict.fromkeys(SEPARABLE_SETS, 100_000) | {DIGITS: 10_000}
    for data, steps in steps_of.items():
        for optimizer in OPTIMIZERS:
            yield part(descended, data=data, steps=steps, optimizer=optimizer.name)
    for p in POWERS:
        steps, name = 300 if quick else 300_000, f"{MIRROR}, p = {p:g}"
        yield part(mirrored, data=TWO_CLASSES, steps=steps, optimizer=name)


def descended(data: str, steps: int, optimizer: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step and norm: the margin as a share of the largest."""
    X, y = samples(data)
    bounds = {norm: certified(data, norm) for norm in NORMS}
    recorded = log_spaced(steps, 60)
    for step, weights in iterates(X, y, BY_NAME[optimizer], recorded):
        smallest = margin(X, y, weights)
        for name, (lower, upper) in bounds.items():
            share = smallest / as_norm(name).value(weights) * upper
            yield {"step": step, "norm": name, "share": share, "lower": lower, "upper": upper}


@cache
def certified(data: str, norm: str) -> tuple[float, float]:
    """Certify the smallest norm at margin 1, once for all optimizers."""
    return optimum(data, norm)


def mirrored(data: str, steps: int, optimizer: str) -> Iterator[dict[str, Any]]:
    """Yield a row for each recorded step of mirror descent and norm l_p."""
    X, y = two_classes()
    optima = {p: l_p_optimum(p) for p in POWERS}
    for step, w in mirror_iterates(X, y, power_of(optimizer), steps):
        smallest = (y * (X @ w)).min()
        for p, (lower, upper) in optima.items():
            share = smallest / Lp(p).value(w[None]) * upper
            yield {"step": step, "norm": f"l{p:g}", "share": share, "lower": lower, "upper": upper}


@cache
def l_p_optimum(p: float) -> tuple[float, float]:
    """Certify the smallest l_p norm at margin 1 on the two classes."""
    certificate = solve(max_margin(*two_classes(), Lp(p))).certificate
    return certificate.lower, certificate.upper


def power_of(optimizer: str) -> float:
    """Return p of mirror descent."""
    return float(optimizer.rpartition(" ")[2])


def mirror_iterates(X: Array, y: Array, p: float, steps: int) -> Iterator[tuple[int, Array]]:
    """Yield steps and weights (D,) of mirror descent on the exponential loss, divided by it."""
    kept = set(log_spaced(steps, 40))
    signed, z = y[:, None] * X, np.zeros(X.shape[1])
    for step in range(1, steps + 1):
        weights = scipy.special.softmax(-signed @ from_mirror(z, p))
        z = z + STEP_SIZE * weights @ signed
        if step in kept:
            yield step, from_mirror(z, p)


def from_mirror(z: Array, p: float) -> Array:
    """Return w (D,) of its mirror image z = sign(w) |w|^(p - 1)."""
    return np.asarray(np.sign(z) * np.abs(z) ** (1 / (p - 1)))


# --- what the page says --------------------------------------------------------------------------


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each run of many classes: shares at the end, slopes, those of theory."""
    rows = []
    many = frame[frame["data"] != TWO_CLASSES]
    for (data, name), run in many.groupby(["data", "optimizer"], sort=False):
        optimizer = BY_NAME[str(name)]
        own = run[run["norm"] == optimizer.norm]
        last = run[run["step"] == run["steps"]].set_index("norm")["share"]
        row = {"data": data, "optimizer": name, "norm": optimizer.norm}
        row["theory"] = optimizer.slope
        row |= {"share": last[optimizer.norm], "elsewhere": last.drop(optimizer.norm).max()}
        row["slope"] = slope(own["step"], 1 - own["share"]) if separates(own) else np.nan
        rows.append(row)
    return pd.DataFrame(rows)


def separates(run: pd.DataFrame) -> bool:
    """Whether a run separates the samples during its whole last decade."""
    return bool((run.loc[run["step"] >= run["steps"] / 10, "share"] > 0).all())


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Shares of normalised steps in their own norm and in the best other one, slopes, mirrors."""
    ends = at_end(frame)
    normalised = ends[ends["optimizer"].isin(NORMALISED)]
    of_digits = normalised["data"].str.startswith("mnist")
    clusters = normalised[~of_digits]
    digits = normalised[of_digits].set_index("optimizer")
    first = ends[ends["data"] == ends["data"].iloc[0]].set_index("optimizer")
    found = {
        "clusters_low": clusters["share"].min(),
        "clusters_high": clusters["share"].max(),
        "elsewhere_low": clusters["elsewhere"].min(),
        "elsewhere_high": clusters["elsewhere"].max(),
        "digits_low": digits["share"].min(),
        "digits_high": digits["share"].max(),
        "sign_digits": digits["share"]["sign descent"],
        "sign_digits_elsewhere": digits["elsewhere"]["sign descent"],
        "slope_normalised": first["slope"]["normalised GD"],
        "slope_sign": first["slope"]["sign descent"],
        "slopes_low": clusters["slope"].max(),
        "slopes_high": clusters["slope"].min(),
        "gap": ((frame["upper"] - frame["lower"]) / frame["upper"]).max(),
        "largest": frame["share"].max(),
        "shares": shares_at_the_end(ends),
    }
    return found | of_mirrors(frame)


def of_mirrors(frame: pd.DataFrame) -> dict[str, float]:
    """Largest recorded share of each potential in its own norm; norms in which it is ahead."""
    runs = frame[frame["data"] == TWO_CLASSES]
    largest = runs.groupby(["optimizer", "norm"])["share"].max().unstack()
    found = dict[str, float]()
    ahead = 0
    for name, shares in largest.iterrows():
        p = power_of(str(name))
        found[f"mirror_{p:g}".replace(".", "_")] = shares[f"l{p:g}"]
        ahead += int(largest[f"l{p:g}"].idxmax() == name)
    return found | {"mirror_ahead": ahead, "mirrors": len(largest)}


def shares_at_the_end(ends: pd.DataFrame) -> pd.DataFrame:
    """Share in the own norm by optimizer and set, with the best other norm in brackets."""

    def text(run: dict[str, Any]) -> str:
        if run["share"] <= 0:
            return "-"
        return f"{written(run['share'], '.1%')} ({written(run['elsewhere'], '.1%')})"

    rows = []
    for name, runs in ends.groupby("optimizer", sort=False):
        first = next(rows_of(runs))
        cells = {"optimizer": str(name), "norm": first["norm"].replace("linf", "l_inf")}
        for run in rows_of(runs):
            cells[run["data"]] = text(run)
        cells["slope"] = written(first["slope"], ".2f")
        cells["theorem"] = written(np.nan if first["theory"] is None else first["theory"], ".1f")
        rows.append(cells)
    return pd.DataFrame(rows)


# --- the picture ---------------------------------------------------------------------------------


def draw(frame: pd.DataFrame) -> Figure:
    """Of one set of clusters and of digits: shares by norm, and the shortfall against steps."""
    many = frame.loc[frame["data"] != TWO_CLASSES, "data"].unique()
    sets = [many[0], many[-1]]
    figure, panels = subplots((9.6, 3.0 * len(sets) + 0.6), len(sets), 2, squeeze=False)
    for (ax, curves), data in zip(panels, sets, strict=True):
        of_set = frame[frame["data"] == data]
        shares_by_norm(ax, of_set[of_set["step"] == of_set["steps"]])
        ax.set_title(f"{data}, {of_set['steps'].iloc[0]:,} steps")
        shortfalls(curves, of_set)
    return common_legend(figure, panels[:, 1], 4)


def shares_by_norm(ax: Axes, last: pd.DataFrame) -> None:
    """Shares by optimizer and norm; a frame around the norm of each optimizer's theorem."""
    names = [each.name for each in OPTIMIZERS]
    shares = last.pivot(index="optimizer", columns="norm", values="share").loc[names, list(NORMS)]
    ax.imshow(np.clip(shares, 0, 1), cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    for row, name in enumerate(names):
        for column, share in enumerate(shares.to_numpy()[row]):
            text = f"{100 * share:.0f}" if share > 0 else "·"
            colour = "white" if share > 0.7 else "black"
            ax.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)
        place = (NORMS.index(BY_NAME[name].norm) - 0.5, row - 0.5)
        ax.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=1.8))
    ax.set_xticks(range(len(NORMS)), NORMS)
    ax.set_yticks(range(len(names)), names)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def shortfalls(ax: Axes, of_set: pd.DataFrame) -> None:
    """Shortfall of each optimizer in its own norm against steps."""
    for place, optimizer in enumerate(OPTIMIZERS):
        chosen = (of_set["optimizer"] == optimizer.name) & (of_set["norm"] == optimizer.norm)
        run = of_set[chosen]
        look: dict[str, Any] = {"color": COLOURS[place % len(COLOURS)], "linewidth": 1.4}
        look["linestyle"] = LINES[place % len(LINES)]
        if (
            optimizer.name == "Adam, epsilon 0"
        ):  # the same curve as with epsilon: one over the other
            look |= {"linestyle": ":", "linewidth": 2.6}
        ax.plot(run["step"], (1 - run["share"]).clip(lower=1e-6), label=optimizer.name, **look)
    ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylim=(5e-3, 3.0))
    ax.set_title("1 - margin / certified maximum in the own norm")
    ax.grid(axis="both")
