"""Studies measured at sizes: experiments run on small ones, and the kept tables are of all."""

from importlib import import_module
from pathlib import Path

import pytest

from benchmarks import catalogue, harness, sizes
from benchmarks.catalogue import Entry, Study

STUDIES = [catalogue.study(name) for name in ("infinite_width", "optimizers")]
EXPERIMENTS = pytest.mark.parametrize(
    ("study", "entry"),
    [
        pytest.param(study, entry, id=f"{study.name}-{entry.name}")
        for study in STUDIES
        for entry in study.experiments
    ],
)


@pytest.mark.slow
@EXPERIMENTS
def test_quick_version(study: Study, entry: Entry, tmp_path: Path) -> None:
    frame = harness.run(study, entry, quick=True, folder=tmp_path)
    assert len(frame)
    assert study.picture(entry, tmp_path).is_file()
    text = harness.findings(entry, harness.load(study, entry), frame)
    assert "Sizes: " in text
    assert study.name == "optimizers" or "%" in text or "times" in text


@EXPERIMENTS
def test_kept_table_is_of_the_default_sizes(study: Study, entry: Entry) -> None:
    attrs = harness.read(study, entry).attrs
    module = import_module(f"benchmarks.{study.name}.{entry.name}")
    assert attrs["sizes"] == sizes.in_words(module.WHOLE)
    assert attrs["done"] == attrs["settings"] == len(module.settings(module.WHOLE))


@pytest.mark.parametrize("study", STUDIES, ids=lambda study: study.name)
def test_every_experiment_is_listed(study: Study) -> None:
    files = (catalogue.HOME / study.name).glob("*.py")
    assert {entry.name for entry in study.experiments} == {
        file.stem for file in files if "EXPERIMENT = " in file.read_text("utf-8")
    }
