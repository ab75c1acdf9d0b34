"""Which solver to take: by name, or by what the problem looks like."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np

from implicit_bias.base.options import CVXPY_NAMES, SOLVER_NAMES, SolverName
from implicit_bias.base.strict_json import attributes
from implicit_bias.base.validation import as_device, check_choice
from implicit_bias.bounds.separability import features_underflow
from implicit_bias.norms import (
    BALLS,
    L2,
    InRows,
    MaxOverGroups,
    Nuclear,
    Spectral,
    SumOverGroups,
    nuclear_groups,
)
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import count_kinds, group_form
from implicit_bias.solvers.base import (
    MANY_SAMPLES,
    Solver,
    Start,
    Tolerances,
    are_few_features,
)
from implicit_bias.solvers.iteration import NativeSolver
from implicit_bias.solvers.linear_program import LinearProgram

# Up to here one Cholesky factorisation of all samples is cheaper than rounds of smaller ones.
INTERIOR_POINT_LIMIT = 3000
# Most pairs are no support vectors, so that a working set of them is smaller early.
FEW_PAIRS = 1000
# With this many and a hard margin, passes over all pairs are dear, and few of them matter.
MANY_PAIRS = 50_000
# With many classes and a norm of `BALLS`, factors of the features are cheaper up to this many.
CLASS_FEATURES = 1500
# Where a method failed, others are tried up to this many features, and entries of the features.
MOST_FEATURES, MOST_ENTRIES = 1500, 2_000_000
# Norms of matrices in groups of gates, and the entries of their cones that Clarabel takes.
MATRIX_NORMS, MOST_SEMIDEFINITE = (Nuclear(), Spectral()), 2000
# In multiple precision up to this many entries, and this many of samples or features.
MOST_PRECISE_ENTRIES, MOST_PRECISE_ORDER = 100_000, 150
# Powers of two between C and what it is for features of size 1, up to which 512 bits hold both.
MOST_PRECISE_POWER = 200
# With many classes, or another norm, so many coefficients, and samples times rivals.
MOST_PRECISE_COEFFICIENTS, MOST_PRECISE_PAIRS = 350, 500


def choose_solver(problem: MarginProblem, start: Start | None = None) -> SolverName:
    """Return the name of the solver that "auto" takes for a problem.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    start : Solution, optional
        What it is to be solved from.

    Returns
    -------
    str
        "active-set" with a start, which falls back on the others; without one "feature-space"
        where there are few features (columns of gates times inputs) for the samples, up to 50,000
        with a hard margin; else, up to 3,000 samples, "one-group" where the norm is that of one
        group (linear, shallow, SVM-L2; with a soft margin only where there are as many features as
        samples) and "interior-point" elsewhere, and "working-set" beyond. With many classes these
        count pairs of samples and rivals, and all but "one-group" take the nuclear and spectral
        norms, l1 and l_inf, too ("feature-space" no norm but these and l2; sums of nuclear norms
        over gates go to "interior-point" and "working-set"). Other norms that are no
        sums of Euclidean norms go to "highs" where they are sums of maxima, as all such do with few
        pairs, and else to "clarabel", or to "scs" for large sums of matrix norms.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MarginProblem
    >>> problem = MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0])
    >>> choose_solver(problem)
    'one-group'
    """
    if not problem.is_binary_group_lasso:
        return _choose_for_norm(problem)
    if start is not None:
        return "active-set"
    n_samples = problem.n_samples
    if n_samples >= MANY_SAMPLES and are_few_features(count_features(problem), n_samples):
        many = problem.hard_margin and n_samples > MANY_PAIRS
        return "working-set" if many else "feature-space"
    if n_samples > INTERIOR_POINT_LIMIT:
        return "working-set"
    # With dependent samples a soft margin's active set changes too much from step to step.
    steady = problem.hard_margin or count_features(problem) >= n_samples
    return "one-group" if problem.n_groups == 1 and steady else "interior-point"


def _choose_for_norm(problem: MarginProblem) -> SolverName:
    """Choose where there are many classes, or another norm than that of gate columns."""
    groups = problem.norm.partition(problem.norm_shape)
    euclidean = problem.metric is not None or (groups is not None and groups.inner == "l2")
    if problem.classes is None:
        if euclidean:
            return choose_solver(group_form(problem))
        return _conic(problem) if groups is None else "highs"
    n_pairs = problem.n_samples * (problem.classes - 1)
    features = _coefficients(problem)
    if problem.hard_margin and n_pairs > MANY_PAIRS:
        if euclidean or problem.norm in BALLS:
            return "working-set"
    if problem.norm == L2() and n_pairs > FEW_PAIRS and are_few_features(features, n_pairs):
        return "feature-space"
    if euclidean and n_pairs <= FEW_PAIRS:
        one = problem.n_groups == 1 and problem.hard_margin
        return "one-group" if one else "interior-point"
    if euclidean:
        return "working-set"
    if nuclear_groups(problem.norm) is not None:
        return "interior-point" if _constraints(problem) <= FEW_PAIRS else "working-set"
    if problem.norm not in BALLS:
        return _conic(problem) if groups is None else "highs"
    if groups is not None and n_pairs <= FEW_PAIRS:
        return "highs"
    return "feature-space" if features <= CLASS_FEATURES else "working-set"


def _conic(problem: MarginProblem) -> SolverName:
    """Choose a conic solver: SCS where matrix norms need semidefinite cones of a large order.

    Clarabel factorises them, in hours and tens of GiB where SCS takes seconds.
    """
    norm, (K, M, D) = problem.norm, problem.norm_shape
    if isinstance(norm, InRows):
        K, norm = norm.n_rows, norm.norm
    if norm in MATRIX_NORMS:
        orders = np.array([K + M * D])
    elif isinstance(norm, SumOverGroups | MaxOverGroups) and norm.norm in MATRIX_NORMS:
        orders = K + (D if norm.axis == -2 else M) * np.bincount(norm.groups)
    else:
        return "clarabel"
    return "scs" if (orders * (orders + 1) // 2).sum() > MOST_SEMIDEFINITE else "clarabel"


def _constraints(problem: MarginProblem) -> int:
    """Count samples, or pairs of samples and rivals; all classes without samples are one."""
    return problem.n_samples * (1 if problem.classes is None else count_kinds(problem) - 1)


def _coefficients(problem: MarginProblem) -> int:
    """K F: coefficients; all classes without samples are one."""
    kinds = 1 if problem.classes is None else count_kinds(problem)
    return kinds * problem.plain_gates.shape[1] * problem.X.shape[1]


def count_features(problem: MarginProblem) -> int:
    """P: columns of gates that are ever on, times inputs, constant ones merged."""
    constant = int((problem.X == problem.X[0]).all(axis=0).sum())
    used = np.unique(problem.plain_gates.indices)
    return len(used) * (problem.X.shape[1] - constant + min(constant, 1))


def alternatives(problem: MarginProblem, failed: str) -> tuple[SolverName, ...]:
    """Name the solvers that may succeed where one has failed, in the order to try them.

    The feature space keeps digits that inner products of ill-conditioned features lose, multiple
    precision all digits of small problems. An interior point sees the margins of the coefficients
    as they are rounded, and "one-group" the Gram matrix alone. CVXPY's solvers are the last resort
    for larger ones, if they solve them in seconds.
    """
    if not problem.is_binary_group_lasso:
        conic = _conic(problem)
        others: list[SolverName] = [conic]
        one_ball = problem.norm in (*BALLS, L2())
        if problem.classes is not None and (one_ball or nuclear_groups(problem.norm) is not None):
            few = one_ball and _coefficients(problem) <= CLASS_FEATURES
            others = [*(("feature-space",) if few else ()), "working-set", *others]
        few_coefficients = _coefficients(problem) <= MOST_PRECISE_COEFFICIENTS
        small = few_coefficients and _constraints(problem) <= MOST_PRECISE_PAIRS
        # Where features underflow, separators that need them are beyond float64, too.
        if small and not features_underflow(problem):
            others.append("multiprecision")
        return tuple(name for name in others if name != failed)
    features, samples = count_features(problem), problem.n_samples
    names: list[SolverName] = []
    if failed != "feature-space" and features <= MOST_FEATURES:
        names.append("feature-space")
    elif failed not in ("interior-point", "working-set") and samples <= INTERIOR_POINT_LIMIT:
        names.append("interior-point")
    if samples * features <= MOST_PRECISE_ENTRIES and min(samples, features) <= MOST_PRECISE_ORDER:
        names.append("multiprecision")
    elif samples * features <= MOST_ENTRIES:
        ecos: tuple[SolverName, ...] = ("ecos",) if find_spec("ecos") else ()
        names += [*ecos, "clarabel"]
    return tuple(names)


def is_far_from_features(problem: MarginProblem) -> bool:
    """Whether C is so large or small for the features that 512 bits do not hold both."""
    if problem.hard_margin or problem.scale == 0:
        return False
    return abs(math.log2(problem.C) + math.log2(problem.scale)) > MOST_PRECISE_POWER


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """What a solver made by name is given, as far as it takes it; see `NativeSolver`."""

    tolerances: Tolerances = Tolerances()
    max_iterations: int | None = None
    max_seconds: float | None = None
    device: str = "cpu"
    max_memory: float | None = None


def make_solver(
    name: str, problem: MarginProblem, options: MethodOptions, start: Start | None = None
) -> Solver:
    """Return a solver of this name for a problem, with these options.

    Raises
    ------
    ValueError
        No such solver, or no such device.
    """
    as_device(options.device)
    common: dict[str, Any] = attributes(options, "tolerances", "max_iterations", "max_seconds")
    check_choice(name, "solver", SOLVER_NAMES)
    if name == "auto":
        name = choose_solver(problem, start)
    if name == "highs":
        return LinearProgram(**common)
    # Imported here: each pulls in a large library (torch, cvxpy) that the others do not need.
    if name in CVXPY_NAMES:
        from implicit_bias.solvers.cvxpy_solver import CvxpySolver

        return CvxpySolver(backend=name, **common)
    from implicit_bias.solvers.active_set import ActiveSet, OneGroup
    from implicit_bias.solvers.barrier import Barrier
    from implicit_bias.solvers.feature_space import FeatureSpace
    from implicit_bias.solvers.interior_point import ClassFeatureSpace, InteriorPoint
    from implicit_bias.solvers.multiprecision import MultiPrecision
    from implicit_bias.solvers.working_set import WorkingSet

    def native(method: Callable[..., NativeSolver], **more: Any) -> NativeSolver:
        return method(**vars(options) | more)

    methods: dict[str, Callable[..., NativeSolver]] = {
        "interior-point": InteriorPoint,
        "feature-space": FeatureSpace if problem.classes is None else ClassFeatureSpace,
        "working-set": WorkingSet,
    }
    if name in methods:
        return native(methods[name])
    if name == "multiprecision":
        own = problem.is_binary_group_lasso and not is_far_from_features(problem)
        return native(MultiPrecision if own else Barrier, device="cpu")
    n_rows = problem.n_samples * ((problem.classes or 2) - 1)
    whole = methods["interior-point"] if n_rows <= INTERIOR_POINT_LIMIT else WorkingSet
    if name == "one-group":
        return native(OneGroup, fallback=native(whole))
    return native(ActiveSet, fallback=native(methods.get(choose_solver(problem), whole)))
