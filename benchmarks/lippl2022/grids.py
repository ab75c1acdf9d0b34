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

A grid is ``grids/NAME.toml``, and its table has a row a cell, as `implicit_bias.runs.cell` lays it
out, with the columns below; `exported` makes tables of models and pairs of those of all grids. The
cells that are kept were written as JSON, which `unpacked` reads.

=================  =================================================================================
column             meaning
=================  =================================================================================
cell               key of the cell
status, error      "done"; or "failed", and why
commit, ...        what computed it: commit, Python and libraries, machine, threads, and when
=================  =================================================================================

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import joblib
import pandas as pd
import torch

from benchmarks.harness import Experiment, Frames, Misuse, Options, Row, Run, Verdict, option
from benchmarks.harness import commit as commit_here
from benchmarks.lippl2022.as_published import gln_models, osqp_models, relu_models
from benchmarks.lippl2022.further_models import limit_models, shallow_models
from implicit_bias.bounds.certificate import Status
from implicit_bias.runs.cell import MoreModels, compute, no_more, setting, tables
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.sweep import Axes, cells_of, keyed, read_grid

GRIDS = Path(__file__).parent / "grids"
# What the results depend on beside this package.
DEPENDENCIES = ("cvxpy", "numpy", "scikit-learn", "scipy", "torch")

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


def attempt(key: str, cell: RunConfig, more: MoreModels, commit: str | None) -> Row:
    """Compute the row of a cell; that of a failed one has its error."""
    started = time.perf_counter()
    row: Row = {"cell": key, **setting(cell), "results": [], "pairs": []}
    try:
        row |= {**compute(cell, more), "status": "done", "error": None}
    except Exception as error:
        seconds = time.perf_counter() - started
        row |= {"seconds": seconds, "status": "failed", "error": f"{type(error).__name__}: {error}"}
    return {
        **row,
        "commit": commit,
        "python": platform.python_version(),
        "machine": platform.node(),
        "system": platform.platform(),
        "threads": torch.get_num_threads(),
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
        **{name: metadata.version(name) for name in DEPENDENCIES},
    }


# --- an experiment of the harness --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GridOptions(Options):
    """What one can ask of a grid."""

    workers: int | None = option(None, "processes (default: one a core)")
    retry: bool = option(False, "compute failed cells again")
    dirty: bool = option(False, "compute although files differ from the commit; rows say so")


def exported(grids: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Lay out grids as tables of cells, models and pairs, with a column ``grid``."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for grid, kept in grids.items():
        cells = unpacked(kept)
        parts = {"cells": cells.drop(columns=["results", "pairs"]), **tables(cells)}
        for name, frame in parts.items():
            if len(frame):
                frames.setdefault(name, []).append(frame.assign(grid=grid))
    return {name: pd.concat(some, ignore_index=True) for name, some in frames.items()}


def unpacked(kept: pd.DataFrame) -> pd.DataFrame:
    """Lay out the cells of a table, which may each be a ``record`` of JSON, as columns."""
    if "record" not in kept:
        return kept
    return pd.DataFrame([_row_of(*cell) for cell in kept[["cell", "record"]].to_numpy()])


def _row_of(key: str, text: str) -> Row:
    record = json.loads(text)["record"]
    outcome = record["outcome"]
    columns = setting(RunConfig.from_metadata(record["setting"]))
    origin = outcome["origin"]
    return {
        "cell": key,
        **{name: columns[name] for name in record["setting"]},
        **{name: outcome[name] for name in ("status", "error", "seconds")},
        "warnings": "; ".join(outcome["warnings"]),
        "results": [_numbers(row) for row in outcome["models"]],
        "pairs": outcome["pairs"],
        **origin.pop("dependencies"),
        **origin,
        "commit": origin["commit"].replace("-dirty", "+"),
    }


def _numbers(row: Row) -> Row:
    """Read infinity, which JSON has as a word."""
    return {name: float(value) if value == "inf" else value for name, value in row.items()}


def clean_commit(run: Run[Any]) -> str | None:
    """Return the commit that computes, which is recorded; None where there is no repository.

    Raises
    ------
    Misuse
        Files differ from the commit, and the run is not a quick one, of which nothing is kept.
    """
    commit = commit_here()
    if commit == "unknown":
        return None
    if not run.quick and commit.endswith("+"):
        raise Misuse(
            "what is computed names its commit, and files differ from it: commit first. (A grid "
            "computes with --dirty, too, and its rows say so.)"
        )
    return commit


def missing_cells(axes: Axes, frame: pd.DataFrame) -> dict[str, RunConfig]:
    """Return the cells of a grid that a table lacks, by their keys.

    They are told apart by the fields that the grid names: a key changes with each field that is
    new.
    """
    known = set()
    if len(frame):
        known = set(zip(*(frame[field] for field in axes), strict=True))
    missing = {}
    for key, cell in keyed(cells_of(axes)).items():
        columns = setting(cell)
        if tuple(columns[field] for field in axes) not in known:
            missing[key] = cell
    return missing


def _measure(name: str, run: Run[GridOptions]) -> Frames:
    commit = commit_here() if run.options.dirty else clean_commit(run)
    axes = read_grid(GRIDS / f"{name}.toml")
    if run.quick:
        axes = {field: values[:1] for field, values in axes.items()}
    frame = unpacked(run.kept)
    if len(frame) and run.options.retry:
        frame = frame[frame["status"] == "done"]
    missing = missing_cells(axes, frame)
    run.say(f"{name}: {len(missing)} of {len(cells_of(axes))} cells to compute")
    parallel = joblib.Parallel(n_jobs=run.options.workers or -1, return_as="generator_unordered")
    tasks = [
        joblib.delayed(attempt)(key, cell, MODELS[name], commit) for key, cell in missing.items()
    ]
    for count, row in enumerate(parallel(tasks), start=1):
        frame = pd.concat([frame, pd.DataFrame([row])], ignore_index=True)
        errors = ", ".join(
            f"{one['model']} {one['validation_error']:.4f}" for one in row["results"]
        )
        label = ", ".join(f"{field} {row[field]}" for field in axes if len(axes[field]) > 1)
        said = row["error"] or errors
        run.say(f"{name} {count}/{len(missing)}: {label}; {row['seconds']:.1f} s; {said}")
        yield frame


def _found(frame: pd.DataFrame) -> str:
    frame = unpacked(frame)
    failed = int((frame["status"] != "done").sum())
    return (
        f"{len(frame)} cells, {frame['seconds'].sum() / 60:.0f} minutes of wall time; {failed} of "
        f"{len(frame)} failed."
    )


def _verdict(frame: pd.DataFrame) -> Verdict:
    done = (unpacked(frame)["status"] == "done").all()
    return Verdict.ANSWERED if done else Verdict.OPEN


def _tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean errors and largest gaps; nothing if all cells failed."""
    models = tables(unpacked(frame))["models"]
    if models.empty:
        return models
    gaps = models["gap"].where(models["status"] == Status.OPTIMAL.label)
    by_model = models.assign(largest=gaps).groupby("model", sort=False)
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
