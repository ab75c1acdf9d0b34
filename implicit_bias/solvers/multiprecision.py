r"""Interior point in multiple precision: small problems that float64 numbers cannot hold.

Where features differ by many orders of magnitude, or vary little about a large offset, neither
the Newton system nor the answer survives rounding to float64. Here both have ``bits`` bits, by the
numbers of `digits`. These are some thousand times slower, and need neither scaling nor refinement.
The method is that of `homogeneous`, with T = I but for the intercept, in samples scaled to features
of norm 1. With D as there its Newton step is

    few features    dv = (B'diag(h) B + D)^-1 (...),         dalpha = h (q - B dv)
    few samples     dalpha = (diag(1/h) + B D^-1 B')^-1 (...),   dv = D^-1 (... + B'dalpha)

with one masked Gram matrix and a rank-one term a group, and the second one bordered by the
intercept's column:

    B D^-1 B' = sum_g across_g^2 Q_g + (along_g - across_g^2) U_g U_g',     U_g = B_g axis_g,
                along_g = (minus_g^2 + plus_g^2) / 2
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import check_count
from implicit_bias.bounds.balance import repaired
from implicit_bias.bounds.certificate import Status
from implicit_bias.bounds.exact import ExactAnswer
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import barrier, homogeneous
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.digits import (
    Matrix,
    Number,
    Vector,
    fractions,
    inverse_of,
    mid,
    number,
    numbers,
    precision_of,
    product,
    root,
    zeros,
)
from implicit_bias.solvers.iteration import Breakdown, NativeSolver, Run, Steps, nothing_yet

# Powers of two between C and what it is for features of size 1, up to which the bits hold both.
MOST_POWER = 200
# With kappa / tau above this, and tau below its inverse, alpha is taken for Gordan's. Separators
# may be enormous, and tau as small, before kappa vanishes.
INSEPARABLE = 10**60
# Scales that make an answer feasible leave this share of room for their own rounding.
ROOM = number(2.0**-200)
BYTES_A_NUMBER = 160


@dataclass(frozen=True, kw_only=True)
class MultiPrecision(NativeSolver):
    """Small problems in multiple precision.

    Those of two classes and groups are solved as the module's head says, but where C and the
    features are too far apart; those, other norms and many classes as the head of `barrier` does.

    Parameters
    ----------
    tolerances, max_iterations, max_seconds, max_memory
        As in `NativeSolver`.
    device : str
        Must be "cpu".
    bits : int
        Precision of the numbers of two classes and groups, at least 256.

    Raises
    ------
    ValueError
        Fewer bits, or another device.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MarginProblem, solve
    >>> X = 1e12 + np.array([[0.0], [2.0]])
    >>> problem = MarginProblem(X, [-1, 1], np.ones((2, 1)), [0], intercept=True)
    >>> round(solve(problem, MultiPrecision()).certificate.upper, 6)
    1.0
    """

    bits: int = 512

    name: ClassVar[str] = "multiprecision"
    own_limit: ClassVar[int] = 3000
    # The same for two classes and groups.
    embedding_limit: ClassVar[int] = 300
    takes_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.bits, "bits", 256)
        if self.device != "cpu":
            raise ValueError(f"multiprecision computes on the CPU only, got {self.device!r}")

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Any."""
        return True

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Set up a run; a start is not used."""
        if not problem.is_binary_group_lasso or _is_far_from_features(problem):
            return barrier.BarrierRun(self, problem)
        n, features = problem.n_samples, problem.plain_gates.shape[1] * problem.X.shape[1]
        smaller = min(n, features)
        self.check_memory(BYTES_A_NUMBER * (4 * n * features + 3 * smaller**2))
        return _MultiPrecisionRun(self, problem)


class _MultiPrecisionRun(Run):
    """One solve: its program, the iterate, and the best bounds so far."""

    def __init__(self, solver: MultiPrecision, problem: MarginProblem) -> None:
        self.solver, self.problem = solver, problem
        self.deadline = Deadline.after(solver.max_seconds)
        self.found: _Found | None = None

    def steps(self) -> Steps:
        bits = self.solver.bits
        with precision_of(bits):
            program = _Program(self.problem, self.deadline)
            point = program.start()
        for _ in range(self.solver.embedding_limit):
            with precision_of(bits):
                self.deadline.check()
                view = homogeneous.Equations(program, point)
                found = program.bounds(point, view.margins)
                if self.found is None or found.gap < self.found.gap or not found.separates:
                    self.found = found
            yield float(self.found.lower), float(self.found.upper)
            if ended := self._ended(point):
                return ended
            try:
                with precision_of(bits):
                    moved = _Newton(program, point, view).next()
                    point = replace(
                        moved, **{name: mid(part) for name, part in vars(moved).items()}
                    )
            except Breakdown:
                return Status.NUMERICAL_TROUBLE
        return Status.ITERATION_LIMIT

    def _ended(self, point: homogeneous.EmbeddingPoint) -> Status | None:
        assert self.found is not None
        # Ten times better than asked for: what is certified afterwards is rounded.
        if self.found.gap <= 0.1 * self.solver.tolerances.gap:
            return Status.OPTIMAL
        kappa, tau = point.kappa[0], point.tau[0]
        inseparable = kappa > INSEPARABLE * tau and tau * INSEPARABLE < 1
        return Status.NOT_SEPARABLE if self.problem.hard_margin and inseparable else None

    def answer(self) -> Answer:
        if self.found is None:
            return nothing_yet(self.problem)
        exact = self.found.exact(self.problem)
        return Answer(
            alpha=exact.alpha.astype(np.float64),
            coef=exact.coef(self.problem),
            intercept=exact.offset,
            exact=exact,
        )


def _is_far_from_features(problem: MarginProblem) -> bool:
    """Whether C is so large or small for the features that the bits do not hold both."""
    if problem.hard_margin or problem.scale == 0:
        return False
    powers = np.log2(problem.box) + math.log2(problem.scale)
    return bool(np.abs(powers).max() > MOST_POWER)


# --- the program ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Found:
    """Feasible variables of the unscaled program, and their bounds, in multiple precision."""

    alpha: Vector  # (N,)
    coef: Vector  # (M', D)
    b: Number
    lower: Number
    upper: Number

    @property
    def gap(self) -> Number:
        return (self.upper - self.lower) / self.lower if self.lower > 0 else math.inf

    @property
    def separates(self) -> bool:
        return bool(self.upper < math.inf)

    def exact(self, problem: MarginProblem) -> ExactAnswer:
        """Return the same numbers as fractions; those of an intercept balanced exactly."""
        alpha = repaired(problem, fractions(self.alpha))
        return ExactAnswer(fractions(self.coef), alpha, fractions(np.array([self.b]))[0])


class _Program(homogeneous.Program):
    """The problem in scaled samples, in units in which the largest c is 1.

    A single step of a large one takes minutes: before each of its products it ends, with
    TimeoutError, if the deadline has passed.
    """

    sqrt, where = staticmethod(root), staticmethod(np.where)

    def __init__(self, problem: MarginProblem, deadline: Deadline) -> None:
        self.problem, self.deadline = problem, deadline
        # Columns of a group stand side by side.
        self.order = np.argsort(problem.plain_groups, kind="stable")
        gates, X = numbers(problem.plain_gates.toarray()[:, self.order]), numbers(problem.X)
        X = X * numbers(problem.y)[:, None]
        Phi = (gates[:, :, None] * X[:, None, :]).reshape(len(X), -1)
        squares = (Phi * Phi).sum(axis=1)
        norms = root(np.where(problem.zero_features, number(1), squares))
        self.unit = (1 / min(norms)).mid()  # coefficients are those of the program times this
        Phi = mid(Phi / norms[:, None])
        self.Phi = self.B = Matrix(Phi)
        self.c = mid(1 / (norms * self.unit))
        if problem.intercept:
            self.B = Matrix(np.column_stack([Phi, mid(numbers(problem.y) / norms)]))
        self.C = self.c[:0] if problem.hard_margin else mid(numbers(problem.box) * norms)
        groups = np.repeat(problem.plain_groups[self.order], X.shape[1])
        _, self._starts, self.groups = np.unique(groups, return_index=True, return_inverse=True)
        self.n_groups = len(self._starts)

    @property
    def blocks(self) -> list[slice]:
        """Columns of each group."""
        ends = [*self._starts[1:], len(self.groups)]
        return [slice(a, b) for a, b in zip(self._starts, ends, strict=True)]

    @cached_property
    def grams(self) -> list[Vector]:
        """Q_g (N, N) of each group."""
        return [self.product(self.Phi[:, block], self.Phi[:, block].T) for block in self.blocks]

    def product(self, A: Vector, B: Vector) -> Vector:
        """Return A B of two matrices."""
        self.deadline.check()
        return product(A, B)

    def start(self) -> homogeneous.EmbeddingPoint:
        """Return the identity of the cones."""
        n, n_boxes = len(self.c), len(self.C)
        return homogeneous.EmbeddingPoint(
            v=zeros(self.B.shape[1]),
            V=zeros(len(self.groups)),
            e=zeros(self.n_groups) + 1,
            f=zeros(self.n_groups) + 1,
            s=zeros(n) + 1,
            alpha=zeros(n) + 1,
            xi=zeros(n_boxes) + 1,
            beta=zeros(n_boxes) + 1,
            tau=zeros(1) + 1,
            kappa=zeros(1) + 1,
        )

    def coef(self, v: Vector) -> Vector:
        """Return w = T v, (P,)."""
        return v[: len(self.groups)]

    def pulled(self, V: Vector) -> Vector:
        """T' V, (P',)."""
        return np.append(V, zeros(self.B.shape[1] - len(V)))

    def group_sums(self, values: Vector) -> Vector:
        """Sum the entries of each group, (G,)."""
        return np.asarray(mid(np.add.reduceat(values, self._starts)))

    def positive(self, values: Vector) -> Vector:
        """Return 1 in place of what is not positive."""
        return np.where(values > 0, values, number(1))

    def bounds(self, at: homogeneous.EmbeddingPoint, margins: Vector) -> _Found:
        """Scale an iterate to feasible variables of the unscaled program."""
        w, b = self.coef(at.v) / at.tau, sum(at.v[len(self.groups) :] / at.tau, number(0))
        values, norm = margins / at.tau, self.group_norms(self.coef(at.v)).sum() / at.tau[0]
        hard, scale = self.problem.hard_margin, number(1)
        if hard:
            smallest = min(values / self.c)
            scale = (1 + ROOM) / smallest if smallest > 0 else scale
            upper = norm * scale if smallest > 0 else math.inf
        else:
            upper = norm + self.C @ np.maximum(self.c - values, number(0))
        alpha = self.balanced(at.alpha)
        largest = max(self.group_norms(self.Phi.T @ alpha))
        if not hard:
            largest = max(largest, *(alpha / self.C))
        alpha = alpha / (largest * (1 + ROOM)) if largest > 0 else alpha
        coef = np.empty((len(self.order), self.problem.X.shape[1]), dtype=object)
        coef[self.order] = w.reshape(coef.shape) * (scale * self.unit)
        lower = self.c @ alpha * self.unit if largest > 0 else number(0)
        alpha, b = alpha * self.c * self.unit, b * scale * self.unit
        return _Found(*map(mid, (alpha, coef, b, lower, upper * self.unit)))


class _Newton(homogeneous.Newton):
    """By the inverse of a matrix of order N, or P' where that is less; see the module's head."""

    program: _Program

    def factorise(self) -> None:
        """Invert the matrix."""
        program, cones, n = self.program, self.cones, len(self.h)
        self.few = program.B.shape[1] < n
        # Of D^-1, along the axis of each cone and across it: (G,).
        self.along, self.across = (cones.minus**2 + cones.plus**2) / 2, cones.across**2
        if self.few:
            matrix = program.product(program.B.values.T, program.B.values * self.h[:, None])
            for g, block in enumerate(program.blocks):
                axis, across = cones.axis[block], 1 / self.across[g]
                matrix[block, block] += np.outer(axis, axis) * (1 / self.along[g] - across)
                matrix[block, block] += np.diag(np.full(len(axis), across))
        else:
            matrix = np.diag(1 / self.h)
            for g, block in enumerate(program.blocks):
                U = program.Phi[:, block] @ cones.axis[block]
                bent = (self.along[g] - self.across[g]) * np.outer(U, U)
                matrix = matrix + self.across[g] * program.grams[g] + bent
        program.deadline.check()
        try:
            self.inverse = Matrix(inverse_of(matrix))
        except ZeroDivisionError as error:
            raise Breakdown from error

    def solve(
        self, q: Vector, cone: homogeneous.ConeVectors, pull: Vector, tau: float
    ) -> tuple[Vector, Vector, homogeneous.ConeVectors]:
        """dv, dalpha and the cones' dual change."""
        program, cones = self.program, self.cones
        still = cones.dual_change(cone, program.coef(0 * pull), tau)
        pull = pull + program.pulled(cones.tail(still))
        if self.few:
            v = self.inverse @ (pull + program.B.T @ (self.h * q))
            alpha = self.h * (q - program.B @ v)
        else:
            right = q - program.Phi @ self._over(program.coef(pull))
            alpha = self.inverse @ right
            b = pull[len(program.groups) :]
            if len(b):
                e = program.B[:, -1]
                by_b = self.inverse @ e
                b = (e @ alpha + b) / (e @ by_b)
                alpha = alpha - b * by_b
            v = np.append(self._over(program.coef(pull) + program.Phi.T @ alpha), b)
        v, alpha = mid(v), mid(alpha)
        return v, alpha, cones.dual_change(cone, program.coef(v), tau)

    def _over(self, w: Vector) -> Vector:
        """D^-1 w."""
        axis, groups = self.cones.axis, self.program.groups
        inner = (self.along - self.across) * self.program.group_sums(axis * w)
        return self.across[groups] * w + inner[groups] * axis
