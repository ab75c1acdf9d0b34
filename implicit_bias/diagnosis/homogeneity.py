"""The degree of homogeneity of a module, or the part that breaks it, by name, and a cure.

All tests are of what the module computes: its outputs with some parameters scaled, or at 0. The
functions of `TRAPS` are named where the forward pass was seen to call one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from implicit_bias.base.validation import Array
from implicit_bias.measure.margin_gradients import MarginGradients
from implicit_bias.measure.stationarity import (
    HomogeneityError,
    OtherGradientsError,
    measured_degree,
)

# Share by which single outputs may miss c^L.
DEGREE_TOLERANCE = 1e-6


@dataclass(frozen=True)
class Trap:
    """A function that breaks homogeneity: what it is, and what to do."""

    what: str
    cure: str


_NORMALISATION = Trap(
    "a normalisation layer",
    "leave it out, or diagnose with its weights and statistics folded into the layer before and "
    "without its bias",
)
_SATURATES = Trap("an activation that does not scale", "use ReLU, leaky ReLU or a power")
_ATTENTION = Trap(
    "softmax attention, which is not homogeneous in its key and query matrices",
    "freeze these (requires_grad_(False)), or use attention without softmax",
)
TRAPS: dict[str, Trap] = {
    **dict.fromkeys(("softmax", "scaled_dot_product_attention", "log_softmax"), _ATTENTION),
    "multi_head_attention_forward": _ATTENTION,
    **dict.fromkeys(
        ("batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"),
        _NORMALISATION,
    ),
    **dict.fromkeys(
        ("tanh", "sigmoid", "gelu", "silu", "elu", "selu", "celu", "softplus", "mish", "softsign"),
        _SATURATES,
    ),
    **dict.fromkeys(("hardtanh", "relu6", "hardsigmoid", "hardswish", "logsigmoid"), _SATURATES),
}


def degree_or_cause(gradients: MarginGradients, seen: Mapping[str, list[str]]) -> float:
    """Measure the degree L of a module; nan where all outputs are 0.

    Parameters
    ----------
    gradients : MarginGradients
        Its margins.
    seen : mapping from name to list of str
        Functions of `TRAPS` that its forward pass calls, and in which parts.

    Raises
    ------
    HomogeneityError
        It has none; the message names the part that breaks it, with a cure.
    """
    margins = gradients.margins(gradients.theta)
    if not margins.any():
        return math.nan  # nothing is separated, whatever the degree
    try:
        return measured_degree(gradients, None)
    except OtherGradientsError:
        raise
    except HomogeneityError as error:
        raise HomogeneityError(f"{_cause(gradients, seen)} ({error.deviation})") from error


def _cause(gradients: MarginGradients, seen: Mapping[str, list[str]]) -> str:
    """Why a module is not homogeneous, and what to do."""
    for name, places in seen.items():
        trap = TRAPS.get(name)
        if trap is not None:
            broken = inhomogeneous(gradients)
            of = f"; not homogeneous in {listed(broken)}" if broken else ""
            return f"{trap.what}: {name} in {listed(places)}{of}: {trap.cure}"
    degrees = sample_degrees(gradients)
    if degrees is not None:
        least = degrees.min()
        first = int(np.argmin(degrees))
        other = int(np.argmax(degrees))
        return (
            f"samples of different degrees: {least:.4g} at sample {first}, {degrees[other]:.4g} at "
            f"sample {other}. Only the samples of the least degree keep a share of the gradient, "
            "so training goes to a KKT point of their program alone: give all contexts paths of "
            "the same number of layers, or diagnose the samples of one degree"
        )
    added = added_terms(gradients)
    biases = [name for name in added if len(gradients.shapes[name]) <= 1]
    if biases:
        return (
            f"biases: with {listed(biases)} set to 0 the module is homogeneous. Leave them out "
            "(bias=False), or freeze them at 0; a constant feature of the inputs does as well"
        )
    mixed = mixed_degrees(gradients)
    if len(mixed) > 1:
        sums = " and ".join(f"{degree:d}" for degree in mixed)
        through = f" ({listed(added or inhomogeneous(gradients))})" if gradients.shapes else ""
        return (
            f"a skip connection: the outputs are a sum of terms of degrees {sums}{through}. Give "
            "all paths the same number of trained layers, or train with the shortcut's weights "
            "frozen at 0"
        )
    broken = inhomogeneous(gradients)
    of = f" in {listed(broken)}" if broken else ""
    return f"the module is not homogeneous{of}: use layers and activations that scale"


def listed(names: list[str] | tuple[str, ...]) -> str:
    """List parts or parameters of a module by name, the first four of them."""
    shown = [repr(name) if name else "the module's forward" for name in names]
    return ", ".join(shown[:4]) + (f" and {len(shown) - 4} more" if len(shown) > 4 else "")


def _scaled(gradients: MarginGradients, scale: float, names: Any = None) -> Array:
    """Compute the outputs with some parameters scaled, by default all."""
    parts = gradients.parameters(gradients.theta)
    scaled = {
        name: scale * part if names is None or name in names else part
        for name, part in parts.items()
    }
    return gradients.outputs(gradients.flat(scaled))


def inhomogeneous(gradients: MarginGradients) -> list[str]:
    """Parameters in each of which alone the outputs are not homogeneous, of any degree."""
    original, found = gradients.outputs(gradients.theta), []
    for name in gradients.shapes:
        up, down = (_scaled(gradients, scale, (name,)) for scale in (2.0, 0.5))
        factor = float((up * original).sum() / np.square(original).sum())
        errors = (np.abs(up - factor * original), np.abs(factor * down - original))
        if max(error.max() for error in errors) > DEGREE_TOLERANCE * np.abs(up).max():
            found.append(name)
    return found


def sample_degrees(gradients: MarginGradients) -> Array | None:
    """Degree of each sample (N,), if each has one but not all the same."""
    original = gradients.outputs(gradients.theta)
    up, down = (_scaled(gradients, scale) for scale in (2.0, 0.5))
    sizes = [np.abs(outputs).max(axis=1) for outputs in (down, original, up)]
    if min(size.min() for size in sizes) <= 0:
        return None
    factor = sizes[2] / sizes[1]
    error = np.maximum(
        np.abs(up - factor[:, None] * original).max(axis=1) / sizes[2],
        np.abs(factor[:, None] * down - original).max(axis=1) / sizes[1],
    )
    degrees = np.log2(factor)
    same = np.ptp(degrees) <= DEGREE_TOLERANCE
    return None if same or error.max() > DEGREE_TOLERANCE else degrees


def added_terms(gradients: MarginGradients) -> list[str]:
    """Parameters without which (at 0) the module is homogeneous: each of one set that must go.

    The set are the vectors and scalars, biases as a rule; where these are not to blame, a single
    parameter.
    """
    vectors = [name for name, shape in gradients.shapes.items() if len(shape) <= 1]
    if vectors and _degree_without(gradients, vectors) > 0:
        needed = [
            name
            for name in vectors
            if not _degree_without(gradients, [other for other in vectors if other != name]) > 0
        ]
        return needed or vectors
    # The shortcut is what leaves the paths of the largest degree.
    degrees = {name: _degree_without(gradients, [name]) for name in gradients.shapes}
    largest = max(degrees.values())
    return [name for name, degree in degrees.items() if degree == largest > 0]


def _degree_without(gradients: MarginGradients, names: list[str]) -> float:
    """Degree with some parameters at 0; 0 where the rest is not homogeneous, or nothing."""
    parts = gradients.parameters(gradients.theta)
    rest = [name for name in parts if name not in names]
    if not rest:
        return 0.0
    at = {name: torch.zeros_like(part) if name in names else part for name, part in parts.items()}
    without = gradients.restricted(rest, gradients.flat(at))
    if not without.margins(without.theta).any():
        return 0.0
    try:
        return measured_degree(without, None)
    except HomogeneityError:
        return 0.0


def mixed_degrees(gradients: MarginGradients, largest: int = 6) -> list[int]:
    """Degrees of outputs that are a polynomial of the parameters' scale; empty if they are none."""
    scales = np.linspace(0.5, 2.0, largest + 4)
    outputs = np.stack([_scaled(gradients, float(s)).reshape(-1) for s in scales])
    powers = scales[:, None] ** np.arange(largest + 1)
    terms, *_ = np.linalg.lstsq(powers, outputs)
    size = np.abs(outputs).max()
    if np.abs(powers @ terms - outputs).max() > DEGREE_TOLERANCE * size:
        return []
    return [degree for degree in range(largest + 1) if np.abs(terms[degree]).max() > 1e-5 * size]
