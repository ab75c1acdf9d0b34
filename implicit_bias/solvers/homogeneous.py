r"""The homogeneous self-dual embedding of a problem of two classes and groups, in any numbers.

Primal  minimise  sum_g t_g + C sum_n xi_n
        subject to  y_n (<phi_n, w> + b) >= 1 - xi_n,   xi >= 0,   ||w_g|| <= t_g

Dual    maximise  sum_n alpha_n
        subject to  alpha + beta = C,   alpha, beta >= 0,   ||V_g|| <= 1
        (and sum_n alpha_n y_n = 0 where there is an intercept b),   V = sum_n alpha_n y_n phi_n

Both, homogeneous (Ye, Todd, Mizuno 1994): find tau, kappa >= 0 and the above with

        B' alpha = T' V                                        (stationarity)
        B v + xi - tau c = s,   w = T v                        (margins)
        alpha + beta = tau C                                   (box)
        c' alpha - sum_g t_g - C' xi = kappa                   (gap)
        ||w_g|| <= t_g,   ||V_g|| <= tau                       (cones)
KKT     s alpha = xi beta = tau kappa = mu,  (t_g, w_g) o (tau, -V_g) = (mu, 0),      mu -> 0

Everything over tau is a solution where tau > 0. Where tau -> 0, alpha proves by Gordan that there
is none: the iteration needs no feasible start, nor one of the right scale, and ends in either case.

======  ==========  ==========================================================================
phi_n   (P,)        features of sample n: the gates times the inputs
w, V    (P,)        coefficients, the norm's argument; dual vectors
v       (P',)       the coefficients that the method solves for, the intercept last
T       (P, P')     back from there, w = T v
B       (N, P')     y_n phi_n over a scale nu_n of the sample, in these coordinates
c, C    (N,)        right sides and boxes of the scaled samples; C of length 0 with a hard margin
alpha   (N,)        dual variables; s (N,) what a margin exceeds c by
beta    (N,)        C - alpha; xi (N,) the hinge losses (soft margin only)
e, f    (G,)        t - ||w_g|| and tau - ||V_g||, kept apart: they are tiny at the end
======  ==========  ==========================================================================

Nesterov and Todd's scaling W of the cones, W^-1 (t, w) = W (tau, -V), as in ECOS (Domahidi, Chu and
Boyd 2013), makes a Newton step a linear system in v,

        (B' diag(h) B + T' D T) dv = ...,      1/h = s/alpha + xi/beta,      D from W^-2

D is I / across^2, but 2 / (minus^2 + plus^2) along the axis of a cone (`Cones`). `feature_space`
solves it. Mehrotra's predictor sets the centring, and its second-order terms enter the corrector.

Along its axis a cone is written as x_0 - x_1 and x_0 + x_1, of which one is tiny; W is diagonal
there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from implicit_bias.solvers.iteration import Breakdown, Point

# Share of the way to the boundary that a step may go.
BOUNDARY_SHARE = 0.99
LEAST_CENTRING = 1e-8


class Program(ABC):
    """A problem in the units of a method; see the module's head.

    Attributes
    ----------
    B, c, C : (N, P'), (N,), and (N,) or (0,)
        The scaled samples.
    groups : of int, shape (P,)
        Group of each entry of w.
    n_groups : int
        G.
    """

    B: Tensor
    c: Tensor
    C: Tensor
    groups: Tensor
    n_groups: int

    @abstractmethod
    def coef(self, v: Tensor) -> Tensor:
        """Return w = T v, (P,)."""

    @abstractmethod
    def pulled(self, V: Tensor) -> Tensor:
        """T' V, (P',)."""

    @abstractmethod
    def group_sums(self, values: Tensor) -> Tensor:
        """Sum the entries of each group, (G,)."""

    @abstractmethod
    def positive(self, values: Tensor) -> Tensor:
        """Return values >= 0 with something positive in place of 0: to divide by."""

    def group_norms(self, w: Tensor) -> Tensor:
        """||w_g||, (G,)."""
        return torch.sqrt(self.group_sums(w * w))

    def boxed(self, alpha: Tensor) -> Tensor:
        """Return those of alpha that a box bounds: all, or none with the hard margin."""
        return alpha[: len(self.C)]

    def balanced(self, alpha: Tensor) -> Tensor:
        """Return alpha with sum_n alpha_n y_n = 0 where there is an intercept, none larger."""
        if self.B.shape[1] == len(self.groups):
            return alpha
        e = self.B[:, -1]
        signed = e * alpha
        positive, negative = (torch.where(x > 0, x, 0.0).sum() for x in (signed, -signed))
        least = min(positive, negative)
        return alpha * torch.where(e > 0, least / positive, least / negative)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pairs:
    """The complementary pairs of numbers, of an iterate (positive) or a direction."""

    s: Tensor
    alpha: Tensor
    xi: Tensor
    beta: Tensor
    tau: Tensor
    kappa: Tensor

    @property
    def pairs(self) -> tuple[tuple[Tensor, Tensor], ...]:
        """Those whose products are to become mu."""
        return (self.s, self.alpha), (self.xi, self.beta), (self.tau, self.kappa)


@dataclass(frozen=True, eq=False, kw_only=True)
class EmbeddingPoint(Pairs):
    """An iterate. xi and beta have length 0 with the hard margin; tau and kappa have length 1."""

    v: Tensor
    V: Tensor
    e: Tensor
    f: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Step(Pairs):
    """A direction; ``ds`` and ``dz`` are those of the cones' (t, w) and (tau, -V)."""

    v: Tensor
    ds: ConeVectors
    dz: ConeVectors


@dataclass(frozen=True, eq=False)
class ConeVectors(Point):
    """A vector (x_0, x_1) of each cone, x_1 split along the cone's axis and across it.

    ``minus`` and ``plus`` are x_0 -+ x_1 along the axis (G,), ``across`` is the rest of x_1 (P,).
    """

    minus: Tensor
    plus: Tensor
    across: Tensor

    def times(self, minus: Tensor, plus: Tensor, across: Tensor) -> ConeVectors:
        """Multiply the parts."""
        return ConeVectors(self.minus * minus, self.plus * plus, self.across * across)

    @property
    def head(self) -> Tensor:
        """x_0 (G,)."""
        return 0.5 * (self.plus + self.minus)

    @property
    def along(self) -> Tensor:
        """x_1 along the axis (G,)."""
        return 0.5 * (self.plus - self.minus)


def lift(values: Tensor) -> Tensor | float:
    """Box variables as a vector over the samples: 0 where there is no box."""
    return values if len(values) else 0.0


class Cones:
    """The cones at one iterate: s = (t, w) and z = (tau, -V), and the scaling W with W z = W^-1 s.

    W maps x_0 - x_1, x_0 + x_1 (along the axis, the tail of Nesterov and Todd's point) and what is
    across to multiples of themselves.
    """

    def __init__(self, program: Program, point: EmbeddingPoint, w: Tensor) -> None:
        self.program, groups = program, program.groups
        w_norm, V_norm = program.group_norms(w), program.group_norms(point.V)
        sqrt, positive = torch.sqrt, program.positive
        self.t: Tensor = w_norm + point.e
        tau = V_norm + point.f
        s_size = sqrt(point.e * (w_norm + self.t))  # sqrt(t^2 - ||w||^2)
        z_size = sqrt(point.f * (V_norm + tau))
        # t tau - <w, V>, without cancellation.
        apart = w / positive(w_norm)[groups] - point.V / positive(V_norm)[groups]
        aside = 0.5 * w_norm * V_norm * program.group_norms(apart) ** 2
        self.products: Tensor = aside + point.e * V_norm + point.f * self.t  # (G,)
        gamma = 2.0 * sqrt(0.5 * (1.0 + self.products / (s_size * z_size)))
        head = (self.t / s_size + tau / z_size) / gamma
        tail = (w / s_size[groups] + point.V / z_size[groups]) / gamma[groups]
        length = program.group_norms(tail)
        self.axis = tail / positive(length)[groups]
        eta = sqrt(s_size / z_size)
        self.minus, self.plus, self.across = eta / (head + length), eta * (head + length), eta
        # W^2, which each of a step's directions divides by.
        self.squares = ConeVectors(self.minus**2, self.plus**2, eta[groups] ** 2)
        self.s_size, self.z_size = s_size, z_size
        self.s = self._split(w, w_norm, point.e)
        mirrored = self._split(point.V, V_norm, point.f)
        self.z = ConeVectors(mirrored.plus, mirrored.minus, -mirrored.across)

    def _split(self, tail: Tensor, norm: Tensor, excess: Tensor) -> ConeVectors:
        """(norm + excess, tail), whose tail is nearly along the axis."""
        inner, across = self._parts(tail)
        big, program = norm + inner, self.program
        small = program.group_norms(across) ** 2 / program.positive(big)  # norm - inner
        minus = torch.where(inner > 0, small, norm - inner) + excess
        return ConeVectors(minus, big + excess, across)

    def _parts(self, tail: Tensor) -> tuple[Tensor, Tensor]:
        inner = self.program.group_sums(self.axis * tail)
        return inner, tail - inner[self.program.groups] * self.axis

    def _times(self, x: ConeVectors) -> ConeVectors:
        """W x."""
        return x.times(self.minus, self.plus, self.across[self.program.groups])

    def _over(self, x: ConeVectors) -> ConeVectors:
        """W^-1 x."""
        return x.times(1.0 / self.minus, 1.0 / self.plus, 1.0 / self.across[self.program.groups])

    def square(self, z: ConeVectors) -> Tensor:
        """||W z||^2."""
        y = self._times(z)
        return 0.5 * (y.minus @ y.minus + y.plus @ y.plus) + y.across @ y.across

    def target(self, mu: float | Tensor, predictor: Step | None) -> ConeVectors:
        """Return what W^2 dz + ds must be for the products to become mu."""
        groups, sums = self.program.groups, self.program.group_sums
        inverse, z = 1.0 / self.z_size**2 * mu, self.z
        target = ConeVectors(inverse * z.plus, inverse * z.minus, -inverse[groups] * z.across)
        target = target.moved(self.s, -1.0)
        if predictor is None:
            return target
        # W times what solves y o x = a o b, in the algebra of the cone; y is the scaled iterate.
        a, b, y = self._over(predictor.ds), self._times(predictor.dz), self._times(self.z)
        head = a.head * b.head + a.along * b.along + sums(a.across * b.across)
        along = a.head * b.along + b.head * a.along
        across = a.head[groups] * b.across + b.head[groups] * a.across
        inner = 0.5 * (y.plus * (head - along) + y.minus * (head + along)) - sums(y.across * across)
        x_head = inner / (self.s_size * self.z_size)
        x_along = (along - x_head * y.along) / y.head
        x_across = (across - x_head[groups] * y.across) / y.head[groups]
        return target.moved(
            self._times(ConeVectors(x_head - x_along, x_head + x_along, x_across)), -1.0
        )

    def dual_change(self, target: ConeVectors, w: Tensor, tau: float) -> ConeVectors:
        """Change of (tau, -V) for changes w of the coefficients and tau of its head."""
        inner, across = self._parts(w)
        squares = self.squares
        right = target.plus - target.minus - 2.0 * inner + 2.0 * tau * squares.minus
        plus = right / (squares.minus + squares.plus)
        aside = (target.across - across) / squares.across
        return ConeVectors(2.0 * tau - plus, plus, aside)

    def primal_change(self, target: ConeVectors, w: Tensor, z: ConeVectors) -> ConeVectors:
        """Change of (t, w) that goes with it."""
        inner, across = self._parts(w)
        minus = target.minus - self.squares.minus * z.minus
        return ConeVectors(minus, minus + 2.0 * inner, across)

    def tail(self, x: ConeVectors) -> Tensor:
        """x_1 (P,)."""
        return x.across + x.along[self.program.groups] * self.axis

    def rate(self, x: ConeVectors, size: Tensor, dx: ConeVectors) -> float:
        """One over the longest step along dx that stays in the cones.

        ``size`` is sqrt(x_0^2 - ||x_1||^2).
        """
        groups, sums = self.program.groups, self.program.group_sums
        x = x.times(1.0 / size, 1.0 / size, 1.0 / size[groups])
        d = dx.times(1.0 / size, 1.0 / size, 1.0 / size[groups])
        inner = 0.5 * (x.minus * d.plus + x.plus * d.minus) - sums(x.across * d.across)
        share = (inner + d.head) / (x.head + 1.0)
        along, across = d.along - share * x.along, d.across - share[groups] * x.across
        return float((torch.sqrt(along * along + sums(across * across)) - inner).max())

    def excess(self, x: ConeVectors, norm: Tensor) -> Tensor:
        """x_0 - ||x_1||, given the norm."""
        return (x.minus * x.plus - self.program.group_sums(x.across * x.across)) / (x.head + norm)


class Equations:
    """What the equations say of an iterate."""

    def __init__(self, program: Program, point: EmbeddingPoint) -> None:
        p, tau = point, point.tau[0]
        self.w = program.coef(p.v)
        self.cones = Cones(program, point, self.w)
        self.margins = program.B @ p.v
        self.stationarity = program.B.T @ p.alpha - program.pulled(p.V)  # (P',)
        self.margin_residual = self.margins + lift(p.xi) - tau * program.c - p.s  # (N,)
        self.box_residual = tau * program.C - program.boxed(p.alpha) - p.beta
        value = program.c @ p.alpha
        self.gap_residual = value - self.cones.t.sum() - program.C @ p.xi - p.kappa
        products = self.cones.products.sum() + sum(a @ b for a, b in p.pairs)
        self.mu = products / (sum(len(a) for a, _ in p.pairs) + program.n_groups)
        # The gap that would be left if the equations held.
        self.gap = float(products / (tau * value))


class Newton(ABC):
    """The factored Newton system at one iterate."""

    def __init__(self, program: Program, point: EmbeddingPoint, view: Equations) -> None:
        self.program, self.point, self.view, self.cones = program, point, view, view.cones
        p, tau = point, point.tau[0]
        self.h = 1.0 / (p.s / p.alpha + lift(p.xi / p.beta))
        self.factorise()
        # The direction of tau starts from v / tau, whose margins are known: the rounding of its
        # product with B would be multiplied by h.
        q = (lift(p.xi) - p.s - view.margin_residual) / tau + lift(p.xi / p.beta * program.C)
        cone = self.cones.s.times(*(-1.0 / p.tau,) * 3)
        v, alpha, z = self.solve(q, cone, 0.0 * p.v, 1.0)
        self.of_tau = v + p.v / tau, alpha, z
        beta, slope = program.C - program.boxed(alpha), (p.s / p.alpha) @ (alpha * alpha)
        self.slope = slope + self.cones.square(z) + (p.xi / p.beta) @ (beta * beta)

    @abstractmethod
    def factorise(self) -> None:
        """Factorise the system.

        Raises
        ------
        Breakdown
            It is singular.
        """

    @abstractmethod
    def solve(
        self, q: Tensor, cone: ConeVectors, pull: Tensor, tau: float
    ) -> tuple[Tensor, Tensor, ConeVectors]:
        """dv, dalpha = h (q - B dv) and the cones' dual change, with B' dalpha = T' dV - pull."""

    def next(self) -> EmbeddingPoint:
        """Return the next iterate, by predictor and corrector."""
        predictor = self.direction(0.0)
        centring = max((1.0 - self.reach(predictor)) ** 3, LEAST_CENTRING)
        step = self.direction(centring, predictor)
        return self.moved(step, min(1.0, BOUNDARY_SHARE * self.reach(step)))

    def direction(self, centring: float, predictor: Step | None = None) -> Step:
        """Step to the central path at centring * mu, with the predictor's second-order terms."""
        p, view, program, cones = self.point, self.view, self.program, self.cones
        mu, keep = centring * view.mu, 1.0 - centring
        at = [mu - a * b for a, b in p.pairs]
        if predictor is not None:
            at = [x - a * b for x, (a, b) in zip(at, predictor.pairs, strict=True)]
        at_s, at_xi, at_tau = at
        cone, box = cones.target(mu, predictor), keep * view.box_residual
        q = at_s / p.alpha - keep * view.margin_residual - lift((at_xi - p.xi * box) / p.beta)
        v, alpha, z = self.solve(q, cone, keep * view.stationarity, 0.0)
        # tau from the equations of the gap and of tau kappa.
        t = cones.primal_change(cone, program.coef(v), z).head.sum()
        xi = (at_xi - p.xi * (box - program.boxed(alpha))) / p.beta
        kappa = program.c @ alpha - t - program.C @ xi + keep * view.gap_residual
        tau = (at_tau - p.tau * kappa) / (p.kappa + p.tau * self.slope)
        of_v, of_alpha, of_z = self.of_tau
        v, alpha, z = v + tau * of_v, alpha + tau * of_alpha, z.moved(of_z, tau)
        beta = tau * program.C - program.boxed(alpha) + box
        return Step(
            v=v,
            ds=cones.primal_change(cone, program.coef(v), z),
            dz=z,
            s=(at_s - p.s * alpha) / p.alpha,
            alpha=alpha,
            xi=(at_xi - p.xi * beta) / p.beta,
            beta=beta,
            tau=tau,
            kappa=(at_tau - p.kappa * tau) / p.tau,
        )

    def reach(self, step: Step) -> float:
        """Longest multiple of a step, at most 1, that stays in the cones."""
        cones = self.cones
        rates = [
            cones.rate(cones.s, cones.s_size, step.ds),
            cones.rate(cones.z, cones.z_size, step.dz),
        ]
        for values, changes in zip(self.point.pairs, step.pairs, strict=True):
            rates += [
                float((-dx / x).max()) for x, dx in zip(values, changes, strict=True) if len(x)
            ]
        if not np.isfinite(rates).all():
            raise Breakdown
        return 1.0 / max(1.0, *rates)

    def moved(self, step: Step, length: float) -> EmbeddingPoint:
        """Return the iterate after a step of some length."""
        p, cones, program = self.point, self.cones, self.program
        v, V = p.v + length * step.v, p.V - length * cones.tail(step.dz)
        return EmbeddingPoint(
            v=v,
            V=V,
            e=cones.excess(cones.s.moved(step.ds, length), program.group_norms(program.coef(v))),
            f=cones.excess(cones.z.moved(step.dz, length), program.group_norms(V)),
            **{x.name: getattr(p, x.name) + length * getattr(step, x.name) for x in fields(Pairs)},
        )
