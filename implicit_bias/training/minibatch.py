r"""Train a network by gradient descent, and watch its margin grow.

minimise  mean_n loss(y_n f(x_n)),  loss(m) = log(1 + exp(-m))  (logistic: binary cross-entropy)
                                    loss(m) = exp(-m)           (exponential)

by (mini-batch) gradient descent with momentum and one cut of the step size, or by another optimizer
(see `training.optimizers`). Of many classes it is the loss of the soft smallest margin of each
sample (see `margins`), with which the logistic loss is the cross-entropy. On separable data the
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

Source: Lippl, Abbott, Chung (2022), section 4, and their published code; Veness et al. (2017),
"Online learning with gated linear networks", and (2021), "Gated linear networks".
"""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from implicit_bias.networks import Network
from implicit_bias.problem.margins import soft_margins
from implicit_bias.training.configuration import OwnLoop, Rule
from implicit_bias.training.configuration import TrainingConfig as TrainingConfig
from implicit_bias.training.driver import Ending, OnProgress, Result, drive
from implicit_bias.training.history import HistoryPoint, Observer
from implicit_bias.training.losses import LOSSES, as_loss
from implicit_bias.training.optimizers import build_optimizer

# Outputs that predict the label, (n, units) or, with classes, (n, units, K): the network's, or
# those of all units, each by itself.
RULES: dict[Rule, Callable[[Network, tuple[Tensor, ...]], Tensor]] = {
    "gradient": lambda network, inputs: network(*inputs)[:, None],
    "local": lambda network, inputs: network.unit_outputs(*inputs),
}


class TrainingDiverged(RuntimeError):
    """The loss is no longer finite; the message names the step and the cure."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class TrainingResult(Result[TrainingConfig, HistoryPoint]):
    """A training by mini-batches."""


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class OwnResult(Result[OwnLoop, HistoryPoint]):
    """A training by a function of the caller's own; its history is its last point."""


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
    observe = Observer(network, *network.prepare_samples(X, y), LOSSES["logistic"])
    return OwnResult(
        network=network,
        config=OwnLoop(steps=steps),
        history=(observe(steps),),
        ending=Ending.STEPS,
        seconds=seconds,
    )


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
    run = MiniBatches(network, X, y, config)

    def checked(point: HistoryPoint) -> None:
        run.check_finite(point.loss, point.step)
        if on_point is not None:
            on_point(point)

    with threads(1 if config.batch_size is not None else torch.get_num_threads()):
        return drive(run, TrainingResult, on_point=checked, on_progress=on_progress)


class MiniBatches:
    """The training of a network by mini-batches, as `drive` sees it."""

    detail = ""

    def __init__(
        self, network: Network, X: ArrayLike, y: ArrayLike, config: TrainingConfig
    ) -> None:
        self.network, self.config, self.step = network, config, 0
        self.history: list[HistoryPoint] = []
        self.inputs, self.labels = network.prepare_samples(X, y)
        self.loss, self.outputs = as_loss(config.loss), RULES[config.rule]
        self.size = float(self.inputs[0].double().square().sum(dim=1).mean().sqrt())
        self.observe = Observer(network, self.inputs, self.labels, self.loss)
        self.batches = _batches(len(self.labels), config)
        self.optimizer = build_optimizer(network.parameters(), config)
        self.first_step_sizes = [group["lr"] for group in self.optimizer.param_groups]

    def point(self) -> HistoryPoint:
        """Measure the network as it is."""
        return self.observe(self.step)

    def advance(self) -> Ending | None:
        """Descend from the loss of a batch; none is left after the last step."""
        if self.step == self.config.steps:
            return Ending.STEPS
        decayed = self.config.decayed(self.step)
        for group, first in zip(self.optimizer.param_groups, self.first_step_sizes, strict=True):
            group["lr"] = first * decayed
        batch, samples = next(self.batches), (*self.inputs, self.labels)
        if batch is not None:  # in a quarter of the time that indexing takes
            samples = tuple(t.index_select(0, batch.to(t.device)) for t in samples)
        loss = self.loss_of(samples[:-1], samples[-1])
        self.last_loss = loss.item()
        self.check_finite(self.last_loss, self.step)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        self.step += 1  # an interruption from here on is after this update
        return None

    def loss_of(self, inputs: tuple[Tensor, ...], labels: Tensor) -> Tensor:
        """Compute the loss of a batch of samples."""
        outputs = self.outputs(self.network, inputs)
        # Each unit has margins of its own: a row a sample, and within it one a unit.
        margins = soft_margins(outputs.flatten(0, 1), labels.repeat_interleave(outputs.shape[1]))
        return self.loss(margins.reshape(outputs.shape[:2])).mean(dim=0).sum()

    def check_finite(self, loss: float, step: int) -> None:
        """Refuse to go on where a loss, or an output, is not finite."""
        if not math.isfinite(loss):
            raise TrainingDiverged(
                f"training diverged: after {step} steps the loss is {loss}. Inputs have a norm of "
                f"about {self.size:.3g}, and learning_rate is {self.config.learning_rate:g}: "
                "choose a smaller learning_rate (--learning-rate), less momentum, or smaller "
                "initial weights; scale inputs far from a size of 1 first (--standardize, or "
                "StandardScaler)"
            )

    def close(self) -> None:
        """Nothing is kept but the network itself."""


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Lend torch this many threads: on small batches they would only wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _batches(n_samples: int, config: TrainingConfig) -> Iterator[Tensor | None]:
    """Batches without end: None for all samples, or epoch after epoch in random order."""
    generator = torch.Generator().manual_seed(config.seed)
    while True:
        if config.batch_size is None:
            yield None
        else:
            order = torch.randperm(n_samples, generator=generator)
            yield from torch.split(order, min(n_samples, config.batch_size))
