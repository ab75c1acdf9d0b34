r"""Modules whose limit is a norm of the predictor itself: how far above the optimum they are.

1/2 ||theta||^2, minimised over all parameters of one predictor, is (a power of) a norm of it. Where
that norm is convex, its margin problem has a certified optimum, which no network of this kind,
trained for however long, can beat. A KKT point of the parameters need not reach it.

=====================  ==================  ====================================================
module                 predictor           norm of the predictor, in l2 geometry
=====================  ==================  ====================================================
linear                 <w, x>              l2 (and in any other geometry, that norm itself)
deep linear            W_L ... W_1 x       one output: l2; several, two layers: nuclear; deeper:
                                           Schatten 2/L, not convex
diagonal               (u^L - v^L) o x,    two layers: l1; deeper: l_(2/L), not convex
                       u o v o x
linear convolution     w_L * ... * w_1 * x two layers: l1 of the Fourier transform; deeper:
of full width                              l_(2/L) of it, not convex
gated, one hidden      sum_h <zeta_h,      sum_h ||zeta_h|| over the units
layer                  z_h(x) x'>
=====================  ==================  ====================================================

A module is recognised by what it computes alone: its outputs on the samples are compared with the
family's predictor, at random parameters. Nothing is concluded from the names of its layers.

Source: Gunasekar, Lee, Soudry, Srebro (2018), "Implicit bias of gradient descent on linear
convolutional networks"; Lippl, Abbott, Chung (2022) for gated networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Any

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.measure.margin_gradients import MarginGradients
from implicit_bias.measure.stationarity import active_units
from implicit_bias.networks import Network
from implicit_bias.norms import LInf, as_norm
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm
from implicit_bias.problem import MarginProblem, max_margin
from implicit_bias.solvers.base import SolveError
from implicit_bias.solvers.solve import solve

# Outputs may differ from the family's predictor by this share, by rounding.
SAME = 1e-9
# Random parameters at which they are compared, and samples at most.
DRAWS, SAMPLES = 3, 64
# Largest problem (samples by features by classes) that is solved here.
MOST_ENTRIES = 2**22
# A two-class problem's optimum over that of the binary one, by norm.
OF_TWO_CLASSES = {"l2": 0.5**0.5, "nuclear": 0.5**0.5, "spectral": 0.5**0.5, "l1": 1.0, "linf": 0.5}


@dataclass(frozen=True, eq=False)
class FunctionSpace:
    """A module's predictor beside the optimum of its own norm.

    Attributes
    ----------
    family : str
        What the module was recognised as.
    norm : str
        The norm of the predictor that its training minimises in the limit.
    value : float
        That norm at smallest margin 1; nan where it is not convex.
    certificate : Certificate or None
        Certified bounds on the optimum; None where ``obstacle`` says why.
    obstacle : str
        Why there is no optimum to compare with; else empty.
    dead_units : int
        Units of (nearly) no weight that the optimum uses; 0 where units are not known.
    """

    family: str
    norm: str
    value: float
    certificate: Certificate | None
    obstacle: str
    dead_units: int = 0

    @property
    def excess(self) -> float:
        """Share by which the norm is above the certified optimum, at most; nan without one."""
        if self.certificate is None or not self.certificate.lower > 0:
            return math.nan
        return self.value / self.certificate.lower - 1.0


@dataclass(frozen=True, eq=False)
class _Family:
    """A predictor <beta_k, x> as a function of the parameters, or None of other shapes."""

    name: str
    beta: Callable[[list[Tensor], int, int], Tensor | None]
    norm: Callable[[int, int], str]


def _linear(parts: list[Tensor], K: int, D: int) -> Tensor | None:
    return parts[0].reshape(K, D) if len(parts) == 1 and parts[0].numel() == K * D else None


def _transposed(parts: list[Tensor], K: int, D: int) -> Tensor | None:
    return parts[0].T if len(parts) == 1 and parts[0].shape == (D, K) else None


def _deep_linear(parts: list[Tensor], K: int, D: int) -> Tensor | None:
    matrices = [part if part.ndim == 2 else part.reshape(1, -1) for part in parts]
    sizes = [D, *(len(matrix) for matrix in matrices)]
    fits = all(m.shape[1] == size for m, size in zip(matrices, sizes, strict=False))
    if len(parts) < 2 or not fits or sizes[-1] != K:
        return None
    return reduce(lambda product, matrix: matrix @ product, matrices)


def _deep_transposed(parts: list[Tensor], K: int, D: int) -> Tensor | None:
    if any(part.ndim != 2 for part in parts):
        return None
    return _deep_linear([part.T for part in parts], K, D)


def _diagonal_power(power: int) -> Callable[[list[Tensor], int, int], Tensor | None]:
    def beta(parts: list[Tensor], K: int, D: int) -> Tensor | None:
        if K != 1 or len(parts) != 2 or any(part.numel() != D for part in parts):
            return None
        u, v = parts
        return (u**power - v**power).reshape(1, D)

    return beta


def _diagonal_product(parts: list[Tensor], K: int, D: int) -> Tensor | None:
    if K != 1 or len(parts) < 2 or any(part.numel() != D for part in parts):
        return None
    return torch.stack([part.reshape(-1) for part in parts]).prod(dim=0)[None]


def _of_matrices(layers: int, outputs: int) -> str:
    if outputs == 1:
        return "l2"
    return "nuclear" if layers == 2 else f"Schatten {2 / layers:.3g}"


def _of_entries(layers: int, _: int) -> str:
    return "l1" if layers == 2 else f"l_{2 / layers:.3g}"


def _of_power(power: int, _layers: int, outputs: int) -> str:
    return _of_entries(power, outputs)


FAMILIES: tuple[_Family, ...] = (
    _Family("linear", _linear, lambda *_: "l2"),
    _Family("linear", _transposed, lambda *_: "l2"),
    _Family("deep linear", _deep_linear, _of_matrices),
    _Family("deep linear", _deep_transposed, _of_matrices),
    *(
        _Family("diagonal", _diagonal_power(power), partial(_of_power, power))
        for power in (2, 3, 4)
    ),
    _Family("diagonal", _diagonal_product, _of_entries),
)


def in_function_space(
    gradients: MarginGradients, theta: Tensor, norm: ParameterNorm, *, gated: bool
) -> FunctionSpace | None:
    """Compare the predictor with the optimum of its norm, where the module is recognised.

    Parameters
    ----------
    gradients : MarginGradients
        The margins.
    theta : Tensor of shape (P,)
        Parameters of smallest margin 1.
    norm : ParameterNorm
        The geometry of the parameters.
    gated : bool
        Whether the module is one of this package's networks, of fixed gates and one hidden layer.
    """
    in_l2 = norm == PARAMETER_NORMS["l2"]
    if gated:
        return _gated(gradients, theta) if in_l2 else None
    if len(gradients.inputs) != 1 or not gradients.inputs[0].is_floating_point():
        return None
    X = gradients.inputs[0].reshape(len(gradients.inputs[0]), -1)
    K, D = gradients.pairs.outputs, X.shape[1]
    parts = list(gradients.parameters(theta).values())
    for family in FAMILIES:
        beta = family.beta(parts, K, D)
        if beta is not None and _computes(gradients, X, family):
            name = family.norm(len(parts), K)
            if not in_l2:
                if family.name != "linear" or norm.name not in OF_TWO_CLASSES:
                    return None
                name = norm.name
            narrow = min((min(part.shape) for part in parts), default=0) if name == "nuclear" else K
            return _compared(gradients, X, beta, family.name, name, narrow)
    return _convolution(gradients, theta, X, D) if in_l2 and K == 1 and len(parts) >= 2 else None


def two_layer_relu(gradients: MarginGradients, theta: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return the weights (H, D) and (K, H) of a module that computes readout relu(hidden x)."""
    if len(gradients.inputs) != 1 or not gradients.inputs[0].is_floating_point():
        return None
    X = gradients.inputs[0].reshape(len(gradients.inputs[0]), -1)
    K, D = gradients.pairs.outputs, X.shape[1]

    def split(parts: list[Tensor]) -> tuple[Tensor, Tensor] | None:
        if len(parts) != 2 or parts[0].ndim != 2 or parts[0].shape[1] != D:
            return None
        if parts[1].numel() != K * len(parts[0]):
            return None
        return parts[0], parts[1].reshape(K, len(parts[0]))

    def predictor(parts: list[Tensor]) -> Tensor | None:
        both = split(parts)
        return None if both is None else (X[:SAMPLES] @ both[0].T).relu() @ both[1].T

    if not _agrees(gradients, predictor):
        return None
    return split(list(gradients.parameters(theta).values()))


def _agrees(gradients: MarginGradients, predictor: Callable[[list[Tensor]], Tensor | None]) -> bool:
    """Whether outputs on the first samples are the predictor's, at random parameters."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        theta = torch.randn(len(gradients.theta), generator=generator, dtype=torch.float64)
        theta = theta.to(gradients.theta)
        expected = predictor(list(gradients.parameters(theta).values()))
        if expected is None:
            return False
        with torch.no_grad():
            found = gradients.outputs_of(theta, slice(0, SAMPLES))
        if not float((found - expected).abs().max()) <= SAME * float(expected.abs().max()):
            return False
    return True


def _computes(gradients: MarginGradients, X: Tensor, family: _Family) -> bool:
    K, D = gradients.pairs.outputs, X.shape[1]

    def predictor(parts: list[Tensor]) -> Tensor | None:
        beta = family.beta(parts, K, D)
        return None if beta is None else X[:SAMPLES] @ beta.T

    return _agrees(gradients, predictor)


def _compared(
    gradients: MarginGradients, X: Tensor, beta: Tensor, family: str, name: str, width: int
) -> FunctionSpace:
    """Beside the optimum of a norm that `max_margin` knows."""
    coef = beta.detach().cpu().numpy()
    if name not in OF_TWO_CLASSES:
        return FunctionSpace(family, name, math.nan, None, f"the {name} quasi-norm is not convex")
    value = as_norm(name).value(coef)
    obstacle = _too_large(gradients, X)
    if obstacle:
        return FunctionSpace(family, name, value, None, obstacle)
    pairs = gradients.pairs
    two = pairs.classes == 2
    labels = 2.0 * pairs.labels - 1.0 if two else pairs.labels
    own = "l2" if two and name in ("nuclear", "spectral") else name
    found = _solved(lambda: max_margin(X.cpu().numpy(), labels, own))
    if isinstance(found, str):
        return FunctionSpace(family, name, value, None, found)
    factor = OF_TWO_CLASSES[name] if two else 1.0
    note = ""
    if width < min(gradients.pairs.outputs - 1, X.shape[1]):
        note = f"with {width} hidden units the module may not reach the optimum"
    return FunctionSpace(family, name, value, _times(found, factor), note)


def _gated(gradients: MarginGradients, theta: Tensor) -> FunctionSpace:
    """One of this package's networks, beside the margin problem of its gates."""
    network = gradients.module
    assert isinstance(network, Network)
    family, name = "gated network", "sum of the units' l2 norms"
    X = gradients.inputs[0]
    obstacle = _too_large(gradients, X)
    if gradients.pairs.classes is not None:
        obstacle = "networks of several outputs have units of rank one, which is not convex"
    if obstacle:
        return FunctionSpace(family, name, math.nan, None, obstacle)
    y = gradients.pairs.labels
    problem = network.architecture().problem(X.cpu().numpy(), y)
    scale = float(theta.norm() / gradients.theta.norm()) ** 2
    unit_norms = scale * problem.group_norms(network.coef())
    solution = solve(problem)
    if not solution.certificate.lower > 0:
        return FunctionSpace(family, name, float(unit_norms.sum()), None, solution.message)
    used = solution.active & ~active_units(unit_norms)
    return FunctionSpace(
        family,
        name,
        float(unit_norms.sum()),
        solution.certificate,
        "",
        int(np.count_nonzero(used)),
    )


@dataclass(frozen=True)
class FourierL1:
    """Sum of the moduli of the discrete Fourier transform; its dual: the largest one over D."""

    def value(self, coef: Array) -> float:
        """Sum of moduli."""
        return float(np.abs(np.fft.fft(coef.reshape(-1))).sum())

    def dual(self, V: Array) -> float:
        """Largest modulus over D: <b, v> = 1/D <Fb, Fv>."""
        flat = V.reshape(-1)
        return LInf().value(np.abs(np.fft.fft(flat))) / len(flat)

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Say it in CVXPY."""
        F = np.fft.fft(np.eye(math.prod(shape)))
        return cp.sum(cp.norm(cp.vstack([F.real @ zeta, F.imag @ zeta]), 2, axis=0))


def _convolution(
    gradients: MarginGradients, theta: Tensor, X: Tensor, D: int
) -> FunctionSpace | None:
    """Recognise a linear convolution of full width: |F beta| is the product of the |F w_l|."""

    def beta_of(point: Tensor) -> Tensor:
        units = torch.eye(D, dtype=X.dtype, device=X.device).reshape(
            D, *gradients.inputs[0].shape[1:]
        )
        with torch.no_grad():
            return gradients.outputs_at(point, units)[:, 0]

    if any(shape.numel() != D for shape in gradients.shapes.values()):
        return None
    generator = torch.Generator().manual_seed(0)
    for _ in range(DRAWS):
        point = torch.randn(len(theta), generator=generator, dtype=torch.float64).to(theta)
        beta = beta_of(point)
        with torch.no_grad():
            outputs = gradients.outputs_of(point, slice(0, SAMPLES))[:, 0]
        moduli = reduce(
            torch.mul,
            [
                torch.fft.fft(part.reshape(-1)).abs()
                for part in gradients.parameters(point).values()
            ],
        )
        found = torch.fft.fft(beta).abs()
        if float((X[:SAMPLES] @ beta - outputs).abs().max()) > SAME * float(outputs.abs().max()):
            return None
        if float((found - moduli).abs().max()) > SAME * float(moduli.max()):
            return None
    family, layers = "linear convolution", len(gradients.shapes)
    coef = beta_of(theta).cpu().numpy()
    if layers != 2:
        name = f"l_{2 / layers:.3g} of the Fourier transform"
        return FunctionSpace(family, name, math.nan, None, f"the {name} is not convex")
    name, norm = "l1 of the Fourier transform", FourierL1()
    obstacle = _too_large(gradients, X)
    if obstacle:
        return FunctionSpace(family, name, norm.value(coef), None, obstacle)
    found_or = _solved(lambda: max_margin(X.cpu().numpy(), gradients.pairs.labels, norm))
    if isinstance(found_or, str):
        return FunctionSpace(family, name, norm.value(coef), None, found_or)
    return FunctionSpace(family, name, norm.value(coef), found_or, "")


def _solved(pose: Callable[[], MarginProblem]) -> Certificate | str:
    """Bounds on an optimum, or why there are none."""
    try:
        solution = solve(pose())
    except (SolveError, ValueError) as error:
        return str(error)
    return solution.certificate if solution.certificate.lower > 0 else solution.message


def _times(bounds: Certificate, factor: float) -> Certificate:
    return replace(bounds, lower=factor * bounds.lower, upper=factor * bounds.upper)


def _too_large(gradients: MarginGradients, X: Tensor) -> str:
    entries = X.numel() * gradients.pairs.outputs
    if entries <= MOST_ENTRIES:
        return ""
    return (
        "the problem is too large to be solved in passing: use implicit_bias.max_margin and solve"
    )
