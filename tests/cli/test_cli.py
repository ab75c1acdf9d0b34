"""The command line: outputs, exit statuses, and what stays on which stream."""

import gzip
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import warnings
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import typer

from implicit_bias import GLNSVC, GLNClassifier
from implicit_bias.base.wording import number
from implicit_bias.cli import main
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model, save_model
from implicit_bias.problem import C_in_words
from implicit_bias.runs.configuration import MODEL_MEANINGS, RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.training.limit import Ending
from modules import known
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


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, dict[str, Any]]:
    there = Shell(tmp_path_factory.mktemp("compare"))
    return there, there.json(f"compare {SMALL}")


def test_compare_writes_everything_and_report_writes_it_again(
    finished: tuple[Shell, dict[str, Any]],
) -> None:
    there, result = finished
    report = there.folder / "implicit-bias-report"
    network, svm, _ = result["models"]
    assert [row["model"] for row in result["models"]] == ["gd-gln", "svm-gln", "svm-l2"]
    assert len(result["pairs"]) == 3
    assert result["setting"]["C"] == "inf"
    assert result["setting"]["momentum"] == 0.9
    assert (svm["status"], network["optimum"]) == ("optimal", svm["optimum"])
    assert svm["gap"] <= 1e-6
    assert {file.stem for file in (report / "models").iterdir()} == {"gd-gln", "svm-gln", "svm-l2"}
    page = report / "report.html"
    before = page.read_bytes()
    page.unlink()
    assert there.json("report implicit-bias-report")["models"] == result["models"]
    assert page.read_bytes() == before


@pytest.mark.slow
def test_a_comparison_overwrites_nothing(shell: Shell) -> None:
    """Neither files of another origin nor an earlier report; what it names as next runs."""
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
    train = "train gd-gln --train-size 80 --units 4 --limit-steps 5"
    trained = shell(f"{train} --out notes/limit/later.safetensors")
    (line,) = (line for line in trained.out.splitlines() if line.startswith("Next: "))
    again = shell(line.split(maxsplit=2)[2])
    assert again.status == 0
    assert "later" in again.out
    assert {file.name for file in shell.folder.iterdir()} == {"notes", "notes-2"}


def test_certify_a_saved_network_and_svm(finished: tuple[Shell, dict[str, Any]]) -> None:
    there, _ = finished
    models = "certify implicit-bias-report/models"
    svm = there.json(f"{models}/svm-gln.safetensors --no-solve")
    assert svm["gap"] <= 1e-6
    network = there.json(f"{models}/gd-gln.safetensors")
    assert network["lower"] == pytest.approx(svm["lower"], rel=2e-6)
    alone = there.json(f"{models}/gd-gln.safetensors --no-solve")
    assert 0 < alone["lower"] == alone["lower_by_multipliers"] <= network["lower"]
    assert alone["gap"] == pytest.approx(alone["upper"] / alone["lower"] - 1)
    assert network["excess"] == pytest.approx(network["upper"] / network["lower"] - 1)
    assert "excess" not in alone  # it is over the optimum, which was not solved for
    assert 0 < alone["kkt_gap"] == pytest.approx(alone["residual"] ** 2 + 2 * alone["slackness"])
    assert alone["misclassified"] == 0
    within, why = alone["notes"]
    assert within == f"The network is within {100 * alone['gap']:.2f} % of the limit."
    assert "certify" in why
    other = there.json(f"{models}/svm-gln.safetensors --split-seed 2")
    assert other["samples"] == 80
    assert other["lower"] != pytest.approx(svm["lower"], rel=1e-3)
    shown = there(f"{models}/gd-gln.safetensors").out
    assert "svm status" in shown
    (legend,) = (line for line in shown.splitlines() if line.startswith("residual: "))
    assert all(f"; {name}: " in legend for name in ("slackness", "kkt gap", "epsilon", "delta"))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, typer.Abort])
def test_ctrl_c_is_one_line(
    stop: type[BaseException], shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*choices: Any, **options: Any) -> None:
        raise stop

    monkeypatch.setattr("implicit_bias.runs.data.load_data", press)
    done = shell("fit")
    assert done.status == 130
    assert done.err == "implicit-bias: interrupted; any file written before is kept\n"


def test_ctrl_c_while_modules_are_imported_is_one_line(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Pressed:
        def find_spec(self, name: str, *_: object) -> None:
            if name == "implicit_bias.cli.app":
                raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "implicit_bias.cli.app", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Pressed(), *sys.meta_path])
    done = shell("data")
    assert done.status == 130
    assert done.err == "implicit-bias: interrupted; any file written before is kept\n"


@pytest.mark.every(2)
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("model", ["svm-lc", "gd-gln"])
def test_an_interrupted_comparison_says_so(model: str, shell: Shell) -> None:
    done = shell(f"compare {SMALL} --models {model} --json")
    assert done.status == 130
    (row,) = json.loads(done.out)["models"]
    assert row["interrupted"]
    report = shell.folder / "implicit-bias-report"
    if model == "gd-gln":
        assert 0 < row["steps"] < row["planned_steps"] == 200
        words = f"interrupted after {int(row['steps'])} of 200 steps"
        assert words in (report / "report.html").read_text()
        assert words in " ".join(shell("report").out.replace("│", " ").split())
        saved = load_model(report / "models" / "gd-gln.safetensors").model
        assert isinstance(saved, GLNClassifier)
        assert saved.training_.interrupted
    assert "<dt>interrupted</dt>" in (report / "report.html").read_text()


@pytest.mark.every(2)
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("way", ["--steps", "--limit-steps"])
def test_an_interrupted_training_says_so(way: str, shell: Shell) -> None:
    done = shell(f"train gd-gln --train-size 40 --units 4 {way} 200 --json")
    assert done.status == 130
    found = json.loads(done.out)
    assert found["interrupted"]
    assert 0 < found["steps"] < found["planned_steps"] == 200
    if way == "--steps":
        certified = shell("certify gd-gln.safetensors")
        assert f"interrupted after {found['steps']} of 200 steps" in certified.out


def test_a_network_that_does_not_separate_is_told_so(shell: Shell) -> None:
    trained = shell("train gd-gln --train-size 80 --units 4 --steps 3").out
    assert "on the wrong side" in trained
    assert "inf" not in trained
    assert "kkt gap" not in trained
    certified = shell.json("certify gd-gln.safetensors")
    wrong = certified["misclassified"]
    assert wrong > 0
    assert certified["lower"] > 0
    assert certified["upper"] == certified["excess"] == "inf"
    assert "residual" not in certified
    (note,) = certified["notes"]
    assert f"no upper bound, excess or multipliers: {wrong} of 80 samples are on the" in note
    skipped = shell.json("certify gd-gln.safetensors --no-multipliers")
    assert "dead_units" not in skipped
    assert skipped["lower"] == certified["lower"]


@pytest.mark.slow
def test_certify_networks_without_bounds(shell: Shell) -> None:
    config = RunConfig(train_size=80)
    data = load_data(config).parts.train

    def certified(*units: int, **options: Any) -> dict[str, Any]:
        model = GLNClassifier(units, momentum=0.9, steps=300, random_state=1, **options)
        file = shell.folder / "network.safetensors"
        save_model(file, model.fit(data.X, data.y), config.metadata())
        return shell.json("certify network.safetensors")

    deep, biased = certified(6, 4), certified(6, readout_bias=True)
    assert deep["degree"] == 3
    assert 0 < deep["kkt_gap"] < 1
    assert "lower" not in deep
    assert "no convex program" in deep["notes"][0]
    assert 0 < biased["lower"] < biased["upper"] < float("inf")
    assert "degree" not in biased
    assert "bias is left out" in biased["notes"][0]
    assert "not homogeneous of degree" in biased["notes"][1]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("model", "goal"),
    [
        ("gd-gln", "of the limit."),
        ("gd-relu", "of the limit that it has if its gates stay."),
        ("local-gln", "so that need not be its limit."),
    ],
)
def test_only_a_limit_is_called_one(model: str, goal: str, shell: Shell) -> None:
    options = "--dataset blobs --train-size 40 --units 8 --steps 300 --learning-rate 0.1"
    notes = shell.json(f"train {model} {options}")["notes"]
    (within,) = (note for note in notes if note.startswith("The network is within"))
    assert within.endswith(goal)


def test_samples_that_no_svm_separates(shell: Shell) -> None:
    linear = "fit svm-linear --dataset xor --train-size 60"
    done = shell(linear)
    assert done.status == 1
    assert done.err.count("not separable") == 1
    assert "finite C" in done.err
    assert "on_failure='soft'" in done.err
    assert "constant" not in done.err  # the data have one, and no offset helps
    reduced = shell.json(f"{linear} --on-failure drop")
    assert reduced["status"] == "optimal"
    assert reduced["gap"] <= 1e-6  # of the samples that are left
    assert reduced["samples"] < 60


@pytest.mark.slow
def test_own_data_from_file_to_report_and_certificate(shell: Shell) -> None:
    moons, there = make_toy("moons", 60, noise=0.05), shell.folder / "there"
    table = pd.DataFrame(moons.X[:, :2], columns=["east", "north"])
    table["kind"] = np.where(moons.y > 0, "up", "Down")
    there.mkdir()
    table.to_csv(there / "moons.csv", index=False)
    own = "--data there/moons.csv --target kind --positive UP"
    result = shell.json(f"compare {own} --models svm-gln --units 6")
    assert result["models"][0]["status"] == "optimal"
    page = (shell.folder / "implicit-bias-report" / "report.html").read_text("utf-8")
    assert "moons.csv" in page
    assert "intercept" in page
    model = "../implicit-bias-report/models/svm-gln.safetensors"
    assert Shell(there).json(f"certify {model}")["gap"] <= 1e-6
    (shell.folder / "grid.toml").write_text(
        "data = 'there/moons.csv'\ntarget = 'kind'\nstandardize = [false, true]\n"
        "models = ['svm-gln']\nunits = 6\n"
    )
    swept = shell.json("sweep grid.toml --workers 1")
    assert (swept["computed"], swept["failed"]) == (2, 0)
    wrong = shell("fit svm-gln --data there/moons.csv")
    assert wrong.status == 2
    assert "--target" in wrong.err
    assert wrong.err.count("\n") == 1


OWN = "--data own.csv --target kind --positive good --id name --missing drop"


@pytest.fixture(scope="module")
def noisy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Shell, pd.DataFrame, Finished]:
    """Compare on a file of the user's own that nothing separates, with names and texts in it."""
    there, rng = Shell(tmp_path_factory.mktemp("own")), np.random.default_rng(0)
    x = rng.normal(size=(60, 2))
    kinds = np.where(x[:, 0] + rng.normal(size=60) > 0, "good", rng.choice(["bad", "Late"], 60))
    table = pd.DataFrame({"name": [f"C-{n}" for n in range(60)], "age": 40 + 9 * x[:, 0]})
    table = table.assign(debt=1000 * x[:, 1], city=rng.choice(["Bonn", "Ulm"], 60), kind=kinds)
    table.loc[[3, 4], "kind"] = None
    table.loc[5, "age"] = np.nan
    table.to_csv(there.folder / "own.csv", index=False)
    models = "--models gd-gln,svm-gln --units 2 --steps 50"
    return there, table, there(f"compare {OWN} {models}")


@pytest.mark.slow
def test_predictions_name_the_rows_of_the_file(
    noisy: tuple[Shell, pd.DataFrame, Finished],
) -> None:
    there, table, done = noisy
    assert done.status == 0
    folder = there.folder / "implicit-bias-report"
    found = pd.read_csv(folder / "predictions.csv")
    rows = table.iloc[found["row"] - 1]
    assert (found["name"].to_numpy() == rows["name"].to_numpy()).all()
    assert (found["label in the file"].to_numpy() == rows["kind"].to_numpy()).all()
    assert set(found["true label"]) | set(found["svm-gln"]) <= {"good", "Late, bad"}
    assert ((found["gd-gln"] != found["svm-gln"]) == found["models differ"]).all()
    assert ((found["svm-gln: score of good"] > 0) == (found["svm-gln"] == "good")).all()
    setting = json.loads((folder / "setting.json").read_text())
    assert "dataset" not in setting
    assert setting["data"].endswith("own.csv")


@pytest.mark.slow
def test_data_that_are_not_separable_are_compared_by_errors(
    noisy: tuple[Shell, pd.DataFrame, Finished],
) -> None:
    """With a soft margin, and a warning; a refusal is there for who asks."""
    there, _, done = noisy
    assert "solved the soft margin" in done.err
    assert "gd-gln is wrong on" in done.out
    assert "the two differ on" in done.out
    # The headline is an error, read against the commonest class; which SVM has which C is told.
    models = pd.read_csv(there.folder / "implicit-bias-report" / "models.csv").set_index("model")
    C, row = models["C"]["svm-gln"], next(x for x in done.out.splitlines() if "optimal" in x)
    assert (row.split()[8], f"(C = {C_in_words(C)})" in done.out) == (number(C), True)
    assert "…" not in done.out, "a heading was cut"
    first = done.out.index("No ranking: ")
    assert first < done.out.index("Always answering “") < done.out.index("There is no limit")
    page = (there.folder / "implicit-bias-report" / "report.html").read_text("utf-8")
    assert "the two differ on" in page
    assert re.search("0 or 1 for each value of.*city", page, re.DOTALL)
    for said in (page, done.err):
        assert "3 of 60 rows: 2 rows without a label, 1 row with another value missing" in said
    for said in (page, done.out):
        assert "No hard margin: nothing separates" in said
    refused = there(f"fit svm-linear {OWN} --on-failure raise")
    assert (refused.status, refused.out) == (1, "")
    assert "not separable" in refused.err
    stopped = there(f"fit svm-linear {OWN} --on-failure warn --out warned.safetensors")
    assert (stopped.status, "solved" in stopped.err) == (1, False)


@pytest.mark.slow
def test_C_is_chosen_and_shown(noisy: tuple[Shell, pd.DataFrame, Finished]) -> None:
    there, _, _ = noisy
    auto = f"{OWN} --units 2 --C auto --class-weight balanced"
    assert "5-fold cross-validation" in there(f"fit svm-linear {auto} --out auto.safetensors").out
    done = there(f"compare {auto} --models gd-gln,svm-gln --steps 50 --out auto")
    assert "svm-gln: C = " in done.out
    assert "solved the soft margin" not in done.err
    page = (there.folder / "auto" / "report.html").read_text("utf-8")
    assert "svm-gln: C = " in page
    assert "<span>--C</span> auto <span>--class-weight</span> balanced" in page
    assert "svm-gln: C = " in there("report auto").out


@pytest.mark.parametrize("command", ["compare", "fit", "train"])
def test_help_says_what_the_models_are(command: str, shell: Shell) -> None:
    said = " ".join(shell(f"{command} --help").out.split())
    for name, meaning in MODEL_MEANINGS.items():
        if command == "compare" or (command == "fit") == name.startswith("svm-"):
            assert f"{name}: {meaning}" in said


@pytest.mark.slow
def test_compare_trains_on(shell: Shell) -> None:
    """One report has the network as it was trained and near its limit, and advises no training."""
    done = shell.json("compare --units 4 --steps 50 --models gd-gln,svm-gln --to-limit")
    excess = {row["model"]: float(row["excess"]) for row in done["models"]}
    assert excess["gd-gln-limit"] <= 0.01 < excess["gd-gln"]
    folder = shell.folder / "implicit-bias-report"
    page = (folder / "report.html").read_text("utf-8")
    assert "--to-limit" in page
    assert "Train on" not in page
    again = shell("report --network implicit-bias-report/limit/gd-gln-limit.safetensors")
    page = (folder / "report.html").read_text("utf-8")
    # The command of the comparison alone would make no such network.
    assert "compare" not in page.partition("Made by ")[2].partition("</p>")[0]
    assert "<span>--network</span> implicit-bias" in page
    assert "gd-gln-limit is its SVM" in again.out


@pytest.mark.slow
def test_report_takes_a_network_that_was_trained_on(
    finished: tuple[Shell, dict[str, Any]], shell: Shell
) -> None:
    """Beside the models of the folder, by the name of its file; and says what it leaves out."""
    folder = shell.folder / "again"
    shutil.copytree(finished[0].folder / "implicit-bias-report", folder)
    first, second, _ = (row["model"] for row in finished[1]["models"])
    later = shell.folder / "later.safetensors"
    (folder / "models" / f"{first}.safetensors").rename(later)
    done = shell("report again --network later.safetensors")
    assert done.status == 0
    assert f"left out, not finished or not of this comparison: {first}" in done.err
    assert "later" in done.out
    page = (folder / "report.html").read_text("utf-8")
    assert "implicit-bias report again <span>--network</span> later.safetensors" in page
    saved = load_model(later)
    facts = {**known(saved.facts), "units": 999}
    save_model(shell.folder / "wider.safetensors", saved.model, facts)
    wider = shell("report again --network wider.safetensors")
    assert (wider.status, "units" in wider.err) == (2, True)
    twice = shell(f"report again --network again/models/{second}.safetensors")
    assert (twice.status, "another name" in twice.err) == (2, True)
    setting = json.loads((folder / "setting.json").read_text())
    (folder / "setting.json").write_text(json.dumps({**setting, "units": 5}))
    mixed = shell("report again")
    assert (mixed.status, "no finished model" in mixed.err) == (2, True)


def test_fit_and_train(shell: Shell) -> None:
    fitted = shell.json("fit svm-rc --train-size 80 --units 4 --out a/rc.safetensors")
    assert fitted["status"] == "optimal"
    assert (shell.folder / "a" / "rc.safetensors").is_file()
    trained = shell.json(f"train gd-relu {SMALL}")
    assert trained["svm_status"] is None
    assert trained["balance"] > 0
    assert (shell.folder / "gd-relu.safetensors").is_file()


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
    assert "2 of 4 cells failed" in done.err
    errors = shell.folder / "implicit-bias-sweep" / "errors"
    assert len(list(errors.iterdir())) == 2
    assert "svm-linear" in done.out
    again = shell("sweep grid.toml --workers 1 --json")
    assert again.status == 1
    counts = {"cells": 4, "computed": 2, "failed": 2}
    assert again.json == {**counts, "folder": "implicit-bias-sweep"}
    (shell.folder / "grid.toml").write_text(GRID.replace("5000", "50"))
    assert shell.json("sweep grid.toml --workers 1")["computed"] == 2
    table = pd.read_parquet(shell.folder / "implicit-bias-sweep" / "models.parquet")
    assert list(table["train_size"]) == [40] * 4 + [50] * 4
    assert set(table["status"]) == {"optimal"}


def test_a_shell_completes_commands(shell: Shell) -> None:
    asked = {"COMP_WORDS": "implicit-bias tra", "COMP_CWORD": "1"}
    done = shell("", _IMPLICIT_BIAS_COMPLETE="complete_bash", **asked)
    assert done.out.split() == ["train"]


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


@pytest.mark.slow
def test_what_is_wrong_with_data_is_said_at_once(shell: Shell) -> None:
    """Before torch and scikit-learn are imported, which takes seconds."""
    (shell.folder / "own.csv").write_text("a,kind\n1,x\n2,y\n")
    wrong = LIGHT.replace("import sys\n", "import sys\nsys.stderr = sys.stdout\n", 1)
    said = python(wrong, *"compare --data own.csv --target king".split(), folder=shell.folder)
    assert "'king'" in said
    assert "exit status 2" in said


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("compare --dataset cifar", 2, "dataset"),
        ("compare --models svm-gln,svm-xl", 2, "models"),
        ("compare --units 0", 2, "units must be at least 1"),
        ("compare --units many", 2, "no integer"),
        ("compare --train-size 5000", 2, "at most 1438"),
        ("compare --positive 0,1 --negative 1,2", 2, "1 are both positive and negative"),
        ("compare --positive a", 2, "separated by commas"),
        ("compare --models svm-gln,svm-gln", 2, "twice"),
        ("compare --C -1", 2, "C must be in"),
        ("compare --C many", 2, "C must be one of auto, or a number"),
        ("compare --id a", 2, "--data"),
        ("fit svm-linear --dataset blobs --class-weight spam", 2, "class_weight is balanced"),
        ("fit svm-linear --dataset blobs --class-weight spam=2", 2, "no class is called 'spam'"),
        ("compare --dataset blobs --class-weight +1=-1", 2, "weight"),
        ("compare --data .", 1, "a folder"),
        ("compare --momentum 2", 2, "momentum"),
        ("compare --solver gurobi", 2, "solver"),
        ("fit svm-linear --classes 1,2 --positive 3", 2, "classes"),
        ("fit gd-gln", 2, "svm-gln"),
        ("fit --out x.pkl", 2, "x.safetensors"),
        ("train --out x.pt", 2, "x.safetensors"),
        ("train --out good.toml/x.safetensors", 1, "good.toml is a file"),
        ("train --out folder.safetensors", 1, "no regular file"),
        ("fit --units 1000000000", 2, "units must be at most"),
        ("fit svm-linear --data cut.csv.gz --target kind", 2, "cut.csv.gz"),
        ("fit --dataset mnist", 1, "train-images-idx3-ubyte is unusable"),
        ("frobnicate", 2, "No such command"),
        ("data --download digits", 2, "'digits'"),
        ("report nowhere", 2, "setting.json"),
        *((f"report {text}", 2, "is no configuration") for text in ("[]", "3", "null")),
        ("certify absent.safetensors", 1, "no such file: absent.safetensors"),
        ("certify own.safetensors", 2, "--dataset"),
        *(
            (f"certify {name}.safetensors", 2, f"{name}.safetensors, with the options given: ")
            for name in ("remark", "positive")
        ),
        ("sweep bad.toml", 2, "did you mean 'units'"),
        ("sweep absent.toml", 2, "no such file: absent.toml"),
        ("sweep good.toml --out .", 2, "no sweep"),
        ("sweep good.toml --workers 0", 2, "equal to 1"),
        ("sweep good.toml --backend dask", 2, "--address"),
        ("sweep good.toml --address tcp://x:1", 2, "--backend dask"),
        ("sweep good.toml --workers 2 --backend dask --address tcp://x:1", 2, "--workers"),
        ("train --norm linf", 2, "--to-limit"),
        ("train --chunk 5", 2, "--to-limit"),
        ("train --resume", 2, "--to-limit"),
        ("train --to-limit --steps 5", 2, "--limit-steps"),
        ("train --to-limit --norm l7", 2, "norm"),
        ("train --to-limit --chunk 0", 2, "chunk"),
        ("train --to-limit --method swift", 2, "method"),
        ("train --to-limit --optimizer sign", 2, "linf"),
        ("train --to-limit --resume", 2, "checkpoint"),
        ("train --to-limit --checkpoint good.toml", 2, "is there already"),
        ("train --to-limit --checkpoint a.safetensors --out ./a.safetensors", 2, "checkpoint"),
        ("train --limit-steps 0", 2, "steps"),
        ("train --stop-at-gap 2", 2, "stop_at_gap"),
        ("train --until-excess 0", 2, "until_excess"),
        ("train --until-excess 0.1 --norm l1", 2, "stop_at_gap"),
        ("train gd-relu --until-excess 0.1", 2, "gap"),
        ("train local-gln --to-limit", 2, "gd-gln"),
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
    (folder / "folder.safetensors").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    for text in ("[]", "3", "null"):
        (folder / text).mkdir()
        (folder / text / "setting.json").write_text(text)
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=99), "kind": [0, 1, 1] * 33})
    cut = gzip.compress(table.to_csv(index=False).encode())[:-40]
    (folder / "cut.csv.gz").write_bytes(cut)
    moons = make_toy("moons", 40, noise=0.05)
    own = GLNSVC(5, random_state=0).fit(moons.X, moons.y)
    save_model(folder / "own.safetensors", own)
    for name in ("remark", "positive"):
        save_model(folder / f"{name}.safetensors", own, {name: 5})
    return folder


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "words",
    [
        "compare --train-size 20 --units 2 --models svm-linear",
        "train --train-size 20 --units 2 --steps 3",
        "fit --train-size 20 --units 2",
        "sweep grid.toml --workers 1",
        "report",
    ],
)
@pytest.mark.parametrize("size", [0, 200])
def test_a_full_disk_is_one_line(words: str, size: int, shell: Shell) -> None:
    if words == "report":
        shell.json(f"compare {BLOBS} --models svm-linear")
    (shell.folder / "grid.toml").write_text("models = ['svm-linear']\ntrain_size = 20")
    with limited(size):
        done = shell(words)
    assert done.status == 1
    assert "File too large" in done.err
    assert "Traceback" not in done.err


def test_without_a_screen_files_are_written(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after >&- 2>&-, of which Python makes None."""
    monkeypatch.chdir(shell.folder)
    monkeypatch.setattr(sys, "argv", f"implicit-bias fit svm-linear {BLOBS} --json".split())
    for name in ("stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    with pytest.raises(SystemExit) as stop:
        main()
    for screen in (sys.stdout, sys.stderr):
        screen.close()
    assert not stop.value.code
    assert load_model(shell.folder / "svm-linear.safetensors").version


def test_no_columns_are_an_unknown_number() -> None:
    show = "import os; os.environ['COLUMNS'] = '0'; from implicit_bias.cli.output import out"
    assert int(python(f"{show}; print(out.width)")) > 10


def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the work ends in an error of its last line."""
    screen = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.chdir(tmp_path)
    words = f"fit svm-linear {BLOBS} --out \u00e9.safetensors"
    monkeypatch.setattr(sys, "argv", ["implicit-bias", *words.split()])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    screen.seek(0)
    assert r"\xe9.safetensors" in screen.read()


def test_data_lists_and_finds_corruption(tmp_path: Path) -> None:
    (tmp_path / "mnist").mkdir()
    (tmp_path / "mnist" / "t10k-labels-idx1-ubyte").write_bytes(b"not MNIST")
    done = subprocess.run(  # a process of its own, from its start to its exit status
        [sys.executable, "-m", "implicit_bias", "data", "--json"],
        capture_output=True,
        text=True,
        env={**os.environ, "IMPLICIT_BIAS_DATA": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    states = {(f["dataset"], f["file"]): f["state"] for f in json.loads(done.stdout)["files"]}
    assert states["mnist", "t10k-labels-idx1-ubyte"] == "corrupt"
    assert len(states) == 8


# --- towards the limit ---------------------------------------------------------------------------


@pytest.mark.slow
def test_training_towards_the_limit_keeps_the_trained_model(shell: Shell) -> None:
    train = "train gd-gln --train-size 40 --units 4"
    first, file = shell.json(f"{train} --steps 20"), shell.folder / "gd-gln.safetensors"
    before = file.read_bytes()
    second = shell.json(f"{train} --limit-steps 20 --checkpoint state.safetensors")
    assert first["steps"] == second["steps"] == 20
    assert second["file"] == "gd-gln-limit.safetensors"
    assert file.read_bytes() == before
    assert load_model(shell.folder / "gd-gln-limit.safetensors").model is not None
    refused = shell(f"{train} --limit-steps 5 --checkpoint gd-gln-limit-2.safetensors")
    assert (refused.status, "replace the checkpoint" in refused.err) == (2, True)
    third = shell.json(f"{train} --limit-steps 5")
    assert third["file"] == "gd-gln-limit-2.safetensors"
    assert "gd-gln-2-limit-units.png" in third["pictures"]
    done = shell("certify state.safetensors")
    assert done.status == 1
    assert "it is a checkpoint" in done.err
    assert "pass the file that `implicit-bias fit`" in done.err


@pytest.mark.slow
def test_training_towards_the_limit_of_a_norm(shell: Shell) -> None:
    train = "train gd-gln --dataset blobs --train-size 40 --units 3"
    found = shell.json(f"{train} --to-limit --norm linf --method prox-linear --chunk 15")
    assert found["limit_norm"] == "linf"
    assert found["kkt_gap_in_its_norm"] < 1e-5
    assert "residual" not in found  # that is of l2
    assert found["planned_steps"] == 100_000 > found["steps"]
    saved = load_model(shell.folder / "gd-gln-limit.safetensors").model
    assert isinstance(saved, GLNClassifier)
    assert saved.training_.config.limit_norm == "linf"
    assert "linf" in shell.json("certify gd-gln-limit.safetensors")["notes"][0]
    stopped = shell.json(f"{train} --stop-at-gap 0.5 --norm spectral")
    assert stopped["kkt_gap_in_its_norm"] <= 0.5
    assert "gap" in stopped["ending"]


@pytest.mark.slow
def test_train_until_excess(shell: Shell) -> None:
    """Stopped and resumed, the command saves the network, and the history, of one run."""
    goal = "train gd-gln --dataset blobs --train-size 60 --units 4 --until-excess 0.01"
    asked = f"{goal} --checkpoint state.safetensors"
    short = shell.json(f"{asked} --limit-steps 20")
    assert (short["steps"], short["ending"]) == (20, Ending.STEPS.message)
    assert short["excess"] > 0.01
    again = shell(asked)
    assert (again.status, "--resume" in again.err) == (2, True)
    resumed = shell.json(f"{asked} --resume --out resumed.safetensors")
    through = shell(f"{goal} --out sub/through.safetensors")
    assert "excess" in through.err
    assert "Picture: sub/through-limit-excess.png" in through.out
    assert "residual: share of the weights that no multipliers explain; slackness: " in through.out
    assert resumed["ending"] == Ending.REACHED.message
    assert 0.0 < resumed["excess"] <= 0.01
    assert {Path(picture).name for picture in resumed["pictures"]} == {
        f"resumed-limit-{name}.png"
        for name in ("excess", "residual", "slackness", "min-margin", "balance", "units")
    }  # there is no disagreement to draw on data as easy as these
    assert all((shell.folder / picture).is_file() for picture in resumed["pictures"])
    files = [shell.folder / f"{name}.safetensors" for name in ("resumed", "sub/through")]
    first, second = (load_model(file).model for file in files)
    assert first.history()[-1].step == resumed["steps"]
    found, expected = (known(model.margin_view()).coef for model in (first, second))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
def test_train_so_many_steps_towards_the_limit(shell: Shell) -> None:
    """A ReLU network's gates move, so there is no optimum to exceed, but a KKT residual."""
    facts = shell.json(f"train gd-relu {BLOBS} --units 8 --limit-steps 200")
    assert facts["steps"] == 200
    assert facts["excess"] is None
    assert 0.0 < facts["residual"] < 1.0
    assert "limit_norm" not in facts  # it is l2, whether that is said or not
    names = {Path(picture).name for picture in facts["pictures"]}
    assert "gd-relu-limit-residual.png" in names
    assert "gd-relu-limit-excess.png" not in names


def test_the_limit_of_an_optimizer_is_shown(shell: Shell) -> None:
    done = shell(f"train gd-gln {BLOBS} --steps 20 --optimizer sign --learning-rate 0.01")
    assert done.status == 0
    assert "linf margin" in " ".join(done.out.split())


def test_a_lower_bound_says_what_proves_it(shell: Shell) -> None:
    """Training prints that of the multipliers, `certify` that of the solved SVM: the larger."""
    trained = shell.json(f"train gd-gln {BLOBS} --steps 200")
    certified = shell.json("certify gd-gln.safetensors")
    assert "multipliers" in trained["lower_from"]
    assert "SVM" in certified["lower_from"]
    assert certified["lower"] > trained["lower"] == certified["lower_by_multipliers"]


@pytest.mark.parametrize("command", ["", "train"])
def test_short_help(command: str, shell: Shell) -> None:
    short, long = (shell(f"{command} {option}") for option in ("-h", "--help"))
    assert (short.status, short.out) == (0, long.out)
    assert "Usage" in short.out


@pytest.mark.slow
def test_compare_ten_classes(shell: Shell) -> None:
    """The whole way: train, solve, report, certify, and report again."""
    models = ["gd-gln", "svm-gln", "gd-relu", "svm-linear"]
    options = "--classes all --train-size 120 --units 3 --steps 60 --learning-rate 0.2"
    result = shell.json(f"compare {options} --models {','.join(models)}")
    rows = {row["model"]: row for row in result["models"]}
    assert list(rows) == models
    assert all(0 <= row["error"] < 0.6 for row in rows.values())
    assert result["setting"]["classes"] == ["all"]
    assert rows["svm-gln"]["units"] == 10 * 3
    assert rows["svm-gln"]["gap"] <= 1e-6
    folder = shell.folder / "implicit-bias-report"
    predictions = pd.read_csv(folder / "predictions.csv")
    wrong = predictions["svm-gln"] != predictions["true label"]
    assert wrong.mean() == pytest.approx(rows["svm-gln"]["error"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "class +1" not in page
    network = shell.json("certify implicit-bias-report/models/gd-gln.safetensors")
    assert network["lower"] == pytest.approx(rows["svm-gln"]["optimum"], rel=1e-5)
    assert network["samples"] == 120
    assert shell.json("report implicit-bias-report")["models"] == result["models"]
