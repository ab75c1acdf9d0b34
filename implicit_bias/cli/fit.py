"""`implicit-bias fit`: solve one SVM, certify it and save it."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from implicit_bias.cli.certify import print_grade
from implicit_bias.cli.choices import SVM_NAMES, check_model, load_data
from implicit_bias.cli.interruption import INTERRUPTED
from implicit_bias.cli.options import JsonOption, ModelFileOption, takes_config
from implicit_bias.cli.output import new_file, show
from implicit_bias.runs.configuration import RunConfig


@takes_config("Data", "Architecture", "Margin", "Solver")
def fit(
    config: RunConfig,
    model: Annotated[str, typer.Argument(help=f"Of {', '.join(SVM_NAMES)}.")] = "svm-gln",
    file: ModelFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Solve one SVM, certify it and save it; where the file is there, add the next number."""
    check_model(model, SVM_NAMES, "train")
    fit_and_save(replace(config, models=(model,)), file, as_json)


def fit_and_save(config: RunConfig, file: Path | None, as_json: bool) -> None:
    """Fit the one model of a configuration, save it, and print its bounds."""
    data = load_data(config)
    from implicit_bias.bounds.certificate import Status
    from implicit_bias.comparison import is_interrupted
    from implicit_bias.estimators.saved_models import save_model
    from implicit_bias.runs.command import written
    from implicit_bias.runs.comparison_folder import MODEL_SUFFIX
    from implicit_bias.runs.grading import grade
    from implicit_bias.runs.models import ModelFactory

    file = new_file(file or Path(f"{config.models[0]}{MODEL_SUFFIX}"))
    [(_, model)] = ModelFactory(config, data, progress=True).fit()
    save_model(file, model, config.metadata(), data.parts.train.preparation)
    print_grade(file, grade(model, data.parts.train, solving=None), as_json)
    if config.data is not None and not as_json:
        show(f"On other rows with these columns: {written('predict', file, 'FILE')}")
    if is_interrupted(model):
        raise typer.Exit(INTERRUPTED)
    view = model.margin_view()
    solution = None if view is None else view.solution
    if solution is not None and solution.status is not Status.OPTIMAL:
        raise typer.Exit(1)  # fitting has warned of it
