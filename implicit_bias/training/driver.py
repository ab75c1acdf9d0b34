"""What every training shares: its loop, which Ctrl-C ends, and the fields of its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from implicit_bias.networks import Network
from implicit_bias.training.configuration import LimitConfig, TrainingConfig
from implicit_bias.training.history import HistoryPoint, history_frame
from implicit_bias.training.progress import progress_bar

if TYPE_CHECKING:
    import pandas as pd

Config = TypeVar("Config", TrainingConfig, LimitConfig)
Point = TypeVar("Point", bound=HistoryPoint)
MeasuredPoint = TypeVar("MeasuredPoint", bound=HistoryPoint, covariant=True)


class Ending(Enum):
    """Why a training ended; each member carries its message."""

    STEPS = "all steps are done"
    REACHED = "the excess asked for is reached"
    STALLED = (
        "no step size lowers the log loss any more: the weights are stationary, or what is left "
        "to gain is below rounding"
    )
    INTERRUPTED = "it was interrupted"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value


class Run(Protocol[MeasuredPoint]):
    """A training as the loop sees it. Its state is whole whenever Ctrl-C may come."""

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def detail(self) -> str:
        """What the progress bar shows beside the step."""

    def point(self) -> MeasuredPoint:
        """Measure the network as it is."""

    def advance(self) -> Ending | None:
        """Do one step; or none, and return why the training has ended."""

    def close(self) -> None:
        """Keep what is to be kept; called once, however the training ended."""


def drive(
    run: Run[Point],
    steps: int,
    history: list[Point],
    *,
    is_recorded: Callable[[int], bool],
    on_point: Callable[[Point], None] | None,
    progress: bool,
) -> tuple[Ending, float]:
    """Advance a training until it ends or Ctrl-C ends it.

    Parameters
    ----------
    run : Run
        The training.
    steps : int
        Its length, for the progress bar.
    history : list
        Its points so far; those to come are appended. The last one describes the network as it
        is, even where the training ended between two recorded steps.
    is_recorded : callable
        Whether the history has a point at a step.
    on_point : callable or None
        Called with each recorded point as it is measured, but not with such an extra last one.
    progress : bool
        Show a progress bar on standard error.

    Returns
    -------
    ending : Ending
    seconds : float
        Wall time.
    """
    started = time.perf_counter()
    ending = None
    try:
        with progress_bar(steps) if progress else nullcontext() as show:
            while ending is None:
                if is_recorded(run.step) and _is_behind(history, run.step):
                    history.append(run.point())
                    if on_point is not None:
                        on_point(history[-1])
                if show is not None:
                    show(run.step, run.detail)
                ending = run.advance()
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    run.close()
    if _is_behind(history, run.step):
        history.append(run.point())
    return ending, time.perf_counter() - started


def _is_behind(history: list[Point], step: int) -> bool:
    return not history or history[-1].step < step


@dataclass(frozen=True, eq=False, kw_only=True)
class Result(Generic[Config, Point]):
    """A finished or interrupted training.

    Attributes
    ----------
    network : Network
        The trained network, the one that was given.
    config : TrainingConfig or LimitConfig
        How it was trained.
    history : tuple of HistoryPoint
        In the order of the steps; the last point describes the network as it is.
    seconds : float
        Wall time, without that before a resumption.
    """

    network: Network
    config: Config
    history: tuple[Point, ...]
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
        """Return the history as a table: a row a point, the caller's measures as last columns."""
        return history_frame(self.history)
