"""What the experiments on GaLU networks share: the command, what it keeps, and the page.

An experiment measures a table, draws it, and says in words what is in it. Its command prints these
words and keeps results/fiat2019/NAME.parquet and pictures/fiat2019/NAME.png beside this folder,
NAME that of the script. The quick version, a few seconds, keeps them in a temporary folder, so that
what is kept here is never of small sizes.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import matplotlib
import pandas as pd
import torch
import typer
from matplotlib.figure import Figure

from implicit_bias.files import write_atomically
from implicit_bias.report.figures import style

HERE = Path(__file__).parent
BENCHMARKS, PAPER = HERE.parent, HERE.name


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """A claim of the paper, a table to measure, its picture, and what it says.

    Attributes
    ----------
    name : str
        Of the script, the table and the picture.
    title, claim : str
        Heading of the page's section, and what the paper says, in Markdown.
    picture : str
        What the picture shows, for those who do not see it.
    measure : callable
        The table, small (True) or of the size that is kept.
    draw : callable
        The picture of a table.
    findings : callable
        What we measured, in Markdown: all numbers come from the table.
    """

    name: str
    title: str
    claim: str
    picture: str
    measure: Callable[[bool], pd.DataFrame]
    draw: Callable[[pd.DataFrame], Figure]
    findings: Callable[[pd.DataFrame], str]

    def run(self, *, quick: bool, folder: Path) -> pd.DataFrame:
        """Measure, and keep the table and the picture under a folder."""
        frame = self.measure(quick)
        write_atomically(self.results(folder), frame.to_parquet)
        self.keep_picture(frame, folder)
        return frame

    def keep_picture(self, frame: pd.DataFrame, folder: Path = BENCHMARKS) -> None:
        """Draw a table, and keep the picture under a folder."""
        with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
            figure = self.draw(frame)
            picture = folder / "pictures" / PAPER / f"{self.name}.png"
            write_atomically(picture, lambda path: figure.savefig(path, format="png"))

    def results(self, folder: Path = BENCHMARKS) -> Path:
        """File of the table under a folder."""
        return folder / "results" / PAPER / f"{self.name}.parquet"

    def section(self) -> str:
        """Section of the page, from the table that is kept."""
        return "\n\n".join(
            [
                f"## {self.title}",
                f"**The paper.** {self.claim}",
                f"```sh\npython benchmarks/{PAPER}/{self.name}.py\n```",
                f"![{self.picture}](../pictures/{PAPER}/{self.name}.png)",
                f"**Measured.** {self.findings(pd.read_parquet(self.results()))}",
            ]
        )


def command(experiment: Experiment) -> None:
    """Run an experiment from the command line."""

    def main(
        quick: Annotated[bool, typer.Option(help="Small sizes, a few seconds.")] = False,
        folder: Annotated[
            Path | None,
            typer.Option(help="Where results/ and pictures/ are; --quick: a temporary folder."),
        ] = None,
    ) -> None:
        torch.set_num_threads(1)  # the networks are too small to share
        home = Path(tempfile.mkdtemp(prefix=f"{PAPER}-")) if quick else BENCHMARKS
        frame = experiment.run(quick=quick, folder=folder or home)
        typer.echo(experiment.findings(frame))
        typer.echo(f"\n{experiment.results(folder or home)}")

    typer.run(main)


def table(frame: pd.DataFrame) -> str:
    """Markdown table of a frame whose cells are text already; its index is the first column."""
    rows = [[frame.index.name or "", *frame.columns], ["---"] * (1 + frame.shape[1])]
    rows += [[name, *cells] for name, cells in zip(frame.index, frame.to_numpy(), strict=True)]
    return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)
