r"""The scaled problem on a device, and the products that the interior point needs.

Scale     Each sample's features to norm 1, by nu_n, and the norm of zeta by the root mean square
          sigma of nu. Then b_n = sigma / nu_n, the dual maximises sum_n b_n alpha_n, and the box
          is alpha_n <= C nu_n.
Features  Inputs enter by their inner products alone. Those that are constant over the samples
          (the appended 1, pixels that are always black) are one feature, of the norm of all.
Gates     So do the gates of a group. Where their sum is a constant S_g, as it is 1 for one-hot
          contexts, a rotation of the group's C_g columns makes one of them constant, and the
          constant columns of all such groups are one: M = H C gates become H (C - 1) + 1.
Q(d)      Symmetric, so one triangle is computed, in place of the last one.

======  ==========  ==========================================================================
e       (N, J)      y_n b_n offsets_n: with an intercept beta, margins are (U d + e beta)_n, and
                    e' alpha = 0; J = 1 with two classes, K - 1 with many, 0 without an intercept
yX      (N, D')     y_n x_n / nu_n, constant features merged
Z       (N, M' + 1) rotated gates; the last column is the shared constant, 1
share   (G,)        S_g^2 / C_g: weight of the shared column in group g; 0 where it has no part
V       (M' + 1, D')  V_m = sum_n alpha_n y_n z_mn x_n
U       (N, G)      U_g = Q_g alpha, through feature space
K       (N, N)      (y y') o (X X')
======  ==========  ==========================================================================

With many classes N counts the pairs of samples and rivals (`rows`), whose products are formed class
by class where the groups of gates allow it (`scaled_pairs`), and the box is one a sample,
sum_k alpha_nk <= C nu_n: its slack w_n and its multiplier r_n, the hinge loss, are of all pairs of
a sample (`Boxes`).
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import repaired
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.masked_gram import mask_into
from implicit_bias.problem.rows import Rows, grouped_rows
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.iteration import Answer
from implicit_bias.solvers.scaled_pairs import ClassGroups, ScaledPairs

# Wider groups gain little from a rotation, which fills sparse gates.
WIDEST_ROTATION = 8
# Rows that a balanced start would leave out have this share of the mean.
LEAST_SHARE = 1e-6
# Rows of Q(d) computed at once: small enough for a cache, large enough for a matrix product.
BLOCK = 512
TINY = float(np.finfo(np.float64).tiny)


class ScaledSamples:
    """Some samples of a problem on the device, and the products with them that cost time."""

    def __init__(self, yX: Tensor, Z: Tensor, groups: Tensor, share: Tensor) -> None:
        self.yX, self.Z, self.groups, self.share = yX, Z, groups, share

    def subset(self, index: Tensor) -> ScaledSamples:
        """Return some of them (indices)."""
        return ScaledSamples(self.yX[index], self.Z[index], self.groups, self.share)

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """V (M' + 1, D') of alpha (N,)."""
        return self.Z.T @ (self.yX * alpha[:, None])

    def inner(self, V: Tensor, W: Tensor) -> Tensor:
        """<V_g, W_g> of each group (G,)."""
        products = (V * W).sum(1)
        return (self.share * products[-1]).index_add_(0, self.groups, products[:-1])

    def group_products(self, V: Tensor) -> Tensor:
        """U (N, G): y_n <V_g, features of n in group g>."""
        products = (self.yX @ V.T).mul_(self.Z)  # (N, M' + 1)
        constant = torch.outer(products[:, -1], self.share)
        return constant.index_add_(1, self.groups, products[:, :-1])

    def curvature(self, d: Tensor) -> Tensor:
        """Q(d) = K o (Z diag(d) Z'), shape (N, N): its lower triangle, by columns.

        The next call overwrites it.
        """
        weighted = self.Z * self._weights(d)
        for rows, right in self._blocks():
            mask_into(self._Q[rows, right], self._K[rows, right], weighted[rows], self.Z[right])
        return self._Q.T

    def masked(self, K: Tensor, d: Tensor) -> Tensor:
        """Q(d) of these samples from their K, shape (N, N)."""
        Q = torch.empty_like(K)
        mask_into(Q, K, self.Z * self._weights(d), self.Z)
        return Q

    def curvature_diagonal(self, d: Tensor) -> Tensor:
        """Diagonal of Q(d), shape (N,)."""
        return self._input_squares * (self.Z.square() @ self._weights(d))

    @cached_property
    def _input_squares(self) -> Tensor:
        """||x_n||^2 / nu_n^2, shape (N,)."""
        return self.yX.square().sum(1)

    @cached_property
    def _K(self) -> Tensor:
        """K, shape (N, N): its upper triangle, by rows."""
        K = torch.empty_like(self._Q)
        for rows, right in self._blocks():
            torch.mm(self.yX[rows], self.yX[right].T, out=K[rows, right])
        return K

    @cached_property
    def _Q(self) -> Tensor:
        """Room for the upper triangle of Q(d), by rows."""
        return self.yX.new_empty((len(self.yX), len(self.yX)))

    def _weights(self, d: Tensor) -> Tensor:
        """Return d of each column of Z, shape (M' + 1,)."""
        return torch.cat([d[self.groups], torch.dot(self.share, d)[None]])

    def _blocks(self) -> list[tuple[slice, slice]]:
        """Rows, and the columns from their first one on, that cover the upper triangle."""
        starts = range(0, len(self.yX), BLOCK)
        return [(slice(a, a + BLOCK), slice(a, None)) for a in starts]


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

    def pool(self, values: Tensor) -> Tensor:
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

    def lift(self, values: Tensor) -> Tensor | float:
        """Return values of boxes (B,) as those of rows (N,): 0 where there are none."""
        if not len(values):
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
    """The scaled problem: what the interior point knows of the data.

    ``layout`` is that of the same problem in another precision, which saves finding it again.
    """

    def __init__(
        self,
        problem: MarginProblem,
        device: torch.device,
        dtype: torch.dtype = torch.float64,
        rows: Rows | None = None,
        layout: Layout | None = None,
    ) -> None:
        self.dtype, self.device, self._given_layout = dtype, device, layout
        if layout is not None:
            rows = layout.rows
        elif rows is None:
            rows = grouped_rows(problem)
        norms = rows.feature_norms
        self.scale = float(np.sqrt(np.mean(norms**2))) or 1.0
        self.nu = self.tensor(np.where(norms > 0, norms, self.scale))  # (N,)
        self.b = self.scale / self.nu
        self.C = problem.C * self.nu
        # Of the equation e' alpha = 0 and the intercept: (N, J), J = 0 where there is none.
        self.e = (self.tensor(rows.y) * self.b)[:, None] * self.tensor(rows.offsets)
        self.n_offsets = self.e.shape[1]
        self.soft = not problem.hard_margin
        self.boxes, self.box_C = Boxes(), self.C
        if rows.rivals is not None and self.soft:
            first, index = np.unique(rows.samples, return_index=True, return_inverse=True)[1:]
            self.boxes = Boxes(torch.tensor(index, device=device))
            self.box_C = self.C[torch.tensor(first, device=device)]
        self.n_samples, self.n_groups = len(rows), rows.n_groups
        self.n_boxes = len(self.box_C) * self.soft
        self.n_pairs = self.n_samples + self.n_boxes + self.n_groups
        self._problem, self._source = problem, rows

    @cached_property
    def layout(self) -> Layout:
        """The rows, their merged inputs and their rotated gates: none where only Q is needed."""
        return self._given_layout or Layout.of(self._source)

    @cached_property
    def rows(self) -> ScaledSamples | ScaledPairs:
        """The rows on the device, and the products with them."""
        return self.layout.gates.scaled(self._source, self.layout.inputs, self)

    @property
    def samples(self) -> ScaledSamples:
        """The rows, where they are samples of two classes."""
        assert isinstance(self.rows, ScaledSamples)
        return self.rows

    @property
    def balance_tolerance(self) -> float:
        """Share of e' alpha that rounding alone may leave."""
        return 100.0 * len(self.b) ** 0.5 * float(torch.finfo(self.dtype).eps)

    def offset(self, start: Start | None = None) -> Tensor:
        """Return the intercept of a start, or 0: (J,), J = 0 where the problem has none."""
        if start is None or not self.n_offsets:
            return self.full(self.n_offsets, 0.0)
        given = np.atleast_1d(start.intercept)
        if self._source.rivals is not None:
            owners = self._source.offset_classes
            given = given[owners] - given[self._problem.owners.max()]
        return self.tensor(given)

    def intercept(self, beta: Tensor) -> float | Array:
        """Return the offsets (J,) as those of the problem, in its units."""
        return self._source.intercept(beta.cpu().double().numpy())

    def alpha(self, values: Tensor) -> Array:
        """Return dual variables of the rows as those of the problem, in its units."""
        return self._source.alpha((values / self.nu).cpu().double().numpy())

    def start_alpha(self, start: Start) -> Tensor:
        """Return the dual variables of a start, (N,): samples that it lacks have 0."""
        whole = np.zeros(self._source.alpha_shape)
        whole[: len(start.alpha)] = start.alpha
        return self.tensor(self._source.values(whole)) * self.nu

    def balanced(self, alpha: Tensor) -> Tensor:
        """Scale the classes of alpha (N,), so that e' alpha = 0 where there is an intercept."""
        if not self.n_offsets:
            return alpha
        if self._source.rivals is not None:
            whole = repaired(self._problem, self.alpha(alpha))
            found = self.tensor(self._source.values(whole)) * self.nu
            return torch.maximum(found, LEAST_SHARE * found.mean())
        positive = self.e[:, 0] > 0
        sums = [float((self.e[:, 0] * alpha)[side].abs().sum()) for side in (positive, ~positive)]
        target = min(sums)
        return alpha * torch.where(positive, target / sums[0], target / sums[1])

    @property
    def in_range(self) -> bool:
        """Whether the precision's range holds the scales of the samples."""
        tiny, largest = torch.finfo(self.dtype).tiny, torch.finfo(self.dtype).max
        scales = [self.nu, self.b, self.C] if self.soft else [self.nu, self.b]
        return all(bool(((x >= tiny) & (x <= largest)).all()) for x in scales)

    def upper(self, norm: float, margins: Tensor) -> tuple[float, float]:
        """Upper bound of coefficients with these margins (N,); and by how much one falls short."""
        if self.soft:
            losses = self.boxes.largest(self.b - margins).clamp(min=0.0)
            return norm + float(self.box_C @ losses), 0.0
        smallest = float((margins / self.b).min())
        return (norm / smallest if smallest > 0 else np.inf), max(1.0 - smallest, 0.0)

    def coef(self, V: Tensor, d: Tensor) -> Array:
        """zeta_g = d_g V_g of the problem as posed, (M, D) or (K, M, D), in units of 1 / scale."""
        plain = self.layout.gates.expand(V.cpu().double().numpy(), d.cpu().double().numpy())
        expanded = self.layout.inputs.expand(plain)
        if self._source.rivals is not None:
            K, D = self._problem.classes or 1, self._problem.X.shape[1]
            expanded = expanded.reshape(K, -1, D)  # one class after another
        return self._problem.of_plain(expanded)

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


def lift(values: Tensor) -> Tensor | float:
    """Box variables as a vector over the samples: 0 where there is no box."""
    return values if len(values) else 0.0


def peak_memory(
    n_samples: int, problem: MarginProblem, n_system: int | None = None, *, n_squares: int = 2
) -> int:
    """Bytes that a solve of this many samples with a problem's inputs and gates may take at most.

    With many classes they are pairs of samples and rivals. ``n_system`` of them are in the linear
    system, all by default, and ``n_squares`` matrices of that order are held at once: K and Q(d)
    at least.
    """
    D, (_, M), G = problem.X.shape[1], problem.plain_gates.shape, problem.n_groups
    M *= problem.classes or 1
    square = n_squares * (n_samples if n_system is None else n_system) ** 2
    rows = n_samples * (3 * D + 4 * M + 5 * G)  # inputs and gates, products, U, W
    return 8 * (square + rows + 4 * (M + 1) * (D + 1) + G**2)


class MergedInputs:
    """Inputs (N, D) with all constant features merged into one, and the way back."""

    def __init__(self, X: Array) -> None:
        constant = (X == X[0]).all(axis=0)
        self.varying, self._constant = np.flatnonzero(~constant), np.flatnonzero(constant)
        self._values = X[0, constant]
        top = float(np.abs(self._values).max(initial=TINY))  # so that no square overflows
        self.norm = top * float(np.linalg.norm(self._values / top))

    def of(self, X: Array, offsets: Array | float = 0.0) -> Array:
        """Return inputs (N, D'), the varying ones less their offsets, the constant one last."""
        merged = np.full((len(X), len(self.varying) + 1), self.norm)
        np.subtract(X[:, self.varying], offsets, out=merged[:, :-1])
        return merged

    def expand(self, V: Array) -> Array:
        """Rows (M, D') in the span of the merged inputs, as rows (M, D)."""
        full = np.zeros((len(V), len(self.varying) + len(self._constant)))
        full[:, self.varying] = V[:, :-1]
        if self.norm > 0:
            full[:, self._constant] = V[:, -1:] * (self._values / self.norm)
        return full


class Layout(NamedTuple):
    """The rows of a problem, their merged inputs and their rotated gates, in no precision yet."""

    rows: Rows
    inputs: MergedInputs
    gates: _Gates | _ClassGates

    @classmethod
    def of(cls, rows: Rows) -> Layout:
        """Find those of rows; of pairs class by class, where all classes group gates alike."""
        gates = _ClassGates.of(rows) if rows.rivals is not None else None
        return cls(rows, MergedInputs(rows.X), gates or _Gates(rows.gates, rows.groups))


class _Gates:
    """Gates (N, M) as rotated columns and one shared constant, and the way back."""

    def __init__(self, gates: sp.csr_array, groups: NDArray[np.int64]) -> None:
        n_groups = int(groups.max()) + 1
        size = np.bincount(gates.indices, np.abs(gates.data), minlength=gates.shape[1])
        used = np.flatnonzero(size)  # a gate that is always off has V_m = 0
        samples = np.repeat(np.arange(gates.shape[0]), np.diff(gates.indptr))  # of each entry
        places = samples * n_groups + groups[gates.indices]
        sums = np.bincount(places, gates.data, minlength=gates.shape[0] * n_groups)
        sums = sums.reshape(-1, n_groups)  # (N, G)
        widths = np.bincount(groups[used], minlength=n_groups)
        rotate = (sums == sums[0]).all(axis=0) & (widths > 0) & (widths <= WIDEST_ROTATION)
        total = np.where(rotate, sums[0], 0.0)  # S_g
        self.share = total**2 / np.maximum(widths, 1)
        # zeta's part along the constant column, for each gate: S_g / C_g.
        self.constant = np.zeros(gates.shape[1])
        self.constant[used] = (total / np.maximum(widths, 1))[groups[used]]
        self.owner = groups
        # The rotation, one block a group: Helmert's rows are orthonormal and orthogonal to 1.
        order = used[np.argsort(groups[used], kind="stable")]
        left = widths - rotate
        first_row, first_column = np.cumsum(widths) - widths, np.cumsum(left) - left
        rows, columns, values = [], [], []
        for width, turned in set(zip(widths.tolist(), rotate.tolist(), strict=True)):
            block = scipy.linalg.helmert(width).T if turned else sp.eye_array(width)
            entries = sp.coo_array(block)
            alike = np.flatnonzero((widths == width) & (rotate == turned))[:, None]
            rows.append(order[(first_row[alike] + entries.row).ravel()])
            columns.append((first_column[alike] + entries.col).ravel())
            values.append(np.tile(entries.data, len(alike)))
        index = np.concatenate(rows), np.concatenate(columns)
        shape = (gates.shape[1], int(left.sum()))
        self.rotation = sp.csc_array((np.concatenate(values), index), shape)  # (M, M')
        self.groups = np.repeat(np.arange(n_groups), left)
        self.rotated = np.hstack([(gates @ self.rotation).toarray(), np.ones((gates.shape[0], 1))])

    def scaled(self, rows: Rows, inputs: MergedInputs, to: ScaledProblem) -> ScaledSamples:
        """Return the rows on the device of a problem, over its nu."""
        yX = to.tensor(inputs.of(rows.X)) * to.tensor(rows.y)[:, None]
        groups = torch.tensor(self.groups, device=to.device)
        return ScaledSamples(
            yX / to.nu[:, None], to.tensor(self.rotated), groups, to.tensor(self.share)
        )

    def expand(self, V: Array, d: Array) -> Array:
        """d_g V_g in the gates as they were, (M, D'), of rotated V (M' + 1, D')."""
        own = self.rotation @ (V[:-1] * d[self.groups][:, None])
        return np.asarray(own + np.outer(self.constant * d[self.owner], V[-1]))


class _ClassGates:
    """The gates of samples (N, M), which all classes group alike: rotated once for all classes."""

    def __init__(self, gates: _Gates, columns: NDArray[np.int64], first: NDArray[np.int64]) -> None:
        self.gates, self.columns = gates, columns  # (K, G'): the groups of each class
        self._first = first  # a pair of each sample

    @classmethod
    def of(cls, rows: Rows) -> _ClassGates | None:
        """Find them in the columns of all classes; None where these are missing or not alike."""
        n_classes = rows.alpha_shape[1]
        width = rows.gates.shape[1] // n_classes
        if rows.owners is None or rows.gates.shape[1] != n_classes * width:
            return None
        by_class = rows.groups.reshape(n_classes, width)  # C order: class, gate
        _, first_of, groups = np.unique(by_class[0], return_index=True, return_inverse=True)
        columns = by_class[:, first_of]
        distinct = all(len(np.unique(own)) == len(own) for own in columns)
        if not distinct or (columns[:, groups] != by_class).any():
            return None
        first = np.unique(rows.samples, return_index=True)[1]
        lifted = rows.gates[first].tocoo()  # e_{y_n} - e_k times z_n: the part of class y_n is z_n
        own = lifted.col // width == rows.owners[first][lifted.row]
        entries = lifted.data[own], (lifted.row[own], lifted.col[own] % width)
        Z = sp.csr_array(entries, shape=(len(first), width))
        return cls(_Gates(Z, groups), columns, first)

    def scaled(self, rows: Rows, inputs: MergedInputs, to: ScaledProblem) -> ScaledPairs:
        """Return the pairs on the device of a problem, over its nu, which is that of samples."""

        def index(values: NDArray[np.int64]) -> Tensor:
            return torch.tensor(values, device=to.device)

        assert rows.owners is not None
        assert rows.rivals is not None
        gates, first = self.gates, self._first
        place = np.searchsorted(rows.samples[first], rows.samples)
        share, columns = to.tensor(gates.share), index(self.columns)
        return ScaledPairs(
            to.tensor(inputs.of(rows.X[first])) / to.nu[index(first)][:, None],
            to.tensor(gates.rotated),
            index(place),
            index(rows.owners),
            index(rows.rivals),
            ClassGroups(index(gates.groups), share, columns, to.n_groups),
        )

    def expand(self, V: Array, d: Array) -> Array:
        """d_g V_g in the gates as they were, class after class, (K M, D')."""
        parts = zip(V, self.columns, strict=True)
        return np.vstack([self.gates.expand(own, d[columns]) for own, columns in parts])
