"""Which solver "auto" takes, and which ones follow where it fails.

If native methods take the norm, the one with the smallest estimated time is taken (`costs`). Other
sums of maxima go to HiGHS, the remaining norms to a conic solver.
`stats.detail` of a `Solution` says what was taken, with the estimates, and what was tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from implicit_bias import norms
from implicit_bias.base.options import CVXPY_NAMES, SOLVER_NAMES, SolverName
from implicit_bias.base.validation import as_device, check_choice
from implicit_bias.norms.entries import Entrywise
from implicit_bias.problem import MarginProblem, check_problem
from implicit_bias.problem.attention import NormOfScores
from implicit_bias.problem.euclidean import in_groups_of_gates
from implicit_bias.solvers import base, costs
from implicit_bias.solvers.iteration import NativeSolver
from implicit_bias.solvers.linear_program import LinearProgram

# With fewer rows the fall-back of one Gram matrix is an interior point.
INTERIOR_POINT_LIMIT = 3000
# Entries of the cones of matrix norms that Clarabel takes: it factorises them, in hours and tens of
# GiB where SCS takes seconds.
MOST_SEMIDEFINITE = 2000
# Columns of gates times inputs, times classes, that the embedding and systems of the features take
# where another method has failed.
MOST_FEATURES = 1500
# Entries of rows times features that an external solver takes, of two classes: a minute or so.
MOST_ENTRIES = 2_000_000

# What a norm is made of: sums of l2 over groups of gates and two classes; other sums of l2; entries
# or singular values, whose balls the interior point knows; other sums of maxima; all others.
Structure = Literal["gates", "euclidean", "balls", "maxima", "other"]


# The space in which an interior point solves for its steps.
SystemName = Literal["auto", "rows", "features"]


@dataclass(frozen=True)
class Choice:
    """A solver, the space of an interior point's systems, why it is taken, and its estimate."""

    solver: SolverName
    why: str
    system: SystemName | None = None
    seconds: float = 0.0  # where none is estimated

    def __str__(self) -> str:
        system = f" in the {self.system}" if self.system else ""
        return f"auto: {self.solver}{system} ({self.why})"


def structure_of(problem: MarginProblem) -> Structure:
    """Return what a problem's norm is made of."""
    if problem.is_binary_group_lasso:
        return "gates"
    groups = problem.norm.partition(problem.norm_shape)
    if groups is not None and groups.inner == "l2":
        return "euclidean"
    of_entries = isinstance(problem.norm, Entrywise) or (
        groups is None and norms.entries_of(problem.norm) is not None
    )
    of_matrices = problem.norm in norms.BALLS or norms.nuclear_groups(problem.norm) is not None
    if of_entries or of_matrices:
        return "balls"
    return "other" if groups is None else "maxima"


def choose_solver(problem: MarginProblem) -> SolverName:
    """Return the name of the solver that "auto" takes for a problem.

    Parameters
    ----------
    problem : MarginProblem
        The problem.

    Returns
    -------
    str
        That of the method with the smallest estimate of its time; see `costs`.

    Raises
    ------
    TypeError
        Not a `MarginProblem`.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MarginProblem
    >>> problem = MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0])
    >>> choose_solver(problem)
    'one-group'
    """
    check_problem(problem, "choose_solver")
    return choose(problem).solver


def choose(problem: MarginProblem) -> Choice:
    """Return what "auto" takes for a problem."""
    structure = structure_of(problem)
    if structure == "maxima":
        return Choice("highs", "a norm of maxima is a linear program")
    if structure == "other":
        return Choice(_conic(problem), "a norm that no native method takes")
    seconds = costs.estimates(problem)
    best = min(seconds, key=lambda name: seconds[name])
    others = ", ".join(f"{name} {value:.2g} s" for name, value in seconds.items() if name != best)
    why = f"estimated {seconds[best]:.2g} s; {others}"
    if best == "rows" or best == "features":
        return Choice("interior-point", why, best, seconds[best])
    return Choice(best, why, seconds=seconds[best])


def _conic(problem: MarginProblem) -> SolverName:
    """Return the conic solver that takes the cones of a norm."""
    return "scs" if _semidefinite_entries(problem) > MOST_SEMIDEFINITE else "clarabel"


def check_start(problem: MarginProblem, start: base.Start | None) -> None:
    """Raise TypeError or ValueError unless a start is None or a solution that fits the problem."""
    if start is None:
        return
    if not isinstance(start, base.Start):
        raise TypeError(
            f"start must be a Solution, not a {type(start).__name__}: pass what solve returned for "
            "a similar problem"
        )
    if start.alpha.shape[1:] != problem.alpha_shape[1:]:
        raise ValueError(
            f"start has dual variables of shape {start.alpha.shape}, the problem of "
            f"{problem.alpha_shape}: it needs the same classes"
        )
    if len(start.alpha) > problem.n_samples or len(start.group_norms) != problem.n_groups:
        raise ValueError(
            f"start has {len(start.alpha)} samples and {len(start.group_norms)} groups, the "
            f"problem {problem.n_samples} and {problem.n_groups}: it needs as many groups, and no "
            "more samples"
        )


@dataclass(frozen=True)
class Fallback:
    """A solver that follows one that failed, and the seconds that it has."""

    solver: str
    seconds: float = math.inf


def fallbacks(problem: MarginProblem, failed: str) -> list[Fallback]:
    """Return the solvers that may succeed where one has failed, in order.

    The embedding ("feature-space") keeps digits that inner products of ill-conditioned features
    lose. With two classes and groups ECOS and Clarabel follow it, if they take seconds; otherwise a
    working set and a conic solver do.
    """
    structure, rows = structure_of(problem), len(problem.constraints)
    coefficients = math.prod(problem.norm_shape)
    found: list[Fallback] = []
    if problem.classes is None and structure in ("gates", "euclidean"):
        features = count_features(in_groups_of_gates(problem))
        if features <= MOST_FEATURES:
            found.append(Fallback("feature-space"))
        elif rows <= INTERIOR_POINT_LIMIT and failed != "working-set":
            found.append(Fallback("interior-point"))
        if rows * features <= MOST_ENTRIES:
            if find_spec("ecos") is not None:
                found.append(Fallback("ecos"))
            found.append(Fallback("clarabel"))
    else:
        if structure in ("euclidean", "balls"):
            if coefficients <= MOST_FEATURES:
                found.append(Fallback("feature-space"))
            found.append(Fallback("working-set"))
        found.append(Fallback(_conic(problem)))
    return [one for one in found if one.solver != failed]


def count_features(problem: MarginProblem) -> int:
    """P: columns of gates that are ever on, times inputs, constant ones merged."""
    features = problem.features
    return len(np.unique(features.sparse_gates.indices)) * features.n_inputs


def _semidefinite_entries(problem: MarginProblem) -> int:
    """Entries of the cones that a matrix norm, or a sum or maximum of such, needs; else 0."""
    norm, (K, M, D) = problem.norm, problem.norm_shape
    if isinstance(norm, NormOfScores):
        K, M, norm = M, 1, norm.norm
    orders = np.array([K + M * D])
    if isinstance(norm, norms.SumOverGroups | norms.MaxOverGroups):
        orders = K + (D if norm.axis == -2 else M) * np.bincount(norm.groups)
        norm = norm.norm
    semidefinite = norm in (norms.Nuclear(), norms.Spectral())
    return int((orders * (orders + 1) // 2).sum()) if semidefinite else 0


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """What a solver made by name is given, as far as it takes it; see `NativeSolver`."""

    tolerances: base.Tolerances = base.Tolerances()
    max_iterations: int | None = None
    max_seconds: float | None = None
    device: str = "cpu"
    max_memory: float | None = None


def make_solver(
    name: str,
    problem: MarginProblem,
    options: MethodOptions,
    system: SystemName | None = None,
) -> base.Solver:
    """Return a solver of this name for a problem, with these options; an interior point's system.

    Raises
    ------
    ValueError
        No such solver, or no such device.
    """
    as_device(options.device)
    common: dict[str, Any] = {
        "tolerances": options.tolerances,
        "max_iterations": options.max_iterations,
        "max_seconds": options.max_seconds,
    }
    check_choice(name, "solver", SOLVER_NAMES)
    if name == "auto":
        chosen = choose(problem)
        name, system = chosen.solver, chosen.system
    if name == "highs":
        return LinearProgram(**common)
    # Imported here: each pulls in a large library (torch, cvxpy) that the others do not need.
    if name in CVXPY_NAMES:
        from implicit_bias.solvers.cvxpy_solver import CvxpySolver

        return CvxpySolver(backend=name, **common)
    from implicit_bias.solvers.feature_space import FeatureSpace
    from implicit_bias.solvers.interior_point import InteriorPoint
    from implicit_bias.solvers.one_group import OneGroup
    from implicit_bias.solvers.working_set import WorkingSet

    def native(method: Callable[..., NativeSolver], **more: Any) -> NativeSolver:
        return method(**vars(options) | more)

    if name == "interior-point":
        return native(InteriorPoint, system=system or "auto")
    if name == "feature-space":
        return native(FeatureSpace)
    if name == "working-set":
        return native(WorkingSet)
    few = len(problem.constraints) <= INTERIOR_POINT_LIMIT
    fallback = native(InteriorPoint) if few else native(WorkingSet)
    return native(OneGroup, fallback=fallback)
