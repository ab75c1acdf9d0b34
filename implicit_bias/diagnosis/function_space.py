r"""Modules whose limit is a norm of the predictor itself: how far above the optimum they are.

1/2 ||theta||^2, minimised over all parameters of one predictor, is (a power of) a norm of it. Where
that norm is convex, its margin problem has a certified optimum, which no network of this kind,
trained for however long, can beat. A KKT point of the parameters need not reach it.

=====================  ==================  ====================================================
module                 predictor           norm of the predictor, in l2 geometry
=====================  ==================  ====================================================
linear                 <w, x>              l2 (and in any other geometry, that norm itself)
deep linear            W_L ... W_1 x       one output: l2; several, two layers: nuclear; deeper:
                                           Schatten 2/L, not convex. In spectral geometry:
                                           spectral, at any depth; in nuclear: Schatten 1/L
diagonal               (u^L - v^L) o x,    two layers: l1; deeper: l_(2/L), not convex
                       u o v o x
linear convolution     w_L * ... * w_1 * x two layers: l1 of the Fourier transform; deeper:
of full width                              l_(2/L) of it, not convex
gated, one hidden      sum_h <zeta_h,      sum_h ||zeta_h|| over the units
layer                  z_h(x) x'>
=====================  ==================  ====================================================

**Deep linear.** With ||.||_p of the singular values, the inequalities of Hoelder and of means give

    ||W||_(p/L) <= prod_l ||W_l||_p <= m^L,   m a mean, or the maximum, of the ||W_l||_p,

for every factorisation W = W_L ... W_1, and the singular value decomposition W = U S V' attains it:
W_1 = S^(1/L) V', W_l = S^(1/L), W_L = U S^(1/L), if all inner widths are at least the rank of W. So
the smallest m^L over the factorisations of W is ||W||_(p/L), whose p is 2 in l2, 1 in nuclear and
infinite in spectral geometry; scales of the layers multiply it by a constant. With fewer hidden
units it is a lower bound still. An optimum has rank min(K - 1, D) at most, as the mean of the rows
of W changes no margin and can be taken off (not in the papers; derived here).

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
from torch import Tensor, nn

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.margin_gradients import MarginGradients
from implicit_bias.modules.multipliers import TangentProgram
from implicit_bias.modules.stationarity import active_units
from implicit_bias.networks import Network
from implicit_bias.norms import LInf, as_norm
from implicit_bias.norms.tensors import PARAMETER_NORMS, up_to_scales
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import NoGates
from implicit_bias.solvers.base import SolveError
from implicit_bias.solvers.solve import solve

# Outputs may differ from the family's predictor by this share, by rounding.
SAME = 1e-9
# Random parameters at which they are compared, and samples at most.
DRAWS, SAMPLES = 3, 64
# Largest problem (samples by features by classes) that is solved here.
MOST_ENTRIES = 2**22
# Exponent of the norm of singular values of each layer, by geometry.
SCHATTEN = {"l2": 2.0, "spectral": math.inf, "nuclear": 1.0}
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


class _Module:
    """A module of one argument at some parameters, as families see it.

    Attributes
    ----------
    X : Tensor of shape (N, D)
        Inputs.
    parts : list of Tensor
        The parameters.
    K, D : int
        Numbers of outputs a sample and of features.
    """

    def __init__(self, gradients: MarginGradients, theta: Tensor) -> None:
        self.gradients, self.theta, self.X = gradients, theta, flat_inputs(gradients)
        self.parts = list(gradients.parameters(theta).values())
        self.K, self.D = gradients.pairs.width, self.X.shape[1]

    def outputs(self, X: Tensor) -> Tensor:
        """Compute the outputs (n, K) of further inputs (n, D)."""
        given = X.reshape(len(X), *self.gradients.inputs[0].shape[1:])
        with torch.no_grad():
            return self.gradients.outputs_at(self.theta, given)

    def computes(self, predictor: Callable[[_Module], Tensor | None]) -> bool:
        """Whether outputs on the first samples are a predictor's, at random parameters."""
        for seed in range(DRAWS):
            drawn = _Module(self.gradients, drawn_like(self.theta, seed))
            expected = predictor(drawn)
            if expected is None or not close(drawn.outputs(self.X[:SAMPLES]), expected):
                return False
        return True


def flat_inputs(gradients: MarginGradients) -> Tensor:
    """Flatten the inputs of a module of one argument, (N, D)."""
    return gradients.inputs[0].reshape(len(gradients.inputs[0]), -1)


def close(found: Tensor, expected: Tensor) -> bool:
    """Whether two tensors are equal but for rounding."""
    return float((found - expected).abs().max()) <= SAME * float(expected.abs().max())


@dataclass(frozen=True, eq=False)
class _Family:
    """A predictor <beta_k, x>: beta (K, D), None of other shapes, and its norm in l2 geometry."""

    name: str
    beta: Callable[[_Module], Tensor | None]
    norm: Callable[[_Module], str]

    def predictor(self, at: _Module) -> Tensor | None:
        """Compute the outputs on the first samples."""
        beta = self.beta(at)
        return None if beta is None else at.X[:SAMPLES] @ beta.T


def _product(at: _Module, *, transposed: bool = False) -> Tensor | None:
    """Return the product of all parameters as matrices, the first layer's on the right."""
    if transposed and any(part.ndim != 2 for part in at.parts):
        return None
    matrices = [
        part.T if transposed else part.reshape(1 if part.ndim == 1 else len(part), -1)
        for part in at.parts
        if part.ndim
    ]
    sizes = [at.D, *(len(matrix) for matrix in matrices)]
    fits = len(matrices) == len(at.parts) and [m.shape[1] for m in matrices] == sizes[:-1]
    if not fits or sizes[-1] != at.K:
        return None
    return reduce(lambda product, matrix: matrix @ product, matrices)


def _vectors(at: _Module) -> list[Tensor] | None:
    """Two parameters or more of as many entries as there are features, under one output."""
    if at.K != 1 or len(at.parts) < 2 or any(part.numel() != at.D for part in at.parts):
        return None
    return [part.reshape(-1) for part in at.parts]


def _diagonal_power(at: _Module, power: int) -> Tensor | None:
    found = _vectors(at)
    if found is None or len(found) != 2:
        return None
    return (found[0] ** power - found[1] ** power)[None]


def _diagonal_product(at: _Module) -> Tensor | None:
    found = _vectors(at)
    return None if found is None else torch.stack(found).prod(dim=0)[None]


def _convolution(at: _Module) -> Tensor | None:
    """Whatever is linear in x, if |F beta| is the product of the |F w_l|."""
    found = _vectors(at)
    if found is None:
        return None
    beta = at.outputs(torch.eye(at.D).to(at.X))[:, 0]
    moduli = reduce(torch.mul, [torch.fft.fft(part).abs() for part in found])
    return beta[None] if close(torch.fft.fft(beta).abs(), moduli) else None


def _of_matrices(at: _Module, geometry: str = "l2") -> str:
    if at.K == 1:
        return "l2"  # of one row, which has one singular value
    p = SCHATTEN[geometry] / len(at.parts)
    return next((name for name, known in SCHATTEN.items() if known == p), f"Schatten {p:.3g}")


def _of_entries(at: _Module, power: int = 0) -> str:
    layers = power or len(at.parts)
    return "l1" if layers == 2 else f"l_{2 / layers:.3g}"


def _of_spectrum(at: _Module) -> str:
    return f"{_of_entries(at)} of the Fourier transform"


FAMILIES: tuple[_Family, ...] = (
    _Family("deep linear", _product, _of_matrices),
    _Family("deep linear", partial(_product, transposed=True), _of_matrices),
    *(
        _Family("diagonal", partial(_diagonal_power, power=p), partial(_of_entries, power=p))
        for p in (2, 3, 4)
    ),
    _Family("diagonal", _diagonal_product, _of_entries),
    _Family("linear convolution", _convolution, _of_spectrum),
)


def in_function_space(
    program: TangentProgram, max_seconds: float | None = None
) -> FunctionSpace | None:
    """Compare the predictor with the optimum of its norm, where the module is recognised.

    Parameters
    ----------
    program : TangentProgram
        The module at smallest margin 1, and the geometry of its parameters.
    max_seconds : float, optional
        Limit on the time of the solver, whose bounds are farther apart then.
    """
    gradients, in_l2 = program.gradients, program.norm == PARAMETER_NORMS["l2"]
    geometry = up_to_scales(program.norm)
    if is_gated(gradients.module):
        return _gated(program, max_seconds) if in_l2 else None
    if not _of_one_argument(gradients):
        return None
    at = _Module(gradients, program.theta)
    for family in FAMILIES:
        beta = family.beta(at)
        if beta is None or not at.computes(family.predictor):
            continue
        kind, name = family.name, family.norm(at)
        if len(at.parts) == 1 and geometry:
            kind, name = "linear", geometry
        elif kind == "deep linear" and geometry in SCHATTEN:
            name = _of_matrices(at, geometry)
        elif not in_l2:
            return None
        return _linear_predictor(at, kind, name, beta.cpu().numpy(), max_seconds)
    return None


def is_gated(module: nn.Module) -> bool:
    """Whether a module is one of this package's networks with fixed gates and one hidden layer."""
    return isinstance(module, Network) and module.fixed_gates and module.has_margin_structure


def _of_one_argument(gradients: MarginGradients) -> bool:
    return len(gradients.inputs) == 1 and gradients.inputs[0].is_floating_point()


def two_layer_relu(program: TangentProgram) -> tuple[Tensor, Tensor] | None:
    """Return the weights (H, D) and (K, H) of a module that computes readout relu(hidden x)."""
    if not _of_one_argument(program.gradients):
        return None

    at, found = _Module(program.gradients, program.theta), list(program.gradients.shapes.values())
    if len(found) != 2 or found[0][1:] != (at.D,) or found[1].numel() != at.K * found[0][0]:
        return None

    def layers(at: _Module) -> tuple[Tensor, Tensor]:
        return at.parts[0], at.parts[1].reshape(at.K, -1)

    def predictor(at: _Module) -> Tensor:
        hidden, readout = layers(at)
        return (at.X[:SAMPLES] @ hidden.T).relu() @ readout.T

    return layers(at) if at.computes(predictor) else None


def _linear_predictor(
    at: _Module, family: str, name: str, beta: Array, max_seconds: float | None
) -> FunctionSpace:
    """Beside the optimum of its norm, where that is convex."""
    if name not in CONVEX:
        return FunctionSpace(family, name, math.nan, None, f"the {name} (quasi-)norm is not convex")
    labels, classes, factor, norm = at.gradients.labels, at.gradients.classes, 1.0, CONVEX[name]
    if classes == 2:
        # The binary problem, whose optimum is known to be that up to a factor; of one row the
        # norms of matrices are l2.
        labels, classes, factor = 2.0 * labels - 1.0, None, OF_TWO_CLASSES[name]
        norm = CONVEX["l2"] if name in ("nuclear", "spectral") else norm
    found = FunctionSpace(family, name, CONVEX[name].value(beta), None, "")
    linear, X = Architecture(NoGates(at.D), norm=as_norm(norm)), at.X.cpu().numpy()
    pose = partial(linear.problem, X, labels, classes=classes)
    found = _solved(found, at.gradients, pose, max_seconds)
    bounds = found.certificate
    if bounds is None:
        return found
    of_matrices = name in ("nuclear", "spectral")
    width = min(min(part.shape) for part in at.parts) if of_matrices else at.K
    few = f"with {width} hidden units the module may not reach the optimum"
    return replace(
        found,
        certificate=replace(bounds, lower=factor * bounds.lower, upper=factor * bounds.upper),
        obstacle=few if width < min(at.K - 1, at.D) else "",
    )


def _gated(program: TangentProgram, max_seconds: float | None) -> FunctionSpace:
    """One of this package's networks, beside the margin problem of its gates."""
    network, gradients = program.gradients.module, program.gradients
    assert isinstance(network, Network)
    found = FunctionSpace("gated network", "sum of the units' l2 norms", math.nan, None, "")
    if gradients.classes is not None:
        several = "networks of several outputs have units of rank one, which is not convex"
        return replace(found, obstacle=several)
    problem = network.architecture().problem(gradients.inputs[0].cpu().numpy(), gradients.labels)
    unit_norms = problem.group_norms(network.coef()) / program.scale**program.degree
    found = replace(found, value=float(unit_norms.sum()))
    return _solved(found, gradients, lambda: problem, max_seconds, unit_norms)


def _solved(
    found: FunctionSpace,
    gradients: MarginGradients,
    pose: Callable[[], MarginProblem],
    max_seconds: float | None,
    unit_norms: Array | None = None,
) -> FunctionSpace:
    """Put the certified optimum beside a predictor, or why there is none."""
    if gradients.inputs[0].numel() * gradients.pairs.width > MOST_ENTRIES:
        large = "the problem is too large to be solved in passing: use implicit_bias.max_margin"
        return replace(found, obstacle=f"{large} and solve")
    try:
        solution = solve(pose(), max_seconds=max_seconds)
    except (SolveError, ValueError) as error:
        return replace(found, obstacle=str(error))
    if not solution.certificate.lower > 0:
        return replace(found, obstacle=solution.message)
    dead = 0 if unit_norms is None else solution.active & ~active_units(unit_norms)
    return replace(found, certificate=solution.certificate, dead_units=int(np.count_nonzero(dead)))


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


# Norms whose margin problems are convex, by their names here.
CONVEX: dict[str, Any] = {
    **{name: as_norm(name) for name in OF_TWO_CLASSES},
    "l1 of the Fourier transform": FourierL1(),
}
