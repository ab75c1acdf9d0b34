r"""Path following in multiple precision: small problems under any norm, with any number of classes.

Where gates, metrics or C differ by many orders of magnitude, no conic solver in float64 ends near
the optimum. Here each number has hundreds of bits (arb, of FLINT), in which a plain primal barrier
method needs no scaling and no care. One constraint a row p, with q_p = <phi_p, zeta> + <e_p, b>:

    hard margin    max  m                    s.t.  q_p >= m,          Omega(zeta) <= 1
    soft margin    min  t + C sum_n xi_n     s.t.  q_p >= 1 - xi_n,   Omega(zeta) <= t,   xi >= 0

The first is the margin problem in other units: its optimum is 1 / m, and zeta = 0, m = -1 is a
feasible start. Both are: min c'x over s(x) > 0 and the domain of the norm's barrier B. Newton's
method minimises tau c'x + F(x), F(x) = -sum_p log s_p(x) + B(x), to the end; then tau grows
(Nesterov and Nemirovskii 1994). At its minimiser

    alpha_p = 1 / (tau s_p)      is feasible,      c'x is within nu / tau of the optimum,

nu the sum of the barriers' parameters. For the constraints Newton's method is primal and dual: it
keeps beta = tau alpha apart from 1 / s, to which it tends, and its matrix is

    B''(x) + A' diag(beta / s) A,      d beta = 1 / s - beta - (beta / s) o (A dx),

so that a slack that is to change by decades does so in a few steps. A norm says itself in the
functions of CVXPY that it needs (`Norm.atom`), each of which is a barrier of its epigraph:

=====================  ===============================================================  =========
f(z) <= t              barrier                                                          parameter
=====================  ===============================================================  =========
max_j abs(z_j)         -sum_j log(t^2 - z_j^2)                                          2 a term
||z||_2                -log(t^2 - ||z||^2)                                              2
||z||_p                -sum_j [log(r_j^(2/p) t^(2-2/p) - z_j^2) + (1 - 1/p) log r_j     4 a term
                       + log(t) / p] - log(t - sum_j r_j)    (Chares 2009, power cone)
sigma_max(Z), K x n    -log det(t I - Z Z' / t) - n log t, K <= n                       K + n
normNuc(Z), K x n      -log(s - tr Z' P^-1 Z) - n log det P - log(2 t - s - tr P)       K n + 2
sums                   -log(t - sum_g t_g), f_g(z) <= t_g                               1
maxima                 f_g(z) <= t of all g                                             0
=====================  ===============================================================  =========

All classes without samples have one vector of coefficients where the norm treats classes alike.

======  ============  =============================================================================
symbol  shape         meaning
======  ============  =============================================================================
x       (X,)          zeta, b, t and the variables of the norm's barriers, then m or xi
A       (P, X)        s(x) = A x - r, of the constraints, then of the sums and xi
beta    (P,)          tau alpha
c       (X,)          cost
======  ============  =============================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import flint
import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Status
from implicit_bias.exact import ExactAnswer
from implicit_bias.problem import MarginProblem
from implicit_bias.rows import Rows, all_rows, merged_classes, merged_pairs, row_index, rows_of
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet

MOST_STEPS = 600
# Steps times the cube of the number of equations: half a minute. Fewer steps than these lead
# nowhere.
MOST_WORK, FEWEST_STEPS = 8e8, 60
# Precision: at least so many bits, more by this many for each bit that features differ by.
FEWEST_BITS, BITS_A_BIT, MOST_BITS = 192, 2, 1024
# Square of Newton's decrement at which tau grows. The last minimum is reached when it is below
# 2^-bits to this power: V(alpha) is a small difference of large numbers.
NEAR, REACHED = 1.0 / 16, 0.5
# tau grows by a factor that is adapted to the steps that its last growth took.
FIRST_GROWTH, LEAST_GROWTH, MOST_GROWTH = 20.0, 5.0, 1e4
FEW_STEPS, MANY_STEPS = 5, 12
# A step of beta goes this share of the way to where one is 0. beta s stays between 1 / FAR and FAR.
SHARE, FAR = 0.9, 1e12
# No separator of norm 1 has a larger margin than this in units of the features: there is none.
SMALLEST_MARGIN = 1e-100
BYTES_A_NUMBER = 200

Vector = NDArray[np.object_]
Number = Any  # flint.arb, which has no type hints
Places = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Barrier(NativeSolver):
    """Path following in multiple precision, for small problems; see the module's head.

    Parameters
    ----------
    tolerances, max_iterations, max_seconds, max_memory
        As in `NativeSolver`.
    device : str
        Must be "cpu".

    Raises
    ------
    ValueError
        Another device.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin, solve
    >>> X = np.array([[1e9, 1.0], [1e9, -1.0], [-1e9, 0.0]])
    >>> problem = max_margin(X, np.array([0, 1, 2]), "spectral")
    >>> round(solve(problem, Barrier()).certificate.upper, 6)
    1.0
    """

    name: ClassVar[str] = "multiprecision"
    own_limit: ClassVar[int] = MOST_STEPS
    takes_classes: ClassVar[bool] = True
    takes_norms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "cpu":
            raise ValueError(f"multiprecision computes on the CPU only, got {self.device!r}")

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Set up a run; a start is not used."""
        program = Program.of(problem)
        n_rows, n = program.A.shape
        self.check_memory(BYTES_A_NUMBER * (2 * n_rows * n + 3 * n * n))
        return _BarrierRun(self, program)


class _BarrierRun(Run):
    """One solve: its program, the iterate, and the best bounds so far."""

    def __init__(self, solver: Barrier, program: Program) -> None:
        self.solver, self.program = solver, program
        self.found: _Found | None = None

    def steps(self) -> Steps:
        program, tolerance = self.program, 0.1 * self.solver.tolerances.gap
        with flint.ctx.workprec(program.bits):
            at = program.start()
            tau, growth, taken = program.first_tau(at), FIRST_GROWTH, 0
        allowed = int(MOST_WORK / program.order**3)
        for _ in range(allowed if allowed >= FEWEST_STEPS else 0):
            with flint.ctx.workprec(program.bits):
                step = program.step(at, tau)
                if step is None:
                    return Status.NUMERICAL_TROUBLE
                (at, decrement), taken = step, taken + 1
                if decrement <= NEAR:
                    self.found = program.bounds(at.x, tau)
                    if self.found.hopeless:
                        return Status.NOT_SEPARABLE
                    if self.found.gap > tolerance:
                        growth = _adapted(growth, taken)
                        tau, at, taken = (tau * growth).mid(), at.after(growth), 0
                    elif decrement <= 2.0 ** (-REACHED * program.bits):
                        return Status.OPTIMAL
            yield self._bounds
        return Status.ITERATION_LIMIT

    @property
    def _bounds(self) -> tuple[float, float]:
        return (0.0, math.inf) if self.found is None else (self.found.lower, self.found.upper)

    def answer(self) -> Answer:
        if self.found is None:
            return nothing_yet(self.program.problem)
        with flint.ctx.workprec(self.program.bits):
            exact = self.program.exact(self.found)
        problem = self.program.problem
        alpha = exact.alpha.astype(np.float64)
        return Answer(alpha, exact.coef(problem), exact.offset, exact)


def _adapted(growth: float, taken: int) -> float:
    """Return the next growth of tau, from the steps that the last one took."""
    if taken < FEW_STEPS:
        return min(1.5 * growth, MOST_GROWTH)
    return max(growth / 3.0, LEAST_GROWTH) if taken > MANY_STEPS else growth


# --- the program ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """A central point, in units in which the smallest margin, or the objective, is `value`."""

    x: Vector
    alpha: Vector  # (P,)
    value: Number  # m, or t + C sum_n xi_n
    slack: Number  # nu / tau, what is left to the optimum at most
    hard: bool
    smallest: float

    @property
    def gap(self) -> float:
        return float(self.slack / self.value) if self.value.mid() > 0 else math.inf

    @property
    def hopeless(self) -> bool:
        """Whether separators, if there are any, are out of reach."""
        return self.hard and not self.value.mid() > 0 and float(self.slack) < self.smallest

    @property
    def lower(self) -> float:
        if self.hard:
            return float(1 / (self.value + self.slack)) if self.value + self.slack > 0 else 0.0
        return max(float(self.value - self.slack), 0.0)

    @property
    def upper(self) -> float:
        if not self.hard:
            return float(self.value)
        return float(1 / self.value) if self.value.mid() > 0 else math.inf


@dataclass(frozen=True, eq=False)
class Point:
    """Variables x (X,), and beta (P,), which is 1 / s(x) at a minimiser."""

    x: Vector
    beta: Vector

    def after(self, growth: float) -> Point:
        """Return the point with the same alpha when tau has grown."""
        return Point(self.x, _mid(self.beta * growth))


@dataclass(frozen=True, eq=False)
class Program:
    """The program of a problem: x = (zeta, b, t, the norm's own variables, m or xi).

    Attributes
    ----------
    A : ndarray of shape (P, X)
        s(x) = A x - r.
    places : ndarray of int, shape (K, M', D)
        Place in x of each coefficient; classes without samples share theirs. -1 of those that an
        intercept takes care of.
    moved : ndarray of int
        Places of the variables: all but t, which is 1, with a hard margin.
    alone : ndarray of int
        Places of variables that meet one another in sums alone: a step eliminates them.
    """

    problem: MarginProblem
    rows: Rows
    bits: int
    A: Vector
    r: Vector  # (P,)
    cost: Vector  # c, (X,)
    places: Places
    terms: tuple[Term, ...]
    begin: Vector  # (X,)
    moved: Places
    alone: Places

    @classmethod
    def of(cls, problem: MarginProblem) -> Program:
        """Pose a problem.

        Raises
        ------
        NotImplementedError
            A norm that says itself in a function of CVXPY of which no barrier is known here.
        """
        rows, kinds = _rows(problem), _kinds(problem)
        shape = (problem.classes or 1, problem.plain_gates.shape[1], problem.X.shape[1])
        used, places = np.unique(kinds), np.full(shape, -1)
        used = used[used >= 0]
        size = shape[1] * shape[2]
        for k in np.flatnonzero(kinds >= 0):
            first = int(np.searchsorted(used, kinds[k])) * size
            places[k] = np.arange(first, first + size).reshape(shape[1:])
        bits = _precision(problem)
        with flint.ctx.workprec(bits):
            firsts = [int(np.flatnonzero(kinds == kind)[0]) for kind in used]
            features = _features(rows, shape, firsts)
            J, hard = rows.n_offsets, problem.hard_margin
            epigraph = Epigraph(features.shape[1] + J)
            unit = _number(1.0) if hard else _first_norm(problem)
            head = epigraph.new(unit)
            kept = places[kinds >= 0]
            norm = problem.norm.atom(Coefficients(kept.ravel()), kept.shape, epigraph)
            norm.below(epigraph, head, unit)
            if hard:
                last = np.full(len(rows), epigraph.new(_number(-1.0)))
            else:
                samples = np.unique(rows.samples, return_inverse=True)[1]
                last = epigraph.several(int(samples.max()) + 1, _number(2.0))
                epigraph.alone.extend(last.tolist())
                for place in last:
                    epigraph.add_positive(np.array([place]), _numbers([1.0]))
                last = last[samples]
            A = _zeros(len(rows) + len(epigraph.sums), epigraph.size)
            r = _numbers(np.zeros(len(A)))
            A[: len(rows), : features.shape[1]] = features
            A[: len(rows), features.shape[1] : head] = _numbers(rows.offsets * rows.y[:, None])
            A[np.arange(len(rows)), last] = _number(-1.0 if hard else 1.0)
            for row, (members, weights) in zip(A[len(rows) :], epigraph.sums, strict=True):
                row[members] = weights
            cost = _zeros(epigraph.size)
            cost[last] = _number(-1.0 if hard else problem.C)
            if not hard:
                r[: len(rows)] = cost[head] = _number(1.0)
            begin = _zeros(epigraph.size)
            begin[list(epigraph.begin)] = list(epigraph.begin.values())
            places_of_all = np.arange(epigraph.size)
            return cls(
                problem=problem,
                rows=rows,
                bits=bits,
                A=A,
                r=r,
                cost=cost,
                places=places,
                terms=tuple(epigraph.terms),
                begin=begin,
                moved=places_of_all[places_of_all != head] if hard else places_of_all,
                alone=np.array(epigraph.alone, dtype=np.int64),
            )

    @cached_property
    def nu(self) -> int:
        """Parameter of the whole barrier."""
        return len(self.A) + sum(term.parameter for term in self.terms)

    @cached_property
    def order(self) -> int:
        """How many equations a step solves."""
        return len(self.moved) - len(self.alone) + len(self._wide)

    @cached_property
    def _matrix(self) -> Any:
        return _matrix(self.A)

    @cached_property
    def _wide(self) -> Places:
        """Rows that have more than one of the variables that are eliminated."""
        return np.flatnonzero((self.A[:, self.alone] != 0).sum(axis=1) > 1)

    @cached_property
    def _others(self) -> tuple[Places, Places]:
        """The other rows, and the places of the variables that they have."""
        rows = np.setdiff1d(np.arange(len(self.A)), self._wide)
        return rows, np.flatnonzero((self.A[rows] != 0).any(axis=0))

    def start(self) -> Point:
        """Return a feasible point."""
        return Point(self.begin, _mid(1 / self.slacks(self.begin)))

    def slacks(self, x: Vector) -> Vector:
        """s(x), shape (P,)."""
        return _mid(_entries(self._matrix * _matrix(x[:, None]))[:, 0]) - self.r

    def barrier(self, x: Vector) -> Number | None:
        """F(x); None outside of its domain."""
        slacks = self.slacks(x)
        if not _positive(slacks):
            return None
        total = -_log(slacks).sum()
        for term in self.terms:
            value = term.value(x[term.places])
            if value is None:
                return None
            total += value
        return total

    def newton(self, at: Point, slacks: Vector) -> tuple[Vector, Newton]:
        """Return the gradient of F, and the equations of a step, in the variables that move."""
        gradient, matrix = -(1 / slacks) @ self.A, _zeros(len(at.x), len(at.x))
        for term in self.terms:
            slope, rows, columns, curvature = term.derivatives(at.x[term.places])
            np.add.at(gradient, term.places, slope)
            np.add.at(matrix, (term.places[rows], term.places[columns]), curvature)
        roots = _root(at.beta / slacks)[:, None]
        rows, columns = self._others
        part = _matrix(_mid(self.A[np.ix_(rows, columns)] * roots[rows]))
        matrix[np.ix_(columns, columns)] += _entries(part.transpose() * part)
        moved, wide = self.moved, self.A[self._wide] * roots[self._wide]
        alone = np.searchsorted(moved, self.alone)
        whole = Newton(_mid(matrix[np.ix_(moved, moved)]), _mid(wide[:, moved]), alone)
        return _mid(gradient[moved]), whole

    def first_tau(self, at: Point) -> Number:
        """Return the tau whose minimiser is nearest to x, by the length of Newton's step.

        Not too large a one, whose minimiser is near a curved boundary along which steps are short.
        """
        gradient, newton = self.newton(at, self.slacks(at.x))
        cost = self.cost[self.moved]
        tau = -(cost @ newton.solve(gradient)) / (cost @ newton.solve(cost))
        hard = self.problem.hard_margin
        size = max(abs(value) for value in self.A.ravel()) if hard else self.cost @ at.x
        return min(tau, 1 / size).mid() if tau > 0 else (1 / size).mid()

    def step(self, at: Point, tau: Number) -> tuple[Point, float] | None:
        """Return the point after a damped step of Newton's, and the square of the decrement.

        None where no step lowers the function, for want of precision.
        """
        x, slacks = at.x, self.slacks(at.x)
        gradient, newton = self.newton(at, slacks)
        gradient = _mid(tau * self.cost[self.moved] + gradient)
        direction = _zeros(len(x))
        direction[self.moved] = newton.solve(-gradient)
        decrement = float(-(gradient @ direction[self.moved]).mid())
        if not math.isfinite(decrement) or decrement < 0:
            return None
        length = _number(1.0)
        if decrement > NEAR:
            found = self._length(x, tau, direction, decrement, slacks)
            if found is None:
                return None
            length = found
        moved = _mid(x + length * direction)
        along = _entries(self._matrix * _matrix(direction[:, None]))[:, 0]
        change = 1 / slacks - at.beta - at.beta / slacks * along
        reach = [-b / d for b, d in zip(at.beta, change, strict=True) if d.mid() < 0]
        share = min([_number(1.0), *(SHARE * length for length in reach)])
        # Far from the minimiser they say nothing of it.
        center = 1 / self.slacks(moved)
        beta = np.minimum(np.maximum(at.beta + share * change, center / FAR), center * FAR)
        return Point(moved, _mid(beta)), decrement

    def _length(
        self, x: Vector, tau: Number, direction: Vector, decrement: float, slacks: Vector
    ) -> Number | None:
        """Return the step of those 4^k times the first one that lowers the function most.

        Where some slacks are to become larger by decades, Newton's step only doubles them.
        """
        change = _entries(self._matrix * _matrix(direction[:, None]))[:, 0]
        reach = [-s / d for s, d in zip(slacks, change, strict=True) if d.mid() < 0]
        longest = min(reach, default=None)

        def value(length: Number) -> Number | None:
            found = self.barrier(at := x + length * direction)
            return None if found is None else found + tau * (self.cost @ at)

        length = _number(1.0) if longest is None else min(_number(1.0), longest / 2)
        best, now = value(length), value(_number(0.0))
        assert now is not None
        # Newton's step over 1 + its decrement stays inside and lowers the function.
        shortest = 1e-3 / (1.0 + math.sqrt(decrement))
        while best is None or not best < now:
            length = (length / 2).mid()
            if float(length) < shortest:
                return None
            best = value(length)
        for factor in (4, _number(1) / 4):
            changed = False
            while (further := value((length * factor).mid())) is not None and further < best:
                best, length, changed = further, (length * factor).mid(), True
            if changed:
                break
        return length

    # --- what is found

    def bounds(self, x: Vector, tau: Number) -> _Found:
        """Return a central point, with the multipliers that it gives."""
        value = self.cost @ x * (-1 if self.problem.hard_margin else 1)
        alpha = 1 / (tau * self.slacks(x)[: len(self.rows)])
        smallest = SMALLEST_MARGIN * float(self.problem.feature_norms.max())
        hard = self.problem.hard_margin
        return _Found(x, _mid(alpha), value.mid(), (self.nu / tau).mid(), hard, smallest)

    def exact(self, found: _Found) -> ExactAnswer:
        """Return what attains the bounds in rational numbers, at smallest margin 1."""
        problem, rows = self.problem, self.rows
        alpha, unit = found.alpha, _number(1.0)
        if problem.hard_margin and found.value.mid() > 0:
            alpha, unit = alpha / (found.value + found.slack), 1 / found.value
        coef = _zeros(*self.places.shape)
        kept = self.places >= 0
        coef[kept] = found.x[self.places[kept]] * unit
        first = int(self.places.max()) + 1
        offsets = found.x[first : first + rows.n_offsets] * unit
        if problem.classes is None:
            intercept = _fractions(offsets).sum() if len(offsets) else Fraction(0)
            return ExactAnswer(_fractions(coef[0]), _balanced(rows, _fractions(alpha)), intercept)
        intercept = np.full(problem.classes, Fraction(0), dtype=object)
        intercept[rows.offset_classes] = _fractions(offsets)
        if not kept.all():
            intercept[~kept[:, 0, 0]] = self._below_all_others(coef, intercept)
        kinds = _kinds(problem)
        whole = np.full(problem.alpha_shape, Fraction(0), dtype=object)
        shared = kinds == kinds[rows.rivals][:, None]  # (P, K)
        weights = _balanced(rows, _fractions(alpha / shared.sum(axis=1)))
        for sample, alike, weight in zip(rows.samples, shared, weights, strict=True):
            whole[sample, alike] = weight
        return ExactAnswer(_fractions(coef), whole, intercept)

    def _below_all_others(self, coef: Vector, intercept: Vector) -> Fraction:
        """Return an offset with which a class without samples and coefficients wins nowhere."""
        problem = self.problem
        gates, owners = _numbers(problem.plain_gates.toarray()), problem.owners
        scores = (gates[:, :, None] * coef[owners] * _numbers(problem.X)[:, None, :]).sum((1, 2))
        lowest = _fractions(scores) + intercept[owners]
        return Fraction(math.floor(min(lowest)) - 1)


@dataclass(frozen=True, eq=False)
class Newton:
    """The matrix H + B'B, of which H is diagonal in the variables ``alone``.

    With y = B x the equations have the matrix [[H, B'], [B, -I]], and those variables are
    eliminated one by one.
    """

    H: Vector  # (n, n)
    B: Vector  # (m, n)
    alone: Places

    def solve(self, right: Vector) -> Vector:
        """Solve with this matrix."""
        kept = np.setdiff1d(np.arange(len(self.H)), self.alone)
        diagonal = self.H[self.alone, self.alone]
        across = np.vstack([self.H[np.ix_(kept, self.alone)], self.B[:, self.alone]])
        n, m = len(kept), len(self.B)
        matrix = _zeros(n + m, n + m)
        matrix[:n, :n] = self.H[np.ix_(kept, kept)]
        matrix[n:, :n], matrix[:n, n:] = self.B[:, kept], self.B[:, kept].T
        matrix[np.arange(n, n + m), np.arange(n, n + m)] = _number(-1)
        rest = np.append(right[kept], _zeros(m))
        if len(self.alone):
            scaled = _mid(across / diagonal)
            matrix, rest = matrix - _product(scaled, across.T), rest - scaled @ right[self.alone]
        found = _solve(matrix, _mid(rest)[:, None])[:, 0]
        whole = _zeros(len(right))
        whole[kept] = found[:n]
        whole[self.alone] = (right[self.alone] - found @ across) / diagonal
        return np.asarray(_mid(whole))


def _kinds(problem: MarginProblem) -> Places:
    """Return the kind of each class, (K,), of one vector of coefficients each; -1 of those without.

    Offsets alone keep classes without samples from winning.
    """
    n_classes = problem.classes or 1
    if problem.classes is None or not problem.norm.treats_classes_alike:
        return np.arange(n_classes)
    kinds = merged_classes(problem)
    return np.where(
        np.isin(np.arange(n_classes), problem.owners) | (not problem.intercept), kinds, -1
    )


def _rows(problem: MarginProblem) -> Rows:
    """Return the constraints, with the columns of all classes."""
    if problem.classes is None:
        return rows_of(problem)
    pairs = row_index(problem)
    return all_rows(
        problem, merged_pairs(problem, pairs) if problem.norm.treats_classes_alike else pairs
    )


def _features(rows: Rows, shape: tuple[int, ...], classes: list[int]) -> Vector:
    """Return y_p phi_p, exactly, of the columns of some classes, shape (P, classes M' D)."""
    gates = rows.gates.toarray().reshape(len(rows), *shape[:2])[:, classes]
    inputs = _numbers(rows.X * rows.y[:, None])
    return np.asarray(
        (_numbers(gates)[..., None] * inputs[:, None, None, :]).reshape(len(rows), -1)
    )


def _precision(problem: MarginProblem) -> int:
    """Return the bits that a problem needs, by how far its features are apart."""
    gates = np.abs(problem.plain_gates.toarray())
    sizes = [np.frexp(values[values > 0])[1] for values in (gates, np.abs(problem.X))]
    apart = sum(int(np.ptp(exponents)) if len(exponents) else 0 for exponents in sizes)
    if not problem.hard_margin:
        scale = math.frexp(problem.scale)[1]
        apart += abs(math.frexp(problem.C)[1] + 2 * scale)
    return min(FEWEST_BITS + BITS_A_BIT * apart, MOST_BITS)


def _first_norm(problem: MarginProblem) -> Number:
    """Return a norm to begin with: no optimum of a soft margin is above C times the samples."""
    sizes = problem.feature_norms[problem.feature_norms > 0]
    most = _number(problem.C) * problem.n_samples
    return min(most, 1 / _number(float(np.median(sizes)))) if len(sizes) else most


def _balanced(rows: Rows, alpha: Vector) -> Vector:
    """Return weights (P,) that obey the intercept's equation exactly, near those that all but do.

    What classes lack is passed on along a tree of the heaviest rows, from its leaves to its root.
    """
    if not rows.n_offsets:
        return alpha
    owners = (rows.y > 0).astype(np.int64) if rows.owners is None else rows.owners
    rivals = 1 - owners if rows.rivals is None else rows.rivals
    lacks = {int(k): Fraction(0) for k in np.union1d(owners, rivals)}
    for owner, rival, weight in zip(owners, rivals, alpha, strict=True):
        lacks[owner] -= weight
        lacks[rival] += weight
    roots = {k: k for k in lacks}
    edges: list[int] = []
    for p in sorted(range(len(alpha)), key=lambda p: alpha[p], reverse=True):
        one, other = roots[owners[p]], roots[rivals[p]]
        if one != other and alpha[p] > 0:
            edges.append(p)
            roots = {k: one if root == other else root for k, root in roots.items()}
    balanced = alpha.copy()
    while edges:
        ends = [k for p in edges for k in (owners[p], rivals[p])]
        p = next(p for p in edges if 1 in (ends.count(owners[p]), ends.count(rivals[p])))
        edges.remove(p)
        leaf, rest = (
            (owners[p], rivals[p]) if ends.count(owners[p]) == 1 else (rivals[p], owners[p])
        )
        balanced[p] += lacks[leaf] if leaf == owners[p] else -lacks[leaf]
        lacks[rest] += lacks[leaf]
    return balanced if (balanced >= 0).all() else alpha


# --- barriers of epigraphs -----------------------------------------------------------------------


class Term(ABC):
    """A self-concordant barrier of some of the variables, at these places of x."""

    places: Places

    @property
    @abstractmethod
    def parameter(self) -> int:
        """Nesterov and Nemirovskii's: by how much it may change along a line through the domain."""

    @abstractmethod
    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""

    @abstractmethod
    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and rows, columns and values of the Hessian, which add up."""


def _dense(gradient: Vector, hessian: Vector) -> tuple[Vector, Places, Places, Vector]:
    rows, columns = np.indices(hessian.shape).reshape(2, -1)
    return gradient, rows, columns, hessian.ravel()


@dataclass(frozen=True, eq=False)
class Ball(Term):
    """-log(t^2 - sum_j w_j z_j^2) of x = (z, t)."""

    places: Places
    weights: Vector

    @property
    def parameter(self) -> int:
        """2."""
        return 2

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        rest = self._rest(x)
        return -rest.log() if rest.mid() > 0 and x[-1].mid() > 0 else None

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        rest, signs = self._rest(x), np.append(self.weights, _number(-1.0))
        gradient = 2 * signs * x / rest
        hessian = np.outer(gradient, gradient)
        hessian[np.diag_indices(len(x))] += 2 * signs / rest
        return _dense(gradient, hessian)

    def _rest(self, x: Vector) -> Number:
        return x[-1] * x[-1] - (self.weights * x[:-1]) @ x[:-1]


@dataclass(frozen=True, eq=False)
class Powers(Term):
    """Power cones abs(z_j) <= r_j^a t_j^(1 - a) of x = (z, r, t); a = 0 is abs(z_j) <= t_j."""

    places: Places
    a: Number

    @property
    def parameter(self) -> int:
        """Three a cone."""
        return len(self.places)

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        z, r, t = x.reshape(3, -1)
        if not (_positive(r) and _positive(t)):
            return None
        rest = self._power(r, t) - z * z
        if not _positive(rest):
            return None
        return -(_log(rest) + (1 - self.a) * _log(r) + self.a * _log(t)).sum()

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        z, r, t = x.reshape(3, -1)
        a, b = 2 * self.a, 2 - 2 * self.a
        power = self._power(r, t)
        rest = power - z * z
        slopes = np.stack([-2 * z, a * power / r, b * power / t])
        second = {
            (0, 0): _numbers(np.full(len(z), -2.0)),
            (1, 1): a * (a - 1) * power / (r * r),
            (1, 2): a * b * power / (r * t),
            (2, 2): b * (b - 1) * power / (t * t),
        }
        own = {(1, 1): (1 - self.a) / (r * r), (2, 2): self.a / (t * t)}
        gradient = -slopes / rest
        gradient[1] -= (1 - self.a) / r
        gradient[2] -= self.a / t
        rows, columns, values = [], [], []
        each = np.arange(len(z))
        for i in range(3):
            for j in range(3):
                key = (min(i, j), max(i, j))
                value = slopes[i] * slopes[j] / (rest * rest)
                value = value - second[key] / rest if key in second else value
                rows.append(i * len(z) + each)
                columns.append(j * len(z) + each)
                values.append(value + own[key] if key in own else value)
        return (
            gradient.ravel(),
            np.concatenate(rows),
            np.concatenate(columns),
            np.concatenate(values),
        )

    def _power(self, r: Vector, t: Vector) -> Vector:
        return np.asarray(_exp(2 * self.a * _log(r) + (2 - 2 * self.a) * _log(t)))


@dataclass(frozen=True, eq=False)
class Entries(Term):
    """-sum_j log(t_j^2 - z_j^2) of x = (z, t)."""

    places: Places

    @property
    def parameter(self) -> int:
        """Two an entry."""
        return len(self.places)

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        z, t = x.reshape(2, -1)
        rest = t * t - z * z
        return -_log(rest).sum() if _positive(rest) and _positive(t) else None

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        z, t = x.reshape(2, -1)
        rest, n = t * t - z * z, len(z)
        slope = np.concatenate([2 * z / rest, -2 * t / rest])
        across = slope[:n] * slope[n:]
        bend = np.concatenate([2 / rest, -2 / rest])
        each, both = np.arange(2 * n), np.arange(n)
        return (
            slope,
            np.concatenate([each, both, both + n]),
            np.concatenate([each, both + n, both]),
            np.concatenate([slope * slope + bend, across, across]),
        )


@dataclass(frozen=True, eq=False)
class SpectralBall(Term):
    """-log det of [t I, R Z; (R Z)', t I], Z of shape (K, n), R diagonal, of x = (Z, t)."""

    places: Places
    shape: tuple[int, int]
    scales: Vector  # (K n,)

    @property
    def parameter(self) -> int:
        """The order of the matrix."""
        return sum(self.shape)

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        Z, t = (x[:-1] * self.scales).reshape(self.shape), x[-1]
        if not t.mid() > 0:
            return None
        small = -_product(Z, Z.T) / t
        small[np.diag_indices(len(Z))] += t
        log_det = _log_det(small)
        return None if log_det is None else -log_det - Z.shape[1] * t.log()

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        (K, n), Z = self.shape, (x[:-1] * self.scales).reshape(self.shape)
        whole = _zeros(K + n, K + n)
        whole[:K, K:], whole[K:, :K] = Z, Z.T
        whole[np.diag_indices(K + n)] = x[-1]
        S = _mid(_entries(_matrix(whole).inv()))
        square = _product(S, S)
        one = np.multiply.outer(S[:K, :K], S[K:, K:]).transpose(0, 2, 1, 3)
        two = np.multiply.outer(S[:K, K:], S[:K, K:]).transpose(0, 3, 2, 1)
        hessian = _zeros(len(x), len(x))
        hessian[:-1, :-1] = 2 * (one + two).reshape(K * n, K * n)
        hessian[-1, :-1] = hessian[:-1, -1] = 2 * square[:K, K:].ravel()
        hessian[-1, -1] = np.trace(square)
        gradient = np.append(-2 * S[:K, K:].ravel(), -np.trace(S))
        scales = np.append(self.scales, _number(1.0))
        return _dense(gradient * scales, hessian * np.outer(scales, scales))


@dataclass(frozen=True, eq=False)
class MatrixFraction(Term):
    """-log(s - tr Z' P^-1 Z) - n log det P of x = (Z, the upper half of P, s)."""

    places: Places
    shape: tuple[int, int]
    scales: Vector  # (K n,)

    @property
    def parameter(self) -> int:
        """One more than that of P, n times."""
        return 1 + self.shape[0] * self.shape[1]

    @cached_property
    def _upper(self) -> tuple[Places, Places]:
        return np.triu_indices(self.shape[0])

    def _parts(self, x: Vector) -> tuple[Vector, Vector]:
        (K, n), P = self.shape, _zeros(self.shape[0], self.shape[0])
        P[self._upper] = P.T[self._upper] = x[K * n : -1]
        return (x[: K * n] * self.scales).reshape(K, n), P

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        Z, P = self._parts(x)
        log_det = _log_det(P)
        if log_det is None:
            return None
        rest = x[-1] - (Z * _solve(P, Z)).sum()
        return -rest.log() - self.shape[1] * log_det if rest.mid() > 0 else None

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        (K, n), (Z, P) = self.shape, self._parts(x)
        a, b = self._upper
        times = np.where(a == b, 1, 2)
        inverse = _mid(_entries(_matrix(P).inv()))
        Y = _product(inverse, Z)
        rest = (x[-1] - (Z * Y).sum()).mid()
        slope = np.concatenate([-2 * Y.ravel(), times * _product(Y, Y.T)[a, b], _numbers([1.0])])
        gradient = -slope / rest
        gradient[K * n : -1] -= n * times * inverse[a, b]
        # The second derivative of tr Z' P^-1 Z along (dZ, E) is 2 tr Q' P^-1 Q, Q = dZ - E Y.
        change = _zeros(K, n, K * n + len(a))
        for i in range(K):
            for j in range(n):
                change[i, j, i * n + j] = _number(1.0)
        for column, (i, j) in enumerate(zip(a, b, strict=True), start=K * n):
            change[i, :, column] -= Y[j]
            if i != j:
                change[j, :, column] -= Y[i]
        flat = change.reshape(K * n, -1)
        bent = _product(flat.T, _product(inverse, change.reshape(K, -1)).reshape(K * n, -1))
        hessian = np.outer(slope, slope) / (rest * rest)
        hessian[:-1, :-1] += 2 * bent / rest
        pairs = inverse[np.ix_(a, a)] * inverse[np.ix_(b, b)]
        pairs = pairs + inverse[np.ix_(a, b)] * inverse[np.ix_(b, a)]
        hessian[K * n : -1, K * n : -1] += n * pairs * np.outer(times, times) / 2
        scales = np.concatenate([self.scales, _numbers(np.ones(len(a) + 1))])
        return _dense(gradient * scales, hessian * np.outer(scales, scales))


# --- what a norm says of itself ------------------------------------------------------------------


@dataclass(frozen=True)
class Coefficients:
    """Coefficients by their places in x: what a norm sees as CVXPY's variable."""

    places: Places

    def __getitem__(self, index: Any) -> Coefficients:
        return Coefficients(self.places[index])

    def counted(self) -> tuple[Places, Vector]:
        """Return the places, each once, and how often they occur."""
        places, counts = np.unique(self.places, return_counts=True)
        return places, _numbers(counts)


class Expression(ABC):
    """A convex function of the coefficients."""

    @abstractmethod
    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound it by the variable at ``head``, which begins at ``begin``, in an epigraph."""

    def __radd__(self, other: Expression | int) -> Expression:
        return self if other == 0 else Sum((*_parts_of(other), *_parts_of(self)))

    def __add__(self, other: Expression | int) -> Expression:
        return self if other == 0 else Sum((*_parts_of(self), *_parts_of(other)))


def _parts_of(expression: Any) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, Sum) else (expression,)


@dataclass(frozen=True)
class Sum(Expression):
    """A sum of functions."""

    parts: tuple[Expression, ...]

    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound each part by a variable of its own, and their sum."""
        share = begin / (2 * len(self.parts))
        heads = epigraph.several(len(self.parts), share)
        epigraph.add_less(heads, _numbers(np.ones(len(heads))), head)
        for part, own in zip(self.parts, heads, strict=True):
            part.below(epigraph, int(own), share)


@dataclass(frozen=True)
class Maximum(Expression):
    """A maximum of functions."""

    parts: tuple[Expression, ...]

    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound all parts by the same variable."""
        for part in self.parts:
            part.below(epigraph, head, begin)


@dataclass(frozen=True)
class EntryNorm(Expression):
    """||z||_p."""

    z: Coefficients
    p: float

    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound the entries, by variables of their own unless p is 2 or infinite."""
        places, counts = self.z.counted()
        if self.p == 2:
            epigraph.terms.append(Ball(np.append(places, head), counts))
        elif math.isinf(self.p):
            epigraph.terms.append(Entries(np.append(places, np.full(len(places), head))))
        else:
            own = epigraph.several(len(places), begin / (2 * self.z.places.size))
            epigraph.alone.extend(own.tolist())
            epigraph.add_less(own, counts, head)
            if self.p == 1:
                epigraph.terms.append(Entries(np.append(places, own)))
            else:
                shared = np.full(len(places), head)
                triples = np.concatenate([places, own, shared])
                epigraph.terms.append(Powers(triples, 1 / _number(self.p)))


@dataclass(frozen=True)
class MatrixNorm(Expression):
    """The largest singular value of a matrix, or their sum. Rows that occur again are weighted."""

    z: Coefficients
    total: bool

    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound the singular values; their sum by the matrix P and a variable."""
        rows, counts = np.unique(self.z.places, axis=0, return_counts=True)
        weights = np.broadcast_to(counts[:, None], rows.shape)
        if rows.shape[0] > rows.shape[1]:
            rows, weights = rows.T, weights.T
        shape = (rows.shape[0], rows.shape[1])
        scales = _root(_numbers(weights.ravel()))
        if not self.total:
            epigraph.terms.append(SpectralBall(np.append(rows, head), shape, scales))
            return
        upper = np.transpose(np.triu_indices(shape[0]))
        P = np.array(
            [epigraph.new(begin / (2 * shape[0]) if i == j else _number(0.0)) for i, j in upper]
        )
        s = epigraph.new(begin / 2)
        epigraph.terms.append(MatrixFraction(np.concatenate([rows.ravel(), P, [s]]), shape, scales))
        parts = np.append(P[upper[:, 0] == upper[:, 1]], s)
        epigraph.add_less(parts, _numbers(np.ones(len(parts))), head, 2.0)


class Epigraph:
    """Barriers, the variables that they add to x, and where these begin.

    It has the functions of CVXPY that norms say themselves in, under their names.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.terms: list[Term] = []
        # Places and weights of sums that are positive; places of variables that meet there only.
        self.sums: list[tuple[Places, Vector]] = []
        self.alone: list[int] = []
        self.begin: dict[int, Number] = {}

    def __getattr__(self, name: str) -> Any:
        raise NotImplementedError(f"no barrier is known here of CVXPY's {name}")

    def new(self, begin: Number) -> int:
        """Add a variable."""
        self.begin[self.size] = begin
        self.size += 1
        return self.size - 1

    def several(self, count: int, begin: Number) -> Places:
        """Add variables."""
        return np.array([self.new(begin) for _ in range(count)])

    def add_less(self, parts: Places, weights: Vector, head: int, times: float = 1.0) -> None:
        """Bound a sum of variables, with weights, by a multiple of another."""
        self.add_positive(np.append(parts, head), np.append(-weights, _number(times)))

    def add_positive(self, members: Places, weights: Vector) -> None:
        """Keep a sum of variables, with weights, positive."""
        self.sums.append((members, weights))

    def pnorm(self, z: Coefficients, p: float, **options: Any) -> Expression:
        """||z||_p."""
        return EntryNorm(z, float(p))

    def norm(self, z: Coefficients, p: float = 2) -> Expression:
        """||z||_p."""
        return EntryNorm(z, float(p))

    def sigma_max(self, z: Coefficients) -> Expression:
        """Largest singular value."""
        return MatrixNorm(z, total=False)

    def normNuc(self, z: Coefficients) -> Expression:
        """Sum of singular values."""
        return MatrixNorm(z, total=True)

    def reshape(self, z: Coefficients, shape: tuple[int, ...], order: str = "C") -> Coefficients:
        """Return coefficients in another shape."""
        return Coefficients(z.places.reshape(shape))

    def maximum(self, *parts: Expression | float) -> Expression:
        """Return the largest of functions, none of which is negative."""
        return Maximum(tuple(part for part in parts if isinstance(part, Expression)))


# --- numbers -------------------------------------------------------------------------------------

_number = flint.arb
_log = np.frompyfunc(lambda v: v.log(), 1, 1)
_exp = np.frompyfunc(lambda v: v.exp(), 1, 1)
_root = np.frompyfunc(lambda v: v.sqrt(), 1, 1)
# Radii of arb's balls are not used: they grow, and what is found is certified afterwards.
_mid = np.frompyfunc(lambda v: v.mid(), 1, 1)


def _numbers(values: Any) -> Vector:
    """Return float64 as they are, in multiple precision."""
    return np.asarray(np.frompyfunc(lambda v: _number(float(v)), 1, 1)(values), dtype=object)


def _zeros(*shape: int) -> Vector:
    return np.full(shape, _number(0), dtype=object)


def _positive(values: Vector) -> bool:
    return all(value.mid() > 0 for value in values)


def _matrix(values: Vector) -> Any:
    return flint.arb_mat(*values.shape, values.ravel().tolist())


def _entries(matrix: Any) -> Vector:
    return np.array(matrix.entries(), dtype=object).reshape(matrix.nrows(), matrix.ncols())


def _product(A: Vector, B: Vector) -> Vector:
    return np.asarray(_mid(_entries(_matrix(A) * _matrix(B))))


def _solve(A: Vector, B: Vector) -> Vector:
    return np.asarray(_mid(_entries(_matrix(A).solve(_matrix(B), algorithm="approx"))))


def _log_det(A: Vector) -> Number | None:
    """Return log det of a symmetric matrix; None unless it is positive definite."""
    A, total = A.copy(), _number(0)
    for k in range(len(A)):
        if not A[k, k].mid() > 0:
            return None
        total += A[k, k].log()
        column = A[k + 1 :, k]
        if len(column):
            A[k + 1 :, k + 1 :] = _mid(A[k + 1 :, k + 1 :] - np.outer(column, column / A[k, k]))
    return total.mid()


def _fractions(values: Vector) -> Vector:
    """Return the same real numbers as fractions."""

    def fraction(value: Number) -> Fraction:
        mantissa, exponent = value.mid().man_exp()
        return Fraction(int(mantissa)) * Fraction(2) ** int(exponent)

    return np.asarray(np.frompyfunc(fraction, 1, 1)(values), dtype=object)
