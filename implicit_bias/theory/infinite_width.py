r"""Maximum margin of infinitely wide two-layer networks, with a certificate.

Where gradient descent goes that trains both layers of an infinitely wide ReLU network with the
logistic loss (Chizat and Bach 2020): to the largest margin under the variation norm.

Primal  minimise  ||nu|| + C sum_n xi_n          (C = inf: xi = 0, the hard margin)
        subject to  y_n int sigma(<w, x_n>) dnu(w) >= 1 - xi_n,  ||w|| = 1
Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,  max_{||w|| = 1} |h(w)| <= 1
        with h(w) = sum_n alpha_n y_n sigma(<w, x_n>)

==========  =======  =============================================================================
X           (N, D)   inputs, of rank r; append a constant 1 where units should have an offset
y           (N,)     labels, -1 or +1
sigma       (a, b)   activation: slope a below 0, slope b above 0; (0, 1) is the ReLU
directions  (J, D)   w_j on the unit sphere, where the optimal measure nu has its atoms
coef        (J,)     the atoms' weights: f(x) = sum_j coef_j sigma(<w_j, x>), ||nu|| = sum |coef|
alpha       (N,)     dual variables
==========  =======  =============================================================================

**Oracle.** sigma(t) = (a + b)/2 t + (b - a)/2 |t|, so h is of the form of `arrangement`, one
hyperplane for each line that holds samples with alpha > 0, and its maximum is exact: for rank 3 in
O(S^2) for S such lines, in O(S^(r - 1)) for rank r. An orthonormal basis of the row space of X
changes variables exactly: a direction's part outside of it adds length and nothing else.

**Column generation.** A linear program over finitely many directions gives coef and alpha; the
oracle gives the directions with |h| above its bound, which join. With the hard margin the
program is solved in its scale-free form, max m subject to y_n f(x_n) >= m, ||nu|| <= 1, which has a
solution for any data.

**Certificate.** Above: ||nu|| over the smallest margin. Below: sum(alpha) / max |h|, with the
rounding allowance of the oracle in its denominator. Beyond rank 5, or with too many lines, the
maximum of |h| is bounded from above by a quadratic relaxation: the bounds hold, the gap stays.

**Separability.** Distinct lines have linearly independent |<u, w>|, so h = 0 (Gordan) exactly if the
kink of each line and the linear part vanish: finitely many linear equations in alpha.

Source: Chizat, Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained
with the logistic loss" (2020). The oracle and the certificate are not in the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog

from implicit_bias.certificate import Certificate, Conflict, Status
from implicit_bias.solvers.base import BoundsAt
from implicit_bias.theory.arrangement import (
    EPS,
    RANK_TOLERANCE,
    Kinked,
    Lines,
    Peaks,
    maximise,
)
from implicit_bias.theory.sphere_search import ascend, upper_bound
from implicit_bias.validation import Array, as_features, as_finite, as_labels

if TYPE_CHECKING:
    from implicit_bias.networks import ReLUNetwork

Activation: TypeAlias = (
    Literal["relu", "leaky relu", "absolute value", "linear plus relu"] | tuple[float, float]
)
SLOPES = {
    "relu": (0.0, 1.0),
    "leaky relu": (0.01, 1.0),
    "absolute value": (-1.0, 1.0),
    "linear plus relu": (1.0, 2.0),
}
# Arcs that the exact oracle may visit in one call: seconds beyond rank 3.
MAX_ARCS = 20_000_000
# New directions of a round, and the angle in radians between them.
NEW_DIRECTIONS, APART = 30, 0.03
# Rounds after which a direction without weight leaves the linear program.
PATIENCE = 8
# Data whose best separator has a smaller share of the possible margin count as not separable.
INFEASIBILITY = 1e-10
# Tolerance of HiGHS; the certificate does not trust it.
LP_TOLERANCE = 1e-10
# Two weights of one sign in one closed cell act as one; |<w, x>| below this share is the face.
ON_FACE = 1e-9


@dataclass(frozen=True, eq=False)
class InfiniteWidthProblem:
    """Maximum margin under the variation norm; see the module's head.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    activation : {"relu", "leaky relu", "absolute value", "linear plus relu"} or (float, float)
        Sigma, or its slopes below and above 0. The leaky ReLU has the slopes (0.01, 1), linear
        plus ReLU (1, 2).
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, an unknown activation, slopes
        that are both 0, C not positive.
    """

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    activation: Activation = "relu"
    C: float = np.inf

    def __post_init__(self) -> None:
        X = as_finite(self.X, "X", 2)
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "y", as_labels(self.y, len(X)))
        if not self.C > 0:
            raise ValueError(f"C must be in (0, inf], got {self.C!r}: use inf for the hard margin")
        if isinstance(self.activation, str) and self.activation not in SLOPES:
            raise ValueError(
                f"activation {self.activation!r} is unknown: choose one of {', '.join(SLOPES)}, "
                "or give its two slopes"
            )
        if not any(self.slopes) or not np.isfinite(self.slopes).all():
            raise ValueError(f"the activation's slopes must be finite, not both 0: {self.slopes}")

    @cached_property
    def slopes(self) -> tuple[float, float]:
        """Slopes (a, b) of sigma below and above 0."""
        a, b = SLOPES[self.activation] if isinstance(self.activation, str) else self.activation
        return float(a), float(b)

    @cached_property
    def basis(self) -> Array:
        """Orthonormal basis of the row space of X, shape (D, r)."""
        _, values, rows = np.linalg.svd(self.X, full_matrices=False)
        return np.asarray(rows[values > RANK_TOLERANCE * max(values[0], 1e-300)].T)

    @cached_property
    def inputs(self) -> Array:
        """Inputs in the basis, shape (N, r)."""
        return self.X @ self.basis

    @cached_property
    def lines(self) -> Lines:
        """Lines through 0 that hold the inputs, in the basis."""
        return Lines.of(self.inputs)

    @property
    def rank(self) -> int:
        """Rank r of the inputs."""
        return self.basis.shape[1]

    @cached_property
    def scale(self) -> float:
        """Largest norm of an input; 1 where all are 0."""
        return float(np.linalg.norm(self.X, axis=1).max()) or 1.0

    def activations(self, directions: Array, X: Array | None = None) -> Array:
        """sigma(<w_j, x_n>) of directions (J, D) at X (n, D), by default the data: (n, J)."""
        a, b = self.slopes
        products = (self.X if X is None else X) @ directions.T
        return np.where(products > 0, b * products, a * products)

    def decision(self, X: ArrayLike, directions: Array, coef: Array) -> Array:
        """f(x) of inputs X (n, D): shape (n,)."""
        return self.activations(directions, as_features(X, self.X.shape[1])) @ coef

    def dual_function(self, alpha: Array) -> Kinked:
        """h of dual variables (N,), in the basis of the row space."""
        a, b = self.slopes
        signed = alpha * self.y
        kinks = 0.5 * (b - a) * self.lines.sums(signed * np.abs(self.lines.lengths))
        return Kinked(0.5 * (a + b) * (signed @ self.inputs), self.lines.normals, kinks)

    def dual_values(self, alpha: Array, directions: Array) -> Array:
        """h(w_j) at directions (J, D): shape (J,)."""
        return (alpha * self.y) @ self.activations(directions)


@dataclass(frozen=True, eq=False)
class InfiniteWidthSolution:
    """Result of `max_margin`.

    Attributes
    ----------
    problem : InfiniteWidthProblem
        What was solved.
    directions : ndarray of shape (J, D)
        Unit vectors: first-layer weights of the optimal network.
    coef : ndarray of shape (J,)
        Weights; with the hard margin the smallest margin is 1.
    alpha : ndarray of shape (N,)
        Dual variables, feasible: max |h| <= 1. Without separability Gordan's proof, of sum 1.
    status : Status
        Only OPTIMAL means that the gap is at most the tolerance.
    certificate : Certificate
        Bounds on the smallest variation norm; ``dual_norms`` holds max |h|.
    history : tuple of BoundsAt
        Bounds after each round.
    exact : bool
        Whether the oracle was exact; if not, ``lower`` is the best provable bound we have.
    seconds : float
        Wall time.
    conflict : Conflict or None
        Why the data are not separable, where they are not.
    """

    problem: InfiniteWidthProblem = field(repr=False)
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
    def margin(self) -> float:
        """Certified margin of the best network of variation norm 1: 1 / upper."""
        return 1.0 / self.certificate.upper

    def decision(self, X: ArrayLike) -> Array:
        """f(x) of inputs X (n, D): shape (n,)."""
        return self.problem.decision(X, self.directions, self.coef)


def max_margin(
    X: ArrayLike,
    y: ArrayLike,
    C: float = np.inf,
    tol: float = 1e-6,
    *,
    activation: Activation = "relu",
    max_rounds: int = 300,
    start: ArrayLike | None = None,
    random_state: int = 0,
) -> InfiniteWidthSolution:
    """Find the infinitely wide two-layer network of the largest margin per variation norm.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; exact for rank 3 at most, and for rank 4 and 5 while the oracle can visit all
        cells (some 100 support vectors in rank 4, some 30 in rank 5).
    y : array_like of shape (N,)
        Labels, -1 or +1.
    C : float
        Weight of the hinge loss; inf is the hard margin.
    tol : float
        Relative gap between the certified bounds at which to stop.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.
    max_rounds : int
        Limit on the rounds of column generation.
    start : array_like of shape (J, D), optional
        Directions to start from, such as those of a network; with either sign of weight.
    random_state : int
        Seed of the local searches beyond rank 3.

    Returns
    -------
    InfiniteWidthSolution
        Read its ``status``; the bounds in its certificate hold in every case.

    Raises
    ------
    ValueError
        As in `InfiniteWidthProblem`.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.theory.infinite_width import max_margin
    >>> solution = max_margin([[1, -1], [1, 0], [1, 1]], [1, -1, 1])
    >>> solution.status.name, len(solution.coef)
    ('OPTIMAL', 3)
    """
    problem = InfiniteWidthProblem(X, y, activation, C)  # type: ignore[arg-type]
    return solve(problem, tol, max_rounds=max_rounds, start=start, random_state=random_state)


def solve(
    problem: InfiniteWidthProblem,
    tol: float = 1e-6,
    *,
    max_rounds: int = 300,
    start: ArrayLike | None = None,
    random_state: int = 0,
) -> InfiniteWidthSolution:
    """Solve a problem; `max_margin` builds it from data."""
    began = time.perf_counter()
    conflict = find_conflict(problem)
    if conflict is not None:
        peaks = _Oracle(problem, random_state).peaks(conflict.alpha, np.inf)
        lower = dual_bound(problem, conflict.alpha, peaks.upper)
        return InfiniteWidthSolution(
            problem,
            np.zeros((0, problem.X.shape[1])),
            np.zeros(0),
            conflict.alpha,
            Status.NOT_SEPARABLE,
            Certificate(lower, np.inf, np.inf, np.nan, np.full(1, np.nan)),
            (),
            exact=True,
            seconds=time.perf_counter() - began,
            conflict=conflict,
        )
    generation = _Generation(problem, _Oracle(problem, random_state), start)
    status = generation.run(tol, max_rounds)
    directions, coef = _without_multiplicities(problem, *generation.primal)
    upper, min_margin = primal_bound(problem, directions, coef)
    if not upper < generation.upper:  # merging may lose the last digits
        directions, coef = generation.primal
        upper, min_margin = primal_bound(problem, directions, coef)
    if np.isinf(problem.C) and min_margin > 0:
        coef, min_margin = coef / min_margin, 1.0
    lower, alpha, largest = generation.lower, generation.alpha, generation.largest
    gap = max(upper - lower, 0.0) / lower if lower > 0 else np.inf
    if status is Status.ITERATION_LIMIT and gap <= tol:
        status = Status.OPTIMAL
    return InfiniteWidthSolution(
        problem,
        directions,
        coef,
        alpha,
        status,
        Certificate(lower, upper, gap, min_margin, np.array([largest])),
        tuple(generation.history),
        exact=generation.oracle.exact,
        seconds=time.perf_counter() - began,
    )


def find_conflict(problem: InfiniteWidthProblem) -> Conflict | None:
    """Decide whether any network separates the data: Gordan's alpha with h = 0, or None.

    A finite C forgives everything.
    """
    if np.isfinite(problem.C):
        return None
    lines, (a, b) = problem.lines, problem.slopes
    zeros = np.flatnonzero(lines.line < 0)
    if len(zeros):
        alpha = np.zeros(len(problem.y))
        alpha[zeros] = 1.0 / len(zeros)
        return Conflict(
            f"the input of sample {zeros[0]} is 0, where every network is 0: drop it, append a "
            "constant to the inputs, or choose a finite C (soft margin)",
            zeros,
            alpha,
        )
    if a != b and np.bincount(lines.line).max() == 1:
        return None  # each sample has a kink of its own
    # min t subject to |kink of each line| <= t, |linear part| <= t, alpha in the simplex.
    units = problem.inputs / np.linalg.norm(problem.inputs, axis=1, keepdims=True)
    kinks = 0.5 * (b - a) * lines.sums(np.diag(problem.y))
    rows = np.vstack([kinks, 0.5 * (a + b) * (units * problem.y[:, None]).T])
    ones = np.ones((len(rows), 1))
    n = len(problem.y)
    found = linprog(
        np.append(np.zeros(n), 1.0),
        A_ub=np.block([[rows, -ones], [-rows, -ones]]),
        b_ub=np.zeros(2 * len(rows)),
        A_eq=np.append(np.ones(n), 0.0)[None, :],
        b_eq=[1.0],
        method="highs",
        options=_lp_options(),
    )
    if found.fun > INFEASIBILITY:
        return None
    alpha = np.maximum(found.x[:n], 0.0) / np.linalg.norm(problem.inputs, axis=1)
    alpha /= alpha.sum()
    alpha[alpha < 1e-12] = 0.0
    samples = np.flatnonzero(alpha)
    names = ", ".join(map(str, samples[:5])) + (", ..." if len(samples) > 5 else "")
    return Conflict(
        f"samples {names} contradict each other for every network without offsets: equal (or "
        "proportional) inputs with opposite labels, or inputs on lines through 0 whose labels no "
        "homogeneous function takes; drop one, append a constant, or choose a finite C",
        samples,
        alpha,
    )


def _lp_options() -> dict[str, float]:
    return {
        "primal_feasibility_tolerance": LP_TOLERANCE,
        "dual_feasibility_tolerance": LP_TOLERANCE,
    }


class _Oracle:
    """Directions of large |h|, and upper bounds of max |h|."""

    def __init__(self, problem: InfiniteWidthProblem, random_state: int) -> None:
        self.problem = problem
        self.exact = True
        self._rng = np.random.default_rng(random_state)

    def search(self, alpha: Array, floor: float) -> Array:
        """Points (k, r) found by local ascent where |h| exceeds the floor, best first."""
        function = self.problem.dual_function(alpha).without_flat_lines()
        rank = self.problem.rank
        starts = self._rng.normal(size=(200 * rank, rank))
        starts = np.vstack([starts, function.normals, -function.normals])
        starts /= np.linalg.norm(starts, axis=1, keepdims=True)
        points, values = ascend(function, starts)
        order = np.argsort(-values)
        return points[order[values[order] > floor]]

    def peaks(self, alpha: Array, floor: float) -> Peaks:
        """Exact maximum of |h|, or a bound of it where the cells are too many."""
        function = self.problem.dual_function(alpha)
        if function.rank == 0:  # all inputs are 0
            return Peaks(np.zeros((0, 0)), np.zeros(0), 0.0)
        lean = function.without_flat_lines()
        rank, n_lines = self.problem.rank, len(lean.kinks)
        if rank <= 3 or n_lines ** (rank - 1) <= MAX_ARCS:
            return maximise(function, floor=floor)
        self.exact = False
        starts = self._rng.normal(size=(2000, rank))
        points, values = ascend(lean, starts / np.linalg.norm(starts, axis=1, keepdims=True))
        best = int(values.argmax())
        bound = max(upper_bound(lean, points[best]), float(values[best]))
        rounding = 1e-12 * function.size  # of the lines left out
        return Peaks(points[[best]], values[[best]], bound + rounding)


def dual_bound(problem: InfiniteWidthProblem, alpha: Array, largest: float) -> float:
    """Lower bound of alpha >= 0 on the smallest norm, given an upper bound of its max |h|."""
    total, top = float(alpha.sum()), float(alpha.max())
    if total <= 0:
        return 0.0
    scale = 1.0 / largest if largest > 0 else np.inf
    return total * min(scale, problem.C / top) * (1.0 - EPS * (len(alpha) + 4))


def primal_bound(
    problem: InfiniteWidthProblem, directions: Array, coef: Array
) -> tuple[float, float]:
    """Upper bound of a network on the smallest norm, and its smallest margin.

    Parameters
    ----------
    problem : InfiniteWidthProblem
        The problem.
    directions : ndarray of shape (J, D)
        First-layer weights, of any length.
    coef : ndarray of shape (J,)
        Second-layer weights.
    """
    lengths = np.linalg.norm(directions, axis=1)
    norm = float(np.abs(coef) @ lengths)
    slope = max(map(abs, problem.slopes))
    rounding = EPS * (len(coef) + problem.X.shape[1] + 4) * slope * norm * problem.scale
    margins = problem.y * (problem.activations(directions) @ coef)
    if np.isfinite(problem.C):
        hinge = float(np.maximum(0.0, 1.0 - margins + rounding).sum())
        value = min(norm + problem.C * hinge, problem.C * len(margins))
        return value * (1.0 + 4.0 * EPS * len(margins)), float(margins.min())
    smallest = float(margins.min()) - rounding
    return (norm * (1.0 + 8.0 * EPS) / smallest if smallest > 0 else np.inf), float(margins.min())


class _Generation:
    """Column generation: the state of a solve.

    Directions are in the basis of the row space, inputs are divided by their largest norm.
    """

    def __init__(
        self, problem: InfiniteWidthProblem, oracle: _Oracle, start: ArrayLike | None
    ) -> None:
        self.problem = problem
        self.oracle = oracle
        given = self._first_directions() if start is None else self._given_directions(start)
        self.directions = np.vstack([given, given])
        self.signs = np.repeat([1.0, -1.0], len(given))
        self.idle = np.zeros(len(self.directions), dtype=np.int64)
        self.weights = np.zeros(len(self.directions))
        self.history: list[BoundsAt] = []
        n = len(problem.y)
        self.lower, self.upper = 0.0, np.inf
        self.alpha, self.largest = np.zeros(n), np.nan
        self.primal = (np.zeros((0, problem.X.shape[1])), np.zeros(0))

    def run(self, tol: float, max_rounds: int) -> Status:
        """Alternate between the linear program and the oracle until the bounds meet."""
        for round_ in range(max_rounds):
            alpha, floor = self._solve_master()
            self._improve_upper()
            new = self._new_directions(alpha, floor)
            self.history.append(BoundsAt(round_, self.lower, self.upper))
            if self.upper - self.lower <= tol * self.lower:
                return Status.OPTIMAL
            if not len(new):
                exact = self.oracle.exact
                return Status.NUMERICAL_TROUBLE if exact else Status.ITERATION_LIMIT
            self._join(new, alpha)
        return Status.ITERATION_LIMIT

    def _first_directions(self) -> Array:
        """Some of the data's own lines, in both directions."""
        normals = self.problem.lines.normals
        few = normals[np.linspace(0, len(normals) - 1, min(len(normals), 64)).astype(np.int64)]
        return np.vstack([few, -few])

    def _given_directions(self, start: ArrayLike) -> Array:
        given = as_features(start, self.problem.X.shape[1]) @ self.problem.basis
        lengths = np.linalg.norm(given, axis=1, keepdims=True)
        kept = lengths[:, 0] > 0
        return np.vstack([self._first_directions(), given[kept] / lengths[kept]])

    def _columns(self) -> Array:
        """y_n sigma(<w_j, x_n>) of scaled inputs, with the sign of the weight: (N, J)."""
        a, b = self.problem.slopes
        products = (self.problem.inputs / self.problem.scale) @ self.directions.T
        values = np.where(products > 0, b * products, a * products)
        return np.asarray(self.problem.y[:, None] * values * self.signs)

    def _solve_master(self) -> tuple[Array, float]:
        """Solve the linear program over the present directions: alpha (N,), and its max |h|."""
        columns, C = self._columns(), self.problem.C
        n, width = columns.shape
        if np.isinf(C):  # variables: weights, m
            cost = np.append(np.zeros(width), -1.0)
            last = np.append(np.ones(width), 0.0)
            A = np.vstack([np.column_stack([-columns, np.ones(n)]), last])
            b = np.append(np.zeros(n), 1.0)
        else:  # variables: weights, xi
            cost = np.append(np.ones(width), np.full(n, C * self.problem.scale))
            A, b = np.column_stack([-columns, -np.eye(n)]), -np.ones(n)
        found = linprog(cost, A_ub=A, b_ub=b, method="highs-ds", options=_lp_options())
        self.weights = found.x[:width]
        alpha = np.maximum(-found.ineqlin.marginals[:n], 0.0)
        alpha[alpha < 1e-13 * alpha.max()] = 0.0
        if np.isinf(C):
            return alpha / alpha.sum(), float(-found.fun)
        return alpha, 1.0

    def _improve_upper(self) -> None:
        used = self.weights > 0
        directions = self.directions[used] @ self.problem.basis.T
        coef = (self.signs * self.weights)[used] / self.problem.scale
        upper, _ = primal_bound(self.problem, directions, coef)
        if upper < self.upper or not self.history:
            self.upper, self.primal = upper, (directions, coef)

    def _new_directions(self, alpha: Array, floor: float) -> Array:
        """Directions with |h| above the floor; the exact oracle improves the lower bound, too."""
        floor = floor * self.problem.scale * (1.0 + 1e-9)
        if np.isfinite(self.problem.C):
            alpha, floor = alpha / self.problem.scale, 1.0 + 1e-9
        if self.problem.rank > 3:
            # The exact oracle is expensive here, so it only speaks where a local search is mute.
            points = self.oracle.search(alpha, floor)
            if len(points):
                return _spread(points)
        found = [self._exact(alpha, floor)]
        if self.problem.rank <= 3 and self.alpha.any():
            # Between two answers lies a better one: cutting planes alone oscillate.
            old = self.alpha * (alpha.sum() / self.alpha.sum())
            if np.isfinite(self.problem.C):
                old = self.alpha
            found.append(self._exact(0.5 * (alpha + old), floor))
        return np.vstack(found)

    def _exact(self, alpha: Array, floor: float) -> Array:
        peaks = self.oracle.peaks(alpha, floor)
        lower = dual_bound(self.problem, alpha, peaks.upper)
        if lower > self.lower:
            scale = lower / float(alpha.sum())
            self.lower, self.alpha, self.largest = lower, alpha * scale, peaks.upper * scale
        return _spread(peaks.points[peaks.values > floor])

    def _join(self, new: Array, alpha: Array) -> None:
        """Add directions, and drop those that had no weight for long."""
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        kept = self.idle < PATIENCE
        basis = self.problem.basis
        signs = np.sign(self.problem.dual_values(alpha, new @ basis.T))
        self.directions = np.vstack([self.directions[kept], new])
        self.signs = np.concatenate([self.signs[kept], np.where(signs == 0, 1.0, signs)])
        self.idle = np.concatenate([self.idle[kept], np.zeros(len(new), dtype=np.int64)])


def _spread(points: Array) -> Array:
    """The first of the points (k, r) that are apart from each other."""
    chosen = []
    while len(points) and len(chosen) < NEW_DIRECTIONS:
        chosen.append(points[0])
        points = points[points @ points[0] < np.cos(APART)]
    return np.array(chosen).reshape(len(chosen), points.shape[1])


def _without_multiplicities(
    problem: InfiniteWidthProblem, directions: Array, coef: Array
) -> tuple[Array, Array]:
    """Join weights of one sign whose directions lie in one closed cell.

    Sigma is linear there, so sum_j coef_j w_j has the same outputs and, by the triangle
    inequality, at most the same norm. For an even or odd activation w and -w are joined first.
    """
    a, b = problem.slopes
    if abs(a) == abs(b):
        first = np.argmax(np.abs(directions) > ON_FACE, axis=1)
        flip = np.where(np.take_along_axis(directions, first[:, None], 1)[:, 0] < 0, -1.0, 1.0)
        directions, coef = directions * flip[:, None], coef * (flip if a == b else 1.0)
    vectors = list(coef[:, None] * directions)
    signs = list(np.sign(coef))
    i = 0
    while i < len(vectors):
        j = i + 1
        while j < len(vectors):
            if signs[i] == signs[j] and _in_one_cell(problem, vectors[i], vectors[j], a == b):
                vectors[i] = vectors[i] + vectors.pop(j)
                signs.pop(j)
            else:
                j += 1
        i += 1
    joined = np.array(vectors).reshape(len(vectors), problem.X.shape[1])
    norms = np.linalg.norm(joined, axis=1)
    kept = norms > 0
    signs_kept = np.array(signs)[kept]
    return joined[kept] * (signs_kept / norms[kept])[:, None], norms[kept] * signs_kept


def _in_one_cell(
    problem: InfiniteWidthProblem, one: Array, other: Array, always: bool
) -> bool:
    """Whether no input tells the two directions apart."""
    if always:
        return True
    sides = problem.X @ np.column_stack([one, other])
    size = np.linalg.norm(problem.X, axis=1, keepdims=True) * np.linalg.norm(
        np.column_stack([one, other]), axis=0
    )
    sides = np.where(np.abs(sides) <= ON_FACE * size, 0.0, np.sign(sides))
    return not bool((sides[:, 0] * sides[:, 1] < 0).any())
