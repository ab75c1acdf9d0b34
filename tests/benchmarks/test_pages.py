"""Every page says what the kept tables say, and every picture of it is there."""

import re

import pytest

from benchmarks import catalogue, harness
from benchmarks.lippl2022 import figures, page, values
from implicit_bias.report.style import style
from pages import check_page

STUDIES = catalogue.studies()
GENERIC = [name for name in STUDIES if not catalogue.study(name).own_page]


def test_the_index_links_every_study() -> None:
    text = (catalogue.HOME / "README.md").read_text("utf-8")
    assert set(re.findall(r"\((\w+)/README\.md\)", text)) == set(STUDIES)


@pytest.mark.parametrize("name", GENERIC)
def test_the_page_is_of_the_tables_that_are_kept(name: str) -> None:
    """Else: python -m benchmarks STUDY page."""
    study = catalogue.study(name)
    assert study.name == name
    check_page(harness.page(study), study.readme().read_text("utf-8"))
    for entry in study.experiments:
        drawn = harness.load(study, entry).draw is not None
        assert study.picture(entry).is_file() == drawn


@pytest.mark.slow
def test_the_replication_is_of_the_tables_that_are_kept() -> None:
    study = catalogue.study("lippl2022")
    tables = values.Tables.read(catalogue.HOME / "results" / study.name)
    with style():
        paper, beyond = figures.paper_plots(values.all_values(tables)), figures.beyond_plots(tables)
    facts = page.findings(tables)
    text = page.markdown(facts, paper, beyond)
    check_page(text, study.readme().read_text("utf-8"))
    summary = study.readme().with_name("SUMMARY.md").read_text("utf-8")
    check_page(page.summary_page(facts), summary)
    assert len(summary.split()) < 1300  # two pages
    for picture in re.findall(r"pictures/lippl2022/([\w.-]+)", text):
        assert (catalogue.HOME / "pictures" / study.name / picture).is_file()


@pytest.mark.parametrize("name", ["gln", "published"])
def test_experiments_of_the_replication_say_what_they_found(name: str) -> None:
    study = catalogue.study("lippl2022")
    entry = study.entry(name)
    experiment = harness.load(study, entry)
    text = harness.findings(entry, experiment, harness.read(study, entry))
    assert "**Verdict.**" in text
    assert "svm-gln" in text or "SVM-GLN" in text
