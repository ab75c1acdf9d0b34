"""Experiments on the claims of a paper: each measures, draws and says; a page shows what is kept.

A paper has a folder of scripts, ``benchmarks/PAPER``, and one of them its `Gallery`. An experiment
measures a table, once and for minutes; picture, words and page are made of that table alone, so
that no number on the page is typed, and all of it can be made anew without measuring.

=================================  =========================================================
``results/PAPER/NAME.parquet``     the table, ``attrs["cpu_seconds"]`` what it took
``pictures/PAPER/NAME.png``        its picture
``PAPER/README.md``                the page
=================================  =========================================================

All three lie under one folder, ``benchmarks`` if no other is named. A quick version, small sizes in
seconds, goes to a temporary folder, so that what is kept is never of small sizes.
"""

from __future__ import annotations

import re
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import matplotlib
import pandas as pd
import torch
import typer
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.markdown import Markdown

from implicit_bias.datasets.files import DataError
from implicit_bias.report.style import style
from implicit_bias.storage.atomic import write_atomically

__all__ = ["Experiment", "Gallery", "common_legend", "kept_in", "markdown_table", "wrapped"]

# Longest line of a page, and columns of the terminal.
LINE, COLUMNS = 100, 140
# A space before what would make a list or a quotation of a line that began with it.
BEFORE_MARKER = re.compile(r" (?=(?:[-+*>]|\d+[.)]) )")

Quick: TypeAlias = Annotated[bool, typer.Option("--quick", help="Small sizes: seconds.")]
Folder: TypeAlias = Annotated[
    Path | None,
    typer.Option(help="Where to keep results/ and pictures/; with --quick a temporary folder."),
]
Kept: TypeAlias = Annotated[
    Path | None, typer.Option(help="Where results/ and pictures/ are, and the page goes.")
]


def kept_in(home: Path, folder: Path | None, *, quick: bool, name: str) -> Path:
    """Return where results/ and pictures/ go: the folder asked for, or a temporary one if quick."""
    if folder is not None:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-")) if quick else home


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A claim of a paper, a table that is measured, its picture, and what it says.

    Attributes
    ----------
    name : str
        Stem of its files, and of its command (with hyphens).
    title, claim : str
        Heading, and what the paper says, in Markdown; also, what of it could not be verified.
    measure : callable
        The table, small (True) or of the size that is kept.
    draw : callable
        The picture of a table.
    found : callable
        What a table shows, in Markdown: paragraphs and lists, all numbers from the table.
    tabulate : callable
        What of a table a reader wants to see: a string in every cell.
    alt : str
        What the picture shows, for who cannot see it.
    """

    name: str
    title: str
    claim: str
    measure: Callable[[bool], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    found: Callable[[pd.DataFrame], str]
    tabulate: Callable[[pd.DataFrame], pd.DataFrame]
    alt: str

    @property
    def command(self) -> str:
        """Name of its command."""
        return self.name.replace("_", "-")

    def findings(self, frame: pd.DataFrame) -> str:
        """Write heading, claim, what was measured, and the table, in Markdown."""
        return "\n\n".join(
            [
                f"## {self.title}",
                wrapped(f"**The paper.** {self.claim}"),
                wrapped(f"**Measured.** {self.found(frame)}"),
                markdown_table(self.tabulate(frame)),
            ]
        )


@dataclass(frozen=True, kw_only=True)
class Gallery:
    """The experiments on one paper, their files, their commands, and the page.

    Attributes
    ----------
    script : Path
        The script with the commands. Its folder is the paper's, the one above keeps the files.
    head : str
        Opening of the page, in Markdown: ``# Title`` and paragraphs.
    experiments : tuple of Experiment
        In the order of the page.
    """

    script: Path
    head: str
    experiments: tuple[Experiment, ...]

    @property
    def home(self) -> Path:
        """Folder under which tables, pictures and page are kept."""
        return self.script.parents[1]

    @property
    def paper(self) -> str:
        """Name of the paper's folders."""
        return self.script.parent.name

    def table(self, experiment: Experiment, folder: Path) -> Path:
        """File of a table under a folder."""
        return folder / "results" / self.paper / f"{experiment.name}.parquet"

    def picture(self, experiment: Experiment, folder: Path) -> Path:
        """File of a picture under a folder."""
        return folder / "pictures" / self.paper / f"{experiment.name}.png"

    def readme(self, folder: Path) -> Path:
        """File of the page under a folder."""
        return folder / self.paper / "README.md"

    def command(self, experiment: Experiment) -> str:
        """Command line of an experiment."""
        script = self.script.relative_to(self.home.parent).as_posix()
        return f"python {script} {experiment.command}"

    def run(self, experiment: Experiment, *, quick: bool, folder: Path) -> pd.DataFrame:
        """Measure, and keep table and picture under a folder.

        Returns
        -------
        DataFrame
            The table; ``attrs["cpu_seconds"]``, kept in its file, is what measuring took.
        """
        started = time.process_time()
        frame = experiment.measure(quick)
        frame.attrs["cpu_seconds"] = time.process_time() - started
        write_atomically(self.table(experiment, folder), frame.to_parquet)
        self.redraw(experiment, folder)
        return frame

    def read(self, experiment: Experiment, folder: Path) -> pd.DataFrame:
        """Return the table that is kept under a folder.

        Raises
        ------
        DataError
            There is none; the message names the command that measures it.
        """
        file = self.table(experiment, folder)
        if not file.is_file():
            command = f"{self.command(experiment)} --folder {folder}"
            raise DataError(f"{file} is missing: measure it first, by `{command}`")
        return pd.read_parquet(file)

    def redraw(self, experiment: Experiment, folder: Path) -> None:
        """Draw the table that is kept under a folder, and keep the picture there."""
        frame = self.read(experiment, folder)
        with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
            figure = experiment.draw(frame)
            picture = self.picture(experiment, folder)
            write_atomically(picture, lambda path: figure.savefig(path, format="png"))

    def page(self, folder: Path) -> str:
        """Return the page, in Markdown, of the tables that are kept under a folder.

        Raises
        ------
        DataError
            A table is missing.
        """
        sections = (self._section(experiment, folder) for experiment in self.experiments)
        return "\n\n".join([self.head, *sections]) + "\n"

    def _section(self, experiment: Experiment, folder: Path) -> str:
        frame = self.read(experiment, folder)
        command = self.command(experiment)
        if "cpu_seconds" in frame.attrs:
            command += f"  # {frame.attrs['cpu_seconds']:.0f} s on one core"
        picture = f"../pictures/{self.paper}/{experiment.name}.png"
        return "\n\n".join(
            [
                experiment.findings(frame),
                f"![{experiment.alt}]({picture})",
                f"```sh\n{command}\n```",
            ]
        )

    def app(self) -> typer.Typer:
        """Return the program: a command for each experiment, and ``page``."""
        title = self.head.partition("\n")[0].removeprefix("# ")
        app = typer.Typer(
            help=f"{title}. Each command measures, says what it found, keeps table and picture.",
            add_completion=False,
            pretty_exceptions_enable=False,
        )
        for experiment in self.experiments:
            self._add(app, experiment)

        @app.command("page")
        def page(folder: Kept = None) -> None:
            """Write the page, and draw all pictures again, from the tables that are kept."""
            kept = folder or self.home
            with _data_errors():
                text = self.page(kept)
                for experiment in self.experiments:
                    self.redraw(experiment, kept)
            write_atomically(self.readme(kept), lambda path: path.write_text(text, "utf-8"))
            typer.echo(self.readme(kept))

        return app

    def _add(self, app: typer.Typer, experiment: Experiment) -> None:
        """Make an experiment a command."""

        @app.command(experiment.command, help=f"{experiment.title}.")
        def run(quick: Quick = False, folder: Folder = None) -> None:
            torch.set_num_threads(1)  # the networks are too small to share
            folder = kept_in(self.home, folder, quick=quick, name=self.paper)
            with _data_errors():
                frame = self.run(experiment, quick=quick, folder=folder)
            Console(width=COLUMNS).print(Markdown(experiment.findings(frame)))
            typer.echo(f"\n{self.table(experiment, folder)}\n{self.picture(experiment, folder)}")


@contextmanager
def _data_errors() -> Iterator[None]:
    """Say what data are missing, without a traceback."""
    try:
        yield
    except DataError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None


def wrapped(text: str) -> str:
    """Break paragraphs and list items, a line each, into lines of at most 100 characters."""
    return "\n".join(
        textwrap.fill(
            BEFORE_MARKER.sub("\0", line),
            LINE,
            subsequent_indent="  " if line.startswith("- ") else "",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    ).replace("\0", " ")


def markdown_table(cells: pd.DataFrame) -> str:
    """Write a table of strings in Markdown."""
    lines = [list(cells.columns), ["---"] * cells.shape[1], *cells.to_numpy().tolist()]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def common_legend(figure: Figure, axes: Iterable[Axes], columns: int) -> Figure:
    """Put one legend below all panels, every label once."""
    handles: dict[str, Any] = {}
    for ax in axes:
        drawn, labels = ax.get_legend_handles_labels()
        handles |= dict(zip(labels, drawn, strict=True))
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=columns)
    return figure
