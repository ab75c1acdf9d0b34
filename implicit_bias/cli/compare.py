"""`implicit-bias compare`: train networks, solve the SVMs, compare, write a report."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from implicit_bias.cli import INTERRUPTED, options, output
from implicit_bias.runs.configuration import LIMIT, RunConfig

if TYPE_CHECKING:
    from implicit_bias.comparison import Comparison
    from implicit_bias.runs.data import Data


def compare(
    context: typer.Context,
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
    models: options.Models = options.MODELS,  # type: ignore[assignment]
    units: options.Units = RunConfig.units,
    hyperplanes: options.Hyperplanes = RunConfig.hyperplanes,
    threshold: options.Threshold = RunConfig.threshold,
    seed: options.Seed = RunConfig.seed,
    C: options.C = RunConfig.C,
    on_failure: options.OnFailure = RunConfig.on_failure,
    steps: options.Steps = RunConfig.steps,
    batch_size: options.BatchSize = RunConfig.batch_size,
    learning_rate: options.LearningRate = RunConfig.learning_rate,
    momentum: options.Momentum = RunConfig.momentum,
    optimizer: options.Optimizer = RunConfig.optimizer,
    solver: options.Solver = RunConfig.solver,
    tol: options.Tolerance = RunConfig.tol,
    device: options.Device = RunConfig.device,
    folder: Annotated[
        Path, typer.Option("--out", help="Folder of the report and the tables.")
    ] = Path("implicit-bias-report"),
    to_limit: Annotated[
        bool,
        typer.Option(
            "--to-limit",
            help="Also train the GLN again, from the same initial weights, by accelerated "
            "full-batch descent, until its norm at unit margin is within 1 % of the certified "
            "minimum: gd-gln-limit.",
        ),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Train networks, solve their max-margin problems, compare, and write an HTML report.

    The problems are those that the networks are predicted to converge to. Nothing is overwritten:
    where the folder holds another report, the next number is added.
    """
    config = options.configuration(context)
    loaded = options.load_data(config)
    from implicit_bias.base.atomic import make_folder
    from implicit_bias.runs import comparison_folder
    from implicit_bias.runs.models import ModelFactory

    # A folder that cannot be made is an error before the training, not after it.
    folder = output.numbered(folder, comparison_folder.free_folder)
    make_folder(folder)
    fitted = {}
    with output.training_bar() as bar:
        for name, model in ModelFactory(config, loaded, on_progress=bar).fit():
            fitted[name] = model
            output.err.print(f"[bold]{name}[/] done", highlight=False)
        # Models that need a trained network are fitted last: back to the order that was asked for.
        compared = {name: fitted[name] for name in config.models}
        if to_limit:
            compared |= comparison_folder.train_again_to_limit(config, loaded, bar)
    command = shlex.join(["implicit-bias", *sys.argv[1:]])  # as it was typed
    to_train = limit_commands(sys.argv[1:])
    comparison, page = comparison_folder.write_comparison(
        folder, config, loaded, compared, command, to_train
    )
    print_comparison(comparison, page, config, loaded, to_train, as_json)
    if any(model.interrupted for model in comparison.models):
        raise typer.Exit(INTERRUPTED)


def limit_commands(typed: Sequence[str]) -> dict[str, str]:
    """Return the command that trains each network to its limit, from the words of a comparison.

    For the GLN it is ``compare --to-limit``, and for the ReLU network ``train --to-limit`` with the
    options that both commands have.

    Examples
    --------
    >>> words = "compare --data a.csv --target kind --C 2 --units 9".split()
    >>> for command in limit_commands(words).values():
    ...     print(command)
    implicit-bias compare --data a.csv --target kind --C 2 --units 9 --to-limit
    implicit-bias train gd-relu --data a.csv --target kind --units 9 --to-limit
    """
    shared = []
    is_shared = False
    for word in typed[1:]:
        if word.startswith("--"):
            option = word.removeprefix("--").removeprefix("no-").split("=")[0]
            is_shared = option.replace("-", "_") in LIMIT
        if is_shared:
            shared.append(word)
    commands = {"gd-relu": ["train", "gd-relu", *shared, "--to-limit"]}
    if "--to-limit" not in typed:
        commands["gd-gln"] = [*typed, "--to-limit"]
    return {name: shlex.join(["implicit-bias", *words]) for name, words in sorted(commands.items())}


def print_comparison(
    comparison: Comparison,
    page: Path,
    config: RunConfig,
    data: Data,
    to_train: Mapping[str, str],
    as_json: bool,
) -> None:
    """Print the numbers and the verdicts of a comparison, or one JSON object."""
    if as_json:
        output.print_json(
            {
                "setting": config.metadata(),
                "models": comparison.model_frame().to_dict(orient="records"),
                "pairs": comparison.pair_frame().to_dict(orient="records"),
                "report": str(page),
            }
        )
        return
    from implicit_bias.runs.data import origin_of_samples

    output.show(f"Data: {origin_of_samples(data)}")
    for headings, rows in comparison.short_tables():
        output.print_table(*headings, rows=rows)
    if comparison.note_on_norms:
        output.show(comparison.note_on_norms)
    for conclusion in comparison.conclusions(to_train):
        output.show(str(conclusion))
    output.show(f"Report: {page}")
    output.show(f"Predictions of each sample: {page.parent / 'predictions.csv'}")
