"""Every study: its page has the numbers of the kept tables, and it has a quick version."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import bench, fill
from benchmarks.__main__ import main
from benchmarks.effects import Effect
from pages import check_page

STUDIES = bench.studies()
# Numbers of the pages that these replaced, so that no number changed unseen.
FORMER = Path(__file__).parent / "former_numbers"
# Words of a page outside tables, code and comments.
LONGEST_PAGE = 700
each_study = pytest.mark.parametrize("name", STUDIES)


def test_the_index_links_every_study() -> None:
    text = (bench.HOME / "README.md").read_text("utf-8")
    assert set(re.findall(r"\((\w+)/README\.md\)", text)) == set(STUDIES)


@each_study
def test_the_page_is_of_the_kept_tables(name: str) -> None:
    """Else: python -m benchmarks STUDY page."""
    kept = (bench.HOME / name / "README.md").read_text("utf-8")
    check_page(fill.page(bench.study(name)), kept)


@each_study
def test_the_page_is_short(name: str) -> None:
    text = (bench.HOME / name / "README.md").read_text("utf-8")
    text = re.sub(r"```.*?```|<!--.*?-->|^\|.*?$|!?\[|\]\([^)]*\)", " ", text, flags=re.S | re.M)
    assert len(text.split()) <= LONGEST_PAGE


@each_study
def test_each_picture_is_of_an_experiment_and_on_the_page(name: str) -> None:
    study = bench.study(name)
    text = (bench.HOME / name / "README.md").read_text("utf-8")
    drawn = {each.name for each in study.experiments.values() if hasattr(each.module, "draw")}
    kept = {file.stem for file in (bench.HOME / "pictures" / name).glob("*.png")}
    assert kept == drawn
    shown = set(re.findall(rf"\]\(\.\./pictures/{name}/(\w+)\.png\)", text))
    assert shown <= drawn


@each_study
def test_links_lead_to_files(name: str) -> None:
    folder = bench.HOME / name
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (folder / "README.md").read_text("utf-8")):
        assert link.startswith("http") or (folder / link).exists(), link


@each_study
def test_numbers_of_the_former_pages_are_found_again(name: str) -> None:
    """To three digits; what differs has its reason beside it."""
    file = FORMER / f"{name}.json"
    if not file.is_file():
        pytest.skip("no former page")
    numbers = fill.Numbers(bench.study(name))
    for place, entry in json.loads(file.read_text("utf-8")).items():
        found = numbers[tuple(place.split("."))]
        if isinstance(found, Effect):
            found = found.mean
        if "difference" not in entry:
            assert found == pytest.approx(entry["value"], rel=5e-3, abs=1e-12), place


@pytest.mark.slow
@each_study
def test_quick_version(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, pictures and page are made of small sizes; what is kept is not measured again."""
    study = bench.study(name)
    quickly = [name, "--quick", "--folder", str(tmp_path)]
    assert main(quickly) == 0
    assert "{{" not in (tmp_path / name / "README.md").read_text("utf-8")
    for experiment in study.experiments.values():
        if experiment.is_measured:
            assert len(experiment.read(tmp_path))
        assert experiment.picture(tmp_path).is_file() == hasattr(experiment.module, "draw")

    def measured_again(part: bench.Part) -> None:
        pytest.fail(f"measured again: {part.setting}")

    monkeypatch.setattr(bench.Part, "measured", measured_again)
    assert main(quickly) == 0
