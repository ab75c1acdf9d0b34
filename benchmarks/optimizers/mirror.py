"""Mirror descent with the potential ||w||_p^p / p: the largest margin in l_p.

Source: Sun et al., "Mirror descent maximizes generalized margin and can be implemented efficiently"
(NeurIPS 2022).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.special

from benchmarks.drawing import Figure, curves
from benchmarks.harness import Row, Rows, Tabular, Verdict
from benchmarks.optimizers.data import samples
from benchmarks.sizes import grid, log_spaced, sized
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.norms import Lp
from implicit_bias.report.style import GREY, panel

REACHED = 0.99
POINTS = 40
DATA = "k10-sigma1"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: potentials, the norms of the margins, and steps."""

    powers: tuple[float, ...] = (1.1, 1.5, 2.0, 3.0, 10.0)
    steps: int = 300_000
    step_size: float = 0.1


QUICK = Sizes(powers=(1.5, 3.0), steps=300)


def settings(sizes: Sizes) -> list[Row]:
    """Every potential once."""
    return grid(potential=sizes.powers)


def two_classes() -> tuple[Array, Array]:
    """Return the first two clusters of a published set: inputs (N, D), labels -1 and +1."""
    X, y = samples(DATA)
    chosen = y < 2
    return X[chosen], np.where(y[chosen] == 1, 1.0, -1.0)


def mirrored(z: Array, p: float) -> Array:
    """Return w (D,) of its mirror image z = sign(w) |w|^(p - 1)."""
    return np.sign(z) * np.abs(z) ** (1 / (p - 1))


def descend(X: Array, y: Array, p: float, sizes: Sizes) -> Iterator[tuple[int, Array]]:
    """Yield steps and weights (D,) of mirror descent on the exponential loss, divided by it."""
    kept = set(log_spaced(sizes.steps, POINTS))
    signed, z = y[:, None] * X, np.zeros(X.shape[1])
    for step in range(1, sizes.steps + 1):
        weights = scipy.special.softmax(-signed @ mirrored(z, p))
        z = z + sizes.step_size * weights @ signed
        if step in kept:
            yield step, mirrored(z, p)


def rows(sizes: Sizes, potential: float) -> Rows:
    """One row a step and norm: the margin as a share of the largest."""
    X, y = two_classes()
    norms = {p: Lp(p) for p in sizes.powers}
    optima = {p: solve(max_margin(X, y, norm)).certificate for p, norm in norms.items()}
    for step, w in descend(X, y, potential, sizes):
        for p, norm in norms.items():
            yield {
                "step": step,
                "norm": p,
                "share": (y * (X @ w)).min() / norm.value(w[None]) * optima[p].upper,
                "lower": optima[p].lower,
                "upper": optima[p].upper,
            }


def largest(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the largest recorded shares: a row a potential, a column a norm.

    Steps of one size overshoot where the potential is flat (p = 10), and the share goes up and
    down: its last value says when a run was stopped.
    """
    return frame.groupby(["potential", "norm"])["share"].max().unstack()


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    shares = largest(frame)
    own = pd.Series(np.diag(shares), index=shares.index)
    best = int((shares.to_numpy().argmax(axis=0) == np.arange(len(shares))).sum())
    return (
        f"**Within {frame['step'].max():,} steps each potential comes to "
        f"{', '.join(f'{percent(share)} (p = {p:g})' for p, share in own.items())} of the largest "
        f"margin in its own norm, and is ahead of all others in {best} of {len(shares)} norms.**"
    )


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge the claim by the rule."""
    shares = largest(frame).to_numpy()
    ahead = pd.Series(shares.argmax(axis=0) == np.arange(len(shares)))
    return Verdict.limit(ahead & (np.diag(shares) >= least), ahead)


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Largest shares, by potential and norm."""
    shares = largest(frame)
    cells = {f"l_{p:g}": shares[p].map(percent) for p in shares}
    return {"potential p": [f"{p:g}" for p in shares.index], **cells}


def draw(frame: pd.DataFrame) -> Figure:
    """Shortfall in the potential's own norm against steps."""
    figure, ax = panel()
    own = frame[frame["potential"] == frame["norm"]]
    own = own.assign(shortfall=(1 - own["share"]).clip(lower=1e-6))
    look = {"markevery": 6, "markersize": 4}
    curves(ax, own, "potential", "step", "shortfall", label="p = {:g}", markers=True, **look)
    ax.axhline(1.0, color=GREY, linestyle=":", linewidth=0.8)
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="1 - margin / maximum in l_p")
    ax.grid(axis="both")
    ax.legend(loc="lower left")
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
