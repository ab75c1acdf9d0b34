"""`implicit-bias train`: train one network by gradient descent and save it."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.cli.choices import NETWORK_NAMES, check_model, load_data
from implicit_bias.cli.fit import fit_and_save
from implicit_bias.cli.options import JsonOption, ModelFileOption, takes_config
from implicit_bias.cli.output import INTERRUPTED, out, print_json, print_values
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.networks import Network
    from implicit_bias.validation import Array

# Steps of a training with --until-excess alone.
LIMIT_STEPS = 100_000


@takes_config("Data", "Architecture", "Training", "device")
def train(
    config: RunConfig,
    model: Annotated[str, typer.Argument(help=f"Of {', '.join(NETWORK_NAMES)}.")] = "gd-gln",
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
            help="Train towards infinite time, this many steps at most (with --until-excess: "
            "100000)."
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that keeps the state of a training to the limit.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue from the checkpoint, if it is there.")
    ] = False,
    file: ModelFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train one network by gradient descent and save it.

    Towards infinite time it is trained in float64, without a bias, by accelerated full-batch
    descent on the log of the loss. --steps, --batch-size, --learning-rate and --momentum do not
    count then, and pictures of the way are written beside the model.
    """
    check_model(model, NETWORK_NAMES, "fit")
    config = replace(config, models=(model,))
    if until_excess is None and limit_steps is None:
        if checkpoint is not None or resume:
            raise typer.BadParameter(
                "--checkpoint and --resume need --until-excess or --limit-steps"
            )
        fit_and_save(config, file, as_json)
        return
    if limit_steps is not None and limit_steps < 1:
        raise typer.BadParameter("--limit-steps must be at least 1")
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
    config = replace(config, steps=limit_steps or LIMIT_STEPS, batch_size=None)
    data = load_data(config)
    from implicit_bias.report.page import write_limit
    from implicit_bias.runs.beside_svm import train_beside_svm
    from implicit_bias.runs.comparison_folder import MODEL_SUFFIX
    from implicit_bias.runs.models import ModelFactory
    from implicit_bias.saved_models import save_model
    from implicit_bias.training.limit import LimitConfig, LimitResult

    samples = data.parts.train
    classifier = ModelFactory(config, data).build_network(model, homogeneous=True)

    def descend(network: Network, X: Array, y: Array) -> LimitResult:
        return train_beside_svm(
            network,
            X,
            y,
            LimitConfig(steps=config.steps),
            compare_on=data.parts.validation.X,
            solver=config.solver,
            tol=config.tol,
            device=config.device,
            until_excess=until_excess,
            checkpoint=checkpoint,
            resume=resume,
            progress=True,
        ).limit

    classifier.fit_by(samples.X, samples.y, descend)
    result = classifier.training_
    assert isinstance(result, LimitResult)
    file = file or Path(f"{model}{MODEL_SUFFIX}")
    save_model(file, classifier, config.metadata())
    pictures = write_limit(file.parent, file.name.removesuffix(MODEL_SUFFIX), result)
    last = result.history[-1]
    values = {
        "file": file,
        "steps": last.step,
        "planned_steps": result.config.steps,
        "interrupted": result.interrupted,
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
        print_json({**values, "pictures": pictures})
    else:
        print_values(file.name, f"Towards the limit on {len(samples)} samples", values)
        for picture in pictures:
            out.print(f"Picture: {picture}", soft_wrap=True, highlight=False)
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
