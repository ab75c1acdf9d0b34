"""Figure 2 (d) at a width that runs, m = 256, and at infinite width: SGD on CIFAR-10.

Not a replication: the published networks have 10^5 neurons, and the paper says neither the number
of epochs nor the units of the rate. Ours are those of its section 2: F with the factor 1/sqrt m,
all entries N(0, 1), ten readouts a neuron, both layers trained, cross entropy summed over the
batch.
"""

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.bench import Part, part
from benchmarks.panigrahi2020.cifar import images
from benchmarks.panigrahi2020.shared import FIGURE_2
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import ACTIVATIONS, finite_gram

COST = 20
# The published rate, and one ten times as large, as its units are not said.
RATE, FAST = 1e-3, 1e-2
BATCH, CLASSES = 256, 10
# Images on which G is compared before and after.
WATCHED = 200
# Units of the network whose outputs are those at the start of infinite width.
DRAWN_UNITS = 4096
# Nodes of the interpolation of G + H, as a function of the angle.
ANGLES = 20_001


def measure(quick: bool) -> Iterator[Part]:
    """Train networks of one width, and outputs at infinite width."""
    n, epochs, width = (300, 2, 32) if quick else (10**4, 150, 256)
    for activation in FIGURE_2:
        yield part(train, n=n, epochs=epochs, activation=activation, width=width)
        for rate in (RATE, FAST):
            yield part(train_limit, n=n, epochs=epochs, activation=activation, rate=rate)


def train(n: int, epochs: int, activation: str, width: int) -> Iterator[dict[str, float]]:
    """Train one network; the loss of an epoch is the mean over its batches, before each step."""
    X, labels = (torch.tensor(each) for each in images(n))
    X = X.float()
    phi, generator = ACTIVATIONS[activation], torch.Generator().manual_seed(0)
    weights = torch.randn((width, X.shape[1]), generator=generator).requires_grad_(True)
    readouts = torch.randn((width, CLASSES), generator=generator).requires_grad_(True)
    before = watched_gram(activation, X, weights, readouts)
    for epoch in range(1, epochs + 1):
        total = right = 0.0
        for batch in torch.split(torch.randperm(n, generator=generator), BATCH):
            outputs = phi.value(X[batch] @ weights.T) @ readouts / math.sqrt(width)
            loss = functional.cross_entropy(outputs, labels[batch], reduction="sum")
            gradients = torch.autograd.grad(loss, (weights, readouts))
            with torch.no_grad():
                weights -= RATE * gradients[0]
                readouts -= RATE * gradients[1]
            total += float(loss.detach())
            right += float((outputs.argmax(dim=1) == labels[batch]).sum())
        after = watched_gram(activation, X, weights, readouts)
        turned = float(np.linalg.norm(after - before) / np.linalg.norm(before))
        yield {"epoch": epoch, "loss": total / n, "accuracy": right / n, "turned": turned}


def watched_gram(activation: str, X: Tensor, weights: Tensor, readouts: Tensor) -> Array:
    """G of the first output on some images."""
    return finite_gram(
        X[:WATCHED].numpy(),
        ACTIVATIONS[activation],
        [weights.detach()],
        readouts=readouts[:, 0].detach(),
    )


def train_limit(n: int, epochs: int, activation: str, rate: float) -> Iterator[dict[str, float]]:
    """Train at infinite width, from the outputs of a network that is drawn."""
    X, labels = images(n)
    gram = limit_gram_of(activation, n)
    outputs = first_outputs(activation, torch.tensor(X).float())
    yield from descend_outputs(gram, outputs, torch.tensor(labels), epochs, rate)


def descend_outputs(
    gram: Tensor, outputs: Tensor, labels: Tensor, epochs: int, rate: float
) -> Iterator[dict[str, float]]:
    """Move all outputs by -rate (G + H)[:, batch] (p - y) a step."""
    generator = torch.Generator().manual_seed(0)
    targets = functional.one_hot(labels, CLASSES).float()
    for epoch in range(1, epochs + 1):
        total = right = 0.0
        for batch in torch.split(torch.randperm(len(labels), generator=generator), BATCH):
            total += float(functional.cross_entropy(outputs[batch], labels[batch], reduction="sum"))
            right += float((outputs[batch].argmax(dim=1) == labels[batch]).sum())
            residual = functional.softmax(outputs[batch], dim=1) - targets[batch]
            outputs = outputs - rate * gram[batch].T @ residual
        yield {"epoch": epoch, "loss": total / len(labels), "accuracy": right / len(labels)}


@lru_cache(maxsize=1)  # one of them is held at a time
def limit_gram_of(activation: str, n: int) -> Tensor:
    """Return G + H of the images at infinite width."""
    return limit_gram(activation, images(n)[0])


def limit_gram(activation: str, X: Array) -> Tensor:
    """Interpolate G + H at infinite width in its exact values at many angles, in float32."""
    phi, angles = ACTIVATIONS[activation], np.linspace(math.pi, 0, ANGLES)
    values = np.cos(angles) * phi.kappa.at_angle(angles) + phi.dual.at_angle(angles)
    gram = np.interp(X @ X.T, np.cos(angles), values)
    return torch.from_numpy(gram.astype(np.float32))


def first_outputs(activation: str, X: Tensor) -> Tensor:
    """Draw the outputs (n, CLASSES) of a network at the start."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn((DRAWN_UNITS, X.shape[1]), generator=generator)
    readouts = torch.randn((DRAWN_UNITS, CLASSES), generator=generator)
    return ACTIVATIONS[activation].value(X @ weights.T) @ readouts / math.sqrt(DRAWN_UNITS)


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the losses after the last epoch, and how far G moved."""
    last = frame[frame["epoch"] == frame["epochs"]]
    narrow = last[last["rate"].isna()]
    found: dict[str, Any] = {
        "epochs": frame["epochs"].max(),
        "width": narrow["width"].iloc[0],
        "turned_low": narrow["turned"].min(),
        "turned_high": narrow["turned"].max(),
    }
    slow, fast = last[last["rate"] == RATE], last[last["rate"] == FAST]
    for name, rows in (("narrow", narrow), ("limit", slow), ("limit_fast", fast)):
        for activation, loss in zip(rows["activation"], rows["loss"], strict=True):
            found[f"{name}_{activation}"] = loss
    return found
