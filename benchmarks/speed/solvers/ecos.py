"""ECOS through CVXPY."""

from benchmarks.speed.conic import ConicSolver


class Solver(ConicSolver):
    """ECOS, in each of the formulations of `conic`."""

    name = "ECOS"
    backend = "ecos"
