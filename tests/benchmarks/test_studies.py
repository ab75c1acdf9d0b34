"""Every study: its pages say what the kept tables say, and each experiment has a quick version."""

import re
from importlib import import_module
from inspect import signature
from pathlib import Path

import pytest

from benchmarks import catalogue, harness, page, sizes
from benchmarks.catalogue import Entry, Study
from pages import check_page

STUDIES = [catalogue.study(name) for name in catalogue.studies()]
# Those of `speed` are run with their commands, the grids with smaller ones.
QUICK = [study for study in STUDIES if study.name not in ("speed", "lippl2022")]
each_study = pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)


def test_the_index_links_every_study() -> None:
    text = (catalogue.HOME / "README.md").read_text("utf-8")
    names = {study.name for study in STUDIES}
    assert set(re.findall(r"\((\w+)/README\.md\)", text)) == names


@pytest.mark.every(7)
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
    [
        pytest.param(study, entry, id=f"{study.name}-{entry.name}")
        for study in QUICK
        for entry in study.experiments
    ],
)
def test_quick_version(study: Study, entry: Entry, tmp_path: Path) -> None:
    frame = harness.run(study, entry, quick=True, folder=tmp_path)
    assert len(frame)
    assert "|" in page.findings(page.Result(study, entry, frame))
    drawn = harness.load(study, entry).draw is not None
    assert study.picture(entry, tmp_path).is_file() == drawn


@pytest.mark.parametrize("name", ["infinite_width", "optimizers"])
def test_kept_tables_are_of_the_default_sizes(name: str) -> None:
    study = catalogue.study(name)
    for entry in study.experiments:
        attrs = harness.read(study, entry).attrs
        module = import_module(f"benchmarks.{name}.{entry.name}")
        assert attrs["sizes"] == sizes.in_words(module.Sizes())
        assert attrs["done"] == attrs["settings"] == len(module.settings(module.Sizes()))


@each_study
def test_a_rule_of_size_has_another_bound(study: Study) -> None:
    """And says why it could fail and why it could hold, where the rule is of a claim."""
    for entry in study.experiments:
        bounds = len(signature(harness.load(study, entry).verdict).parameters) - 1
        assert bounds == (entry.other is not None), entry.name
        if entry.claim or entry.quote:
            assert re.search("could fail.*could hold", entry.why), entry.name


NUMBERED = {
    "daniely2020": "Theorem 2, Theorem 3, Corollary 4, Lemma 5, Lemma 6, Lemma 7, Lemma 8, "
    "Lemma 9, Lemma 10, Lemma 11, Lemma 12, Theorem 13, Lemma 14, Lemma 15, Lemma 16",
    "fiat2019": ", ".join(
        f"[L] {kind} {i}"
        for kind, count in (("Lemma", 11), ("Theorem", 7), ("Figure", 4))
        for i in range(1, count + 1)
    )
    + ", [L] Corollary 1, [L] Table 1, [C] Theorem 1, [C] Lemma 1, [C] Figure 1, [C] Figure 2, "
    "[C] Figure 3, [C] Figure 4, [C] Figure 5, [C] Algorithm 1, [C] Section 5",
    "panigrahi2020": "K.1, K.2, 4.1, 4.2, 4.3, 4.4, 4.5, 4.6, 4.7, 4.8, 3.1, 3.2, 3.3, L.1, L.2, "
    "L.3, F.1, F.2, F.3, F.4, F.5, F.7.1, F.7.2, 6.4, F.8, F.9, F.10, F.10.1, F.11, F.12, G.1, "
    "F.6, F.7, G.2, J.3, J.7, K.3, K.5, K.6, M.5, M.6, M.7, M.8, N.1, N.2, N.3, N.4, C.1, C.11, "
    "G.3, H.1, I.1, I.2, I.3, I.4, I.4.1, I.4.2, J.1, J.2, J.4, J.5, J.6, J.8, M.1, M.2, M.3, "
    "M.4, M.9, M.10, M.11, E.1, K.4, K.2.1, K.4.1, F.2.1, K.3.1, K.6.1",
}


@pytest.mark.parametrize("name", NUMBERED)
def test_every_statement_has_a_place_and_is_judged(name: str) -> None:
    study = catalogue.study(name)
    numbers = " ".join(each.where for each in study.statements)
    for number in NUMBERED[name].split(", "):
        assert re.search(rf"{re.escape(number)}\b", numbers), number
    for each in study.statements:
        assert each.ours or each.experiments
        assert each.claims or each.experiments or each.checked or each.agrees, each.where
        assert set(each.experiments) <= {entry.name for entry in study.experiments}
        assert set(each.claims) <= {claim.name for claim in study.claims}


def test_every_check_holds() -> None:
    """Of the statements that are checked when a page is written, and of the tests named there."""
    kept = page.Kept(catalogue.study("fiat2019"))
    assert kept.module is not None
    checked = [each for each in kept.study.statements if each.checked]
    assert checked
    for each in checked:
        words = kept.module.agrees(each, kept)
        first, _, of = words.partition(" of ")
        assert of.startswith(f"{first} "), words
    tests = "".join(file.read_text("utf-8") for file in Path(__file__).parents[1].rglob("*.py"))
    for study in STUDIES:
        text = (catalogue.HOME / study.name / "study.toml").read_text("utf-8")
        for name in re.findall(r"`(test_\w+)`", text):
            assert f"def {name}(" in tests, name
