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

**Classes.** With labels 0 .. K - 1 a unit has a readout to all outputs, nu has values in R^K, and
the norm of a unit is the product of the Euclidean norms of its two weight vectors: half of the sum
of their squares, at its smallest, so this is the norm that gradient descent on both layers is
biased to. coef is (J, K), alpha (N, K), and

        f_{y_n}(x_n) - f_k(x_n) >= 1 - xi_n for all k != y_n,    sum_k alpha_nk <= C,
        h(w) = sum_n a_n sigma(<w, x_n>),  a_n = sum_k alpha_nk (e_{y_n} - e_k),  ||h(w)||_2 <= 1.

If every unit had one output (the norm sum_k ||nu_k||) the oracle would fall into K of those of two
classes; that norm is not the one of training and is not offered.

**Oracle.** sigma(t) = (a + b)/2 t + (b - a)/2 |t|, so h is of the form of `arrangement`, one
hyperplane for each line that holds samples with alpha > 0, and its maximum is exact: for rank 3 in
O(S^2) for S such lines, in O(S^(r - 1)) for rank r. An orthonormal basis of the row space of X
changes variables exactly: a direction's part outside of it adds length and nothing else.

**Column generation.** A program over finitely many directions gives coef and alpha; the oracle
gives the directions with ||h|| above its bound, which join. With two classes it is a linear
program; with the hard margin it is solved in its scale-free form, max m subject to
y_n f(x_n) >= m, ||nu|| <= 1, which has a solution for any data. With more it is a `MarginProblem`
with one group a direction, whose gates are the activations and whose only input is the constant 1.

**Certificate.** Above: ||nu|| over the smallest margin. Below: sum(alpha) / max ||h||, with the
rounding allowance of the oracle in its denominator. Beyond rank 5, or with too many lines, the
maximum of ||h|| is bounded from above by a quadratic relaxation: the bounds hold, the gap stays.

Where it is proven before that nothing separates the data, the lower bound is inf: see
`problem`. Data that are merely nearly inseparable have a finite one.

Source: Chizat, Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained
with the logistic loss" (2020). The oracle, the certificate and the classes are not in the paper.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import scipy.optimize
import scipy.sparse as sp
from numpy.typing import ArrayLike

from implicit_bias.base import validation
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate, Status
from implicit_bias.bounds.separability import Conflict
from implicit_bias.bounds.status import relative_gap
from implicit_bias.infinite_width.arrangement import TINY, Peaks, maximise, scattered, unit
from implicit_bias.infinite_width.problem import Activation, InfiniteWidthProblem, unit_weights
from implicit_bias.infinite_width.sphere_search import ascend, main_axes, relax, upper_bound
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import solve as solve_gated
from implicit_bias.solvers.base import BoundsAt

# Arcs that the exact oracle may visit in one call, times outputs: seconds beyond rank 3.
MAX_ARCS = 20_000_000
# Most new directions of a round: of the linear program, and of that of classes, which takes longer.
NEW_DIRECTIONS, NEW_OF_CLASSES = 60, 40
# The angle in radians between them, at first and at least: directions nearer to each other make the
# program degenerate and slow.
APART, NEAREST = 0.1, 1e-4
# Where ||h|| is this near to its bound, a neuron may be; most of those of which few are chosen.
TOUCHES, MOST_NEURONS = 1e-4, 400
# Of one linear program: its time, and HiGHS's tolerances, which the certificate does not trust.
MOST_SECONDS = 60.0
LP_OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
# Largest ratio of input norms, and largest entry, that the linear program sees.
WIDEST, LARGEST_ENTRY = 1e9, 1e14
# Without a network that separates, data are nearly inseparable where separators must be this much
# larger, relative to the inputs, than a single sample needs: the linear program finds larger ones
# than the interior point of classes, which has fewer digits.
NEARLY, NEARLY_OF_CLASSES = 1e9, 1e7
# Cutting planes that raise the lower bound where the oracle is not exact.
RAISING_ROUNDS = 20
# Rounds without progress, a tenth of the gap, that end a solve whose gap is one of rounding.
STALLED = 10
# Rounds after which a direction without weight leaves the program, and what counts as no weight.
PATIENCE, NO_WEIGHT = 8, 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class InfiniteWidthSolution:
    """Result of `max_margin`.

    Attributes
    ----------
    problem : InfiniteWidthProblem
        What was solved.
    directions : ndarray of shape (J, D)
        Unit vectors: first-layer weights of the optimal network.
    coef : ndarray of shape (J,) or (J, K)
        Weights, or with classes readouts; with the hard margin the smallest margin is 1.
    alpha : ndarray of shape (N,) or (N, K)
        Dual variables, feasible: max ||h|| <= 1. Without separability Gordan's proof, of sum 1.
    status : Status
        Only OPTIMAL means that the gap is at most the tolerance.
    certificate : Certificate
        Bounds on the smallest variation norm; ``dual_norms`` holds max ||h||.
    history : tuple of BoundsAt
        Bounds after each round.
    exact : bool
        Whether the oracle was exact; if not, ``lower`` is the best provable bound we have.
    seconds : float
        Wall time.
    conflict : Conflict or None
        Why the data are not separable, where they are not.
    rounding : float
        Share of max ||h|| of ``alpha`` that rounding may hide. The certified gap cannot be smaller;
        it is large where margins are tiny relative to the inputs: opposite labels that nearly
        coincide, or coordinates far from 0.
    """

    problem: InfiniteWidthProblem
    directions: Array
    coef: Array
    alpha: Array
    status: Status
    certificate: Certificate
    history: tuple[BoundsAt, ...]
    exact: bool
    seconds: float
    conflict: Conflict | None = None
    rounding: float = 0.0

    def __repr__(self) -> str:
        found = f"{self.status.name}: {self.message} {len(self.coef)} neurons"
        return f"InfiniteWidthSolution({found})"

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
        """f(x) of inputs X (n, D): shape (n,), or with classes (n, K)."""
        inputs = validation.as_features(X, self.problem.X.shape[1])
        return self.problem.activations(self.directions, inputs) @ self.coef


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what is infinite bounds nothing
def max_margin(
    X: ArrayLike,
    y: ArrayLike,
    C: float = np.inf,
    tol: float = 1e-6,
    *,
    activation: Activation = "relu",
    max_rounds: int = 300,
    max_seconds: float | None = None,
    start: ArrayLike | None = None,
    random_state: int | np.random.Generator = 0,
    classes: int | None = None,
) -> InfiniteWidthSolution:
    """Find the infinitely wide two-layer network of the largest margin per variation norm.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; exact for rank 3 at most, and for rank 4 and 5 while the oracle can visit all
        cells (at most `MAX_ARCS` arcs: 271 support vectors in rank 4, 66 in rank 5; with K classes
        K times as many count). Otherwise the bounds hold, and their gap stays open.
    y : array_like of shape (N,)
        Labels: -1 and +1, or 0 .. K - 1 for K > 2 classes, with one output a class.
    C : float
        Weight of the hinge loss; inf is the hard margin.
    tol : float
        Relative gap between the certified bounds at which to stop.
    activation : str or (float, float)
        As in `InfiniteWidthProblem`.
    max_rounds : int
        Limit on the rounds of column generation.
    max_seconds : float, optional
        Limit on the time, seen between rounds: the bounds so far are returned.
    start : array_like of shape (J, D), optional
        Directions to start from, such as those of a network; with either sign of weight.
    random_state : int or Generator
        Seed of the local searches beyond rank 3.
    classes : int, optional
        K, where the labels are 0 .. K - 1 but not all of them occur, or K = 2.

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
    began = time.perf_counter()
    deadline = Deadline.asked(max_seconds)
    problem = InfiniteWidthProblem(X, y, activation, C, classes)  # type: ignore[arg-type]
    validation.check_number(tol, "tol", "(0, inf)")
    validation.check_count(max_rounds, "max_rounds")
    if start is not None:
        start = validation.as_features(start, problem.X.shape[1], "start")
    generation = _Generation(problem, Oracle(problem, random_state), start)
    conflict = problem.find_conflict()
    if conflict is not None:
        lower = upper = np.inf
        generation.alpha, min_margin, status = conflict.alpha, np.nan, Status.NOT_SEPARABLE
        directions, coef = generation.primal
    else:
        status = generation.run(tol, max_rounds, deadline)
        directions, coef = generation.fewest_neurons(tol)
        lower = generation.lower
        upper, min_margin = problem.primal_bound(directions, coef)
        if np.isinf(problem.C) and min_margin > 0:
            coef, min_margin = coef / min_margin, 1.0
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
        conflict=conflict,
        rounding=generation.rounding,
    )


class Oracle:
    """Directions of large ||h||, and upper bounds of max ||h||."""

    def __init__(
        self, problem: InfiniteWidthProblem, random_state: int | np.random.Generator
    ) -> None:
        self.problem = problem
        self.exact = True
        self._rng = validation.as_generator(random_state)

    def search(self, alpha: Array, floor: float) -> Peaks:
        """Points found by local ascent where ||h|| reaches the floor, best first."""
        function = self.problem.dual_function(alpha).essential()
        starts = self._rng.normal(size=(200 * function.rank, function.rank))
        starts = unit(np.vstack([starts, function.normals, -function.normals]))
        return Peaks.of(*ascend(function, starts), floor, np.inf)

    def peaks(self, alpha: Array, floor: float) -> Peaks:
        """Exact maximum of ||h||, or a bound of it where the cells are too many."""
        function = self.problem.dual_function(alpha)
        lean, rank = function.essential(), function.rank
        arcs = len(function.offset) * len(lean.kinks) ** (rank - 1)
        if rank <= 3 or (rank <= 5 and arcs <= MAX_ARCS):
            return maximise(function, floor=floor)
        self.exact = False
        found = self.search(alpha, floor)
        bound = max(upper_bound(lean), float(found.values[0]))
        rounding = 1e-12 * function.size + function.slack  # of the lines left out, or merged
        return Peaks(found.points, found.values, bound + rounding)


class _Generation:
    """Column generation: the state of a solve. Directions are in the basis of the row space."""

    def __init__(self, problem: InfiniteWidthProblem, oracle: Oracle, start: Array | None) -> None:
        self.problem = problem
        self.oracle = oracle
        self.directions = problem.first_directions()
        if start is not None:
            scale = max(float(np.abs(start).max(initial=0.0)), TINY)
            given = unit(start / scale @ problem.basis)
            self.directions = np.vstack([self.directions, given[given.any(axis=1)]])
        self.signs = np.zeros(len(self.directions))
        self.idle = np.zeros(len(self.directions), dtype=np.int64)
        self.history: list[BoundsAt] = []
        self.lower, self.upper = 0.0, np.inf
        self.alpha, self.largest = np.zeros(problem.labelled.alpha_shape), np.nan
        self.best_alpha = self.alpha  # as the program gave it
        self.rounding = 0.0  # share of max ||h|| of the best alpha that rounding may hide
        self.stalled = 0
        outputs = () if problem.classes is None else (problem.classes,)
        self.primal = (np.zeros((0, problem.X.shape[1])), np.zeros((0, *outputs)))

    def run(self, tol: float, max_rounds: int, deadline: Deadline) -> Status:
        """Alternate between the program and the oracle, until the bounds meet if they do."""
        if not self.problem.rank:  # all inputs are 0: a finite C pays for them all
            self.alpha = self.problem.C * self.problem.labelled.constraints.equal_alpha()
            self.lower, self.largest = float(self.alpha.sum()), 0.0
            return Status.OPTIMAL
        try:
            status = self._rounds(tol, max_rounds, deadline)
            if not self.oracle.exact and not deadline.passed:
                self._raise_lower(RAISING_ROUNDS)
        except KeyboardInterrupt:
            return Status.INTERRUPTED
        most = NEARLY if self.problem.classes is None else NEARLY_OF_CLASSES
        if np.isinf(self.upper) and self.problem.gordan_ratio(self.alpha) > most:
            return Status.NEARLY_INSEPARABLE
        return Status.OPTIMAL if self.upper - self.lower <= tol * self.lower else status

    def _rounds(self, tol: float, max_rounds: int, deadline: Deadline) -> Status:
        for round_ in range(int(max_rounds)):
            try:
                # The optimum is about the best network's norm, or else the lower bound.
                norm = self.upper if np.isfinite(self.upper) else self.lower
                coef, alpha = solve_master(self.problem, self.directions, self.signs, norm, tol)
            except ArithmeticError:
                return Status.NUMERICAL_TROUBLE
            before = (self.lower, self.upper)
            self._improve_upper(coef)
            new = self._new_directions(alpha, tol)
            self.history.append(BoundsAt(round_, self.lower, self.upper))
            now = (self.lower, self.upper)
            if self.upper - self.lower <= tol * self.lower:
                return Status.OPTIMAL
            self.stalled = 0 if progressed(before, now) else self.stalled + 1
            hidden = self.rounding > tol and self.stalled >= STALLED
            # While the bounds move, the next program has more digits by a better guess of its norm.
            if hidden or (self.stalled and not len(new)):
                exact = self.oracle.exact
                return Status.NUMERICAL_TROUBLE if exact else Status.ITERATION_LIMIT
            if deadline.passed:
                break
            self._join(coef, new, alpha)
        if self.lower == 0:  # the local search had the last word
            self._consult_oracle(alpha, np.inf)
        if deadline.passed:
            return Status.TIME_LIMIT
        return Status.NUMERICAL_TROUBLE if self.rounding > tol else Status.ITERATION_LIMIT

    def _raise_lower(self, rounds: int) -> None:
        """Improve the lower bound of an inexact oracle: dual variables that are best for it.

        Those of the program are made for the true max ||h||; the bound of it is a convex function
        of alpha, too, and cutting planes minimise it: f(alpha) = sum_p alpha_p q_p does not
        exceed 1 where q are the margins of a network of norm 1, or of a unit of the relaxation.
        """
        problem, rows = self.problem, self.problem.labelled.constraints
        directions, coef = self.primal
        readouts = unit(coef.reshape(-1, problem.classes or 1))
        units = problem.activations(directions).T
        cuts = [rows.margins(np.outer(*unit)) for unit in zip(units, readouts, strict=True)]
        cuts += [-cut for cut in cuts]
        losses = sp.csr_array((0, len(rows)))
        if np.isfinite(problem.C):
            shape = (len(problem.y), len(rows))
            losses = sp.csr_array((np.ones(len(rows)), (rows.samples, np.arange(len(rows)))), shape)
        limits = np.full(losses.shape[0], problem.C * problem.scale)
        alpha = self.best_alpha
        for _ in range(rounds):
            for trial in (alpha, 0.5 * (alpha + self.alpha), 0.2 * alpha + 0.8 * self.alpha):
                largest, outputs = self._relaxed(trial)
                cuts += map(rows.margins, outputs)
                self._improve_lower(trial, largest)
            found = scipy.optimize.linprog(
                -np.ones(len(rows)),
                A_ub=sp.vstack([np.array(cuts) / problem.scale, losses]),
                b_ub=np.append(np.ones(len(cuts)), limits),
                method="highs",
                options={"time_limit": MOST_SECONDS},
            )
            if found.status != 0:
                return
            alpha = rows.alpha(np.maximum(found.x, 0.0) / problem.scale)
            self.history.append(BoundsAt(len(self.history), self.lower, self.upper))

    def _relaxed(self, alpha: Array) -> tuple[float, list[Array]]:
        """Bound max ||h|| of dual variables by the relaxation.

        Also return what two of its units put out, of shape (N, K'): along each axis the sign of
        the larger bound is taken in the first, and the other in the second.
        """
        problem = self.problem
        function = problem.dual_function(alpha)
        a, b = problem.slopes
        axes = main_axes(function)
        bounds, outputs = np.zeros((2, len(axes))), np.zeros((2, len(axes), len(problem.y)))
        for k, axis in enumerate(axes):
            both = [(relax(function.along(sign * axis)), sign) for sign in (1.0, -1.0)]
            both.sort(key=lambda found: -found[0].bound)
            for i, (found, sign) in enumerate(both):
                distances = np.append(found.distances, 0.0)[problem.lines.line]
                values = 0.5 * (a + b) * (problem.inputs @ found.mean)
                values += 0.5 * (b - a) * np.abs(problem.lines.lengths) * distances
                bounds[i, k] = max(found.bound, 0.0)
                outputs[i, k] = sign * problem.sizes * values
        shares = unit(bounds)[:, :, None]
        units = list((shares * outputs).swapaxes(1, 2) @ axes)
        return float(np.linalg.norm(bounds[0])) + function.slack, units

    def fewest_neurons(self, tol: float) -> tuple[Array, Array]:
        """Reduce the network found to the neurons that the bound's tolerance needs.

        Near an optimal direction the program shares the weight between several. So their weighted
        means are tried, and the points where ||h|| of the best alpha touches its bound, in both
        cases those that are far apart first.
        """
        if np.isinf(self.upper) or not self.problem.rank:
            return self.primal
        most = max(self.lower * (1.0 + tol), self.upper)
        found = [self._without_light(*self.primal, most)]
        inside = found[0][0] @ self.problem.basis
        weights = unit_weights(found[0][1])
        look = self.oracle.peaks if self.oracle.exact else self.oracle.search
        peaks = look(self.alpha, 1.0 - TOUCHES)
        touching = peaks.points[peaks.values >= 1.0 - TOUCHES]
        distances = np.geomspace(0.3, 1e-4, 12).tolist()
        for tries in (
            (_means(inside, weights, apart) for apart in distances),
            (scattered(touching, apart, MOST_NEURONS) for apart in distances),
        ):
            for some in tries:
                if not len(some):
                    break
                try:
                    signs = self.problem.signs(self.alpha, some)
                    coef, _ = solve_master(self.problem, some, signs, self.upper, 0.3 * tol)
                except ArithmeticError:
                    continue
                network = (some @ self.problem.basis.T, coef)
                if self.problem.primal_bound(*network)[0] <= most:
                    found.append(self._without_light(*network, most))
                    break
        return min(found, key=lambda network: len(network[1]))

    def _without_light(self, directions: Array, coef: Array, most: float) -> tuple[Array, Array]:
        """Leave out the lightest neurons while the bound is at most ``most``."""
        weights = unit_weights(coef)
        for least in weights.max(initial=0.0) * np.geomspace(1e-2, 1e-9, 29):
            kept = weights > least
            if self.problem.primal_bound(directions[kept], coef[kept])[0] <= most:
                return directions[kept], coef[kept]
        return directions, coef

    def _improve_upper(self, coef: Array) -> None:
        used = unit_weights(coef) > 0
        network = (self.directions[used] @ self.problem.basis.T, coef[used])
        upper, _ = self.problem.primal_bound(*network)
        if upper < self.upper or not self.history:
            self.upper, self.primal = upper, network

    def _new_directions(self, alpha: Array, tol: float) -> Array:
        """Directions where ||h|| is above that of all present ones, of one or two alphas."""
        values = self.problem.dual_function(alpha).values(self.directions)
        heights = np.where(self.signs, self.signs * values[:, 0], np.linalg.norm(values, axis=1))
        floor = float(heights.max()) * (1.0 + 1e-9)
        if self.problem.rank > 3:
            # The exact oracle is expensive here, so it only speaks where a local search is mute.
            above = floor * (1.0 + 0.5 * tol)
            found = self._apart(self.oracle.search(alpha, above), above)
            return found if len(found) else self._consult_oracle(alpha, floor)
        found = self._consult_oracle(alpha, floor)
        if self.best_alpha.any() and self.problem.classes is None:
            # Between two vertices of a linear program lies a better point: cutting planes alone
            # oscillate. The answers of an interior point lie between already.
            between = self._consult_oracle(0.5 * (alpha + self.best_alpha), floor)
            found = np.vstack([found, between])
        return found

    def _consult_oracle(self, alpha: Array, floor: float) -> Array:
        """Improve the lower bound; directions where ||h|| is above the floor."""
        peaks = self.oracle.peaks(alpha, floor)
        if self._improve_lower(alpha, peaks.upper) and self.oracle.exact and peaks.upper > 0:
            self.rounding = 1.0 - float(peaks.values[0]) / peaks.upper
        return self._apart(peaks, floor)

    def _apart(self, peaks: Peaks, floor: float) -> Array:
        """Choose points above the floor, apart from each other, and nearer once that stalls."""
        apart = max(APART * 0.5**self.stalled, NEAREST)
        most = NEW_DIRECTIONS if self.problem.classes is None else NEW_OF_CLASSES
        return scattered(peaks.points[peaks.values > floor], apart, most)

    def _improve_lower(self, alpha: Array, largest: float) -> bool:
        """Keep dual variables whose max ||h|| is at most ``largest`` if their bound is better."""
        lower = float(self.problem.dual_bound(alpha, largest))
        if not lower > self.lower:
            return False
        scale = lower / float(alpha.sum())
        self.lower, self.best_alpha = lower, alpha
        self.alpha, self.largest = alpha * scale, largest * scale
        return True

    def _join(self, coef: Array, new: Array, alpha: Array) -> None:
        """Add directions, and drop those that had no weight for long."""
        weights = unit_weights(coef)
        used = weights > NO_WEIGHT * weights.max(initial=0.0)
        self.idle = np.where(used, 0, self.idle + 1)
        kept = self.idle < PATIENCE
        self.directions = np.vstack([self.directions[kept], new])
        self.signs = np.append(self.signs[kept], self.problem.signs(alpha, new))
        self.idle = np.append(self.idle[kept], np.zeros(len(new), dtype=np.int64))


def progressed(before: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether bounds (lower, upper) have closed a tenth of what was open, or risen by a tenth.

    Without a network that separates, the upper bound is inf, and the lower one has to rise.
    """
    if np.isinf(now[1]):
        return now[0] > 1.1 * before[0]
    return now[1] - now[0] < 0.9 * (before[1] - before[0])


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


def solve_master(
    problem: InfiniteWidthProblem, directions: Array, signs: Array, norm: float, tol: float
) -> tuple[Array, Array]:
    """Solve over unit directions (J, r): weights (J,) or readouts (J, K), and dual variables.

    With the hard margin both have any scale, and the dual variables the sum 1. ``signs`` (J,) are
    those that weights may have, 0 for both; ``norm`` is a guess of the optimum. ``tol`` is the gap
    where the program is no linear one.
    """
    if problem.classes is None:
        return _linear_program(problem, directions, signs, norm)
    inputs = problem.inputs * (problem.sizes / problem.scale)[:, None]
    master = MarginProblem(
        problem.labelled.X,
        problem.y,
        problem.sigma(inputs @ directions.T),
        np.arange(len(directions)),
        C=problem.C * problem.scale,
        classes=problem.classes,
    )
    # Bounds are proven here, so that an answer a little short of the tolerance is of use: the
    # automatic choice would try slower solvers for its last digits.
    found = solve_gated(master, "interior-point", tol=min(0.1 * tol, 1e-6))
    total = max(float(found.alpha.sum()), TINY) if np.isinf(problem.C) else problem.scale
    return found.coef[:, :, 0].T / problem.scale, found.alpha / total


def _linear_program(
    problem: InfiniteWidthProblem, directions: Array, signs: Array, norm: float
) -> tuple[Array, Array]:
    """Solve the program of two classes.

    Inside, inputs are divided by their largest norm, or with the hard margin multiplied by a
    guess of the optimal ``norm``, which is at least that of the sample of the smallest norm:
    margins are then about 1, as the tolerances of HiGHS expect. Inputs far larger than the smallest
    are shortened: their larger margins cost nothing that counts, and HiGHS loses no digits.
    """
    hard = np.isinf(problem.C)
    sizes, unit = problem.sizes, 1.0 / problem.scale
    if hard:
        sizes = np.minimum(sizes, WIDEST * sizes.min())
        least = 1.0 / (problem.slope * float(sizes.min()))
        most = LARGEST_ENTRY / (problem.slope * float(sizes.max()))
        unit = min(max(norm if np.isfinite(norm) else 0.0, least), most)
    outputs = problem.sigma((problem.inputs * (sizes * unit)[:, None]) @ directions.T)
    above, below = np.flatnonzero(signs >= 0), np.flatnonzero(signs <= 0)
    columns = problem.y[:, None] * np.column_stack([outputs[:, above], -outputs[:, below]])
    n, width = columns.shape
    if hard:  # variables: weights, m
        cost = np.append(np.zeros(width), -1.0)
        last = np.append(np.ones(width), 0.0)
        A = np.vstack([np.column_stack([-columns, np.ones(n)]), last])
        limits = np.append(np.zeros(n), 1.0)
    else:  # variables: weights, xi
        cost = np.append(np.ones(width), np.full(n, problem.C * problem.scale))
        A, limits = np.column_stack([-columns, -np.eye(n)]), -np.ones(n)
    # On nearly dependent columns HiGHS may go in circles, so its steps and its time have a limit.
    limited = {"maxiter": 1000 + 50 * (n + width), "time_limit": MOST_SECONDS}
    for method in ("highs-ds", "highs-ipm"):
        found = scipy.optimize.linprog(
            cost, A_ub=A, b_ub=limits, method=method, options={**LP_OPTIONS, **limited}
        )
        if found.status == 0:
            break
    else:
        if hard and np.isfinite(norm):
            return _linear_program(problem, directions, signs, np.inf)
        raise ArithmeticError(f"HiGHS found no solution: {found.message}")
    alpha = np.maximum(-found.ineqlin.marginals[:n], 0.0)
    alpha[alpha < 1e-13 * alpha.max()] = 0.0
    if hard:
        alpha *= sizes / problem.sizes
    coef = np.zeros(len(directions))
    coef[above] = found.x[: len(above)]
    coef[below] -= found.x[len(above) : width]
    return coef / problem.scale, alpha / (float(alpha.sum()) if hard else problem.scale)
