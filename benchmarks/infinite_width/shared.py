"""How every experiment of the study is measured: at small sizes, in minutes, or in full."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import pandas as pd

from benchmarks.harness import Options, Run, option, whole

SizesT = TypeVar("SizesT", bound=Any)


@dataclass(frozen=True, kw_only=True)
class SizeOptions(Options):
    """What one can ask of an experiment of this study."""

    full: bool = option(False, "the largest sizes: hours, where the default takes minutes")


def at_sizes(
    measure: Callable[[SizesT], pd.DataFrame], *, quick: SizesT, minutes: SizesT, full: SizesT
) -> Callable[[Run[SizeOptions]], Iterator[pd.DataFrame]]:
    """Measure at the sizes that are asked for, which ``attrs["sizes"]`` of the table names."""

    def measured(run: Run[SizeOptions]) -> Iterator[pd.DataFrame]:
        sizes = quick if run.quick else full if run.options.full else minutes
        for frame in whole(lambda _: measure(sizes))(run):
            frame.attrs["sizes"] = in_words(sizes)
            yield frame

    return measured


def in_words(sizes: Any) -> dict[str, str]:
    """Return each size of an instance of ``Sizes``, as it is written."""
    return {name: _listed(size) for name, size in asdict(sizes).items()}


def with_sizes(found: Callable[[pd.DataFrame], str]) -> Callable[[pd.DataFrame], str]:
    """Say at which sizes a table was measured after what it shows."""

    def said(frame: pd.DataFrame) -> str:
        sizes = frame.attrs["sizes"].items()
        words = "; ".join(f"{name.replace('_', ' ')}: {size}" for name, size in sizes)
        return f"{found(frame)}\n\nSizes: {words}."

    return said


def _listed(size: int | tuple[int, ...]) -> str:
    sizes = size if isinstance(size, tuple) else (size,)
    return ", ".join(f"{each:,}" for each in sizes)
