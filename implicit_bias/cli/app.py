"""The commands of `implicit-bias`, and how their errors end."""

import sys
import warnings
from io import TextIOWrapper
from typing import Annotated

import typer

from implicit_bias.cli import INTERRUPTED, STOPPED
from implicit_bias.cli.compare import compare
from implicit_bias.cli.options import NETWORK_NAMES
from implicit_bias.cli.output import fail, out, show_warning
from implicit_bias.cli.sweep import sweep
from implicit_bias.cli.train import train
from implicit_bias.runs.configuration import MODEL_MEANINGS

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # which fills the lines of a paragraph
)


def _meanings(names: tuple[str, ...]) -> str:
    """Say what some models are, a paragraph each."""
    return "\n\n".join(f"{name}: {MODEL_MEANINGS[name]}" for name in names)


app.command(epilog=_meanings(tuple(MODEL_MEANINGS)))(compare)
app.command(epilog=_meanings(NETWORK_NAMES))(train)
app.command()(sweep)


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
    """Train gated networks, and compare them with the max-margin SVMs they converge to."""


def run() -> None:
    """Run a command; an error is a message on standard error, and an exit status."""
    warnings.showwarning = show_warning
    # The encoding of a terminal or a pipe may lack characters that a name or a number has.
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = app(standalone_mode=False)
        # Output to a full disk fails here, where the error is still a message.
        sys.stdout.flush()
    except typer.TyperException as error:
        fail(error.format_message(), error.exit_code)
    except (typer.Abort, KeyboardInterrupt):
        fail(STOPPED, INTERRUPTED)
    except (ValueError, TypeError, RuntimeError, OSError, ImportError, MemoryError) as error:
        fail(str(error) or type(error).__name__, 1)
    if status == INTERRUPTED:
        fail(STOPPED, INTERRUPTED)
    sys.exit(status)
