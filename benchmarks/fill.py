"""Pages: Markdown that a person writes, with places for the numbers of the kept tables.

``{{NAME.KEY}}`` is what ``numbers`` of the experiment NAME returns for KEY; ``{{NAME.KEY:.2f}}`` is
the same in a format of Python. For a share ".1%" writes "3.2 %", for an effect "+.1%" writes
percentage points with their interval. A table is written in Markdown. Each experiment also has
``minutes``, what its table took on one core. ``{{study.hours}}``, ``{{study.commits}}`` and
``{{study.machines}}`` are of all tables of the page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import bench
from benchmarks.effects import Effect
from implicit_bias.base.atomic import write_atomically

PLACE = re.compile(r"\{\{(\w+)\.(\w+)(?::([^}]*))?\}\}")
WRITTEN = "<!-- Written by `python -m benchmarks {name} page` from page.md and the kept tables. -->"


def page(study: bench.Study, folder: Path = bench.HOME) -> str:
    """Return the page of a study, from the tables that are kept under a folder.

    Raises
    ------
    KeyError
        A place names no number of the study.
    DataError
        A table is missing; the message names the command that measures it.
    """
    values = Numbers(study, folder)
    heading, _, text = study.template.partition("\n")
    text = PLACE.sub(lambda place: written(values[place[1], place[2]], place[3] or ""), text)
    return f"{heading}\n\n{WRITTEN.format(name=study.name)}\n{text}"


def write(study: bench.Study, folder: Path = bench.HOME) -> Path:
    """Write the page of a study, and return its file."""
    text = page(study, folder)
    file = folder / study.name / "README.md"
    write_atomically(file, partial(Path.write_text, data=text, encoding="utf-8"))
    return file


class Numbers:
    """What the experiments of a study say of their tables, each asked once."""

    def __init__(self, study: bench.Study, folder: Path = bench.HOME) -> None:
        self._study = study
        self._folder = folder
        self._found = dict[str, Mapping[str, Any]]()

    def __getitem__(self, place: tuple[str, str]) -> Any:
        """Return the number of a key of an experiment, or of the study."""
        name, key = place
        if name not in self._found:
            self._found[name] = self._of_study() if name == "study" else self._of(name)
        try:
            return self._found[name][key]
        except KeyError:
            there = ", ".join(self._found[name])
            message = f"{self._study.name}/page.md: {name} has no number {key!r}, only {there}"
            raise KeyError(message) from None

    def _of(self, name: str) -> Mapping[str, Any]:
        experiment = self._study.experiment(name)
        frames = experiment.frames(self._folder)
        numbers: dict[str, Any] = dict(experiment.module.numbers(*frames))
        if experiment.is_measured:
            numbers["minutes"] = frames[0][bench.SECONDS].sum() / 60
        return numbers

    def _of_study(self) -> Mapping[str, Any]:
        measured = [each for each in self._study.experiments.values() if each.is_measured]
        facts = pd.concat(
            each.read(self._folder)[[bench.SECONDS, bench.COMMIT, bench.MACHINE]]
            for each in measured
        )
        return {
            "hours": facts[bench.SECONDS].sum() / 3600,
            "commits": ", ".join(sorted(facts[bench.COMMIT].unique())),
            "machines": "; ".join(sorted(facts[bench.MACHINE].unique())),
        }


def written(value: Any, form: str = "") -> str:
    """Write a number, an effect, a text or a table."""
    if isinstance(value, pd.DataFrame):
        rows = [[written(cell, form) for cell in row] for row in value.to_numpy().tolist()]
        return table([str(name) for name in value.columns], rows)
    if isinstance(value, bool | np.bool_):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if isinstance(value, Effect):
        return format(value, form)
    if pd.isna(value):
        return "-"
    text = format(value, form)
    return f"{text[:-1]}\u00a0%" if form.endswith("%") else text


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table in Markdown; a bar within a cell is escaped."""
    lines = [[cell.replace("|", "\\|") for cell in row] for row in (columns, *rows)]
    lines.insert(1, ["---"] * len(columns))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
