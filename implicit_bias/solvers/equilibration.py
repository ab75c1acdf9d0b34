r"""A problem with sums of l2 in centred, equilibrated features, for `feature_space`.

Inputs that vary little around an offset, years say, are centred where something absorbs the offset:
the intercept, or a constant feature, whose penalty then is a row of T that is not diagonal. The
centring is exact by Sterbenz's lemma, and all scalings are powers of two: nothing is rounded, but
products with U b_p of many classes, each on its own.

The best coefficients of K classes sum to 0 over the classes, as all label vectors b_p do. So they
are given by r = K - 1 coordinates, in an orthonormal basis U (r, K) of the vectors that sum to 0:
U b_p takes the place of b_p, and no norm changes. With labels -1 and +1 r is 1, and U b_p is the
label.

======  ==========  ==========================================================================
phi_n   (F,)        features of sample n: the used gates times the inputs; P = r F
nu      (R,)        powers of two near the features' norms; c_p = sigma / nu_p, the box is C nu_p
v       (P',)       of centred, equilibrated features, and r offsets last where there are intercepts
T       (P, P')     back from there, w = T v
B       (R, P')     U b_p (x) phi_n(p) / nu_p in these coordinates
======  ==========  ==========================================================================
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.balance import balanced
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.euclidean import euclidean_form
from implicit_bias.solvers.scaling import MergedInputs
from implicit_bias.solvers.second_order import Groups


class EquilibratedProblem:
    """The problem in centred and equilibrated features; see the module's head.

    Attributes
    ----------
    B, c, C : Tensor of shape (R, P'), (R,), and (N,) or (0,)
        The scaled rows, and what bounds the alpha of samples: of length 0 with a hard margin.
    T : Tensor of shape (P, P')
        From the coordinates of B to those of the norm.
    groups : Groups
        Group of each entry of w.
    nu, sigma : Tensor of shape (R,), float
        Scales of the rows, and of the norm.
    samples : Tensor of int, shape (R,)
        The sample of each row.
    soft : bool
        Whether the margin is soft.
    shares_boxes : bool
        Whether rows of one sample share its box: soft margins of many classes.
    """

    def __init__(self, problem: MarginProblem, rows: Constraints, device: torch.device) -> None:
        self._rows = rows
        self._intercept = problem.intercept
        form, groups = euclidean_form(problem)
        self._shape = form.shape
        gates = sp.csc_array(form.sparse_gates)
        self._used = used_gates(gates)
        Z = gates[:, self._used].toarray()[rows.samples]
        X = form.X[rows.samples]
        # U b_p (R, r): the labels of two classes.
        self._basis = np.eye(1)
        if rows.width > 1:
            self._basis = scipy.linalg.helmert(rows.width)
        labels = rows.label_vectors @ self._basis.T
        r = len(self._basis)

        # --- centring --------------------------------------------------------------------------
        # A free intercept absorbs the offsets only where every gate is constant.
        absorbed = problem.intercept and bool((Z == Z[0]).all())
        self._inputs = MergedInputs(X)
        offsets = offsets_of(X, self._inputs, absorbed)  # (D',)
        n_inputs = len(offsets)
        n_features = n_inputs * len(self._used)

        # --- scales: of the rows, then of the features ------------------------------------------
        norms = problem.feature_norms[rows.samples]
        smallest = 1.0
        if norms.any():
            smallest = float(norms[norms > 0].min())
        if problem.intercept:
            # The intercept's constant must not drown the features of any sample.
            norms = np.hypot(norms, smallest)
        nu = power_of_two(np.where(norms > 0, norms, smallest))
        features = np.empty((len(Z), n_features + int(problem.intercept)))
        inputs = self._inputs.of(X, offsets[:-1])
        blocks = [slice(m * n_inputs, (m + 1) * n_inputs) for m in range(len(self._used))]
        for m, block in enumerate(blocks):
            np.multiply(inputs, (Z[:, m] / nu)[:, None], out=features[:, block])
        features[:, n_features:] = (1.0 / nu)[:, None]
        sizes = np.sqrt(np.einsum("np,np->p", features, features))
        scale = 1.0 / power_of_two(np.where(sizes > 0, sizes, 1.0))
        features *= scale
        # The features of each coordinate of the classes, then the offsets of all.
        B = np.empty((len(Z), r * features.shape[1]))
        for k in range(r):
            columns = slice(k * n_features, (k + 1) * n_features)
            np.multiply(labels[:, k : k + 1], features[:, :n_features], out=B[:, columns])
        if problem.intercept:
            np.multiply(labels, features[:, n_features:], out=B[:, r * n_features :])

        # --- (w, b) = T v with all rows: scaled, then moved back by the offsets ------------------
        whole = np.diag(scale)
        for m, block in enumerate(blocks):
            if absorbed:
                whole[-1, block] -= Z[0, m] * offsets * scale[block]
            elif self._inputs.norm > 0:
                whole[block.stop - 1, block] -= offsets / self._inputs.norm * scale[block]
        corners = [
            [whole[:n_features, :n_features], whole[:n_features, n_features:]],
            [whole[n_features:, :n_features], whole[n_features:, n_features:]],
        ]
        # The same for each coordinate of the classes, whose offsets come after all features.
        whole = np.block([[np.kron(np.eye(r), corner) for corner in side] for side in corners])
        self._whole = torch.as_tensor(whole, device=device)
        self._back = torch.linalg.inv(self._whole)
        self.T = self._whole[: r * n_features]

        group = np.unique(groups[0, self._used], return_inverse=True)[1]
        index = np.tile(np.repeat(group, n_inputs), r)
        self.groups = Groups(torch.as_tensor(index, device=device), int(group.max()) + 1)
        self.B = torch.as_tensor(B, device=device)
        self.sigma = float(nu.min())
        self.nu = torch.as_tensor(nu, device=device)
        self.soft = not problem.hard_margin
        self.c = self.sigma / self.nu
        self.C = self.nu[:0]
        # The samples of the rows, numbered in their order: rows of one sample share its box.
        chosen, first, numbers = np.unique(rows.samples, return_index=True, return_inverse=True)
        self.samples = torch.as_tensor(numbers, device=device)
        self.shares_boxes = self.soft and len(chosen) < len(rows)
        if self.soft:
            self.C = torch.tensor(problem.box[chosen], device=device) * self.nu[first]

    def boxed(self, alpha: Tensor) -> Tensor:
        """Return what boxes bound, (N,): sums of alpha over the rows of a sample, or nothing."""
        if not self.shares_boxes:
            return alpha[: len(self.C)]
        return self.C.new_zeros(self.C.shape).index_add(0, self.samples, alpha)

    def per_sample(self, values: Tensor) -> Tensor | float:
        """Return values of boxes, (N,), as those of rows, (R,): 0 where there is no box."""
        if not len(values):
            return 0.0
        if not self.shares_boxes:
            return values
        return values[self.samples]

    # --- coordinates -----------------------------------------------------------------------------

    def dual_vectors(self, pull: Tensor) -> Tensor:
        """V (P,) from B' alpha."""
        return (self._back.T @ pull)[: len(self.T)]

    def from_coef(self, w: Tensor) -> Tensor:
        """Return v of w, without intercept."""
        return self._back[:, : len(w)] @ w

    def magnitudes(self, v: Tensor) -> Tensor:
        """Sum of the absolute terms of each margin in the problem's own coordinates, (R,)."""
        return self.B.abs() @ (self._back.abs() @ (self._whole @ v).abs())

    # --- bounds ----------------------------------------------------------------------------------

    def balanced(self, alpha: Tensor) -> Tensor:
        """Return alpha near this one that obeys the equation of the offsets, if there are any."""
        if not self._intercept:
            return alpha
        if self._rows.width > 1:
            values = (alpha / self.nu).cpu().numpy()
            found = torch.as_tensor(balanced(self._rows, values), device=alpha.device)
            return found * self.nu
        e = self.B[:, -1]
        signed = e * alpha
        positive = torch.where(signed > 0, signed, 0.0).sum()
        negative = torch.where(signed < 0, -signed, 0.0).sum()
        least = min(positive, negative)
        return alpha * torch.where(e > 0, least / positive, least / negative)

    def lower(self, alpha: Tensor) -> float:
        """Return the lower bound from alpha; 0 where its dual vectors vanish."""
        alpha = self.balanced(alpha)
        value = float(self.c @ alpha)
        largest = self._largest(self._pull(alpha))
        growth = math.inf  # what alpha may be scaled by
        if largest > 0:
            growth = 1.0 / largest
        if self.soft and value > 0:
            growth = min(growth, float((self.C / self.boxed(alpha)).min()))
        if not (value > 0 and math.isfinite(growth)):
            return 0.0
        return value * growth

    def gordan_ratio(self, alpha: Tensor) -> float:
        """Return sum(alpha) over what is left of B' alpha, in the larger of both coordinates."""
        alpha = self.balanced(alpha)
        pull = self._pull(alpha)
        left = max(self._largest(pull), float(pull.norm()))
        total = float(alpha.sum())
        if not total > 0:  # nothing near could be balanced
            return 0.0
        if not left > 0:
            return math.inf
        return total / left

    def _pull(self, alpha: Tensor) -> Tensor:
        """B' alpha of balanced alpha, whose entry of the intercept is 0."""
        pull = self.B.T @ alpha
        if self._intercept:
            pull[len(self.T) :] = 0.0
        return pull

    def _largest(self, pull: Tensor) -> float:
        """Return the largest norm of a group of the dual vectors."""
        return float(self.groups.norms(self.dual_vectors(pull)).max())

    def upper(self, v: Tensor, margins: Tensor) -> tuple[float, float]:
        """Return the upper bound from v; and by how much a margin falls short."""
        norm = float(self.groups.norms(self.T @ v).sum())
        if self.soft:
            short = (self.c - margins).clamp(min=0.0)
            if self.shares_boxes:  # the largest of a sample's rows counts
                none = torch.zeros_like(self.C)
                short = none.scatter_reduce(0, self.samples, short, "amax")
            return norm + float(self.C @ short), 0.0
        smallest = float((margins / self.c).min())
        upper = math.inf
        if smallest > 0:
            upper = norm / smallest
        return upper, max(1.0 - smallest, 0.0)

    # --- in the problem's units ------------------------------------------------------------------

    def dual_variables(self, alpha: Tensor) -> Array:
        """Return alpha of the rows, (R,), in the problem's units."""
        return (self.balanced(alpha) / self.nu).cpu().numpy()

    def coefficients(self, v: Tensor) -> tuple[Array, float | Array]:
        """Return zeta (M, D) or (K, M, D), and the offset or offsets, in the problem's units."""
        whole = (self._whole @ v).cpu().numpy() / self.sigma
        r = len(self._basis)
        w = whole[: len(self.T)].reshape(r, len(self._used), -1)
        offsets = np.zeros(r)
        if self._intercept:
            offsets = whole[len(self.T) :]
        coef = np.zeros((r, *self._shape))
        for coordinate, found in zip(coef, w, strict=True):
            coordinate[self._used] = self._inputs.expand(found)
        if self._rows.width == 1:
            return coef[0], float(offsets[0])
        return np.tensordot(self._basis.T, coef, axes=1), self._basis.T @ offsets


def used_gates(gates: sp.csc_array) -> NDArray[np.int64]:
    """Columns that are on somewhere; the first one where there is none."""
    used = np.flatnonzero(np.abs(gates).max(axis=0).toarray().reshape(-1) > 0)
    if not len(used):
        return np.zeros(1, dtype=np.int64)
    return used


def power_of_two(values: Array) -> Array:
    """Powers of two near positive values."""
    return np.asarray(np.exp2(np.round(np.log2(values))))


def offsets_of(X: Array, inputs: MergedInputs, absorbed: bool, largest_ratio: float = 3.0) -> Array:
    """Return what merged inputs are centred at, where that is exact and free: (D',).

    Inputs are centred where the largest is at most ``largest_ratio`` times the smallest, and an
    intercept has ``absorbed`` the offsets, or a constant feature can.
    """
    low = X[:, inputs.varying].min(axis=0)
    high = X[:, inputs.varying].max(axis=0)
    smallest = np.minimum(np.abs(low), np.abs(high))
    largest = np.maximum(np.abs(low), np.abs(high))
    near = (low * high > 0) & (largest <= largest_ratio * smallest)
    middle = np.where(near & (absorbed or inputs.norm > 0), 0.5 * low + 0.5 * high, 0.0)
    return np.append(middle, 0.0)
