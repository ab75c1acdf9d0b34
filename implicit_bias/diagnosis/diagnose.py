r"""How far is a module from where its training can end: one call for any homogeneous module.

In the geometry of a norm, training on an exponential-like loss goes, in direction, to a KKT point
of  min 1/2 ||theta||^2 s.t. q >= 1 (`measure.multipliers`). Each step below is a file of this
package.

1. Traps: what makes the question meaningless, or a number mean less (`traps`,
   `homogeneity`, `recipe`).
2. The gap: the module at smallest margin 1 beside the best multipliers in the norm.
3. Layers: which has most room, and the direction that uses it (`layers`).
4. Beyond KKT points: one more ReLU unit (`escape`), the optimum in function space
   (`function_space`).

Source: Lyu and Li (2020); Tsilivis, Vardi, Kempe (2024); Vardi, Shamir, Srebro (2022), KKT points
that are not local optima.
"""

from __future__ import annotations

import time
import warnings as python_warnings
from collections.abc import Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import Array
from implicit_bias.diagnosis.escape import Escape, find_escape
from implicit_bias.diagnosis.function_space import in_function_space, two_layer_relu
from implicit_bias.diagnosis.layers import layer_bounds
from implicit_bias.diagnosis.recipe import loss_warning, optimizer_warnings
from implicit_bias.diagnosis.result import FAR, Diagnosis
from implicit_bias.diagnosis.traps import (
    Checked,
    DiagnosisWarning,
    check,
    is_gated,
)
from implicit_bias.measure.margin_gradients import MarginGradients, labels_as_array
from implicit_bias.measure.modules import as_module, evaluating
from implicit_bias.measure.multipliers import (
    Multipliers,
    at_margin_1,
    judge,
    kkt_gap,
    loss_weights,
    measure,
    tempered_weights,
)
from implicit_bias.measure.stationarity import SeparationError
from implicit_bias.norms import Norm
from implicit_bias.norms.tensors import (
    PARAMETER_NORMS,
    HasParameterNorm,
    ParameterNorm,
    as_parameter_norm,
)

# The geometries that are compared with the one asked for.
COMPARED = ("l2", "l1", "linf", "spectral")
# Seconds that the layers' own bounds may take together where they are not exact.
LAYER_SECONDS = 4.0
# Samples named in a message.
NAMED = 5


def diagnose(
    module: nn.Module,
    inputs: tuple[Tensor | Array, ...] | Tensor | Array,
    labels: ArrayLike,
    *,
    norm: ParameterNorm | HasParameterNorm | Norm | str = "l2",
    loss: object = None,
    optimizer: object = None,
) -> Diagnosis:
    """Measure how far a module is from where its training can end.

    Parameters
    ----------
    module : nn.Module
        Any module that treats its samples one by one and is homogeneous in those of its parameters
        that require a gradient (the others count as constants). It is left as it is: mode,
        gradients, precision and device.
    inputs : tuple of Tensor or ndarray, or a single one
        The module's arguments, each with the samples as first axis.
    labels : array_like of shape (N,)
        -1 and +1 for outputs of shape (N,) or (N, 1); classes 0 .. K - 1 for outputs (N, K).
    norm : {"l2", "l1", "linf", "spectral", "nuclear"} or a norm
        The geometry: l2 for gradient descent, linf for sign descent and Adam, spectral for Muon
        (see `implicit_bias.norms.tensors`).
    loss : str, MarginLoss or callable, optional
        What was minimised, as a function of outputs and targets: a torch loss, say. It is only
        checked to be one whose training has such a limit.
    optimizer : torch.optim.Optimizer, its class or its name, optional
        What minimised it: checked to have the limit norm asked for, to have all parameters, and no
        weight decay.

    Returns
    -------
    Diagnosis

    Raises
    ------
    HomogeneityError
        The module is not homogeneous: biases, normalisation layers, softmax attention, skip
        connections or contexts of different degrees. The message names the part, and a cure.
    SeparationError
        Samples are misclassified, so no scaling has smallest margin 1.
    ValueError, TypeError
        Inputs, outputs or labels that do not fit; outputs that are random or not finite; no such
        norm; no module.

    Warns
    -----
    DiagnosisWarning
        Each of `Diagnosis.warnings`.

    Notes
    -----
    In float64. In l2 the multipliers are the best there are; in other norms they are, too, for
    small modules. For larger ones they are the best known ones (those of the loss, at the best
    temperature, say), improved for at most 25 seconds, and the gap is an upper bound (``method``),
    with a lower one beside it (``gap_lower``). At a kink (a ReLU at exactly 0) torch's derivative
    stands for all subgradients.

    Examples
    --------
    >>> import torch
    >>> from implicit_bias import diagnose
    >>> module = torch.nn.Linear(2, 1, bias=False)
    >>> _ = module.weight.data.copy_(torch.tensor([[2.0, 1.0]]))
    >>> found = diagnose(module, torch.eye(2), [1, 1])
    >>> round(found.gap, 6), found.degree
    (0.6, 1.0)
    """
    started = time.monotonic()
    module, geometry = as_module(module), as_parameter_norm(norm)
    given = as_tuple(inputs)
    labels = labels_as_array(labels)
    with evaluating(module) as modes:
        checked = check(module, given, labels, modes=modes, optimizer=optimizer)
        said = [
            *checked.warnings,
            *filter(None, [loss_warning(loss, checked.gradients.pairs.classes)]),
            *optimizer_warnings(optimizer, geometry),
        ]
        found = _measure(checked, geometry, tuple(said), started)
    for text in said:
        python_warnings.warn(text, DiagnosisWarning, stacklevel=2)
    return found


def as_tuple(inputs: object) -> tuple[Tensor | Array, ...]:
    """Arguments of a module from one argument or several."""
    if isinstance(inputs, (Tensor, np.ndarray)):
        return (inputs,)
    if not isinstance(inputs, (tuple, list)) or not inputs:
        raise ValueError(
            "inputs must be a tensor, an array or a tuple of the module's arguments, got "
            f"{type(inputs).__name__}: pass (X,) or X"
        )
    return tuple(
        part if isinstance(part, (Tensor, np.ndarray)) else np.asarray(part)
        for part in cast(Sequence[object], inputs)
    )


def _measure(
    checked: Checked, norm: ParameterNorm, warnings: tuple[str, ...], started: float
) -> Diagnosis:
    gradients, L = checked.gradients, checked.degree
    pairs = gradients.pairs
    raw = gradients.margins(gradients.theta)
    min_margin = _separating(gradients, raw)
    theta = at_margin_1(gradients.theta, L, min_margin)
    free = judge(gradients, theta, L, norm, loss_weights(raw, pairs.rivals))
    candidates = [*tempered_weights(raw / min_margin, pairs.rivals), free.weights]
    norms = {**{name: PARAMETER_NORMS[name] for name in COMPARED}, norm.name: norm}
    least = _least_gaps(gradients, theta, L, norms, candidates)
    found = measure(gradients, raw, L, norm, starts=[least[norm.name][1]])
    best, gap = found.best, found.gap
    others = _least_gaps(gradients, theta, L, norms, [best.weights])
    gaps = {name: min(least[name][0], others[name][0]) for name in norms} | {norm.name: gap}
    layers = layer_bounds(
        gradients,
        theta,
        norm,
        min_margin ** (1.0 / L),
        [best.weights],
        LAYER_SECONDS / len(gradients.shapes),
    )
    return Diagnosis(
        norm=norm.name,
        degree=L,
        min_margin=min_margin,
        normalised_margin=found.size**-L,
        parameter_norm=found.size,
        gap=gap,
        gap_lower=found.gap_lower,
        method=best.method,
        gap_of_loss=kkt_gap(free.lower, found.size),
        margins=pairs.table(found.margins, np.inf),
        multipliers=pairs.table(best.weights),
        gaps=gaps,
        layers=layers,
        escape=_escape(gradients, theta, L, norm, best, gap),
        function_space=in_function_space(gradients, theta, norm, gated=is_gated(gradients.module)),
        warnings=warnings,
        excluded=checked.excluded,
        seconds=time.monotonic() - started,
    )


def _separating(gradients: MarginGradients, margins: Array) -> float:
    """Smallest margin, if it is positive."""
    pairs, smallest = gradients.pairs, float(margins.min())
    if not margins.any():
        raise SeparationError(
            "all margins are 0, so no scaling of the module has margin 1: are all its units dead, "
            "or its last weights 0? Start from other weights"
        )
    if smallest <= 0:
        wrong = np.unique(pairs.samples[margins <= 0])
        named = ", ".join(map(str, wrong[:NAMED])) + (", ..." if len(wrong) > NAMED else "")
        raise SeparationError(
            f"{len(wrong)} of {len(pairs.labels)} samples are on the wrong side (samples {named}; "
            f"smallest margin {smallest:.3g}), so no scaling of the module has margin 1 and there "
            "is no gap: train until all are right, or leave these samples out"
        )
    return smallest


def _least_gaps(
    gradients: MarginGradients,
    theta: Tensor,
    degree: float,
    norms: Mapping[str, ParameterNorm],
    candidates: Sequence[Array],
) -> dict[str, tuple[float, Array]]:
    """Gap of the best of some multipliers (n,) in each geometry, and which of them it is."""
    least = {name: (1.0, candidates[0]) for name in norms}
    sizes = {name: norm.value(gradients.parameters(theta)) for name, norm in norms.items()}
    for weights in candidates:
        v = gradients.parameters(gradients.combine(theta, weights))
        total = degree * float(weights.sum())
        for name, norm in norms.items():
            dual = norm.dual(v)
            gap = kkt_gap(total / dual, sizes[name]) if dual > 0 else 1.0
            if gap < least[name][0]:
                least[name] = gap, weights
    return least


def _escape(
    gradients: MarginGradients,
    theta: Tensor,
    degree: float,
    norm: ParameterNorm,
    best: Multipliers,
    gap: float,
) -> Escape | None:
    """One more unit of a two-layer ReLU network, near a KKT point in l2."""
    if norm != PARAMETER_NORMS["l2"] or abs(degree - 2.0) > 1e-6 or gap > FAR:
        return None
    both = two_layer_relu(gradients, theta)
    if both is None:
        return None
    X = gradients.inputs[0].reshape(len(gradients.inputs[0]), -1)
    return find_escape(*both, X, gradients.pairs, best.weights)
