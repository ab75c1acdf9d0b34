"""What every solver takes and gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.options import TOLERANCE
from implicit_bias.base.threads import threads, threads_for
from implicit_bias.base.validation import Array, check_count, check_number
from implicit_bias.base.wording import html_table, listed_samples, number
from implicit_bias.bounds.certificate import Certificate, Status
from implicit_bias.bounds.gordan import Proof
from implicit_bias.bounds.separability import Conflict, find_conflict
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.constraints import Integers
from implicit_bias.solvers import costs


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """When a solver may stop.

    Attributes
    ----------
    gap : float
        Relative gap between the certified bounds.
    feasibility : float
        Largest violation of y_n f(x_n) >= 1 (relative to 1) before the coefficients are scaled
        to unit margin.
    infeasibility : float
        The data count as not separable where max_g ||V_g(alpha)|| of some alpha >= 0 is below
        this fraction of sum_n alpha_n ||phi_n||, phi_n the features of sample n: with all features
        scaled to norm 1, any separator of norm 1 would have a margin as small.
    """

    gap: float = TOLERANCE
    feasibility: float = 1e-6
    infeasibility: float = 1e-9

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            check_number(value, f"the {name} tolerance", "(0, 1)")


@dataclass(frozen=True)
class BoundsAt:
    """One point of a solver's history: the best bounds so far, in the units of the problem.

    They are as the solver computes them, in its first steps perhaps in float32; bounds that hold
    are those of the certificate. ``iteration`` counts from 1: the first iterate of a method that
    follows a central path is there before any step.
    """

    iteration: int
    lower: float
    upper: float


@dataclass(frozen=True)
class SolveStats:
    """Facts of a run.

    Attributes
    ----------
    solver : str
        Name of the solver that ran.
    iterations : int
        How many of its iterations computed bounds. For a central path that is one more than its
        steps; for the working set it is the number of its rounds.
    seconds : float
        Wall time of the solve, certificate included.
    history : tuple of BoundsAt
        The solver's own bounds, where it reports them.
    conflict : Conflict or None
        The plain cause of non-separability, if that is what ended the solve.
    detail : str
        What the solver said of itself; of "auto" why it took this one, and after which others.
    advice : str
        What to change where there is no separator, no answer, or where all coefficients are 0;
        empty where nothing is known.
    """

    solver: str
    iterations: int
    seconds: float
    history: tuple[BoundsAt, ...] = field(default=(), repr=False)
    conflict: Conflict | None = None
    detail: str = ""
    advice: str = ""


@dataclass(frozen=True, eq=False)
class Answer:
    """What attains the bounds: alpha, coefficients and intercept, in the problem's shapes.

    ``proof`` shows that nothing separates the samples, if that is what was found.
    """

    alpha: Array
    coef: Array
    intercept: float | Array = 0.0
    proof: Proof | None = None


@dataclass(frozen=True, eq=False, kw_only=True)
class Start(Answer):
    """What a built-in solver may start from: a `Solution` of a similar problem, or its arrays.

    ``alpha`` may be shorter than the problem: samples appended to it start at 0. The coefficients
    have margins of 1 where there are no losses, and ``group_norms`` (G,) are their ||zeta_g||.
    """

    group_norms: Array


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class Solution(Start):
    r"""A solved margin problem.

    .. math:: \zeta_g = d_g V_g(\alpha), \qquad d_g (1 - \|V_g(\alpha)\|) = 0, \qquad
        \alpha_n (y_n (f(x_n) + b) - 1) = 0

    at the optimum of a hard margin under a sum of Euclidean norms; see `MarginProblem` for V.

    Attributes
    ----------
    problem : MarginProblem
        What was solved.
    alpha : ndarray of shape (N,) or (N, K)
        Dual variables, scaled to be feasible (up to 1e-11); sum 1 where the data are not separable.
    group_norms : ndarray of shape (G,)
        d_g = ||zeta_g||, the multiplier of group g: zeta_g = d_g V_g at the optimum.
    coef : ndarray of shape (M, D) or (K, M, D)
        Coefficients zeta, scaled to unit margin (hard margin); zero where the data are
        not separable.
    intercept : float or ndarray of shape (K,)
        The unpenalized intercept beta: the predictor is f(x) + beta. 0 where the problem has none.
    support : ndarray of int
        Support vectors: the samples for which alpha_n, relative to its mean, exceeds
        y_n f(x_n) - 1 (one of the two is 0 at the optimum).
    active : ndarray of bool, shape (G,)
        The nonzero groups: those for which d_g, relative to its mean,
        exceeds 1 - ||V_g||.
    status : Status
        How it ended.
    certificate : Certificate
        Certified bounds: those of `certify`.
    stats : SolveStats
        Facts of the run.
    proof : Proof or None
        That nothing separates the samples, with status NOT_SEPARABLE: its samples, the rows of
        their constraints, and their alpha.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import max_margin, solve
    >>> solution = solve(max_margin(np.array([[2.0], [-1.0]]), np.array([1.0, -1.0])))
    >>> print(solution.status.label, solution.support, solution.coef.round(4))
    optimal [1] [[1.]]
    """

    problem: MarginProblem
    support: NDArray[np.int64]
    active: NDArray[np.bool_]
    status: Status
    certificate: Certificate
    stats: SolveStats

    def __repr__(self) -> str:
        ended = f"{self.status.name} by {self.stats.solver}"
        # Where nothing separates, alpha is of a proof, if any, and no group is active.
        if self.status.inseparable:
            return f"Solution({ended}: {self.message})"
        found = (
            f"{ended}: {self.certificate.statement}, gap {self.certificate.gap:.2g}; "
            f"{len(self.support)} of {len(self.alpha)} samples support it"
        )
        # A norm without groups has one, which says nothing.
        if len(self.active) > 1:
            found += f", {int(self.active.sum())} of {len(self.active)} groups are active"
        return f"Solution({found})"

    def _repr_html_(self) -> str:
        bounds = self.certificate
        rows = [
            ["status", self.status.label],
            [bounds.objective, f"{number(bounds.lower, 9)} to {number(bounds.upper, 9)}"],
            ["relative gap", number(bounds.gap, 2)],
            ["support vectors", f"{len(self.support):,} of {len(self.alpha):,}"],
        ]
        if len(self.active) > 1:
            rows.append(["active groups", f"{int(self.active.sum()):,} of {len(self.active):,}"])
        rows.append(["solver", f"{self.stats.solver}, {self.stats.iterations} iterations"])
        if self.status is not Status.OPTIMAL:
            rows.append(["message", self.message])
        return html_table(["solution", ""], rows)

    @property
    def message(self) -> str:
        """The status in words, with cause and cure where they are known."""
        message = self.status.explain(self.certificate)
        if self.stats.conflict is not None:
            message += f": {self.stats.conflict.cause}"
        elif self.proof is not None:
            samples = self.proof.samples
            message += f": {len(samples)} samples are in conflict ({listed_samples(samples)})"
        if self.stats.advice:
            message += f"; {self.stats.advice}"
        return message

    def among(self, n_samples: int, kept: NDArray[np.int64]) -> Solution:
        """Return the solution as that of this many samples, all but these (n,) with alpha 0."""
        if len(kept) == n_samples:
            return self
        alpha = np.zeros((n_samples, *self.alpha.shape[1:]))
        alpha[kept] = self.alpha
        stats = self.stats
        # It names samples, which have other numbers among all.
        if stats.conflict is not None:
            stats = replace(stats, conflict=find_conflict(self.problem, kept))
        return replace(
            self,
            alpha=alpha,
            support=kept[self.support],
            stats=stats,
            proof=proof_among(self.proof, kept),
        )

    def raise_for_status(self, advice: str = "") -> None:
        """Raise `SolveError`, with this solution in it, unless the status is OPTIMAL.

        Parameters
        ----------
        advice : str
            What the caller can say of the cure, for the error's message.
        """
        if self.status is not Status.OPTIMAL:
            raise SolveError(self, advice)


def proof_among(proof: Proof | None, kept: Integers) -> Proof | None:
    """Return a proof, if any, whose samples have the numbers (N,) that they have in larger data."""
    if proof is None:
        return None
    return replace(proof, samples=kept[proof.samples])


class AnySolution(Protocol):
    """What a solve found, with its grade."""

    @property
    def status(self) -> Status:
        """How it ended."""

    @property
    def certificate(self) -> Certificate:
        """Certified bounds."""

    @property
    def alpha(self) -> Array:
        """Dual variables."""

    @property
    def message(self) -> str:
        """The status in words."""


class SolveError(RuntimeError):
    """A solve that did not end optimal; ``solution`` holds what it found, certified.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import SolveError, max_margin, solve
    >>> try:
    ...     solve(max_margin(np.array([[1.0], [1.0]]), np.array([1.0, -1.0]))).raise_for_status()
    ... except SolveError as error:
    ...     print(error.solution.status.label)
    not separable
    """

    def __init__(self, solution: AnySolution, advice: str = "") -> None:
        message = solution.message
        if advice:
            message += f"; {advice}"
        super().__init__(message)
        self.solution = solution
        self.advice = advice

    def __reduce__(self) -> tuple[type[SolveError], tuple[AnySolution, str]]:
        # Exceptions pickle by their message alone; worker processes must get the solution, too.
        return SolveError, (self.solution, self.advice)


@dataclass(frozen=True, eq=False, kw_only=True)
class Candidate(Answer):
    """What a solver hands to the certificate, which grades it.

    ``status`` is how the solver thinks it ended; `solve` verifies it again.
    """

    status: Status
    iterations: int
    history: tuple[BoundsAt, ...] = ()
    detail: str = ""


OnProgress: TypeAlias = Callable[[BoundsAt], None]


def no_report(bounds: BoundsAt) -> None:
    """Report nothing."""


def check_start(problem: MarginProblem, start: Start | None) -> None:
    """Raise TypeError or ValueError unless a start is None or a solution that fits the problem."""
    if start is None:
        return
    if not isinstance(start, Start):
        raise TypeError(
            f"start must be a Solution, not a {type(start).__name__}: pass what solve returned for "
            "a similar problem"
        )
    if start.alpha.shape[1:] != problem.alpha_shape[1:]:
        raise ValueError(
            f"start has dual variables of shape {start.alpha.shape}, the problem of "
            f"{problem.alpha_shape}: it needs the same classes"
        )
    # A start with fewer samples is one of growing data: the rest begin at alpha = 0.
    if len(start.alpha) > problem.n_samples or len(start.group_norms) != problem.n_groups:
        raise ValueError(
            f"start has {len(start.alpha)} samples and {len(start.group_norms)} groups, the "
            f"problem {problem.n_samples} and {problem.n_groups}: it needs as many groups, and no "
            "more samples"
        )


def check_report(on_progress: object) -> None:
    """Raise TypeError for what is no `OnProgress`."""
    if not callable(on_progress):
        raise TypeError(f"on_progress must be a function of the bounds, got {on_progress!r}")


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A way to solve margin problems: an object that `solve` takes.

    Parameters
    ----------
    tolerances : Tolerances
        When to stop.
    max_iterations : int or None
        Limit on iterations, as `SolveStats` counts them; None is the solver's own.
    max_seconds : float or None
        Limit on its time, seen after each step of it; None is none.
    threads : int or None
        Threads of BLAS, LAPACK and torch while it solves. With None there is one where its matrices
        are of an order below 1,500; else their number is left as it is.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    max_iterations: int | None = None
    max_seconds: float | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        if self.threads is not None:
            check_count(self.threads, "threads")
        if self.max_iterations is not None:
            check_count(self.max_iterations, "max_iterations")
        if self.max_seconds is not None:
            check_number(self.max_seconds, "max_seconds", "(0, inf)")

    @property
    @abstractmethod
    def name(self) -> str:
        """What `solve` calls it."""

    def lent_threads(self, problem: MarginProblem) -> AbstractContextManager[None]:
        """Return a context in which it has the threads that a problem is worth."""
        return threads(
            threads_for(costs.step_order(problem, len(problem.constraints)), self.threads)
        )

    @abstractmethod
    def run(
        self,
        problem: MarginProblem,
        on_progress: OnProgress = no_report,
        start: Start | None = None,
    ) -> Candidate:
        """Solve, reporting bounds on the way."""


@dataclass(frozen=True, kw_only=True)
class ExternalSolver(Solver):
    """A solver of another library, which may never end by itself.

    Parameters
    ----------
    few_entries : int
        A problem with up to this many entries of the features takes a second or two.
    patience : float
        Limit in seconds for such a problem, where ``max_seconds`` sets none.
    """

    few_entries: int = 10_000
    patience: float = 20.0

    def seconds_for(self, n_entries: int) -> float | None:
        """Return the seconds that a problem of so many entries may take; None is no limit."""
        if self.max_seconds is not None:
            return self.max_seconds
        # Only small programs get a limit that nobody asked for: there more time means that the
        # solver cycles. Of a large one nobody knows how long it takes.
        return self.patience if n_entries <= self.few_entries else None
