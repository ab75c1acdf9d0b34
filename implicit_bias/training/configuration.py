"""How to train: by mini-batches (`TrainingConfig`), or towards the limit (`LimitConfig`).

Nothing here needs torch, so a command line can offer these options without loading it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from implicit_bias._deprecated import moved_classmethod
from implicit_bias.validation import check_number

if TYPE_CHECKING:
    from implicit_bias.training.losses import MarginLoss

LossName: TypeAlias = Literal["logistic", "exponential"]
Rule: TypeAlias = Literal["gradient", "local"]
Method: TypeAlias = Literal["plain", "momentum", "accelerated"]


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train; the defaults are the published protocol without momentum.

    Parameters
    ----------
    steps : int
        Updates of the weights.
    batch_size : int or None
        Samples a step, in a new random order each epoch (an epoch's last batch may be smaller);
        None for all samples in each step.
    learning_rate : float
        Step size at the start.
    decay, decay_at : float
        The step size is multiplied by ``decay`` once, after the share ``decay_at`` of the steps.
    momentum : float
        Heavy-ball momentum, in [0, 1).
    loss : {"logistic", "exponential"} or MarginLoss
        Loss of a margin; the mean over the batch is minimised.
    rule : {"gradient", "local"}
        What learns from the loss: the network as a whole, or each unit by itself (see
        `training.minibatch`; only networks with fixed gates).
    record : int or tuple of int
        The number of points in the history, at most: evenly spaced in the logarithm of the step
        (early ones coincide), step 0 and the last included. Or the steps themselves, to which
        step 0 and the last are added.
    seed : int
        Seed of the order of the samples.

    Raises
    ------
    ValueError
        A value out of its range.
    """

    steps: int = 3200
    batch_size: int | None = 128
    learning_rate: float = 0.04
    decay: float = 0.25
    decay_at: float = 0.5
    momentum: float = 0.0
    loss: LossName | MarginLoss = "logistic"
    rule: Rule = "gradient"
    record: int | tuple[int, ...] = 50
    seed: int = 0

    def __post_init__(self) -> None:
        counts = {"steps": 1}
        counts |= {} if self.batch_size is None else {"batch_size": 1}
        counts |= {} if isinstance(self.record, tuple) else {"record": 2}
        _check_ranges(self, counts, positive=("learning_rate", "decay"))
        if isinstance(self.record, tuple) and not all(
            _is_whole(step) and 0 <= step <= self.steps for step in self.record
        ):
            raise ValueError(
                f"record must name whole steps from 0 to {self.steps}, got {self.record!r}"
            )
        if not 0 <= self.decay_at <= 1:
            raise ValueError(f"decay_at is a share of the steps, in [0, 1], got {self.decay_at!r}")
        if self.loss not in get_args(LossName):
            from implicit_bias.training.losses import as_loss

            as_loss(self.loss)
        if self.rule not in get_args(Rule):
            raise ValueError(f"rule must be one of {list(get_args(Rule))}, got {self.rule!r}")

    published = moved_classmethod("TrainingConfig.published", "protocols.lippl2022.training_config")

    def step_size(self, step: int) -> float:
        """Step size of the update that follows ``step`` updates."""
        return self.learning_rate * (self.decay if step >= self.decay_at * self.steps else 1.0)

    def is_recorded(self, step: int) -> bool:
        """Whether the history has a point at this step."""
        return step in self._recorded_steps

    @cached_property
    def _recorded_steps(self) -> frozenset[int]:
        return self.recorded_steps()

    def recorded_steps(self) -> frozenset[int]:
        """Return the steps at which the history has a point."""
        if isinstance(self.record, tuple):
            return frozenset({0, self.steps, *map(int, self.record)})
        # Downwards, so that a single point is the last step.
        spaced = np.geomspace(self.steps, 1, self.record - 1)
        return frozenset({0, *np.rint(spaced).astype(int).tolist()})


@dataclass(frozen=True, kw_only=True)
class LimitConfig:
    """How to train towards the limit.

    Parameters
    ----------
    steps : int
        Gradients, at most.
    method : {"plain", "momentum", "accelerated"}
        See `training.limit`.
    loss : {"exponential", "logistic"} or MarginLoss
        One of your own is checked numerically to be exponential-like.
    momentum : float
        mu of the momentum method, in [0, 1).
    friction, scale_friction : float
        r and R of the accelerated method, positive.
    record : int
        Points of the history a factor of ten in the steps. Which steps these are does not depend
        on ``steps``.
    checkpoint_every : int
        Steps between two checkpoints.

    Raises
    ------
    ValueError
        A value out of its range.
    LossError
        The loss is not exponential-like.
    """

    steps: int = 10_000
    method: Method = "accelerated"
    loss: LossName | MarginLoss = "exponential"
    momentum: float = 0.9
    friction: float = 2.0
    scale_friction: float = 15.0
    record: int = 20
    checkpoint_every: int = 1000

    rule: ClassVar[Rule] = "gradient"  # the network learns as a whole

    def __post_init__(self) -> None:
        counts = {"steps": 1, "record": 1, "checkpoint_every": 1}
        _check_ranges(self, counts, positive=("friction", "scale_friction"))
        if self.method not in get_args(Method):
            raise ValueError(f"method must be one of {list(get_args(Method))}, got {self.method!r}")
        if self.loss not in get_args(LossName):
            from implicit_bias.training.losses import as_loss, check_exponential_like

            check_exponential_like(as_loss(self.loss))

    def is_recorded(self, step: int) -> bool:
        """Whether the history has a point at this step: log-spaced, and step 0."""
        if step == 0:
            return True
        index = round(self.record * math.log10(step))
        # Early points coincide, so the neighbours of the nearest one count too.
        return any(round(10 ** (i / self.record)) == step for i in (index - 1, index, index + 1))


def _check_ranges(
    config: TrainingConfig | LimitConfig, counts: Mapping[str, int], positive: tuple[str, ...]
) -> None:
    """Refuse counts below their least value, numbers that are not positive, and the momentum."""
    for name, least in counts.items():
        count = getattr(config, name)
        if not _is_whole(count) or count < least:
            raise ValueError(f"{name} must be a whole number, at least {least}, got {count!r}")
    for name in (*positive, "momentum"):
        check_number(getattr(config, name), name)
    for name in positive:
        value = getattr(config, name)
        if not 0 < value < math.inf:
            raise ValueError(f"{name} must be positive and finite, got {value!r}")
    if not 0 <= config.momentum < 1:
        raise ValueError(f"momentum must be in [0, 1), got {config.momentum!r}")


def _is_whole(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
