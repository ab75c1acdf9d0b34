"""Multipliers from a Gram matrix, against non-negative least squares."""

import numpy as np
import pytest
from scipy.optimize import nnls

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules.nonnegative_squares import nonnegative_squares


def separable(n: int, width: int, margin: float, seed: int) -> Array:
    """Rows (n, width) with <w, row> > margin ||w|| for some w."""
    rng = np.random.default_rng(seed)
    R, w = rng.normal(size=(n, width)), rng.normal(size=width)
    w /= np.linalg.norm(w)
    return np.asarray(R * np.sign(R @ w)[:, None] + margin * w)


def bound(R: Array, a: Array) -> float:
    return float(a.sum() / np.linalg.norm(R.T @ a))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "width"), [(1, 3), (40, 2), (60, 30), (80, 70), (30, 200)])
def test_the_bound_is_that_of_least_squares(n: int, width: int, seed: int) -> None:
    R = separable(n, width, 0.5, seed)
    R = np.vstack([R, R[: n // 2] * (1 + 1e-9), R[:2]])  # nearly and exactly the same rows
    s = np.sqrt(np.square(R).mean())
    by_nnls, _ = nnls(
        np.vstack([R.T, np.full(len(R), s)]), np.append(np.zeros(width), s), maxiter=9999
    )
    a = nonnegative_squares(R @ R.T)
    assert (a >= 0).all()
    assert bound(R, a) == pytest.approx(bound(R, by_nnls), rel=1e-9)
    w = R.T @ a / np.square(R.T @ a).sum() * a.sum()
    assert (R @ w).min() >= 1 - 1e-8


def test_a_guess_changes_no_result() -> None:
    R = separable(50, 60, 0.0, 0)
    plain = bound(R, nonnegative_squares(R @ R.T))
    for guess in (np.zeros(50), np.eye(50)[7], np.arange(50.0)):
        assert bound(R, nonnegative_squares(R @ R.T, guess)) == pytest.approx(plain, rel=1e-9)


def test_out_of_time_there_are_multipliers() -> None:
    R = separable(50, 20, 0.1, 0)
    a = nonnegative_squares(R @ R.T, deadline=Deadline.after(0.0))
    assert (a >= 0).all()
    assert 0 < bound(R, a) <= bound(R, nonnegative_squares(R @ R.T)) * (1 + 1e-9)


def test_squares_that_underflow_have_multipliers() -> None:
    a = nonnegative_squares(np.zeros((3, 3)))
    assert np.isfinite(a).all()
    assert a.sum() > 0
