"""The page: what the paper says, what we found, its statements and slips; then the experiments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks import harness
from benchmarks.catalogue import HOME
from benchmarks.panigrahi2020 import lower_bounds, smooth, spectra, training
from benchmarks.panigrahi2020.shared import number
from benchmarks.panigrahi2020.statements import SLIPS, STATED, STATEMENTS, Statement
from benchmarks.panigrahi2020.study import STUDY

SAYS = """\
## What the paper says

How fast a wide network learns is decided by the eigenvalues of G, and these by phi. With a kink
(ReLU, leaky ReLU, SELU; in the second derivative: ELU) all eigenvalues are at least polynomially
large for separated samples (theorems K.1, 4.1, 4.2). For polynomials many are 0, and for tanh and
swish exponentially small, where the samples span few dimensions (4.3, 4.4); the mean eigenvalue is
large for every phi (4.5). Samples that span many dimensions, with a little noise (4.7), or enough
hidden layers (4.8) keep them polynomially large for tanh, too. Networks train accordingly (4.6)."""


def write_page(folder: Path = HOME) -> list[Path]:
    """Write the page, and draw all pictures again, from the tables that are kept under a folder."""
    return harness.write_page(replace(STUDY, head=opening(folder), own_page=False), folder)


def markdown(folder: Path = HOME) -> str:
    """Return the page, in Markdown."""
    return harness.page(replace(STUDY, head=opening(folder), own_page=False), folder)


def opening(folder: Path) -> str:
    """Return what stands before the experiments."""
    tables = {entry.name: harness.read(STUDY, entry, folder) for entry in STUDY.experiments}
    verdicts = {
        entry.name: harness.load(STUDY, entry).verdict(tables[entry.name]).value
        for entry in STUDY.experiments
    }
    rows = [
        {
            "statement": statement.number,
            "says": escaped(statement.says),
            "ours": escaped(statement.ours),
            "agrees?": agrees(statement, verdicts),
        }
        for statement in STATEMENTS
    ]
    slips = [{"slip": escaped(slip.what), "check": escaped(slip.check())} for slip in SLIPS]
    return "\n\n".join(
        [
            STUDY.head,
            SAYS,
            "## What we found",
            harness.wrapped(findings(tables)),
            "## Statements",
            harness.wrapped(
                "Every definition, lemma, theorem and corollary that we know of, in the order of "
                "the paper. Last column: the verdict of the experiment below, or of a check that "
                "is run when this page is written. Functions are those of "
                "`implicit_bias.kernels` and of `gram_bounds.py` here. Omega(.) hides constants, "
                "which the paper does not give."
            ),
            harness.markdown_table(pd.DataFrame(rows)),
            "## Slips of the paper",
            harness.markdown_table(pd.DataFrame(slips)),
        ]
    )


def agrees(statement: Statement, verdicts: dict[str, str]) -> str:
    """Say whether a statement agrees with what is measured or computed."""
    if statement.experiment:
        title = STUDY.entry(statement.experiment).title
        return f"{verdicts[statement.experiment]} ({title})"
    if statement.check is None:
        return STATED
    return "yes, checked" if statement.check() else "no"


def findings(tables: dict[str, pd.DataFrame]) -> str:
    """Say in a few sentences what came out."""
    powers = lower_bounds.exponents(tables["lower_bounds"])
    slopes = smooth.least_slopes(tables["smooth"])
    ends = spectra.smallest_shares(tables["spectra"])
    half = [name for name in ends if name.startswith("half")][-1]
    curves = tables["training"]
    return (
        f"- Spectra are as the paper has them. On the {half}, the smallest eigenvalue over the "
        f"largest is {number(ends[half]['relu'])} for ReLU, {number(ends[half]['elu'])} for ELU, "
        f"{number(ends[half]['tanh'])} for tanh and {number(ends[half]['swish'])} for swish.\n"
        "- The lower bounds hold, with the right power of delta (measured "
        f"{powers['relu']['delta']:.2f} for ReLU, {powers['elu']['delta']:.2f} for ELU; "
        "theorems 1 and 3) and far too large a power of n.\n"
        "- For tanh and swish in 2, 3 and 4 dimensions -log(lambda_min / lambda_max) is at least "
        f"{slopes['smallest'].min():.1f} n^(1/(2 d')) at all sizes.\n"
        "- At the one common rate of the paper ReLU is first; ELU passes tanh only after "
        + _crossings(curves)
        + ". A rate of 1 / lambda_max for each activation would hide that order.\n"
        "- One theorem needs a correction: 4.3, where its condition holds with equality. Slips "
        "are listed below, each with its check."
    )


def _crossings(curves: pd.DataFrame) -> str:
    """Say from which steps ELU is ahead of tanh, in the runs and at infinite width."""
    parts = []
    for n in (10, 50):
        limit = training.crossing(curves, n, "limit")
        run = training.crossing(curves, n, "long")
        ran = "" if run is None else f"{run:,} in the mean of the runs and "
        parts.append(f"{ran}{limit:,} at infinite width for n = {n}")
    return "; ".join(parts)


def escaped(text: str) -> str:
    """Return text for a cell of a table: a bar would end the cell."""
    return text.replace("|", "\\|")
