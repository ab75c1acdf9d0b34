"""Verdicts can be others: each is of a table that is kept, but for the changes of its controls.

What the kept tables say, in words and numbers, is on the pages, of which `test_studies` checks that
they are made of them.
"""

from functools import cache
from typing import Any

import pandas as pd
import pytest

from benchmarks import catalogue, harness
from benchmarks.catalogue import Claim, Entry, Study
from benchmarks.page import Kept

# Study, and claim or experiment, by their names.
CONTROLLED: dict[str, tuple[Study, Entry | Claim]] = {}
for study in map(catalogue.study, catalogue.studies()):
    stated: tuple[Entry | Claim, ...] = (*study.experiments, *study.claims)
    for each in stated:
        if each.controls:
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
    *("infinite_width/Entry/plane", "infinite_width/Claim/finite"),
    *("optimizers/Entry/mirror", "panigrahi2020/Claim/theorem-4-5", "speed/Entry/scaling"),
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
