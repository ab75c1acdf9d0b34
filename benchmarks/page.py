"""The pages of a study, written from its texts and the kept tables, and from nothing else.

==============  ============================================================================
``README.md``   what the paper says, what was found, and a row a claim: what is claimed, what
                came out, the verdict
``DETAILS.md``  what a row rests on: rules, controls, tables, pictures; statements and slips
``SUMMARY.md``  of a long page: four sentences, a figure, and the verdicts with their numbers
==============  ============================================================================
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pandas as pd

from benchmarks import harness
from benchmarks.catalogue import HOME, Claim, Entry, Section, Statement, Study
from benchmarks.drawing import of_few_colours
from benchmarks.harness import Experiment, Verdict, load, measured_at, otherwise
from benchmarks.harness import Judged as Judged
from benchmarks.words import cells, decisive, filled, markdown_table, table, wrapped
from implicit_bias.base.atomic import write_atomically
from implicit_bias.report.style import style

DETAILS, SHORT = "DETAILS.md", "SUMMARY.md"
# Of paired differences, on which side matched cells are: it is said in the details.
COUNTS = re.compile(r"; \d+ of \d+ cells (?:above|below) 0(?=\])")
COLUMNS = ("", "claim", "what came out", "verdict")
STATEMENTS = (
    "Every statement that we know of, in the order of the paper. Last column: the verdicts of the "
    "experiments below, and checks that are run when this page is written."
)


@dataclass(frozen=True, eq=False)
class Result:
    """What the table of an experiment says, each asked once."""

    study: Study
    entry: Entry
    frame: pd.DataFrame

    @cached_property
    def experiment(self) -> Experiment:
        """The experiment."""
        return load(self.study, self.entry)

    @cached_property
    def found(self) -> str:
        """What the table shows, in Markdown."""
        return self.experiment.found(self.frame)

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the claim of the experiment stands."""
        return self.experiment.verdict(self.frame)

    @cached_property
    def otherwise(self) -> str:
        """What becomes of the claim under its other bound, if it has one."""
        if self.entry.other is None:
            return ""
        bound, called = self.entry.other
        return otherwise(self.experiment.verdict(self.frame, bound), called)

    @cached_property
    def judged(self) -> Mapping[str, Judged]:
        """What the table says of each claim of the study that rests on it."""
        return self.experiment.judge(self.frame)


@dataclass(frozen=True, eq=False)
class Kept:
    """The tables of a study under a folder, each read once, and what is said of them."""

    study: Study
    folder: Path = HOME
    tables: dict[str, pd.DataFrame] = field(default_factory=dict)
    results: dict[str, Result] = field(default_factory=dict)

    def __getitem__(self, name: str) -> pd.DataFrame:
        """Return the table of an experiment; DataError names the command that measures it."""
        if name not in self.tables:
            self.tables[name] = harness.read(self.study, self.study.entry(name), self.folder)
        return self.tables[name]

    def result(self, name: str) -> Result:
        """Return what the table of an experiment says."""
        if name not in self.results:
            self.results[name] = Result(self.study, self.study.entry(name), self[name])
        return self.results[name]

    @property
    def module(self) -> ModuleType | None:
        """The module that computes what the texts of the study name."""
        name = self.study.findings
        return import_module(f"benchmarks.{self.study.name}.{name}") if name else None

    def words(self) -> Mapping[str, Any]:
        """Return the values of the places in the study's texts."""
        values: Mapping[str, Any] = self.module.words(self) if self.module else {}
        return values

    def judge(self) -> Mapping[str, Judged]:
        """Return what the tables say of each claim of the study."""
        found: dict[str, Judged] = {}
        if self.module and self.study.claims_of(""):
            found |= self.module.judge(self)
        for entry in self.study.experiments:
            if self.study.claims_of(entry.name):
                found |= self.result(entry.name).judged
        return found


def worded(study: Study, entry: Entry) -> Entry:
    """Fill the places in the texts of an experiment; its module's head says how by default."""
    module = import_module(f"benchmarks.{study.name}.{entry.module or entry.name}")
    values = vars(module) | {"name": entry.name}
    said = ((key, text) for key, text in vars(entry).items() if isinstance(text, str))
    texts: dict[str, Any] = {key: filled(text, values) for key, text in said}
    texts["columns"] = {filled(name, values): text for name, text in entry.columns.items()}
    return replace(entry, **texts | {"how": texts["how"] or _middle_of(module.__doc__)})


def _middle_of(doc: str | None) -> str:
    """Return the paragraphs of a module's head between its first line and its source."""
    paragraphs = (doc or "").strip().split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs[1:-1])


# --- an experiment -----------------------------------------------------------------------------


def findings(result: Result) -> str:
    """Write heading, claims, how they were measured, results and verdicts of a table."""
    entry, claims = worded(result.study, result.entry), result.study.claims_of(result.entry.name)
    verdict = f"{result.verdict.value}{result.otherwise}. {entry.rule}"
    shown = pd.DataFrame(result.experiment.tabulate(result.frame))
    return "\n\n".join(
        [
            f"## {entry.title}",
            *([wrapped(f"**The paper.** {entry.quote}")] if entry.quote else []),
            *([wrapped(f"**Claim.** {entry.claim}")] if entry.claim else []),
            wrapped(f"**How.** {entry.how}"),
            wrapped(f"**Measured.** {result.found}"),
            *(
                [_claim(each, result.judged[each.name]) for each in claims]
                or [wrapped(f"**Verdict.** {verdict[0].upper()}{verdict[1:]} {entry.why}".strip())]
            ),
            markdown_table(cells(shown, entry.columns) if entry.columns else shown),
        ]
    )


def _experiment(result: Result) -> str:
    study, frame = result.study, result.frame
    entry = worded(study, result.entry)
    cost = entry.cost
    if "cpu_seconds" in frame.attrs:
        cost = f"{frame.attrs['cpu_seconds']:.0f} s on one core"
    parts = [f'<a id="{entry.name}"></a>', findings(result)]
    if result.experiment.draw is not None:
        parts.append(f"![{entry.alt}](../pictures/{study.name}/{entry.name}.png)")
    if study.timed:
        parts.append(wrapped(measured_at(frame)))
    parts.append(f"```sh\n{study.command(entry)}  # {cost}\n```")
    if entry.notes:
        parts.append(wrapped(entry.notes))
    return "\n\n".join(parts)


# --- the pages ---------------------------------------------------------------------------------


def pages(study: Study, folder: Path = HOME) -> dict[Path, str]:
    """Return the text of each page, of the tables that are kept under a folder.

    Raises
    ------
    DataError
        A table is missing.
    """
    kept = Kept(study, folder)
    readme, found = study.readme(folder), kept.judge()
    rows = _rows(kept, found)
    counts = dict[str, Any]()
    for of, some in (("", rows), ("quoted_", [row for row in rows if row.quote])):
        verdicts = Verdict.counted(row.verdict for row in some)
        counts |= {f"{of}count": len(some), f"{of}verdicts": verdicts}
    results = {row.name.replace("-", "_"): COUNTS.sub("", row.result) for row in rows}
    say = partial(filled, values=counts | results | dict(kept.words()))
    texts = {
        readme: _summary(study, rows, say),
        readme.with_name(DETAILS): _details(kept, found, say),
    }
    if study.short:
        parts = [f"# {study.title}: in short", wrapped(say(study.short))]
        parts.append(table(("claim", *COLUMNS[2:]), [row.in_short() for row in rows if row.quote]))
        texts[readme.with_name(SHORT)] = "\n\n".join(parts) + "\n"
    return texts


@dataclass(frozen=True)
class _Row:
    """A claim, or an experiment: its place, its words, what came out and the verdict."""

    name: str
    where: str
    claim: str
    quote: str
    result: str
    verdict: Verdict
    remark: str

    def cells(self) -> list[str]:
        """Return the row of a page: the paper's own words, or else ours."""
        link = f"[{self.where}]({DETAILS}#{self.name})"
        claim = self.quote or " ".join(self.claim.split())
        verdict = f"**{self.verdict.before(self.remark)}**{self.remark}"
        return [link, claim, COUNTS.sub("", self.result), verdict]

    def in_short(self) -> list[str]:
        """Return the row of a summary."""
        return [f"[{self.claim}]({DETAILS}#{self.name})", *self.cells()[2:]]


def _rows(kept: Kept, found: Mapping[str, Judged]) -> list[_Row]:
    """Return a row a claim, and a row an experiment that has one."""
    rows = []
    for claim in kept.study.claims:
        judged, words = found[claim.name], (claim.name, claim.where, claim.claim, claim.quote)
        rows.append(_Row(*words, judged.result, judged.verdict, judged.remark))
    for entry in (worded(kept.study, each) for each in kept.study.experiments):
        if entry.quote or entry.claim:
            result = kept.result(entry.name)
            words = (entry.name, entry.title, entry.claim, entry.quote)
            rows.append(_Row(*words, decisive(result.found), result.verdict, result.otherwise))
    return rows


def _summary(study: Study, rows: list[_Row], say: Callable[[str], str]) -> str:
    # The paper's own words first, and what is said in ours apart from them.
    quoted = [row.cells() for row in rows if row.quote]
    ours = [row.cells() for row in rows if not row.quote]
    parts = [wrapped(say(study.head))]
    if study.found:
        parts += ["## What we found", wrapped(say(study.found))]
    kept_in = wrapped(
        f"Rules, tables, pictures and commands: [{DETAILS}]({DETAILS}). Both are written by "
        f"`python -m benchmarks {study.name} page` from the tables in "
        f"[`results/{study.name}`](../results/{study.name}); each command has a `--quick` "
        "version, and a run that is stopped goes on."
    )
    if quoted:
        parts += ["## What the paper says, and what came out", table(COLUMNS, quoted)]
    heading = "## What this rests on" if quoted else "## Claims and verdicts"
    parts += [wrapped(say(study.further)), heading, kept_in]
    if ours:
        parts.append(table(COLUMNS, ours))
    return "\n\n".join(filter(None, parts)) + "\n"


def _details(kept: Kept, found: Mapping[str, Judged], say: Callable[[str], str]) -> str:
    study = kept.study
    parts = [f"# {study.title}: details", "What [the page](README.md) rests on."]
    parts += [_claim(each, found[each.name]) for each in study.claims_of("")]
    if study.pictures:
        parts.append('<a id="figures"></a>\n\n## Figures')
        folder = f"../pictures/{study.name}"
        parts += [
            f"![{each.alt}]({folder}/{each.name}.png)\n\n{wrapped(f'*{each.caption}*')}"
            for each in study.pictures
        ]
    if study.statements:
        parts += ["## Statements", wrapped(STATEMENTS)]
        rows = [
            (f"{each.where}: {each.says}", each.ours, _agrees(kept, each, found))
            for each in study.statements
        ]
        parts.append(table(("statement", "ours", "agrees?"), rows))
    parts += [_section(each, kept, say) for each in study.sections]
    parts += [_experiment(kept.result(entry.name)) for entry in study.experiments]
    return "\n\n".join(parts) + "\n"


def _claim(claim: Claim, judged: Judged) -> str:
    verdict = judged.verdict.before(judged.remark)
    texts = [
        f"**Verdict.** {verdict[0].upper()}{verdict[1:]}{judged.remark}. {judged.result}",
        f"**The paper.** {claim.quote}" if claim.quote else "",
        f"**Rule.** {claim.rule} {claim.why}".strip()
        + (f" In the paper: {claim.where}." if claim.quote else ""),
        f"**Control.** {judged.control[:1].upper()}{judged.control[1:]}" if judged.control else "",
        *judged.evidence,
    ]
    level = "###" if claim.experiment else "##"
    head = [f'<a id="{claim.name}"></a>', f"{level} {claim.claim}"]
    return "\n\n".join([*head, *(wrapped(text) for text in texts if text)])


def _agrees(kept: Kept, statement: Statement, found: Mapping[str, Judged]) -> str:
    """Say whether a statement holds: by hand, by a check, by claims and experiments on it."""
    parts = [statement.agrees] if statement.agrees else []
    if statement.checked:
        assert kept.module is not None
        parts.append(kept.module.agrees(statement, kept))
    for claim in kept.study.claims:
        if claim.name in statement.claims:
            judged = found[claim.name]
            verdict = judged.verdict.before(judged.remark)
            parts.append(f"{verdict} ([{claim.where}](#{claim.name}))")
    for name in statement.experiments:
        entry = kept.study.entry(name)
        parts.append(f"{kept.result(name).verdict.value} ([{entry.title}](#{entry.name}))")
    return "; ".join(parts)


def _section(section: Section, kept: Kept, say: Callable[[str], str]) -> str:
    parts = [f'<a id="{section.anchor}"></a>'] if section.anchor else []
    parts.append(f"## {say(section.heading)}")
    if section.text:
        parts.append(wrapped(say(section.text)))
    if section.rows:
        parts.append(table(section.columns, [[say(c) for c in row] for row in section.rows]))
    if section.table:
        parts.append(markdown_table(getattr(kept.module, section.table)(kept)))
    return "\n\n".join(parts)


def write(study: Study, folder: Path = HOME) -> list[Path]:
    """Write the pages, and draw all pictures again, from the tables that are kept under a folder.

    Raises
    ------
    DataError
        A table is missing; nothing is written then.
    """
    texts = pages(study, folder)
    for entry in study.experiments:
        harness.redraw(study, entry, folder)
    kept = Kept(study, folder)
    for each in study.pictures:
        assert kept.module is not None
        with style():
            picture = of_few_colours(kept.module.draw(each.name, kept))
        write_atomically(study.picture(each, folder), partial(Path.write_bytes, data=picture))
    for file, text in texts.items():
        write_atomically(file, partial(Path.write_text, data=text, encoding="utf-8"))
    return list(texts)
