"""How long a method would take, by its operations: what "auto" chooses by.

An estimate is a sum of counts times constants: seconds of a whole solve to a gap of 1e-6, with all
its steps or rounds. R rows (samples of two classes, pairs of a sample and a rival of more) of N
samples touch E pairs of classes; a sample has F features, M' rotated gates times inputs, in each of
r coordinates of the classes (1 of two classes, or K - 1). A working set is taken to hold at most
W = min(R, 500 + 1.5 r F) rows, and a Gram matrix of one group is of all rows.

============  ==================================================================================
features      1, E, squares E N F^2, cubes (r F)^3, products N F r, rows R
rows          1, masks R^2 M' r, cubes R^3, products R F r
working-set   1, masks W^2 M' r, cubes W^3, products R F r, rows R
one-group     1, masks R^2, products R^2 F, supports R W^2
highs         1, entries R F r, pivots R F r min(R, F r)
============  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from implicit_bias import norms
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.solvers.scaled_problem import Rotations

Method = Literal["features", "rows", "working-set", "one-group", "highs"]
Kind = Literal["euclidean", "entries", "matrices"]
# Where a system of the features would be of a larger order, it is not thought of.
MOST_FEATURES = 20_000
# A working set has this many rows, and so many for each feature.
FIRST_ROWS, ROWS_A_FEATURE = 500, 1.5


@dataclass(frozen=True)
class Sizes:
    """What operations are counted by; see the module's head.

    Attributes
    ----------
    rows, samples : int
        R and N.
    pairs : int
        E, pairs of classes.
    coordinates : int
        r.
    gates : int
        M'.
    features : int
        F.
    """

    rows: int
    samples: int
    pairs: int
    coordinates: int
    gates: int
    features: int

    @classmethod
    def of(cls, problem: MarginProblem) -> Sizes:
        """Count those of a problem."""
        K = problem.classes or 1
        if kind_of(problem) == "euclidean":
            features, groups = euclidean_form(problem)
            gates = Rotations.of(features.sparse_gates, groups).n_rotated
            varying = (features.X != features.X[0]).any(axis=0)
            inputs = int(varying.sum()) + bool(features.X[0][~varying].any())
        else:
            gates, inputs = problem.features.shape
        return cls(
            rows=len(problem.constraints),
            samples=problem.n_samples,
            pairs=max(K * (K - 1) // 2, 1),
            coordinates=max(K - 1, 1),
            gates=max(gates, 1),
            features=max(gates * inputs, 1),
        )

    @property
    def order(self) -> int:
        """R F, of a system of the features."""
        return self.coordinates * self.features

    @property
    def working(self) -> float:
        """W, rows of a working set."""
        return min(self.rows, FIRST_ROWS + ROWS_A_FEATURE * self.order)

    def counts(self, method: Method) -> list[float]:
        """Return the operations of a method, in the order of the module's head."""
        R, N, F, r, W = self.rows, self.samples, self.features, self.coordinates, self.working
        match method:
            case "features":
                return [1, self.pairs, self.pairs * N * F**2, self.order**3, N * self.order, R]
            case "rows":
                return [1, R**2 * self.gates * r, R**3, R * self.order]
            case "working-set":
                return [1, W**2 * self.gates * r, W**3, R * self.order, R]
            case "one-group":
                return [1, R**2, R**2 * F, R * W**2]
            case "highs":
                return [1, R * self.order, R * self.order * min(R, self.order)]

    def of_rows(self, count: int) -> Sizes:
        """Return those of a solve on some of the rows."""
        return replace(self, rows=count, samples=min(self.samples, count))


def kind_of(problem: MarginProblem) -> Kind:
    """Return which constants are those of a problem's norm."""
    if norms.entries_of(problem.norm) is not None:
        return "entries"
    if problem.classes is not None and (
        problem.norm in norms.BALLS or norms.nuclear_groups(problem.norm) is not None
    ):
        return "matrices"
    return "euclidean"


# Seconds per operation, of each method and kind of norm, with a soft and with a hard margin.
SECONDS: dict[tuple[Method, Kind], tuple[list[float], list[float]]] = {
    ("features", "euclidean"): (
        [8.0e-03, 1.2e-02, 5.3e-10, 9.7e-11, 1.3e-07, 1.4e-05],
        [1.5e-02, 1.3e-03, 4.0e-10, 1.3e-10, 4.8e-08, 1.5e-05],
    ),
    ("features", "entries"): (
        [2.2e-02, 5.1e-03, 5.6e-10, 1.2e-09, 1.7e-07, 9.6e-06],
        [1.6e-02, 4.2e-03, 3.2e-13, 1.0e-09, 2.2e-07, 1.7e-05],
    ),
    ("features", "matrices"): (
        [3.9e-02, 3.3e-03, 0.0, 7.5e-11, 5.7e-07, 1.3e-05],
        [1.3e-02, 9.7e-03, 3.5e-10, 4.5e-11, 1.4e-07, 6.9e-06],
    ),
    ("rows", "euclidean"): (
        [2.2e-02, 3.7e-09, 1.8e-10, 4.3e-09],
        [1.7e-02, 1.1e-08, 5.7e-11, 2.0e-08],
    ),
    ("rows", "entries"): ([5.4e-02, 0.0, 4.6e-10, 1.9e-07], [3.6e-02, 2.4e-08, 7.1e-10, 1.4e-07]),
    ("rows", "matrices"): ([7.0e-02, 2.2e-08, 2.8e-10, 0.0], [4.2e-02, 1.9e-08, 1.7e-10, 2.6e-08]),
    ("working-set", "euclidean"): (
        [2.9e-02, 2.4e-09, 1.6e-11, 4.0e-09, 1.2e-04],
        [3.3e-02, 4.1e-10, 0.0, 2.5e-08, 1.4e-05],
    ),
    ("working-set", "entries"): (
        [7.4e-02, 0.0, 0.0, 8.6e-08, 2.4e-04],
        [7.5e-02, 0.0, 0.0, 7.5e-08, 2.3e-05],
    ),
    ("working-set", "matrices"): (
        [7.9e-02, 0.0, 0.0, 5.3e-09, 3.2e-04],
        [1.0e-01, 0.0, 1.6e-12, 1.9e-08, 7.5e-06],
    ),
    ("one-group", "euclidean"): ([2.7e-02, 0.0, 3.1e-10, 0.0], [1.0e-02, 2.8e-08, 0.0, 0.0]),
    ("highs", "entries"): ([3.6e-01, 0.0, 3.1e-09], [1.0e-02, 1.2e-06, 3.8e-09]),
}


def estimates(problem: MarginProblem) -> dict[Method, float]:
    """Return the seconds that each method would take which takes a problem."""
    sizes, kind = Sizes.of(problem), kind_of(problem)
    methods: list[Method] = ["features", "rows", "working-set"]
    if sizes.order > MOST_FEATURES:
        methods.remove("features")
    if isinstance(problem.norm, norms.L1 | norms.LInf):
        methods.append("highs")
    if kind == "euclidean" and problem.n_groups == 1 and _on_one_gram_matrix(problem):
        methods.append("one-group")
    hard = problem.hard_margin
    return {name: float(np.dot(sizes.counts(name), SECONDS[name, kind][hard])) for name in methods}


def cheaper_system(sizes: Sizes, kind: Kind, *, hard: bool) -> Literal["features", "rows"]:
    """Return in which space an interior point takes less time on some rows."""
    if sizes.order > MOST_FEATURES:
        return "rows"
    features, rows = (
        float(np.dot(sizes.counts("features"), SECONDS["features", kind][hard])),
        float(np.dot(sizes.counts("rows"), SECONDS["rows", kind][hard])),
    )
    return "features" if features < rows else "rows"


def _on_one_gram_matrix(problem: MarginProblem) -> bool:
    """Whether "one-group" takes a problem: a box of several rows it does not."""
    return problem.hard_margin or problem.classes is None
