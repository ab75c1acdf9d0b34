"""`implicit-bias train`: train one network by gradient descent and save it."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.choices import NETWORK_NAMES, check_model, load_data
from implicit_bias.cli.fit import fit_and_save
from implicit_bias.cli.options import JsonOption, ModelFileOption, takes_config
from implicit_bias.cli.output import INTERRUPTED, print_json, print_values, show
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.storage import strict_json

# Steps of a training with --until-excess alone.
LIMIT_STEPS = 100_000
# What the name of its model ends with.
LIMIT_SUFFIX = "-limit"


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
    descent on the log of the loss. --steps, --batch-size, --learning-rate and --momentum
    do not count then, and pictures of the way are written beside the model.
    """
    check_model(model, NETWORK_NAMES, "fit")
    config = replace(config, models=(model,))
    to_limit = until_excess is not None or limit_steps is not None
    refusals = (
        (
            not to_limit and (checkpoint is not None or resume),
            "--checkpoint and --resume need --until-excess or --limit-steps",
        ),
        (limit_steps is not None and limit_steps < 1, "--limit-steps must be at least 1"),
        (
            to_limit and model == "local-gln",
            "local learning has no limit of this kind: choose gd-gln, gd-relu",
        ),
        (
            until_excess is not None and model != "gd-gln",
            "--until-excess needs a network whose program training does not change: gd-gln, not "
            f"{model} (--limit-steps takes both)",
        ),
        (
            to_limit and config.optimizer != "sgd",
            f"--until-excess and --limit-steps go to the limit of gradient descent, not of "
            f"{config.optimizer}: leave --optimizer out, or train to its limit in Python by "
            "train_to_limit(..., LimitConfig(norm=...))",
        ),
        (resume and checkpoint is None, "--resume needs --checkpoint FILE"),
        (until_excess is not None and not until_excess > 0, "--until-excess must be positive"),
        (
            checkpoint is not None and checkpoint.exists() and not resume,
            f"{checkpoint} is there already: --resume it, or delete it",
        ),
    )
    for applies, refusal in refusals:
        if applies:
            raise typer.BadParameter(refusal)
    if not to_limit:
        fit_and_save(config, file, as_json)
        return
    config = replace(config, steps=limit_steps or LIMIT_STEPS, batch_size=None)
    data = load_data(config)
    from implicit_bias.certificate import norm_at_margin_1
    from implicit_bias.report.page import write_limit
    from implicit_bias.runs.beside_svm import train_beside_svm
    from implicit_bias.runs.comparison_folder import MODEL_SUFFIX
    from implicit_bias.runs.models import ModelFactory
    from implicit_bias.saved_models import save_model
    from implicit_bias.training.limit import LimitConfig, LimitResult

    samples = data.parts.train
    classifier = ModelFactory(config, data).build_network(model, homogeneous=True)
    descend = partial(
        train_beside_svm,
        config=LimitConfig(steps=config.steps),
        compare_on=data.parts.validation.X,
        solving=config.solving,
        until_excess=until_excess,
        checkpoint=checkpoint,
        resume=resume,
        progress=True,
    )
    classifier.fit_by(samples.X, samples.y, lambda *given: descend(*given).limit)
    result = classifier.training_
    assert isinstance(result, LimitResult)
    # Not the name of the file that a training of this many steps writes.
    file = file or Path(f"{model}{LIMIT_SUFFIX}{MODEL_SUFFIX}")
    save_model(file, classifier, config.metadata())
    name = file.name.removesuffix(MODEL_SUFFIX).removesuffix(LIMIT_SUFFIX)
    pictures = write_limit(file.parent, name, result)
    last = result.history[-1]
    values = {
        "file": file,
        "steps": last.step,
        "planned_steps": result.config.steps,
        "interrupted": result.interrupted,
        "ending": result.ending.message,
        **strict_json.attributes(last, "evaluations", "log_loss", "min_margin"),
        "norm": norm_at_margin_1(last.norm, last.min_margin),
        **strict_json.attributes(last, "excess", "disagreement", "balance"),
        **last.measures,
    }
    if as_json:
        print_json({**values, "pictures": pictures})
    else:
        print_values(file.name, f"Towards the limit on {len(samples)} samples", values)
        for picture in pictures:
            show(f"Picture: {picture}")
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)
