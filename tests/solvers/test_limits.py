"""What a solver must not do to its caller: raise what it cannot help, or take for ever."""

import time
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from cases import Stub, cloud, separable
from implicit_bias import MarginProblem, Status, certify, max_margin, solve
from implicit_bias.base.deadline import Deadline
from implicit_bias.norms import L1, L2, Nuclear
from implicit_bias.solvers.base import Answer, BoundsAt, Candidate, Start
from implicit_bias.solvers.cvxpy_solver import CvxpyBackend
from implicit_bias.solvers.iteration import NativeSolver, Run, Steps, follow
from oracles import check_judged, check_overlap
from system import Panic

PROBLEM = separable("gln")
GROUPS = np.array([0, 0, 1, 1])


@dataclass(frozen=True, kw_only=True)
class Late(NativeSolver):
    """Has the answer, and then fails or goes on for ever."""

    answer: Answer
    error: BaseException | None = None
    name: ClassVar[str] = "late"
    own_limit: ClassVar[int] = 10**9

    def prepare(self, problem: MarginProblem, start: Start | None) -> Run:
        """Set up."""
        return _LateRun(self)


class _LateRun(Run):
    def __init__(self, solver: Late) -> None:
        self._solver = solver

    def steps(self) -> Steps:
        while True:
            yield 0.0, np.inf
            if self._solver.error is not None:
                raise self._solver.error

    def answer(self) -> Answer:
        return self._solver.answer


def half_an_answer() -> Answer:
    """Coefficients that separate, with dual variables far from the best."""
    return Answer(np.ones(PROBLEM.alpha_shape), solve(PROBLEM).coef)


def test_what_a_step_raises_is_numerical_trouble() -> None:
    found = solve(PROBLEM, Late(answer=half_an_answer(), error=OverflowError("huge")))
    assert found.status is Status.NUMERICAL_TROUBLE
    assert "OverflowError" in found.stats.detail
    assert 0 < found.certificate.lower < found.certificate.upper < np.inf


def test_a_panic_of_a_library_is_numerical_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """One in Rust is no Exception."""

    def fail(self: CvxpyBackend, *arguments: Any, **options: Any) -> None:
        raise Panic("rust")

    monkeypatch.setattr(CvxpyBackend, "solve", fail)
    found = solve(PROBLEM, "clarabel")
    assert found.status is Status.NUMERICAL_TROUBLE
    assert "rust" in found.stats.detail


@pytest.mark.parametrize("error", [IndexError, MemoryError, ImportError])
def test_a_defect_and_what_the_user_can_mend_are_raised(error: type[Exception]) -> None:
    """Another method that answered in its place would hide it."""
    with pytest.raises(error, match="of the solver"):
        solve(PROBLEM, Late(answer=half_an_answer(), error=error("of the solver")))


@pytest.mark.parametrize(
    ("solver", "error"),
    [("auto", StopIteration), ("interior-point", MemoryError)],
)
def test_what_on_progress_raises_is_raised(solver: str, error: type[BaseException]) -> None:
    def fail(bounds: BoundsAt) -> None:
        raise error("of the caller")

    with pytest.raises(error, match="of the caller"):
        solve(PROBLEM, solver, on_progress=fail)


def test_coefficients_that_are_no_numbers_do_not_cost_the_lower_bound() -> None:
    def overflow(problem: MarginProblem) -> Candidate:
        coef = np.full(problem.coef_shape, 1e308) * 10.0  # which warns
        alpha = np.ones(problem.alpha_shape)
        return Candidate(alpha, coef, status=Status.OPTIMAL, iterations=1)

    found = solve(PROBLEM, Stub(found=overflow))
    assert found.status is Status.NUMERICAL_TROUBLE
    assert found.certificate.lower > 0


# --- time --------------------------------------------------------------------------------------

CLASSES = max_margin(*cloud(30, 5, shift=1.0)[:1], np.arange(30) % 3, "nuclear")
SUITED: dict[str, MarginProblem] = {
    "auto": PROBLEM,
    "interior-point": PROBLEM,
    "feature-space": CLASSES,
    "working-set": CLASSES,
    "one-group": replace(CLASSES, norm=L2()),
    "highs": replace(CLASSES, norm=L1()),
    "osqp": max_margin(*cloud(30, 5, shift=3.0)),
    "clarabel": CLASSES,
    "scs": CLASSES,
}


OTHERS = ("highs", "osqp", "clarabel", "scs")  # which have clocks of their own


@pytest.mark.parametrize("solver", SUITED)
def test_time_is_a_limit_of_all_solvers(solver: str) -> None:
    """After a microsecond there is at most one iterate, which is not the optimum to 12 digits."""
    problem = SUITED[solver]
    found = solve(problem, solver, tol=1e-12, max_seconds=1e-6)
    check_overlap(found.certificate, solve(problem).certificate)
    if solver in OTHERS:
        check_judged(problem, found, 1e-12)
    else:
        assert found.status is Status.TIME_LIMIT
        assert found.stats.iterations <= 1


def test_no_step_begins_that_would_end_after_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of steps of 3 seconds three end within 10; the fourth would not."""
    now = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])

    class Slow(_LateRun):
        def steps(self) -> Steps:
            while True:
                now[0] += 3.0
                yield 0.0, np.inf

    run = Slow(Late(answer=half_an_answer()))
    found = follow(run, 100, lambda bounds: None, deadline=Deadline.after(10.0))
    assert found.status is Status.TIME_LIMIT
    assert len(found.history) == 3


def test_bounds_by_the_time_limit_are_kept() -> None:
    answer = half_an_answer()
    found = solve(PROBLEM, Late(answer=answer, max_seconds=0.01))
    assert found.status is Status.TIME_LIMIT
    known = certify(PROBLEM, coef=answer.coef).upper
    assert found.certificate.upper == pytest.approx(known, rel=1e-12)


def test_a_sample_without_features_has_none_whatever_its_input() -> None:
    gates = np.array([[1.0, 0.5], [0.5, 1.0], [0.0, 0.0], [0.0, 0.0]])
    X = 1e140 * np.array([[1.0, 2.0], [-2.0, 1.0], [3.0, 1.0], [1.0, 1.0]])
    labels: Any = np.array([0, 1, 2, 0])
    for norm in (Nuclear(), L1()):
        problem = MarginProblem(X, labels, gates, GROUPS[1:3], norm=norm)
        assert solve(problem).status is Status.NOT_SEPARABLE
