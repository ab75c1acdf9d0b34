"""Sweeps: grids, keys of cells, sweeps that are killed, cells that fail, and a Dask cluster."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from cli.test_cli import Shell
from implicit_bias.runs import sweep
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.sweep import (
    Row,
    cells_of,
    compute,
    keyed,
    read_grid,
    run_cells,
    write_results,
)
from system import LOCALLY

SMALL = 'train_size = 40\nmodels = ["svm-gln", "svm-linear"]\n'
TIMES = ["seconds"]


def grid_of(folder: Path, text: str) -> Path:
    file = folder / "grid.toml"
    file.write_text(text)
    return file


def cells_in(file: Path) -> dict[str, RunConfig]:
    return keyed(cells_of(read_grid(file)))


def finish(
    cells: Mapping[str, RunConfig], folder: Path, workers: int = 1
) -> tuple[dict[str, pd.DataFrame], dict[str, str | None]]:
    """Compute what is missing in this process, and return the tables and what was computed."""
    there = {file.stem for file in finished_files(folder)}
    missing = {key: cell for key, cell in cells.items() if key not in there}
    computed = dict(run_cells(missing, folder, workers=workers))
    frames = write_results(folder, cells)
    return {name: frame.drop(columns=TIMES) for name, frame in frames.items()}, computed


def assert_same(found: Mapping[str, pd.DataFrame], expected: Mapping[str, pd.DataFrame]) -> None:
    assert found.keys() == expected.keys() == {"models", "pairs"}
    for name, frame in found.items():
        assert len(frame)
        pd.testing.assert_frame_equal(frame, expected[name])


def finished_files(folder: Path) -> list[Path]:
    return list((folder / "cells").glob("*.parquet"))


def has_cells(folder: Path, count: int) -> bool:
    return len(finished_files(folder)) >= count


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)


# --- grids -------------------------------------------------------------------------------------


def test_all_axes_are_crossed_and_the_last_one_runs_fastest(tmp_path: Path) -> None:
    file = grid_of(tmp_path, 'units = [3, 4]\nseed = [1, 2]\nC = inf\nmodels = ["svm-gln"]')
    cells = cells_of(read_grid(file))
    assert [(cell.units, cell.seed) for cell in cells] == [(3, 1), (3, 2), (4, 1), (4, 2)]
    assert cells[0] == RunConfig(units=3, seed=1, C=np.inf, models=("svm-gln",))
    text = 'models = [["svm-gln"], ["svm-l2"]]\npositive = [0, 1]\nnegative = [7]'
    cells = cells_of(read_grid(grid_of(tmp_path, text)))
    assert [cell.models for cell in cells] == [("svm-gln",), ("svm-l2",)]
    assert cells[0].positive == (0, 1)


@pytest.mark.parametrize(
    ("text", "word"),
    [("unit = 3", "'units'"), ("units = []", "no value"), ("units = ", "Invalid value")],
)
def test_bad_grids_are_refused(text: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=word):
        read_grid(grid_of(tmp_path, text))


# --- keys --------------------------------------------------------------------------------------


def key_of(cell: RunConfig) -> str:
    (key,) = keyed([cell])
    return key


def test_a_key_depends_on_what_matters() -> None:
    changes: list[dict[str, Any]] = [
        {"positive": (0, 1)},
        {"train_size": 501},
        {"models": ("svm-rc",)},
        {"units": 21},
        {"seed": 2},
        {"split_seed": 2},
        {"C": 1.0},
        {"batch_size": None},
        {"tol": 1e-8},
    ]
    others = [replace(RunConfig(), **change) for change in changes]
    assert len(keyed([RunConfig(), *others])) == 1 + len(changes)
    assert key_of(RunConfig(device="cuda")) == key_of(RunConfig())


def test_a_file_of_data_counts_by_its_content(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv", tmp_path / "b.csv"
    for file in (first, second):
        file.write_text("x,label\n1,0\n")
    cells = [RunConfig(data=str(file), target="label") for file in (first, second)]
    assert len(keyed(cells)) == 1
    second.write_text("x,label\n2,0\n3,1\n")
    assert len(keyed(cells)) == 2


# --- a cell --------------------------------------------------------------------------------------


def test_a_cell_has_results_of_models_and_pairs() -> None:
    config = RunConfig(train_size=60, units=3, steps=20, models=("gd-gln", "svm-gln", "svm-l2"))
    cell = compute(config)
    network, svm, _ = cell["results"]
    assert [row["model"] for row in cell["results"]] == list(config.models)
    assert (cell["units"], cell["models"]) == (3, "gd-gln,svm-gln,svm-l2")
    assert len(cell["pairs"]) == 3
    assert svm["lower"] <= svm["upper"] <= svm["lower"] * (1 + config.tol)
    assert network["optimum"] == svm["lower"]
    assert 0 < sum(row["seconds"] for row in cell["results"]) <= cell["seconds"]
    # Else a table of models beside their configuration would have a column twice.
    columns = {name for row in cell["results"] for name in row}
    assert not columns & {field.name for field in fields(RunConfig)}


def test_warnings_are_part_of_the_row() -> None:
    cell = compute(RunConfig(dataset="xor", train_size=40, models=("svm-linear",)))
    assert "not separable" in cell["warnings"]
    assert cell["results"][0]["norm"] == np.inf


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_training_is_no_result() -> None:
    config = RunConfig(dataset="blobs", train_size=40, units=3, steps=200, models=("gd-gln",))
    with pytest.raises(KeyboardInterrupt):
        compute(config)


# --- what is computed, and what is kept --------------------------------------------------------


def test_tables_have_each_model_of_each_cell_in_the_order_of_the_grid(tmp_path: Path) -> None:
    cells = cells_in(grid_of(tmp_path, f"{SMALL}seed = [2, 1]"))
    frames, computed = finish(cells, tmp_path / "out")
    assert computed == dict.fromkeys(cells)
    models = frames["models"]
    assert models["seed"].tolist() == [2, 2, 1, 1]
    assert models["cell"].tolist() == [key for key in cells for _ in range(2)]
    assert len(frames["pairs"]) == 2
    direct = compute(RunConfig(train_size=40, models=("svm-linear",), seed=1))
    assert direct["results"][0]["norm"] == models["norm"][3]
    for name, frame in frames.items():
        csv = pd.read_csv(tmp_path / "out" / f"{name}.csv")
        assert len(csv) == len(pd.read_parquet(tmp_path / "out" / f"{name}.parquet")) == len(frame)
        assert len({*csv.columns}) == len(csv.columns)


def test_a_cell_that_fails_says_why_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(cell: RunConfig) -> Row:
        if cell.seed == 2:
            raise ValueError("no such luck")
        return compute(cell)

    cells = cells_in(grid_of(tmp_path, f"{SMALL}seed = [1, 2, 3]"))
    second = list(cells)[1]
    why = sweep.error_file(tmp_path, second)
    monkeypatch.setattr(sweep, "compute", fails)
    frames, computed = finish(cells, tmp_path)
    assert frames["models"]["seed"].tolist() == [1, 1, 3, 3]
    assert computed == dict.fromkeys(cells) | {second: "ValueError: no such luck"}
    assert "Traceback" in why.read_text()
    monkeypatch.undo()
    frames, computed = finish(cells, tmp_path)
    assert list(computed) == [second]
    assert len(frames["models"]) == 6
    assert not why.exists()


def test_ctrl_c_in_a_cell_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def press(cell: RunConfig) -> Row:
        if cell.seed == 2:
            raise KeyboardInterrupt
        return compute(cell)

    grid_of(tmp_path, f"{SMALL}seed = [1, 2, 3]")
    monkeypatch.setattr(sweep, "compute", press)
    done = Shell(tmp_path)("sweep grid.toml --out out --workers 1")
    assert done.status == 130
    assert len(finished_files(tmp_path / "out")) == 1
    assert not (tmp_path / "out" / "errors").exists()


def test_a_folder_of_another_origin_is_refused(tmp_path: Path) -> None:
    (tmp_path / "models.csv").write_text("mine")
    with pytest.raises(ValueError, match="no sweep"):
        sweep.check_folder(tmp_path)
    (tmp_path / "cells").mkdir()
    sweep.check_folder(tmp_path)


@pytest.mark.slow
def test_processes_compute_the_same(tmp_path: Path) -> None:
    cells = cells_in(grid_of(tmp_path, f"{SMALL}seed = [1, 2, 3]"))
    found, computed = finish(cells, tmp_path / "two", workers=2)
    assert len(computed) == 3
    assert_same(found, finish(cells, tmp_path / "one")[0])


# --- sweeps that are killed --------------------------------------------------------------------


@pytest.mark.slow
def test_a_sweep_that_is_killed_goes_on(tmp_path: Path) -> None:
    file = grid_of(tmp_path, f"{SMALL}units = [2, 3, 4, 5]\nseed = [1, 2, 3]")
    cells, folder = cells_in(file), tmp_path / "killed"
    assert len(cells) == 12
    command = [sys.executable, "-m", "implicit_bias", "sweep", str(file), "--out", str(folder)]
    for count in (2, 8):
        process = subprocess.Popen([*command, "--workers", "1"], stderr=subprocess.DEVNULL)
        wait_until(partial(has_cells, folder, count))
        process.kill()
        assert process.wait() == -signal.SIGKILL, "it was not killed, but had ended"
    kept = {file: file.read_bytes() for file in finished_files(folder)}
    assert 8 <= len(kept) < 12
    found, computed = finish(cells, folder)
    assert len(computed) == 12 - len(kept)
    assert all(file.read_bytes() == before for file, before in kept.items())
    assert_same(found, finish(cells, tmp_path / "undisturbed")[0])


# --- a cluster ---------------------------------------------------------------------------------


def test_a_cluster_without_dask_names_what_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"implicit-bias\[dask\]"):
        list(run_cells({"key": RunConfig()}, tmp_path, address="tcp://127.0.0.1:9"))


@pytest.mark.slow
def test_a_cluster_goes_on_while_it_has_a_worker(tmp_path: Path) -> None:
    """One of two is killed while it computes."""
    distributed = pytest.importorskip("distributed")
    text = 'train_size = 40\nsteps = 500\nmodels = ["gd-gln", "svm-gln"]\n'
    file = grid_of(tmp_path, f"{text}units = [2, 3]\nseed = [1, 2, 3, 4, 5, 6]")
    folder = tmp_path / "out"
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", **LOCALLY
    ) as cluster:
        with distributed.Client(cluster) as client:
            process, *_ = client.run(os.getpid).values()

        def kill() -> None:
            wait_until(lambda: finished_files(folder))
            os.kill(process, signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        words = f"sweep grid.toml --out out --backend dask --address {cluster.scheduler_address}"
        found = Shell(tmp_path).json(words)
        killer.join()
    assert found == {"cells": 12, "computed": 12, "failed": 0, "folder": "out"}
    cells = cells_in(file)
    frames, computed = finish(cells, folder)
    assert not computed
    assert_same(frames, finish(cells, tmp_path / "here")[0])
