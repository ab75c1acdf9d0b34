"""Degrees of the outputs of a module in some of its parameters, others held fast or at 0.

Powers of 2 scale homogeneous arithmetic without rounding, so the scales are 1/2, 1 and 2.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.modules.margins import Margins

# Largest fraction by which what is homogeneous may miss its degree, by rounding.
HOMOGENEITY_TOLERANCE = 1e-6


@np.errstate(divide="ignore", invalid="ignore")  # of outputs that are 0: nan
def degree_in(function: Margins, names: Collection[str], at_0: Collection[str] = ()) -> float:
    """Degree of the outputs in some parameters, others at 0; nan where there is none."""
    outputs = list[Array]()
    for scale in (0.5, 1.0, 2.0):
        scaled = dict[str, Tensor]()
        for name, part in function.parameters(function.theta).items():
            if name in at_0:
                scaled[name] = torch.zeros_like(part)
            else:
                scaled[name] = scale * part if name in names else part
        outputs.append(function.outputs(function.flat(scaled)))
    # f(2 theta) = 2^L f(theta) and f(theta) = 2^L f(theta / 2), with one L for all outputs.
    down, original, up = outputs
    factor = np.abs(up).max() / np.abs(original).max()
    missed = max(deviation_of(factor * original, up), deviation_of(factor * down, original))
    if missed <= HOMOGENEITY_TOLERANCE and down.any():
        return float(np.log2(factor))
    return float("nan")


@np.errstate(divide="ignore", invalid="ignore")  # where all are 0: nan
def deviation_of(found: Array, expected: Array) -> float:
    """Largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())


# --- parameters of degree 0 ----------------------------------------------------------------------


def of_degree_0(function: Margins) -> tuple[str, ...]:
    """Names of the parameters, not 0, whose scale changes no output.

    A parameter is scaled alone, and together with all others of its part, as weight and bias in
    front of a layer norm must be. Euler's identity <W, grad q> = 0 is necessary; one backward pass
    of a random combination of the margins tests it for all parameters, and the forward passes of
    `degree_in` are only for those that pass.
    """
    theta = function.parameters(function.theta)
    v = gradient_of_combination(function, function.theta)
    terms = {name: theta[name] * v[name] for name in theta}

    def has_degree_0(names: list[str]) -> bool:
        product = sum(float(terms[name].sum()) for name in names)
        size = sum(float(terms[name].abs().sum()) for name in names)
        if abs(product) > HOMOGENEITY_TOLERANCE * size:  # False where the gradient is nan
            return False
        return abs(degree_in(function, names)) <= HOMOGENEITY_TOLERANCE

    parts = dict[str, list[str]]()
    for name in theta:
        parts.setdefault(name.rpartition(".")[0], []).append(name)
    found = list[str]()
    for names in parts.values():
        for name in names:
            if theta[name].any() and (has_degree_0([name]) or has_degree_0(names)):
                found.append(name)
    return tuple(found)


def scale_invariant(function: Margins, tolerance: float = HOMOGENEITY_TOLERANCE) -> list[str]:
    """Names of the parameters whose scale changes no output, though their direction does."""
    v = gradient_of_combination(function, function.theta)
    # A parameter that no output depends on at all has a gradient of 0, and is not one of them.
    sizes = {name: float(part.abs().max()) for name, part in v.items()}
    least = tolerance * max(sizes.values())
    return [name for name in of_degree_0(function) if sizes[name] > least]


def gradient_of_combination(function: Margins, theta: Tensor) -> dict[str, Tensor]:
    """Gradient of a random combination of the margins, by parameter.

    Of positive weights, in which nothing cancels by symmetry.
    """
    weights = np.random.default_rng(0).random(len(function.pairs))
    return function.parameters(function.vjp(theta, weights))
