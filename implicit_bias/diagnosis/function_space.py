r"""Modules whose limit is a norm of the predictor itself: how far above the optimum they are.

Many parameters give the same predictor. The smallest 1/2 ||theta||^2 among them is a power of a
norm of the predictor. Where that norm is convex, its margin problem has a certified optimum, which
no network of this kind can beat, however long it is trained. A KKT point of the parameters need not
reach it.

=====================  ==================  ====================================================
module                 predictor           norm of the predictor, for theta in l2
=====================  ==================  ====================================================
linear                 <w, x>              l2 (and for theta in any other norm, that norm)
deep linear            W_L ... W_1 x       one output: l2; several, two layers: nuclear; deeper:
                                           Schatten 2/L, not convex. Theta in spectral:
                                           spectral, at any depth; nuclear: Schatten 1/L
diagonal               (u o u - v o v) o x two layers: l1; deeper: l_(2/L), not convex
                       u_1 o ... o u_L o x
gated, one hidden      sum_h <zeta_h,      sum_h ||zeta_h|| over the units
layer                  z_h(x) x'>
=====================  ==================  ====================================================

**Deep linear.** With ||.||_p of the singular values, the inequalities of Hoelder and of means give

    ||W||_(p/L) <= prod_l ||W_l||_p <= m^L,   m a mean, or the maximum, of the ||W_l||_p,

for every factorization W = W_L ... W_1, and the singular value decomposition W = U S V' attains it:
W_1 = S^(1/L) V', W_l = S^(1/L), W_L = U S^(1/L), if all inner widths are at least the rank of W. So
the smallest m^L over the factorizations of W is ||W||_(p/L), whose p is 2 in l2, 1 in nuclear and
infinite in spectral norm; scales of the layers multiply it by a constant. With fewer hidden
units it is a lower bound still.

A module is recognized by what it computes alone: its outputs on the samples are compared with the
family's predictor, at random parameters. Nothing is concluded from the names of its layers.

Source: Gunasekar, Lee, Soudry, Srebro (2018), "Implicit bias of gradient descent on linear
convolutional networks"; Lippl, Abbott, Chung (2022) for gated networks.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Certificate
from implicit_bias.modules.evaluate import drawn_like
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.stationarity import active_units
from implicit_bias.modules.tangent_program import TangentProgram
from implicit_bias.networks import Network
from implicit_bias.norms import Norm, as_norm
from implicit_bias.norms.tensors import PARAMETER_NORMS, ParameterNorm, up_to_scales
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import NoGates
from implicit_bias.solvers.base import Solution
from implicit_bias.solvers.solve import solve

# Exponent p of the norm of each layer's singular values, by the name of the norm of theta.
SCHATTEN = {"l2": 2.0, "spectral": math.inf, "nuclear": 1.0}


@dataclass(frozen=True, eq=False)
class FunctionSpace:
    """A module's predictor beside the optimum of its own norm.

    Attributes
    ----------
    family : str
        What the module was recognized as.
    norm : str
        The norm of the predictor that its training minimizes in the limit.
    value : float
        That norm at unit margin; nan where it is not convex.
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
        """Fraction by which the norm is above the certified optimum, at most; nan without one."""
        if self.certificate is None or not self.certificate.lower > 0:
            return math.nan
        # At most this, as the lower bound may be below the optimum.
        return self.value / self.certificate.lower - 1.0

    @property
    def margin_error(self) -> float:
        """Relative margin error 1 - margin / maximum margin, at most; nan without an optimum."""
        if self.certificate is None or not self.certificate.lower > 0:
            return math.nan
        return 1.0 - self.certificate.lower / self.value


class PointThresholds:
    """When a module is said to compute a predictor.

    Attributes
    ----------
    draws : int
        Random parameters at which the outputs of both are compared.
    samples : int
        Samples on which they are compared, the first ones.
    same : float
        Fraction by which they may differ, by rounding.
    """

    draws: Final = 3
    samples: Final = 64
    same: Final = 1e-9


@dataclass(frozen=True, eq=False)
class Point:
    """A module of one argument at one value of its parameters, which predictors are compared with.

    Attributes
    ----------
    function : Margins
        The module.
    theta : Tensor of shape (P,)
        Its trained parameters.
    norm : ParameterNorm
        Their norm.
    """

    function: Margins
    theta: Tensor
    norm: ParameterNorm

    @property
    def parts(self) -> list[Tensor]:
        """The parameters."""
        return list(self.function.parameters(self.theta).values())

    @property
    def X(self) -> Tensor:
        """Inputs (N, D)."""
        return flat_inputs(self.function)

    @property
    def D(self) -> int:
        """Number of features."""
        return self.X.shape[1]

    @property
    def K(self) -> int:
        """Number of outputs a sample."""
        return self.function.pairs.width

    def outputs(self, X: Tensor) -> Tensor:
        """Compute the outputs (n, K) of inputs (n, D)."""
        given = X.reshape(len(X), *self.function.inputs[0].shape[1:])
        with torch.no_grad():
            return self.function.outputs_at(self.theta, given)

    def close(self, found: Tensor, expected: Tensor) -> bool:
        """Whether two tensors are equal but for rounding."""
        missed = float((found - expected).abs().max())
        return missed <= PointThresholds.same * float(expected.abs().max())

    def computes(self, predictor: Callable[[Point, Tensor], Tensor | None]) -> bool:
        """Whether the module's outputs are a predictor's, at random parameters.

        The predictor is called with the point and inputs (n, D).
        """
        # The families' predictors are polynomials of the parameters (or piecewise): two that agree
        # at random parameters are the same.
        few = self.X[: PointThresholds.samples]
        for seed in range(PointThresholds.draws):
            drawn = replace(self, theta=drawn_like(self.theta, seed))
            expected = predictor(drawn, few)
            if expected is None or not self.close(drawn.outputs(few), expected):
                return False
        return True


def flat_inputs(function: Margins) -> Tensor:
    """Flatten the inputs of a module of one argument, (N, D)."""
    return function.inputs[0].reshape(len(function.inputs[0]), -1)


# --- families of predictors -----------------------------------------------------------------------
# Each returns beta (K, D) of the predictor <beta_k, x>, or None where shapes do not fit.


def _product(at: Point) -> Tensor | None:
    """W_L ... W_1 of all parameters as matrices of shape (out, in); a vector is a row."""
    matrices = list[Tensor]()
    for part in at.parts:
        if part.ndim < 2:
            part = part.reshape(1, -1)
        matrices.append(part.flatten(1))
    return _chained(at, matrices)


def _transposed_product(at: Point) -> Tensor | None:
    """W_L' ... W_1' of matrices that are stored as (in, out), as in x @ A @ B."""
    if any(part.ndim != 2 for part in at.parts):
        return None
    return _chained(at, [part.T for part in at.parts])


def _chained(at: Point, matrices: list[Tensor]) -> Tensor | None:
    """Multiply matrices, the first one on the right, if they lead from D features to K outputs."""
    product = matrices[0]
    if product.shape[1] != at.D or len(matrices[-1]) != at.K:
        return None
    for matrix in matrices[1:]:
        if matrix.shape[1] != len(product):
            return None
        product = matrix @ product
    return product


def _vectors(at: Point) -> list[Tensor] | None:
    """Two parameters or more of as many entries as there are features, under one output."""
    if at.K != 1 or len(at.parts) < 2 or any(part.numel() != at.D for part in at.parts):
        return None
    return [part.reshape(-1) for part in at.parts]


def _difference_of_squares(at: Point) -> Tensor | None:
    """Compute u o u - v o v."""
    found = _vectors(at)
    if found is None or len(found) != 2:
        return None
    u, v = found
    return (u * u - v * v)[None]


def _entrywise_product(at: Point) -> Tensor | None:
    """u_1 o ... o u_L."""
    found = _vectors(at)
    if found is None:
        return None
    return torch.stack(found).prod(dim=0)[None]


BetaOf: TypeAlias = Callable[[Point], Tensor | None]
# Predictors that are linear in x, by the names of the table above.
FAMILIES: tuple[tuple[str, BetaOf], ...] = (
    ("deep linear", _product),
    ("deep linear", _transposed_product),
    ("diagonal", _difference_of_squares),
    ("diagonal", _entrywise_product),
)


def _norm_of_beta(family: str, at: Point, parameter_norm: str) -> str:
    """Name the norm of beta whose power is the smallest 1/2 ||theta||^2; see the head.

    ``parameter_norm`` is the name of the norm of theta up to scales of the layers, which multiply
    the norm of a product of matrices by a constant. "" where no norm of beta is known: of a
    diagonal module that is in every norm of theta but l2 without scales.
    """
    layers = len(at.parts)
    # The same inequalities entry by entry: 1/2 sum_l ||u_l||^2 >= L/2 sum_d |beta_d|^(2/L).
    if family == "diagonal":
        if at.norm != PARAMETER_NORMS["l2"]:
            return ""
        return "l1" if layers == 2 else f"l_{2 / layers:.3g}"
    if layers == 1:
        return parameter_norm
    if parameter_norm not in SCHATTEN:
        return ""
    if at.K == 1:
        return "l2"  # a single row has one singular value
    # ||W||_(p/L) of the head; infinity over L is infinity, so that spectral stays spectral.
    p = SCHATTEN[parameter_norm] / layers
    for name, exponent in SCHATTEN.items():
        if p == exponent:
            return name
    return f"Schatten {p:.3g}"


@dataclass(frozen=True)
class ConvexNorm:
    """A norm of predictors whose margin problem is convex.

    Attributes
    ----------
    norm : Norm
        The norm, of beta (K, D).
    binary : Norm
        What it is of a single row.
    of_two_classes : float
        The optimum of a problem of two classes over that of the binary one.
    """

    norm: Norm
    binary: Norm
    of_two_classes: float


# Two classes have the margin y <w, x> with w = b_1 - b_0. For a given w the smallest norm is that
# of the rows -w / 2 and w / 2. They have rank 1, so their l2, nuclear and spectral norms are all
# |w|_2 / sqrt(2); their l1 norm is |w|_1, their linf norm |w|_inf / 2.
CONVEX: dict[str, ConvexNorm] = {
    "l2": ConvexNorm(as_norm("l2"), as_norm("l2"), 0.5**0.5),
    "nuclear": ConvexNorm(as_norm("nuclear"), as_norm("l2"), 0.5**0.5),
    "spectral": ConvexNorm(as_norm("spectral"), as_norm("l2"), 0.5**0.5),
    "l1": ConvexNorm(as_norm("l1"), as_norm("l1"), 1.0),
    "linf": ConvexNorm(as_norm("linf"), as_norm("linf"), 0.5),
}


# --- the optimum beside a predictor ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Formulation:
    """A predictor, and the margin problem whose optimum is that of its norm.

    Attributes
    ----------
    found : FunctionSpace
        The predictor, not compared yet; with an ``obstacle`` there is nothing to compare it with.
    build : callable or None
        Builds the margin problem; None with an obstacle.
    factor : float
        The optimum of the predictor's norm over that of the margin problem.
    unit_norms : ndarray of shape (H,) or None
        Norms of the units of a gated network.
    """

    found: FunctionSpace
    build: Callable[[], MarginProblem] | None = None
    factor: float = 1.0
    unit_norms: Array | None = None


def in_function_space(
    program: TangentProgram,
    max_seconds: float | None = None,
    known: FunctionSpace | None = None,
) -> FunctionSpace | None:
    """Compare the predictor with the optimum of its norm, where the module is recognized.

    Parameters
    ----------
    program : TangentProgram
        The module at unit margin, and the norm of its parameters.
    max_seconds : float, optional
        Limit on the time of the solver, whose bounds are farther apart then.
    known : FunctionSpace, optional
        What was found of the same module at other parameters: the optimum is the same.
    """
    function = program.function
    # --- its predictor, and the margin problem of that
    formulated = None
    if is_gated(function.module):
        if program.norm == PARAMETER_NORMS["l2"]:
            formulated = _gated(program)
    elif _of_one_argument(function):
        formulated = _linear_predictor(Point(function, program.theta, program.norm))
    if formulated is None:
        return None
    if formulated.build is None:
        return formulated.found
    # --- the optimum, once
    found = formulated.found
    if known is not None and (known.family, known.norm) == (found.family, found.norm):
        return replace(found, certificate=known.certificate, obstacle=known.obstacle)
    solution = _solved(formulated.build, function, max_seconds)
    if isinstance(solution, str):
        return replace(found, obstacle=solution)
    bounds = solution.certificate
    lower = formulated.factor * bounds.lower
    upper = formulated.factor * bounds.upper
    found = replace(found, certificate=replace(bounds, lower=lower, upper=upper))
    if formulated.unit_norms is None:
        return found
    # A unit with weights 0 meets its part of the KKT conditions, and no gradient moves it.
    dead = solution.active & ~active_units(formulated.unit_norms)
    return replace(found, dead_units=int(np.count_nonzero(dead)))


def predictor_of(function: Margins) -> Array | None:
    """Coefficients of the predictor of a module, as one vector, in the order of `Solution.coef`.

    None of modules that are not recognized.
    """
    if is_gated(function.module):
        network = function.module
        assert isinstance(network, Network)
        return np.asarray(network.coef(), dtype=np.float64).reshape(-1)
    if not _of_one_argument(function):
        return None
    recognised = _recognised(Point(function, function.theta, PARAMETER_NORMS["l2"]))
    if recognised is None:
        return None
    _, beta = recognised
    return beta.reshape(-1)


def _recognised(at: Point) -> tuple[str, Array] | None:
    """Return the family of a module whose predictor is linear in x, and its beta (K, D)."""
    for family, beta_of in FAMILIES:
        beta = beta_of(at)
        if beta is not None and at.computes(partial(_linear_outputs, beta_of)):
            return family, beta.cpu().numpy()
    return None


def _linear_outputs(beta_of: BetaOf, at: Point, X: Tensor) -> Tensor | None:
    """Compute the outputs (n, K) of a family's predictor; None where shapes do not fit."""
    beta = beta_of(at)
    if beta is None:
        return None
    return X @ beta.T


def is_gated(module: nn.Module) -> bool:
    """Whether a module is one of this package's networks with fixed gates and one hidden layer."""
    return isinstance(module, Network) and module.fixed_gates and module.has_margin_structure


def _of_one_argument(function: Margins) -> bool:
    return len(function.inputs) == 1 and function.inputs[0].is_floating_point()


def two_layer_relu(program: TangentProgram) -> tuple[Tensor, Tensor] | None:
    """Return the weights (H, D) and (K, H) of a module that computes output relu(hidden x)."""
    if not _of_one_argument(program.function):
        return None
    at = Point(program.function, program.theta, program.norm)
    if len(at.parts) != 2:
        return None
    first, last = at.parts
    if first.shape[1:] != (at.D,) or last.numel() != at.K * len(first):
        return None

    def predictor(drawn: Point, X: Tensor) -> Tensor:
        hidden, output = drawn.parts
        return (X @ hidden.T).relu() @ output.reshape(drawn.K, -1).T

    if not at.computes(predictor):
        return None
    return first, last.reshape(at.K, -1)


def _linear_predictor(at: Point) -> Formulation | None:
    """Recognize a predictor that is linear in x, and formulate the problem of its norm."""
    recognised = _recognised(at)
    if recognised is None:
        return None
    family, beta = recognised
    name = _norm_of_beta(family, at, up_to_scales(at.norm))
    if not name:
        return None
    if family == "deep linear" and len(at.parts) == 1:
        family = "linear"
    if name not in CONVEX:
        not_convex = f"the {name} (quasi-)norm is not convex"
        return Formulation(FunctionSpace(family, name, math.nan, None, not_convex))
    known = CONVEX[name]
    found = FunctionSpace(family, name, known.norm.value(beta), None, "")
    labels = at.function.labels
    classes = at.function.classes
    norm = known.norm
    factor = 1.0
    if classes == 2:
        # The binary problem, whose optimum is that of two classes up to a factor.
        labels = 2.0 * labels - 1.0
        classes = None
        norm = known.binary
        factor = known.of_two_classes

    def build() -> MarginProblem:
        linear = Architecture(NoGates(at.D), norm=as_norm(norm))
        return linear.problem(at.X.cpu().numpy(), labels, classes=classes)

    return Formulation(found, build, factor)


def _gated(program: TangentProgram) -> Formulation:
    """Formulate the margin problem of the gates of one of this package's gated networks."""
    function = program.function
    network = function.module
    assert isinstance(network, Network)
    found = FunctionSpace("gated network", "sum of the units' l2 norms", math.nan, None, "")
    if function.classes is not None:
        several = "networks of several outputs have units of rank one, which is not convex"
        return Formulation(replace(found, obstacle=several))
    problem = network.architecture().problem(function.inputs[0].cpu().numpy(), function.labels)
    # zeta_h = a_h w_h, and 1/2 (a_h^2 + |w_h|^2) >= |zeta_h|, with equality for balanced units.
    # zeta_h is of degree L in theta: at unit margin it is what it is here over scale^L.
    unit_norms = problem.group_norms(network.coef()) / program.scale**program.degree
    found = replace(found, value=float(unit_norms.sum()))
    return Formulation(found, lambda: problem, unit_norms=unit_norms)


def _solved(
    build: Callable[[], MarginProblem],
    function: Margins,
    max_seconds: float | None,
    most_entries: int = 2**22,
) -> Solution | str:
    """Solve a margin problem, or say why there is no optimum to compare with.

    ``most_entries`` are those of the largest problem (samples by features by outputs) that is
    solved as a part of a diagnosis.
    """
    if function.inputs[0].numel() * function.pairs.width > most_entries:
        return "the problem is too large to be solved in passing: use max_margin and solve"
    if function.classes is not None and len(np.unique(function.labels)) < function.classes:
        return "a class has no samples"
    solution = solve(build(), max_seconds=max_seconds)
    if not solution.certificate.lower > 0:
        return solution.message
    return solution
