r"""How far weight decay has acted on each tensor, by the learning rates of the past steps.

A step with decoupled decay lambda multiplies the weights by 1 - eta_t lambda, so that after all of
them a weight has kept

    prod_t (1 - eta_t lambda)  =  exp(-sum_t eta_t lambda)      up to (eta_t lambda)^2 / 2 a step

of its start. Coupled decay is lengthened by momentum, and where steps are normalized (Adam) how far
it has acted depends on the gradients. `sums_of_decay` finds the sum of each tensor. An optimizer's
state has the rate of now alone, so that a constant rate is read from it, and the rates under a
scheduler are told by the caller: as a list, by the scheduler, or by a trace of the training.

A scheduler is replayed on an optimizer of its own, built from the settings that it shows, and must
end at the rates that the user's scheduler has set last. The user's one is only read. Both count
their steps. After n steps of the scheduler, once per epoch, and T of the optimizer, epochs have

    T / (n + 1)  <=  p  <=  T / n

steps, all alike. Where one whole number p alone is possible, it is taken. Else the last epoch is
assumed to be complete if n divides T and n is 5 or more; p = T / n is then part of the answer.
In all other cases a list is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch.optim.lr_scheduler import LRScheduler, SequentialLR

from implicit_bias.base.validation import Array
from implicit_bias.modules.steps import Step, each_of

# Settings of the schedulers of torch whose rates are functions of their steps alone. They are
# attributes and arguments by the same name.
SETTINGS: dict[str, tuple[str, ...]] = {
    "StepLR": ("step_size", "gamma"),
    "ConstantLR": ("factor", "total_iters"),
    "LinearLR": ("start_factor", "end_factor", "total_iters"),
    "ExponentialLR": ("gamma",),
    "PolynomialLR": ("total_iters", "power"),
    "CosineAnnealingLR": ("T_max", "eta_min"),
}
# From so many steps of a scheduler on, a count of steps that they divide is one of complete epochs.
LEAST_EPOCHS = 5
CURE = "pass the rate of each step as a list, param_groups[0]['lr'], or a BoxTrace of the training"


@runtime_checkable
class DecayCount(Protocol):
    """What `BoxTrace` has counted.

    Attributes
    ----------
    decay_so_far : dict from str to float
        Sum of rate times decay of each tensor with decay, by name.
    steps_taken : int
        Number of steps that it has seen.
    """

    decay_so_far: dict[str, float]
    steps_taken: int


@dataclass(frozen=True)
class PastDecay:
    """What the rates of the past steps say of the decay of each tensor.

    Attributes
    ----------
    sums : dict from str to float
        sum_t eta_t lambda of each tensor that has decay, by name; nan where it is not known.
    epoch_steps : tuple of int
        Optimizer steps per epoch that were inferred of schedulers that step once per epoch, from
        the shortest to the longest; empty without such.
    """

    sums: dict[str, float]
    epoch_steps: tuple[int, ...] = ()


Rates: TypeAlias = ArrayLike | LRScheduler | Sequence[LRScheduler] | DecayCount


def sums_of_decay(optimizer: object, steps: Sequence[Step], rates: Rates | None) -> PastDecay:
    """Return sum_t eta_t lambda of each tensor that has decay; nan where it is not known.

    Parameters
    ----------
    optimizer : torch.optim.Optimizer, or a sequence of them
        What trains the tensors.
    steps : sequence of Step
        Of all trained tensors, as `steps_of` finds them.
    rates : sequence of float, LRScheduler, sequence of LRScheduler, BoxTrace, or None
        As in `box_gap`.

    Raises
    ------
    ValueError
        Rates that are negative or not finite, or not as many as steps were taken; a scheduler that
        cannot be replayed, has stepped too seldom, or is of no optimizer given; a trace
        of some steps only, or of another module. A list or a scheduler where a tensor was moved in
        some of the steps only.
    """
    decaying = [step for step in steps if step.decay > 0.0]
    # What never had a gradient is not trained, and does not decay.
    moved = [step for step in decaying if step.taken != 0.0]
    decaying = moved or decaying
    taken = _count(steps)
    if rates is None:
        return PastDecay(_of_state(decaying))
    if isinstance(rates, DecayCount):
        return PastDecay(_of_trace(decaying, rates, taken))
    schedulers = _as_schedulers(rates)
    if not schedulers:
        first = each_of(optimizer)[0].param_groups[0]
        return PastDecay(_of_list(decaying, rates, taken, first))
    sums = _of_state(decaying)  # of optimizers without a scheduler
    lengths = set[int]()
    for scheduler in schedulers:
        scheduled = _of_scheduler(decaying, scheduler, steps, taken)
        sums |= scheduled.sums
        lengths.update(scheduled.epoch_steps)
    return PastDecay(sums, tuple(sorted(lengths)))


def _of_state(decaying: Sequence[Step]) -> dict[str, float]:
    """Take the rate of now for that of all steps."""
    sums = {}
    for step in decaying:
        # A rate of 0 was set after the steps, so it says nothing of them.
        if step.scheduled or (step.rate == 0.0 and step.taken > 0.0):
            sums[step.name] = math.nan
        else:
            sums[step.name] = step.shrinking * step.taken * step.rate
    return sums


def _of_list(
    decaying: Sequence[Step], rates: Any, taken: float, first: Mapping[str, Any]
) -> dict[str, float]:
    """Sum a list of the rates of the first parameter group."""
    total = math.fsum(_checked(rates, taken))
    _check_moved_always(decaying, taken)
    return {step.name: step.shrinking * total * _proportion(step, first) for step in decaying}


def _of_scheduler(
    decaying: Sequence[Step], scheduler: LRScheduler, steps: Sequence[Step], taken: float
) -> PastDecay:
    """Sum the rates that a scheduler has set, of the tensors of its own optimizer."""
    by_id = {id(step.parameter): step for step in steps}
    # The tensors of each group that are trained.
    groups = []
    for group in scheduler.optimizer.param_groups:
        groups.append([by_id[id(p)] for p in group["params"] if id(p) in by_id])
    scheduled = [step for of_group in groups for step in of_group]
    if not scheduled:
        raise ValueError(
            f"the scheduler {type(scheduler).__name__} in rates= sets the rate of no trained "
            "tensor of the module: pass the scheduler of the optimizer in optimizer="
        )
    # Optimizers may step at different times. One without a count (Muon, SGD) is taken to step
    # together with those that count.
    count = _count(scheduled)
    if math.isnan(count):
        count = taken
    totals, epoch_steps = _totals(scheduler, count)
    sums = {}
    for of_group, total in zip(groups, totals, strict=True):
        counted = [step for step in of_group if step in decaying]
        _check_moved_always(counted, count)
        for step in counted:
            sums[step.name] = step.shrinking * total
    return PastDecay(sums, epoch_steps)


def _count(steps: Sequence[Step]) -> float:
    """Return the number of steps of a training: the largest of its tensors; nan where unknown."""
    return max((step.taken for step in steps if not math.isnan(step.taken)), default=math.nan)


def _check_moved_always(steps: Sequence[Step], taken: float) -> None:
    """Refuse tensors that had no gradient in some steps, in which they do not decay either."""
    for step in steps:
        if step.taken < taken:
            raise ValueError(
                f"the tensor {step.name!r} was moved in {step.taken:g} of {taken:g} steps, and "
                "these rates do not say in which: pass a BoxTrace of the training"
            )


def _proportion(step: Step, first: Mapping[str, Any]) -> float:
    """Return the rate of a tensor over that of the first parameter group."""
    if any(parameter is step.parameter for parameter in first["params"]):
        return 1.0
    first_rate = float(first.get("initial_lr", first["lr"]))
    if first_rate == 0.0:
        raise ValueError(
            "the rate of the first parameter group is 0, so that a list of its rates does not say "
            "those of other groups: pass the scheduler, or a BoxTrace of the training"
        )
    return step.first_rate / first_rate


def _of_trace(decaying: Sequence[Step], trace: DecayCount, taken: float) -> dict[str, float]:
    """Read what a trace has counted."""
    if not math.isnan(taken) and trace.steps_taken != taken:
        raise ValueError(
            f"the trace in rates= has seen {trace.steps_taken} steps, but the optimizer has taken "
            f"{taken:g}: call its record at each step, or pass the rates of all steps as a list"
        )
    missing = [step.name for step in decaying if step.name not in trace.decay_so_far]
    if missing:
        raise ValueError(
            f"the trace in rates= has not seen the tensor {missing[0]!r} with weight decay: pass "
            "the trace of this module and these optimizers"
        )
    return {step.name: trace.decay_so_far[step.name] for step in decaying}


def _as_schedulers(rates: Any) -> list[LRScheduler]:
    """Return the schedulers that are given, one or several; none of a list of numbers."""
    if isinstance(rates, LRScheduler):
        return [rates]
    if isinstance(rates, list | tuple) and any(isinstance(one, LRScheduler) for one in rates):
        if not all(isinstance(one, LRScheduler) for one in rates):
            raise ValueError("rates must be all numbers or all schedulers: pass one kind")
        return list(rates)
    return []


def _checked(rates: Any, taken: float) -> Array:
    """Return a list of rates as an array, one per step."""
    try:
        found = np.asarray(rates, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(
            f"rates must be learning rates, a scheduler of torch or a BoxTrace, got {rates!r}: "
            f"{CURE}"
        ) from None
    if found.ndim != 1 or not np.isfinite(found).all() or (found < 0.0).any():
        raise ValueError(
            "rates must be one finite number >= 0 per step, in one list: pass the learning rate "
            "of the first parameter group at each step"
        )
    if not math.isnan(taken) and len(found) != taken:
        raise ValueError(
            f"rates has {len(found)} learning rates, but the optimizer has taken {taken:g} steps: "
            "pass one per optimizer step, not per epoch, and none before the first step"
        )
    return found


def _totals(scheduler: LRScheduler, taken: float) -> tuple[list[float], tuple[int, ...]]:
    """Return the sum of the rates of each parameter group, and the steps per epoch, if several."""
    if math.isnan(taken):
        raise ValueError(
            "a scheduler tells the rates only together with the number of steps, which the state "
            f"of this optimizer does not count: {CURE}"
        )
    rates = _replayed(scheduler)
    n_scheduled = len(rates) - 1  # steps of the scheduler
    if n_scheduled == 0:
        return [taken * rate for rate in rates[0]], ()
    # With p steps per epoch there are p n steps up to the scheduler's last one, and at most p since
    # then: p n <= T <= p (n + 1).
    shortest = math.ceil(taken / (n_scheduled + 1))
    longest = int(taken // n_scheduled)
    # If the largest p leaves no steps since the scheduler's last one, the epoch is complete. By
    # accident that is so in one of n cases.
    complete = taken == longest * n_scheduled and n_scheduled >= LEAST_EPOCHS
    if shortest > longest:
        raise ValueError(
            f"the scheduler has stepped {n_scheduled} times in {taken:g} steps of the optimizer, "
            f"as it does in no epochs of one length: {CURE}"
        )
    if shortest < longest and not complete:
        raise ValueError(
            f"the scheduler has stepped {n_scheduled} times in {taken:g} steps of the optimizer: "
            f"epochs of {shortest} to {longest} steps are possible. Ask after a complete epoch, "
            f"the fifth or a later one, or {CURE}"
        )
    since_last = taken - longest * n_scheduled
    totals = []
    for of_group in zip(*rates, strict=True):
        totals.append(longest * math.fsum(of_group[:-1]) + since_last * of_group[-1])
    if longest <= 1:  # after each step, or no steps at all
        return totals, ()
    return totals, (longest,)


def _replayed(scheduler: LRScheduler) -> list[list[float]]:
    """Return the rates of all groups at the start and after each step of a scheduler."""
    groups = []
    for group in scheduler.optimizer.param_groups:
        # A parameter without a gradient, which steps leave as it is.
        groups.append({"params": [torch.zeros(1)], "lr": group.get("initial_lr", group["lr"])})
    optimizer = torch.optim.SGD(groups)
    # First, as schedulers that cannot be replayed (ReduceLROnPlateau) set no initial rate.
    rebuilt = _rebuilt(scheduler, optimizer)
    if any("initial_lr" not in group for group in scheduler.optimizer.param_groups):
        raise ValueError(f"a parameter group has come to the optimizer after its scheduler: {CURE}")
    # torch warns where the scheduler steps before the optimizer has.
    optimizer.step()
    rates = [[group["lr"] for group in optimizer.param_groups]]
    for _ in range(scheduler.last_epoch):
        rebuilt.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    now = [float(group["lr"]) for group in scheduler.optimizer.param_groups]
    if not np.allclose(rates[-1], now, rtol=1e-6, atol=0.0):
        raise ValueError(
            f"{type(scheduler).__name__} replayed ends at the rates {rates[-1]}, but those of the "
            f"optimizer are {now}, so something else has set them, too: {CURE}"
        )
    return rates


def _rebuilt(scheduler: LRScheduler, optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Make a scheduler like another one, at its start, for another optimizer."""
    name = type(scheduler).__name__
    source: Any = scheduler
    # A subclass may have rates of its own, so that the class itself counts.
    if type(scheduler) is SequentialLR:
        parts = [_rebuilt(part, optimizer) for part in source._schedulers]
        return SequentialLR(optimizer, parts, list(source._milestones))
    if type(scheduler) is torch.optim.lr_scheduler.LambdaLR:
        return torch.optim.lr_scheduler.LambdaLR(optimizer, list(source.lr_lambdas))
    if type(scheduler) is torch.optim.lr_scheduler.MultiStepLR:
        milestones = sorted(source.milestones.elements())
        return torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones, source.gamma)
    if type(scheduler) is getattr(torch.optim.lr_scheduler, name, None) and name in SETTINGS:
        settings = {setting: getattr(scheduler, setting) for setting in SETTINGS[name]}
        return type(scheduler)(optimizer, **settings)
    raise ValueError(
        f"the rates of {name} are not known from its settings alone (those of "
        f"{', '.join((*SETTINGS, 'MultiStepLR', 'LambdaLR', 'SequentialLR'))} are): {CURE}"
    )
