r"""Adam that takes one sample at a time goes elsewhere than Adam with all samples.

On generalised Rademacher data (|x_nj| the same for all j) a step of one sample divides its gradient
by nearly the same number in every entry, so that Adam is gradient descent with other step sizes and
goes to the largest margin in l2. With all samples it is sign descent in the limit: l_inf. On
general data its limit is the largest margin under a norm of the data's own. The sign of a long
running mean (Signum) does not depend on the batches: l_inf.

Source: Baek, Song, Yun (2025), "Implicit bias of per-sample Adam on separable data: departure from
the full-batch regime": samples in cyclic order, logistic regression.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.drawing import common_legend, subplots
from benchmarks.harness import Experiment, Verdict, rows_of
from benchmarks.optimizers.descent import Adam, Momentum
from benchmarks.sizes import at_sizes, log_spaced, with_sizes
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.norms import as_norm
from implicit_bias.report.style import COLOURS, LINES

NORMS = ("l2", "linf")
POINTS = 30
# Share of the maximum margin from which a run is at the limit of a norm.
REACHED = 0.97
# The norm that each run is said to go to; "" for neither.
CLAIMS: dict[tuple[str, str], str] = {
    ("Rademacher", "Adam, all samples"): "linf",
    ("Rademacher", "Adam, one sample"): "l2",
    ("Rademacher", "Signum, one sample"): "linf",
    ("Gaussian", "Adam, all samples"): "linf",
    ("Gaussian", "Adam, one sample"): "",
    ("Gaussian", "Signum, one sample"): "linf",
}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: data, and passes over it of which each has a step a sample."""

    samples: int = 10
    features: int = 50
    passes: int = 40_000
    step_size: float = 0.1
    momentum: float = 0.99


WHOLE = Sizes()
QUICK = Sizes(samples=4, features=8, passes=100)


@dataclass(frozen=True)
class Setting:
    """A set of data and an optimizer."""

    data: str
    optimizer: str


def settings(sizes: Sizes) -> list[Setting]:
    """Every optimizer on every set."""
    return [Setting(*names) for names in CLAIMS]


def drawn(sizes: Sizes, data: str) -> Array:
    """Return y_n x_n (N, D), separable as there are more features than samples."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(sizes.samples, sizes.features))
    return np.sign(normal) if data == "Rademacher" else normal


def iterates(signed: Array, optimizer: str, sizes: Sizes) -> Iterator[tuple[int, Array]]:
    """Train from zero on the logistic loss, and yield passes and weights (D,) at some of them.

    One sample at a time is in cyclic order; all samples count as often, as a step a pass for each.
    Margins grow to thousands, so slopes are held relative to exp(-the smallest margin), at which
    those of the samples at the margin do not underflow. Neither method has a scale of its own.
    """
    one = optimizer.endswith("one sample")
    signum = optimizer.startswith("Signum")
    direction = Momentum("linf", sizes.momentum) if signum else Adam(0.0)
    weights, kept, t, least = np.zeros(signed.shape[1]), set(log_spaced(sizes.passes, POINTS)), 0, 0
    for done in range(1, sizes.passes + 1):
        for row in signed:
            t += 1
            margins = signed @ weights
            direction.rescale(np.exp(margins.min() - least))
            least = margins.min()
            Z, q = (row[None], row @ weights) if one else (signed, margins)
            # exp(least) / (1 + exp(q)), the derivative of the logistic loss in units of exp(-least)
            slopes = np.exp(least - np.logaddexp(0.0, q))
            gradient = -np.atleast_1d(slopes) @ Z / len(Z)
            weights = weights + sizes.step_size / t**0.5 * direction(gradient)
        if done in kept:
            yield done, weights


def rows(sizes: Sizes, setting: Setting) -> Iterator[dict[str, Any]]:
    """One row a pass and norm: the margin as a share of the largest."""
    signed = drawn(sizes, setting.data)
    labels = np.ones(len(signed))
    optima = {norm: solve(max_margin(signed, labels, norm), tol=1e-8) for norm in NORMS}
    for done, weights in iterates(signed, setting.optimizer, sizes):
        for norm in NORMS:
            size = as_norm(norm).value(weights[None])
            yield {
                "data": setting.data,
                "optimizer": setting.optimizer,
                "passes": done,
                "norm": norm,
                "share": float((signed @ weights).min()) / size * optima[norm].certificate.upper,
            }


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last shares: a row a run, with its claim and whether that holds."""
    last = frame[frame["passes"] == frame["passes"].max()]
    table = last.pivot(index=["data", "optimizer"], columns="norm", values="share")
    table = table.loc[list(CLAIMS), list(NORMS)].reset_index()
    keys = zip(table["data"], table["optimizer"], strict=True)
    table["claim"] = [CLAIMS[key] for key in keys]
    table["holds"] = [
        _holds(row["claim"], {norm: row[norm] for norm in NORMS}) for row in rows_of(table)
    ]
    return table


def _holds(claim: str, shares: dict[str, float]) -> bool:
    if not claim:
        return max(shares.values()) < REACHED
    return shares[claim] >= REACHED and shares[claim] == max(shares.values())


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame)
    ends = "; ".join(
        f"{row['optimizer']} on {row['data']} data {percent(row['l2'])} in l2 and "
        f"{percent(row['linf'])} in l_inf"
        for row in rows_of(last)
    )
    return (
        f"Share of the certified maximum margin after {frame['passes'].max():,} passes: {ends}. "
        f"{int(last['holds'].sum())} of {len(last)} runs end where they are said to."
    )


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    holds = at_end(frame)["holds"]
    return Verdict.of(holds.all(), holds.any())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all runs."""
    last = at_end(frame)
    return pd.DataFrame(
        {
            "data": last["data"],
            "optimizer": last["optimizer"],
            "said to go to": last["claim"].map(lambda norm: norm or "neither"),
            "margin / maximum in l2": last["l2"].map(percent),
            "in linf": last["linf"].map(percent),
            "holds": last["holds"].map({True: "yes", False: "no"}),
        }
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Shortfalls against passes: a panel an optimizer and set, a line a norm."""
    figure, panels = subplots((9.6, 5.2), 2, 3, sharex=True, sharey=True)
    for ax, (data, optimizer) in zip(panels.ravel(), CLAIMS, strict=True):
        of_run = frame[(frame["data"] == data) & (frame["optimizer"] == optimizer)]
        for place, norm in enumerate(NORMS):
            run = of_run[of_run["norm"] == norm]
            ax.plot(
                run["passes"],
                (1 - run["share"]).clip(lower=1e-4),
                color=COLOURS[place],
                linestyle=LINES[place],
                label=norm,
            )
        ax.set(xscale="log", yscale="log", ylim=(1e-3, 2.0), title=f"{optimizer}, {data}")
        ax.grid(axis="both")
    for row in panels:
        row[0].set_ylabel("1 - margin / maximum")
    for ax in panels[-1]:
        ax.set_xlabel("passes")
    return common_legend(figure, panels[0], len(NORMS))


EXPERIMENT = Experiment(
    measure=at_sizes(settings, rows, quick=QUICK, whole=WHOLE),
    draw=draw,
    found=with_sizes(found),
    verdict=verdict,
    tabulate=tabulate,
)
