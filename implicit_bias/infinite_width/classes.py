r"""Maximum margin of infinitely wide two-layer networks with one output a class.

As `solve`, for labels 0 .. K - 1. A unit has a readout to all outputs, and the norm of a
unit is the product of the Euclidean norms of its two weight vectors: half of the sum of their
squares, at its smallest, so this is the norm that gradient descent on both layers is biased to.

Primal  minimise  int ||dnu(w)||_2 + C sum_n xi_n        nu: measures on the sphere, values in R^K
        subject to  f_{y_n}(x_n) - f_k(x_n) >= 1 - xi_n for all k != y_n,
                    f(x) = int sigma(<w, x>) dnu(w),  ||w|| = 1
Dual    maximise  sum_nk alpha_nk
        subject to  alpha >= 0,  sum_k alpha_nk <= C,  max_{||w|| = 1} ||h(w)||_2 <= 1
        with h(w) = sum_n a_n sigma(<w, x_n>),  a_n = sum_k alpha_nk (e_{y_n} - e_k)

The oracle maximises the length of a piecewise linear vector, exactly for inputs of rank 3 at most:
see `vector_arrangement`. Beyond, `sphere_search` bounds it from both sides. Over finitely many
directions the program is a `MarginProblem` with one group a direction, whose gates are the
activations and whose only input is the constant 1; any of the package's solvers solves it, and the
directions with ||h|| above its bound join.

If every unit had one output (the norm sum_k ||nu_k||) the oracle would fall into K of those of
`solve`; that norm is not the one of training and is not offered.

The oracle and the certificate are not in the paper of `solve`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import (
    Array,
    as_class_labels,
    as_finite,
    check_count,
    check_number,
)
from implicit_bias.bounds.certificate import Certificate, Conflict, Status, relative_gap
from implicit_bias.infinite_width.arrangement import EPS, Peaks, scattered
from implicit_bias.infinite_width.problem import (
    Activation,
    InfiniteWidthProblem,
    dual_bound,
    find_conflict,
    first_directions,
    gordan_ratio,
    progressed,
)
from implicit_bias.infinite_width.sphere_search import ascend_length, length_bound
from implicit_bias.infinite_width.vector_arrangement import KinkedVectors, maximise_length
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import solve as solve_gated
from implicit_bias.solvers.base import BoundsAt

# Most new directions of a round.
NEW_DIRECTIONS = 40
# Most neurons among which the fewest are looked for.
MOST_NEURONS = 400
# Angle in radians between the new directions of a round, at first and at least.
APART, NEAREST = 0.1, 1e-4
# Where ||h|| is this near to its bound, a neuron may be.
TOUCHES = 1e-4
# Rounds after which a direction without weight leaves the program, and what counts as no weight.
PATIENCE, NO_WEIGHT = 6, 1e-9
# Rounds without progress that end a solve.
STALLED = 6
# Without a network that separates, data are nearly inseparable where separators must be this much
# larger, relative to the inputs, than a single sample needs.
NEARLY = 1e7


@dataclass(frozen=True, eq=False)
class ClassesProblem:
    """Maximum margin of several classes under the variation norm; see the module's head.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels 0 .. K - 1, K >= 2.
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.

    Raises
    ------
    ValueError, TypeError
        As in `InfiniteWidthProblem`; labels that are no integers from 0, one class alone.
    """

    X: Array = field(repr=False)
    y: NDArray[np.int64] = field(repr=False)
    C: float = np.inf
    activation: Activation = "relu"
    n_classes: int = field(init=False, metadata={"saved": False})

    def __post_init__(self) -> None:
        X = as_finite(self.X, "X", 2)
        # K is given, so that labels 0 and 1 are classes, too; text has no largest label, and is
        # refused with all else that is no label.
        text = np.asarray(self.y).dtype.kind in "US"
        most = 0.0 if text else float(np.max(as_finite(self.y, "y", 1), initial=0.0))
        y, n_classes = as_class_labels(self.y, len(X), max(int(most) + 1, 2))
        if len(np.unique(y)) < 2:
            raise ValueError(
                f"y must have integers 0 .. K - 1 of two classes at least, got {np.unique(y)[:5]}"
            )
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", np.asarray(y, dtype=np.int64))
        object.__setattr__(self, "n_classes", n_classes)
        _ = self.units  # built now, so that it refuses bad inputs early

    @cached_property
    def units(self) -> InfiniteWidthProblem:
        """Inputs, their lines and the activation. Its labels, all 1, play no part."""
        return InfiniteWidthProblem(self.X, np.ones(len(self.X)), self.activation, self.C)

    @cached_property
    def labelled(self) -> MarginProblem:
        """The labels, for what inputs and gates, here all 1, play no part in."""
        ones, y = np.ones((len(self.y), 1)), self.y.astype(np.float64)
        return MarginProblem(ones, y, ones, np.arange(1), classes=self.n_classes)

    def decision(self, X: ArrayLike, directions: Array, coef: Array) -> Array:
        """f(x) of inputs X (n, D): shape (n, K)."""
        return self.units.decision(X, directions, coef)

    def margins(self, outputs: Array) -> Array:
        """Smallest f_{y_n} - f_k of outputs (N, K): shape (N,)."""
        return self.labelled.margins(outputs)

    def dual_function(self, alpha: Array) -> KinkedVectors:
        """Return h of dual variables (N, K), in the basis of the row space."""
        units, (a, b) = self.units, self.units.slopes
        weights = self.labelled.weights(alpha) * units.sizes[:, None]
        lengths = np.abs(units.lines.lengths)[:, None]
        kinks = 0.5 * (b - a) * units.lines.sums(weights * lengths)
        total = float(np.linalg.norm(weights, axis=1).sum())
        slack = units.slope * (units.unresolved + EPS * len(alpha)) * total
        return KinkedVectors(
            0.5 * (a + b) * (weights.T @ units.inputs), units.lines.normals, kinks, slack
        )


@dataclass(frozen=True, eq=False)
class ClassesSolution:
    """Result of `max_margin_of_classes`.

    Attributes
    ----------
    problem : ClassesProblem
        What was solved.
    directions : ndarray of shape (J, D)
        Unit vectors: first-layer weights of the optimal network.
    coef : ndarray of shape (J, K)
        Readouts; with the hard margin the smallest margin is 1.
    alpha : ndarray of shape (N, K)
        Dual variables, feasible: max ||h|| <= 1. Without separability Gordan's proof, of sum 1.
    status : Status
        Only OPTIMAL means that the gap is at most the tolerance.
    certificate : Certificate
        Bounds on the smallest norm; ``dual_norms`` holds max ||h||.
    history : tuple of BoundsAt
        Bounds after each round.
    exact : bool
        Whether the oracle was exact; if not, ``lower`` is the best provable bound we have.
    seconds : float
        Wall time.
    conflict : Conflict or None
        Why the data are not separable, where they are not.
    """

    problem: ClassesProblem = field(repr=False)
    directions: Array = field(repr=False)
    coef: Array = field(repr=False)
    alpha: Array = field(repr=False)
    status: Status
    certificate: Certificate
    history: tuple[BoundsAt, ...] = field(repr=False)
    exact: bool
    seconds: float
    conflict: Conflict | None = field(default=None, repr=False)

    @property
    def message(self) -> str:
        """What is proven, in a sentence."""
        if self.conflict is not None:
            return f"No network separates the data: {self.conflict.cause}"
        return self.status.explain(self.certificate) if self.exact else self.certificate.statement

    def decision(self, X: ArrayLike) -> Array:
        """f(x) of inputs X (n, D): shape (n, K)."""
        return self.problem.decision(X, self.directions, self.coef)


def max_margin_of_classes(
    X: ArrayLike,
    y: ArrayLike,
    C: float = np.inf,
    tol: float = 1e-6,
    *,
    activation: Activation = "relu",
    max_rounds: int = 100,
    random_state: int | np.random.Generator = 0,
) -> ClassesSolution:
    """Find the infinitely wide network with one output a class of the largest margin per norm.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; exact for rank 3 at most, such as points in the plane with a constant. Beyond, the
        bounds hold, but their gap stays open.
    y : array_like of shape (N,)
        Labels 0 .. K - 1, K >= 2. With K = 2 the optimum is that of
        `max_margin` over the root of 2.
    C : float
        Weight of the hinge loss; inf is the hard margin.
    tol : float
        Relative gap between the certified bounds at which to stop.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.
    max_rounds : int
        Limit on the rounds of column generation.
    random_state : int or Generator
        Seed of the local searches beyond rank 3.

    Returns
    -------
    ClassesSolution
        Read its ``status``; the bounds in its certificate hold in every case.

    Raises
    ------
    ValueError, TypeError
        As in `ClassesProblem`; a tolerance that is not positive, no round.

    Examples
    --------
    >>> from implicit_bias.infinite_width import max_margin_of_classes
    >>> solution = max_margin_of_classes([[1, -1], [1, 0], [1, 1]], [0, 1, 2])
    >>> solution.status.name, solution.coef.shape[1]
    ('OPTIMAL', 3)
    """
    problem = ClassesProblem(X, y, C, activation)  # type: ignore[arg-type]
    began = time.perf_counter()
    check_number(tol, "tol", "(0, inf)")
    check_count(max_rounds, "max_rounds")
    conflict = find_conflict_of_classes(problem)
    if conflict is not None:
        return ClassesSolution(
            problem,
            np.zeros((0, problem.X.shape[1])),
            np.zeros((0, problem.n_classes)),
            conflict.alpha,
            Status.NOT_SEPARABLE,
            Certificate(np.inf, np.inf, np.inf, np.nan, np.full(1, np.nan)),
            (),
            exact=True,
            seconds=time.perf_counter() - began,
            conflict=conflict,
        )
    generation = _Generation(problem, random_state)
    status = generation.run(tol, max_rounds)
    directions, coef = generation.fewest_neurons(tol)
    upper, min_margin = primal_bound(problem, directions, coef)
    if np.isinf(problem.C) and min_margin > 0:
        coef, min_margin = coef / min_margin, 1.0
    lower = generation.lower
    return ClassesSolution(
        problem,
        directions,
        coef,
        generation.alpha,
        status,
        Certificate(
            lower, upper, relative_gap(lower, upper), min_margin, np.array([generation.largest])
        ),
        tuple(generation.history),
        exact=generation.exact,
        seconds=time.perf_counter() - began,
    )


def find_conflict_of_classes(problem: ClassesProblem) -> Conflict | None:
    """Look for an exact proof that no network separates some two of the classes.

    None: separable, or inseparable for a reason that takes three classes, or too nearly so for a
    proof. A finite C forgives everything.
    """
    for one, other in combinations(np.unique(problem.y).tolist(), 2):
        some = np.flatnonzero((problem.y == one) | (problem.y == other))
        signs = np.where(problem.y[some] == one, 1.0, -1.0)
        found = find_conflict(
            InfiniteWidthProblem(problem.X[some], signs, problem.activation, problem.C)
        )
        if found is not None:
            alpha = np.zeros((len(problem.y), problem.n_classes))
            alpha[some, np.where(signs > 0, other, one)] = found.alpha
            named = f"of classes {one} and {other} (samples counted among theirs alone): "
            return Conflict(named + found.cause, some[found.samples], alpha)
    return None


def primal_bound(problem: ClassesProblem, directions: Array, coef: Array) -> tuple[float, float]:
    """Upper bound of a network on the smallest norm, and its smallest margin.

    Parameters
    ----------
    problem : ClassesProblem
        The problem.
    directions : ndarray of shape (J, D)
        First-layer weights, of any length.
    coef : ndarray of shape (J, K)
        Readouts.
    """
    units, terms = problem.units, len(coef) + problem.X.shape[1] + problem.n_classes
    norm = float(np.linalg.norm(coef, axis=1) @ np.linalg.norm(directions, axis=1))
    # A difference of two outputs, each rounded by its number of terms.
    rounding = 2.0 * EPS * (terms + 8) * units.slope * norm * units.sizes
    margins = problem.margins(units.activations(directions) @ coef)
    norm *= 1.0 + EPS * (terms + 8)
    if np.isfinite(problem.C):
        hinge = float(np.maximum(0.0, 1.0 - margins + rounding).sum())
        value = min(norm + problem.C * hinge, problem.C * len(margins))
        return value * (1.0 + EPS * (4 * len(margins) + terms)), float(margins.min())
    smallest = float((margins - rounding).min())
    return (norm / smallest if smallest > 0 else np.inf), float(margins.min())


class _Generation:
    """Column generation: the state of a solve. Directions are in the basis of the row space."""

    def __init__(self, problem: ClassesProblem, random_state: int | np.random.Generator) -> None:
        self.problem = problem
        self.exact = problem.units.rank <= 3
        self._rng = np.random.default_rng(random_state)
        self.directions = first_directions(problem.units)
        self.idle = np.zeros(len(self.directions), dtype=np.int64)
        self.history: list[BoundsAt] = []
        self.lower, self.upper = 0.0, np.inf
        self.alpha = np.zeros((len(problem.y), problem.n_classes))
        self.largest = np.nan
        self.primal = (np.zeros((0, problem.X.shape[1])), np.zeros((0, problem.n_classes)))

    def run(self, tol: float, max_rounds: int) -> Status:
        """Alternate between the program over few directions and the oracle."""
        if not self.problem.units.rank:  # all inputs are 0: a finite C pays for them all
            self._without_inputs()
            return Status.OPTIMAL
        stalled = 0
        try:
            for round_ in range(int(max_rounds)):
                before = (self.lower, self.upper)
                coef, alpha = self._solve_master(min(0.1 * tol, 1e-6), self.directions)
                self._improve_upper(coef)
                peaks = self._consult_oracle(alpha)
                self.history.append(BoundsAt(round_, self.lower, self.upper))
                if self.upper - self.lower <= tol * self.lower:
                    return Status.OPTIMAL
                stalled = 0 if progressed(before, (self.lower, self.upper)) else stalled + 1
                if stalled >= STALLED and not self.exact:
                    return Status.ITERATION_LIMIT
                if stalled >= STALLED:
                    ratio = gordan_ratio(self.problem.units, self.alpha.sum(axis=1))
                    nearly = np.isinf(self.upper) and ratio > NEARLY
                    return Status.NEARLY_INSEPARABLE if nearly else Status.NUMERICAL_TROUBLE
                self._join(coef, peaks, 0.5**stalled)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        return Status.ITERATION_LIMIT

    def fewest_neurons(self, tol: float) -> tuple[Array, Array]:
        """Reduce the network found to the neurons that the bound's tolerance needs.

        Near an optimal direction the program shares the weight between several. So their weighted
        means are tried, and the points where ||h|| of the best alpha touches its bound, in both
        cases those that are far apart first.
        """
        most = max(self.lower * (1.0 + tol), self.upper)
        found = [self._without_light(*self.primal, most)]
        if not (self.alpha.any() and np.isfinite(self.upper) and self.problem.units.rank):
            return found[0]
        peaks = self._peaks(self.problem.dual_function(self.alpha), 1.0 - TOUCHES)
        touching = peaks.points[peaks.values >= 1.0 - TOUCHES]
        inside = found[0][0] @ self.problem.units.basis
        weights = np.linalg.norm(found[0][1], axis=1)
        distances = np.geomspace(0.3, 1e-4, 12).tolist()
        for tries in (
            (_means(inside, weights, apart) for apart in distances),
            (scattered(touching, apart, MOST_NEURONS) for apart in distances),
        ):
            for some in tries:
                if not len(some):
                    break
                coef, _ = self._solve_master(0.03 * tol, some)
                network = (some @ self.problem.units.basis.T, coef)
                if primal_bound(self.problem, *network)[0] <= most:
                    found.append(self._without_light(*network, most))
                    break
        return min(found, key=lambda network: len(network[1]))

    def _without_light(self, directions: Array, coef: Array, most: float) -> tuple[Array, Array]:
        """Leave out the lightest neurons while the bound is at most ``most``."""
        weights = np.linalg.norm(coef, axis=1)
        for least in weights.max(initial=0.0) * np.geomspace(1e-2, 1e-9, 29):
            kept = weights > least
            if primal_bound(self.problem, directions[kept], coef[kept])[0] <= most:
                return directions[kept], coef[kept]
        return directions, coef

    def _solve_master(self, tol: float, directions: Array) -> tuple[Array, Array]:
        """Solve over unit directions (J, r): readouts (J, K) and dual variables (N, K)."""
        problem, units = self.problem, self.problem.units
        inputs = units.inputs * (units.sizes / units.scale)[:, None]
        master = MarginProblem(
            problem.labelled.X,
            problem.labelled.y,
            units.sigma(inputs @ directions.T),
            np.arange(len(directions)),
            C=problem.C * units.scale,
            classes=problem.n_classes,
        )
        # Bounds are proven here, so that an answer a little short of the tolerance is of use: the
        # automatic choice would try slower solvers for its last digits.
        found = solve_gated(master, "interior-point", tol=tol)
        return found.coef[:, :, 0].T / units.scale, found.alpha / units.scale

    def _improve_upper(self, coef: Array) -> None:
        used = np.linalg.norm(coef, axis=1) > 0
        network = (self.directions[used] @ self.problem.units.basis.T, coef[used])
        upper, _ = primal_bound(self.problem, *network)
        if upper < self.upper:
            self.upper, self.primal = upper, network

    def _consult_oracle(self, alpha: Array) -> Peaks:
        """Improve the lower bound; directions where ||h|| is above its bound, best first."""
        function = self.problem.dual_function(alpha)
        lengths = function.lengths(self.directions)
        floor = float(lengths.max()) * (1.0 + 1e-12)
        peaks = self._peaks(function, floor)
        lower = dual_bound(self.problem.units, alpha, peaks.upper)
        if lower > self.lower:
            total = float(alpha.sum())
            self.lower, self.alpha = lower, alpha * (lower / total)
            self.largest = peaks.upper * lower / total
        return peaks

    def _peaks(self, function: KinkedVectors, floor: float) -> Peaks:
        """Maxima of ||h||, all of them; beyond rank 3 those of a local search, and a bound."""
        if self.exact:
            return maximise_length(function, floor=floor)
        rank = function.rank
        starts = self._rng.normal(size=(100 * rank, rank))
        starts /= np.linalg.norm(starts, axis=1, keepdims=True)
        starts = np.vstack([starts, function.normals, -function.normals])
        points, values = ascend_length(function, starts)
        beyond = max(length_bound(function) - float(values.max()), 0.0)
        return Peaks.of(points, values, floor, beyond + function.slack)

    def _join(self, coef: Array, peaks: Peaks, nearer: float) -> None:
        """Add directions of large ||h||; drop those without weight for long."""
        weights = np.linalg.norm(coef, axis=1)
        used = weights > NO_WEIGHT * weights.max(initial=0.0)
        self.idle = np.where(used, 0, self.idle + 1)
        kept = self.idle < PATIENCE
        chosen = scattered(peaks.points, max(APART * nearer, NEAREST), NEW_DIRECTIONS)
        self.directions = np.vstack([self.directions[kept], chosen])
        self.idle = np.append(self.idle[kept], np.zeros(len(chosen), dtype=np.int64))

    def _without_inputs(self) -> None:
        """Where all inputs are 0 every network is 0, and C N is the optimum."""
        problem = self.problem
        self.lower = self.upper = problem.C * len(problem.y)
        self.alpha[np.arange(len(problem.y)), (problem.y + 1) % problem.n_classes] = problem.C
        self.largest = 0.0


def _means(points: Array, weights: Array, apart: float) -> Array:
    """Join unit vectors (k, r) around the heaviest ones: their weighted means, of length 1."""
    found: list[Array] = []
    left = np.argsort(-weights)
    while len(left):
        near = np.linalg.norm(points[left] - points[left[0]], axis=1) <= apart
        mean = weights[left[near]] @ points[left[near]]
        found.append(mean / np.linalg.norm(mean))
        left = left[~near]
    return np.array(found).reshape(len(found), points.shape[1])
