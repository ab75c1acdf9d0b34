"""What every training shares: its loop, which Ctrl-C ends, and the fields of its result."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar

from implicit_bias.base.wording import html_table, number, percent, text_table
from implicit_bias.training.configuration import LimitConfig, OwnLoop, TrainingConfig
from implicit_bias.training.history import HistoryPoint, history_frame

if TYPE_CHECKING:
    import pandas as pd

Config = TypeVar("Config", TrainingConfig, LimitConfig, OwnLoop)
# Of a training that this package drives.
Planned = TypeVar("Planned", TrainingConfig, LimitConfig)
Point = TypeVar("Point", bound=HistoryPoint)
# Called with the steps done, all steps, and what has been reached, such as "loss 0.1".
OnProgress: TypeAlias = Callable[[int, int, str], object]


class Ending(Enum):
    """Why a training ended; each member carries its message."""

    STEPS = "all steps are done"
    REACHED = "the excess asked for is reached"
    GAP = "the KKT gap asked for is reached"
    STALLED = (
        "no step lowers the log loss any more: the weights are stationary or on kinks of their "
        "units, or what is left to gain is below rounding; diagnose says how far from a KKT point "
        "they are"
    )
    TIME = "the time that it may take is up"
    INTERRUPTED = "it was interrupted"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value


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
        headings, rows = self._short_table()
        at_end = ", ".join(map(" ".join, zip(headings, rows[-1], strict=True)))
        return f"{type(self).__name__}({at_end}: {self.ending.message})"

    def __str__(self) -> str:
        return text_table(*self._short_table())

    def _repr_html_(self) -> str:
        return html_table(*self._short_table(), caption=self.ending.message)

    def _short_table(self) -> tuple[list[str], list[list[str]]]:
        """Headings and rows: where the training began and ended."""
        headings = ["step", "loss", "error", "normalised margin"]
        ends = self.history if len(self.history) == 1 else (self.history[0], self.history[-1])
        rows = [
            [
                f"{p.step:,}",
                number(p.loss) if p.loss else "< 1e-38",  # which float32 makes 0
                percent(p.error, space=" "),
                number(p.normalised_margin),
            ]
            for p in ends
        ]
        return headings, rows


AnyResult = TypeVar("AnyResult", bound=Result[Any, Any])


class Run(Protocol[Planned, Point]):
    """A training as the loop sees it. Its state is whole whenever Ctrl-C may come.

    Attributes
    ----------
    network, config
        As in `Result`.
    history : list of HistoryPoint
        The points so far.
    """

    network: Any
    config: Planned
    history: list[Point]

    @property
    def step(self) -> int:
        """Steps done."""

    @property
    def detail(self) -> str:
        """What has been reached, in a few words."""

    def point(self) -> Point:
        """Measure the network as it is."""

    def advance(self) -> Ending | None:
        """Do one step; or none, and return why the training has ended."""

    def close(self) -> None:
        """Keep what is to be kept; called once, however the training ended."""


def drive(
    run: Run[Planned, Point],
    result: type[AnyResult],
    *,
    on_point: Callable[[Point], None] | None,
    on_progress: OnProgress | None,
) -> AnyResult:
    """Advance a training until it ends or Ctrl-C ends it.

    Parameters
    ----------
    run : Run
        The training.
    result : type of Result
        What to return.
    on_point : callable or None
        Called with each recorded point as it is measured, but not with the extra one that
        describes a network whose training ended between two recorded steps.
    on_progress : callable or None
        Called before each step; see `OnProgress`.
    """
    if on_progress is not None and not callable(on_progress):
        raise TypeError(f"on_progress must be a function, got {on_progress!r}")
    started, config, history, ending = time.perf_counter(), run.config, run.history, None

    def is_behind() -> bool:
        return not history or history[-1].step < run.step

    try:
        while ending is None:
            if config.is_recorded(run.step) and is_behind():
                history.append(run.point())
                if on_point is not None:
                    on_point(history[-1])
            if on_progress is not None:
                on_progress(run.step, config.steps, run.detail)
            ending = run.advance()
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    finally:  # an error of the module or of the caller's measure leaves what was reached, too
        run.close()
    if is_behind():
        history.append(run.point())
    return result(
        network=run.network,
        config=config,
        history=tuple(history),
        ending=ending,
        seconds=time.perf_counter() - started,
    )
