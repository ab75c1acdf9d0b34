r"""The scaled problem on a device: what an interior point knows of the data, and the way back.

Scale     Each row's features to norm 1, by nu_p, and the norm of zeta by the root mean square
          sigma of nu. Then b_p = sigma / nu_p, the dual maximizes sum_p b_p alpha_p, and the box
          is alpha_p <= C nu_p.
Features  Inputs enter by their inner products alone. So those that are constant over the samples
          (the appended 1, pixels that are always black) are merged into one, of their joint norm.
Gates     The gates of a group, too, enter by their inner products alone. Where their sum is a
          constant S_g, as it is 1 for one-hot contexts, a rotation of the group's C_g columns makes
          one of them constant, and all such groups share it: M = H C gates become H (C - 1) + 1.
Boxes     With many classes the box is one a sample, sum_k alpha_nk <= C nu_n: its slack w_n and
          its multiplier, the hinge loss xi_n, are of all pairs of a sample (`Boxes`).

=======  ================  =======================================================================
nu       (P,)              norms of the rows' features; sigma, `ScaledProblem.scale`
b, C     (P,)              sigma / nu_p, and C nu_p
e        (P, J)            of the equation e' alpha = 0 and the intercept beta: margins are
                           (Phi zeta + e beta)_p; J = 1 with two classes, K - 1 with many, 0
                           without an intercept
=======  ================  =======================================================================

The rows themselves, and the products with them, are in `scaled_rows`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import repaired
from implicit_bias.problem import Constraints, Features, MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.solvers.base import Answer, Start
from implicit_bias.solvers.rotations import RotatedGates
from implicit_bias.solvers.scaled_rows import TINY, GateGroups, Pairs, ScaledRows


class Boxes:
    """Which rows share a constraint sum_(p in box) alpha_p <= C_box: those of one sample.

    Parameters
    ----------
    index : Tensor of int, shape (P,), or None
        Box of each row; None where each has its own.
    """

    def __init__(self, index: Tensor | None = None) -> None:
        self.index = index
        self.n_boxes = 0
        if index is not None:
            self.n_boxes = int(index.max()) + 1

    def sums(self, values: Tensor) -> Tensor:
        """Sum values of rows (P,) over each box, (B,)."""
        if self.index is None:
            return values
        return values.new_zeros(self.n_boxes).index_add_(0, self.index, values)

    def largest(self, values: Tensor) -> Tensor:
        """Largest value (P,) of each box, (B,)."""
        if self.index is None:
            return values
        found = values.new_full((self.n_boxes,), -torch.inf)
        return found.scatter_reduce_(0, self.index, values, "amax")

    def leading(self, values: Tensor) -> Tensor:
        """Return a row of the largest value in each box, (B,)."""
        rows = torch.arange(len(values), device=values.device)
        if self.index is None:
            return rows
        # Each box has such a row, unless values are NaN: then the step ends in `Breakdown`.
        largest = rows[values == self.largest(values)[self.index]]
        found = rows.new_zeros(self.n_boxes)
        return found.scatter_reduce_(0, self.index[largest], largest, "amax")

    def per_row(self, values: Tensor) -> Tensor | float:
        """Return the value of each row's box, (P,), of values (B,): 0 where there are no boxes."""
        if not values.numel():
            return 0.0
        if self.index is None:
            return values
        return values[self.index]

    def added_to(self, A: Tensor, weights: Tensor) -> Tensor:
        """Return A (P, P) with weights_box added to A[p, q] of all rows p, q of one box, in place.

        Rows of a box stand side by side.
        """
        assert self.index is not None
        rows, columns = self._pairs
        return A.index_put_((rows, columns), weights[self.index[rows]], accumulate=True)

    @cached_property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """All pairs of rows of one box: each row with the first row of its box, the second, ..."""
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

    # Where balancing makes alpha of a row 0, a start has this fraction of their mean instead.
    least_share: ClassVar[float] = 1e-6

    def __init__(
        self, layout: Layout, device: torch.device, dtype: torch.dtype = torch.float64
    ) -> None:
        self.layout = layout
        self.device = device
        self.dtype = dtype
        problem = layout.problem
        norms = layout.norms
        # Rows are divided by their own norms, which then are in b. The common sigma only sets the
        # unit of zeta, so that b is about 1.
        self.scale = float(np.sqrt(np.mean(norms**2))) or 1.0  # sigma
        # Sigma stands in for the norm of a row whose features are 0.
        self.nu = self.tensor(np.where(norms > 0, norms, self.scale))
        self.b = self.scale / self.nu
        self.C = self.tensor(problem.box[layout.rows.samples]) * self.nu
        self.e = self.b[:, None] * self.tensor(layout.rows.offset_columns)
        self.n_rows = len(self.b)
        self.n_groups = layout.n_groups
        self.n_offsets = self.e.shape[1]
        self.soft = not problem.hard_margin
        # One box a row with two classes, else one a sample.
        self.boxes = Boxes()
        self.box_C = self.C
        if self.soft and not layout.signed:
            self.boxes = Boxes(self.index(layout.place))
            # All pairs of a sample have one nu, because their features have the same norm: any of
            # them has the C nu of the box.
            self.box_C = self.C[self.index(layout.first)]
        self.n_boxes = 0
        if self.soft:
            self.n_boxes = len(self.box_C)

    @cached_property
    def rows(self) -> ScaledRows:
        """The rows on the device: not formed where the Gram matrix is all that is needed."""
        layout = self.layout
        X = self.tensor(layout.inputs.of(layout.features.X))
        # X is divided by nu, and has the labels' signs with two classes.
        sizes = self.nu[self.index(layout.first)]
        owners = layout.rows.owners
        if layout.signed:
            sizes = sizes * self.tensor(np.where(owners, -1.0, 1.0))
        place = self.index(layout.place)
        pairs = Pairs(place, self.index(owners), self.index(layout.rows.rivals))
        gates = layout.gates
        groups = GateGroups(
            self.index(gates.groups),
            self.tensor(gates.share),
            self.index(gates.norm_groups),
            self.n_groups,
        )
        return ScaledRows(X / sizes[:, None], self.tensor(gates.rotated), groups, pairs)

    @property
    def balance_tolerance(self) -> float:
        """Fraction of e' alpha that rounding alone may leave."""
        # Errors of a sum of n products grow like the root of n; 100 leaves room for those of alpha.
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

    def alpha_of(self, values: Tensor) -> Array:
        """Return dual variables of the rows as those of the problem, in its units."""
        return self.layout.rows.alpha((values / self.nu).cpu().double().numpy())

    def start_alpha(self, start: Start) -> Tensor:
        """Return the dual variables of a start, (P,): samples that it lacks have 0."""
        layout = self.layout
        # A start of fewer samples is padded with zeros; each cone moves them inside.
        whole = np.zeros(layout.problem.alpha_shape)
        whole[: len(start.alpha)] = start.alpha
        return self.tensor(layout.rows.alpha_of_rows(whole)) * self.nu

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
            # With several offsets the classes' sums depend on each other, which `repaired` solves
            # for.
            whole = repaired(self.layout.problem, self.alpha_of(alpha))
            return self.tensor(self.layout.rows.alpha_of_rows(whole)) * self.nu
        # The class with the larger sum is scaled down: alpha stay within their boxes.
        positive = self.e[:, 0] > 0
        sizes = (self.e[:, 0] * alpha).abs()
        above = float(sizes[positive].sum())
        below = float(sizes[~positive].sum())
        target = min(above, below)
        factors = torch.full_like(alpha, target / above)
        factors[~positive] = target / below
        return alpha * factors

    def balanced_inside(self, alpha: Tensor) -> Tensor:
        """Return `balanced` alpha (P,) with zeros raised to a little: a start is positive."""
        if not self.n_offsets or self.layout.signed:
            return self.balanced(alpha)
        found = self.balanced(alpha)
        return torch.maximum(found, self.least_share * found.mean())

    @property
    def in_range(self) -> bool:
        """Whether the precision's range holds the scales of the samples."""
        limits = torch.finfo(self.dtype)
        scales = [self.nu, self.b]
        if self.soft:
            scales.append(self.C)
        return all(bool(((x >= limits.tiny) & (x <= limits.max)).all()) for x in scales)

    def upper(self, norm: float, margins: Tensor) -> tuple[float, float]:
        """Upper bound of coefficients with these margins (P,); and by how much one falls short."""
        if self.soft:
            losses = self.boxes.largest(self.b - margins).clamp(min=0.0)
            return norm + float(self.box_C @ losses), 0.0
        # Divided by the smallest y f(x), the coefficients reach unit margin: their norm is a bound.
        smallest = float((margins / self.b).min())
        upper = math.inf
        if smallest > 0:
            upper = norm / smallest
        return upper, max(1.0 - smallest, 0.0)

    def to_margin_1(self, norm: float, upper: float) -> float:
        """Return what takes coefficients of this norm and bound to unit margin: 1 if nothing does.

        With a soft margin they stay as they are.
        """
        if self.soft or not (norm > 0.0 and upper < math.inf):
            return 1.0
        return upper / norm

    def coef_of(self, V: Tensor, d: Tensor) -> Array:
        """zeta_g = d_g V_g in the problem's features, (M, D) or (K, M, D), units of 1 / scale."""
        layout = self.layout
        # Back through the rotation of the gates, then through the merged inputs.
        found = layout.gates.expand(V.cpu().double().numpy(), d.cpu().double().numpy())
        # No -1: features that are all 0 leave no columns, D' = 0.
        rows = found.reshape(math.prod(found.shape[:2]), found.shape[-1])
        expanded = layout.inputs.expand(rows)
        return expanded.reshape(layout.problem.coef_shape)

    def answer(self, alpha: Tensor, V: Tensor, d: Tensor, beta: Tensor) -> Answer:
        """Return alpha, the coefficients of V and d, and the intercept, in the problem's units."""
        return Answer(self.alpha_of(alpha), self.coef_of(V, d) / self.scale, self.intercept(beta))

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


class MergedInputs:
    """Inputs (N, D) with all constant features merged into one, and the way back.

    Where the constant features are all 0, the merged one is left out, unless ``always``. Without
    ``merge`` no features are merged: for norms that are not invariant under rotations of them.

    Attributes
    ----------
    varying : ndarray of int
        The features that are not constant.
    norm : float
        Of the constant features together, the value of the merged one.
    """

    def __init__(self, X: Array, *, always: bool = True, merge: bool = True) -> None:
        constant = merge & (X == X[0]).all(axis=0)
        self.varying = np.flatnonzero(~constant)
        self._constant = np.flatnonzero(constant)
        values = X[0, constant]
        # Divided by the largest, no square overflows or underflows.
        top = float(np.abs(values).max(initial=TINY))
        self.norm = top * float(np.linalg.norm(values / top))
        # The unit vector of the merged feature in the constant ones, a column, or no column.
        n_merged = int(always or self.norm > 0)
        self._shares = (values / (self.norm or 1.0))[:, None][:, :n_merged]

    def of(self, X: Array, offsets: Array | float = 0.0) -> Array:
        """Return inputs (N, D'), the varying ones less their offsets, the constant one last."""
        n_varying = len(self.varying)
        merged = np.full((len(X), n_varying + self._shares.shape[1]), self.norm)
        np.subtract(X[:, self.varying], offsets, out=merged[:, :n_varying])
        return merged

    def expand(self, V: Array) -> Array:
        """Rows (M, D') in the span of the merged inputs, as rows (M, D)."""
        n_varying = len(self.varying)
        full = np.zeros((len(V), n_varying + len(self._constant)))
        full[:, self.varying] = V[:, :n_varying]
        full[:, self._constant] = V[:, n_varying:] @ self._shares.T
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
        Features of all samples.
    groups : ndarray of int, shape (K', M)
        Group of each gate of each class.
    first, place : ndarray of int, shapes (n,) and (P,)
        The n samples that have rows: a row of each, and the place of each row's sample among them.
    norms : ndarray of shape (P,)
        Norms of the rows' features.
    explicit : bool
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
    explicit: bool = False
    merge: bool = True

    @cached_property
    def features(self) -> Features:
        """Those of the samples that have rows, (n,)."""
        found = self.whole
        samples = self.rows.samples[self.first]
        if not np.array_equal(samples, np.arange(len(found))):
            found = found.subset(samples)
        if not self.explicit:
            return found
        # Written out: z (x) x, in C order of gates and inputs.
        X = found.X
        Z = found.sparse_gates.toarray()
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
        if rows is None:
            rows = problem.constraints
        features, groups = euclidean_form(problem)
        return cls._of(problem, rows, features, groups)

    @classmethod
    def of_features(cls, problem: MarginProblem, rows: Constraints, *, merge: bool) -> Layout:
        """Return that of other norms: features are inputs of one constant gate.

        Constant features are one if ``merge``.
        """
        groups = np.zeros((rows.width, 1), dtype=np.int64)
        return cls._of(problem, rows, problem.features, groups, explicit=True, merge=merge)

    @classmethod
    def _of(
        cls,
        problem: MarginProblem,
        rows: Constraints,
        features: Features,
        groups: Integers,
        *,
        explicit: bool = False,
        merge: bool = True,
    ) -> Layout:
        first = np.arange(len(rows))
        place = first
        label_norm = 1.0
        if rows.width > 1:  # a sample has several rows, with label vectors e_{y_n} - e_k
            # Inputs are held once a sample, however many rivals it has: `place` leads from rows to
            # them.
            _, first, place = np.unique(rows.samples, return_index=True, return_inverse=True)
            label_norm = 2.0**0.5
        norms = label_norm * features.norms[rows.samples]
        return cls(
            problem, rows, features, groups, first, place, norms, explicit=explicit, merge=merge
        )
