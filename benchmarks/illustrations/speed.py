r"""How fast different methods enlarge the l2 margin of a linear predictor, against time.

With z_n = y_n x_n scaled to length at most 1 and q = softmax(-Z w), -Z' q is the gradient of the
log of the exponential loss, the soft minimum of the margins.

==================  ===============================================================================
method              step t
==================  ===============================================================================
gradient descent    w += 2 Z' exp(-Z w) / N
normalised GD       w += Z' q: the gradient over the loss
momentum            g = t/(t+1) (g + Z' q);  w += g + Z' q   (Nesterov's acceleration of the dual)
averaged            w += Z' q / ||Z' q|| / sqrt(t);  measured at the mean of the iterates, the t-th
                    with weight t
train_to_limit      `implicit_bias.train_to_limit` of a linear network (accelerated)
SVM                 `implicit_bias.solve`, at several tolerances
==================  ===============================================================================

Sources: Soudry et al. (2018); Nacson et al. (2019) and Ji, Telgarsky (2021) for normalised steps;
Ji, Srebro, Telgarsky (2021) for the momentum; Wang, Abernethy et al. (2023) for averages.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
import pandas as pd
import scipy.special
import torch

from benchmarks.bench import Part, part
from benchmarks.illustrations.data import slope
from benchmarks.summaries import log_spaced
from implicit_bias import LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.base.validation import Array
from implicit_bias.datasets import load_mnist, split
from implicit_bias.training.history import HistoryPoint

COST = 1.5
TOLERANCES = (1e-1, 1e-2, 1e-4, 1e-6, 1e-8)
NETWORK, SVM = "train_to_limit", "SVM"


# Of y_n x_n (N, D): the weights (D,) after each step, from 0.
Method = Callable[[Array], Iterator[Array]]


def ascent(signed: Array, w: Array) -> Array:
    """Gradient (D,) of the soft minimum of margins Z w: minus that of the log exponential loss.

    Parameters
    ----------
    signed : ndarray of shape (N, D)
        Z, with rows y_n x_n.
    w : ndarray of shape (D,)
        A predictor of two classes.
    """
    return np.asarray(scipy.special.softmax(-signed @ w) @ signed)


def gradient_descent(Z: Array) -> Iterator[Array]:
    """Descend the exponential loss."""
    w = np.zeros(Z.shape[1])
    while True:
        w = w + 2.0 * np.exp(-Z @ w) @ Z / len(Z)
        yield w


def normalised(Z: Array) -> Iterator[Array]:
    """Descend the log of the loss, with step size 1."""
    w = np.zeros(Z.shape[1])
    while True:
        w = w + ascent(Z, w)
        yield w


def momentum(Z: Array) -> Iterator[Array]:
    """Descend with the momentum of Ji, Srebro and Telgarsky."""
    w, g = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    for t in count(1):
        descent = ascent(Z, w)
        g = t / (t + 1) * (g + descent)
        w = w + g + descent
        yield w


def averaged(Z: Array) -> Iterator[Array]:
    """Take normalised steps of size 1 / sqrt(t), measured at a weighted mean."""
    w, mean = np.zeros(Z.shape[1]), np.zeros(Z.shape[1])
    for t in count(1):
        descent = ascent(Z, w)
        w = w + descent / np.linalg.norm(descent) / t**0.5
        mean = mean + 2 / (t + 1) * (w - mean)
        yield mean


METHODS: dict[str, Method] = {
    "gradient descent": gradient_descent,
    "normalised GD": normalised,
    "momentum": momentum,
    "averaged": averaged,
}
# Exponent of the excess like t^a, by theory; that of gradient descent is 1 / log t.


def measure(quick: bool) -> Iterator[Part]:
    """Run every method on digits 0-4 against 5-9."""
    samples, steps = (50, 200) if quick else (500, 30_000)
    for method in (*METHODS, NETWORK, SVM):
        yield part(graded, method=method, samples=samples, steps=steps)


def posed(samples: int) -> tuple[Array, Array, Array]:
    """Return inputs (N, D), labels (N,), and y x over the largest ||x||."""
    training = split(load_mnist(), samples, 1).train
    signed = training.y[:, None] * training.X
    return training.X, training.y, signed / np.linalg.norm(training.X, axis=1).max()


def graded(method: str, samples: int, steps: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each point: seconds of the steps, and the excess over the certified optimum.

    The excess is that of the norm at margin 1.
    """
    X, y, Z = posed(samples)
    optimum = solve(max_margin(X, y), tol=1e-10).certificate
    if method == NETWORK:
        points = by_network(X, y, steps // 10)
    elif method == SVM:
        points = by_tolerance(X, y)
    else:
        points = taken(METHODS[method](Z), steps, 40)
    for step, clock, w in points:
        yield {
            "step": step,
            "clock": clock,
            "excess": excess(w, y * (X @ w), optimum.lower),
            "optimum": optimum.lower,
            "gap": optimum.gap,
        }


def excess(w: Array, margins: Array, optimum: float) -> float:
    """Excess of the norm of w at margin 1 over the optimum; inf where w does not separate."""
    smallest = float(margins.min())
    return float(np.linalg.norm(w) / smallest / optimum - 1) if smallest > 0 else np.inf


def taken(weights: Iterator[Array], steps: int, points: int) -> Iterator[tuple[int, float, Array]]:
    """Take steps, and yield some with their seconds, without those of the grading."""
    kept = set(log_spaced(steps, points))
    seconds = 0.0
    for t in range(1, steps + 1):
        started = time.perf_counter()
        w = next(weights)
        seconds += time.perf_counter() - started
        if t in kept:
            yield t, seconds, w


def by_network(X: Array, y: Array, steps: int) -> Iterator[tuple[int, float, Array]]:
    """Yield steps, seconds and weights of `train_to_limit`."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(X.shape[1], 1, bias=False, dtype=torch.float64)
    found: list[tuple[int, float, Array]] = []
    started = time.perf_counter()

    def keep(point: HistoryPoint) -> None:
        seconds = time.perf_counter() - started
        found.append((point.step, seconds, linear.weight.detach().numpy()[0].copy()))

    config = LimitConfig(steps=steps, record=10)
    train_to_limit(linear, X, y, config, on_point=keep)
    yield from found[1:]


def by_tolerance(X: Array, y: Array) -> Iterator[tuple[int, float, Array]]:
    """Yield iterations, seconds and weights of `solve`, a point for each tolerance."""
    for tol in TOLERANCES:
        started = time.perf_counter()
        solution = solve(max_margin(X, y), tol=tol)
        yield solution.stats.iterations, time.perf_counter() - started, solution.coef[0]


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Excess of each method at the end, and the exponents of theory beside those measured."""
    keys = {"momentum": "momentum", "normalised GD": "normalised", NETWORK: "limit", SVM: "svm"}
    found: dict[str, Any] = {}
    for method, key in keys.items():
        run = frame[frame["method"] == method]
        found[key] = run["excess"].iloc[-1]
        # Close to the optimum the excess is rounding: what is below ten gaps is left out.
        above = run[run["excess"] > 10 * run["gap"]]
        found[f"slope_{key}"] = slope(above["step"], above["excess"])
    found["separates"] = bool(
        np.isfinite(frame.loc[frame["method"] == "gradient descent", "excess"]).any()
    )
    return found
