"""What a training records on its way, and what it returns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor, nn

from implicit_bias.base.wording import number, percent
from implicit_bias.networks import Network
from implicit_bias.problem.margins import logsumexp_margins, smallest_margins
from implicit_bias.training.configuration import LimitConfig, OwnLoop, TrainingConfig
from implicit_bias.training.losses import MarginLoss

if TYPE_CHECKING:
    import pandas as pd

# Called with the steps done, all steps, and what has been reached, such as "loss 0.1".
OnProgress: TypeAlias = Callable[[int, int, str], object]


class Ending(Enum):
    """Why a training ended; each member carries its message."""

    STEPS = "all steps are done"
    REACHED = "the excess asked for is reached"
    GAP = "the KKT gap asked for is reached"
    STALLED = (
        "no step lowers the log loss any more: the weights are stationary or at non-differentiable "
        "points of their units, or what is left to gain is below rounding; diagnose says how far "
        "from a KKT point they are"
    )
    TIME = "the time that it may take is up"
    INTERRUPTED = "it was interrupted"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value


@dataclass(frozen=True)
class HistoryPoint:
    """The network after some steps, on all training samples.

    Attributes
    ----------
    step : int
        Updates done.
    loss : float
        Mean loss.
    error : float
        Fraction of the samples that are misclassified; a margin of 0 is an error.
    min_margin : float
        Smallest y_n f(x_n), or with classes f_{y_n}(x_n) - f_k(x_n). The readout's bias is left
        out, as it is in ``norm``, so that their ratio has the SVM's as its bound.
    norm : float
        `Network.norm`; in a training towards the limit the norm of the steepest descent, to the
        power of the degree of homogeneity.
    gates_changed : float
        Fraction of the (sample, hidden unit) pairs whose gate is not what it was at step 0; nan
        of a module that is no network of this package.
    """

    step: int
    loss: float
    error: float
    min_margin: float
    norm: float
    gates_changed: float = 0.0

    @property
    def normalised_margin(self) -> float:
        """min_margin / norm: free of the scale of the weights; nan where they are zero."""
        # Weights of 0 have no direction.
        if not self.norm > 0:
            return math.nan
        return self.min_margin / self.norm


def history_frame(history: Iterable[HistoryPoint]) -> pd.DataFrame:
    """Return points of a history, or of several, as a table: a row a point.

    Your measures of a point (`LimitPoint.measures`) make the last columns.
    """
    import pandas as pd

    rows = []
    for point in history:
        row = vars(point) | {"normalised_margin": point.normalised_margin}
        # A caller's measures are columns of their own, last.
        measures = row.pop("measures", {})
        rows.append(row | measures)
    return pd.DataFrame(rows)


class Observer:
    """Measures a module on its training samples as it is trained.

    Parameters
    ----------
    module : nn.Module
        A network of this package, with its gates as they are at step 0, or any other module.
    inputs : tuple of Tensor
        Prepared inputs of all samples.
    labels : Tensor of shape (n,)
        Their labels.
    loss : MarginLoss
        Loss of a margin.
    norm : callable
        Computes the norm of the module as it is.
    chunk : int, optional
        Samples that one pass takes at a time; all by default.
    """

    @torch.no_grad()
    def __init__(
        self,
        module: nn.Module,
        inputs: tuple[Tensor, ...],
        labels: Tensor,
        loss: MarginLoss,
        norm: Callable[[], float],
        chunk: int | None = None,
    ) -> None:
        self.module = module
        self.inputs = inputs
        self.labels = labels
        self.loss = loss
        self.norm = norm
        self.chunk = chunk
        if isinstance(module, Network):
            # Gates that training moves make the margin problem another one: that is counted from
            # here on.
            self.first_gates = module.gate_pattern(*inputs)

    @torch.no_grad()
    def __call__(self, step: int) -> HistoryPoint:
        """Measure the module as it is now, after this many steps."""
        # The loss is one of the log-sum-exp margin of each sample; errors count the smallest.
        outputs = outputs_in_chunks(self.module, self.inputs, self.chunk)
        soft = logsumexp_margins(outputs, self.labels)
        margins = smallest_margins(outputs, self.labels)
        gates_changed = math.nan
        if isinstance(self.module, Network):
            gates = self.module.gate_pattern(*self.inputs)
            changed = torch.count_nonzero(gates != self.first_gates)
            gates_changed = changed.item() / gates.numel()
        return HistoryPoint(
            step=step,
            loss=self.loss(soft).mean().item(),
            error=(margins <= 0).double().mean().item(),
            min_margin=min_margin(self.module, outputs, self.labels),
            norm=self.norm(),
            gates_changed=gates_changed,
        )


def outputs_of(module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
    """Compute the outputs (n,) or (n, K) of a module; (n, 1) counts as (n,)."""
    outputs: Tensor = module(*inputs)
    if outputs.ndim == 2 and outputs.shape[1] == 1:
        return outputs[:, 0]
    return outputs


def outputs_in_chunks(
    module: nn.Module, inputs: tuple[Tensor, ...], chunk: int | None = None
) -> Tensor:
    """Compute the outputs (n,) or (n, K), of so many samples at a time."""
    parts = []
    for rows in chunks(len(inputs[0]), chunk):
        parts.append(outputs_of(module, samples_of(inputs, rows)))
    return torch.cat(parts)


def samples_of(inputs: tuple[Tensor, ...], rows: slice) -> tuple[Tensor, ...]:
    """Take the inputs of some samples, which are the first axis of each tensor."""
    return tuple(tensor[rows] for tensor in inputs)


def chunks(n_samples: int, chunk: int | None) -> Iterator[slice]:
    """Yield the samples that one pass takes, one chunk after the other; None for one of all."""
    size = chunk or n_samples
    for start in range(0, n_samples, size):
        yield slice(start, start + size)


def min_margin(module: nn.Module, outputs: Tensor, labels: Tensor) -> float:
    """Smallest margin of outputs (n,) or (n, K), without the bias of a network's readout."""
    if isinstance(module, Network):
        # The bias is in no norm, so a margin that counts it has no bound.
        return module.smallest_margin(outputs, labels)
    return smallest_margins(outputs, labels).min().item()


Config = TypeVar("Config", TrainingConfig, LimitConfig, OwnLoop)
Point = TypeVar("Point", bound=HistoryPoint)


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Result(Generic[Config, Point]):
    """A finished or interrupted training.

    Attributes
    ----------
    network : nn.Module
        The trained network or other module, the one that was given.
    config : TrainingConfig, LimitConfig or OwnLoop
        How it was trained.
    history : tuple of HistoryPoint
        In the order of the steps; the last point describes the network as it is.
    ending : Ending
        Why it ended.
    seconds : float
        Wall time.
    """

    network: Any  # a Network, but by `train_to_limit` any module
    config: Config
    history: tuple[Point, ...]
    ending: Ending
    seconds: float

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.history[-1].step

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped it before the end."""
        return self.ending is Ending.INTERRUPTED

    @property
    def local(self) -> bool:
        """Whether each unit learned by itself, so that no SVM is known to be the limit."""
        return self.config.rule == "local"

    def frame(self) -> pd.DataFrame:
        """Return the history as a table: a row a point, the caller's measures as last columns."""
        return history_frame(self.history)

    def __repr__(self) -> str:
        last = self.history[-1]
        return (
            f"{type(self).__name__}({last.step:,} steps, loss {number(last.loss)}, error "
            f"{percent(last.error, space=' ')}, normalized margin "
            f"{number(last.normalised_margin)}: {self.ending.message})"
        )
