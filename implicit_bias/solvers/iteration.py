"""The one loop around every built-in method: iterate, keep the history, stop, be interrupted.

A method is a `Run`: an object that holds the state of one solve. Its ``steps`` yield the best
bounds so far, once an iteration, and return the status with which they end; its ``answer`` is
what attains these bounds, at any time. `follow` takes the steps, so that the limits on iterations
and time, Ctrl-C, errors and the history are the same for all methods.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, TypeAlias, final

import numpy as np

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.threads import threads, threads_for
from implicit_bias.base.validation import UnsuitableError
from implicit_bias.bounds.certificate import Status
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.problem.euclidean import in_groups_of_gates
from implicit_bias.solvers import base, costs

# Yields (lower, upper), the best bounds so far, once an iteration; returns how it ended.
Steps: TypeAlias = Generator[tuple[float, float], None, Status]


class Breakdown(ArithmeticError):
    """Rounding has made a matrix singular or indefinite."""


class Point:
    """An iterate, or a direction: base of dataclasses of arrays, tensors or numbers."""

    def moved(self, step: Self, length: Any) -> Self:
        """Return the point at this length of a step."""
        along = vars(step)
        return type(self)(**{name: x + length * along[name] for name, x in vars(self).items()})


def zero_answer(problem: MarginProblem) -> base.Answer:
    """Return alpha, coefficients and intercept of 0: the answer of a method without bounds."""
    return base.Answer(
        np.zeros(problem.alpha_shape), np.zeros(problem.coef_shape), problem.no_offset
    )


def finite(problem: MarginProblem, found: base.Candidate) -> base.Candidate:
    """Return what a method found, with zeros in place of arrays that are not finite."""
    primal = bool(np.isfinite(found.coef).all() and np.isfinite(found.intercept).all())
    dual = bool(np.isfinite(found.alpha).all())
    if primal and dual:
        return found
    zero = zero_answer(problem)
    if not primal:
        found = replace(found, coef=zero.coef, intercept=zero.intercept)
    if not dual:
        found = replace(found, alpha=zero.alpha)
    return replace(found, status=Status.NUMERICAL_TROUBLE)


class Run(ABC):
    """One solve by a built-in method, as far as it has come."""

    detail: str = ""
    # The seconds that a step may take, where that was estimated.
    seconds_per_step: float = 0.0
    # What arithmetic raises in a step: the run ends in numerical trouble, with what it had found.
    trouble: ClassVar[tuple[type[Exception], ...]] = (ArithmeticError, ValueError, RuntimeError)

    @abstractmethod
    def steps(self) -> Steps:
        """Iterate until the method ends by itself."""

    @abstractmethod
    def answer(self) -> base.Answer:
        """Return what attains the bounds so far."""

    @final
    def candidate(self, status: Status, history: Sequence[base.BoundsAt]) -> base.Candidate:
        """Return the answer, with how the run ended and the bounds of each iteration."""
        return base.Candidate(
            **vars(self.answer()),
            status=status,
            iterations=len(history),
            history=tuple(history),
            detail=self.detail,
        )


def follow(
    run: Run,
    limit: int,
    on_progress: base.OnProgress,
    *,
    deadline: Deadline = NEVER,
    mode: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> base.Candidate:
    """Take the steps of a run, and return its answer with the bounds of each iteration.

    Parameters
    ----------
    run : Run
        The run.
    limit : int
        Iterations that are allowed.
    on_progress : callable
        Called with the bounds of each iteration.
    deadline : Deadline
        A step begins only if it would end before this, when it takes as long as the last step, or
        as estimated if that is longer.
    mode : callable
        Returns a context for a step.
    """
    steps = run.steps()
    history: list[base.BoundsAt] = []
    status: Status | None = None
    try:
        while status is None:
            began = time.perf_counter()
            try:
                with mode():
                    lower, upper = next(steps)
            except StopIteration as end:
                status = end.value
            except TimeoutError:
                status = Status.TIME_LIMIT
            except run.trouble as error:
                # A ValueError of the arithmetic is trouble, this one is the caller's.
                if isinstance(error, UnsuitableError):
                    raise
                run.detail = f"{type(error).__name__}: {error}"
                status = Status.NUMERICAL_TROUBLE
            else:
                seconds = time.perf_counter() - began
                bounds = base.BoundsAt(len(history) + 1, lower, upper)
                history.append(bounds)
                on_progress(bounds)
                if not deadline.allows(max(seconds, run.seconds_per_step)):
                    status = Status.TIME_LIMIT
                elif len(history) >= limit:
                    status = Status.ITERATION_LIMIT
    # Ctrl-C ends a solve as a limit does: hours of work leave their bounds.
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    assert status is not None
    return run.candidate(status, history)


@dataclass(frozen=True, kw_only=True)
class NativeSolver(base.Solver):
    """A solver of this package.

    Parameters
    ----------
    tolerances, max_iterations, max_seconds
        As in `Solver`.
    device : str
        Where torch computes: "cpu", "cuda", "cuda:1", ...
    """

    device: str = "cpu"

    # Whether it solves problems with many classes.
    takes_classes: ClassVar[bool] = False

    @property
    @abstractmethod
    def own_limit(self) -> int:
        """Iterations that are allowed where ``max_iterations`` sets no limit."""

    def takes_norm(self, problem: MarginProblem) -> bool:
        """Whether it takes the norm of a problem of two classes as it is.

        If not, it gets the same problem as a sum of l2 norms over groups of gates.
        """
        return False

    @abstractmethod
    def prepare(self, problem: MarginProblem, start: base.Start | None) -> Run:
        """Set up a run."""

    @final
    def run(
        self,
        problem: MarginProblem,
        on_progress: base.OnProgress = base.no_report,
        start: base.Start | None = None,
    ) -> base.Candidate:
        """Solve from ``start`` on ``device``; the head of the method's module explains it.

        Raises
        ------
        ValueError
            A norm that is no sum of Euclidean norms over groups, or too many classes.
        """
        if problem.classes is not None and not self.takes_classes:
            raise UnsuitableError(
                f"{self.name} takes two classes only: choose solver='auto' for {problem.classes}"
            )
        deadline = Deadline.after(self.max_seconds)
        import torch  # here: solvers that do not compute with it need not load it

        # A sum of l2 norms over other parts than gates, such as inputs, becomes the same problem
        # over groups of gates. A method that `takes_norm` gets the problem as it is.
        formulated = problem
        if problem.classes is None and not self.takes_norm(problem):
            formulated = in_groups_of_gates(problem)
        with self.lent_threads(formulated):
            found = follow(
                self.prepare(formulated, start),
                self.limit,
                on_progress,
                deadline=deadline,
                mode=torch.inference_mode,  # small steps take a tenth less time
            )
        # A method that left the range of float64 may still have proven one of the bounds: each half
        # is kept if it is finite.
        found = finite(problem, found)
        return replace(found, coef=found.coef.reshape(problem.coef_shape))

    @property
    def limit(self) -> int:
        """Iterations that are allowed."""
        return self.max_iterations or self.own_limit


@dataclass(frozen=True, kw_only=True)
class RowSolver(NativeSolver):
    """A solver that a working set may give some of the constraints.

    Parameters
    ----------
    rows : Constraints, optional
        Those to solve with; all by default.
    """

    rows: Constraints | None = None

    def chosen(self, problem: MarginProblem) -> Constraints:
        """Return the constraints to solve with."""
        if self.rows is None:
            return problem.constraints
        return self.rows

    def lent_threads(self, problem: MarginProblem) -> AbstractContextManager[None]:
        """Return a context in which it has the threads that these constraints are worth."""
        n_rows = len(self.chosen(problem))
        return threads(threads_for(costs.step_order(problem, n_rows), self.threads))
