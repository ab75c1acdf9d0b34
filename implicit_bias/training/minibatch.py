r"""Train a network by gradient descent, and watch its margin grow.

minimize  mean_n loss(y_n f(x_n)),  loss(m) = log(1 + exp(-m))  (logistic: binary cross-entropy)
                                    loss(m) = exp(-m)           (exponential)

by (mini-batch) gradient descent with momentum and one cut of the step size, or by another optimizer
(see `training.optimizers`). Of many classes it is the loss of the log-sum-exp margin of each
sample (see `margins`), with which the logistic loss is the cross-entropy. On separable data the
weights grow without bound; what converges is their direction, and with it the normalized margin
min_n y_n f(x_n) / norm, by which the history measures how far training has come.

The local rule, by which GLNs are usually trained, gives the same loss to every unit on its own.
Unit h of layer l, with output o_h(x) = <W_l[h, context_h(x)], o_(l-1)(x)> and o_0(x) = x, predicts
the label with probability 1 / (1 + exp(-y o_h(x))), and its weights alone descend

    mean_n loss(y_n o_h(x_n)),    the layer before it taken as constant;

so does the readout. With the logistic loss, one sample a step and no momentum this is the geometric
mixing of Veness et al.: W_l[h, c] <- W_l[h, c] - eta (p - t) logit(p_(l-1)), t = 0 or 1. There
each p is clipped to [eps, 1 - eps], and the weights to a box. Here neither is: logit and sigmoid
then cancel, f is a gated linear network like any other, with gates and coefficients, and its
weights may grow as they must if their direction is to have a limit. The layers have no bias input
beside what the data bring, and start from the network's present weights.

Source: Lippl, Abbott, Chung (2022), section 4, and their published code; Veness et al. (2017),
"Online learning with gated linear networks", and (2021), "Gated linear networks".
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from implicit_bias.base.threads import threads
from implicit_bias.base.validation import torch_generator
from implicit_bias.networks import Network
from implicit_bias.problem.margins import logsumexp_margins
from implicit_bias.training.configuration import OwnLoop
from implicit_bias.training.configuration import TrainingConfig as TrainingConfig
from implicit_bias.training.history import Ending, HistoryPoint, Observer, OnProgress, Result
from implicit_bias.training.losses import LOSSES, as_loss
from implicit_bias.training.optimizers import build_optimizer


class TrainingDiverged(RuntimeError):
    """The loss is no longer finite; the message names the step and the cure."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TrainingResult(Result[TrainingConfig, HistoryPoint]):
    """A training by mini-batches."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OwnResult(Result[OwnLoop, HistoryPoint]):
    """A training by a function of the caller's own; its history is its last point."""


def train(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    config: TrainingConfig,
    *,
    on_progress: OnProgress | None = None,
    on_point: Callable[[HistoryPoint], None] | None = None,
) -> TrainingResult:
    """Train a network in place, on the device and in the precision of its weights.

    Ctrl-C ends the training and keeps what it has reached.

    Parameters
    ----------
    network : Network
        The network; training starts from its present weights.
    X : array_like of shape (n, D)
        Training inputs.
    y : array_like of shape (n,)
        Labels, -1 or +1; or 0 .. K - 1, of a network of K classes.
    config : TrainingConfig
        How to train.
    on_progress : callable, optional
        Called before each step with the steps done, all steps, and what has been reached, such as
        "loss 0.1"; for a progress bar, say.
    on_point : callable, optional
        Called with each point of the history as it is measured, but not with the extra point
        that an interruption leaves.

    Returns
    -------
    TrainingResult

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than those, no samples; the local rule for a
        network that trains its gates, or whose classes share their hidden units.
    TrainingDiverged
        The loss became infinite or NaN.
    """
    if config.rule == "local" and not network.fixed_gates:
        raise ValueError(
            "rule='local' lets every unit predict the label by itself, which takes units that are "
            "linear in their weights: use a GLN, or rule='gradient'"
        )
    began = time.perf_counter()
    inputs, labels = network.prepare_samples(X, y)
    loss = as_loss(config.loss)
    # Before the first step: it keeps the gates as they are now.
    observe = Observer(network, inputs, labels, loss, network.norm)
    batches = shuffled_batches(len(labels), config)
    optimizer = build_optimizer(network.parameters(), config)
    first_step_sizes = [group["lr"] for group in optimizer.param_groups]
    history = list[HistoryPoint]()
    step = 0
    try:
        # On small batches threads would only wait for each other.
        with threads(None if config.batch_size is None else 1):
            while True:
                # --- what is recorded, before the update that follows
                if step in config.recorded_steps:
                    history.append(observe(step))
                    check_finite(history[-1].loss, step, inputs, config)
                    if on_point is not None:
                        on_point(history[-1])
                if on_progress is not None:
                    on_progress(step, config.steps, "")
                if step == config.steps:
                    ending = Ending.STEPS
                    break

                # --- the step size and the batch
                for group, first in zip(optimizer.param_groups, first_step_sizes, strict=True):
                    group["lr"] = first * config.decayed(step)
                batch = next(batches)
                if batch is None:
                    x = inputs
                    targets = labels
                else:  # index_select takes a quarter of the time of indexing
                    x = tuple(t.index_select(0, batch.to(t.device)) for t in inputs)
                    targets = labels.index_select(0, batch.to(labels.device))

                # --- the loss of the batch. Outputs that predict the label: the network's, (n, 1)
                # or (n, 1, K), or by the local rule those of all units, (n, units) or
                # (n, units, K), each by itself.
                if config.rule == "local":
                    outputs = network.unit_outputs(*x)
                else:
                    outputs = network(*x)[:, None]
                margins = logsumexp_margins(
                    outputs.flatten(0, 1), targets.repeat_interleave(outputs.shape[1])
                )
                # The mean over samples, for each unit; no weight is in the loss of two units.
                batch_loss = loss(margins.reshape(outputs.shape[:2])).mean(dim=0).sum()
                # Each batch is checked, not only the points that are recorded: weights that are nan
                # never recover.
                check_finite(batch_loss.item(), step, inputs, config)

                # --- the update
                optimizer.zero_grad()
                torch.autograd.backward(batch_loss)
                optimizer.step()
                step += 1  # an interruption from here on is after this update
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    # An interruption between two points of the history leaves a last one.
    if not history or history[-1].step < step:
        history.append(observe(step))
    return TrainingResult(
        network=network,
        config=config,
        history=tuple(history),
        ending=ending,
        seconds=time.perf_counter() - began,
    )


def shuffled_batches(n_samples: int, config: TrainingConfig) -> Iterator[Tensor | None]:
    """Batches without end: None for all samples, or epoch after epoch in random order."""
    generator = torch_generator(config.seed)
    while True:
        if config.batch_size is None:
            yield None
        else:
            # Without replacement: each epoch has each sample once.
            order = torch.randperm(n_samples, generator=generator)
            yield from torch.split(order, min(n_samples, config.batch_size))


def check_finite(
    loss: float, step: int, inputs: tuple[Tensor, ...], config: TrainingConfig
) -> None:
    """Refuse to go on where a loss, or an output, is not finite after some steps."""
    if not math.isfinite(loss):
        size = float(inputs[0].double().square().sum(dim=1).mean().sqrt())
        raise TrainingDiverged(
            f"training diverged: after {step} steps the loss is {loss}. Inputs have a norm of "
            f"about {size:.3g}, and learning_rate is {config.learning_rate:g}: choose a smaller "
            "learning_rate (--learning-rate), less momentum, or smaller initial weights; scale "
            "inputs far from a size of 1 first (--standardize, or StandardScaler)"
        )


def after_own_loop(
    network: Network, X: ArrayLike, y: ArrayLike, steps: int, seconds: float
) -> OwnResult:
    """Measure a network that a function of the caller's own has trained; its loss as logistic.

    Parameters
    ----------
    network : Network
        As it is now.
    X : array_like of shape (n, D)
        Training inputs.
    y : array_like of shape (n,)
        Labels, as in `train`.
    steps : int
        Updates done, 0 where that is not known.
    seconds : float
        Wall time of the training.
    """
    inputs, labels = network.prepare_samples(X, y)
    observe = Observer(network, inputs, labels, LOSSES["logistic"], network.norm)
    return OwnResult(
        network=network,
        config=OwnLoop(steps=steps),
        history=(observe(steps),),
        ending=Ending.STEPS,
        seconds=seconds,
    )
