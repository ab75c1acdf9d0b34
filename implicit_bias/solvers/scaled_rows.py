r"""Rows of a scaled problem on a device, and the products with them that cost time.

Rows      One a sample of two classes, one a pair (n, k), k != y_n, of a sample and a rival. Row p
          has the label vector b_p in R^K': y_n with K' = 1, or e_{y_n} - e_k with K' = K, and the
          features b_p (x) z(x_n) (x) x_n.
Classes   A pair touches two of the K classes. So products are formed class by class, of the rows
          that touch it, and each sample has one row of X and Z, however many rivals it has.
Q(d)      Symmetric, so one triangle is computed, in place of the last one.

===========  ================  ===================================================================
X            (n, D')           inputs x_n / nu_n of the samples with rows, constant ones merged;
                               y_n x_n / nu_n with two classes
Z            (n, M' + 1)       rotated gates; the last column is the shared constant, 1
groups       (M',)             group g' of each rotated gate, one numbering for all classes
share        (G',)             S^2 / C: weight of the shared column in group g'; 0 where it has no
                               part
norm_groups  (K', G')          group of the norm that a class's group of gates is in
V            (K', M' + 1, D')  V_c = sum_p alpha_p (b_p)_c z_n (x) x_n
Pi           (P, G)            Pi_g = Q_g alpha, through feature space: <V_g, features of the row in
                               g>
gram         (n, n)            X X'
Q(d)         (P, P)            sum_g d_g Q_g = (B B') o (X X') o (Z diag(d) Z'), B the label vectors
===========  ================  ===================================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.problem.masked_gram import mask_into

TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Rows on the device: row of X, class of the sample, and rival, each (P,)."""

    place: Tensor
    owners: Tensor
    rivals: Tensor


class Touching(NamedTuple):
    """The rows that touch a class, with their signs, and the samples of these rows."""

    rows: Tensor
    sign: Tensor
    samples: Tensor
    at: Tensor  # place of each row's sample among these


@dataclass(frozen=True, eq=False)
class GateGroups:
    """Groups of the rotated gates, (M',), and which groups of the norm they are, (K', G')."""

    groups: Tensor
    share: Tensor
    norm_groups: Tensor
    n_groups: int

    @cached_property
    def of_gates(self) -> Tensor:
        """Group of the norm of each rotated gate of each class, (K' M',)."""
        return self.norm_groups[:, self.groups].reshape(-1)

    @cached_property
    def members(self) -> Tensor:
        """How much of each gate is in each group of the norm, (K', M' + 1, G).

        ||V_g||^2 is the sum over classes c and gates m of that much of ||V_cm||^2.
        """
        n_classes = len(self.norm_groups)
        found = self.share.new_zeros(n_classes, len(self.groups) + 1, self.n_groups)
        found[:, :-1].scatter_(2, self.norm_groups[:, self.groups][:, :, None], 1.0)
        found[:, -1].scatter_add_(1, self.norm_groups, self.share.expand(n_classes, -1))
        return found

    @cached_property
    def distinct(self) -> bool:
        """Whether no two groups of gates of a class are in one group of the norm."""
        return all(len(torch.unique(groups)) == len(groups) for groups in self.norm_groups)


class ScaledRows:
    """Some rows of a problem on the device, and the products with them that cost time.

    Parameters
    ----------
    X, Z : Tensor of shape (n, D'), (n, M' + 1)
        Scaled inputs and rotated gates of samples; see the module's head.
    gate_groups : GateGroups
        How gates are grouped.
    pairs : Pairs
        The rows. With one score a row, K' = 1, row p is that of X and Z, and X has its sign.
    """

    # Rows of Q(d) computed at once: small enough for a cache, large enough for a matrix product.
    block: ClassVar[int] = 512
    # Up to so many features the squares of all pairs of classes are formed at once.
    few_features: ClassVar[int] = 200
    # With more classes their Laplacian is formed.
    many_classes: ClassVar[int] = 20

    def __init__(self, X: Tensor, Z: Tensor, gate_groups: GateGroups, pairs: Pairs) -> None:
        self.X = X
        self.Z = Z
        self.gate_groups = gate_groups
        self.pairs = pairs
        self.n_classes = len(gate_groups.norm_groups)
        self.signed = self.n_classes == 1

    def __len__(self) -> int:
        """P."""
        return len(self.pairs.place)

    def subset(self, index: Tensor) -> ScaledRows:
        """Return some of them (indices, ascending)."""
        used, place = torch.unique(self.pairs.place[index], return_inverse=True)
        pairs = Pairs(place, self.pairs.owners[index], self.pairs.rivals[index])
        return ScaledRows(self.X[used], self.Z[used], self.gate_groups, pairs)

    # --- sums of Euclidean norms over groups -----------------------------------------------------

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (K', M' + 1, D') of alpha (P,)."""
        if self.Z.shape[1] == 1:  # of the constant gate alone
            return self.adjoint(alpha)[:, None]
        if self.signed:
            return (self.Z.T @ (self.X * alpha[:, None]))[None]
        V = self.X.new_empty(self.n_classes, self.Z.shape[1], self.X.shape[1])
        for V_of_class, touching in zip(V, self._touching, strict=True):
            rows, sign, samples, at = touching
            weights = alpha.new_zeros(len(samples)).index_add_(0, at, sign * alpha[rows])
            torch.mm(self.Z[samples].T, self.X[samples] * weights[:, None], out=V_of_class)
        return V

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group (G,)."""
        groups = self.gate_groups
        by_gate = (V * W).sum(2)
        found = V.new_zeros(groups.n_groups)
        found.index_add_(0, groups.of_gates, by_gate[:, :-1].reshape(-1))
        constant = by_gate[:, -1:] * groups.share
        return found.index_add_(0, groups.norm_groups.reshape(-1), constant.reshape(-1))

    def group_products(self, V: Tensor) -> Tensor:
        """Pi (P, G): <V_g, features of the row in group g>."""
        groups = self.gate_groups

        def sums_of_gates(samples: Tensor | slice, V_of_class: Tensor) -> Tensor:
            """<V_g', z (x) x> of some samples and each group of gates, (n, G')."""
            products = (self.X[samples] @ V_of_class.T).mul_(self.Z[samples])
            found = torch.outer(products[:, -1], groups.share)
            return found.index_add_(1, groups.groups, products[:, :-1])

        if self.signed:
            return sums_of_gates(slice(None), V[0])
        Pi = V.new_zeros(len(self), groups.n_groups)
        classes = zip(V, groups.norm_groups, self._touching, strict=True)
        for V_of_class, of_norm, touching in classes:
            rows, sign, samples, at = touching
            values = sums_of_gates(samples, V_of_class)[at].mul_(sign[:, None])
            if groups.distinct:
                Pi[rows[:, None], of_norm] += values
            else:  # += would keep one of the values that meet in a place
                Pi.index_put_((rows[:, None], of_norm), values, accumulate=True)
        return Pi

    def curvature(self, d: Tensor) -> Tensor:
        """Q(d), shape (P, P): at least its lower triangle, by columns; the next call overwrites."""
        weights = self._weights(d)
        if self.signed:
            # Q(d) = gram o (Z diag(d) Z'), in blocks that stay in the cache.
            weighted = self.Z * weights
            for rows, right in self._blocks():
                mask_into(
                    self._Q[rows, right], self._gram[rows, right], weighted[rows], self.Z[right]
                )
            return self._Q.T

        def Q_of_class(c: int, touching: Touching) -> Tensor:  # noqa: N802 - Q is a matrix
            at = touching.samples[touching.at]
            Z = self.Z[at] * touching.sign[:, None]
            return (Z * weights[c] @ Z.T).mul_(self._gram[at[:, None], at])

        return self.over_classes(Q_of_class, self._Q.zero_()).T

    def curvature_diagonal(self, d: Tensor) -> Tensor:
        """Diagonal of Q(d), shape (P,)."""
        squares = self.Z.square() @ self._weights(d).T * self._input_squares[:, None]  # (n, K')
        if self.signed:
            return squares[:, 0]
        place = self.pairs.place
        return squares[place, self.pairs.owners] + squares[place, self.pairs.rivals]

    def over_classes(self, matrix: Callable[[int, Touching], Tensor], room: Tensor) -> Tensor:
        """Sum over classes of matrices of the rows that touch them, with their signs.

        Parameters
        ----------
        matrix : callable
            Returns the matrix, (m, m), of a class and the m rows that touch it.
        room : Tensor of shape (P, P)
            What the sum is added to, in place.
        """
        for c, touching in enumerate(self._touching):
            rows = touching.rows
            room[rows[:, None], rows] += matrix(c, touching)
        return room

    def _weights(self, d: Tensor) -> Tensor:
        """Return d of each class and column of Z, shape (K', M' + 1)."""
        by_group = d[self.gate_groups.norm_groups]  # (K', G')
        constant = by_group @ self.gate_groups.share
        return torch.hstack([by_group[:, self.gate_groups.groups], constant[:, None]])

    # --- norms that are no sums over groups: their features are the inputs, of one gate ----------

    def apply(self, zeta: Tensor) -> Tensor:
        """<features of the row, zeta>, (..., P), of zeta (..., K', D')."""
        scores = zeta.flatten(0, -2) @ self.X.T  # (... K', n)
        if self.signed:
            return scores.reshape(*zeta.shape[:-2], -1)
        table = scores.reshape(*zeta.shape[:-1], -1).mT.flatten(-2)  # sample, class
        # b_p picks the score of the own class less that of the rival.
        owner, rival = self._entries
        return table[..., owner] - table[..., rival]

    def adjoint(self, alpha: Tensor) -> Tensor:
        """V (..., K', D') of alpha (..., P)."""
        return self._by_class(alpha).mT @ self.X

    def products(self, V: Tensor) -> Tensor:
        """<v, x> of each row's sample and each row v of V, (P, r)."""
        return (self.X @ V.T)[self.pairs.place]

    def masked_by_labels(self, grams: list[Tensor], left: list[Tensor], right: Tensor) -> Tensor:
        """Sum over i of grams_i[n_p, n_q] <left_i[p], right[q]>, for rows p and q of samples n.

        Of (P, P) the upper triangle, block by block: no block leaves the cache.
        """
        place = self.pairs.place
        found = self.X.new_zeros(len(self), len(self))
        for rows, columns in self._blocks():
            for gram, left_of_gram in zip(grams, left, strict=True):
                of_rows = gram[place[rows]].index_select(1, place[columns])
                found[rows, columns].addcmul_(of_rows, left_of_gram[rows] @ right[columns].T)
        return found

    def normal_matrix(
        self, h: Tensor, loose: Tensor | None, basis: Tensor, coarse: bool = False
    ) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F), Phi in coordinates of the classes.

        D is diag(1 / h), plus 1 / loose between all rows of a sample. Let B be the label vectors of
        a sample's rows. Then B' D^-1 B is the Laplacian of a graph whose vertices are the classes.
        With a soft margin the edge between i and j has the weight a_i a_j / sum(a), where a_k is h
        of the row against rival k, and ``loose`` for the own class. With a hard margin (``loose``
        to infinity) only the edges to the own class are left, with the weights h.

        No term is negative: nothing cancels, however far apart the h are. Each edge costs one
        product X' diag X. With many classes the Laplacian itself is turned to the coordinates,
        which takes fewer operations.

        Parameters
        ----------
        h : Tensor of shape (P,)
            Weights of the rows.
        loose : Tensor of shape (n,) or None
            w / xi of the samples' boxes; None with a hard margin.
        basis : Tensor of shape (K', r)
            From the coordinates to the classes.
        coarse : bool
            Sum the products in float32, which takes half the time.
        """
        X = self.X
        if coarse:
            X = self._coarse_X
        if self.signed:
            if loose is not None:
                h = h * (loose / (loose + h))
            return weighted_square(X, h)
        n_classes, r = basis.shape
        F = X.shape[1]
        # Weights a_k of a sample's edges: h at its rivals, ``loose`` at its own class.
        weights = self._by_rival(h)
        fractions = None
        if loose is not None:
            weights.scatter_(1, self._owners[:, None], loose[:, None])
            fractions = weights / weights.sum(1, keepdim=True)
        squares = self._squares(X, weights, fractions)
        i, j = torch.triu_indices(n_classes, n_classes, 1, device=h.device)
        # The sum over edges of (e_i - e_j) (e_i - e_j)' (x) X' diag X, in coordinates.
        if n_classes > self.many_classes:
            laplacian = h.new_zeros(n_classes, n_classes, F, F)
            off_diagonal = -squares
            laplacian[i, j] = off_diagonal
            laplacian[j, i] = off_diagonal
            laplacian.diagonal().copy_(-laplacian.sum(1).permute(1, 2, 0))
            blocks = torch.einsum("ki,klfg,lj->ijfg", basis, laplacian, basis)
        else:
            edges = basis[i] - basis[j]
            outer = (edges[:, :, None] * edges[:, None, :]).flatten(1)  # (E, r r)
            blocks = (outer.T @ squares.flatten(1)).reshape(r, r, F, F)
        return blocks.permute(0, 2, 1, 3).reshape(r * F, r * F)

    def _squares(self, X: Tensor, weights: Tensor, fractions: Tensor | None) -> Tensor:
        """X' diag X of each pair of classes, with the weights of its edges: (E, F, F).

        Of few features all pairs of a class, or all of them, are one product.
        """
        n_classes = self.n_classes
        F = X.shape[1]
        i, j = torch.triu_indices(n_classes, n_classes, 1, device=weights.device)
        if F > self.few_features:
            pairs = zip(i.tolist(), j.tolist(), strict=True)
            return torch.stack([self._square(X, *pair, weights, fractions) for pair in pairs])
        if fractions is not None:
            whole = _all_squares(X, weights, fractions)
            return whole.reshape(n_classes, F, n_classes, F)[i, :, j]
        # A sample has edges to its own class alone.
        by_owner = torch.stack([weighted_squares(X[m], weights[m]) for m in self._members])
        return by_owner[i, j] + by_owner[j, i]

    def _square(
        self, X: Tensor, i: int, j: int, weights: Tensor, fractions: Tensor | None
    ) -> Tensor:
        """X' diag X of one pair of classes, (F, F)."""
        if fractions is not None:
            return weighted_square(X, weights[:, i] * fractions[:, j])
        members = torch.cat([self._members[i], self._members[j]])
        rivals = torch.where(self._owners[members] == i, j, i)
        return weighted_square(X[members], weights[members, rivals])

    @property
    def labels(self) -> Tensor:
        """b_p, (P, K')."""
        if self.signed:
            return self.X.new_ones(len(self), 1)
        eye = torch.eye(self.n_classes).to(self.X)
        return eye[self.pairs.owners] - eye[self.pairs.rivals]

    def _by_rival(self, values: Tensor) -> Tensor:
        """Values of rows (..., P) at their sample and rival, (..., n, K'); 0 elsewhere."""
        dense = values.new_zeros(*values.shape[:-1], len(self.X) * self.n_classes)
        dense[..., self._entries[1]] = values
        return dense.reshape(*values.shape[:-1], -1, self.n_classes)

    def _by_class(self, alpha: Tensor) -> Tensor:
        """Sum over a sample's rows of alpha_p b_p, (..., n, K'), but for the signs that X has."""
        if self.signed:
            return alpha[..., None]
        # -alpha_p at each rival, and their sum at the own class: rows of a sample sum to 0.
        weights = -self._by_rival(alpha)
        samples = torch.arange(len(self.X), device=alpha.device)
        weights[..., samples, self._owners] = -weights.sum(-1)
        return weights

    # --- what is computed once -------------------------------------------------------------------

    @cached_property
    def _input_squares(self) -> Tensor:
        """||x_n||^2 / nu_n^2, shape (n,)."""
        return self.X.square().sum(1)

    @cached_property
    def _coarse_X(self) -> Tensor:
        """X in float32, (n, F)."""
        return self.X.float()

    @cached_property
    def _gram(self) -> Tensor:
        """X X', shape (n, n): with one score a row its upper triangle, by rows."""
        if not self.signed:
            return self.X @ self.X.T
        gram = torch.empty_like(self._Q)
        for rows, right in self._blocks():
            torch.mm(self.X[rows], self.X[right].T, out=gram[rows, right])
        return gram

    @cached_property
    def _Q(self) -> Tensor:
        """Room for Q(d), or its upper triangle by rows."""
        return self.X.new_empty((len(self), len(self)))

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Rows, and the columns from their first one on, that cover the upper triangle."""
        starts = range(0, len(self), self.block)
        return [(slice(start, start + self.block), slice(start, None)) for start in starts]

    @cached_property
    def _touching(self) -> list[Touching]:
        """What touches each class."""
        found = []
        for c in range(self.n_classes):
            owned = (self.pairs.owners == c) | self.signed  # whose sign X has
            rows = torch.nonzero(owned | (self.pairs.rivals == c))[:, 0]
            samples, at = torch.unique(self.pairs.place[rows], return_inverse=True)
            sign = torch.where(owned[rows], 1.0, -1.0).to(self.X)
            found.append(Touching(rows, sign, samples, at))
        return found

    @cached_property
    def _owners(self) -> Tensor:
        """Class of each sample, (n,)."""
        owners = self.pairs.owners.new_zeros(len(self.X))
        return owners.scatter_(0, self.pairs.place, self.pairs.owners)

    @cached_property
    def _members(self) -> list[Tensor]:
        """Samples of each class."""
        return [torch.nonzero(self._owners == c)[:, 0] for c in range(self.n_classes)]

    @cached_property
    def _entries(self) -> tuple[Tensor, Tensor]:
        """Places of a row's class and of its rival in a flat array (n, K')."""
        first = self.pairs.place * self.n_classes
        return first + self.pairs.owners, first + self.pairs.rivals


# --- weighted squares ----------------------------------------------------------------------------


def weighted_square(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X, (F, F), of X (n, F) and weights from 0 on."""
    unit, roots = _roots(weights, X.dtype)
    upper = unit * _upper_square(X * roots[:, None]).to(weights.dtype)
    return upper.triu() + upper.triu(1).T


def weighted_squares(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X of each column w, (k, F, F), of X (n, F) and weights (n, k)."""
    n, k = weights.shape
    F = X.shape[1]
    found = X.new_zeros(k * F, F)
    # In float32 weights far from 1 would leave its range: they are taken relative to the largest.
    unit = weights.max().clamp(min=TINY)
    shares = (weights / unit).to(X.dtype)
    for some in _slices(n, k * F):
        found += (shares[some, :, None] * X[some, None, :]).flatten(1).T @ X[some]
    return unit * found.to(weights.dtype).reshape(k, F, F)


def _all_squares(X: Tensor, weights: Tensor, fractions: Tensor) -> Tensor:
    """X' diag(w_i s_j) X, blocks of (K F, K F) with i < j, of weights and fractions (n, K)."""
    n, k = weights.shape
    F = X.shape[1]
    found = X.new_zeros(k * F, k * F)
    unit, roots = _roots(weights * fractions, X.dtype)  # w_i s_j is symmetric
    for some in _slices(n, k * F):
        found += _upper_square((roots[some, :, None] * X[some, None, :]).flatten(1))
    return unit * found.to(weights.dtype)


def _roots(weights: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Roots of weights from 0 on over a unit, the largest one, in another precision."""
    unit = weights.max().clamp(min=TINY)
    return unit, (weights / unit).sqrt().to(dtype)


def _upper_square(Y: Tensor) -> Tensor:
    """Y' Y, (m, m), its upper triangle at least.

    On a CPU one triangle alone is computed, which torch has no function for: half of the time.
    """
    # BLAS complains of a matrix without columns, of which there are none where all inputs are 0.
    if Y.device.type != "cpu" or Y.shape[1] == 0:
        return Y.T @ Y
    syrk = scipy.linalg.blas.get_blas_funcs("syrk", dtype=Y.numpy().dtype)
    # By columns a lower triangle, by rows an upper one.
    return torch.from_numpy(syrk(1.0, Y.numpy().T, lower=1)).T


def _slices(n: int, width: int, batch: int = 4_000_000) -> list[slice]:
    """Slices of n rows of this width, each of about ``batch`` numbers."""
    step = max(1, batch // max(width, 1))
    return [slice(start, start + step) for start in range(0, n, step)]
