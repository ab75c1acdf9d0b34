"""One cell of a grid: fit the models of a configuration and compare them.

`compute` never raises for a failure of the cell: the error is its outcome. An outcome is plain
data, so that it can come from another process or machine. A study adds models of its own to each
cell by the argument ``more`` of `compute`, and keeps their records in a store of its own: the key
of a cell does not name them.

============  ===============================================================================
field         meaning
============  ===============================================================================
models        one row a model: errors on validation and training samples, certified bounds
              ``lower`` and ``upper`` on the norm at margin 1, their gap, excess over the
              optimum, margin, units, support vectors, status, seconds of its fit
pairs         one row a pair: disagreement, what chance would give, their ratio, kappa
============  ===============================================================================
"""

import io
import platform
import subprocess
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stderr
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from importlib import metadata
from itertools import chain
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import pandas as pd
import torch

from implicit_bias.base.strict_json import attributes
from implicit_bias.base.version import VERSION
from implicit_bias.comparison import Comparison, is_interrupted
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.configuration import RunConfig, chosen
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

Row: TypeAlias = Mapping[str, Any]
Fitted: TypeAlias = Mapping[str, BinaryClassifier]
# Further models of a cell, fitted to its training samples, from those that its configuration names.
MoreModels: TypeAlias = Callable[[ModelFactory, Fitted], Iterator[tuple[str, BinaryClassifier]]]
CellStatus: TypeAlias = Literal["done", "failed"]

# What the results depend on beside this package.
DEPENDENCIES = ("cvxpy", "numpy", "scikit-learn", "scipy", "torch")
# Columns of a comparison whose names would clash with fields of `RunConfig`, or be unclear there.
RENAMED = {"error": "validation_error", "units": "groups", "C": "program_C"}
# An interrupted cell is no result, so in those that are kept these are the configuration's.
OMITTED = ["interrupted", "steps", "planned_steps"]

_data = lru_cache(maxsize=1)(load_data)  # all of MNIST is 380 MB
# Standard error, warnings and torch's threads belong to the process: one cell at a time.
_TURN = threading.Lock()


@dataclass(frozen=True)
class Origin:
    """Where and by what an outcome was computed.

    Attributes
    ----------
    version : str
        Of this package.
    commit : str or None
        Of its git checkout, with "-dirty" where files had changed; None where there is none.
    python : str
        Version.
    dependencies : mapping from name to version
        See `DEPENDENCIES`.
    machine, system : str
        Name of the machine and its operating system.
    threads : int
        Of torch.
    finished : str
        Date and time, UTC.
    """

    version: str
    commit: str | None
    python: str
    dependencies: Mapping[str, str]
    machine: str
    system: str
    threads: int
    finished: str

    @classmethod
    def here(cls) -> Self:
        """Describe this process."""
        return cls(
            version=VERSION,
            commit=_commit(),
            python=platform.python_version(),
            dependencies={name: metadata.version(name) for name in DEPENDENCIES},
            machine=platform.node(),
            system=platform.platform(),
            threads=torch.get_num_threads(),
            finished=datetime.now(UTC).isoformat(timespec="seconds"),
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a cell.

    Attributes
    ----------
    status : {"done", "failed"}
        Whether there are results.
    origin : Origin
        Where they come from.
    seconds : float
        Wall time of the cell.
    models, pairs : tuple of mappings
        See the module's head; empty for a cell that failed.
    warnings : tuple of str
        Each warning once, such as a solve that did not end optimal.
    error, traceback : str or None
        Why the cell failed.
    """

    status: CellStatus
    origin: Origin
    seconds: float
    models: tuple[Row, ...] = ()
    pairs: tuple[Row, ...] = ()
    warnings: tuple[str, ...] = ()
    error: str | None = None
    traceback: str | None = None


def no_more(factory: ModelFactory, fitted: Fitted) -> Iterator[tuple[str, BinaryClassifier]]:
    """Add no model to those that the configuration names."""
    return iter(())


def compute(config: RunConfig, more: MoreModels = no_more) -> Outcome:
    """Compute a cell in this process.

    Parameters
    ----------
    config : RunConfig
        The cell.
    more : callable
        Yields further models by name, compared with the others: called with the factory of the
        cell's models and those that the configuration names, fitted.

    Returns
    -------
    Outcome
        "failed" for any error.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C, also where a solver or a training answered it with what it had so far: that is
        no result.
    """
    with _TURN, warnings.catch_warnings(record=True) as caught, redirect_stderr(io.StringIO()):
        warnings.simplefilter("always")
        start = time.perf_counter()
        try:
            models, pairs = _results(config, more)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # a Rust panic is no Exception
            described = f"{type(error).__name__}: {error}"
            outcome = failure(described, time.perf_counter() - start)
            outcome = replace(outcome, traceback=traceback.format_exc())
        else:
            seconds = time.perf_counter() - start
            outcome = Outcome("done", Origin.here(), seconds, models=models, pairs=pairs)
    return replace(outcome, warnings=tuple(dict.fromkeys(str(item.message) for item in caught)))


def failure(error: str, seconds: float) -> Outcome:
    """Return the outcome of a cell that failed."""
    return Outcome("failed", Origin.here(), seconds, error=error)


def _results(config: RunConfig, more: MoreModels) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    # Equal for cells that share their data.
    data = _data(RunConfig(**chosen(config, "Data", "class_weight")))
    factory = ModelFactory(config, data)
    fitted: dict[str, BinaryClassifier] = {}
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    for name, model in chain(factory.fit(), more(factory, fitted)):
        if is_interrupted(model):
            raise KeyboardInterrupt
        fitted[name] = model
        seconds[name] = time.perf_counter() - start
        start = time.perf_counter()
    order = dict.fromkeys((*config.models, *fitted))
    comparison = data.compare({name: fitted[name] for name in order})
    return _model_rows(comparison, seconds), _rows(comparison.pair_frame())


def _model_rows(comparison: Comparison, seconds: Mapping[str, float]) -> tuple[Row, ...]:
    frame = comparison.model_frame().drop(columns=OMITTED, errors="ignore").rename(columns=RENAMED)
    rows = list(zip(_rows(frame), comparison.models, strict=True))
    for row, model in rows:
        if model.margin is not None:
            row |= attributes(model.margin.certificate, "lower", "upper")
        row["seconds"] = seconds[model.name]
    return tuple(row for row, _ in rows)


def _rows(frame: pd.DataFrame) -> tuple[dict[str, Any], ...]:
    return tuple({str(k): value for k, value in row.items()} for row in frame.to_dict("records"))


@lru_cache(maxsize=1)
def _commit() -> str | None:
    """Commit of the checkout that this package is imported from, if it has one."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    # Without a lock, which a process that is stopped leaves in the checkout; `git describe` takes
    # one in spite of the option.
    status = ["status", "--porcelain=v2", "--branch", "--untracked-files=no"]
    command = ["git", "--no-optional-locks", *status]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):  # no git, or not our checkout
        return None
    changed = any(not line.startswith("#") for line in done.stdout.splitlines())
    commit = done.stdout.split()[2]
    return None if commit == "(initial)" else commit + "-dirty" * changed
