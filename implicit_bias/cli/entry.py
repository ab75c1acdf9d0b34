"""Entry point of the command line: a Ctrl-C while modules are imported is one line, too."""

import sys

from implicit_bias.cli.interruption import INTERRUPTED, STOPPED


def main() -> None:
    """Run the command line; one line on standard error for an error."""
    try:
        from implicit_bias.cli.app import main as run

        run()
    except KeyboardInterrupt:
        print(f"implicit-bias: {STOPPED}", file=sys.stderr)
        sys.exit(INTERRUPTED)
