"""Scores along a training: those of `box_gap`, without a pass of their own."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import implicit_bias as ib
from implicit_bias.modules.steps import OptimizerError

X = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(3, (30,), generator=torch.Generator().manual_seed(1))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def step(module: nn.Module, optimizer: torch.optim.Optimizer, trace: ib.BoxTrace) -> None:
    optimizer.zero_grad()
    loss = cross_entropy(module(X), Y)
    loss.backward()  # type: ignore[no-untyped-call]
    trace.record(loss)
    optimizer.step()


def test_a_point_is_the_gap_of_all_samples_where_batches_are_full() -> None:
    module = network()
    first, last = [p for p in module.parameters() if p.ndim == 2]
    biases = [p for p in module.parameters() if p.ndim == 1]
    groups = [
        {"params": [first], "weight_decay": 0.5},
        {"params": [last], "weight_decay": 0.2, "lr": 0.02},
        {"params": biases, "weight_decay": 0.0},
    ]
    adamw = torch.optim.AdamW(groups, lr=0.01)
    trace = ib.BoxTrace(module, adamw, average=0.0)
    for _ in range(5):
        step(module, adamw, trace)
    expected = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    step(module, adamw, trace)
    row = trace.rows[-1]
    assert row["step"] == 5
    for name in ("score", "gap", "reached", "at_wall", "loss"):
        assert row[name] == pytest.approx(getattr(expected, name), rel=1e-12), name
    assert row["score_of_batch"] == row["score"]
    # Five steps have decayed: the least of .5 at .01 and .2 at .02.
    assert row["decayed"] == pytest.approx(1 - math.exp(-5 * 0.2 * 0.02))


def test_averages_weigh_gradients_by_their_age() -> None:
    module = nn.Linear(2, 1, bias=False).double()
    module.weight.data.zero_()
    adamw = torch.optim.AdamW(module.parameters(), lr=0.0, weight_decay=1.0)
    trace = ib.BoxTrace(module, adamw, average=0.5, every=2)
    gradients = [
        torch.tensor([[4.0, 2.0]]),
        torch.tensor([[0.0, -6.0]]),
        torch.tensor([[1.0, 1.0]]),
    ]
    for g in gradients:
        module.weight.grad = g.double()
        trace.record()
        assert torch.equal(module.weight.grad, g.double())  # the optimizer's step comes after
    # (1/4 g_1 + 1/2 g_2 + g_3) / (1/4 + 1/2 + 1), and the weights are 0.
    average = (0.25 * gradients[0] + 0.5 * gradients[1] + gradients[2]) / 1.75
    assert [row["step"] for row in trace.rows] == [0, 2]
    assert trace.rows[0]["gap"] == pytest.approx(6.0)
    assert trace.rows[1]["gap"] == pytest.approx(float(average.abs().sum()))
    assert math.isnan(trace.rows[1]["loss"])


def test_what_cannot_be_recorded_is_refused() -> None:
    module = network()
    coupled = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.1)
    with pytest.raises(OptimizerError, match="decoupled"):
        ib.BoxTrace(module, coupled)
    adamw = torch.optim.AdamW(module.parameters())
    with pytest.raises(ValueError, match="backward"):
        ib.BoxTrace(module, adamw).record()
