r"""Maximum margin of infinitely wide two-layer networks, with a certificate.

Gradient descent on both layers of an infinitely wide ReLU network, with the logistic loss, is
implicitly biased towards the maximum margin under the variation norm (Chizat and Bach 2020).

Primal  minimize  ||nu|| + C sum_n xi_n          (C = inf: xi = 0, the hard margin)
        subject to  y_n int sigma(<w, x_n>) dnu(w) >= 1 - xi_n,  ||w|| = 1
Dual    maximize  sum_n alpha_n
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

**Classes.** With labels 0 .. K - 1 a unit has K output weights, nu has values in R^K, and
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

**Column generation.** A problem over finitely many directions gives coef and alpha; the oracle
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
from dataclasses import dataclass, field

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

# Seconds of one linear program: on nearly dependent columns HiGHS may go in circles.
MOST_SECONDS = 60.0


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
        Output weights; with the hard margin the network has unit margin.
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
        Fraction of max ||h|| of ``alpha`` that rounding may hide. The certified gap cannot be
        smaller; it is large where margins are tiny relative to the inputs: opposite labels that
        nearly coincide, or coordinates far from 0.
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
        if self.conflict is not None:
            return f"No network separates the data: {self.conflict.cause}"
        sentence = self.status.explain(self.certificate)
        if self.status is not Status.OPTIMAL and self.rounding >= 0.1 * self.certificate.gap:
            sentence += f"; rounding hides a fraction of {self.rounding:.1e} of the lower bound"
        return sentence

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
    r"""Find the infinitely wide two-layer network of the maximum margin per variation norm.

    .. math:: \min_{a, w} \; \sum_j |a_j| \quad \text{subject to} \quad
        y_n \sum_j a_j \phi(\langle w_j, x_n \rangle) \ge 1 \text{ for all } n, \quad \|w_j\| = 1

    over all numbers of units.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; exact for rank 3 at most, and for rank 4 and 5 while the oracle can visit all
        cells (`Oracle.max_arcs`: 271 support vectors in rank 4, 66 in rank 5; with K classes K
        times as many count). Otherwise the bounds hold, and their gap stays open.
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

    Notes
    -----
    Chizat and Bach (2020) for the limit of gradient flow on both layers. The oracle and the
    certificate are not in the paper.

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
    oracle = Oracle(problem, validation.as_generator(random_state))
    best = Bounds(problem)

    # --- a proof that nothing separates needs no search
    conflict = problem.find_conflict()
    if conflict is not None:
        status = Status.NOT_SEPARABLE
        best.alpha = conflict.alpha
        best.lower = np.inf
        min_margin = np.nan
    else:  # --- column generation, then a better bound where the oracle is inexact
        generation = ColumnGeneration(problem, oracle, best)
        try:
            status = generation.run(start, tol, max_rounds, deadline)
            if not oracle.exact and not deadline.passed:
                raise_lower_bound(best)
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        if status is not Status.INTERRUPTED:
            status = _final_status(best, status, tol)
        best.directions, best.coef = fewest_neurons(oracle, best, tol)
        best.upper, min_margin = problem.primal_bound(best.directions, best.coef)
        # The hard margin leaves the scale of the network open: its smallest margin becomes 1.
        if np.isinf(problem.C) and min_margin > 0:
            best.coef = best.coef / min_margin
            min_margin = 1.0
    return InfiniteWidthSolution(
        problem,
        best.directions,
        best.coef,
        best.alpha,
        status,
        Certificate(
            best.lower,
            best.upper,
            relative_gap(best.lower, best.upper),
            min_margin,
            np.array([best.largest]),
            soft_margin=bool(np.isfinite(problem.C)),
        ),
        tuple(best.history),
        exact=oracle.exact,
        seconds=time.perf_counter() - began,
        conflict=conflict,
        rounding=best.rounding,
    )


def _final_status(best: Bounds, status: Status, tol: float) -> Status:
    """Return what the bounds prove, and else the status with which the rounds have ended.

    Without a network that separates, data are nearly inseparable where separators must be this
    much larger, relative to the inputs, than a single sample needs: the linear program finds larger
    ones than the interior point of classes, which has fewer digits.
    """
    nearly = 1e9 if best.problem.classes is None else 1e7
    if np.isinf(best.upper) and best.problem.gordan_ratio(best.alpha) > nearly:
        return Status.NEARLY_INSEPARABLE
    if best.upper - best.lower <= tol * best.lower:
        return Status.OPTIMAL
    return status


@dataclass(eq=False)
class Oracle:
    """Directions of large ||h||, and upper bounds of max ||h||.

    Parameters
    ----------
    problem : InfiniteWidthProblem
        What h belongs to.
    generator : Generator
        Draws the starts of local searches.
    max_arcs : int
        Arcs, times outputs, that one exact call may visit: seconds beyond rank 3.
    exact : bool
        Whether all answers so far were exact.
    """

    problem: InfiniteWidthProblem
    generator: np.random.Generator
    max_arcs: int = 20_000_000
    exact: bool = True

    def search(self, alpha: Array, floor: float) -> Peaks:
        """Points found by local ascent where ||h|| reaches the floor, best first."""
        # The kinks' normals u are starts, too: there |<u, w>| is largest.
        function = self.problem.dual_function(alpha).essential()
        starts = self.generator.normal(size=(200 * function.rank, function.rank))
        starts = unit(np.vstack([starts, function.normals, -function.normals]))
        points, values = ascend(function, starts)
        return Peaks.of(points, values, floor, np.inf)

    def peaks(self, alpha: Array, floor: float) -> Peaks:
        """Exact maximum of ||h||, or a bound of it where the cells are too many."""
        function = self.problem.dual_function(alpha)
        essential = function.essential()
        rank = function.rank
        arcs = len(function.offset) * len(essential.kinks) ** (rank - 1)
        if rank <= 3 or (rank <= 5 and arcs <= self.max_arcs):
            return maximise(function, floor=floor)
        # Too many cells: local ascent from below, a relaxation from above.
        self.exact = False
        found = self.search(alpha, floor)
        bound = max(upper_bound(essential), float(found.values[0]))
        rounding = 1e-12 * function.size + function.slack  # of the lines left out, or merged
        return Peaks(found.points, found.values, bound + rounding)


@dataclass(eq=False)
class Bounds:
    """The best bounds on the smallest norm so far, and what proves them.

    Attributes
    ----------
    problem : InfiniteWidthProblem
        What is bounded.
    lower, upper : float
        The bounds.
    alpha : ndarray of shape (N,) or (N, K)
        Dual variables of the lower bound, feasible.
    largest : float
        Upper bound of their max ||h||, at most 1.
    unscaled_alpha : ndarray of the same shape
        The dual variables as the problem over some directions gave them.
    rounding : float
        Fraction of their max ||h|| that rounding may hide.
    directions, coef : ndarray of shapes (J, D) and (J,) or (J, K)
        The network of the upper bound.
    history : list of BoundsAt
        Bounds after each round.
    """

    problem: InfiniteWidthProblem
    lower: float = 0.0
    upper: float = np.inf
    alpha: Array = field(init=False)
    largest: float = np.nan
    unscaled_alpha: Array = field(init=False)
    rounding: float = 0.0
    directions: Array = field(init=False)
    coef: Array = field(init=False)
    history: list[BoundsAt] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.alpha = np.zeros(self.problem.labelled.alpha_shape)
        self.unscaled_alpha = self.alpha
        self.directions = np.zeros((0, self.problem.X.shape[1]))
        self.coef = np.zeros(0)
        if self.problem.classes is not None:
            self.coef = np.zeros((0, self.problem.classes))

    def improve_upper(self, directions: Array, coef: Array) -> None:
        """Keep a network (J, D), (J,) or (J, K) if its bound is better, or it is the first one."""
        upper, _ = self.problem.primal_bound(directions, coef)
        if upper < self.upper or not self.history:
            self.upper = upper
            self.directions = directions
            self.coef = coef

    def improve_lower(self, alpha: Array, largest: float, rounding: float | None = None) -> None:
        """Keep dual variables whose max ||h|| is at most ``largest`` if their bound is better.

        ``rounding`` is their own fraction of it, where that is known.
        """
        # Scaled to max ||h|| <= 1 and to C they are feasible, and their sum is the bound.
        lower = float(self.problem.dual_bound(alpha, largest))
        if lower > self.lower:
            scale = lower / float(alpha.sum())
            self.lower = lower
            self.alpha = alpha * scale
            self.largest = largest * scale
            self.unscaled_alpha = alpha
            if rounding is not None:
                self.rounding = rounding


@dataclass(eq=False)
class ColumnGeneration:
    """Alternate between the problem over some directions and the oracle that adds to them.

    Parameters
    ----------
    problem : InfiniteWidthProblem
        What is solved.
    oracle : Oracle
        Where ||h|| is large.
    best : Bounds
        The best bounds, which the rounds improve.
    most_new, most_new_of_classes : int
        Most new directions of a round: of the linear program, and of that of classes, which takes
        longer.
    apart, nearest : float
        The angle in radians between them, at first and at least: directions nearer to each other
        make that problem degenerate and slow.
    patience : int
        Rounds after which a direction without weight leaves the problem.
    no_weight : float
        What counts as no weight, relative to the largest.
    stalled_rounds : int
        Rounds without progress, a tenth of the gap, that end a solve whose gap is one of rounding.
    """

    problem: InfiniteWidthProblem
    oracle: Oracle
    best: Bounds
    most_new: int = 60
    most_new_of_classes: int = 40
    apart: float = 0.1
    nearest: float = 1e-4
    patience: int = 8
    no_weight: float = 1e-9
    stalled_rounds: int = 10

    def run(self, start: Array | None, tol: float, max_rounds: int, deadline: Deadline) -> Status:
        """Go on until the bounds meet, if they do. Directions are in the basis of the row space."""
        problem = self.problem
        best = self.best
        directions = problem.first_directions()
        if start is not None:
            scale = max(float(np.abs(start).max(initial=0.0)), TINY)
            given = unit(start / scale @ problem.basis)
            directions = np.vstack([directions, given[given.any(axis=1)]])
        signs = np.zeros(len(directions))  # that the weights may have; 0 for both
        idle = np.zeros(len(directions), dtype=np.int64)  # rounds without a weight
        stalled = 0  # rounds without progress
        alpha = best.alpha
        for round_ in range(max_rounds):
            # --- the program over these directions; its scale is a guess of the optimum
            norm = best.lower
            if np.isfinite(best.upper):
                norm = best.upper
            solved = solve_master(problem, directions, signs, norm, tol)
            if solved is None:
                return Status.NUMERICAL_TROUBLE
            coef, alpha = solved
            weights = unit_weights(coef)

            # --- the upper bound is that of its network, the lower one that of its dual variables
            before = (best.lower, best.upper)
            best.improve_upper(directions[weights > 0] @ problem.basis.T, coef[weights > 0])
            new = self._price(alpha, directions, signs, tol, stalled)
            best.history.append(BoundsAt(round_, best.lower, best.upper))

            # --- the end
            if best.upper - best.lower <= tol * best.lower:
                return Status.OPTIMAL
            if progressed(before, (best.lower, best.upper)):
                stalled = 0
            else:
                stalled += 1
            hidden = best.rounding > tol and stalled >= self.stalled_rounds
            # While the bounds move, the next program has more digits by a better guess of its norm.
            if hidden or (stalled and not len(new)):
                if self.oracle.exact:
                    return Status.NUMERICAL_TROUBLE
                return Status.ITERATION_LIMIT
            if deadline.passed:
                break

            # --- new directions join, and those that had no weight for long leave
            used = weights > self.no_weight * weights.max(initial=0.0)
            idle = np.where(used, 0, idle + 1)
            kept = idle < self.patience
            directions = np.vstack([directions[kept], new])
            signs = np.append(signs[kept], problem.signs(alpha, new))
            idle = np.append(idle[kept], np.zeros(len(new), dtype=np.int64))
        if best.lower == 0:  # the local search had the last word
            self._consult_oracle(alpha, np.inf, stalled)
        if deadline.passed:
            return Status.TIME_LIMIT
        if best.rounding > tol:
            return Status.NUMERICAL_TROUBLE
        return Status.ITERATION_LIMIT

    def _price(
        self, alpha: Array, directions: Array, signs: Array, tol: float, stalled: int
    ) -> Array:
        """Directions where ||h|| is above that of all present ones, of one or two alphas."""
        # At the program's optimum ||h|| is the same at all directions that have a weight, and no
        # larger at the others, but for its tolerance: that is the floor for new directions.
        values = self.problem.dual_function(alpha).values(directions)
        heights = np.where(signs, signs * values[:, 0], np.linalg.norm(values, axis=1))
        floor = float(heights.max()) * (1.0 + 1e-9)
        if self.problem.rank > 3:
            # The exact oracle is expensive here, so it is asked only where a local search finds
            # nothing.
            above = floor * (1.0 + 0.5 * tol)
            found = self._scattered(self.oracle.search(alpha, above), above, stalled)
            if len(found):
                return found
            return self._consult_oracle(alpha, floor, stalled)
        found = self._consult_oracle(alpha, floor, stalled)
        if self.best.unscaled_alpha.any() and self.problem.classes is None:
            # Between two vertices of a linear program lies a better point: cutting planes alone
            # oscillate. The answers of an interior point lie between already.
            middle = 0.5 * (alpha + self.best.unscaled_alpha)
            found = np.vstack([found, self._consult_oracle(middle, floor, stalled)])
        return found

    def _consult_oracle(self, alpha: Array, floor: float, stalled: int) -> Array:
        """Improve the lower bound, and return directions where ||h|| is above the floor."""
        peaks = self.oracle.peaks(alpha, floor)
        rounding = None
        if self.oracle.exact and peaks.upper > 0:
            rounding = 1.0 - float(peaks.values[0]) / peaks.upper
        self.best.improve_lower(alpha, peaks.upper, rounding)
        return self._scattered(peaks, floor, stalled)

    def _scattered(self, peaks: Peaks, floor: float, stalled: int) -> Array:
        """Choose points above the floor, apart from each other, and nearer once that stalls."""
        apart = max(self.apart * 0.5**stalled, self.nearest)
        most = self.most_new
        if self.problem.classes is not None:
            most = self.most_new_of_classes
        return scattered(peaks.points[peaks.values > floor], apart, most)


def progressed(before: tuple[float, float], now: tuple[float, float]) -> bool:
    """Whether bounds (lower, upper) have closed a tenth of what was open, or risen by a tenth.

    Without a network that separates, the upper bound is inf, and the lower one has to rise.
    """
    if np.isinf(now[1]):
        return now[0] > 1.1 * before[0]
    return now[1] - now[0] < 0.9 * (before[1] - before[0])


def raise_lower_bound(best: Bounds, rounds: int = 20) -> None:
    """Improve the lower bound of an inexact oracle: dual variables that are best for it.

    The problem's dual variables are made for the true max ||h||. The bound of max ||h|| is a convex
    function of alpha, too, and cutting planes minimize it: f(alpha) = sum_p alpha_p q_p does not
    exceed 1 where q are the margins of a network of norm 1, or of a unit of the relaxation.
    """
    problem = best.problem
    rows = problem.labelled.constraints
    readouts = unit(best.coef.reshape(-1, problem.classes or 1))
    activations = problem.activations(best.directions)
    cuts = [rows.margins(np.outer(activations[:, j], r)) for j, r in enumerate(readouts)]
    cuts += [-cut for cut in cuts]
    # With a finite C the dual variables of a sample sum to at most C.
    losses = sp.csr_array((0, len(rows)))
    if np.isfinite(problem.C):
        shape = (len(problem.y), len(rows))
        losses = sp.csr_array((np.ones(len(rows)), (rows.samples, np.arange(len(rows)))), shape)
    limits = np.full(losses.shape[0], problem.C * problem.scale)
    alpha = best.unscaled_alpha
    for _ in range(rounds):
        # Cutting planes alone oscillate: points between their answer and the best one are tried.
        so_far = best.alpha
        for weight in (1.0, 0.5, 0.2):  # of the program's answer, beside the best ones so far
            trial = weight * alpha + (1.0 - weight) * so_far
            largest, outputs = _relaxed(problem, trial)
            cuts += [rows.margins(of_unit) for of_unit in outputs]
            best.improve_lower(trial, largest)
        # maximize sum(alpha) subject to all cuts so far, and to C
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
        best.history.append(BoundsAt(len(best.history), best.lower, best.upper))


def _relaxed(problem: InfiniteWidthProblem, alpha: Array) -> tuple[float, list[Array]]:
    """Bound max ||h|| of dual variables by the relaxation.

    Also return what two of its units put out, of shape (N, K'): along each axis the sign of
    the larger bound is taken in the first, and the other in the second.
    """
    function = problem.dual_function(alpha)
    a, b = problem.slopes
    axes = main_axes(function)
    bounds = np.zeros((2, len(axes)))
    outputs = np.zeros((2, len(axes), len(problem.y)))
    for k, axis in enumerate(axes):
        both = [(relax(function.along(sign * axis)), sign) for sign in (1.0, -1.0)]
        both.sort(key=lambda found: -found[0].bound)
        for i, (found, sign) in enumerate(both):
            distances = np.append(found.distances, 0.0)[problem.lines.line]
            values = 0.5 * (a + b) * (problem.inputs @ found.mean)
            values += 0.5 * (b - a) * np.abs(problem.lines.lengths) * distances
            bounds[i, k] = max(found.bound, 0.0)
            outputs[i, k] = sign * problem.sizes * values
    weights = unit(bounds)[:, :, None]
    units = (weights * outputs).swapaxes(1, 2) @ axes
    return float(np.linalg.norm(bounds[0])) + function.slack, list(units)


def fewest_neurons(oracle: Oracle, best: Bounds, tol: float) -> tuple[Array, Array]:
    """Reduce the network found to the neurons that the bound's tolerance needs.

    Near an optimal direction the problem's solution divides the weight among several. So their
    weighted means are tried, and the points where ||h|| of the best alpha touches its bound, in
    both cases those that are far apart first.
    """
    if np.isinf(best.upper):
        return best.directions, best.coef
    problem = best.problem
    most = max(best.lower * (1.0 + tol), best.upper)
    found = [_without_light(problem, best.directions, best.coef, most)]
    directions, coef = found[0]
    inside = directions @ problem.basis
    weights = unit_weights(coef)
    touches = 1.0 - 1e-4
    look = oracle.peaks if oracle.exact else oracle.search
    peaks = look(best.alpha, touches)
    touching = peaks.points[peaks.values >= touches]
    for of_program in (True, False):
        for apart in np.geomspace(0.3, 1e-4, 12).tolist():
            if of_program:
                some = _means(inside, weights, apart)
            else:
                some = scattered(touching, apart, 400)
            if not len(some):
                break
            signs = problem.signs(best.alpha, some)
            solved = solve_master(problem, some, signs, best.upper, 0.3 * tol)
            if solved is None:
                continue
            network = (some @ problem.basis.T, solved[0])
            if problem.primal_bound(*network)[0] <= most:
                found.append(_without_light(problem, *network, most))
                break
    return min(found, key=lambda network: len(network[1]))


def _without_light(
    problem: InfiniteWidthProblem, directions: Array, coef: Array, most: float
) -> tuple[Array, Array]:
    """Leave out the lightest neurons while the bound is at most ``most``."""
    weights = unit_weights(coef)
    # From the largest threshold down: the first one that keeps the bound leaves out most.
    for least in weights.max(initial=0.0) * np.geomspace(1e-2, 1e-9, 29):
        kept = weights > least
        if problem.primal_bound(directions[kept], coef[kept])[0] <= most:
            return directions[kept], coef[kept]
    return directions, coef


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
) -> tuple[Array, Array] | None:
    """Solve over unit directions (J, r): output weights (J,) or (J, K), and dual variables.

    With the hard margin both have any scale, and the dual variables the sum 1. ``signs`` (J,) are
    those that weights may have, 0 for both; ``norm`` is a guess of the optimum. ``tol`` is the gap
    where the problem is not a linear program. None where HiGHS finds no solution.
    """
    if problem.classes is None:
        return _solve_linear_program(problem, directions, signs, norm)
    # One group a direction: its gate is the activation, its only input the constant 1.
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
    solution = solve_gated(master, "interior-point", tol=min(0.1 * tol, 1e-6))
    coef = solution.coef[:, :, 0].T / problem.scale
    if np.isinf(problem.C):
        return coef, solution.alpha / max(float(solution.alpha.sum()), TINY)
    return coef, solution.alpha / problem.scale


def _solve_linear_program(
    problem: InfiniteWidthProblem, directions: Array, signs: Array, norm: float
) -> tuple[Array, Array] | None:
    """Solve the linear program of two classes.

    Inside, inputs are divided by their largest norm, or with the hard margin multiplied by a
    guess of the optimal ``norm``, which is at least that of the sample of the smallest norm:
    margins are then about 1, as the tolerances of HiGHS expect.
    """
    hard = np.isinf(problem.C)
    scale = 1.0 / problem.scale
    if hard:
        # From the norm that the smallest sample needs, to entries that HiGHS takes for infinite.
        scale = 1.0 / (problem.slope * float(problem.sizes.min()))
        if np.isfinite(norm):
            scale = max(norm, scale)
        scale = min(scale, 1e14 / (problem.slope * problem.scale))
    outputs = problem.sigma((problem.inputs * (problem.sizes * scale)[:, None]) @ directions.T)
    positive = np.flatnonzero(signs >= 0)
    negative = np.flatnonzero(signs <= 0)
    columns = problem.y[:, None] * np.column_stack([outputs[:, positive], -outputs[:, negative]])
    n, width = columns.shape
    if hard:
        # maximize m over weights >= 0 and m, subject to margins >= m and sum(weights) <= 1
        cost = np.append(np.zeros(width), -1.0)
        norm_row = np.append(np.ones(width), 0.0)
        A = np.vstack([np.column_stack([-columns, np.ones(n)]), norm_row])
        limits = np.append(np.zeros(n), 1.0)
    else:
        # minimize sum(weights) + C sum(xi) over both >= 0, subject to margins >= 1 - xi
        cost = np.append(np.ones(width), np.full(n, problem.C * problem.scale))
        A = np.column_stack([-columns, -np.eye(n)])
        limits = -np.ones(n)
    # The certificate does not trust these tolerances.
    options = {
        "primal_feasibility_tolerance": 1e-10,
        "dual_feasibility_tolerance": 1e-10,
        "maxiter": 1000 + 50 * (n + width),
        "time_limit": MOST_SECONDS,
    }
    # The dual simplex method has vertices, so that few directions have a weight.
    found = scipy.optimize.linprog(cost, A, limits, method="highs-ds", options=options)
    if found.status != 0:
        return None
    alpha = np.maximum(-found.ineqlin.marginals[:n], 0.0)
    alpha[alpha < 1e-13 * alpha.max()] = 0.0
    coef = np.zeros(len(directions))
    coef[positive] = found.x[: len(positive)]
    coef[negative] -= found.x[len(positive) : width]
    coef /= problem.scale
    if hard:
        return coef, alpha / float(alpha.sum())
    return coef, alpha / problem.scale
