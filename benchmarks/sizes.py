"""How a study is measured: setting by setting, each kept when it is finished."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from itertools import product
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.harness import Experiment, Judged, Row, Rows, Run, Tabular, Verdict, growing
from implicit_bias.base.wording import percent

SizesT = TypeVar("SizesT", bound=Any)


def grid(**axes: Iterable[Any]) -> list[Row]:
    """Return every combination of the values of these columns, the last column's changing first."""
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def sized(
    settings: Callable[[SizesT], Sequence[Row]],
    rows: Callable[..., Rows],
    found: Callable[[pd.DataFrame], str],
    tabulate: Callable[[pd.DataFrame], Tabular],
    verdict: Callable[..., Verdict] = Experiment.verdict,
    draw: Callable[[pd.DataFrame], Figure] | None = None,
    judge: Callable[[pd.DataFrame], Mapping[str, Judged]] = Experiment.judge,
    *,
    quick: SizesT,
) -> Experiment:
    """Make an experiment whose settings are measured at some sizes, quick ones or all.

    All are those that the class of the quick ones has without arguments.

    A setting has the columns that tell it apart; `rows` gets the sizes and these by keyword, and
    yields the other columns. A stopped run goes on after the settings that are kept at the same
    sizes. ``attrs`` of the table has the ``sizes``, how many settings are ``done`` and of how many,
    and the ``cpu_seconds`` that they took; the sizes are said after what the table shows.
    """

    def measured(run: Run[Any]) -> Iterator[pd.DataFrame]:
        sizes = quick if run.quick else type(quick)()
        kept = run.kept
        if kept.attrs.get("sizes") != in_words(sizes):
            kept = pd.DataFrame()
        done, seconds = kept.attrs.get("done", 0), kept.attrs.get("cpu_seconds", 0.0)
        wanted, started = settings(sizes), time.process_time()
        left = growing(run, wanted[done:], partial(rows, sizes), kept)
        for count, frame in enumerate(left, start=done + 1):
            frame.attrs = {
                "sizes": in_words(sizes),
                "done": count,
                "settings": len(wanted),
                "cpu_seconds": seconds + time.process_time() - started,
            }
            yield frame

    def said(frame: pd.DataFrame) -> str:
        sizes = frame.attrs["sizes"].items()
        words = "; ".join(f"{name.replace('_', ' ')}: {size}" for name, size in sizes)
        part = ""
        if frame.attrs["done"] < frame.attrs["settings"]:
            part = f" Measured so far: {frame.attrs['done']} of {frame.attrs['settings']} settings."
        return f"{found(frame)}\n\nSizes: {words}.{part}"

    return Experiment(measured, said, tabulate, verdict, draw, judge=judge)


def log_spaced(last: int, points: int, first: int = 1) -> list[int]:
    """Return steps at which a run is measured: about evenly spaced in the logarithm, each once."""
    return np.unique(np.geomspace(first, last, points).round().astype(int)).tolist()


def in_words(sizes: Any) -> dict[str, str]:
    """Return each size of an instance of ``Sizes``, as it is written."""
    return {name: _listed(size) for name, size in asdict(sizes).items()}


def margin_share(share: float, digits: int = 0) -> str:
    """Write a margin's share of the largest; a negative one has no size that means anything."""
    return percent(share, digits) if share > 0 else "does not separate"


def _listed(size: float | str | tuple[float | str, ...]) -> str:
    sizes = size if isinstance(size, tuple) else (size,)
    return ", ".join(f"{each:,}" if isinstance(each, int) else str(each) for each in sizes)
