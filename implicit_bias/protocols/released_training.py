r"""Gradient descent exactly as in the released experiments of Lippl, Abbott, Chung (2022).

minimise  -mean_n [t_n log p_n + (1 - t_n) log(1 - p_n)],    p_n = sigmoid(f(x_n)), t_n = 0 or 1

by stochastic gradient descent in float32. All random draws are those of the released code, in its
order, so that the released validation accuracies come out to the digit.

Their order is the table of `lippl2022`. Batches are pieces of 128 of an epoch's permutation, the
last one shorter. Each network sees 400,000 samples; the step size 0.04 is multiplied by 0.25 after
half of the epochs.

The gradients are written out, because automatic differentiation takes twice as long as the
arithmetic of networks as small as these; but every product and its order are the same:

=========  ======  =================================================================
symbol     shape   meaning
=========  ======  =================================================================
W, w, b            hidden weights (R, D), readout (H,), its bias
x, t       (B, .)  a batch and its targets
h          (B, H)  hidden outputs: z (W x), z the gates
s          (B,)    slope of the loss in f, (p - t) / B
=========  ======  =================================================================

    dL/dw = h' s,    dL/db = sum s,    dL/dW = (z (s w'))' x

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
from typing import Protocol

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import Array
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
    generator = torch.Generator().manual_seed(seed)
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

    The products, their order and torch's own kernels are those of automatic differentiation
    through torch's linear layers, so that every rounding is the same.
    """

    @torch.no_grad()
    def __init__(
        self, network: Network, prepared: tuple[Tensor, ...], labels: Tensor, momentum: float
    ) -> None:
        inputs, *rows = prepared
        self.targets = (labels > 0).to(inputs)
        self.hidden = _hidden_layer(network.hidden_weights[0].detach(), inputs, rows, momentum)
        self.readout = network.readout.detach()
        self.bias = None if network.readout_bias is None else network.readout_bias.detach()[None]
        self.trains_readout = network.readout.requires_grad
        self.readout_velocity = _Velocity(self.readout, momentum)
        self.bias_velocity = _Velocity(torch.zeros(1), momentum)

    @torch.no_grad()
    def step(self, batch: Tensor, rate: float) -> float:
        """Descend from the loss of a batch, and return it."""
        hidden, targets = self.hidden.outputs(batch), self.targets[batch]
        outputs = nn.functional.linear(hidden, self.readout, self.bias)[:, 0]
        if not torch.isfinite(outputs).all():
            raise TrainingDiverged("training diverged: an output is not finite. Scale the inputs")
        p = torch.sigmoid(outputs)
        loss = nn.functional.binary_cross_entropy(p, targets)
        one, mean = torch.ones_like(loss), 1
        slopes = torch.ops.aten.binary_cross_entropy_backward(one, p, targets, None, mean)
        slopes = torch.ops.aten.sigmoid_backward(slopes, p)[:, None]
        # The hidden layer's slopes are those at the readout before its step.
        hidden_slopes = slopes * self.readout
        if self.trains_readout:
            self.readout.sub_(self.readout_velocity.after(slopes.T @ hidden), alpha=rate)
        if self.bias is not None:
            self.bias.sub_(self.bias_velocity.after(slopes.sum(dim=0)), alpha=rate)
        self.hidden.descend(hidden_slopes, rate)
        return loss.item()


class _Velocity:
    """Sum of the gradients so far, the latest with weight 1, each one before with momentum less."""

    def __init__(self, weights: Tensor, momentum: float) -> None:
        self.momentum = momentum
        self.sum = torch.zeros_like(weights) if momentum else None

    def after(self, gradient: Tensor) -> Tensor:
        """Return the velocity after one more gradient."""
        return gradient if self.sum is None else self.sum.mul_(self.momentum).add_(gradient)


def _hidden_layer(
    weights: Tensor, inputs: Tensor, rows: list[Tensor], momentum: float
) -> _HiddenLayer:
    """Return the layer with weights (R, D) that a GLN's rows (N, H), if any, select from."""
    if not rows:
        return _Rectified(weights, inputs, momentum)
    one_unit = rows[0].shape[1] == 1
    return (_OneUnit if one_unit else _Contexts)(weights, inputs, rows[0], momentum)


class _HiddenLayer(Protocol):
    """Hidden weights (R, D), and how the outputs on the training inputs (N, D) follow from them."""

    def outputs(self, batch: Tensor) -> Tensor:
        """Hidden outputs (B, H) of the samples in a batch."""

    def descend(self, slopes: Tensor, rate: float) -> None:
        """Step down from the slopes (B, H) of the loss in the last `outputs`."""


class _Contexts:
    """Hidden layer of a GLN: unit h has row ``rows[n, h]`` for sample n."""

    def __init__(self, weights: Tensor, inputs: Tensor, rows: Tensor, momentum: float) -> None:
        self.weights, self.inputs, self.rows = weights, inputs, rows
        self.velocity = _Velocity(weights, momentum)

    def outputs(self, batch: Tensor) -> Tensor:
        self.x, self.selected = self.inputs[batch], self.rows[batch]
        return (self.x @ self.weights.T).gather(1, self.selected)

    def descend(self, slopes: Tensor, rate: float) -> None:
        of_rows = slopes.new_zeros(len(slopes), len(self.weights))
        of_rows.scatter_(1, self.selected, slopes)
        self.weights.sub_(self.velocity.after(of_rows.T @ self.x), alpha=rate)


class _OneUnit:
    """Hidden layer of a shallow GLN: more rows than samples, so only those that occur move."""

    def __init__(self, weights: Tensor, inputs: Tensor, rows: Tensor, momentum: float) -> None:
        self.weights, self.inputs, self.rows = weights, inputs, rows[:, 0]
        occurring, position = np.unique(self.rows.numpy(), return_inverse=True)
        self.occurring, self.position = torch.tensor(occurring), torch.tensor(position)
        self.gradient = weights.new_empty(len(occurring), weights.shape[1])
        self.velocity = _Velocity(self.gradient, momentum)

    def outputs(self, batch: Tensor) -> Tensor:
        self.x, self.batch = self.inputs[batch], batch
        return (self.x * self.weights[self.rows[batch]]).sum(dim=1, keepdim=True)

    def descend(self, slopes: Tensor, rate: float) -> None:
        self.gradient.zero_().index_add_(0, self.position[self.batch], slopes * self.x)
        change = self.velocity.after(self.gradient)
        self.weights.index_add_(0, self.occurring, change, alpha=-rate)


class _Rectified:
    """Hidden layer of a ReLU network. Its gates are open at 0, as in the released code."""

    def __init__(self, weights: Tensor, inputs: Tensor, momentum: float) -> None:
        self.weights, self.inputs = weights, inputs
        self.velocity = _Velocity(weights, momentum)

    def outputs(self, batch: Tensor) -> Tensor:
        self.x = self.inputs[batch]
        products = self.x @ self.weights.T
        self.open = products >= 0
        return products * self.open

    def descend(self, slopes: Tensor, rate: float) -> None:
        gradient = (slopes * self.open).T @ self.x
        self.weights.sub_(self.velocity.after(gradient), alpha=rate)
