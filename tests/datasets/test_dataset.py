"""A data set, its published split, and its scaling."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.preprocessing import StandardScaler

from implicit_bias.datasets import Dataset, Split, make_toy, split, split_indices, standardized


def dataset(**changes: Any) -> Dataset:
    good: dict[str, Any] = {"X": np.ones((2, 3)), "y": np.array([1.0, -1.0])}
    return Dataset(**({"name": "d", "class_names": ("a", "b")} | good | changes))


def test_dataset_is_read_only_and_leaves_the_callers_array_alone() -> None:
    X, y = np.ones((2, 3)), np.array([1.0, -1.0])
    data = dataset(X=X, y=y, image_shape=(1, 2))
    assert (len(data), data.n_samples, data.n_features) == (2, 2, 3)
    for array in (data.X, data.y):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0
    assert X.flags.writeable
    assert y.flags.writeable


def test_labels_fit_the_named_classes() -> None:
    three: dict[str, Any] = {"class_names": ("a", "b", "c"), "X": np.ones((3, 2))}
    data = dataset(y=np.array([0, 1, 2]), **three)
    assert data.y.dtype == np.int64
    assert data.names == {0: "a", 1: "b", 2: "c"}
    with pytest.raises(ValueError, match=r"class 2 \(c\)"):
        split(data.take([0, 1, 1, 0]), 2, 1)


@pytest.mark.parametrize(("n", "train_size", "validation_size"), [(60_000, 500, None), (7, 3, 4)])
def test_splits_are_the_published_ones(
    n: int, train_size: int, validation_size: int | None
) -> None:
    """By default a fifth is for validation; the global generator stays as it is."""
    before = torch.get_rng_state()
    order = torch.randperm(n, generator=torch.Generator().manual_seed(1)).numpy()
    train, validation = split_indices(n, train_size, validation_size or n // 5, seed=1)
    np.testing.assert_array_equal(train, order[:train_size])
    np.testing.assert_array_equal(validation, order[-(validation_size or n // 5) :])
    X = np.column_stack([np.arange(1.0 * n), np.ones(n)])
    data = dataset(X=X, y=np.where(np.arange(n) % 2, 1.0, -1.0))
    parts = split(data, train_size, validation_size, seed=1)
    np.testing.assert_array_equal(parts.train.X[:, 0], train)
    np.testing.assert_array_equal(parts.validation.y, data.y[validation])
    assert torch.equal(before, torch.get_rng_state())


def test_standardized_by_training_samples_alone() -> None:
    parts = split(make_toy("moons", 50), 30)
    scaled = standardized(parts)
    scaler = StandardScaler().fit(parts.train.X[:, :-1])
    for part, raw in ((scaled.train, parts.train), (scaled.validation, parts.validation)):
        np.testing.assert_allclose(part.X[:, :-1], scaler.transform(raw.X[:, :-1]))
        assert (part.X[:, -1] == 1).all()
    np.testing.assert_allclose(scaled.train.X[:, :-1].mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.train.X[:, :-1].std(axis=0), 1)
    flat = dataset(X=np.ones((2, 2)))
    assert not standardized(Split(flat, flat)).train.X[:, 0].any()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"X": np.zeros((2, 3))}, "has_constant"),
        ({"X": np.ones((2, 0))}, "has_constant"),
        ({"y": np.array([0, 2])}, "classes"),
        ({"image_shape": (2, 2)}, "image_shape"),
    ],
)
def test_arrays_that_do_not_fit(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        dataset(**changes)


@pytest.mark.parametrize(
    ("train_size", "validation_size", "word"),
    [(8, 3, "at most 7"), (0, 3, "train_size"), (1, 2, "take more")],
)
def test_sizes_that_do_not_fit(train_size: int, validation_size: int, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        split(make_toy("blobs", 10), train_size, validation_size)
