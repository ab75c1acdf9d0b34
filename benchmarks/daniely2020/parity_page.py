"""The page of the experiments, from the tables that are kept: no number of it is typed."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pandas as pd
from parity_frame import PAPER, Experiment

INTRODUCTION = """\
# Parities

Daniely and Malach, "Learning Parities with Neural Networks" (2020). The label is the parity of k of
n bits, k odd; half of the inputs are uniform, in the other half the k relevant bits are equal (the
distribution D_A of `implicit_bias.parities.ParityDistribution`). No linear method of fixed features
and bounded norm learns it, and gradient descent on two layers does.

`implicit_bias/parities.py` has the mathematics: D_A, strips of digits, the lower bound for linear
methods with its proof, the algorithm of theorem 3, and its first gradient, exact and in the limit
of many bits. D_A, the bounded features, ReLU6, the hinge loss and a first step of its own step size
and regularisation are the source's. The constants of the bound, the initial weights and the step
sizes are ours: those of its theorems we have not compared with. Its claims are given in our words,
without its numbers; how the networks of section 5 were trained, and how large they were, we have
not repeated either.

This page is written by `python benchmarks/daniely2020/parity_experiments.py page` from the tables
in `benchmarks/results/daniely2020`; each command has a `--quick` version of seconds.
"""


def page(experiments: Sequence[Experiment], folder: Path) -> str:
    """Return the page, in Markdown, of what is kept under a folder."""
    sections = ("\n".join(section(experiment, folder)) for experiment in experiments)
    return "\n".join([INTRODUCTION, *sections])


def section(experiment: Experiment, folder: Path) -> Iterator[str]:
    """Lines of one experiment: claim, measurement, picture, command."""
    frame = pd.read_parquet(experiment.results(folder))
    command = experiment.name.replace("_", "-")
    yield from (f"## {experiment.title}", "")
    yield from (*wrapped(f"**Claim.** {experiment.claim}"), "")
    for paragraph in f"**Measured.** {experiment.finding(frame)}".split("\n\n"):
        yield from (*wrapped(paragraph), "")
    yield from (*markdown_table(experiment.table(frame)), "")
    yield from (f"![{experiment.alt}](../pictures/{PAPER}/{experiment.name}.png)", "")
    yield "```sh"
    yield f"python benchmarks/{PAPER}/parity_experiments.py {command}"
    yield from ("```", "")


def wrapped(paragraph: str) -> list[str]:
    """Lines of at most 100 characters."""
    return textwrap.wrap(paragraph, 100, break_long_words=False, break_on_hyphens=False)


def markdown_table(cells: pd.DataFrame) -> Iterator[str]:
    """Lines of a table of text."""
    yield _row(cells.columns)
    yield _row("---" for _ in cells.columns)
    for row in cells.itertuples(index=False):
        yield _row(row)


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
