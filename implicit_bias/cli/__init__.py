"""The command line `implicit-bias`: one file per command.

Results go to standard output (one JSON object with ``--json``), progress and errors to standard
error. Exit status 2 for bad use, 1 for a failed job, 130 after Ctrl-C. Heavy libraries are
imported only by the command that needs them, so that ``--help`` answers at once.
"""

__all__ = ["INTERRUPTED", "STOPPED", "main"]

# After Ctrl-C: the exit status, and a message for commands that keep files and those that do not.
INTERRUPTED = 130
STOPPED = "interrupted; any file written before is kept"


def main() -> None:
    """Run the command line."""
    from implicit_bias.cli.app import run

    run()
