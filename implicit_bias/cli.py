"""The command line: `implicit-bias compare | fit | train | certify | trajectory | report | data`.

Results go to standard output (one JSON object with ``--json``), progress and errors to standard
error. Exit status 2 for bad use, 1 for a failed job. Heavy libraries are imported only by the
command that needs them, so that ``--help`` answers at once.
"""

from __future__ import annotations

import json
import math
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from implicit_bias.files import write_atomically

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison
    from implicit_bias.estimators import BinaryClassifier
    from implicit_bias.experiments.setting import Data, Setting

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
out = Console()
err = Console(stderr=True)

# What typer returns after Ctrl-C, as shells do.
INTERRUPTED = 130
SETTING_FILE = "setting.json"
MODEL_SUFFIX = ".safetensors"

DatasetOption = Annotated[
    str, typer.Option(help="digits, mnist, fashion-mnist, xor, circles, moons, spirals, blobs.")
]
PositiveOption = Annotated[
    str | None, typer.Option(help="Digits of the class +1, such as 0,1,2 (default 0,1,2,3,4).")
]
NegativeOption = Annotated[
    str | None, typer.Option(help="Digits of the class -1, such as 7,8 (default 5,6,7,8,9).")
]
TrainSizeOption = Annotated[
    int | None, typer.Option(help="Training samples (default 1000, at most 4/5 of the data).")
]
UnitsOption = Annotated[int, typer.Option(help="Hidden units H.")]
HyperplanesOption = Annotated[int, typer.Option(help="Hyperplanes a unit, k: C = 2^k contexts.")]
ThresholdOption = Annotated[str, typer.Option(help="Thresholds: median, random or zero.")]
SeedOption = Annotated[int, typer.Option(help="Seed of gates, weights and batches.")]
SplitSeedOption = Annotated[int, typer.Option(help="Seed of the training/validation split.")]
ProtocolOption = Annotated[
    str, typer.Option(help="default, or lippl2022: the published split, draws and training.")
]
SoftOption = Annotated[float, typer.Option("--C", help="Weight of the hinge loss; inf: hard.")]
FailureOption = Annotated[
    str,
    typer.Option(
        help="Where samples are not separable: warn; soft (solve the soft margin); or drop (the "
        "samples that the soft margin misclassifies)."
    ),
]
SoftCOption = Annotated[
    float | None,
    typer.Option(
        "--soft-C",
        help="C of the soft margin that soft and drop solve (default 100 / rms feature norm).",
    ),
]
StepsOption = Annotated[int, typer.Option(help="Gradient steps.")]
BatchSizeOption = Annotated[int, typer.Option(help="Samples a step; 0 for all.")]
LearningRateOption = Annotated[float, typer.Option(help="Step size; a quarter from half way.")]
MomentumOption = Annotated[float, typer.Option(help="Momentum of gradient descent.")]
SolverOption = Annotated[
    str, typer.Option(help="auto, interior-point, working-set, ecos, osqp, clarabel or scs.")
]
TolOption = Annotated[float, typer.Option(help="Relative gap between the certified bounds.")]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1, ...")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output.")
]


def _version(asked: bool) -> None:
    if asked:
        from implicit_bias import __version__

        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Where does gradient descent go? Certified implicit-bias SVMs for gated networks."""


@app.command()
def compare(
    dataset: DatasetOption = "digits",
    positive: PositiveOption = None,
    negative: NegativeOption = None,
    train_size: TrainSizeOption = None,
    models: Annotated[
        str,
        typer.Option(
            help="Of gd-gln, local-gln, svm-gln, svm-l2, svm-shallow, svm-linear, gd-relu, "
            "svm-rc, svm-lc, svm-hl; separated by commas."
        ),
    ] = "gd-gln,svm-gln,svm-l2",
    units: UnitsOption = 20,
    hyperplanes: HyperplanesOption = 1,
    threshold: ThresholdOption = "median",
    seed: SeedOption = 1,
    split_seed: SplitSeedOption = 1,
    protocol: ProtocolOption = "default",
    C: SoftOption = math.inf,
    on_failure: FailureOption = "warn",
    soft_C: SoftCOption = None,
    steps: StepsOption = 3200,
    batch_size: BatchSizeOption = 128,
    learning_rate: LearningRateOption = 0.04,
    momentum: MomentumOption = 0.9,
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the report, the tables and the models.")
    ] = Path("implicit-bias-report"),
    as_json: JsonOption = False,
) -> None:
    """Train networks, solve the SVMs they should become, compare, and write a report."""
    setting = _setting(
        dataset=dataset,
        positive=_digits(positive),
        negative=_digits(negative),
        train_size=train_size,
        models=tuple(name.strip() for name in models.split(",")),
        units=units,
        hyperplanes=hyperplanes,
        threshold=threshold,
        seed=seed,
        split_seed=split_seed,
        protocol=protocol,
        C=C,
        on_failure=on_failure,
        soft_C=soft_C,
        steps=steps,
        batch_size=batch_size or None,
        learning_rate=learning_rate,
        momentum=momentum,
        solver=solver,
        tol=tol,
        device=device,
    )
    data = _load(setting)
    from implicit_bias.experiments.setting import MODEL_NAMES, fit_models
    from implicit_bias.storage import save_model

    fitted: dict[str, BinaryClassifier] = {}
    text = json.dumps(setting.facts(), indent=2)
    write_atomically(folder / SETTING_FILE, lambda partial: partial.write_text(text))
    for name, model in fit_models(setting, data):
        fitted[name] = model
        save_model(_model_file(folder, name), model, setting.facts())
        err.print(f"[bold]{name}[/] done", highlight=False)
    for name in set(MODEL_NAMES) - set(fitted):
        _model_file(folder, name).unlink(missing_ok=True)  # of an earlier comparison
    in_order = {name: fitted[name] for name in setting.models}
    comparison, page = _write_report(folder, setting, data, in_order)
    _print_comparison(comparison, page, setting, as_json)


@app.command()
def fit(
    model: Annotated[
        str,
        typer.Argument(help="svm-gln, svm-l2, svm-shallow, svm-linear, svm-rc, svm-lc or svm-hl."),
    ] = "svm-gln",
    dataset: DatasetOption = "digits",
    positive: PositiveOption = None,
    negative: NegativeOption = None,
    train_size: TrainSizeOption = None,
    units: UnitsOption = 20,
    hyperplanes: HyperplanesOption = 1,
    threshold: ThresholdOption = "median",
    seed: SeedOption = 1,
    split_seed: SplitSeedOption = 1,
    protocol: ProtocolOption = "default",
    C: SoftOption = math.inf,
    on_failure: FailureOption = "warn",
    soft_C: SoftCOption = None,
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    file: Annotated[Path | None, typer.Option("--out", help="File (MODEL.safetensors).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Solve one SVM, certify it and save it."""
    _check_kind(model, trained=False)
    setting = _setting(
        dataset=dataset,
        positive=_digits(positive),
        negative=_digits(negative),
        train_size=train_size,
        models=(model,),
        units=units,
        hyperplanes=hyperplanes,
        threshold=threshold,
        seed=seed,
        split_seed=split_seed,
        protocol=protocol,
        C=C,
        on_failure=on_failure,
        soft_C=soft_C,
        solver=solver,
        tol=tol,
        device=device,
    )
    _fit_and_save(setting, model, file, as_json)


@app.command()
def train(
    model: Annotated[str, typer.Argument(help="gd-gln, local-gln or gd-relu.")] = "gd-gln",
    dataset: DatasetOption = "digits",
    positive: PositiveOption = None,
    negative: NegativeOption = None,
    train_size: TrainSizeOption = None,
    units: UnitsOption = 20,
    hyperplanes: HyperplanesOption = 1,
    threshold: ThresholdOption = "median",
    seed: SeedOption = 1,
    split_seed: SplitSeedOption = 1,
    protocol: ProtocolOption = "default",
    steps: StepsOption = 3200,
    batch_size: BatchSizeOption = 128,
    learning_rate: LearningRateOption = 0.04,
    momentum: MomentumOption = 0.9,
    device: DeviceOption = "cpu",
    file: Annotated[Path | None, typer.Option("--out", help="File (MODEL.safetensors).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Train one network by gradient descent and save it."""
    _check_kind(model, trained=True)
    setting = _setting(
        dataset=dataset,
        positive=_digits(positive),
        negative=_digits(negative),
        train_size=train_size,
        models=(model,),
        units=units,
        hyperplanes=hyperplanes,
        threshold=threshold,
        seed=seed,
        split_seed=split_seed,
        protocol=protocol,
        steps=steps,
        batch_size=batch_size or None,
        learning_rate=learning_rate,
        momentum=momentum,
        device=device,
    )
    _fit_and_save(setting, model, file, as_json)


@app.command()
def certify(
    file: Annotated[Path, typer.Argument(help="A model that fit, train or compare saved.")],
    dataset: Annotated[
        str | None, typer.Option(help="Data set; by default the one in the file.")
    ] = None,
    train_size: TrainSizeOption = None,
    split_seed: Annotated[int | None, typer.Option(help="By default the one in the file.")] = None,
    solve: Annotated[
        bool, typer.Option(help="Solve the program for a lower bound; else use the file's own.")
    ] = True,
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    as_json: JsonOption = False,
) -> None:
    """Bound how far a saved network or SVM is from the optimum of its own program."""
    from implicit_bias.experiments.setting import Setting
    from implicit_bias.storage import load_model

    saved = load_model(file)
    if not saved.facts and dataset is None:
        raise typer.BadParameter(f"{file} does not say what data it was fitted to: --dataset ...")
    changes = {"dataset": dataset, "train_size": train_size, "split_seed": split_seed}
    known = {**saved.facts, **{key: value for key, value in changes.items() if value is not None}}
    with _bad_use():
        setting = Setting.from_facts({**known, "solver": solver, "tol": tol, "device": device})
    data = _load(setting)
    _print_certificate(file, saved.model, setting, data, solve, as_json)


@app.command()
def trajectory(
    dataset: DatasetOption = "digits",
    positive: PositiveOption = None,
    negative: NegativeOption = None,
    train_size: TrainSizeOption = None,
    units: UnitsOption = 20,
    seed: SeedOption = 1,
    split_seed: SplitSeedOption = 1,
    protocol: ProtocolOption = "default",
    steps: StepsOption = 3200,
    batch_size: BatchSizeOption = 128,
    learning_rate: LearningRateOption = 0.04,
    momentum: MomentumOption = 0.9,
    at: Annotated[
        str, typer.Option(help="Steps at which to take the gates, separated by commas.")
    ] = "0,10,30,100,300,1000,3200",
    solver: SolverOption = "auto",
    tol: TolOption = 1e-6,
    device: DeviceOption = "cpu",
    folder: Annotated[Path, typer.Option("--out", help="Folder of table and picture.")] = Path(
        "implicit-bias-trajectory"
    ),
    as_json: JsonOption = False,
) -> None:
    """Follow the contexts that a ReLU network learns: SVM-LC along its training."""
    setting = _setting(
        dataset=dataset,
        positive=_digits(positive),
        negative=_digits(negative),
        train_size=train_size,
        models=("gd-relu", "svm-lc"),
        units=units,
        seed=seed,
        split_seed=split_seed,
        protocol=protocol,
        steps=steps,
        batch_size=batch_size or None,
        learning_rate=learning_rate,
        momentum=momentum,
        solver=solver,
        tol=tol,
        device=device,
    )
    asked = _numbers(at, "--at takes steps")
    chosen = tuple(step for step in asked if step <= steps)
    if not chosen:
        raise typer.BadParameter(f"--at names no step up to --steps {steps}: {at}")
    if len(chosen) < len(asked):
        err.print(f"implicit-bias: warning: training ends at step {steps}; later ones are skipped")
    data = _load(setting)
    import pandas as pd

    from implicit_bias.experiments.trajectory import context_trajectory
    from implicit_bias.report import write_trajectory

    points = []
    for point in context_trajectory(setting, data, chosen):
        points.append(vars(point))
        picture = write_trajectory(folder, pd.DataFrame(points))
        err.print(f"gates of step {point.step} done", highlight=False)
    if as_json:
        _print_json({"setting": setting.facts(), "points": points, "picture": str(picture)})
    else:
        out.print(_trajectory_table(points))
        out.print(f"Picture: {picture}", soft_wrap=True, highlight=False)


@app.command()
def report(
    folder: Annotated[Path, typer.Argument(help="A folder that compare wrote.")] = Path(
        "implicit-bias-report"
    ),
    as_json: JsonOption = False,
) -> None:
    """Write the report of a comparison again from its saved models."""
    from implicit_bias.experiments.setting import Setting
    from implicit_bias.storage import load_model

    setting_file = folder / SETTING_FILE
    if not setting_file.is_file():
        raise typer.BadParameter(f"{folder} holds no {SETTING_FILE}: give a folder of `compare`")
    with _bad_use():
        setting = Setting.from_facts(json.loads(setting_file.read_text()))
    files = {name: _model_file(folder, name) for name in setting.models}
    saved = {name: load_model(file) for name, file in files.items() if file.is_file()}
    # An interrupted run leaves the models of the run before it.
    found = {name: item.model for name, item in saved.items() if _is_of(item.facts, setting)}
    if not found:
        raise typer.BadParameter(
            f"{folder} holds no finished model of its setting: run `compare` again"
        )
    data = _load(setting)
    comparison, page = _write_report(folder, setting, data, found)
    _print_comparison(comparison, page, setting, as_json)


@app.command()
def data(
    download: Annotated[
        str | None, typer.Option(help="Download this data set: mnist or fashion-mnist.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the data sets, verify their files, and download what is missing."""
    from implicit_bias import datasets

    if download is not None:
        with _bad_use():
            datasets.download(download)
    files = datasets.data_status()
    if as_json:
        _print_json({"files": [_plain(vars(file)) for file in files]})
    else:
        table = Table("data set", "file", "state", "where or why")
        table.add_row("digits", "(comes with scikit-learn)", "ok", "")
        for file in files:
            where = file.detail or str(file.path or "")
            table.add_row(file.dataset, file.file, file.state, where)
        out.print(table)
    if any(file.state == "corrupt" for file in files):
        raise RuntimeError("a data file is corrupt: delete it and download it again")


def main() -> None:
    """Run the command line; one line on standard error for an error."""
    warnings.showwarning = _show_warning
    try:
        status = app(standalone_mode=False)
    except typer.TyperException as error:
        _fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted; what was finished is saved", 1)
    except (ValueError, RuntimeError, OSError, ImportError, TypeError) as error:
        _fail(str(error), 1)
    if status == INTERRUPTED:
        _fail("interrupted; what was finished is saved", INTERRUPTED)
    sys.exit(status)


def _fail(message: str, status: int) -> None:
    if message:  # empty where help was printed instead
        err.print(f"implicit-bias: {' '.join(message.split())}", markup=False, soft_wrap=True)
    sys.exit(status)


def _show_warning(message: Warning | str, *args: Any, **options: Any) -> None:
    err.print(f"implicit-bias: warning: {message}", markup=False, soft_wrap=True)


@contextmanager
def _bad_use() -> Iterator[None]:
    """Turn errors about the user's own choices into exit status 2."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise typer.BadParameter(str(error)) from error


def _setting(**choices: Any) -> Setting:
    from implicit_bias.experiments.setting import Setting

    with _bad_use():
        return Setting(**choices)


def _load(setting: Setting) -> Data:
    from implicit_bias.experiments.setting import load_data

    with _bad_use():
        return load_data(setting)


def _digits(text: str | None) -> tuple[int, ...] | None:
    return None if text is None else _numbers(text, "classes are digits")


def _numbers(text: str, what: str) -> tuple[int, ...]:
    if not all(number.strip().isdecimal() for number in text.split(",")):
        raise typer.BadParameter(f"{what} separated by commas, such as 0,1,2; got {text!r}")
    return tuple(int(number) for number in text.split(","))


def _is_of(facts: Mapping[str, Any], setting: Setting) -> bool:
    return type(setting).from_facts(facts) == setting


def _check_kind(model: str, *, trained: bool) -> None:
    from implicit_bias.experiments.setting import MODEL_NAMES

    known = [name for name in MODEL_NAMES if name.startswith("svm-") is not trained]
    if model not in known:
        other = "fit" if trained else "train"
        raise typer.BadParameter(
            f"the model must be one of {', '.join(known)}; got {model!r} (see also: {other})"
        )


def _model_file(folder: Path, name: str) -> Path:
    return folder / "models" / f"{name}{MODEL_SUFFIX}"


def _fit_and_save(setting: Setting, name: str, file: Path | None, as_json: bool) -> None:
    from implicit_bias.experiments.setting import fit_models
    from implicit_bias.storage import save_model

    loaded = _load(setting)
    model = dict(fit_models(setting, loaded))[name]
    file = file or Path(f"{name}{MODEL_SUFFIX}")
    save_model(file, model, setting.facts())
    _print_certificate(file, model, setting, loaded, False, as_json)
    view = model.margin_view()
    if view is not None and view.solution is not None:
        view.solution.raise_for_status()


def _write_report(
    folder: Path, setting: Setting, loaded: Data, models: Mapping[str, BinaryClassifier]
) -> tuple[Comparison, Path]:
    import numpy as np
    import torch

    from implicit_bias.comparison import compare as compare_models
    from implicit_bias.report import write_report

    train, validation = loaded.parts.train, loaded.parts.validation
    comparison = compare_models(models, validation.X, validation.y, train=(train.X, train.y))
    facts = {
        "hidden units": str(setting.units),
        "hyperplanes a unit": str(setting.hyperplanes),
        "thresholds": setting.threshold,
        "protocol": setting.protocol,
        "C": f"{setting.C:g}",
        "training": f"{setting.steps:,} steps of {setting.batch_size or 'all'} samples, step size "
        f"{setting.learning_rate:g}, momentum {setting.momentum:g}",
        "seeds": f"{setting.seed} (models), {setting.split_seed} (split)",
        "tolerance": f"{setting.tol:g} ({setting.solver})",
        "versions": f"torch {torch.__version__}, numpy {np.__version__}",
    }
    page = write_report(folder, comparison, models, train=train, evaluation=validation, facts=facts)
    return comparison, page


def _print_comparison(comparison: Comparison, page: Path, setting: Setting, as_json: bool) -> None:
    if as_json:
        _print_json(
            {
                "setting": setting.facts(),
                "models": comparison.model_frame().to_dict(orient="records"),
                "pairs": comparison.pair_frame().to_dict(orient="records"),
                "report": str(page),
            }
        )
        return
    out.print(_models_table(comparison))
    if comparison.pairs:
        out.print(_pairs_table(comparison))
    out.print(f"Report: {page}", soft_wrap=True, highlight=False)


def _print_certificate(
    file: Path,
    model: BinaryClassifier,
    setting: Setting,
    loaded: Data,
    solve: bool,
    as_json: bool,
) -> None:
    from implicit_bias import certificate
    from implicit_bias.solvers import solve as solve_problem

    train = loaded.parts.train
    view = model.margin_view()
    if view is None:
        raise ValueError(
            f"{file}: a network of several hidden layers has no convex program to certify against"
        )
    problem = view.problem(train.X, train.y)
    alpha, status = view.alpha(train.X, train.y), view.solution.status if view.solution else None
    if solve:
        solution = solve_problem(problem, setting.solver, setting.tol, setting.device)
        alpha, status = solution.alpha, solution.status
    bounds = certificate.certify(problem, coef=view.coef, alpha=alpha)
    facts = {
        "file": str(file),
        "lower": bounds.lower,
        "upper": bounds.upper,
        "gap" if view.solution is not None else "excess": bounds.gap,
        "min_margin": bounds.min_margin,
        "status": status.label if status is not None else None,
        "samples": problem.n_samples,
        "left out": len(train) - problem.n_samples,
        "C": view.C,
    }
    if as_json:
        _print_json(facts)
        return
    table = Table("", file.name, title=f"Certified bounds on {problem.n_samples} samples")
    for name, value in facts.items():
        table.add_row(name.replace("_", " "), _cell(value))
    out.print(table)


def _percent(share: float) -> str:
    return "-" if math.isnan(share) else f"{100 * share:.2f} %" if share < math.inf else "inf"


def _models_table(comparison: Comparison) -> Table:
    """Lay out the columns that fit a terminal; the report has them all."""
    table = Table("model", "error", "on training", "norm", "excess", "units on", "status")
    for model in comparison.models:
        cells = [model.name, _percent(model.error), _percent(model.train_error)]
        margin = model.margin
        if margin is not None:
            units = f"{margin.active_units} / {len(margin.unit_norms)}"
            norm, excess = f"{margin.norm:.6g}", _percent(margin.excess)
            cells += [norm, excess, units, margin.status.label if margin.status else "trained"]
        table.add_row(*cells)
    return table


def _trajectory_table(points: Sequence[Mapping[str, Any]]) -> Table:
    shares = {
        "gates changed": "gates_changed",
        "network error": "network_error",
        "SVM error": "error",
        "SVM vs network": "disagreement",
        "SVM vs its end": "disagreement_at_end",
    }
    table = Table("step", *shares, "optimum", "left out")
    for point in points:
        cells = [_percent(point[key]) for key in shares.values()]
        table.add_row(str(point["step"]), *cells, f"{point['optimum']:.4g}", str(point["dropped"]))
    return table


def _pairs_table(comparison: Comparison) -> Table:
    table = Table("pair", "disagreement", "by chance", "kappa")
    for pair in comparison.pairs:
        table.add_row(
            f"{pair.first} / {pair.second}",
            _percent(pair.disagreement),
            _percent(pair.by_chance),
            _cell(pair.kappa),
        )
    return table


def _cell(value: Any) -> str:
    value = _plain(value)
    if value is None:
        return "-"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Make a value what JSON can hold; what is no number becomes null or a word."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, float) and math.isnan(value):
        return None
    return value


def _print_json(facts: Mapping[str, Any]) -> None:
    """Strict JSON: infinity, which it lacks, becomes the word "inf"."""

    def strict(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: strict(item) for key, item in value.items()}
        if isinstance(value, list):
            return [strict(item) for item in value]
        return "inf" if value == math.inf else value

    sys.stdout.write(json.dumps(strict(_plain(facts)), allow_nan=False) + "\n")
