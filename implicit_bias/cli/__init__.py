"""The command line `implicit-bias`: one file a command.

Results go to standard output (one JSON object with ``--json``), progress and errors to standard
error. Exit status 2 for bad use, 1 for a failed job, 130 after Ctrl-C. Heavy libraries are
imported only by the command that needs them, so that ``--help`` answers at once.
"""

from implicit_bias.cli.entry import main

__all__ = ["main"]
