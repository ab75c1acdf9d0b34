"""`implicit-bias train`: train one network by gradient descent and save it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.base import strict_json
from implicit_bias.base.options import METHOD_NAMES, NORM_NAMES
from implicit_bias.cli import options
from implicit_bias.cli.fit import fit_and_save
from implicit_bias.cli.interruption import INTERRUPTED
from implicit_bias.cli.output import new_file, print_json, print_values, show, usage_errors
from implicit_bias.runs.command import LIMIT_SUFFIX, WANTED_STEPS
from implicit_bias.runs.configuration import RunConfig

if TYPE_CHECKING:
    from implicit_bias.datasets.dataset import Dataset
    from implicit_bias.training.limit import LimitResult

# What says so that a network is trained towards the limit.
WAYS = "--to-limit, --limit-steps, --until-excess or --stop-at-gap"


@options.takes_config("Data", "Architecture", "Training", "device")
def train(
    config: RunConfig,
    model: options.NetworkArgument = "gd-gln",
    until_excess: float | None = None,
    to_limit: Annotated[bool, typer.Option("--to-limit")] = False,
    limit_steps: int | None = None,
    stop_at_gap: float | None = None,
    norm: Annotated[
        str | None,
        typer.Option(
            help=f"Geometry of a training to the limit: {', '.join(NORM_NAMES)}; l2, the "
            "default, is gradient descent's."
        ),
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help=f"How it goes there: {', '.join(METHOD_NAMES)} (convex programs, for small "
            "networks)."
        ),
    ] = "accelerated",
    chunk: int | None = None,
    checkpoint: Path | None = None,
    resume: Annotated[bool, typer.Option("--resume")] = False,
    file: options.ModelFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Train one network by gradient descent and save it; a file that is there is kept.

    Towards infinite time it is trained in float64, without a bias, by accelerated full-batch
    descent on the log of the loss, or by steepest descent in another norm. --limit-steps is in the
    place of --steps then, --batch-size, --learning-rate and --momentum do not count, and pictures
    of the way are written beside the model.

    Parameters
    ----------
    until_excess
        Train towards infinite time, until the norm at margin 1 exceeds the certified optimum by at
        most this share (gd-gln).
    to_limit
        Train towards infinite time.
    limit_steps
        Train towards infinite time, this many steps at most (else 100000).
    stop_at_gap
        Train towards infinite time, until the KKT gap in --norm is this.
    chunk
        Samples that one pass of it takes at a time, which bounds the memory.
    checkpoint
        File that keeps the state of a training to the limit.
    resume
        Continue from the checkpoint, if it is there.
    """
    config = replace(config, models=(model,))
    from implicit_bias.training.configuration import LimitConfig

    with usage_errors():
        limit = LimitConfig(
            steps=WANTED_STEPS if limit_steps is None else limit_steps,
            norm=norm,  # type: ignore[arg-type]  # checked there
            method=method,  # type: ignore[arg-type]
            chunk=chunk,
        )
    if not to_limit and (until_excess, limit_steps, stop_at_gap) == (None, None, None):
        if resume or checkpoint is not None or limit != LimitConfig(steps=WANTED_STEPS):
            raise typer.BadParameter(
                f"--norm, --method, --chunk, --checkpoint and --resume need {WAYS}"
            )
        fit_and_save(config, file, as_json)
        return
    if config.steps != RunConfig().steps:
        raise typer.BadParameter("--steps does not count towards the limit: --limit-steps does")
    data = options.load_data(config)
    from implicit_bias.runs.comparison_folder import MODEL_SUFFIX, train_and_save
    from implicit_bias.training.limit import LimitResult

    # Not the name of the file that a training of this many steps writes.
    file = new_file(file or Path(f"{model}{LIMIT_SUFFIX}{MODEL_SUFFIX}"))
    if checkpoint is not None and checkpoint.resolve() == file.resolve():
        raise typer.BadParameter(f"the model would replace the checkpoint {file}: name another")
    goals = {"until_excess": until_excess, "stop_at_gap": stop_at_gap}
    with usage_errors(ValueError, FileExistsError):
        classifier, pictures = train_and_save(
            config, data, file, limit, checkpoint=checkpoint, resume=resume, **goals
        )
    samples, result = data.parts.train, classifier.training_
    assert isinstance(result, LimitResult)
    values = {"file": file, **_facts(result, samples)}
    if as_json:
        print_json({**values, "pictures": pictures})
    else:
        print_values(file.name, f"Towards the limit on {len(samples)} samples", values)
        for picture in pictures:
            show(f"Picture: {picture}")
        from implicit_bias.runs.command import next_command

        show(f"Next: {next_command(file)}")
    if result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _facts(result: LimitResult, samples: Dataset) -> dict[str, object]:
    """Return where a training has ended; in another norm than l2 with the KKT gap in it."""
    from implicit_bias.bounds.status import norm_at_margin_1
    from implicit_bias.training.trainee import as_trainee

    config, last, of_norm = result.config, result.history[-1], dict[str, object]()
    if config.limit_norm != "l2":
        trained = as_trainee(result.network, samples.X, samples.y, config.geometry, config.chunk)
        of_norm = {"limit_norm": config.limit_norm, "kkt_gap_in_its_norm": trained.gap()}
    return {
        "steps": last.step,
        "planned_steps": config.steps,
        "interrupted": result.interrupted,
        "ending": result.ending.message,
        **strict_json.attributes(last, "evaluations", "log_loss", "min_margin"),
        "norm": norm_at_margin_1(last.norm, last.min_margin),
        **of_norm,
        **strict_json.attributes(last, "excess", "disagreement", "balance"),
        **last.measures,
    }
