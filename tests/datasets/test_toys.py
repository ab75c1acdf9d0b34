"""Toy sets in the plane, and data sets by name."""

import numpy as np
import pytest

from implicit_bias.base.options import TOY_KINDS, ToyKind
from implicit_bias.datasets import load, make_toy


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("kind", TOY_KINDS)
def test_toy_sets_are_balanced_and_free_of_contradictions(kind: ToyKind, noise: float) -> None:
    data = make_toy(kind, 301, noise=noise)
    assert data.X.shape == (301, 3)
    assert data.y.sum() == 1.0
    positive, negative = data.X[data.y > 0], data.X[data.y < 0]
    assert (np.abs(positive[:, None] - negative[None]).max(axis=2) > 0).all()
    np.testing.assert_array_equal(data.X, make_toy(kind, 301, noise=noise).X)
    assert not np.array_equal(data.X, make_toy(kind, 301, noise=noise, random_state=1).X)
    assert make_toy(kind, noise=noise, append_constant=False).X.shape == (200, 2)


def test_load_by_name() -> None:
    assert load("xor").name == "xor"
    assert load("digits", classes=("all",)).classes == 10
    with pytest.raises(ValueError, match="'mnist'"):
        load("minst")
    with pytest.raises(ValueError, match="no digits"):
        load("xor", positive=(1,))
