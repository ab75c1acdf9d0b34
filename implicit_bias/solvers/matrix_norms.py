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
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import ClassVar, TypeAlias

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.certificate import Status, balanced_flow
from implicit_bias.norms import L1, L2, LInf, Norm, Nuclear, Spectral
from implicit_bias.problem import MarginProblem
from implicit_bias.rows import row_index
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.iteration import Answer, NativeSolver, Run, Steps, nothing_yet
from implicit_bias.solvers.scaled_problem import Boxes, lift, peak_memory
from implicit_bias.validation import Array

Integers = NDArray[np.int64]
_NormOf: TypeAlias = Callable[[Tensor], float]

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
    """Whether the space of pairs takes a problem: many classes, one of four norms."""
    known = (Nuclear(), Spectral(), L1(), LInf())
    return problem.classes is not None and problem.norm in known


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
        # The norms of entries have the classes themselves as coordinates.
        self.entries = problem.norm in (L1(), LInf())
        basis = np.eye(self.K) if self.entries else scipy.linalg.helmert(self.K).T
        self.basis = tensor(basis)  # (K, r)
        self.X = tensor(X) / self.scale
        self.owners, self.place, self.rivals = index(owners), index(place), index(rivals)
        # Places of own class and rival in an array (n, K).
        self._own = self.place * self.K + self.owners[self.place]
        self._rival = self.place * self.K + self.rivals
        self.free_t = problem.norm in (Spectral(), LInf())
        self.norm, self.dual_norm = _norms(problem)
        r, F = self.basis.shape[1], X.shape[1]
        self.shape = (r, F)
        self.ball_shape = (1, r * F) if problem.norm == L2() else (r, F)
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
        self._touching: list[tuple[Tensor, Tensor, Tensor, Tensor]] | None = None
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

    def multipliers(self, X: Tensor, t: Tensor, other: Tensor, mu: float) -> tuple[Tensor, Tensor]:
        """Return R and T near the boundary of the ball, where R takes X / t to the other matrix."""
        if self.entries:
            T = torch.stack([t - X, t + X])
            parts = torch.stack([other.clamp(min=0.0), (-other).clamp(min=0.0)])
            return parts + mu / T, T
        T = t * torch.eye(len(X)).to(X) - X @ X.T / t
        size, turned = torch.linalg.eigh(other @ other.T)
        root = size.clamp(min=0.0).sqrt()
        root = root / root.sum() if self.free_t else root
        R = (turned * root) @ turned.T + mu * torch.linalg.inv(T)
        return _symmetric(R), _symmetric(T)

    def ball(self, point: _Point) -> _Ball:
        """Return the ball of the norm at an iterate."""
        return _EntryBall(point) if self.entries else _MatrixBall(point)

    def masked(self, k: Tensor) -> Tensor:
        """Phi diag(k) Phi', (P, P), of k (K, F): class by class, of the pairs that touch it."""
        if self._touching is None:
            self._touching = []
            for c in range(self.K):
                own = self.owners[self.place] == c
                index = torch.nonzero(own | (self.rivals == c))[:, 0]
                sign = torch.where(own[index], 1.0, -1.0).to(k)
                samples, place = torch.unique(self.place[index], return_inverse=True)
                self._touching.append((index, sign, samples, place))
        whole = k.new_zeros(len(self.place), len(self.place))
        for of_class, (index, sign, samples, place) in zip(k, self._touching, strict=True):
            X = self.X[samples] * of_class.sqrt()
            gram = (X @ X.T)[place[:, None], place] * (sign[:, None] * sign)
            whole[index[:, None], index] += gram
        return whole

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


def _norms(problem: MarginProblem) -> tuple[_NormOf, _NormOf]:
    """Return Omega and Omega_* of matrices in the shape of the ball."""
    kinds: dict[Norm, tuple[_NormOf, _NormOf]] = {
        L1(): (_total, _largest),
        LInf(): (_largest, _total),
        L2(): (_euclidean, _euclidean),
        Nuclear(): (_nuclear, _spectral),
        Spectral(): (_spectral, _nuclear),
    }
    return kinds[problem.norm]


def _total(A: Tensor) -> float:
    return float(A.abs().sum())


def _largest(A: Tensor) -> float:
    return float(A.abs().max())


def _euclidean(A: Tensor) -> float:
    return float(A.norm())


def _nuclear(A: Tensor) -> float:
    return float(torch.linalg.matrix_norm(A, "nuc"))


def _spectral(A: Tensor) -> float:
    return float(torch.linalg.matrix_norm(A, 2))


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
        return len(self.alpha) + len(self.w) + (len(self.R) if self.R.ndim == 2 else self.R.numel())

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
            if X.ndim > 2:
                rates.append(float((-dX / X).max()))
                continue
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
    largest = data.dual_norm(V)
    level = 0.5 / largest if largest > 0 else 1.0
    if data.n_boxes:
        level = min(level, 0.5 * data.C / float(data.boxes.pool(alpha).max()))
    alpha, V = level * alpha, level * V
    total = 10.0 * float(alpha.sum())
    one = data.X.new_ones(1)
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    X, t = V, one
    if data.free_t:
        largest = data.norm(V)
        X, t = V * (0.5 * total / largest if largest > 0 else 0.0), total * one
    if data.entries:
        T = torch.stack([t - X, t + X])
        R = torch.full_like(T, total / X.numel())
        if data.free_t:  # V = R_0 - R_1 and sum of R = 1
            share = 0.5 * (1.0 - data.dual_norm(V)) / X.numel()
            R = torch.stack([V.clamp(min=0.0), (-V).clamp(min=0.0)]) + share
    else:
        eye = torch.eye(len(V)).to(V)
        T = t * eye - X @ X.T / t
        R = total / len(eye) * eye
        if data.free_t:
            R = 2.0 * eye / (len(eye) + float((X * X).sum() / t**2))
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

    def inside(alpha: Tensor) -> Tensor:
        largest = data.dual_norm(data.dual_vectors(alpha))
        if data.n_boxes:
            largest = max(largest, float(data.boxes.pool(alpha).max()) / data.C)
        return alpha * (WARM_SHARE / largest) if largest > 0 else alpha

    alpha = inside(alpha)
    excess = data.margins(zeta) + data.E @ b - 1.0
    lower, norm = float(alpha.sum()), data.norm(zeta)
    if not (lower > 0 and norm > 0):
        return _cold(data)
    # What violations cost, at the price of the dearest pair.
    upper = norm + float(alpha.max()) * float((-excess).clamp(min=0.0).sum())
    gap = min(max(upper / lower - 1.0, LEAST_WARM), 1.0)
    mu = gap * lower / (len(alpha) + data.n_boxes + (2 * zeta.numel() if data.entries else len(zeta)))
    floor = float(alpha.mean()) * gap
    alpha = inside(torch.maximum(alpha, mu / excess.clamp(min=mu / floor)))
    w = (data.C - data.boxes.pool(alpha))[: data.n_boxes]
    V, one = data.dual_vectors(alpha), alpha.new_ones(1)
    X, other = (zeta, V) if data.free_t else (V, zeta)
    t = one * norm / WARM_SHARE if data.free_t else one
    R, T = data.multipliers(X, t, other, mu)
    return _Point(
        alpha=alpha,
        s=torch.maximum(excess, mu / alpha),
        w=w,
        xi=torch.maximum(data.boxes.largest(-excess)[: len(w)], mu / w),
        X=X,
        t=t,
        R=R,
        T=T,
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
        self.zeta = p.X if data.free_t else data.ball(p).value
        margins = data.margins(self.zeta) + data.E @ p.b
        self.residual = 1.0 + p.s - data.boxes.lift(p.xi) - margins
        total = float(self.alpha.sum())
        largest, norm = data.dual_norm(of_bound), data.norm(self.zeta)
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


@dataclass(frozen=True)
class _Terms:
    """Right-hand sides of a ball: what the other matrix and t's equation change by without U, t."""

    other: Tensor
    of_t: float
    slack: Tensor
    fixed: Tensor


class _Ball(ABC):
    """The ball around X of radius t at one iterate, with its multiplier R.

    Attributes
    ----------
    Y : Tensor of shape (r, F)
        Of dX = U + Y dt.
    pull : Tensor of shape (r, F)
        The other matrix changes by K U - pull dt.
    value : Tensor of shape (r, F)
        The other matrix.
    tau : float
        The curvature in t.
    """

    Y: Tensor
    pull: Tensor
    value: Tensor
    tau: float

    @abstractmethod
    def other(self, U: Tensor) -> Tensor:
        """K U."""

    @abstractmethod
    def matrix(self) -> Tensor:
        """K, for U in C order: (r F, r F)."""

    @abstractmethod
    def in_pairs(self, data: _Data) -> tuple[Tensor, Tensor, Tensor]:
        """What K, or K^-1 with a free t, is for pairs: a matrix, border (P, q) and its slack (q,).

        Phi K Phi' is the matrix plus border diag(1 / slack) border'. With a free t the slack is
        that of t, and the border is left to the caller.
        """

    @abstractmethod
    def compliance(self, pull: Tensor) -> Tensor:
        """K^-1 of (r, F), after `in_pairs`."""

    @abstractmethod
    def terms(self, mu: float, predictor: _Direction | None) -> _Terms:
        """Right-hand sides of a step to mu, with the predictor's second-order terms."""

    @abstractmethod
    def change(self, terms: _Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        """Changes of R and T."""


class _MatrixBall(_Ball):
    """T = t I - X X' / t and R of order r; see the module's head."""

    def __init__(self, point: _Point) -> None:
        self.point = point
        self.R, self.X, self.t, self.T = point.R, point.X, float(point.t), point.T
        self.Y = point.X / self.t
        self.value = self.R @ self.Y

    @cached_property
    def G(self) -> Tensor:
        left, right = _cholesky(self.R), _cholesky(self.T)
        _, size, turn = torch.linalg.svd(right.T @ left)
        half = left @ turn.T / size.sqrt()
        return half @ half.T

    @cached_property
    def GY(self) -> Tensor:
        return self.G @ self.Y

    @cached_property
    def rest(self) -> Tensor:
        """I - Y Y'."""
        return torch.eye(len(self.R)).to(self.R) - self.Y @ self.Y.T

    @cached_property
    def with_t(self) -> Tensor:
        return self.G @ self.rest @ self.G

    @cached_property
    def pull(self) -> Tensor:  # type: ignore[override]
        return self.with_t @ self.Y

    @cached_property
    def tau(self) -> float:  # type: ignore[override]
        return 0.5 * float((self.with_t * self.rest).sum())

    def sides(self, U: Tensor) -> Tensor:
        """U Y' + Y U'."""
        product = U @ self.Y.T
        return product + product.T

    def other(self, U: Tensor) -> Tensor:
        return self.R @ U / self.t + self.G @ self.sides(U) @ self.GY

    def matrix(self) -> Tensor:
        b, F = self.Y.shape
        whole = torch.einsum("ij,fg->ifjg", self.G, self.Y.T @ self.GY)
        whole = whole + torch.einsum("ig,jf->ifjg", self.GY, self.GY)
        whole = whole.reshape(b * F, b * F)
        torch.einsum("ifjf->ijf", whole.view(b, F, b, F)).add_((self.R / self.t)[:, :, None])
        return _symmetric(whole)

    def in_pairs(self, data: _Data) -> tuple[Tensor, Tensor, Tensor]:
        a = data.a
        if not data.free_t:
            g, turned = torch.linalg.eigh(self.G)
            i, j = torch.triu_indices(len(g), len(g)).to(g.device)
            twice = torch.where(i == j, 1.0, 2.0**0.5).to(g)
            b, v = a @ turned, data.products(self.Y) @ turned
            border = (b[:, i] * v[:, j] + b[:, j] * v[:, i]) * twice  # (P, r (r + 1) / 2)
            return data.gram * (a @ self.R @ a.T), border, 2.0 / (g[i] * g[j])
        self.W = torch.linalg.svd(self.Y, full_matrices=False)[2].T  # (F, q): its row space
        small = _MatrixBall(replace(self.point, X=self.X @ self.W))
        self.inner = _cholesky(small.matrix())
        self.outer = self.t * torch.cholesky_inverse(_cholesky(self.R))
        x = (data.X @ self.W)[data.place]
        features = (a[:, :, None] * x[:, None, :]).reshape(len(a), -1)
        half = torch.linalg.solve_triangular(self.inner, features.T, upper=False)
        A = (data.gram - x @ x.T) * (a @ self.outer @ a.T) + half.T @ half
        eps = self.tau - float((self.pull * self.compliance(self.pull)).sum())
        return A, a[:, :0], A.new_full((1,), max(eps, 0.0))

    def compliance(self, pull: Tensor) -> Tensor:
        inner = pull @ self.W
        solved = torch.cholesky_solve(inner.reshape(-1, 1), self.inner).reshape(inner.shape)
        return self.outer @ (pull - inner @ self.W.T) + solved @ self.W.T

    def terms(self, mu: float, predictor: _Direction | None) -> _Terms:
        t, R, eye = self.t, self.R, torch.eye(len(self.R)).to(self.R)
        slack = t * self.rest - self.T
        second, along = torch.zeros_like(self.Y), 0.0
        if predictor is not None:
            change, U = predictor.change, predictor.U
            slack = slack - U @ U.T / t
            second = (change.R @ U - R @ U * (change.t / t)) / t
            along = -0.5 * float((R * (U @ U.T)).sum()) / t**2
        inverse = torch.cholesky_inverse(_cholesky(self.T))
        fixed = mu * inverse - R - self.G @ slack @ self.G
        of_t = 0.5 * float((R * (2.0 * eye - self.rest)).sum()) - 1.0
        of_t += 0.5 * float((fixed * self.rest).sum()) - along
        return _Terms(fixed @ self.Y + second, of_t, slack, fixed)

    def change(self, terms: _Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        sides = self.sides(U)
        R = terms.fixed - dt * self.with_t + self.G @ sides @ self.G
        return _symmetric(R), _symmetric(terms.slack + dt * self.rest - sides)


class _EntryBall(_Ball):
    """T = (t - X, t + X) and R entry by entry: the other matrix is R_0 - R_1."""

    def __init__(self, point: _Point) -> None:
        self.R, self.T = point.R, point.T
        self.exact = torch.stack([point.t - point.X, point.t + point.X])
        self.value = self.R[0] - self.R[1]
        self.Y = torch.zeros_like(self.value)
        ratio = self.R / self.T
        self.k, self.pull = ratio[0] + ratio[1], ratio[0] - ratio[1]
        self.tau = float(self.k.sum())
        # Of t, once U is eliminated.
        self.eps = float((4.0 * ratio[0] * ratio[1] / self.k).sum())

    def other(self, U: Tensor) -> Tensor:
        return self.k * U

    def matrix(self) -> Tensor:
        return torch.diag(self.k.reshape(-1))

    def in_pairs(self, data: _Data) -> tuple[Tensor, Tensor, Tensor]:
        A = data.masked(1.0 / self.k if data.free_t else self.k)
        return A, A[:, :0], self.k.new_full((int(data.free_t),), self.eps)

    def compliance(self, pull: Tensor) -> Tensor:
        return pull / self.k

    def terms(self, mu: float, predictor: _Direction | None) -> _Terms:
        at = mu - self.R * self.T
        if predictor is not None:
            at = at - predictor.change.R * predictor.change.T
        slack = self.exact - self.T
        fixed = (at - self.R * slack) / self.T
        of_t = float(fixed.sum() + self.R.sum()) - 1.0
        return _Terms(fixed[0] - fixed[1], of_t, slack, fixed)

    def change(self, terms: _Terms, U: Tensor, dt: float) -> tuple[Tensor, Tensor]:
        moved = torch.stack([dt - U, dt + U])
        return terms.fixed - self.R / self.T * moved, terms.slack + moved


class _Newton(ABC):
    """The factorised Newton system at one iterate."""

    def __init__(self, data: _Data, point: _Point, view: _View) -> None:
        self.data, self.point, self.view = data, point, view
        self.ball = data.ball(point)
        self.factor()

    @abstractmethod
    def factor(self) -> None:
        """Factorise the system."""

    @abstractmethod
    def of_V(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Solve for dalpha, U and db.

        D dalpha + Phi (K U + fixed) + E db = right and U = Phi' dalpha + missing.
        """

    @abstractmethod
    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        """Solve for dalpha, U, dt and db.

        D dalpha + Phi (U + Y dt) + E db = right, K U - pull dt - Phi' dalpha = first, and
        tau dt - <pull, U> - <Y, Phi' dalpha> = of_t.
        """

    def direction(self, mu: float, predictor: _Direction | None = None) -> _Direction:
        """Step towards the central path at mu, with the predictor's second-order terms."""
        data, p, ball, view = self.data, self.point, self.ball, self.view
        at_alpha, at_w = mu - p.alpha * p.s, mu - p.w * p.xi
        if predictor is not None:
            at_alpha = at_alpha - predictor.change.alpha * predictor.change.s
            at_w = at_w - predictor.change.w * predictor.change.xi
        terms = ball.terms(mu, predictor)
        right = view.residual + at_alpha / p.alpha - data.boxes.lift(at_w / p.w)
        if data.free_t:
            missing = view.V - ball.value
            of_t = terms.of_t + float((missing * ball.Y).sum())
            alpha, U, dt, b = self.of_zeta(right, missing - terms.other, of_t)
        else:
            alpha, U, b = self.of_V(right, terms.other, view.V - p.X)
            dt = 0.0
        R, T = ball.change(terms, U, dt)
        pooled = data.boxes.pool(alpha)[: len(p.w)]
        change = _Point(
            alpha=alpha,
            s=(at_alpha - p.s * alpha) / p.alpha,
            w=-pooled,
            xi=(at_w + p.xi * pooled) / p.w,
            X=U + ball.Y * dt,
            t=torch.full_like(p.t, dt),
            R=R,
            T=T,
            b=b,
        )
        return _Direction(change, U)


class _PairNewton(_Newton):
    """In the space of the pairs."""

    def factor(self) -> None:
        data, p, ball = self.data, self.point, self.ball
        A, border, slack = ball.in_pairs(data)
        if data.free_t:
            self.of_pull = ball.compliance(ball.pull)
            border = data.margins(self.of_pull + ball.Y)[:, None]
        A.diagonal().add_(p.s / p.alpha)
        if data.n_boxes:
            A = data.boxes.added_to(A, p.xi / p.w)
        self.L, self.border = _cholesky(A), torch.hstack([border, data.E])
        self.H = torch.linalg.solve_triangular(self.L, self.border, upper=False)
        schur = self.H.T @ self.H
        schur.diagonal()[: len(slack)] += slack
        self.schur = _cholesky(schur) if len(schur) else schur

    def of_V(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        n = self.border.shape[1] - self.data.E.shape[1]
        c = torch.cat([right.new_zeros(n), self.view.imbalance])
        fixed = fixed + self.ball.other(missing)
        alpha, y = self._solve(right - self.data.margins(fixed), c)
        return alpha, self.data.dual_vectors(alpha) + missing, y[n:]

    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        data, ball = self.data, self.ball
        moved = ball.compliance(first)
        along = of_t + float((ball.pull * moved).sum())
        c = torch.cat([right.new_full((1,), -along), self.view.imbalance])
        alpha, y = self._solve(right - data.margins(moved), c)
        dt = float(y[0])
        pull = data.dual_vectors(alpha) + dt * ball.pull + first
        return alpha, ball.compliance(pull), dt, y[1:]

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
        if data.free_t:
            self.extra = torch.hstack([data.margins(ball.Y)[:, None], data.E])
            inner = ball.matrix()
        else:
            self.K = _cholesky(ball.matrix())
            inner = torch.cholesky_inverse(self.K)
        n, q = len(inner), self.extra.shape[1]
        self.stiffness = inner.new_zeros(n + q, n + q)  # of (U, t, b) or (zeta, b)
        self.stiffness[:n, :n] = inner
        if data.free_t:
            self.stiffness[:n, n] = self.stiffness[n, :n] = -ball.pull.reshape(-1)
            self.stiffness[n, n] = ball.tau
        H = self.stiffness.clone()
        H[:n, :n] += data.normal_matrix(self.h, self.shares)
        for k, column in enumerate(self.extra.T):
            weighted = self._over(column)
            across = data.dual_vectors(weighted).reshape(-1)
            H[:n, n + k] += across
            H[n + k, :n] += across
            H[n:, n + k] += self.extra.T @ weighted
        self.L = _cholesky(H)

    def of_V(
        self, right: Tensor, fixed: Tensor, missing: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        first = missing.reshape(-1) + self._over_K(fixed)
        alpha, zeta, b = self._solve(right, first, -self.view.imbalance)
        return alpha, self._over_K(zeta.reshape(fixed.shape) - fixed).reshape(fixed.shape), b

    def of_zeta(
        self, right: Tensor, first: Tensor, of_t: float
    ) -> tuple[Tensor, Tensor, float, Tensor]:
        more = torch.cat([right.new_full((1,), of_t), -self.view.imbalance])
        alpha, U, y = self._solve(right, first.reshape(-1), more)
        return alpha, U.reshape(first.shape), float(y[0]), y[1:]

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
