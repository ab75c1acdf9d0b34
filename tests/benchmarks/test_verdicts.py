"""Verdicts can be others: each is of a table that is kept, but for the changes of its controls.

What the kept tables say, in words and numbers, is on the pages, of which `test_studies` checks that
they are made of them.
"""

from collections import defaultdict
from dataclasses import replace
from functools import cache
from typing import Any, TypeAlias

import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.catalogue import Claim, Entry, Study
from benchmarks.lippl2022 import claims
from benchmarks.lippl2022.values import Tables, all_values
from benchmarks.page import Judged, Kept

# Study, and claim or experiment, by their names.
CONTROLLED: dict[str, tuple[Study, Entry | Claim]] = {}
# Of claims that are judged by several tables at once: changes, and the verdicts of each.
OF_VALUES = defaultdict[str, dict[str, str]](dict)
for study in map(catalogue.study, catalogue.studies()):
    stated: tuple[Entry | Claim, ...] = (*study.experiments, *study.claims)
    for each in stated:
        for change, verdict in each.controls:
            if change.startswith(("values: ", "exchanged: ")):
                OF_VALUES[change][each.name] = verdict
            else:
                CONTROLLED[f"{study.name}/{type(each).__name__}/{each.name}"] = study, each


def said(verdict: harness.Verdict) -> str:
    return verdict.name.replace("_", " ").lower()


@cache
def kept(study: str, experiment: str) -> pd.DataFrame:
    return harness.read(catalogue.study(study), catalogue.study(study).entry(experiment))


def changed(frame: pd.DataFrame, change: str) -> pd.DataFrame:
    found: Any = frame
    for part in change.split("; "):
        way = found.eval if " = " in part else found.query
        found = way(part, engine="python")
    assert isinstance(found, pd.DataFrame)
    found.attrs = frame.attrs
    return found


@pytest.mark.fast(
    *("daniely2020/Entry/bound", "daniely2020/Claim/theorem_2"),
    *("daniely2020/Claim/lemmas_14_to_16", "fiat2019/Entry/clustered"),
    *("infinite_time/Entry/deep_gln", "infinite_time/Claim/early"),
    *("lippl2022/Entry/exact_networks", "lippl2022/Claim/equal"),
    *("panigrahi2020/Claim/theorem-4-5", "speed/Entry/scaling"),
)
@pytest.mark.filterwarnings("ignore:Polyfit may be")  # of sizes that are not kept
@pytest.mark.parametrize("name", CONTROLLED)
def test_other_tables_have_other_verdicts(name: str) -> None:
    study, each = CONTROLLED[name]
    own = each.name if isinstance(each, Entry) else each.experiment
    for control, expected in each.controls:
        table, change = (own, control) if own else control.split(": ", 1)
        experiment, frame = harness.load(study, study.entry(table)), kept(study.name, table)
        frame = changed(frame, change)
        if isinstance(each, Entry):
            verdict = experiment.verdict(frame)
        else:
            judged = experiment.judge(frame)
            if each.name not in judged:  # by several tables
                changed_alone = Kept(study, tables={table: frame})
                assert changed_alone.module is not None
                judged = changed_alone.module.judge(changed_alone)
            verdict = judged[each.name].verdict
        assert said(verdict) == expected, control


# --- claims of the replication, which are judged by several tables ------------------------------

Replication: TypeAlias = tuple[Tables, pd.DataFrame]


@pytest.fixture(scope="module")
def replication() -> Replication:
    tables = Tables.read(Kept(catalogue.study("lippl2022"))).study()
    return tables, all_values(tables)


def exchanged(tables: Tables, one: str, other: str) -> Tables:
    names = {one: other, other: one}
    found = {}
    for name in ("models", "pairs", "neighbours"):
        frame = getattr(tables, name)
        columns = {"model", "first", "second"} & set(frame)
        if all((frame[[*columns]] == each).any(axis=None) for each in names):
            changed = {column: frame[column].replace(names) for column in columns}
            found[name] = frame.assign(**changed)
    return replace(tables, **found)


@pytest.mark.slow
@pytest.mark.parametrize("change", OF_VALUES)
def test_other_values_have_other_verdicts(change: str, replication: Replication) -> None:
    (tables, values), (way, what) = replication, change.split(": ", 1)
    if way == "values":
        values = changed(values, what)
        tables = replace(tables, more_seeds=changed(tables.more_seeds, what))
    else:
        tables = exchanged(tables, *what.split(", "))
        values = all_values(tables)
    found = {each: claims.judge_one(each, values, tables).verdict for each in OF_VALUES[change]}
    assert {each: said(verdict) for each, verdict in found.items()} == OF_VALUES[change]


@pytest.mark.slow
def test_a_sign_that_falls_shows_the_opposite_or_not(replication: Replication) -> None:
    tables, values = replication
    shown = changed(values, "error = error - 0.1 * (model == 'SVM-L2')")
    found = [claims.judge_one("further", each, tables) for each in (values, shown)]
    assert all(each.verdict is harness.Verdict.FALLS for each in found)
    assert ["opposite" in each.remark for each in found] == [True, False]


@pytest.mark.slow
def test_claims_are_open_where_nothing_is_measured(replication: Replication) -> None:
    tables, values = replication
    nothing = {name: frame[:0] for name, frame in vars(tables).items()}
    for name, judged in claims.judge(values[:0], Tables(**nothing)).items():
        assert judged == Judged(), name
