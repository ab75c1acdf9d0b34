"""A study: a folder whose modules measure tables, and a page whose numbers are those of the tables.

A folder with a ``page.md`` is a study. Each module of it that has a ``COST`` is an experiment:

========================  ========================================================================
``COST``                  minutes on one core, a number
``measure(quick)``        yields the parts of the table, `part(rows, n=500, seed=1)`: a function and
                          its setting; with ``quick`` few and small ones, which take seconds
``numbers(frame)``        what the page says of the table: numbers, effects, texts, tables, by name
``draw(frame)``           its picture, if there is one
========================  ========================================================================

A module that compares tables has ``READS``, the names of their experiments, in place of ``COST``
and ``measure``; its functions get one frame for each. A module with a ``main(words)`` is a command.

A table is kept after each of its parts. A run that was stopped goes on after the last one, and with
a changed ``measure`` only the new parts are computed.
"""

from __future__ import annotations

import ast
import difflib
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import joblib
import matplotlib
import pandas as pd

from benchmarks.drawing import of_few_colours
from implicit_bias.base.atomic import write_atomically
from implicit_bias.base.style import style
from implicit_bias.datasets.files import DataError

HOME = Path(__file__).parent
# What is kept of each row beside what was measured.
SECONDS, COMMIT, MACHINE = "seconds", "commit", "machine"
# Whatever pandas makes a table of: rows one by one, columns by name, or a table.
Tabular = pd.DataFrame | dict[str, Any] | Iterable[dict[str, Any]]


class UnknownName(ValueError):
    """No study or no experiment of this name; the message has the nearest one and all."""


# --- what a study is made of -------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """A part of a table: a function, and the setting that tells its rows from the others'."""

    rows: Callable[..., Tabular]
    setting: Mapping[str, Any]

    def measured(self) -> pd.DataFrame:
        """Compute the rows: the columns of the setting first, then those of the function.

        The time that the part took is shared out among its rows, so that the sum is right.
        """
        started = time.perf_counter()
        rows = pd.DataFrame(self.rows(**self.setting))
        seconds = time.perf_counter() - started
        columns = dict(self.setting) | {name: rows[name] for name in rows}
        facts = {SECONDS: seconds / max(len(rows), 1), COMMIT: commit(), MACHINE: machine()}
        return pd.DataFrame(columns | facts, index=rows.index)

    def kept(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the rows of a table that have this setting."""
        if not set(self.setting) <= set(table.columns):
            return table[:0]
        same = pd.Series(data=True, index=table.index)
        for name, value in self.setting.items():
            same &= table[name].isna() if pd.isna(value) else table[name] == value
        return table[same]


def part(rows: Callable[..., Tabular], **setting: Any) -> Part:
    """Make a part of a table: `rows` is called with the setting, by keyword, when its turn comes.

    Parameters
    ----------
    rows : callable
        A function of a module, so that it can run in another process. Returns or yields rows.
    **setting : bool, int, float or str
        What tells this part from the others.
    """
    return Part(rows, setting)


@dataclass(frozen=True)
class Experiment:
    """A module of a study, found by its source: listing imports no module."""

    study: str
    name: str
    title: str
    cost: float
    reads: tuple[str, ...]

    @cached_property
    def module(self) -> ModuleType:
        """The module itself."""
        return import_module(f"benchmarks.{self.study}.{self.name}")

    @property
    def is_measured(self) -> bool:
        """Whether it has a table of its own."""
        return not self.reads

    @property
    def command(self) -> str:
        """The command line that measures it."""
        return f"python -m benchmarks {self.study} {self.name.replace('_', '-')}"

    def table(self, folder: Path = HOME) -> Path:
        """File of its table."""
        return folder / "results" / self.study / f"{self.name}.parquet"

    def picture(self, folder: Path = HOME) -> Path:
        """File of its picture."""
        return folder / "pictures" / self.study / f"{self.name}.png"

    def frames(self, folder: Path = HOME) -> list[pd.DataFrame]:
        """Read the tables that its functions get.

        Raises
        ------
        DataError
            One is not measured; the message names the command.
        """
        experiments = study(self.study).experiments
        return [experiments[name].read(folder) for name in self.reads or (self.name,)]

    def read(self, folder: Path = HOME) -> pd.DataFrame:
        """Read its table; a DataError names the command that measures it."""
        file = self.table(folder)
        if not file.is_file():
            raise DataError(f"{file} is missing: measure it first, by `{self.command}`")
        return pd.read_parquet(file)


@dataclass(frozen=True)
class Study:
    """A folder with a page, and the experiments whose modules lie in it."""

    name: str
    experiments: Mapping[str, Experiment]
    commands: Mapping[str, str]

    @property
    def title(self) -> str:
        """Heading of the page."""
        return self.template.partition("\n")[0].removeprefix("# ")

    @property
    def template(self) -> str:
        """The page as a person wrote it, with places for numbers."""
        return (HOME / self.name / "page.md").read_text("utf-8")

    @property
    def cost(self) -> float:
        """Minutes on one core for all tables."""
        return sum(each.cost for each in self.experiments.values())

    def experiment(self, name: str) -> Experiment:
        """Return an experiment by name, where a hyphen is as good as "_".

        Raises
        ------
        UnknownName
            There is none of this name.
        """
        return self.experiments[known(name, self.experiments, f"experiment of {self.name}")]


def studies() -> tuple[str, ...]:
    """Names of all studies."""
    return tuple(sorted(file.parent.name for file in HOME.glob("*/page.md")))


@cache
def study(name: str) -> Study:
    """Return a study by name, where a hyphen is as good as "_".

    Raises
    ------
    UnknownName
        There is none of this name.
    """
    name = known(name, studies(), "study")
    experiments = dict[str, Experiment]()
    commands = dict[str, str]()
    for file in sorted((HOME / name).glob("*.py")):
        tree = ast.parse(file.read_text("utf-8"))
        title = (ast.get_docstring(tree) or "").partition("\n")[0].rstrip(".")
        constants = _constants(tree)
        if "COST" in constants or "READS" in constants:
            cost, reads = constants.get("COST", 0.0), constants.get("READS", ())
            experiments[file.stem] = Experiment(name, file.stem, title, cost, reads)
        elif any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in tree.body):
            commands[file.stem] = title
    return Study(name, experiments, commands)


def _constants(tree: ast.Module) -> dict[str, Any]:
    """Return the values of ``COST`` and ``READS`` of a module."""
    found = dict[str, Any]()
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name = node.targets[0].id
        if name in ("COST", "READS"):
            found[name] = ast.literal_eval(node.value)
    return found


def known(name: str, names: Iterable[str], what: str) -> str:
    """Return a name as it is listed, or raise `UnknownName` with the nearest one."""
    listed = list(names)
    name = name.replace("-", "_")
    if name not in listed:
        near = difflib.get_close_matches(name, listed, n=1, cutoff=0.4)
        guess = f"did you mean {near[0]}? " if near else ""
        raise UnknownName(f"no {what} is named {name!r}: {guess}There are {', '.join(listed)}")
    return name


# --- measuring -----------------------------------------------------------------------------------


def measure(
    experiment: Experiment,
    *,
    quick: bool = False,
    fresh: bool = False,
    workers: int = 1,
    folder: Path = HOME,
    say: Callable[[str], None] = print,
) -> pd.DataFrame:
    """Measure what is missing of a table, and keep it after each part.

    Parameters
    ----------
    experiment : Experiment
        One that is measured.
    quick : bool
        Few and small parts: seconds.
    fresh : bool
        Forget the table so far.
    workers : int
        Processes that compute parts side by side.
    folder : Path
        Where ``results/`` is.
    say : callable
        Gets a line a part.
    """
    file = experiment.table(folder)
    kept = pd.read_parquet(file) if file.is_file() and not fresh else pd.DataFrame()
    wanted = list(experiment.module.measure(quick))
    tables = [each.kept(kept) for each in wanted]
    missing = [place for place, table in enumerate(tables) if table.empty]
    found = joblib.Parallel(n_jobs=workers, return_as="generator")(
        joblib.delayed(wanted[place].measured)() for place in missing
    )
    for count, (place, table) in enumerate(zip(missing, found, strict=True), start=1):
        tables[place] = table
        _write_table(tables, file)
        setting = ", ".join(f"{name} {value}" for name, value in wanted[place].setting.items())
        say(f"{experiment.name} {count}/{len(missing)}  {setting}")
    if not missing:
        _write_table(tables, file)
    return pd.read_parquet(file)


def _write_table(tables: Iterable[pd.DataFrame], file: Path) -> None:
    frame = pd.concat([table for table in tables if len(table)], ignore_index=True)
    write_atomically(file, partial(frame.to_parquet, compression="zstd"))


def draw(experiment: Experiment, folder: Path = HOME) -> Path | None:
    """Draw the picture of an experiment from the tables that are kept; None if it has none."""
    if not hasattr(experiment.module, "draw"):
        return None
    with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
        picture = of_few_colours(experiment.module.draw(*experiment.frames(folder)))
    file = experiment.picture(folder)
    write_atomically(file, partial(Path.write_bytes, data=picture))
    return file


def rows_of(frame: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table."""
    for row in frame.to_dict("records"):
        yield {str(name): value for name, value in row.items()}


# --- where it was measured -----------------------------------------------------------------------


@cache
def machine() -> str:
    """Name the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:  # Linux alone has the file
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@cache
def commit() -> str:
    """Name the commit of the project, with "+" where its code was changed since."""
    git = ["git", "-C", str(HOME.parent)]
    short = ["rev-parse", "--short=8", "HEAD"]
    changed = ["status", "--porcelain", "--untracked-files=no", "--", "*.py"]
    try:
        name, files = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (short, changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.strip() + ("+" if files else "")
