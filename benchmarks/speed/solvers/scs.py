"""SCS through CVXPY."""

from benchmarks.speed.conic import ConicSolver


class Solver(ConicSolver):
    """SCS, in each of the formulations of `conic`."""

    name = "SCS"
    backend = "scs"
