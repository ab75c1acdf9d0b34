"""A loss is judged by its logarithm: any rate passes, and a refusal names one of three reasons."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.loss_tail import InDoublePrecision, TailTest

Loss = Callable[[Tensor, Tensor], Tensor]
JUDGE = TailTest().judge
PRIORS = torch.tensor([1e-3, 0.1, 0.2, 0.3, 0.4]).double().log()


def signed(outputs: Tensor, targets: Tensor) -> Tensor:
    """Margins of targets 0 and 1."""
    return outputs * (2 * targets - 1)


def focal(outputs: Tensor, targets: Tensor) -> Tensor:
    loss = F.cross_entropy(outputs, targets)
    return (1 - torch.exp(-loss)) ** 2 * loss


def tempered(temperature: float, loss: Loss) -> Loss:
    return lambda outputs, targets: loss(outputs / temperature, targets)


def powered(p: float) -> Loss:
    return lambda s, y: (1 + signed(s, y)).clamp_min(1e-3).pow(-p).mean()


def of_margin(tail: Callable[[Tensor], Tensor]) -> Loss:
    return lambda s, y: tail(signed(s, y)).sum()


@pytest.mark.parametrize(("temperature", "classes"), [(1e-3, 2), (0.07, 1000), (1e4, 10)])
def test_cross_entropy_passes_at_any_temperature(temperature: float, classes: int) -> None:
    assert JUDGE(tempered(temperature, F.cross_entropy), classes).refusal is None


def one_by_one(outputs: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy by a sum that rounds after each class: the worst that a processor may do."""
    differences = outputs - outputs.gather(1, targets[:, None])
    return torch.cumsum(torch.exp(differences), 1)[0, -1].log()


def test_a_sum_that_rounds_after_each_class_passes() -> None:
    assert JUDGE(tempered(0.083, one_by_one), 1000).refusal is None


@pytest.mark.parametrize(
    ("temperature", "classes", "dtype"), [(0.01, 2, torch.float16), (10.0, 100, torch.bfloat16)]
)
def test_what_a_loss_rounds_to_is_not_its_tail(
    temperature: float, classes: int, dtype: torch.dtype
) -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(outputs.to(dtype) / temperature, targets)

    assert JUDGE(loss, classes).refusal is None


def test_in_double_precision_each_way_to_round_does_nothing() -> None:
    third = torch.tensor(1.0, dtype=torch.float64) / 3.0
    single = torch.tensor([1.0])
    with InDoublePrecision():
        rounded = [
            *(third.float(), third.half(), third.bfloat16(), third.to(torch.float16)),
            *(third.to(single), third.type_as(single), third.type(torch.float32)),
            torch.stack([third.float(), third]),
            third.sum(dtype=torch.float32),
        ]
        made = [torch.zeros(2), torch.ones(2, dtype=torch.float16), single * 1, torch.eye(2)]
        assert torch.tensor([1]).dtype is torch.int64
        assert torch.tensor([1]).float().dtype is torch.float64
        assert third.to("cpu", torch.float32) == third
    for tensor in rounded:
        assert tensor.dtype is torch.float64
        assert (tensor == third).all()
    assert {tensor.dtype for tensor in made} == {torch.float64}
    assert third.float().dtype is torch.float32


def test_a_loss_reads_what_it_has_written_to_a_tensor_of_its_own() -> None:
    scratch = torch.zeros(1, 3)

    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        scratch[:] = outputs
        return F.cross_entropy(scratch.mul_(2.0), targets)

    assert JUDGE(loss, 3).refusal is None
    assert not scratch.any()


def test_a_loss_may_write_to_its_targets() -> None:
    assert JUDGE(lambda s, y: F.softplus(-s * y.mul_(2).sub_(1)).sum(), None).low_label == 0.0


class Centred(nn.Module):
    """Cross-entropy of outputs less their running mean."""

    mean: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(1, 3))
        self.register_buffer("calls", torch.zeros(1, dtype=torch.float64))

    def forward(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Move the mean, and compare."""
        self.calls += 1
        self.mean = 0.9 * self.mean + 0.1 * outputs
        return F.cross_entropy(outputs - self.mean, targets)


def test_the_buffers_of_a_loss_are_as_they_were() -> None:
    loss = Centred()
    assert JUDGE(loss, 3).refusal is None
    assert loss.mean.dtype is torch.float32
    assert not loss.mean.any()
    assert loss.calls == 0.0


def test_a_loss_may_raise_anything_on_targets_of_another_kind() -> None:
    def loss(outputs: Tensor, targets: Tensor) -> Tensor:
        assert targets.dtype is torch.int64
        return F.cross_entropy(outputs, targets)

    assert JUDGE(loss, 3).refusal is None
    assert JUDGE(loss, None).refusal is Code.LOSS_NOT_CHECKED


@pytest.mark.parametrize(
    ("loss", "classes"),
    [
        (nn.CrossEntropyLoss(reduction="none"), 10),
        (tempered(0.01, lambda s, y: F.cross_entropy(s, y).log()), 4),
        (nn.SoftMarginLoss(reduction="sum"), None),
        (nn.BCEWithLogitsLoss(pos_weight=torch.tensor([3.0])), None),
        (nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])), 3),
        (lambda s, y: F.cross_entropy(s, y) + 0.5, 3),
        (lambda s, y: F.cross_entropy(s + PRIORS, y), 5),
        (lambda s, y: F.cross_entropy(64 * s - 22 * F.one_hot(y, 5), y), 5),
        (lambda s, y: torch.exp(s - s.gather(1, y[:, None])).sum(), 5),
        (focal, 5),
        (of_margin(lambda q: 1 - q.sigmoid()), None),
        (of_margin(lambda q: torch.exp(-q * q.abs())), None),
        (of_margin(lambda q: torch.exp(-q.sign() * q.abs().sqrt())), None),
        (lambda s, y: torch.logsumexp(-y * s.squeeze(-1), 0), None),
    ],
)
def test_losses_whose_training_maximises_the_margin_pass(loss: Any, classes: int | None) -> None:
    assert JUDGE(loss, classes).refusal is None


@pytest.mark.parametrize(
    ("loss", "classes", "reason"),
    [
        *((powered(p), None, Code.NO_EXPONENTIAL_TAIL) for p in (0.1, 50.0)),
        (nn.MSELoss(), None, Code.FINITE_MINIMISER),
        (nn.MultiMarginLoss(), 3, Code.FINITE_MINIMISER),
        (of_margin(lambda q: (1 - q).relu() ** 3), None, Code.FINITE_MINIMISER),
        (partial(F.cross_entropy, label_smoothing=1e-6), 9, Code.FINITE_MINIMISER),
        (
            lambda s, y: F.cross_entropy(s, y) + 1e-4 * torch.logsumexp(s, 1).square().mean(),
            *(3, Code.FINITE_MINIMISER),
        ),
        (nn.BCEWithLogitsLoss(), 3, Code.OTHER_MARGIN),
        # Of many classes, in single precision.
        (lambda s, y: F.cross_entropy(s.float() / (1 + y[:, None]), y), 1000, Code.OTHER_MARGIN),
        (lambda s, y: F.softplus(-s * y * (1 + 0.5 * (y > 0))).sum(), None, Code.OTHER_MARGIN),
        (lambda s, y: F.softplus(s.mean() - s[0, y[0]]), 4, Code.OTHER_MARGIN),
        (lambda s, y: -s[0, y[0]], 4, Code.OTHER_MARGIN),
    ],
)
def test_a_refusal_has_one_reason(loss: Any, classes: int | None, reason: Code) -> None:
    assert JUDGE(loss, classes).refusal is reason


def test_what_takes_no_targets_is_not_judged() -> None:
    assert JUDGE(lambda outputs: outputs, None).refusal is Code.LOSS_NOT_CHECKED


def test_the_logarithm_of_a_loss_is_known_by_its_sign() -> None:
    loss = tempered(0.01, F.cross_entropy)
    assert not JUDGE(loss, 3).logarithm
    assert JUDGE(lambda s, y: loss(s, y).log(), 3).logarithm
