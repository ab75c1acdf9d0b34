r"""HiGHS on the whole linear program of l1 or l_inf.

        minimise  Omega(u) + C sum_n xi_n   subject to  A u + S xi >= 1,  xi >= 0

with u = p - q, p and q >= 0, for l1, and |u_j| <= t for l_inf; u = s zeta, s the scale of the
features.
"""

import numpy as np
import scipy.optimize
import scipy.sparse as sp

from benchmarks.speed.guarded import Answer, GuardedSolver
from benchmarks.speed.reference import Reference, feature_groups
from implicit_bias import MarginProblem
from implicit_bias.norms import L1, LInf

METHODS = {"simplex": "highs-ds", "interior point": "highs-ipm"}


class Solver(GuardedSolver):
    """scipy's linprog."""

    name = "HiGHS"
    requirements = ["pip::scipy"]
    parameters = {"formulation": list(METHODS), "tol": [1e-7, 1e-9]}

    @classmethod
    def unsuited(cls, problem: MarginProblem, formulation: str) -> str:
        """Return why it is not given a problem, or ""."""
        if (isinstance(problem.norm, LInf) or is_l1(problem)) and not problem.intercept:
            return ""
        return "no linear program, or one with an intercept"

    @classmethod
    def solve(
        cls, problem: MarginProblem, reference: Reference, formulation: str, tol: float
    ) -> Answer:
        """Solve the program of the module's head."""
        rows = problem.constraints
        A = sp.csr_array(problem.features.of_rows(rows).matrix()) / problem.scale
        R, J = A.shape
        bounds: list[tuple[float | None, None]]
        if is_l1(problem):
            blocks = [A, -A]
            cost = np.ones(2 * J)
            bounds = [(0.0, None)] * (2 * J)
        else:
            blocks = [A, sp.csr_array((R, 1))]
            cost = np.append(np.zeros(J), 1.0)
            bounds = [(None, None)] * J + [(0.0, None)]
        if not problem.hard_margin:
            blocks.append(sp.eye_array(problem.n_samples, format="csr")[rows.samples])
            cost = np.append(cost, problem.box * problem.scale)
            bounds += [(0.0, None)] * problem.n_samples
        left = [-sp.hstack(blocks, format="csr")]
        right = [-np.ones(R)]
        if not is_l1(problem):
            losses = sp.csr_array((J, len(cost) - J - 1))
            for sign in (1.0, -1.0):
                left.append(sp.hstack([sign * sp.eye_array(J), -np.ones((J, 1)), losses]))
                right.append(np.zeros(J))
        options = {"primal_feasibility_tolerance": tol, "dual_feasibility_tolerance": tol}
        if formulation == "interior point":
            options["ipm_optimality_tolerance"] = tol
        found = scipy.optimize.linprog(
            cost,
            sp.vstack(left, format="csc"),
            np.concatenate(right),
            bounds=bounds,
            method=METHODS[formulation],
            options=options,
        )
        if found.x is None:
            raise RuntimeError(found.message)
        u = found.x[:J] - found.x[J : 2 * J] if is_l1(problem) else found.x[:J]
        multipliers = np.maximum(-found.ineqlin.marginals[:R], 0.0) / problem.scale
        return Answer(u.reshape(problem.coef_shape) / problem.scale, rows.alpha(multipliers))


def is_l1(problem: MarginProblem) -> bool:
    """Whether the norm is l1, perhaps as groups of one feature each."""
    groups = feature_groups(problem)
    return isinstance(problem.norm, L1) or len(np.unique(groups)) == problem.X.shape[1]
