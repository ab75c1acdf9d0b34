r"""Progressive rescaling: the margin grows exponentially fast, where normalised descent is slow.

With z_n = y_n x_n of length at most 1 and g = Z' softmax(-Z w), minus the gradient of the log of
the exponential loss, whose soft minimum of the margins hardens as w grows:

==================  ===============================================================================
method              step t
==================  ===============================================================================
normalised GD       w += g
momentum            g_t = t/(t+1) (g_t + g);  w += g_t + g   (`speed`)
PRGD                w += g, then projected onto the ball of radius R_k; each T steps the radius is
                    some factor larger, and w is scaled to it
==================  ===============================================================================

A normalised step of constant size turns w the less, the larger it is: the margin's error falls like
1 / t. In a ball of fixed radius w goes to the best soft minimum there; scaled to a larger ball, it
goes on from there. At radius R the soft minimum is off by about log N / (R gamma), so while w keeps
up the excess falls by the growth a rescaling: tenfold in T log 10 / log(growth) steps.

Source: Wang, Min, Wu (2024), "Achieving margin maximization exponentially fast via progressive norm
rescaling", for the method and the claim. Growth and T are chosen here.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import count

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, curves
from benchmarks.harness import Row, Rows, Verdict, rows_of, tabled
from benchmarks.optimizers import mirror
from benchmarks.optimizers.speed import Method, ascent, excess, momentum, normalised, taken
from benchmarks.sizes import grid, sized
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.report.style import panel

POINTS = 60
# Excess at which the certified optimum itself is known no better.
FLOOR = 1e-9
# PRGD keeps up where a tenth takes this many times the steps that its radius takes, at most.
KEEPS_UP = 1.2


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: steps of each method; growths of the radius, each T steps."""

    steps: int = 30_000
    growths: tuple[float, ...] = (1.05, 1.1, 1.2)
    between: int = 200


QUICK = Sizes(steps=300, growths=(1.2,), between=20)


def progressive(Z: Array, growth: float, between: int) -> Iterator[Array]:
    """Take the steps of PRGD, whose radius grows by a factor each ``between`` steps."""
    w, radius = np.zeros(Z.shape[1]), 0.0
    for t in count(1):
        size = np.linalg.norm(w)
        if size > 0 and t % between == 0:
            radius = growth * max(radius, float(size))
            w = w * (radius / size)
        w = w + ascent(Z, w)
        size = np.linalg.norm(w)
        if 0 < radius < size:
            w = w * (radius / size)
        yield w


def methods(sizes: Sizes) -> dict[str, Method]:
    """Return every method by its name."""
    progressives = {
        f"PRGD, growth {growth:g}": partial(progressive, growth=growth, between=sizes.between)
        for growth in sizes.growths
    }
    return {"normalised GD": normalised, "momentum": momentum, **progressives}


def settings(sizes: Sizes) -> list[Row]:
    """Every method once."""
    return grid(method=methods(sizes))


def rows(sizes: Sizes, method: str) -> Rows:
    """One row a step: the norm at margin 1 over the certified optimum."""
    X, y = mirror.two_classes()
    signed = y[:, None] * X / np.linalg.norm(X, axis=1).max()
    optimum = solve(max_margin(signed, np.ones(len(y))), tol=1e-12).certificate
    for step, _, w in taken(methods(sizes)[method](signed), sizes.steps, POINTS):
        yield {
            "step": step,
            "excess": excess(w, signed @ w, optimum.lower),
            "gap": optimum.gap,
            "between": sizes.between,
        }


@tabled
def at_end(frame: pd.DataFrame) -> Rows:
    """Return each method's last excess, and in how many steps it fell tenfold at the end."""
    for name, run in frame.groupby("method", sort=False):
        late = run[run["step"] >= run["step"].max() / 3]
        slope = np.polyfit(late["step"], np.log10(late["excess"].clip(lower=FLOOR)), 1)[0]
        yield {
            "method": name,
            "excess": run["excess"].iloc[-1],
            "tenfold": -1 / slope if slope < 0 else np.nan,
            "reached": first_step(run),
            "foreseen": tenfold_foreseen(str(name), run),
        }


def tenfold_foreseen(name: str, run: pd.DataFrame) -> float:
    """Return the steps in which the radius of PRGD grows tenfold; nan of other methods."""
    _, _, growth = name.partition("growth ")
    return float(run["between"].iloc[0] * np.log(10) / np.log(float(growth))) if growth else np.nan


def first_step(run: pd.DataFrame, goal: float = 1e-6) -> float:
    """First recorded step at which the excess is at most a goal; nan if none is."""
    there = run.loc[run["excess"] <= goal, "step"]
    return float(there.iloc[0]) if len(there) else float("nan")


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    ends = "; ".join(
        f"{row['method']} {row['excess']:.1e}"
        + ("" if np.isnan(row["reached"]) else f" (1e-6 after {row['reached']:,.0f} steps)")
        for row in rows_of(at_end(frame))
    )
    paces = ", ".join(
        f"{row['tenfold'] / row['foreseen']:,.2f} ({row['method'].partition(', ')[2]})"
        for row in rows_of(at_end(frame).dropna(subset="foreseen"))
    )
    return (
        f"**Excess of the norm at margin 1 over the certified optimum (known to "
        f"{frame['gap'].max():.0e}) after {frame['step'].max():,} steps: {ends}. A tenth of PRGD's "
        f"excess takes {paces} times the steps in which its radius grows tenfold.**"
    )


def verdict(frame: pd.DataFrame, most: float = KEEPS_UP) -> Verdict:
    """Judge the claim by the rule."""
    last = at_end(frame).set_index("method")
    ours = last[last["foreseen"].notna()]
    keeps_up = ours["tenfold"] <= most * ours["foreseen"]
    ahead = ours["excess"].min() < last["excess"].drop(ours.index).min()
    return Verdict.of(keeps_up.any() and ahead, keeps_up.any())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all methods."""
    last = at_end(frame)
    known = {"normalised GD": "1 / t", "momentum": "1 / t^2"}
    return last.assign(theory=last["method"].map(known).fillna("exponential"))


def draw(frame: pd.DataFrame) -> Figure:
    """Excess against steps."""
    figure, ax = panel()
    shown = frame.assign(excess=frame["excess"].clip(lower=FLOOR / 10))
    curves(ax, shown, "method", "step", "excess")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="norm / certified optimum - 1")
    ax.grid(axis="both")
    ax.legend(loc="lower left", fontsize="small")
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
