"""The command line: outputs, exit statuses, and what stays on which stream."""

import gzip
import io
import json
import os
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
from implicit_bias.cli import main
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model, save_model
from implicit_bias.runs.configuration import PROTOCOL_DEFAULTS, RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.grid import Grid
from implicit_bias.runs.store import Store
from implicit_bias.training import history, minibatch, trainee

SMALL = ["--train-size", "80", "--units", "4", "--steps", "200"]


@dataclass(frozen=True)
class Finished:
    """What a command has left: its exit status and what is on each stream."""

    status: int
    out: str
    err: str


def run_here(*arguments: str, folder: Path, **environment: str) -> Finished:
    """Run the command line in a folder, and in this process, which has torch already."""
    out, err = io.StringIO(), io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        warnings.catch_warnings(),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        warnings.simplefilter("always")  # as the command line shows them, not as pytest's errors
        warnings.simplefilter("error", DeprecationWarning)
        patch.chdir(folder)
        patch.setattr(sys, "argv", ["implicit-bias", *arguments])
        for name, value in environment.items():
            patch.setenv(name, value)
        with pytest.raises(SystemExit) as stop:
            main()
    return Finished(int(stop.value.code or 0), out.getvalue(), err.getvalue())


def run_json(*arguments: str, folder: Path) -> dict[str, Any]:
    done = run_here(*arguments, "--json", folder=folder)
    assert done.status == 0, done.err
    result = json.loads(done.out)
    assert done.out.count("\n") == 1  # nothing else on standard output
    assert isinstance(result, dict)
    return result


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("compare")
    return folder, run_json("compare", *SMALL, folder=folder)


def test_compare_writes_everything_and_report_writes_it_again(
    finished: tuple[Path, dict[str, Any]],
) -> None:
    folder, result = finished
    report = folder / "implicit-bias-report"
    network, svm, _ = result["models"]
    assert [row["model"] for row in result["models"]] == ["gd-gln", "svm-gln", "svm-l2"]
    assert len(result["pairs"]) == 3
    assert result["setting"]["C"] == "inf"
    assert result["setting"]["momentum"] == 0.9 != PROTOCOL_DEFAULTS["lippl2022"]["momentum"]
    assert (svm["status"], network["optimum"]) == ("optimal", svm["optimum"])
    assert svm["gap"] <= 1e-6
    assert {file.stem for file in (report / "models").iterdir()} == {"gd-gln", "svm-gln", "svm-l2"}
    page = report / "report.html"
    before = page.read_bytes()
    page.unlink()
    again = run_json("report", "implicit-bias-report", folder=folder)
    assert again["models"] == result["models"]
    assert page.read_bytes() == before


def test_a_comparison_overwrites_nothing(tmp_path: Path) -> None:
    """Neither files of another origin nor an earlier report; what it names as next runs."""
    notes = tmp_path / "notes"
    notes.mkdir()
    (notes / "todo.txt").write_text("mine")
    compare = ["compare", *SMALL, "--models", "gd-gln", "--out", "notes"]
    first = run_json(*compare, folder=tmp_path)
    assert Path(first["report"]) == Path("notes/report.html")
    written = {file: file.read_bytes() for file in notes.rglob("*") if file.is_file()}
    second = run_here(*compare, folder=tmp_path)
    assert second.status == 0
    assert "notes is kept" in second.err
    assert f"Report: {Path('notes-2/report.html')}" in second.out
    assert all(file.read_bytes() == before for file, before in written.items())
    train = ["train", "gd-gln", *SMALL[:4], "--limit-steps", "5"]
    trained = run_here(*train, "--out", "notes/limit/later.safetensors", folder=tmp_path)
    (line,) = (line for line in trained.out.splitlines() if line.startswith("Next: "))
    again = run_here(*shlex.split(line)[2:], folder=tmp_path)
    assert again.status == 0
    assert "later" in again.out
    assert {file.name for file in tmp_path.iterdir()} == {"notes", "notes-2"}


def test_certify_a_saved_network_and_svm(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, result = finished
    models = folder / "implicit-bias-report" / "models"
    svm = run_json("certify", str(models / "svm-gln.safetensors"), "--no-solve", folder=folder)
    assert svm["gap"] <= 1e-6
    network = run_json("certify", str(models / "gd-gln.safetensors"), folder=folder)
    assert network["lower"] == pytest.approx(svm["lower"], rel=2e-6)
    alone = run_json("certify", str(models / "gd-gln.safetensors"), "--no-solve", folder=folder)
    assert 0 < alone["lower"] == alone["lower_by_multipliers"] <= network["lower"]
    assert alone["gap"] == pytest.approx(alone["upper"] / alone["lower"] - 1)
    assert network["excess"] == pytest.approx(network["upper"] / network["lower"] - 1)
    assert "excess" not in alone  # it is over the optimum, which was not solved for
    assert 0 < alone["kkt_gap"] == pytest.approx(alone["residual"] ** 2 + 2 * alone["slackness"])
    assert alone["misclassified"] == 0
    within, why = alone["notes"]
    assert within == f"The network is within {100 * alone['gap']:.2f} % of the limit."
    assert "certify" in why
    other = run_json(
        "certify", str(models / "svm-gln.safetensors"), "--split-seed", "2", folder=folder
    )
    assert other["samples"] == 80
    assert other["lower"] != pytest.approx(svm["lower"], rel=1e-3)


def test_tables_say_what_their_measures_are(finished: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = finished
    done = run_here("certify", "implicit-bias-report/models/gd-gln.safetensors", folder=folder)
    assert "svm status" in done.out
    (legend,) = (line for line in done.out.splitlines() if line.startswith("residual: "))
    assert all(f"; {name}: " in legend for name in ("slackness", "kkt gap", "epsilon", "delta"))


@pytest.mark.parametrize("stop", [KeyboardInterrupt, typer.Abort])
def test_ctrl_c_is_one_line(
    stop: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press(*choices: Any, **options: Any) -> None:
        raise stop

    monkeypatch.setattr("implicit_bias.runs.data.load_data", press)
    done = run_here("fit", folder=tmp_path)
    assert done.status == 130
    assert done.err == "implicit-bias: interrupted; any file written before is kept\n"


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in the first training, at the tenth point of its history."""
    calls = iter(range(1000))

    class Pressed(history.Observer):
        def __call__(self, step: int) -> history.HistoryPoint:
            if next(calls) == 10:
                raise KeyboardInterrupt
            return super().__call__(step)

    for module in (minibatch, trainee):
        monkeypatch.setattr(module, "Observer", Pressed)


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("model", ["gd-gln", "svm-lc"])
def test_an_interrupted_comparison_says_so(model: str, tmp_path: Path) -> None:
    done = run_here("compare", *SMALL, "--models", model, "--json", folder=tmp_path)
    assert done.status == 130
    (row,) = json.loads(done.out)["models"]
    assert row["interrupted"]
    report = tmp_path / "implicit-bias-report"
    if model == "gd-gln":
        assert 0 < row["steps"] < row["planned_steps"] == 200
        words = f"interrupted after {int(row['steps'])} of 200 steps"
        assert words in (report / "report.html").read_text()
        again = run_here("report", folder=tmp_path)
        assert words in " ".join(again.out.replace("│", " ").split())
        saved = load_model(report / "models" / "gd-gln.safetensors").model
        assert isinstance(saved, GLNClassifier)
        assert saved.training_.interrupted
    assert "<dt>interrupted</dt>" in (report / "report.html").read_text()


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("way", [["--steps", "200"], ["--limit-steps", "200"]])
def test_an_interrupted_training_says_so(way: list[str], tmp_path: Path) -> None:
    train = ["train", "gd-gln", "--train-size", "40", "--units", "4", *way]
    done = run_here(*train, "--json", folder=tmp_path)
    assert done.status == 130
    found = json.loads(done.out)
    assert found["interrupted"]
    assert 0 < found["steps"] < found["planned_steps"] == 200
    if "--steps" in way:
        certified = run_here("certify", "gd-gln.safetensors", folder=tmp_path)
        assert f"interrupted after {found['steps']} of 200 steps" in certified.out


@pytest.mark.usefixtures("ctrl_c")
def test_an_interrupted_training_has_no_trajectory(tmp_path: Path) -> None:
    assert run_here("trajectory", *SMALL, "--at", "0,200", folder=tmp_path).status == 130


def test_a_network_that_does_not_separate_is_told_so(tmp_path: Path) -> None:
    train = ["train", "gd-gln", "--train-size", "80", "--units", "4", "--steps", "3"]
    trained = run_here(*train, folder=tmp_path)
    assert "on the wrong side" in trained.out
    assert "inf" not in trained.out
    assert "kkt gap" not in trained.out
    certified = run_json("certify", "gd-gln.safetensors", folder=tmp_path)
    wrong = certified["misclassified"]
    assert wrong > 0
    assert certified["lower"] > 0
    assert certified["upper"] == certified["excess"] == "inf"
    assert "residual" not in certified
    (note,) = certified["notes"]
    assert f"no upper bound, excess or multipliers: {wrong} of 80 samples are on the" in note
    skipped = run_json("certify", "gd-gln.safetensors", "--no-multipliers", folder=tmp_path)
    assert "dead_units" not in skipped
    assert skipped["lower"] == certified["lower"]


def test_certify_networks_without_bounds(tmp_path: Path) -> None:
    data = load_data(RunConfig(train_size=80)).parts.train
    facts = RunConfig(train_size=80).metadata()
    deep = GLNClassifier((6, 4), momentum=0.9, steps=300, random_state=1).fit(data.X, data.y)
    save_model(tmp_path / "deep.safetensors", deep, facts)
    result = run_json("certify", "deep.safetensors", folder=tmp_path)
    assert result["degree"] == 3
    assert 0 < result["kkt_gap"] < 1
    assert "lower" not in result
    assert "no convex program" in result["notes"][0]

    biased = GLNClassifier(6, readout_bias=True, momentum=0.9, steps=300, random_state=1)
    save_model(tmp_path / "biased.safetensors", biased.fit(data.X, data.y), facts)
    result = run_json("certify", "biased.safetensors", folder=tmp_path)
    assert 0 < result["lower"] < result["upper"] < float("inf")
    assert "degree" not in result
    assert "bias is left out" in result["notes"][0]
    assert "not homogeneous of degree" in result["notes"][1]


@pytest.mark.parametrize(
    ("model", "goal"),
    [
        ("gd-gln", "of the limit."),
        ("gd-relu", "of the limit that it has if its gates stay."),
        ("local-gln", "so that need not be its limit."),
    ],
)
def test_only_a_limit_is_called_one(model: str, goal: str, tmp_path: Path) -> None:
    options = "--dataset blobs --train-size 40 --units 8 --steps 300 --learning-rate 0.1"
    notes = run_json("train", model, *options.split(), folder=tmp_path)["notes"]
    (within,) = (note for note in notes if note.startswith("The network is within"))
    assert within.endswith(goal)


def test_trajectory(tmp_path: Path) -> None:
    result = run_json("trajectory", *SMALL, "--at", "0,100", folder=tmp_path)
    assert [point["step"] for point in result["points"]] == [0, 100]
    assert (tmp_path / "implicit-bias-trajectory" / "trajectory.png").is_file()


@pytest.mark.parametrize("dataset", ["moons", "xor"])
def test_samples_that_no_svm_separates(dataset: str, tmp_path: Path) -> None:
    linear = ["fit", "svm-linear", "--dataset", dataset, "--train-size", "60"]
    done = run_here(*linear, folder=tmp_path)
    assert done.status == 1
    assert done.err.count("not separable") == 1
    assert "finite C" in done.err
    assert "on_failure='soft'" in done.err
    assert "constant" not in done.err  # the data have one, and no offset helps
    reduced = run_json(*linear, "--on-failure", "drop", folder=tmp_path)
    assert reduced["status"] == "optimal"
    assert reduced["gap"] <= 1e-6  # of the samples that are left
    assert reduced["samples"] < 60


@pytest.mark.slow
def test_own_data_from_file_to_report_and_certificate(tmp_path: Path) -> None:
    moons = make_toy("moons", 60, noise=0.05)
    table = pd.DataFrame(moons.X[:, :2], columns=["east", "north"])
    table["kind"] = "Down"
    table.loc[moons.y > 0, "kind"] = "up"
    (tmp_path / "there").mkdir()
    table.to_csv(tmp_path / "there" / "moons.csv", index=False)
    own = ["--data", "there/moons.csv", "--target", "kind", "--positive", "UP"]
    result = run_json("compare", *own, "--models", "svm-gln", "--units", "6", folder=tmp_path)
    assert result["models"][0]["status"] == "optimal"
    page = (tmp_path / "implicit-bias-report" / "report.html").read_text("utf-8")
    assert "moons.csv" in page
    assert "intercept" in page
    model = "../implicit-bias-report/models/svm-gln.safetensors"
    certified = run_json("certify", model, folder=tmp_path / "there")
    assert certified["gap"] <= 1e-6
    (tmp_path / "grid.toml").write_text(
        "data = 'there/moons.csv'\ntarget = 'kind'\nstandardize = [false, true]\n"
        "models = ['svm-gln']\nunits = 6\n"
    )
    swept = run_json("sweep", "grid.toml", "--processes", "1", folder=tmp_path)
    assert (swept["computed"], swept["failed"]) == (2, 0)
    wrong = run_here("fit", "svm-gln", "--data", "there/moons.csv", folder=tmp_path)
    assert wrong.status == 2
    assert "--target" in wrong.err
    assert wrong.err.count("\n") == 1


def test_report_takes_a_network_that_was_trained_on(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Beside the models of the folder, by the name of its file; and says what it leaves out."""
    folder = tmp_path / "again"
    shutil.copytree(finished[0] / "implicit-bias-report", folder)
    first = finished[1]["models"][0]["model"]
    (folder / "models" / f"{first}.safetensors").rename(tmp_path / "later.safetensors")
    done = run_here("report", "again", "--network", "later.safetensors", folder=tmp_path)
    assert done.status == 0
    assert f"left out, not finished or not of this comparison: {first}" in done.err
    assert "later" in done.out
    page = (folder / "report.html").read_text("utf-8")
    assert "implicit-bias report again --network later.safetensors" in page
    saved = load_model(tmp_path / "later.safetensors")
    facts = {**(saved.facts or {}), "units": 999}
    save_model(tmp_path / "wider.safetensors", saved.model, facts)
    wider = run_here("report", "again", "--network", "wider.safetensors", folder=tmp_path)
    assert (wider.status, "units" in wider.err) == (2, True)
    second = f"again/models/{finished[1]['models'][1]['model']}.safetensors"
    twice = run_here("report", "again", "--network", second, folder=tmp_path)
    assert (twice.status, "another name" in twice.err) == (2, True)


def test_report_refuses_models_of_another_configuration(
    finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    mixed = tmp_path / "mixed"
    shutil.copytree(finished[0] / "implicit-bias-report", mixed)
    setting = json.loads((mixed / "setting.json").read_text())
    (mixed / "setting.json").write_text(json.dumps({**setting, "units": 5}))
    done = run_here("report", "mixed", folder=tmp_path)
    assert done.status == 2
    assert "no finished model" in done.err


def test_fit_and_train(tmp_path: Path) -> None:
    fitted = run_json("fit", "svm-rc", *SMALL[:4], "--out", "a/rc.safetensors", folder=tmp_path)
    assert fitted["status"] == "optimal"
    assert (tmp_path / "a" / "rc.safetensors").is_file()
    trained = run_json("train", "gd-relu", *SMALL, folder=tmp_path)
    assert trained["svm_status"] is None
    assert trained["balance"] > 0
    assert (tmp_path / "gd-relu.safetensors").is_file()


GRID = """
train_size = [40, 5000]
seed = [1, 2]
units = 3
models = ["svm-gln", "svm-linear"]
"""


def test_sweep_status_and_export(tmp_path: Path) -> None:
    def call(*arguments: str) -> tuple[int, Any, str]:
        done = run_here(*arguments, "--json", folder=tmp_path)
        return done.status, json.loads(done.out), done.err

    (tmp_path / "grid.toml").write_text(GRID)
    code, facts, errors = call("sweep", "grid.toml", "--processes", "1")
    assert code == 1
    store = facts.pop("store")
    assert store == "implicit-bias-sweep"
    assert facts == {"cells": 4, "computed": 4, "done": 2, "failed": 2}
    assert "train_size 40, seed 1; done;" in errors
    assert "2 cells failed: `implicit-bias status grid.toml" in errors
    assert call("sweep", "grid.toml")[1]["computed"] == 0
    _, status, _ = call("status", "grid.toml")
    assert (status["done"], status["missing"], status["damaged"]) == (2, 0, [])
    assert list(status["failed"]) == ["train_size 5000, seed 1", "train_size 5000, seed 2"]
    assert "train_size=5000" in status["failed"]["train_size 5000, seed 1"]
    shown = run_here("status", "grid.toml", folder=tmp_path)
    assert shown.status == 0
    assert "train_size 5000, seed 2" in shown.out
    (tmp_path / "grid.toml").write_text(GRID.replace("5000", "50"))
    _, export, errors = call("export", "grid.toml")
    assert export["rows"] == {"cells": 2, "models": 4, "pairs": 2}
    assert "2 cells have no results yet" in errors
    table = pd.read_parquet(tmp_path / "implicit-bias-tables" / "models.parquet")
    assert list(table["seed"]) == [1, 1, 2, 2]
    assert set(table["status"]) == {"optimal"}


def test_a_sweep_that_leaves_cells_to_another_fails(tmp_path: Path) -> None:
    (tmp_path / "grid.toml").write_text("seed = [1, 2]")
    other = Store(tmp_path / "there")
    other.prepare()
    assert all([other.claim(key) for key in Grid.read(tmp_path / "grid.toml").by_key()])
    done = run_here("sweep", "grid.toml", "--store", "there", folder=tmp_path)
    assert (done.status, "2 cells" in done.err, "done 0" in done.out) == (1, True, True)


def test_help_is_light() -> None:
    code = (
        "import sys\n"
        "sys.argv = ['implicit-bias', 'compare', '--help']\n"
        "from implicit_bias.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "heavy = {'torch', 'sklearn', 'cvxpy', 'pandas', 'numpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "--train-size" in done.stdout


def test_a_shell_completes_commands(tmp_path: Path) -> None:
    asked = {"COMP_WORDS": "implicit-bias tra", "COMP_CWORD": "1"}
    done = run_here(folder=tmp_path, _IMPLICIT_BIAS_COMPLETE="complete_bash", **asked)
    assert done.out.split() == ["train", "trajectory"]


def test_what_is_wrong_with_data_is_said_at_once(tmp_path: Path) -> None:
    """Before torch and scikit-learn are imported, which takes seconds."""
    (tmp_path / "own.csv").write_text("a,kind\n1,x\n2,y\n")
    code = (
        "import sys\n"
        "sys.argv = 'implicit-bias compare --data own.csv --target king'.split()\n"
        "from implicit_bias.cli import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert stop.code == 2\n"
        "heavy = {'torch', 'sklearn', 'cvxpy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'king'" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ("compare --dataset cifar", 2, "dataset"),
        ("compare --models svm-gln,svm-xl", 2, "models"),
        ("compare --units 0", 2, "units must be at least 1"),
        ("compare --units many", 2, "valid integer"),
        ("compare --train-size 5000", 2, "at most 1438"),
        ("compare --positive 0,1 --negative 1,2", 2, "digits [1] are both"),
        ("compare --positive a", 2, "separated by commas"),
        ("compare --models svm-gln,svm-gln", 2, "twice"),
        ("compare --C -1", 2, "C must be in"),
        ("compare --momentum 2", 2, "momentum"),
        ("compare --protocol lippl2022", 2, "MNIST only"),
        ("compare --solver gurobi", 2, "solver"),
        ("fit svm-linear --classes 1,2 --positive 3", 2, "classes"),
        ("fit svm-linear --dataset mnist --protocol lippl2022 --classes all", 2, "two classes"),
        ("trajectory --steps 5 --at 100", 2, "--at"),
        ("fit gd-gln", 2, "svm-gln"),
        ("fit --out x.pkl", 2, "x.safetensors"),
        ("train --out x.pt", 2, "x.safetensors"),
        ("train --out good.toml/x.safetensors", 1, "good.toml is a file"),
        ("fit --units 1000000000", 2, "units must be at most"),
        ("fit svm-linear --data cut.csv.gz --target kind", 2, "cut.csv.gz"),
        ("fit --dataset mnist", 1, "train-images-idx3-ubyte is unusable"),
        ("frobnicate", 2, "No such command"),
        ("data --download digits", 2, "'digits'"),
        ("report nowhere", 2, "setting.json"),
        *((f"report {text}", 2, "is no configuration") for text in ("[]", "3", "null")),
        ("certify absent.safetensors", 1, "no such file: absent.safetensors"),
        ("certify own.safetensors", 2, "--dataset"),
        ("sweep bad.toml", 2, "did you mean 'units'"),
        ("sweep absent.toml", 2, "no such file: absent.toml"),
        ("sweep good.toml --store .", 2, "no store"),
        ("sweep good.toml --processes 0", 2, "at least 1"),
        ("sweep good.toml --processes 2 --scheduler tcp://x:1", 2, "leave it out"),
        ("status bad.toml", 2, "unknown key 'unit'"),
        ("export good.toml", 1, "`sweep`"),
        ("train --norm linf", 2, "--to-limit"),
        ("train --chunk 5", 2, "--to-limit"),
        ("train --resume", 2, "--to-limit"),
        ("train --to-limit --norm l7", 2, "norm"),
        ("train --to-limit --chunk 0", 2, "chunk"),
        ("train --to-limit --method swift", 2, "method"),
        ("train --to-limit --optimizer sign", 2, "linf"),
        ("train --to-limit --resume", 2, "checkpoint"),
        ("train --to-limit --checkpoint good.toml", 2, "is there already"),
        ("train --limit-steps 0", 2, "steps"),
        ("train --stop-at-gap 2", 2, "stop_at_gap"),
        ("train --until-excess 0", 2, "until_excess"),
        ("train --until-excess 0.1 --norm l1", 2, "stop_at_gap"),
        ("train gd-relu --until-excess 0.1", 2, "gap"),
        ("train local-gln --to-limit", 2, "gd-gln"),
    ],
)
def test_what_cannot_be_is_one_line(words: str, code: int, message: str, places: Path) -> None:
    done = run_here(*words.split(), folder=places, IMPLICIT_BIAS_DATA=str(places))
    assert (done.status, done.out, done.err.count("\n")) == (code, "", 1)
    assert message in done.err


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with files that are of no use."""
    folder = tmp_path_factory.mktemp("places")
    (folder / "bad.toml").write_text("unit = 3")
    (folder / "good.toml").write_text("units = 3")
    (folder / "mnist").mkdir()
    (folder / "mnist" / "train-images-idx3-ubyte").write_bytes(b"not MNIST")
    for text in ("[]", "3", "null"):
        (folder / text).mkdir()
        (folder / text / "setting.json").write_text(text)
    table = pd.DataFrame({"a": np.random.default_rng(0).normal(size=99), "kind": [0, 1, 1] * 33})
    cut = gzip.compress(table.to_csv(index=False).encode())[:-40]
    (folder / "cut.csv.gz").write_bytes(cut)
    moons = make_toy("moons", 40, noise=0.05)
    save_model(folder / "own.safetensors", GLNSVC(5, random_state=0).fit(moons.X, moons.y))
    return folder


@pytest.mark.parametrize(
    ("command", "size"),
    [
        # A sweep that can begin its store starts a process, which takes seconds.
        pytest.param(command, size, marks=pytest.mark.slow if size and command == "sweep" else ())
        for command in ("compare", "train", "fit", "sweep", "report")
        for size in (0, 200)
    ],
)
def test_a_full_disk_is_one_line(
    command: str, size: int, finished: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    resource = pytest.importorskip("resource")
    shutil.copytree(finished[0] / "implicit-bias-report", tmp_path / "implicit-bias-report")
    (tmp_path / "grid.toml").write_text("models = ['svm-linear']\ntrain_size = 20")
    small = ["--train-size", "20", "--units", "2"]
    arguments = {
        "compare": ["compare", *small, "--models", "svm-linear"],
        "train": ["train", *small, "--steps", "3"],
        "fit": ["fit", *small],
        "sweep": ["sweep", "grid.toml", "--processes", "1"],
        "report": ["report"],
    }[command]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        done = run_here(*arguments, folder=tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert done.status == 1
    assert "File too large" in done.err
    assert "Traceback" not in done.err


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


@pytest.mark.slow
@pytest.mark.skipif("IMPLICIT_BIAS_DATA" not in os.environ, reason="needs MNIST")
def test_published_cell(tmp_path: Path) -> None:
    result = run_json(
        *["compare", "--dataset", "mnist", "--protocol", "lippl2022", "--train-size", "500"],
        *["--units", "10", "--hyperplanes", "1"],
        folder=tmp_path,
    )
    models = {row["model"]: row for row in result["models"]}
    assert result["setting"]["momentum"] == 0
    # The released accuracies: of the network up to a few images, which the kernels decide.
    assert 1 - models["gd-gln"]["error"] == pytest.approx(0.839, abs=0.005)
    svm = models["svm-gln"]
    assert svm["optimum"] == pytest.approx(1.711793418, rel=1e-6)
    assert svm["gap"] < 1e-6
    assert 1 - svm["error"] == pytest.approx(0.849583, abs=1e-6)


@pytest.mark.slow
@pytest.mark.skipif("IMPLICIT_BIAS_DATA" not in os.environ, reason="needs MNIST")
@pytest.mark.parametrize(
    ("options", "released"),
    [
        ("--units 20 --hyperplanes 2 --threshold random --seed 2", 0.83275),
        ("--units 10 --momentum 0.9", 0.8365),
    ],
)
def test_networks_of_released_cells(tmp_path: Path, options: str, released: float) -> None:
    """`--seed`, `--threshold` and `--momentum` as the released tables have them."""
    result = run_json(
        *["compare", "--dataset", "mnist", "--protocol", "lippl2022", "--train-size", "500"],
        *["--models", "gd-gln,svm-gln", *options.split()],
        folder=tmp_path,
    )
    network = {row["model"]: row for row in result["models"]}["gd-gln"]
    assert round(1 - network["error"], 6) == released


def test_training_towards_the_limit_keeps_the_trained_model(tmp_path: Path) -> None:
    train = ["train", "gd-gln", "--train-size", "40", "--units", "4"]
    first = run_json(*train, "--steps", "20", folder=tmp_path)
    before = (tmp_path / "gd-gln.safetensors").read_bytes()
    kept = ["--limit-steps", "20", "--checkpoint", "state.safetensors"]
    second = run_json(*train, *kept, folder=tmp_path)
    assert first["steps"] == second["steps"] == 20
    assert second["file"] == "gd-gln-limit.safetensors"
    assert (tmp_path / "gd-gln.safetensors").read_bytes() == before
    assert load_model(tmp_path / "gd-gln-limit.safetensors").model is not None
    done = run_here("certify", "state.safetensors", folder=tmp_path)
    assert done.status == 1
    assert "it is a checkpoint" in done.err
    assert "pass the file that `implicit-bias fit`" in done.err


def test_training_towards_the_limit_of_a_norm(tmp_path: Path) -> None:
    train = ["train", "gd-gln", "--dataset", "blobs", "--train-size", "40", "--units", "3"]
    goal = ["--to-limit", "--norm", "linf", "--method", "prox-linear", "--chunk", "15"]
    found = run_json(*train, *goal, folder=tmp_path)
    assert found["limit_norm"] == "linf"
    assert found["kkt_gap_in_its_norm"] < 1e-5
    assert "residual" not in found  # that is of l2
    assert found["planned_steps"] == 100_000 > found["steps"]
    saved = load_model(tmp_path / "gd-gln-limit.safetensors").model
    assert isinstance(saved, GLNClassifier)
    assert saved.training_.config.limit_norm == "linf"
    notes = run_json("certify", "gd-gln-limit.safetensors", folder=tmp_path)["notes"]
    assert "linf" in notes[0]
    stopped = run_json(*train, "--stop-at-gap", "0.5", "--norm", "spectral", folder=tmp_path)
    assert stopped["kkt_gap_in_its_norm"] <= 0.5
    assert "gap" in stopped["ending"]


def test_a_lower_bound_says_what_proves_it(tmp_path: Path) -> None:
    """Training prints that of the multipliers, `certify` that of the solved SVM: the larger."""
    train = ["train", "gd-gln", "--dataset", "blobs", "--train-size", "40", "--units", "4"]
    trained = run_json(*train, "--steps", "200", folder=tmp_path)
    certified = run_json("certify", "gd-gln.safetensors", folder=tmp_path)
    assert "multipliers" in trained["lower_from"]
    assert "SVM" in certified["lower_from"]
    assert certified["lower"] > trained["lower"] == certified["lower_by_multipliers"]


@pytest.mark.parametrize("command", [[], ["train"]])
def test_short_help(command: list[str], tmp_path: Path) -> None:
    short, long = (run_here(*command, option, folder=tmp_path) for option in ("-h", "--help"))
    assert (short.status, short.out) == (0, long.out)
    assert "Usage" in short.out


@pytest.mark.slow
def test_compare_ten_classes(tmp_path: Path) -> None:
    """The whole way: train, solve, report, certify, and report again."""
    options = ["--classes", "all", "--train-size", "120", "--units", "3", "--steps", "60"]
    models = ["--models", "gd-gln,svm-gln,gd-relu,svm-linear", "--learning-rate", "0.2"]
    result = run_json("compare", *options, *models, folder=tmp_path)
    rows = {row["model"]: row for row in result["models"]}
    assert list(rows) == ["gd-gln", "svm-gln", "gd-relu", "svm-linear"]
    assert all(0 <= row["error"] < 0.6 for row in rows.values())
    assert result["setting"]["classes"] == ["all"]
    assert rows["svm-gln"]["units"] == 10 * 3
    assert rows["svm-gln"]["gap"] <= 1e-6
    folder = tmp_path / "implicit-bias-report"
    confusion = pd.read_csv(folder / "confusion.csv")
    assert len(confusion) == 4 * 10 * 10
    svm = confusion[confusion["model"] == "svm-gln"]
    right = svm.loc[svm["class"] == svm["predicted"], "samples"].sum()
    assert 1 - right / svm["samples"].sum() == pytest.approx(rows["svm-gln"]["error"])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Which classes are confused" in page
    assert "class +1" not in page
    network = run_json("certify", str(folder / "models" / "gd-gln.safetensors"), folder=tmp_path)
    assert network["lower"] == pytest.approx(rows["svm-gln"]["optimum"], rel=1e-5)
    assert network["samples"] == 120
    again = run_json("report", "implicit-bias-report", folder=tmp_path)
    assert again["models"] == result["models"]
