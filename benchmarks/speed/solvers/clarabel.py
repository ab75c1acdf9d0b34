"""Clarabel through CVXPY."""

from benchmarks.speed.conic import ConicSolver


class Solver(ConicSolver):
    """Clarabel, in each of the formulations of `conic`."""

    name = "Clarabel"
    backend = "clarabel"
