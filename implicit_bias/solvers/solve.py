"""Solve a margin problem, and grade the answer: the same certificate for every solver.

`solve` is read from top to bottom:

=========  =====================================================================================
choose     the method of the smallest estimated time (`choice`), or the one that is named
run        the method, and grade what it found: certified bounds, and the status they bear out
fall back  where "auto" did not settle the problem (`_fall_back`): a proof that nothing separates
           the samples; the hard margin of a soft margin with a large C; one other solver of this
           package, which is the embedding where it takes seconds; one solver of another library;
           a separator of the Euclidean norm
answer     with the best bounds of all that ran, who failed before, and what a user could change
=========  =====================================================================================
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

import numpy as np

from implicit_bias.base.deadline import Deadline
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
from implicit_bias.problem import MarginProblem, check_classes, check_problem
from implicit_bias.problem.euclidean import with_l1_for_single_entries
from implicit_bias.solvers import choice, costs
from implicit_bias.solvers.base import (
    Candidate,
    OnProgress,
    Solution,
    Solver,
    SolveStats,
    Start,
    Tolerances,
    check_report,
    check_start,
    no_report,
)
from implicit_bias.solvers.choice import FALL_BACK
from implicit_bias.solvers.iteration import finite, zero_answer

# What `solve` asks for where the user does not say otherwise.
DEFAULT = Tolerances()
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
    start: Start | None = None,
    on_progress: OnProgress = no_report,
) -> Solution:
    r"""Solve a margin problem, with a certificate of the result.

    .. math:: \min_{\zeta, b, \xi} \; \Omega(\zeta) + \sum_n C_n \xi_n \quad \text{subject to} \quad
        y_n (f(x_n) + b) \ge 1 - \xi_n, \quad \xi_n \ge 0

    with the predictor :math:`f(x) = \sum_m z_m(x) \langle \zeta_m, x \rangle` on gates z. At the
    hard margin, C = inf, all xi are 0. See `MarginProblem` for K > 2 classes, and `certify` for
    the bounds.

    Parameters
    ----------
    problem : MarginProblem
        The problem.
    solver : str or Solver
        A name: "auto", "interior-point", "feature-space", "working-set", "one-group", "highs",
        "ecos", "osqp", "clarabel" or "scs". "auto" is `choose_solver` and, where that one fails,
        at most one other of this package and one external; ``stats.detail`` says why, and what was
        tried. HiGHS takes norms that are sums of maxima, such as l1 and l_inf; the last four go
        through CVXPY and are slow; OSQP takes hard margins of two classes and one group of
        Euclidean norm only. Or an object, such as ``InteriorPoint(...)``, whose own options then
        count, and none of those below but ``start`` and ``on_progress``.
    tol : float
        Relative gap between the certified bounds at which to stop.
    device : str
        Where the built-in solvers compute: "cpu", "cuda", "cuda:1", ...
    feasibility_tol, infeasibility_tol : float
        See `Tolerances`.
    max_iterations : int, optional
        Limit on the solver's iterations.
    max_seconds : float, optional
        Limit on the time: what was found by then is certified. Solvers of CVXPY have limits of
        their own (ECOS one of iterations alone); a single step of another solver and the
        certificate are not interrupted.
    start : Solution, optional
        Of a similar problem, for the built-in solvers to start from: another C, other gates of the
        same number of groups, or fewer samples (those of ``problem`` that it lacks come last).
    on_progress : callable, optional
        Called with the `BoundsAt` of each iteration of a built-in solver.

    Returns
    -------
    Solution
        Read its ``status``: only OPTIMAL means that the gap is at most ``tol``. The bounds in
        its certificate hold in every case. An error of arithmetic inside a solver is
        NUMERICAL_TROUBLE, and ``stats.detail`` says which; "auto" tries another solver then.

    Raises
    ------
    TypeError
        Not a `MarginProblem`.
    ValueError
        A solver that does not exist or cannot solve this problem.
    ImportError
        The solver's package is not installed.

    Notes
    -----
    Lippl, Abbott, Chung (2022), sections 3 and 4, for gated networks; Crammer and Singer (2001)
    for the hinge loss of many classes. "interior-point" and "feature-space" are primal-dual
    methods with the predictor and corrector of Mehrotra (1992).

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
    check_start(problem, start)
    began = time.perf_counter()
    deadline = Deadline.asked(max_seconds)
    conflict = find_conflict(problem)  # a plain cause why nothing separates the samples
    options = choice.MethodOptions(
        tolerances=Tolerances(
            gap=tol, feasibility=feasibility_tol, infeasibility=infeasibility_tol
        ),
        max_iterations=max_iterations,
        max_seconds=max_seconds,
        device=device,
    )
    # Methods see groups of one entry each as l1; certificates are of the problem as it is.
    formulated = with_l1_for_single_entries(problem)

    # --- choose ------------------------------------------------------------------------------
    falls_back = False  # what is named has no other method behind it
    why = ""  # the method was taken
    if isinstance(solver, Solver):
        if options != choice.MethodOptions():
            raise ValueError(
                "a solver object has its own options: pass them to it, as in "
                "InteriorPoint(tolerances=Tolerances(gap=1e-8), device='cpu')"
            )
        method = solver
        deadline = Deadline.after(solver.max_seconds)
    elif not isinstance(solver, str):
        raise TypeError(
            f"solver must be a name or a Solver, not a {type(solver).__name__}: pass 'auto', or "
            "an object such as InteriorPoint()"
        )
    elif solver != "auto":
        method = choice.make_solver(solver, formulated, options)
        method = replace(method, max_seconds=deadline.left)
    else:
        chosen = choice.choose(formulated)
        why = str(chosen)
        falls_back = max_iterations is None
        tolerances = options.tolerances
        can_doubt = chosen.solver in ("one-group", "working-set", "feature-space")
        can_doubt |= chosen.system == "features"
        if falls_back and formulated.hard_margin and can_doubt:
            # Where nothing seems to separate the samples these methods give up early. Then a proof
            # is sought, one linear program, and where there is none another method goes on.
            doubt = FALL_BACK.doubtful
            if _proof_takes_too_long(formulated):
                doubt = FALL_BACK.hopeless
            tolerances = replace(tolerances, infeasibility=max(doubt, infeasibility_tol))
        given = replace(options, tolerances=tolerances)
        method = choice.make_solver(chosen.solver, formulated, given, chosen.system)
        # The time that making the solver took, which may load a large library, is gone.
        method = replace(method, max_seconds=deadline.left)

    with method.lent_threads(problem):
        # --- run -----------------------------------------------------------------------------
        trials = _Trials(problem, formulated, method.tolerances.gap, on_progress, deadline)
        if conflict is None:
            found = finite(problem, method.run(formulated, on_progress, start))
        else:
            # Two samples at most, which are the proof: no method runs.
            zero = zero_answer(problem)
            found = Candidate(
                conflict.alpha,
                zero.coef,
                zero.intercept,
                status=Status.NOT_SEPARABLE,
                iterations=0,
            )
        trials.best = trials.graded(method, found)
        # --- fall back -----------------------------------------------------------------------
        if falls_back and conflict is None and trials.unsettled:
            _fall_back(trials, options)
        # --- answer --------------------------------------------------------------------------
        best = trials.best
        advice = _advice(problem, best, deadline)
    graded = best.graded
    certificate = graded.certificate
    # Support vectors: alpha_n, relative to its mean, exceeds what the margin exceeds 1 by. Active
    # groups: d_g, relative to its mean, exceeds what ||V_g|| lacks of 1.
    alpha = graded.alpha
    if conflict is not None:
        alpha = conflict.alpha
    surplus = np.maximum(graded.margins - 1.0, 0.0)
    support = np.flatnonzero(_over_mean(problem.totals(alpha)) > surplus)
    active = _over_mean(graded.group_norms) > 1.0 - certificate.dual_norms
    return Solution(
        problem=problem,
        alpha=alpha,
        group_norms=graded.group_norms,
        coef=graded.coef,
        intercept=graded.intercept,
        support=support,
        active=active,
        status=graded.status,
        certificate=certificate,
        stats=SolveStats(
            solver=best.method.name,
            iterations=best.candidate.iterations,
            seconds=time.perf_counter() - began,
            history=best.candidate.history,
            conflict=conflict,
            detail="; ".join(filter(None, (why, best.candidate.detail))),
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
    def status(self) -> Status:
        """What the certificate bears out."""
        return self.graded.status

    @property
    def failure(self) -> str:
        """Who failed, how, and why as far as the method says."""
        failure = f"{self.method.name}: {self.status.label}"
        if self.candidate.detail:
            failure += f" ({self.candidate.detail})"
        return failure


class _Trials:
    """The methods that ran on one problem, and the best bounds of all.

    Attributes
    ----------
    problem, formulated : MarginProblem
        The problem, and the same one in the form that methods take.
    gap : float
        The relative gap that the caller asks for.
    on_progress : callable
        Called with the bounds of each iteration.
    deadline : Deadline
        When all has to end.
    best : _Attempt
        What settled the problem, or has the best bounds; set by `solve` once a method ran.
    late : bool
        Whether a method ended by its limit of time.
    grading : float
        The seconds that the last certificate took.
    """

    best: _Attempt
    late: bool = False
    grading: float = 0.0

    def __init__(
        self,
        problem: MarginProblem,
        formulated: MarginProblem,
        gap: float,
        on_progress: OnProgress,
        deadline: Deadline,
    ) -> None:
        self.problem = problem
        self.formulated = formulated
        self.gap = gap
        self.on_progress = on_progress
        self.deadline = deadline

    def run(self, method: Solver) -> _Attempt:
        """Run a method, and grade what it found."""
        found = finite(self.problem, method.run(self.formulated, self.on_progress))
        return self.graded(method, found)

    def graded(self, method: Solver, found: Candidate) -> _Attempt:
        """Grade what a method found, in the time that is left."""
        began = time.perf_counter()
        intercept = None
        if self.problem.intercept:
            intercept = found.intercept
        graded = grade(
            self.problem,
            found.coef,
            found.alpha,
            found.status,
            intercept=intercept,
            gap=self.gap,
            infeasibility=method.tolerances.infeasibility,
            proof=found.proof,
            deadline=self.deadline,
        )
        self.grading = time.perf_counter() - began
        self.late = self.late or graded.status is Status.TIME_LIMIT
        return _Attempt(method, found, graded)

    def join(self, other: _Attempt) -> None:
        """Take an attempt that settles the problem; else the better one of each two bounds."""
        if other.status not in UNSETTLED:
            self.best = other
            return
        both = self.best, other
        best_lower = max(both, key=lambda attempt: attempt.graded.certificate.lower)
        best_upper = min(both, key=lambda attempt: attempt.graded.certificate.upper)
        if best_lower is best_upper:
            self.best = best_lower
            return
        # Alpha of the one attempt and the coefficients of the other are graded together.
        joined = replace(best_upper.candidate, alpha=best_lower.graded.alpha)
        self.best = self.graded(best_upper.method, joined)

    @property
    def unsettled(self) -> bool:
        """Whether another method may do better."""
        return self.best.status in UNSETTLED

    @property
    def may_continue(self) -> bool:
        """Whether the problem is unsettled, and there is time for a method and its certificate."""
        return self.unsettled and self.deadline.allows(2 * self.grading)

    @property
    def needs_separator(self) -> bool:
        """Whether there is no upper bound yet, and time to find one."""
        return self.may_continue and bool(np.isinf(self.best.graded.certificate.upper))


def _fall_back(trials: _Trials, options: choice.MethodOptions) -> None:
    """Go on where the method that "auto" chose did not settle the problem.

    Each step joins its bounds to the best ones, and the first that settles the problem ends it.
    """
    problem = trials.problem
    formulated = trials.formulated
    deadline = trials.deadline
    first = trials.best
    tried = [first.failure]

    # --- is there a separator? ---------------------------------------------------------------
    doubtful = first.status is Status.NEARLY_INSEPARABLE
    hopeless = doubtful and _proof_takes_too_long(problem)
    if trials.needs_separator and not hopeless:
        proof = prove_not_separable(problem, deadline=deadline)
        if proof is not None:
            zero = np.zeros_like(first.candidate.coef)
            found = replace(first.candidate, alpha=proof.alpha, coef=zero, proof=proof)
            proven = trials.graded(first.method, found)
            if proven.status is Status.NOT_SEPARABLE:
                trials.best = proven
                tried.append("proven")
        elif doubtful and trials.needs_separator:
            alpha = nearly_a_proof(problem, deadline)
            if alpha is not None:
                hopeless = True
                found = replace(first.candidate, alpha=alpha, detail="")
                trials.join(trials.graded(first.method, found))
                tried.append("nothing separates but the last digits of redundant columns")

    # --- a soft margin of large C -------------------------------------------------------------
    # C is too far from the other numbers for a method that keeps alpha <= C in floating point.
    # Where the box binds nowhere the hard margin has the same solution.
    large_box = problem.box.min() * problem.scale >= FALL_BACK.large_C
    if trials.may_continue and not problem.hard_margin and large_box:
        _join_similar(trials, replace(problem, C=np.inf), options)
        tried.append("a hard margin")

    # --- one other solver of this package, and one of another library -------------------------
    # A certificate that misses the tolerance by little rounds differently than its method: the next
    # method is asked for a smaller gap.
    closer = options
    near_miss = trials.best.graded.certificate.gap < FALL_BACK.near_miss * trials.gap
    if near_miss:
        gap = trials.gap / FALL_BACK.near_miss
        closer = replace(options, tolerances=replace(options.tolerances, gap=gap))
    built_in: str | None = FALL_BACK.built_in(formulated, first.method.name)
    if built_in is None and first.method.tolerances != options.tolerances:
        built_in = first.method.name  # which gave up early, in doubt
    external: str | None = FALL_BACK.external(formulated, deadline)
    if external == first.method.name and not near_miss:
        external = None
    for name in (built_in, external):
        if name is not None and trials.may_continue and not hopeless:
            _try_other(trials, name, closer, tried)

    # --- any separator is an upper bound ------------------------------------------------------
    another_norm = problem.norm not in (L2(), problem.gate_norm)
    if trials.needs_separator and not hopeless and problem.hard_margin and another_norm:
        _join_similar(trials, replace(problem, norm=L2()), options)
        tried.append("separator of the Euclidean norm")

    # --- how it ended -------------------------------------------------------------------------
    best = trials.best
    status = best.status
    if trials.unsettled and (trials.late or deadline.passed):
        status = Status.TIME_LIMIT
    trials.best = _Attempt(
        best.method,
        replace(best.candidate, detail=f"after {', '.join(tried)}"),
        replace(best.graded, status=status),
    )


def _try_other(trials: _Trials, name: str, options: choice.MethodOptions, tried: list[str]) -> None:
    """Run another solver, which must not cost the answer that there is."""
    try:
        method = choice.make_solver(name, trials.formulated, options)
        other = trials.run(replace(method, max_seconds=trials.deadline.left))
    except (ImportError, MemoryError, UnsuitableError) as error:
        tried.append(f"{name}: {error}")
        return
    trials.join(other)
    if trials.unsettled:
        tried.append(other.failure)


def _join_similar(trials: _Trials, similar: MarginProblem, options: choice.MethodOptions) -> None:
    """Join the numbers of a similar problem's solution."""
    found = solve(
        similar,
        tol=options.tolerances.gap,
        device=options.device,
        max_seconds=trials.deadline.within(FALL_BACK.similar_seconds).left,
    )
    candidate = Candidate(
        alpha=found.alpha,
        coef=found.coef,
        intercept=found.intercept,
        status=found.status,
        iterations=found.stats.iterations,
    )
    trials.join(trials.graded(trials.best.method, candidate))


def _proof_takes_too_long(problem: MarginProblem) -> bool:
    """Whether a proof that nothing separates all samples would take too long."""
    sizes = costs.Sizes.of(problem)
    return takes_too_long(sizes.order, sizes.rows)


def _advice(problem: MarginProblem, best: _Attempt, deadline: Deadline) -> str:
    """Say what a user could change where nothing separates, no answer or only 0 is found."""
    status = best.status
    if status is Status.OPTIMAL:
        if best.graded.coef.any():
            return ""
        return _advice_on_zero(float(best.graded.certificate.dual_norms.max()))
    # An offset would be no help: it separates samples of one class whatever the inputs are.
    if status.inseparable and (problem.y == problem.y[0]).all():
        return f"y has one class only, {problem.y[0]:g}: pass samples of two classes or more"
    advice = []
    if status.inseparable and _separable_with_offset(problem, best.method.tolerances, deadline):
        advice.append(offset_advice(problem))
    if status is not Status.NOT_SEPARABLE and not deadline.passed:
        scaling = scaling_advice(problem)
        if scaling:
            advice.append(scaling)
    return "; ".join(advice)


def _advice_on_zero(dual_norm: float, negligible: float = 1e-9) -> str:
    """Say for which C the coefficients of a soft margin are 0, by ||V(alpha)|| of its alpha.

    ``alpha / dual_norm`` proves the same of the C that is as much larger.
    """
    if dual_norm < negligible:
        return "all coefficients are 0, whatever C is: choose other features"
    return (
        "all coefficients are 0, since C is too small: they are for every C up to "
        f"{1.0 / dual_norm:.3g} times this one"
    )


def _separable_with_offset(
    problem: MarginProblem, tolerances: Tolerances, deadline: Deadline
) -> bool:
    """Whether an unpenalized intercept is all that is missing; False where that is not tried."""
    if problem.n_samples > FALL_BACK.most_with_offset or len(np.unique(problem.y)) != 2:
        return False
    if deadline.passed or not problem.hard_margin or not lacks_constant(problem):
        return False
    with_offset = replace(problem, intercept=True)
    if find_conflict(with_offset) is not None:
        return False
    options = choice.MethodOptions(tolerances=tolerances, max_seconds=deadline.left)
    method = choice.make_solver("auto", with_offset, options)
    found = finite(with_offset, method.run(with_offset))
    margins = problem.margins(problem.decision(found.coef), found.intercept)
    return bool((margins > 0).all())


def _over_mean(values: Array) -> Array:
    """Return non-negative values over their mean; zeros stay zero."""
    return values / max(float(values.mean()), np.finfo(np.float64).tiny)
