"""Solvers: one file a method; `solve` grades what each of them answers.

==================  ========================================================================
file                what
==================  ========================================================================
solve.py            `solve`, and the grade of an answer
choice.py           which solver "auto" takes, and solvers by name
base.py             what every solver takes and gives back
iteration.py        the one loop around every native method
interior_point.py   up to a few thousand samples
working_set.py      more samples
active_set.py       from the solution of a similar problem
cvxpy_solver.py     ECOS, OSQP, Clarabel and SCS, through CVXPY
scaled_problem.py   the scaled problem, and the products that the native methods need
relaxation.py       soft margins and fewer samples where the hard margin has no solution
paths.py            paths over C, growing data, gates
==================  ========================================================================
"""

from implicit_bias._deprecated import renamed
from implicit_bias.solvers.base import (
    BoundsAt,
    Solution,
    SolveError,
    Solver,
    SolveStats,
    Tolerances,
)
from implicit_bias.solvers.choice import (
    INTERIOR_POINT_LIMIT,
    SOLVER_NAMES,
    SolverName,
    choose_solver,
)
from implicit_bias.solvers.relaxation import OnFailure, Relaxed
from implicit_bias.solvers.solve import solve, solve_relaxed

__all__ = [
    "INTERIOR_POINT_LIMIT",
    "SOLVER_NAMES",
    "BoundsAt",
    "OnFailure",
    "Relaxed",
    "Solution",
    "SolveError",
    "SolveStats",
    "Solver",
    "SolverName",
    "Tolerances",
    "choose_solver",
    "solve",
    "solve_relaxed",
]

__getattr__ = renamed(__name__, {"Progress": "solvers.base.BoundsAt"})
