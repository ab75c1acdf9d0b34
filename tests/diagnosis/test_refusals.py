"""What cannot be diagnosed is refused by the name of its cause, on the module's first samples."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import implicit_bias as ib
from diagnosis.asking import relu
from example_modules import Computed, drawn, frozen, linear, own_labels, seeded

D, H, N = 5, 6, 20
X = drawn(N, D)


def stacked(*between: nn.Module, bias: bool = False) -> nn.Module:
    return nn.Sequential(linear(D, H), *between, nn.ReLU(), nn.Linear(H, 3, bias=bias))


def computed(function: Callable[..., Any], outputs: int = 1) -> nn.Module:
    """Whatever is computed from a linear layer and the inputs."""
    return seeded(Computed(lambda m, x: function(m.first, x), first=linear(D, outputs)), 1)


def shifted() -> nn.Module:
    """Build a frozen matrix with a trained update inside a ReLU."""
    parts = {"W": linear(D, D), "update": linear(D, D), "last": linear(D)}
    return Computed(lambda m, x: m.last((m.W(x) + m.update(x)).relu()), **parts)


# A module, what its refusal names, and whether its leading part may be asked for.
NOT_HOMOGENEOUS: dict[str, tuple[Callable[[], nn.Module], str, bool]] = {
    "bias": (lambda: stacked(bias=True), r"'2\.bias'.*bias=False", True),
    "softmax": (
        lambda: nn.Sequential(linear(D, 3), nn.Softmax(dim=1)),
        "softmax in '1': where it makes the outputs, return.*logits",
        False,
    ),
    "frozen": (lambda: frozen(shifted(), "W.weight"), "frozen weights", True),
    "detached": (lambda: computed(lambda f, x: f(x) * f(x).detach().abs()), r"detach\(\)", False),
}


@pytest.mark.parametrize("name", NOT_HOMOGENEOUS)
def test_what_breaks_homogeneity_is_named(name: str) -> None:
    build, match, leads = NOT_HOMOGENEOUS[name]
    module = seeded(build(), 1).eval()
    with pytest.raises(ib.HomogeneityError, match=re.compile(match, re.DOTALL)) as caught:
        ib.diagnose(module, X, own_labels(module, X))
    assert ("leading=True" in str(caught.value)) == leads


def test_what_the_first_samples_do_not_show_is_found_on_all() -> None:
    """There all units are off; of 512 samples the first 32 are looked at before the others."""
    module = seeded(stacked(nn.ReLU(), nn.Linear(H, H)), 1)
    inputs = torch.cat([torch.zeros(32, D).double(), X.repeat(24, 1)])
    with pytest.raises(ib.HomogeneityError, match=r"'2\.bias'"):
        ib.diagnose(module, inputs, own_labels(module, inputs))


def test_parameters_that_do_not_count_are_no_cause() -> None:
    """A bias below the only trained layer."""
    module = seeded(stacked(bias=True), 1)
    last = module.get_submodule("2").parameters()
    with pytest.warns(ib.DiagnosisWarning, match="optimizer"):
        found = ib.diagnose(module, X, own_labels(module, X), optimizer=torch.optim.SGD(last))
    assert found.degree == 1.0


# --- modules and samples that have no gap --------------------------------------------------------

FEW = X[:12]
ONES = np.ones(12)


def dead() -> nn.Module:
    module = relu()
    nn.init.zeros_(module.get_parameter("4.weight"))
    return module


def diverged() -> nn.Module:
    module = relu()
    nn.init.constant_(module.get_parameter("2.weight"), torch.nan)
    return module


def wrong_on_two() -> Any:
    labels = own_labels(relu(outputs=3), FEW)
    labels[[3, 7]] = (labels[[3, 7]] + 1) % 3
    return labels


@pytest.mark.parametrize(
    ("build", "inputs", "labels", "error", "match"),
    [
        (diverged, FEW, ONES, ValueError, "'2.weight'.*diverged"),
        (lambda: relu(outputs=3), FEW, wrong_on_two(), ib.SeparationError, "samples 3, 7"),
        (dead, FEW, ONES, ib.SeparationError, "margins"),
        (
            lambda: computed(lambda f, x: checkpoint(f, x, use_reentrant=False)),
            *(FEW, ONES, RuntimeError, "checkpointing"),
        ),
        (lambda: frozen(linear(D)), FEW, ONES, ValueError, "requires_grad_"),
    ],
)
def test_what_cannot_be_diagnosed_is_named(
    build: Callable[[], Any], inputs: Any, labels: Any, error: type[Exception], match: str
) -> None:
    given = FEW.clone()
    with pytest.raises(error, match=match):
        ib.diagnose(build(), inputs, labels)
    assert torch.equal(given, FEW)
