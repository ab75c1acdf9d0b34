"""Strips of digits, and what no linear method learns of parities."""

import numpy as np
import pytest
import torch

from benchmarks.daniely2020 import linear_methods as linear
from benchmarks.daniely2020.digit_strips import draw_strips
from drawn import on_the_cube
from implicit_bias.datasets import load_digits, parities

ROUNDING = 1e-12

EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)


def test_strips_are_images_side_by_side_with_the_parity_of_their_sum() -> None:
    images = load_digits(positive=EVEN, negative=ODD, append_constant=False)
    data = draw_strips(images, 3, 50, seed=4)
    drawn = np.random.default_rng(4).integers(len(images), size=(50, 3))
    pixels = data.inputs(torch.arange(50)).numpy()
    for row, indices in enumerate(drawn):
        expected = np.hstack([(images.X[i].reshape(8, 8) + 1) / 2 for i in indices])
        np.testing.assert_allclose(pixels[row].reshape(8, 24), expected, atol=1e-7)
        odd = np.count_nonzero(images.y[indices] < 0)
        assert data.labels[row] == (1 if odd % 2 == 0 else -1)


def test_walsh_coefficients_are_correlations_with_parities() -> None:
    bits = parities.cube(5)
    values = np.random.default_rng(0).normal(size=(32, 3))
    coefficients = linear.walsh_coefficients(values)
    for row in range(32):
        members = [i for i in range(5) if row >> i & 1]
        parity = bits[:, members].prod(axis=1)
        np.testing.assert_allclose(coefficients[row], parity @ values / 32, atol=ROUNDING)
    # Parseval.
    np.testing.assert_allclose((coefficients**2).sum(axis=0), (values**2).mean(axis=0))


def test_the_bound_is_an_equality_for_the_correlated_direction_off_the_easy_half() -> None:
    """1/2 E_uniform[1 - y h] = 1/2 - B/2 ||c_A|| where no hinge is inactive."""
    distribution = parities.ParityDistribution(7, (0, 1, 2))
    bits, y, _ = on_the_cube(distribution)
    features = np.random.default_rng(3).uniform(-1, 1, size=(len(bits), 10))
    c = linear.walsh_coefficients(features)[distribution.mask]
    norm = 0.1
    outputs = norm * features @ (c / np.linalg.norm(c))
    assert (y * outputs < 1).all()
    bound = linear.hinge_lower_bound(np.linalg.norm(c), norm)
    assert 0.5 * linear.hinge_loss(y, outputs) == pytest.approx(bound)


@pytest.mark.parametrize("seed", [0, 3])
def test_least_hinge_loss_is_that_of_the_best_multiple(seed: int) -> None:
    rng = np.random.default_rng(seed)
    y, outputs = rng.choice((-1.0, 1.0), 30), np.round(rng.normal(size=30), 1)
    outputs += 0.2 * seed * y
    margins = y * outputs
    kinks = 1 / margins[margins > 0]
    losses = [linear.hinge_loss(y, c * outputs) for c in (0, *kinks, *np.geomspace(1e-3, 1e3, 500))]
    assert linear.least_hinge_loss(y, outputs) == pytest.approx(min(losses))
