"""A loader in the place of tensors: the same numbers, and a residual network with batch norm."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import implicit_bias as ib
from diagnosis.asking import X, codes, relu
from example_modules import own_labels
from implicit_bias.modules.margins import Margins

MODULE = relu(outputs=3)
LABELS = own_labels(MODULE, X)


def loader(*, shuffle: bool = False) -> DataLoader[tuple[Tensor, ...]]:
    return DataLoader(TensorDataset(X, torch.as_tensor(LABELS)), batch_size=5, shuffle=shuffle)


@pytest.mark.parametrize("shuffle", [False, True])
def test_diagnose_reads_a_loader(*, shuffle: bool) -> None:
    """Multipliers are in the order of the data set, however the loader shuffles."""
    whole = ib.diagnose(MODULE, X, LABELS)
    found = ib.diagnose(MODULE, loader(shuffle=shuffle))
    assert found.gap == pytest.approx(whole.gap, abs=1e-9)
    assert found.min_margin == whole.min_margin
    np.testing.assert_allclose(found.multipliers, whole.multipliers, rtol=1e-6, atol=1e-9)
    assert codes(found) == codes(whole)


def test_which_norm_and_recorder_read_a_loader() -> None:
    whole = ib.which_norm(MODULE, X, LABELS, norms=["l2"], reference=MODULE)
    reading: Any = ib.which_norm
    found = reading(MODULE, loader(), None, norms=["l2"], reference=MODULE)
    assert found.rows == whole.rows
    recorder = ib.Recorder(MODULE, loader(shuffle=True), norms=["l2"])
    row = ib.Recorder(MODULE, X, LABELS, norms=["l2"]).record()
    assert recorder.record() == pytest.approx(row, rel=1e-6)


class Block(nn.Module):
    """Two normalised convolutions beside a shortcut."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, width, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm_of_second = nn.BatchNorm2d(width)
        self.shortcut = nn.Conv2d(given, width, 1, stride, bias=False)
        self.norm_of_shortcut = nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return activations of half the height and width, where the stride is 2."""
        inner: Tensor = self.norm(self.first(x)).relu()
        outer: Tensor = self.norm_of_second(self.second(inner))
        shortcut: Tensor = self.norm_of_shortcut(self.shortcut(x))
        return (outer + shortcut).relu()


def resnet(width: int) -> nn.Sequential:
    torch.manual_seed(0)
    blocks = [Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2)]
    first = nn.Conv2d(3, width, 3, 1, 1, bias=False)
    last = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, 10, bias=False))
    return nn.Sequential(first, nn.BatchNorm2d(width), nn.ReLU(), *blocks, *last)


def test_a_residual_network_with_batch_norm_is_refused_at_once() -> None:
    """Of 2,000 images of 8 x 8 in a few passes of few samples, not of all."""
    module = resnet(12).eval()
    images = torch.randn(2000, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    data = TensorDataset(images, torch.arange(2000) % 10)
    seen = 0

    def count(part: nn.Module, given: tuple[Tensor, ...]) -> None:
        nonlocal seen
        seen += len(given[0])

    module.register_forward_pre_hook(count)
    with pytest.raises(ib.HomogeneityError, match="batch_norm"):
        ib.diagnose(module, DataLoader(data, batch_size=128, shuffle=True))
    assert seen < 2000
    adamw = torch.optim.AdamW(module.parameters())
    box = ib.box_gap(
        module,
        DataLoader(torch.utils.data.Subset(data, range(256)), batch_size=128),
        optimizer=adamw,
        loss=nn.functional.cross_entropy,
    )
    assert 0.0 < box.score < 2.0


def test_blocks_hold_as_many_activations_as_there_is_room_for() -> None:
    """The same outputs and gradients, in more blocks."""
    module = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.ReLU(), nn.Flatten(), nn.Linear(75, 1)
    ).double()
    images = torch.randn(300, 1, 5, 5, dtype=torch.float64)
    labels = torch.ones(300)
    whole = Margins(module, (images,), labels)
    assert whole.block == 4096
    parts = Margins(module, (images,), labels)
    # Of each sample autograd keeps the input and the 75 activations behind the ReLU.
    parts.entries = 100 * (25 + 75)
    assert parts.block == 100
    np.testing.assert_allclose(parts.margins(parts.theta), whole.margins(whole.theta))
    weights = np.random.default_rng(0).random(300)
    torch.testing.assert_close(
        parts.combine(parts.theta, weights), whole.combine(whole.theta, weights)
    )
    chosen = np.array([0, 70, 299])
    np.testing.assert_allclose(parts.gram(parts.theta, chosen), whole.gram(whole.theta, chosen))
