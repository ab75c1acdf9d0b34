"""`implicit-bias fit`: solve one SVM, certify it and save it."""

from dataclasses import replace
from pathlib import Path

import typer

from implicit_bias.cli import options, output
from implicit_bias.cli.certify import print_grade
from implicit_bias.cli.interruption import INTERRUPTED
from implicit_bias.runs.configuration import RunConfig


@options.takes_config("Data", "Architecture", "Margin", "Solver")
def fit(
    config: RunConfig,
    model: options.SvmArgument = "svm-gln",
    file: options.ModelFileOption = None,
    as_json: options.JsonOption = False,
) -> None:
    """Solve one SVM, certify it and save it; where the file is there, add the next number."""
    fit_and_save(replace(config, models=(model,)), file, as_json)


def fit_and_save(config: RunConfig, file: Path | None, as_json: bool) -> None:
    """Fit the one model of a configuration, save it, and print its bounds."""
    data = options.load_data(config)
    from implicit_bias.bounds.certificate import Status
    from implicit_bias.comparison import is_interrupted
    from implicit_bias.estimators.saved_models import save_model
    from implicit_bias.runs.comparison_folder import MODEL_SUFFIX
    from implicit_bias.runs.grading import grade
    from implicit_bias.runs.models import ModelFactory

    file = output.new_file(file or Path(f"{config.models[0]}{MODEL_SUFFIX}"))
    [(_, model)] = ModelFactory(config, data, progress=True).fit()
    save_model(file, model, config.metadata())
    print_grade(file, grade(model, data.parts.train, solving=None), as_json)
    if is_interrupted(model):
        raise typer.Exit(INTERRUPTED)
    view = model.margin_view()
    solution = None if view is None else view.solution
    if solution is not None and solution.status is not Status.OPTIMAL:
        raise typer.Exit(1)  # fitting has warned of it
