"""Boosting on decision stumps: coordinate descent over thousands of features, and l1.

Sources: Telgarsky, "Margins, shrinkage, and boosting" (ICML 2013); Rudin, Daubechies, Schapire,
"The dynamics of AdaBoost" (JMLR 2004), for AdaBoost without shrinkage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import AdaBoostClassifier
from sklearn.tree import DecisionTreeClassifier

from benchmarks.drawing import Figure, curves
from benchmarks.harness import Row, Rows, Tabular, Verdict, rows_of
from benchmarks.sizes import grid, log_spaced, margin_share, sized
from implicit_bias import max_margin, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.report.style import GREY, panel

# Share of the maximum that counts as reached, and its rise over a decade of rounds that says that
# a run is too short.
REACHED, RISE = 0.99, 0.01
POINTS = 40


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: rounds of boosting, by shrinkage (scikit-learn's learning rate)."""

    samples: int = 569
    shrinkages: tuple[float, ...] = (1.0, 0.3, 0.1)
    rounds: int = 20_000


WHOLE = Sizes()
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


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = at_end(frame)
    ends = "; ".join(
        f"{percent(row['share'])} with shrinkage {row['shrinkage']:g} after {row['round']:,} rounds"
        for row in rows_of(last)
    )
    return (
        f"The largest l1 margin of all stumps is {1 / last['upper'].iloc[0]:.6f}, certified to a "
        f"relative gap of {(1 - last['lower'] / last['upper']).max():.1g}. **Of it boosting "
        f"reaches {ends}.** The smaller the steps, the more rounds they take: no run has ended."
    )


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    slowest = frame[frame["shrinkage"] == frame["shrinkage"].min()]
    last = slowest["share"].iloc[-1]
    before = slowest[slowest["round"] <= slowest["round"].max() / 10]["share"].iloc[-1]
    return Verdict.of(last >= REACHED, last > before + RISE)


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Share of the maximum by shrinkage and rounds."""
    shown = frame.groupby("shrinkage", sort=False).nth([POINTS // 4, POINTS // 2, -1])
    return {
        "shrinkage": shown["shrinkage"].map("{:g}".format),
        "rounds": shown["round"].map("{:,}".format),
        "margin / maximum": shown["share"].map(margin_share),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Share of the maximum margin against rounds."""
    figure, ax = panel()
    shown = frame.assign(share=frame["share"].clip(lower=0))
    curves(ax, shown, "shrinkage", "round", "share", label="shrinkage {:g}")
    ax.axhline(1.0, color=GREY, linestyle="--", linewidth=1)
    ax.set(xscale="log", xlabel="rounds", ylabel="margin / certified maximum", ylim=(0, 1.06))
    ax.grid(axis="y")
    ax.legend(loc="lower right")
    return figure


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK, whole=WHOLE)
