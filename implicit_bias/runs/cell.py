"""One cell of a sweep: fit the models of a configuration, and compare them.

A cell is one row of plain values.

============  ======================================================================================
column        meaning
============  ======================================================================================
dataset, ...  the fields of `RunConfig`; lists are text, joined by commas; C is NaN for "auto"
version       of this package
seconds       wall time of the cell
warnings      each warning once, such as a solve that did not end optimal
results       one mapping a model: errors on validation and training samples, certified bounds
              ``lower`` and ``upper`` on the norm at margin 1, their gap, excess over the optimum,
              margin, units, support vectors, status, seconds of its fit
pairs         one mapping a pair of models: disagreement, what chance would give, their ratio, kappa
============  ======================================================================================
"""

import math
import time
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeAlias

import pandas as pd

from implicit_bias.base.version import VERSION
from implicit_bias.comparison import Comparison, is_interrupted
from implicit_bias.estimators.base import BinaryClassifier
from implicit_bias.runs.configuration import RunConfig, chosen
from implicit_bias.runs.data import load_data
from implicit_bias.runs.models import ModelFactory

Row: TypeAlias = dict[str, Any]

# Columns of a comparison whose names would clash with fields of `RunConfig`, or be unclear there.
RENAMED = {"error": "validation_error", "units": "groups", "C": "program_C"}
# An interrupted cell is no result, so in those that are kept these are the configuration's.
OMITTED = ["interrupted", "steps", "planned_steps"]

_data = lru_cache(maxsize=1)(load_data)  # all of MNIST is 380 MB


def compute(config: RunConfig) -> Row:
    """Compute a cell in this process.

    Parameters
    ----------
    config : RunConfig
        The cell.

    Returns
    -------
    dict
        The row of the module's head.

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
        comparison, seconds = _compared(config)
    messages = dict.fromkeys(str(item.message) for item in caught)
    return {
        **setting(config),
        "version": VERSION,
        "seconds": time.perf_counter() - start,
        "warnings": "; ".join(messages),
        "results": _results(comparison, seconds),
        "pairs": records(comparison.pair_frame()),
    }


def setting(config: RunConfig) -> Row:
    """Return the fields of a configuration as columns of a table."""
    columns = dict(vars(config))
    for name, value in columns.items():
        if isinstance(value, tuple):
            columns[name] = ",".join(map(str, value))
    if config.C == "auto":
        columns["C"] = math.nan
    return columns


def _compared(config: RunConfig) -> tuple[Comparison, dict[str, float]]:
    """Fit and compare the models of a cell; the seconds that each took."""
    # Equal for cells that share their data.
    data = _data(RunConfig(**chosen(config, "Data", "class_weight")))
    fitted: dict[str, BinaryClassifier] = {}
    seconds: dict[str, float] = {}
    start = time.perf_counter()
    for name, model in ModelFactory(config, data).fit():
        if is_interrupted(model):
            raise KeyboardInterrupt
        fitted[name] = model
        seconds[name] = time.perf_counter() - start
        start = time.perf_counter()
    return data.compare({name: fitted[name] for name in config.models}), seconds


def _results(comparison: Comparison, seconds: Mapping[str, float]) -> list[Row]:
    frame = comparison.model_frame().drop(columns=OMITTED, errors="ignore").rename(columns=RENAMED)
    rows = records(frame)
    for row, model in zip(rows, comparison.models, strict=True):
        if model.margin is not None:
            row["lower"] = model.margin.certificate.lower
            row["upper"] = model.margin.certificate.upper
        row["seconds"] = seconds[model.name]
    return rows


def records(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a table."""
    return [{str(name): value for name, value in row.items()} for row in frame.to_dict("records")]


def tables(cells: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Lay out the rows of cells as tables: one row a model, and one row a pair of models.

    Each row begins with the columns of its cell; ``seconds`` and ``status`` of a model are its own.
    """
    found: dict[str, list[Row]] = {"models": [], "pairs": []}
    for cell in records(cells):
        results, pairs = cell.pop("results"), cell.pop("pairs")
        found["models"] += [{**cell, **row} for row in results]
        found["pairs"] += [{**cell, **row} for row in pairs]
    return {name: pd.DataFrame(rows) for name, rows in found.items()}
