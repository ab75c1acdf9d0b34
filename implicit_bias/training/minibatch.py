r"""Train a network by gradient descent, and watch its margin grow.

minimise  mean_n loss(y_n f(x_n)),  loss(m) = log(1 + exp(-m))  (logistic: binary cross-entropy)
                                    loss(m) = exp(-m)           (exponential)

by (mini-batch) gradient descent with momentum and one cut of the step size. On separable data the
weights grow without bound; what converges is their direction, and with it the normalised margin
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

`train_beside_frozen` trains a ReLU network and a twin whose gates are frozen, and records how far
they part.

Source: Lippl, Abbott, Chung (2022), section 4, and their published code; Veness et al. (2017),
"Online learning with gated linear networks", and (2021), "Gated linear networks"; for frozen gates
Fiat, Malach, Shalev-Shwartz (2019).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import Progress
from torch import Tensor

from implicit_bias.networks import Network
from implicit_bias.training.losses import LOSSES, LossName
from implicit_bias.validation import as_labels

if TYPE_CHECKING:
    import pandas as pd
from implicit_bias.training.history import HistoryPoint, Observer, history_frame

Rule: TypeAlias = Literal["gradient", "local"]
# Outputs (n, units) that predict the label: the network's, or those of all units, each by itself.
RULES: dict[str, Callable[[Network, tuple[Tensor, ...]], Tensor]] = {
    "gradient": lambda network, inputs: network(*inputs)[:, None],
    "local": lambda network, inputs: network.unit_outputs(*inputs),
}


class TrainingDiverged(RuntimeError):
    """The loss is no longer finite; the message names the step and the cure."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train; the defaults are the published protocol without momentum.

    Parameters
    ----------
    steps : int
        Updates of the weights.
    batch_size : int or None
        Samples a step, in a new random order each epoch (an epoch's last batch may be smaller);
        None for all samples in each step.
    learning_rate : float
        Step size at the start.
    decay, decay_at : float
        The step size is multiplied by ``decay`` once, after the share ``decay_at`` of the steps.
    momentum : float
        Heavy-ball momentum, in [0, 1).
    loss : {"logistic", "exponential"}
        Loss of a margin; the mean over the batch is minimised.
    rule : {"gradient", "local"}
        What learns from the loss: the network as a whole, or each unit by itself (see the
        module; only networks with fixed gates).
    record : int or tuple of int
        The number of points in the history, at most: evenly spaced in the logarithm of the step
        (early ones coincide), step 0 and the last included. Or the steps themselves, to which
        step 0 and the last are added.
    seed : int
        Seed of the order of the samples.

    Raises
    ------
    ValueError
        A value out of its range.
    """

    steps: int = 3200
    batch_size: int | None = 128
    learning_rate: float = 0.04
    decay: float = 0.25
    decay_at: float = 0.5
    momentum: float = 0.0
    loss: LossName = "logistic"
    rule: Rule = "gradient"
    record: int | tuple[int, ...] = 50
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least in (("steps", 1), ("batch_size", 1), ("record", 2)):
            count = getattr(self, name)
            if (name == "batch_size" and count is None) or (
                name == "record" and isinstance(count, tuple)
            ):
                continue
            if not _whole(count) or count < least:
                raise ValueError(f"{name} must be a whole number, at least {least}, got {count!r}")
        if isinstance(self.record, tuple) and not all(
            _whole(step) and 0 <= step <= self.steps for step in self.record
        ):
            raise ValueError(
                f"record must name whole steps from 0 to {self.steps}, got {self.record!r}"
            )
        for name in ("learning_rate", "decay"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
        if not 0 <= self.decay_at <= 1:
            raise ValueError(f"decay_at is a share of the steps, in [0, 1], got {self.decay_at!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        if self.loss not in LOSSES:
            raise ValueError(f"loss must be one of {list(LOSSES)}, got {self.loss!r}")
        if self.rule not in RULES:
            raise ValueError(f"rule must be one of {list(RULES)}, got {self.rule!r}")

    @classmethod
    def published(cls, *, momentum: float = 0.0, seed: int = 0) -> TrainingConfig:
        """Return the protocol of the published experiments (momentum 0 and 0.9, float32 networks).

        Mini-batch SGD, not the gradient descent of the theory: 3,200 steps, batch 128, binary
        cross-entropy, step size 0.04, times 0.25 halfway.
        """
        return cls(
            steps=3200,
            batch_size=128,
            learning_rate=0.04,
            decay=0.25,
            decay_at=0.5,
            momentum=momentum,
            loss="logistic",
            seed=seed,
        )

    def step_size(self, step: int) -> float:
        """Step size of the update that follows ``step`` updates."""
        return self.learning_rate * (self.decay if step >= self.decay_at * self.steps else 1.0)

    def recorded_steps(self) -> frozenset[int]:
        """Return the steps at which the history has a point."""
        if isinstance(self.record, tuple):
            return frozenset({0, self.steps, *map(int, self.record)})
        # Downwards, so that a single point is the last step.
        spaced = np.geomspace(self.steps, 1, self.record - 1)
        return frozenset({0, *np.rint(spaced).astype(int).tolist()})


@dataclass(frozen=True, eq=False)
class TrainingResult:
    """A finished or interrupted training.

    Attributes
    ----------
    network : Network
        The trained network, the one that was given.
    config : TrainingConfig
        How it was trained.
    history : tuple of HistoryPoint
        In the order of the steps; the last point describes the network as it is.
    interrupted : bool
        Whether Ctrl-C stopped it before the end.
    seconds : float
        Wall time.
    """

    network: Network
    config: TrainingConfig
    history: tuple[HistoryPoint, ...]
    interrupted: bool
    seconds: float

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.history[-1].step

    @property
    def local(self) -> bool:
        """Whether each unit learned by itself, so that no SVM is known to be the limit."""
        return self.config.rule == "local"

    def frame(self) -> pd.DataFrame:
        """Return the history as a table: a row for each point."""
        return history_frame(self.history)


def train(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    config: TrainingConfig,
    *,
    progress: bool = False,
    record: Callable[[HistoryPoint], None] | None = None,
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
        Labels, -1 or +1.
    config : TrainingConfig
        How to train.
    progress : bool
        Show a progress bar on standard error.
    record : callable, optional
        Called with each point of the history as it is measured, but not with the extra point
        that an interruption leaves.

    Returns
    -------
    TrainingResult

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, no samples; the local rule for
        a network that trains its gates.
    TrainingDiverged
        The loss became infinite or NaN.
    """
    if config.rule == "local" and not network.fixed_gates:
        raise ValueError(
            "rule='local' lets every unit predict the label by itself, which takes units that are "
            "linear in their weights: use a GLN, or rule='gradient'"
        )
    inputs = network.prepare(X)
    labels = torch.tensor(as_labels(y, len(inputs[0]))).to(inputs[0])
    loss_of, outputs_of = LOSSES[config.loss], RULES[config.rule]
    observe = Observer(network, inputs, labels, loss_of)
    optimiser = torch.optim.SGD(
        network.parameters(), lr=config.learning_rate, momentum=config.momentum
    )
    recorded_steps = config.recorded_steps()
    history: list[HistoryPoint] = []
    step, interrupted, started = 0, False, time.perf_counter()
    try:
        with (
            _threads(1 if config.batch_size is not None else torch.get_num_threads()),
            Progress(console=Console(stderr=True), disable=not progress) as bar,
        ):
            task = bar.add_task("training", total=config.steps)
            for step, batch in enumerate(_batches(len(labels), config)):
                bar.update(task, completed=step)
                if step in recorded_steps:
                    history.append(observe(step))
                    _check_finite(history[-1].loss, step)
                    if record is not None:
                        record(history[-1])
                if step == config.steps:
                    break
                for group in optimiser.param_groups:
                    group["lr"] = config.step_size(step)
                outputs = outputs_of(network, tuple(t[batch] for t in inputs))
                loss = loss_of(labels[batch, None] * outputs).mean(dim=0).sum()
                _check_finite(loss.item(), step)
                optimiser.zero_grad()
                torch.autograd.backward(loss)
                optimiser.step()
                step += 1  # an interruption from here on is after this update
    except KeyboardInterrupt:
        interrupted = True
        if not history or history[-1].step < step:
            history.append(observe(step))
    return TrainingResult(
        network, config, tuple(history), interrupted, time.perf_counter() - started
    )


@contextmanager
def _threads(count: int) -> Iterator[None]:
    """Lend torch so many threads: on small batches they would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _batches(n_samples: int, config: TrainingConfig) -> Iterator[Tensor | slice]:
    """Batches for ever: all samples, or epoch after epoch in random order."""
    generator = torch.Generator().manual_seed(config.seed)
    while True:
        if config.batch_size is None:
            yield slice(None)
        else:
            order = torch.randperm(n_samples, generator=generator)
            yield from torch.split(order, config.batch_size)


def _whole(value: object) -> bool:
    return isinstance(value, (int, np.integer))


def _check_finite(loss: float, step: int) -> None:
    if not math.isfinite(loss):
        raise TrainingDiverged(
            f"training diverged: after {step} steps the loss is {loss}. Choose a smaller "
            "learning_rate, less momentum, or smaller initial weights"
        )
