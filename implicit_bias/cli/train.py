"""`implicit-bias train`: train one network by gradient descent, grade it and save it."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from implicit_bias.cli import INTERRUPTED, options
from implicit_bias.cli.output import (
    new_file,
    print_json,
    print_values,
    training_bar,
    usage_errors,
)
from implicit_bias.runs.configuration import LIMIT_SUFFIX, WANTED_STEPS, RunConfig

if TYPE_CHECKING:
    from implicit_bias.datasets.dataset import Dataset
    from implicit_bias.estimators.networks import NetworkClassifier


def train(
    context: typer.Context,
    model: options.NetworkName = "gd-gln",
    dataset: options.Dataset = RunConfig.dataset,
    data: options.Table = RunConfig.data,
    target: options.Target = RunConfig.target,
    positive: options.Positive = None,
    negative: options.Negative = None,
    classes: options.Classes = None,
    id: options.Identifiers = "",  # type: ignore[assignment]  # parsed by its type
    missing: options.Missing = RunConfig.missing,
    standardize: options.Standardize = RunConfig.standardize,
    train_size: options.TrainSize = RunConfig.train_size,
    split_seed: options.SplitSeed = RunConfig.split_seed,
    units: options.Units = RunConfig.units,
    hyperplanes: options.Hyperplanes = RunConfig.hyperplanes,
    threshold: options.Threshold = RunConfig.threshold,
    seed: options.Seed = RunConfig.seed,
    steps: options.Steps = RunConfig.steps,
    batch_size: options.BatchSize = RunConfig.batch_size,
    learning_rate: options.LearningRate = RunConfig.learning_rate,
    momentum: options.Momentum = RunConfig.momentum,
    optimizer: options.Optimizer = RunConfig.optimizer,
    device: options.Device = RunConfig.device,
    until_excess: Annotated[
        float | None,
        typer.Option(
            help="Train towards the limit, until the norm at unit margin exceeds the certified "
            "minimum by at most this fraction (gd-gln)."
        ),
    ] = None,
    to_limit: Annotated[bool, typer.Option("--to-limit", help="Train towards the limit.")] = False,
    limit_steps: Annotated[
        int | None,
        typer.Option(
            help=f"Train towards the limit, this many steps at most (else {WANTED_STEPS})."
        ),
    ] = None,
    stop_at_gap: Annotated[
        float | None,
        typer.Option(help="Train towards the limit, until the KKT gap in --norm is this."),
    ] = None,
    norm: options.Norm = None,
    file: options.ModelFile = None,
    as_json: options.Json = False,
) -> None:
    """Train one network by gradient descent, bound its distance from the limit, and save it.

    The fitted classifier is pickled by joblib: `joblib.load` reads it in Python. An existing file
    is kept.

    With --to-limit, trains from the same initial weights by accelerated full-batch descent on the
    log of the loss, or by steepest descent in another norm. --limit-steps replaces --steps;
    --batch-size, --learning-rate and --momentum are ignored. A picture of excess and margin is
    saved beside the network.
    """
    config = options.configuration(context, models=(model,))
    goals = {"until_excess": until_excess, "stop_at_gap": stop_at_gap}
    asked = (limit_steps, until_excess, stop_at_gap)
    towards_limit = to_limit or any(value is not None for value in asked)
    if not towards_limit and norm is not None:
        raise typer.BadParameter(
            "--norm needs --to-limit, --limit-steps, --until-excess or --stop-at-gap"
        )
    if towards_limit and config.steps != RunConfig.steps:
        raise typer.BadParameter("--steps does not count towards the limit: --limit-steps does")
    from implicit_bias.training.configuration import LimitConfig

    if limit_steps is None:
        limit_steps = WANTED_STEPS
    with usage_errors():
        limit = LimitConfig(steps=limit_steps, norm=norm)  # type: ignore[arg-type]
    loaded = options.load_data(config)
    samples = loaded.parts.train
    suffix = LIMIT_SUFFIX if towards_limit else ""
    file = new_file(file or Path(f"{model}{suffix}.joblib"))
    picture: Path | None = None
    if towards_limit:
        from implicit_bias.runs.beside_svm import fit_beside_svm
        from implicit_bias.training.figures import write_limit

        with usage_errors(), training_bar() as bar:
            classifier, result = fit_beside_svm(config, loaded, limit, on_progress=bar, **goals)
        picture = write_limit(file.with_name(f"{file.stem}-training.png"), result)
    else:
        from implicit_bias.estimators.networks import NetworkClassifier
        from implicit_bias.runs.models import ModelFactory

        with training_bar() as bar:
            fitted = ModelFactory(config, loaded, on_progress=bar).fit_one(model)
        assert isinstance(fitted, NetworkClassifier)
        classifier = fitted
    _save(file, classifier)
    values = {"file": file, **_facts(classifier, samples)}
    if picture is not None:
        values["picture"] = picture
    if as_json:
        print_json(values)
    else:
        print_values(file.name, f"Trained on {len(samples)} samples", values)
    if classifier.training_.interrupted:
        raise typer.Exit(INTERRUPTED)


def _save(file: Path, classifier: NetworkClassifier) -> None:
    """Pickle a classifier; the file appears once all of it is written."""
    import joblib

    from implicit_bias.base.atomic import write_atomically

    write_atomically(file, partial(joblib.dump, classifier))


def _facts(classifier: NetworkClassifier, samples: Dataset) -> dict[str, Any]:
    """Return how long a network was trained, and how far it is from the limit.

    The bounds are certified, from the network's weights and its own multipliers; the SVM is not
    solved for them.
    """
    from implicit_bias.modules.stationarity import certify_network
    from implicit_bias.runs.beside_svm import FEW_SAMPLES

    training = classifier.training_
    few = len(samples) <= FEW_SAMPLES
    found = certify_network(classifier.network_, samples.X, samples.y, multipliers=few)
    bounds = found.certificate
    limit_norm: str | None = training.config.limit_norm
    if training.config.constrained:  # no margin is maximized
        limit_norm = None
    facts: dict[str, Any] = {
        "steps": training.steps,
        "planned_steps": training.config.steps,
        "interrupted": training.interrupted,
        "limit_norm": limit_norm,
        "lower": bounds.lower,
        "upper": bounds.upper,
        "gap": bounds.gap,
        "min_margin": bounds.min_margin,
        "balance": found.balance,
        "dead_units": len(found.dead),
    }
    if found.stationarity is not None:
        point = found.stationarity
        facts["degree"] = point.program.degree
        facts["normalised_margin"] = point.program.normalised_margin
        facts["residual"] = point.residual
        facts["slackness"] = point.slackness
        facts["kkt_gap"] = point.gap
        facts["epsilon"] = point.epsilon
        facts["delta"] = point.delta
    if found.obstacle:
        facts["obstacle"] = found.obstacle
    return facts | _facts_of_limit(classifier, samples)


def _facts_of_limit(classifier: NetworkClassifier, samples: Dataset) -> dict[str, Any]:
    """Return how a training towards the limit has ended; nothing for another training."""
    from implicit_bias.training.limit import LimitResult
    from implicit_bias.training.trainee import as_trainee

    result = classifier.training_
    if not isinstance(result, LimitResult):
        return {}
    last = result.history[-1]
    facts: dict[str, Any] = {
        "ending": result.ending.message,
        "excess": last.excess,
        "disagreement": last.disagreement,
    }
    config = result.config
    if config.limit_norm != "l2":
        trained = as_trainee(result.network, samples.X, samples.y, config.geometry, config.chunk)
        facts["kkt_gap_in_its_norm"] = trained.gap()
    return facts
