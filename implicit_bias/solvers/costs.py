"""How long a method would take, by its operations: what "auto" chooses by.

An estimate is a sum of counts times constants: the seconds of a whole solve to a gap of 1e-6, with
all its steps or rounds. What is counted:

======  ==========================================================================================
N       samples
R       rows: the samples of two classes, or the pairs of a sample and a rival of more
K, E    classes, and pairs of these
r       coordinates of the classes: 1 of two classes, K for norms of entries, else K - 1
M'      gates, rotated where the norm is a sum of Euclidean norms
F       features of a sample: M' times its inputs
Q       blocks of a matrix of the features, each a sum of N squares: K - 1 with a hard margin, a
        sample's own class with each other one; E with a soft one
W       rows of a working set: 500, 1.5 for each of the r F features (or samples, if these are
        fewer) and 0.6 R with a soft margin; at most R
======  ==========================================================================================

============  ==================================================================================
features      1, blocks K or E, squares Q N F^2, cubes (r F)^3, products N F r, rows R
rows          1, masks R^2 M' r, cubes R^3, products R F r
working-set   1, an interior point on W rows, products R F r, rows R
one-group     1, masks R^2, products R^2 F, supports R W^2
highs         1, entries R F r, pivots R F r min(R, F r)
============  ==================================================================================

The constants were fitted to the processor's time of all methods on 640 problems, on one core of an
AMD EPYC (about 40 billion operations a second): drawn tables of 100 to 60,000 rows, 5 to 500
columns and 2 to 15 classes, apart or noisy, and MNIST, hard and soft, under l2 with gates or
without, l1, l_inf, the spectral and the nuclear norm. The fit had one lower limit: a working set
costs at least 0.8 of an interior point on W rows with a soft margin, 0.6 with a hard margin, and
2.4 with a hard margin under norms of singular values. In the median an estimate is wrong by a
factor of 1.2 to 1.3 for an interior point, 1.5 for a working set and 2 for HiGHS. On nine problems
of ten the method with the smallest estimate takes at most 1.25 times as long as the fastest one.
Only ratios of estimates matter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from implicit_bias import norms
from implicit_bias.base.threads import SMALL_ORDER
from implicit_bias.base.validation import UnsuitableError
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.rotations import feature_shape

Method = Literal["features", "rows", "working-set", "one-group", "highs"]
# What a norm is made of: sums of l2; l_p, or sums of it over groups; nuclear and spectral norms of
# many classes; what no method of this package takes.
Kind = Literal["euclidean", "entries", "matrices", "other"]


@dataclass(frozen=True)
class Sizes:
    """What operations are counted by; see the module's head.

    Attributes
    ----------
    rows, samples : int
        R and N.
    rivals : int
        Of a sample: all other classes.
    coordinates : int
        r.
    gates : int
        M'.
    features : int
        F.
    """

    rows: int
    samples: int
    rivals: int
    coordinates: int
    gates: int
    features: int

    @classmethod
    def of(cls, problem: MarginProblem) -> Sizes:
        """Return the sizes of a problem."""
        kind = kind_of(problem)
        K = problem.norm_shape[0]  # 1 of two classes
        if kind == "euclidean":
            gates, inputs = feature_shape(problem)
        else:
            gates, inputs = problem.features.shape
        rivals = max(K - 1, 1)
        return cls(
            rows=len(problem.constraints),
            samples=problem.n_samples,
            rivals=rivals,
            coordinates=K if kind == "entries" else rivals,
            gates=max(gates, 1),
            features=max(gates * inputs, 1),
        )

    @property
    def pairs(self) -> int:
        """E, pairs of classes."""
        return self.rivals * (self.rivals + 1) // 2

    @property
    def order(self) -> int:
        """Order of a system of the features, r F."""
        return self.coordinates * self.features

    @property
    def too_many_features(self) -> bool:
        """Whether a system of the features is not considered: its matrix alone takes 3 GiB."""
        return self.order > 20_000

    @property
    def rows_are_dependent(self) -> bool:
        """Whether a Gram matrix of many classes' rows is far from full rank, r F at most.

        It has directions of rounding errors alone, so that a method needs two to four times the
        steps that the constants were fitted to. On 30 tables of 3 and 5 classes, from ten rows a
        feature on, the interior point in the features took half of the time in the median.
        """
        many_classes = self.rows > self.samples
        return many_classes and self.rows >= 10 * self.order and not self.too_many_features

    def working(self, *, hard: bool) -> Sizes:
        """Return the sizes of a solve on a working set of W rows; see the module's head."""
        W = 500 + 1.5 * min(self.order, self.samples)
        if not hard:
            W += 0.6 * self.rows
        return self.with_rows(min(self.rows, int(W)))

    def with_rows(self, count: int) -> Sizes:
        """Return the sizes of a solve on this many of the rows."""
        return replace(self, rows=count, samples=min(self.samples, count))


def step_order(problem: MarginProblem, rows: int) -> int:
    """Return the order of a step's matrix on some rows: of the smaller of both systems."""
    at_most = min(rows, math.prod(problem.norm_shape))
    if at_most < SMALL_ORDER:
        return at_most
    # Features are counted where merging them may matter.
    return min(rows, Sizes.of(problem).order)


def kind_of(problem: MarginProblem) -> Kind:
    """Return what a problem's norm is made of, which selects the constants in `SECONDS`."""
    norm = problem.norm
    if problem.has_group_norm:
        return "euclidean"
    if norms.entries_of(norm) is not None:
        return "entries"
    partition = problem.partition
    if partition is not None and partition.inner == "l2":
        return "euclidean"
    if norms.is_of_singular_values(norm):
        return "matrices"
    return "other"


# Seconds per operation of each method and kind of norm: first with a soft margin, then with a hard
# one. The operations are those of the second table of the module's head, in its order.
SECONDS: dict[tuple[Method, Kind], tuple[list[float], list[float]]] = {
    ("features", "euclidean"): (
        [1.8e-02, 2.7e-03, 6.5e-10, 7.8e-11, 1.3e-07, 1.3e-05],
        [0.0, 9.2e-03, 1.7e-10, 2.4e-10, 2.2e-07, 6.4e-06],
    ),
    ("features", "entries"): (
        [2.3e-02, 1.1e-03, 5.8e-10, 4.2e-10, 2.7e-07, 6.4e-06],
        [7.4e-03, 5.2e-03, 7.2e-10, 5.3e-10, 7.0e-08, 1.7e-05],
    ),
    ("features", "matrices"): (
        [3.7e-02, 3.5e-03, 8.2e-10, 4.2e-11, 3.1e-07, 1.3e-05],
        [5.2e-03, 5.7e-03, 1.5e-09, 4.6e-11, 0.0, 3.3e-05],
    ),
    ("rows", "euclidean"): ([2.1e-02, 1.6e-09, 2.0e-10, 4.8e-09], [2.3e-02, 0.0, 8.4e-11, 5.4e-09]),
    ("rows", "entries"): ([3.4e-02, 0.0, 4.3e-10, 3.3e-07], [3.8e-02, 0.0, 7.1e-10, 3.7e-07]),
    ("rows", "matrices"): (
        [5.3e-02, 3.2e-12, 3.0e-10, 4.2e-08],
        [4.0e-02, 4.7e-10, 2.9e-10, 1.0e-08],
    ),
    ("working-set", "euclidean"): (
        [1.2e-02, 8.0e-01, 0.0, 1.1e-04],
        [2.1e-02, 6.0e-01, 3.1e-09, 1.1e-05],
    ),
    ("working-set", "entries"): (
        [3.1e-02, 8.0e-01, 5.7e-12, 2.0e-04],
        [5.8e-02, 6.0e-01, 0.0, 2.8e-05],
    ),
    ("working-set", "matrices"): ([7.5e-03, 8.0e-01, 0.0, 3.2e-04], [0.0, 2.4e00, 0.0, 1.4e-05]),
    # With a soft margin the exchanges often make no headway: at equal times others are to be taken.
    ("one-group", "euclidean"): ([3.0e-02, 3.1e-09, 1.0e-10, 0.0], [7.0e-03, 3.0e-08, 0.0, 0.0]),
    ("highs", "entries"): ([3.8e-03, 4.2e-06, 0.0], [6.0e-03, 1.5e-06, 0.0]),
}


def estimates(problem: MarginProblem) -> dict[Method, float]:
    """Return the estimated seconds of each method that is worth a try on a problem."""
    sizes = Sizes.of(problem)
    kind = kind_of(problem)
    methods: list[Method] = ["features", "rows", "working-set"]
    if sizes.too_many_features:
        methods.remove("features")
    if isinstance(problem.norm, norms.L1 | norms.LInf):
        methods.append("highs")
    # The exchanges on one Gram matrix need a box for each row. With many classes and a soft margin
    # the pairs of a sample share one.
    own_boxes = problem.hard_margin or problem.classes is None
    if kind == "euclidean" and problem.n_groups == 1 and own_boxes:
        methods.append("one-group")
    if kind == "euclidean" and sizes.rows_are_dependent:
        methods.remove("rows")
        if "one-group" in methods:
            methods.remove("one-group")
        # A working set of all rows is an interior point on these rows.
        if sizes.working(hard=problem.hard_margin).rows == sizes.rows:
            methods.remove("working-set")
    return {name: _seconds(name, sizes, kind, problem.hard_margin) for name in methods}


def of_interior_point(
    sizes: Sizes, kind: Kind, system: Literal["features", "rows"] | None = None, *, hard: bool
) -> float:
    """Return the seconds that an interior point would take, by default in the cheaper space."""
    if system is None:
        system = cheaper_system(sizes, kind, hard=hard)
    return _seconds(system, sizes, kind, hard)


def cheaper_system(sizes: Sizes, kind: Kind, *, hard: bool) -> Literal["features", "rows"]:
    """Return in which space an interior point takes less time on some rows."""
    if sizes.too_many_features:
        return "rows"
    if kind == "euclidean" and sizes.rows_are_dependent:
        return "features"
    in_features = _seconds("features", sizes, kind, hard)
    in_rows = _seconds("rows", sizes, kind, hard)
    return "features" if in_features < in_rows else "rows"


def _seconds(method: Method, sizes: Sizes, kind: Kind, hard: bool) -> float:
    """Estimate the time of a method; see the module's head.

    Raises
    ------
    UnsuitableError
        A norm that no method takes.
    """
    if kind == "other":
        raise UnsuitableError(
            "methods of this package take sums of Euclidean norms, l_p, nuclear and spectral "
            "norms: choose solver='auto' for another norm"
        )
    soft_constants, hard_constants = SECONDS[method, kind]
    constants = soft_constants
    if hard:
        constants = hard_constants
    return float(np.dot(_counts(method, sizes, kind, hard), constants))


def _counts(method: Method, sizes: Sizes, kind: Kind, hard: bool) -> list[float]:
    """Return what a method's constants are multiplied by, in the order of the module's head."""
    R = sizes.rows
    N = sizes.samples
    F = sizes.features
    r = sizes.coordinates
    if method == "features":
        blocks = sizes.pairs
        squared = sizes.pairs
        if hard:
            blocks = sizes.rivals + 1
            squared = sizes.rivals
        return [1, blocks, squared * N * F**2, (r * F) ** 3, N * F * r, R]
    if method == "rows":
        return [1, R**2 * sizes.gates * r, R**3, R * F * r]
    working = sizes.working(hard=hard)
    if method == "working-set":
        return [1, of_interior_point(working, kind, hard=hard), R * F * r, R]
    if method == "one-group":
        return [1, R**2, R**2 * F, R * working.rows**2]
    return [1, R * F * r, R * F * r * min(R, F * r)]  # highs
