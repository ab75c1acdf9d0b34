r"""The margin problem: one convex program behind every model.

Primal  minimise  Omega(zeta) + C sum_n xi_n,  Omega(zeta) = sum_g ||zeta_g||
        subject to  y_n f(x_n) >= 1 - xi_n,  xi >= 0     (C = inf: xi = 0, the hard margin)
Dual    maximise  sum_n alpha_n
        subject to  0 <= alpha_n <= C,  ||V_g(alpha)|| <= 1

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

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.sparse.linalg
from numpy.typing import ArrayLike, NDArray

from implicit_bias.gating import GateMatrix, Gating, dense
from implicit_bias.masked_gram import masked_gram
from implicit_bias.validation import Array, as_features, as_finite, as_labels

# Rows handled at once where a product needs a temporary of shape (rows, D).
BLOCK = 4096
# Sparse gates of at least this share of entries are multiplied as dense ones, which is faster.
FEW = 0.05
# A metric's eigenvalues below this share of the largest one count as zero.
RANK_TOLERANCE = 1e-12


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
    few = _are_few(gates)
    for start in range(0, len(X), BLOCK):
        rows = slice(start, start + BLOCK)
        if few:
            values[rows] = np.einsum("nd,nd->n", gates[rows] @ coef, X[rows])
        else:
            values[rows] = np.einsum("nm,nm->n", dense(gates[rows]), X[rows] @ coef.T)
    return values


def _are_few(gates: GateMatrix) -> bool:
    """Whether a sparse product with the gates takes less time than a dense one."""
    size = gates.shape[0] * gates.shape[1]
    return bool(sp.issparse(gates) and sp.csr_array(gates).nnz < FEW * size)


@dataclass(frozen=True, eq=False)
class MarginProblem:
    """Maximise the margin under a group norm, for any gates.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; append a constant 1 where the predictors should have an offset.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    gates : array_like or scipy sparse array of shape (N, M)
        Gate of each column at each sample, any real numbers.
    groups : array_like of int, shape (M,)
        Group of each column, 0 .. G - 1, none left out.
    metric : mapping from group to array_like of shape (M_g, M_g), optional
        Positive semi-definite P_g of the groups that have one; see the module's table. What
        rounding left of its null space (eigenvalues below 1e-12 M_g of the largest, or a little
        below 0) is cut off.
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, groups that are not
        0 .. G - 1, a metric that is not symmetric positive semi-definite, C not positive, or
        values whose squares over- or underflow.
    """

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    gates: GateMatrix = field(repr=False)
    groups: NDArray[np.int64] = field(repr=False)
    metric: Mapping[int, Array] | None = field(default=None, repr=False)
    C: float = np.inf
    intercept: bool = False

    def __post_init__(self) -> None:
        X = as_finite(self.X, "X", 2)
        y = as_labels(self.y, len(X))
        gates = _as_gates(self.gates)
        groups = _as_groups(self.groups)
        n = len(X)
        if X.shape[1] == 0:
            raise ValueError(f"X has no features: shape {X.shape}")
        if gates.shape[0] != n:
            raise ValueError(f"gates must have one row a sample: {n}, got {gates.shape[0]}")
        if gates.shape[1] != len(groups):
            raise ValueError(
                f"groups must name the group of each of the {gates.shape[1]} gate columns, "
                f"got {len(groups)} entries"
            )
        if not isinstance(self.C, (int, float, np.number)) or not self.C > 0:
            raise ValueError(
                f"C must be in (0, inf], got {self.C!r}: pass a number (not text), and "
                "use inf for the hard margin"
            )
        metric = None if self.metric is None else _as_metric(self.metric, groups)
        for name, value in [("X", X), ("y", y), ("gates", gates), ("groups", groups)]:
            object.__setattr__(self, name, value)
        object.__setattr__(self, "metric", metric or None)
        object.__setattr__(self, "C", float(self.C))
        self._check_range()

    def _check_range(self) -> None:
        """Refuse data whose squares leave the range of float64."""
        norms = self.feature_norms
        silent = self.silent
        if not np.isfinite(norms).all() or (norms[~silent] == 0).any():
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
        return int(self.groups.max()) + 1

    @property
    def hard_margin(self) -> bool:
        """Whether C is infinite."""
        return bool(np.isinf(self.C))

    def decision(self, coef: Array) -> Array:
        """f(x_n), shape (N,), of coefficients (M, D)."""
        return gated_linear(self.X, self.gates, coef)

    def dual_vectors(self, alpha: Array) -> Array:
        """V_m = sum_n alpha_n y_n z_m(x_n) x_n, shape (M, D).

        Without the samples in the null space of the metric, which add nothing but rounding.
        """
        if self.metric is not None:
            alpha = np.where(self.silent, 0.0, alpha)
        weights = (alpha * self.y)[:, None]
        if _are_few(self.gates):
            return np.asarray(self.gates.T @ (self.X * weights))
        V = np.zeros((self.n_gates, self.X.shape[1]))
        for start in range(0, self.n_samples, BLOCK):
            rows = slice(start, start + BLOCK)
            V += dense(self.gates[rows]).T @ (self.X[rows] * weights[rows])
        return V

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,); inf where zeta_g leaves the range of P_g."""
        squares = self._group_sums(np.einsum("md,md->m", coef, coef))
        for g, columns, P in self._metrics():
            squares[g] = P.inverse_square(coef[columns])
        return np.sqrt(squares)

    def projected(self, coef: Array) -> Array:
        """Coefficients (M, D) without what rounding put outside the ranges of the P_g."""
        if self.metric is None:
            return coef
        coef = coef.copy()
        for _, columns, P in self._metrics():
            coef[columns] = P.vectors @ (P.vectors.T @ coef[columns])
        return coef

    def coef_of(self, alpha: Array, group_scale: Array) -> Array:
        """zeta_g = d_g P_g V_g(alpha), shape (M, D): KKT's coefficients of alpha and d (G,)."""
        coef = self.dual_vectors(alpha)
        for _, columns, P in self._metrics():
            coef[columns] = P.root @ (P.root.T @ coef[columns])
        return coef * group_scale[self.groups][:, None]

    def dual_norms(self, alpha: Array) -> Array:
        """||V_g(alpha)|| of each group, shape (G,)."""
        V = self.dual_vectors(alpha)
        squares = self._group_sums(np.einsum("md,md->m", V, V))
        for g, columns, P in self._metrics():
            squares[g] = np.square(P.root.T @ V[columns]).sum()  # never negative, unlike V' P V
        return np.sqrt(squares)

    @cached_property
    def feature_norms(self) -> Array:
        """Norm of each sample's feature vector, sqrt(sum_g Q_g[n, n]), shape (N,)."""
        gate_squares = np.asarray(self.plain_gates.multiply(self.plain_gates).sum(axis=1))
        return np.sqrt(gate_squares.reshape(-1) * np.einsum("nd,nd->n", self.X, self.X))

    @cached_property
    def silent(self) -> NDArray[np.bool_]:
        """Samples whose features are all 0 (gates off, or an input of zeros), shape (N,)."""
        no_gate = np.abs(self.plain_gates).max(axis=1).toarray().reshape(-1) == 0
        silent: NDArray[np.bool_] = no_gate | (np.abs(self.X).max(axis=1) == 0)
        return silent

    @cached_property
    def scale(self) -> float:
        """Root mean square of the feature norms; 1 where all features are 0."""
        return float(np.sqrt(np.mean(self.feature_norms**2))) or 1.0

    def gram(self, group: int) -> Array:
        """Q_g = (y y') o (X X') o (Z_g P_g Z_g'), shape (N, N)."""
        columns = np.flatnonzero(self.plain_groups == group)
        Z = self.plain_gates[:, columns].toarray()
        return masked_gram(self.y[:, None] * self.X, Z)

    # A metric is a change of gates: with P_g = R_g R_g' of full column rank, zeta_g = R_g u_g
    # has norm ||u_g||, and u_g's gates are Z_g R_g. So the solvers see plain groups only.

    @cached_property
    def root(self) -> sp.csr_array:
        """R, shape (M, M'): block diagonal with P_g = R_g R_g'; coef = R @ plain coef."""
        if self.metric is None:
            return sp.eye_array(self.n_gates, format="csr")
        plain = np.flatnonzero(~np.isin(self.groups, list(self.metric)))
        blocks: list[tuple[NDArray[np.int64], Array]] = [(plain, np.eye(len(plain)))]
        blocks += [(columns, P.root) for _, columns, P in self._metrics()]
        widths = [R.shape[1] for _, R in blocks]
        root = sp.lil_array((self.n_gates, sum(widths)))
        for (columns, R), start in zip(blocks, np.cumsum([0, *widths[:-1]]), strict=True):
            root[np.ix_(columns, np.arange(start, start + R.shape[1]))] = R
        return root.tocsr()

    @cached_property
    def plain_gates(self) -> sp.csr_array:
        """Gates Z R, shape (N, M'), of the equivalent problem without metric."""
        gates = sp.csr_array(self.gates)
        if self.metric is None:
            return gates
        plain = sp.csr_array(gates @ self.root)
        # Gates in the null space of the metric: what rounding leaves of them must not be scaled up.
        size = sp.linalg.norm(gates, axis=1) * sp.linalg.norm(self.root)
        seen = sp.linalg.norm(plain, axis=1) > RANK_TOLERANCE * size
        return sp.csr_array(sp.diags_array(seen.astype(np.float64)) @ plain)

    @cached_property
    def plain_groups(self) -> NDArray[np.int64]:
        """Group of each column of `plain_gates`, shape (M',)."""
        columns = self.root.tocsc()
        first_row = columns.indices[columns.indptr[:-1]]
        return self.groups[first_row]

    def has_gates_of(self, other: MarginProblem) -> bool:
        """Whether inputs, gates and groups are those of another problem on the same samples."""
        return (
            np.array_equal(self.groups, other.groups)
            and np.array_equal(self.X, other.X)
            and (sp.csr_array(self.gates) != sp.csr_array(other.gates)).nnz == 0
        )

    def subset(self, samples: NDArray[np.int64]) -> MarginProblem:
        """Return the same problem on some of the samples (indices)."""
        return MarginProblem(
            self.X[samples],
            self.y[samples],
            self.gates[samples],
            self.groups,
            self.metric,
            self.C,
            self.intercept,
        )

    def _group_sums(self, values: Array) -> Array:
        sums = np.bincount(self.groups, weights=values, minlength=self.n_groups)
        return np.asarray(sums, dtype=np.float64)

    @cached_property
    def _eigen(self) -> dict[int, _Eigen]:
        return {g: _Eigen.of(P) for g, P in (self.metric or {}).items()}

    def _metrics(self) -> Iterator[tuple[int, NDArray[np.int64], _Eigen]]:
        for g, P in self._eigen.items():
            yield g, np.flatnonzero(self.groups == g), P


class HasHiddenLayer(Protocol):
    """What has a hidden layer: a network, or a classifier that trained one."""

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Activations of the last hidden layer, shape (n, H)."""


@dataclass(frozen=True, eq=False)
class Structure:
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

    def problem(self, X: ArrayLike, y: ArrayLike, C: float = np.inf) -> MarginProblem:
        """Margin problem of this structure on data X (N, D), y (N,) in {-1, +1}."""
        inputs = self.inputs(X)
        groups = self.gating.groups if self.groups is None else self.groups
        gates = self.gating.gates(inputs)
        return MarginProblem(inputs, np.asarray(y), gates, groups, self.metric, C)

    def decision(self, X: ArrayLike, coef: Array) -> Array:
        """f(x_n), shape (n,), of inputs X (n, D) and coefficients (M, D)."""
        inputs = self.inputs(X)
        return gated_linear(inputs, self.gating.gates(inputs), coef)


def _as_gates(gates: object) -> GateMatrix:
    if sp.issparse(gates):
        matrix = sp.csr_array(gates, dtype=np.float64)
        as_finite(matrix.data, "gates", 1)
        return matrix
    return as_finite(gates, "gates", 2)  # type: ignore[arg-type]


def _as_groups(groups: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(groups)
    if array.ndim != 1 or len(array) == 0 or not np.issubdtype(array.dtype, np.integer):
        raise ValueError(f"groups must be a 1-D array of integers, got {array.dtype} {array.shape}")
    found = np.unique(array)
    if not np.array_equal(found, np.arange(len(found))):
        raise ValueError(
            f"groups must be numbered 0 .. G - 1 with none left out, got {found[:10]}: "
            "renumber with np.unique(groups, return_inverse=True)[1]"
        )
    return array.astype(np.int64)


def _as_metric(metric: Mapping[int, ArrayLike], groups: NDArray[np.int64]) -> dict[int, Array]:
    if not isinstance(metric, Mapping):
        raise ValueError(
            f"metric must map groups to matrices, as in {{0: P}}, got a {type(metric).__name__}"
        )
    checked = {}
    for g, P in metric.items():
        size = int(np.count_nonzero(groups == g))
        if size == 0:
            raise ValueError(f"metric names group {g!r}, but there is no such group")
        matrix = as_finite(P, f"metric of group {g}", 2)
        if matrix.shape != (size, size):
            raise ValueError(
                f"metric of group {g} must have shape ({size}, {size}), one row a gate column "
                f"of the group, got {matrix.shape}"
            )
        scale = np.abs(matrix).max()
        if not np.allclose(matrix, matrix.T, rtol=0, atol=1e-12 * scale):
            raise ValueError(f"metric of group {g} is not symmetric: pass (P + P') / 2")
        smallest = np.linalg.eigvalsh(matrix)[0]
        if scale == 0 or smallest < -1e-10 * scale * size:
            raise ValueError(
                f"metric of group {g} is not positive semi-definite (or zero): smallest "
                f"eigenvalue {smallest:.3g}"
            )
        root = _Eigen.of(matrix).root
        checked[int(g)] = root @ root.T
    return checked


@dataclass(frozen=True, eq=False)
class _Eigen:
    """A metric P (m, m) by its positive eigenvalues (r,) and their eigenvectors (m, r)."""

    values: Array
    vectors: Array

    @classmethod
    def of(cls, P: Array) -> _Eigen:
        values, vectors = scipy.linalg.eigh(P)
        keep = values > RANK_TOLERANCE * len(P) * values[-1]
        return cls(values[keep], vectors[:, keep])

    @property
    def root(self) -> Array:
        """R (m, r) of full column rank with P = R R'."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    def inverse_square(self, coef: Array) -> float:
        """tr(coef' P^+ coef) for coef (m, D); inf outside the range of P."""
        inside = self.vectors.T @ coef  # (r, D)
        outside = np.linalg.norm(coef - self.vectors @ inside)
        if outside > 1e-9 * np.linalg.norm(coef):
            return np.inf
        return float(np.einsum("rd,rd,r->", inside, inside, 1.0 / self.values))
