"""A loss is judged by its logarithm: any rate passes, and a refusal names one of three reasons."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.loss_tail import TailTest

Loss = Callable[[Tensor, Tensor], Tensor]
JUDGE = TailTest().judge


def signed(outputs: Tensor, targets: Tensor) -> Tensor:
    """Margins of targets 0 and 1."""
    return outputs * (2 * targets - 1)


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = F.cross_entropy(outputs, targets)
    return (1 - torch.exp(-loss)) ** 2 * loss


def power(p: float, outputs: Tensor, targets: Tensor) -> Tensor:
    return (1 + signed(outputs, targets)).clamp_min(1e-3).pow(-p).mean()


def tempered(temperature: float, loss: Loss) -> Loss:
    return lambda outputs, targets: loss(outputs / temperature, targets)


@pytest.mark.parametrize(("temperature", "classes"), [(1e-3, 2), (0.07, 1000), (1e4, 10)])
def test_cross_entropy_passes_at_any_temperature(temperature: float, classes: int) -> None:
    judged = JUDGE(tempered(temperature, F.cross_entropy), classes)
    assert judged.refusal is None
    assert not judged.logarithm


def test_what_a_loss_rounds_to_is_not_its_tail() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.to(torch.bfloat16) / 10.0, targets)

    assert JUDGE(loss, 100).refusal is None


class Centred(nn.Module):
    """Cross-entropy of outputs less their running mean."""

    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 3))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Move the mean, and compare."""
        self.mean = 0.9 * self.mean + 0.1 * outputs
        return F.cross_entropy(outputs - self.mean, targets)


def test_the_buffers_of_a_loss_are_as_they_were() -> None:
    loss = Centred()
    assert JUDGE(loss, 3).refusal is None
    assert loss.mean.dtype is torch.float32
    assert not loss.mean.any()


def test_a_loss_may_raise_anything_on_targets_of_another_kind() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        assert targets.dtype is torch.int64
        return F.cross_entropy(outputs, targets)

    assert JUDGE(loss, 3).refusal is None
    assert JUDGE(loss, None).refusal is Code.LOSS_NOT_CHECKED


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])), None),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]), reduction="none"), 3),
        (lambda s, y: F.cross_entropy(64 * s - 22 * F.one_hot(y, 5), y), 5),
        (focal, 5),
        (lambda s, y: torch.exp(-signed(s, y) * signed(s, y).abs()).sum(), None),
        (lambda s, y: torch.logsumexp(-y * s.squeeze(-1), 0), None),
    ],
)
def test_losses_whose_training_maximises_the_margin_pass(loss: Any, classes: int | None) -> None:
    assert JUDGE(loss, classes).refusal is None


@pytest.mark.parametrize(
    ("loss", "classes", "reason"),
    [
        (partial(power, 0.1), None, Code.NO_EXPONENTIAL_TAIL),
        (partial(power, 50.0), None, Code.NO_EXPONENTIAL_TAIL),
        (nn.MultiMarginLoss(), 3, Code.FINITE_MINIMISER),
        (partial(F.cross_entropy, label_smoothing=1e-6), 9, Code.FINITE_MINIMISER),
        (nn.BCEWithLogitsLoss(), 3, Code.OTHER_MARGIN),
        # Of many classes, in single precision.
        (lambda s, y: F.cross_entropy(s.float() / (1 + y[:, None]), y), 1000, Code.OTHER_MARGIN),
        (lambda s, y: F.softplus(-s * y * (1 + 0.5 * (y > 0))).sum(), None, Code.OTHER_MARGIN),
        (lambda s, y: F.softplus(s.mean() - s[0, y[0]]), 4, Code.OTHER_MARGIN),
        # Of the first class alone, and of the last one.
        (lambda s, y: F.cross_entropy(s * (1.0 + (y == 0))[:, None], y), 3, Code.OTHER_MARGIN),
        (lambda s, y: F.cross_entropy(s * (1.0 + (y == 2))[:, None], y), 3, Code.OTHER_MARGIN),
    ],
)
def test_a_refusal_has_one_reason(loss: Any, classes: int | None, reason: Code) -> None:
    assert JUDGE(loss, classes).refusal is reason


def test_the_logarithm_of_a_loss_is_known_by_its_sign() -> None:
    loss = tempered(0.01, F.cross_entropy)
    assert JUDGE(lambda s, y: loss(s, y).log(), 3).logarithm
