"""Digits, MNIST and Fashion-MNIST: which images, their scale and their labels."""

import os
from typing import Any

import numpy as np
import pytest
from sklearn import datasets as sklearn_datasets

from implicit_bias.datasets import split
from implicit_bias.datasets.files import DATA_VARIABLE
from implicit_bias.datasets.images import GARMENT_NAMES, load_digits, load_fashion_mnist, load_mnist


@pytest.mark.parametrize(
    ("options", "names", "labels"),
    [
        ({}, ("5, 6, 7, 8, 9", "0, 1, 2, 3, 4"), {k: 1 if k < 5 else -1 for k in range(10)}),
        ({"positive": [3], "negative": {8, 1}}, ("1, 8", "3"), {3: 1, 1: -1, 8: -1}),
        ({"classes": (7, 1)}, ("1", "7"), {1: -1, 7: 1}),
        ({"classes": (7, 1, 4)}, ("1", "4", "7"), {1: 0, 4: 1, 7: 2}),
        ({"classes": ["all"]}, tuple("0123456789"), {k: k for k in range(10)}),
    ],
)
def test_digits(options: dict[str, Any], names: tuple[str, ...], labels: dict[int, int]) -> None:
    bunch = sklearn_datasets.load_digits()
    data, bare = load_digits(**options), load_digits(**options, append_constant=False)
    kept = np.isin(bunch.target, list(labels))
    assert data.image_shape == (8, 8)
    assert data.class_names == names
    assert data.classes == (len(names) if len(names) > 2 else None)
    assert (bare.n_features, bare.has_constant) == (64, False)
    np.testing.assert_array_equal(bare.X, (bunch.data[kept] / 16 - 0.5) / 0.5)
    np.testing.assert_array_equal(data.X[:, :-1], bare.X)
    np.testing.assert_array_equal(data.X[:, -1], 1.0)
    np.testing.assert_array_equal(data.y, [labels[k] for k in bunch.target[kept].tolist()])
    assert set(split(data, 200).train.y) == set(labels.values())


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"positive": (1, 10), "negative": (2,)}, "0 to 9"),
        ({"classes": [1, 2], "positive": [3]}, "apart"),
        ({"subset": "test"}, "split it"),
    ],
)
def test_choices_that_do_not_fit(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        load_digits(**options)


@pytest.mark.slow
@pytest.mark.skipif(
    DATA_VARIABLE not in os.environ,
    reason=f"set {DATA_VARIABLE} to a folder with mnist/ and fashion-mnist/",
)
def test_real_files() -> None:
    data = load_mnist()
    assert data.X.shape == (60_000, 785)
    # The first training labels of MNIST are 5, 0, 4, 1, 9.
    np.testing.assert_array_equal(data.y[:5], [-1.0, 1.0, 1.0, 1.0, -1.0])
    sneakers = load_fashion_mnist(subset="test", positive=["sneaker"])
    assert sneakers.class_names[1] == GARMENT_NAMES[7] == "Sneaker"
    assert int((sneakers.y == 1).sum()) == 1000
    assert len(sneakers) == 10_000
