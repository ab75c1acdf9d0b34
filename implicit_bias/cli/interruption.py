"""What the command line says and returns after Ctrl-C."""

# Exit status, as shells have it.
INTERRUPTED = 130
# Said of all commands: some keep nothing, some a model or finished cells.
STOPPED = "interrupted; any file written before is kept"
