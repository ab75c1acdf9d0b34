"""Solvers: one file a method; `solve` grades what each of them answers.

==================  ========================================================================
file                what
==================  ========================================================================
solve.py            `solve`, and the grade of an answer
choice.py           which solver "auto" takes, and solvers by name
base.py             what every solver takes and gives back
iteration.py        the one loop around every native method
interior_point.py   up to a few thousand samples
feature_space.py    few features, or badly scaled ones
working_set.py      more samples
nuclear.py          the nuclear norm, many classes and a hard margin
pair_set.py         many classes: a working set of samples and their rivals
active_set.py       from the solution of a similar problem
linear_program.py   l1, l_inf and other sums of maxima, by HiGHS
multiprecision.py   small problems that float64 cannot hold
cvxpy_solver.py     ECOS, OSQP, Clarabel and SCS, through CVXPY
scaled_problem.py   the scaled problem, and the products that the native methods need
relaxation.py       soft margins and fewer samples where the hard margin has no solution
paths.py            paths over C, growing data, gates
==================  ========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from implicit_bias.solvers.active_set import ActiveSet
    from implicit_bias.solvers.cvxpy_solver import CvxpySolver
    from implicit_bias.solvers.feature_space import FeatureSpace
    from implicit_bias.solvers.interior_point import InteriorPoint
    from implicit_bias.solvers.linear_program import LinearProgram
    from implicit_bias.solvers.multiprecision import MultiPrecision
    from implicit_bias.solvers.nuclear import NuclearInteriorPoint
    from implicit_bias.solvers.pair_set import PairSet
    from implicit_bias.solvers.working_set import WorkingSet

__all__ = [
    "ActiveSet",
    "CvxpySolver",
    "FeatureSpace",
    "InteriorPoint",
    "LinearProgram",
    "NuclearInteriorPoint",
    "PairSet",
    "MultiPrecision",
    "WorkingSet",
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

# Imported on first use: they need torch or CVXPY.
_METHODS = {
    "ActiveSet": "active_set",
    "CvxpySolver": "cvxpy_solver",
    "FeatureSpace": "feature_space",
    "InteriorPoint": "interior_point",
    "LinearProgram": "linear_program",
    "NuclearInteriorPoint": "nuclear",
    "PairSet": "pair_set",
    "MultiPrecision": "multiprecision",
    "WorkingSet": "working_set",
}
_old_names = renamed(__name__, {"Progress": "solvers.base.BoundsAt"})


def __getattr__(name: str) -> Any:
    if name not in _METHODS:
        return _old_names(name)
    return getattr(import_module(f"implicit_bias.solvers.{_METHODS[name]}"), name)
