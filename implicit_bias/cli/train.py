"""`implicit-bias train`: train one network by gradient descent and save it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from implicit_bias.cli.certify import print_legend
from implicit_bias.cli.choices import check_kind, load_data, make_setting
from implicit_bias.cli.fit import fit_and_save
from implicit_bias.cli.folder import MODEL_SUFFIX
from implicit_bias.cli.options import (
    BatchSizeOption,
    DatasetOption,
    DeviceOption,
    HyperplanesOption,
    JsonOption,
    LearningRateOption,
    MomentumOption,
    NegativeOption,
    PositiveOption,
    ProtocolOption,
    SeedOption,
    SplitSeedOption,
    StepsOption,
    ThresholdOption,
    TrainSizeOption,
    UnitsOption,
)
from implicit_bias.cli.output import cell, out, percent, print_json

if TYPE_CHECKING:
    from implicit_bias.networks import Network
    from implicit_bias.runs.configuration import Setting
    from implicit_bias.validation import Array

# Steps of a training with --until-excess alone.
LIMIT_STEPS = 100_000
# What the table shows as percentages.
SHARES = ("excess", "disagreement", "residual", "slackness", "balance")


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
    until_excess: Annotated[
        float | None,
        typer.Option(
            help="Train towards infinite time, until the norm at margin 1 exceeds the certified "
            "optimum by at most this share (gd-gln)."
        ),
    ] = None,
    limit_steps: Annotated[
        int | None,
        typer.Option(
            help="Train towards infinite time, so many steps at most (with --until-excess: 100000)."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that keeps the state of a training to the limit.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, if it is there.")
    ] = False,
    file: Annotated[Path | None, typer.Option("--out", help="File (MODEL.safetensors).")] = None,
    as_json: JsonOption = False,
) -> None:
    """Train one network by gradient descent and save it.

    Towards infinite time it is trained in float64, without a bias, by accelerated full-batch
    descent on the log of the loss. --steps, --batch-size, --learning-rate and --momentum do not
    count then, and pictures of the way are written beside the model.
    """
    to_limit = until_excess is not None or limit_steps is not None
    if to_limit:
        if limit_steps is not None and limit_steps < 1:
            raise typer.BadParameter("--limit-steps must be at least 1")
        steps, batch_size = limit_steps or LIMIT_STEPS, 0
    check_kind(model, trained=True)
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
        steps=steps,
        batch_size=batch_size or None,
        learning_rate=learning_rate,
        momentum=momentum,
        device=device,
    )
    if not to_limit:
        if checkpoint is not None or resume:
            raise typer.BadParameter(
                "--checkpoint and --resume need --until-excess or --limit-steps"
            )
        fit_and_save(setting, model, file, as_json)
        return
    if model == "local-gln":
        raise typer.BadParameter("local learning has no limit of this kind: choose gd-gln, gd-relu")
    if model != "gd-gln" and until_excess is not None:
        raise typer.BadParameter(
            f"--until-excess needs a network whose program training does not change: gd-gln, not "
            f"{model} (--limit-steps takes both)"
        )
    if resume and checkpoint is None:
        raise typer.BadParameter("--resume needs --checkpoint FILE")
    if until_excess is not None and not until_excess > 0:
        raise typer.BadParameter("--until-excess must be positive")
    if checkpoint is not None and checkpoint.exists() and not resume:
        raise typer.BadParameter(f"{checkpoint} is there already: --resume it, or delete it")
    _train_to_limit(setting, model, until_excess, checkpoint, resume, file, as_json)


def _train_to_limit(
    setting: Setting,
    name: str,
    until_excess: float | None,
    checkpoint: Path | None,
    resume: bool,
    file: Path | None,
    as_json: bool,
) -> None:
    """Descend on the log of the loss beside the certified SVM, if the gates are fixed."""
    from implicit_bias.estimators.networks import GLNClassifier, ReLUClassifier
    from implicit_bias.report.page import write_limit
    from implicit_bias.runs.configuration import Builders
    from implicit_bias.saved_models import save_model
    from implicit_bias.solvers import solve
    from implicit_bias.stationarity import FEW_SAMPLES, kkt_measure
    from implicit_bias.training.limit import (
        ComparisonPredictor,
        LimitConfig,
        LimitResult,
        train_to_limit,
    )

    loaded = load_data(setting)
    samples, validation = loaded.parts.train, loaded.parts.validation
    model = Builders(setting, loaded).build(name, homogeneous=True)
    assert isinstance(model, GLNClassifier | ReLUClassifier)  # `check_kind` has seen to it

    def descend(network: Network, X: Array, y: Array) -> LimitResult:
        optimum, reference = None, None
        if network.fixed_gates:
            structure = network.architecture()
            solution = solve(structure.problem(X, y), setting.solver, setting.tol, setting.device)
            solution.raise_for_status()
            optimum = solution.certificate.lower
            decision = structure.decision(validation.X, solution.coef)
            reference = ComparisonPredictor(validation.X, decision)
        return train_to_limit(
            network,
            X,
            y,
            LimitConfig(steps=setting.steps),
            optimum=optimum,
            until_excess=until_excess,
            reference=reference,
            measure=kkt_measure(X, y) if len(y) <= FEW_SAMPLES else None,
            checkpoint=checkpoint,
            resume=resume,
            progress=True,
        )

    model.fit_by(samples.X, samples.y, descend)
    result = model.training_
    assert isinstance(result, LimitResult)
    file = file or Path(f"{name}{MODEL_SUFFIX}")
    save_model(file, model, setting.facts())
    pictures = write_limit(file.parent, file.name.removesuffix(MODEL_SUFFIX), result)
    last = result.history[-1]
    facts: dict[str, Any] = {
        "file": str(file),
        "steps": last.step,
        "evaluations": last.evaluations,
        "ending": result.ending.message,
        "log_loss": last.log_loss,
        "min_margin": last.min_margin,
        "norm": last.norm / last.min_margin if last.min_margin > 0 else math.inf,
        "excess": last.excess,
        "disagreement": last.disagreement,
        **last.measures,
        "balance": last.balance,
    }
    if as_json:
        print_json({**facts, "pictures": [str(picture) for picture in pictures]})
        return
    table = Table("", file.name, title=f"Towards the limit on {len(samples)} samples")
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), percent(value) if key in SHARES else cell(value))
    out.print(table)
    print_legend(facts)
    for picture in pictures:
        out.print(f"Picture: {picture}", soft_wrap=True, highlight=False)
