r"""Boosting on decision stumps: coordinate descent over thousands of features, and l1.

With shrinkage nu a round adds nu / 2 log((1 + r) / (1 - r)) of a stump of edge r, and r is at least
the largest margin gamma. The exponential loss falls by a factor Z <= 1 - nu gamma^2 (1 - nu / 2) or
so a round, and so many samples as have a margin below theta |w|_1 are at most N exp(theta |w|_1)
times the product of all Z. That is below 1 for theta up to about

    gamma (1 - nu / 2) - log N / |w|_1:

in the limit at least 1 - nu / 2 of the maximum. 99 % take a shrinkage of 0.02, and log N / |w|_1
below a part of 1 %, millions of rounds.

Sources: Telgarsky, "Margins, shrinkage, and boosting" (ICML 2013); Rudin, Daubechies, Schapire,
"The dynamics of AdaBoost" (JMLR 2004), for AdaBoost without shrinkage.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.drawing import Figure, curves
from benchmarks.harness import Row, Rows, Verdict, parts, rows_of
from benchmarks.sizes import grid, log_spaced, margin_share, sized
from implicit_bias import Certificate, max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.report.style import GREY, panel

# Rise of the share over a decade of rounds that says that a run is too short.
RISE = 0.01
POINTS = 40


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: rounds of boosting, by shrinkage (scikit-learn's learning rate)."""

    samples: int = 569
    shrinkages: tuple[float, ...] = (1.0, 0.3, 0.1)
    rounds: int = 20_000


QUICK = Sizes(samples=60, shrinkages=(1.0, 0.1), rounds=60)


def settings(sizes: Sizes) -> list[Row]:
    """Every shrinkage once."""
    return grid(shrinkage=sizes.shrinkages)


def stumps(X: Array) -> Array:
    """Return what every stump that tells samples apart says of them: (N, S), -1 and +1.

    A stump with its signs exchanged is the same column with a negative coefficient.
    """
    columns = []
    for feature in X.T:
        values = np.unique(feature)
        columns.append(np.where(feature[:, None] > (values[:-1] + values[1:]) / 2, 1.0, -1.0))
    return np.unique(np.hstack([*columns, np.ones((len(X), 1))]), axis=1)


@cache
def _posed(samples: int) -> tuple[Array, Array, Certificate]:
    """Return inputs, labels, and the certified smallest l1 norm of a combination of stumps."""
    X, labels = load_breast_cancer(return_X_y=True)
    X, y = X[:samples], 2.0 * labels[:samples] - 1.0
    return X, y, solve(max_margin(stumps(X), y, "l1")).certificate


def rows(sizes: Sizes, shrinkage: float) -> Rows:
    """One row a number of rounds: margin over the l1 norm, as a share of the largest."""
    X, y, optimum = _posed(sizes.samples)
    boosted = AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=1),
        n_estimators=sizes.rounds,
        learning_rate=shrinkage,
        random_state=0,
    ).fit(X, y)
    kept = set(log_spaced(len(boosted.estimators_), POINTS))
    margins, norm = np.zeros(len(y)), 0.0
    members = zip(boosted.estimators_, boosted.estimator_weights_, strict=True)
    for count, (stump, weight) in enumerate(members, start=1):
        margins += weight * y * stump.predict(X)
        norm += weight
        if count in kept:
            yield {
                "round": count,
                "share": margins.min() / norm * optimum.upper,
                "lower": optimum.lower,
                "upper": optimum.upper,
            }


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last row of each shrinkage."""
    return frame.groupby("shrinkage", sort=False).last().reset_index()


def guaranteed(shrinkage: float) -> float:
    """Share of the maximum that a shrinkage is sure to reach in the limit, for small margins."""
    return 1 - shrinkage / 2


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame)
    ends = "; ".join(
        f"{percent(row['share'])} with shrinkage {row['shrinkage']:g} (in the limit at least "
        f"{percent(guaranteed(row['shrinkage']))})"
        for row in rows_of(last)
    )
    return (
        f"The largest l1 margin of all stumps is {1 / last['upper'].iloc[0]:.6f}, certified to a "
        f"relative gap of {(1 - last['lower'] / last['upper']).max():.1g}. **Of the largest "
        f"margin boosting reaches in {last['round'].max():,} rounds {ends}.** The smaller the "
        "steps, the more rounds they take: no run has ended."
    )


def verdict(frame: pd.DataFrame, rise: float = RISE) -> Verdict:
    """Judge the claim by the rule."""
    there, rises = list[bool](), list[bool]()
    for shrinkage, run in parts(frame, "shrinkage"):
        last = run["share"].iloc[-1]
        before = run[run["round"] <= run["round"].max() / 10]["share"].iloc[-1]
        there.append(last >= guaranteed(shrinkage))
        rises.append(last > before + rise)
    arrived, on_the_way = pd.Series(there), pd.Series(rises)
    ended = not (arrived | on_the_way).all()
    return Verdict.FALLS if ended else Verdict.limit(arrived, on_the_way)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Share of the maximum by shrinkage and rounds."""
    shown = frame.groupby("shrinkage", sort=False).nth([POINTS // 4, POINTS // 2, -1])
    return shown.assign(share=shown["share"].map(margin_share))


def draw(frame: pd.DataFrame) -> Figure:
    """Share of the maximum margin against rounds."""
    figure, ax = panel()
    shown = frame.assign(share=frame["share"].clip(lower=0))
    curves(ax, shown, "shrinkage", "round", "share", label="shrinkage {:g}")
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set(xscale="log", xlabel="rounds", ylabel="margin / certified maximum", ylim=(0, 1.06))
    ax.grid(axis="y")
    ax.legend(loc="center left")
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
