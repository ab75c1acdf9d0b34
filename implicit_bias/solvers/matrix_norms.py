r"""An interior point for norms of matrices and many classes, with one small matrix of multipliers.

Primal  minimise  Omega(zeta) + C sum_n xi_n
        subject to  <a_p x_p', zeta> + (E b)_p >= 1 - xi_n for all pairs p of n,   xi >= 0
Dual    maximise  sum_p alpha_p
        subject to  alpha >= 0,  sum of a sample's alpha_p <= C,  Omega_*(V) <= 1,  E' alpha = 0,
                    V = sum_p alpha_p a_p x_p'

Omega is the nuclear norm (then V V' <= I), the spectral one (zeta zeta' <= t^2 I, t minimal) or the
Euclidean one, which is the nuclear norm of zeta in one row. So one of the two matrices, X, is in a
ball, and R times it is the other one:

        nuclear   X = V,     t = 1,   zeta = R Y
        spectral  X = zeta,  t free,  V = R Y,   tr R (I + Y Y') = 2

KKT     T = t I - X X' / t,   Y = X / t,   <a_p x_p', zeta> + (E b)_p - 1 + xi_n = s_p
        R T = mu I,   s_p alpha_p = mu,   xi_n w_n = mu,   w_n = C - sum of alpha_p,     mu -> 0

======  =========  =========================================================================
a       (P, r)     e_{y_n} - e_k in r = K - 1 orthonormal coordinates of the sum-free vectors
x       (P, F)     features z(x_n) (x) x_n of the pair's sample
V, X    (r, F)     matrices in these coordinates; (1, r F) for the Euclidean norm
R, T    (r, r)     multipliers of the ball, and its slack; both positive definite
G       (r, r)     Nesterov and Todd's scaling, G T G = R
Phi     (P, r F)   the pairs' features, never formed
E       (P, J)     offsets; b (J,), with an intercept
======  =========  =========================================================================

With U = dX - Y dt the other matrix changes by

        K U - G (I - Y Y') G Y dt,      K U = R U / t + G (U Y' + Y U') G Y

and D = diag(s / alpha) + the blocks xi / w of the samples takes the margins' changes to -dalpha. So a
Newton step needs D + Phi K Phi' (nuclear) or D + Phi K^-1 Phi' (spectral) in the space of the
pairs, or K^-1 + Phi' D^-1 Phi and K + Phi' D^-1 Phi in that of the features: whichever is smaller. In
the space of the pairs Phi (A (x) I) Phi' is the mask (a A a') o (x x'), and what K adds to it has the
rank r (r + 1) / 2 (a border of the system, because it grows like 1 / mu) or, inverted, r^2: K differs
from R / t only in the row space of Y.

Mehrotra's predictor sets the centring; its second-order terms enter the corrector.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import ClassVar

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.certificate import Status, balanced_flow
from implicit_bias.norms import L2, Nuclear, Spectral
from implicit_bias.problem import MarginProblem
from implicit_bias.rows import row_index
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_problem import Boxes, lift, peak_memory
from implicit_bias.validation import Array

Integers = NDArray[np.int64]

MAX_ITERATIONS = 100
# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.99
# A step shorter than this is compared with one that only centres.
SHORT = 0.05
# A warm start is as far inside as the point of the central path with its gap, or this one.
LEAST_WARM = 1e-3
WARM_SHARE = 0.98
# mu need not fall below this share of what the gap tolerance asks for.
CENTRING_FLOOR = 0.2
# The solver aims a little below the tolerance, because the certificate rounds differently.
AIM = 0.9
# After this many steps without progress in the gap, stagnation is attributed to rounding.
PATIENCE = 12
# Alpha are repaired, to obey E' alpha = 0 exactly, where they lack no more than this share.
BALANCE = 1e-3
# Samples whose weighted products are formed at once.
BLOCK = 2048
# Times that a solution in the space of the features is computed again from what it lacks.
REFINEMENTS = 3
# What a diagonal may be raised by, as a share, where rounding made a matrix indefinite.
RIDGES = (0.0, 1e-15, 1e-14, 1e-13, 1e-12)


def is_matrix_norm(problem: MarginProblem) -> bool:
    """Whether these methods take a problem: many classes, the nuclear or the spectral norm."""
    return problem.classes is not None and problem.norm in (Nuclear(), Spectral())


def is_one_ball(problem: MarginProblem) -> bool:
    """Whether the space of features takes a problem: those norms, or the Euclidean one."""
    return is_matrix_norm(problem) or (problem.classes is not None and problem.norm == L2())


def matrix_features(problem: MarginProblem) -> int:
    """Return r F, the order of the system in the space of the features."""
    return ((problem.classes or 2) - 1) * problem.plain_gates.shape[1] * problem.X.shape[1]


@dataclass(frozen=True, kw_only=True)
class PairSpace(NativeSolver):
    """The native solver of nuclear and spectral norms in the space of pairs.

    Parameters
    ----------
    pairs : tuple of two ndarrays of int, shape (P,), optional
        Samples and rivals to solve with: a working set. All by default.
    near : Answer, optional
        The answer of a similar problem, its margins scaled to 1, to start from.
    """

    takes_classes: ClassVar[bool] = True

    pairs: tuple[Integers, Integers] | None = None
    near: Answer | None = None

    name: ClassVar[str] = "interior-point"
    own_limit: ClassVar[int] = MAX_ITERATIONS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the matrices of order P.

        Raises
        ------
        ValueError
            Another norm, or two classes.
        """
        if not is_matrix_norm(problem):
            raise ValueError(
                "this method takes the nuclear and the spectral norm of many classes: choose "
                "solver='auto'"
            )
        pairs = row_index(problem) if self.pairs is None else self.pairs
        self.check_memory(peak_memory(len(pairs[0]), problem))
        return _CentralPath(self, problem, pairs, _PairNewton, self.near)


@dataclass(frozen=True, kw_only=True)
class MatrixFeatureSpace(NativeSolver):
    """The native solver of nuclear, spectral and Euclidean norms in the space of features.

    Time is linear in the samples: O(N K F^2) a step, and O((K F)^3).
    """

    takes_classes: ClassVar[bool] = True

    name: ClassVar[str] = "feature-space"
    own_limit: ClassVar[int] = MAX_ITERATIONS

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Check that there is room for the features and for matrices of their order.

        Raises
        ------
        ValueError
            Another norm, or two classes.
        """
        if not is_one_ball(problem):
            raise ValueError(
                "this method takes the nuclear, spectral and Euclidean norms of two classes or "
                f"more, not {problem.norm!r}: choose solver='auto'"
            )
        order, n = matrix_features(problem), problem.n_samples
        K = problem.classes or 2
        self.check_memory(8 * (8 * order**2 + n * (order // (K - 1) + 40 * K)))
        return _CentralPath(self, problem, row_index(problem), _FeatureNewton)


class _CentralPath(Run):
    """The central path from a cold start."""

    def __init__(
        self,
        solver: PairSpace | MatrixFeatureSpace,
        problem: MarginProblem,
        pairs: tuple[Integers, Integers],
        newton: type[_Newton],
        near: Answer | None = None,
    ) -> None:
        self._problem, self._pairs, self._tolerances = problem, pairs, solver.tolerances
        self._best, self._newton = nothing_yet(problem), newton
        self._data = _Data(problem, pairs, torch.device(solver.device))
        self._first = _cold(self._data) if near is None else _warm(self._data, near)

    def answer(self) -> Answer:
        """Return what attains the best bounds."""
        return self._best

    def steps(self) -> Steps:
        """Follow the central path."""
        data, point = self._data, self._first
        lower, upper, gap, waited = 0.0, np.inf, np.inf, 0
        # A smaller mu gains nothing, and loses digits of T.
        floor = CENTRING_FLOOR * self._tolerances.gap / point.n_pairs
        while True:
            view = _View(data, point)
            if view.lower > lower:
                lower = view.lower
                self._best = Answer(data.alpha(view.alpha), self._best.coef, self._best.intercept)
            if view.upper < upper:
                upper = view.upper
                coef, intercept = data.coef(view.zeta), data.intercept(point.b)
                self._best = Answer(self._best.alpha, coef, intercept)
            before, gap = gap, (upper - lower) / lower if lower > 0 else np.inf
            waited = 0 if gap < (1 - 1e-3) * before or not np.isfinite(gap) else waited + 1
            yield lower / data.scale, upper / data.scale
            if view.gordan_ratio > 1.0 / self._tolerances.infeasibility:
                alpha = data.alpha(view.alpha)
                self._best = Answer(alpha, 0.0 * self._best.coef, self._problem.no_offset)
                return Status.NOT_SEPARABLE
            if gap <= AIM * self._tolerances.gap:
                return Status.OPTIMAL
            try:
                if waited > PATIENCE:
                    raise _Breakdown
                point = self._step(point, view, floor * max(lower, view.lower))
            except _Breakdown:
                return Status.NUMERICAL_TROUBLE if np.isfinite(upper) else self._by_another_norm()

    def _step(self, point: _Point, view: _View, floor: float) -> _Point:
        newton = self._newton(self._data, point, view)
        mu = point.complementarity()
        predictor = newton.direction(0.0)
        after = point.moved(predictor.change, point.reach(predictor.change)).complementarity()
        target = max(min((after / mu) ** 3, 1.0) * mu, floor)
        step = newton.direction(target, predictor).change
        length = BOUNDARY_SHARE * point.reach(step)
        if length < SHORT:  # the predictor overshot: centre first
            centred = newton.direction(0.5 * mu).change
            longer = BOUNDARY_SHARE * point.reach(centred)
            step, length = max([(step, length), (centred, longer)], key=lambda x: x[1])
        return point.moved(step, min(1.0, length))

    def _by_another_norm(self) -> Status:
        """Ask with the Euclidean norm whether the pairs are separable: no norm changes that."""
        from implicit_bias.rows import grouped_rows

        posed = replace(self._problem, norm=L2())
        inner = InteriorPoint(
            tolerances=self._tolerances,
            device=self._data.X.device.type,
            rows=grouped_rows(posed, self._pairs),
        )
        found = inner.run(posed)
        if found.status is not Status.NOT_SEPARABLE:
            return Status.NUMERICAL_TROUBLE
        self._best = replace(self._best, alpha=found.alpha)
        return Status.NOT_SEPARABLE


class _Breakdown(ArithmeticError):
    """Rounding has made a matrix indefinite."""


class _Data:
    """Pairs and features on the device; features have a root mean square norm of 1."""

    def __init__(
        self, problem: MarginProblem, pairs: tuple[Integers, Integers], device: torch.device
    ) -> None:
        self._problem, self._pairs = problem, pairs
        self.scale, self.K = problem.scale, problem.classes or 2
        samples, rivals = pairs
        used, place = np.unique(samples, return_inverse=True)
        owners = problem.owners[used]
        X = problem.X[used]
        Z = problem.plain_gates[used].toarray()
        if Z.shape[1] > 1 or (Z != 1).any():
            X = (Z[:, :, None] * X[:, None, :]).reshape(len(used), -1)

        def tensor(values: Array) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        def index(values: Integers) -> Tensor:
            return torch.tensor(values, device=device)

        # Columns orthonormal and orthogonal to 1: coordinates of what sums to 0 over the classes.
        self.basis = tensor(scipy.linalg.helmert(self.K).T)  # (K, r)
        self.X = tensor(X) / self.scale
        self.owners, self.place, self.rivals = index(owners), index(place), index(rivals)
        # Places of own class and rival in an array (n, K).
        self._own = self.place * self.K + self.owners[self.place]
        self._rival = self.place * self.K + self.rivals
        self.spectral = problem.norm == Spectral()
        r, F = self.K - 1, X.shape[1]
        self.shape, self.ball_shape = (r, F), (r, F) if is_matrix_norm(problem) else (1, r * F)
        # One class's offset is 0, since only differences count; one without samples has none.
        present = np.unique(problem.owners)[: -1 if problem.intercept else 0]
        self._offset_classes = present
        offsets = torch.zeros(self.K, len(present), dtype=torch.float64, device=device)
        offsets[index(present), torch.arange(len(present), device=device)] = 1.0
        self.E = offsets[self.owners[self.place]] - offsets[self.rivals]  # (P, J)
        self.norms = self.X.norm(dim=1)[self.place]
        self.C = problem.C * self.scale
        self.boxes = Boxes() if problem.hard_margin else Boxes(self.place)
        self.n_boxes = 0 if problem.hard_margin else len(used)
        self._gram: Tensor | None = None
        self._members = [torch.nonzero(self.owners == k)[:, 0] for k in range(self.K)]

    @property
    def gram(self) -> Tensor:
        """Inner products of the pairs' features, (P, P)."""
        if self._gram is None:
            self._gram = (self.X @ self.X.T)[self.place[:, None], self.place]
        return self._gram

    @property
    def a(self) -> Tensor:
        """e_{y_n} - e_k in coordinates, (P, r)."""
        return self.basis[self.owners[self.place]] - self.basis[self.rivals]

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, in the shape of the ball."""
        weights = self.X.new_zeros(len(self.X) * self.K)
        weights[self._rival] = alpha
        weights = weights.view(-1, self.K)
        total = weights.sum(1, keepdim=True)
        weights = (-weights).scatter_add_(1, self.owners[:, None], total)
        return ((weights @ self.basis).T @ self.X).reshape(self.ball_shape)

    def margins(self, zeta: Tensor) -> Tensor:
        """Phi zeta, (P,)."""
        scores = (self.X @ (self.basis @ zeta.reshape(self.shape)).T).reshape(-1)
        return scores[self._own] - scores[self._rival]

    def products(self, V: Tensor) -> Tensor:
        """V x_p, (P, r)."""
        return (self.X @ V.T)[self.place]

    def normal_matrix(self, h: Tensor, shares: Tensor | None) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F); D^-1 = diag(h) less h h' times a share for each sample."""
        K, (r, F) = self.K, self.shape
        dense = self.X.new_zeros(len(self.X) * K)
        dense[self._rival] = h
        dense = dense.view(-1, K)
        whole = self.X.new_zeros(K, K, F, F)
        for k, members in enumerate(self._members):
            for start in range(0, len(members), BLOCK):
                index = members[start : start + BLOCK]
                X, weights = self.X[index], dense[index]
                each = _weighted_squares(X, weights)  # (K, F, F), one a rival
                total = each.sum(0)
                whole[k, k] += total
                whole.diagonal().add_(each.permute(1, 2, 0))
                whole[k] -= each
                whole[:, k] -= each
                if shares is not None:
                    q = -weights
                    q[:, k] += weights.sum(1)
                    products = q[:, :, None] * q[:, None, :] * shares[index, None, None]
                    each = _weighted_squares(X, products.reshape(len(index), -1))
                    whole -= each.reshape(K, K, F, F)
        reduced = torch.einsum("ki,klfg,lj->ifjg", self.basis, whole, self.basis)
        return reduced.reshape(r * F, r * F)

    def balanced(self, alpha: Tensor) -> Tensor:
        """Return alpha with E' alpha = 0, exactly."""
        found = balanced_flow(self.alpha(alpha), self._problem.owners)[self._pairs]
        return torch.tensor(found, device=alpha.device) * self.scale

    def alpha(self, values: Tensor) -> Array:
        """Dual variables of the problem."""
        alpha = np.zeros(self._problem.alpha_shape)
        alpha[self._pairs] = values.cpu().numpy() / self.scale
        return alpha

    def coef(self, zeta: Tensor) -> Array:
        """Coefficients (K, M, D) of zeta."""
        plain = (self.basis @ zeta.reshape(self.shape)).cpu().numpy() / self.scale
        by_class = plain.reshape(self.K, -1, self._problem.X.shape[1])
        return np.stack([np.asarray(self._problem.root @ part) for part in by_class])

    def of_answer(self, near: Answer) -> tuple[Tensor, Tensor, Tensor]:
        """Return alpha, zeta and b of an answer in the problem's shapes."""
        device = self.X.device
        alpha = torch.tensor(near.alpha[self._pairs] * self.scale, device=device)
        plain = self._problem.plain_coef(near.coef).reshape(self.K, -1) * self.scale
        zeta = (self.basis.T @ torch.tensor(plain, device=device)).reshape(self.ball_shape)
        b = torch.tensor(np.asarray(near.intercept)[self._offset_classes], device=device)
        return alpha, zeta, b

    def intercept(self, b: Tensor) -> Array:
        """Offsets (K,) of the problem."""
        found = np.zeros(self.K)
        found[self._offset_classes] = b.cpu().numpy()
        return found


def _weighted_squares(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X for each column w of weights (n, k): (k, F, F)."""
    n, F = X.shape
    return ((weights[:, :, None] * X[:, None, :]).reshape(n, -1).T @ X).reshape(-1, F, F)


@dataclass(frozen=True)
class _Point:
    """An iterate, or a direction; w and xi have length 0 with the hard margin."""

    alpha: Tensor
    s: Tensor
    w: Tensor
    xi: Tensor
    X: Tensor
    t: Tensor
    R: Tensor
    T: Tensor
    b: Tensor

    @property
    def n_pairs(self) -> int:
        return len(self.alpha) + len(self.w) + len(self.R)

    def complementarity(self) -> float:
        """Mean of the eigenvalues of the complementary products, mu."""
        total = self.alpha @ self.s + self.w @ self.xi + (self.R * self.T).sum()
        return float(total) / self.n_pairs

    def reach(self, step: _Point) -> float:
        """Longest step, at most 1, that keeps all variables positive (definite)."""
        rates = [
            float((-dx / x).max())
            for x, dx in [
                (self.alpha, step.alpha),
                (self.s, step.s),
                (self.w, step.w),
                (self.xi, step.xi),
                (self.t, step.t),
            ]
            if len(x)
        ]
        for X, dX in ((self.R, step.R), (self.T, step.T)):
            L = _cholesky(X)
            half = torch.linalg.solve_triangular(L, dX, upper=False)
            whole = torch.linalg.solve_triangular(L, half.T, upper=False)
            rates.append(-float(torch.linalg.eigvalsh(0.5 * (whole + whole.T))[0]))
        if not np.isfinite(rates).all():
            raise _Breakdown
        return 1.0 / max(1.0, *rates)

    def moved(self, step: _Point, length: float) -> _Point:
        """Return the iterate after a step."""
        names = [x.name for x in fields(self)]
        return _Point(*(getattr(self, x) + length * getattr(step, x) for x in names))


def _cold(data: _Data) -> _Point:
    """Equal alpha, with V half way to the boundary (and to C)."""
    alpha = data.X.new_ones(len(data.place))
    V = data.dual_vectors(alpha)
    kind = "nuc" if data.spectral else 2
    largest = float(torch.linalg.matrix_norm(V, kind))
    level = 0.5 / largest if largest > 0 else 1.0
    if data.n_boxes:
        level = min(level, 0.5 * data.C / float(data.boxes.pool(alpha).max()))
    alpha, V = level * alpha, level * V
    total = 10.0 * float(alpha.sum())
    eye = torch.eye(len(V)).to(V)
    one = data.X.new_ones(1)
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    if data.spectral:
        largest = float(torch.linalg.matrix_norm(V, 2))
        Y = V * (0.5 / largest if largest > 0 else 0.0)
        R = 2.0 * eye / (len(eye) + float((Y * Y).sum()))
        X, t, T = total * Y, total * one, total * (eye - Y @ Y.T)
    else:
        X, t, T, R = V, one, eye - V @ V.T, total / len(eye) * eye
    return _Point(
        alpha=alpha,
        s=torch.ones_like(alpha),
        w=w,
        xi=torch.ones_like(w),
        X=X,
        t=t,
        R=R,
        T=T,
        b=data.X.new_zeros(data.E.shape[1]),
    )


def _warm(data: _Data, near: Answer) -> _Point:
    """Move the answer of a similar problem into the interior, on the central path of its gap."""
    alpha, zeta, b = data.of_answer(near)
    kinds = ("nuc", 2) if data.spectral else (2, "nuc")

    def inside(alpha: Tensor) -> Tensor:
        V = data.dual_vectors(alpha)
        largest = float(torch.linalg.matrix_norm(V, kinds[0]))
        if data.n_boxes:
            largest = max(largest, float(data.boxes.pool(alpha).max()) / data.C)
        return alpha * (WARM_SHARE / largest) if largest > 0 else alpha

    alpha = inside(alpha)
    excess = data.margins(zeta) + data.E @ b - 1.0
    lower, norm = float(alpha.sum()), float(torch.linalg.matrix_norm(zeta, kinds[1]))
    if not (lower > 0 and norm > 0):
        return _cold(data)
    # What violations cost, at the price of the dearest pair.
    upper = norm + float(alpha.max()) * float((-excess).clamp(min=0.0).sum())
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = gap * lower / (len(alpha) + data.n_boxes + len(zeta))
    floor = float(alpha.mean()) * gap
    alpha = inside(torch.maximum(alpha, mu / excess.clamp(min=mu / floor)))
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    V, one = data.dual_vectors(alpha), alpha.new_ones(1)
    # Of the two matrices the one outside of the ball is R times the other, on the ball's boundary.
    X, other = (zeta, V) if data.spectral else (V, zeta)
    t = one * norm / WARM_SHARE if data.spectral else one
    T = t * torch.eye(len(X)).to(X) - X @ X.T / t
    size, turned = torch.linalg.eigh(other @ other.T)
    root = size.clamp(min=0.0).sqrt()
    if data.spectral:
        root = root / root.sum()
    R = (turned * root) @ turned.T + mu * torch.linalg.inv(T)
    return _Point(
        alpha=alpha,
        s=torch.maximum(excess, mu / alpha),
        w=w,
        xi=torch.maximum(data.boxes.largest(-excess)[: len(w)], mu / w),
        X=X,
        t=t,
        R=_symmetric(R),
        T=_symmetric(T),
        b=b,
    )


class _View:
    """What the equations and the bounds say of an iterate."""

    def __init__(self, data: _Data, point: _Point) -> None:
        p = point
        self.V = data.dual_vectors(p.alpha)
        self.imbalance = -(data.E.T @ p.alpha)
        # What is left of the equation as rounding leaves it would void the bound.
        self.alpha, of_bound = p.alpha, self.V
        balanced = not (self.imbalance.abs() > BALANCE * p.alpha.sum()).any()
        if balanced and len(self.imbalance):
            self.alpha = data.balanced(p.alpha)
            of_bound = data.dual_vectors(self.alpha)
        self.zeta = p.X if data.spectral else p.R @ p.X
        margins = data.margins(self.zeta) + data.E @ p.b
        self.residual = 1.0 + p.s - data.boxes.lift(p.xi) - margins
        total = float(self.alpha.sum())
        kinds = ("nuc", 2) if data.spectral else (2, "nuc")
        largest = float(torch.linalg.matrix_norm(of_bound, kinds[0]))
        norm = float(torch.linalg.matrix_norm(self.zeta, kinds[1]))
        growth = 1.0 / largest if largest > 0 else np.inf
        self.gordan_ratio = float(self.alpha @ data.norms) * growth if balanced else 0.0
        if data.n_boxes:
            growth = min(growth, data.C / float(data.boxes.pool(self.alpha).max()))
            self.gordan_ratio = 0.0
            losses = data.boxes.largest(1.0 - margins).clamp(min=0.0)
            self.upper = norm + data.C * float(losses.sum())
        else:
            smallest = float(margins.min())
            self.upper = norm / smallest if smallest > 0 else np.inf
        self.lower = total * growth if balanced else 0.0


@dataclass(frozen=True)
class _Direction:
    """A direction; ``U`` is what X changes by beside the change of t."""

    change: _Point
    U: Tensor


class _Ball:
    """The slack T = t I - X X' / t and its multiplier R at one iterate, with their scaling."""

    def __init__(self, point: _Point) -> None:
        left, right = _cholesky(point.R), _cholesky(point.T)
        self.inverse = torch.cholesky_inverse(right)  # of T
        _, size, turn = torch.linalg.svd(right.T @ left)
        half = left @ turn.T / size.sqrt()
        self.G = half @ half.T
        self.R, self.t, self.T = point.R, float(point.t), point.T
        self.Y = point.X / self.t
        self.GY = self.G @ self.Y
        self.rest = torch.eye(len(self.R)).to(self.R) - self.Y @ self.Y.T
        self.with_t = self.G @ self.rest @ self.G

    def sides(self, U: Tensor) -> Tensor:
        """U Y' + Y U'."""
        product = U @ self.Y.T
        return product + product.T

    def other(self, U: Tensor) -> Tensor:
        """K U."""
        return self.R @ U / self.t + self.G @ self.sides(U) @ self.GY

    def matrix(self) -> Tensor:
        """K, for U in C order: (b F, b F)."""
        b, F = self.Y.shape
        whole = torch.einsum("ij,fg->ifjg", self.G, self.Y.T @ self.GY)
        whole = whole + torch.einsum("ig,jf->ifjg", self.GY, self.GY)
        whole = whole.reshape(b * F, b * F)
        torch.einsum("ifjf->ijf", whole.view(b, F, b, F)).add_((self.R / self.t)[:, :, None])
        return 0.5 * (whole + whole.T)


class _Newton(ABC):
    """The factorised Newton system at one iterate."""

    def __init__(self, data: _Data, point: _Point, view: _View) -> None:
        self.data, self.point, self.view = data, point, view
        self.ball = _Ball(point)
        self.factor()

    @abstractmethod
    def factor(self) -> None:
        """Factorise the system."""

    @abstractmethod
    def nuclear(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for dalpha, U and db.

        D dalpha + Phi (K U + fixed) + E db = right and U = Phi' dalpha + missing.
        """

    @abstractmethod
    def spectral(
        self, right: Tensor, of_V: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        """Solve for dalpha, U, dt and db.

        D dalpha + Phi (U + Y dt) + E db = right, K U - with_t Y dt - Phi' dalpha = of_V, and
        tau dt - <with_t Y, U> - <Y, Phi' dalpha> = of_t.
        """

    @property
    def tau(self) -> float:
        """The curvature in t alone."""
        return 0.5 * float((self.ball.with_t * self.ball.rest).sum())

    def direction(self, mu: float, predictor: _Direction | None = None) -> _Direction:
        """Step towards the central path at mu, with the predictor's second-order terms."""
        data, p, ball, view = self.data, self.point, self.ball, self.view
        at_alpha, at_w = mu - p.alpha * p.s, mu - p.w * p.xi
        slack = p.t * torch.eye(len(p.R)).to(p.R) - p.X @ p.X.T / p.t - p.T
        second, along = torch.zeros_like(p.X), 0.0
        if predictor is not None:
            change, U = predictor.change, predictor.U
            at_alpha = at_alpha - change.alpha * change.s
            at_w = at_w - change.w * change.xi
            slack = slack - U @ U.T / p.t
            second = (change.R @ U - p.R @ U * (change.t / p.t)) / p.t
            along = -0.5 * float((p.R * (U @ U.T)).sum()) / ball.t**2
        fixed = mu * ball.inverse - p.R - ball.G @ slack @ ball.G  # dR without that of U and t
        right = view.residual + at_alpha / p.alpha - data.boxes.lift(at_w / p.w)
        if data.spectral:
            missing = view.V - p.R @ ball.Y
            of_V = missing - fixed @ ball.Y - second
            of_t = 0.5 * float((p.R * (2.0 * torch.eye(len(p.R)).to(p.R) - ball.rest)).sum()) - 1.0
            of_t += float((missing * ball.Y).sum()) + 0.5 * float((fixed * ball.rest).sum()) - along
            alpha, U, dt, b = self.spectral(right, of_V, of_t)
        else:
            alpha, U, b = self.nuclear(right, fixed @ ball.Y + second, view.V - p.X)
            dt = 0.0
        sides = ball.sides(U)
        pooled = data.boxes.pool(alpha)[: len(p.w)]
        change = _Point(
            alpha=alpha,
            s=(at_alpha - p.s * alpha) / p.alpha,
            w=-pooled,
            xi=(at_w + p.xi * pooled) / p.w,
            X=U + ball.Y * dt,
            t=torch.full_like(p.t, dt),
            R=_symmetric(fixed - dt * ball.with_t + ball.G @ sides @ ball.G),
            T=_symmetric(slack + dt * ball.rest - sides),
            b=b,
        )
        return _Direction(change, U)


class _PairNewton(_Newton):
    """In the space of the pairs."""

    def factor(self) -> None:
        data, p, ball = self.data, self.point, self.ball
        a = data.a
        if data.spectral:
            W = torch.linalg.svd(ball.Y, full_matrices=False)[2].T  # (F, r): the row space of Y
            inner = ball.Y @ W
            self.W, r = W, len(inner)
            small = replace(p, X=inner * ball.t)
            self.inner = _cholesky(_Ball(small).matrix())
            self.outer = ball.t * torch.cholesky_inverse(_cholesky(ball.R))
            x = (data.X @ W)[data.place]
            features = (a[:, :, None] * x[:, None, :]).reshape(len(a), r * r)
            half = torch.linalg.solve_triangular(self.inner, features.T, upper=False)
            A = (data.gram - x @ x.T) * (a @ self.outer @ a.T) + half.T @ half
            of_t = self._compliance(ball.with_t @ ball.Y)
            eps = self.tau - float((ball.with_t @ ball.Y * of_t).sum())
            self.of_t = data.margins(of_t + ball.Y)
            border, slack = torch.hstack([self.of_t[:, None], data.E]), [max(eps, 0.0)]
        else:
            g, turned = torch.linalg.eigh(ball.G)
            i, j = torch.triu_indices(len(g), len(g)).to(g.device)
            twice = torch.where(i == j, 1.0, 2.0**0.5).to(g)
            b, v = a @ turned, data.products(p.X) @ turned
            B = (b[:, i] * v[:, j] + b[:, j] * v[:, i]) * twice  # (P, r (r + 1) / 2)
            A = data.gram * (a @ ball.R @ a.T)
            border, slack = torch.hstack([B, data.E]), (2.0 / (g[i] * g[j])).tolist()
        A.diagonal().add_(p.s / p.alpha)
        if data.n_boxes:
            A = data.boxes.added_to(A, p.xi / p.w)
        self.L, self.border = _cholesky(A), border
        self.H = torch.linalg.solve_triangular(self.L, border, upper=False)
        schur = self.H.T @ self.H
        schur.diagonal()[: len(slack)] += schur.new_tensor(slack)
        self.schur = _cholesky(schur) if len(schur) else schur

    def nuclear(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = self.border.shape[1] - self.data.E.shape[1]
        c = torch.cat([right.new_zeros(n), self.view.imbalance])
        fixed = fixed + self.ball.other(missing)
        alpha, y = self._solve(right - self.data.margins(fixed), c)
        return alpha, self.data.dual_vectors(alpha) + missing, y[n:]

    def spectral(
        self, right: Tensor, of_V: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        data, ball = self.data, self.ball
        moved = self._compliance(of_V)
        along = of_t + float((ball.with_t @ ball.Y * moved).sum())
        c = torch.cat([right.new_full((1,), -along), self.view.imbalance])
        alpha, y = self._solve(right - data.margins(moved), c)
        dt = float(y[0])
        pull = data.dual_vectors(alpha) + dt * (ball.with_t @ ball.Y) + of_V
        return alpha, self._compliance(pull), dt, y[1:]

    def _compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of a matrix (r, F)."""
        inner = pull @ self.W
        solved = torch.cholesky_solve(inner.reshape(-1, 1), self.inner).reshape(inner.shape)
        return self.outer @ (pull - inner @ self.W.T) + solved @ self.W.T

    def _solve(self, right: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        """A dalpha + border y = right, border' dalpha - slack y = c."""
        h = torch.linalg.solve_triangular(self.L, right[:, None], upper=False)
        y = h.new_zeros(len(c), 1)
        if len(c):
            y = torch.cholesky_solve(self.H.T @ h - c[:, None], self.schur)
        alpha = torch.linalg.solve_triangular(self.L.T, h - self.H @ y, upper=True)
        return alpha[:, 0], y[:, 0]


class _FeatureNewton(_Newton):
    """In the space of the features."""

    def factor(self) -> None:
        data, p, ball = self.data, self.point, self.ball
        self.h = p.alpha / p.s
        self.shares: Tensor | None = None
        if data.n_boxes:
            self.shares = 1.0 / (p.w / p.xi + data.boxes.pool(self.h))
        self.extra = data.E
        if data.spectral:
            self.extra = torch.hstack([data.margins(ball.Y)[:, None], data.E])
            inner = ball.matrix()
        else:
            self.K = _cholesky(ball.matrix())
            inner = torch.cholesky_inverse(self.K)
        n, q = len(inner), self.extra.shape[1]
        self.stiffness = inner.new_zeros(n + q, n + q)  # of (U, t, b) or (zeta, b)
        self.stiffness[:n, :n] = inner
        if data.spectral:
            pull = (ball.with_t @ ball.Y).reshape(-1)
            self.stiffness[:n, n] = self.stiffness[n, :n] = -pull
            self.stiffness[n, n] = self.tau
        H = self.stiffness.clone()
        H[:n, :n] += data.normal_matrix(self.h, self.shares)
        for k, column in enumerate(self.extra.T):
            weighted = self._over(column)
            across = data.dual_vectors(weighted).reshape(-1)
            H[:n, n + k] += across
            H[n + k, :n] += across
            H[n:, n + k] += self.extra.T @ weighted
        self.L = _cholesky(H)

    def nuclear(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        first = missing.reshape(-1) + self._over_K(fixed)
        alpha, zeta, b = self._solve(right, first, -self.view.imbalance)
        return alpha, self._over_K(zeta.reshape(fixed.shape) - fixed).reshape(fixed.shape), b

    def spectral(
        self, right: Tensor, of_V: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        more = torch.cat([right.new_full((1,), of_t), -self.view.imbalance])
        alpha, U, y = self._solve(right, of_V.reshape(-1), more)
        return alpha, U.reshape(of_V.shape), float(y[0]), y[1:]

    def _over_K(self, values: Tensor) -> Tensor:
        return torch.cholesky_solve(values.reshape(-1, 1), self.K)[:, 0]

    def _over(self, values: Tensor) -> Tensor:
        """D^-1 of a vector (P,)."""
        weighted = self.h * values
        if self.shares is None:
            return weighted
        return weighted - self.h * (self.shares * self.data.boxes.pool(weighted))[self.data.place]

    def _solve(
        self, right: Tensor, first: Tensor, more: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return dalpha, coefficients, and t and b, of the right-hand sides.

        D^-1 multiplies the rounding of the margins, so the equations are refined with dalpha itself.
        """
        data, n = self.data, len(first)
        whole = torch.cat([first, more])
        x = torch.zeros_like(whole)
        alpha = self._over(right)
        for _ in range(REFINEMENTS):
            pull = torch.cat([data.dual_vectors(alpha).reshape(-1), self.extra.T @ alpha])
            residual = whole + pull - self.stiffness @ x
            x = x + torch.cholesky_solve(residual[:, None], self.L)[:, 0]
            alpha = self._over(right - data.margins(x[:n]) - self.extra @ x[n:])
        return alpha, x[:n], x[n:]


def _symmetric(A: Tensor) -> Tensor:
    return 0.5 * (A + A.T)


def _cholesky(A: Tensor) -> Tensor:
    """Lower factor; rounding may ask for a little more on the diagonal.

    Raises
    ------
    _Breakdown
        Not positive definite even so.
    """
    diagonal = A.diagonal()
    for size in RIDGES:
        L, failed = torch.linalg.cholesky_ex(A + torch.diag(size * diagonal) if size else A)
        if not failed:
            return L
    raise _Breakdown
