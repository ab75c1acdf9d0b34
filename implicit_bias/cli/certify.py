"""`implicit-bias certify`: how far a saved model is from the optimum of its own program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from implicit_bias.cli.options import JsonOption, load_data, takes_config
from implicit_bias.cli.output import print_json, print_values, show, usage_errors
from implicit_bias.runs.configuration import RunConfig, chosen

if TYPE_CHECKING:
    from implicit_bias.runs.grading import Grade


@takes_config("Solver", changes=("dataset", "data", "target", "train_size", "split_seed"))
def certify(
    config: RunConfig,
    given: dict[str, Any],
    file: Path,
    solve: bool = True,
    multipliers: bool = True,
    as_json: JsonOption = False,
) -> None:
    """Bound how far a saved network or SVM is from the optimum of its own program.

    Parameters
    ----------
    file
        A model that fit, train or compare saved.
    solve
        Solve the program for a lower bound; else use the file's own.
    multipliers
        Measure how stationary a network is; slow for large ones.
    """
    from implicit_bias.estimators.saved_models import load_model
    from implicit_bias.runs.grading import grade

    saved = load_model(file)
    if not saved.facts and not given.keys() & {"dataset", "data"}:
        raise typer.BadParameter(
            f"{file} does not say what data it was fitted to: --dataset or --data ..."
        )
    with usage_errors(of=f"{file}, with the options given: "):
        config = RunConfig.from_metadata({**saved.facts, **given, **chosen(config, "Solver")})
    samples = load_data(config).parts.train
    solving = config.solving if solve else None
    print_grade(
        file, grade(saved.model, samples, solving=solving, multipliers=multipliers), as_json
    )


def print_grade(file: Path, grade: Grade, as_json: bool) -> None:
    """Print the bounds on a model and what they mean."""
    if as_json:
        print_json({"file": str(file), **grade.values, "notes": grade.notes})
        return
    title = f"Certified bounds on {grade.values['samples']} samples"
    print_values(file.name, title, grade.values)
    for note in grade.notes:
        show(note)
