"""Options of the commands: the fields of a configuration, and what several commands share.

A command names the fields of `RunConfig` that it takes, and is called with the configuration::

    @takes_config("Data", "Architecture", "device")
    def train(config: RunConfig, file: FileArgument, as_json: JsonOption = False) -> None: ...

On the command line these fields are options, with the defaults of `RunConfig`, before the command's
own options. typer reads options from a function's signature, so `takes_config` puts one together.
The help of an option is what a docstring says of it: that of `RunConfig`, or of the command.
"""

import inspect
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from implicit_bias.cli.output import err, usage_errors, warn
from implicit_bias.runs import configuration
from implicit_bias.runs.configuration import RunConfig, kinds

if TYPE_CHECKING:
    from implicit_bias.runs.data import Data

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output.")
]


MODEL_SUFFIX = ".joblib"


def _model_file(file: Path | None) -> Path | None:
    """Refuse a name that promises another format."""
    if file is not None and file.suffix != MODEL_SUFFIX:
        raise typer.BadParameter(
            f"models are saved by joblib: name the file {file.stem}{MODEL_SUFFIX}"
        )
    return file


ModelFileOption = Annotated[
    Path | None,
    typer.Option("--out", help=f"File (MODEL{MODEL_SUFFIX}).", callback=_model_file),
]
NETWORK_NAMES = tuple(name for name in configuration.MODEL_NAMES if not name.startswith("svm-"))


def _network(model: str) -> str:
    """Refuse a model that is no network."""
    if model not in NETWORK_NAMES:
        raise typer.BadParameter(
            f"the model must be one of {', '.join(NETWORK_NAMES)}; got {model!r} (compare solves "
            "SVMs)"
        )
    return model


NetworkArgument = Annotated[
    str, typer.Argument(help=f"Of {', '.join(NETWORK_NAMES)}.", callback=_network)
]
PARAMETERS = "\n\nParameters\n----------\n"


def parameter_words(doc: str | None) -> dict[str, str]:
    """Return what a docstring says of each parameter."""
    section = inspect.cleandoc(doc or "").partition(PARAMETERS)[2].partition("\n\n")[0]
    found = re.findall(r"^(\w+)((?:\n .*)+)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


FIELD_WORDS = parameter_words(RunConfig.__doc__)


class DocumentedCommand(TyperCommand):
    """A command whose docstring has the help of its options, too."""

    def __init__(self, *args: Any, help: str | None, params: list[Any], **options: Any) -> None:
        for param in params:
            param.help = param.help or parameter_words(help).get(param.name)
        text = help and help.partition(PARAMETERS)[0]
        super().__init__(*args, help=text, params=params, **options)


def takes_config(*groups: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the fields of `RunConfig` in these groups, or of these names, as options.

    Its first argument is their configuration.
    """
    chosen = [field for field in fields(RunConfig) if field.name in configuration.group(*groups)]

    def with_options(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            choices = {field.name: _parsed(field, values.pop(field.name)) for field in chosen}
            with usage_errors():
                config = RunConfig(**choices)
            command(config, **values)

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [*map(_parameter, chosen), *own]
        signature = inspect.Signature(
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
        return run

    return with_options


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return the parameter from which typer makes the option of a field."""
    # What may be no number is typed as text, which `_parsed` and the configuration read.
    named = [kind for kind in kinds(field.name) if kind is not type(None)]
    kind = named[0] if len(named) == 1 and named[0] in (int, float, bool) else str
    word = field.name.replace("_", "-")
    # What some data have by default must be switched off, too.
    flag = f"--{word}/--no-{word}" if kind is bool and field.default is None else f"--{word}"
    choices, words = field.metadata["choices"], FIELD_WORDS.get(field.name, "").rstrip(".")
    said = "; ".join(filter(None, (words, field.metadata["also"])))
    option = typer.Option(
        flag,
        help=f"{said}{': ' if choices else ''}{', '.join(choices)}.",
        rich_help_panel=field.metadata["group"],
        show_default=True,
    )
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind | None, option],
    )


def _parsed(field: Field[Any], value: Any) -> Any:
    """Read the text of a field that holds several values, or a number or a name."""
    if value is None or tuple[str, ...] not in kinds(field.name):
        if isinstance(value, str) and float in kinds(field.name):
            with suppress(ValueError):
                return float(value)
        return value
    items = tuple(item.strip() for item in value.split(",")) if value else ()
    # A number that is written otherwise, such as 01, may be the name of a class.
    if tuple[int, ...] in kinds(field.name) and all(
        item.isdecimal() and item == str(int(item)) for item in items
    ):
        return tuple(int(item) for item in items)
    return items


def load_data(config: RunConfig) -> "Data":
    """Load the data of a configuration, or refuse what the user asked of them."""
    from implicit_bias.runs.data import load_data, rows_left_out

    with usage_errors():
        data = load_data(config)
    if data.table is not None:
        said = (
            f"{data.everything.name}: {len(data.everything)} samples of "
            f"{data.parts.train.n_features} inputs, the constant 1 included"
        )
        if config.standardize:
            said += (
                ", numbers scaled to mean 0 and variance 1 over the training samples, which "
                "changes the geometry (--no-standardize leaves them as they are)"
            )
        err.print(said, highlight=False, markup=False)
        if left_out := rows_left_out(data.table):
            warn(f"{data.everything.name}: left out {left_out}")
    return data
