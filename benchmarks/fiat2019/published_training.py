"""The published training: Adam, rate 0.001 throughout, batches of 128, 100,000 steps.

Small networks spend most of their time in the overhead of torch's operations: here forward and
backward pass are written out in numpy, which is several times as fast. The networks are
those of the package (ReLU and GaLU0); a test compares each step with torch's. Batches are cut from
a permutation of the samples, a new one each time all have been used; the last batch of a
permutation has what is left. The authors' code fills it up from the next permutation: the same
where 128 divides the number of samples.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.fiat2019.gated_layers import GatedLayers
from implicit_bias.base.validation import Array

STEPS, RATE, BATCH = 100_000, 0.001, 128
# Steps between two calls of who watches.
LOOK_EVERY = 1000
# Adam's moments and its epsilon, torch's defaults.
FIRST, SECOND, EPSILON = 0.9, 0.999, 1e-8

Single: TypeAlias = NDArray[np.float32]
LossName: TypeAlias = Literal["squared", "hinge", "cross-entropy"]


def as_single(values: NDArray[np.floating[Any]]) -> Single:
    """Return values in float32, without a copy where they are."""
    return values.astype(np.float32, copy=False)


def _cross_entropy(outputs: Single, targets: Single) -> Single:
    """Of softmax, with targets one-hot."""
    shares = np.exp(outputs - outputs.max(axis=1, keepdims=True))
    return as_single((shares / shares.sum(axis=1, keepdims=True) - targets) / len(outputs))


# Derivatives of the mean losses in the outputs (n, p).
SLOPES: dict[LossName, Callable[[Single, Single], Single]] = {
    "squared": lambda outputs, targets: as_single(2 * (outputs - targets) / outputs.size),
    "hinge": lambda outputs, targets: as_single(-targets * (outputs * targets < 1) / outputs.size),
    "cross-entropy": _cross_entropy,
}


def train_as_published(
    network: GatedLayers,
    X: Array,
    Y: Array,
    loss: LossName,
    *,
    steps: int = STEPS,
    rate: float = RATE,
    batch_size: int = BATCH,
    watch: Callable[[int], bool] | None = None,
    seed: int = 0,
) -> int:
    """Train a network in place, in float32.

    Parameters
    ----------
    network : GatedLayers
        Whose gates see the input: ReLU or GaLU0.
    X : ndarray of shape (m, D)
        Inputs.
    Y : ndarray of shape (m, p)
        Targets; labels -1 and +1; or classes, one-hot.
    loss : {"squared", "hinge", "cross-entropy"}
        Mean over samples and outputs; of cross-entropy, over samples.
    steps, rate, batch_size
        As published by default.
    watch : callable, optional
        Called every 1,000 steps with their number, when the network has its current weights;
        training ends where it returns True.
    seed : int
        Of the permutations.

    Returns
    -------
    int
        Steps that were taken.
    """
    samples, labels = X.astype(np.float32), Y.astype(np.float32)
    layers = [layer for layer in network.layers if isinstance(layer, nn.Linear)]
    trained = [p for p in network.parameters() if p.requires_grad]
    flat = np.concatenate([p.detach().numpy().ravel() for p in trained]).astype(np.float32)
    slopes = np.zeros_like(flat)
    views, gradients = dict(_views(flat, trained)), dict(_views(slopes, trained))
    weights = [_of(views, layer.weight) for layer in layers]
    offsets = [_of(views, layer.bias) if layer.bias is not None else None for layer in layers]
    # What is frozen collects no gradient.
    into = [gradients.get(id(layer.weight)) for layer in layers]
    into_offsets = [gradients.get(id(layer.bias)) for layer in layers]
    gates = _gates(network, samples)
    mean, square, step_of = np.zeros_like(flat), np.zeros_like(flat), np.empty_like(flat)
    scratch = np.empty_like(flat)
    rng, slope_of = np.random.default_rng(seed), SLOPES[loss]
    lowest = next(i for i, layer in enumerate(layers) if layer.weight.requires_grad)
    taken, start = 0, len(samples)
    while taken < steps:
        if start >= len(samples):
            order, start = rng.permutation(len(samples)), 0
        rows = order[start : start + batch_size]
        start += batch_size
        # Forward: what each layer gets, and its gates.
        inputs, masks = [samples.take(rows, axis=0)], []
        for i, (weight, offset) in enumerate(zip(weights, offsets, strict=True)):
            outputs = inputs[-1] @ weight.T
            if offset is not None:
                outputs += offset
            if i < len(weights) - 1:
                mask = outputs > 0 if gates is None else gates[i].take(rows, axis=0)
                outputs *= mask
                masks.append(mask)
                inputs.append(outputs)
        # Backward, down to the lowest layer that is trained.
        back = slope_of(outputs, labels.take(rows, axis=0))
        for i in range(len(weights) - 1, lowest - 1, -1):
            target = into[i]
            if target is not None:
                np.matmul(back.T, inputs[i], out=target)
            target = into_offsets[i]
            if target is not None:
                np.sum(back, axis=0, out=target)
            if i > lowest:
                back = back @ weights[i]
                back *= masks[i - 1]
        # Adam, in place.
        taken += 1
        mean *= FIRST
        np.multiply(slopes, 1 - FIRST, out=scratch)
        mean += scratch
        square *= SECOND
        np.multiply(slopes, slopes, out=scratch)
        scratch *= 1 - SECOND
        square += scratch
        np.sqrt(square, out=step_of)
        step_of *= (1 - SECOND**taken) ** -0.5
        step_of += EPSILON
        np.divide(mean, step_of, out=step_of)
        step_of *= rate / (1 - FIRST**taken)
        flat -= step_of
        if watch is not None and taken % LOOK_EVERY == 0:
            _write_back(flat, trained)
            if watch(taken):
                break
    _write_back(flat, trained)
    return taken


def _views(flat: Single, parameters: list[nn.Parameter]) -> list[tuple[int, Single]]:
    """Cut a flat array into the shapes of the parameters, each with its parameter's identity."""
    views, start = [], 0
    for parameter in parameters:
        end = start + parameter.numel()
        views.append((id(parameter), flat[start:end].reshape(parameter.shape)))
        start = end
    return views


def _of(views: dict[int, Single], parameter: Tensor) -> Single:
    """Return the part of a trained parameter, or the constant value of a frozen one."""
    frozen: Single = parameter.detach().numpy()
    return views.get(id(parameter), frozen)


def _gates(network: GatedLayers, X: Single) -> list[Single] | None:
    """Compute the gates (m, k) of each hidden layer; None for ReLU, whose gates move."""
    if network.gate is None:
        return None
    inputs = torch.tensor(X)
    return [network.gate(inputs @ filters.T).numpy() for filters in network.filters]


def _write_back(flat: Single, parameters: list[nn.Parameter]) -> None:
    with torch.no_grad():
        for parameter, (_, part) in zip(parameters, _views(flat, parameters), strict=True):
            parameter.copy_(torch.tensor(part))


@torch.inference_mode()
def outputs_of(network: nn.Module, X: Array) -> Array:
    """Compute the outputs (n, p) of inputs (n, D), computed in float32."""
    return network(torch.tensor(X, dtype=torch.float32)).double().numpy()


def squared_error(network: nn.Module, X: Array, Y: Array) -> float:
    """Return the mean squared error over samples and outputs."""
    return float(np.mean((outputs_of(network, X) - Y) ** 2))
