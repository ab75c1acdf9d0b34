"""Parities: the distributions, and the cube of all inputs."""

import numpy as np
import pytest

from drawn import on_the_cube
from implicit_bias.datasets.parities import ParityDistribution, cube

ROUNDING = 1e-12


@pytest.mark.parametrize("relevant", [(2,), (0, 3, 5), (1, 2, 3, 4, 5)])
def test_probabilities_are_those_of_the_mixture(relevant: tuple[int, ...]) -> None:
    distribution = ParityDistribution(6, relevant)
    bits, y, p = on_the_cube(distribution)
    assert p.sum() == pytest.approx(1.0)
    equal = np.ptp(bits[:, list(relevant)], axis=1) == 0
    # Half of D_A, and of the uniform half the share 2^(1-k).
    assert p[equal].sum() == pytest.approx(0.5 + 0.5 * 2.0 ** (1 - len(relevant)))
    # What the first step lives on: on A the easy half correlates with the label, off A nothing.
    signal = (p * y) @ bits
    expected = np.isin(np.arange(6), relevant) * (1.0 if len(relevant) == 1 else 0.5)
    np.testing.assert_allclose(signal, expected, atol=ROUNDING)


def test_samples_follow_the_probabilities() -> None:
    distribution = ParityDistribution(4, (0, 1, 3))
    data = distribution.sample(40000, random_state=1)
    assert data.n_features == 5
    assert (data.X[:, -1] == 1).all()
    bits = data.X[:, :-1]
    np.testing.assert_array_equal(data.y, bits[:, [0, 1, 3]].prod(axis=1))
    rows = (((1 - bits) / 2) @ 2.0 ** np.arange(4)).astype(int)
    shares = np.bincount(rows, minlength=16) / len(rows)
    np.testing.assert_allclose(shares, distribution.probabilities(cube(4)), atol=0.01)
    again = distribution.sample(40000, random_state=1, append_constant=False)
    np.testing.assert_array_equal(again.X, bits)
    assert not again.has_constant


def test_random_sets_are_reproducible_and_of_their_size() -> None:
    one, same, other = (ParityDistribution.random(30, 5, random_state=s) for s in (1, 1, 2))
    assert one == same != other
    assert one.k == len(set(one.relevant)) == 5
    assert ParityDistribution(6, (0, 3, 5)).mask == 0b101001


@pytest.mark.parametrize(
    ("relevant", "message"),
    [((0, 1), "odd number"), ((1, 1, 2), "different"), ((0, 1, 6), "0 to 5")],
)
def test_sets_that_are_none(relevant: tuple[int, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ParityDistribution(6, relevant)
