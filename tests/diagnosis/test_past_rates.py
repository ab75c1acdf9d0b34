"""How far decay has acted, by rates told as a list, a scheduler or a trace: products of factors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

import implicit_bias as ib
from diagnosis.asking import finding, quiet
from example_modules import known, seeded
from implicit_bias.diagnosis import Code

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DECAY = 2.0
STEPS = 30


class Training:
    """A linear module, the labels that it gives, and AdamW, of which each rate is kept."""

    def __init__(self, decay: float = DECAY) -> None:
        self.module = seeded(nn.Linear(5, 3).double(), 1)
        self.labels = self.module(X).argmax(dim=1)
        # The biases move at half of the rate, so that decay has acted on them least.
        groups: list[dict[str, Any]] = [
            {"params": [self.module.weight]},
            {"params": [self.module.bias], "lr": 0.005},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=0.01, weight_decay=decay)
        self.rates: list[float] = []
        # What a weight of each group would keep of its start if only decay moved it.
        self.kept = [1.0, 1.0]
        # By how much exp(-sum) may differ from these products: the sum of the squares.
        self.rounding = 0.0

    def step(self, trace: ib.BoxTrace | None = None) -> None:
        """One step of full batches."""
        self.optimizer.zero_grad()
        cross_entropy(self.module(X), self.labels).backward()  # type: ignore[no-untyped-call]
        if trace is not None:
            trace.record()
        self.optimizer.step()
        self.rates.append(self.optimizer.param_groups[0]["lr"])
        for n, group in enumerate(self.optimizer.param_groups):
            shrinks_by = group["lr"] * group["weight_decay"]
            self.kept[n] *= 1.0 - shrinks_by
            self.rounding += shrinks_by**2

    def run(self, scheduler: LRScheduler | None = None, epoch: int = 1) -> None:
        """Train, and step a scheduler after each ``epoch`` steps."""
        for step in range(STEPS):
            self.step()
            if scheduler is not None and (step + 1) % epoch == 0:
                scheduler.step()

    def decayed(self, rates: Any = None) -> float:
        """Return what `box_gap` says."""
        box = ib.box_gap(
            self.module,
            X,
            self.labels,
            optimizer=self.optimizer,
            loss=cross_entropy,
            rates=rates,
        )
        return box.decayed

    def by_hand(self) -> Any:
        """1 - prod_t (1 - eta_t lambda), which 1 - exp(-sum_t eta_t lambda) is up to squares."""
        return pytest.approx(1.0 - max(self.kept), abs=self.rounding)


def cosine(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-4)


def linear(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 20)


def of_each_group(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, [lambda t: 0.9**t, lambda t: 1.0 / (1.0 + t)])


def warmup(optimizer: torch.optim.Optimizer) -> LRScheduler:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.05, 1.0, 10),
        lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 10),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [10])


def test_a_constant_rate_needs_no_telling() -> None:
    training = Training()
    assert math.isnan(training.decayed())  # the state says nothing yet
    training.run()
    assert training.decayed() == training.by_hand()
    assert training.decayed(training.rates) == pytest.approx(training.decayed(), rel=1e-12)


@pytest.mark.parametrize("build", [cosine, linear, of_each_group, warmup])
def test_a_scheduler_is_replayed(build: Callable[[Any], LRScheduler]) -> None:
    training = Training()
    scheduler = build(training.optimizer)
    training.run(scheduler)
    assert math.isnan(training.decayed())
    before = repr(scheduler.state_dict())
    rates = [group["lr"] for group in training.optimizer.param_groups]
    assert training.decayed(scheduler) == training.by_hand()
    # The user's own scheduler and optimizer are as they were.
    assert repr(scheduler.state_dict()) == before
    assert [group["lr"] for group in training.optimizer.param_groups] == rates


def test_before_the_first_change_the_rate_is_that_of_the_start() -> None:
    training = Training()
    scheduler = cosine(training.optimizer)
    for _ in range(3):
        training.step()
    assert training.decayed(scheduler) == pytest.approx(1 - math.exp(-3 * 0.005 * DECAY))


def test_a_scheduler_may_step_per_epoch_or_be_a_step_behind() -> None:
    for epoch in (1, 10):
        training = Training()
        scheduler = linear(training.optimizer)
        training.run(scheduler, epoch=epoch)
        if epoch == 1:
            training.step()
        expected = training.decayed(training.rates)
        assert training.decayed(scheduler) == pytest.approx(expected, rel=1e-9)
        training.step()
        # In the middle of an epoch nothing says how many steps an epoch has.
        with pytest.raises(ValueError, match="list"):
            training.decayed(scheduler)


def test_a_trace_has_counted_the_steps() -> None:
    """Also the rates of groups that are in no proportion, by whatever they are set."""
    training = Training()
    trace = ib.BoxTrace(training.module, training.optimizer, every=50)
    for step in range(STEPS):
        training.optimizer.param_groups[0]["lr"] = 0.01 / (1.0 + step)
        training.optimizer.param_groups[1]["lr"] = 0.005 * 0.9**step
        training.step(trace)
    assert training.decayed(trace) == training.by_hand()
    training.step()
    with pytest.raises(ValueError, match="30 steps"):
        training.decayed(trace)


def test_each_of_several_optimizers_has_its_scheduler() -> None:
    """Decay has acted least on the biases."""
    module = seeded(nn.Linear(5, 3).double(), 1)
    optimizers = [
        torch.optim.AdamW([module.weight], lr=0.01, weight_decay=DECAY),
        torch.optim.AdamW([module.bias], lr=0.02, weight_decay=0.5),
    ]
    schedulers = [
        lr_scheduler.ExponentialLR(optimizers[0], 0.95),
        lr_scheduler.StepLR(optimizers[1], 3),
    ]
    labels = torch.arange(8) % 3
    total = 0.0
    for _ in range(10):
        cross_entropy(module(X), labels).backward()  # type: ignore[no-untyped-call]
        total += 0.5 * optimizers[1].param_groups[0]["lr"]
        for optimizer, scheduler in zip(optimizers, schedulers, strict=True):
            optimizer.step()
            scheduler.step()

    def decayed(rates: Any) -> float:
        found = ib.box_gap(module, X, labels, optimizer=optimizers, loss=cross_entropy, rates=rates)
        return found.decayed

    assert decayed(schedulers) == pytest.approx(1.0 - math.exp(-total), rel=1e-9)
    # The other optimizer may be the one on which decay has acted least.
    for scheduler in schedulers:
        assert math.isnan(decayed(scheduler))


def test_what_never_had_a_gradient_does_not_count() -> None:
    module = seeded(nn.Linear(5, 3).double(), 1)
    module.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    adamw = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=DECAY)
    trace = ib.BoxTrace(module, adamw)
    scheduler = lr_scheduler.ConstantLR(adamw, 1.0)
    labels = torch.arange(8) % 3
    for _ in range(10):
        adamw.zero_grad()
        cross_entropy(module(X), labels).backward()  # type: ignore[no-untyped-call]
        trace.record()
        adamw.step()
        scheduler.step()
    assert trace.rows[-1]["decayed"] == pytest.approx(1.0 - math.exp(-0.09 * DECAY))
    for rates in (trace, scheduler, [0.01] * 10):
        found = ib.box_gap(module, X, labels, optimizer=adamw, loss=cross_entropy, rates=rates)
        assert found.decayed == pytest.approx(1.0 - math.exp(-0.1 * DECAY))


def test_what_cannot_tell_the_rates_is_refused() -> None:
    training = Training()
    training.run()
    other = Training()
    with pytest.raises(ValueError, match="29"):
        training.decayed(training.rates[:-1])
    with pytest.raises(ValueError, match="no trained tensor"):
        training.decayed(cosine(other.optimizer))


def test_optimizers_that_do_not_count_steps_take_lists() -> None:
    module = seeded(nn.Linear(5, 3, bias=False).double(), 1)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.3)
    scheduler = lr_scheduler.ExponentialLR(sgd, 0.9)
    labels = module(X).argmax(dim=1)
    with pytest.raises(ValueError, match="does not count"):
        ib.box_gap(module, X, labels, optimizer=sgd, loss=cross_entropy, rates=scheduler)
    found = ib.box_gap(module, X, labels, optimizer=sgd, loss=cross_entropy, rates=[0.1, 0.05])
    assert found.decayed == pytest.approx(1.0 - math.exp(-0.3 * 0.15))


def test_a_diagnosis_is_told_in_the_same_ways() -> None:
    training = Training(decay=0.1)
    scheduler = linear(training.optimizer)
    training.run(scheduler)
    module = training.module
    options: dict[str, Any] = {"optimizer": training.optimizer, "loss": cross_entropy}
    found = quiet(module, X, training.labels, **options)
    assert math.isnan(known(found.box).decayed)
    assert finding(found, Code.DECAY_IS_UNKNOWN).value == 0.1
    told = quiet(module, X, training.labels, rates=scheduler, **options)
    assert known(told.box).decayed == training.by_hand()
    assert finding(told, Code.DECAY_HAS_HARDLY_ACTED).value == known(told.box).decayed
    # Rates that are wrong are an error, not a diagnosis without a box.
    with pytest.raises(ValueError, match="29"):
        quiet(module, X, training.labels, rates=training.rates[:-1], **options)
