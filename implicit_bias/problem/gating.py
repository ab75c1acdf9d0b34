"""Gates z(x): known functions of the input that training does not change.

Every gating maps inputs X (n, D) to a gate matrix Z (n, M), dense or CSR, and names the group
of each of its M columns. The norm makes coefficients of a group zero together: a group is a hidden
unit.

==================  ======================  ==============================  ============
gating              columns M               gates                           groups
==================  ======================  ==============================  ============
HyperplaneContexts  H * C, context fastest  one-hot context of each unit    one per unit
GlobalContexts      contexts that occur     one-hot context of the network  one
UnitGates           H (+ 1 always on)       0/1, or any function of a       one per unit
                                            projection (sigmoid, ...)
NoGates             1                       the constant 1                  one
CombinedGates       any                     those of another gating, times  any
                                            a matrix
==================  ======================  ==============================  ============

Source: Lippl, Abbott, Chung (2022), sections 2, 4 and 5.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import numpy as np
import scipy.linalg
import scipy.sparse as sp
import scipy.special
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.options import ThresholdRule
from implicit_bias.base.validation import (
    Array,
    RandomState,
    as_features,
    as_finite,
    as_generator,
    check_choice,
    check_count,
    check_flag,
    check_shape,
)

if TYPE_CHECKING:
    import torch

GateMatrix: TypeAlias = Array | sp.csr_array
Threshold: TypeAlias = ThresholdRule | Array
GateFunction: TypeAlias = Literal[">", ">=", "sigmoid"] | Callable[[Array], Array]

# Standard deviations of the draws of the source: only their ratio matters, because a
# hyperplane does not change when its normal and its threshold are scaled together.
WEIGHT_SCALE = 36.0
THRESHOLD_SCALE = 9.0
# 65,536 contexts per unit: the shallow networks of the source paper have up to 2^15.
MAX_HYPERPLANES = 16
# Gates as functions of projection minus threshold. The difference has the sign of the comparison,
# whatever its rounding.
FIRINGS: dict[str, Callable[[Array], Any]] = {
    ">": lambda differences: differences > 0,
    ">=": lambda differences: differences >= 0,
    "sigmoid": scipy.special.expit,
}


def dense(values: Any) -> Array:
    """Return gates, a product of such, or inputs, as a dense array."""
    return np.asarray(values.toarray() if sp.issparse(values) else values)


class Gating(ABC):
    """A fixed gate function: inputs (n, D) to gates (n, M), with the group of each column."""

    @property
    @abstractmethod
    def n_features(self) -> int:
        """D, the number of input features."""

    @property
    @abstractmethod
    def groups(self) -> NDArray[np.int64]:
        """Group of each gate column, shape (M,), values 0 .. G - 1."""

    @abstractmethod
    def gates(self, X: ArrayLike) -> GateMatrix:
        """Gate matrix of inputs X (n, D): shape (n, M), dense or CSR."""

    @abstractmethod
    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Count, for each sample (n,), the groups whose context did not occur when fitted.

        Such a context has zero coefficients, so the group adds nothing to the prediction.
        """


@dataclass(frozen=True, eq=False)
class NoGates(Gating):
    """The constant gate 1: the predictor is linear and the problem the classical SVM.

    Examples
    --------
    >>> import numpy as np
    >>> NoGates(2).gates(np.zeros((3, 2))).tolist()
    [[1.0], [1.0], [1.0]]
    """

    n_inputs: int

    def __post_init__(self) -> None:
        check_count(self.n_inputs, "n_inputs")

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return self.n_inputs

    @property
    def groups(self) -> NDArray[np.int64]:
        """One column, one group."""
        return np.zeros(1, dtype=np.int64)

    def gates(self, X: ArrayLike) -> Array:
        """Ones, shape (n, 1)."""
        return np.ones((len(as_features(X, self.n_inputs)), 1))

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Zeros (n,): there is one context, and it always occurs."""
        return np.zeros(len(as_features(X, self.n_inputs)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class HyperplaneContexts(Gating):
    """Contexts of a gated linear network: k hyperplanes per unit cut the input space in C = 2^k.

    Column ``h * C + c`` is 1 where unit h is in context c: the unit is the slow index, the
    context the fast one, and the first hyperplane is the most significant bit of c.

    Parameters
    ----------
    weights : ndarray of shape (H, k, D)
        Normals of the hyperplanes.
    thresholds : ndarray of shape (H, k)
        A hyperplane fires where its projection is strictly greater than its threshold.
    occurs : ndarray of bool, shape (H, C)
        The contexts that occurred in the data the gating was fitted on.
    single_precision : bool
        Project in float32; a sample within rounding of a hyperplane
        may then fall on its other side.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-1.0], [1.0]])
    >>> contexts = HyperplaneContexts.random(X, 3, 1, random_state=0)
    >>> contexts.gates(X).shape  # 3 units of 2 contexts
    (2, 6)
    """

    weights: Array
    thresholds: Array
    occurs: NDArray[np.bool_]
    single_precision: bool = False

    @classmethod
    def from_hyperplanes(
        cls,
        X: ArrayLike,
        weights: ArrayLike,
        thresholds: ArrayLike,
        *,
        single_precision: bool = False,
    ) -> HyperplaneContexts:
        """Build the contexts of given hyperplanes and record which of them occur in X.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs.
        weights : array_like of shape (H, k, D)
            Normals.
        thresholds : array_like of shape (H, k)
            Thresholds.
        single_precision : bool
            As in the class.

        Raises
        ------
        ValueError
            Shapes that do not fit, NaN or infinity; more hyperplanes per unit than
            `MAX_HYPERPLANES`.
        """
        weights = as_finite(weights, "weights", 3)
        thresholds = as_finite(thresholds, "thresholds", 2)
        check_shape(thresholds, "thresholds", weights.shape[:2], "(H, k), as of weights (H, k, D)")
        n_units, n_hyperplanes = thresholds.shape
        check_count(n_hyperplanes, "n_hyperplanes", 0, MAX_HYPERPLANES)
        # The contexts of X are known once there is a gating: ``occurs`` is filled in afterwards.
        occurs = np.zeros((n_units, 2**n_hyperplanes), dtype=bool)
        fitted = cls(weights, thresholds, occurs, single_precision)
        contexts = fitted.contexts(X)
        fitted.occurs[np.arange(n_units), contexts] = True  # broadcasts over samples (n, H)
        return fitted

    @classmethod
    def random(
        cls,
        X: ArrayLike,
        n_units: int,
        n_hyperplanes: int = 1,
        *,
        threshold: Threshold = "median",
        reference: ArrayLike | None = None,
        random_state: RandomState = None,
    ) -> HyperplaneContexts:
        """Draw Gaussian hyperplanes, as in section 4 of the source.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs.
        n_units, n_hyperplanes : int
            H and k.
        threshold : {"median", "random", "zero"} or array_like of shape (H, k)
            Median of each projection over ``reference`` (for an odd number of samples, half way
            to the next larger one, so that none lies on it); Gaussian; zero; or given.
        reference : array_like of shape (n', D), optional
            The inputs whose median is taken; X where not given.
        random_state : int, numpy Generator or None
            Seed of the draws.
        """
        X = as_finite(X, "X", 2)
        check_count(n_units, "n_units")
        check_count(n_hyperplanes, "n_hyperplanes", 0, MAX_HYPERPLANES)  # none is one context
        rng = as_generator(random_state)
        shape = (n_units, n_hyperplanes)
        weights = rng.normal(0.0, WEIGHT_SCALE, (*shape, X.shape[1]))
        # Drawn even if other thresholds are chosen: later draws of the generator stay the same.
        drawn = rng.normal(0.0, THRESHOLD_SCALE, shape)
        if reference is None:
            reference = X
        thresholds = _thresholds(threshold, weights, drawn, as_features(reference, X.shape[1]))
        return cls.from_hyperplanes(X, weights, thresholds)

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return int(self.weights.shape[2])

    @property
    def n_units(self) -> int:
        """H, the number of hidden units."""
        return int(self.weights.shape[0])

    @property
    def n_contexts(self) -> int:
        """C = 2^k, the number of contexts of a unit."""
        return int(2 ** self.weights.shape[1])

    @property
    def groups(self) -> NDArray[np.int64]:
        """Column h * C + c belongs to unit h."""
        return np.repeat(np.arange(self.n_units), self.n_contexts)

    def fires(self, X: ArrayLike) -> NDArray[np.bool_]:
        """Which hyperplanes fire, shape (n, H, k)."""
        X = as_features(X, self.n_features)
        return _projections(X, self.weights, self.single_precision) > self.thresholds

    def contexts(self, X: ArrayLike) -> NDArray[np.int64]:
        """Context of each unit, shape (n, H), values 0 .. C - 1."""
        n_hyperplanes = self.weights.shape[1]
        # The first hyperplane is the most significant bit, as in the source.
        significance = 2 ** np.arange(n_hyperplanes - 1, -1, -1)
        contexts: NDArray[np.int64] = self.fires(X) @ significance
        return contexts

    def columns(self, X: ArrayLike) -> NDArray[np.int64]:
        """Gate column h * C + c that is on for each unit, shape (n, H)."""
        return self.contexts(X) + self.n_contexts * np.arange(self.n_units)

    def gates(self, X: ArrayLike) -> sp.csr_array:
        """One-hot contexts, shape (n, H * C), CSR with exactly H ones per row."""
        return _one_hot(self.columns(X), self.n_units * self.n_contexts)

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Count, for each sample (n,), the units in a context that training never saw."""
        # Unit h looks up row h, at its own context: (H,) and (n, H) broadcast to (n, H).
        seen = self.occurs[np.arange(self.n_units), self.contexts(X)]
        return np.count_nonzero(~seen, axis=1).astype(np.int64)


@dataclass(frozen=True, eq=False)
class GlobalContexts(Gating):
    """One column for each joint context of all units that occurs in the training data.

    The network of one layer ("shallow GLN") has one weight vector for each joint context. Of
    the C^H contexts few occur, and only these get a column; elsewhere every gate is 0 and the
    prediction is 0, an error by either label.

    Parameters
    ----------
    local : HyperplaneContexts
        The hyperplanes.
    codes : ndarray of uint8, shape (M, ceil(H * k / 8))
        The hyperplanes' bits in each context that occurred, packed; in lexicographic order.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-1.0], [1.0], [2.0]])
    >>> local = HyperplaneContexts.random(X, 2, 1, random_state=0)
    >>> GlobalContexts.collapse(local, X).gates(X).sum(axis=1).tolist()  # one of them
    [1.0, 1.0, 1.0]
    """

    local: HyperplaneContexts
    codes: NDArray[np.uint8]

    @classmethod
    def collapse(cls, local: HyperplaneContexts, X: ArrayLike) -> GlobalContexts:
        """Keep the joint contexts of ``local`` that occur in the training inputs X (n, D)."""
        return cls(local, np.unique(_packed(local.fires(X)), axis=0))

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return self.local.n_features

    @property
    def groups(self) -> NDArray[np.int64]:
        """All columns in one group."""
        return np.zeros(len(self.codes), dtype=np.int64)

    def contexts(self, X: ArrayLike) -> NDArray[np.int64]:
        """Column of each sample, shape (n,); -1 in a context that training never saw."""
        # The packed bits of a joint context serve as its key.
        column = {code.tobytes(): m for m, code in enumerate(self.codes)}
        packed = _packed(self.local.fires(X))
        return np.array([column.get(code.tobytes(), -1) for code in packed], dtype=np.int64)

    def gates(self, X: ArrayLike) -> sp.csr_array:
        """One-hot contexts, shape (n, M); a row of an unseen context is empty."""
        return _one_hot(self.contexts(X)[:, None], len(self.codes))

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """1 for each sample (n,) in a context that training never saw, else 0."""
        return (self.contexts(X) < 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class UnitGates(Gating):
    """One gate per hidden unit: 0/1 as in a ReLU network with fixed gates, or any other scalar.

    Parameters
    ----------
    weights : ndarray of shape (H, D)
        Gate direction of each unit.
    thresholds : ndarray of shape (H,)
        Compared with, or subtracted from, the projections.
    firing : {">", ">=", "sigmoid"} or callable
        ">" and ">=" are open where the projection is greater than the threshold, or not smaller.
        "sigmoid" is the logistic function of their difference (soft GaLU, Fiat et al. 2019). A
        function of the difference is applied to all entries (n, H) at once, such as ``np.tanh``.
    always_on : bool
        Append one unit whose gate is 1 everywhere, so that no sample has all gates off.
    single_precision : bool
        As in `HyperplaneContexts`.

    Examples
    --------
    >>> import numpy as np
    >>> gating = UnitGates(np.array([[1.0], [-1.0]]), np.zeros(2), always_on=True)
    >>> gating.gates(np.array([[2.0], [-3.0]])).tolist()
    [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    """

    weights: Array
    thresholds: Array
    firing: GateFunction = ">"
    always_on: bool = False
    single_precision: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", as_finite(self.weights, "weights", 2))
        object.__setattr__(self, "thresholds", as_finite(self.thresholds, "thresholds", 1))
        check_shape(self.thresholds, "thresholds", self.weights.shape[:1], "one per row of weights")
        check_flag(self.always_on, "always_on")
        if not callable(self.firing):
            check_choice(self.firing, "firing", FIRINGS, "a function of the differences (n, H)")

    @classmethod
    def random(
        cls,
        X: ArrayLike,
        n_units: int,
        *,
        init: Literal["normal", "orthogonal"] = "normal",
        threshold: Threshold = "median",
        firing: GateFunction = ">=",
        always_on: bool = True,
        random_state: RandomState = None,
    ) -> UnitGates:
        """Draw the gates of SVM-RC: normal or orthogonal directions.

        The source has ">=" and a unit that is always on. Without it some samples have all gates
        off.

        Parameters
        ----------
        X : array_like of shape (n, D)
            Training inputs; the median is taken over them.
        n_units : int
            H, without the always-on unit.
        init : {"normal", "orthogonal"}
            Rows independent N(0, 1/D), or orthonormal (columns, where H > D).
        threshold : {"median", "random", "zero"} or array_like of shape (H,)
            As in `HyperplaneContexts.random`.
        firing, always_on
            As in the class.
        random_state : int, numpy Generator or None
            Seed of the draws.
        """
        X = as_finite(X, "X", 2)
        check_count(n_units, "n_units")
        check_choice(init, "init", ("normal", "orthogonal"))
        rng = as_generator(random_state)
        n_features = X.shape[1]
        weights = rng.normal(0.0, 1.0 / math.sqrt(n_features), (n_units, n_features))
        # The weights are scaled otherwise than in the source, thresholds have its ratio to them.
        ratio = THRESHOLD_SCALE / WEIGHT_SCALE
        drawn = rng.normal(0.0, ratio / math.sqrt(n_features), n_units)
        if init == "orthogonal":
            weights = _orthogonal(weights)
        return cls(weights, _thresholds(threshold, weights, drawn, X), firing, always_on)

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return int(self.weights.shape[1])

    @property
    def groups(self) -> NDArray[np.int64]:
        """One group per column; the always-on unit is the last."""
        return np.arange(len(self.weights) + self.always_on)

    def gates(self, X: ArrayLike) -> Array:
        """Gates of the units, shape (n, H) or (n, H + 1), dense."""
        X = as_features(X, self.n_features)
        projections = _projections(X, self.weights, self.single_precision)
        firing = self.firing if callable(self.firing) else FIRINGS[self.firing]
        found = firing(projections - self.thresholds)
        gates = as_finite(found, "the gates that firing returns", 2)
        check_shape(gates, "the gates that firing returns", projections.shape, "one per entry")
        if self.always_on:
            gates = np.column_stack([gates, np.ones(len(X))])
        return gates

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Zeros (n,): the coefficients of a unit apply wherever its gate is open."""
        return np.zeros(len(as_features(X, self.n_features)), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class CombinedGates(Gating):
    r"""Gates Z R, combinations of another gating's Z.

    With P = R R', R of full column rank, coefficients zeta = R u of Z have the norm
    ||u|| = sqrt(tr(zeta' P^+ zeta)): a quadratic form is the Euclidean norm of other gates.

    Parameters
    ----------
    gating : Gating
        Z (n, M) of inputs.
    combination : ndarray of shape (M, M')
        R.
    group_of : ndarray of int, shape (M',)
        Group of each column of Z R.

    Examples
    --------
    >>> import numpy as np
    >>> CombinedGates(NoGates(2), np.array([[3.0]]), np.zeros(1, int)).gates(np.ones((1, 2)))
    array([[3.]])
    """

    gating: Gating
    combination: Array
    group_of: NDArray[np.int64]

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return self.gating.n_features

    @property
    def groups(self) -> NDArray[np.int64]:
        """Group of each column, shape (M',)."""
        return self.group_of

    def gates(self, X: ArrayLike) -> Array:
        """Z R, shape (n, M')."""
        return np.asarray(self.gating.gates(X) @ self.combination)

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Those of the gating that is combined."""
        return self.gating.unseen(X)


def l2_combination(n_units: int, n_contexts: int) -> Array:
    r"""R of SVM-L2: with zeta = R u, ||u|| is the exact ||beta||_2 over all C^H joint contexts.

    With beta_gamma = sum_h zeta_{h, gamma_h}, ||beta||^2 = C^(H-2) tr(zeta' A zeta) where
    A = C I + J - B, J all ones and B block ones. Its pseudo-inverse P = R R' has the kernel mask
    (agree(n, m) - (H - 1) / C) / C, agree = number of units whose contexts coincide, and is
    (I - B / C) / C + J / (H C)^2. The factor C^(H-2), which would overflow, is left out: the norm
    is ||beta||_2 / C^((H-2)/2).

    Parameters
    ----------
    n_units, n_contexts : int
        H and C, in the column order of `HyperplaneContexts`.

    Returns
    -------
    ndarray of shape (H C, H (C - 1) + 1)
        Of each unit C - 1 columns that sum to 0 over its contexts, and last a constant one.

    Notes
    -----
    Replaces eq. (23)/(25) of Lippl et al. (2022), which is not the root of their (24).
    """
    # Helmert's rows are orthonormal and sum to 0: R R' = (I - B / C) / C + J / (H C)^2.
    of_unit = scipy.linalg.helmert(n_contexts).T / np.sqrt(n_contexts)
    size = n_units * n_contexts
    return np.hstack([np.kron(np.eye(n_units), of_unit), np.full((size, 1), 1.0 / size)])


def l2_gates(contexts: HyperplaneContexts) -> CombinedGates:
    """Gates of SVM-L2, in one group: contexts (n, H C) times `l2_combination`.

    Examples
    --------
    >>> import numpy as np
    >>> contexts = HyperplaneContexts.random(np.eye(3), n_units=2, random_state=0)
    >>> l2_gates(contexts).gates(np.eye(3)).shape
    (3, 3)
    """
    R = l2_combination(contexts.n_units, contexts.n_contexts)
    return CombinedGates(contexts, R, np.zeros(R.shape[1], dtype=np.int64))


def _projections(X: Array, weights: Array, single_precision: bool = False) -> Array:
    """Projections of X (n, D) on weights (..., D): shape (n, ...), row-major."""
    check_flag(single_precision, "single_precision")
    flat = weights.reshape(math.prod(weights.shape[:-1]), weights.shape[-1])
    if single_precision:
        import torch

        single = single_precision_projections(X, torch.tensor(flat, dtype=torch.float32))
        projections = single.double().numpy()
    else:
        projections = X @ flat.T
    return projections.reshape(len(X), *weights.shape[:-1])


def single_precision_projections(X: Array, weights: torch.Tensor) -> torch.Tensor:
    """Projections of X (n, D) on float32 weights (H, D), as torch rounds them: (n, H)."""
    import torch

    return torch.tensor(X, dtype=torch.float32) @ weights.T


def _thresholds(threshold: Threshold, weights: Array, drawn: Array, reference: Array) -> Array:
    """Thresholds, shaped like ``drawn``, by the rule that the user chose, or those given."""
    if not isinstance(threshold, str):
        given = as_finite(threshold, "threshold", drawn.ndim)
        check_shape(given, "threshold", drawn.shape, "one per hyperplane")
        return given
    check_choice(threshold, "threshold", get_args(ThresholdRule), "an array")
    if threshold == "random":
        return drawn
    if threshold == "zero":
        return np.zeros_like(drawn)
    if len(reference) == 0:
        raise ValueError("no samples have a median: pass at least one, or other thresholds")
    return _median(_projections(reference, weights))


def _median(projections: Array, tie: float = 1e-12) -> Array:
    """Median over the samples (axis 0), moved to where no sample lies.

    With an odd number of samples the median is one of them, and rounding would decide on which
    side it lies. So the threshold is half way to the next larger projection. Projections that
    differ by at most the fraction ``tie`` of the largest one are of equal samples, and count as
    one. If none is larger, the threshold is half way to the next smaller one.
    """
    n = len(projections)
    rank = (n - 1) // 2
    ranks = [rank, min(rank + 1, n - 1)]
    lower, upper = np.partition(projections, ranks, axis=0)[ranks]
    middle: Array = (lower + upper) / 2
    equal = tie * np.abs(projections).max(axis=0)
    # Where the two middle ones differ, no sample lies at their mean. The other columns are left.
    for column in zip(*np.nonzero(upper - lower <= equal), strict=True):
        values = np.sort(projections[(slice(None), *column)])
        # The gap is between values[gap - 1] and values[gap].
        gap = np.searchsorted(values, lower[column] + equal[column], side="right")
        if gap == n:  # nothing is above
            gap = np.searchsorted(values, lower[column] - equal[column])
        if gap > 0:
            middle[column] = (values[gap - 1] + values[gap]) / 2
        else:  # all samples are equal: the threshold is below all of them
            middle[column] = lower[column] - (abs(lower[column]) or 1.0)
    return middle


def _one_hot(columns: NDArray[np.int64], n_columns: int) -> sp.csr_array:
    """CSR matrix (n, n_columns) with ones at the columns (n, H) of each row; none at -1."""
    there = columns >= 0
    # A row of a CSR array begins where the entries of the rows before it end.
    indptr = np.concatenate([[0], np.cumsum(there.sum(axis=1))])
    return sp.csr_array(
        (np.ones(indptr[-1]), columns[there], indptr), shape=(len(columns), n_columns)
    )


def _packed(fires: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Bits (n, H, k) packed row-major into (n, ceil(H k / 8)) bytes."""
    n, n_units, n_hyperplanes = fires.shape
    return np.packbits(fires.reshape(n, n_units * n_hyperplanes), axis=1)


def _orthogonal(weights: Array) -> Array:
    """Orthonormal rows (or columns, where H > D) from Gaussian weights (H, D), drawn uniformly."""
    wide = weights.shape[0] < weights.shape[1]
    tall = weights.T if wide else weights
    q, r = np.linalg.qr(tall)
    # With a positive diagonal of r the decomposition is unique, and q has the Haar measure.
    q *= np.sign(np.diag(r))
    return np.ascontiguousarray(q.T if wide else q)
