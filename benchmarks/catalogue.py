"""Which studies there are, what they try, and where each keeps its files.

Listing must be quick: this module and each ``STUDY/study.py`` import neither torch nor pandas; what
an experiment needs is imported when it is asked for.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

HOME = Path(__file__).parent


class UnknownName(ValueError):
    """No study, or no experiment, of this name; the message has the nearest one and all."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An experiment as a list shows it.

    Attributes
    ----------
    name : str
        Stem of its files, and its name on the command line, where a hyphen is as good as "_".
    title : str
        A line: its heading on the page.
    cost : str
        How long it takes.
    module : str
        Module of the study's folder that has it among its ``EXPERIMENTS``; by default the module of
        its own name, where it is the ``EXPERIMENT``.
    """

    name: str
    title: str
    cost: str
    module: str = ""

    @property
    def command(self) -> str:
        """Name on the command line."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Study:
    """Experiments on one subject, and the files that they keep under a folder.

    =================================  ======================================================
    ``results/STUDY/NAME.parquet``     the table of an experiment
    ``pictures/STUDY/NAME.png``        its picture, made of the table
    ``STUDY/README.md``                the page, made of all tables
    =================================  ======================================================

    Attributes
    ----------
    name : str
        Of its folders.
    head : str
        Opening of the page, in Markdown: ``# Title`` and paragraphs.
    experiments : tuple of Entry
        In the order of the page.
    opening : str
        Module of the study's folder whose ``opening(folder)`` writes, in Markdown and from the
        kept tables, what stands on the page between the head and the experiments.
    own_page : bool
        Whether ``STUDY/page.py`` writes the page, and pictures of several tables; by default the
        harness makes one of what the experiments say.
    timed : bool
        Whether the tables are of times, so that their rows say at which commit of the project and
        on which machine they were measured.
    """

    name: str
    head: str
    experiments: tuple[Entry, ...]
    opening: str = ""
    own_page: bool = False
    timed: bool = False

    @property
    def title(self) -> str:
        """Heading of the page."""
        return self.head.partition("\n")[0].removeprefix("# ")

    def entry(self, name: str) -> Entry:
        """Return an experiment of the list.

        Raises
        ------
        UnknownName
            There is none of this name.
        """
        by_name = {entry.name.replace("_", "-"): entry for entry in self.experiments}
        return by_name[_known(name, by_name, f"experiment of {self.name}")]

    def command(self, entry: Entry) -> str:
        """Command line of an experiment."""
        return f"python -m benchmarks {self.name} {entry.command}"

    def table(self, entry: Entry, folder: Path = HOME) -> Path:
        """File of a table under a folder."""
        return folder / "results" / self.name / f"{entry.name}.parquet"

    def picture(self, entry: Entry, folder: Path = HOME) -> Path:
        """File of a picture under a folder."""
        return folder / "pictures" / self.name / f"{entry.name}.png"

    def readme(self, folder: Path = HOME) -> Path:
        """File of the page under a folder."""
        return folder / self.name / "README.md"


def studies() -> tuple[str, ...]:
    """Names of all studies: the folders with a ``study.py``."""
    return tuple(sorted(file.parent.name for file in HOME.glob("*/study.py")))


def study(name: str) -> Study:
    """Return a study.

    Raises
    ------
    UnknownName
        There is none of this name.
    """
    by_name = {known.replace("_", "-"): known for known in studies()}
    found: Study = import_module(
        f"benchmarks.{by_name[_known(name, by_name, 'study')]}.study"
    ).STUDY
    return found


def _known(name: str, names: Iterable[str], what: str) -> str:
    """Return a name as it is listed."""
    names = list(names)
    name = name.replace("_", "-")
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        guess = f"did you mean {near[0]}? " if near else ""
        raise UnknownName(f"no {what} is named {name!r}: {guess}There are {', '.join(names)}")
    return name
