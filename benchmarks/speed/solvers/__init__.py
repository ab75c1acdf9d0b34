"""Solvers of the race, in the layout of benchopt, a file each."""
