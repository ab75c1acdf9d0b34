"""The page of the replication: what stands of the paper, with figures, claims and every cell.

It is written in seconds from the tables of the grids and of the published values, and from nothing
else: ``results/lippl2022/index.html``, self-contained, and the same findings as ``README.md``
beside this file, with the pictures that it shows; and ``SUMMARY.md``, a report of two pages.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import ChoiceLoader, Environment, FileSystemLoader, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from benchmarks import catalogue
from benchmarks.catalogue import HOME
from benchmarks.harness import Verdict, load, read, redraw
from benchmarks.lippl2022.claims import all_claims, network_draws
from benchmarks.lippl2022.deviations import DERIVED, DEVIATIONS, ERRATA
from benchmarks.lippl2022.figures import (
    beyond_plots,
    paper_plots,
    png,
    task_name,
)
from benchmarks.lippl2022.published import NOT_THE_SAME, OTHER_DRAWS, SAME, VERDICTS
from benchmarks.lippl2022.values import Tables, all_values
from benchmarks.page import worded
from implicit_bias.base.atomic import write_atomically
from implicit_bias.bounds.certificate import Status
from implicit_bias.report.figures.base import Plot
from implicit_bias.report.style import style
from implicit_bias.runs.grid import Grid

HERE = Path(__file__).parent
STUDY = catalogue.study("lippl2022")
EXACT = ("exact_networks", "exact_explained", "exact_agreements")
BY_ECOS, LEARNED = "solved_by_ecos", "learned_contexts"
THEORY = ("unequal_degrees", "assumptions")
CLASSES = {
    Verdict.STANDS: "stands",
    Verdict.IN_PART: "part",
    Verdict.FALLS: "falls",
    Verdict.ANSWERED: "stands",
    Verdict.OPEN: "open",
}
# Of one conclusion, and of several.
WORDS = {
    Verdict.STANDS: ("stands", "stand"),
    Verdict.IN_PART: ("stands in part", "stand in part"),
    Verdict.FALLS: ("does not stand", "do not stand"),
    Verdict.ANSWERED: ("is answered", "are answered"),
    Verdict.OPEN: ("is not yet computed", "are not yet computed"),
}
# Figures beyond the paper.
BEYOND = {
    "causes": "The steps to the released SVM-L2",
    "infinite-time": "Infinite time beside finite time",
    "larger": "More than 2,000 training samples",
    "other-tasks": "Other classes of digits, and Fashion-MNIST",
}
CODE = re.compile(r"`([^`]+)`")
# Of a cell key: enough to tell cells apart by eye.
SHORT = 8
CLASS_COLUMNS = ("positive", "negative")
# Of a picture in the page, and of its file.
DPI, PICTURE_DPI = 110, 150
# The grid whose cost the study has a limit for, and the models that it counts.
COSTED, COSTED_MODELS = "gln", ("gd-gln", "svm-gln", "svm-l2")
COST_LIMIT = 180  # minutes of one core: 90 minutes on two


@dataclass(frozen=True)
class CellRow:
    """A cell as the page lists it, in words.

    Attributes
    ----------
    key, short : str
        Content hash, whole and abbreviated.
    grid, setting : str
        Where it belongs, and what it computes.
    errors : str
        Validation error of each model.
    gap : str
        Largest certified gap of its SVMs.
    status : str
        Of the cell, and of the solves that did not end optimal.
    seconds, commit : str
        How long it took, and by which version of the code.
    """

    key: str
    short: str
    grid: str
    setting: str
    errors: str
    gap: str
    status: str
    seconds: str
    commit: str


@dataclass(frozen=True)
class GridRow:
    """A grid of the study: how far it is, and what it took.

    Attributes
    ----------
    name : str
        Stem of its file.
    cells, done, failed : int
        In all, with results, without.
    gap : str
        Largest certified gap of the SVMs that are solved.
    minutes : str
        Wall time of its cells.
    """

    name: str
    cells: int
    done: int
    failed: int
    gap: str
    minutes: str


@dataclass(frozen=True)
class PointRow:
    """Published values of one model and metric beside ours.

    Attributes
    ----------
    model, metric : str
        As the published table names them.
    counts : mapping from verdict to int
        How many of its values came out how.
    largest : str
        Largest difference.
    """

    model: str
    metric: str
    counts: Mapping[str, int]
    largest: str


@dataclass(frozen=True)
class ReasonRow:
    """How many values of a model differ for a reason."""

    model: str
    values: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class Section:
    """What one experiment of the harness says, in parts: both pages lay them out.

    Attributes
    ----------
    name, title, claim, how, found, brief, rule, notes, alt : str
        See `benchmarks.harness.Experiment`.
    verdict : Verdict
        By the rule.
    columns, rows : tuple
        Its table, a string in every cell.
    command : str
        Measures it again.
    picture : str
        File of its picture, or nothing.
    """

    name: str
    title: str
    claim: str
    how: str
    found: str
    brief: str
    verdict: Verdict
    rule: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: str
    command: str
    picture: str
    alt: str


@dataclass(frozen=True)
class Point:
    """A published value that ours is not, in words."""

    model: str
    metric: str
    setting: str
    theirs: str
    ours: str
    verdict: str
    reason: str
    cell: str


def sections(names: Iterable[str], folder: Path = HOME) -> tuple[Section, ...]:
    """Return what experiments say of the tables that are kept, as far as they are."""
    found = []
    for entry in (entry for entry in STUDY.experiments if entry.name in set(names)):
        if not STUDY.table(entry, folder).is_file():
            continue
        experiment, table = load(STUDY, entry), read(STUDY, entry, folder)
        entry = worded(STUDY, entry)
        shown, verdict = experiment.tabulate(table), experiment.verdict(table)
        found.append(
            Section(
                name=entry.name,
                title=entry.title,
                claim=entry.claim,
                how=entry.how,
                found=experiment.found(table),
                brief=experiment.brief(table) if experiment.brief else "",
                verdict=verdict,
                rule=entry.rule,
                columns=tuple(shown.columns),
                rows=tuple(tuple(row) for row in shown.to_numpy().tolist()),
                notes=entry.notes,
                command=f"{STUDY.command(entry)}  # {entry.cost}",
                picture=f"{entry.name}.png" if experiment.draw is not None else "",
                alt=entry.alt,
            )
        )
    return tuple(found)


def write_page(folder: Path = HOME) -> list[Path]:
    """Write page, README, summary and pictures, from the tables.

    Returns
    -------
    list of Path
        The page, the README and the summary.

    Raises
    ------
    DataError
        A table is missing.
    """
    results, pictures = folder / "results" / STUDY.name, folder / "pictures" / STUDY.name
    tables = Tables.read(results)
    facts = findings(tables, folder)
    values = all_values(tables)
    for section in (*facts["exact"], *facts["theory"]):
        if section.picture:
            redraw(STUDY, STUDY.entry(section.name), folder)
    with style():
        paper, beyond = paper_plots(values), beyond_plots(tables)
        pages = {
            results / "index.html": html(facts, paper, beyond, pictures),
            STUDY.readme(folder): markdown(facts, paper, beyond),
            STUDY.readme(folder).with_name("SUMMARY.md"): summary_page(facts),
        }
        # Drawn anew: a figure that has been drawn at another resolution is laid out differently.
        for plot in (*paper_plots(values), *beyond_plots(tables)):
            file = pictures / f"{plot.name}.png"
            write_atomically(file, partial(Path.write_bytes, data=png(plot, PICTURE_DPI)))
    for file, text in pages.items():
        write_atomically(file, partial(Path.write_text, data=text, encoding="utf-8"))
    return list(pages)


def findings(tables: Tables, folder: Path = HOME) -> dict[str, Any]:
    """Return what all pages say: the variables of their templates."""
    values = all_values(tables)
    claims = all_claims(values, tables)
    counts = Counter(claim.verdict for claim in claims)
    rows = cell_rows(tables)
    conclusions = {claim.name: claim.conclusion for claim in claims}
    return {
        "title": STUDY.title,
        "headline": {
            "networks": exact_share(tables.exact),
            "groups": sentence(conclusions["groups"]),
            "l2": sentence(conclusions["l2"]),
        },
        "claims": claims,
        "classes": CLASSES,
        "words": {verdict: forms[0] for verdict, forms in WORDS.items()},
        "exact": sections([*EXACT, BY_ECOS, LEARNED, "l2_optimality"], folder),
        "theory": sections(THEORY, folder),
        "deviations": DEVIATIONS,
        "errata": ERRATA,
        "derived": DERIVED,
        "released": released_counts(tables.points),
        "draws": network_draws(values, tables),
        "counts": ", ".join(
            f"{counts[verdict]} {WORDS[verdict][counts[verdict] > 1]}"
            for verdict in Verdict
            if counts[verdict]
        ),
        "grids": grid_rows(tables),
        "cost": cost(tables.models),
        "point_verdicts": [name for name in VERDICTS if name in set(tables.points["verdict"])],
        "points": point_rows(tables.points),
        "differing": differing(tables.points),
        "reasons": reasons(tables.points),
        "origin": origin(tables.cells),
        "cells": rows,
        "labels": {row.key: f"{row.grid}: {row.setting}" for row in rows},
        "short": short,
    }


def html(
    facts: Mapping[str, Any], paper: Sequence[Plot], beyond: Sequence[Plot], pictures: Path
) -> str:
    """Return the page, with the figures of the paper and those beyond it.

    Parameters
    ----------
    facts : mapping
        See `findings`.
    paper, beyond : sequence of Plot
        Figures of the paper, and others.
    pictures : Path
        Folder of the pictures of single experiments.
    """
    drawn = {plot.name for plot in beyond}
    not_computed = [what for name, what in BEYOND.items() if name not in drawn]
    figures = {"paper": paper, "beyond": beyond, "not_computed": not_computed}

    def kept(name: str) -> str:
        return _data_url((pictures / name).read_bytes())

    return _template("page.html.j2").render(**facts, **figures, source=_source, kept=kept)


def markdown(facts: Mapping[str, Any], paper: Sequence[Plot], beyond: Sequence[Plot]) -> str:
    """Return the findings in Markdown, with the figures that there are."""
    return _template("readme.md.j2").render(**facts, paper=paper, beyond=beyond)


def summary_page(facts: Mapping[str, Any]) -> str:
    """Return the reproducibility report of two pages, in Markdown."""
    return _template("summary.md.j2").render(**facts)


def exact_share(exact: pd.DataFrame) -> str:
    """Say how many exact networks without momentum have the released accuracy."""
    if exact.empty:
        return "no network is measured yet."
    images = exact.loc[exact["momentum"] == 0, "images"].abs()
    return (
        f"{int((images == 0).sum())} of {len(images)} networks without momentum have the released "
        f"accuracy to the digit, and {int((images <= 1).sum())} within one of 12,000 images."
    )


def sentence(text: str) -> str:
    """Go on with a sentence after a colon."""
    return text[:1].lower() + text[1:]


def released_counts(points: pd.DataFrame) -> dict[str, int]:
    """Count all released values, those that can be compared, and those that are the same."""
    known = points[points["verdict"].isin([*SAME, *NOT_THE_SAME])]
    return {
        "all": len(points),
        "compared": len(known),
        "digit": int((known["verdict"] == SAME[0]).sum()),
        "close": int((known["verdict"] == SAME[1]).sum()),
        "differs": int(known["verdict"].isin(NOT_THE_SAME).sum()),
        "other": int((points["verdict"] == OTHER_DRAWS).sum()),
    }


def short(key: str) -> str:
    """Abbreviate the key of a cell."""
    return key[:SHORT]


def cell_rows(tables: Tables) -> tuple[CellRow, ...]:
    """List every cell that there is, in the order of the study."""
    models = dict(list(tables.models.groupby("cell")))
    nothing = tables.models.iloc[:0]
    cells = tables.cells.drop_duplicates("cell")
    return tuple(
        _cell_row(cell, models.get(cell["cell"], nothing)) for cell in cells.to_dict("records")
    )


def _cell_row(cell: Mapping[Any, Any], models: pd.DataFrame) -> CellRow:
    errors = [
        f"{name} {100 * error:.2f}"
        for name, error in zip(models["model"], models["validation_error"], strict=True)
        if pd.notna(error)
    ]
    return CellRow(
        key=cell["cell"],
        short=short(cell["cell"]),
        grid=cell["grid"],
        setting=_setting(cell),
        errors=", ".join(errors),
        gap=_gap(models),
        status=_status(cell, models),
        seconds=f"{cell['seconds']:.0f}",
        commit="unknown" if pd.isna(cell["commit"]) else _commit(cell["commit"]),
    )


def _setting(cell: Mapping[Any, Any]) -> str:
    """Say in words what tells a cell from the others of its grid."""
    positive, negative = (cell[name] if pd.notna(cell[name]) else None for name in CLASS_COLUMNS)
    return (
        f"{task_name(cell['dataset'], positive, negative)}, N = {cell['train_size']:,}, "
        f"H = {cell['units']}, k = {cell['hyperplanes']}, {cell['threshold']}, "
        f"momentum {cell['momentum']:g}, seed {cell['seed']}"
    )


def _gap(models: pd.DataFrame) -> str:
    gaps = models.loc[models["status"] == Status.OPTIMAL.label, "gap"]
    return "" if gaps.empty else f"{gaps.max():.1e}"


def _status(cell: Mapping[Any, Any], models: pd.DataFrame) -> str:
    if cell["status"] != "done":
        return f"failed: {cell['error']}"
    unsolved = models[models["status"].notna() & (models["status"] != Status.OPTIMAL.label)]
    left_out = models[models["dropped"].fillna(0) > 0]
    texts = [
        f"{name}: {status}"
        for name, status in zip(unsolved["model"], unsolved["status"], strict=True)
    ]
    texts += [
        f"{name}: {dropped:.0f} samples left out"
        for name, dropped in zip(left_out["model"], left_out["dropped"], strict=True)
    ]
    return "; ".join(texts) or "done"


def _commit(commit: str) -> str:
    name, dirty, _ = commit.partition("-dirty")
    return name[:10] + (" and changes" if dirty else "")


def grid_rows(tables: Tables) -> tuple[GridRow, ...]:
    """Say how far each grid of the study is, in the order of their files' names."""
    rows = []
    for file in sorted((HERE / "grids").glob("*.toml")):
        keys = set(Grid.read(file).by_key())
        cells = tables.cells[tables.cells["grid"] == file.stem]
        # A cell that the tables have once a momentum is here one.
        own = cells[cells["cell"].isin(keys)]
        done = int((own["status"] == "done").sum())
        models = tables.models[tables.models["grid"] == file.stem]
        minutes = cells["seconds"].sum() / 60
        rows.append(
            GridRow(file.stem, len(keys), done, len(own) - done, _gap(models), f"{minutes:.0f}")
        )
    return tuple(rows)


def cost(models: pd.DataFrame) -> dict[str, Any]:
    """Sum the seconds of the models whose cost has a limit, each once."""
    known = models[(models["grid"] == COSTED) & models["model"].isin(COSTED_MODELS)]
    # The SVMs of a cell are in the tables once a momentum; what is asked for is one network.
    known = known[known["momentum"] == known["momentum"].max()]
    by_model = known.groupby("model")["seconds"].sum() / 60
    return {
        "grid": COSTED,
        "cells": known["cell"].nunique(),
        "minutes": {name: f"{by_model.get(name, 0.0):.1f}" for name in COSTED_MODELS},
        "total": f"{by_model.sum():.0f}",
        "limit": COST_LIMIT,
    }


def point_rows(points: pd.DataFrame) -> tuple[PointRow, ...]:
    """Count the verdicts on the published values of each model and metric."""
    rows = []
    for keys, values in points.groupby(["model", "metric"]):
        largest = values["difference"].abs().max()
        rows.append(
            PointRow(
                str(keys[0]),
                str(keys[1]),
                Counter(values["verdict"]),
                "" if np.isnan(largest) else f"{largest:.4f}",
            )
        )
    return tuple(rows)


def differing(points: pd.DataFrame) -> tuple[Point, ...]:
    """List the published values that ours are not."""
    chosen = points[points["verdict"].isin(NOT_THE_SAME)]
    return tuple(
        Point(
            model=row["model"],
            metric=row["metric"],
            setting=f"N = {row['train_size']:,}, H = {row['units']}, k = {row['hyperplanes']}, "
            f"{row['threshold']}, seed {row['seed']}",
            theirs=f"{row['theirs']:.4f}",
            ours=f"{row['ours']:.4f}",
            verdict=row["verdict"],
            reason=row["reason"] or "not explained",
            cell=row["cell"],
        )
        for row in chosen.to_dict("records")
    )


def reasons(points: pd.DataFrame) -> tuple[ReasonRow, ...]:
    """Count the published values that ours are not, by model and reason."""
    chosen = points[points["verdict"].isin(NOT_THE_SAME)]
    counts = chosen.groupby(["model", "reason"], as_index=False).size()
    return tuple(
        ReasonRow(model, count, reason or "not explained")
        for model, reason, count in counts.itertuples(index=False)
    )


def origin(cells: pd.DataFrame) -> dict[str, str]:
    """Say what computed the cells, and when."""
    names = ("version", "python", "numpy", "scipy", "torch", "cvxpy")
    found = {name: _listed(cells[name]) for name in names}
    commits = _listed(cells["commit"].dropna().map(_commit))
    days = dict.fromkeys([cells["finished"].min()[:10], cells["finished"].max()[:10]])
    computed = {"computed": " to ".join(days)}
    return {"implicit_bias": found.pop("version"), "commit": commits, **found, **computed}


def _listed(column: pd.Series[str]) -> str:
    return ", ".join(sorted(set(column))) or "unknown"


def _source(plot: Plot) -> str:
    """Figure as a data URL."""
    return _data_url(png(plot, DPI))


def _data_url(picture: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture).decode()}"


def _as_code(text: str) -> Markup:
    """Escape a text for HTML, with `code` of Markdown as code."""
    return Markup(CODE.sub(r"<code>\1</code>", str(escape(text))))  # noqa: S704  # escaped first


def _template(name: str) -> Any:
    environment = Environment(
        loader=ChoiceLoader(
            [FileSystemLoader(HERE), PackageLoader("implicit_bias.report.page", ".")]
        ),
        autoescape=name.endswith(".html.j2"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["as_code"] = _as_code
    return environment.get_template(name)
