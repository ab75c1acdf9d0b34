"""Paths and the active set: the answers of cold solves, from where the last one ended."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest

import cases
from implicit_bias import MarginProblem, Solution, Status, certify, max_margin, solve
from implicit_bias.solvers import ActiveSet, BoundsAt, InteriorPoint
from implicit_bias.solvers.base import Candidate, Start
from implicit_bias.solvers.iteration import nothing_yet
from implicit_bias.solvers.paths import C_grid, largest_C, path_over_C, smallest_C, solve_path
from implicit_bias.solvers.scaled_problem import peak_memory
from oracles import check_overlap, check_signs


def assert_same(found: Solution, problem: MarginProblem) -> None:
    """Check that a solution has the optimum that a solve without a start finds."""
    cold = solve(problem, tol=cases.GAP_LIMIT)
    assert found.status is cold.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(
        cold.certificate.upper, rel=cases.OBJECTIVE_RTOL
    )


def fell_back(found: Solution) -> bool:
    return found.stats.detail.endswith(ActiveSet.fell_back)


# --- the ends of a path over C ---------------------------------------------------------------


@pytest.mark.every(8)
@pytest.mark.parametrize("name", cases.HARD)
def test_up_to_the_smallest_C_zero_is_a_solution(name: str) -> None:
    C = smallest_C(cases.separable(name))
    below = replace(cases.separable(name), C=0.999 * C)
    found = solve(below, tol=cases.GAP_LIMIT)
    assert found.certificate.lower == pytest.approx(below.C * below.n_samples, rel=cases.GAP_LIMIT)
    above = replace(cases.separable(name), C=1.05 * C)
    found = solve(above, tol=cases.GAP_LIMIT)
    assert found.certificate.upper < above.C * above.n_samples * (1 - 1e-6)
    assert found.group_norms.any()


@pytest.mark.every(8)
@pytest.mark.parametrize("name", cases.HARD)
def test_from_the_largest_C_on_the_margin_is_hard(name: str) -> None:
    C = largest_C(cases.best(name))
    expected = cases.best(name).certificate
    for factor in (1.0, 10.0):
        found = solve(replace(cases.separable(name), C=factor * C), tol=cases.GAP_LIMIT)
        assert found.certificate.upper == pytest.approx(expected.upper, rel=cases.OBJECTIVE_RTOL)


@pytest.mark.parametrize("name", ["gln", "linear", "svm-l2", "gated-relu"])
def test_the_largest_C_is_tight(name: str) -> None:
    """These have one optimal alpha: with less, some hinge loss is cheaper."""
    C = largest_C(cases.best(name))
    found = solve(replace(cases.separable(name), C=0.9 * C), tol=cases.GAP_LIMIT)
    assert found.certificate.upper < cases.best(name).certificate.lower * (1 - cases.OBJECTIVE_RTOL)


def test_the_smallest_C_of_features_that_cancel() -> None:
    problem = cases.build(cases.xor(), cases.linear)
    assert smallest_C(problem) == np.inf
    assert solve(replace(problem, C=1e3)).certificate.lower == pytest.approx(4e3)


def test_no_largest_C_without_a_hard_margin() -> None:
    with pytest.raises(ValueError, match="not separable.*choose the largest C yourself"):
        largest_C(solve(cases.build(cases.xor(), cases.linear)))


@pytest.mark.every(7)
@pytest.mark.parametrize("norm", ["l2", "nuclear", "l1"])
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("counts", [(20, 40), (5, 5, 5), (1, 3, 8), (2, 2, 3, 0, 4)])
def test_ends_under_any_norm(norm: str, intercept: bool, counts: tuple[int, ...]) -> None:
    """Up to the first C, zeta = 0 is as good as any; from the last one on no margin is below 1."""
    y = np.repeat(np.arange(len(counts)), counts)
    X = np.random.default_rng(4).normal(size=(len(y), 20)) + y[:, None]
    labels, classes = (2 * y - 1, None) if len(counts) == 2 else (y, len(counts))
    problem = cases.plain(X, labels, norm=cases.NORMS[norm], intercept=intercept, classes=classes)
    near = cases.OBJECTIVE_RTOL if norm == "l2" else 1e-5
    first = replace(problem, C=0.999 * smallest_C(problem))
    found = solve(first, tol=0.1 * near)
    assert found.certificate.lower == pytest.approx(certify(first).upper, rel=near)
    margin = solve(problem, tol=0.1 * near)
    last = solve(replace(problem, C=largest_C(margin)), tol=0.1 * near)
    assert last.certificate.upper == pytest.approx(margin.certificate.upper, rel=near)
    assert (np.diff(C_grid(problem, margin, 3)) > 0).all()


def test_grid_of_C() -> None:
    problem, solution = cases.separable("gln"), cases.best("gln")
    grid = C_grid(replace(problem, C=3.0), solution)
    assert len(grid) == 50
    assert grid[0] == pytest.approx(smallest_C(problem))
    assert grid[-1] == pytest.approx(largest_C(solution))
    ratios = grid[1:] / grid[:-1]
    np.testing.assert_allclose(ratios, ratios[0])
    assert ratios[0] > 1
    soft = solve(replace(problem, C=10.0))
    assert C_grid(problem, soft, 3)[-1] == pytest.approx(largest_C(soft))
    with pytest.raises(ValueError, match="must be at least 2"):
        C_grid(problem, solution, 1)


# --- paths -----------------------------------------------------------------------------------


OVER_C = ("gln", "gated-relu", "soft-not-separable", "gln+intercept", "soft-linear+intercept")


@pytest.mark.every(7)
@pytest.mark.parametrize("case", [*itertools.product(OVER_C, (1, -1))])
def test_path_over_C(case: tuple[str, int]) -> None:
    name, order = case
    problem = cases.separable(name)
    if problem.intercept:  # of classes of different sizes
        problem = problem.subset(np.arange(3, problem.n_samples))
    soft = name.startswith("soft")
    last = 300.0 * smallest_C(problem) if soft else largest_C(solve(problem, tol=cases.SOLVE_TOL))
    Cs = np.geomspace(smallest_C(problem), last, 7)[::order]
    values = []
    for C, found in zip(Cs, path_over_C(problem, Cs, tol=cases.GAP_LIMIT), strict=True):
        assert_same(found, replace(problem, C=float(C)))
        check_signs(problem, found.alpha)
        values.append(found.certificate.upper)
    assert (np.diff(values) * order >= 0).all()  # the optimum rises with C


def growing() -> list[MarginProblem]:
    problem = cases.build(cases.cloud(120, 12), cases.gln(6))
    return [problem.subset(np.arange(n)) for n in range(60, 121, 10)]


def drifting() -> list[MarginProblem]:
    """Gates of any sign that change by a thousandth from one problem to the next."""
    first, last = (
        cases.free(cases.cloud(60, 10), [0, 0, 1, 1, 2]),
        np.random.default_rng(9).normal(size=(60, 5)),
    )
    steps = 1e-3 * np.arange(6)
    return [replace(first, gates=np.asarray(first.gates) + t * last) for t in steps]


def other_gates() -> list[MarginProblem]:
    """Unlike neighbours: thresholds drawn anew."""
    X, y = cases.cloud(40, 20)
    rng = np.random.default_rng(0)
    gates = [np.column_stack([rng.random((40, 4)) < 0.5, np.ones(40)]) for _ in range(3)]
    return [MarginProblem(X, y, 1.0 * z, np.arange(5)) for z in gates]


def duplicates() -> list[MarginProblem]:
    """Growing data whose new samples are copies of the old ones."""
    X, y = cases.cloud()
    problem = cases.build((np.vstack([X, X, X]), np.tile(y, 3)), cases.gln())
    return [problem.subset(np.arange(n)) for n in (30, 45, 60, 90)]


PATHS: dict[str, Callable[[], list[MarginProblem]]] = {
    "growing": growing,
    "drifting": drifting,
    "other-gates": other_gates,
    "margin-then-soft": lambda: [
        replace(cases.separable("gln"), C=C) for C in (np.inf, 0.1, 1e-3, np.inf)
    ],
    "duplicates": duplicates,
}


@pytest.mark.every(4)
@pytest.mark.parametrize("name", PATHS)
def test_path(name: str) -> None:
    """Between neighbours, as most of these problems are, Newton suffices."""
    problems = PATHS[name]()
    path = list(solve_path(problems, tol=cases.GAP_LIMIT))
    for problem, found in zip(problems, path, strict=True):
        assert_same(found, problem)
    if name in ("growing", "drifting", "duplicates"):
        assert path[0].stats.solver == "interior-point"
        for found in path[1:]:
            assert found.stats.solver == "active-set"
            assert not fell_back(found)


def test_paths_are_lazy() -> None:
    made: list[int] = []

    def problems() -> Iterator[MarginProblem]:
        for n, problem in enumerate(growing()):
            made.append(n)
            yield problem

    path = solve_path(problems())
    assert not made
    next(path)
    next(path)
    assert made == [0, 1]


def test_a_path_goes_on_after_data_that_are_not_separable() -> None:
    problem = cases.separable("gln")
    broken = cases.twin("gln")
    repaired = MarginProblem(
        broken.X, np.append(broken.y[:-1], -broken.y[-1]), broken.gates, broken.groups
    )
    statuses = [found.status for found in solve_path([problem, broken, repaired])]
    assert statuses == [Status.OPTIMAL, Status.NOT_SEPARABLE, Status.OPTIMAL]


def test_what_paths_go_over_is_checked() -> None:
    problem: Any = cases.separable("gln")
    uses: list[tuple[Callable[[], object], str]] = [
        (lambda: list(solve_path(problem)), "list"),
        (lambda: list(path_over_C(problem, cast(Any, 3.0))), "list"),
        (lambda: list(path_over_C(problem, cast(Any, np.array(3.0)))), "list"),
        (lambda: list(path_over_C(cast(Any, None), [1.0])), "MarginProblem"),
        (lambda: list(path_over_C(problem, cast(Any, ["a"]))), "C must be"),
        (lambda: smallest_C(cast(Any, None)), "MarginProblem"),
        (lambda: largest_C(cast(Any, None)), "Solution"),
        (lambda: largest_C(cases.best("gln"), problem.subset(np.arange(3))), "alpha"),
    ]
    for use, word in uses:
        with pytest.raises((TypeError, ValueError), match=word):
            use()


def test_paths_refuse_what_is_no_neighbour() -> None:
    problem = cases.separable("gln")
    fewer = problem.subset(np.arange(problem.n_samples - 1))
    more_groups = cases.build(cases.cloud(), cases.gln(5))
    for other in (fewer, more_groups):
        path = solve_path([problem, other])
        next(path)
        with pytest.raises(ValueError, match="as many groups, and no more samples"):
            next(path)


def test_a_path_ends_in_time() -> None:
    problem = max_margin(np.eye(3), [1, -1, 1])
    started: list[float] = []

    def grid() -> Iterator[float]:
        for C in (1.0, 2.0, 3.0):
            started.append(C)
            yield C

    slow = list(path_over_C(problem, grid(), max_seconds=1e-9))
    assert len(slow) == 1
    assert slow[0].certificate.lower <= slow[0].certificate.upper
    assert started == [1.0]
    assert len(list(path_over_C(problem, grid(), max_seconds=1e6))) == 3
    with pytest.raises(ValueError, match="max_seconds"):
        list(path_over_C(problem, grid(), max_seconds=-1.0))


def test_a_path_ends_when_interrupted() -> None:
    def interrupted(problem: MarginProblem) -> Candidate:
        return Candidate(**vars(nothing_yet(problem)), status=Status.INTERRUPTED, iterations=1)

    path = solve_path(growing(), cases.Stub(found=interrupted))
    assert [found.status for found in path] == [Status.INTERRUPTED]


# --- the active set --------------------------------------------------------------------------


@pytest.mark.every(11)
@pytest.mark.parametrize("noise", [0.0, 0.01])
@pytest.mark.parametrize("name", cases.SEPARABLE)
def test_from_the_solution_with_other_inputs(name: str, noise: float) -> None:
    """With noise on the inputs, each of its own size; without any from its own solution."""
    problem = cases.separable(name)
    factors = 1 + noise * np.random.default_rng(4).normal(size=problem.X.shape)
    start = solve(replace(problem, X=problem.X * factors), tol=cases.SOLVE_TOL)
    found = solve(problem, tol=cases.GAP_LIMIT, start=start)
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(cases.best(name).certificate.upper, rel=1e-7)


def test_growing_data_start_from_the_smaller_solution() -> None:
    problem = cases.separable("linear-n-greater-d+intercept")
    first = solve(problem.subset(np.arange(50)))
    found = solve(problem, "active-set", cases.SOLVE_TOL, start=first)
    assert found.certificate.upper == pytest.approx(0.5149529253, rel=cases.OBJECTIVE_RTOL)
    check_signs(problem, found.alpha)


def start_of(problem: MarginProblem, alpha: float, scale: float) -> Start:
    rng = np.random.default_rng(8)
    return Start(
        alpha=alpha * rng.random(problem.n_samples),
        group_norms=scale * rng.random(problem.n_groups),
        coef=np.zeros(problem.coef_shape),
    )


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "interior-point", "working-set"])
@pytest.mark.parametrize(("alpha", "scale"), [(0, 0), (0, 1), (1, 0), (1e9, 1e-9), (1, 1e300)])
@pytest.mark.parametrize("name", ["sparse-gates", "soft-not-separable"])
def test_a_senseless_start_does_no_harm(name: str, alpha: float, scale: float, solver: str) -> None:
    problem = cases.separable(name)
    found = solve(problem, solver, tol=cases.GAP_LIMIT, start=start_of(problem, alpha, scale))
    assert found.status is Status.OPTIMAL
    assert found.certificate.upper == pytest.approx(cases.best(name).certificate.upper, rel=1e-7)


def test_a_start_whose_bounds_are_far_apart_is_not_used() -> None:
    problem, known = cases.separable("gln"), cases.best("gln")
    far = replace(known, group_norms=100.0 * known.group_norms)
    found, cold = (solve(problem, "interior-point", start=start) for start in (far, None))
    np.testing.assert_array_equal(found.coef, cold.coef)


def test_a_start_far_away_costs_no_step() -> None:
    """Where its V_g are large, of other gates say, the fall-back solves at once."""
    problem = cases.separable("gln")
    start = start_of(problem, 1e9, 1)
    found = solve(problem, start=start)
    other = solve(problem, "interior-point", start=start)
    assert fell_back(found)
    assert found.stats.iterations == other.stats.iterations
    np.testing.assert_allclose(found.coef, other.coef, rtol=1e-6, atol=1e-6)


@pytest.mark.every(8)
@pytest.mark.parametrize("name", cases.HARD)
def test_data_that_are_not_separable_are_proven_so(name: str) -> None:
    found = solve(cases.twin(name), start=cases.best(name))
    assert found.status is Status.NOT_SEPARABLE


def neighbour() -> tuple[MarginProblem, Solution]:
    *_, before, last = growing()
    return last, solve(before, tol=cases.SOLVE_TOL)


def newton(max_steps: int, max_iterations: int | None = None) -> ActiveSet:
    """Return the solver that takes so many Newton steps."""
    fallback = InteriorPoint(max_iterations=max_iterations)
    return ActiveSet(fallback=fallback, max_steps=max_steps, max_iterations=max_iterations)


@pytest.mark.parametrize("steps", [3, 100])
def test_history_is_one_line_of_best_bounds(steps: int) -> None:
    """Also where Newton gives up after some steps: the fall-back's own bounds begin anew."""
    problem, start = neighbour()
    lines: list[BoundsAt] = []
    found = solve(problem, newton(steps), start=start, on_progress=lines.append)
    assert fell_back(found) == (steps == 3)
    assert tuple(lines) == found.stats.history
    assert [line.iteration for line in lines] == list(range(found.stats.iterations))
    for before, after in itertools.pairwise(lines):
        assert before.lower <= after.lower
        assert before.upper >= after.upper
    assert lines[-1].lower <= found.certificate.upper * (1 + cases.ROUNDING)


@pytest.mark.parametrize(("steps", "limit"), [(100, 1), (100, 3), (1, 4)])
def test_the_fallback_inherits_the_iteration_limit(steps: int, limit: int) -> None:
    problem, start = neighbour()
    found = solve(problem, newton(steps, max_iterations=limit), start=start)
    assert fell_back(found) == (steps < limit)
    assert found.status is Status.ITERATION_LIMIT
    assert found.stats.iterations == limit
    check_overlap(found.certificate, solve(problem, tol=cases.SOLVE_TOL).certificate)


def test_memory_for_the_support_vectors_alone() -> None:
    """There is room for a Newton step, but not for the interior point's system."""
    problem, start = neighbour()
    n = problem.n_samples

    def gib(n_system: int, n_squares: int) -> float:
        size = peak_memory(n, problem, n_system, n_squares=n_squares)
        return size / 2**30

    needed, interior = gib(len(start.support) + 15, 3), gib(n, 2)
    assert needed < interior
    found = solve(problem, start=start, max_memory=needed)
    assert found.status is Status.OPTIMAL
    assert not fell_back(found)
    for memory in (gib(1, 3), 1e-6):
        with pytest.raises(MemoryError, match="GiB"):
            solve(problem, start=start, max_memory=memory)
