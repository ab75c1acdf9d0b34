"""How exactly the maximum is known: bounds, gaps, times and statuses of all kinds of data.

A set is solved to a relative gap of 1e-6. Beyond rank 5 the oracle is not exact: the upper bound is
the best network that column generation with a local search finds, the lower one the best that a
relaxation proves. Several classes have one output each. That no search finds a neuron above the
bound is a test, `tests/infinite_width/test_attack.py`.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.bench import Part, part
from benchmarks.infinite_width.clusters import clusters
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status
from implicit_bias.infinite_width import Activation, InfiniteWidthSolution, max_margin

COST = 1.5
RANDOM, PUBLISHED, HIGHER, OTHER, CLASSES, DEGENERATE = (
    "random points",
    "published clusters",
    "higher rank",
    "other activations and C",
    "several classes",
    "degenerate",
)
# Beyond this rank there are bounds alone.
EXACT_RANK = 5


@dataclass(frozen=True, eq=False)
class Case:
    """Data, what is asked of them, and the only true answer, if there is one."""

    kind: str
    name: str
    X: Array
    y: Array
    activation: Activation = "relu"
    C: float = np.inf
    expected: Status | None = Status.OPTIMAL
    rounds: int = 300

    def solution(self) -> InfiniteWidthSolution:
        """Solve it."""
        return max_margin(
            self.X, self.y, self.C, activation=self.activation, max_rounds=self.rounds
        )


def measure(quick: bool) -> Iterator[Part]:
    """Solve every set once."""
    for case in cases(quick):
        yield part(solved, kind=case.kind, name=case.name, quick=quick)


def cases(quick: bool) -> list[Case]:
    """List all data sets."""
    found = []
    counts = (10, 20) if quick else range(20, 201, 20)
    for seed, n in enumerate(counts):
        found.append(Case(RANDOM, f"{n} samples", *random_points(n, seed)))
    for n in (20, 40) if quick else (100, 500):
        found.append(Case(PUBLISHED, f"4 × 4, {n} samples", *clusters(4, n, 0)))
    higher = [(4, 32), (4, 64), (5, 16), (6, 64), (15, 64)]
    if quick:
        higher = [(4, 16), (5, 8), (6, 16), (15, 16)]
    for rank, n in higher:
        data, name = clusters(3, n, 0, n_features=rank), f"rank {rank}, {n} samples"
        if rank <= EXACT_RANK:
            found.append(Case(HIGHER, name, *data))
        else:
            found.append(Case(HIGHER, name, *data, expected=None, rounds=30))
    n = max(counts) // 2
    X, y = random_points(n, 0)
    activations: tuple[Activation, ...] = ("leaky relu", "absolute value", "linear plus relu")
    found += [Case(OTHER, str(activation), X, y, activation) for activation in activations]
    found += [Case(OTHER, f"C = {C:g}", X, y, C=C) for C in (0.1, 10.0)]
    for classes in (3,) if quick else (3, 4, 5):
        data, name = sectors(n, classes, seed=classes), f"{classes} classes, {n} samples"
        found.append(Case(CLASSES, name, *data))
    return found + degenerate()


def random_points(n: int, seed: int) -> tuple[Array, Array]:
    """Draw points in the plane with a constant; labels of a curve, a tenth of them flipped."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    y = np.where(np.sin(3 * X[:, 1]) > X[:, 2], 1.0, -1.0)
    y[rng.uniform(size=n) < 0.1] *= -1
    return X, y


def sectors(n: int, n_classes: int, seed: int) -> tuple[Array, Array]:
    """Draw points in the plane with a constant; classes of spiral sectors, a tenth redrawn."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([np.ones(n), rng.normal(size=(n, 2))])
    turns = np.arctan2(X[:, 2], X[:, 1]) / (2.0 * np.pi) + 0.15 * np.hypot(X[:, 1], X[:, 2])
    y = np.floor(n_classes * np.mod(turns, 1.0)) % n_classes
    redrawn = rng.uniform(size=n) < 0.1
    y[redrawn] = rng.integers(0, n_classes, redrawn.sum())
    return X, y


def degenerate() -> list[Case]:
    """List sets with repeated, collinear and antipodal points, and inseparable ones."""
    grid = np.array([[1.0, i, j] for i in range(5) for j in range(5)])
    chess = np.where((grid[:, 1] + grid[:, 2]) % 2, 1.0, -1.0)
    line = np.column_stack([np.ones(8), np.arange(8.0), 2.0 * np.arange(8.0)])
    signs = np.where(np.arange(8) % 2, 1.0, -1.0)
    X, y = random_points(10, 0)
    twice, antipodal = np.vstack([X, X]), np.vstack([X[:, 1:], -X[:, 1:]])
    opposite = np.append(y, -y[0])
    optimal, none = Status.OPTIMAL, Status.NOT_SEPARABLE
    sets: list[tuple[str, Array, Array, Status | None]] = [
        ("grid with the labels of a chessboard", grid, chess, optimal),
        ("every point twice", twice, np.append(y, y), optimal),
        ("points on one line", line, signs, optimal),
        ("antipodal points of one label", antipodal, np.append(y, y), optimal),
        ("two equal points of opposite labels", np.vstack([X, X[:1]]), opposite, none),
        ("a point twice as far of the opposite label", np.vstack([X, 2 * X[:1]]), opposite, none),
        ("an input that is 0", np.vstack([X, 0 * X[:1]]), np.append(y, 1.0), none),
    ]
    for angle in (1e-6, 1e-9, 1e-12):
        pair = np.array([[1.0, 0.3], [1.0, 0.3 + angle], [1.0, 0.3 + 2 * angle]])
        sets.append((f"opposite labels {angle:g} apart", pair, np.array([1.0, -1.0, 1.0]), None))
    return [Case(DEGENERATE, name, X, y, expected=expected) for name, X, y, expected in sets]


def solved(kind: str, name: str, quick: bool) -> Iterator[dict[str, Any]]:
    """Yield one row: what was found, and the processor's time that it took."""
    case = next(case for case in cases(quick) if (case.kind, case.name) == (kind, name))
    started = time.process_time()
    found = case.solution()
    solve_seconds = time.process_time() - started
    yield {
        "samples": len(case.y),
        "rank": found.problem.rank,
        "status": found.status.label,
        "expected": "" if case.expected is None else case.expected.label,
        "exact": found.exact,
        "lower": found.certificate.lower,
        "upper": found.certificate.upper,
        "gap": found.certificate.gap,
        "neurons": len(found.coef),
        "solve_seconds": solve_seconds,
    }


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Largest gaps, times, statuses, and how far bounds are apart beyond rank 5."""
    random = frame[frame["kind"] == RANDOM]
    published = frame[frame["kind"] == PUBLISHED].sort_values("samples")
    classes = frame[frame["kind"] == CLASSES]
    asked = frame[frame["expected"] != ""]
    apart = frame[frame["rank"] > EXACT_RANK]
    found = {
        "random_sets": len(random),
        "random_gap": random["gap"].max(),
        "few_samples": published["samples"].iloc[0],
        "few_seconds": published["solve_seconds"].iloc[0],
        "many_samples": published["samples"].iloc[-1],
        "many_seconds": published["solve_seconds"].iloc[-1],
        "right": (asked["status"] == asked["expected"]).sum(),
        "asked": len(asked),
        "classes_gap": classes["gap"].max(),
        "classes_seconds": classes["solve_seconds"].max(),
    }
    for rank, ratio in (apart["upper"] / apart["lower"]).groupby(apart["rank"]):
        found[f"ratio_{rank}"] = ratio.max()
    return found
