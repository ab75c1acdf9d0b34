"""Parities: what linear methods cannot learn, and gradient descent on two layers does.

    IMPLICIT_BIAS_DATA=... python benchmarks/daniely2020/parity_experiments.py strips
    python benchmarks/daniely2020/parity_experiments.py learning         # or first-step, bound
    python benchmarks/daniely2020/parity_experiments.py page             # README.md, all pictures

Each command measures, prints what was found, and keeps a table (Parquet) and a picture; a minute
or two on one core, or seconds with ``--quick``. See `implicit_bias.parities` for the mathematics.

Source: Daniely and Malach (2020), theorems 2 and 3, and section 5.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated, TypeAlias

import torch
import typer
from parity_bound import BOUND
from parity_first_step import FIRST_STEP
from parity_frame import PAPER, Experiment
from parity_learning import LEARNING
from parity_page import page
from parity_strips import STRIPS
from rich.console import Console
from rich.table import Table

from implicit_bias.files import write_atomically

HERE = Path(__file__).parent
EXPERIMENTS = (STRIPS, LEARNING, FIRST_STEP, BOUND)

Quick: TypeAlias = Annotated[bool, typer.Option(help="Small sizes: seconds.")]
Folder: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Where results/ and pictures/ are; with --quick a temporary folder."),
]

app = typer.Typer(help=__doc__, pretty_exceptions_enable=False)


@app.command()
def strips(quick: Quick = False, folder: Folder = None) -> None:
    """Parity of the sum of k digits of MNIST: a ReLU network and linear methods."""
    _run(STRIPS, quick, folder)


@app.command()
def learning(quick: Quick = False, folder: Folder = None) -> None:
    """Learn sparse parities from D_A by the algorithm of theorem 3 and by other methods."""
    _run(LEARNING, quick, folder)


@app.command()
def first_step(quick: Quick = False, folder: Folder = None) -> None:
    """Gradient of the first step on A and off A: exact, on samples, in the limit."""
    _run(FIRST_STEP, quick, folder)


@app.command()
def bound(quick: Quick = False, folder: Folder = None) -> None:
    """Exact hinge loss of linear methods of any norm, beside theorem 2."""
    _run(BOUND, quick, folder)


@app.command("page")
def write_page(
    folder: Annotated[Path, typer.Option(help="Where results/ and pictures/ are.")] = HERE.parent,
    out: Annotated[Path, typer.Option(help="The page.")] = HERE / "README.md",
) -> None:
    """Write the page, and draw all pictures again, from the tables that are kept."""
    text = page(EXPERIMENTS, folder)
    for experiment in EXPERIMENTS:
        experiment.redraw(folder)
    write_atomically(out, lambda partial: partial.write_text(text, "utf-8"))
    typer.echo(out)


def _run(experiment: Experiment, quick: bool, folder: Path | None) -> None:
    torch.set_num_threads(1)  # the networks are too small to share
    home = Path(tempfile.mkdtemp(prefix=f"{PAPER}-")) if quick else HERE.parent
    frame = experiment.run(quick=quick, folder=folder or home)
    cells = experiment.table(frame)
    table = Table(*cells.columns, title=experiment.title)
    for row in cells.itertuples(index=False):
        table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    console.print(experiment.finding(frame), markup=False)
    typer.echo(experiment.picture(folder or home))


if __name__ == "__main__":
    app()
