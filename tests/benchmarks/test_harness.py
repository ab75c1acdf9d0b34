"""Galleries: what an experiment keeps, what its page says, and what its commands do."""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from typer.testing import CliRunner, Result

from implicit_bias.datasets.files import DataError
from implicit_bias.report.gallery import (
    Experiment,
    Gallery,
    common_legend,
    markdown_table,
    wrapped,
)

PNG = b"\x89PNG"


def measure(quick: bool) -> pd.DataFrame:
    n = np.arange(1, 4 if quick else 11)
    return pd.DataFrame({"n": n, "square": n**2})


def draw(frame: pd.DataFrame) -> Figure:
    figure = Figure()
    figure.subplots().plot(frame["n"], frame["square"])
    return figure


SQUARES = Experiment(
    name="square_numbers",
    title="Squares",
    claim="They grow.",
    measure=measure,
    draw=draw,
    found=lambda frame: f"The largest is {frame['square'].max()}.\n\n- There are {len(frame)}.",
    tabulate=lambda frame: frame.tail(1).astype(str),
    alt="Squares against n",
)
CUBES = replace(SQUARES, name="cubes", title="Cubes")


@pytest.fixture
def gallery(tmp_path: Path) -> Gallery:
    script = tmp_path / "benchmarks" / "euclid" / "number_experiments.py"
    return Gallery(script=script, head="# Numbers", experiments=(SQUARES, CUBES))


def invoke(gallery: Gallery, *arguments: str) -> Result:
    return CliRunner().invoke(gallery.app(), arguments, catch_exceptions=False)


def kept(folder: Path) -> list[str]:
    return sorted(
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()
    )


def test_command_keeps_table_and_picture_and_prints_what_was_found(gallery: Gallery) -> None:
    result = invoke(gallery, "square-numbers")
    assert result.exit_code == 0
    for word in ("They grow.", "The largest is 100.", "There are 10.", "square_numbers.parquet"):
        assert word in result.output
    assert kept(gallery.home) == [
        "pictures/euclid/square_numbers.png",
        "results/euclid/square_numbers.parquet",
    ]
    assert gallery.picture(SQUARES, gallery.home).read_bytes().startswith(PNG)
    frame = gallery.read(SQUARES, gallery.home)
    pd.testing.assert_frame_equal(frame, measure(False))
    assert frame.attrs["cpu_seconds"] >= 0


def test_quick_version_goes_to_a_temporary_folder(
    gallery: Gallery, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    result = invoke(gallery, "cubes", "--quick")
    assert "The largest is 9." in result.output
    assert not gallery.home.exists()
    (folder,) = temporary.iterdir()
    assert folder.name.startswith("euclid-")
    assert kept(folder) == ["pictures/euclid/cubes.png", "results/euclid/cubes.parquet"]
    assert len(gallery.read(CUBES, folder)) == 3


def test_a_folder_of_ones_own(gallery: Gallery, tmp_path: Path) -> None:
    invoke(gallery, "cubes", "--quick", "--folder", str(tmp_path / "mine"))
    assert len(gallery.read(CUBES, tmp_path / "mine")) == 3
    assert not gallery.home.exists()


def test_nothing_is_kept_where_measuring_fails(gallery: Gallery) -> None:
    def fail(quick: bool) -> pd.DataFrame:
        raise DataError("numbers.npz is missing: count to ten")

    broken = replace(gallery, experiments=(replace(SQUARES, measure=fail),))
    result = invoke(broken, "square-numbers")
    assert result.exit_code == 1
    assert "error: numbers.npz is missing: count to ten" in result.output
    assert not gallery.home.exists()


def test_an_earlier_table_outlives_a_failure(gallery: Gallery) -> None:
    gallery.run(SQUARES, quick=False, folder=gallery.home)

    def fail(quick: bool) -> pd.DataFrame:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gallery.run(replace(SQUARES, measure=fail), quick=False, folder=gallery.home)
    assert len(gallery.read(SQUARES, gallery.home)) == 10


def test_a_missing_table_names_the_command_that_measures_it(gallery: Gallery) -> None:
    gallery.run(CUBES, quick=True, folder=gallery.home)
    before = kept(gallery.home)
    result = invoke(gallery, "page")
    assert result.exit_code == 1
    assert "square_numbers.parquet is missing" in result.output
    command = "python benchmarks/euclid/number_experiments.py square-numbers --folder"
    assert command in result.output
    assert kept(gallery.home) == before


def test_page_is_made_of_the_tables(gallery: Gallery) -> None:
    """Also where the picture is old, and of a table without seconds, kept by other means."""
    gallery.run(SQUARES, quick=False, folder=gallery.home)
    table = gallery.table(CUBES, gallery.home)
    measure(True).to_parquet(table)
    frame = gallery.read(SQUARES, gallery.home)
    frame.attrs["cpu_seconds"] = 12.3
    frame.to_parquet(gallery.table(SQUARES, gallery.home))
    gallery.picture(SQUARES, gallery.home).write_bytes(b"old")

    result = invoke(gallery, "page")
    readme = gallery.home / "euclid" / "README.md"
    assert result.output.strip() == str(readme)
    text = readme.read_text("utf-8")
    assert text == gallery.page(gallery.home)
    squares = """\
# Numbers

## Squares

**The paper.** They grow.

**Measured.** The largest is 100.

- There are 10.

| n | square |
| --- | --- |
| 10 | 100 |

![Squares against n](../pictures/euclid/square_numbers.png)

```sh
python benchmarks/euclid/number_experiments.py square-numbers  # 12 s on one core
```

## Cubes
"""
    assert text.startswith(squares)
    assert text.endswith("```sh\npython benchmarks/euclid/number_experiments.py cubes\n```\n")
    for experiment in gallery.experiments:
        link = f"../pictures/euclid/{experiment.name}.png"
        assert link in text
        assert (readme.parent / link).read_bytes().startswith(PNG)


def test_help_lists_every_experiment(gallery: Gallery) -> None:
    result = invoke(gallery, "--help")
    for word in ("Numbers. Each command", "square-numbers", "Squares.", "cubes", "Cubes.", "page"):
        assert word in result.output


def test_lines_are_wrapped_and_list_items_indented() -> None:
    words = " ".join(["word"] * 30)
    text = wrapped(f"{words}\n\n- {words}")
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    assert [line[:4] for line in lines] == ["word", "word", "", "- wo", "  wo"]
    assert text.replace("\n  ", " ").split() == f"{words} - {words}".split()


@pytest.mark.parametrize("marker", ["-", "+", "*", ">", "1.", "2)"])
def test_no_line_becomes_a_list_by_wrapping(marker: str) -> None:
    """As "a - b" would, broken before the minus."""
    for length in range(90, 101):
        text = f"{'x' * length} y {marker} {'z' * 20}"
        broken = wrapped(text).split("\n")
        assert len(broken) == 2
        assert not broken[1].startswith(marker)
        assert " ".join(broken) == text


def test_markdown_table() -> None:
    cells = pd.DataFrame({"k": ["3"], "": ["2.0 %"]})
    assert markdown_table(cells) == "| k |  |\n| --- | --- |\n| 3 | 2.0 % |"


def test_common_legend_has_every_label_once() -> None:
    figure = Figure(layout="constrained")
    panels = figure.subplots(1, 2)
    for ax, labels in zip(panels, ("ab", "bc"), strict=True):
        for label in labels:
            ax.plot([0, 1], label=label)
    common_legend(figure, panels, 3)
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["a", "b", "c"]
