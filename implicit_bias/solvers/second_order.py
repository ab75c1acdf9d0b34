r"""Second-order cones at one iterate, and their Nesterov and Todd scaling.

There is a cone for each group g: s = (t_g, w_g) with ||w_g|| <= t_g, and z = (tau, -V_g) with
||V_g|| <= tau, whose products s o z are to become (mu, 0). The scaling W is the one with
W z = W^-1 s, as in ECOS (Domahidi, Chu and Boyd 2013). Its axis is the direction of the tail of
Nesterov and Todd's point. Let a be x_1 along the axis, and x_across the rest of x_1. A vector of a
cone is written as x_0 - a and x_0 + a, of which one is tiny near the end, and x_across. So W is
diagonal:

        W x = (minus (x_0 - a), plus (x_0 + a), across x_across)

======  ======  ==========================================================================
w, V    (P,)    tails of all cones, one after the other; cone g of each entry is ``groups``
e, f    (G,)    t - ||w_g|| and tau - ||V_g||, kept apart: they are tiny at the end
======  ======  ==========================================================================
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from implicit_bias.solvers.iteration import Point
from implicit_bias.solvers.scaled_rows import TINY


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


class Groups:
    """Which cone each entry of a vector belongs to.

    Parameters
    ----------
    index : Tensor of int, shape (P,)
        The cone of each entry.
    count : int
        G.
    """

    def __init__(self, index: Tensor, count: int) -> None:
        self.index = index
        self.count = count
        self.member = torch.nn.functional.one_hot(index, count).double()

    def sums(self, values: Tensor) -> Tensor:
        """Sum the entries of each cone, (G,)."""
        return self.member.T @ values

    def norms(self, w: Tensor) -> Tensor:
        """||w_g||, (G,)."""
        return torch.sqrt(self.sums(w * w))


class SecondOrderCones:
    """The cones at one iterate: s = (t, w) and z = (tau, -V), and the scaling W."""

    def __init__(self, groups: Groups, w: Tensor, V: Tensor, e: Tensor, f: Tensor) -> None:
        index = groups.index
        self.groups = groups
        w_norm = groups.norms(w)
        V_norm = groups.norms(V)
        self.t = w_norm + e
        tau = V_norm + f
        self.s_size = torch.sqrt(e * (w_norm + self.t))  # sqrt(t^2 - ||w||^2)
        self.z_size = torch.sqrt(f * (V_norm + tau))
        # <s, z> = t tau - <w, V>, without cancellation.
        angle = w / w_norm.clamp(min=TINY)[index] - V / V_norm.clamp(min=TINY)[index]
        apart = 0.5 * w_norm * V_norm * groups.norms(angle) ** 2
        self.products = apart + e * V_norm + f * self.t  # (G,)
        # Nesterov and Todd's point, of determinant 1.
        gamma = 2.0 * torch.sqrt(0.5 * (1.0 + self.products / (self.s_size * self.z_size)))
        head = (self.t / self.s_size + tau / self.z_size) / gamma
        tail = (w / self.s_size[index] + V / self.z_size[index]) / gamma[index]
        # Its tail's direction is the axis, on which W is diagonal: head -+ length.
        length = groups.norms(tail)
        self.axis = tail / length.clamp(min=TINY)[index]
        # W.
        eta = torch.sqrt(self.s_size / self.z_size)
        self.minus = eta / (head + length)
        self.plus = eta * (head + length)
        self.across = eta
        # W^2, which each of a step's directions divides by.
        self.squares = ConeVectors(self.minus**2, self.plus**2, eta[index] ** 2)
        self.s = self._split(w, w_norm, e)
        # z = (tau, -V): along the axis, where V is close to w, minus and plus change places.
        mirrored = self._split(V, V_norm, f)
        self.z = ConeVectors(mirrored.plus, mirrored.minus, -mirrored.across)

    def _split(self, tail: Tensor, norm: Tensor, surplus: Tensor) -> ConeVectors:
        """(norm + surplus, tail), whose tail is nearly along the axis."""
        inner, across = self._parts(tail)
        big = norm + inner
        small = self.groups.norms(across) ** 2 / big.clamp(min=TINY)  # norm - inner
        minus = torch.where(inner > 0, small, norm - inner) + surplus
        return ConeVectors(minus, big + surplus, across)

    def _parts(self, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return a tail along the axis, (G,), and across it, (P,)."""
        inner = self.groups.sums(self.axis * tail)
        return inner, tail - inner[self.groups.index] * self.axis

    def _times(self, x: ConeVectors) -> ConeVectors:
        """W x."""
        return x.times(self.minus, self.plus, self.across[self.groups.index])

    def _over(self, x: ConeVectors) -> ConeVectors:
        """W^-1 x."""
        return x.times(1.0 / self.minus, 1.0 / self.plus, 1.0 / self.across[self.groups.index])

    def square(self, z: ConeVectors) -> Tensor:
        """||W z||^2."""
        y = self._times(z)
        return 0.5 * (y.minus @ y.minus + y.plus @ y.plus) + y.across @ y.across

    def weighted(self, T: Tensor) -> Tensor:
        """Return W^-1 T, the cones' rows of the least squares problem, (G + P, P')."""
        axis = self.axis[:, None]
        inner = self.groups.member.T @ (axis * T)  # (G, P')
        along = (2.0 / (self.minus**2 + self.plus**2)).sqrt()[:, None] * inner
        rest = T - axis * inner[self.groups.index]
        return torch.cat([along, rest / self.across[self.groups.index, None]])

    def target(self, mu: Tensor, predictor: tuple[ConeVectors, ConeVectors] | None) -> ConeVectors:
        """Return what W^2 dz + ds must be for the products to become mu.

        ``predictor`` has (ds, dz), whose second-order term is subtracted.
        """
        index = self.groups.index
        sums = self.groups.sums
        # mu z^-1 - s: the inverse of z in the algebra mirrors it, over its determinant.
        inverse = 1.0 / self.z_size**2 * mu
        z = self.z
        target = ConeVectors(inverse * z.plus, inverse * z.minus, -inverse[index] * z.across)
        target = target.moved(self.s, -1.0)
        if predictor is None:
            return target
        # W times what solves y o x = a o b, in the algebra of the cone; y is the scaled iterate.
        a = self._over(predictor[0])
        b = self._times(predictor[1])
        y = self._times(self.z)
        head = a.head * b.head + a.along * b.along + sums(a.across * b.across)
        along = a.head * b.along + b.head * a.along
        across = a.head[index] * b.across + b.head[index] * a.across
        # a o b = (head, along, across), and x with y o x = a o b by the inverse of y's arrow.
        inner = 0.5 * (y.plus * (head - along) + y.minus * (head + along)) - sums(y.across * across)
        x_head = inner / (self.s_size * self.z_size)
        x_along = (along - x_head * y.along) / y.head
        x_across = (across - x_head[index] * y.across) / y.head[index]
        second = self._times(ConeVectors(x_head - x_along, x_head + x_along, x_across))
        return target.moved(second, -1.0)

    def dual_change(self, target: ConeVectors, w: Tensor, tau: float) -> ConeVectors:
        """Change of (tau, -V) for changes w of the coefficients and tau of its head."""
        inner, across = self._parts(w)
        squares = self.squares
        # The tail of ds is w and the head of dz is tau: two equations for minus and plus of dz.
        right = target.plus - target.minus - 2.0 * inner + 2.0 * tau * squares.minus
        plus = right / (squares.minus + squares.plus)
        across = (target.across - across) / squares.across
        return ConeVectors(2.0 * tau - plus, plus, across)

    def primal_change(self, target: ConeVectors, w: Tensor, z: ConeVectors) -> ConeVectors:
        """Change of (t, w) that goes with it."""
        inner, across = self._parts(w)
        minus = target.minus - self.squares.minus * z.minus
        return ConeVectors(minus, minus + 2.0 * inner, across)

    def tail(self, x: ConeVectors) -> Tensor:
        """x_1 (P,)."""
        return x.across + x.along[self.groups.index] * self.axis

    def rate(self, x: ConeVectors, size: Tensor, dx: ConeVectors) -> float:
        """One over the longest step along dx that stays in the cones.

        ``size`` is sqrt(x_0^2 - ||x_1||^2).
        """
        index = self.groups.index
        sums = self.groups.sums
        x = x.times(1.0 / size, 1.0 / size, 1.0 / size[index])
        d = dx.times(1.0 / size, 1.0 / size, 1.0 / size[index])
        # dx in the frame of the unit vector x, in which the cone's boundary is where the head
        # meets the norm of the tail.
        inner = 0.5 * (x.minus * d.plus + x.plus * d.minus) - sums(x.across * d.across)
        share = (inner + d.head) / (x.head + 1.0)
        along = d.along - share * x.along
        across = d.across - share[index] * x.across
        return float((torch.sqrt(along * along + sums(across * across)) - inner).max())

    def head_less_tail(self, x: ConeVectors, norm: Tensor) -> Tensor:
        """x_0 - ||x_1||, given the norm."""
        return (x.minus * x.plus - self.groups.sums(x.across * x.across)) / (x.head + norm)
