"""Results of a grid as flat tables, in Parquet and CSV.

=======  ====================================================================================
table    rows
=======  ====================================================================================
cells    one a cell with a record: its configuration, status, error, warnings, seconds and origin
models   one a cell and model: the configuration, and the model's row of `cell.Outcome`
pairs    one a cell and pair of models, likewise
=======  ====================================================================================

The columns of a configuration are the fields of `RunConfig`, but that ``models`` is called
``cell_models``, and that ``C`` is NaN where each SVM has chosen its own (``program_C``).
"""

import math
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pandas as pd

from implicit_bias.base.atomic import escaped
from implicit_bias.base.strict_json import attributes
from implicit_bias.runs.cell import Outcome
from implicit_bias.runs.store import Record


def tables(records: Iterable[Record]) -> dict[str, pd.DataFrame]:
    """Lay out the records of a grid as the tables of the module's head."""
    cells, models, pairs = [], [], []
    for record in records:
        config = _config_columns(record)
        cells.append({**config, **_cell_columns(record.outcome)})
        models += [{**config, **row} for row in record.outcome.models]
        pairs += [{**config, **row} for row in record.outcome.pairs]
    rows = {"cells": cells, "models": models, "pairs": pairs}
    return {name: pd.DataFrame(map(_in_utf8, table)) for name, table in rows.items()}


def _in_utf8(row: dict[str, Any]) -> dict[str, Any]:
    """Escape what tables cannot hold: a file's name that is no UTF-8."""
    return {name: escaped(value) if type(value) is str else value for name, value in row.items()}


def _config_columns(record: Record) -> dict[str, Any]:
    columns = {"cell": record.key}
    for name, value in record.setting.items():
        column = "cell_models" if name == "models" else name
        columns[column] = ",".join(map(str, value)) if isinstance(value, list | tuple) else value
    C = record.setting["C"]
    return columns | {"C": math.nan if C == "auto" else float(C)}


def _cell_columns(outcome: Outcome) -> dict[str, Any]:
    origin = asdict(outcome.origin)
    columns = attributes(outcome, "status", "error", "warnings", "seconds")
    columns["warnings"] = "; ".join(outcome.warnings)
    return columns | origin | origin.pop("dependencies")
