r"""The margin problem: one convex program behind every model.

Primal  minimise  Omega(zeta) + C sum_n xi_n,  Omega(zeta) = sum_g ||zeta_g||
        subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0   (C = inf: xi = 0, the hard margin)
Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,  ||V_g(alpha)|| <= 1,  sum_n alpha_n y_n = 0
The offset b and the last equation belong to problems with intercept=True; without, b = 0.

=========  ============  ====================================================================
X          (N, D)        inputs
y          (N,)          labels, -1 or +1
Z          (N, M)        gates z_m(x_n), any real numbers, dense or sparse
groups     (M,)          group of each gate column, 0 .. G - 1
zeta       (M, D)        coefficients; f(x) = sum_m z_m(x) <zeta_m, x>
alpha      (N,)          dual variables
V          (M, D)        V_m = sum_n alpha_n y_n z_m(x_n) x_n
P_g        (M_g, M_g)    metric of a group: norm sqrt(tr(zeta_g' P_g^+ zeta_g)) for zeta_g in the
                         range of P_g, dual norm sqrt(tr(V_g' P_g V_g)); the identity by default
=========  ============  ====================================================================

In kernels ||V_g||^2 = alpha' Q_g alpha with Q_g = (y y') o (X X') o (Z_g P_g Z_g'): hard-margin
multiple kernel learning in which every structure is a mask on one Gram matrix. The feature
matrix (N, M D) is never formed.

Source: Lippl, Abbott, Chung (2022), sections 3 and 4, as one program for all their models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias._deprecated import OldAttribute, renamed
from implicit_bias.gating import GateMatrix, Gating, dense
from implicit_bias.masked_gram import masked_gram
from implicit_bias.norms import GroupNorm
from implicit_bias.validation import (
    Array,
    as_features,
    as_finite,
    as_labels,
    is_frozen,
    owned,
)

# Rows handled at once where a product needs a temporary of shape (rows, D).
BLOCK = 4096
# Sparse gates of at least this share of entries are multiplied as dense ones, which is faster.
FEW = 0.05
# The square of a smaller norm of features is not computed accurately.
SMALLEST_NORM = 1e-150


def gated_linear(X: Array, gates: GateMatrix, coef: Array) -> Array:
    """Predictor f(x_n) = sum_m z_m(x_n) <coef_m, x_n> for all samples.

    Parameters
    ----------
    X : ndarray of shape (n, D)
        Inputs.
    gates : ndarray or CSR array of shape (n, M)
        Gates of these inputs.
    coef : ndarray of shape (M, D)
        Coefficients zeta.

    Returns
    -------
    ndarray of shape (n,)
    """
    values = np.empty(len(X))
    few = are_few(gates)
    for start in range(0, len(X), BLOCK):
        rows = slice(start, start + BLOCK)
        if few:
            values[rows] = np.einsum("nd,nd->n", gates[rows] @ coef, X[rows])
        else:
            values[rows] = np.einsum("nm,nm->n", dense(gates[rows]), X[rows] @ coef.T)
    return values


def are_few(gates: GateMatrix) -> bool:
    """Whether a sparse product with the gates takes less time than a dense one."""
    size = gates.shape[0] * gates.shape[1]
    return bool(sp.issparse(gates) and sp.csr_array(gates).nnz < FEW * size)


@dataclass(frozen=True, eq=False)
class MarginProblem:
    """Maximise the margin under a group norm, for any gates.

    What is known of a problem is computed once, so its arrays must not change: they are read-only,
    and copies of those that the caller could still write. Arrays that were made read-only before
    (those of a `Dataset`, or of another problem) are shared.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; append a constant 1 where the predictors should have an offset.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    gates : array_like or scipy sparse array of shape (N, M)
        Gate of each column at each sample, any real numbers.
    groups, metric
        Those of the norm, see `GroupNorm`.
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin.
    intercept : bool
        Whether the predictor has a free offset b, ungated and not in the norm.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, groups that are not
        0 .. G - 1, a metric that is not symmetric positive semi-definite, C not positive,
        values whose squares over- or underflow, or an intercept with one class only, where an
        offset alone separates and the optimum is 0.
    """

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    gates: GateMatrix = field(repr=False)
    groups: NDArray[np.int64] = field(repr=False)
    metric: Mapping[int, Array] | None = field(default=None, repr=False)
    C: float = np.inf
    intercept: bool = False
    norm: GroupNorm = field(init=False, repr=False)

    def __post_init__(self) -> None:
        X = owned(as_finite(self.X, "X", 2), self.X)
        y = owned(as_labels(self.y, len(X)), self.y)
        gates = _as_gates(self.gates)
        norm = GroupNorm(self.groups, self.metric)
        n = len(X)
        if X.shape[1] == 0:
            raise ValueError(f"X has no features: shape {X.shape}")
        if gates.shape[0] != n:
            raise ValueError(f"gates must have one row a sample: {n}, got {gates.shape[0]}")
        if gates.shape[1] != len(norm.groups):
            raise ValueError(
                f"groups must name the group of each of the {gates.shape[1]} gate columns, "
                f"got {len(norm.groups)} entries"
            )
        number = isinstance(self.C, (int, float, np.number)) and not isinstance(self.C, bool)
        if not number or not self.C > 0:
            raise ValueError(
                f"C must be in (0, inf], got {self.C!r}: pass a number (not text), and "
                "use inf for the hard margin"
            )
        if not isinstance(self.intercept, (bool, np.bool_)):
            raise ValueError(f"intercept must be True or False, got {self.intercept!r}")
        if self.intercept and (y == y[0]).all():
            raise ValueError(
                "all labels are equal, so the intercept alone separates and the optimum is 0: "
                "pass samples of both classes, or intercept=False"
            )
        for name, value in [("X", X), ("y", y), ("gates", gates), ("norm", norm)]:
            object.__setattr__(self, name, value)
        object.__setattr__(self, "groups", norm.groups)
        object.__setattr__(self, "metric", norm.metric)
        object.__setattr__(self, "C", float(self.C))
        self._check_range()

    def _check_range(self) -> None:
        """Refuse data whose squares leave the range of float64."""
        norms = self.feature_norms
        if not np.isfinite(norms).all() or (norms[~self.zero_features] < SMALLEST_NORM).any():
            raise ValueError(
                "the squares of X or of the gates over- or underflow: multiply X by a constant "
                "that makes its entries about 1 (the optimum is divided by that constant)"
            )

    @property
    def n_samples(self) -> int:
        """N."""
        return len(self.y)

    @property
    def n_gates(self) -> int:
        """M."""
        return len(self.groups)

    @property
    def n_groups(self) -> int:
        """G."""
        return self.norm.n_groups

    @property
    def hard_margin(self) -> bool:
        """Whether C is infinite."""
        return bool(np.isinf(self.C))

    def decision(self, coef: Array) -> Array:
        """f(x_n), shape (N,), of coefficients (M, D), without the intercept."""
        return gated_linear(self.X, self.gates, coef)

    def dual_vectors(self, alpha: Array) -> Array:
        """V_m = sum_n alpha_n y_n z_m(x_n) x_n, shape (M, D).

        Without the samples in the null space of the metric, which add nothing but rounding.
        """
        if self.metric is not None:
            alpha = np.where(self.zero_features, 0.0, alpha)
        return self._dual_vectors(self.gates, alpha)

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,); inf where zeta_g leaves the range of P_g."""
        return self.norm.group_norms(coef)

    def projected(self, coef: Array) -> Array:
        """Coefficients (M, D) without what rounding put outside the ranges of the P_g."""
        return self.norm.projected(coef)

    def coef_of(self, alpha: Array, group_norms: Array) -> Array:
        """zeta_g = d_g P_g V_g(alpha), shape (M, D): KKT's coefficients of alpha and d (G,)."""
        return self.norm.aligned(self.dual_vectors(alpha), group_norms)

    def dual_norms(self, alpha: Array) -> Array:
        """||V_g(alpha)|| of each group, shape (G,)."""
        gates = self.gates if self.metric is None else self.plain_gates
        return self.norm.plain_norms(self._dual_vectors(gates, alpha))

    @cached_property
    def feature_norms(self) -> Array:
        """Norm of each sample's feature vector, sqrt(sum_g Q_g[n, n]), shape (N,)."""
        gate_squares = np.asarray(self.plain_gates.multiply(self.plain_gates).sum(axis=1))
        return np.sqrt(gate_squares.reshape(-1) * np.einsum("nd,nd->n", self.X, self.X))

    @cached_property
    def zero_features(self) -> NDArray[np.bool_]:
        """Samples whose features are all 0 (gates off, or an input of zeros), shape (N,)."""
        no_gate = np.abs(self.plain_gates).max(axis=1).toarray().reshape(-1) == 0
        zero: NDArray[np.bool_] = no_gate | (np.abs(self.X).max(axis=1) == 0)
        return zero

    silent = OldAttribute("zero_features")

    @cached_property
    def scale(self) -> float:
        """Root mean square of the feature norms; 1 where all features are 0."""
        return float(np.sqrt(np.mean(self.feature_norms**2))) or 1.0

    def gram(self, group: int) -> Array:
        """Q_g = (y y') o (X X') o (Z_g P_g Z_g'), shape (N, N)."""
        columns = np.flatnonzero(self.plain_groups == group)
        Z = self.plain_gates[:, columns].toarray()
        return masked_gram(self.y[:, None] * self.X, Z)

    # The solvers see plain groups only: the equivalent problem without metric. With a metric the
    # program *is* that of these gates as they are stored, and both bounds are about it.

    @cached_property
    def root(self) -> sp.csr_array:
        """R, shape (M, M'): block diagonal with P_g = R_g R_g'; coef = R @ plain coef."""
        return self.norm.root

    @cached_property
    def plain_gates(self) -> sp.csr_array:
        """Gates Z R, shape (N, M'), of the equivalent problem without metric."""
        gates = sp.csr_array(self.gates)
        return gates if self.metric is None else self.norm.plain_gates(gates)

    @property
    def plain_groups(self) -> NDArray[np.int64]:
        """Group of each column of `plain_gates`, shape (M',)."""
        return self.norm.plain_groups

    def has_gates_of(self, other: MarginProblem) -> bool:
        """Whether inputs, gates and groups are those of another problem on the same samples."""
        return (
            np.array_equal(self.groups, other.groups)
            and np.array_equal(self.X, other.X)
            and (sp.csr_array(self.gates) != sp.csr_array(other.gates)).nnz == 0
        )

    def subset(self, samples: NDArray[np.int64]) -> MarginProblem:
        """Return the same problem on some of the samples (indices).

        Raises
        ------
        ValueError
            Samples of one class only, where the problem has an intercept.
        """
        X = self.X[samples]
        X.setflags(write=False)  # nobody else has it, so that the problem need not copy it
        return replace(self, X=X, y=self.y[samples], gates=self.gates[samples])

    def _dual_vectors(self, gates: GateMatrix, alpha: Array) -> Array:
        weights = (alpha * self.y)[:, None]
        if are_few(gates):
            return np.asarray(gates.T @ (self.X * weights))
        V = np.zeros((gates.shape[1], self.X.shape[1]))
        for start in range(0, self.n_samples, BLOCK):
            rows = slice(start, start + BLOCK)
            V += dense(gates[rows]).T @ (self.X[rows] * weights[rows])
        return V


class HasHiddenLayer(Protocol):
    """What has a hidden layer: a network, or a classifier that trained one."""

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Activations of the last hidden layer, shape (n, H)."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """What an architecture fixes: its gates, how they are grouped, and the groups' metric.

    Parameters
    ----------
    gating : Gating
        The gates of any input.
    groups : ndarray of int, shape (M,), optional
        Group of each gate column; the gating's own where not given.
    metric : mapping from group to ndarray of shape (M_g, M_g), optional
        As in `MarginProblem`.
    representation : object with ``hidden_activations(X)``, optional
        A trained network whose hidden activations (n, H) are what gates and coefficients apply
        to; the inputs themselves where not given.
    """

    gating: Gating
    groups: NDArray[np.int64] | None = None
    metric: Mapping[int, Array] | None = None
    representation: HasHiddenLayer | None = None

    def inputs(self, X: ArrayLike) -> Array:
        """Return what the coefficients apply to, shape (n, D) or (n, H)."""
        layer = self.representation
        represented = X if layer is None else layer.hidden_activations(X)
        return as_features(represented, self.gating.n_features)

    def problem(
        self, X: ArrayLike, y: ArrayLike, C: float = np.inf, intercept: bool = False
    ) -> MarginProblem:
        """Margin problem of this architecture on data X (N, D), y (N,) in {-1, +1}."""
        inputs = self.inputs(X)
        groups = self.gating.groups if self.groups is None else self.groups
        gates = self.gating.gates(inputs)
        return MarginProblem(inputs, np.asarray(y), gates, groups, self.metric, C, intercept)

    def decision(self, X: ArrayLike, coef: Array) -> Array:
        """f(x_n), shape (n,), of inputs X (n, D) and coefficients (M, D), without an intercept."""
        inputs = self.inputs(X)
        return gated_linear(inputs, self.gating.gates(inputs), coef)


def _as_gates(gates: object) -> GateMatrix:
    if not sp.issparse(gates):
        return owned(as_finite(gates, "gates", 2), gates)  # type: ignore[arg-type]
    as_finite(sp.csr_array(gates).data, "gates", 1)
    matrix = sp.csr_array(gates, dtype=np.float64)
    if not is_frozen(matrix.data):  # that of another problem is
        matrix = matrix.copy()
        matrix.sum_duplicates()  # which nothing can do later
        matrix.data.setflags(write=False)
    return matrix


__getattr__ = renamed(__name__, Structure="Architecture")
