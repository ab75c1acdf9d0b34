r"""What is known of a problem before the race: a lower bound, and the C' of the squared norm.

LIBLINEAR, libsvm and some programs of CVXPY's solvers penalise the squared norm:

        minimise  ||w|| + C sum_n xi_n              0 in w / ||w|| + C d(sum_n xi_n)
        minimise  ||w||^2 / 2 + C' sum_n xi_n       0 in w + C' d(sum_n xi_n)

At the optimum w of the first, C' = C ||w|| makes w the optimum of the second; its dual variables
are ||w|| alpha. For a hard margin any C' above the largest of these will do. An error d of ||w||
costs the order of d^2 of the optimum. The norm is that of a solution that is computed before and
outside of the timing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from implicit_bias import MarginProblem, solve
from implicit_bias.norms import L2, SumOverGroups

# The gap of that solution.
GAP = 1e-8
# A hard margin is a soft one whose C' is so many times the largest dual variable.
HARD = 10.0


class Reference(NamedTuple):
    """What the solvers of a problem may know.

    Attributes
    ----------
    lower : float
        Certified lower bound on the optimum.
    C : float
        C' of the program with the squared norm.
    """

    lower: float
    C: float


def reference_of(problem: MarginProblem) -> Reference:
    """Solve a problem outside of the timing.

    Raises
    ------
    ValueError
        The optimum is w = 0, which no C' of the squared norm has.
    """
    found = solve(problem, tol=GAP)
    size = float(np.linalg.norm(found.coef))
    if size == 0:
        raise ValueError("w = 0 is optimal, and there is nothing to race for: take a larger C")
    if problem.hard_margin:
        C = HARD * size * float(problem.totals(found.alpha).max())
    else:
        C = size * float(problem.box.max())
    return Reference(found.certificate.lower, C)


def is_euclidean(problem: MarginProblem) -> bool:
    """Whether the norm is the Euclidean one of all coefficients, and C that of all samples."""
    one_group = problem.is_binary_group_lasso and problem.n_groups == 1
    one_C = problem.box.min() == problem.box.max()  # noqa: N806 - C is a name
    return bool((one_group or isinstance(problem.norm, L2)) and one_C)


def is_linear(problem: MarginProblem) -> bool:
    """Whether predictors are linear in the inputs: the one gate is always 1."""
    gates = problem.features.sparse_gates
    return bool(gates.shape[1] == 1 and gates.nnz == len(problem.y) and (gates.data == 1).all())


def feature_groups(problem: MarginProblem) -> NDArray[np.int64]:
    """Return the group of each feature (D,) in a group lasso; an empty array otherwise."""
    norm = problem.norm
    lasso = isinstance(norm, SumOverGroups) and norm.norm == L2() and norm.axis == -1
    if not (lasso and is_linear(problem) and problem.classes is None):
        return np.zeros(0, dtype=np.int64)
    assert isinstance(norm, SumOverGroups)
    return np.asarray(norm.groups, dtype=np.int64)
