"""Every study: its pages say what the kept tables say, and each experiment has a quick version."""

import re
from inspect import signature
from pathlib import Path
from typing import Any

import pytest

from benchmarks import bench, catalogue, harness, page
from benchmarks.catalogue import Entry, Study
from pages import check_page

STUDIES = [catalogue.study(name) for name in catalogue.studies()]
QUICK = [(study, entry) for study in STUDIES for entry in study.experiments]
each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)


def test_the_index_links_every_study() -> None:
    text = (catalogue.HOME / "README.md").read_text("utf-8")
    names = {study.name for study in STUDIES} | set(bench.studies())
    assert set(re.findall(r"\((\w+)/README\.md\)", text)) == names


@each_study
def test_the_pages_are_of_the_tables_that_are_kept(study: Study) -> None:
    """Else: python -m benchmarks STUDY page."""
    written = page.pages(study)
    for file, text in written.items():
        check_page(text, file.read_text("utf-8"))
    places = {file.name: re.findall(r'<a id="([^"]*)"></a>', t) for file, t in written.items()}
    for file, text in written.items():
        assert len(places[file.name]) == len(set(places[file.name]))
        for name, place in re.findall(rf"\]\(({page.DETAILS})?#([^)]*)\)", text):
            assert place in places[name or file.name]
    drawn = [each for each in study.experiments if harness.load(study, each).draw is not None]
    pictures = (catalogue.HOME / "pictures" / study.name).glob("*.png")
    names = [each.name for each in drawn] + [each.name for each in study.pictures]
    assert {file.stem for file in pictures} == set(names)


@each_study
def test_every_experiment_is_listed(study: Study) -> None:
    modules = {entry.module or entry.name for entry in study.experiments}
    files = (catalogue.HOME / study.name).glob("*.py")
    assert modules == {
        file.stem for file in files if re.search("^EXPERIMENTS? = ", file.read_text("utf-8"), re.M)
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("study", "entry"),
    [pytest.param(study, entry, id=f"{study.name}-{entry.name}") for study, entry in QUICK],
)
def test_quick_version(study: Study, entry: Entry, tmp_path: Path) -> None:
    """What says how far it is goes on from what it has kept: after the last row with nothing."""
    experiment, said = harness.load(study, entry), list[str]()
    asked: Any = {"quick": True, "options": experiment.options(), "say": said.append}
    frame = harness.run(study, entry, folder=tmp_path, **asked)
    assert len(frame)
    assert "|" in page.findings(page.Result(study, entry, frame))
    assert study.picture(entry, tmp_path).is_file() == (experiment.draw is not None)
    file = study.table(entry, tmp_path)
    kept = harness.read(study, entry, tmp_path)
    assert not said or not [*experiment.measure(harness.Run(kept=kept, file=file, **asked))]


@each_study
def test_a_rule_of_size_has_another_bound(study: Study) -> None:
    """And says why it could fail and why it could hold, where the rule is of a claim."""
    for entry in study.experiments:
        bounds = len(signature(harness.load(study, entry).verdict).parameters) - 1
        assert bounds == (entry.other is not None), entry.name
        if entry.claim or entry.quote:
            assert re.search("could fail.*could hold", entry.why), entry.name


@each_study
def test_every_statement_has_a_place_and_is_judged(study: Study) -> None:
    numbers = " ".join(each.where for each in study.statements)
    for number in study.numbered:
        assert re.search(rf"{re.escape(number)}\b", numbers), number
    for each in study.statements:
        assert each.ours or each.experiments
        assert each.claims or each.experiments or each.checked or each.agrees, each.where
        assert set(each.experiments) <= {entry.name for entry in study.experiments}
        assert set(each.claims) <= {claim.name for claim in study.claims}


def test_every_check_holds() -> None:
    """Of the tests that are named where a page is written."""
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parents[1].rglob("*.py"))
    for study in STUDIES:
        text = (catalogue.HOME / study.name / "study.toml").read_text("utf-8")
        for name in re.findall(r"`(test_\w+)`", text):
            assert f"def {name}(" in tests, name
