r"""Adam that takes one sample at a time goes elsewhere than Adam with all samples.

On generalised Rademacher data (|x_nj| the same for all j) a step of one sample divides its gradient
by nearly the same number in every entry, so that Adam is gradient descent with other step sizes and
goes to the largest margin in l2. With all samples it is sign descent in the limit: l_inf. On
general data its limit is the largest margin under a norm of the data's own. The sign of a long
running mean (Signum) does not depend on the batches: l_inf.

The norm of the data's own is a fixed point (`implicit_bias.modules.single_samples`, with its
derivation).

Source: Baek, Song, Yun (2025), "Implicit bias of per-sample Adam on separable data: departure from
the full-batch regime".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, common_legend, curves, subplots
from benchmarks.harness import Row, Rows, Verdict, parts, rows_of
from benchmarks.optimizers.descent import Adam, Momentum, sign_time
from benchmarks.sizes import log_spaced, sized
from benchmarks.words import span
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.modules.single_samples import per_sample_adam_metric
from implicit_bias.norms import as_norm

PLAIN = ("l2", "linf")
OWN = "fixed point"
NORMS = (*PLAIN, OWN)
POINTS = 30
# Share of the maximum margin from which a run is at the limit of a norm.
REACHED = {"l2": 0.97, "linf": 0.97, OWN: 0.99}
# Adam's memory of squares: near 1 as the theory of single samples asks, and with all samples so
# short that the runs are long past t_sign (`adam_memory`).
BETA2 = {"one sample": 0.999, "all samples": 0.95}
# The norm that each run is said to go to.
CLAIMS: dict[tuple[str, str], str] = {
    ("Rademacher", "Adam, all samples"): "linf",
    ("Rademacher", "Adam, one sample"): "l2",
    ("Rademacher", "Signum, one sample"): "linf",
    ("Gaussian", "Adam, all samples"): "linf",
    ("Gaussian", "Adam, one sample"): OWN,
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


QUICK = Sizes(samples=4, features=8, passes=100)


def settings(sizes: Sizes) -> list[Row]:
    """Every optimizer on every set."""
    return [{"data": data, "optimizer": optimizer} for data, optimizer in CLAIMS]


def drawn(sizes: Sizes, data: str) -> Array:
    """Return y_n x_n (N, D), separable as there are more features than samples."""
    rng = np.random.default_rng(0)
    normal = rng.normal(size=(sizes.samples, sizes.features))
    return np.sign(normal) if data == "Rademacher" else normal


@dataclass(frozen=True)
class Judge:
    """A norm of weights as one of rescaled ones, with the largest margin under it."""

    norm: str
    root: Array
    largest: float
    best: Array

    @classmethod
    def of(cls, norm: str, signed: Array) -> Judge:
        """Solve for the largest margin."""
        own = norm == OWN
        labels, M = np.ones(len(signed)), np.ones(signed.shape[1])
        if own:
            M, _ = per_sample_adam_metric(signed, labels)
        problem = max_margin(signed / np.sqrt(M), labels, "l2" if own else norm)
        found = solve(problem, tol=1e-8)
        plain = "l2" if own else norm
        best = found.coef[0] / np.sqrt(M)
        return cls(plain, np.sqrt(M), 1 / found.certificate.upper, best)

    def share(self, signed: Array, weights: Array) -> float:
        """Return the margin of weights (D,) over the largest one, which is a lower bound on it."""
        size = as_norm(self.norm).value((self.root * weights)[None])
        return float((signed @ weights).min()) / size / self.largest


def iterates(signed: Array, optimizer: str, sizes: Sizes) -> Iterator[tuple[int, Array]]:
    """Train from zero on the logistic loss, and yield passes and weights (D,) at some of them.

    One sample at a time is in cyclic order; all samples count as often, as a step a pass for each.
    Margins grow to thousands, so slopes are held relative to exp(-the smallest margin), at which
    those of the samples at the margin do not underflow. Neither method has a scale of its own.
    """
    one = optimizer.endswith("one sample")
    signum = optimizer.startswith("Signum")
    beta2 = BETA2[optimizer.rpartition(", ")[2]]
    direction = Momentum("linf", sizes.momentum) if signum else Adam(0.0, (0.9, beta2))
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


def rows(sizes: Sizes, data: str, optimizer: str) -> Rows:
    """One row a pass and norm: the margin as a share of the largest, and that of l2's best."""
    signed = drawn(sizes, data)
    judges = {norm: Judge.of(norm, signed) for norm in NORMS}
    for done, weights in iterates(signed, optimizer, sizes):
        for norm, judge in judges.items():
            yield {
                "passes": done,
                "norm": norm,
                "share": judge.share(signed, weights),
                "share_of_l2": judge.share(signed, judges["l2"].best),
                "steps": done * len(signed),
                "step_size": sizes.step_size,
                "gamma": judges["linf"].largest,
            }


def at_end(frame: pd.DataFrame, least: float = 0.0) -> pd.DataFrame:
    """Return the last shares: a row a run, with its claim and whether that holds."""
    last = frame[frame["passes"] == frame["passes"].max()]
    table = last.pivot(index=["data", "optimizer"], columns="norm", values="share")
    table = table.loc[list(CLAIMS), list(NORMS)].reset_index()
    table["claim"] = list(CLAIMS.values())
    table["holds"] = [
        _holds(row["claim"], {norm: row[norm] for norm in NORMS}, least) for row in rows_of(table)
    ]
    return table


def _holds(claim: str, shares: dict[str, float], least: float) -> bool:
    """Whether a run is where it is said to go; the norm of the data's own may be that of l2."""
    others = NORMS if claim == OWN else PLAIN
    return shares[claim] >= max(REACHED[claim], least) and shares[claim] == max(
        shares[n] for n in others
    )


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame)
    ends = ". ".join(
        f"{data} data: {'; '.join(map(_end, rows_of(runs)))}" for data, runs in parts(last, "data")
    )
    own = frame[(frame["norm"] == OWN) & (frame["data"] == "Gaussian")]
    whole = frame[frame["optimizer"] == "Adam, all samples"].groupby("data").last()
    lengths = whole["steps"] / [
        sign_time(row["step_size"], BETA2["all samples"], row["gamma"]) for row in rows_of(whole)
    ]
    return (
        f"**Share of the certified maximum margin after {frame['passes'].max():,} passes: "
        f"{ends}.** "
        "In the norm of the fixed point on Gaussian data the predictor of the largest l2 margin "
        f"has {_share(own['share_of_l2'].iloc[-1])}. "
        f"Adam's runs with all samples are {span(lengths, '.0f')} times t_sign long. "
        f"{int(last['holds'].sum())} of {len(last)} runs end where they are said to."
    )


def _end(row: Row) -> str:
    own = f", {_share(row[OWN])} in the norm of the fixed point (its form is derived here)"
    return (
        f"{row['optimizer']}, {_share(row['l2'])} in l2, {_share(row['linf'])} in l_inf"
        + own * (row["claim"] == OWN)
    )


def verdict(frame: pd.DataFrame, least: float = 0.0) -> Verdict:
    """Judge the claim by the rule."""
    return Verdict.each(at_end(frame, least)["holds"])


def _share(share: float) -> str:
    return percent(share, 1)  # as the rules tell 97 % from 99 %


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show the ends of all runs."""
    return at_end(frame).rename(columns={OWN: "own"})


def draw(frame: pd.DataFrame) -> Figure:
    """Shortfalls against passes: a panel an optimizer and set, a line a norm."""
    figure, panels = subplots(
        (9.6, 5.2), 2, 3, sharex=True, sharey=True, grid="both", y="1 - margin / maximum"
    )
    for ax, (data, optimizer) in zip(panels.ravel(), CLAIMS, strict=True):
        of_run = frame[(frame["data"] == data) & (frame["optimizer"] == optimizer)]
        of_run = of_run.assign(shortfall=(1 - of_run["share"]).clip(lower=1e-4))
        curves(ax, of_run, "norm", "passes", "shortfall")
        ax.set(xscale="log", yscale="log", ylim=(1e-3, 2.0), title=f"{optimizer}, {data}")
    for ax in panels[-1]:
        ax.set_xlabel("passes")
    return common_legend(figure, panels[0], len(NORMS))


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
