"""Samples of a loader: the same as at once, in the order of the data, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    DataLoader,
    RandomSampler,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    default_collate,
)

from example_modules import drawn
from implicit_bias.modules import loading
from implicit_bias.modules.loading import collected

X = drawn(30, 4)
Y = torch.arange(30) % 3
DATA = TensorDataset(X, Y)


def with_noise(samples: list[Any]) -> tuple[Tensor, Tensor]:
    """Add other noise in each pass."""
    inputs, labels = default_collate(samples)
    return inputs + torch.randn(inputs.shape), labels


def test_a_shuffling_loader_is_read_in_the_order_of_its_data() -> None:
    before = torch.get_rng_state()
    found = collected(DataLoader(DATA, batch_size=7, shuffle=True, drop_last=True), None)
    assert torch.equal(found.inputs, X)
    assert torch.equal(found.labels, Y.double())
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    "batches",
    [
        [(X[:20].numpy(), Y[:20].tolist()), [X[20:].numpy(), Y[20:, None].numpy()]],
        DataLoader(DATA, batch_size=8, num_workers=0),
        DataLoader(DATA, batch_size=None, sampler=[slice(0, 13), slice(13, 30)]),
    ],
    ids=["arrays", "loader", "batches of a sampler"],
)
def test_batches_in_order(batches: Any) -> None:
    found = collected(batches, None)
    assert torch.equal(found.inputs, X)
    assert torch.equal(found.labels, Y.double())


def test_several_arguments_and_numbers_that_are_indices() -> None:
    tokens = torch.arange(30).reshape(30, 1)
    found = collected([((X[:9], tokens[:9]), Y[:9]), ((X[9:], tokens[9:]), Y[9:])], None)
    assert torch.equal(found.inputs[0], X)
    assert torch.equal(found.inputs[1], tokens)
    assert found.inputs[1].dtype is torch.int64


def test_samples_that_change_are_refused() -> None:
    for loader in (
        DataLoader(DATA, batch_size=5, collate_fn=with_noise),
        DataLoader(DATA, batch_size=5, sampler=WeightedRandomSampler([1.0] * 30, 30)),
        DataLoader(DATA, batch_size=5, sampler=RandomSampler(DATA, num_samples=10)),
    ):
        with pytest.raises(ValueError, match="two passes"):
            collected(loader, None)


def test_an_iterable_in_another_order_each_time_is_refused() -> None:
    class Shuffled:
        def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
            order = torch.randperm(30)
            return iter([(X[order[:11]], Y[order[:11]]), (X[order[11:]], Y[order[11:]])])

    with pytest.raises(ValueError, match="another order.*list"):
        collected(Shuffled(), None)
    assert len(collected(list(Shuffled()), None).labels) == 30


def test_a_subset_in_random_order_is_read_in_the_order_of_its_indices() -> None:
    indices = [7, 2, 19, 4]
    found = collected(DataLoader(DATA, batch_size=3, sampler=SubsetRandomSampler(indices)), None)
    assert torch.equal(found.inputs, X[indices])
    assert torch.equal(found.labels, Y[indices].double())


def test_a_value_that_is_nan_is_the_same_in_both_passes() -> None:
    missing = X.clone()
    missing[3, 1] = torch.nan
    assert collected([(missing, Y)], None).inputs[3, 1].isnan()


@pytest.mark.parametrize(
    ("inputs", "labels", "word"),
    [
        (X, None, "labels are missing"),
        (DataLoader(DATA), Y, "leave labels out"),
        (iter([(X, Y)]), None, "once"),
        ([(X, Y, Y)], None, "pair"),
        ([(X, Y[:5])], None, "one a sample"),
    ],
)
def test_refusals(inputs: Any, labels: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        collected(inputs, labels)


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """30 samples of 4 entries are 960 bytes; known lengths are refused after the first batch."""
    monkeypatch.setattr(loading, "MOST_GIB", 959 / 2**30)
    read = list[int]()

    def counted(samples: list[Any]) -> Any:
        read.append(len(samples))
        return default_collate(samples)

    with pytest.raises(ValueError, match="8.94e-07 GiB.*Subset"):
        collected(DataLoader(DATA, batch_size=6, shuffle=True, collate_fn=counted), None)
    assert read == [6]
    with pytest.raises(ValueError, match="more than"):
        collected([(X[:15], Y[:15]), (X[15:], Y[15:])], None)
    monkeypatch.setattr(loading, "MOST_GIB", 960 / 2**30)
    assert len(collected(DataLoader(DATA, batch_size=6), None).labels) == 30


def test_batches_that_are_written_over() -> None:
    class OneBuffer:
        def __iter__(self) -> Iterator[tuple[np.ndarray, Tensor]]:
            buffer = np.empty((10, 4))
            labels = torch.empty(10, dtype=torch.float64)
            for start in (0, 10, 20):
                buffer[:] = X[start : start + 10].numpy()
                labels[:] = Y[start : start + 10]
                yield buffer, labels

    found = collected(OneBuffer(), None)
    assert torch.equal(found.inputs, X)
    assert torch.equal(found.labels, Y.double())
