"""Which norm is named of optimizers of a known geometry, and of trainings without one."""

import math
from functools import cache

import pytest
import torch
from torch import nn

from benchmarks.illustrations import controls
from benchmarks.illustrations.controls import CONTROLS, KNOWN

if not hasattr(torch.optim, "Muon"):
    pytest.skip("Muon came with torch 2.9", allow_module_level=True)

SEED = 0


@cache
def references() -> list[nn.Module]:
    return controls.references_of(SEED)


def test_sharpness_aware_gradients_are_those_at_the_worst_point() -> None:
    X, y = controls.samples(SEED)
    module = controls.start(SEED)
    before = [p.detach().clone() for p in module.parameters()]
    loss = nn.functional.cross_entropy
    slopes = torch.autograd.grad(loss(module(X), y), list(module.parameters()))
    size = math.sqrt(sum(float(g.square().sum()) for g in slopes))
    controls.sharpness_aware(0.2)(module, X, y, torch.Generator())
    worst = controls.start(SEED)
    with torch.no_grad():
        for p, g in zip(worst.parameters(), slopes, strict=True):
            p.add_(0.2 / size * g)
    expected = torch.autograd.grad(loss(worst(X), y), list(worst.parameters()))
    for p, old, g in zip(module.parameters(), before, expected, strict=True):
        torch.testing.assert_close(p.detach(), old)
        torch.testing.assert_close(p.grad, g)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Signum", "Adam", "Muon", "Muon beside Adam"])
def test_known_optimizers_are_named_right(name: str) -> None:
    found, expected = controls.named(KNOWN[name], SEED, references())
    assert found is not None
    assert found.best == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        *("rate x 5", "falling rate", "momentum 0.9", "gradient noise 2", "weight noise 0.01"),
        *("batches of 1", "label noise", "SAM 0.2", "clipped", "random lengths"),
    ],
)
def test_of_controls_no_norm_is_named(name: str) -> None:
    found, _ = controls.named(CONTROLS[name], SEED, references())
    assert found is not None
    assert (found.best, found.evidence) == (None, "none")
