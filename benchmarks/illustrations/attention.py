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

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from benchmarks.bench import Part, part
from benchmarks.fill import written
from benchmarks.illustrations.descent import Adam, Direction, Momentum
from benchmarks.summaries import log_spaced
from implicit_bias import MarginProblem, attention_margin, certify, diagnose, solve
from implicit_bias.base.validation import Array

COST = 0.5
NORMS = ("l2", "linf", "spectral", "nuclear")
# What is trained, by which steps, and the norm of W whose maximum margin is the limit; of Adam on
# K and Q none is known.
LIMITS: dict[tuple[str, str], str] = {
    ("W", "normalised descent"): "l2",
    ("W", "Adam"): "linf",
    ("W", "Muon"): "spectral",
    ("K and Q", "normalised descent"): "nuclear",
    ("K and Q", "Adam"): "",
    ("K and Q", "Muon"): "spectral",
}
# Norm of the pair in which the KKT gap is measured, and steps STEP_SIZES / sqrt(t).
PAIR_NORMS = {"normalised descent": "l2", "Adam": "linf", "Muon": "spectral"}
STEP_SIZES = {"normalised descent": 1.0, "Adam": 0.1, "Muon": 0.1}


def measure(quick: bool) -> Iterator[Part]:
    """Train on several draws."""
    sizes = {"samples": 6, "tokens": 5, "features": 8, "steps": 8_000}
    if quick:
        sizes = {"samples": 3, "tokens": 3, "features": 4, "steps": 300}
    for draw in range(2 if quick else 5):
        yield part(trained_all, draw=draw, **sizes)


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
    kept = set(log_spaced(steps, 20))
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


def trained_all(
    draw: int, samples: int, tokens: int, features: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each run, recorded step and norm: the share of the largest margin.

    The rows of a pair's last step have its KKT gap.
    """
    rng = np.random.default_rng(draw)
    X = rng.normal(size=(samples, tokens, features))
    query = rng.normal(size=(samples, features))
    best = rng.integers(tokens, size=samples)
    start = list(rng.normal(0.0, 0.1, size=(2, features, features)))
    problems = {norm: attention_margin(X, query, best, norm) for norm in NORMS}
    optima = {norm: solve(problem, tol=1e-7).certificate for norm, problem in problems.items()}
    plain = problems["l2"]
    for trained, optimizer in LIMITS:
        first = start[:1] if trained == "W" else start
        for t, parts in iterates(plain, first, optimizer, steps):
            coef = product(parts).T
            gap = np.nan
            if t == steps and trained != "W":
                gap = pair_gap(plain, parts, PAIR_NORMS[optimizer])
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


def pair_gap(problem: MarginProblem, parts: list[Array], norm: str) -> float:
    """KKT gap of K and Q in a norm of the pair."""
    inputs, labels = (problem.X, problem.gates), np.ones(len(problem.X))
    return diagnose(Pair(*parts), inputs, labels, norm=norm).gap


# --- what the page says --------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Shares at the end in the norm of the limit, over the draws; of Adam on K and Q the gap."""
    last = frame[frame["step"] == frame["steps"]]
    keys = {"normalised descent": "descent", "Adam": "adam", "Muon": "muon"}
    found: dict[str, Any] = {
        "certified": frame["certified"].max(),
        "draws": frame["draw"].nunique(),
    }
    rows = []
    for (trained, optimizer), limit in LIMITS.items():
        runs = last[(last["trained"] == trained) & (last["optimizer"] == optimizer)]
        gaps = runs.groupby("draw")["gap"].first()
        by_norm = runs.groupby("norm")["share"]
        values = by_norm.get_group(limit) if limit else gaps
        name = f"{'w' if trained == 'W' else 'pair'}_{keys[optimizer]}"
        found[f"{name}_low"] = values.min()
        found[f"{name}_high"] = values.max()
        cells = {
            "trained": trained,
            "by": optimizer,
            "limit": limit.replace("linf", "l_inf") or "-",
        }
        for norm in NORMS:
            share = written(by_norm.get_group(norm).median(), ".1%")
            cells[norm.replace("linf", "l_inf")] = share
        cells["KKT gap of the pair"] = written(gaps.median(), ".3f")
        rows.append(cells)
    return found | {"shares": pd.DataFrame(rows)}
