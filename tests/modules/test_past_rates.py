"""How far decay has acted, by rates told as a list, a scheduler or a trace."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD, AdamW, Optimizer, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

import implicit_bias as ib
from diagnosis.asking import finding, quiet
from example_modules import known, seeded
from implicit_bias.diagnosis import Code

X = torch.randn(8, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
DECAY = 2.0
STEPS = 30


class Training:
    """A linear module, the labels that it gives, and optimizers, of which each rate is kept."""

    def __init__(self, module: nn.Module, *optimizers: Optimizer) -> None:
        self.module = module
        self.labels = module(X).argmax(dim=1)
        self.optimizers = list(optimizers)
        self.groups = [group for each in optimizers for group in each.param_groups]
        self.rates: list[float] = []
        # Rate times decay, of each group.
        self.sums = [0.0] * len(self.groups)

    def step(self, trace: ib.BoxTrace | None = None) -> None:
        """One step of full batches."""
        self.module.zero_grad()
        cross_entropy(self.module(X), self.labels).backward()  # type: ignore[no-untyped-call]
        if trace is not None:
            trace.record()
        for optimizer in self.optimizers:
            optimizer.step()
        self.rates.append(self.groups[0]["lr"])
        for n, group in enumerate(self.groups):
            self.sums[n] += group["lr"] * group["weight_decay"]

    def run(
        self, *schedulers: LRScheduler, epoch: int = 1, trace: ib.BoxTrace | None = None
    ) -> None:
        """Train, and step the schedulers after each ``epoch`` steps."""
        for step in range(STEPS):
            self.step(trace)
            if (step + 1) % epoch == 0:
                for scheduler in schedulers:
                    scheduler.step()

    def box(self, rates: Any = None) -> ib.BoxLimit:
        """Return what `box_gap` finds."""
        told: dict[str, Any] = {"optimizer": self.optimizers, "rates": rates}
        return ib.box_gap(self.module, X, self.labels, loss=cross_entropy, **told)

    def decayed(self, rates: Any = None) -> float:
        """Return how far decay has acted by `box_gap`."""
        return self.box(rates).decayed

    def by_hand(self) -> Any:
        """1 - exp(-sum_t eta_t lambda), of the group on which decay has acted least."""
        return pytest.approx(1.0 - math.exp(-min(self.sums)), rel=1e-9)


def linear() -> nn.Linear:
    return seeded(nn.Linear(5, 3).double(), 1)


def two_groups(decay: float = DECAY) -> Training:
    """Move the biases at half of the rate, so that decay has acted on them least."""
    module = linear()
    groups: list[dict[str, Any]] = [
        {"params": [module.weight]},
        {"params": [module.bias], "lr": 0.005},
    ]
    return Training(module, AdamW(groups, lr=0.01, weight_decay=decay))


def cosine(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.CosineAnnealingLR(optimizer, STEPS, eta_min=1e-4)


def rising(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.LinearLR(optimizer, 0.1, 1.0, 20)


def of_each_group(optimizer: Optimizer) -> LRScheduler:
    return lr_scheduler.LambdaLR(optimizer, [lambda t: 0.9**t, lambda t: 1.0 / (1.0 + t)])


def warmup(optimizer: Optimizer) -> LRScheduler:
    parts = [
        lr_scheduler.LinearLR(optimizer, 0.05, 1.0, 10),
        lr_scheduler.CosineAnnealingLR(optimizer, STEPS - 10),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, [10])


def test_a_constant_rate_needs_no_telling() -> None:
    training = two_groups()
    assert math.isnan(training.decayed())  # the state says nothing yet
    training.run()
    assert training.decayed() == training.by_hand()
    assert training.decayed(training.rates) == training.by_hand()
    training.groups[0]["lr"] = 0.0  # set after the steps, so that it says nothing of them
    assert math.isnan(training.decayed())


@pytest.mark.parametrize("build", [cosine, rising, of_each_group, warmup])
def test_a_scheduler_is_replayed(build: Callable[[Any], LRScheduler]) -> None:
    training = two_groups()
    scheduler = build(training.optimizers[0])
    training.run(scheduler)
    assert math.isnan(training.decayed())
    before = repr(scheduler.state_dict())
    rates = [group["lr"] for group in training.groups]
    assert training.decayed(scheduler) == training.by_hand()
    # The user's own scheduler and optimizer are as they were.
    assert repr(scheduler.state_dict()) == before
    assert [group["lr"] for group in training.groups] == rates


def test_before_the_first_change_the_rate_is_that_of_the_start() -> None:
    training = two_groups()
    scheduler = cosine(training.optimizers[0])
    for _ in range(3):
        training.step()
    assert training.decayed(scheduler) == training.by_hand()


@pytest.mark.parametrize("epoch", [1, 3, 4, 5])
def test_a_scheduler_may_step_per_epoch_of_few_steps(epoch: int) -> None:
    """In the middle of an epoch, too: no other length of the epochs fits both counts."""
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler, epoch=epoch)
    lengths: tuple[int, ...] = (epoch,)
    if epoch == 1:
        lengths = ()  # after each step there are no epochs to assume
    for _ in range(2):
        found = training.box(scheduler)
        assert found.decayed == training.by_hand()
        assert found.epoch_steps == lengths
        training.step()


def test_a_scheduler_may_step_after_each_of_five_complete_epochs() -> None:
    """30 steps and 5 changes: six steps each, though five and a rest would fit as well."""
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler, epoch=6)
    assert training.decayed(scheduler) == training.by_hand()


def test_the_length_of_an_epoch_that_is_assumed_is_shown() -> None:
    """In the middle of the sixth of epochs of six steps, as if five of seven were complete."""
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler, epoch=6)
    for _ in range(5):
        training.step()
    found = training.box(scheduler)
    assert found.epoch_steps == (7,)
    assert found.decayed != training.by_hand()
    assert "epochs of 7 steps" in str(found)
    assert training.box(training.rates).epoch_steps == ()


@pytest.mark.parametrize("epoch", [10, STEPS])
@pytest.mark.parametrize("more", [0, 3])
def test_few_epochs_do_not_say_how_many_steps_they_have(epoch: int, more: int) -> None:
    """30 steps and 3 changes: epochs of ten steps, or of eight, and six steps of a fourth epoch."""
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler, epoch=epoch)
    for _ in range(more):
        training.step()
    with pytest.raises(ValueError, match="fifth.* list"):
        training.decayed(scheduler)


def test_a_scheduler_does_not_step_more_often_than_its_optimizer() -> None:
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler)
    scheduler.step()
    with pytest.raises(ValueError, match="list"):
        training.decayed(scheduler)


def test_a_trace_has_counted_the_steps() -> None:
    """Also the rates of groups that are in no proportion, by whatever they are set."""
    training = two_groups()
    trace = ib.BoxTrace(training.module, training.optimizers, every=50)
    for step in range(STEPS):
        training.groups[0]["lr"] = 0.01 / (1.0 + step)
        training.groups[1]["lr"] = 0.005 * 0.9**step
        training.step(trace)
    assert training.decayed(trace) == training.by_hand()
    training.step()
    with pytest.raises(ValueError, match="30 steps"):
        training.decayed(trace)


def test_each_of_several_optimizers_has_its_scheduler() -> None:
    module = linear()
    first = AdamW([module.weight], lr=0.01, weight_decay=DECAY)
    last = AdamW([module.bias], lr=0.02, weight_decay=0.5)
    training = Training(module, first, last)
    schedulers = [lr_scheduler.ExponentialLR(first, 0.95), lr_scheduler.StepLR(last, 10)]
    training.run(*schedulers)
    assert training.decayed(schedulers) == training.by_hand()
    # The other optimizer may be the one on which decay has acted least.
    for scheduler in schedulers:
        assert math.isnan(training.decayed(scheduler))


def test_what_never_had_a_gradient_does_not_count() -> None:
    module = linear()
    module.register_parameter("unused", nn.Parameter(torch.ones(2, dtype=torch.float64)))
    adamw = AdamW(module.parameters(), lr=0.01, weight_decay=DECAY)
    training, trace = Training(module, adamw), ib.BoxTrace(module, adamw)
    scheduler = lr_scheduler.ConstantLR(adamw, 1.0)
    training.run(scheduler, trace=trace)
    before_the_last = pytest.approx(1.0 - math.exp(-0.01 * (STEPS - 1) * DECAY))
    assert trace.rows[-1]["decayed"] == before_the_last
    for rates in (trace, scheduler, training.rates):
        assert training.decayed(rates) == training.by_hand()


def test_what_cannot_tell_the_rates_is_refused() -> None:
    training = two_groups()
    training.run()
    with pytest.raises(ValueError, match="29"):
        training.decayed(training.rates[:-1])
    with pytest.raises(ValueError, match="no trained tensor"):
        training.decayed(cosine(two_groups().optimizers[0]))
    with pytest.raises(ValueError, match="ReduceLROnPlateau"):
        training.decayed(lr_scheduler.ReduceLROnPlateau(training.optimizers[0]))


def test_a_scheduler_that_another_hand_has_corrected_is_refused() -> None:
    training = two_groups()
    scheduler = rising(training.optimizers[0])
    training.run(scheduler)
    training.optimizers[0].param_groups[0]["lr"] *= 1.0001
    with pytest.raises(ValueError, match="something else"):
        training.decayed(scheduler)


def test_optimizers_that_do_not_count_steps_take_lists() -> None:
    module = linear()
    training = Training(module, SGD(module.parameters(), lr=0.1, weight_decay=0.3))
    with pytest.raises(ValueError, match="does not count"):
        training.decayed(lr_scheduler.ExponentialLR(training.optimizers[0], 0.9))
    assert training.decayed([0.1, 0.05]) == pytest.approx(1.0 - math.exp(-0.3 * 0.15))


def test_a_diagnosis_is_told_in_the_same_ways() -> None:
    training = two_groups(decay=0.1)
    scheduler = rising(training.optimizers[0])
    training.run(scheduler)
    options: dict[str, Any] = {"optimizer": training.optimizers, "loss": cross_entropy}
    found = quiet(training.module, X, training.labels, **options)
    assert math.isnan(known(found.box).decayed)
    assert finding(found, Code.DECAY_IS_UNKNOWN).value == 0.1
    told = quiet(training.module, X, training.labels, rates=scheduler, **options)
    assert known(told.box).decayed == training.by_hand()
    assert finding(told, Code.DECAY_HAS_HARDLY_ACTED).value == known(told.box).decayed
    # Rates that are wrong are an error, not a diagnosis without a box.
    with pytest.raises(ValueError, match="29"):
        quiet(training.module, X, training.labels, rates=training.rates[:-1], **options)
