"""The grids of the replication: compute one, go on where it was interrupted, and export.

=================  ======================================================  =====================
grid               what                                                    models beside its own
=================  ======================================================  =====================
gln                gated linear networks: figures 2 to 4                   as published, moved
shallow            one layer, k = 0 to 15                                  gd-shallow
relu, -momentum-0  ReLU networks: figure 5                                 svm-gates
relu-wide          ReLU networks of 500 and 1,000 units: figure 3c         svm-gates
osqp               the published SVM-L2 by the published solver            svm-l2-osqp
limit, -wider      infinite time beside finite time                        limit-gln
splits             two more splits into training and validation samples
gln-, relu-seeds   more seeds at N = 500
large              5,000 to 48,000 training samples
odd, loops         other classes of digits
fashion            Fashion-MNIST
=================  ======================================================  =====================

A grid is ``grids/NAME.toml``: the product of the lists in it. Its table has a record a cell, as
JSON, and is kept whenever one is finished; `exported` lays out those of all grids:

=======  ====================================================================================
table    rows
=======  ====================================================================================
cells    one a cell: its setting, status, error, warnings, seconds, and where it was computed
models   one a cell and model: the setting, and the model's row of `cells.compute`
pairs    one a cell and pair of models, likewise
=======  ====================================================================================

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

import json
import math
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import joblib
import pandas as pd

from benchmarks import harness, sizes
from benchmarks.harness import Experiment, Frames, Misuse, Options, Row, Run, Verdict, option
from benchmarks.lippl2022.as_published import gln_models, osqp_models, relu_models
from benchmarks.lippl2022.cells import MoreModels, Setting, compute, no_more
from benchmarks.lippl2022.further_models import limit_models, shallow_models
from implicit_bias.bounds.certificate import Status

GRIDS = Path(__file__).parent / "grids"

# In the order in which they are computed, with the models that their cells have beside their own.
MODELS: dict[str, MoreModels] = {
    "gln": gln_models,
    "limit": limit_models,
    "relu": relu_models,
    "shallow": shallow_models,
    "osqp": osqp_models,
    "odd": no_more,
    "loops": no_more,
    "fashion": no_more,
    "large": no_more,
    "relu-momentum-0": relu_models,
    "splits": no_more,
    "limit-wider": limit_models,
    "relu-wide": relu_models,
    "gln-seeds": no_more,
    "relu-seeds": no_more,
}


# Settings with several values in one cell.
OF_SEVERAL = ("models", "positive", "negative")
INFINITIES = ("inf", "-inf")


def settings(name: str, *, quick: bool = False) -> list[Setting]:
    """Read the cells of a grid, or with ``quick`` that of the first value of each axis."""
    axes: dict[str, list[Any]] = {}
    for field, values in tomllib.loads((GRIDS / f"{name}.toml").read_text("utf-8")).items():
        several = isinstance(values, list) and field not in OF_SEVERAL
        axes[field] = values if several else [values]
        if quick:
            axes[field] = axes[field][:1]
    return [Setting.of(values) for values in sizes.grid(**axes)]


def as_text(record: Row) -> str:
    """Write a record as JSON: words for infinity, null for nan."""
    return json.dumps(_written(record), allow_nan=False)


def _written(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _written(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_written(item) for item in value]
    if hasattr(value, "item"):  # of numpy
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        return None
    return str(value) if value in (math.inf, -math.inf) else value


def of_text(text: str) -> Row:
    """Read a record; those of older versions lie in an envelope with their checksum."""
    content = json.loads(text)
    record: Row = _read(content.get("record", content))
    return record


def _read(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _read(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_read(item) for item in value]
    return float(value) if value in INFINITIES else value


# --- an experiment of the harness --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GridOptions(Options):
    """What one can ask of a grid."""

    workers: int = option(-1, "processes (default: one a core)")
    retry: bool = option(False, "compute failed cells again")
    dirty: bool = option(False, "compute although files differ from the commit; rows say so")


def exported(grids: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Lay out the records of grids as tables of cells, models and pairs, with a column ``grid``."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for grid, packed in grids.items():
        for name, frame in unpacked(packed).items():
            if len(frame):
                frames.setdefault(name, []).append(frame.assign(grid=grid))
    return {name: pd.concat(some, ignore_index=True) for name, some in frames.items()}


def unpacked(packed: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Lay out packed records as tables of cells, models and pairs."""
    return _unpacked(tuple(packed["record"]))


@lru_cache(maxsize=len(MODELS))
def _unpacked(texts: tuple[str, ...]) -> Mapping[str, pd.DataFrame]:
    rows: dict[str, list[Row]] = {"cells": [], "models": [], "pairs": []}
    for record in map(of_text, texts):
        setting, outcome = _setting_columns(record), record["outcome"]
        origin = dict(outcome["origin"])
        # Older records say "-dirty" where files differed from the commit.
        origin["commit"] = origin["commit"].replace("-dirty", "+")
        cell = {name: outcome[name] for name in ("status", "error", "seconds")}
        cell["warnings"] = "; ".join(outcome["warnings"])
        rows["cells"].append({**setting, **cell, **origin, **origin.pop("dependencies", {})})
        rows["models"] += [{**setting, **row} for row in outcome["models"]]
        rows["pairs"] += [{**setting, **row} for row in outcome["pairs"]]
    return {name: pd.DataFrame(table) for name, table in rows.items()}


def _setting_columns(record: Row) -> Row:
    columns = {"cell": record["key"]}
    for name, value in record["setting"].items():
        columns[name] = ",".join(map(str, value)) if isinstance(value, list) else value
    return columns


def clean_commit(run: Run[Any]) -> str:
    """Return the commit that computes, which is recorded.

    Raises
    ------
    Misuse
        Files differ from the commit, and the run is not a quick one, of which nothing is kept.
    """
    commit = harness.commit()
    if not run.quick and commit.endswith("+"):
        raise Misuse(
            "what is computed names its commit, and files differ from it: commit first. (A grid "
            "computes with --dirty, too, and its rows say so.)"
        )
    return commit


def _measure(name: str, run: Run[GridOptions]) -> Frames:
    if not run.options.dirty:
        clean_commit(run)
    wanted = settings(name, quick=run.quick)
    kept: dict[Setting, str] = {}
    failed: set[Setting] = set()
    for text in run.kept["record"] if len(run.kept) else ():
        record = of_text(text)
        setting = Setting.of(record["setting"])
        kept[setting] = text
        if record["outcome"]["status"] == "failed":
            failed.add(setting)
    again = failed if run.options.retry else set()
    missing = [setting for setting in wanted if setting not in kept or setting in again]
    run.say(f"{name}: {len(missing)} of {len(wanted)} cells to compute")
    yield _packed(kept)
    started = time.perf_counter()
    # Networks and SVMs of this size are faster on one thread.
    with joblib.parallel_config(backend="loky", inner_max_num_threads=1):
        parallel = joblib.Parallel(n_jobs=run.options.workers, return_as="generator_unordered")
        tasks = (joblib.delayed(compute)(setting, MODELS[name]) for setting in missing)
        for count, record in enumerate(parallel(tasks), start=1):
            kept[Setting.of(record["setting"])] = as_text(record)
            outcome = record["outcome"]
            errors = ", ".join(
                f"{r['model']} {r['validation_error']:.4f}" for r in outcome["models"]
            )
            run.say(
                f"{name} {count}/{len(missing)} {time.perf_counter() - started:.0f} s: "
                f"{_label(record['setting'])}; {outcome['seconds']:.1f} s; "
                f"{outcome['error'] or errors}"
            )
            yield _packed(kept)


def _packed(kept: Mapping[Setting, str]) -> pd.DataFrame:
    """Make a table of the records."""
    keys = [of_text(text)["key"] for text in kept.values()]
    return pd.DataFrame({"cell": keys, "record": list(kept.values())}, dtype=str)


def _label(setting: Row) -> str:
    return (
        f"N = {setting['train_size']}, H = {setting['units']}, k = {setting['hyperplanes']}, "
        f"{setting['threshold']}, momentum {setting['momentum']:g}, seed {setting['seed']}"
    )


def _found(frame: pd.DataFrame) -> str:
    cells = unpacked(frame)["cells"]
    failed = int((cells["status"] != "done").sum())
    return (
        f"{len(frame)} cells, {cells['seconds'].sum() / 60:.0f} minutes of wall time; {failed} of "
        f"{len(cells)} failed."
    )


def _verdict(frame: pd.DataFrame) -> Verdict:
    done = (unpacked(frame)["cells"]["status"] == "done").all()
    return Verdict.ANSWERED if done else Verdict.OPEN


def _tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean errors and largest gaps; nothing if all cells failed."""
    cells = unpacked(frame)["models"]
    if cells.empty:
        return cells
    gaps = cells["gap"].where(cells["status"] == Status.OPTIMAL.label)
    by_model = cells.assign(largest=gaps).groupby("model", sort=False)
    table = by_model.agg({"validation_error": "mean", "largest": "max"})
    largest = table["largest"].map("{:.1e}".format).replace("nan", "")
    return table.assign(cells=by_model.size(), largest=largest).reset_index()


EXPERIMENTS = {
    name: Experiment(
        measure=partial(_measure, name),
        found=_found,
        verdict=_verdict,
        tabulate=_tabulate,
        options=GridOptions,
    )
    for name in MODELS
}
