"""Which studies there are, what they try, and where each keeps its files.

What a study says in words is ``STUDY/study.toml``, what it computes are the modules beside it. So
listing is quick: this module imports neither torch nor pandas; what an experiment needs is imported
when it is asked for.
"""

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

HOME = Path(__file__).parent


class UnknownName(ValueError):
    """No study, or no experiment, of this name; the message has the nearest one and all."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What an experiment says in words; what it computes is a `harness.Experiment`.

    Texts are in Markdown, and ``{{NAME}}`` or ``{{NAME:g}}`` in them is a value of the module.

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
    claim : str
        What is claimed; also, what of it could not be verified.
    quote : str
        The same in the paper's own words, with their place.
    how : str
        How it is measured; by default what the head of the module says.
    rule, why : str
        When the claim stands; why it could fail, and why it could hold within the budget.
    other : (float, str)
        Another bound, which the verdict takes in the place of the rule's, and what it is called.
    controls : tuple of (str, str)
        Tables under which the verdict is another, and that verdict: changes of the kept table, by
        "; ", each an assignment to a column or a condition on rows. The tests try them.
    alt : str
        What the picture shows: alternative text.
    notes : str
        What is said beside the table and rests on none.
    columns : mapping of str to str
        The table's columns, where its cells are values: a text of each, whose places are those of a
        row, as ``{{share:%}}``.
    """

    name: str
    title: str
    cost: str
    module: str = ""
    claim: str = ""
    quote: str = ""
    how: str = ""
    rule: str = ""
    why: str = ""
    other: tuple[float, str] | None = None
    alt: str = ""
    notes: str = ""
    controls: tuple[tuple[str, str], ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)

    @property
    def command(self) -> str:
        """Name on the command line."""
        return self.name.replace("_", "-")


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A conclusion; an experiment may also have one of its own.

    ``judge(kept)`` of the study's ``findings`` has what the tables say of each, by name.

    Attributes
    ----------
    name : str
        Anchor.
    claim, where : str
        What the paper says, and where.
    rule, why : str
        When it stands, and why that is the rule.
    quote : str
        The claim in the paper's own words.
    experiment : str
        The one whose table decides, where one is enough: its ``judge(frame)`` then has the claim.
    controls : tuple of (str, str)
        As those of an experiment; of a claim without one, a change has its table before ": ".
        "values: " are those of the replication's values, "exchanged: " names two of its models.
    """

    name: str
    claim: str
    where: str
    rule: str
    why: str = ""
    quote: str = ""
    experiment: str = ""
    controls: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Picture:
    """A picture of several tables, which ``draw(name, kept)`` of the ``findings`` draws."""

    name: str
    alt: str
    caption: str


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A statement of the paper, and what there is of it here.

    Attributes
    ----------
    where, says : str
        Its number or place, and what it says.
    ours : str
        Functions that compute it.
    agrees : str
        Whether it holds, where that is settled by hand or not at all.
    checked : bool
        Whether ``agrees(statement, kept)`` of the study's ``findings`` says so.
    claims, experiments : tuple of str
        Whose verdicts say so.
    """

    where: str
    says: str
    ours: str = ""
    agrees: str = ""
    checked: bool = False
    claims: tuple[str, ...] = ()
    experiments: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Section:
    """Paragraphs, a table, or both, under a heading of their own.

    The table has `rows` of its own, or is what the function `table` of the ``findings`` returns.
    A link leads to its `anchor`.
    """

    heading: str
    anchor: str = ""
    text: str = ""
    table: str = ""
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Study:
    """Experiments on one subject, and the files that they keep under a folder.

    =================================  ======================================================
    ``results/STUDY/NAME.parquet``     the table of an experiment
    ``pictures/STUDY/NAME.png``        its picture, made of the table
    ``STUDY/README.md``                the page, made of all tables
    ``STUDY/DETAILS.md``               what it rests on
    ``STUDY/SUMMARY.md``               the page in short, of a long one
    =================================  ======================================================

    Attributes
    ----------
    name : str
        Of its folders.
    head : str
        Opening of the page, in Markdown: ``# Title`` and paragraphs.
    found : str
        What was found, in a few sentences. Places ``{{NAME}}`` of all these texts are filled with
        what ``words(kept)`` of the module `findings` returns, and else with what came out of the
        claim or experiment of this name; ``count`` and ``verdicts`` are of all of them,
        ``quoted_count`` and ``quoted_verdicts`` of those in the paper's own words.
    further : str
        What follows the table of a paper's claims, in Markdown.
    short : str
        What a summary opens with, where the study has one; its rows are those of the page.
    experiments : tuple of Entry
        In the order of the page.
    claims : tuple of Claim
        In the order of the page, before the experiments.
    statements : tuple of Statement
        In the order of the paper.
    sections : tuple of Section
        What else there is to say: slips of the paper, what is derived here.
    pictures : tuple of Picture
        Those that are of several tables.
    findings : str
        The module of the study's folder that computes what these texts name, if any.
    numbered : tuple of str
        What the paper numbers: each is at the place of a statement.
    commands : mapping of str to str
        What else it does on the command line, a line each: by ``main(words)`` of the module of
        this name.
    timed : bool
        Whether the tables are of times, so that their rows say at which commit of the project and
        on which machine they were measured.
    """

    name: str
    head: str
    experiments: tuple[Entry, ...]
    found: str = ""
    further: str = ""
    short: str = ""
    claims: tuple[Claim, ...] = ()
    statements: tuple[Statement, ...] = ()
    sections: tuple[Section, ...] = ()
    pictures: tuple[Picture, ...] = ()
    findings: str = ""
    numbered: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
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

    def claims_of(self, experiment: str) -> tuple[Claim, ...]:
        """Claims that the table of one experiment decides, or ("") that no single one does."""
        return tuple(each for each in self.claims if each.experiment == experiment)

    def command(self, entry: Entry) -> str:
        """Command line of an experiment."""
        return f"python -m benchmarks {self.name} {entry.command}"

    def table(self, entry: Entry, folder: Path = HOME) -> Path:
        """File of a table under a folder."""
        return folder / "results" / self.name / f"{entry.name}.parquet"

    def picture(self, entry: Entry | Picture, folder: Path = HOME) -> Path:
        """File of a picture under a folder, of one table or of several."""
        return folder / "pictures" / self.name / f"{entry.name}.png"

    def readme(self, folder: Path = HOME) -> Path:
        """File of the page under a folder."""
        return folder / self.name / "README.md"


def studies() -> tuple[str, ...]:
    """Names of all studies: the folders with a ``study.toml``."""
    return tuple(sorted(file.parent.name for file in HOME.glob("*/study.toml")))


def study(name: str) -> Study:
    """Return a study.

    Raises
    ------
    UnknownName
        There is none of this name.
    """
    by_name = {known.replace("_", "-"): known for known in studies()}
    return _read(HOME / by_name[_known(name, by_name, "study")] / "study.toml")


@cache
def _read(file: Path) -> Study:
    """Read a study; what experiments of one module say alike is in the table of that module."""
    content = tomllib.loads(file.read_text("utf-8"))
    alike = content.pop("modules", {})
    for each in content["experiments"]:
        each |= alike.get(each.get("module"), {})
    kinds = {
        "experiments": Entry,
        "claims": Claim,
        "statements": Statement,
        "sections": Section,
        "pictures": Picture,
    }
    parts: dict[str, Any] = {
        key: tuple(kinds[key](**each) for each in value) if key in kinds else value
        for key, value in _unfolded(content).items()
    }
    return Study(name=file.parent.name, **parts)


def _unfolded(value: Any) -> Any:
    """Join the lines of each paragraph and list item of all texts; tables and code stay."""
    if isinstance(value, dict):
        return {key: _unfolded(each) for key, each in value.items()}
    if isinstance(value, list):
        return tuple(_unfolded(each) for each in value)
    if not isinstance(value, str):
        return value
    blocks = value.strip().split("\n\n")
    return "\n\n".join(
        block if block.startswith(("|", "```")) else re.sub(r"\n(?!- ) *", " ", block)
        for block in blocks
    )


def _known(name: str, names: Iterable[str], what: str) -> str:
    """Return a name as it is listed."""
    names = list(names)
    name = name.replace("_", "-")
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1, cutoff=0.4)
        guess = f"did you mean {near[0]}? " if near else ""
        raise UnknownName(f"no {what} is named {name!r}: {guess}There are {', '.join(names)}")
    return name
