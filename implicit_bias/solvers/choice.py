"""Which solver to take: by name, or by what the problem looks like, from one table.

Each line of `FIRST` declares what a solver takes: structures of the norm, and conditions on the
problem's sizes and tags (`FACTS`). The lines stand in the order of the solvers' costs on what they
take: "auto" is the first one that takes a problem. Where its solver fails, the lines of `NEXT` name
those that follow. `stats.detail` of a `Solution` says which line it was, and what was tried.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from implicit_bias import norms
from implicit_bias.base.options import CVXPY_NAMES, SOLVER_NAMES, SolverName
from implicit_bias.base.strict_json import attributes
from implicit_bias.base.validation import as_device, check_choice
from implicit_bias.norms.entries import Entrywise
from implicit_bias.problem import MarginProblem, check_problem
from implicit_bias.problem.euclidean import euclidean_form, in_groups_of_gates
from implicit_bias.solvers import base
from implicit_bias.solvers.iteration import NativeSolver
from implicit_bias.solvers.linear_program import LinearProgram

# Up to here one Cholesky factorisation of all samples is cheaper than rounds of smaller ones.
INTERIOR_POINT_LIMIT = 3000
# Entries of the cones of matrix norms that Clarabel takes: it factorises them, in hours and tens of
# GiB where SCS takes seconds.
MOST_SEMIDEFINITE = 2000

Structure = Literal[
    "gates", "l2", "groups", "matrix", "entries", "powers", "matrices", "maxima", "other"
]
STRUCTURES: dict[Structure, str] = {
    "gates": "sums of l2 over groups of gates, two classes",
    "l2": "l2",
    "groups": "other sums of l2",
    "matrix": "nuclear, spectral",
    "entries": "l1, l_inf",
    "powers": "other l_p, sums of them over groups",
    "matrices": "sums of nuclear norms over groups of gates",
    "maxima": "other sums of maxima",
    "other": "all others",
}
EUCLIDEAN: tuple[Structure, ...] = ("gates", "l2", "groups")
BALL: tuple[Structure, ...] = ("matrix", "entries", "powers")
ANOTHER: tuple[Structure, ...] = tuple(STRUCTURES)[1:]


class Line(NamedTuple):
    """What a solver takes: structures of the norm, and conditions, which must all hold."""

    solver: SolverName
    norms: tuple[Structure, ...]
    where: str = ""
    # The time that it has after another solver, if any, and whether a proof is sought before it.
    seconds: float = math.inf
    proof_first: bool = False

    def __str__(self) -> str:
        where = f", where {self.where}" if self.where else ""
        return f"{self.solver} takes {_in_words(self.norms)}{where}"

    def takes(self, problem: _Facts) -> bool:
        """Whether a problem is of this kind."""
        return problem.structure in self.norms and all(map(problem.holds, _conditions(self.where)))


# Rows are samples, or pairs of samples and rivals. Most pairs are no support vectors, so that a
# working set of them is smaller early; with very many and a hard margin passes over all are dear.
FIRST: tuple[Line, ...] = (
    Line("active-set", ("gates",), "a start"),
    Line("working-set", EUCLIDEAN, "two classes, rows >= 50001, hard margin, few features"),
    Line("feature-space", EUCLIDEAN, f"two classes, rows >= {base.MANY_SAMPLES}, few features"),
    Line("working-set", EUCLIDEAN, f"two classes, rows >= {INTERIOR_POINT_LIMIT + 1}"),
    Line("one-group", EUCLIDEAN, "two classes, one group, hard margin"),
    # With dependent samples a soft margin's active set changes too much from step to step.
    Line("one-group", EUCLIDEAN, "two classes, one group, as many features as rows"),
    Line("interior-point", EUCLIDEAN, "two classes"),
    Line("working-set", (*EUCLIDEAN, *BALL), "many classes, rows >= 50001, hard margin"),
    Line("feature-space", ("l2",), "rows >= 1001, few features"),
    Line("one-group", EUCLIDEAN, "rows <= 1000, one group, hard margin"),
    Line("interior-point", EUCLIDEAN, "rows <= 1000"),
    Line("working-set", EUCLIDEAN),
    Line("highs", ("entries",), "rows <= 1000"),
    Line("highs", ("entries",), "two classes"),
    Line("interior-point", ("powers",), "rows <= 3000, as many features as rows"),
    Line("feature-space", BALL, "coefficients <= 1500"),
    Line("working-set", BALL),
    Line("interior-point", ("matrices",), "merged rows <= 1000"),
    Line("working-set", ("matrices",)),
    Line("highs", ("maxima",)),
    Line("scs", ("other",), "large cones"),
    Line("clarabel", ("other",)),
)
# The feature space keeps digits that inner products of ill-conditioned features lose, multiple
# precision all digits of small problems (but where features underflow, separators that need them
# are beyond float64, too): what it settles it settles within a minute, but without a separator it
# mostly ends without a proof. An interior point sees the margins of the coefficients as they are
# rounded, and "one-group" the Gram matrix alone. CVXPY's solvers are the last resort for larger
# problems, if they solve them in seconds.
NEXT: tuple[Line, ...] = (
    Line("feature-space", ("gates",), "features <= 1500"),
    Line("interior-point", ("gates",), "rows <= 3000, no feature-space, not after working-set"),
    Line("multiprecision", ("gates",), "entries <= 100000, order <= 150", seconds=40.0),
    Line("ecos", ("gates",), "entries <= 2000000, no multiprecision, ecos installed"),
    Line("clarabel", ("gates",), "entries <= 2000000, no multiprecision"),
    Line("feature-space", ("l2", *BALL), "coefficients <= 1500"),
    Line("working-set", ("l2", *BALL, "matrices")),
    Line("scs", ANOTHER, "large cones"),
    Line("clarabel", ANOTHER, "no large cones"),
    Line("multiprecision", ANOTHER, "coefficients <= 350, merged rows <= 500", 40.0, True),
)


# A fact, or a solver that failed, and what it is to be: at most or at least a number, or a truth.
Condition: TypeAlias = tuple[str, Callable[[Any, Any], Any], int]
SIGNS = {">=": operator.ge, "<=": operator.le}


@cache
def _conditions(where: str) -> list[Condition]:
    """Read the conditions of a line."""
    found: list[Condition] = []
    for words in map(str.split, filter(None, where.split(", "))):
        if words[-2:-1] and words[-2] in SIGNS:
            found.append((" ".join(words[:-2]), SIGNS[words[-2]], int(words[-1])))
        else:
            negated = words[0] in ("no", "not")
            found.append((" ".join(words[negated:]), operator.eq, not negated))
    return found


class _Facts:
    """A problem as the table sees it, and which solvers failed, or are to be tried first."""

    def __init__(
        self, problem: MarginProblem, start: base.Start | None = None, failed: str = ""
    ) -> None:
        self.problem, self.start, self.failed = problem, start, failed
        self.before: dict[SolverName, Line] = {}
        self._known: dict[str, Any] = {}

    @cached_property
    def structure(self) -> Structure:
        """The structure of the norm."""
        problem = self.problem
        if problem.is_binary_group_lasso:
            return "gates"
        groups = problem.norm.partition(problem.norm_shape)
        if problem.metric is not None or (groups is not None and groups.inner == "l2"):
            return "l2" if problem.norm == norms.L2() else "groups"
        if groups is None and norms.entries_of(problem.norm) is not None:
            return "powers"
        if isinstance(problem.norm, Entrywise):
            return "entries"
        if problem.norm in norms.BALLS:
            return "matrix"
        if norms.nuclear_groups(problem.norm) is not None:
            return "matrices"
        return "other" if groups is None else "maxima"

    @cached_property
    def in_groups(self) -> MarginProblem:
        """The same program under a norm of groups of gates, where there is one."""
        two = self.problem.classes is None and self.structure in EUCLIDEAN
        return in_groups_of_gates(self.problem) if two else self.problem

    def fact(self, name: str) -> Any:
        """Return a size, or whether a tag holds."""
        if name not in self._known:
            self._known[name] = FACTS[name](self)
        return self._known[name]

    def holds(self, condition: Condition) -> bool:
        """Whether a condition of the table holds."""
        name, compare, bound = condition
        failed = name in self.before or name == f"after {self.failed}"
        return bool(compare(self.fact(name) if name in FACTS else failed, bound))


FACTS: dict[str, Callable[[_Facts], Any]] = {
    "a start": lambda of: of.start is not None,
    "two classes": lambda of: of.problem.classes is None,
    "many classes": lambda of: of.problem.classes is not None,
    "hard margin": lambda of: of.problem.hard_margin,
    "one group": lambda of: (
        of.in_groups.n_groups == 1 and not euclidean_form(of.in_groups)[1].any()
    ),
    "rows": lambda of: len(of.problem.constraints),
    "merged rows": lambda of: of.problem.n_samples * max(of.problem.constraints.n_kinds - 1, 1),
    "features": lambda of: (
        count_features(of.in_groups) if of.problem.classes is None else of.fact("coefficients")
    ),
    "coefficients": lambda of: (
        of.problem.constraints.n_kinds * math.prod(of.problem.features.shape)
    ),
    "entries": lambda of: of.fact("rows") * of.fact("features"),
    "order": lambda of: min(of.fact("rows"), of.fact("features")),
    "few features": lambda of: base.are_few_features(of.fact("features"), of.fact("rows")),
    "as many features as rows": lambda of: of.fact("features") >= of.fact("rows"),
    "large cones": lambda of: _semidefinite_entries(of.problem) > MOST_SEMIDEFINITE,
    "ecos installed": lambda of: find_spec("ecos") is not None,
}


def choose_solver(problem: MarginProblem, start: base.Start | None = None) -> SolverName:
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
        That of the first line of the table that takes the problem; `choice.table` returns it.

    Raises
    ------
    TypeError, ValueError
        No problem, or no start for it.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MarginProblem
    >>> problem = MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0])
    >>> choose_solver(problem)
    'one-group'
    """
    check_problem(problem, "choose_solver")
    check_start(problem, start)
    return choose_line(problem, start).solver


def choose_line(problem: MarginProblem, start: base.Start | None = None) -> Line:
    """Return the first line of the table that takes a problem: why "auto" takes its solver."""
    facts = _Facts(problem, start)
    return next(line for line in FIRST if line.takes(facts))


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


def alternatives(problem: MarginProblem, failed: str) -> dict[SolverName, Line]:
    """Return the lines of solvers that may succeed where one has failed, in order, by name."""
    facts = _Facts(problem, failed=failed)
    for line in NEXT:
        if line.solver not in (failed, *facts.before) and line.takes(facts):
            facts.before[line.solver] = line
    return facts.before


def table() -> str:
    """Return what "auto" takes as a table in Markdown, and in what order others follow.

    Examples
    --------
    >>> print(table().splitlines()[2])
    | active-set | sums of l2 over groups of gates, two classes | a start |
    """
    rows = ["| solver | norms | where |", "|---|---|---|"]
    for title, lines in (("", FIRST), ("| *where one has failed* | | |", NEXT)):
        rows += [title] * bool(title)
        rows += [f"| {one.solver} | {_in_words(one.norms)} | {one.where} |" for one in lines]
    return "\n".join(rows)


def _in_words(structures: tuple[Structure, ...]) -> str:
    """Name structures of norms, all that are Euclidean, and all but the first, as one."""
    if structures == ANOTHER:
        return "any other"
    found = "; ".join(STRUCTURES[name] for name in structures)
    return found.replace("; ".join(STRUCTURES[name] for name in EUCLIDEAN), "sums of l2")


def count_features(problem: MarginProblem) -> int:
    """P: columns of gates that are ever on, times inputs, constant ones merged."""
    constant = int((problem.X == problem.X[0]).all(axis=0).sum())
    used = np.unique(problem.plain_gates.indices)
    return len(used) * (problem.X.shape[1] - constant + min(constant, 1))


def _semidefinite_entries(problem: MarginProblem) -> int:
    """Entries of the cones that a matrix norm, or a sum or maximum of such, needs; else 0."""
    norm, (K, M, D) = problem.norm, problem.norm_shape
    if isinstance(norm, norms.InRows):
        K, norm = norm.n_rows, norm.norm
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
    name: str, problem: MarginProblem, options: MethodOptions, start: base.Start | None = None
) -> base.Solver:
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
    from implicit_bias.solvers.feature_space import FeatureSpace
    from implicit_bias.solvers.interior_point import InteriorPoint
    from implicit_bias.solvers.multiprecision import MultiPrecision
    from implicit_bias.solvers.working_set import WorkingSet

    def native(method: Callable[..., NativeSolver], **more: Any) -> NativeSolver:
        return method(**vars(options) | more)

    methods: dict[str, Callable[..., NativeSolver]] = {
        "interior-point": InteriorPoint,
        "feature-space": FeatureSpace,
        "working-set": WorkingSet,
    }
    if name in methods:
        return native(methods[name])
    if name == "multiprecision":
        return native(MultiPrecision, device="cpu")
    few = len(problem.constraints) <= INTERIOR_POINT_LIMIT
    whole = methods["interior-point"] if few else WorkingSet
    if name == "one-group":
        return native(OneGroup, fallback=native(whole))
    return native(ActiveSet, fallback=native(methods.get(choose_solver(problem), whole)))
