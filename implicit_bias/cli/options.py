"""Options of the commands: the fields of a configuration, and what several commands share.

A command names the fields of `RunConfig` that it takes, and is called with the configuration::

    @takes_config("Data", "Architecture", "device")
    def train(config: RunConfig, file: FileArgument, as_json: JsonOption = False) -> None: ...

On the command line these fields are options, with the defaults and the help that stand in
`RunConfig`, before the command's own options. typer reads options from a function's signature, so
`takes_config` puts one together.
"""

import inspect
from collections.abc import Callable
from dataclasses import Field, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, ParamSpec

import typer

from implicit_bias.cli.output import usage_errors
from implicit_bias.runs.configuration import PROTOCOL_DEFAULTS, RunConfig, group, kinds

P = ParamSpec("P")

JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on standard output.")
]
ModelFileOption = Annotated[Path | None, typer.Option("--out", help="File (MODEL.safetensors).")]
GridArgument = Annotated[
    Path,
    typer.Argument(help="A .toml or .yaml file: fields of a configuration, a list for each axis."),
]
StoreOption = Annotated[Path, typer.Option("--store", help="Folder with one file a cell.")]
DEFAULT_STORE = Path("implicit-bias-sweep")


def takes_config(
    *groups: str,
) -> Callable[[Callable[Concatenate[RunConfig, P], None]], Callable[..., None]]:
    """Give a command the fields of `RunConfig` in these groups, or of these names, as options."""
    chosen = [field for field in fields(RunConfig) if field.name in group(*groups)]

    def with_options(command: Callable[Concatenate[RunConfig, P], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            choices = {field.name: _parsed(field, values.pop(field.name)) for field in chosen}
            for field in chosen:
                if choices[field.name] is None:
                    choices[field.name] = _default(field, choices.get("protocol"))
            with usage_errors():
                config = RunConfig(**choices)
            command(config, **values)  # type: ignore[call-arg]  # by keyword, as typer does

        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        parameters = [*map(_parameter, chosen), *own]
        signature = inspect.Signature(
            [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        )
        run.__signature__ = signature  # type: ignore[attr-defined]
        run.__annotations__ = {name: p.annotation for name, p in signature.parameters.items()}
        return run

    return with_options


def _default(field: Field[Any], protocol: Any) -> Any:
    """Return the default of a field by a protocol."""
    return PROTOCOL_DEFAULTS.get(protocol, {}).get(field.name, field.default)


def _parameter(field: Field[Any]) -> inspect.Parameter:
    """Return the parameter from which typer makes the option of a field."""
    # What is no number is typed as text, which `_parsed` and the configuration read.
    kind = next((kind for kind in kinds(field.name) if kind in (int, float, bool)), str)
    flag = f"--{field.name.replace('_', '-')}"
    choices = field.metadata["choices"]
    of_protocol = any(field.name in defaults for defaults in PROTOCOL_DEFAULTS.values())
    option = typer.Option(
        flag,
        help=f"{field.metadata['help']}{': ' if choices else ''}{', '.join(choices)}.",
        rich_help_panel=field.metadata["group"],
        # Where a protocol has its own default, what is not given is known once the protocol is.
        show_default=str(field.default) if of_protocol else True,
    )
    default = ",".join(field.default) if isinstance(field.default, tuple) else field.default
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if of_protocol else default,
        annotation=Annotated[kind | None, option],
    )


def _parsed(field: Field[Any], value: Any) -> Any:
    """Read the text of a field that holds several values."""
    if value is None or tuple[str, ...] not in kinds(field.name):
        return value
    items = tuple(item.strip() for item in value.split(","))
    if tuple[int, ...] in kinds(field.name) and all(item.isdecimal() for item in items):
        return tuple(int(item) for item in items)
    return items


def numbers(text: str, what: str) -> tuple[int, ...]:
    """Read numbers separated by commas; ``what`` begins the sentence that refuses others."""
    if not all(number.strip().isdecimal() for number in text.split(",")):
        raise typer.BadParameter(f"{what} separated by commas, such as 0,1,2; got {text!r}")
    return tuple(int(number) for number in text.split(","))
