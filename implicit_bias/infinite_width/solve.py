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

Where it is proven before that nothing separates the data, the lower bound is inf: see
`problem`. Data that are merely nearly inseparable have a finite one.

Source: Chizat, Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained
with the logistic loss" (2020). The oracle and the certificate are not in the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import linprog

from implicit_bias.base.validation import Array, as_features, as_finite, check_count, check_number
from implicit_bias.bounds.certificate import Certificate, Conflict, Status, relative_gap
from implicit_bias.infinite_width.arrangement import TINY, Peaks, maximise, scattered
from implicit_bias.infinite_width.problem import (
    LP_OPTIONS,
    Activation,
    InfiniteWidthProblem,
    dual_bound,
    find_conflict,
    first_directions,
    gordan_ratio,
    primal_bound,
    progressed,
    without_multiplicities,
)
from implicit_bias.infinite_width.sphere_search import ascend, flipped, relax, upper_bound
from implicit_bias.solvers.base import BoundsAt

if TYPE_CHECKING:
    from implicit_bias.networks import ReLUNetwork

# Arcs that the exact oracle may visit in one call: seconds beyond rank 3.
MAX_ARCS = 20_000_000
# Most new directions of a round, and the angle in radians between them. Directions nearer to each
# other make the linear program degenerate and slow.
NEW_DIRECTIONS, APART = 60, 0.1
# Where |h| is this near to its bound, a neuron may be.
TOUCHES = 1e-4
# Largest ratio of input norms, and largest entry, that the linear program sees.
WIDEST, LARGEST_ENTRY = 1e9, 1e14
# Without a network that separates, data are nearly inseparable where separators must be this much
# larger, relative to the inputs, than a single sample needs.
NEARLY = 1e9
# Cutting planes that raise the lower bound where the oracle is not exact.
RAISING_ROUNDS = 20
# Rounds without progress, a tenth of the gap, that end a solve whose gap is one of rounding.
STALLED = 10
# Rounds after which a direction without weight leaves the linear program.
PATIENCE = 8


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
    rounding : float
        Share of max |h| of ``alpha`` that rounding may hide. The certified gap cannot be smaller;
        it is large where margins are tiny relative to the inputs: opposite labels that nearly
        coincide, or coordinates far from 0.
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
    rounding: float = 0.0

    @property
    def message(self) -> str:
        """What is proven, in a sentence."""
        lower, upper = self.certificate.lower, self.certificate.upper
        if self.conflict is not None:
            return f"No network separates the data: {self.conflict.cause}"
        if self.status is Status.OPTIMAL:
            return f"The optimum is {upper:.9g}, certified to {self.certificate.gap:.1e}."
        above = (
            f"at most {upper:.9g}, what the best network found has"
            if np.isfinite(upper)
            else "not bounded from above, since no network was found that separates the data"
        )
        below = "by the oracle" if self.exact else "the best provable lower bound"
        hidden = (
            f" Margins are so small, relative to the inputs, that rounding hides a share of "
            f"{self.rounding:.1e}: center or scale the inputs."
            if self.rounding >= 0.1 * self.certificate.gap
            else ""
        )
        return (
            f"The optimum is not known: it is at least {lower:.9g}, {below}, and {above}.{hidden}"
        )

    statement = message

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
    random_state: int | np.random.Generator = 0,
) -> InfiniteWidthSolution:
    """Find the infinitely wide two-layer network of the largest margin per variation norm.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; exact for rank 3 at most, and for rank 4 and 5 while the oracle can visit all
        cells (at most `MAX_ARCS` arcs: 271 support vectors in rank 4, 66 in rank 5). Otherwise
        the bounds hold, and their gap stays open.
    y : array_like of shape (N,)
        Labels, -1 or +1. Several classes: `max_margin_of_classes`.
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
    random_state : int or Generator
        Seed of the local searches beyond rank 3.

    Returns
    -------
    InfiniteWidthSolution
        Read its ``status``; the bounds in its certificate hold in every case.

    Raises
    ------
    ValueError, TypeError
        As in `InfiniteWidthProblem`; a tolerance that is not positive, no round, ``start`` of
        another number of columns than X.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias.infinite_width import max_margin
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
    random_state: int | np.random.Generator = 0,
) -> InfiniteWidthSolution:
    """Solve a problem; `max_margin` builds it from data."""
    began = time.perf_counter()
    check_number(tol, "tol", "(0, inf)")
    check_count(max_rounds, "max_rounds")
    if start is not None:
        start = as_features(start, problem.X.shape[1], "start")
    conflict = find_conflict(problem)
    if conflict is not None:
        return InfiniteWidthSolution(
            problem,
            np.zeros((0, problem.X.shape[1])),
            np.zeros(0),
            conflict.alpha,
            Status.NOT_SEPARABLE,
            Certificate(np.inf, np.inf, np.inf, np.nan, np.full(1, np.nan)),
            (),
            exact=True,
            seconds=time.perf_counter() - began,
            conflict=conflict,
        )
    generation = _Generation(problem, _Oracle(problem, random_state), start)
    status = generation.run(tol, max_rounds)
    if not generation.oracle.exact and status is not Status.INTERRUPTED:
        generation.raise_lower(RAISING_ROUNDS)
    if np.isinf(generation.upper) and gordan_ratio(problem, generation.alpha) > NEARLY:
        status = Status.NEARLY_INSEPARABLE if status is not Status.INTERRUPTED else status
    directions, coef = generation.fewest_neurons(tol)
    upper, min_margin = primal_bound(problem, directions, coef)
    if np.isinf(problem.C) and min_margin > 0:
        coef, min_margin = coef / min_margin, 1.0
    lower = generation.lower
    return InfiniteWidthSolution(
        problem,
        directions,
        coef,
        generation.alpha,
        status,
        Certificate(
            lower, upper, relative_gap(lower, upper), min_margin, np.array([generation.largest])
        ),
        tuple(generation.history),
        exact=generation.oracle.exact,
        seconds=time.perf_counter() - began,
        rounding=generation.rounding,
    )


@dataclass(frozen=True, eq=False)
class NetworkGrade:
    """What `certify` says of a finite network.

    Attributes
    ----------
    path_norm : float
        sum_j |a_j| ||w_j||.
    min_margin : float
        Smallest y_n f(x_n).
    norm : float
        path_norm / min_margin: the norm of the network scaled to margin 1; inf where it errs.
    share : tuple of two floats
        Certified bounds on its margin per path norm over the largest possible one.
    refit_norm : float
        Smallest norm of any second layer on these directions; inf where none separates.
    alpha : ndarray of shape (N,)
        Dual variables of that smallest norm, with |h| <= 1 at all of the network's directions.
    escape : ndarray of shape (D,)
        The direction of the largest |h| of alpha.
    escape_value : float
        |h| there. Above 1 it suggests that one more unit in this direction lowers the norm; it
        does if alpha is unique. Where ``refit_norm`` is inf, alpha has sum 1 and no scale, and any
        value above 0 suggests it.
    escape_norm : float
        Smallest norm of any second layer once that unit is there: below ``refit_norm`` it proves
        what ``escape_value`` suggests.
    solution : InfiniteWidthSolution
        The infinitely wide optimum to which the network was compared.
    """

    path_norm: float
    min_margin: float
    norm: float
    share: tuple[float, float]
    refit_norm: float
    alpha: Array = field(repr=False)
    escape: Array
    escape_value: float
    escape_norm: float
    solution: InfiniteWidthSolution = field(repr=False)


def certify(
    network: ReLUNetwork | tuple[ArrayLike, ArrayLike],
    X: ArrayLike,
    y: ArrayLike,
    *,
    activation: Activation = "relu",
    solution: InfiniteWidthSolution | None = None,
    tol: float = 1e-6,
) -> NetworkGrade:
    """Compare a two-layer network to the infinitely wide one of the largest margin.

    Parameters
    ----------
    network : ReLUNetwork or (array_like of shape (J, D), array_like of shape (J,))
        A network of one hidden layer without biases, or its first- and second-layer weights.
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.
    solution : InfiniteWidthSolution, optional
        Of the same data and activation with the hard margin, if it is there already.
    tol : float
        Gap to which the optimum is computed where it is not given.

    Raises
    ------
    ValueError
        Shapes that do not fit, a network with biases or with more hidden layers, a solution of
        other data.
    """
    weights, readout = _two_layers(network)
    if solution is None:
        solution = max_margin(X, y, tol=tol, activation=activation, start=weights)
    problem = solution.problem
    if not (np.array_equal(problem.X, X) and np.array_equal(problem.y, y)):
        raise ValueError("the solution belongs to other data: pass that of these X and y")
    weights = as_features(weights, problem.X.shape[1])
    if readout.shape != (len(weights),):
        raise ValueError(f"{len(weights)} units need as many weights, got shape {readout.shape}")
    norm, min_margin = primal_bound(problem, weights, readout)
    best = solution.certificate
    inside = weights @ problem.basis
    lengths = np.linalg.norm(inside, axis=1)
    units = inside[lengths > 0] / lengths[lengths > 0, None]
    refit_norm, alpha = _refit(problem, units)
    peaks = _Oracle(problem, 0).peaks(alpha, np.inf)
    escape_norm, _ = _refit(problem, np.vstack([units, peaks.points[:1]]))
    return NetworkGrade(
        path_norm=float(np.abs(readout) @ np.linalg.norm(weights, axis=1)),
        min_margin=min_margin,
        norm=norm,
        share=(best.lower / norm, min(best.upper / norm, 1.0)) if norm < np.inf else (0.0, 0.0),
        refit_norm=refit_norm,
        alpha=alpha,
        escape=problem.basis @ peaks.points[0],
        escape_value=float(peaks.values[0]),
        escape_norm=escape_norm,
        solution=solution,
    )


def _refit(problem: InfiniteWidthProblem, units: Array) -> tuple[float, Array]:
    """Smallest norm over unit directions (J, r) with either sign, and its dual variables (N,)."""
    both, signs = np.vstack([units, units]), np.repeat([1.0, -1.0], len(units))
    _, _, floor = _solve_master(problem, both, signs, np.inf)
    _, alpha, floor = _solve_master(problem, both, signs, 1.0 / floor if floor > 0 else np.inf)
    return (1.0 / floor, alpha / floor) if floor > 0 else (np.inf, alpha)


def _two_layers(network: ReLUNetwork | tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    if isinstance(network, tuple):
        weights, readout = network
        return as_finite(weights, "directions", 2), as_finite(readout, "coef", 1)
    if not (network.has_margin_structure and network.homogeneous):
        raise ValueError("the network must have one hidden layer and no readout bias")
    first = network.hidden_weights[0].detach().double().cpu().numpy()
    return first, network.readout[0].detach().double().cpu().numpy()


class _Oracle:
    """Directions of large |h|, and upper bounds of max |h|."""

    def __init__(
        self, problem: InfiniteWidthProblem, random_state: int | np.random.Generator
    ) -> None:
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
        if rank <= 3 or (rank <= 5 and n_lines ** (rank - 1) <= MAX_ARCS):
            return maximise(function, floor=floor)
        self.exact = False
        starts = self._rng.normal(size=(2000, rank))
        points, values = ascend(lean, starts / np.linalg.norm(starts, axis=1, keepdims=True))
        best = int(values.argmax())
        bound = max(upper_bound(lean), float(values[best]))
        rounding = 1e-12 * function.size + function.slack  # of the lines left out, or merged
        return Peaks(points[[best]], values[[best]], bound + rounding)


class _Generation:
    """Column generation: the state of a solve.

    Directions are in the basis of the row space, inputs are divided by their largest norm.
    """

    def __init__(self, problem: InfiniteWidthProblem, oracle: _Oracle, start: Array | None) -> None:
        self.problem = problem
        self.oracle = oracle
        given = first_directions(problem)
        if start is not None:
            given = np.vstack([given, self._given_directions(start)])
        self.directions = np.vstack([given, given])
        self.signs = np.repeat([1.0, -1.0], len(given))
        self.idle = np.zeros(len(self.directions), dtype=np.int64)
        self.weights = np.zeros(len(self.directions))
        self.history: list[BoundsAt] = []
        n = len(problem.y)
        self.lower, self.upper = 0.0, np.inf
        self.alpha, self.largest = np.zeros(n), np.nan
        self.best_alpha = self.alpha  # as the linear program gave it
        self.rounding = 0.0  # share of max |h| of the best alpha that rounding may hide
        self.stalled = 0
        self.primal = (np.zeros((0, problem.X.shape[1])), np.zeros(0))

    def run(self, tol: float, max_rounds: int) -> Status:
        """Alternate between the linear program and the oracle until the bounds meet."""
        try:
            for round_ in range(int(max_rounds)):
                self.weights, alpha, floor = _solve_master(
                    self.problem, self.directions, self.signs, self._norm()
                )
                before = (self.lower, self.upper)
                self._improve_upper()
                new = self._new_directions(alpha, floor, tol)
                self.history.append(BoundsAt(round_, self.lower, self.upper))
                if self.upper - self.lower <= tol * self.lower:
                    return Status.OPTIMAL
                now = (self.lower, self.upper)
                self.stalled = 0 if progressed(before, now) else self.stalled + 1
                if self.rounding > tol and self.stalled >= STALLED:
                    return Status.NUMERICAL_TROUBLE
                if not any(len(points) for points, _ in new):
                    exact = self.oracle.exact
                    return Status.NUMERICAL_TROUBLE if exact else Status.ITERATION_LIMIT
                self._join(new)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        except ArithmeticError:
            return Status.NUMERICAL_TROUBLE
        if self.lower == 0:  # the local search had the last word
            self.consult_oracle(alpha, floor)
        if self.upper - self.lower <= tol * self.lower:
            return Status.OPTIMAL
        return Status.NUMERICAL_TROUBLE if self.rounding > tol else Status.ITERATION_LIMIT

    def raise_lower(self, rounds: int) -> None:
        """Improve the lower bound of an inexact oracle: dual variables that are best for it.

        Those of the linear program are made for the true max |h|; the bound of it is a convex
        function of alpha, too, and cutting planes minimise it. Each cut is the slope of the
        relaxation in alpha, which does not exceed 1 where the relaxation does not.
        """
        problem = self.problem
        slopes = problem.y * problem.activations(self.primal[0]).T / problem.scale  # (cuts, N)
        cuts, alpha = [slopes, -slopes], self.best_alpha
        for _ in range(rounds):
            for trial in (alpha, 0.5 * (alpha + self.alpha), 0.2 * alpha + 0.8 * self.alpha):
                largest, slopes = self._relaxed(trial)
                cuts.append(slopes / problem.scale)
                self._improve_lower(trial, largest)
            A = np.vstack(cuts)
            limit = problem.C * problem.scale if np.isfinite(problem.C) else None
            found = linprog(
                -np.ones(len(problem.y)),
                A_ub=A,
                b_ub=np.ones(len(A)),
                bounds=(0.0, limit),
                method="highs",
                options={"time_limit": 60.0},
            )
            if found.status != 0:
                return
            alpha = np.maximum(found.x, 0.0) / problem.scale
            self.history.append(BoundsAt(len(self.history), self.lower, self.upper))

    def _relaxed(self, alpha: Array) -> tuple[float, Array]:
        """Bound max |h| of dual variables by the relaxation; its slopes (2, N) in them."""
        problem = self.problem
        function = problem.dual_function(alpha)
        a, b = problem.slopes
        largest, slopes = 0.0, []
        for sign, one in ((1.0, function), (-1.0, flipped(function))):
            found = relax(one)
            largest = max(largest, found.bound)
            distances = np.append(found.distances, 0.0)[problem.lines.line]
            values = 0.5 * (a + b) * (problem.inputs @ found.mean)
            values += 0.5 * (b - a) * np.abs(problem.lines.lengths) * distances
            slopes.append(sign * problem.y * problem.sizes * values)
        return largest + function.slack, np.array(slopes)

    def _norm(self) -> float:
        """Guess the optimum: the best network's norm, or else the lower bound."""
        return self.upper if np.isfinite(self.upper) else max(self.lower, 0.0)

    def fewest_neurons(self, tol: float) -> tuple[Array, Array]:
        """Reduce the network found to the neurons that the bound's tolerance needs.

        Near an optimal direction the linear program shares the weight between several. So the
        points where |h| of the best alpha touches its bound are tried, as few as possible: those
        that are far apart first. Weights that share a cell are joined as well.
        """
        found = [without_multiplicities(self.problem, *self.primal), self.primal]
        if self.oracle.exact and self.alpha.any() and np.isfinite(self.upper):
            peaks = self.oracle.peaks(self.alpha, 1.0 - TOUCHES)
            points = peaks.points[peaks.values >= 1.0 - TOUCHES]
            for apart in np.geomspace(0.2, 1e-4, 12):
                some = scattered(points, apart, len(self.problem.y) + 1)
                found.append(without_multiplicities(self.problem, *self._network_of(some)))
        good = [
            network
            for network in found
            if primal_bound(self.problem, *network)[0] <= max(self.lower * (1.0 + tol), self.upper)
        ]
        return min(good, key=lambda network: len(network[1]), default=self.primal)

    def _network_of(self, points: Array) -> tuple[Array, Array]:
        """Weight directions (k, r), with the signs of h at the best alpha, as best they can."""
        points, signs = self._signed(self.alpha, points)
        try:
            weights, _, _ = _solve_master(self.problem, points, signs, self.upper)
        except ArithmeticError:
            return self.primal
        used = weights > 0
        return points[used] @ self.problem.basis.T, (signs * weights)[used]

    def _given_directions(self, start: Array) -> Array:
        given = start / max(float(np.abs(start).max(initial=0.0)), TINY) @ self.problem.basis
        lengths = np.linalg.norm(given, axis=1, keepdims=True)
        kept = lengths[:, 0] > 0
        return np.asarray(given[kept] / lengths[kept])

    def _improve_upper(self) -> None:
        used = self.weights > 0
        directions = self.directions[used] @ self.problem.basis.T
        coef = (self.signs * self.weights)[used]
        upper, _ = primal_bound(self.problem, directions, coef)
        if upper < self.upper or not self.history:
            self.upper, self.primal = upper, (directions, coef)

    def _new_directions(self, alpha: Array, floor: float, tol: float) -> list[tuple[Array, Array]]:
        """Directions with |h| above the floor, and the sign of h at each, of one or two alphas."""
        floor *= 1.0 + 1e-9
        if self.problem.rank > 3:
            # The exact oracle is expensive here, so it only speaks where a local search is mute.
            points = self.oracle.search(alpha, floor * (1.0 + 0.5 * tol))
            if len(points):
                return [self._signed(alpha, scattered(points, APART, NEW_DIRECTIONS))]
            return [self.consult_oracle(alpha, floor)]
        found = [self.consult_oracle(alpha, floor)]
        if self.best_alpha.any():
            # Between two answers lies a better one: cutting planes alone oscillate.
            found.append(self.consult_oracle(0.5 * (alpha + self.best_alpha), floor))
        return found

    def consult_oracle(self, alpha: Array, floor: float) -> tuple[Array, Array]:
        """Improve the lower bound; directions with |h| above the floor, and the signs of h."""
        peaks = self.oracle.peaks(alpha, floor)
        if self._improve_lower(alpha, peaks.upper) and self.oracle.exact and peaks.upper > 0:
            self.rounding = 1.0 - float(peaks.values.max(initial=0.0)) / peaks.upper
        above = peaks.points[peaks.values > floor]
        return self._signed(alpha, scattered(above, APART, NEW_DIRECTIONS))

    def _improve_lower(self, alpha: Array, largest: float) -> bool:
        """Keep dual variables whose max |h| is at most ``largest`` if their bound is better."""
        lower = float(dual_bound(self.problem, alpha, largest))
        if not lower > self.lower:
            return False
        scale = lower / float(alpha.sum())
        self.lower, self.best_alpha = lower, alpha
        self.alpha, self.largest = alpha * scale, largest * scale
        return True

    def _signed(self, alpha: Array, points: Array) -> tuple[Array, Array]:
        values = self.problem.dual_function(alpha).values(points)
        return points, np.where(values < 0, -1.0, 1.0)

    def _join(self, new: list[tuple[Array, Array]]) -> None:
        """Add directions, and drop those that had no weight for long."""
        self.idle = np.where(self.weights > 0, 0, self.idle + 1)
        kept = self.idle < PATIENCE
        self.directions = np.vstack([self.directions[kept], *(points for points, _ in new)])
        self.signs = np.concatenate([self.signs[kept], *(signs for _, signs in new)])
        n_new = len(self.signs) - int(kept.sum())
        self.idle = np.concatenate([self.idle[kept], np.zeros(n_new, dtype=np.int64)])


def _solve_master(
    problem: InfiniteWidthProblem, directions: Array, signs: Array, norm: float
) -> tuple[Array, Array, float]:
    """Solve the linear program over unit directions (J, r), each with one sign of its weight.

    Inside, inputs are divided by their largest norm, or with the hard margin multiplied by a
    guess of the optimal ``norm``, which is at least that of the sample of the smallest norm:
    margins are then about 1, as the tolerances of HiGHS expect. Inputs far larger than the smallest
    are shortened: their larger margins cost nothing that counts, and HiGHS loses no digits.

    Returns
    -------
    weights : ndarray of shape (J,)
        Not negative; of sum 1 and with any smallest margin for the hard margin.
    alpha : ndarray of shape (N,)
        Dual variables; of sum 1 with the hard margin.
    floor : float
        max |h| of alpha over these directions.
    """
    if np.isinf(problem.C):
        sizes = np.minimum(problem.sizes, WIDEST * problem.sizes.min())
        least = 1.0 / (problem.slope * float(sizes.min()))
        most = LARGEST_ENTRY / (problem.slope * float(sizes.max()))
        guess = min(max(norm if np.isfinite(norm) else 0.0, least), most)
        lengths = sizes * guess
    else:
        lengths = problem.sizes / problem.scale
    outputs = problem.sigma((problem.inputs * lengths[:, None]) @ directions.T)
    columns = problem.y[:, None] * outputs * signs
    n, width = columns.shape
    if np.isinf(problem.C):  # variables: weights, m
        cost = np.append(np.zeros(width), -1.0)
        last = np.append(np.ones(width), 0.0)
        A = np.vstack([np.column_stack([-columns, np.ones(n)]), last])
        limits = np.append(np.zeros(n), 1.0)
    else:  # variables: weights, xi
        cost = np.append(np.ones(width), np.full(n, problem.C * problem.scale))
        A, limits = np.column_stack([-columns, -np.eye(n)]), -np.ones(n)
    # On nearly dependent columns HiGHS may go in circles, so its steps and its time have a limit.
    options = {**LP_OPTIONS, "maxiter": 1000 + 50 * (n + width), "time_limit": 60.0}
    for method in ("highs-ds", "highs-ipm"):
        found = linprog(cost, A_ub=A, b_ub=limits, method=method, options=options)
        if found.status == 0:
            break
    else:
        if np.isinf(problem.C) and np.isfinite(norm):
            return _solve_master(problem, directions, signs, np.inf)
        raise ArithmeticError(f"HiGHS found no solution: {found.message}")
    alpha = np.maximum(-found.ineqlin.marginals[:n], 0.0)
    alpha[alpha < 1e-13 * alpha.max()] = 0.0
    if np.isinf(problem.C):
        alpha *= sizes / problem.sizes
        total = float(alpha.sum())
        return found.x[:width], alpha / total, float(-found.fun) / (guess * total)
    return found.x[:width] / problem.scale, alpha / problem.scale, 1.0
