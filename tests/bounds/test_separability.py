"""Plain causes why nothing separates, and cures."""

import numpy as np
import pytest

from cases import build, cloud, linear
from implicit_bias import MarginProblem
from implicit_bias.bounds import separability


@pytest.mark.parametrize("by_input", [False, True])
def test_an_intercept_predicts_where_no_gate_is_on(by_input: bool) -> None:
    """Two samples without features have the same predictions, whatever their gates and inputs."""
    X, y = cloud(12, 4)
    gates = np.ones((12, 1))
    gates[3] = 0
    groups = np.zeros(1, dtype=int)
    assert separability.find_conflict(MarginProblem(X, y, gates, groups)) is not None
    assert separability.find_conflict(MarginProblem(X, y, gates, groups, intercept=True)) is None
    gates[4] = 0
    if by_input:
        gates[4] = 1
        X[4] = 0
    conflict = separability.find_conflict(MarginProblem(X, y, gates, groups, intercept=True))
    assert conflict is not None
    assert conflict.samples.tolist() == [3, 4]


def test_advice_names_offsets_and_ranges() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(50, 6)), rng.choice([-1.0, 1.0], 50)
    assert separability.scaling_advice(build((X, y), linear)) is None
    X[:, 2] += 1e7
    X[:, 4] *= 1e8
    advice = separability.scaling_advice(build((X, y), linear))
    assert advice is not None
    assert "center features 2;" in advice
    assert "scale features 4" in advice
    assert separability.scaling_advice(build((np.ones((4, 2)), y[:4]), linear)) is None


def test_constants_are_recognised() -> None:
    X, y = cloud()
    assert not separability.lacks_constant(build((X, y), linear))
    assert separability.lacks_constant(build((X[:, :-1], y), linear))
    without = MarginProblem(X[:, :-1], y, np.ones((30, 1)), np.zeros(1, dtype=int), intercept=True)
    assert not separability.lacks_constant(without)


def test_a_constant_input_is_advised_where_a_group_of_gates_has_a_constant_sum() -> None:
    X, y = cloud(6, 3)
    groups = np.array([0, 0])
    one_hot = np.eye(2)[[0, 1, 0, 1, 0, 1]]
    assert "append a constant 1" in separability.offset_advice(MarginProblem(X, y, one_hot, groups))
    some_off = one_hot * np.array([1.0, 1, 1, 1, 0, 1])[:, None]
    advice = separability.offset_advice(MarginProblem(X, y, some_off, groups))
    assert "append" not in advice
    assert "intercept=True" in advice
