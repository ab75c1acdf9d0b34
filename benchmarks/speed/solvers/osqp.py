"""OSQP through CVXPY."""

from benchmarks.speed.conic import ConicSolver
from implicit_bias import MarginProblem


class Solver(ConicSolver):
    """OSQP, in each of the formulations of `conic`."""

    name = "OSQP"
    backend = "osqp"

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem in a formulation, or ""."""
        if not problem.hard_margin:
            return "it was the slowest on soft margins, which Clarabel and SCS take as well"
        return super().unsuited(problem, formulation)
