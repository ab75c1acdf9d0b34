r"""A problem of two classes and groups in centred, equilibrated features, for `feature_space`.

Inputs that vary little around an offset, years say, are centred where something absorbs the offset:
the intercept, or a constant feature, whose penalty then is a row of T that is not diagonal. The
centring is exact by Sterbenz's lemma, and all scalings are powers of two: nothing is rounded.

======  ==========  ==========================================================================
phi_n   (P,)        features of sample n: the used gates times the inputs
nu      (N,)        powers of two near the features' norms; c_n = sigma / nu_n, the box is C nu_n
v       (P',)       of centred, equilibrated features, and the intercept last where there is one
T       (P, P')     back from there, w = T v
B       (N, P')     y_n phi_n / nu_n in these coordinates
======  ==========  ==========================================================================
"""

from __future__ import annotations

import math

import numpy as np
import scipy.sparse as sp
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers.scaling import MergedInputs
from implicit_bias.solvers.second_order import Groups


class EquilibratedProblem:
    """The problem in centred and equilibrated features; see the module's head.

    Attributes
    ----------
    B, c, C : Tensor of shape (N, P'), (N,), and (N,) or (0,)
        The scaled samples, and what bounds their alpha: of length 0 with a hard margin.
    T : Tensor of shape (P, P')
        From the coordinates of B to those of the norm.
    groups : Groups
        Group of each entry of w.
    nu, sigma : Tensor of shape (N,), float
        Scales of the samples, and of the norm.
    soft : bool
        Whether the margin is soft.
    """

    def __init__(self, problem: MarginProblem, device: torch.device) -> None:
        self._problem = problem
        self._intercept = problem.intercept
        gates = sp.csc_array(problem.features.sparse_gates)
        self._used = used_gates(gates)
        Z = gates[:, self._used].toarray()

        # --- centring --------------------------------------------------------------------------
        # A free intercept absorbs the offsets only where every gate is constant.
        absorbed = problem.intercept and bool((Z == Z[0]).all())
        self._inputs = MergedInputs(problem.X)
        offsets = offsets_of(problem.X, self._inputs, absorbed)  # (D',)
        n_inputs = len(offsets)
        n_features = n_inputs * len(self._used)

        # --- scales: of the samples, then of the features ---------------------------------------
        norms = problem.feature_norms
        smallest = 1.0
        if norms.any():
            smallest = float(norms[norms > 0].min())
        if problem.intercept:
            # The intercept's constant must not drown the features of any sample.
            norms = np.hypot(norms, smallest)
        nu = power_of_two(np.where(norms > 0, norms, smallest))
        B = np.empty((len(Z), n_features + problem.intercept))
        inputs = self._inputs.of(problem.X, offsets[:-1])
        blocks = [slice(m * n_inputs, (m + 1) * n_inputs) for m in range(len(self._used))]
        for m, block in enumerate(blocks):
            np.multiply(inputs, (problem.y * Z[:, m] / nu)[:, None], out=B[:, block])
        B[:, n_features:] = (problem.y / nu)[:, None]
        sizes = np.sqrt(np.einsum("np,np->p", B, B))
        scale = 1.0 / power_of_two(np.where(sizes > 0, sizes, 1.0))
        B *= scale

        # --- (w, b) = T v with all rows: scaled, then moved back by the offsets ------------------
        whole = np.diag(scale)
        for m, block in enumerate(blocks):
            if absorbed:
                whole[-1, block] -= Z[0, m] * offsets * scale[block]
            elif self._inputs.norm > 0:
                whole[block.stop - 1, block] -= offsets / self._inputs.norm * scale[block]
        self._whole = torch.as_tensor(whole, device=device)
        self._back = torch.linalg.inv(self._whole)
        self.T = self._whole[:n_features]

        group = np.unique(problem.groups[self._used], return_inverse=True)[1]
        index = torch.as_tensor(np.repeat(group, n_inputs), device=device)
        self.groups = Groups(index, int(group.max()) + 1)
        self.B = torch.as_tensor(B, device=device)
        self.sigma = float(nu.min())
        self.nu = torch.as_tensor(nu, device=device)
        self.soft = not problem.hard_margin
        self.c = self.sigma / self.nu
        self.C = self.nu[:0]
        if self.soft:
            self.C = torch.tensor(problem.box, device=device) * self.nu

    def boxed(self, alpha: Tensor) -> Tensor:
        """Return those of alpha that a box bounds: all, or none with the hard margin."""
        return alpha[: len(self.C)]

    def per_sample(self, values: Tensor) -> Tensor | float:
        """Return values of boxes as those of samples: 0 where there is no box."""
        if not len(values):
            return 0.0
        return values

    # --- coordinates -----------------------------------------------------------------------------

    def dual_vectors(self, pull: Tensor) -> Tensor:
        """V (P,) from B' alpha."""
        return (self._back.T @ pull)[: len(self.T)]

    def from_coef(self, w: Tensor) -> Tensor:
        """Return v of w, without intercept."""
        return self._back[:, : len(w)] @ w

    def magnitudes(self, v: Tensor) -> Tensor:
        """Sum of the absolute terms of each margin in the problem's own coordinates, (N,)."""
        return self.B.abs() @ (self._back.abs() @ (self._whole @ v).abs())

    # --- bounds ----------------------------------------------------------------------------------

    def balanced(self, alpha: Tensor) -> Tensor:
        """Return alpha with sum_n alpha_n y_n = 0 where there is an intercept, none larger."""
        if not self._intercept:
            return alpha
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
            growth = min(growth, float((self.C / alpha).min()))
        if not (value > 0 and math.isfinite(growth)):
            return 0.0
        return value * growth

    def gordan_ratio(self, alpha: Tensor) -> float:
        """Return sum(alpha) over what is left of B' alpha, in the larger of both coordinates."""
        alpha = self.balanced(alpha)
        pull = self._pull(alpha)
        left = max(self._largest(pull), float(pull.norm()))
        if not left > 0:
            return math.inf
        return float(alpha.sum()) / left

    def _pull(self, alpha: Tensor) -> Tensor:
        """B' alpha of balanced alpha, whose entry of the intercept is 0."""
        pull = self.B.T @ alpha
        if self._intercept:
            pull[-1] = 0.0
        return pull

    def _largest(self, pull: Tensor) -> float:
        """Return the largest norm of a group of the dual vectors."""
        return float(self.groups.norms(self.dual_vectors(pull)).max())

    def upper(self, v: Tensor, margins: Tensor) -> tuple[float, float]:
        """Return the upper bound from v; and by how much a margin falls short."""
        norm = float(self.groups.norms(self.T @ v).sum())
        if self.soft:
            return norm + float(self.C @ (self.c - margins).clamp(min=0.0)), 0.0
        smallest = float((margins / self.c).min())
        upper = math.inf
        if smallest > 0:
            upper = norm / smallest
        return upper, max(1.0 - smallest, 0.0)

    # --- the problem as posed --------------------------------------------------------------------

    def dual_variables(self, alpha: Tensor) -> Array:
        """Return alpha of the samples, (N,), of the problem as posed."""
        return (self.balanced(alpha) / self.nu).cpu().numpy()

    def coefficients(self, v: Tensor) -> tuple[Array, float]:
        """Return zeta (M, D) and the intercept of the problem as posed."""
        whole = (self._whole @ v).cpu().numpy() / self.sigma
        w = whole[: len(self.T)]
        b = whole[len(self.T) :].sum()
        coef = np.zeros(self._problem.features.shape)
        coef[self._used] = self._inputs.expand(w.reshape(len(self._used), -1))
        return coef, float(b)


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
