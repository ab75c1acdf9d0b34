"""`implicit-bias compare`: train networks, solve the SVMs, compare, write a report."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.cli.choices import load_data, make_setting
from implicit_bias.cli.folder import SETTING_FILE, model_file, print_comparison, write_page
from implicit_bias.cli.options import (
    BatchSizeOption,
    DatasetOption,
    DeviceOption,
    FailureOption,
    HyperplanesOption,
    JsonOption,
    LearningRateOption,
    MomentumOption,
    NegativeOption,
    PositiveOption,
    ProtocolOption,
    SeedOption,
    SoftCOption,
    SoftOption,
    SolverOption,
    SplitSeedOption,
    StepsOption,
    ThresholdOption,
    TolOption,
    TrainSizeOption,
    UnitsOption,
)
from implicit_bias.cli.output import err
from implicit_bias.storage.atomic import write_atomically

if TYPE_CHECKING:
    from implicit_bias.estimators.base import BinaryClassifier


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
    setting = make_setting(
        dataset=dataset,
        positive=positive,
        negative=negative,
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
    data = load_data(setting)
    from implicit_bias.runs.configuration import MODEL_NAMES, fit_models
    from implicit_bias.saved_models import save_model

    fitted: dict[str, BinaryClassifier] = {}
    text = json.dumps(setting.facts(), indent=2)
    write_atomically(folder / SETTING_FILE, lambda partial: partial.write_text(text))
    for name, model in fit_models(setting, data, progress=True):
        fitted[name] = model
        save_model(model_file(folder, name), model, setting.facts())
        err.print(f"[bold]{name}[/] done", highlight=False)
    for name in set(MODEL_NAMES) - set(fitted):
        model_file(folder, name).unlink(missing_ok=True)  # of an earlier comparison
    in_order = {name: fitted[name] for name in setting.models}
    comparison, page = write_page(folder, setting, data, in_order)
    print_comparison(comparison, page, setting, as_json)
