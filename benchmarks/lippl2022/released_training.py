r"""Gradient descent exactly as in the released experiments of Lippl, Abbott, Chung (2022).

minimise  -mean_n [t_n log p_n + (1 - t_n) log(1 - p_n)],    p_n = sigmoid(f(x_n)), t_n = 0 or 1

by stochastic gradient descent in float32. All random draws are those of the released code, in its
order, so that the released validation accuracies come out to the digit.

Their order is the table of `draws`. Batches are pieces of 128 of an epoch's permutation, the
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
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from benchmarks.lippl2022 import draws
from implicit_bias.base.threads import threads
from implicit_bias.base.validation import Array, torch_generator
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.problem.gating import THRESHOLD_SCALE, WEIGHT_SCALE, HyperplaneContexts
from implicit_bias.training.history import Ending, HistoryPoint, Observer
from implicit_bias.training.losses import LOSSES
from implicit_bias.training.minibatch import TrainingResult, check_finite
from implicit_bias.training.optimizers import build_optimizer

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
        Of the same seed: ``draws.draw_contexts(..., seed=seed)``.
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
    if network.dtype != torch.float32 or not network.has_margin_structure:
        raise ValueError(
            "the released networks have one hidden layer and are float32, got "
            f"{network.n_layers - 1} hidden layers and {network.dtype}"
        )
    began = time.perf_counter()
    config = draws.training_config(momentum=momentum, seed=data_seed)
    batch_size = config.batch_size
    assert batch_size is not None
    inputs, labels = network.prepare_samples(X, y)
    targets = (labels > 0).to(inputs[0])
    observe = Observer(network, inputs, labels, LOSSES["logistic"], network.norm)
    n_samples = len(labels)
    per_epoch = math.ceil(n_samples / batch_size)
    # 3,200 for each released number of samples.
    steps = max(1, SAMPLES_SEEN // n_samples) * per_epoch
    config = replace(config, steps=steps, record=record)
    weights = network.hidden_weights[0]
    occurring: Tensor | None = None
    if len(inputs) > 1 and inputs[1].shape[1] == 1:
        # A shallow GLN has more rows than samples: only those that occur are descended on.
        found = np.unique(inputs[1][:, 0].numpy(), return_inverse=True)
        occurring, places = map(torch.tensor, found)
        with torch.no_grad():
            weights = nn.Parameter(weights[occurring])
        optimizer = build_optimizer([weights, *network.parameters()], config)
        inputs = (inputs[0], places[:, None])
    else:
        optimizer = build_optimizer(network.parameters(), config)
    batches = _batches(n_samples, batch_size, config.seed)
    history, batch_losses = list[HistoryPoint](), list[float]()
    step, ending = 0, Ending.STEPS
    try:
        with threads(1):  # their number changes the order of the sums
            while True:
                if step in config.recorded_steps:
                    history.append(observe(step))
                if step == steps:
                    break
                for group in optimizer.param_groups:
                    group["lr"] = config.step_size(step)
                batch = next(batches)
                hidden = _hidden(weights, occurring, *(t.index_select(0, batch) for t in inputs))
                offset = network.readout_bias
                bias = None if offset is None else offset[None]
                outputs = nn.functional.linear(hidden, network.readout, bias)[:, 0]
                check_finite(outputs.abs().max().item(), step, inputs, config)
                loss = nn.functional.binary_cross_entropy(torch.sigmoid(outputs), targets[batch])
                batch_loss = loss.item()
                check_finite(batch_loss, step, inputs, config)
                optimizer.zero_grad()
                torch.autograd.backward(loss)
                optimizer.step()
                step += 1
                if occurring is not None:
                    with torch.no_grad():
                        network.hidden_weights[0][occurring] = weights
                if step % per_epoch == 0:
                    batch_losses.append(batch_loss)
                    if on_epoch is not None:
                        on_epoch(len(batch_losses), batch_loss)
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    if not history or history[-1].step < step:
        history.append(observe(step))
    return ReleasedTraining(
        network=network,
        config=config,
        history=tuple(history),
        ending=ending,
        seconds=time.perf_counter() - began,
        batch_losses=np.array(batch_losses),
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
        With the network that was given.

    Raises
    ------
    ValueError
        Another network, or as `train_as_released` does.
    """
    start: GLN | ReLUNetwork
    if isinstance(network, GLN) and network.has_margin_structure:
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
    return TrainingResult(**{k: v for k, v in vars(training).items() if k != "batch_losses"})


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


def _hidden(weights: Tensor, occurring: Tensor | None, x: Tensor, *rows: Tensor) -> Tensor:
    """Return hidden outputs (B, H), of a GLN by its rows (B, H) of hidden weights (R, D)."""
    if occurring is not None:
        return (x * nn.functional.embedding(rows[0][:, 0], weights)).sum(dim=1, keepdim=True)
    products = x @ weights.T
    # The gates of a ReLU are open at 0, as in the released code.
    return products.gather(1, rows[0]) if rows else products * (products >= 0)


def _batches(n_samples: int, batch_size: int, seed: int) -> Iterator[Tensor]:
    """Yield the batches of one epoch after the other."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        torch.empty((), dtype=torch.int64).random_(generator=generator)
        yield from torch.split(torch.randperm(n_samples, generator=generator), batch_size)
