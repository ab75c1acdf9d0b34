"""Solvers: one file a method; `solve` grades what each of them answers.

==================  ========================================================================
file                what
==================  ========================================================================
solve.py            `solve`, and the grade of an answer
choice.py           which solver "auto" takes, and which ones follow where it fails
costs.py            how long a method would take, by its operations
base.py             what every solver takes and gives back
iteration.py        the one loop around every built-in method
rotations.py        gates of groups with a constant sum, as one constant gate and the others
scaled_rows.py      rows of a scaled problem, and the products with them that cost time
scaling.py          the interior point's scaled problem on a device, and the way back
cones/              cones of norms: of Euclidean groups, of singular values, of entries
newton.py           Newton systems of the interior point, in the rows or in the features
interior_point.py   the interior point, in the space of the rows or of the features
feature_space.py    the homogeneous embedding, factored by QR: for ill-scaled or inseparable data
equilibration.py    its scaled problem: equilibrated features
second_order.py     its cones, and Nesterov and Todd's scaling
working_set.py      more samples, or pairs of samples and rivals
out_of_core.py      more samples than memory holds: rounds on some of them, all in blocks
rounds.py           rounds on some of the constraints: pricing, and the bounds for all of them
one_group.py        one group on one Gram matrix
block_balls.py      the largest of norms of blocks, such as Muon's, on a network's features
linear_program.py   l1, l_inf and other sums of maxima, by HiGHS
cvxpy_solver.py     ECOS, OSQP, Clarabel and SCS, through CVXPY
relaxation.py       soft margins and fewer samples where the hard margin has no solution
==================  ========================================================================
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from implicit_bias.base.options import SOLVER_NAMES, OnFailure, SolverName
from implicit_bias.solvers.base import (
    BoundsAt,
    Solution,
    SolveError,
    Solver,
    SolveStats,
    Tolerances,
)
from implicit_bias.solvers.choice import INTERIOR_POINT_LIMIT, choose_solver
from implicit_bias.solvers.relaxation import Relaxed, solve_relaxed
from implicit_bias.solvers.solve import solve

# The methods are imported on first use: they need torch or CVXPY.
if TYPE_CHECKING:
    from implicit_bias.solvers.cvxpy_solver import CvxpySolver
    from implicit_bias.solvers.feature_space import FeatureSpace
    from implicit_bias.solvers.interior_point import InteriorPoint
    from implicit_bias.solvers.linear_program import LinearProgram
    from implicit_bias.solvers.one_group import OneGroup
    from implicit_bias.solvers.out_of_core import OutOfCoreSolution, solve_out_of_core
    from implicit_bias.solvers.working_set import WorkingSet

# Where each of these names is: the import waits until a name is asked for.
HOMES = {
    "CvxpySolver": "implicit_bias.solvers.cvxpy_solver",
    "FeatureSpace": "implicit_bias.solvers.feature_space",
    "InteriorPoint": "implicit_bias.solvers.interior_point",
    "LinearProgram": "implicit_bias.solvers.linear_program",
    "OneGroup": "implicit_bias.solvers.one_group",
    "OutOfCoreSolution": "implicit_bias.solvers.out_of_core",
    "solve_out_of_core": "implicit_bias.solvers.out_of_core",
    "WorkingSet": "implicit_bias.solvers.working_set",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
