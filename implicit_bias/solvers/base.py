"""What every solver takes and gives back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_bias.certificate import Certificate, Conflict, Status
from implicit_bias.problem import MarginProblem
from implicit_bias.validation import Array

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Tolerances:
    """When a solver may stop.

    Attributes
    ----------
    gap : float
        Relative gap between the certified bounds.
    feasibility : float
        Largest violation of y_n f(x_n) >= 1 (relative to 1) before the coefficients are scaled
        to margin 1.
    infeasibility : float
        The data count as not separable where max_g ||V_g(alpha)|| of some alpha >= 0 is below
        this share of sum_n alpha_n ||phi_n||, phi_n the features of sample n: with all features
        scaled to norm 1, any separator of norm 1 would have a margin as small.
    """

    gap: float = 1e-6
    feasibility: float = 1e-6
    infeasibility: float = 1e-9

    def __post_init__(self) -> None:
        for name in ("gap", "feasibility", "infeasibility"):
            value = getattr(self, name)
            if not 0 < value < 1:
                raise ValueError(f"the {name} tolerance must be between 0 and 1, got {value}")


@dataclass(frozen=True)
class Progress:
    """One line of a solver's history: bounds seen so far, in the units of the problem."""

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
        Its iterations (rounds, for the working set).
    seconds : float
        Wall time of the solve, certificate included.
    history : tuple of Progress
        The solver's own bounds, where it reports them.
    conflict : Conflict or None
        The plain cause of non-separability, if that is what ended the solve.
    detail : str
        What the solver said of itself.
    """

    solver: str
    iterations: int
    seconds: float
    history: tuple[Progress, ...] = ()
    conflict: Conflict | None = None
    detail: str = ""


@dataclass(frozen=True, kw_only=True)
class Solution:
    """A solved margin problem.

    Attributes
    ----------
    problem : MarginProblem or None
        What was solved; None in a solution that was read from a file, which keeps no samples.
    alpha : ndarray of shape (N,)
        Dual variables, scaled to be feasible; sum 1 where the data are not separable.
    group_scale : ndarray of shape (G,)
        d_g = ||zeta_g||, the multiplier of group g: zeta_g = d_g P_g V_g at the optimum.
    coef : ndarray of shape (M, D)
        Coefficients zeta, scaled to smallest margin 1 (hard margin); zero where the data are
        not separable.
    support : ndarray of int
        Support vectors: the samples for which alpha_n, relative to its mean, exceeds
        y_n f(x_n) - 1 (one of the two is 0 at the optimum).
    active : ndarray of bool, shape (G,)
        The groups that the norm has not switched off: those for which d_g, relative to its mean,
        exceeds 1 - ||V_g||.
    status : Status
        How it ended.
    certificate : Certificate
        Certified bounds, from `certify`.
    stats : SolveStats
        Facts of the run.
    """

    problem: MarginProblem | None = field(
        default=None, repr=False, compare=False, metadata={"saved": False}
    )
    alpha: Array
    group_scale: Array
    coef: Array
    support: NDArray[np.int64]
    active: NDArray[np.bool_]
    status: Status
    certificate: Certificate
    stats: SolveStats

    @property
    def message(self) -> str:
        """The status in words, with the cause where it is known."""
        conflict = self.stats.conflict
        return f"{self.status.message}: {conflict.cause}" if conflict else self.status.message

    def raise_for_status(self) -> None:
        """Raise `SolveError`, with this solution in it, unless the status is OPTIMAL."""
        if self.status is not Status.OPTIMAL:
            raise SolveError(self)


class SolveError(RuntimeError):
    """A solve that did not end optimal; ``solution`` holds what it found, certified."""

    def __init__(self, solution: Solution) -> None:
        super().__init__(solution.message)
        self.solution = solution

    def __reduce__(self) -> tuple[type[SolveError], tuple[Solution]]:
        # Exceptions pickle by their message alone; worker processes must get the solution, too.
        return SolveError, (self.solution,)


@dataclass(frozen=True)
class Candidate:
    """What a solver hands to the certificate, which grades it.

    ``status`` is how the solver thinks it ended; `solve` believes none of it unchecked.
    """

    alpha: Array
    coef: Array
    status: Status
    iterations: int
    history: tuple[Progress, ...] = ()
    detail: str = ""
    intercept: float = 0.0


class Start(Protocol):
    """What a native solver may start from: a `Solution` of a problem nearby has it.

    ``alpha`` may be shorter than the problem: samples appended to it start at 0.
    """

    @property
    def alpha(self) -> Array:
        """Dual variables, shape (N,) or shorter."""

    @property
    def group_scale(self) -> Array:
        """||zeta_g|| of each group, shape (G,)."""


Report: TypeAlias = Callable[[Progress], None]


def silent(progress: Progress) -> None:
    """Report nothing."""


class Log:
    """The history of bounds, reported as it grows."""

    def __init__(self, report: Report, *, first: int = 0) -> None:
        self.history: list[Progress] = []
        self._report, self._first = report, first

    def add(self, lower: float, upper: float) -> None:
        """Append a line, numbered from ``first``, and report it."""
        self.history.append(Progress(self._first + len(self.history), lower, upper))
        self._report(self.history[-1])


@dataclass(frozen=True, kw_only=True)
class Solver(ABC):
    """A way to solve margin problems.

    Parameters
    ----------
    tolerances : Tolerances
        When to stop.
    device : str
        Where torch computes, for the solvers that use it.
    max_iterations : int or None
        Limit on iterations; None is the solver's own.
    max_memory : float or None
        GiB that the native solvers may allocate beside the problem; None sets no bound.
    """

    tolerances: Tolerances = field(default_factory=Tolerances)
    device: str = "cpu"
    max_iterations: int | None = None
    max_memory: float | None = None

    @abstractmethod
    def run(
        self, problem: MarginProblem, report: Report = silent, start: Start | None = None
    ) -> Candidate:
        """Solve, reporting bounds on the way."""

    def fits(self, needed: int) -> bool:
        """Whether ``max_memory`` allows so many bytes."""
        return self.max_memory is None or needed <= self.max_memory * GIB

    def check_memory(self, needed: int) -> None:
        """Refuse what does not fit, before anything is allocated.

        Raises
        ------
        MemoryError
            More than ``max_memory`` would be needed.
        """
        if not self.fits(needed):
            raise MemoryError(
                f"this solve would need {needed / GIB:.3g} GiB beside the data, but max_memory is "
                f"{self.max_memory:g} GiB: raise it, use fewer samples, or solver='working-set'"
            )
