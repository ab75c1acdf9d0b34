"""Norms read from optimizers: those of CVXPY by hand, and where trainings by them go."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR

from diagnosis.test_random_modules import OVER, WITHIN
from example_modules import Square, drawn, layers, seeded
from implicit_bias.modules.optimizers import geometry_of, has_decay, left_out
from implicit_bias.modules.steps import OptimizerError
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.training.optimizers import SignDescent

if not hasattr(torch.optim, "Muon"):
    pytest.skip("Muon came with torch 2.9", allow_module_level=True)

N, D = 12, 4
X = drawn(N, D)


def network(outputs: int = 1) -> nn.Sequential:
    """Without a kink."""
    return seeded(layers(D, 6, outputs, between=Square), 3)


def groups(module: nn.Module, first: float, last: float) -> Any:
    rates = zip(module.parameters(), (first, last), strict=True)
    return [{"params": [p], "lr": rate} for p, rate in rates]


def muon(parameters: Any, lr: float = 0.02, **options: Any) -> Optimizer:
    return torch.optim.Muon(parameters, lr=lr, weight_decay=0.0, **options)


def muon_and_adam(module: nn.Module) -> list[Optimizer]:
    first, last = module.parameters()
    return [muon([first], 0.02), Adam([last], lr=0.003)]


def scheduled(optimizer: Optimizer) -> Optimizer:
    schedule = CosineAnnealingLR(optimizer, 5)
    for _ in range(5):
        optimizer.step()
        schedule.step()
    assert all(group["lr"] == 0.0 for group in optimizer.param_groups)
    return optimizer


# Norms of the two matrices and their scales by the rules of torch, written out: their shapes are
# (6, 4) and (outputs, 6).
CASES: dict[str, tuple[Callable[[Any], Any], str, tuple[float, float]]] = {
    "sgd of two rates": (lambda m: SGD(groups(m, 0.1, 0.4), momentum=0.9), "l2 l2", (0.5, 1.0)),
    "scheduled": (lambda m: scheduled(NAdam(groups(m, 0.01, 0.002))), "linf linf", (1.0, 0.2)),
    "muon": (lambda m: muon(m.parameters()), "spectral spectral", (math.sqrt(6 / 4), 1.0)),
    "muon as adamw": (
        lambda m: muon(m.parameters(), adjust_lr_fn="match_rms_adamw"),
        *("spectral spectral", (math.sqrt(6), math.sqrt(6))),
    ),
    "muon and adam": (muon_and_adam, "spectral linf", (0.02 * math.sqrt(6 / 4), 0.003)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_size_of_each_tensor_is_by_the_rule_of_its_optimizer(name: str) -> None:
    """Of one tensor alone, and of both together, up to a common factor."""
    build, norms, scales = CASES[name]
    module = network(3)
    norm = geometry_of(build(module), module).norm
    ratios = []
    for sizes in ((1.0, 0.0), (0.0, 1.0), (3.0, 1.0), (1.0, 30.0)):
        theta = {
            name: size * drawn(*p.shape)
            for size, (name, p) in zip(sizes, module.named_parameters(), strict=True)
        }
        by_tensor = [
            WITHIN[kind][0](W.numpy()) / scale
            for kind, scale, W in zip(norms.split(), scales, theta.values(), strict=True)
        ]
        over = OVER["l2" if "sgd" in name else "hybrid"]
        ratios.append(norm.value(theta) / np.linalg.norm(by_tensor, over))
    assert ratios == pytest.approx([ratios[0]] * 4)


def drifting(module: nn.Module) -> list[Optimizer]:
    first, last = module.parameters()
    several: list[Optimizer] = [Adam([first], lr=0.1), Adam([last], lr=0.1)]
    ExponentialLR(several[0], 0.9)
    schedule = ExponentialLR(several[1], 0.5)
    for one in several:
        one.step()
    schedule.step()
    return several


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda m: Adam(groups(m, 0.1, 0.0)), "rate"),
        (drifting, "schedule"),
        (
            lambda m: [SGD([m[0].weight], lr=0.1), Adam([m[2].weight], lr=0.1)],
            "beside another optimizer",
        ),
        (lambda m: [SGD(m.parameters(), lr=0.1), SGD([m[0].weight], lr=0.1)], "two optimizers"),
        (lambda m: Adam(nn.Linear(3, 2).parameters()), "none of the module.*deepcopy"),
    ],
)
def test_optimizers_without_a_known_norm_are_refused(build: Any, match: str) -> None:
    module = network()
    with pytest.raises(OptimizerError, match=match):
        geometry_of(build(module), module)


def test_parameters_that_no_optimizer_moves() -> None:
    """They are left out; what is frozen counts for nobody."""
    module = network()
    several = muon_and_adam(module)
    assert left_out(module, several[:1]) == ("2.weight",)
    assert left_out(module, several) == left_out(module, Adam) == ()
    assert geometry_of(several, module).norm.name == "weighted linf/spectral"
    frozen = next(module.parameters()).requires_grad_(False)
    several[0] = SGD([frozen], lr=0.0)
    assert geometry_of(several, module).norm.name == "linf"


def test_decay_of_one_group_is_decay() -> None:
    first, last = network().parameters()
    given = [{"params": [first], "weight_decay": 0.1}, {"params": [last], "weight_decay": 0.0}]
    assert has_decay(SGD(given, lr=0.1))
    assert has_decay([Adam([first]), AdamW([last], weight_decay=0.1)])
    assert not has_decay(SGD([first, last], lr=0.1))


@pytest.mark.parametrize("named", ["adam", [NAdam], SignDescent])
def test_an_optimizer_by_name_or_class_has_one_rate(named: object) -> None:
    assert geometry_of(named, network()).norm is PARAMETER_NORMS["linf"]
