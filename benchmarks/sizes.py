"""How a study is measured: setting by setting, each kept when it is finished."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from benchmarks.harness import Run
from implicit_bias.base.wording import percent

SizesT = TypeVar("SizesT", bound=Any)
SettingT = TypeVar("SettingT")


def at_sizes(
    settings: Callable[[SizesT], Sequence[SettingT]],
    rows: Callable[[SizesT, SettingT], Iterator[dict[str, Any]]],
    *,
    quick: SizesT,
    whole: SizesT,
) -> Callable[[Run[Any]], Iterator[pd.DataFrame]]:
    """Measure the rows of each setting, and go on after those that are kept at the same sizes.

    ``attrs`` of the table has the ``sizes``, how many settings are ``done`` and of how many, and
    the ``cpu_seconds`` that they took.
    """

    def measured(run: Run[Any]) -> Iterator[pd.DataFrame]:
        sizes = quick if run.quick else whole
        frame = run.kept
        if frame.attrs.get("sizes") != in_words(sizes):
            frame = pd.DataFrame()
        done, seconds = frame.attrs.get("done", 0), frame.attrs.get("cpu_seconds", 0.0)
        wanted = settings(sizes)
        for count, setting in enumerate(wanted[done:], start=done + 1):
            started = time.process_time()
            more = pd.DataFrame(list(rows(sizes, setting)))
            seconds += time.process_time() - started
            frame = pd.concat([frame, more], ignore_index=True) if len(frame) else more
            frame.attrs = {
                "sizes": in_words(sizes),
                "done": count,
                "settings": len(wanted),
                "cpu_seconds": seconds,
            }
            run.say(f"{count} of {len(wanted)}: {setting}, {seconds:.0f} s")
            yield frame

    return measured


def log_spaced(last: int, points: int, first: int = 1) -> list[int]:
    """Return steps at which a run is measured: about evenly spaced in the logarithm, each once."""
    return np.unique(np.geomspace(first, last, points).round().astype(int)).tolist()


def in_words(sizes: Any) -> dict[str, str]:
    """Return each size of an instance of ``Sizes``, as it is written."""
    return {name: _listed(size) for name, size in asdict(sizes).items()}


def with_sizes(found: Callable[[pd.DataFrame], str]) -> Callable[[pd.DataFrame], str]:
    """Say at which sizes a table was measured after what it shows."""

    def said(frame: pd.DataFrame) -> str:
        sizes = frame.attrs["sizes"].items()
        words = "; ".join(f"{name.replace('_', ' ')}: {size}" for name, size in sizes)
        part = ""
        if frame.attrs["done"] < frame.attrs["settings"]:
            part = f" Measured so far: {frame.attrs['done']} of {frame.attrs['settings']} settings."
        return f"{found(frame)}\n\nSizes: {words}.{part}"

    return said


def margin_share(share: float) -> str:
    """Write a margin's share of the largest; a negative one has no size that means anything."""
    return percent(share) if share > 0 else "does not separate"


def _listed(size: float | str | tuple[float | str, ...]) -> str:
    sizes = size if isinstance(size, tuple) else (size,)
    return ", ".join(f"{each:,}" if isinstance(each, int) else str(each) for each in sizes)
