"""Which solver "auto" takes, and which ones follow where it fails.

==============================================  ================================================
norm                                            solver
==============================================  ================================================
sums of l2; entries (l1, l_inf, l_p); nuclear,  the built-in method, or HiGHS under l1 and
spectral, and their sums over groups            l_inf, of the smallest estimated time (`costs`)
sums of l2, condition number above 1e5, order   the embedding, which forms no products of
of the features' system at most 500             samples
sums of l2, hard margin, 50 times as many       the working set, where the estimate of the
samples and 100 times as many rows as a         interior point in the space of the features is
working set has                                 the smallest
other sums of maxima                            HiGHS
all others                                      Clarabel; SCS where the cones are large
==============================================  ================================================

`stats.detail` of a `Solution` says what was taken, with the estimates, and what was tried.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy.linalg

from implicit_bias import norms
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.options import CVXPY_NAMES, SOLVER_NAMES, SolverName
from implicit_bias.base.validation import as_device, check_choice
from implicit_bias.norms.entries import Entrywise
from implicit_bias.problem import MarginProblem, check_problem
from implicit_bias.problem.attention import NormOfScores
from implicit_bias.problem.euclidean import classes_share_groups, in_groups_of_gates
from implicit_bias.solvers import base, costs
from implicit_bias.solvers.linear_program import LinearProgram

# Up to so many rows an interior point is the second method, beyond a working set is.
INTERIOR_POINT_LIMIT = 3000

# Samples, and rows, per row of a working set from which on "auto" takes a working set under sums of
# l2 with a hard margin, whatever the estimates say of the interior point. On 24 such problems of 2
# to 17 classes it took .05 to .92 of the processor's time of an interior point. With fewer samples
# it took up to 2.8 times as long.
MANY_SAMPLES = 50
MANY_ROWS = 100

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


@dataclass(frozen=True, kw_only=True)
class FallBack:
    """When "auto" doubts that a separator exists, and what it tries where a method failed.

    Parameters
    ----------
    doubtful : float
        The infeasibility tolerance (`Tolerances`) of the first method: where it gives up by this, a
        proof that nothing separates the samples is sought.
    hopeless : float
        The same where a proof would take too long: then the doubt is the answer.
    near_miss : float
        Where the gap exceeds the tolerance by less than this factor, the next method is asked for
        a gap smaller by this factor: a certificate rounds differently than a method.
    large_C : float
        From this C on, times the features' scale, the box of a soft margin may bind nowhere.
    similar_seconds : float
        Limit in seconds on the solve of a similar problem, whose answer may be that of this one.
    rows_per_working_row : int
        The working set follows an interior point where there are this many rows for each of its
        rows.
    most_features : int
        The embedding takes seconds up to this many coefficients: gates times inputs times classes.
    most_entries : int
        An external solver takes about a minute up to this many entries: rows times coefficients.
    entry_seconds : float
        Seconds for each such entry that pass before an external solver begins: no limit ends them.
    most_semidefinite : int
        Entries of the cones of matrix norms up to which Clarabel is taken: it factorizes them, in
        hours and tens of GiB where SCS takes seconds.
    most_with_offset : int
        Samples up to which a user is told that an unpenalized intercept would separate them.
    """

    doubtful: float = 1e-4
    hopeless: float = 1e-6
    near_miss: float = 100.0
    large_C: float = 1e8  # noqa: N815 - C is a name
    similar_seconds: float = 10.0
    rows_per_working_row: int = 10
    most_features: int = 1500
    most_entries: int = 2_000_000
    entry_seconds: float = 1e-5
    most_semidefinite: int = 2000
    most_with_offset: int = 3000

    def built_in(self, problem: MarginProblem, failed: str) -> SolverName | None:
        """Return the solver of this package that may succeed where another one has failed.

        The embedding keeps digits that inner products of ill-conditioned features lose. With too
        many features for it, the interior point or the working set follows. Where an interior point
        over all rows of a hard margin ends at its limit of iterations, it may succeed on the few
        that matter: the working set is next where it is much smaller.
        """
        if not is_native(problem):
            return None
        if failed == "interior-point" and problem.hard_margin:
            sizes = costs.Sizes.of(problem)
            if sizes.rows >= self.rows_per_working_row * sizes.working(hard=True).rows:
                return "working-set"
        # The embedding, the interior point or the working set, whichever is the first to fit.
        other: SolverName = "working-set"
        if failed != "feature-space" and _count_coefficients(problem) <= self.most_features:
            other = "feature-space"
        elif len(problem.constraints) <= INTERIOR_POINT_LIMIT:
            other = "interior-point"
        # The same method on the same numbers fails again.
        if other == failed:
            return None
        return other

    def external(self, problem: MarginProblem, deadline: Deadline) -> SolverName | None:
        """Return the conic solver that may succeed after others, if there is time for it."""
        entries = len(problem.constraints) * _count_coefficients(problem)
        if entries > self.most_entries or not deadline.allows(self.entry_seconds * entries):
            return None
        return self.conic(problem)

    def conic(self, problem: MarginProblem) -> SolverName:
        """Return the conic solver that takes the cones of a norm."""
        if _semidefinite_entries(problem) > self.most_semidefinite:
            return "scs"
        return "clarabel"


FALL_BACK = FallBack()


def is_native(problem: MarginProblem) -> bool:
    """Whether "auto" takes a method of this package for the norm, if not HiGHS for l1 or l_inf."""
    kind = costs.kind_of(problem)
    if kind == "entries" and not isinstance(problem.norm, Entrywise):
        return not _sums_maxima(problem)
    return kind != "other"


def _sums_maxima(problem: MarginProblem) -> bool:
    """Whether a norm is a sum of maxima over groups, so that the problem is a linear program."""
    partition = problem.partition
    return partition is not None and partition.inner == "linf"


def choose_solver(problem: MarginProblem) -> SolverName:
    """Return the name of the solver that "auto" takes for a problem.

    Parameters
    ----------
    problem : MarginProblem
        The problem.

    Returns
    -------
    str
        That of the method with the smallest estimate of its time; see `costs`. The working set
        where a hard margin has few support vectors among very many samples.

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
    if not is_native(problem):
        if _sums_maxima(problem):
            return Choice("highs", "a norm of maxima is a linear program")
        # The norm has to have an atom in CVXPY, which is seen when the program is formulated.
        return Choice(FALL_BACK.conic(problem), "a norm that no built-in method takes")
    if ConditionTest().products_lose_digits(problem):
        return Choice("feature-space", "products of ill-conditioned samples lose digits")
    seconds = costs.estimates(problem)
    best = min(seconds, key=lambda name: seconds[name])
    others = [f"{name} {value:.2g} s" for name, value in seconds.items() if name != best]
    why = f"estimated {seconds[best]:.2g} s"
    if others:
        why += f"; {', '.join(others)}"
    if best == "features" and _has_few_supports(problem):
        best = "working-set"
        why = f"support vectors are few among {problem.n_samples} samples; {why}"
    if best == "rows" or best == "features":
        return Choice("interior-point", why, best, seconds[best])
    return Choice(best, why, seconds=seconds[best])


@dataclass(frozen=True, kw_only=True)
class ConditionTest:
    """When products of samples, which have the square of their condition number, lose digits.

    A condition number of 1e5 leaves six of sixteen digits. On unscaled breast cancer (1.5e6), and
    on tables of categories beside amounts in thousands, only the embedding succeeds. But it may
    take ten times as long as an interior point, so that large problems are not looked at.

    Parameters
    ----------
    ill_conditioned : float
        The condition number of the samples from which on "auto" takes the embedding.
    well_conditioned : float
        Eigenvalues of the products whose ratio exceeds this are right: nothing else is looked at.
    most_order : int
        Order of the system of the features that is looked at.
    most_entries, most_hard_entries : int
        Entries of the rows that are looked at; the latter of hard margins of many classes. Those
        that are far apart are solved on few of their rows, whatever the scales are.
    most_features : int
        With more features the columns' norms alone are looked at.
    """

    ill_conditioned: float = 1e5
    well_conditioned: float = 1e-9
    most_order: int = 500
    most_entries: int = 2**24
    most_hard_entries: int = 2**21
    most_features: int = 100

    def products_lose_digits(self, problem: MarginProblem) -> bool:
        """Whether a problem that the embedding takes asks for more digits than products have."""
        if costs.kind_of(problem) != "euclidean":
            return False
        K, M, D = problem.norm_shape
        order = max(K - 1, 1) * M * D
        most_entries = self.most_entries
        if problem.hard_margin and problem.classes is not None:
            most_entries = self.most_hard_entries
        if order > self.most_order or len(problem.constraints) * order > most_entries:
            return False
        if not classes_share_groups(problem):
            return False
        X = problem.X
        rounding = np.finfo(float).eps * max(X.shape)
        centred = X
        if problem.intercept:  # which absorbs what all samples have in common
            centred = X - X.mean(axis=0)
        # --- the columns' norms: their ratio is at most the condition number
        sizes = np.linalg.norm(centred, axis=0)
        # Columns that are constant, or 0, have a norm of rounding errors.
        varies = sizes > rounding * np.linalg.norm(X, axis=0)
        if not varies.any():
            return False
        if sizes[varies].max() >= self.ill_conditioned * sizes[varies].min():
            return True
        if M * D > self.most_features:
            return False
        # --- eigenvalues of the products, which are quick, and right unless they are small
        if not varies.all():
            centred = centred[:, varies]
        eigenvalues = np.linalg.eigvalsh(centred.T @ centred)
        if eigenvalues[0] > self.well_conditioned * eigenvalues[-1]:
            return False
        # --- singular values
        singular_values = scipy.linalg.svdvals(centred)
        # Redundant columns have singular values of the rounding of the largest one. They are no
        # directions in which the samples differ.
        negligible = rounding * singular_values[0]
        smallest = singular_values[singular_values > negligible].min(initial=np.inf)
        return bool(singular_values[0] >= self.ill_conditioned * smallest)


def _has_few_supports(problem: MarginProblem) -> bool:
    """Whether support vectors are few among the samples, so that a working set is much smaller.

    At a hard margin there are hardly more of them than features. An interior point passes over all
    rows at each of its 15 to 80 steps, a working set at each of its 3 to 14 rounds. The estimates
    were fitted with 60,000 rows at most, and steps are more with more rows.
    """
    if not problem.hard_margin or costs.kind_of(problem) != "euclidean":
        return False
    sizes = costs.Sizes.of(problem)
    working = sizes.working(hard=True).rows
    return sizes.samples >= MANY_SAMPLES * working and sizes.rows >= MANY_ROWS * working


def count_features(problem: MarginProblem) -> int:
    """Count the columns of gates that are ever on, times inputs."""
    features = problem.features
    return len(np.unique(features.sparse_gates.indices)) * features.n_varying_inputs


def _count_coefficients(problem: MarginProblem) -> int:
    """Count the coefficients; with two classes and sums of l2 those of gates that are ever on."""
    if problem.classes is None and costs.kind_of(problem) == "euclidean":
        return count_features(in_groups_of_gates(problem))
    return math.prod(problem.norm_shape)


def _semidefinite_entries(problem: MarginProblem) -> int:
    """Entries of the cones that a matrix norm, or a sum or maximum of such, needs; else 0."""
    norm = problem.norm
    K, M, D = problem.norm_shape
    of_scores = isinstance(norm, NormOfScores)
    if isinstance(norm, NormOfScores):
        norm = norm.norm
        K, M = M, 1
    # Both need a semidefinite matrix that holds zeta, (K, M D), beside two square blocks.
    orders = np.array([K + M * D])
    if isinstance(norm, norms.SumOverGroups | norms.MaxOverGroups):
        sizes = np.bincount(norm.groups)
        if norm.axis == -1:
            orders = K + M * sizes
        elif of_scores:  # groups of rows
            orders = sizes + D
        else:
            orders = K + D * sizes
        norm = norm.norm
    if norm not in (norms.Nuclear(), norms.Spectral()):
        return 0
    # A symmetric matrix has n (n + 1) / 2 entries, and an interior point factorizes a matrix of
    # that order.
    return int((orders * (orders + 1) // 2).sum())


@dataclass(frozen=True, kw_only=True)
class MethodOptions:
    """The options of `solve` for a solver that is made by its name; see `NativeSolver`."""

    tolerances: base.Tolerances = base.Tolerances()
    max_iterations: int | None = None
    max_seconds: float | None = None
    device: str = "cpu"


def make_solver(
    name: str,
    problem: MarginProblem,
    options: MethodOptions,
    system: SystemName | None = None,
) -> base.Solver:
    """Return a solver of this name for a problem, with these options.

    ``system`` is that of an interior point.

    Raises
    ------
    ValueError
        No such solver, or no such device.
    """
    as_device(options.device)
    check_choice(name, "solver", SOLVER_NAMES)
    if name == "auto":
        chosen = choose(problem)
        name = chosen.solver
        system = chosen.system
    settings: dict[str, Any] = vars(options)
    common = {key: settings[key] for key in ("tolerances", "max_iterations", "max_seconds")}
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

    if name == "interior-point":
        return InteriorPoint(system=system or "auto", **settings)
    if name == "feature-space":
        return FeatureSpace(**settings)
    if name == "working-set":
        return WorkingSet(**settings)
    if len(problem.constraints) <= INTERIOR_POINT_LIMIT:
        return OneGroup(fallback=InteriorPoint(), **settings)
    return OneGroup(fallback=WorkingSet(), **settings)
