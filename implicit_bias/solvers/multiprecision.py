r"""Interior point in multiple precision: small problems that float64 numbers cannot hold.

Where features differ by many orders of magnitude, or vary little about a large offset, neither
the Newton system nor the answer survives rounding to float64. Here both have BITS bits: gmpy2's
numbers in numpy's arrays of objects, a thousand times slower than float64, and in no need of
scaling, pivoting or refinement.

The program in conic form, with samples scaled to features of norm 1, r_n = 1 / ||phi_n||:

    primal  min c'x       s.t.  A x + e b = r,  x in K         x = (s, xi, (t_1, zeta_1), ...)
    dual    max r'alpha   s.t.  A'alpha + z = c,  e'alpha = 0,  z in K

    (A x)_n = sum_g <phi_ng, zeta_g> + xi_n - s_n,     c'x = sum_g t_g + sum_n C_n xi_n

K is the product of half lines (s and, with a soft margin, xi >= 0) and second-order cones,
||zeta_g|| <= t_g. It is solved in the homogeneous self-dual embedding (Ye, Todd and Mizuno 1994),

    A x + e b = r tau,   A'alpha + z = c tau,   e'alpha = 0,   c'x - r'alpha + kappa = 0,

which needs no feasible start: x / tau and alpha / tau solve the program where tau > 0 in the
limit, and where kappa > 0 alpha proves that nothing separates (Gordan). Steps are those of
Mehrotra's predictor and corrector with the scaling of Nesterov and Todd, W z = W^-1 x, as in ECOS
(Domahidi, Chu and Boyd 2013). Each cone's W^2 is eta^2 (2 w w' - J), J = diag(1, -1, ..., -1), so
that the normal matrix is again a masked Gram matrix with a rank-one term a group,

    A W^2 A' = sum_g eta_g^2 (Q_g + 2 u_g u_g') + diag(s / alpha) + diag(xi / (C - alpha)),
    u_g = Phi_g w_g.

==========  ==============  ==========================================================
symbol      shape           meaning
==========  ==============  ==========================================================
Phi_g       (N, M_g D)      y_n phi_n of group g, rows divided by ||phi_n||
x, z        (K,)            primal variables and dual slacks, in K
alpha       (N,)            dual variables of the scaled samples
b           ()              intercept; e (N,) is y_n / ||phi_n||
tau, kappa  ()              of the embedding
==========  ==============  ==========================================================
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import gmpy2
import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array, check_count
from implicit_bias.bounds.certificate import Status, repaired
from implicit_bias.bounds.exact import ExactAnswer
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import barrier
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Answer, NativeSolver, Point, Run, Steps, nothing_yet

BITS = 512
MOST_STEPS = 300
# Powers of two between C and what it is for features of size 1, up to which the bits hold both.
MOST_POWER = 200
# A step goes this share of the way to the boundary of the cone.
SHARE = gmpy2.mpfr("0.99")
# With kappa / tau above this, and tau below its inverse, alpha is taken for Gordan's. Separators
# may be enormous, and tau as small, before kappa vanishes.
INSEPARABLE = gmpy2.mpfr(10) ** 60
# Scales that make an answer feasible leave this share of room for their own rounding.
ROOM = gmpy2.mpfr(2) ** -200
BYTES_A_NUMBER = 160

Vector = NDArray[np.object_]
Number = Any  # gmpy2.mpfr, which has no type hints


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
        Precision of the numbers of two classes and groups, at least 128.

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

    bits: int = BITS

    name: ClassVar[str] = "multiprecision"
    own_limit: ClassVar[int] = barrier.MOST_STEPS
    takes_classes: ClassVar[bool] = True
    takes_norms: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count(self.bits, "bits", 128)
        if self.device != "cpu":
            raise ValueError(f"multiprecision computes on the CPU only, got {self.device!r}")

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
        with gmpy2.context(gmpy2.get_context(), precision=bits):
            program = _Program.of(self.problem, self.deadline)
            iterate = program.start()
        for _ in range(MOST_STEPS):
            with gmpy2.context(gmpy2.get_context(), precision=bits):
                found = program.bounds(iterate)
                if self.found is None or found.gap < self.found.gap or not found.separates:
                    self.found = found
                ended = self._ended(iterate)
                stepped = iterate if ended else program.step(iterate)
            yield float(self.found.lower), float(self.found.upper)
            if ended:
                return ended
            if stepped is None:
                return Status.NUMERICAL_TROUBLE
            iterate = stepped
        return Status.ITERATION_LIMIT

    def _ended(self, iterate: _Iterate) -> Status | None:
        assert self.found is not None
        # Ten times better than asked for: what is certified afterwards is rounded.
        if self.found.gap <= 0.1 * self.solver.tolerances.gap:
            return Status.OPTIMAL
        inseparable = iterate.kappa > INSEPARABLE * iterate.tau and iterate.tau * INSEPARABLE < 1
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
class _Iterate(Point):
    """A point of the embedding."""

    x: Vector
    z: Vector
    alpha: Vector
    b: Number
    tau: Number
    kappa: Number


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
        return (self.upper - self.lower) / self.lower if self.lower > 0 else gmpy2.inf()

    @property
    def separates(self) -> bool:
        return bool(gmpy2.is_finite(self.upper))

    def exact(self, problem: MarginProblem) -> ExactAnswer:
        """Return the same numbers as fractions; those of an intercept balanced exactly."""
        alpha = repaired(problem, _fractions(self.alpha))
        return ExactAnswer(_fractions(self.coef), alpha, Fraction(*_ratio(self.b)))


@dataclass(frozen=True, eq=False)
class _Program:
    """The conic program of a problem, in scaled samples, in units in which the largest r is 1.

    A single step of a large one takes minutes: the loops of its products and factors end, with
    TimeoutError, when the deadline has passed.
    """

    problem: MarginProblem
    deadline: Deadline
    cone: _Cone
    Phi: tuple[Vector, ...]  # (N, M_g D) of each group
    r: Vector  # (N,)
    c: Vector  # (K,)
    e: Vector | None  # (N,), with an intercept
    unit: Number  # coefficients are those of the program times this

    @classmethod
    def of(cls, problem: MarginProblem, deadline: Deadline) -> _Program:
        n, groups = problem.n_samples, problem.plain_groups
        gates, X = _numbers(problem.plain_gates.toarray()), _numbers(problem.X)
        X = X * _numbers(problem.y)[:, None]
        Phi = [
            (gates[:, groups == g][:, :, None] * X[:, None, :]).reshape(n, -1)
            for g in range(problem.n_groups)
        ]
        squares = np.sum([(part * part).sum(axis=1) for part in Phi], axis=0)
        norms = _sqrt(np.where(problem.zero_features, gmpy2.mpfr(1), squares))
        unit = 1 / min(norms)
        cone = _Cone.of(n * (1 if problem.hard_margin else 2), [part.shape[1] for part in Phi])
        c = cone.zeros()
        c[cone.heads] = gmpy2.mpfr(1)
        if not problem.hard_margin:
            c[n : 2 * n] = _numbers(problem.box) * norms
        return cls(
            problem,
            deadline,
            cone,
            tuple(part / norms[:, None] for part in Phi),
            1 / (norms * unit),
            c,
            _numbers(problem.y) / norms if problem.intercept else None,
            unit,
        )

    @cached_property
    def grams(self) -> list[Vector]:
        """Q_g (N, N) of each group."""
        return [self.product(part, part.T) for part in self.Phi]

    @cached_property
    def joined(self) -> Vector:
        """Phi (N, P) of all groups."""
        return np.hstack(self.Phi)

    def product(self, A: Vector, B: Vector) -> Vector:
        """Return A B of two matrices."""
        result = np.empty((len(A), B.shape[1]), dtype=object)
        for i, row in enumerate(A):
            self.deadline.check()
            result[i] = row @ B
        return result

    def start(self) -> _Iterate:
        """Return the identity of the cone."""
        one, zero, identity = gmpy2.mpfr(1), gmpy2.mpfr(0), self.cone.identity()
        return _Iterate(identity, identity, _numbers(np.zeros(len(self.r))), zero, one, one)

    def forward(self, x: Vector) -> Vector:
        """Return A x, shape (N,)."""
        self.deadline.check()
        n = len(self.r)
        value = -x[:n]
        if self.cone.n_linear > n:
            value = value + x[n : 2 * n]
        for part, block in zip(self.Phi, self.cone.blocks, strict=True):
            value = value + part @ x[block][1:]
        return np.asarray(value)

    def adjoint(self, alpha: Vector) -> Vector:
        """Return A'alpha, shape (K,)."""
        n, value = len(self.r), self.cone.zeros()
        value[:n] = -alpha
        if self.cone.n_linear > n:
            value[n : 2 * n] = alpha
        for part, block in zip(self.Phi, self.cone.blocks, strict=True):
            value[block.start + 1 : block.stop] = alpha @ part
        return value

    def bounds(self, at: _Iterate) -> _Found:
        """Scale an iterate to feasible variables of the unscaled program."""
        zetas = [at.x[block][1:] / at.tau for block in self.cone.blocks]
        b = at.b / at.tau
        values = sum(part @ zeta for part, zeta in zip(self.Phi, zetas, strict=True))
        values = values if self.e is None else values + self.e * b
        norm = sum((_norm(zeta) for zeta in zetas), gmpy2.mpfr(0))
        hard, scale = self.problem.hard_margin, gmpy2.mpfr(1)
        if hard:
            smallest = min(values / self.r)
            scale = (1 + ROOM) / smallest if smallest > 0 else scale
            upper = norm * scale if smallest > 0 else gmpy2.inf()
        else:
            losses = [max(r - value, 0) for r, value in zip(self.r, values, strict=True)]
            upper = norm + self.c[len(self.r) : 2 * len(self.r)] @ np.array(losses, dtype=object)
        alpha = self._balanced(np.where(at.alpha > 0, at.alpha, gmpy2.mpfr(0)))
        largest = max(_norm(alpha @ part) for part in self.Phi)
        if not hard:
            largest = max(largest, *(alpha / self.c[len(self.r) : 2 * len(self.r)]))
        alpha = alpha / (largest * (1 + ROOM)) if largest > 0 else alpha
        coef = np.full((len(self.problem.plain_groups), self.problem.X.shape[1]), gmpy2.mpfr(0))
        for g, zeta in enumerate(zetas):
            rows = self.problem.plain_groups == g
            coef[rows] = zeta.reshape(int(rows.sum()), -1) * (scale * self.unit)
        return _Found(
            alpha * self.r * self.unit,
            coef,
            b * scale * self.unit,
            self.r @ alpha * self.unit if largest > 0 else gmpy2.mpfr(0),
            upper * self.unit,
        )

    def _balanced(self, alpha: Vector) -> Vector:
        """Scale the class that is too heavy for e'alpha = 0; zeros where a class has no weight."""
        if self.e is None:
            return alpha
        weights, positive = self.e * alpha, self.problem.y > 0
        heavy, light = weights[positive].sum(), -weights[~positive].sum()
        if heavy == 0 or light == 0:
            return alpha * 0
        if heavy < light:
            heavy, light, positive = light, heavy, ~positive
        return np.where(positive, alpha * (light / heavy), alpha)

    # --- steps

    def step(self, at: _Iterate) -> _Iterate | None:
        """Return the next iterate; None where the normal matrix is singular at this precision."""
        cone = self.cone
        newton = _Newton.of(self, at)
        if newton is None:
            return None
        W = newton.W
        squares = cone.product(newton.center, newton.center)
        affine = newton.direction(gmpy2.mpfr(1), -squares, -at.tau * at.kappa)
        sigma = (1 - min(1, self._reach(at, affine))) ** 3
        mu = (at.x @ at.z + at.tau * at.kappa) / (cone.degree + 1)
        second = cone.product(W.inverse(affine.x), W.apply(affine.z))
        step = newton.direction(
            1 - sigma,
            sigma * mu * cone.identity() - squares - second,
            sigma * mu - at.tau * at.kappa - affine.tau * affine.kappa,
        )
        return at.moved(step, min(1, SHARE * self._reach(at, step)))

    def _reach(self, at: _Iterate, step: _Iterate) -> Number:
        """Length of the step that reaches the boundary."""
        lengths = [self.cone.reach(at.x, step.x), self.cone.reach(at.z, step.z)]
        for value, change in [(at.tau, step.tau), (at.kappa, step.kappa)]:
            lengths += [-value / change] if change < 0 else []
        return min(lengths)


@dataclass(frozen=True, eq=False)
class _Newton:
    """The Newton system of the embedding at an iterate, factorised."""

    program: _Program
    at: _Iterate
    W: _Scaling
    center: Vector  # W z = W^-1 x
    factor: _NormalMatrix

    @classmethod
    def of(cls, program: _Program, at: _Iterate) -> _Newton | None:
        W = _Scaling.of(program.cone, at.x, at.z)
        factor = _NormalMatrix.of(program, W)
        return None if factor is None else cls(program, at, W, W.apply(at.z), factor)

    @cached_property
    def residuals(self) -> tuple[Vector, Vector, Number, Number]:
        """Of the primal, the dual, the intercept's equation, and the gap."""
        program, at = self.program, self.at
        primal = program.forward(at.x) - program.r * at.tau
        if program.e is not None:
            primal = primal + program.e * at.b
        dual = program.adjoint(at.alpha) + at.z - program.c * at.tau
        balance = gmpy2.mpfr(0) if program.e is None else program.e @ at.alpha
        return primal, dual, balance, program.c @ at.x - program.r @ at.alpha + at.kappa

    @cached_property
    def _by_tau(self) -> tuple[Vector, Vector, Number]:
        """Changes of x, alpha and b with tau."""
        program = self.program
        right = program.r + program.forward(self.W.twice(program.c))
        alpha, b = self.factor.solve(right, gmpy2.mpfr(0))
        return self.W.twice(program.adjoint(alpha) - program.c), alpha, b

    def direction(self, share: Number, cone_right: Vector, tau_right: Number) -> _Iterate:
        """Solve for the step that removes a share of the residuals.

        It satisfies center o (W^-1 dx + W dz) = cone_right, kappa dtau + tau dkappa = tau_right.
        """
        program, at, W = self.program, self.at, self.W
        primal, dual, balance, gap = self.residuals
        shift = W.apply(program.cone.quotient(self.center, cone_right)) + share * W.twice(dual)
        alpha, b = self.factor.solve(-share * primal - program.forward(shift), -share * balance)
        x = shift + W.twice(program.adjoint(alpha))
        x_tau, alpha_tau, b_tau = self._by_tau
        tau = (-share * gap - program.c @ x + program.r @ alpha - tau_right / at.tau) / (
            program.c @ x_tau - program.r @ alpha_tau - at.kappa / at.tau
        )
        alpha = alpha + tau * alpha_tau
        return _Iterate(
            x + tau * x_tau,
            program.c * tau - share * dual - program.adjoint(alpha),
            alpha,
            b + tau * b_tau,
            tau,
            (tau_right - at.kappa * tau) / at.tau,
        )


@dataclass(frozen=True, eq=False)
class _NormalMatrix:
    """A W^2 A' bordered by e, by a Cholesky factor of order N, or P = sum_g M_g D where less.

    With D = diag(s / alpha) + diag(xi / (C - alpha)) and B = blockdiag(eta_g^2 (I + 2 w_g w_g')) it
    is D + Phi B Phi', whose inverse is, by Woodbury's identity,
    D^-1 - D^-1 Phi (B^-1 + Phi' D^-1 Phi)^-1 Phi' D^-1.
    """

    diagonal: Vector  # (N,)
    Phi: Vector | None  # (N, P) where the factor is of order P
    factor: Vector
    e: Vector | None

    @classmethod
    def of(cls, program: _Program, W: _Scaling) -> _NormalMatrix | None:
        n, squares = len(program.r), W.linear * W.linear
        diagonal = squares[:n] + (squares[n:] if len(squares) > n else gmpy2.mpfr(0))
        few = program.joined.shape[1] < n
        if few:
            matrix = program.product(program.joined.T, program.joined / diagonal[:, None])
            first = 0
            for eta, w in W.blocks:
                block = slice(first, first := first + len(w) - 1)
                tail = w[1:]
                bent = np.outer(tail, tail) * (2 / (1 + 2 * (tail @ tail)))
                matrix[block, block] += (_numbers(np.eye(len(tail))) - bent) / (eta * eta)
        else:
            matrix = np.diag(diagonal) + gmpy2.mpfr(0)
            for (eta, w), part, gram in zip(W.blocks, program.Phi, program.grams, strict=True):
                u = part @ w[1:]
                matrix = matrix + eta * eta * (gram + 2 * np.outer(u, u))
        factor = _cholesky(matrix, program.deadline)
        if factor is None:
            return None
        return cls(diagonal, program.joined if few else None, factor, program.e)

    def solve(self, right: Vector, balance: Number) -> tuple[Vector, Number]:
        """Return alpha (N,) and b with matrix alpha + e b = right and e'alpha = balance."""
        alpha = self._solve(right)
        if self.e is None:
            return alpha, gmpy2.mpfr(0)
        by_b = self._by_b
        b = (self.e @ alpha - balance) / (self.e @ by_b)
        return alpha - b * by_b, b

    @cached_property
    def _by_b(self) -> Vector:
        assert self.e is not None
        return self._solve(self.e)

    def _solve(self, right: Vector) -> Vector:
        if self.Phi is None:
            return _cholesky_solve(self.factor, right)
        scaled = right / self.diagonal
        inner = _cholesky_solve(self.factor, self.Phi.T @ scaled)
        return np.asarray(scaled - (self.Phi @ inner) / self.diagonal)


# --- the cone ------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cone:
    """Half lines, then second-order cones: their Jordan algebra (Vandenberghe 2010, section 2)."""

    n_linear: int
    blocks: tuple[slice, ...]

    @classmethod
    def of(cls, n_linear: int, sizes: list[int]) -> _Cone:
        ends = n_linear + np.cumsum([size + 1 for size in sizes])
        starts = np.append(n_linear, ends[:-1])
        pairs = zip(starts.tolist(), ends.tolist(), strict=True)
        return cls(n_linear, tuple(slice(start, end) for start, end in pairs))

    @property
    def degree(self) -> int:
        """What x'z is of a central pair with mu = 1."""
        return self.n_linear + len(self.blocks)

    @property
    def heads(self) -> list[int]:
        """Places of the t_g."""
        return [block.start for block in self.blocks]

    def zeros(self) -> Vector:
        """0, shape (K,)."""
        return np.full(self.blocks[-1].stop, gmpy2.mpfr(0), dtype=object)

    def identity(self) -> Vector:
        """Return the identity of the algebra, shape (K,)."""
        identity = self.zeros()
        identity[: self.n_linear] = gmpy2.mpfr(1)
        identity[self.heads] = gmpy2.mpfr(1)
        return identity

    def product(self, u: Vector, v: Vector) -> Vector:
        """Return u o v."""
        result = u * v
        for block in self.blocks:
            a, b = u[block], v[block]
            result[block] = np.append(a @ b, a[0] * b[1:] + b[0] * a[1:])
        return np.asarray(result)

    def quotient(self, u: Vector, v: Vector) -> Vector:
        """Return the w with u o w = v."""
        result = np.append(v[: self.n_linear] / u[: self.n_linear], v[self.n_linear :])
        for block in self.blocks:
            a, b = u[block], v[block]
            head = (a[0] * b[0] - a[1:] @ b[1:]) / _determinant(a)
            result[block] = np.append(head, (b[1:] - head * a[1:]) / a[0])
        return np.asarray(result)

    def reach(self, x: Vector, step: Vector) -> Number:
        """Return the largest t for which x + t step is in the cone; inf if there is none."""
        linear = slice(0, self.n_linear)
        lengths = [-a / b for a, b in zip(x[linear], step[linear], strict=True) if b < 0]
        for block in self.blocks:
            a, b = x[block], step[block]
            # The determinant of a + t b is A t^2 + 2 B t + C, and C > 0.
            A, B, C = _determinant(b), a[0] * b[0] - a[1:] @ b[1:], _determinant(a)
            lengths += [-a[0] / b[0]] if b[0] < 0 else []
            if B * B < A * C:
                continue
            q = -(B + gmpy2.sqrt(B * B - A * C) * (1 if B >= 0 else -1))
            roots = ([q / A] if A != 0 else []) + ([C / q] if q != 0 else [])
            lengths += [root for root in roots if root > 0]
        return min(lengths, default=gmpy2.inf())


@dataclass(frozen=True, eq=False)
class _Scaling:
    """Nesterov and Todd's W of a pair x, z: symmetric, with W z = W^-1 x."""

    cone: _Cone
    linear: Vector  # sqrt(x / z) of the half lines
    blocks: tuple[tuple[Number, Vector], ...]  # eta and w of the second-order cones

    @classmethod
    def of(cls, cone: _Cone, x: Vector, z: Vector) -> _Scaling:
        blocks = []
        for block in cone.blocks:
            sizes = gmpy2.sqrt(_determinant(x[block])), gmpy2.sqrt(_determinant(z[block]))
            a, b = x[block] / sizes[0], z[block] / sizes[1]
            gamma = gmpy2.sqrt((1 + a @ b) / 2)
            mirrored = np.append(b[0], -b[1:])
            blocks.append((gmpy2.sqrt(sizes[0] / sizes[1]), (a + mirrored) / (2 * gamma)))
        linear = slice(0, cone.n_linear)
        return cls(cone, _sqrt(x[linear] / z[linear]), tuple(blocks))

    def apply(self, v: Vector) -> Vector:
        """W v."""
        return self._multiply(v, self.linear, [(eta, w) for eta, w in self.blocks])

    def inverse(self, v: Vector) -> Vector:
        """W^-1 v."""
        inverses = [(1 / eta, np.append(w[0], -w[1:])) for eta, w in self.blocks]
        return self._multiply(v, 1 / self.linear, inverses)

    def twice(self, v: Vector) -> Vector:
        """W^2 v."""
        return self.apply(self.apply(v))

    def _multiply(self, v: Vector, linear: Vector, blocks: list[tuple[Number, Vector]]) -> Vector:
        result = np.append(linear * v[: len(linear)], v[len(linear) :])
        for block, (eta, w) in zip(self.cone.blocks, blocks, strict=True):
            a = v[block]
            inner = w[1:] @ a[1:]
            tail = a[1:] + (a[0] + inner / (1 + w[0])) * w[1:]
            result[block] = eta * np.append(w[0] * a[0] + inner, tail)
        return np.asarray(result)


def _determinant(a: Vector) -> Number:
    """a_0^2 - ||a_1||^2."""
    return a[0] * a[0] - a[1:] @ a[1:]


# --- numbers -------------------------------------------------------------------------------------

_sqrt = np.frompyfunc(gmpy2.sqrt, 1, 1)


def _numbers(values: Array) -> Vector:
    """Return float64 as they are, in multiple precision."""
    return np.asarray(np.frompyfunc(gmpy2.mpfr, 1, 1)(values), dtype=object)


def _ratio(value: Number) -> tuple[int, int]:
    numerator, denominator = value.as_integer_ratio()
    return int(numerator), int(denominator)


def _fractions(values: Vector) -> Vector:
    """Return the same real numbers as fractions."""
    return np.asarray(np.frompyfunc(lambda v: Fraction(*_ratio(v)), 1, 1)(values), dtype=object)


def _norm(vector: Vector) -> Number:
    return gmpy2.sqrt(vector @ vector)


def _cholesky(matrix: Vector, deadline: Deadline) -> Vector | None:
    """Return the lower factor, its upper half undefined; None unless positive definite."""
    factor = matrix.copy()
    for k in range(len(factor)):
        deadline.check()
        if not factor[k, k] > 0:
            return None
        factor[k, k] = gmpy2.sqrt(factor[k, k])
        factor[k + 1 :, k] /= factor[k, k]
        for j in range(k + 1, len(factor)):
            factor[j:, j] -= factor[j:, k] * factor[j, k]
    return factor


def _cholesky_solve(factor: Vector, right: Vector) -> Vector:
    """Solve with the matrix of a lower factor."""
    x = right.copy()
    for k in range(len(x)):
        x[k] /= factor[k, k]
        x[k + 1 :] -= factor[k + 1 :, k] * x[k]
    for k in reversed(range(len(x))):
        x[k] = (x[k] - (factor[k + 1 :, k] @ x[k + 1 :] if k + 1 < len(x) else 0)) / factor[k, k]
    return x
