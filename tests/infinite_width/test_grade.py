"""Grades of finite networks beside the infinitely wide optimum."""

import numpy as np
import pytest

from implicit_bias import infinite_width as wide
from implicit_bias.networks import ReLUNetwork
from infinite_width.samples import planar


def test_grade_of_the_optimum_itself() -> None:
    X, y = planar(15, 1)
    solution = wide.max_margin(X, y)
    grade = wide.certify((solution.directions, solution.coef), X, y, solution=solution)
    assert grade.share[0] == pytest.approx(1, abs=1e-5)
    assert grade.refit_norm == pytest.approx(grade.norm, rel=1e-5)
    assert grade.escape_norm == pytest.approx(grade.norm, rel=1e-5)


def test_grade_of_a_random_network() -> None:
    X, y = planar(15, 1)
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(100, 3))
    features = np.maximum(X @ weights.T, 0)
    readout = np.linalg.lstsq(features, y, rcond=None)[0]
    grade = wide.certify((weights, readout), X, y)
    assert grade.min_margin == pytest.approx(1, abs=1e-6)
    assert grade.norm >= grade.refit_norm * (1 - 1e-9)
    assert grade.refit_norm >= grade.solution.certificate.lower
    assert 0 < grade.share[0] <= grade.share[1] < 1
    assert grade.escape_value > 1
    # One more unit in that direction, and the best second layer has a smaller norm.
    better = wide.certify((np.vstack([weights, grade.escape]), np.append(readout, 0)), X, y)
    assert better.refit_norm == pytest.approx(grade.escape_norm, rel=1e-6)
    assert better.refit_norm < grade.refit_norm


def test_a_network_that_does_not_separate_lacks_a_unit() -> None:
    """Without a separator alpha has sum 1, and the oracle is above 0."""
    X, y = planar(15, 1)
    grade = wide.certify(([[1.0, 0.0, 0.0]], [1.0]), X, y)
    assert grade.refit_norm == np.inf
    assert grade.alpha.sum() == pytest.approx(1.0)
    assert grade.escape_value > 0


def test_grade_of_a_torch_network() -> None:
    X, y = planar(15, 1)
    network = ReLUNetwork(3, [16], seed=1)
    grade = wide.certify(network, X, y)
    assert grade.path_norm == pytest.approx(network.norm())
    assert grade.min_margin == pytest.approx(float(np.min(y * network.decision(X))))


def test_grade_refuses_what_does_not_fit() -> None:
    X, y = planar(10, 1)
    solution = wide.max_margin(X, y)
    with pytest.raises(ValueError, match="other data"):
        wide.certify((np.ones((2, 3)), np.ones(2)), X, -y, solution=solution)
