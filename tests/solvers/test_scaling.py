"""The scaled problem: boxes, merged inputs, balanced alpha, bounds and memory, by definition."""

import math

import numpy as np
import pytest
import torch

from cases import noisy_table, plain
from implicit_bias import max_margin
from implicit_bias.solvers.scaling import (
    Boxes,
    Layout,
    MergedInputs,
    ScaledProblem,
)


def test_boxes_against_loops() -> None:
    index = [0, 0, 1, 2, 2, 2]
    boxes = Boxes(torch.tensor(index))
    values = torch.tensor([1.0, 2.0, 3.0, 4.0, 6.0, 5.0])
    weights = torch.tensor([1.0, 10.0, 100.0])
    assert boxes.sums(values).tolist() == [3, 3, 15]
    assert boxes.largest(values).tolist() == [2, 3, 6]
    assert boxes.leading(values).tolist() == [1, 2, 4]
    assert boxes.leading(torch.full((6,), torch.nan)).max() < 6  # a row, whatever it is
    assert torch.as_tensor(boxes.per_row(weights)).tolist() == [1, 1, 10, 100, 100, 100]
    A = boxes.added_to(torch.zeros(6, 6), weights)
    for i in range(6):
        for j in range(6):
            assert A[i, j] == (weights[index[i]] if index[i] == index[j] else 0)


@pytest.mark.parametrize(
    ("constants", "always"),
    [([], True), ([0.0], False), ([3.0, 0.0, -4.0], False), ([1e-200, 2e200, 1e200], False)],
)
def test_merged_inputs_have_the_same_inner_products(constants: list[float], always: bool) -> None:
    rng = np.random.default_rng(0)
    varying = rng.normal(size=(5, 3))
    X = np.hstack([varying[:, :2], np.tile(constants, (5, 1)), varying[:, 2:]])
    merged = MergedInputs(X, always=always)
    n_merged = int(always or any(constants))
    inside = merged.of(X)
    assert inside.shape == (5, 3 + n_merged)
    assert merged.norm == pytest.approx(math.hypot(*constants))
    np.testing.assert_allclose(merged.expand(inside), X, rtol=1e-14, atol=1e-150)
    np.testing.assert_allclose(merged.inside(X), inside, rtol=1e-14)
    centred = merged.of(X, np.ones(3))
    np.testing.assert_allclose(centred[:, :3], varying - 1.0)
    np.testing.assert_array_equal(centred[:, 3:], inside[:, 3:])


@pytest.mark.parametrize("classes", [2, 3])
def test_balanced_alpha_obey_the_equation_of_the_intercept(classes: int) -> None:
    X, y = noisy_table(40, 8, classes)
    problem = max_margin(X, y, C=2.0, intercept=True)
    scaled = ScaledProblem(Layout.of_groups(problem), torch.device("cpu"))
    alpha = torch.rand(scaled.n_rows, generator=torch.Generator().manual_seed(0)).double()
    alpha[0] = 1e-9
    balanced = scaled.balanced(alpha)
    np.testing.assert_allclose(scaled.e.T @ balanced, 0.0, atol=1e-12)
    assert (balanced >= 0.0).all()
    assert classes > 2 or (balanced <= alpha).all()
    inside = scaled.balanced_inside(alpha)
    assert (inside > 0.0).all()
    assert (inside >= balanced).all()
    if classes == 2:
        assert torch.equal(inside, balanced)
    # Without alpha of a class the equations leave those of its rivals none, either.
    alpha[scaled.e[:, 0] > 0.0] = 0.0
    if classes > 2:
        assert (scaled.balanced(alpha) == 0.0).any()
        assert (scaled.balanced_inside(alpha) > 0.0).all()


def test_upper_bounds_by_hand() -> None:
    X = np.array([[3.0], [1.0], [-2.0]])
    y = np.array([1.0, 1.0, -1.0])
    hard = ScaledProblem(Layout.of_groups(plain(X, y)), torch.device("cpu"))
    # Margins are in units of b: 2, 1/2 and 1 of the rows' own.
    upper, violation = hard.upper(3.0, hard.b * torch.tensor([2.0, 0.5, 1.0]))
    assert (upper, violation) == (6.0, 0.5)
    assert hard.to_margin_1(3.0, upper) == 2.0
    assert hard.upper(3.0, -hard.b) == (np.inf, 2.0)
    assert hard.to_margin_1(3.0, np.inf) == 1.0
    soft = ScaledProblem(Layout.of_groups(plain(X, y, 0.7)), torch.device("cpu"))
    upper, violation = soft.upper(3.0, soft.b * torch.tensor([2.0, 0.5, 1.0]))
    # One sample loses 1/2, at a price of C = 0.7, in units of the scale.
    assert upper == pytest.approx(3.0 + 0.7 * 0.5 * soft.scale)
    assert violation == 0.0
    assert soft.to_margin_1(3.0, upper) == 1.0
