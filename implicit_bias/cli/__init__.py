"""The command line `implicit-bias`: one file per command.

Results go to standard output (one JSON object with ``--json``), progress and errors to standard
error. Exit status 2 for bad use, 1 for a failed job, 130 after Ctrl-C. Heavy libraries are
imported only by the command that needs them, so that ``--help`` answers at once.
"""

import sys

__all__ = ["INTERRUPTED", "STOPPED", "main"]

# After Ctrl-C: the exit status, and a message for commands that keep files and those that do not.
INTERRUPTED = 130
STOPPED = "interrupted; any file written before is kept"


def main() -> None:
    """Run the command line; a Ctrl-C while its modules are imported is one line, too."""
    try:
        from implicit_bias.cli.app import run

        run()
    except KeyboardInterrupt:
        print(f"implicit-bias: {STOPPED}", file=sys.stderr)
        sys.exit(INTERRUPTED)
