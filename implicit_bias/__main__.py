"""`python -m implicit_bias` is the command `implicit-bias`."""

from implicit_bias.cli import main

main()
