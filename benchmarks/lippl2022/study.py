"""The replication study: compute its grids, go on where they were interrupted, and export.

    IMPLICIT_BIAS_DATA=... python benchmarks/lippl2022/study.py            # all; four hours
    python benchmarks/lippl2022/study.py --grid gln --grid relu            # some
    python benchmarks/lippl2022/study.py --quick                           # a cell of each
    python benchmarks/lippl2022/study.py --export                          # compute nothing

=================  ======================================================  =====================
grid               what                                                    models beside its own
=================  ======================================================  =====================
gln                gated linear networks: figures 2 to 4                   as published
shallow            one layer, k = 0 to 15                                  gd-shallow
relu, -momentum-0  ReLU networks: figure 5                                 svm-gates
redrawn            the published agreements at median thresholds           gd-gln-redrawn
osqp               the published SVM-L2 by the published solver            svm-l2-osqp
limit              infinite time beside finite time                        limit-gln
large              5,000 to 48,000 training samples
odd, loops         other classes of digits
fashion            Fashion-MNIST
=================  ======================================================  =====================

A grid is ``grids/NAME.toml``, its records are in ``STORE/NAME``, one file a cell. The export joins
the grids in three tables (`implicit_bias.runs.export`) with one column more, ``grid``, and
packs the records in ``records.parquet``, from which a store goes on that lacks them.

The SVMs of gln and shallow know no momentum. So their cells have the network trained with and
without it, and the tables have each of them as two cells, as if each momentum had been run.

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer
from rich.console import Console

from benchmarks.lippl2022.as_published import gln_models, osqp_models, redrawn_models, relu_models
from benchmarks.lippl2022.further_models import WITHOUT_MOMENTUM, limit_models, shallow_models
from implicit_bias.runs.backends import LocalProcesses
from implicit_bias.runs.cell import MoreModels, compute, no_more
from implicit_bias.runs.configuration import Setting
from implicit_bias.runs.export import tables
from implicit_bias.runs.grid import Axis, Grid, cell_key
from implicit_bias.runs.runner import run_grid, take_stock
from implicit_bias.runs.store import Record, Store
from implicit_bias.storage.atomic import write_atomically

HERE = Path(__file__).parent
RESULTS = HERE.parent / "results" / "lippl2022"

# In the order in which they are computed, with the models that their cells have beside their own.
MODELS: dict[str, MoreModels] = {
    "gln": gln_models,
    "limit": limit_models,
    "relu": relu_models,
    "shallow": shallow_models,
    "redrawn": redrawn_models,
    "osqp": osqp_models,
    "odd": no_more,
    "loops": no_more,
    "fashion": no_more,
    "large": no_more,
    "relu-momentum-0": relu_models,
}
# One cell of these takes minutes.
NOT_QUICK = ("large",)
# The records themselves, for a store that lacks them: the store is not kept with the code.
RECORDS = "records.parquet"


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
        grid = Grid.read(HERE / "grids" / f"{name}.toml")
        if quick:
            grid = Grid(tuple(Axis(axis.field, axis.values[:1]) for axis in grid.axes))
        return cls(name, grid, Store(folder / name))

    def records(self) -> list[Record]:
        """Return what there is, finished and failed cells."""
        stock = take_stock(self.grid, self.store)
        return [*stock.done.values(), *stock.failed.values()]

    def records_by_momentum(self) -> list[Record]:
        """Return the records with those of two momenta split."""
        return [part for record in self.records() for part in by_momentum(record)]


def main(
    grid: Annotated[
        list[str] | None, typer.Option(help="Grids to compute, in this order (default: all).")
    ] = None,
    quick: Annotated[bool, typer.Option(help="The first cell of each grid only.")] = False,
    export: Annotated[bool, typer.Option(help="Export what there is; compute nothing.")] = False,
    retry: Annotated[bool, typer.Option(help="Compute failed cells again.")] = False,
    workers: Annotated[int | None, typer.Option(help="Processes (default: one a core).")] = None,
    store: Annotated[
        Path | None, typer.Option(help="Folder of the records (default: store in the results).")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results (default: results/lippl2022; quick: its quick).")
    ] = None,
) -> None:
    """Compute the cells that are missing, and export all that there are."""
    if unknown := set(grid or ()) - set(MODELS):
        raise typer.BadParameter(f"no grid {', '.join(unknown)}: {', '.join(MODELS)}")
    console = Console(soft_wrap=True)
    folder = out or (RESULTS / "quick" if quick else RESULTS)
    chosen = grid or [name for name in MODELS if not (quick and name in NOT_QUICK)]
    known = [name for name in MODELS if name in chosen] if quick else MODELS
    parts = {name: Part.open(name, store or folder / "store", quick=quick) for name in known}
    if restored := restore(parts, folder / RECORDS):
        console.print(f"{restored} cells restored from {folder / RECORDS}", highlight=False)
    if not export:
        for name in chosen:
            run(parts[name], workers, retry, console)
    for file, rows in write(parts.values(), folder).items():
        console.print(f"{file}: {rows} rows", highlight=False)


def run(part: Part, workers: int | None, retry: bool, console: Console) -> None:
    """Compute the missing cells of a part, a line each."""
    backend = LocalProcesses(workers, partial(compute, more=MODELS[part.name]))
    stock = take_stock(part.grid, part.store)
    settled = len(stock.done) + (0 if retry else len(stock.failed))
    todo = len(part.grid.cells()) - settled
    console.print(f"{part.name}: {todo} of {len(part.grid.cells())} cells to compute")
    labels = {key: part.grid.label(cell) for key, cell in part.grid.by_key().items()}
    started = time.perf_counter()
    with closing(run_grid(part.grid, part.store, backend, retry_failed=retry)) as records:
        for count, record in enumerate(records, start=1):
            outcome = record.outcome
            errors = ", ".join(f"{r['model']} {r['validation_error']:.4f}" for r in outcome.models)
            console.print(
                f"{part.name} {count}/{todo} {time.perf_counter() - started:.0f} s: "
                f"{labels[record.key]}; {outcome.seconds:.1f} s; {outcome.error or errors}",
                highlight=False,
            )


def by_momentum(record: Record) -> list[Record]:
    """Split a record that has a network without momentum, too, in two; the SVMs are in both."""
    models, pairs = record.outcome.models, record.outcome.pairs
    plain = {name for row in models if (name := row["model"]).endswith(WITHOUT_MOMENTUM)}
    if not plain:
        return [record]
    renamed = {name: name.removesuffix(WITHOUT_MOMENTUM) for name in plain}
    replaced = set(renamed.values())
    seconds = sum(row["seconds"] for row in models if row["model"] in plain)
    ours = replace(
        record.outcome,
        models=tuple(row for row in models if row["model"] not in plain),
        pairs=tuple(row for row in pairs if not plain & {row["first"], row["second"]}),
        seconds=record.outcome.seconds - seconds,
    )
    theirs = replace(
        record.outcome,
        models=tuple(
            {**row, "model": renamed.get(row["model"], row["model"])}
            for row in models
            if row["model"] not in replaced
        ),
        pairs=tuple(
            {**row, **{side: renamed.get(row[side], row[side]) for side in ("first", "second")}}
            for row in pairs
            if not replaced & {row["first"], row["second"]}
        ),
        seconds=seconds,
    )
    setting = {**record.setting, "momentum": 0.0}
    key = cell_key(Setting.from_facts(setting))
    return [replace(record, outcome=ours), Record(key, setting, theirs)]


def restore(parts: Mapping[str, Part], file: Path) -> int:
    """Put packed records into stores that lack them, and return how many."""
    if not file.is_file():
        return 0
    packed = pd.read_parquet(file)
    count = 0
    for name, key, text in packed[["grid", "cell", "record"]].itertuples(index=False):
        if name in parts and not (target := parts[name].store.file(key)).exists():
            parts[name].store.prepare()
            write_atomically(target, partial(Path.write_text, data=text, encoding="utf-8"))
            count += 1
    return count


def write(parts: Iterable[Part], folder: Path) -> dict[Path, int]:
    """Write tables and records of all parts as Parquet files; return how many rows each has."""
    frames: dict[str, list[pd.DataFrame]] = {}
    for part in parts:
        for name, frame in tables(part.records_by_momentum()).items():
            frames.setdefault(name, []).append(frame.assign(grid=part.name))
        packed = [
            {"grid": part.name, "cell": key, "record": part.store.file(key).read_text("utf-8")}
            for key in (record.key for record in part.records())
        ]
        frames.setdefault("records", []).append(pd.DataFrame(packed))
    counts = {}
    for name, some in frames.items():
        known = [frame for frame in some if len(frame)]
        if known:
            table = pd.concat(known, ignore_index=True)
            packing = partial(table.to_parquet, compression="zstd")
            write_atomically(folder / f"{name}.parquet", packing)
            counts[folder / f"{name}.parquet"] = len(table)
    return counts


if __name__ == "__main__":
    typer.run(main)
