"""`implicit-bias fit`: solve one SVM, certify it and save it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.cli.certify import print_certificate
from implicit_bias.cli.choices import check_kind, load_data, make_setting
from implicit_bias.cli.folder import MODEL_SUFFIX
from implicit_bias.cli.options import (
    DatasetOption,
    DeviceOption,
    FailureOption,
    HyperplanesOption,
    JsonOption,
    NegativeOption,
    PositiveOption,
    ProtocolOption,
    SeedOption,
    SoftCOption,
    SoftOption,
    SolverOption,
    SplitSeedOption,
    ThresholdOption,
    TolOption,
    TrainSizeOption,
    UnitsOption,
)

if TYPE_CHECKING:
    from implicit_bias.runs.configuration import Setting


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
    check_kind(model, trained=False)
    setting = make_setting(
        dataset=dataset,
        positive=positive,
        negative=negative,
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
    fit_and_save(setting, model, file, as_json)


def fit_and_save(setting: Setting, name: str, file: Path | None, as_json: bool) -> None:
    """Fit one model of a setting, save it beside its facts, and print its bounds."""
    from implicit_bias.certificate import Status
    from implicit_bias.runs.configuration import fit_models
    from implicit_bias.saved_models import save_model

    loaded = load_data(setting)
    model = dict(fit_models(setting, loaded, progress=True))[name]
    file = file or Path(f"{name}{MODEL_SUFFIX}")
    save_model(file, model, setting.facts())
    print_certificate(file, model, setting, loaded, False, as_json)
    view = model.margin_view()
    if view is not None and view.solution is not None:
        if view.solution.status is not Status.OPTIMAL:
            raise typer.Exit(1)  # fitting has warned of it
