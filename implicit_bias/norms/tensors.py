r"""Norms of all trained parameters of a module, each with its dual and its steepest direction.

Steepest descent in a norm converges in direction to a KKT point of

    minimize  1/2 ||theta||^2   subject to  q_n(theta) >= 1 for all n,

and theta is not an array but one tensor per layer. So a norm of parameters is composed of two
norms of `implicit_bias.norms`, one within a tensor and one over the tensors,

    ||theta|| = outer(inner(theta_1), ..., inner(theta_P)),

the outer one monotone (an l_p norm). Dual norm and maximiser are composed of those of the parts:

    ||v||_* = outer_*(d),  d_p = inner_*(v_p),
    a maximiser of <theta, v> over ||theta|| <= 1:   theta_p = a_p u_p,
    a >= 0 that of the outer norm at d, u_p that of the inner norm at v_p.

============  ========  ========  ==================================================================
name          inner     outer     training that maximizes its margin
============  ========  ========  ==================================================================
l2            L2        L2        gradient descent
l1            L1        L1        coordinate descent
linf          LInf      LInf      sign descent; Adam with full batches and vanishing epsilon
spectral      Spectral  LInf      Muon: the largest spectral norm of any layer
nuclear       Nuclear   L1        its dual; the sum of the layers' nuclear norms
============  ========  ========  ==================================================================

**Scales.** Where a step moves tensor p by s_p times the unit direction of its norm, the whole
is steepest descent in the norm of theta_p / s_p, whose dual is that of s_p v_p. Tensors may have
different norms, too. Muon on matrices and Adam on all other tensors have

    ||theta|| = max_p inner_p(theta_p) / s_p,     ||v||_* = sum_p s_p inner_p*(v_p).

A tensor of more than two axes is the matrix (first axis, all others), as Muon sees the weights of a
convolution; a tensor of one axis is a column, whose spectral norm is the Euclidean one.

Norms of entries and of singular values take the tensors as they are, on their device, without a
copy of more than one of them: entries as float64, singular values in the tensors' precision. All
other norms take arrays.

Source: Tsilivis, Vardi, Kempe (2024), "Flavors of margin", for steepest descent in any norm;
Bernstein and Newhouse (2024), "Old optimizer, new norm", for the maximum over the layers.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar, cast, final, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.options import NORM_SYNONYMS
from implicit_bias.base.validation import Array, UnsuitableError, check_choice, check_number
from implicit_bias.norms import L1, L2, LInf, Norm, Nuclear, OfSingularValues, Spectral
from implicit_bias.norms.entries import Entrywise
from implicit_bias.norms.norm import NormOf

Parameters: TypeAlias = Mapping[str, Tensor]
Shapes: TypeAlias = Mapping[str, torch.Size]


class ParameterNorm(NormOf[Parameters, Shapes]):
    """A norm of a module's parameters, given as tensors by name.

    Attributes
    ----------
    name : str
        How messages and pages call it.
    """

    name: str

    @abstractmethod
    def maximiser(self, V: Parameters) -> dict[str, Tensor]:
        """Return a theta of norm 1 with <theta, v> = ||v||_*, steepest ascent; 0 for v = 0."""


@runtime_checkable
class HasParameterNorm(Protocol):
    """What a custom norm of tensors by name must have."""

    def value(self, theta: Parameters) -> float:
        """||theta||."""

    def dual(self, v: Parameters) -> float:
        """||v||_*."""

    def maximiser(self, v: Parameters) -> Mapping[str, Tensor]:
        """Return theta with ||theta|| <= 1 and <theta, v> = ||v||_*."""


@final
@dataclass(frozen=True)
class ComposedNorm(ParameterNorm):
    r"""One norm within each tensor, another one over the tensors.

    .. math:: \|\theta\| = \left\| \left( \frac{\omega_1(\theta_1)}{s_1},
        \frac{\omega_2(\theta_2)}{s_2}, \ldots \right) \right\|_{\text{outer}}

    Parameters
    ----------
    inner : Norm, or mapping from name to Norm
        Of each tensor, as a matrix (first axis, all others). A name is that of a tensor, or of a
        part of the module; "" is for all tensors that no other name is for.
    outer : L1, L2, LInf or Lp
        Over the tensors' norms.
    name : str, optional
        How messages call it.
    scale : mapping from name to float, optional
        What each tensor is divided by first, > 0; 1 where not given. Names as above.

    Raises
    ------
    ValueError
        Another outer norm; a scale that is not positive.

    Notes
    -----
    Tsilivis, Vardi, Kempe (2024) for steepest descent in any norm; Bernstein and Newhouse
    (2024) for the maximum over the layers.

    Examples
    --------
    >>> theta = {"first": torch.eye(2), "second": torch.tensor([[3.0, 4.0]])}
    >>> ComposedNorm(Spectral(), LInf()).value(theta)
    5.0
    >>> inner = {"first": Spectral(), "second": LInf()}
    >>> ComposedNorm(inner, LInf(), scale={"second": 0.5}).value(theta)
    8.0
    """

    inner: Norm | Mapping[str, Norm] = field(hash=False)
    outer: Norm
    name: str = ""
    scale: Mapping[str, float] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        # An outer norm must grow with each absolute value: otherwise the duals do not compose.
        if not isinstance(self.outer, Entrywise):
            raise ValueError(
                f"the norm over the tensors must be L1, L2, LInf or Lp, got {self.outer!r}"
            )
        for name, scale in self.scale.items():
            check_number(scale, f"the scale of {name!r}", "(0, inf)")
        if not self.name:
            object.__setattr__(self, "name", f"{self.outer!r} over tensors of {self.inner!r}")

    def value(self, coef: Parameters) -> float:
        """||theta||."""
        return self.outer.value(self.tensor_norms(coef))

    def dual(self, V: Parameters) -> float:
        """||v||_*."""
        return self.outer.dual(self.tensor_dual_norms(V))

    def maximiser(self, V: Parameters) -> dict[str, Tensor]:
        """Return theta with ||theta|| <= 1 and <theta, v> = ||v||_*."""
        # theta_p = s_p a_p u_p, with the weights a and the u_p of the head.
        weights = self.outer.maximiser(self.tensor_dual_norms(V)).tolist()
        found = {}
        for weight, (name, tensor) in zip(weights, V.items(), strict=True):
            if weight == 0:
                found[name] = torch.zeros_like(tensor)
                continue
            norm = self.inner_of(name)
            # A norm of arrays returns one of numpy: back to the tensor's type and device.
            best = torch.as_tensor(
                norm.maximiser(_matrix_for(norm, tensor)), dtype=tensor.dtype, device=tensor.device
            )
            found[name] = weight * self.unit(name) * best.reshape(tensor.shape)
        return found

    def inner_of(self, name: str) -> Norm:
        """Return the norm of a tensor."""
        if isinstance(self.inner, Norm):
            return self.inner
        norm = _lookup_by_part(self.inner, name)
        if norm is None:
            raise ValueError(
                f"no norm is given for the parameter {name!r}, but for {sorted(self.inner)}: name "
                "it, a part of the module that it is in, or '' for all others"
            )
        return norm

    def unit(self, name: str) -> float:
        """Return what `scale` says of a tensor; 1 where it says nothing."""
        scale = _lookup_by_part(self.scale, name)
        if scale is None:
            return 1.0
        return scale

    def tensor_norms(self, theta: Parameters) -> Array:
        """Return the inner norm of each tensor over its scale, in their order."""
        found = []
        for name, tensor in theta.items():
            norm = self.inner_of(name)
            found.append(norm.value(_matrix_for(norm, tensor)) / self.unit(name))
        return np.array(found)

    def tensor_dual_norms(self, v: Parameters) -> Array:
        """Return the inner dual norm of each tensor times its scale, in their order."""
        found = []
        for name, tensor in v.items():
            norm = self.inner_of(name)
            # The dual of ||theta_p|| / s_p is s_p ||v_p||_*.
            found.append(norm.dual(_matrix_for(norm, tensor)) * self.unit(name))
        return np.array(found)

    def atom(self, zeta: Mapping[str, Any], shape: Shapes, cp: Any) -> Any:
        """Return ||theta|| in CVXPY."""
        parts = []
        for name, part in zeta.items():
            atom = self.inner_of(name).atom(part, matrix_shape(shape[name]), cp)
            parts.append(atom / self.unit(name))
        # Convex for CVXPY, as the outer norm grows with each of its convex arguments.
        return self.outer.atom(cp.hstack(parts), (len(parts),), cp)


def check_parts(norm: ParameterNorm, names: Collection[str]) -> None:
    """Refuse a norm whose parts are not those of a module.

    Raises
    ------
    ValueError
        A part without parameters; a parameter without a norm.
    """
    if not isinstance(norm, ComposedNorm) or isinstance(norm.inner, Norm):
        return
    for part in norm.inner:
        # A name that no parameter's path begins with is a misspelling.
        if part != "" and not any(_lookup_by_part({part: True}, name) for name in names):
            raise ValueError(
                f"the norm names {part!r}, which is no parameter and no part that is trained: the "
                f"parameters are {', '.join(sorted(names))}"
            )
    for name in names:
        norm.inner_of(name)


Given = TypeVar("Given")


def _lookup_by_part(given: Mapping[str, Given], name: str) -> Given | None:
    """Return what is given for a tensor, or for the smallest part of the module that it is in."""
    # From the whole name to "", which is for all tensors.
    path = name.split(".")
    for n in range(len(path), -1, -1):
        part = ".".join(path[:n])
        if part in given:
            return given[part]
    return None


@final
@dataclass(frozen=True)
class OwnParameterNorm(ParameterNorm):
    """A custom norm, given by its value, its dual and its maximiser."""

    given: HasParameterNorm
    name: str

    def value(self, coef: Parameters) -> float:
        """||theta||."""
        return float(self.given.value(coef))

    def dual(self, V: Parameters) -> float:
        """||v||_*."""
        return float(self.given.dual(V))

    def maximiser(self, V: Parameters) -> dict[str, Tensor]:
        """Return theta with ||theta|| <= 1 and <theta, v> = ||v||_*."""
        return dict(self.given.maximiser(V))

    def atom(self, zeta: Mapping[str, Any], shape: Shapes, cp: Any) -> Any:
        """Refuse: value, dual and maximiser are no expression."""
        raise UnsuitableError(f"{self.name} has no expression in CVXPY")


PARAMETER_NORMS: dict[str, ComposedNorm] = {
    "l2": ComposedNorm(L2(), L2(), "l2"),
    "l1": ComposedNorm(L1(), L1(), "l1"),
    "linf": ComposedNorm(LInf(), LInf(), "linf"),
    "spectral": ComposedNorm(Spectral(), LInf(), "spectral"),
    "nuclear": ComposedNorm(Nuclear(), L1(), "nuclear"),
}


def up_to_scales(norm: ParameterNorm) -> str:
    """Return the head's name for a norm without its scales; "" where the table lacks it."""
    if isinstance(norm, ComposedNorm):
        for name, plain in PARAMETER_NORMS.items():
            if (norm.inner, norm.outer) == (plain.inner, plain.outer):
                return name
    return ""


GivenNorm: TypeAlias = ParameterNorm | HasParameterNorm | Norm | str | Mapping[str, Norm | str]


def one_or_several(norms: Any) -> list[Any]:
    """Return one norm (or optimizer), or several, as a list: a mapping of parts to norms is one."""
    if isinstance(norms, Iterable) and not isinstance(norms, str | Mapping | Tensor):
        return list(norms)
    return [norms]


def as_parameter_norm(norm: GivenNorm) -> ParameterNorm:
    """Return a norm of parameters from an object or a name.

    Parameters
    ----------
    norm : str, Norm, ParameterNorm, mapping, or object with ``value``, ``dual`` and ``maximiser``
        Names are "l2", "l1", "linf", "spectral" and "nuclear", see the module's table. Of the
        norms of `implicit_bias.norms`, L1, L2, LInf and Lp are those of all entries, Spectral and
        Nuclear those of the table, Schatten the l_p norm of all singular values. A mapping from
        parts of the module to norms, {"readout": "linf", "": "spectral"}, is the largest of these
        norms of any tensor, "" being for all others: the implicit bias of normalized steps of
        several kinds.
        A custom object takes and returns tensors by name.

    Raises
    ------
    ValueError
        No such name; a norm of arrays that does not determine one of several tensors.
    TypeError
        Neither a name, nor a norm.

    Examples
    --------
    >>> theta = {"first.weight": torch.tensor([[3.0, 4.0]]), "second.weight": torch.tensor([-5.0])}
    >>> as_parameter_norm("l1").value(theta), as_parameter_norm("spectral").dual(theta)
    (12.0, 10.0)
    """
    if isinstance(norm, str):
        check_choice(norm, "norm", PARAMETER_NORMS, "an object such as Lp(3)", NORM_SYNONYMS)
        return PARAMETER_NORMS[norm]
    if isinstance(norm, ParameterNorm):
        return norm
    if isinstance(norm, Norm):
        # As the table has it, so that it is equal to the norm that optimizers are read as.
        for named in PARAMETER_NORMS.values():
            if named.inner == norm:
                return named
        # The l_p norm of all entries, or of all singular values, is the l_p norm of the tensors'.
        outer: Norm = norm
        if isinstance(norm, OfSingularValues):
            outer = norm.entries
        if not isinstance(outer, Entrywise):
            raise ValueError(
                f"the norm of several tensors cannot be composed of {norm!r} alone: pass "
                "ComposedNorm(inner, outer), such as ComposedNorm(Spectral(), LInf())"
            )
        return ComposedNorm(norm, outer, repr(norm))
    if isinstance(norm, Mapping):
        inner: dict[str, Norm] = {}
        words = []
        # A name stands for the inner norm of its row in the head's table.
        for part, given in norm.items():
            words.append(f"{given} of {part or 'all others'}")
            if isinstance(given, Norm):
                inner[part] = given
                continue
            check_choice(given, f"norm of {part!r}", PARAMETER_NORMS, "a norm such as Lp(3)")
            inner[part] = cast(Norm, PARAMETER_NORMS[given].inner)
        return ComposedNorm(inner, LInf(), f"the largest of {', '.join(words)}")
    if isinstance(norm, type) or not isinstance(norm, HasParameterNorm):
        raise TypeError(
            "norm must be a name or an object with value(theta), dual(v) and maximiser(v) of "
            f"tensors by name, got {norm!r}: pass 'l2', 'l1', 'linf' or 'spectral', and "
            "optimizers as optimizer="
        )
    return OwnParameterNorm(norm, type(norm).__name__)


def matrix_shape(shape: torch.Size) -> tuple[int, int]:
    """Shape of a tensor as a matrix: (first axis, all others); a vector is a column."""
    rows = 1
    if shape:  # a scalar has no axis
        rows = shape[0]
    return rows, math.prod(shape[1:])


def _matrix_for(norm: Norm, tensor: Tensor) -> Any:
    """Return a tensor as the matrix that a norm takes: of torch where it does, else of numpy."""
    matrix = tensor.detach().reshape(matrix_shape(tensor.shape))
    if isinstance(norm, OfSingularValues):
        return matrix
    if isinstance(norm, Entrywise):
        return matrix.double()
    return matrix.double().cpu().numpy()
