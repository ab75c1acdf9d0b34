"""The harness: what an experiment keeps, what its page says, and what the command line does."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from benchmarks import catalogue, harness, page
from benchmarks.catalogue import Claim, Entry, Statement, Study
from benchmarks.drawing import common_legend
from benchmarks.former import main
from benchmarks.harness import Experiment, Judged, Misuse, Options, Run, Verdict, option, whole
from benchmarks.words import cells, decisive, markdown_table, wrapped
from implicit_bias.datasets.files import DataError
from system import python

PNG = b"\x89PNG"


# --- a study of numbers ------------------------------------------------------------------------


def measure(quick: bool) -> pd.DataFrame:
    n = np.arange(1, 4 if quick else 11)
    return pd.DataFrame({"n": n, "square": n**2})


def draw(frame: pd.DataFrame) -> Figure:
    figure = Figure()
    figure.subplots().plot(frame["n"], frame["square"])
    return figure


SQUARES = Experiment(
    measure=whole(measure),
    draw=draw,
    found=lambda frame: f"The largest is {frame['square'].max()}.\n\n- There are {len(frame)}.",
    verdict=lambda frame, by=0: Verdict.of((frame["square"].diff().iloc[1:] > by).all()),
    tabulate=lambda frame: frame.tail(1).astype(str),
)


@dataclass(frozen=True, kw_only=True)
class CountOptions(Options):
    """How far to count."""

    most: int = option(4, "count up to this")
    words: tuple[str, ...] = option((), "say these")
    stop_at: int | None = option(None, "be interrupted here")


def count(run: Run[CountOptions]) -> Iterator[pd.DataFrame]:
    """Count on from what is kept; a row at a time."""
    if run.options.most < 0:
        raise Misuse("--most is at least 0")

    def row(n: int) -> list[dict[str, int]]:
        if n == run.options.stop_at:
            raise KeyboardInterrupt
        run.say(f"{n} {' '.join(run.options.words)}")
        return [{"square": n**2}]

    return harness.growing(run, [{"n": n} for n in range(1, run.options.most + 1)], row)


COUNT = replace(
    SQUARES,
    measure=count,
    options=CountOptions,
    judge=lambda frame: {"wax": Judged(verdict=Verdict.STANDS, result=f"{len(frame)} wax.")},
)
TEXTS = """
head = "# Numbers\\n\\nOf Euclid."
found = "They are {{least:.1f}} or more. {{cubes}} {{count}}: {{verdicts}}."
short = "At {{least}}."
findings = "findings"

[[experiments]]
name = "square_numbers"
title = "Squares"
cost = "seconds"
claim = "They grow."
how = "By counting from {{FIRST}}."
rule = "It stands if they do."
why = "They could shrink."
other = [3, "steps of 3"]
alt = "Squares against n"

[[experiments]]
name = "cubes"
title = "Cubes"
cost = "a minute"
claim = "They grow."
quote = "“They wax.” (book IX)"
rule = "It stands if they do."

[[statements]]
where = "Book VII"
says = "|n| > 0"
checked = true
experiments = ["cubes"]

[[sections]]
heading = "Slips"
columns = ["slip"]
rows = [["{{least}} is one"]]
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make it the only study that there is, of a folder of its own."""
    folder = tmp_path / "benchmarks"
    (folder / "euclid").mkdir(parents=True)
    (folder / "euclid" / "study.toml").write_text(TEXTS, encoding="utf-8")
    for module in (catalogue, harness):
        monkeypatch.setattr(module, "HOME", folder)
    modules: dict[str, dict[str, object]] = {
        "square_numbers": {"EXPERIMENT": SQUARES, "FIRST": 1},
        "cubes": {"EXPERIMENT": COUNT, "__doc__": "Cubes.\n\nBy adding.\n\nSource: Euclid."},
        "findings": {"words": lambda kept: {"least": 1}, "agrees": lambda each, kept: each.where},
    }
    for name, content in modules.items():
        module = ModuleType(name)
        module.__dict__.update(content)
        monkeypatch.setitem(sys.modules, f"benchmarks.euclid.{name}", module)
    return folder


@pytest.fixture
def study(home: Path) -> Study:
    return catalogue.study("euclid")


def named(name: str) -> tuple[Study, Entry]:
    study = catalogue.study("euclid")
    return study, study.entry(name)


def table(name: str, folder: Path) -> pd.DataFrame:
    return harness.read(*named(name), folder)


def put(monkeypatch: pytest.MonkeyPatch, experiment: Experiment) -> None:
    monkeypatch.setattr(sys.modules["benchmarks.euclid.square_numbers"], "EXPERIMENT", experiment)


def kept(folder: Path) -> list[str]:
    return sorted(
        file.relative_to(folder).as_posix()
        for file in folder.rglob("*")
        if file.is_file() and file.name != "study.toml"
    )


Shown = Callable[..., tuple[int, str]]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Shown:
    def call(*arguments: str) -> tuple[int, str]:
        try:
            status = main(arguments)
        except SystemExit as exit:
            status = int(str(exit.code))
        shown = capsys.readouterr()
        return status, shown.out + shown.err

    return call


# --- measuring ---------------------------------------------------------------------------------


def test_command_keeps_table_and_picture_and_says_what_was_found(home: Path, call: Shown) -> None:
    status, output = call("euclid", "square-numbers")
    assert status == 0
    for word in (
        "They grow.",
        "By counting from 1.",
        "The largest is 100.",
        "There are 10.",
        "Stands; by steps of 3: does not stand. It stands if they do. They could shrink.",
        "square_numbers.parquet",
    ):
        assert word in output
    assert kept(home) == [
        "pictures/euclid/square_numbers.png",
        "results/euclid/square_numbers.parquet",
    ]
    assert (home / kept(home)[0]).read_bytes().startswith(PNG)
    frame = table("square_numbers", home)
    pd.testing.assert_frame_equal(frame, measure(False))
    assert frame.attrs["cpu_seconds"] >= 0


def test_quick_version_goes_to_a_temporary_folder(
    home: Path, call: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    _, output = call("euclid", "square_numbers", "--quick")
    assert "The largest is 9." in output
    assert not kept(home)
    (folder,) = temporary.iterdir()
    assert folder.name.startswith("euclid-")
    assert len(table("square_numbers", folder)) == 3


def test_a_folder_of_ones_own(home: Path, call: Shown, tmp_path: Path) -> None:
    call("euclid", "cubes", "--folder", str(tmp_path / "mine"))
    assert len(table("cubes", tmp_path / "mine")) == 4
    assert not kept(home)


def test_a_run_that_is_stopped_goes_on_from_what_is_kept(home: Path, call: Shown) -> None:
    status, output = call("euclid", "cubes", "--stop-at", "3", "--words", "so", "far")
    assert status == 130
    assert "2 so far" in output
    assert "interrupted" in output
    assert table("cubes", home)["n"].tolist() == [1, 2]
    status, output = call("euclid", "cubes", "--most", "5")
    assert status == 0
    assert output.split()[:9:3] == ["3", "4", "5"]
    assert table("cubes", home)["n"].tolist() == [1, 2, 3, 4, 5]
    assert call("euclid", "cubes", "--most", "9", "--minutes", "1e-9")[0] == 0
    assert table("cubes", home)["n"].max() == 6
    assert call("euclid", "cubes", "--most", "-1")[0] == 2


def test_rows_that_are_not_enough_are_measured_again() -> None:
    kept = pd.DataFrame({"n": [1, 1, 2], "step": [1, 2, 1], "seed": [0, 0, 0]})
    run = Run(quick=False, options=Options(), kept=kept, file=Path(), say=lambda line: None)
    *_, table = harness.growing(
        run,
        [{"n": n} for n in (1, 2, 3)],
        lambda n: {"step": [1, 2], "seed": n},
        enough=lambda rows, of: rows["step"].max() == 2,
    )
    assert table.to_dict("list") == {
        "n": [1, 1, 2, 2, 3, 3],
        "step": [1, 2] * 3,
        "seed": [0, 0, 2, 2, 3, 3],
    }


def test_nothing_is_kept_where_measuring_fails(
    home: Path, call: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(quick: bool) -> pd.DataFrame:
        raise DataError("numbers.npz is missing: count to ten")

    put(monkeypatch, replace(SQUARES, measure=whole(fail)))
    status, output = call("euclid", "square-numbers")
    assert status == 1
    assert "error: numbers.npz is missing" in output
    assert not kept(home)


def test_an_earlier_table_outlives_a_failure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    harness.run(*named("square_numbers"), folder=home)

    def fail(quick: bool) -> pd.DataFrame:
        raise KeyboardInterrupt

    put(monkeypatch, replace(SQUARES, measure=whole(fail)))
    with pytest.raises(KeyboardInterrupt):
        harness.run(*named("square_numbers"), folder=home)
    assert len(table("square_numbers", home)) == 10


# --- listing -----------------------------------------------------------------------------------


def test_listing_names_every_experiment(home: Path, call: Shown) -> None:
    for arguments in ((), ("euclid",)):
        status, output = call(*arguments)
        assert status == 0
        for word in ("euclid: Numbers", "square-numbers", "Squares (seconds)", "Cubes", "page"):
            assert word in output


@pytest.mark.parametrize(
    ("arguments", "near"),
    [(("euclit",), "euclid"), (("euclid", "cube"), "cubes"), (("euclid", "xyz"), "square-numbers")],
)
def test_unknown_names_say_the_nearest(
    home: Path, call: Shown, arguments: tuple[str, ...], near: str
) -> None:
    status, output = call(*arguments)
    assert status == 2
    assert near in output


def test_listing_the_real_studies_imports_no_torch() -> None:
    code = (
        "import sys; from benchmarks.former import main; main([]);"
        "sys.exit(any(name in sys.modules for name in ('torch', 'pandas', 'matplotlib')))"
    )
    listed = python(code)
    for name in catalogue.studies():
        assert f"{name}: {catalogue.study(name).title}" in listed


def test_help_lists_the_options_of_an_experiment(home: Path, call: Shown) -> None:
    status, output = call("euclid", "cubes", "--help")
    assert status == 0
    for word in ("Cubes", "--quick", "--folder", "--most", "count up to this", "--stop-at"):
        assert word in output


# --- pages -------------------------------------------------------------------------------------


def test_a_missing_table_names_the_command_that_measures_it(home: Path, call: Shown) -> None:
    harness.run(*named("cubes"), folder=home)
    before = kept(home)
    status, output = call("euclid", "page")
    assert status == 1
    assert "square_numbers.parquet is missing" in output
    assert "python -m benchmarks euclid square-numbers --folder" in output
    assert kept(home) == before


def test_pages_are_made_of_the_tables(home: Path, study: Study, call: Shown) -> None:
    """Also where the picture is old, and of a table without seconds, kept by other means."""
    squares, cubes = study.experiments
    harness.run(study, squares, folder=home)
    measure(True).to_parquet(study.table(cubes, home))
    frame = harness.read(study, squares, home)
    frame.attrs["cpu_seconds"] = 12.3
    frame.to_parquet(study.table(squares, home))
    study.picture(squares, home).write_bytes(b"old")

    _, output = call("euclid", "page")
    files = readme, details, short = [
        home / "euclid" / name for name in ("README.md", "DETAILS.md", "SUMMARY.md")
    ]
    assert output.split() == [str(file) for file in files]
    said = readme.read_text("utf-8")
    assert said.startswith("# Numbers\n\nOf Euclid.\n\n## What we found\n\nThey are ")
    assert "\n\nThey are 1.0 or more. There are 3. 2: 2 stand.\n\n" in said
    for row in (
        "| [Squares](DETAILS.md#square_numbers) | They grow. | There are 10. "
        "| **stands**; by steps of 3: does not stand |",
        "| [Cubes](DETAILS.md#cubes) | “They wax.” (book IX) | There are 3. | **stands** |",
    ):
        assert row in said
    assert said.index("wax") < said.index("## What this rests on") < said.index("They grow")
    assert short.read_text("utf-8") == (
        "# Numbers: in short\n\nAt 1.\n\n| claim | what came out | verdict |\n| --- | --- | --- |\n"
        "| [They grow.](DETAILS.md#cubes) | There are 3. | **stands** |\n"
    )
    text = details.read_text("utf-8")
    for part in (
        "## Cubes\n\n**The paper.** “They wax.” (book IX)\n\n**Claim.** They grow.\n\n",
        "| Book VII: \\|n\\| > 0 |  | Book VII; stands ([Cubes](#cubes)) |",
        "## Slips\n\n| slip |\n| --- |\n| 1 is one |",
        """\
<a id="square_numbers"></a>

## Squares

**Claim.** They grow.

**How.** By counting from 1.

**Measured.** The largest is 100.

- There are 10.

**Verdict.** Stands; by steps of 3: does not stand. It stands if they do. They could shrink.

| n | square |
| --- | --- |
| 10 | 100 |

![Squares against n](../pictures/euclid/square_numbers.png)

```sh
python -m benchmarks euclid square-numbers  # 12 s on one core
```
""",
        "**How.** By adding.",
        "```sh\npython -m benchmarks euclid cubes  # a minute\n```\n",
    ):
        assert part in text
    assert study.picture(squares, home).read_bytes().startswith(PNG)


def test_a_claim_is_judged_by_the_table_of_its_experiment(home: Path, study: Study) -> None:
    claim = Claim(
        name="wax",
        claim="Cubes wax",
        where="book X",
        rule="All do.",
        experiment="cubes",
        quote="“Yes”",
    )
    says = Statement(where="Book X", says="n^3", ours="", claims=("wax",))
    study = replace(study, claims=(claim,), statements=(says,), further="At {{least}}.")
    for entry in study.experiments:
        harness.run(study, entry, folder=home, say=lambda _: None)
    readme, details, _ = page.pages(study, home).values()
    row = "| [book X](DETAILS.md#wax) | “Yes” | 4 wax. | **stands** |"
    assert row in readme
    assert readme.index(row) < readme.index("At 1.")
    told = details[details.index("## Cubes") :]
    assert '<a id="wax"></a>\n\n### Cubes wax\n\n**Verdict.** Stands. 4 wax.' in told
    assert "**Rule.** All do. In the paper: book X." in told
    assert "stands ([book X](#wax))" in details[: details.index("## Squares")]


def test_a_verdict_is_whole_in_part_or_neither() -> None:
    assert Verdict.of(True) is Verdict.of(True, False) is Verdict.STANDS
    assert Verdict.of(False, True) is Verdict.IN_PART
    assert Verdict.of(False) is Verdict.FALLS


def test_a_limit_that_no_run_reaches_is_not_tested() -> None:
    yes, some, no = (pd.Series(each) for each in ([True, True], [True, False], [False, False]))
    found = [Verdict.limit(there, yes) for there in (yes, some, no)]
    assert found == [Verdict.STANDS, Verdict.IN_PART, Verdict.UNREACHED]
    assert Verdict.limit(no, no) is Verdict.FALLS
    both = Verdict.counted([Verdict.UNREACHED, Verdict.FALLS, Verdict.UNTESTED])
    assert both == "1 does not stand, 2 are not tested"
    assert Verdict.UNTESTED.before(": it is illegible") == "not tested"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 0.5 of X. And more.", "It is 0.5 of X."),
        ("N = 5.\n\n- It is. It was.\n- More.", "It is."),
        ("It is. At N = 5.\n\n- More.", "It is."),
        ("N = 5. **Adam** is first. **It is. It was.**", "It is. It was."),
    ],
)
def test_what_came_out_is_emphasised_or_said_first(text: str, expected: str) -> None:
    assert decisive(text) == expected


def test_cells_are_texts_with_the_values_of_their_row() -> None:
    rows = pd.DataFrame({"a": [0.5, 0.25], "b": [True, False], "c": [1.5, np.nan]})
    found = cells(rows, {"share": "{{a:%}}, {{a:%1}}", "b": "{{b}}", "c": "{{c:.1f}}"})
    assert found["share"].str.replace("\xa0", " ").tolist() == ["50 %, 50.0 %", "25 %, 25.0 %"]
    assert found[["b", "c"]].to_numpy().tolist() == [["yes", "1.5"], ["no", "-"]]


def test_lines_are_wrapped_and_list_items_indented() -> None:
    words = " ".join(["word"] * 30)
    text = wrapped(f"{words}\n\n- {words}")
    lines = text.split("\n")
    assert max(map(len, lines)) <= 100
    assert [line[:4] for line in lines] == ["word", "word", "", "- wo", "  wo"]
    assert text.replace("\n  ", " ").split() == f"{words} - {words}".split()


def test_lines_of_tables_are_not_wrapped() -> None:
    line = f"| {'word ' * 40}|"
    assert wrapped(f"A table:\n\n{line}") == f"A table:\n\n{line}"


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


def test_rows_of_times_say_where_they_were_measured(home: Path) -> None:
    before = pd.DataFrame({"n": [1], "square": [1], "commit": ["a"], "kernel": ["b"]})
    study, cubes = named("cubes")
    file = study.table(cubes, home)
    file.parent.mkdir(parents=True)
    before.to_parquet(file)
    frame = harness.run(replace(study, timed=True), cubes, folder=home, say=lambda _: None)
    assert frame["n"].tolist() == [1, 2, 3, 4]
    assert frame["commit"].tolist() == ["a", *[harness.commit()] * 3]
    assert frame["kernel"].tolist() == ["b", *[harness.kernel()] * 3]
    assert "1 at commit a, kernel b" in harness.measured_at(frame)
    assert "several" not in harness.measured_at(frame[1:])
    assert "torch" in harness.kernel()
