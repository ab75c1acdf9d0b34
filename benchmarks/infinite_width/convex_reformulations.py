"""Grading finite regularisation: certified gaps of answers to convex reformulations, against time.

Group lasso over gated features, as in Mishkin, Sahiner and Pilanci, "Fast Convex Optimization for
Two-Layer ReLU Networks" (2022), whose solver for it is scnn (on PyPI: pyscnn).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from itertools import chain

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots
from benchmarks.harness import Row, Rows, Verdict, rows_of
from benchmarks.infinite_width.clusters import clusters
from benchmarks.infinite_width.regularised import LossName, certify_regularised
from benchmarks.sizes import grid, sized
from implicit_bias import solve
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.problem import MarginProblem, gated_linear
from implicit_bias.report.style import BLUE, GREEN, VERMILION

SCNN, FISTA, PATH = "scnn (R-FISTA)", "FISTA", "our path over C"
LOOKS = {SCNN: (VERMILION, "^-"), FISTA: (BLUE, "o-"), PATH: (GREEN, "s-")}
# The rule of the verdict: a bound's rounding, and the gap of each method's last answer.
ROUNDING, SOLVED = 1e-9, 1e-2


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Data, gates, weights as shares of the one from which zeta = 0 is optimal, iterations."""

    k: int = 3
    samples: int = 128
    features: int = 15
    gates: int = 50
    weights: tuple[float, ...] = (0.2, 0.05)
    iterations: tuple[int, ...] = (10, 30, 100, 300, 1000, 3000)
    scnn_iterations: tuple[int, ...] = (10, 30, 100, 300)
    tolerances: tuple[float, ...] = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)


QUICK = Sizes(
    samples=24, features=4, gates=8, iterations=(10, 300), scnn_iterations=(10,), tolerances=(1e-4,)
)


@dataclass(frozen=True, eq=False)
class Answer:
    """What a method has after some work."""

    method: str
    work: float
    seconds: float
    coef: Array
    dual: Array | None = None


def settings(sizes: Sizes) -> list[Row]:
    """Every loss at every weight."""
    return grid(loss=("squared", "logistic", "hinge"), share=sizes.weights)


def rows(sizes: Sizes, loss: LossName, share: float) -> Rows:
    """One row an answer: its certified bounds, and the seconds that it took, grading aside."""
    X, y = clusters(sizes.k, sizes.samples, 0, n_features=sizes.features)
    directions = np.random.default_rng(0).normal(size=(sizes.gates, sizes.features))
    # Distinct gates, in the order in which scnn has them.
    gates, kept = np.unique((X @ directions.T > 0).astype(np.float64), axis=1, return_index=True)
    kept, gates = kept[gates.any(axis=0)], gates[:, gates.any(axis=0)]
    problem = MarginProblem(X, y, gates, np.arange(gates.shape[1]))
    slopes = 0.5 * np.ones(len(y)) if loss == "logistic" else np.ones(len(y))
    weight = share * float(problem.dual_norms(slopes).max())
    if loss == "hinge":
        answers = _on_path(problem, weight, sizes)
    else:
        answers = _by_fista(problem, loss, weight, sizes)
    if loss == "squared" and find_spec("scnn") is not None:
        answers = chain(answers, _by_scnn(problem, directions[kept], weight, sizes))
    for answer in answers:
        grade = certify_regularised(
            problem, answer.coef, loss=loss, weight=weight, dual=answer.dual
        )
        yield {
            "method": answer.method,
            "work": answer.work,
            "seconds": answer.seconds,
            "lower": grade.lower,
            "upper": grade.upper,
            "gap": grade.gap,
        }


def _by_fista(
    problem: MarginProblem, loss: LossName, weight: float, sizes: Sizes
) -> Iterator[Answer]:
    """Accelerated proximal gradient descent, restarted where it goes uphill."""
    X, y, gates = problem.X, problem.y, np.asarray(problem.gates)
    gram = (X @ X.T) * (gates @ gates.T)
    steepest = float(np.linalg.eigvalsh(gram)[-1]) * (0.25 if loss == "logistic" else 1.0)
    slopes = _slopes(loss, y)
    coef = previous = ahead = np.zeros((gates.shape[1], X.shape[1]))
    momentum, began, spent = 1.0, time.process_time(), 0.0
    for step in range(1, max(sizes.iterations) + 1):
        theta = slopes(gated_linear(X, gates, ahead))
        moved = ahead + gates.T @ (theta[:, None] * X) / steepest
        lengths = np.linalg.norm(moved, axis=1, keepdims=True)
        previous, coef = coef, moved * np.maximum(1 - weight / steepest / (lengths + 1e-300), 0)
        if float(np.sum((ahead - coef) * (coef - previous))) > 0:
            momentum = 1.0
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead = coef + (momentum - 1.0) / faster * (coef - previous)
        momentum = faster
        if step in sizes.iterations:
            spent += time.process_time() - began
            yield Answer(FISTA, step, spent, coef)
            began = time.process_time()


def _slopes(loss: LossName, y: Array) -> Callable[[Array], Array]:
    """Minus the derivative of the loss at outputs (N,)."""
    if loss == "squared":
        return lambda outputs: y - outputs
    return lambda outputs: y / (1.0 + np.exp(y * outputs))


def _on_path(problem: MarginProblem, weight: float, sizes: Sizes) -> Iterator[Answer]:
    """Follow a path that ends at C = 1 / weight, to each tolerance."""
    Cs = np.geomspace(0.1, 1.0, 5) / weight
    for tol in sizes.tolerances:
        began = time.process_time()
        last = solve(replace(problem, C=Cs[0]), tol=tol)
        for C in Cs[1:]:
            last = solve(replace(problem, C=C), tol=tol, start=last)
        seconds = time.process_time() - began
        yield Answer(PATH, tol, seconds, last.coef, problem.y * last.alpha)


def _by_scnn(
    problem: MarginProblem, directions: Array, weight: float, sizes: Sizes
) -> Iterator[Answer]:
    """Answers of scnn, each from the start. It divides the loss by the number of samples."""
    optimize, models, solvers, metrics, regularizers = (
        import_module(f"scnn.{name}")
        for name in ("optimize", "models", "solvers", "metrics", "regularizers")
    )
    logging.getLogger("scnn").setLevel(logging.ERROR)  # it warns at every limit of iterations
    X, y = problem.X, problem.y
    for limit in sizes.scnn_iterations:
        model = models.ConvexGatedReLU(directions.T.copy(), c=1, bias=False)
        began = time.process_time()
        found, _ = optimize.optimize_model(
            model,
            solvers.RFISTA(model, max_iters=limit, tol=1e-16),
            metrics.Metrics(),
            X,
            y,
            regularizer=regularizers.NeuronGL1(weight / len(y)),
            return_convex=True,
            unitize_data=False,  # else the penalty is that of other features
            dtype="float64",
        )
        seconds = time.process_time() - began
        if not np.array_equal(X @ found.G > 0, np.asarray(problem.gates) > 0):
            raise ArithmeticError("scnn has other gates, or in another order, than it was given")
        coef = np.asarray(found.parameters[0], dtype=np.float64)[0]
        yield Answer(SCNN, limit, seconds, coef)


def draw(frame: pd.DataFrame) -> Figure:
    """Certified gap against seconds, a panel a loss, a line a method and weight."""
    losses = list(dict.fromkeys(frame["loss"]))
    figure, (panels,) = subplots(
        (3.3 * len(losses), 3.3), 1, len(losses), sharex=True, sharey=True, squeeze=False
    )
    for ax, loss in zip(panels, losses, strict=True):
        of_loss = frame[frame["loss"] == loss]
        for (method, share), line in of_loss.groupby(["method", "share"]):
            colour, look = LOOKS[str(method)]
            heavy = share == frame["share"].max()
            ax.plot(
                line["seconds"],
                line["gap"].clip(lower=1e-16),
                look,
                color=colour,
                markersize=4,
                alpha=1.0 if heavy else 0.45,
                label=f"{method}, weight {share:g}",
            )
        ax.set(xscale="log", yscale="log", xlabel="seconds", title=f"{loss} loss")
        ax.grid(axis="y")
        ax.legend(fontsize=7.5, loc="lower left")
    panels[0].set_ylabel("certified gap")
    return figure


def ends(frame: pd.DataFrame) -> pd.DataFrame:
    """Last answer of each method to each program."""
    return frame.groupby(["loss", "share", "method"], sort=False).last().reset_index()


def contradictions(frame: pd.DataFrame) -> int:
    """Programs of which some lower bound is above some upper bound, whoever they are of."""
    bounds = frame.groupby(["loss", "share"]).agg({"lower": "max", "upper": "min"})
    return int((bounds["lower"] > bounds["upper"] * (1.0 + ROUNDING)).sum())


def tightness(frame: pd.DataFrame) -> pd.Series[float]:
    """Divide true excess by certified gap, for answers that are clearly not optimal."""
    best = frame.groupby(["loss", "share"])["upper"].transform("min")
    excess = (frame["upper"] - best) / frame["upper"]
    return (excess / frame["gap"])[frame["gap"] > 1e-6]


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    last = ends(frame)
    reached = last.groupby("method", sort=False)["gap"].max()
    words = ", ".join(f"{method} {gap:.1e}" for method, gap in reached.items())
    without = "" if SCNN in set(frame["method"]) else " scnn was not installed."
    if even := _at_equal_work(frame):
        without = f" {even}{without}"
    programs = frame.groupby(["loss", "share"]).ngroups
    return (
        f"Largest certified gap at the end: {words}. In {contradictions(frame)} of {programs} "
        "programs some lower bound exceeds some upper bound. The true excess of an answer over the "
        f"best one is {percent(tightness(frame).median())} of its certified gap in the median, and "
        f"{percent(tightness(frame).max())} at most.{without}"
    )


def _at_equal_work(frame: pd.DataFrame) -> str:
    """Compare the methods of iterations at the most of them that both were given."""
    both = frame[frame["method"].isin((FISTA, SCNN)) & (frame["loss"] == "squared")]
    table = both.pivot_table(index=["share", "work"], columns="method", values="gap").dropna()
    if SCNN not in table:
        return ""
    most = table.reset_index().groupby("share").tail(1)
    parts = (
        f"{row[SCNN]:.1e} of scnn against {row[FISTA]:.1e} of FISTA at a weight of {row['share']:g}"
        for row in rows_of(most)
    )
    work = most["work"].max()
    return f"At {work:,.0f} iterations each, squared loss, it is {' and '.join(parts)}."


def verdict(frame: pd.DataFrame, most: float = SOLVED) -> Verdict:
    """Judge the claim by the rule."""
    sound = contradictions(frame) == 0 and bool(frame["gap"].notna().all())
    return Verdict.of(sound and bool((ends(frame)["gap"] < most).all()), sound)


EXPERIMENT = sized(settings, rows, found, pd.DataFrame, verdict, draw, quick=QUICK)
