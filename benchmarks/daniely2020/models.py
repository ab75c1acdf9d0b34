"""The four models of section 6, and their training by AdaDelta.

=================  ============================================================================
ReLU network       one hidden layer, both layers trained
NTK regime         the same start; ReLU(t) = t 1{t >= 0}, and the indicator looks at the weights
                   as they were at the start: gates decoupled, as in Fiat et al. (2019)
ReLU features      the same start; only the second layer is trained
Gaussian features  random Fourier features sqrt(2/H) cos(<w, x> + b) of the RBF kernel (Rahimi and
                   Recht 2007), w ~ N(0, 1 / s^2), b uniform in [0, 2 pi]; only the second layer
                   is trained
=================  ============================================================================

Each has 512 units or features; all are trained by AdaDelta for 20 epochs in batches of 128. The
paper does not give the loss of training, the start, AdaDelta's constants and the bandwidth s. Ours
are the logistic loss, the defaults of torch (`torch.nn.Linear`, with biases;
`torch.optim.Adadelta`: step 1, rho 0.9, epsilon 1e-6), and for s the median distance between
training inputs.

Source: Daniely and Malach (2020), section 6.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

# Pairs of training inputs from which the bandwidth is estimated.
BANDWIDTH_PAIRS = 2000


class Samples(Protocol):
    """Labelled samples whose inputs are made when they are asked for."""

    @property
    def labels(self) -> Tensor:
        """Labels -1 and +1, float32 of shape (m,)."""

    def inputs(self, rows: Tensor) -> Tensor:
        """Make the inputs of these samples, float32 of shape (rows, D)."""


@dataclass(frozen=True, eq=False)
class Table:
    """Samples whose inputs are kept as one array (m, D)."""

    values: Tensor
    labels: Tensor

    def inputs(self, rows: Tensor) -> Tensor:
        """Return these rows."""
        return self.values[rows]


@dataclass(frozen=True, kw_only=True)
class Training:
    """How all models are trained: by default as in section 6.

    Attributes
    ----------
    units : int
        Hidden units or random features.
    epochs, batch : int, int
        Epochs in random order, and the size of a batch.
    """

    units: int = 512
    epochs: int = 20
    batch: int = 128


@dataclass(frozen=True)
class Epoch:
    """A model after an epoch.

    Attributes
    ----------
    epoch : int
        Epochs done.
    loss, train_error : float
        Mean logistic loss and share of wrong signs over the batches of the epoch, each measured
        before the step on it.
    test_error : float
        Share of wrong signs on the test samples, at its end.
    """

    epoch: int
    loss: float
    train_error: float
    test_error: float


class FrozenGates(nn.Linear):
    """<w, x> + b where it was at least 0 at the start, else 0."""

    def __init__(self, n_inputs: int, units: int) -> None:
        super().__init__(n_inputs, units)
        self.register_buffer("start_weight", self.weight.detach().clone())
        self.register_buffer("start_bias", self.bias.detach().clone())

    def forward(self, inputs: Tensor) -> Tensor:
        """Hidden activations (m, H) of inputs (m, D)."""
        at_start = (self.get_buffer("start_bias"), inputs, self.get_buffer("start_weight").T)
        start = torch.addmm(*at_start)
        return super().forward(inputs) * (start >= 0)


class FourierFeatures(nn.Module):
    """sqrt(2/H) cos(<w, x> + b): their inner products tend to exp(-||x - x'||^2 / (2 s^2))."""

    def __init__(self, n_inputs: int, units: int, bandwidth: float) -> None:
        super().__init__()
        self.register_buffer("frequencies", torch.randn(units, n_inputs) / bandwidth)
        self.register_buffer("phases", 2.0 * math.pi * torch.rand(units))

    def forward(self, inputs: Tensor) -> Tensor:
        """Features (m, H) of inputs (m, D)."""
        phases = torch.addmm(self.get_buffer("phases"), inputs, self.get_buffer("frequencies").T)
        return math.sqrt(2.0 / phases.shape[1]) * phases.cos()


def relu_layer(n_inputs: int, units: int) -> nn.Sequential:
    """Return relu(<w, x> + b), both trained."""
    return nn.Sequential(nn.Linear(n_inputs, units), nn.ReLU())


def median_distance(samples: Samples, seed: int) -> float:
    """Median of ||x - x'|| over random pairs of samples."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(samples.labels), (2, BANDWIDTH_PAIRS), generator=generator)
    distances = (samples.inputs(rows[0]) - samples.inputs(rows[1])).norm(dim=1)
    return float(distances.median())


# The hidden layer of each model, of its number of inputs and units and of the training samples.
HIDDEN: dict[str, Callable[[int, int, Samples], nn.Module]] = {
    "ReLU network": lambda n_inputs, units, _: relu_layer(n_inputs, units),
    "NTK regime": lambda n_inputs, units, _: FrozenGates(n_inputs, units),
    "ReLU features": lambda n_inputs, units, _: relu_layer(n_inputs, units).requires_grad_(False),
    "Gaussian features": lambda n_inputs, units, samples: FourierFeatures(
        n_inputs, units, median_distance(samples, seed=0)
    ),
}


def build(name: str, train: Samples, units: int, seed: int) -> nn.Sequential:
    """Return a model at its start: the hidden layer, and the second layer that reads it.

    The first three have the same start for the same seed. Torch's global generator is left as it
    was.
    """
    n_inputs = train.inputs(torch.zeros(1, dtype=torch.int64)).shape[1]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(HIDDEN[name](n_inputs, units, train), nn.Linear(units, 1))


def train_by_adadelta(
    model: nn.Sequential, train: Samples, test: Samples, protocol: Training, seed: int
) -> Iterator[Epoch]:
    """Train a model on the logistic loss, and say after each epoch how far it is."""
    hidden, second = model
    if not any(parameter.requires_grad for parameter in hidden.parameters()):
        # Features that are not trained are computed once.
        train, test = (
            Table(torch.cat(list(outputs(hidden, samples))), samples.labels)
            for samples in (train, test)
        )
        model = nn.Sequential(nn.Identity(), second)
    optimiser = torch.optim.Adadelta([p for p in model.parameters() if p.requires_grad])
    generator = torch.Generator().manual_seed(seed)
    for epoch in range(1, protocol.epochs + 1):
        loss_sum = wrong = 0.0
        order = torch.randperm(len(train.labels), generator=generator)
        for rows in torch.split(order, protocol.batch):
            margins = train.labels[rows] * model(train.inputs(rows))[:, 0]
            losses = softplus(-margins)
            optimiser.zero_grad()
            torch.autograd.backward(losses.mean())
            optimiser.step()
            loss_sum += float(losses.detach().sum())
            wrong += int((margins <= 0).sum())
        margins = test.labels * torch.cat(list(outputs(model, test)))[:, 0]
        test_error = float((margins <= 0).double().mean())
        yield Epoch(epoch, loss_sum / len(order), wrong / len(order), test_error)


def outputs(module: nn.Module, samples: Samples) -> Iterator[Tensor]:
    """Compute the outputs of a module on all samples, in pieces that fit the memory."""
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(samples.labels)), 2048):
            yield module(samples.inputs(rows))
