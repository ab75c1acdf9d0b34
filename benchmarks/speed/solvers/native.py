"""The solver of this package that is chosen by default; its time includes its certificate."""

from benchmarks.speed.guarded import Answer, GuardedSolver
from benchmarks.speed.reference import Reference
from implicit_bias import MarginProblem, solve


class Solver(GuardedSolver):
    """`implicit_bias.solve`."""

    name = "native"
    time_limit = 600.0
    parameters = {"formulation": ["auto"], "tol": [1e-6]}

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Solve a problem."""
        found = solve(problem, formulation, tol)
        return Answer(found.coef, found.alpha)
