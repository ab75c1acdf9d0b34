r"""The interpolation problem: features, values and a norm.

Primal  minimize  Omega(zeta)      subject to  <zeta_k, phi(x_n)> + b_k = y_nk for all n and k
Dual    maximize  <alpha, Y>       subject to  Omega_*(V(alpha)) <= 1,  sum_n alpha_n = 0
        V(alpha) = sum_n alpha_n (x) phi(x_n),     phi(x) = z(x) (x) x,      alpha free in sign

The offset b and the last equation belong to problems with an intercept; without, b = 0.

======  ==========  ======================================================================
X       (N, D)      inputs
gates   (N, M)      z(x_n): the constant 1 of a linear model
Y       (N, K)      values of the outputs
zeta    (K, M, D)   coefficients; (M, D) where y is (N,)
alpha   (N, K)      multipliers; (N,) where y is (N,)
======  ==========  ======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base import validation
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L2,
    GroupNorm,
    HasValueAndDual,
    Norm,
    SumOverGroups,
    as_groups,
    as_norm,
    as_norm_of_one_row,
)
from implicit_bias.norms.named import name_of
from implicit_bias.norms.norm import ConjugatedNorm
from implicit_bias.problem import SMALLEST_FEATURE_NORM, Features
from implicit_bias.problem.gating import GateMatrix, Gating, dense
from implicit_bias.problem.margin_problem import as_gates


@dataclass(frozen=True, eq=False)
class InterpolationProblem:
    """Features and values of samples, and the norm of coefficients; see the module's head.

    Attributes
    ----------
    features : Features
        Those of the samples.
    Y : ndarray of shape (N, K)
        Values.
    norm : Norm
        Omega; l2 for a norm of singular values of one output.
    norm_name : str
        The norm that the caller asked for.
    intercept : bool
        Whether each output has an unpenalized intercept.
    one_output : bool
        Whether the caller's y is (N,), so that arrays lack the axis of outputs.
    gating : Gating or None
        What gives the gates of further inputs, where the caller passed it.
    """

    features: Features
    Y: Array
    norm: Norm
    norm_name: str
    intercept: bool
    one_output: bool
    gating: Gating | None = None

    @property
    def norm_shape(self) -> tuple[int, int, int]:
        """(K, M, D), in which the norm sees the coefficients."""
        return (self.Y.shape[1], *self.features.shape)

    @property
    def coef_shape(self) -> tuple[int, ...]:
        """Shape of the coefficients that a caller gets."""
        return self.norm_shape[1:] if self.one_output else self.norm_shape

    @property
    def alpha_shape(self) -> tuple[int, ...]:
        """Shape of the multipliers that a caller gets."""
        return self.Y.shape[:1] if self.one_output else self.Y.shape

    @cached_property
    def matrix(self) -> Array:
        """The features written out, (N, M D), each rounded once; and a last column of an offset."""
        features = self.features
        Z = dense(features.gates)
        if Z.shape[1] == 1:
            found = Z * features.X
        else:
            found = (Z[:, :, None] * features.X[:, None]).reshape(len(Z), -1)
        if self.intercept:
            found = np.column_stack([found, np.full(len(found), self.unit)])
        return np.ascontiguousarray(found)

    @cached_property
    def unit(self) -> float:
        """Entries of the offset's column: a power of two near the norms of the features."""
        # The offset costs nothing, so its unit is free: of the size of the features it does not
        # spoil the condition of the rows.
        size = float(np.sqrt(np.mean(self.features.norms**2))) or 1.0
        # A power of two, so that the offset is multiplied and divided by it without rounding.
        return float(np.exp2(np.round(np.log2(size))))


def interpolation_problem(
    X: ArrayLike,
    y: ArrayLike,
    norm: Norm | HasValueAndDual | str,
    gates: Gating | GateMatrix | ArrayLike | None,
    groups: ArrayLike | None,
    intercept: bool,
    *,
    most_numbers: int = 2**27,
) -> InterpolationProblem:
    """Check what a caller gives, see `min_norm`, and build the problem.

    Features of more than ``most_numbers`` (1 GiB) are refused: the methods write them out.
    """
    inputs = validation.owned(validation.as_finite(X, "X", 2), X)
    if 0 in inputs.shape:
        raise ValueError(f"X has no samples or no features: shape {inputs.shape}")
    n_axes = validation.as_numbers(y, "y").ndim
    if n_axes not in (1, 2):
        raise ValueError(f"y must have shape (N,), or (N, K) for K outputs, got {n_axes} axes")
    values = validation.as_finite(y, "y", n_axes)
    if len(values) != len(inputs) or 0 in values.shape:
        raise ValueError(
            f"X has {len(inputs)} rows and y has shape {values.shape}: pass one row of values for "
            "each row of X"
        )
    validation.check_flag(intercept, "intercept")
    gating = gates if isinstance(gates, Gating) else None
    whole_norm = as_norm(norm)
    if gates is None:
        matrix: GateMatrix = np.ones((len(inputs), 1))
        if groups is not None:
            whole_norm = as_norm(norm, groups)
    else:
        matrix = as_gates(gates.gates(inputs) if isinstance(gates, Gating) else gates)
        if matrix.shape[0] != len(inputs) or matrix.shape[1] == 0:
            raise ValueError(
                f"gates must have one row per sample, {len(inputs)}, got {matrix.shape}"
            )
        if groups is not None:
            whole_norm = _over_groups_of_gates(whole_norm, groups)
    norm_name = name_of(whole_norm)
    if isinstance(whole_norm, GroupNorm):
        norm_name = "group"
    if values.size == len(values):  # one output: norms of singular values are Euclidean norms
        whole_norm = as_norm_of_one_row(whole_norm)
    if isinstance(whole_norm, GroupNorm):
        meaning = "they name the group of each gate column"
        validation.check_shape(whole_norm.groups, "groups", matrix.shape[1:], meaning)
    # In one group: here the groups are those of the norm alone.
    features = Features(inputs, matrix, np.zeros(matrix.shape[1], dtype=np.int64))
    n_numbers = len(inputs) * matrix.shape[1] * inputs.shape[1]
    if n_numbers > most_numbers:
        raise MemoryError(
            f"the features of {len(inputs)} samples are {n_numbers / 2**27:.1f} GiB: interpolate "
            "fewer samples, or with fewer gates"
        )
    norms = features.norms
    if not np.isfinite(norms).all() or (norms[~features.zero] < SMALLEST_FEATURE_NORM).any():
        raise ValueError(
            "the squares of X or of the gates over- or underflow: multiply X by a constant that "
            "makes its entries about 1 (the optimum is divided by that constant)"
        )
    found = InterpolationProblem(
        features=features,
        Y=values.reshape(len(values), -1),
        norm=whole_norm,
        norm_name=norm_name,
        intercept=intercept,
        one_output=n_axes == 1,
        gating=gating,
    )
    whole_norm.dual_norms(np.zeros(found.norm_shape))  # which refuses groups that do not fit
    return found


def _over_groups_of_gates(norm: Norm, groups: ArrayLike) -> Norm:
    """Return the sum of a norm over groups of gate columns."""
    numbers = as_groups(groups)
    if norm == L2():
        return GroupNorm(numbers)
    return SumOverGroups(cast(ConjugatedNorm, norm), numbers)
