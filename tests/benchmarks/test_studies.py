"""Every study: its page has the numbers of the kept tables, and it has a quick version."""

import re
from pathlib import Path

import pytest

from benchmarks import bench, fill
from benchmarks.__main__ import main
from pages import check_page

STUDIES = bench.studies()
each_study = pytest.mark.parametrize("name", STUDIES)


@pytest.mark.slow
@each_study
def test_the_page_is_of_the_kept_tables(name: str) -> None:
    """Else: python -m benchmarks STUDY page."""
    kept = (bench.HOME / name / "README.md").read_text("utf-8")
    check_page(fill.page(bench.study(name)), kept)


@each_study
def test_links_lead_to_files(name: str) -> None:
    folder = bench.HOME / name
    for link in re.findall(r"\]\(([^)#]+)[^)]*\)", (folder / "README.md").read_text("utf-8")):
        assert link.startswith("http") or (folder / link).exists(), link


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
