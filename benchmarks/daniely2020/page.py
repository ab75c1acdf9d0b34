"""The page of the study: what the paper says, what we found, all statements, the experiments."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pandas as pd

from benchmarks import harness
from benchmarks.catalogue import HOME, Study
from benchmarks.daniely2020 import guarantee, later_steps, separation, strips
from benchmarks.daniely2020.statements import SLIPS, STATEMENTS
from benchmarks.daniely2020.study import STUDY
from implicit_bias.base.wording import percent


def write_page(folder: Path = HOME) -> list[Path]:
    """Write the page, and draw all pictures again, from the tables that are kept under a folder."""
    return harness.write_page(with_opening(folder), folder)


def with_opening(folder: Path = HOME) -> Study:
    """Return the study with all that its page says before the experiments."""
    tables = {entry.name: harness.read(STUDY, entry, folder) for entry in STUDY.experiments}
    anchors = {entry.name: anchor(entry.title) for entry in STUDY.experiments}
    verdicts = {
        entry.name: harness.load(STUDY, entry).verdict(tables[entry.name]).value
        for entry in STUDY.experiments
    }
    statements = pd.DataFrame(
        {
            "statement": each.what,
            "ours": each.ours,
            "agrees?": each.agrees
            + (
                f" ([{verdicts[each.experiment] if each.judged else 'measured'}]"
                f"(#{anchors[each.experiment]}))"
                if each.experiment
                else ""
            ),
        }
        for each in STATEMENTS
    ).map(lambda cell: cell.replace("|", r"\|"))
    head = "\n\n".join(
        [
            STUDY.head,
            "## What we found",
            harness.wrapped(summary(tables)),
            "## Every statement",
            harness.markdown_table(statements),
            "## Slips of the paper",
            harness.wrapped("\n".join(f"- {slip.format(**anchors)}" for slip in SLIPS)),
        ]
    )
    return replace(STUDY, head=head, own_page=False)


def anchor(title: str) -> str:
    """Return the fragment by which GitHub links to a heading."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def summary(tables: dict[str, pd.DataFrame]) -> str:
    """In words, every number from the tables."""
    digits = tables["strips"]
    few, many = int(digits["k"].min()), int(digits["k"].max())
    main = strips.main_strips(digits)
    one, more = (strips.accuracies(digits, k) for k in (few, many))
    linear = [more[name] for name in strips.LINEAR if name in more]
    steps = tables["later_steps"].groupby("schedule")["loss"].min()
    runs = tables["guarantee"]
    runs = runs[runs["what"] == guarantee.RUN]
    apart = tables["separation"]
    wide = apart[apart["q"] >= separation.WIDE]
    return "\n".join(
        [
            f"- **Section 6.** With one digit all models have {percent(min(one.values()))} to "
            f"{percent(max(one.values()))}; with three the network has "
            f"{percent(more[strips.NETWORK])} (paper: almost 80 %), the linear models at most "
            f"{percent(max(linear))} (paper: barely above 50 %), trained on {main} strips; the "
            "paper does not say how many it has.",
            "- **Theorem 2** holds, with a constant that a direct argument makes much sharper.",
            f"- **Theorem 3** says nothing at sizes that run (its bound is "
            f"{runs['bound'].min():.2g} or more), and its step sizes leave the loss at "
            f"{steps[later_steps.THEOREM]:.2f}. But what it rests on is visible: the first step "
            "from its start finds A, and a second layer that separates all inputs exists after it "
            f"for {int(wide['separates'].sum())} of {len(wide)} starts with q >= "
            f"{separation.WIDE}. With a step size of our own descent from the same start comes to "
            f"a loss of {steps[later_steps.OWN]:.2g}.",
            "- **Corollary 4** does not follow from theorem 3 as printed.",
        ]
    )
