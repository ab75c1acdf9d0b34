r"""The products of the interior point with pairs of samples and rivals, class by class.

A pair (n, k) touches two of the K classes, with features e_{y_n} - e_k times those of its sample.
So the products are formed class by class, of the samples and pairs that touch it, and each sample
has one row, however many rivals it has: with ten classes a fifth of the work of V and of U, and a
twelfth of that of Q(d), that the features of the pairs written out would take.

========  ================  ====================================================================
X         (N, D')           inputs over nu_n, of the samples that have pairs
Z         (N, M' + 1)       their rotated gates, as in `scaled_problem`, the same for all classes
share     (G',)             S^2 / C of each group of these gates
columns   (K, G')           group of the problem that a class's group of gates is in
V         (K, M' + 1, D')   V_c = sum over pairs (n, k) of alpha_nk (e_{y_n} - e_k)_c z_n (x) x_n
U         (P, G)            as in `scaled_problem`
========  ================  ====================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class ClassGroups:
    """Groups of the rotated gates of a sample, (M',), and those of the problem, (K, G')."""

    groups: Tensor
    share: Tensor
    columns: Tensor
    n_groups: int


class _Touching(NamedTuple):
    """The pairs that touch a class, with their signs, and the samples of these pairs."""

    pairs: Tensor
    sign: Tensor
    samples: Tensor
    at: Tensor  # place of each pair's sample among these


class ScaledPairs:
    """Some pairs of a problem on the device: the products of `ScaledSamples`.

    Parameters
    ----------
    X : Tensor of shape (N, D')
        Scaled inputs of samples.
    Z : Tensor of shape (N, M' + 1)
        Their rotated gates.
    samples, owners, rivals : Tensor of int, shape (P,)
        The pairs: row of the sample, its class, and the rival.
    layout : ClassGroups
        How gates are grouped.
    """

    def __init__(
        self,
        X: Tensor,
        Z: Tensor,
        samples: Tensor,
        owners: Tensor,
        rivals: Tensor,
        layout: ClassGroups,
    ) -> None:
        self.X, self.Z, self.layout = X, Z, layout
        self.samples, self.owners, self.rivals = samples, owners, rivals
        self.n_classes = len(layout.columns)

    def subset(self, index: Tensor) -> ScaledPairs:
        """Return some of them (indices)."""
        used, place = torch.unique(self.samples[index], return_inverse=True)
        owners, rivals = self.owners[index], self.rivals[index]
        return ScaledPairs(self.X[used], self.Z[used], place, owners, rivals, self.layout)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (K, M' + 1, D') of alpha (P,)."""
        V = self.X.new_zeros(self.n_classes, self.Z.shape[1], self.X.shape[1])
        for of_class, touching in zip(V, self._touching, strict=True):
            pairs, sign, samples, at = touching
            weights = alpha.new_zeros(len(samples)).index_add_(0, at, sign * alpha[pairs])
            torch.mm(self.Z[samples].T, self.X[samples] * weights[:, None], out=of_class)
        return V

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group (G,)."""
        products = (V * W).sum(2)
        layout = self.layout
        found = V.new_zeros(layout.n_groups)
        for own, columns in zip(products, layout.columns, strict=True):
            of_gates = (layout.share * own[-1]).index_add_(0, layout.groups, own[:-1])
            found.index_add_(0, columns, of_gates)
        return found

    def group_products(self, V: Tensor) -> Tensor:
        """U (P, G): <V_g, features of the pair in group g>."""
        layout = self.layout
        U = V.new_zeros(len(self.samples), layout.n_groups)
        for of_class, columns, touching in zip(V, layout.columns, self._touching, strict=True):
            pairs, sign, samples, at = touching
            products = (self.X[samples] @ of_class.T).mul_(self.Z[samples])
            of_gates = torch.outer(products[:, -1], layout.share)
            of_gates.index_add_(1, layout.groups, products[:, :-1])
            U[pairs[:, None], columns] += sign[:, None] * of_gates[at]
        return U

    def curvature(self, d: Tensor) -> Tensor:
        """Q(d), shape (P, P); the next call overwrites it."""
        self._Q.zero_()
        for weights, touching in zip(self._weights(d), self._touching, strict=True):
            pairs, sign, samples, at = touching
            signed = self.Z[samples][at] * sign[:, None]
            of_class = (signed * weights) @ signed.T
            rows = samples[at]
            of_class *= self._K[rows[:, None], rows]
            self._Q[pairs[:, None], pairs] += of_class
        return self._Q.T

    def curvature_diagonal(self, d: Tensor) -> Tensor:
        """Diagonal of Q(d), shape (P,)."""
        squares = self.Z.square() @ self._weights(d).T  # (N, K)
        both = squares[self.samples, self.owners] + squares[self.samples, self.rivals]
        return self.X.square().sum(1)[self.samples] * both

    @cached_property
    def _K(self) -> Tensor:
        """Inner products of the samples' inputs, (N, N)."""
        return self.X @ self.X.T

    @cached_property
    def _Q(self) -> Tensor:
        """Room for Q(d)."""
        return self.X.new_empty((len(self.samples), len(self.samples)))

    @cached_property
    def _touching(self) -> list[_Touching]:
        """What touches each class."""
        found = []
        for c in range(self.n_classes):
            own = self.owners == c
            pairs = torch.nonzero(own | (self.rivals == c))[:, 0]
            samples, at = torch.unique(self.samples[pairs], return_inverse=True)
            sign = torch.where(own[pairs], 1.0, -1.0).to(self.X)
            found.append(_Touching(pairs, sign, samples, at))
        return found

    def _weights(self, d: Tensor) -> Tensor:
        """Return d of each class and column of Z, shape (K, M' + 1)."""
        of_gates = d[self.layout.columns]  # (K, G')
        constant = of_gates @ self.layout.share
        return torch.hstack([of_gates[:, self.layout.groups], constant[:, None]])
