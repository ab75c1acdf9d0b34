"""One group on one Gram matrix: against the interior point, from a start, and where it gives up."""

from dataclasses import replace

import numpy as np
import pytest

from cases import GAP_LIMIT, OBJECTIVE_RTOL, SOLVE_TOL, separable
from implicit_bias import MarginProblem, Status, max_margin, solve
from implicit_bias.norms import L2
from implicit_bias.solvers import BoundsAt, InteriorPoint, OneGroup, Tolerances

TIGHT = Tolerances(gap=SOLVE_TOL)
ALONE = OneGroup(tolerances=TIGHT, fallback=InteriorPoint(tolerances=TIGHT))


def wide(n_samples: int, n_features: int, n_classes: int = 2, **options: object) -> MarginProblem:
    """Pose more features than samples, with labels of no rule: all are separable."""
    rng = np.random.default_rng(n_samples)
    X = rng.normal(size=(n_samples, n_features)) * rng.uniform(0.3, 3.0, (n_samples, 1))
    labels = rng.integers(n_classes, size=n_samples)
    y = 2.0 * labels - 1.0 if n_classes == 2 else labels
    return max_margin(X, y, **options)  # type: ignore[arg-type]


def sparse_contexts() -> MarginProblem:
    """Pose a shallow GLN of 40 contexts: so few are on that gates are multiplied sparsely."""
    plain = wide(150, 8)
    gates = np.eye(40)[np.random.default_rng(0).integers(40, size=150)]
    return MarginProblem(plain.X, plain.y, gates, np.zeros(40, dtype=int))


def of_many_groups(n_classes: int) -> MarginProblem:
    """Pose the Euclidean norm, which is one group, beside gates of three."""
    plain = wide(90, 40, n_classes)
    gates = np.random.default_rng(1).integers(2, size=(90, 6)) * 1.0
    gates[:, 0] = 1.0
    groups = np.array([0, 0, 1, 1, 2, 2])
    classes = n_classes if n_classes > 2 else None
    return MarginProblem(plain.X, plain.y, gates, groups, norm=L2(), classes=classes)


CASES = {
    "intercept": wide(130, 200, intercept=True),
    "soft": wide(130, 200, C=0.05),
    "fewer features than samples": max_margin(separable("linear").X, separable("linear").y),
    "metric": separable("svm-l2"),
    "sparse contexts": sparse_contexts(),
    "three classes, gates of three groups": of_many_groups(3),
}


@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_the_interior_point(name: str) -> None:
    problem = CASES[name]
    found, other = solve(problem, ALONE), solve(problem, "interior-point", SOLVE_TOL)
    assert found.status is Status.OPTIMAL
    assert found.stats.detail == ""  # without the fall-back
    assert found.certificate.gap <= GAP_LIMIT
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=OBJECTIVE_RTOL)
    np.testing.assert_allclose(found.coef, other.coef, atol=1e-5 * np.abs(other.coef).max())


def test_where_it_gives_up_the_fall_back_solves() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(150, 4)), rng.choice([-1.0, 1.0], size=150)
    found = solve(max_margin(X, y, C=1.0), ALONE)
    assert found.status is Status.OPTIMAL
    assert "fall-back" in found.stats.detail
    assert solve(max_margin(X, y), ALONE).status is Status.NOT_SEPARABLE
    for problem in (separable("gln"), wide(40, 60, 3, C=0.1)):  # which it does not take
        found = solve(problem, ALONE)
        assert (found.status, found.stats.detail) == (Status.OPTIMAL, "")


def test_the_fall_back_obeys_the_options_of_this_solver() -> None:
    """Its tolerances, limits and rows: two groups go to the fall-back at once."""
    problem = separable("gln")
    loose = InteriorPoint(tolerances=Tolerances(gap=0.3), max_iterations=1)
    found = solve(problem, OneGroup(tolerances=TIGHT, fallback=loose))
    assert found.status is Status.OPTIMAL
    assert found.certificate.gap <= GAP_LIMIT
    limited = solve(problem, OneGroup(fallback=InteriorPoint(), max_iterations=2))
    assert limited.status is Status.ITERATION_LIMIT
    some = np.arange(problem.n_samples // 2)
    rows = problem.constraints.subset(some)
    half = OneGroup(tolerances=TIGHT, fallback=InteriorPoint(), rows=rows).run(problem)
    assert not half.alpha[len(some) :].any()
    alone = solve(problem.subset(some), "interior-point", SOLVE_TOL)
    np.testing.assert_allclose(half.alpha.sum(), alone.certificate.upper, rtol=OBJECTIVE_RTOL)


EAGER = OneGroup(
    tolerances=TIGHT, fallback=InteriorPoint(tolerances=TIGHT), nearly=1.0, first_rows=5
)


@pytest.mark.parametrize(("seed", "intercept"), [(49, False), (61, False), (23, True)])
def test_bounds_on_the_way_hold_of_sets_that_are_far_from_right(
    seed: int, *, intercept: bool
) -> None:
    """Alpha that were cut to the box have a smaller norm than before, or break e' alpha = 0."""
    rng = np.random.default_rng(seed)
    n, d = rng.integers(8, 40), rng.integers(2, 40)
    X = rng.normal(size=(n, d))
    y = rng.choice([-1.0, 1.0], n)
    if intercept:
        y[:2] = 1.0, -1.0  # both classes
    problem = max_margin(X, y, C=10.0 ** rng.uniform(-2, 2), intercept=intercept)
    best = solve(problem, "interior-point", GAP_LIMIT).certificate
    lines = list[BoundsAt]()
    solve(problem, EAGER, on_progress=lines.append)
    for line in lines:
        assert line.lower <= best.upper * (1 + GAP_LIMIT)
        assert line.upper >= best.lower * (1 - GAP_LIMIT)


def test_bounds_on_the_way_hold_where_the_norm_is_the_rounding_of_its_terms() -> None:
    """Of a sample and a copy of the other class, which differ in the eighth digit."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=4)
    problem = max_margin(np.vstack([x, x + 3e-8 * rng.normal(size=4)]), [1.0, -1.0])
    best = solve(problem, "feature-space").certificate
    lines = list[BoundsAt]()
    solve(problem, replace(EAGER, max_iterations=6), on_progress=lines.append)
    assert min(line.upper for line in lines) >= best.lower * (1 - 1e-6)
