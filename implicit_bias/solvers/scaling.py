r"""The scaled problem on a device, and the products that the interior points need.

Rows      One a sample of two classes, one a pair (n, k), k != y_n, of a sample and a rival. Row p
          has the label vector b_p in R^K': y_n with K' = 1, or e_{y_n} - e_k with K' = K, and the
          features b_p (x) z(x_n) (x) x_n.
Scale     Each row's features to norm 1, by nu_p, and the norm of zeta by the root mean square
          sigma of nu. Then b_p = sigma / nu_p, the dual maximises sum_p b_p alpha_p, and the box
          is alpha_p <= C nu_p.
Features  Inputs enter by their inner products alone. Those that are constant over the samples
          (the appended 1, pixels that are always black) are one feature, of the norm of all.
Gates     So do the gates of a group. Where their sum is a constant S_g, as it is 1 for one-hot
          contexts, a rotation of the group's C_g columns makes one of them constant, and the
          constant columns of all such groups are one: M = H C gates become H (C - 1) + 1.
Classes   A pair touches two of the K classes. So products are formed class by class, of the rows
          that touch it, and each sample has one row of X and Z, however many rivals it has.
Q(d)      Symmetric, so one triangle is computed, in place of the last one.

=======  ================  =======================================================================
X        (n, D')           inputs x_n / nu_n of the samples that have rows, constant ones merged;
                           y_n x_n / nu_n with two classes
Z        (n, M' + 1)       rotated gates; the last column is the shared constant, 1
groups   (M',)             group g' of each rotated gate, one numbering for all classes
share    (G',)             S^2 / C: weight of the shared column in group g'; 0 where it has no part
columns  (K', G')          group of the norm that a class's group of gates is in
V        (K', M' + 1, D')  V_c = sum_p alpha_p (b_p)_c z_n (x) x_n
U        (P, G)            U_g = Q_g alpha, through feature space: <V_g, features of the row in g>
K        (n, n)            X X'
e        (P, J)            of the equation e' alpha = 0 and the intercept beta: margins are
                           (U d + e beta)_p; J = 1 with two classes, K - 1 with many, 0 without one
=======  ================  =======================================================================

With many classes the box is one a sample, sum_k alpha_nk <= C nu_n: its slack w_n and its
multiplier, the hinge loss xi_n, are of all pairs of a sample (`Boxes`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import repaired
from implicit_bias.problem import Constraints, Features, MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.problem.masked_gram import mask_into
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.rotations import RotatedGates

# Rows that a balanced start would leave out have this share of the mean.
LEAST_SHARE = 1e-6
# Rows of Q(d) computed at once: small enough for a cache, large enough for a matrix product.
BLOCK = 512
# Up to so many features the squares of all pairs of classes are formed at once, from rows of so
# many numbers together.
FEW_FEATURES, BATCHED = 200, 4_000_000
# With more classes their Laplacian is formed.
MANY_CLASSES = 20
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
    columns: Tensor
    n_groups: int

    @cached_property
    def of_gates(self) -> Tensor:
        """Group of the norm of each rotated gate of each class, (K' M',)."""
        return self.columns[:, self.groups].reshape(-1)

    @cached_property
    def members(self) -> Tensor:
        """How much of each gate is in each group of the norm, (K', M' + 1, G).

        ||V_g||^2 is the sum over classes c and gates m of that much of ||V_cm||^2.
        """
        K, G = len(self.columns), self.n_groups
        found = self.share.new_zeros(K, len(self.groups) + 1, G)
        found[:, :-1].scatter_(2, self.columns[:, self.groups][:, :, None], 1.0)
        found[:, -1].scatter_add_(1, self.columns, self.share.expand(K, -1))
        return found

    @cached_property
    def distinct(self) -> bool:
        """Whether no two groups of gates of a class are in one group of the norm."""
        return all(len(torch.unique(own)) == len(own) for own in self.columns)


class ScaledRows:
    """Some rows of a problem on the device, and the products with them that cost time.

    Parameters
    ----------
    X, Z : Tensor of shape (n, D'), (n, M' + 1)
        Scaled inputs and rotated gates of samples; see the module's head.
    layout : GateGroups
        How gates are grouped.
    pairs : Pairs
        The rows. With one score a row, K' = 1, row p is that of X and Z, and X has its sign.
    """

    def __init__(self, X: Tensor, Z: Tensor, layout: GateGroups, pairs: Pairs) -> None:
        self.X, self.Z, self.layout, self.pairs = X, Z, layout, pairs
        self.n_classes = len(layout.columns)
        self.signed = self.n_classes == 1

    def __len__(self) -> int:
        """P."""
        return len(self.pairs.place)

    def subset(self, index: Tensor) -> ScaledRows:
        """Return some of them (indices, ascending)."""
        used, place = torch.unique(self.pairs.place[index], return_inverse=True)
        pairs = Pairs(place, self.pairs.owners[index], self.pairs.rivals[index])
        return ScaledRows(self.X[used], self.Z[used], self.layout, pairs)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (K', M' + 1, D') of alpha (P,)."""
        if self.Z.shape[1] == 1:  # of the constant gate alone
            return self.adjoint(alpha)[:, None]
        if self.signed:
            return (self.Z.T @ (self.X * alpha[:, None]))[None]
        V = self.X.new_empty(self.n_classes, self.Z.shape[1], self.X.shape[1])
        for of_class, (rows, sign, samples, at) in zip(V, self._touching, strict=True):
            weights = alpha.new_zeros(len(samples)).index_add_(0, at, sign * alpha[rows])
            torch.mm(self.Z[samples].T, self.X[samples] * weights[:, None], out=of_class)
        return V

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group (G,)."""
        layout, of_gates = self.layout, (V * W).sum(2)
        found = V.new_zeros(layout.n_groups)
        found.index_add_(0, layout.of_gates, of_gates[:, :-1].reshape(-1))
        constant = of_gates[:, -1:] * layout.share
        return found.index_add_(0, layout.columns.reshape(-1), constant.reshape(-1))

    def group_products(self, V: Tensor) -> Tensor:
        """U (P, G): <V_g, features of the row in group g>."""
        layout = self.layout

        def of_gates(samples: Tensor | slice, of_class: Tensor) -> Tensor:
            products = (self.X[samples] @ of_class.T).mul_(self.Z[samples])
            found = torch.outer(products[:, -1], layout.share)
            return found.index_add_(1, layout.groups, products[:, :-1])

        if self.signed:
            return of_gates(slice(None), V[0])
        U = V.new_zeros(len(self), layout.n_groups)
        for of_class, columns, touching in zip(V, layout.columns, self._touching, strict=True):
            rows, sign, samples, at = touching
            values = of_gates(samples, of_class)[at].mul_(sign[:, None])
            if layout.distinct:
                U[rows[:, None], columns] += values
            else:
                U.index_put_((rows[:, None], columns), values, accumulate=True)
        return U

    def curvature(self, d: Tensor) -> Tensor:
        """Q(d), shape (P, P): at least its lower triangle, by columns; the next call overwrites."""
        weights = self._weights(d)
        if self.signed:
            weighted = self.Z * weights
            for rows, right in self._blocks():
                mask_into(self._Q[rows, right], self._K[rows, right], weighted[rows], self.Z[right])
            return self._Q.T

        def of_class(c: int, touching: Touching) -> Tensor:
            at = touching.samples[touching.at]
            Z = self.Z[at] * touching.sign[:, None]
            return (Z * weights[c] @ Z.T).mul_(self._K[at[:, None], at])

        return self.over_classes(of_class, self._Q.zero_()).T

    def masked(self, K: Tensor, d: Tensor) -> Tensor:
        """Q(d) of these rows of two classes from their K, shape (P, P)."""
        Q = torch.empty_like(K)
        mask_into(Q, K, self.Z * self._weights(d), self.Z)
        return Q

    def curvature_diagonal(self, d: Tensor) -> Tensor:
        """Diagonal of Q(d), shape (P,)."""
        squares = self.Z.square() @ self._weights(d).T * self._input_squares[:, None]  # (n, K')
        if self.signed:
            return squares[:, 0]
        place, owners, rivals = vars(self.pairs).values()
        return squares[place, owners] + squares[place, rivals]

    def over_classes(self, of_class: Callable[[int, Touching], Tensor], room: Tensor) -> Tensor:
        """Sum over classes of matrices of the rows that touch them, with their signs.

        Parameters
        ----------
        of_class : callable
            Returns the matrix, (m, m), of a class and the m rows that touch it.
        room : Tensor of shape (P, P)
            What the sum is added to, in place.
        """
        for c, touching in enumerate(self._touching):
            rows = touching.rows
            room[rows[:, None], rows] += of_class(c, touching)
        return room

    # What norms that are no sums over groups ask for: their features are the inputs, of one gate.

    def apply(self, zeta: Tensor) -> Tensor:
        """<features of the row, zeta>, (..., P), of zeta (..., K', D')."""
        flat = zeta.flatten(0, -2) @ self.X.T  # (... K', n)
        if self.signed:
            return flat.reshape(*zeta.shape[:-2], -1)
        table = flat.reshape(*zeta.shape[:-1], -1).mT.flatten(-2)  # sample, class
        own, rival = self._entries
        return table[..., own] - table[..., rival]

    def adjoint(self, alpha: Tensor) -> Tensor:
        """V (..., K', D') of alpha (..., P)."""
        return self._by_class(alpha).mT @ self.X

    def products(self, V: Tensor) -> Tensor:
        """<v, x> of each row's sample and each row v of V, (P, r)."""
        return (self.X @ V.T)[self.pairs.place]

    def masked_by_labels(self, grams: list[Tensor], left: list[Tensor], right: Tensor) -> Tensor:
        """Sum over b of K_b[n_p, n_q] <left_b[p], right[q]>, for rows p and q of samples n.

        Of (P, P) the upper triangle, block by block: no block leaves the cache.
        """
        place, found = self.pairs.place, self.X.new_zeros(len(self), len(self))
        for rows, columns in self._blocks():
            for gram, of_ball in zip(grams, left, strict=True):
                of_rows = gram[place[rows]].index_select(1, place[columns])
                found[rows, columns].addcmul_(of_rows, of_ball[rows] @ right[columns].T)
        return found

    def normal_matrix(
        self, h: Tensor, loose: Tensor | None, basis: Tensor, coarse: bool = False
    ) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F), Phi in coordinates of the classes.

        D is diag(1 / h), plus 1 / loose between all rows of a sample. So B' D^-1 B of a sample,
        with the labels B of its rows, is the Laplacian of a graph of the classes whose edge between
        i and j weighs a_i a_j / sum(a): a_k is h of the row against rival k, and ``loose`` at the
        own class. (The edges to the own class alone, and their h, with a hard margin.) No term is
        negative: nothing cancels, however far apart the h are. Each edge is one product X' diag X.
        (Of many classes the Laplacian itself is turned to the coordinates, in fewer operations.)

        Parameters
        ----------
        h : Tensor of shape (P,)
            Weights of the rows.
        loose : Tensor of shape (n,) or None
            Those of the samples' boxes; None with a hard margin.
        basis : Tensor of shape (K', r)
            From the coordinates to the classes.
        coarse : bool
            Sum the products in float32, which takes half the time.
        """
        X = self._coarse_X if coarse else self.X
        if self.signed:
            return weighted_square(X, h if loose is None else h * (loose / (loose + h)))
        (n_classes, r), F = basis.shape, self.X.shape[1]
        weights, share = self._by_rival(h), None
        if loose is not None:
            weights.scatter_(1, self._owners[:, None], loose[:, None])
            share = weights / weights.sum(1, keepdim=True)
        squares = self._squares(X, weights, share)
        i, j = torch.triu_indices(n_classes, n_classes, 1, device=h.device)
        if n_classes > MANY_CLASSES:
            laplacian = h.new_zeros(n_classes, n_classes, F, F)
            laplacian[i, j] = laplacian[j, i] = -squares
            laplacian.diagonal().copy_(-laplacian.sum(1).permute(1, 2, 0))
            blocks = torch.einsum("ki,klfg,lj->ijfg", basis, laplacian, basis)
        else:
            edges = basis[i] - basis[j]
            both = (edges[:, :, None] * edges[:, None, :]).flatten(1)  # (E, r r)
            blocks = (both.T @ squares.flatten(1)).reshape(r, r, F, F)
        return blocks.permute(0, 2, 1, 3).reshape(r * F, r * F)

    def _squares(self, X: Tensor, weights: Tensor, share: Tensor | None) -> Tensor:
        """X' diag X of each pair of classes, with the weights of its edges: (E, F, F).

        Of few features all pairs of a class, or all of them, are one product.
        """
        n_classes, F = self.n_classes, X.shape[1]
        i, j = torch.triu_indices(n_classes, n_classes, 1, device=weights.device)
        if F > FEW_FEATURES:
            pairs = zip(i.tolist(), j.tolist(), strict=True)
            return torch.stack([self._square(X, *pair, weights, share) for pair in pairs])
        if share is not None:
            whole = _all_squares(X, weights, share)
            return whole.reshape(n_classes, F, n_classes, F)[i, :, j]
        # A sample has edges to its own class alone.
        of_own = torch.stack([weighted_squares(X[m], weights[m]) for m in self._members])
        return of_own[i, j] + of_own[j, i]

    def _square(self, X: Tensor, i: int, j: int, weights: Tensor, share: Tensor | None) -> Tensor:
        """X' diag X of one pair of classes, (F, F)."""
        if share is not None:
            return weighted_square(X, weights[:, i] * share[:, j])
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
        weights = -self._by_rival(alpha)
        weights[..., torch.arange(len(self.X), device=alpha.device), self._owners] = -weights.sum(
            -1
        )
        return weights

    def _weights(self, d: Tensor) -> Tensor:
        """Return d of each class and column of Z, shape (K', M' + 1)."""
        of_gates = d[self.layout.columns]  # (K', G')
        constant = of_gates @ self.layout.share
        return torch.hstack([of_gates[:, self.layout.groups], constant[:, None]])

    @cached_property
    def _input_squares(self) -> Tensor:
        """||x_n||^2 / nu_n^2, shape (n,)."""
        return self.X.square().sum(1)

    @cached_property
    def _coarse_X(self) -> Tensor:
        """X in float32, (n, F)."""
        return self.X.float()

    @cached_property
    def _K(self) -> Tensor:
        """K, shape (n, n): with one score a row its upper triangle, by rows."""
        if not self.signed:
            return self.X @ self.X.T
        K = torch.empty_like(self._Q)
        for rows, right in self._blocks():
            torch.mm(self.X[rows], self.X[right].T, out=K[rows, right])
        return K

    @cached_property
    def _Q(self) -> Tensor:
        """Room for Q(d), or its upper triangle by rows."""
        return self.X.new_empty((len(self), len(self)))

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Rows, and the columns from their first one on, that cover the upper triangle."""
        return [(slice(a, a + BLOCK), slice(a, None)) for a in range(0, len(self), BLOCK)]

    @cached_property
    def _touching(self) -> list[Touching]:
        """What touches each class."""
        found = []
        for c in range(self.n_classes):
            own = (self.pairs.owners == c) | self.signed  # whose sign X has
            rows = torch.nonzero(own | (self.pairs.rivals == c))[:, 0]
            samples, at = torch.unique(self.pairs.place[rows], return_inverse=True)
            sign = torch.where(own[rows], 1.0, -1.0).to(self.X)
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


def weighted_square(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X, (F, F), of X (n, F) and weights from 0 on."""
    unit, roots = _roots(weights, X.dtype)
    upper = unit * _upper_square(X * roots[:, None]).to(weights.dtype)
    return upper.triu() + upper.triu(1).T


def _roots(weights: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Roots of weights from 0 on over a unit, the largest one, in another precision."""
    unit = weights.max().clamp(min=TINY)
    return unit, (weights / unit).sqrt().to(dtype)


def _upper_square(Y: Tensor) -> Tensor:
    """Y' Y, (m, m), its upper triangle at least.

    On a CPU one triangle alone is computed, which torch has no function for: half of the time.
    """
    if Y.device.type != "cpu":
        return Y.T @ Y
    syrk = scipy.linalg.blas.get_blas_funcs("syrk", dtype=Y.numpy().dtype)
    # By columns a lower triangle, by rows an upper one.
    return torch.from_numpy(syrk(1.0, Y.numpy().T, lower=1)).T


def weighted_squares(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X of each column w, (k, F, F), of X (n, F) and weights (n, k)."""
    (n, k), F = weights.shape, X.shape[1]
    found = X.new_zeros(k * F, F)
    unit = weights.max().clamp(min=TINY)
    shares = (weights / unit).to(X.dtype)
    for some in _slices(n, k * F):
        found += (shares[some, :, None] * X[some, None, :]).flatten(1).T @ X[some]
    return unit * found.to(weights.dtype).reshape(k, F, F)


def _all_squares(X: Tensor, weights: Tensor, share: Tensor) -> Tensor:
    """X' diag(w_i s_j) X, blocks of (K F, K F) with i < j, of weights and shares (n, K)."""
    (n, k), F = weights.shape, X.shape[1]
    found = X.new_zeros(k * F, k * F)
    unit, roots = _roots(weights * share, X.dtype)  # w_i s_j is symmetric
    for some in _slices(n, k * F):
        found += _upper_square((roots[some, :, None] * X[some, None, :]).flatten(1))
    return unit * found.to(weights.dtype)


def _slices(n: int, width: int) -> list[slice]:
    """Slices of n rows of this width, each of a few million numbers."""
    step = max(1, BATCHED // max(width, 1))
    return [slice(start, start + step) for start in range(0, n, step)]


class Boxes:
    """Which constraints sum_(n in box) alpha_n <= C_box there are: one a sample.

    Parameters
    ----------
    index : Tensor of int, shape (N,), or None
        Box of each row; None where each has its own.
    """

    def __init__(self, index: Tensor | None = None) -> None:
        self.index = index
        self.n_boxes = 0 if index is None else int(index.max()) + 1

    def sums(self, values: Tensor) -> Tensor:
        """Sum values of rows (N,) over each box, (B,)."""
        if self.index is None:
            return values
        return values.new_zeros(self.n_boxes).index_add_(0, self.index, values)

    def largest(self, values: Tensor) -> Tensor:
        """Largest value (N,) of each box, (B,)."""
        if self.index is None:
            return values
        room = values.new_full((self.n_boxes,), -torch.inf)
        return room.scatter_reduce_(0, self.index, values, "amax")

    def leading(self, values: Tensor) -> Tensor:
        """Return a row of the largest value in each box, (B,)."""
        rows = torch.arange(len(values), device=values.device)
        if self.index is None:
            return rows
        # Without a NaN each box has one; what a NaN makes of the rest ends in `Breakdown`.
        largest = rows[values == self.largest(values)[self.index]]
        found = rows.new_zeros(self.n_boxes)
        return found.scatter_reduce_(0, self.index[largest], largest, "amax")

    def per_row(self, values: Tensor) -> Tensor | float:
        """Return values of boxes (B,) as those of rows (N,): 0 where there are none."""
        if not values.numel():
            return 0.0
        return values if self.index is None else values[self.index]

    def added_to(self, A: Tensor, weights: Tensor) -> Tensor:
        """Return A (N, N) with weights_box added to A[n, m] of all rows n, m of one box, in place.

        Rows of a box stand side by side.
        """
        assert self.index is not None
        rows, columns = self._pairs
        return A.index_put_((rows, columns), weights[self.index[rows]], accumulate=True)

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """All pairs of rows of one box."""
        assert self.index is not None
        counts = torch.bincount(self.index, minlength=self.n_boxes)
        first = torch.cumsum(counts, 0) - counts
        width = counts[self.index]
        rows = torch.repeat_interleave(torch.arange(len(width), device=width.device), width)
        start = torch.cumsum(width, 0) - width
        within = torch.arange(len(rows), device=width.device) - start[rows]
        return rows, first[self.index[rows]] + within


class ScaledProblem:
    """The scaled problem: what an interior point knows of the data.

    ``layout`` is that of `Layout.of_groups` or `Layout.of_features`.
    """

    def __init__(
        self, layout: Layout, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        self.layout, self.device, self.dtype = layout, device, dtype
        problem, norms = layout.problem, layout.norms
        self.scale = float(np.sqrt(np.mean(norms**2))) or 1.0
        self.nu = self.tensor(np.where(norms > 0, norms, self.scale))  # (P,)
        self.b = self.scale / self.nu
        self.C = self.tensor(problem.box[layout.rows.samples]) * self.nu
        # Of the equation e' alpha = 0 and the intercept: (P, J), J = 0 where there is none.
        self.e = self.b[:, None] * self.tensor(layout.rows.offsets)
        self.n_offsets = self.e.shape[1]
        self.soft = not problem.hard_margin
        self.boxes, self.box_C = Boxes(), self.C
        place, first = layout.place, layout.first
        if self.soft and not layout.signed:
            self.boxes, self.box_C = Boxes(self.index(place)), self.C[self.index(first)]
        self.n_boxes = len(self.box_C) * self.soft
        self.n_rows, self.n_groups = len(self.b), layout.n_groups

    @cached_property
    def rows(self) -> ScaledRows:
        """The rows on the device: not formed where Q alone is needed."""
        layout = self.layout
        X = self.tensor(layout.inputs.of(layout.features.X))
        sizes = self.nu[self.index(layout.first)]
        own, rivals = layout.rows.owners, layout.rows.rivals
        if layout.signed:
            sizes = sizes * self.tensor(np.where(own, -1.0, 1.0))
        pairs = Pairs(*(self.index(x) for x in (layout.place, own, rivals)))
        gates = layout.gates
        groups = GateGroups(
            self.index(gates.own),
            self.tensor(gates.share),
            self.index(gates.columns),
            self.n_groups,
        )
        return ScaledRows(X / sizes[:, None], self.tensor(gates.rotated), groups, pairs)

    @property
    def balance_tolerance(self) -> float:
        """Share of e' alpha that rounding alone may leave."""
        return 100.0 * len(self.b) ** 0.5 * float(torch.finfo(self.dtype).eps)

    def offset(self, start: Start | None = None) -> Tensor:
        """Return the intercept of a start, or 0: (J,), J = 0 where the problem has none."""
        if start is None or not self.n_offsets:
            return self.full(self.n_offsets, 0.0)
        return self.tensor(self.layout.rows.free_offsets(np.atleast_1d(start.intercept)))

    def intercept(self, beta: Tensor) -> float | Array:
        """Return the offsets (J,) as those of the problem, in its units."""
        offsets = self.layout.rows.of_classes(beta.cpu().double().numpy())
        return self.layout.problem.as_intercept(offsets)

    def alpha(self, values: Tensor) -> Array:
        """Return dual variables of the rows as those of the problem, in its units."""
        return self.layout.rows.alpha((values / self.nu).cpu().double().numpy())

    def start_alpha(self, start: Start) -> Tensor:
        """Return the dual variables of a start, (P,): samples that it lacks have 0."""
        layout = self.layout
        whole = np.zeros(layout.problem.alpha_shape)
        whole[: len(start.alpha)] = start.alpha
        return self.tensor(layout.rows.values(whole)) * self.nu

    def start_coef(self, start: Start) -> Tensor:
        """Return the coefficients of a start in the features, (K', D')."""
        layout = self.layout
        coef = start.coef.reshape(layout.rows.width, -1) * self.scale
        return self.tensor(layout.inputs.inside(coef))

    def balanced(self, alpha: Tensor) -> Tensor:
        """Scale the classes of alpha (P,), so that e' alpha = 0 where there is an intercept."""
        if not self.n_offsets:
            return alpha
        if not self.layout.signed:
            whole = repaired(self.layout.problem, self.alpha(alpha))
            return self.tensor(self.layout.rows.values(whole)) * self.nu
        positive = self.e[:, 0] > 0
        sums = [float((self.e[:, 0] * alpha)[side].abs().sum()) for side in (positive, ~positive)]
        target = min(sums)
        return alpha * torch.where(positive, target / sums[0], target / sums[1])

    def balanced_inside(self, alpha: Tensor) -> Tensor:
        """Return `balanced` alpha (P,) with rows that it leaves out raised to a little."""
        if not self.n_offsets or self.layout.signed:
            return self.balanced(alpha)
        found = self.balanced(alpha)
        return torch.maximum(found, LEAST_SHARE * found.mean())

    @property
    def in_range(self) -> bool:
        """Whether the precision's range holds the scales of the samples."""
        tiny, largest = torch.finfo(self.dtype).tiny, torch.finfo(self.dtype).max
        scales = [self.nu, self.b, self.C] if self.soft else [self.nu, self.b]
        return all(bool(((x >= tiny) & (x <= largest)).all()) for x in scales)

    def upper(self, norm: float, margins: Tensor) -> tuple[float, float]:
        """Upper bound of coefficients with these margins (P,); and by how much one falls short."""
        if self.soft:
            losses = self.boxes.largest(self.b - margins).clamp(min=0.0)
            return norm + float(self.box_C @ losses), 0.0
        smallest = float((margins / self.b).min())
        return (norm / smallest if smallest > 0 else np.inf), max(1.0 - smallest, 0.0)

    def to_margin_1(self, norm: float, upper: float) -> float:
        """Return what takes coefficients of this norm and bound to margin 1: 1 if nothing does.

        With a soft margin they stay as they are.
        """
        return upper / norm if norm > 0 and upper < np.inf and not self.soft else 1.0

    def coef(self, V: Tensor, d: Tensor) -> Array:
        """zeta_g = d_g V_g of the problem as posed, (M, D) or (K, M, D), in units of 1 / scale."""
        layout, problem = self.layout, self.layout.problem
        found = layout.gates.expand(V.cpu().double().numpy(), d.cpu().double().numpy())
        # No -1: features that are all 0 leave no columns, D' = 0.
        rows = found.reshape(math.prod(found.shape[:2]), found.shape[-1])
        expanded = layout.inputs.expand(rows)
        return expanded.reshape(problem.coef_shape)

    def answer(self, alpha: Tensor, V: Tensor, d: Tensor, beta: Tensor) -> Answer:
        """Return alpha, the coefficients of V and d, and the intercept of the problem as posed."""
        return Answer(self.alpha(alpha), self.coef(V, d) / self.scale, self.intercept(beta))

    def tensor(self, values: Array) -> Tensor:
        """Values on the device, in the problem's precision."""
        return torch.tensor(values, dtype=self.dtype, device=self.device)

    def full(self, size: int, value: float) -> Tensor:
        """Return a vector of equal entries; the largest number for what exceeds it."""
        value = min(value, torch.finfo(self.dtype).max)
        return torch.full((size,), value, dtype=self.dtype, device=self.device)

    def index(self, values: Integers) -> Tensor:
        """Integers on the device."""
        return torch.tensor(values, device=self.device)


def peak_memory(
    n_samples: int, problem: MarginProblem, n_system: int | None = None, *, n_squares: int = 2
) -> int:
    """Bytes that a solve of this many samples with a problem's inputs and gates may take at most.

    With many classes they are pairs of samples and rivals. ``n_system`` of them are in the linear
    system, all by default, and ``n_squares`` matrices of that order are held at once: K and Q(d)
    at least.
    """
    K, M, D = problem.norm_shape
    M, G = K * M, problem.n_groups
    square = n_squares * (n_samples if n_system is None else n_system) ** 2
    rows = n_samples * (3 * D + 4 * M + 5 * G)  # inputs and gates, products, U, W
    return 8 * (square + rows + 4 * (M + 1) * (D + 1) + G**2)


class MergedInputs:
    """Inputs (N, D) with all constant features merged into one, and the way back.

    If those are all 0, and not ``always``, none is left of them. Without ``merge`` all stay: for
    norms that tell them apart.
    """

    def __init__(self, X: Array, *, always: bool = True, merge: bool = True) -> None:
        constant = merge & (X == X[0]).all(axis=0)
        self.varying, self._constant = np.flatnonzero(~constant), np.flatnonzero(constant)
        self._values = X[0, constant]
        top = float(np.abs(self._values).max(initial=TINY))  # so that no square overflows
        self.norm = top * float(np.linalg.norm(self._values / top))
        self._shares = (self._values / (self.norm or 1.0))[:, None][
            :, : int(always or self.norm > 0)
        ]

    def of(self, X: Array, offsets: Array | float = 0.0) -> Array:
        """Return inputs (N, D'), the varying ones less their offsets, the constant one last."""
        count = len(self.varying)
        merged = np.full((len(X), count + self._shares.shape[1]), self.norm)
        np.subtract(X[:, self.varying], offsets, out=merged[:, :count])
        return merged

    def expand(self, V: Array) -> Array:
        """Rows (M, D') in the span of the merged inputs, as rows (M, D)."""
        count = len(self.varying)
        full = np.zeros((len(V), count + len(self._constant)))
        full[:, self.varying] = V[:, :count]
        full[:, self._constant] = V[:, count:] @ self._shares.T
        return full

    def inside(self, rows: Array) -> Array:
        """Rows (M, D), projected on the span of the merged inputs, as rows (M, D')."""
        return np.hstack([rows[:, self.varying], rows[:, self._constant] @ self._shares])


@dataclass(frozen=True, eq=False)
class Layout:
    """The rows of a problem, their merged inputs and their rotated gates, in no precision yet.

    Inputs and gates are formed where they are asked for: some methods need the norms alone.

    Attributes
    ----------
    rows : Constraints
        The rows, (P,).
    whole : Features
        Those of all samples.
    groups : ndarray of int, shape (K', M)
        Group of each gate of each class.
    first, place : ndarray of int, shapes (n,) and (P,)
        A row of each sample that has any, and the place of each row's sample among these.
    norms : ndarray of shape (P,)
        Norms of the rows' features.
    written : bool
        Whether the features are inputs, of one constant gate.
    merge : bool
        Whether constant inputs may be one.
    """

    problem: MarginProblem
    rows: Constraints
    whole: Features
    groups: Integers
    first: Integers
    place: Integers
    norms: Array
    written: bool = False
    merge: bool = True

    @cached_property
    def features(self) -> Features:
        """Those of the samples that have rows, (n,)."""
        found, samples = self.whole, self.rows.samples[self.first]
        if not np.array_equal(samples, np.arange(len(found))):
            found = found.subset(samples)
        if not self.written:
            return found
        X, Z = found.X, found.sparse_gates.toarray()
        if Z.shape[1] > 1 or (Z != 1).any():
            X = (Z[:, :, None] * X[:, None]).reshape(len(X), -1)
        return Features(X, np.ones((len(X), 1)), np.zeros(1, dtype=np.int64))

    @cached_property
    def inputs(self) -> MergedInputs:
        """The inputs, merged or not."""
        return MergedInputs(self.features.X, always=False, merge=self.merge)

    @cached_property
    def gates(self) -> RotatedGates:
        """The rotated gates."""
        return RotatedGates(self.features.sparse_gates, self.groups)

    @property
    def n_groups(self) -> int:
        """G."""
        return int(self.groups.max()) + 1

    @property
    def signed(self) -> bool:
        """Whether a row has one score: its label is a sign, which its input takes."""
        return self.rows.width == 1

    @classmethod
    def of_groups(cls, problem: MarginProblem, rows: Constraints | None = None) -> Layout:
        """Return that of a norm that is a sum of Euclidean norms over groups.

        Parameters
        ----------
        problem : MarginProblem
            The problem.
        rows : Constraints, optional
            Its rows, in this order; all by default.
        """
        rows = problem.constraints if rows is None else rows
        features, groups = euclidean_form(problem)
        return cls._of(problem, rows, features, groups)

    @classmethod
    def of_features(cls, problem: MarginProblem, rows: Constraints, *, merge: bool) -> Layout:
        """Return that of other norms: features are inputs of one constant gate.

        Constant features are one if ``merge``.
        """
        groups = np.zeros((rows.width, 1), dtype=np.int64)
        return cls._of(problem, rows, problem.features, groups, written=True, merge=merge)

    @classmethod
    def _of(
        cls,
        problem: MarginProblem,
        rows: Constraints,
        features: Features,
        groups: Integers,
        *,
        written: bool = False,
        merge: bool = True,
    ) -> Layout:
        first = place = np.arange(len(rows))
        label_norm = 1.0
        if rows.width > 1:  # a sample has several rows
            _, first, place = np.unique(rows.samples, return_index=True, return_inverse=True)
            label_norm = 2.0**0.5
        norms = label_norm * features.norms[rows.samples]
        data = problem, rows, features, groups
        return cls(*data, first, place, norms, written=written, merge=merge)
