"""Problems with an intercept: the dual's equation, the best offset, and both bounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import build, cloud, linear, plain
from implicit_bias.bounds.balance import balanced, is_balanced, repaired
from implicit_bias.bounds.certificate import certify
from implicit_bias.problem import MarginProblem, max_margin
from implicit_bias.solvers import solve
from oracles import check_signs


def with_intercept(n: int = 30, C: float = np.inf, shift: float = 3.0) -> MarginProblem:
    X, y = cloud(n, 4, shift=shift)
    return replace(build((X[:, :-1] + 2.0, y), linear, C=C), intercept=True)


def test_the_equation_must_hold_exactly() -> None:
    problem = with_intercept()
    exact = repaired(problem, np.random.default_rng(0).exponential(size=30))
    assert is_balanced(problem.constraints, exact)
    off = exact.copy()
    off[0] = np.nextafter(off[0], 9)
    assert not is_balanced(problem.constraints, off)


def test_each_class_must_be_balanced() -> None:
    rows = max_margin(np.eye(3), [0, 1, 2], intercept=True).constraints
    alpha = np.zeros((3, 3))
    alpha[1, 2] = 1.0  # from class 1 to class 2: the flows of class 0 are 0
    assert not is_balanced(rows, rows.alpha_of_rows(alpha))
    alpha[2, 1] = 1.0
    assert is_balanced(rows, rows.alpha_of_rows(alpha))


def test_no_entry_grows_beyond_its_cap() -> None:
    """The other entries are too large to change by the residual, 2^-54."""
    problem = plain(np.ones((3, 1)), [1.0, -1.0, -1.0], intercept=True)
    cap = np.array([1.0, 0.5, 0.5 - 2.0**-54])
    found = repaired(problem, cap, cap)
    assert is_balanced(problem.constraints, found)
    assert (found <= cap).all()
    np.testing.assert_allclose(found, cap, rtol=1e-14)


@pytest.mark.parametrize("seed", [28, 108, 184])
def test_classes_are_balanced_from_the_leaves_of_their_tree(seed: int) -> None:
    """From its root they cannot be: the finest digits of these flows are those of the leaves."""
    rng = np.random.default_rng(seed)
    rows = max_margin(np.eye(4), [0, 1, 2, 3], intercept=True).constraints
    flows = rng.exponential(size=len(rows)) * 2.0 ** rng.integers(-45, 0, len(rows))
    found = balanced(rows, flows)
    assert is_balanced(rows, found)
    assert found.any()


def test_a_proof_is_sought_before_balancing_leaves_nothing() -> None:
    """The sample 0 lies between -1 and 1; its alpha is so small that nothing near is balanced."""
    problem = plain(np.array([[1.0], [-1.0], [0.0]]), [1.0, 1.0, -1.0], intercept=True)
    assert certify(problem, alpha=np.array([1.0, 1.0, 1e-310])).lower == np.inf


@pytest.mark.parametrize(("noise", "C"), [(1e-16, 0.3), (1e-12, np.inf), (1e-6, 0.3)])
def test_certify_balances_what_another_solver_found(noise: float, C: float) -> None:
    problem = with_intercept(C=C)
    best = solve(problem, tol=1e-10)
    rng = np.random.default_rng(0)
    alpha = best.alpha * (1 + noise * rng.uniform(-1, 1, 30)) + noise * rng.random(30)
    found = certify(problem, alpha=alpha).lower
    assert best.certificate.lower * (1 - 1e3 * noise - 1e-12) <= found <= best.certificate.upper


@pytest.mark.slow
@settings(max_examples=100)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(2, 40),
    k=st.integers(2, 6),
    spread=st.integers(0, 30),
    noise=st.sampled_from([1e-16, 1e-9, 0.1, 1.0]),
)
def test_balanced_is_exact_and_changes_little(
    seed: int, n: int, k: int, spread: int, noise: float
) -> None:
    """Of two classes and of more: far from balance, and by noise away from it."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, k, size=n)
    y[:2] = [0, 1]
    labels, classes = (2 * y - 1, None) if k == 2 else (y, k)
    problem = plain(np.ones((n, 1)), labels, intercept=True, classes=classes)
    alpha = rng.exponential(size=problem.alpha_shape)
    alpha *= 10.0 ** rng.uniform(-spread, 0, alpha.shape) * (rng.random(alpha.shape) < 0.8)
    if k > 2:
        alpha[np.arange(n), y] = 0.0
    cap = float(problem.totals(alpha).max()) or 1.0
    exact = repaired(problem, alpha, cap)
    near = exact * (1 + noise * rng.uniform(-0.5, 0.5, alpha.shape))
    found = repaired(problem, near, cap)
    for each in (exact, found):
        check_signs(problem, each)
        assert (problem.totals(each) <= cap * (1 + 1e-15)).all()
        # A total of several entries may be above its cap by rounding, so that it is scaled again.
        again = repaired(problem, each, cap if k == 2 else np.inf)
        np.testing.assert_array_equal(again, each)
    assert np.abs(found - near).sum() <= (3 * noise + 1e-14) * near.sum()
    caps = cap * rng.uniform(0.2, 1.0, n)
    capped = repaired(problem, alpha, caps)
    check_signs(problem, capped)
    assert (problem.totals(capped) <= caps * (1 + 1e-15)).all()


def test_one_class_has_no_weight_to_balance() -> None:
    problem = with_intercept(2)
    assert not repaired(problem, np.array([1.0, 0.0])).any()


def test_the_best_offset_of_a_hard_margin_is_halfway() -> None:
    problem = plain(np.array([[1.0], [2.0], [6.0]]), [-1.0, -1, 1], intercept=True)
    found = certify(problem, [[1.0]], [0.0, 1.0, 1.0])
    assert found.upper == pytest.approx(0.5)
    assert found.lower == pytest.approx(0.5)
    assert found.min_margin == pytest.approx(2)
    assert certify(problem, [[1.0]], intercept=-3.0).min_margin == pytest.approx(1)
    assert certify(problem, [[1.0]], intercept=3.0).upper == np.inf


def test_errors_of_intercepts() -> None:
    with pytest.raises(ValueError, match="coef"):
        certify(with_intercept(), alpha=np.ones(30), intercept=1.0)
    with pytest.raises(ValueError, match="finite"):
        certify(with_intercept(), np.ones((1, 3)), intercept=np.nan)
