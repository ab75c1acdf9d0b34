"""The command line: outputs, exit statuses, and what stays on which stream."""

import io
import json
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

import implicit_bias
from example_modules import known
from implicit_bias import ReLUClassifier, certify_network
from implicit_bias.cli import main
from implicit_bias.problem import C_in_words
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.training.limit import Ending
from system import limited, python

SMALL = "--train-size 80 --units 4 --steps 200"
BLOBS = "--dataset blobs --train-size 40 --units 4"


@dataclass(frozen=True)
class Finished:
    """What a command has left: its exit status and what is on each stream."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """What stands on standard output, and nothing else."""
        assert self.out.count("\n") == 1
        found = json.loads(self.out)
        assert isinstance(found, dict)
        return found


@dataclass(frozen=True)
class Shell:
    """Runs the command line in a folder, and in this process, which has torch already."""

    folder: Path

    def __call__(self, words: str, **environment: str) -> Finished:
        """Run a command as it would be typed after `implicit-bias`."""
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            warnings.catch_warnings(),
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            warnings.simplefilter("always")  # as the command line shows them, not pytest's errors
            warnings.simplefilter("error", DeprecationWarning)
            patch.chdir(self.folder)
            patch.setattr(sys, "argv", ["implicit-bias", *shlex.split(words)])
            # As of a script, however pytest itself was started.
            patch.setattr(sys.modules["__main__"], "__package__", None)
            for name, value in environment.items():
                patch.setenv(name, value)
            with pytest.raises(SystemExit) as stop:
                main()
        return Finished(int(stop.value.code or 0), out.getvalue(), err.getvalue())

    def json(self, words: str) -> dict[str, Any]:
        """Run a command that must succeed, and return the facts that it writes."""
        done = self(f"{words} --json")
        assert done.status == 0, done.err
        return done.json


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_compare_writes_a_page_and_predictions(shell: Shell) -> None:
    result = shell.json(f"compare {SMALL}")
    report = shell.folder / "implicit-bias-report"
    assert (report / "report.html").is_file()
    network, svm, _ = result["models"]
    assert [row["model"] for row in result["models"]] == ["gd-gln", "svm-gln", "svm-l2"]
    assert len(result["pairs"]) == 3
    assert result["setting"]["C"] == "inf"
    assert (svm["status"], network["optimum"]) == ("optimal", svm["optimum"])
    assert svm["gap"] <= 1e-6
    assert result["report"] == str(Path("implicit-bias-report/report.html"))
    predictions = pd.read_csv(report / "predictions.csv")
    for row in result["models"]:
        wrong = predictions[row["model"]] != predictions["true label"]
        assert wrong.mean() == pytest.approx(row["error"])


@pytest.mark.slow
def test_a_comparison_overwrites_nothing(shell: Shell) -> None:
    """Neither files of another origin nor an earlier report."""
    notes = shell.folder / "notes"
    notes.mkdir()
    (notes / "todo.txt").write_text("mine")
    compare = f"compare {SMALL} --models gd-gln --out notes"
    assert Path(shell.json(compare)["report"]) == Path("notes/report.html")
    written = {file: file.read_bytes() for file in notes.rglob("*") if file.is_file()}
    second = shell(compare)
    assert second.status == 0
    assert "notes is kept" in second.err
    assert f"Report: {Path('notes-2/report.html')}" in second.out
    assert all(file.read_bytes() == before for file, before in written.items())


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_comparison_says_so(shell: Shell) -> None:
    done = shell(f"compare {SMALL} --models gd-gln --json")
    assert done.status == 130
    (row,) = json.loads(done.out)["models"]
    assert row["interrupted"]
    assert 0 < row["steps"] < row["planned_steps"] == 200
    page = (shell.folder / "implicit-bias-report" / "report.html").read_text()
    assert f"interrupted after {int(row['steps'])} of 200 steps" in page
    assert "<dt>interrupted</dt>" in page


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_training_says_so(shell: Shell) -> None:
    done = shell("train gd-gln --train-size 40 --units 4 --limit-steps 200 --json")
    assert done.status == 130
    found = json.loads(done.out)
    assert found["interrupted"]
    assert 0 < found["steps"] < found["planned_steps"] == 200
    assert joblib.load(shell.folder / found["file"]).training_.interrupted


def test_a_network_that_does_not_separate_is_told_so(shell: Shell) -> None:
    found = shell.json("train gd-gln --train-size 80 --units 4 --steps 3")
    assert (found["lower"], found["upper"]) == (0, "inf")
    assert "misclassified" in found["obstacle"]
    assert "residual" not in found


OWN = "--data own.csv --target kind --positive good --id name --missing drop"


@pytest.mark.slow
def test_own_data_that_nothing_separates(shell: Shell) -> None:
    """Compared by errors, with a soft margin and a warning, by the names and texts of the file."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    kinds = np.where(x[:, 0] + rng.normal(size=60) > 0, "good", rng.choice(["bad", "Late"], 60))
    table = pd.DataFrame({"name": [f"C-{n}" for n in range(60)], "age": 40 + 9 * x[:, 0]})
    table = table.assign(debt=1000 * x[:, 1], city=rng.choice(["Bonn", "Ulm"], 60), kind=kinds)
    table.loc[[3, 4], "kind"] = None
    table.loc[5, "age"] = np.nan
    table.to_csv(shell.folder / "own.csv", index=False)
    done = shell(f"compare {OWN} --models gd-gln,svm-gln --units 2 --steps 50")
    assert done.status == 0
    assert "solved the soft margin" in done.err
    assert "3 of 60 rows: 2 without a label" in done.err

    folder = shell.folder / "implicit-bias-report"
    found = pd.read_csv(folder / "predictions.csv")
    rows = table.iloc[found["row"] - 1]
    assert (found["name"].to_numpy() == rows["name"].to_numpy()).all()
    assert (found["label in the file"].to_numpy() == rows["kind"].to_numpy()).all()
    assert set(found["true label"]) | set(found["svm-gln"]) <= {"good", "Late, bad"}
    assert ((found["gd-gln"] != found["svm-gln"]) == found["models differ"]).all()
    assert ((found["svm-gln: score of good"] > 0) == (found["svm-gln"] == "good")).all()

    # The headline is an error, read against the commonest class; which SVM has which C is told.
    models = pd.read_csv(folder / "models.csv").set_index("model")
    assert f"(C = {C_in_words(models['C']['svm-gln'])})" in done.out
    first = done.out.index("significantly lower error")
    assert first < done.out.index("Always predicting “") < done.out.index("no max-margin solution")

    # A refusal is there for who asks.
    refused = shell(f"compare {OWN} --models svm-linear --on-failure raise --out refused")
    assert (refused.status, refused.out) == (1, "")
    assert "not separable" in refused.err


@pytest.mark.slow
def test_compare_trains_on(shell: Shell) -> None:
    """One report has the network as it was trained and near its limit, and advises no training."""
    done = shell.json("compare --units 4 --steps 50 --models gd-gln,svm-gln --to-limit")
    excess = {row["model"]: float(row["excess"]) for row in done["models"]}
    assert excess["gd-gln-limit"] <= 0.01 < excess["gd-gln"]
    folder = shell.folder / "implicit-bias-report"
    page = (folder / "report.html").read_text("utf-8")
    assert "--to-limit" in page
    assert "to its limit:" not in page
    assert "gd-gln-limit has converged to its SVM" in page


def test_train(shell: Shell) -> None:
    """What is saved predicts, and is what the facts are of; it is overwritten by no other."""
    train = f"train gd-relu {SMALL}"
    first = shell.json(train)
    model = joblib.load(shell.folder / "gd-relu.joblib")
    assert isinstance(model, ReLUClassifier)
    data = load_data(RunConfig(train_size=80)).parts.train
    expected = certify_network(model.network_, data.X, data.y)
    for name in ("lower", "upper", "gap", "min_margin"):
        assert first[name] == pytest.approx(getattr(expected.certificate, name))
    assert first["kkt_gap"] == pytest.approx(known(expected.stationarity).gap)
    assert (first["steps"], first["planned_steps"], first["interrupted"]) == (200, 200, False)
    assert first["limit_norm"] == "l2"
    before = (shell.folder / "gd-relu.joblib").read_bytes()
    second = shell(train)
    assert "gd-relu.joblib is kept" in second.err
    assert (shell.folder / "gd-relu-2.joblib").is_file()
    assert (shell.folder / "gd-relu.joblib").read_bytes() == before
    assert "kkt gap" in second.out


GRID = """
train_size = [40, 5000]
seed = [1, 2]
units = 3
models = ["svm-gln", "svm-linear"]
"""


def test_sweep(shell: Shell) -> None:
    """Cells that fail have files that say why, and are computed again; the others are kept."""
    (shell.folder / "grid.toml").write_text(GRID)
    done = shell("sweep grid.toml --workers 1")
    assert done.status == 1
    assert "failed: train_size 5000, seed 1: ValueError: train_size=5000" in done.err
    assert "2 of 4 runs failed" in done.err
    errors = shell.folder / "implicit-bias-sweep" / "errors"
    assert len(list(errors.iterdir())) == 2
    again = shell("sweep grid.toml --workers 1 --json")
    assert again.status == 1
    counts = {"cells": 4, "computed": 2, "failed": 2}
    assert again.json == {**counts, "folder": "implicit-bias-sweep"}
    (shell.folder / "grid.toml").write_text(GRID.replace("5000", "50"))
    assert shell.json("sweep grid.toml --workers 1")["computed"] == 2
    table = pd.read_parquet(shell.folder / "implicit-bias-sweep" / "models.parquet")
    assert list(table["train_size"]) == [40] * 4 + [50] * 4
    assert set(table["status"]) == {"optimal"}


LIGHT = """
import sys
sys.argv = ["implicit-bias", *sys.argv[1:]]
from implicit_bias.cli import main
try:
    main()
except SystemExit as stop:
    print("exit status", stop.code or 0)
heavy = {"torch", "sklearn", "cvxpy"} & set(sys.modules)
assert not heavy, heavy
print("loaded", *{"pandas", "numpy"} & set(sys.modules))
"""


@pytest.mark.slow
def test_help_is_light() -> None:
    said = python(LIGHT, "compare", "--help")
    assert "--train-size" in said
    assert said.endswith("exit status 0\nloaded")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("compare --data absent.csv", 1, "absent.csv"),
        ("train svm-gln", 2, "gd-gln"),
        ("train --out folder.joblib", 1, "no regular file"),
        ("compare --out good.toml", 1, "good.toml"),
        ("compare --dataset mnist", 1, "train-images-idx3-ubyte is unusable"),
        ("sweep bad.toml", 2, "unit"),
        ("sweep good.toml --backend dask", 2, "--address"),
        ("train --to-limit --optimizer sign", 2, "linf"),
        ("train --to-limit --optimizer adamw", 2, "no margin"),
        ("train gd-relu --until-excess 0.1", 2, "gap"),
    ],
)
def test_what_cannot_be_is_one_line(words: str, code: int, message: str, places: Path) -> None:
    done = Shell(places)(words, IMPLICIT_BIAS_DATA=str(places))
    assert (done.status, done.out, done.err.count("\n")) == (code, "", 1)
    assert message in done.err


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with files that are of no use."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "bad.toml").write_text("unit = 3")
    (folder / "good.toml").write_text("units = 3")
    (folder / "mnist").mkdir()
    (folder / "folder.joblib").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    return folder


def test_a_full_disk_is_one_line(shell: Shell) -> None:
    with limited(200):
        done = shell("train --train-size 20 --units 2 --steps 3")
    assert done.status == 1
    assert "File too large" in done.err
    assert "Traceback" not in done.err


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the work ends in an error of its last line."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.chdir(tmp_path)
    words = f"train {BLOBS} --steps 9 --out \u00e9.joblib"
    monkeypatch.setattr(sys, "argv", ["implicit-bias", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    screen.seek(0)
    assert r"\xe9.joblib" in screen.read()


def test_the_package_is_a_program() -> None:
    done = subprocess.run(  # a process of its own, from its start to its exit status
        [sys.executable, "-m", "implicit_bias", "--version"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, implicit_bias.__version__)


# --- towards the limit ---------------------------------------------------------------------------


@pytest.mark.slow
def test_training_towards_the_limit_of_a_norm(shell: Shell) -> None:
    train = "train gd-gln --dataset blobs --train-size 40 --units 3"
    found = shell.json(f"{train} --stop-at-gap 0.5 --norm linf")
    assert found["limit_norm"] == "linf"
    assert found["kkt_gap_in_its_norm"] <= 0.5
    assert found["planned_steps"] == 100_000 > found["steps"]
    saved = joblib.load(shell.folder / "gd-gln-limit.joblib")
    assert saved.training_.config.limit_norm == "linf"


@pytest.mark.slow
def test_train_until_excess(shell: Shell) -> None:
    goal = "train gd-gln --dataset blobs --train-size 60 --units 4 --until-excess 0.01"
    short = shell.json(f"{goal} --limit-steps 20 --out sub/short.joblib")
    assert (short["steps"], short["ending"]) == (20, Ending.STEPS.message)
    assert short["excess"] > 0.01
    assert short["picture"] == "sub/short-training.png"
    found = shell.json(goal)
    assert found["ending"] == Ending.REACHED.message
    assert 0.0 < found["excess"] <= 0.01
    assert (shell.folder / found["picture"]).read_bytes().startswith(b"\x89PNG")


def test_the_limit_of_an_optimizer_is_shown(shell: Shell) -> None:
    found = shell.json(f"train gd-gln {BLOBS} --steps 20 --optimizer sign --learning-rate 0.01")
    assert found["limit_norm"] == "linf"
    # Weight decay bounds the weights: no margin is maximized.
    decayed = f"{BLOBS} --steps 20 --optimizer adamw"
    assert shell.json(f"train gd-gln {decayed}")["limit_norm"] is None
    shown = shell(f"compare {decayed} --models gd-gln,svm-gln").out
    assert "maximizes no margin" in shown
    assert "steepest descent" not in shown
    page = (shell.folder / "implicit-bias-report" / "report.html").read_text("utf-8")
    assert "adamw: maximizes no margin" in page
