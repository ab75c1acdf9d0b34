"""What an experiment is: it measures, keeps, draws, and says what its table shows.

An experiment measures a table, once, for minutes or hours. Picture, words, verdict and page are
made of that table alone, so that no number on a page is typed, and all of it can be made anew
without measuring. `benchmarks.catalogue` says where each file lies. A quick version, small sizes in
seconds, goes to a temporary folder, so that what is kept is never of small sizes.
"""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from enum import Enum
from functools import cache, partial, wraps
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

import matplotlib
import numpy as np
import pandas as pd
import threadpoolctl
import torch
from matplotlib.figure import Figure

from benchmarks.catalogue import HOME, Entry, Study
from implicit_bias.base.atomic import write_atomically
from implicit_bias.datasets.files import DataError
from implicit_bias.report.style import style

P = ParamSpec("P")
Row = dict[str, Any]
Rows = Iterator[Row]
# A table, whenever it has grown.
Frames = Iterator[pd.DataFrame]
# Whatever pandas makes a table of: rows one by one, columns by name, or a table.
Tabular = pd.DataFrame | dict[str, Any] | Iterable[Row]


class Misuse(ValueError):
    """Options that an experiment cannot follow; the message has the cure."""


# --- an experiment -----------------------------------------------------------------------------


class Verdict(Enum):
    """What becomes of a claim; each member carries its words."""

    STANDS = "stands"
    IN_PART = "stands in part"
    FALLS = "does not stand"
    UNTESTED = "not tested: its conditions are not met"
    UNREACHED = "not tested: its limit is not reached"
    ANSWERED = "answered"
    OPEN = "not yet computed"

    def before(self, remark: str) -> str:
        """Say it before a remark, which is the reason instead where it begins with a colon."""
        return self.value.partition(":")[0] if remark.startswith(":") else self.value

    @classmethod
    def counted(cls, verdicts: Iterable[Verdict]) -> str:
        """Say how many there are of each, without reasons: "3 stand, 1 is not tested"."""
        counts, texts = Counter(one.before(":") for one in verdicts), []
        for words in dict.fromkeys(one.before(":") for one in cls if one.before(":") in counts):
            count, said = counts[words], words
            if "stand" not in words:
                said = f"{'is' if count == 1 else 'are'} {words}"
            elif count > 1:
                said = words.replace("stands", "stand").replace("does", "do")
            texts.append(f"{count} {said}")
        return ", ".join(texts)

    @classmethod
    def of(cls, whole: object, part: object = False) -> Verdict:
        """Judge a claim by whether all of its rule holds, or else a part."""
        return cls.STANDS if whole else cls.IN_PART if part else cls.FALLS

    @classmethod
    def each(cls, holds: pd.Series[bool], share: float = 0.0) -> Verdict:
        """Judge what is asked of several: in part if more than a share of them hold."""
        return cls.of(len(holds) and holds.all(), holds.mean() > share)

    @classmethod
    def limit(cls, there: pd.Series[bool], on_the_way: pd.Series[bool]) -> Verdict:
        """Judge what is said of a limit by runs that reach for it.

        It stands if all come as near as is asked, and in part if some do. Where none does it is not
        tested as long as some are on the way: that a run is too short says nothing of a limit.
        """
        found = cls.each(there)
        return cls.UNREACHED if found is cls.FALLS and on_the_way.any() else found


def otherwise(verdict: Verdict, bound: str) -> str:
    """Say what becomes of a claim under another bound."""
    return f"; by {bound}: {verdict.value}"


@dataclass(frozen=True)
class Judged:
    """What the tables say of a claim.

    Attributes
    ----------
    verdict : Verdict
        By the rule.
    result : str
        The number that decides, with its interval, in a sentence that stands alone.
    control : str
        The same for what the claim should not hold for, or not for its reason.
    evidence : sequence of str
        Paragraphs; those without a word are left out.
    remark : str
        What follows the verdict: its reason, ": ..." of what is not tested, or the verdict under
        another bound.
    """

    verdict: Verdict = Verdict.OPEN
    result: str = "Not yet computed."
    control: str = ""
    evidence: Sequence[str] = ()
    remark: str = ""


def option(default: Any, what: str) -> Any:
    """Make a field of `Options`, with its line of help."""
    return field(default=default, metadata={"help": what})


@dataclass(frozen=True, kw_only=True)
class Options:
    """What one can ask of an experiment beside ``--quick``: each field is an option."""

    fresh: bool = option(False, "forget the results so far")
    minutes: float = option(float("inf"), "stop after this time, once a result is kept")


OptionsT = TypeVar("OptionsT", bound=Options)


@dataclass(frozen=True, eq=False, kw_only=True)
class Run(Generic[OptionsT]):
    """What an experiment is asked to measure.

    Attributes
    ----------
    quick : bool
        Small sizes, in seconds.
    options : Options
        Those of the experiment.
    kept : DataFrame
        The table as it is kept, from which a run goes on; without rows if there is none.
    file : Path
        Where the table is kept.
    say : callable
        Tells the user how far it is.
    """

    quick: bool
    options: OptionsT
    kept: pd.DataFrame
    file: Path
    say: Callable[[str], None]


@dataclass(frozen=True)
class Experiment:
    """A table that is measured, its picture, what it shows, and the verdict.

    What is said of it without numbers is its `benchmarks.catalogue.Entry`.

    Attributes
    ----------
    measure : callable
        Gets a `Run` and yields the table whenever it has grown by something worth keeping. What it
        has yielded is on the disk when a run is stopped, and comes back as `Run.kept`. See `whole`
        for a table that is only worth keeping as a whole.
    found : callable
        What a table shows, in Markdown: paragraphs, lists, tables; all numbers from the table. The
        sentence that decides is emphasised, ``**Like this.**``, where it is not the first one.
    tabulate : callable
        What of a table a reader wants to see: a string in every cell, or the values that the
        `columns` of the entry write.
    verdict : callable
        Whether the claim stands by a table, and, for a rule of size, a bound in the place of its
        own one.
    draw : callable or None
        The picture of a table.
    judge : callable
        Where several claims of the study rest on the table: what it says of each, by name.
    options : type
        What one can ask of it.
    """

    measure: Callable[[Run[Any]], Frames]
    found: Callable[[pd.DataFrame], str]
    tabulate: Callable[[pd.DataFrame], Tabular]
    verdict: Callable[..., Verdict] = lambda frame: Verdict.ANSWERED
    draw: Callable[[pd.DataFrame], Figure] | None = None
    _: KW_ONLY
    judge: Callable[[pd.DataFrame], Mapping[str, Judged]] = lambda frame: {}
    options: type[Options] = Options


def whole(measure: Callable[[bool], Tabular]) -> Callable[[Run[Any]], Frames]:
    """Measure at once, small or not, a table that nothing shorter can stand for.

    ``attrs["cpu_seconds"]`` of the table is what it took.
    """

    def measured(run: Run[Any]) -> Frames:
        started = time.process_time()
        frame = pd.DataFrame(measure(run.quick))
        frame.attrs["cpu_seconds"] = time.process_time() - started
        yield frame

    return measured


def growing(
    run: Run[Any],
    settings: Iterable[Mapping[str, Any]],
    rows: Callable[..., Tabular],
    kept: pd.DataFrame | None = None,
    enough: Callable[[pd.DataFrame, Mapping[str, Any]], object] = lambda rows, setting: True,
) -> Frames:
    """Measure one setting after the other, but for those that the table has already.

    Parameters
    ----------
    run : Run
        What is asked.
    settings : iterable of mapping
        The values of the columns that tell settings apart.
    rows : callable
        Gets a setting, by keywords, and returns its rows, without these columns or with them.
    kept : DataFrame, optional
        What of the kept table is still of use; by default all.
    enough : callable, optional
        Gets the rows that are kept of a setting, and the setting, and says whether these are all
        that is asked for; else they are measured again.
    """
    frame = run.kept if kept is None else kept
    for setting in settings:
        columns, wanted = list(setting), pd.Series(setting)
        known = frame.reindex(columns=columns)
        same = ((known == wanted) | (known.isna() & wanted.isna())).all(axis=1)
        if same.any() and enough(frame[same], setting):
            continue
        frame = frame[~same]
        more = pd.DataFrame(rows(**setting)).reset_index(drop=True)
        for place, column in enumerate(name for name in columns if name not in more):
            more.insert(place, column, setting[column])
        frame = pd.concat([frame, more], ignore_index=True) if len(frame) else more
        run.say(", ".join(f"{name} {value}" for name, value in setting.items()))
        yield frame


def tabled(rows: Callable[P, Rows]) -> Callable[P, pd.DataFrame]:
    """Make a table of the rows that a function yields."""

    @wraps(rows)
    def table(*args: P.args, **options: P.kwargs) -> pd.DataFrame:
        return pd.DataFrame(rows(*args, **options))

    return table


def parts(frame: pd.DataFrame, *columns: str) -> list[tuple[Any, pd.DataFrame]]:
    """Split a table by the value of a column, or by the values of several, in its own order."""
    return list(frame.groupby(columns[0] if len(columns) == 1 else list(columns), sort=False))


def rows_of(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a table."""
    return [{str(key): value for key, value in row.items()} for row in frame.to_dict("records")]


# --- what is kept ------------------------------------------------------------------------------


def load(study: Study, entry: Entry) -> Experiment:
    """Import an experiment of the list."""
    module = import_module(f"benchmarks.{study.name}.{entry.module or entry.name}")
    found: Experiment = module.EXPERIMENTS[entry.name] if entry.module else module.EXPERIMENT
    return found


def kept_in(folder: Path | None, *, quick: bool, name: str) -> Path:
    """Return where files go: the folder asked for, or a temporary one if quick."""
    if folder is not None:
        return folder
    return Path(tempfile.mkdtemp(prefix=f"{name}-")) if quick else HOME


def run(
    study: Study,
    entry: Entry,
    *,
    quick: bool = False,
    folder: Path = HOME,
    options: Options | None = None,
    say: Callable[[str], None] = print,
) -> pd.DataFrame:
    """Measure what is missing, and keep table and picture under a folder.

    Returns
    -------
    DataFrame
        The table.
    """
    experiment = load(study, entry)
    file = study.table(entry, folder)
    options = options or experiment.options()
    goes_on = file.is_file() and not options.fresh
    frame = pd.read_parquet(file) if goes_on else pd.DataFrame()
    asked = Run(quick=quick, options=options, kept=frame, file=file, say=say)
    end = time.monotonic() + 60 * options.minutes
    for frame in experiment.measure(asked):
        frame = _placed(frame) if study.timed else frame
        write_atomically(file, partial(frame.to_parquet, compression="zstd"))
        if time.monotonic() > end:
            break
    redraw(study, entry, folder)
    return frame


def read(study: Study, entry: Entry, folder: Path = HOME) -> pd.DataFrame:
    """Return the table that is kept under a folder.

    Raises
    ------
    DataError
        There is none; the message names the command that measures it.
    """
    file = study.table(entry, folder)
    if not file.is_file():
        command = f"{study.command(entry)} --folder {folder}"
        raise DataError(f"{file} is missing: measure it first, by `{command}`")
    return pd.read_parquet(file)


def redraw(study: Study, entry: Entry, folder: Path = HOME) -> None:
    """Draw the table that is kept under a folder, and keep the picture there."""
    draw = load(study, entry).draw
    if draw is None:
        return
    frame = read(study, entry, folder)
    with style(), matplotlib.rc_context({"text.parse_math": True}):  # powers of ten on axes
        figure = draw(frame)
        picture = study.picture(entry, folder)
        write_atomically(picture, lambda path: figure.savefig(path, format="png"))


# --- where it was measured ---------------------------------------------------------------------


@cache
def kernel() -> str:
    """Name the processor, and the instructions that the libraries take on it."""
    cpu = platform.processor() or platform.machine()
    with suppress(OSError):  # Linux alone has the file
        named = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text("utf-8"), re.M)
        cpu = named[1] if named else cpu
    libraries = threadpoolctl.threadpool_info()
    blas = sorted({one["architecture"] for one in libraries if one.get("architecture")})
    extensions = np.show_config(mode="dicts")["SIMD Extensions"]
    widest = [*extensions["baseline"], *extensions.get("found", ())][-1]
    torch_has = torch.backends.cpu.get_cpu_capability()
    return f"{cpu} (BLAS {' '.join(blas) or 'unknown'}, torch {torch_has}, numpy {widest})"


@cache
def commit() -> str:
    """Name the commit of the project, with "+" where its code was changed since."""
    git = ["git", "-C", str(HOME.parent)]
    short = ["rev-parse", "--short", "HEAD"]
    changed = ["status", "--porcelain", "--untracked-files=no", "--", "*.py"]
    try:
        name, files = (
            subprocess.run([*git, *words], capture_output=True, text=True, check=True).stdout
            for words in (short, changed)
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return name.strip() + ("+" if files else "")


def _placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add to rows that do not say it at which commit, and on which kernel, they were measured."""
    facts = {"commit": commit(), "kernel": kernel()}
    said = {name: frame[name].fillna(facts[name]) for name in facts if name in frame}
    return frame.assign(**facts | said)


def measured_at(frame: pd.DataFrame) -> str:
    """Say at which commit, and on which kernel, the rows of a table were measured."""
    counts = frame.groupby(["commit", "kernel"], sort=False).size()
    parts = [f"commit {commit}, kernel {kernel}" for commit, kernel in counts.index]
    if len(parts) == 1:
        return f"Measured at {parts[0]}."
    each = "; ".join(f"{n:,} at {part}" for n, part in zip(counts, parts, strict=True))
    return f"Rows were measured at several commits, or on several kernels: {each}."
