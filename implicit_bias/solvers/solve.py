"""Solve a margin problem, and grade the answer: the same certificate for every solver."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.deadline import NEVER, Deadline
from implicit_bias.base.threads import threads
from implicit_bias.base.validation import Array, UnsuitableError
from implicit_bias.bounds.certificate import Graded, Status, grade
from implicit_bias.bounds.gordan import (
    nearly_a_proof,
    prove_not_separable,
    takes_too_long,
)
from implicit_bias.bounds.separability import (
    find_conflict,
    lacks_constant,
    offset_advice,
    scaling_advice,
)
from implicit_bias.norms import L2
from implicit_bias.norms.named import AtomError
from implicit_bias.problem import MarginProblem, check_classes, check_problem
from implicit_bias.problem.euclidean import with_l1_for_single_entries
from implicit_bias.solvers import choice, costs
from implicit_bias.solvers.base import (
    BoundsAt,
    Candidate,
    OnProgress,
    Solution,
    Solver,
    SolveStats,
    Start,
    Tolerances,
    check_report,
    in_words,
    no_report,
)
from implicit_bias.solvers.iteration import finite, nothing_yet

# What `solve` asks for where the user does not say otherwise.
DEFAULT = Tolerances()
# Alpha without a separator, and with V so small, are taken by "auto" for a sign that none exists,
# which is then to be proven; where a proof would take too long, so small ones end the search.
DOUBTFUL, HOPELESS = 1e-4, 1e-6
# Up to so many samples a user is told where a free offset would separate them.
MOST_WITH_OFFSET = 3000
# After these "auto" tries another solver.
UNSETTLED = (
    Status.NUMERICAL_TROUBLE,
    Status.ITERATION_LIMIT,
    Status.TIME_LIMIT,
    Status.NEARLY_INSEPARABLE,
)


@np.errstate(over="ignore", divide="ignore", invalid="ignore")  # what is infinite bounds nothing
def solve(
    problem: MarginProblem,
    solver: str | Solver = "auto",
    tol: float = DEFAULT.gap,
    device: str = "cpu",
    *,
    feasibility_tol: float = DEFAULT.feasibility,
    infeasibility_tol: float = DEFAULT.infeasibility,
    max_iterations: int | None = None,
    max_seconds: float | None = None,
    max_memory: float | None = None,
    start: Start | None = None,
    on_progress: OnProgress = no_report,
) -> Solution:
    """Solve a margin problem, with a certificate of the result.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    solver : str or Solver
        A name: "auto", "interior-point", "feature-space", "working-set", "one-group", "highs",
        "ecos", "osqp", "clarabel" or "scs". "auto" is `choose_solver` and, where that one fails,
        another; ``stats.detail`` says why, and what was tried. HiGHS takes norms that are sums of
        maxima, such as l1 and l_inf; the last four go through CVXPY and are slow; OSQP takes hard
        margins of two classes and one group of Euclidean norm only. Or an object, such as
        ``InteriorPoint(...)``, whose own options then count, and none of those below but ``start``
        and ``on_progress``.
    tol : float
        Relative gap between the certified bounds at which to stop.
    device : str
        Where the native solvers compute: "cpu", "cuda", "cuda:1", ...
    feasibility_tol, infeasibility_tol : float
        See `Tolerances`.
    max_iterations : int, optional
        Limit on the solver's iterations.
    max_seconds : float, optional
        Limit on the time: what was found by then is certified. "auto" leaves half of it to other
        methods where the first one should take less than half. Solvers of CVXPY have limits
        of their own (ECOS one of iterations alone); a single step of another solver and the
        certificate are not interrupted.
    max_memory : float, optional
        GiB that a native solver may allocate beside the problem.
    start : Solution, optional
        Of a similar problem, for the native solvers to start from: another C, other gates of the
        same number of groups, or fewer samples (those of ``problem`` that it lacks come last).
    on_progress : callable, optional
        Called with the `BoundsAt` of each iteration of a native solver.

    Returns
    -------
    Solution
        Read its ``status``: only OPTIMAL means that the gap is at most ``tol``. The bounds in
        its certificate hold in every case. An error inside a solver is NUMERICAL_TROUBLE, and
        ``stats.detail`` says which; "auto" tries another solver then.

    Raises
    ------
    TypeError
        Not a `MarginProblem`.
    ValueError
        A solver that does not exist or cannot solve this problem.
    ImportError
        The solver's package is not installed.
    MemoryError
        More than ``max_memory`` would be needed; raised before it is allocated.

    Examples
    --------
    >>> import numpy as np
    >>> from implicit_bias import MarginProblem, solve
    >>> problem = MarginProblem(np.eye(2), [1, -1], np.ones((2, 1)), [0])
    >>> solution = solve(problem)
    >>> solution.status.name, round(solution.certificate.upper, 6)
    ('OPTIMAL', 1.414214)
    """
    check_problem(problem, "solve")
    check_classes(problem)
    check_report(on_progress)
    began = time.perf_counter()
    deadline = Deadline.asked(max_seconds)
    if isinstance(solver, Solver):
        deadline = Deadline.after(solver.max_seconds)
    choice.check_start(problem, start)
    tolerances = Tolerances(gap=tol, feasibility=feasibility_tol, infeasibility=infeasibility_tol)
    options = choice.MethodOptions(
        tolerances=tolerances,
        max_iterations=max_iterations,
        max_seconds=max_seconds,
        device=device,
        max_memory=max_memory,
    )

    posed = with_l1_for_single_entries(problem)
    search = _Search(problem, posed, options, on_progress, deadline)
    automatic = isinstance(solver, str) and solver == "auto"
    others = automatic and max_iterations is None
    chosen, until = "", deadline
    if isinstance(solver, str):
        name, system = solver, None
        if automatic:
            choice_made = choice.choose(posed)
            name, system, chosen = choice_made.solver, choice_made.system, str(choice_made)
        if others and max_seconds is not None and choice_made.seconds < 0.5 * max_seconds:
            if choice.fallbacks(posed, name):
                until = deadline.sooner(0.5)
        method = search.solver(name, until, system)
        # A soft margin always has a solution.
        if others and posed.hard_margin and (system == "features" or name == "working-set"):
            method = _doubtful(method, posed)
    else:
        method = _checked(solver, options)
    with threads(method.lent_threads(problem)):
        conflict = find_conflict(problem)
        if conflict is not None:
            proof = _nothing(problem, Status.NOT_SEPARABLE, alpha=conflict.alpha)
            attempt = _Attempt.of(problem, method, proof)
            graded = replace(attempt.graded, alpha=conflict.alpha)
            attempt = replace(attempt, graded=graded)
        else:
            attempt = search.run(method, start)
            if start is not None and attempt.graded.status is Status.NUMERICAL_TROUBLE:
                # Of a problem that is too unlike this one.
                attempt = search.run(replace(method, max_seconds=deadline.left))
            late = attempt.graded.status is Status.TIME_LIMIT and until is deadline
            if others and attempt.unsettled and not (late and max_seconds is not None):
                attempt = search.after(attempt)
        advice = _advice(problem, attempt, deadline)
    method, candidate, graded = attempt.method, attempt.candidate, attempt.graded
    return Solution(
        problem=problem,
        alpha=graded.alpha,
        group_norms=graded.group_norms,
        coef=graded.coef,
        intercept=graded.intercept,
        support=_support(problem, graded),
        active=_above_mean(graded.group_norms) > 1.0 - graded.certificate.dual_norms,
        status=graded.status,
        certificate=graded.certificate,
        stats=SolveStats(
            solver=method.name,
            iterations=candidate.iterations,
            seconds=time.perf_counter() - began,
            history=candidate.history,
            conflict=conflict,
            detail="; ".join(filter(None, (chosen, candidate.detail))),
            advice=advice,
        ),
        proof=graded.proof,
    )


@dataclass(frozen=True)
class _Attempt:
    """What a method found, graded."""

    method: Solver
    candidate: Candidate
    graded: Graded

    @property
    def failure(self) -> str:
        """Who failed, how, and why as far as it says."""
        why = f" ({self.candidate.detail})" if self.candidate.detail else ""
        return f"{self.method.name}: {self.graded.status.label}{why}"

    @classmethod
    def of(
        cls,
        problem: MarginProblem,
        method: Solver,
        candidate: Candidate,
        deadline: Deadline = NEVER,
    ) -> _Attempt:
        """Grade a candidate."""
        graded = grade(
            problem,
            candidate.coef,
            candidate.alpha,
            candidate.status,
            intercept=candidate.intercept if problem.intercept else None,
            gap=method.tolerances.gap,
            infeasibility=method.tolerances.infeasibility,
            proof=candidate.proof,
            deadline=deadline,
        )
        return cls(method, candidate, graded)

    @classmethod
    def joined(cls, problem: MarginProblem, one: _Attempt, other: _Attempt) -> _Attempt:
        """Grade what attains the better of two lower bounds, and the better of two upper ones."""
        best = max(one, other, key=lambda attempt: attempt.graded.certificate.lower)
        found = min(one, other, key=lambda attempt: attempt.graded.certificate.upper)
        if best is found:
            return best
        candidate = replace(found.candidate, alpha=best.graded.alpha)
        return cls.of(problem, found.method, candidate)

    @property
    def unsettled(self) -> bool:
        """Whether another method may do better."""
        return self.graded.status in UNSETTLED


def _found_by(
    problem: MarginProblem, method: Solver, on_progress: OnProgress, start: Start | None = None
) -> Candidate:
    """Run a method. What it raises is numerical trouble, but for what the user raises."""
    of_user: list[BaseException] = []

    def relay(bounds: BoundsAt) -> None:
        try:
            on_progress(bounds)
        except BaseException as error:
            of_user.append(error)
            raise

    try:
        return finite(problem, method.run(problem, relay, start))
    except BaseException as error:
        if error in of_user or isinstance(error, AtomError):
            raise
        return _nothing(problem, Status.NUMERICAL_TROUBLE, in_words(error))


def _nothing(problem: MarginProblem, status: Status, detail: str = "", **found: Any) -> Candidate:
    """Return what is found without a method, and zeros for the rest."""
    answer = vars(nothing_yet(problem)) | found
    return Candidate(**answer, status=status, iterations=0, detail=detail)


@dataclass
class _Search:
    """The way to an answer, over other methods where one fails: the best attempt, and the tries."""

    problem: MarginProblem
    posed: MarginProblem  # the same program as methods take it
    options: choice.MethodOptions
    on_progress: OnProgress
    deadline: Deadline
    late: bool = False
    grading: float = 0.0  # the seconds that the last certificate took
    only_rounding_separates: bool = False
    # A gap above the tolerance by less than this factor may be mended by asking for so much more.
    near_miss: float = 100.0
    # From this C on, times the features' scale, a soft margin may be a hard one.
    large_C: float = 1e8  # noqa: N815 - C is a name
    # A similar problem that is solved for its numbers has this long: where they help, they are
    # found early.
    similar_seconds: float = 10.0

    def solver(
        self, name: str, deadline: Deadline, system: choice.SystemName | None = None
    ) -> Solver:
        """Return a solver that has the time that is left until then."""
        # Made first: that may load a large library.
        made = choice.make_solver(name, self.posed, self.options, system)
        return replace(made, max_seconds=deadline.left)

    def graded(self, method: Solver, found: Candidate) -> _Attempt:
        """Grade what a method found, in the time that is left."""
        began = time.perf_counter()
        attempt = _Attempt.of(self.problem, method, found, self.deadline)
        self.grading = time.perf_counter() - began
        return attempt

    def run(self, method: Solver, start: Start | None = None) -> _Attempt:
        """Run a method, and grade what it found."""
        found = _found_by(self.posed, method, self.on_progress, start)
        attempt = self.graded(method, found)
        self.late = self.late or attempt.graded.status is Status.TIME_LIMIT
        return attempt

    def after(self, first: _Attempt) -> _Attempt:
        """Return the answer of what settles the problem first, or the nearest one."""
        self.attempt, self.tried = first, [first.failure]
        if not self.beyond_proof:
            self.seek_proof()
            self.seek_what_nearly_proves()
        if not self.beyond_proof:
            self.ask_for_more()
            self.try_ends_of_C()
            self.try_others()
            if self.lacks_separator and _has_another_norm(self.problem):
                found = self.solved(replace(self.problem, norm=L2()))
                if found is not None:
                    self.join(found)
                    self.tried.append("separator of the Euclidean norm")
        found, graded = self.attempt.candidate, self.attempt.graded
        late = self.late or self.deadline.passed or graded.status is Status.TIME_LIMIT
        if self.attempt.unsettled and late:
            # Without a limit of the user's it was one of a method's own.
            limited = self.deadline.left is not None
            ended = Status.TIME_LIMIT if limited else Status.ITERATION_LIMIT
            graded = replace(graded, status=ended)
        found = replace(found, detail=f"after {', '.join(self.tried)}")
        return replace(self.attempt, candidate=found, graded=graded)

    @property
    def goes_on(self) -> bool:
        """Whether there is something to find, and time for it and for its certificate."""
        return self.attempt.unsettled and self.deadline.allows(2 * self.grading)

    @property
    def lacks_separator(self) -> bool:
        """Whether it goes on because there is no upper bound."""
        return self.goes_on and bool(np.isinf(self.attempt.graded.certificate.upper))

    @property
    def beyond_proof(self) -> bool:
        """Whether nothing seems to separate the samples, and a proof would be none, or too long."""
        if self.attempt.graded.status is not Status.NEARLY_INSEPARABLE:
            return False
        return self.only_rounding_separates or _proof_takes_too_long(self.problem)

    def join(self, found: Candidate) -> None:
        """Take the bounds of what was found into account; say so where it settles the problem."""
        again = self.graded(self.attempt.method, found)
        self.attempt = _Attempt.joined(self.problem, self.attempt, again)
        if not self.attempt.unsettled and found.detail:
            self.tried.append(found.detail)

    def ask_for_more(self) -> None:
        """Let the method solve on where it has missed the tolerance narrowly."""
        method, tolerances = self.attempt.method, self.attempt.method.tolerances
        if self.goes_on and self.attempt.graded.certificate.gap < self.near_miss * tolerances.gap:
            more = replace(tolerances, gap=tolerances.gap / self.near_miss)
            asked = replace(method, tolerances=more, max_seconds=self.deadline.left)
            found = _found_by(self.posed, asked, self.on_progress)
            self.join(replace(found, detail=f"solved to {more.gap:g}"))

    def try_ends_of_C(self) -> None:  # noqa: N802 - C is a name
        """Try zeta = 0, which is exact where the box alone binds, and the hard margin's solution.

        That is exact where the box binds nowhere. The numbers of such problems are too far apart
        for a method that follows both constraints.
        """
        problem = self.problem
        if self.goes_on and not problem.hard_margin:
            alpha = problem.constraints.alpha_of_zero(problem.shares)
            self.join(_nothing(problem, Status.OPTIMAL, "zeta = 0", alpha=alpha))
        large = not problem.hard_margin and problem.box.min() * problem.scale >= self.large_C
        if self.goes_on and large:
            hard = self.solved(replace(problem, C=np.inf))
            if hard is not None:
                self.join(replace(hard, detail="solved with a hard margin"))

    def try_others(self) -> None:
        """Try the other solvers, in the order of `choice.fallbacks`."""
        left = choice.fallbacks(self.posed, self.attempt.method.name)
        if self.attempt.method.tolerances != self.options.tolerances:  # it gave up early, in doubt
            left.insert(0, choice.Fallback(self.attempt.method.name))
        while left and self.goes_on:
            fallback = left.pop(0)
            deadline = self.deadline.sooner(0.5) if left else self.deadline
            other = self.solver(fallback.solver, deadline.within(fallback.seconds))
            try:
                again = self.run(other)
            except (MemoryError, ImportError, UnsuitableError) as error:
                # It must not cost the answer that there is.
                why = Status.MEMORY_LIMIT.label if isinstance(error, MemoryError) else error
                self.tried.append(f"{fallback.solver}: {why}")
                continue
            both = again.unsettled
            self.attempt = _Attempt.joined(self.problem, self.attempt, again) if both else again
            if self.attempt.unsettled:
                self.tried.append(again.failure)

    def seek_proof(self) -> None:
        """Seek a proof that nothing separates the samples, if there is no separator."""
        if not self.lacks_separator:
            return
        proof = prove_not_separable(self.problem, deadline=self.deadline)
        if proof is None:
            return
        zero = np.zeros_like(self.attempt.candidate.coef)
        found = replace(self.attempt.candidate, alpha=proof.alpha, coef=zero, proof=proof)
        again = self.graded(self.attempt.method, found)
        if again.graded.status is Status.NOT_SEPARABLE:
            self.tried.append("proven")
            self.attempt = again

    def seek_what_nearly_proves(self) -> None:
        """Seek a proof but for the last digits of redundant columns, if there is no other."""
        if not self.lacks_separator or self.attempt.graded.status is not Status.NEARLY_INSEPARABLE:
            return
        alpha = nearly_a_proof(self.problem, self.deadline)
        if alpha is not None:
            self.only_rounding_separates = True
            self.join(replace(self.attempt.candidate, alpha=alpha, detail=""))
            self.tried.append("nothing separates but the last digits of redundant columns")

    def solved(self, similar: MarginProblem) -> Candidate | None:
        """Solve a similar problem for its numbers; None where there is no memory for it."""
        options = self.options
        try:
            found = solve(
                similar,
                tol=options.tolerances.gap,
                device=options.device,
                max_seconds=self.deadline.within(self.similar_seconds).left,
                max_memory=options.max_memory,
            )
        except MemoryError:
            return None
        answer = {name: getattr(found, name) for name in ("alpha", "coef", "intercept", "status")}
        return Candidate(**answer, iterations=found.stats.iterations)


def _doubtful(method: Solver, problem: MarginProblem) -> Solver:
    """Return a method that gives up early where nothing seems to separate the samples.

    A proof is sought then, which takes one linear program: where there is none, and the program
    finds a separator instead, the method goes on with its own tolerance. Where a proof would take
    too long, what the method says is the answer.
    """
    doubt = HOPELESS if _proof_takes_too_long(problem) else DOUBTFUL
    doubt = max(doubt, method.tolerances.infeasibility)
    return replace(method, tolerances=replace(method.tolerances, infeasibility=doubt))


def _proof_takes_too_long(problem: MarginProblem) -> bool:
    """Whether a proof that nothing separates all samples would take too long."""
    sizes = costs.Sizes.of(problem)
    return takes_too_long(sizes.order, sizes.rows)


def _has_another_norm(problem: MarginProblem) -> bool:
    """Whether the Euclidean norm may find a separator, or a proof of none, that holds here too."""
    other = problem.norm not in (L2(), problem.gate_norm)
    return other and problem.hard_margin


def _checked(solver: Solver, options: choice.MethodOptions) -> Solver:
    """Refuse what is no solver, and options that a solver object would ignore."""
    if not isinstance(solver, Solver):
        raise TypeError(
            f"solver must be a name or a Solver, not a {type(solver).__name__}: pass 'auto', or "
            "an object such as InteriorPoint()"
        )
    if options != choice.MethodOptions():
        raise ValueError(
            "a solver object has its own options: pass them to it, as in "
            "InteriorPoint(tolerances=Tolerances(gap=1e-8), device='cpu')"
        )
    return solver


def _support(problem: MarginProblem, graded: Graded) -> NDArray[np.int64]:
    surplus = np.maximum(graded.margins - 1.0, 0.0)
    return np.flatnonzero(_above_mean(problem.totals(graded.alpha)) > surplus)


def _advice(problem: MarginProblem, attempt: _Attempt, deadline: Deadline) -> str:
    """Say what a user could change where there is no separator, or no answer in float64."""
    graded = attempt.graded
    if graded.status is Status.OPTIMAL:
        return ""
    advice = []
    if graded.status.inseparable and _separable_with_offset(
        problem, attempt.method.tolerances, deadline
    ):
        advice.append(offset_advice(problem))
    numbers = graded.status is not Status.NOT_SEPARABLE and not deadline.passed
    if numbers and (scaling := scaling_advice(problem)):
        advice.append(scaling)
    return "; ".join(advice)


def _separable_with_offset(
    problem: MarginProblem, tolerances: Tolerances, deadline: Deadline
) -> bool:
    """Whether a free offset is all that is missing; False where that is not tried."""
    tried = problem.n_samples <= MOST_WITH_OFFSET and len(np.unique(problem.y)) == 2
    if deadline.passed or not (tried and problem.hard_margin and lacks_constant(problem)):
        return False
    posed = replace(problem, intercept=True)
    if find_conflict(posed) is not None:
        return False
    options = choice.MethodOptions(tolerances=tolerances, max_seconds=deadline.left)
    found = _found_by(posed, choice.make_solver("auto", posed, options), no_report)
    return bool((problem.margins(problem.decision(found.coef), found.intercept) > 0).all())


def _above_mean(values: Array) -> Array:
    """Non-negative values relative to their mean; zeros stay zero."""
    return values / max(float(values.mean()), np.finfo(np.float64).tiny)
