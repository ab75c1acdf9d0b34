"""Grids: the product of axes, keys of cells, and files that are refused."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from implicit_bias.runs import grid as grid_module
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import WITHOUT_EFFECT, Grid, cell_key

# Another value for each field than the default, or than what BASE says.
BASE = RunConfig(dataset="mnist", train_size=500)
OTHER: dict[str, Any] = {
    "dataset": "fashion-mnist",
    "positive": (0, 1),
    "negative": (7, 8),
    "train_size": 501,
    "models": ("svm-rc",),
    "units": 21,
    "hyperplanes": 2,
    "threshold": "random",
    "seed": 2,
    "split_seed": 2,
    "protocol": "lippl2022",
    "C": 1.0,
    "on_failure": "drop",
    "soft_C": 2.0,
    "steps": 3201,
    "batch_size": None,
    "learning_rate": 0.05,
    "momentum": 0.0,
    "solver": "clarabel",
    "tol": 1e-8,
    "device": "cuda",
}
# Fields that only a file of one's own has.
OWN = RunConfig(data=__file__, target="a")
OF_OWN_DATA = ("data", "target", "encode", "missing", "ignore", "id", "standardize")
OTHER |= {"classes": (1, 2, 3), "optimizer": "adam", "class_weight": ("balanced",), "id": ("a",)}
OTHER |= {"data": grid_module.__file__, "target": "b", "standardize": False}
OTHER |= {"encode": True, "missing": "drop", "ignore": ("id",)}
AXES = {
    "units": [3, 4, 5],
    "seed": [1, 2],
    "momentum": 0.9,
    "threshold": ["median", "zero"],
    "models": [["svm-gln"], ["svm-gln", "svm-l2"]],
    "tol": 1e-7,
}


def test_the_last_axis_runs_fastest() -> None:
    cells = Grid.from_mapping({"units": [3, 4], "seed": [1, 2], "steps": 10}).cells
    assert [(cell.units, cell.seed) for cell in cells] == [(3, 1), (3, 2), (4, 1), (4, 2)]
    assert {cell.steps for cell in cells} == {10}
    assert cells[0] == RunConfig(units=3, seed=1, steps=10)


KEYS = set(Grid.from_mapping(AXES).by_key)


@settings(max_examples=25)
@given(st.permutations(list(AXES)))
def test_keys_do_not_depend_on_the_order_of_axes(order: list[str]) -> None:
    keys = Grid.from_mapping({name: AXES[name] for name in order}).by_key
    assert set(keys) == KEYS
    assert len(keys) == 3 * 2**3


@pytest.mark.parametrize("name", [field.name for field in fields(RunConfig)])
def test_the_key_changes_with_each_field_that_matters(name: str) -> None:
    base = OWN if name in OF_OWN_DATA else BASE
    other = replace(base, **{name: OTHER[name]})
    assert other != base
    assert (cell_key(other) == cell_key(base)) == (name in WITHOUT_EFFECT)


def test_a_file_counts_by_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for file in (first, second):
        file.write_text("x,label\n1,0\n")
    keys = [cell_key(RunConfig(data=str(file), target="label")) for file in (first, second)]
    assert keys[0] == keys[1]
    second.write_text("x,label\n2,0\n3,1\n")
    assert cell_key(RunConfig(data=str(second), target="label")) != keys[0]


def test_equal_cells_have_one_key() -> None:
    whole = replace(BASE, momentum=0, models=("svm-l2", "svm-gln"))
    decimal = replace(BASE, momentum=0.0, models=("svm-gln", "svm-l2"))
    assert cell_key(whole) == cell_key(decimal)
    assert cell_key(RunConfig.from_metadata(BASE.metadata())) == cell_key(BASE)


@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        ("toml", 'units = [3, 4]\nC = inf\ntol = 1e-6\nmodels = ["svm-gln"]\nbatch_size = 0\n'),
        ("yaml", "units: [3, 4]\nC: inf\ntol: 1e-6\nmodels: [svm-gln]\nbatch_size: null\n"),
    ],
)
def test_files(suffix: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / f"grid.{suffix}"
    file.write_text(text)
    expected = RunConfig(units=4, C=np.inf, tol=1e-6, models=("svm-gln",), batch_size=None)
    assert Grid.read(file).cells[1] == expected
    file.write_text(text, encoding="utf-8-sig")  # with the mark that some editors put first
    assert Grid.read(file).cells[1] == expected


def test_lists_of_lists_are_axes_of_lists() -> None:
    facts = {"models": [["svm-gln"], ["svm-l2"]], "positive": [0, 1], "negative": [7]}
    cells = Grid.from_mapping(facts).cells
    assert [cell.models for cell in cells] == [("svm-gln",), ("svm-l2",)]
    assert cells[0].positive == (0, 1)


def test_labels_name_what_varies() -> None:
    grid = Grid.from_mapping({"units": [3, 4], "models": [["svm-gln", "svm-l2"], ["svm-rc"]]})
    assert grid.label(grid.cells[0]) == "units 3, models svm-gln+svm-l2"
    assert Grid({}).label(RunConfig()) == "the only one"


# Each line stands for nine times as many values as the line before it.
BOMB = "\n".join(
    f"k{i}: &k{i} [{', '.join(['1' if i == 0 else f'*k{i - 1}'] * 9)}]" for i in range(12)
)


# Files of TOML, and what is said of them beside their name.
TOML = [
    ("unit = 3", "unknown key 'unit': .*did you mean units"),
    ("frobnicate = 3", "unknown key 'frobnicate': the keys are dataset, "),
    ("units = []", "units has no value"),
    ("units = [3, 3]", "units has a value twice"),
    ("momentum = [0, 0.0]", "momentum has a value twice"),
    ("units = ['many']", "units cannot be 'many': its type is int"),
    ("units = 2.5", "units cannot be 2.5"),
    ("units = true", "units cannot be True"),
    ("tol = nan", "tol cannot be nan"),
    ("tol = 'small'", "tol cannot be 'small'"),
    ("models = ['svm-xl']", "models must be one of"),
    ("models = 'svm-gln'", "models cannot be 'svm-gln': write a list"),
    ("models = [[]]", "models must name at least one"),
    (
        "models = [['svm-gln', 'svm-l2'], ['svm-l2', 'svm-gln']]",
        "two cells have the same models, in another order",
    ),
    ("protocol = ['default', 'lippl2022']", "MNIST only.*in the cell protocol lippl2022"),
    ("device = ['cpu', 'cuda']", "device changes no result"),
    ("units = ", "Invalid value"),
    ("units = 3\nunits = 4", "overwrite"),
    (f"dataset = '{10**60}{10**60}'", r"dataset must be one of .*got '10+\.\.\.0+'"),
    ("units = 1_000_000_000", "units must be at most"),
    (
        "\n".join(f"{name} = {list(range(1, 1001))}" for name in ("units", "seed", "split_seed")),
        "at most 100000 cells, this one 1000000000",
    ),
]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        *(("grid.toml", text, f"grid.toml: .*{message}") for text, message in TOML),
        ("grid.json", "{}", "a grid is a .toml or a .yaml file"),
        ("grid.yaml", "- units", "a grid is a mapping"),
        ("grid.yml", "units: [", "not YAML"),
        ("grid.yml", "units: 3\nseed: 1\nunits: 4", "key 'units' is there twice"),
        ("grid.yml", "units: &u [1, *u]", "more than 100000 values"),
        ("grid.yml", "units: " + 5000 * "[" + 5000 * "]", "grid.yml: .* too deeply"),
        ("grid.toml", "units = " + 5000 * "[" + 5000 * "]", "grid.toml: .* too deeply"),
        ("grid.yml", "1: 2", "unknown key 1"),
        ("grid.yml", "null: 2", "unknown key None"),
        ("grid.yml", "? [units]\n: 2", "not YAML"),
        ("grid.yml", "units: 2024-99-99", "grid.yml"),
        ("grid.yml", BOMB, "more than 100000 values"),
        *(("grid.yml", f"positive: [{n}]", "looks like") for n in ("01", "010", "1_0", "1:30")),
        ("grid.yml", "C: '1_0'", "C must be"),
        ("grid.toml", 'C = "1_0"', "C must be"),
        ("grid.yml", "units: [" + "[1, 2], " * 999 + "]", r"cannot be .{,80}: its type is int"),
    ],
)
def test_bad_grids_are_refused(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ValueError, match=message):
        Grid.read(tmp_path / name)


def test_the_grid_of_the_benchmarks_is_one() -> None:
    file = Path(__file__).parents[2] / "benchmarks" / "lippl2022" / "grid_quick.toml"
    assert [cell.seed for cell in Grid.read(file).cells] == [1, 2, 3]
