"""Data that no infinitely wide network separates, provably or nearly, and degenerate positions."""

from math import hypot

import numpy as np
import pytest
from numpy.typing import ArrayLike

from implicit_bias import Status
from implicit_bias import infinite_width as wide
from implicit_bias.infinite_width.arrangement import maximise
from infinite_width.samples import GAP
from oracles import fractions


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 2], [2, 4], [1, 3]], [1, -1, 1]),
        ([[0, 0], [2, 4], [1, 3]], [1, -1, 1]),
        ([[1, 2], [2, 4], [1, 3]], [0, 1, 2]),
        ([[1, 1], [-1, -1], [1, 1], [1, 0]], [0, 0, 1, 2]),
    ],
)
def test_data_that_no_network_separates(X: list[list[float]], y: list[int]) -> None:
    solution = wide.max_margin(X, y)
    assert solution.status is Status.NOT_SEPARABLE
    assert solution.conflict is not None
    assert "No network" in solution.statement
    assert solution.certificate.lower == solution.certificate.upper == np.inf
    assert solution.problem.dual_function(solution.alpha).size < 1e-12
    assert solution.alpha.sum() == pytest.approx(1)
    assert solution.alpha.min() >= 0
    soft = wide.max_margin(X, y, 0.5)
    assert soft.status is Status.OPTIMAL


@pytest.mark.parametrize(
    ("X", "y"),
    [
        ([[1, 1], [-2, -2], [3, 3]], [1, -1, 1]),
        ([[1, 1], [-1, -1], [1, 0], [-1, 0]], [1, 1, -1, -1]),
        (np.ones((5, 3)), [1] * 5),
        ([[1, 0, 0], [1, 1, 0], [1, 2, 0], [1, 3, 0], [1, 0, 1]], [1, -1, 1, -1, 1]),
        ([[1, 1], [-2, -2], [3, 3], [0, 1]], [0, 1, 0, 2]),
    ],
    ids=[
        "rank 1",
        "opposite inputs",
        "equal samples",
        "rank 2 in 3 inputs",
        "three classes",
    ],
)
def test_degenerate_positions(X: ArrayLike, y: ArrayLike) -> None:
    solution = wide.max_margin(X, y)
    assert solution.status is Status.OPTIMAL
    assert solution.certificate.gap < GAP
    assert maximise(solution.problem.dual_function(solution.alpha)).upper <= 1 + 1e-9


def test_even_activations_cannot_tell_antipodes() -> None:
    X, y = [[1, 1], [-1, -1], [1, 0]], [1, -1, 1]
    assert wide.max_margin(X, y).status is Status.OPTIMAL
    assert wide.max_margin(X, y, activation="absolute value").status is Status.NOT_SEPARABLE


def test_a_linear_activation_has_the_conflicts_of_a_linear_predictor() -> None:
    """The last input is the first and half of the second one."""
    X, y = [[1, 0], [0, 2], [1, 1]], [1, 1, -1]
    found = wide.max_margin(X, y, activation=(1.0, 1.0))
    assert found.status is Status.NOT_SEPARABLE
    np.testing.assert_allclose(found.alpha, [0.4, 0.2, 0.4])


def test_closed_form_of_one_sample() -> None:
    solution = wide.max_margin([[3.0, 4.0]], [-1])
    assert solution.certificate.upper == pytest.approx(0.2)
    np.testing.assert_allclose(solution.directions, [[0.6, 0.8]], atol=1e-9)
    np.testing.assert_allclose(solution.coef, [-0.2])


@pytest.mark.parametrize(
    ("X", "activation", "norm", "statuses"),
    [
        ([[1, 1e-12], [1, 0]], "relu", 2e12, {Status.OPTIMAL, Status.NUMERICAL_TROUBLE}),
        # f = -1 on the middle input's ray and a kink there that adds 2 on both sides.
        (
            *([[1e6, 1], [1e6 - 1, 1], [1e6 - 2, 1]], "relu", 4 * hypot(1, 1e6 - 1) + 1e-6),
            {Status.OPTIMAL, Status.NUMERICAL_TROUBLE},
        ),
        (
            *([[2.0**53 - k, 1] for k in range(3)], "relu", 4 * (2.0**53 - 1) + 1),
            {Status.NEARLY_INSEPARABLE},
        ),
        ([[1e-8], [-1.0]], "relu", 1e8 + 1, {Status.OPTIMAL}),
        ([[0.1, 0.3], [0.3, 0.9]], "relu", np.inf, {Status.NEARLY_INSEPARABLE}),
    ],
    ids=["angle", "shift", "integers", "small", "nearly proportional"],
)
def test_nearly_inseparable_data_are_not_called_inseparable(
    X: list[list[float]],
    activation: wide.Activation,
    norm: float,
    statuses: set[Status],
) -> None:
    """``norm`` is that of a network of margin 1 at least, or exact arithmetic knows that one is."""
    y = [1, -1, 1][: len(X)]
    solution = wide.max_margin(X, y, activation=activation)
    assert solution.status in statuses
    assert solution.conflict is None
    assert 0 < solution.certificate.lower < np.inf
    assert solution.certificate.lower <= norm * (1 + 1e-15)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(2))
def test_inputs_on_one_axis_of_very_different_sizes(seed: int) -> None:
    """The smallest input on each side decides."""
    rng = np.random.default_rng(seed)
    x = np.append([1.0, -1.0], rng.choice([-1.0, 1.0], 4)) * 10.0 ** rng.uniform(-4, 4, 6)
    norm = 1 / x[x > 0].min() + 1 / -x[x < 0].max()
    certificate = wide.max_margin(x[:, None], np.sign(x)).certificate
    assert certificate.lower <= norm * (1 + 1e-15)
    assert certificate.upper >= norm * (1 - 1e-15)
    assert certificate.gap < GAP


@pytest.mark.parametrize("seed", [0, 4])
def test_two_inputs_of_nearly_one_direction(seed: int) -> None:
    """Each unit is orthogonal to the other input: norm (|x| + |z|) / |x cross z|."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=2) + 10.0 ** -rng.uniform(5, 17) * rng.normal(size=(2, 2))
    X *= 10.0 ** rng.uniform(-4, 4, (2, 1))
    (a, b), (c, d) = fractions(X)
    assert a * d != b * c
    norm = float(np.linalg.norm(X, axis=1).sum()) / abs(float(a * d - b * c))
    solution = wide.max_margin(X, [1, -1])
    assert solution.status is not Status.NOT_SEPARABLE
    assert 0 < solution.certificate.lower <= norm * (1 + 1e-12)
    assert solution.certificate.upper >= norm * (1 - 1e-9)


@pytest.mark.parametrize("X", [[[1e160], [-1e160]], [[1.0], [-1e10]], [[0.0], [0.0]]])
def test_inputs_that_ask_for_other_features_are_refused(X: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="append a constant"):
        wide.max_margin(X, [1, -1])
