"""Configurations: which steps are recorded, what a limit is called, and what is out of range."""

import math
from typing import Any

import pytest
import torch

from implicit_bias.training.configuration import LimitConfig, TrainingConfig
from implicit_bias.training.losses import MarginLoss


@pytest.mark.parametrize(
    ("steps", "record", "expected"),
    [
        (100, 2, {0, 100}),
        (100, 4, {0, 1, 10, 100}),
        (3, 50, {0, 1, 2, 3}),
        (100, (50, 7, 7), {0, 7, 50, 100}),
    ],
)
def test_recorded_steps(steps: int, record: int | tuple[int, ...], expected: set[int]) -> None:
    assert TrainingConfig(steps=steps, record=record).recorded_steps == expected


def test_recorded_steps_towards_the_limit_are_log_spaced() -> None:
    config = LimitConfig(record=2)
    recorded = [step for step in range(1001) if config.is_recorded(step)]
    assert recorded == [0, 1, 3, 10, 32, 100, 316, 1000]
    dense = LimitConfig(record=50)
    assert all(dense.is_recorded(step) for step in range(15))


@pytest.mark.parametrize(
    ("kind", "options", "word"),
    [
        (TrainingConfig, {"learning_rate": math.nan}, "learning_rate"),
        (TrainingConfig, {"record": (0, 3201)}, "record"),
        (TrainingConfig, {"optimizer": "muon", "rule": "local"}, "muon"),
        (LimitConfig, {"friction": 0.0}, "friction"),
        (LimitConfig, {"norm": "l3"}, "norm"),
        (LimitConfig, {"loss": MarginLoss("own", lambda q: -2.0 * torch.asinh(q))}, "infinity"),
    ],
)
def test_values_out_of_range_are_refused(
    kind: type[TrainingConfig | LimitConfig], options: dict[str, Any], word: str
) -> None:
    with pytest.raises(ValueError, match=word):
        kind(**options)
