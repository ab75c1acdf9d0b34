"""One group on one Gram matrix: against the interior point, from a start, and where it gives up."""

from dataclasses import replace

import numpy as np
import pytest

from cases import GAP_LIMIT, OBJECTIVE_RTOL, SOLVE_TOL, separable
from implicit_bias import MarginProblem, Status, max_margin, solve
from implicit_bias.norms import L2
from implicit_bias.solvers import InteriorPoint, OneGroup, Tolerances

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


def without_features(problem: MarginProblem) -> MarginProblem:
    """Return the problem with zeros for its first input."""
    X = problem.X.copy()
    X[0] = 0.0
    return replace(problem, X=X)


CASES = {
    "hard": wide(230, 300),
    "intercept": wide(230, 300, intercept=True),
    "soft": wide(230, 300, C=0.05),
    "soft, intercept": wide(230, 300, C=0.05, intercept=True),
    "fewer features than samples": max_margin(separable("linear").X, separable("linear").y),
    "metric": separable("svm-l2"),
    "soft, a sample without features": without_features(wide(230, 300, C=0.05)),
    "sparse contexts": sparse_contexts(),
    "three classes": wide(90, 200, 3),
    "three classes, gates of three groups": of_many_groups(3),
    "gates of three groups": of_many_groups(2),
    "three classes, intercept": wide(90, 200, 3, intercept=True),
}


@pytest.mark.every(3)
@pytest.mark.parametrize("name", CASES)
def test_it_agrees_with_the_interior_point(name: str) -> None:
    problem = CASES[name]
    found, other = solve(problem, ALONE), solve(problem, "interior-point", SOLVE_TOL)
    assert found.status is Status.OPTIMAL
    assert found.stats.detail == ""  # without the fall-back
    assert found.certificate.gap <= GAP_LIMIT
    assert found.certificate.upper == pytest.approx(other.certificate.upper, rel=OBJECTIVE_RTOL)
    np.testing.assert_allclose(found.coef, other.coef, atol=1e-5 * np.abs(other.coef).max())


@pytest.mark.parametrize("name", ["hard", "soft", "three classes"])
def test_the_order_of_the_samples_does_not_matter(name: str) -> None:
    problem = CASES[name]
    order = np.random.default_rng(1).permutation(problem.n_samples)
    found, again = solve(problem, ALONE), solve(problem.subset(order), ALONE)
    np.testing.assert_allclose(again.alpha, found.alpha[order], atol=1e-6 * found.alpha.max())


def test_a_start_saves_steps() -> None:
    problem = CASES["soft"]
    start = solve(replace(problem, C=0.06), ALONE)
    cold, warm = solve(problem, ALONE), solve(problem, ALONE, start=start)
    assert warm.status is Status.OPTIMAL
    assert warm.stats.iterations < cold.stats.iterations
    assert warm.certificate.upper == pytest.approx(cold.certificate.upper, rel=OBJECTIVE_RTOL)


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


def test_a_limit_leaves_bounds() -> None:
    found = solve(wide(90, 100), replace(ALONE, max_iterations=2))
    assert found.status is Status.ITERATION_LIMIT
    assert 0.0 < found.certificate.lower
