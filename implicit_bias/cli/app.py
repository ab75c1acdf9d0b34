"""The commands of `implicit-bias`, and its entry point."""

import os
import re
import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer

from implicit_bias.cli.compare import compare
from implicit_bias.cli.interruption import INTERRUPTED, STOPPED
from implicit_bias.cli.options import NETWORK_NAMES, DocumentedCommand
from implicit_bias.cli.output import fail, out, show_warning
from implicit_bias.cli.sweep import sweep
from implicit_bias.cli.train import train
from implicit_bias.runs.configuration import MODEL_NAMES, model_words

# The models that the help of a command explains.
EXPLAINS = {compare: MODEL_NAMES, train: NETWORK_NAMES}
# How Typer's parser refuses the text of a number.
PARSER = re.compile("Input should be a valid (integer|number), .*")
app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)
COMMANDS = (compare, train, sweep)
for command in COMMANDS:
    app.command(cls=DocumentedCommand, epilog=model_words(EXPLAINS.get(command, ())))(command)


def _version(asked: bool) -> None:
    if asked:
        from implicit_bias import __version__

        out.print(__version__, highlight=False)
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Where does gradient descent go? Certified implicit-bias SVMs for gated networks."""


def main() -> None:
    """Run the command line; one line on standard error for an error."""
    warnings.showwarning = show_warning
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed, as by >&-: what is written into files still is
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - until the process ends
    if isinstance(sys.stdout, TextIOWrapper):  # whose encoding may lack what names have
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()  # here, where an error of the disk is still one line
    except typer.TyperException as error:
        fail(PARSER.sub(r"it is no \1", error.format_message()), error.exit_code)
    except (typer.Abort, KeyboardInterrupt) as error:
        if isinstance(error.__cause__, EOFError):  # which Typer takes for a Ctrl-D
            fail(f"a file or a pipe ended too early: {error.__cause__}", 1)
        fail(STOPPED, INTERRUPTED)
    except MemoryError as error:
        fail(f"not enough memory: {error}", 1)
    except (ValueError, RuntimeError, OSError, ImportError, TypeError, OverflowError) as error:
        fail(str(error), 1)
    if status == INTERRUPTED:
        fail(STOPPED, INTERRUPTED)
    sys.exit(status)
