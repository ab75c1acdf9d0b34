"""Entry point of the command line: a Ctrl-C while modules are imported is one line, too."""

import sys

# Exit status after Ctrl-C, as shells have it.
INTERRUPTED = 130
# Said of all commands then: some keep nothing, some a model, a checkpoint or finished cells.
STOPPED = "interrupted; any file written before is kept"


def main() -> None:
    """Run the command line; one line on standard error for an error."""
    try:
        from implicit_bias.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print(f"implicit-bias: {STOPPED}", file=sys.stderr)
        sys.exit(INTERRUPTED)
