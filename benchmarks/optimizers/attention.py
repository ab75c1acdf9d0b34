r"""Attention as token selection: W trained whole, and as K Q' with keys and queries apart.

A layer of attention weighs the tokens x_1 .. x_T of a sample by softmax(X W q). Training that
prefers one token of each sample lets W grow without end, in direction of

    minimise  ||W||   subject to  (x_best - x_t)' W q >= 1  for all other tokens t of each sample.

Steepest descent in a norm of W, which is a linear predictor here, goes to that norm. Where
W = K Q' is trained, a norm of the pair (K, Q) induces one of W:

=====================  ==================================  =====================================
steps on K and Q       norm of the pair                    norm of W, with min(D, E) columns
=====================  ==================================  =====================================
normalised descent     1/2 (||K||_F^2 + ||Q||_F^2)         nuclear
Muon                   max of their spectral norms         spectral: at most ||K|| ||Q||, reached
                                                           by a singular value decomposition
Adam                   the largest entry of both           not known: KKT points of the pair
=====================  ==================================  =====================================

What is descended is the log of sum exp(-margin), so that gradients do not shrink and Adam's memory
(`adam_memory`) is no matter.

Source: Tarzanagh, Li, Thrampoulidis, Oymak (2023), "Transformers as support vector machines"; the
row of Muon on K and Q is derived here.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks import harness
from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.harness import Judged, Row, Rows, Verdict, otherwise, rows_of
from benchmarks.optimizers.descent import Adam, Direction, Momentum
from benchmarks.sizes import grid, log_spaced, sized
from benchmarks.words import share_span, span
from implicit_bias import MarginProblem, attention_margin, certify, diagnose, solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent

NORMS = ("l2", "linf", "spectral", "nuclear")
# What is trained, by which steps, and to the largest margin of which norm of W it is said to go.
CLAIMS: dict[tuple[str, str], str] = {
    ("W", "normalised descent"): "l2",
    ("W", "Adam"): "linf",
    ("W", "Muon"): "spectral",
    ("K and Q", "normalised descent"): "nuclear",
    ("K and Q", "Adam"): "",
    ("K and Q", "Muon"): "spectral",
}
# Norm of the pair in which the KKT gap of the run without a norm of W is measured.
PAIR = "linf"
STEP_SIZES = {"normalised descent": 1.0, "Adam": 0.1, "Muon": 0.1}
# Steps that the source speaks of; the others are ours.
THEIRS = "normalised descent"
# Share of the maximum that is asked for, and gap up to which a run is near a KKT point.
REACHED, NEAR = 0.97, 0.1
POINTS = 20


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: draws of Gaussian tokens and queries, and steps."""

    samples: int = 6
    tokens: int = 5
    features: int = 8
    draws: int = 5
    steps: int = 8_000


QUICK = Sizes(samples=3, tokens=3, features=4, draws=2, steps=300)


def settings(sizes: Sizes) -> list[Row]:
    """Every draw."""
    return grid(draw=range(sizes.draws))


class Pair(nn.Module):
    """The margins of W = K Q' as a function of x_best - x_t and q."""

    def __init__(self, K: Array, Q: Array) -> None:
        super().__init__()
        self.K, self.Q = (nn.Parameter(torch.tensor(part)) for part in (K, Q))

    def forward(self, differences: Tensor, query: Tensor) -> Tensor:
        """Return the margins (P,) of pairs of tokens."""
        margins: Tensor = ((differences @ self.K) * (query @ self.Q)).sum(dim=1)
        return margins


def direction(optimizer: str) -> Direction:
    """Start the steps of one tensor; normalised descent is normalised over all of them together."""
    if optimizer == "normalised descent":
        return lambda gradient: -gradient
    return Adam(0.0, (0.9, 0.95)) if optimizer == "Adam" else Momentum("spectral", 0.9)


def iterates(
    problem: MarginProblem, parts: list[Array], optimizer: str, steps: int
) -> Iterator[tuple[int, list[Array]]]:
    """Train W (D, E), or K (D, r) and Q (E, r), and yield some of the steps."""
    differences, query = problem.X, problem.gates
    started = [direction(optimizer) for _ in parts]
    kept = set(log_spaced(steps, POINTS))
    for t in range(1, steps + 1):
        W = product(parts)
        margins = ((differences @ W) * query).sum(axis=1)
        shares = np.exp(margins.min() - margins)
        slope = -differences.T @ (shares[:, None] / shares.sum() * query)
        slopes = [slope] if len(parts) == 1 else [slope @ parts[1], slope.T @ parts[0]]
        size = STEP_SIZES[optimizer] / t**0.5
        if optimizer == "normalised descent":
            size /= np.sqrt(sum((each**2).sum() for each in slopes))
        parts = [
            part + size * step(each)
            for part, step, each in zip(parts, started, slopes, strict=True)
        ]
        if t in kept:
            yield t, parts


def product(parts: list[Array]) -> Array:
    """Return W (D, E) of W alone, or of K and Q."""
    return parts[0] if len(parts) == 1 else parts[0] @ parts[1].T


def rows(sizes: Sizes, draw: int) -> Rows:
    """One row a run, step and norm: the share of the largest margin, and at the end the KKT gap."""
    rng = np.random.default_rng(draw)
    N, T, D = sizes.samples, sizes.tokens, sizes.features
    tokens, query = rng.normal(size=(N, T, D)), rng.normal(size=(N, D))
    best = rng.integers(T, size=N)
    start = list(rng.normal(0.0, 0.1, size=(2, D, D)))
    problems = {norm: attention_margin(tokens, query, best, norm) for norm in NORMS}
    optima = {norm: solve(problem, tol=1e-7).certificate for norm, problem in problems.items()}
    plain = problems["l2"]
    for trained, optimizer in CLAIMS:
        first = start[:1] if trained == "W" else start
        for t, parts in iterates(plain, first, optimizer, sizes.steps):
            coef = product(parts).T
            gap = np.nan
            if t == sizes.steps and trained != "W":
                labels = np.ones(len(plain.X))
                found = diagnose(
                    Pair(*parts), (plain.X, plain.gates), labels, norm=_pair_norm(optimizer)
                )
                gap = found.gap
            for norm, problem in problems.items():
                yield {
                    "trained": trained,
                    "optimizer": optimizer,
                    "step": t,
                    "norm": norm,
                    "share": optima[norm].lower / certify(problem, coef).upper,
                    "certified": optima[norm].gap,
                    "gap": gap,
                }


def _pair_norm(optimizer: str) -> str:
    return {"normalised descent": "l2", "Adam": PAIR, "Muon": "spectral"}[optimizer]


# --- what a table says -------------------------------------------------------------------------


def ends(frame: pd.DataFrame, least: float = REACHED) -> pd.DataFrame:
    """Return a row a run and draw: shares at the end, the gap, and whether its claim holds."""
    last = frame[frame["step"] == frame["step"].max()]
    keys = ["trained", "optimizer", "draw"]
    shares = last.pivot(index=keys, columns="norm", values="share")[list(NORMS)]
    table = shares.join(last.groupby(keys)["gap"].first()).reset_index()
    claims = pd.Series(CLAIMS, name="claim").rename_axis(keys[:2]).reset_index()
    table = claims.merge(table, on=keys[:2])  # in the order of the claims
    table["holds"] = [_holds(row, least) for row in rows_of(table)]
    return table


def _holds(row: Row, least: float) -> bool:
    if not row["claim"]:
        return bool(row["gap"] <= NEAR)
    share = row[row["claim"]]
    return bool(share >= least and share == max(row[norm] for norm in NORMS))


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    holds = ends(frame)["holds"]
    return (
        f"{int(holds.sum())} of {len(holds)} runs end where they are said to. All maxima are "
        f"certified, to a relative gap of {frame['certified'].max():.0e}; the largest share is "
        f"{percent(frame['share'].max(), 1)}."
    )


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge the claim of the source, which a larger share may refute, and ours, by a smaller."""
    return {
        "attention_descent": _judged(frame, True, 0.99),
        "attention_adam_muon": _judged(frame, False, 0.95),
    }


def _judged(frame: pd.DataFrame, theirs: bool, other: float) -> Judged:
    """Judge the runs of the source, or ours, by the rule and by another share."""
    runs, others = (
        table[(table["optimizer"] == THEIRS) == theirs]
        for table in (ends(frame, least) for least in (REACHED, other))
    )
    said = []
    for (trained, optimizer), part in harness.parts(runs, "trained", "optimizer"):
        norm = CLAIMS[trained, optimizer]
        what = (
            f"{share_span(part[norm])} in {norm}"
            if norm
            else f"a KKT gap of {span(part['gap'], '.2f')} in {PAIR} of the pair"
        )
        said.append(f"{trained} by {optimizer}: {what}")
    return Judged(
        Verdict.each(runs["holds"]),
        f"Of the largest margin, over {runs['draw'].nunique()} draws, {'; '.join(said)}.".replace(
            "linf", "l_inf"
        ),
        remark=(", for descent in place of the regularisation path" if theirs else "")
        + otherwise(Verdict.each(others["holds"]), percent(other)),
    )


def tabulate(frame: pd.DataFrame) -> Rows:
    """Show the median shares of each run, and how many draws are where they are said to go."""
    for (trained, optimizer), runs in harness.parts(ends(frame), "trained", "optimizer"):
        claim = CLAIMS[trained, optimizer]
        yield {
            "trained": trained,
            "by": optimizer,
            "said to go to": claim or f"KKT points in {PAIR}",
            **{f"in {norm}": percent(runs[norm].median(), 1) for norm in NORMS},
            "its KKT gap": "-" if trained == "W" else f"{runs['gap'].median():.3f}",
            "holds": f"{int(runs['holds'].sum())} of {len(runs)}",
        }


def draw(frame: pd.DataFrame) -> Figure:
    """Median shortfalls against steps: a panel a run, a line a norm."""
    figure, panels = subplots(
        (9.6, 5.4), 2, 3, sharex=True, sharey=True, grid="both", x="steps", y="1 - margin / maximum"
    )
    for ax, (trained, optimizer) in zip(panels.ravel(), CLAIMS, strict=True):
        runs = frame[(frame["trained"] == trained) & (frame["optimizer"] == optimizer)]
        for place, norm in enumerate(NORMS):
            median = runs[runs["norm"] == norm].groupby("step")["share"].median()
            own = norm == CLAIMS[trained, optimizer]
            shortfall = (1 - median).clip(1e-3, 1.5)
            look = look_of(place) | {"linewidth": 2.4 if own else 1.1}
            ax.plot(shortfall.index, shortfall, label=norm, **look)
        ax.set(xscale="log", yscale="log", title=f"{trained}, {optimizer}")
    return common_legend(figure, panels[1:, 1], len(NORMS))  # where none is thick


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
