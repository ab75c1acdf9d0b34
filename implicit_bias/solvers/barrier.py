r"""Path following in multiple precision: small problems under any norm, with any number of classes.

Where gates, metrics or C differ by many orders of magnitude, no conic solver in float64 ends near
the optimum. Here each number has hundreds of bits (arb, of FLINT), in which a barrier method needs
no scaling of its variables. One constraint a row p, with q_p = <phi_p, zeta> + <e_p, b>:

    hard margin    max  m                    s.t.  q_p >= m,          Omega(zeta) <= 1
    soft margin    min  t + sum_n C_n xi_n   s.t.  q_p >= 1 - xi_n,   Omega(zeta) <= t,   xi >= 0

The first is the margin problem in other units: its optimum is 1 / m, and zeta = 0 with any m < 0 is
a feasible start. Both are: min c'x over s(x) = A x - r > 0 and the domain of a barrier B, of the
norm. The dual is that of the margin problem; KKT are alpha_p s_p = 0, and zeta in the
subdifferential of Omega_* at V(alpha). Newton's method minimises

    tau c'x + F(x),     F(x) = -sum_p log s_p(x) + B(x),

for tau that grows (Nesterov and Nemirovskii 1994). At the minimiser

    alpha_p = 1 / (tau s_p)      is feasible,      c'x is within nu / tau of the optimum,

nu the sum of the barriers' parameters. For the constraints Newton's method is primal and dual: it
keeps beta = tau alpha apart from 1 / s, to which it tends, and its matrix is

    B''(x) + A' diag(beta / s) A,      d beta = 1 / s - beta - (beta / s) o (A dx),

so that a slack that is to change by decades does so in a few steps. `Norm.atom` writes a norm in
functions of CVXPY, each of which has a barrier of its epigraph here. Entries that occur w_j times,
those of classes without samples, are counted:

=====================  ===============================================================  =========
f(z) <= t              barrier, besides linear constraints in s(x)                      parameter
=====================  ===============================================================  =========
max_j abs(z_j)         -sum_j log(t^2 - z_j^2)                                          2 n
sum_j w_j abs(z_j)     -sum_j log(r_j^2 - z_j^2), sum_j w_j r_j < t                     2 n
||z||_2                -log(t^2 - sum_j w_j z_j^2)                                      2
||z||_p                -sum_j [log(r_j^(2/p) t^(2-2/p) - z_j^2) + (1 - 1/p) log r_j     3 n
                       + log(t) / p], sum_j w_j r_j < t    (Chares 2009, power cone)
sigma_max(Z), K x n    -log det(t I - Z Z' / t) - n log t, K <= n                       K + n
normNuc(Z), K x n      -log(s - tr Z' P^-1 Z) - n log det P, s + tr P < 2 t             K n + 1
sums                   sum_g t_g < t, f_g(z) <= t_g
maxima                 f_g(z) <= t of all g
=====================  ===============================================================  =========

All classes without samples have one vector of coefficients where the norm treats classes alike.

======  ============  =============================================================================
symbol  shape         meaning
======  ============  =============================================================================
x       (X,)          zeta, b, t and the variables of the norm's barriers, then m or xi
s, r    (S,)          slacks and right sides of the P constraints, then of sums, and xi > 0
A       (S, X)        s(x) = A x - r
beta    (S,)          tau alpha, of the constraints
c       (X,)          cost
m       ()            smallest margin of coefficients of norm 1
======  ============  =============================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import UnsuitableError
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status
from implicit_bias.bounds.exact import ExactAnswer
from implicit_bias.norms.named import AtomError
from implicit_bias.problem import Constraints, Features, MarginProblem
from implicit_bias.solvers.base import Answer
from implicit_bias.solvers.digits import (
    Number,
    Vector,
    as_matrix,
    entries_of,
    exp,
    fractions,
    inverse_of,
    log,
    log_det,
    mid,
    number,
    numbers,
    positive,
    precision_of,
    product,
    root,
    solve,
    zeros,
)
from implicit_bias.solvers.iteration import NativeSolver, Run, Steps, nothing_yet

# Products of numbers: half a minute. Fewer steps than these lead nowhere. A product takes longer by
# the share of bits above the fewest, and these more.
MOST_WORK, FEWEST_STEPS, MORE_BITS = 2.2e9, 80, 128
# Bits of the numbers: at least the first, and as often the second as features differ by bits.
FEWEST_BITS, BITS_A_BIT, MOST_BITS = 192, 2, 4096
# A step is halved until it is this share of the first one.
SHORTEST = 1e-12
# Square of Newton's decrement at which tau grows. The last minimum is reached when it is below
# 2^-bits to this power: V(alpha) is a small difference of large numbers.
NEAR, REACHED = 1.0 / 16, 0.5
# tau grows by a factor that is adapted to the steps that its last growth took.
FIRST_GROWTH, LEAST_GROWTH, MOST_GROWTH = 20.0, 5.0, 1e4
FEW_STEPS, MANY_STEPS = 5, 12
# A step of beta goes this share of the way to where one is 0. beta s stays between 1 / FAR and FAR.
SHARE, FAR = 0.9, 1e3
# Where no separator of norm 1 has a larger margin than this, float64 holds no optimum.
SMALLEST_MARGIN = 2.0**-1024
BYTES_A_NUMBER = 200

Places = NDArray[np.int64]


class BarrierRun(Run):
    """One solve: its program, the iterate, and the best bounds so far.

    Raises
    ------
    UnsuitableError
        A norm of which no barrier is known here.
    """

    def __init__(self, solver: NativeSolver, problem: MarginProblem) -> None:
        n_rows, n = int(np.prod(problem.alpha_shape)), 2 * int(np.prod(problem.coef_shape))
        solver.check_memory(BYTES_A_NUMBER * (2 * n_rows * n + 3 * n * n))
        self.program, self.tolerance = BarrierProgram.of(problem), 0.1 * solver.tolerances.gap
        self.bits = self.program.bits
        self.found: _Central | None = None

    def steps(self) -> Steps:
        """Follow the central path, with more bits where these do not lower the function."""
        program = self.program
        with precision_of(self.bits):
            at = program.start()
            tau, growth, taken = program.first_tau(at), FIRST_GROWTH, 0
        allowed = int(MOST_WORK / program.work)
        for _ in range(allowed if allowed >= FEWEST_STEPS else 0):
            with precision_of(self.bits):
                step = program.step(at, tau)
                if step is None:
                    self.bits *= 2
                    if self.bits > MOST_BITS:
                        return Status.NUMERICAL_TROUBLE
                    continue
                (at, squared), taken = step, taken + 1
                if squared <= NEAR:
                    self.found = program.found(at.x, tau)
                    if self.found.hopeless:
                        return Status.NOT_SEPARABLE
                    if self.found.gap > self.tolerance:
                        growth = _adapted(growth, taken)
                        tau, at, taken = (tau * growth).mid(), at.after(growth), 0
                    elif squared <= 2.0 ** (-REACHED * self.bits):
                        return Status.OPTIMAL
            # Bounds are those of minimisers, and of these only the last is computed to the end.
            yield 0.0, math.inf
        return Status.ITERATION_LIMIT

    def answer(self) -> Answer:
        """Return what attains the bounds of the last minimiser."""
        if self.found is None:
            return nothing_yet(self.program.problem)
        with precision_of(self.bits):
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
class _Central:
    """A point near a minimiser, what its slacks say of alpha, and how far off the optimum is."""

    x: Vector
    alpha: Vector  # (P,)
    value: Number  # m, or t + C sum_n xi_n
    rest: Number  # nu / tau: the optimum is at most so far away, from the minimiser
    hopeless: bool  # whether separators, if there are any, are out of reach

    @property
    def gap(self) -> float:
        """The relative gap, of the minimiser."""
        return float(self.rest / self.value) if self.value.mid() > 0 else math.inf


@dataclass(frozen=True, eq=False)
class CentralPoint:
    """Variables x (X,), and beta (P,), which is 1 / s(x) at a minimiser."""

    x: Vector
    beta: Vector

    def after(self, growth: float) -> CentralPoint:
        """Return the point with the same alpha when tau has grown."""
        return CentralPoint(self.x, mid(self.beta * growth))


@dataclass(frozen=True, eq=False)
class BarrierProgram:
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
        Places of variables that meet one another in rows of A alone: a step eliminates them.
    """

    problem: MarginProblem
    rows: Constraints
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
    def of(cls, problem: MarginProblem) -> BarrierProgram:
        """Pose a problem.

        Raises
        ------
        UnsuitableError
            A norm in functions of CVXPY of which no barrier is known here.
        """
        rows, kinds = problem.constraints.undecided(), _kinds(problem)
        rows = rows.merged() if problem.norm.treats_classes_alike else rows
        shape = (rows.width, *problem.features.shape)
        own, places = np.flatnonzero(kinds >= 0), np.full(shape, -1)
        _, firsts, vectors = np.unique(kinds[own], return_index=True, return_inverse=True)
        size = shape[1] * shape[2]
        places[own] = vectors[:, None, None] * size + np.arange(size).reshape(shape[1:])
        bits = _bits(problem)
        with precision_of(bits):
            features = _features(problem.features.of_rows(rows), rows.width, own[firsts])
            J, hard = rows.offsets.shape[1], problem.hard_margin
            epigraph = Epigraph(features.shape[1] + J)
            unit = number(1.0) if hard else _first_norm(problem)
            head = epigraph.new(unit)
            _norm(problem, places[own], epigraph).below(epigraph, head, unit)
            if hard:
                # In units of the features: of others, they and the norm would need more bits.
                smallest = -number(float(problem.feature_norms.max()) or 1.0)
                last = np.full(len(rows), epigraph.new(smallest))
            else:
                samples = np.unique(rows.samples, return_inverse=True)[1]
                last = epigraph.several(int(samples.max()) + 1, number(2.0))
                epigraph.alone.extend(last.tolist())
                for place in last:
                    epigraph.add_positive(np.array([place]), numbers([1.0]))
                last = last[samples]
            if len(rows) < features.shape[1] and all(t.adds_square for t in epigraph.terms):
                epigraph.alone = [*range(features.shape[1]), *epigraph.alone]
            A = zeros(len(rows) + len(epigraph.sums), epigraph.size)
            r = numbers(np.zeros(len(A)))
            A[: len(rows), : features.shape[1]] = features
            A[: len(rows), features.shape[1] : head] = numbers(rows.offsets)
            A[np.arange(len(rows)), last] = number(-1.0 if hard else 1.0)
            for row, (members, weights) in zip(A[len(rows) :], epigraph.sums, strict=True):
                row[members] = weights
            cost = zeros(epigraph.size)
            cost[last] = number(-1.0) if hard else numbers(problem.box[rows.samples])
            if not hard:
                r[: len(rows)] = cost[head] = number(1.0)
            begin = zeros(epigraph.size)
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
    def work(self) -> float:
        """Products of numbers that a step takes, about, in those of the fewest bits."""
        squares = sum(term.adds_square for term in self.terms)
        order = len(self._kept) + len(self._wide) + squares
        tiles = sum(len(rows) * len(columns) ** 2 for rows, columns in self._tiles)
        products = order**2 * (order + len(self.alone)) + tiles
        return products * (self.bits + MORE_BITS) / (FEWEST_BITS + MORE_BITS)

    @cached_property
    def _matrix(self) -> Any:
        return as_matrix(self.A)

    @cached_property
    def _wide(self) -> Places:
        """Rows that have more than one of the variables that are eliminated."""
        return np.flatnonzero((self.A[:, self.alone] != 0).sum(axis=1) > 1)

    @cached_property
    def _tiles(self) -> list[tuple[Places, Places]]:
        """The other rows, by the classes whose coefficients they have; their places in `_kept`.

        A row has those of two classes, most often: products of all places would be mostly of zeros.
        """
        rows = np.setdiff1d(np.arange(len(self.A)), self._wide)
        present = self.A[rows] != 0
        size = int(np.prod(self.places.shape[1:]))
        n_kinds = (int(self.places.max()) + 1) // size
        classes = present[:, : n_kinds * size].reshape(len(rows), n_kinds, size).any(axis=2)
        kinds = np.unique(classes, axis=0, return_inverse=True)[1].ravel()
        present = present[:, self._kept]
        return [
            (rows[kinds == kind], np.flatnonzero(present[kinds == kind].any(axis=0)))
            for kind in range(int(kinds.max(initial=-1)) + 1)
        ]

    @cached_property
    def _met(self) -> tuple[Places, Places]:
        """Those of them that have one of the variables that are eliminated, and its place there."""
        present = self.A[:, self.alone] != 0
        present[self._wide] = False
        rows, columns = np.nonzero(present)
        return rows, columns

    @cached_property
    def _kept(self) -> Places:
        """Places of the variables that move and are not eliminated."""
        return np.setdiff1d(self.moved, self.alone)

    @cached_property
    def _ordered(self) -> Places:
        """Places of the variables that move, those that are eliminated last."""
        return np.concatenate([self._kept, self.alone])

    def start(self) -> CentralPoint:
        """Return a feasible point."""
        return CentralPoint(self.begin, mid(1 / self.slacks(self.begin)))

    def slacks(self, x: Vector) -> Vector:
        """s(x), shape (P,)."""
        return entries_of(self._matrix * as_matrix(x[:, None]))[:, 0] - self.r

    def barrier(self, x: Vector) -> Number | None:
        """F(x); None outside of its domain."""
        slacks = self.slacks(x)
        if not positive(slacks):
            return None
        total = -log(slacks).sum()
        for term in self.terms:
            value = term.value(x[term.places])
            if value is None:
                return None
            total += value
        return total

    def newton(self, at: CentralPoint, slacks: Vector) -> tuple[Vector, NewtonSystem]:
        """Return the gradient of F, and the equations of a step, in the variables that move."""
        gradient, squares = -(1 / slacks) @ self.A, []
        kept, alone = self._kept, self.alone
        place = np.full(len(at.x), -1)  # in `kept`; of those that are eliminated, -2 - the place
        place[kept], place[alone] = np.arange(len(kept)), -2 - np.arange(len(alone))
        matrix, across = zeros(len(kept), len(kept)), zeros(len(kept), len(alone))
        diagonal = zeros(len(alone))
        for term in self.terms:
            slope, rows, columns, curvature = term.derivatives(at.x[term.places])
            np.add.at(gradient, term.places, slope)
            if term.adds_square:
                squares.append(zeros(1, len(at.x)))
                squares[-1][0, term.places] = slope
            i, j = place[term.places[rows]], place[term.places[columns]]
            for chosen, target, index in (
                ((i >= 0) & (j >= 0), matrix, (i, j)),
                ((i >= 0) & (j < -1), across, (i, -2 - j)),
                ((i < -1) & (i == j), diagonal, (-2 - i,)),
            ):
                np.add.at(target, tuple(part[chosen] for part in index), curvature[chosen])
        roots = root(at.beta / slacks)[:, None]
        wide = np.vstack([self.A[self._wide] * roots[self._wide], *squares])
        for rows, columns in self._tiles:
            part = mid(self.A[np.ix_(rows, kept[columns])] * roots[rows])
            matrix[np.ix_(columns, columns)] += product(part.T, part)
        rows, columns = self._met
        entries = self.A[rows, alone[columns]] * roots[rows, 0]
        np.add.at(diagonal, columns, entries * entries)
        entries = self.A[np.ix_(rows, kept)] * (roots[rows, 0] * entries)[:, None]
        np.add.at(across.T, columns, entries)
        gradient = gradient[self._ordered]
        parts = matrix, across, diagonal, wide[:, kept], wide[:, alone]
        return mid(gradient), NewtonSystem(*map(mid, parts))

    def first_tau(self, at: CentralPoint) -> Number:
        """Return the tau whose minimiser is nearest to x, by the length of Newton's step.

        Not too large a one, whose minimiser is near a curved boundary along which steps are short.
        """
        gradient, newton = self.newton(at, self.slacks(at.x))
        cost = self.cost[self._ordered]
        tau = -(cost @ newton.solve(gradient)) / (cost @ newton.solve(cost))
        size = self.cost @ at.x
        return min(tau, 1 / size).mid() if tau > 0 else (1 / size).mid()

    def step(self, at: CentralPoint, tau: Number) -> tuple[CentralPoint, float] | None:
        """Return the point after a damped step of Newton's, and the square of the decrement.

        None where no step lowers the function, for want of precision.
        """
        x, slacks = at.x, self.slacks(at.x)
        gradient, newton = self.newton(at, slacks)
        gradient = mid(tau * self.cost[self._ordered] + gradient)
        direction = zeros(len(x))
        direction[self._ordered] = newton.solve(-gradient)
        squared = float(-(gradient @ direction[self._ordered]).mid())
        if not math.isfinite(squared) or squared < 0:
            return None
        along = entries_of(self._matrix * as_matrix(direction[:, None]))[:, 0]
        length: Number | None = number(1.0)
        if squared > NEAR or self.barrier(x + direction) is None:
            length = self._length(x, tau, direction, slacks, along)
        if length is None:
            return None
        moved = mid(x + length * direction)
        change = 1 / slacks - at.beta - at.beta / slacks * along
        reach = [-b / d for b, d in zip(at.beta, change, strict=True) if d.mid() < 0]
        share = min([number(1.0), *(SHARE * length for length in reach)])
        # Far from the minimiser they say nothing of it.
        center = 1 / self.slacks(moved)
        beta = np.minimum(np.maximum(at.beta + share * change, center / FAR), center * FAR)
        # Newton's matrix is that of F where beta s is 1: elsewhere a decrement says less.
        if max(abs(beta / center - 1)) > NEAR:
            squared = max(squared, 1.0)
        return CentralPoint(moved, mid(beta)), squared

    def _length(
        self, x: Vector, tau: Number, direction: Vector, slacks: Vector, along: Vector
    ) -> Number | None:
        """Return the step of those 4^k times the first one that lowers the function most.

        Where some slacks are to become larger by decades, Newton's step only doubles them. The
        direction is one of descent, so that a step which is short enough lowers the function, but
        for want of precision.
        """
        reach = [-s / d for s, d in zip(slacks, along, strict=True) if d.mid() < 0]
        longest = min(reach, default=None)

        def value(length: Number) -> Number | None:
            found = self.barrier(at := x + length * direction)
            return None if found is None else found + tau * (self.cost @ at)

        length = number(1.0) if longest is None else min(number(1.0), longest / 2)
        best, now = value(length), value(number(0.0))
        assert now is not None
        shortest = length * SHORTEST
        while best is None or not best < now:
            length = (length / 2).mid()
            if length < shortest:
                return None
            best = value(length)
        for factor in (4, number(1) / 4):
            changed = False
            while (further := value((length * factor).mid())) is not None and further < best:
                best, length, changed = further, (length * factor).mid(), True
            if changed:
                break
        return length

    # --- what is found

    def found(self, x: Vector, tau: Number) -> _Central:
        """Return a point with the multipliers that it gives."""
        hard = self.problem.hard_margin
        value = (self.cost @ x * (-1 if hard else 1)).mid()
        alpha, rest = 1 / (tau * self.slacks(x)[: len(self.rows)]), (self.nu / tau).mid()
        hopeless = hard and value + rest < SMALLEST_MARGIN
        return _Central(x, mid(alpha), value, rest, hopeless)

    def exact(self, found: _Central) -> ExactAnswer:
        """Return what attains the bounds in rational numbers, at smallest margin 1."""
        problem, rows = self.problem, self.rows
        alpha, unit = found.alpha, number(1.0)
        if problem.hard_margin and found.value.mid() > 0 and not found.hopeless:
            alpha, unit = alpha / (found.value + found.rest), 1 / found.value
        coef = zeros(*self.places.shape)
        kept = self.places >= 0
        coef[kept] = found.x[self.places[kept]] * unit
        first = int(self.places.max()) + 1
        offsets = fractions(found.x[first : first + rows.offsets.shape[1]] * unit)
        intercept = rows.of_classes(offsets) + Fraction(0)
        if problem.intercept and len(rows.absent):
            gates, X = numbers(problem.plain_gates.toarray()), numbers(problem.X)
            scores = [fractions((X @ part.T * gates).sum(axis=1)) for part in coef]
            lowered = problem.constraints.with_absent_below(np.stack(scores, axis=1), intercept, 1)
            intercept[rows.absent] = Fraction(math.floor(lowered[rows.absent[0]]))
        whole = rows.alpha(fractions(alpha), Fraction(0))
        whole = rows.shared(whole) if problem.norm.treats_classes_alike else whole
        by_class = fractions(coef).reshape(*problem.coef_shape[:-2], *coef.shape[-2:])
        offset: Any = problem.as_intercept(intercept)
        return ExactAnswer(by_class, repaired(problem, whole), offset)


@dataclass(frozen=True, eq=False)
class NewtonSystem:
    """The matrix [[H, G], [G', diag d]] + B'B, B = [U, W], of variables kept and eliminated.

    With y = B x the equations have the matrix [[H, G, U'], [G', diag d, W'], [U, W, -I]].
    """

    H: Vector  # (n, n)
    G: Vector  # (n, a)
    d: Vector  # (a,)
    U: Vector  # (m, n)
    W: Vector  # (m, a)

    def solve(self, right: Vector) -> Vector:
        """Solve with this matrix, those that are eliminated last."""
        n, m = len(self.H), len(self.U)
        across = np.vstack([self.G, self.W])
        matrix = zeros(n + m, n + m)
        matrix[:n, :n], matrix[n:, :n], matrix[:n, n:] = self.H, self.U, self.U.T
        matrix[np.arange(n, n + m), np.arange(n, n + m)] = number(-1)
        first, last = np.append(right[:n], zeros(m)), right[n:]
        if len(last):
            scaled = mid(across / self.d)
            matrix, first = matrix - product(scaled, across.T), first - scaled @ last
        found = solve(matrix, mid(first)[:, None])[:, 0]
        return np.asarray(mid(np.append(found[:n], (last - found @ across) / self.d)))


def _norm(problem: MarginProblem, places: Places, epigraph: Epigraph) -> Expression:
    """Return the norm in the functions of CVXPY that have barriers here."""
    try:
        found = problem.norm.atom(Coefficients(places.ravel()), places.shape, epigraph)
    except (TypeError, AttributeError, AtomError) as error:
        raise UnsuitableError(f"multiprecision cannot read {problem.norm!r}: {error}") from error
    if not isinstance(found, Expression):
        raise UnsuitableError(f"multiprecision knows no barrier of {problem.norm!r}")
    return found


def _kinds(problem: MarginProblem) -> Places:
    """Return the kind of each class, (K',), of one vector of coefficients each; -1 of no vector.

    Offsets alone keep classes without samples from winning.
    """
    rows = problem.constraints
    if not problem.norm.treats_classes_alike:
        return np.arange(rows.width)
    kinds = rows.kinds[: rows.width].copy()
    if problem.intercept:
        kinds[rows.absent] = -1
    return kinds


def _features(rows: Features, width: int, classes: Places) -> Vector:
    """Return b_p (x) phi_p, exactly, of the columns of some classes, shape (P, classes M' D)."""
    gates = numbers(rows.sparse_gates.toarray().reshape(len(rows), width, -1)[:, classes])
    inputs = numbers(rows.X)
    return np.asarray((gates[..., None] * inputs[:, None, None, :]).reshape(len(rows), -1))


def _bits(problem: MarginProblem) -> int:
    """Return the bits to begin with, by how far the features of a problem are apart."""
    gates = np.abs(problem.plain_gates.toarray())
    sizes = [np.frexp(values[values > 0])[1] for values in (gates, np.abs(problem.X))]
    apart = sum(int(np.ptp(exponents)) if len(exponents) else 0 for exponents in sizes)
    if not problem.hard_margin:
        powers = np.frexp(problem.box)[1] + math.frexp(problem.scale)[1]
        apart += int(np.abs(powers).max() + np.ptp(powers))
    return min(FEWEST_BITS + BITS_A_BIT * apart, MOST_BITS)


def _first_norm(problem: MarginProblem) -> Number:
    """Return a norm to begin with: no optimum of a soft margin is above the sum of C."""
    sizes = problem.feature_norms[problem.feature_norms > 0]
    most = numbers(problem.box).sum()
    return min(most, 1 / number(float(np.median(sizes)))) if len(sizes) else most


# --- barriers of epigraphs -----------------------------------------------------------------------


class Term(ABC):
    """A self-concordant barrier of some of the variables, at these places of x."""

    places: Places
    # Whether the square of the gradient is to be added to what is given of the Hessian.
    adds_square: ClassVar[bool] = False

    @property
    def parameter(self) -> int:
        """Nesterov and Nemirovskii's: by how much it may change along a line through the domain.

        That of many cones is the number of their variables.
        """
        return len(self.places)

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
    adds_square: ClassVar[bool] = True  # the Hessian is diagonal but for it

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
        rest, signs = self._rest(x), np.append(self.weights, number(-1.0))
        each = np.arange(len(x))
        return 2 * signs * x / rest, each, each, 2 * signs / rest

    def _rest(self, x: Vector) -> Number:
        return x[-1] * x[-1] - (self.weights * x[:-1]) @ x[:-1]


@dataclass(frozen=True, eq=False)
class Powers(Term):
    """Power cones abs(z_j) <= r_j^a t_j^(1 - a) of x = (z, r, t); a = 0 is abs(z_j) <= t_j."""

    places: Places
    a: Number

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        z, r, t = x.reshape(3, -1)
        if not (positive(r) and positive(t)):
            return None
        rest = self._power(r, t) - z * z
        if not positive(rest):
            return None
        return -(log(rest) + (1 - self.a) * log(r) + self.a * log(t)).sum()

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        z, r, t = x.reshape(3, -1)
        a, b = 2 * self.a, 2 - 2 * self.a
        power = self._power(r, t)
        rest = power - z * z
        slopes = np.stack([-2 * z, a * power / r, b * power / t])
        bends = zeros(3, 3, len(z))
        bends[0, 0] = number(-2)
        bends[1, 1] = a * (a - 1) * power / (r * r)
        bends[1, 2] = bends[2, 1] = a * b * power / (r * t)
        bends[2, 2] = b * (b - 1) * power / (t * t)
        gradient, hessian = -slopes / rest, slopes[:, None] * slopes / (rest * rest) - bends / rest
        gradient[1:] -= np.stack([(1 - self.a) / r, self.a / t])
        hessian[1, 1] += (1 - self.a) / (r * r)
        hessian[2, 2] += self.a / (t * t)
        places = np.arange(len(x)).reshape(3, -1)
        rows, columns = np.broadcast_arrays(places[:, None], places)
        return gradient.ravel(), rows.ravel(), columns.ravel(), hessian.ravel()

    def _power(self, r: Vector, t: Vector) -> Vector:
        return np.asarray(exp(2 * self.a * log(r) + (2 - 2 * self.a) * log(t)))


@dataclass(frozen=True, eq=False)
class Entries(Term):
    """-sum_j log(t_j^2 - z_j^2) of x = (z, t)."""

    places: Places

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        z, t = x.reshape(2, -1)
        rest = t * t - z * z
        return -log(rest).sum() if positive(rest) and positive(t) else None

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
        small = -product(Z, Z.T) / t
        small[np.diag_indices(len(Z))] += t
        volume = log_det(small)
        return None if volume is None else -volume - Z.shape[1] * t.log()

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        (K, n), Z = self.shape, (x[:-1] * self.scales).reshape(self.shape)
        whole = zeros(K + n, K + n)
        whole[:K, K:], whole[K:, :K] = Z, Z.T
        whole[np.diag_indices(K + n)] = x[-1]
        S = inverse_of(whole)
        square = product(S, S)
        one = np.multiply.outer(S[:K, :K], S[K:, K:]).transpose(0, 2, 1, 3)
        two = np.multiply.outer(S[:K, K:], S[:K, K:]).transpose(0, 3, 2, 1)
        hessian = zeros(len(x), len(x))
        hessian[:-1, :-1] = 2 * (one + two).reshape(K * n, K * n)
        hessian[-1, :-1] = hessian[:-1, -1] = 2 * square[:K, K:].ravel()
        hessian[-1, -1] = np.trace(square)
        gradient = np.append(-2 * S[:K, K:].ravel(), -np.trace(S))
        scales = np.append(self.scales, number(1.0))
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
        (K, n), P = self.shape, zeros(self.shape[0], self.shape[0])
        P[self._upper] = P.T[self._upper] = x[K * n : -1]
        return (x[: K * n] * self.scales).reshape(K, n), P

    def value(self, x: Vector) -> Number | None:
        """Return the barrier; None outside of its domain."""
        Z, P = self._parts(x)
        volume = log_det(P)
        if volume is None:
            return None
        rest = x[-1] - (Z * solve(P, Z)).sum()
        return -rest.log() - self.shape[1] * volume if rest.mid() > 0 else None

    def derivatives(self, x: Vector) -> tuple[Vector, Places, Places, Vector]:
        """Return the gradient, and the Hessian by its places and values."""
        (K, n), (Z, P) = self.shape, self._parts(x)
        a, b = self._upper
        times = np.where(a == b, 1, 2)
        inverse = inverse_of(P)
        Y = product(inverse, Z)
        rest = (x[-1] - (Z * Y).sum()).mid()
        slope = np.concatenate([-2 * Y.ravel(), times * product(Y, Y.T)[a, b], numbers([1.0])])
        gradient = -slope / rest
        gradient[K * n : -1] -= n * times * inverse[a, b]
        # The second derivative of tr Z' P^-1 Z along (dZ, E) is 2 tr Q' P^-1 Q, Q = dZ - E Y.
        change = zeros(K, n, K * n + len(a))
        for i in range(K):
            for j in range(n):
                change[i, j, i * n + j] = number(1.0)
        for column, (i, j) in enumerate(zip(a, b, strict=True), start=K * n):
            change[i, :, column] -= Y[j]
            if i != j:
                change[j, :, column] -= Y[i]
        flat = change.reshape(K * n, -1)
        bent = product(flat.T, product(inverse, change.reshape(K, -1)).reshape(K * n, -1))
        hessian = np.outer(slope, slope) / (rest * rest)
        hessian[:-1, :-1] += 2 * bent / rest
        pairs = inverse[np.ix_(a, a)] * inverse[np.ix_(b, b)]
        pairs = pairs + inverse[np.ix_(a, b)] * inverse[np.ix_(b, a)]
        hessian[K * n : -1, K * n : -1] += n * pairs * np.outer(times, times) / 2
        scales = np.concatenate([self.scales, numbers(np.ones(len(a) + 1))])
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
        return places, numbers(counts)


class Expression(ABC):
    """A convex function of the coefficients."""

    @abstractmethod
    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound it by the variable at ``head``, which begins at ``begin``, in an epigraph."""

    def __radd__(self, other: Expression | int) -> Expression:
        return self if other == 0 else SumOfNorms((*_parts_of(other), *_parts_of(self)))

    def __add__(self, other: Expression | int) -> Expression:
        return self if other == 0 else SumOfNorms((*_parts_of(self), *_parts_of(other)))


def _parts_of(expression: Any) -> tuple[Expression, ...]:
    return expression.parts if isinstance(expression, SumOfNorms) else (expression,)


@dataclass(frozen=True)
class SumOfNorms(Expression):
    """A sum of functions."""

    parts: tuple[Expression, ...]

    def below(self, epigraph: Epigraph, head: int, begin: Number) -> None:
        """Bound each part by a variable of its own, and their sum."""
        share = begin / (2 * len(self.parts))
        heads = epigraph.several(len(self.parts), share)
        epigraph.add_less(heads, numbers(np.ones(len(heads))), head)
        for part, own in zip(self.parts, heads, strict=True):
            part.below(epigraph, int(own), share)


@dataclass(frozen=True)
class MaximumOfNorms(Expression):
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
                epigraph.terms.append(Powers(triples, 1 / number(self.p)))


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
        scales = root(numbers(weights.ravel()))
        if not self.total:
            epigraph.terms.append(SpectralBall(np.append(rows, head), shape, scales))
            return
        upper = np.transpose(np.triu_indices(shape[0]))
        P = np.array(
            [epigraph.new(begin / (2 * shape[0]) if i == j else number(0.0)) for i, j in upper]
        )
        s = epigraph.new(begin / 2)
        epigraph.terms.append(MatrixFraction(np.concatenate([rows.ravel(), P, [s]]), shape, scales))
        parts = np.append(P[upper[:, 0] == upper[:, 1]], s)
        epigraph.add_less(parts, numbers(np.ones(len(parts))), head, 2.0)


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
        raise UnsuitableError(f"multiprecision knows no barrier of CVXPY's {name}")

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
        self.add_positive(np.append(parts, head), np.append(-weights, number(times)))

    def add_positive(self, members: Places, weights: Vector) -> None:
        """Keep a sum of variables, with weights, positive."""
        self.sums.append((members, weights))

    def pnorm(self, z: Coefficients, p: float = 2, *, approx: bool = True) -> Expression:
        """||z||_p; the same whether approximated or not, which is CVXPY's matter."""
        return self.norm(z, p)

    def norm(self, z: Coefficients, p: float = 2) -> Expression:
        """||z||_p of a vector: that of a matrix is another norm in CVXPY."""
        if z.places.ndim != 1:
            raise UnsuitableError("multiprecision takes norms of entries of vectors only")
        return EntryNorm(z, float(p))

    def sigma_max(self, z: Coefficients) -> Expression:
        """Largest singular value."""
        return MatrixNorm(z, total=False)

    def normNuc(self, z: Coefficients) -> Expression:
        """Sum of singular values."""
        return MatrixNorm(z, total=True)

    def reshape(self, z: Coefficients, shape: tuple[int, ...], order: str = "F") -> Coefficients:
        """Return coefficients in another shape, of the order C."""
        if order != "C":
            raise UnsuitableError("multiprecision reshapes in the order C only")
        return Coefficients(z.places.reshape(shape))

    def maximum(self, *parts: Expression | float) -> Expression:
        """Return the largest of functions, none of which is negative."""
        return MaximumOfNorms(tuple(part for part in parts if isinstance(part, Expression)))
