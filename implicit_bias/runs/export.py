"""Results of a grid as flat tables, in Parquet and CSV.

=======  ====================================================================================
table    rows
=======  ====================================================================================
cells    one a cell with a record: its configuration, status, error, warnings, seconds and origin
models   one a cell and model: the configuration, and the model's row of `cell.Outcome`
pairs    one a cell and pair of models, likewise
=======  ====================================================================================

The columns of a configuration are the fields of `RunConfig`, but that ``models`` is called
``cell_models``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd

from implicit_bias.runs.cell import Outcome
from implicit_bias.runs.store import Record
from implicit_bias.storage.atomic import write_atomically


def tables(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    """Lay out the records of a grid as the tables of the module's head."""
    cells, models, pairs = [], [], []
    for record in records:
        config = _config_columns(record)
        cells.append({**config, **_cell_columns(record.outcome)})
        models += [{**config, **row} for row in record.outcome.models]
        pairs += [{**config, **row} for row in record.outcome.pairs]
    return {
        "cells": pd.DataFrame(cells),
        "models": pd.DataFrame(models),
        "pairs": pd.DataFrame(pairs),
    }


def write_tables(folder: str | Path, frames: Mapping[str, pd.DataFrame]) -> list[Path]:
    """Write each table as NAME.parquet and NAME.csv, and return the files."""
    folder = Path(folder)
    files = []
    for name, frame in frames.items():
        parquet, csv = folder / f"{name}.parquet", folder / f"{name}.csv"
        write_atomically(parquet, frame.to_parquet)
        write_atomically(csv, partial(frame.to_csv, index=False))
        files += [parquet, csv]
    return files


def _config_columns(record: Record) -> dict[str, Any]:
    columns = {"cell": record.key}
    for name, value in record.setting.items():
        column = "cell_models" if name == "models" else name
        columns[column] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    return columns | {"C": float(record.setting["C"])}


def _cell_columns(outcome: Outcome) -> dict[str, Any]:
    origin = asdict(outcome.origin)
    versions = origin.pop("dependencies")
    return {
        "status": outcome.status,
        "error": outcome.error,
        "warnings": "; ".join(outcome.warnings),
        "seconds": outcome.seconds,
        **origin,
        **versions,
    }
