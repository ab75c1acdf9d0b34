r"""The margin problem: one convex optimization problem behind every model.

Primal  minimize  Omega(zeta) + sum_n C_n xi_n,  Omega(zeta) = sum_g ||zeta_g||
        subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0   (C = inf: xi = 0, the hard margin)
Dual    maximize  sum_n alpha_n
        subject to  0 <= alpha_n <= C_n,  ||V_g(alpha)|| <= 1,  sum_n alpha_n y_n = 0
The offset b and the last equation belong to problems with intercept=True; without, b = 0. Any norm
of `norms` may stand for Omega, its dual norm then for the maximum of ||V_g||.

=========  ============  ====================================================================
X          (N, D)        inputs
y          (N,)          labels, -1 or +1
Z          (N, M)        gates z_m(x_n), any real numbers, dense or sparse
groups     (M,)          group of each gate column, 0 .. G - 1
zeta       (M, D)        coefficients; f(x) = sum_m z_m(x) <zeta_m, x>
alpha      (N,)          dual variables
C          () or (N,)    weight of the samples' hinge losses, one for all or one each
V          (M, D)        V_m = sum_n alpha_n y_n z_m(x_n) x_n
=========  ============  ====================================================================

In kernels ||V_g||^2 = alpha' Q_g alpha with Q_g = (y y') o (X X') o (Z_g Z_g'): hard-margin
multiple kernel learning in which every structure is a mask on one Gram matrix. The feature
matrix (N, M D) is never formed.

Many classes, labels 0 .. K - 1, have one predictor each, f_k(x) + b_k with
f_k(x) = sum_m z_m(x) <zeta_km, x>, and a margin for each rival k of a sample's own class:

Primal  minimize  Omega(zeta) + sum_n C_n xi_n
        subject to  f_{y_n}(x_n) + b_{y_n} - f_k(x_n) - b_k >= 1 - xi_n  for all k != y_n,  xi >= 0
Dual    maximize  sum_nk alpha_nk
        subject to  alpha >= 0,  sum_k alpha_nk <= C_n,  Omega_*(V) <= 1,  sum_n a_n = 0
        with a_n = sum_k alpha_nk (e_{y_n} - e_k)  and  V = sum_n a_n (x) z(x_n) (x) x_n

Then zeta and V have shape (K, M, D), alpha has (N, K) with alpha_{n, y_n} = 0, b has (K,), and in
kernels there is one more mask, <e_{y_n} - e_k, e_{y_m} - e_l> for the pairs (n, k) and (m, l).
Inside the package two classes are the case K' = 1 (`constraints`): norms and features see
coefficients (K', M, D), and only the arrays that callers pass and receive lack the first axis.
K = 2 is the binary problem with zeta_1 = -zeta_0 = zeta / 2; its optimum is the binary one divided
by the root of 2 (l2, spectral, nuclear), by 1 (l1), by 2 (l_inf).

Sources: Lippl, Abbott, Chung (2022), sections 3 and 4, as one problem for all their models; Crammer
and Singer (2001) for the margins and the hinge loss of many classes.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base import validation
from implicit_bias.base.rounding import sum_up
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    GroupNorm,
    HasValueAndDual,
    Norm,
    Partition,
    as_groups,
    as_norm,
    as_norm_of_one_row,
)
from implicit_bias.norms.named import name_of
from implicit_bias.problem.constraints import Constraints
from implicit_bias.problem.features import Features, decision
from implicit_bias.problem.gating import GateMatrix, Gating, NoGates

# The square of a smaller norm of features is not computed accurately.
SMALLEST_FEATURE_NORM = 1e-150


@dataclass(frozen=True, eq=False)
class MarginProblem:
    """Max-margin problem of gated linear predictors under a norm, of two classes or more.

    ::

        minimize  Omega(zeta) + sum_n C_n xi_n  subject to  y_n (f(x_n) + b) >= 1 - xi_n,  xi >= 0

    with f(x) = sum_m z_m(x) <zeta_m, x>, and b = 0 without an intercept. At the hard margin xi = 0.
    With K > 2 classes the margins are f_{y_n}(x_n) - f_k(x_n) for all other classes k.

    Properties are cached, so the arrays of a problem must not change: they are read-only, and
    copies where the caller could still write to the given ones. Arrays that were read-only before
    (those of a `Dataset`, or of another problem) are shared.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs; append a constant 1 where the predictors should have an offset.
    y : array_like of shape (N,)
        Labels: -1 and +1, or integers 0 .. K - 1 for K > 2 classes.
    gates : array_like or scipy sparse array of shape (N, M)
        Gate of each column at each sample, any real numbers.
        `max_margin` builds the problem of a linear model, which has none.
    groups : array_like of int, shape (M,)
        Group of each gate column in the group norm, see `GroupNorm`; not needed with another norm.
    C : float or array_like of shape (N,)
        Weight of the hinge loss in (0, inf], or that of each sample's; inf is the hard margin.
        Either all are finite or none is: a C_n above the sample's alpha_n acts as an infinite one.
        Equal ones are kept as a number. The norm is not squared, unlike scikit-learn's: the
        problem is ||w|| + C hinge here, ||w||^2 / 2 + C hinge in ``SVC``. With two
        classes, l2 and an intercept both have the same w if the C of ``SVC`` is ||w|| times this C.
    norm : Norm or str, optional
        Any norm of `implicit_bias.norms`, by name or as an object, instead of the group norm; then
        ``groups`` are not used. A `GroupNorm` must have these groups.
    intercept : bool
        Whether each predictor has an unpenalized intercept, ungated and not in the norm.
    classes : int, optional
        K, where K = 2, or where these are some samples of a larger problem. `solve` needs samples
        of each class.

    Attributes
    ----------
    gate_norm : GroupNorm
        The norm itself, if it is given as ``groups`` alone, as a `GroupNorm`, or, with two classes,
        as another sum of Euclidean norms over groups of gate columns, such as l2 (then ``groups``
        are replaced by those of the norm). Else the norm of ``groups``, which is not used.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1 or 0 .. K - 1, groups that are not
        0 .. G - 1, C not positive or finite for some samples only, values whose squares over- or
        underflow, or an intercept with one class only, where an offset alone separates and the
        optimum is 0.
    TypeError
        Not a norm.

    Examples
    --------
    Two gates that are never on together make two classifiers of one input; each is a group.

    >>> import numpy as np
    >>> from implicit_bias import MarginProblem, solve
    >>> X, y = np.array([[1.0], [2.0], [1.0], [4.0]]), np.array([1.0, 1.0, -1.0, -1.0])
    >>> gates = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    >>> solution = solve(MarginProblem(X, y, gates, groups=np.array([0, 1])))
    >>> print(solution.coef.round(4).ravel() + 0.0)
    [ 1. -1.]

    Of two labels of one input the heavier one wins, at the cost of the other's hinge loss.

    >>> weighted = solve(max_margin([[1.0], [1.0]], [1, -1], C=[4.0, 1.0]))
    >>> print(weighted.coef.round(4), round(weighted.certificate.upper, 4))
    [[1.]] 3.0
    """

    X: Array
    y: Array
    gates: GateMatrix = cast(GateMatrix, None)
    groups: NDArray[np.int64] = cast("NDArray[np.int64]", None)
    C: float | Array = np.inf
    norm: Norm = cast(Norm, None)  # None is replaced by the group norm
    intercept: bool = False
    _: KW_ONLY
    classes: int | None = None
    gate_norm: GroupNorm = field(init=False)

    def __repr__(self) -> str:
        """Return sizes, norm and C.

        Examples
        --------
        >>> max_margin(np.eye(3), [0, 1, 2], "linf")
        MarginProblem(N=3 samples, D=3 features, M=1 gates, 3 classes, norm linf, C=inf)
        """
        groups = f" in {self.n_groups} groups" if self.has_group_norm else ""
        norm = "of groups" if groups else name_of(self.norm)
        return (
            f"MarginProblem(N={self.n_samples} samples, D={self.X.shape[1]} features, "
            f"M={self.n_gates} gates{groups}, {self.constraints.n_classes} classes, norm {norm}, "
            f"C={C_in_words(self.C)}{', intercept' if self.intercept else ''})"
        )

    def __post_init__(self) -> None:
        if self.gates is None:
            raise ValueError(
                "MarginProblem(X, y) lacks gates: pass those of each sample, (N, M), and the "
                "groups of their columns, or build a problem without gates by max_margin(X, y)"
            )
        # Each field by itself: of its type, finite, and an array that nobody else can change.
        X = validation.owned(validation.as_finite(self.X, "X", 2), self.X)
        n, D = X.shape
        if D == 0:
            raise ValueError(f"X has no features: shape {X.shape}")
        labels, classes = validation.as_class_labels(self.y, n, self.classes)
        y = validation.owned(labels, self.y)
        gates = as_gates(self.gates)
        if gates.shape[0] != n:
            raise ValueError(f"gates must have one row per sample: {n}, got {gates.shape[0]}")
        # What the fields must be beside each other.
        if not isinstance(self.intercept, bool | np.bool_):
            raise ValueError(f"intercept must be True or False, got {self.intercept!r}")
        if self.intercept and (y == y[0]).all():
            raise ValueError(
                "all labels are equal, so the intercept alone separates and the optimum is 0: "
                "pass samples of both classes, or intercept=False"
            )
        shape = (classes or 1, gates.shape[1], D)
        gate_norm, norm = _as_norms(self.norm, self.groups, shape)
        checked = {
            "X": X,
            "y": y,
            "gates": gates,
            "groups": gate_norm.groups,
            "C": _as_weights(self.C, n),
            "norm": norm,
            "classes": classes,
            "gate_norm": gate_norm,
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)  # the class is frozen

        # Properties of the whole: they are computed from the fields, which are in place now.
        norms = self.feature_norms
        if (
            not np.isfinite(norms).all()
            or (norms[~self.zero_features] < SMALLEST_FEATURE_NORM).any()
        ):
            raise ValueError(
                "the squares of X or of the gates over- or underflow: multiply X by a constant "
                "that makes its entries about 1 (the optimum is divided by that constant)"
            )
        _ = self.n_groups  # evaluates the dual norm: a norm whose groups do not fit raises here

    def __getstate__(self) -> dict[str, Any]:
        """Return the fields alone: cached properties are computed anew after unpickling."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore the fields, with their arrays read-only."""
        for name, value in state.items():
            object.__setattr__(self, name, value)
        for array in (self.X, self.y, self.C, *_arrays_of(self.gates)):
            if isinstance(array, np.ndarray):
                array.setflags(write=False)

    @property
    def n_samples(self) -> int:
        """N."""
        return len(self.y)

    @property
    def n_gates(self) -> int:
        """M."""
        return len(self.groups)

    @cached_property
    def n_groups(self) -> int:
        """G: the terms of the norm, 1 where it is no sum over groups."""
        return len(self.norm.dual_norms(np.zeros(self.norm_shape)))

    @cached_property
    def sample_classes(self) -> NDArray[np.int64]:
        """Class of each sample, (N,): 0 .. K - 1; with labels +1 and -1, 0 is +1 and 1 is -1."""
        return self.constraints.sample_classes

    @property
    def alpha_shape(self) -> tuple[int, ...]:
        """Shape of dual variables: (N,), or (N, K) with many classes."""
        return self.constraints.alpha_shape

    @property
    def coef_shape(self) -> tuple[int, ...]:
        """Shape of coefficients: (M, D), or (K, M, D) with many classes."""
        return (*self.alpha_shape[1:], self.n_gates, self.X.shape[1])

    @property
    def norm_shape(self) -> tuple[int, int, int]:
        """Shape (K', M, D) in which a norm sees the coefficients; K' = 1 with two classes."""
        return (self.constraints.width, self.n_gates, self.X.shape[1])

    @property
    def has_group_norm(self) -> bool:
        """Whether the norm is that of groups of gate columns."""
        return self.norm is self.gate_norm

    @property
    def is_binary_group_lasso(self) -> bool:
        """Whether there are two classes, and the norm is that of groups of gate columns."""
        return self.has_group_norm and self.norm_shape[0] == 1

    @property
    def no_offset(self) -> float | Array:
        """The intercept of predictors without an offset: 0.0, or zeros (K,) with many classes."""
        return self.as_intercept(np.zeros(self.norm_shape[0]))

    def as_intercept(self, offsets: NDArray[Any]) -> float | Array:
        """Return the intercept, a number or (K,) with many classes, from offsets (K',)."""
        if self.alpha_shape[1:]:
            return offsets
        return offsets.item(0)

    @cached_property
    def hard_margin(self) -> bool:
        """Whether C is infinite."""
        return bool(np.isinf(self.C).all())

    @cached_property
    def box(self) -> Array:
        """C of each sample, (N,): its dual variables are in a box, 0 <= sum_k alpha_nk <= C_n."""
        return np.broadcast_to(np.float64(self.C), self.n_samples)

    @cached_property
    def shares(self) -> Array:
        """C of each sample as a fraction of the largest one, (N,); ones with the hard margin."""
        if self.hard_margin:
            return np.ones(self.n_samples)
        return self.box / self.box.max()

    @cached_property
    def value_of_zero(self) -> float:
        """The primal value of zeta = 0 with its best offsets, rounded up.

        With a hard margin it is infinite, as zeta = 0 separates nothing. Else without offsets each
        sample has the loss 1: sum_n C_n. Offsets in favour of the class of the largest total C cost
        2 C_n for each sample of the others, which may be less.
        """
        if self.hard_margin:
            return math.inf
        value = sum_up(self.box.tolist())
        if self.intercept:
            others = self.sample_classes != np.bincount(self.sample_classes, self.shares).argmax()
            value = min(value, 2.0 * sum_up(self.box[others].tolist()))
        return value

    @cached_property
    def features(self) -> Features:
        """Features of the samples."""
        return Features(self.X, self.gates, self.groups)

    @cached_property
    def partition(self) -> Partition | None:
        """The norm as a sum over parts of the coefficients, if it is one; see `Norm.partition`."""
        return self.norm.partition(self.norm_shape)

    @cached_property
    def constraints(self) -> Constraints:
        """The constraints: one per pair of a sample and a rival class."""
        return Constraints.of_labels(self.y, self.classes, self.intercept)

    def decision(self, coef: Array) -> Array:
        """f(x_n), shape (N,) or (N, K), of coefficients, without the intercept."""
        return self.features.scores(coef.reshape(self.norm_shape)).reshape(self.alpha_shape)

    def margins(self, decision: Array, intercept: float | Array = 0.0) -> Array:
        """y_n (f(x_n) + b), shape (N,); with classes, the smallest margin of each sample."""
        rows = self.constraints
        return rows.smallest(rows.margins(self._by_class(decision + intercept)))

    def weights(self, alpha: Array) -> Array:
        """alpha_n y_n, shape (N,), or a_n = sum_k alpha_nk (e_{y_n} - e_k), shape (N, K)."""
        rows = self.constraints
        return rows.weights(rows.alpha_of_rows(alpha)).reshape(self.alpha_shape)

    def totals(self, alpha: Array) -> Array:
        """Sum of each sample's dual variables, sum_k alpha_nk, shape (N,)."""
        rows = self.constraints
        return rows.totals(rows.alpha_of_rows(alpha))

    def dual_vectors(self, alpha: Array) -> Array:
        """V_m = sum_n alpha_n y_n z_m(x_n) x_n, shape (M, D), or (K, M, D) of alpha (N, K).

        Samples without features are left out: all that they add is rounding or overflow.
        """
        return self.features.adjoint(self._by_class(self.weights(alpha))).reshape(self.coef_shape)

    def group_norms(self, coef: Array) -> Array:
        """||zeta_g|| of each group, shape (G,)."""
        return self.norm.group_norms(coef.reshape(self.norm_shape))

    def coef_of(self, alpha: Array, group_norms: Array) -> Array:
        """Return zeta_g = d_g V_g(alpha), as KKT demands, from alpha and d (G,).

        At an optimum d_g is ||zeta_g||, as ||V_g|| = 1 where zeta_g is not 0. The norm is a sum of
        Euclidean norms over groups, which need not be groups of gate columns.
        """
        V = self.dual_vectors(alpha)
        if self.has_group_norm:
            return self.gate_norm.aligned(V, group_norms)
        partition = cast(Partition, self.partition)
        return V * group_norms[partition.groups].reshape(V.shape)

    def dual_norms(self, alpha: Array) -> Array:
        """||V_g(alpha)|| of each group, shape (G,)."""
        return self.norm.dual_norms(self.dual_vectors(alpha).reshape(self.norm_shape))

    @property
    def feature_norms(self) -> Array:
        """Norm of each sample's feature vector, sqrt(sum_g Q_g[n, n]), shape (N,)."""
        return self.features.norms

    @property
    def zero_features(self) -> NDArray[np.bool_]:
        """Samples whose features are all 0 (gates off, or an input of zeros), shape (N,)."""
        return self.features.zero

    @cached_property
    def scale(self) -> float:
        """Root mean square of the feature norms; 1 where all features are 0."""
        return float(np.sqrt(np.mean(self.feature_norms**2))) or 1.0

    def gram(self, group: int) -> Array:
        """Q_g = (y y') o (X X') o (Z_g Z_g') of two classes, shape (N, N)."""
        return np.outer(self.y, self.y) * self.features.row_gram(group)

    def has_features_of(self, other: MarginProblem) -> bool:
        """Whether inputs, gates and groups are those of another problem on the same samples."""
        return (
            np.array_equal(self.groups, other.groups)
            and np.array_equal(self.X, other.X)
            # Both as sparse arrays, as one of them may hold its gates dense.
            and (sp.csr_array(self.gates) != sp.csr_array(other.gates)).nnz == 0
        )

    def subset(self, samples: NDArray[np.int64]) -> MarginProblem:
        """Return the same problem on some of the samples (indices).

        Raises
        ------
        ValueError
            Samples of one class only, where the problem has an intercept.
        """
        index = np.asarray(samples)
        X = self.X[index]
        X.setflags(write=False)  # nobody else has it, so that the problem need not copy it
        C = self.C
        if isinstance(C, np.ndarray):
            C = C[index]
        return replace(self, X=X, y=self.y[index], gates=self.gates[index], C=C)

    def _by_class(self, values: Array) -> Array:
        """Return values of the samples, (N,) or (N, K), as (N, K'): one column with two classes."""
        return values.reshape(self.n_samples, -1)


@runtime_checkable
class HasHiddenLayer(Protocol):
    """Something with a hidden layer: a network, or a classifier that trained one."""

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Activations of the last hidden layer, shape (n, H)."""


@dataclass(frozen=True, eq=False)
class Architecture:
    """What an architecture fixes: its gates, and how they are grouped.

    Parameters
    ----------
    gating : Gating
        The gates of any input.
    groups : ndarray of int, shape (M,), optional
        Group of each gate column; the gating's own where not given.
    representation : object with ``hidden_activations(X)``, optional
        A trained network whose hidden activations (n, H) are what gates and coefficients apply
        to; the inputs themselves where not given.
    norm : Norm, optional
        Instead of the group norm, as in `MarginProblem`.
    apart : bool
        Whether there is one network per class, each with separate groups, as in `GroupNorm`.
    """

    gating: Gating
    groups: NDArray[np.int64] | None = None
    representation: HasHiddenLayer | None = None
    norm: Norm | None = None
    apart: bool = False

    def inputs(self, X: ArrayLike) -> Array:
        """Return what the coefficients apply to, shape (n, D) or (n, H)."""
        if self.representation is not None:
            X = self.representation.hidden_activations(X)
        return validation.as_features(X, self.gating.n_features)

    def problem(
        self,
        X: ArrayLike,
        y: ArrayLike,
        C: float | Array = np.inf,
        intercept: bool = False,
        classes: int | None = None,
    ) -> MarginProblem:
        """Margin problem of this architecture on data X (N, D), y (N,) as in `MarginProblem`."""
        inputs = self.inputs(X)
        gates = self.gating.gates(inputs)
        groups = self.groups
        if groups is None:
            groups = self.gating.groups
        norm = self.norm
        if norm is None:
            norm = GroupNorm(groups, apart=self.apart)
        labels = cast(Array, y)  # `MarginProblem` checks and converts them
        return MarginProblem(inputs, labels, gates, groups, C, norm, intercept, classes=classes)

    def decision(self, X: ArrayLike, coef: Array) -> Array:
        """f(x_n), shape (n,) or (n, K), of inputs X (n, D), without an intercept."""
        inputs = self.inputs(X)
        return decision(inputs, self.gating.gates(inputs), coef)


def max_margin(
    X: ArrayLike,
    y: ArrayLike,
    norm: Norm | HasValueAndDual | str = "l2",
    *,
    groups: ArrayLike | None = None,
    C: ArrayLike = np.inf,
    intercept: bool = False,
    classes: int | None = None,
) -> MarginProblem:
    """Build the max-margin problem of a linear model under any norm.

    ::

        minimize  ||w|| + sum_n C_n xi_n  subject to  y_n (<w, x_n> + b) >= 1 - xi_n,  xi >= 0

    with xi = 0 at the hard margin, C = inf, the default. There is no intercept (b = 0) unless
    ``intercept=True``, other than in `MaxMarginSVC`. With K > 2 classes the margins are
    <w_{y_n} - w_k, x_n> + b_{y_n} - b_k for all other classes k.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels: -1 and +1, or integers 0 .. K - 1 for K > 2 classes.
    norm : Norm or str
        "l1", "l2", "linf", "spectral", "nuclear", an object of `implicit_bias.norms`, or a custom
        norm with ``value(coef)`` and ``dual(V)``.
    groups : array_like of int or str, shape (D,), optional
        Groups of features over which to sum the norm, by number or name: with "l2" the group lasso.
    C : float or array_like of shape (N,)
        Weight of the hinge loss, or of each sample's, in (0, inf]; inf is the hard margin. The norm
        is not squared, see `MarginProblem`.
    intercept : bool
        Whether each predictor has an unpenalized intercept, not in the norm.
    classes : int, optional
        As in `MarginProblem`.

    Returns
    -------
    MarginProblem
        With the constant gate 1: coefficients have shape (1, D), or (K, 1, D).

    Raises
    ------
    ValueError, TypeError
        As `MarginProblem`; or groups that do not fit the norm.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin, solve
    >>> solution = solve(max_margin(np.eye(3), [0, 1, 2], "linf"))
    >>> round(solution.certificate.upper, 6)
    0.5
    """
    inputs = validation.as_finite(X, "X", 2)
    architecture = Architecture(NoGates(inputs.shape[1]), norm=as_norm(norm, groups))
    return architecture.problem(inputs, y, cast("float | Array", C), intercept, classes)


def C_in_words(C: float | Array) -> str:  # noqa: N802 - C is a name
    """Return a C, or the smallest and the largest of many, as text."""
    if np.ndim(C) == 0:
        return f"{C:g}"
    return f"{np.min(C):g} to {np.max(C):g}"


def check_problem(problem: object, function: str) -> None:
    """Raise TypeError for what is no `MarginProblem`, naming the function that takes one."""
    if not isinstance(problem, MarginProblem):
        raise TypeError(
            f"{function} takes a MarginProblem, not a {type(problem).__name__}: pass "
            "MarginProblem(X, y, gates, groups), or fit one of the classes to X and y"
        )


def check_classes(problem: MarginProblem) -> None:
    """Raise ValueError where a class of many has no samples; one of -1 and +1 may have none."""
    rows = problem.constraints
    missing = np.setdiff1d(np.arange(rows.n_classes), rows.owners)
    if len(missing) and rows.width == rows.n_classes:
        raise ValueError(
            f"class {missing[0]} of {rows.n_classes} has no samples: number the classes 0 .. "
            "K - 1, as np.unique(y, return_inverse=True)[1] does"
        )


def _as_weights(given: Any, n_samples: int) -> float | Array:
    """Check C, a number or one per sample; equal ones are a number."""
    if np.ndim(given) == 0:
        return check_C(given)
    values = validation.as_numbers(given, "C")
    validation.check_shape(values, "C", (n_samples,), "a number, or one per sample")
    # Equal weights are the same problem as their number, and have to compare as equal.
    if (values == values[0]).all():
        return check_C(values[0])
    check_C(values.min())
    if math.isinf(check_C(values.max())):
        raise ValueError(
            "C is inf for some samples and finite for others: pass a large number for those that "
            "must be separated (a sample's hinge loss is 0 from a C above its dual variable on), "
            "or inf for all, the hard margin"
        )
    return validation.owned(values, given)


def check_C(given: object) -> float:  # noqa: N802 - C is a name
    """Return a C as a float: TypeError or ValueError for what is none."""
    validation.check_number(given, "C", "(0, inf]")
    C = float(cast(float, given))
    # Products of C with losses and norms must stay in float64's range. A problem that needs a C
    # outside has inputs in unsuitable units.
    if C < 1e-100 or 1e100 < C < np.inf:
        raise ValueError(f"C must be between 1e-100 and 1e+100, or inf, the hard margin; got {C:g}")
    return C


def _as_norms(
    norm: Norm | HasValueAndDual | str | None,
    groups: NDArray[np.int64] | None,
    shape: tuple[int, int, int],
) -> tuple[GroupNorm, Norm]:
    """Return the group norm of gate columns, and the norm of the problem: often the same.

    ``shape`` is that of the coefficients, (K', M, D). With two classes (K' = 1) a norm may be a sum
    over groups of gate columns by another name, such as l2, the norm of one group. Then it is
    replaced by the group norm, which more solvers support.
    """
    if norm is not None:
        norm = as_norm(norm)
        if shape[0] == 1:  # then norms of singular values are Euclidean norms
            norm = as_norm_of_one_row(norm)
    if groups is not None:
        groups = as_groups(groups)
    n_gates = shape[1]
    if norm is None and groups is None:
        raise ValueError(
            f"groups are missing: number the group of each of the {n_gates} gate columns "
            "(np.arange(M) for one unit per column), or pass another norm, such as norm='l2'"
        )
    if isinstance(norm, GroupNorm):
        gate_norm = norm
        if groups is not None and not np.array_equal(norm.groups, groups):
            raise ValueError(
                "norm is a GroupNorm of other groups than those given: pass the same groups, or "
                "norm=None"
            )
    elif groups is not None:
        gate_norm = GroupNorm(groups)
    else:
        gate_norm = GroupNorm(np.zeros(n_gates, np.int64))
    meaning = "they name the group of each gate column"
    validation.check_shape(gate_norm.groups, "groups", (n_gates,), meaning)
    if norm is None or norm is gate_norm:
        return gate_norm, gate_norm
    if shape[0] == 1:
        # Groups of gate columns: all D features of each column are in one group.
        found = norm.partition(shape)
        if found is not None and found.inner == "l2":
            if (found.groups == found.groups[..., :1]).all():
                gate_norm = GroupNorm(found.groups[0, :, 0])
                return gate_norm, gate_norm
    return gate_norm, norm


def as_gates(gates: object) -> GateMatrix:
    """Check gates, dense or sparse, and return them read-only: the caller cannot change them."""
    if not sp.issparse(gates):
        return validation.owned(validation.as_finite(gates, "gates", 2), gates)  # type: ignore[arg-type]
    validation.as_finite(sp.csr_array(gates).data, "gates", 1)
    matrix = sp.csr_array(gates, dtype=np.float64)
    frozen = all(validation.is_frozen(array) for array in _arrays_of(matrix))
    # Gates of another problem are read-only and canonical: they are shared, without a copy. Others
    # are made canonical now, as entries that are stored twice cannot be added once read-only.
    if not (frozen and matrix.has_canonical_format):
        matrix = matrix.copy()
        matrix.sum_duplicates()
    for array in _arrays_of(matrix):
        array.setflags(write=False)
    return matrix


def _arrays_of(gates: GateMatrix) -> tuple[NDArray[Any], ...]:
    """Return the arrays that store gates: one of dense ones, three of a CSR array."""
    if not sp.issparse(gates):
        return (cast(Array, gates),)
    matrix = cast(sp.csr_array, gates)
    return matrix.data, matrix.indices, matrix.indptr
