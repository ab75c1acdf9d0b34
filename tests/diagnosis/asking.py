"""What the tests of this folder share: samples, modules, and the codes of what was found."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from example_modules import drawn, layers, linear, own_labels, seeded
from implicit_bias import Diagnosis, DiagnosisWarning, WhichNorm, diagnose
from implicit_bias.diagnosis import Code, Finding

D = 5
X = drawn(12, D)


def single() -> nn.Module:
    return seeded(linear(D), 1)


def relu(*, bias: bool = False, last_bias: bool = False, outputs: int = 1) -> nn.Module:
    module = layers(D, 7, 6, outputs)
    module[2] = nn.Linear(7, 6, bias=bias)
    module[4] = nn.Linear(6, outputs, bias=last_bias)
    return seeded(module, 1)


def quiet(module: nn.Module, inputs: Tensor = X, labels: Any = None, **options: Any) -> Diagnosis:
    """Diagnose, with the warnings only in the result; labels are by default the module's own."""
    if labels is None:
        labels = own_labels(module, inputs)
    with warnings.catch_warnings(action="ignore", category=DiagnosisWarning):
        return diagnose(module, inputs, labels, **options)


def descend(optimizer: Optimizer, loss: Callable[[], Tensor], steps: int) -> None:
    """Take steps of an optimizer on all samples."""
    for _ in range(steps):
        optimizer.zero_grad()
        torch.autograd.backward(loss())
        optimizer.step()


def codes(found: Diagnosis | WhichNorm) -> list[Code]:
    return [finding.code for finding in found.findings]


def finding(found: Diagnosis | WhichNorm, code: Code) -> Finding:
    (one,) = (each for each in found.findings if each.code is code)
    return one
