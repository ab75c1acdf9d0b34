"""A sweep: compute the runs of a grid, its cells, in parallel, and keep each in its own file.

A grid is a TOML file whose keys are fields of `RunConfig`::

    dataset = "digits"
    units = [10, 20, 50]                        # an axis: H
    seed = [1, 2, 3]                            # another one
    models = ["gd-gln", "svm-gln", "svm-l2"]    # one value, which is a list

A list is an axis, and all axes are crossed; the last one runs fastest. Where one value is a list
already (``models``, ``positive``, ``classes``), a list of lists is an axis. Fields that are not
named keep their defaults.

================================  ==================================================================
file                              what
================================  ==================================================================
FOLDER/cells/KEY.parquet          a run: one row, with the columns below
FOLDER/errors/KEY.txt             why a run failed
FOLDER/models.parquet, .csv       at the end: one row per run and model
FOLDER/pairs.parquet, .csv        one row per run and pair of models
================================  ==================================================================

KEY is a hash of what the results depend on, so grids share cells. A file is written whole: under a
temporary name, flushed to the disk, then renamed. After kill -9 or a power cut a cell's file is
there or not, and the next sweep computes the cells that are missing or have failed.

============  ======================================================================================
column        meaning
============  ======================================================================================
cell          KEY
dataset, ...  the fields of `RunConfig`; lists are text, joined by commas
version       of this package
seconds       wall time of the cell
warnings      each warning once, such as a solve that did not end optimal
results       one mapping per model: errors on validation and training samples, certified bounds
              ``lower`` and ``upper`` on the norm at unit margin, their gap, excess over the
              optimum, margin, units, support vectors, status, seconds of its fit
pairs         one mapping per pair of models: disagreement, found and expected under independence
============  ======================================================================================
"""

import hashlib
import json
import time
import tomllib
import traceback
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias

import joblib
import pandas as pd

from implicit_bias.base.atomic import write_atomically, write_tables, write_text
from implicit_bias.base.package import VERSION, check_installed
from implicit_bias.base.validation import check_choice
from implicit_bias.comparison import is_interrupted
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.configuration import DATA, RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

# The values of each field that a grid names.
Axes: TypeAlias = Mapping[str, Sequence[Any]]
Row: TypeAlias = dict[str, Any]

# Cells that share their data load them once; one set only, for all of MNIST is 380 MB.
_load_data = lru_cache(maxsize=1)(load_data)


# --- a grid ------------------------------------------------------------------------------------


def read_grid(file: str | Path) -> Axes:
    """Read a grid.

    Raises
    ------
    ValueError
        Not TOML, an unknown key (the nearest known one is named), or an axis without values.
    OSError
        A file that cannot be read.
    """
    file = Path(file)
    grid = tomllib.loads(file.read_text(encoding="utf-8"))
    axes = {}
    names = tuple(field.name for field in fields(RunConfig))
    # Fields of which one value is a list.
    lists = ("positive", "negative", "classes", "id", "models")
    for name, value in grid.items():
        check_choice(name, f"a key of {file.name}", names)
        is_axis = isinstance(value, list)
        if name in lists:
            is_axis = is_axis and all(isinstance(item, list) for item in value)
        axes[name] = value if is_axis else [value]
        if not axes[name]:
            raise ValueError(f"{name} has no value: an axis needs at least one")
    return axes


def cells_of(axes: Axes) -> list[RunConfig]:
    """Return the configuration of each cell: the product of the axes.

    Raises
    ------
    TypeError, ValueError
        See `RunConfig`.
    """
    return [RunConfig(**dict(zip(axes, values, strict=True))) for values in product(*axes.values())]


def keyed(cells: Sequence[RunConfig]) -> dict[str, RunConfig]:
    """Return cells by their keys: a hash of all that their results depend on.

    Of a file of data its content counts, and not its name; the device changes no result.
    """
    digest = lru_cache(lambda file: hashlib.sha256(Path(file).read_bytes()).hexdigest())
    found = {}
    for cell in cells:
        facts = cell.metadata()
        del facts["device"]
        if cell.data is not None:
            facts["data"] = digest(cell.data)
        text = json.dumps(facts, sort_keys=True)
        found[hashlib.sha256(text.encode()).hexdigest()[:20]] = cell
    return found


# --- a cell ------------------------------------------------------------------------------------


def compute(config: RunConfig) -> Row:
    """Compute a cell in this process.

    Parameters
    ----------
    config : RunConfig
        The cell.

    Returns
    -------
    dict
        The row of the module's head, but for ``cell``.

    Raises
    ------
    KeyboardInterrupt
        Ctrl-C, also where a solver or a training answered it with what it had so far: that is
        no result.
    Exception
        Whatever data, training or solver raise.
    """
    start = time.perf_counter()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        # Only the fields that the data depend on: cells that share them find the data in the cache.
        data = _load_data(RunConfig(**config.chosen(*DATA)))
        fitted: dict[str, BinaryClassifier] = {}
        seconds: dict[str, float] = {}
        before = time.perf_counter()
        for name, model in ModelFactory(config, data).fit():
            # A training or a solver answers Ctrl-C with what it has so far, which is no result.
            if is_interrupted(model):
                raise KeyboardInterrupt
            fitted[name] = model
            seconds[name] = time.perf_counter() - before
            before = time.perf_counter()
        comparison = data.compare({name: fitted[name] for name in config.models})

    # An interrupted run is not kept, and the configuration has the number of steps.
    without = ["interrupted", "steps", "planned_steps"]
    # Names that would clash with fields of `RunConfig`, or be unclear beside them.
    renamed = {"error": "validation_error", "units": "groups", "C": "program_C"}
    frame = comparison.model_frame().drop(columns=without, errors="ignore").rename(columns=renamed)
    results: list[Any] = frame.to_dict("records")
    for row, result in zip(results, comparison.models, strict=True):
        if result.margin is not None:
            row["lower"] = result.margin.certificate.lower
            row["upper"] = result.margin.certificate.upper
        row["seconds"] = seconds[result.name]

    columns = dict(vars(config))
    for name, value in columns.items():
        if isinstance(value, tuple):
            columns[name] = ",".join(map(str, value))
    messages = dict.fromkeys(str(item.message) for item in caught)
    return {
        **columns,
        "version": VERSION,
        "seconds": time.perf_counter() - start,
        "warnings": "; ".join(messages),
        "results": results,
        "pairs": comparison.pair_frame().to_dict("records"),
    }


# --- the files ---------------------------------------------------------------------------------


def cell_file(folder: Path, key: str) -> Path:
    """Return where the row of a cell is, or will be."""
    return folder / "cells" / f"{key}.parquet"


def error_file(folder: Path, key: str) -> Path:
    """Return where a cell that fails says why."""
    return folder / "errors" / f"{key}.txt"


def check_folder(folder: Path) -> None:
    """Raise ValueError where a folder holds anything but a sweep: its tables could be replaced."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / "cells").is_dir():
        raise ValueError(f"{folder} holds no sweep: name an empty or new folder")


def write_results(folder: Path, keys: Iterable[str]) -> dict[str, pd.DataFrame]:
    """Write the tables of those cells that are there, and return them.

    Each row begins with the columns of its cell; ``seconds`` and ``status`` of a model are its own.
    """
    models: list[Row] = []
    pairs: list[Row] = []
    for key in keys:
        file = cell_file(folder, key)
        if not file.is_file():
            continue
        rows: list[Any] = pd.read_parquet(file).to_dict("records")
        cell: Row = rows[0]
        results_of_cell = cell.pop("results")
        pairs_of_cell = cell.pop("pairs")
        models += [{**cell, **row} for row in results_of_cell]
        pairs += [{**cell, **row} for row in pairs_of_cell]
    if not models:
        return {}
    frames = {"models": pd.DataFrame(models), "pairs": pd.DataFrame(pairs)}
    write_tables(folder, frames)
    return frames


# --- computing ---------------------------------------------------------------------------------


def run_cells(
    cells: Mapping[str, RunConfig],
    folder: Path,
    *,
    workers: int | None = None,
    address: str | None = None,
) -> Generator[tuple[str, str | None], None, None]:
    """Compute cells, and keep each as soon as it is finished.

    Only rows travel, and this process writes them: workers need not share its disk.

    Parameters
    ----------
    cells : mapping from key to RunConfig
        What to compute.
    folder : Path
        Of the sweep.
    workers : int, optional
        Processes of this machine; by default one per core.
    address : str, optional
        Dask scheduler to compute on, all of whose workers are used, such as tcp://10.0.0.1:8786.

    Yields
    ------
    key : str
        Of a cell whose file is there now.
    error : str or None
        The last line of what its error file says, if it failed.

    Raises
    ------
    ImportError
        Dask is missing; the message names the extra that has it.
    OSError
        No space left, no permission, or no scheduler answers.
    RuntimeError
        A worker process died.
    """
    if not cells:
        return
    with _backend(workers, address):
        parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
        tasks = (joblib.delayed(_attempt)(key, cell) for key, cell in cells.items())
        for key, row, error in parallel(tasks):
            if row is None:
                write_text(error_file(folder, key), error)
                yield key, error.strip().rpartition("\n")[2]
                continue
            frame = pd.DataFrame([{"cell": key, **row}])
            write_atomically(cell_file(folder, key), partial(frame.to_parquet, index=False))
            error_file(folder, key).unlink(missing_ok=True)
            yield key, None


def _attempt(key: str, cell: RunConfig) -> tuple[str, Row | None, str]:
    """Compute a cell in a worker; of one that fails return the traceback."""
    try:
        return key, compute(cell), ""
    except Exception:
        return key, None, traceback.format_exc()


@contextmanager
def _backend(workers: int | None, address: str | None) -> Iterator[None]:
    """Let joblib compute in processes of this machine, or on the workers of a Dask scheduler."""
    if address is None:
        # Processes without work end after a while, also those of a sweep that was killed.
        with joblib.parallel_config("loky", n_jobs=workers or -1, idle_worker_timeout=30):
            yield
        return
    check_installed("distributed", "a Dask cluster needs dask.distributed", "dask")
    from distributed import Client, KilledWorker

    try:
        with Client(address) as client, joblib.parallel_config("dask", client=client):
            yield
    except KilledWorker as error:
        raise RuntimeError(f"{error} Workers with more memory may compute it.") from error
