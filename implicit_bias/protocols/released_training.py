r"""Gradient descent exactly as in the released experiments of Lippl, Abbott, Chung (2022).

minimise  -mean_n [t_n log p_n + (1 - t_n) log(1 - p_n)],    p_n = sigmoid(f(x_n)), t_n = 0 or 1

by stochastic gradient descent in float32. All random draws are those of the released code, in its
order, so that the released validation accuracies come out to the digit.

Their order is the table of `lippl2022`. Batches are pieces of 128 of an epoch's permutation, the
last one shorter. Each network sees 400,000 samples; the step size 0.04 is multiplied by 0.25 after
half of the epochs.

The gates of GLNs do not move, and their accuracies do not depend on rounding. Where an image
crosses the gate of a ReLU early on, the last bit of a weight decides: narrow ReLU networks then
differ by some images between machines, with momentum 0.9 by some tens.

A network's output is 0 where all its ReLU units are off. In the released accuracies that is an
error, whatever the label.

Source: Lippl, Abbott, Chung (2022), section 4, and their released code.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import Array, torch_generator
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.problem.gating import THRESHOLD_SCALE, WEIGHT_SCALE, HyperplaneContexts
from implicit_bias.protocols import lippl2022
from implicit_bias.training.driver import Ending
from implicit_bias.training.history import Observer
from implicit_bias.training.losses import LOSSES
from implicit_bias.training.minibatch import (
    TrainingConfig,
    TrainingDiverged,
    TrainingResult,
    _threads,
)

# Samples that a network sees: 200 epochs of 2,000.
SAMPLES_SEEN = 400_000
DATA_SEED = 1
OnEpoch = Callable[[int, float], None]


@dataclass(frozen=True, eq=False, kw_only=True)
class ReleasedTraining(TrainingResult):
    """A training as released.

    Attributes
    ----------
    batch_losses : ndarray of shape (epochs,)
        Loss of the last batch of each epoch, before its step. The last entry is the released
        ``last_batch_loss``.
    """

    batch_losses: Array


def released_gln(contexts: HyperplaneContexts, *, seed: int) -> GLN:
    """Return a GLN with the initial weights of the released code.

    Parameters
    ----------
    contexts : HyperplaneContexts
        Of the same seed: ``lippl2022.draw_contexts(..., seed=seed)``.
    seed : int
        The context seed of the released tables.

    Returns
    -------
    GLN
        In float32, with a readout bias.
    """
    network = _unset_gln(contexts, readout_bias=True)
    assert network.readout_bias is not None
    generator = _generator_after_contexts(contexts, seed)
    n_units = contexts.n_units
    bound = 1.0 / math.sqrt(n_units)
    with torch.no_grad():
        torch.empty(1, n_units).uniform_(generator=generator)
        network.readout_bias.copy_(torch.empty(()).uniform_(-bound, bound, generator=generator))
        for weights in (network.hidden_weights[0], network.readout):
            nn.init.orthogonal_(weights, generator=generator)
    return network


def released_shallow_gln(contexts: HyperplaneContexts, *, seed: int) -> GLN:
    """Return a shallow GLN, f(x) = <W[c(x)], x>, with the initial weights of the released code.

    Parameters
    ----------
    contexts : HyperplaneContexts
        Of one unit and the same seed.
    seed : int
        The context seed of the released tables.

    Returns
    -------
    GLN
        In float32. Its readout is the constant 1, which is not trained.

    Raises
    ------
    ValueError
        Contexts of more than one unit.
    """
    if contexts.n_units != 1:
        raise ValueError(f"a shallow GLN has contexts of one unit, got {contexts.n_units} units")
    network = _unset_gln(contexts, readout_bias=False)
    generator = _generator_after_contexts(contexts, seed)
    with torch.no_grad():
        nn.init.orthogonal_(network.hidden_weights[0], generator=generator)
        network.readout.fill_(1.0)
    network.readout.requires_grad_(False)
    return network


def released_relu(n_features: int, n_units: int, *, seed: int) -> ReLUNetwork:
    """Return a ReLU network with the initial weights of the released code, in float32.

    Parameters
    ----------
    n_features, n_units : int
        D and H.
    seed : int
        The initial seed of the released tables.
    """
    # A network of this package draws its Kaiming normal weights in the same order.
    return ReLUNetwork(n_features, [n_units], dtype=torch.float32, seed=seed)


@torch.inference_mode(False)  # nor torch.no_grad
def train_as_released(
    network: GLN | ReLUNetwork,
    X: ArrayLike,
    y: ArrayLike,
    *,
    momentum: float = 0.0,
    data_seed: int = DATA_SEED,
    record: int | tuple[int, ...] = 2,
    on_epoch: OnEpoch | None = None,
) -> ReleasedTraining:
    """Train a network in place, exactly as released.

    Ctrl-C ends the training and keeps what it has reached.

    Parameters
    ----------
    network : GLN or ReLUNetwork
        With one hidden layer, in float32: `released_gln`, `released_shallow_gln` or
        `released_relu`.
    X : array_like of shape (N, D)
        Training inputs, in the order of the split.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    momentum : float
        0 or 0.9 in the released experiments.
    data_seed : int
        Seed of the order of the samples.
    record : int or tuple of int
        Points of the history, as in `TrainingConfig`.
    on_epoch : callable, optional
        Called after each epoch with its number, from 1, and the loss of its last batch.

    Returns
    -------
    ReleasedTraining
        With the network that was given.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, more than one hidden layer, a
        network that is not in float32.
    TrainingDiverged
        An output became infinite or NaN.
    """
    single = network.has_margin_structure and network.readout_contexts == 1
    if network.dtype != torch.float32 or not single:
        raise ValueError(
            "the released networks have one hidden layer, a readout without contexts and are "
            f"float32, got {network.n_layers - 1} hidden layers, {network.readout_contexts} "
            f"contexts of the readout and {network.dtype}"
        )
    prepared, labels = network.prepare_samples(X, y)
    n_samples = len(labels)
    config = _config(n_samples, momentum, record, data_seed)
    recorded_steps = config.recorded_steps
    observe = Observer(network, prepared, labels, LOSSES["logistic"])
    descent = _Descent(network, prepared, labels, momentum)
    history, losses = [observe(0)], list[float]()
    step, ending, started = 0, Ending.STEPS, time.perf_counter()
    try:
        with _threads(1):  # the number of threads changes the order of the sums
            for epoch, batches in enumerate(_epochs(n_samples, config), start=1):
                for batch in batches:
                    loss = descent.step(batch, config.step_size(step))
                    step += 1
                    if step in recorded_steps:
                        history.append(observe(step))
                losses.append(loss)
                if on_epoch is not None:
                    on_epoch(epoch, loss)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
        if history[-1].step < step:
            history.append(observe(step))
    return ReleasedTraining(
        network=network,
        config=config,
        history=tuple(history),
        ending=ending,
        seconds=time.perf_counter() - started,
        batch_losses=np.array(losses),
    )


def train_from_released_start(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    *,
    seed: int,
    momentum: float = 0.0,
    data_seed: int = DATA_SEED,
) -> TrainingResult:
    """Give a network the released initial weights, and train it exactly as released.

    Parameters
    ----------
    network : GLN or ReLUNetwork
        With one hidden layer, in float32; a GLN with a readout bias. Its own weights are lost.
    X : array_like of shape (N, D)
        Training inputs, in the order of the split.
    y : array_like of shape (N,)
        Labels, -1 or +1.
    seed : int
        The context seed of a GLN, the initial seed of a ReLU network.
    momentum, data_seed
        See `train_as_released`.

    Returns
    -------
    TrainingResult
        With the network that was given. It has nothing beside what any training has, so that a
        classifier with it can be saved.

    Raises
    ------
    ValueError
        Another network, or as `train_as_released` does.
    """
    start: GLN | ReLUNetwork
    if isinstance(network, GLN) and network.has_margin_structure and network.readout_contexts == 1:
        start = released_gln(network.gatings[0], seed=seed)
    elif isinstance(network, ReLUNetwork) and network.has_margin_structure:
        width = len(network.hidden_weights[0])
        start = released_relu(network.n_features, width, seed=seed)
    else:
        raise ValueError(
            "the released networks are GLNs and ReLU networks of one hidden layer, got "
            f"{type(network).__name__} of {network.n_layers - 1} hidden layers"
        )
    with torch.no_grad():
        for own, released in zip(network.parameters(), start.parameters(), strict=True):
            own.copy_(released)
    training = train_as_released(network, X, y, momentum=momentum, data_seed=data_seed)
    common = {field.name: getattr(training, field.name) for field in fields(TrainingResult)}
    return TrainingResult(**common)


def _unset_gln(contexts: HyperplaneContexts, *, readout_bias: bool) -> GLN:
    """Return a float32 GLN whose weights are still to be set; its own draws are the cheap ones."""
    return GLN([contexts], readout_bias=readout_bias, init="kaiming-normal", dtype=torch.float32)


def _generator_after_contexts(contexts: HyperplaneContexts, seed: int) -> torch.Generator:
    """Return the contexts' generator after their draws and those of the unused hidden layer."""
    generator = torch_generator(seed)
    n_units, n_hyperplanes, n_features = contexts.weights.shape
    normals = torch.empty(n_units * n_hyperplanes, n_features)
    normals.uniform_(generator=generator)
    normals.normal_(0.0, WEIGHT_SCALE, generator=generator)
    # Few normal draws come in pairs, so the number of draws has to be right, not their sum.
    torch.empty(n_units, n_hyperplanes).normal_(0.0, THRESHOLD_SCALE, generator=generator)
    torch.empty(n_units * contexts.n_contexts, n_features).uniform_(generator=generator)
    return generator


def _config(
    n_samples: int, momentum: float, record: int | tuple[int, ...], data_seed: int
) -> TrainingConfig:
    """Return the released configuration for N samples: 3,200 steps for each released N."""
    config = lippl2022.training_config(momentum=momentum, seed=data_seed)
    assert config.batch_size is not None
    steps = max(1, SAMPLES_SEEN // n_samples) * math.ceil(n_samples / config.batch_size)
    return replace(config, steps=steps, record=record)


def _epochs(n_samples: int, config: TrainingConfig) -> Iterator[tuple[Tensor, ...]]:
    """Yield the batches of each epoch."""
    assert config.batch_size is not None
    generator = torch.Generator().manual_seed(config.seed)
    per_epoch = math.ceil(n_samples / config.batch_size)
    for _ in range(config.steps // per_epoch):
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        order = torch.randperm(n_samples, generator=generator)
        yield torch.split(order, config.batch_size)


class _Descent:
    """Gradient descent with momentum on a network's trained weights, a batch at a time.

    Of a shallow GLN, which has more rows than samples, only those that occur are descended on.
    """

    @torch.no_grad()
    def __init__(
        self, network: Network, prepared: tuple[Tensor, ...], labels: Tensor, momentum: float
    ) -> None:
        self.network, self.momentum = network, momentum
        (self.inputs, *self.rows), self.targets = prepared, (labels > 0).to(prepared[0])
        self.weights: Tensor = network.hidden_weights[0]
        self.occurring: Tensor | None = None
        if self.rows and self.rows[0].shape[1] == 1:
            found = np.unique(self.rows[0][:, 0].numpy(), return_inverse=True)
            self.occurring, places = map(torch.tensor, found)
            self.weights = self.weights[self.occurring].requires_grad_()
            self.rows = [places[:, None]]
        parts = (self.weights, network.readout, network.readout_bias)
        self.trained = [part for part in parts if part is not None and part.requires_grad]
        self.velocities = [torch.zeros_like(weights) for weights in self.trained]

    def step(self, batch: Tensor, rate: float) -> float:
        """Descend from the loss of a batch, and return it."""
        hidden = self._hidden(self.inputs[batch], *(rows[batch] for rows in self.rows))
        offset = self.network.readout_bias
        bias = None if offset is None else offset[None]
        outputs = nn.functional.linear(hidden, self.network.readout, bias)[:, 0]
        if not torch.isfinite(outputs).all():
            raise TrainingDiverged("training diverged: an output is not finite. Scale the inputs")
        loss = nn.functional.binary_cross_entropy(torch.sigmoid(outputs), self.targets[batch])
        gradients = torch.autograd.grad(loss, self.trained)
        with torch.no_grad():
            for weights, velocity, slope in zip(
                self.trained, self.velocities, gradients, strict=True
            ):
                weights.sub_(velocity.mul_(self.momentum).add_(slope), alpha=rate)
            if self.occurring is not None:
                self.network.hidden_weights[0][self.occurring] = self.weights
        return loss.item()

    def _hidden(self, x: Tensor, rows: Tensor | None = None) -> Tensor:
        """Return hidden outputs (B, H), of a GLN by its rows (B, H) of hidden weights (R, D)."""
        if rows is not None and rows.shape[1] == 1:
            return (x * nn.functional.embedding(rows[:, 0], self.weights)).sum(dim=1, keepdim=True)
        products = x @ self.weights.T
        # The gates of a ReLU are open at 0, as in the released code.
        return products * (products >= 0) if rows is None else products.gather(1, rows)
