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

A grid is ``grids/NAME.toml``, its records are in ``STORE/NAME``, one file a cell, on the disk as
soon as it is computed. The table of a grid has its records, packed; from there a store goes on that
lacks them, and `exported` lays out those of all grids as `implicit_bias.runs.export` does.

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.harness import Experiment, Frames, Misuse, Options, Run, Verdict, option
from benchmarks.lippl2022.as_published import gln_models, osqp_models, relu_models
from benchmarks.lippl2022.further_models import limit_models, shallow_models
from implicit_bias.base.atomic import write_atomically
from implicit_bias.bounds.certificate import Status
from implicit_bias.runs.backends import LocalProcesses
from implicit_bias.runs.cell import MoreModels, Origin, compute, no_more
from implicit_bias.runs.export import tables
from implicit_bias.runs.grid import Grid
from implicit_bias.runs.runner import run_grid
from implicit_bias.runs.store import Record, Store, record_of

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


@dataclass(frozen=True)
class Part:
    """A grid of the study and where its records are.

    Attributes
    ----------
    name : str
        From `MODELS`.
    grid : Grid
        Cells.
    store : Store
        Records.
    """

    name: str
    grid: Grid
    store: Store

    @classmethod
    def open(cls, name: str, folder: Path, *, quick: bool = False) -> Part:
        """Read a grid, or with ``quick`` only the first value of each of its axes."""
        grid = Grid.read(GRIDS / f"{name}.toml")
        if quick:
            grid = Grid({field: axis[:1] for field, axis in grid.axes.items()})
        return cls(name, grid, Store(folder / name))

    def records(self) -> list[Record]:
        """Return what there is, finished and failed cells."""
        stock = self.store.inventory(self.grid.by_key)
        return [*stock.done.values(), *stock.failed.values()]


def compute_missing(part: Part, run: Run[GridOptions]) -> None:
    """Compute the missing cells of a part, a line each."""
    retry = run.options.retry
    backend = LocalProcesses(run.options.workers, partial(compute, more=MODELS[part.name]))
    stock = part.store.inventory(part.grid.by_key)
    settled = len(stock.done) + (0 if retry else len(stock.failed))
    todo = len(part.grid.cells) - settled
    run.say(f"{part.name}: {todo} of {len(part.grid.cells)} cells to compute")
    labels = {key: part.grid.label(cell) for key, cell in part.grid.by_key.items()}
    started = time.perf_counter()
    with closing(run_grid(part.grid, part.store, backend, retry_failed=retry)) as records:
        for count, record in enumerate(records, start=1):
            outcome = record.outcome
            errors = ", ".join(f"{r['model']} {r['validation_error']:.4f}" for r in outcome.models)
            run.say(
                f"{part.name} {count}/{todo} {time.perf_counter() - started:.0f} s: "
                f"{labels[record.key]}; {outcome.seconds:.1f} s; {outcome.error or errors}"
            )


def restore(part: Part, packed: pd.DataFrame) -> int:
    """Put packed records into a store that lacks them, and return how many."""
    count = 0
    for key, text in packed[["cell", "record"]].itertuples(index=False):
        if not (target := part.store.file(key)).exists():
            part.store.prepare()
            write_atomically(target, partial(Path.write_text, data=text, encoding="utf-8"))
            count += 1
    return count


# --- an experiment of the harness --------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class GridOptions(Options):
    """What one can ask of a grid."""

    workers: int | None = option(None, "processes (default: one a core)")
    retry: bool = option(False, "compute failed cells again")
    dirty: bool = option(False, "compute although files differ from the commit; rows say so")
    store: Path | None = option(None, "folder of the records (default: store, in the results)")


def exported(grids: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Lay out the records of grids as tables of cells, models and pairs, with a column ``grid``."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for grid, packed in grids.items():
        for name, frame in unpacked(packed).items():
            if len(frame):
                frames.setdefault(name, []).append(frame.assign(grid=grid))
    return {name: pd.concat(some, ignore_index=True) for name, some in frames.items()}


def unpacked(packed: pd.DataFrame) -> Mapping[str, pd.DataFrame]:
    """Lay out packed records, which are verified, as tables of cells, models and pairs."""
    return _unpacked(tuple(packed["cell"]), tuple(packed["record"]))


@lru_cache(maxsize=len(MODELS))
def _unpacked(keys: tuple[str, ...], texts: tuple[str, ...]) -> Mapping[str, pd.DataFrame]:
    return tables(map(record_of, keys, texts))


def clean_commit(run: Run[Any]) -> str | None:
    """Return the commit that computes, which is recorded; None where there is no repository.

    Raises
    ------
    Misuse
        Files differ from the commit, and the run is not a quick one, of which nothing is kept.
    """
    commit = Origin.here().commit
    if not run.quick and commit and commit.endswith("-dirty"):
        raise Misuse(
            "what is computed names its commit, and files differ from it: commit first. (A grid "
            "computes with --dirty, too, and its rows say so.)"
        )
    return commit


def _measure(name: str, run: Run[GridOptions]) -> Frames:
    if not run.options.dirty:
        clean_commit(run)
    folder = run.options.store or run.file.parent / "store"
    part = Part.open(name, folder, quick=run.quick)
    if len(run.kept) and (restored := restore(part, run.kept)):
        run.say(f"{restored} cells restored from {run.file}")
    compute_missing(part, run)
    records = part.records()
    yield pd.DataFrame(
        {
            "cell": [record.key for record in records],
            "record": [part.store.file(record.key).read_text("utf-8") for record in records],
        }
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
