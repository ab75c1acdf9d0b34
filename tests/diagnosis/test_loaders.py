"""A loader in the place of tensors: the same numbers, and refusals before all is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import implicit_bias as ib
from diagnosis.asking import X, codes, relu
from example_modules import drawn, linear, own_labels

MODULE = relu(outputs=3)
LABELS = own_labels(MODULE, X)


def loader(*, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X, torch.as_tensor(LABELS)), batch_size=5, shuffle=shuffle)


def test_diagnose_reads_a_loader() -> None:
    """Multipliers are in the order of the data set, however the loader shuffles."""
    whole = ib.diagnose(MODULE, X, LABELS)
    found = ib.diagnose(MODULE, loader(shuffle=True))
    assert found.gap == pytest.approx(whole.gap, abs=1e-9)
    assert found.min_margin == whole.min_margin
    np.testing.assert_allclose(found.multipliers, whole.multipliers, rtol=1e-6, atol=1e-9)
    assert codes(found) == codes(whole)


def test_which_norm_and_recorder_read_a_loader() -> None:
    whole = ib.which_norm(MODULE, X, LABELS, norms=["l2"])
    assert ib.which_norm(MODULE, loader(), None, norms=["l2"]).rows == whole.rows
    recorder = ib.Recorder(MODULE, loader(shuffle=True), norms=["l2"])
    row = ib.Recorder(MODULE, X, LABELS, norms=["l2"]).record()
    assert recorder.record() == pytest.approx(row, rel=1e-6)


def test_references_need_no_further_passes_over_a_loader() -> None:
    passes = list[int]()

    class Counted(DataLoader[tuple[Tensor, ...]]):
        """Counts how often it is read."""

        def __iter__(self) -> Any:
            passes.append(len(passes))
            return super().__iter__()

    data = Counted(TensorDataset(X, torch.as_tensor(LABELS)), batch_size=5)
    reading: Any = ib.which_norm
    counts = []
    for references in ([MODULE], [MODULE, MODULE, MODULE]):
        passes.clear()
        reading(MODULE, data, None, norms=["l2"], reference=references)
        counts.append(len(passes))
    assert counts[0] == counts[1] <= 2


def test_a_network_with_batch_norm_is_refused_at_once() -> None:
    """In a few passes of few samples, not of all 2,000."""
    module = nn.Sequential(linear(5, 4), nn.BatchNorm1d(4), nn.ReLU(), linear(4, 3)).eval()
    data = TensorDataset(drawn(2000, 5).float(), torch.arange(2000) % 3)
    seen = 0

    def count(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        nonlocal seen
        seen += len(given[0])

    module.register_forward_pre_hook(count)
    with pytest.raises(ib.HomogeneityError, match="batch_norm"):
        ib.diagnose(module, DataLoader(data, batch_size=128, shuffle=True))
    assert seen < 2000
