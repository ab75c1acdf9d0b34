"""How optimizers that people use move each tensor: against a step by the rules of their code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

from example_modules import Square, drawn, layers, seeded
from implicit_bias.base.options import (
    NO_OPTIMIZER_LIMIT,
)
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.modules.steps import (
    RULES,
    OptimizerError,
    class_known_by_name,
    register,
    steps_of,
)
from implicit_bias.norms.tensors import PARAMETER_NORMS

X = drawn(12, 4)


def network(outputs: int = 3) -> nn.Sequential:
    return seeded(layers(4, 6, outputs, between=Square), 3)


class Made(Optimizer):
    """An optimizer of another library, as far as its groups go."""

    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, {"lr": 0.01, **defaults})


def called(name: str, params: Any, **defaults: Any) -> Optimizer:
    return type(name, (Made,), {})(params, **defaults)


# --- Scion ---------------------------------------------------------------------------------------


def test_scion_is_read_by_group() -> None:
    module = network()
    first, last = module.parameters()
    groups = [
        {"params": [first], "norm": "Spectral", "scale": 50.0, "unconstrained": True},
        {"params": [last], "norm": "Sign", "scale": 3000.0, "unconstrained": False},
    ]
    steps = steps_of(called("Scion", groups, norm_kwargs={}, momentum=0.1), module)
    assert [step.norm for step in steps] == ["spectral", "linf"]
    # The `lmo` of its public code: (U V') sqrt(rows / columns), and the signs over the columns.
    assert [step.scale for step in steps] == pytest.approx([50.0 * math.sqrt(6 / 4), 500.0])
    # p <- (1 - lr) p - lr u: decay of 1, so that the radius of the box is the length of u.
    assert [step.decay for step in steps] == [0.0, 1.0]


def polar(g: Tensor) -> Tensor:
    U, _, Vh = torch.linalg.svd(g.reshape(len(g), -1), full_matrices=False)
    factor: Tensor = U @ Vh
    return factor.reshape(g.shape)


def by_columns(g: Tensor) -> Tensor:
    """Divide by the root mean square of each column, or of a vector."""
    return g / g.square().mean(dim=0, keepdim=True).sqrt()


def by_rows(g: Tensor) -> Tensor:
    return g / g.norm(dim=1, keepdim=True)


# Norm and options, shape, and the `lmo` of its public code.
Lmo = Callable[[Tensor], Tensor]
SCION: dict[str, tuple[str, dict[str, bool], tuple[int, ...], Lmo]] = {
    "spectral": ("Spectral", {"normalized": False}, (3, 5), lambda g: math.sqrt(3) * polar(g)),
    "at least 1": ("Spectral", {"max": True}, (3, 5), polar),
    "kernels": ("SpectralConv", {}, (6, 3, 2, 2), lambda g: math.sqrt(6 / 3) / 2**2 * polar(g)),
    "signs": ("Sign", {"normalized": False}, (3, 5), torch.sign),
    "columns": ("ColNorm", {}, (3, 5), by_columns),
    "columns over their number": (
        "ColNorm",
        {"normalized": True},
        (3, 5),
        lambda g: by_columns(g) / 5,
    ),
    "columns of the transpose": (
        "ColNorm",
        {"transpose": True},
        (3, 5),
        lambda g: by_columns(g.T).T,
    ),
    "rows": ("RowNorm", {"normalized": False}, (3, 5), by_rows),
    "rows over their size": ("RowNorm", {}, (3, 5), lambda g: by_rows(g) / math.sqrt(5)),
    "rows of the transpose": (
        "RowNorm",
        {"normalized": False, "transpose": True},
        (3, 5),
        lambda g: by_rows(g.T).T,
    ),
    "auto, a vector": ("Auto", {}, (5,), by_columns),
    "auto, a matrix": ("Auto", {}, (3, 5), lambda g: math.sqrt(3 / 5) * polar(g)),
    "auto, kernels in 1 D": ("Auto", {}, (6, 3, 4), lambda g: math.sqrt(6 / 3) / 4 * polar(g)),
    "auto, in 2 D": ("Auto", {}, (6, 3, 4, 4), lambda g: math.sqrt(6 / 3) / 4**2 * polar(g)),
}


@pytest.mark.parametrize("name", SCION)
def test_the_steps_of_scion_are_those_of_its_norms(name: str) -> None:
    """All numbers of which the norm is the largest are the length of the step."""
    norm, options, shape, lmo = SCION[name]
    g = drawn(*shape)
    groups = [{"params": [nn.Parameter(g.clone())], "norm": norm, "norm_kwargs": options}]
    module = nn.ParameterDict({"w": groups[0]["params"][0]})  # type: ignore[index]
    (step,) = steps_of(called("Scion", groups, scale=10.0, unconstrained=False), module)
    u = lmo(g).reshape(len(g), -1)
    sizes = {
        "spectral": torch.linalg.svdvals(u),
        "linf": u.abs().reshape(-1),
        "columns": u.norm(dim=0),
        "rows": u.norm(dim=1),
    }[step.norm]
    assert (10.0 * sizes).tolist() == pytest.approx([step.scale] * len(sizes))


# --- Muon of Keller Jordan -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (6, 2, 5, 3)])
def test_the_scale_of_jordans_muon(shape: tuple[int, ...]) -> None:
    """As `muon_update`: a matrix (first axis, all others), times a root of the last axes' ratio."""
    module = nn.ParameterDict({"w": drawn(*shape)})
    muon = called("Muon", module.parameters(), weight_decay=0.1, momentum=0.95)
    (step,) = steps_of(muon, module)
    assert step.norm == "spectral"
    assert step.scale == pytest.approx(max(1.0, shape[-2] / shape[-1]) ** 0.5)
    assert (step.decay, step.decoupled) == (0.1, True)


def test_muon_with_an_adam_of_its_own_is_read_by_group() -> None:
    module = network()
    first, last = module.parameters()
    groups = [
        {"params": [first], "use_muon": True, "lr": 0.02},
        {"params": [last], "use_muon": False, "lr": 0.003, "weight_decay": 0.1},
    ]
    steps = steps_of(called("MuonWithAuxAdam", groups), module)
    assert [step.norm for step in steps] == ["spectral", "linf"]
    assert [step.scale for step in steps] == pytest.approx([math.sqrt(6 / 4), 1.0])
    assert [(step.rate, step.decay) for step in steps] == [(0.02, 0.0), (0.003, 0.1)]
    assert steps[1].decoupled


# --- others --------------------------------------------------------------------------------------


class Own(Adam):
    """A plain subclass."""


class Lightning:
    """As Lightning's: its class derives from that of the optimizer, whose attributes it has."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
        bases = (Lightning, type(optimizer))
        self.__class__ = type("Lightning" + type(optimizer).__name__, bases, {})
        self._optimizer = optimizer


class Accelerated:
    """As accelerate's: its class says nothing of the optimizer that it has."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Return those of its optimizer."""
        return self.optimizer.param_groups


@pytest.mark.parametrize("wrapper", [Lightning, Accelerated])
def test_wrappers_are_read(wrapper: Any) -> None:
    module = network()
    decayed = AdamW(module.parameters(), weight_decay=0.3)
    wrapped: Any = wrapper(decayed)
    assert {step.decay for step in steps_of(wrapped, module)} == {0.3}
    assert geometry_of(wrapped, module).norm is PARAMETER_NORMS["linf"]


def test_a_class_that_is_known_by_its_name_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of torch, their subclasses, and what was registered are known otherwise."""
    monkeypatch.setattr("implicit_bias.modules.steps.RULES", dict(RULES))
    monkeypatch.setattr("implicit_bias.modules.steps.REGISTERED", {})
    parameters = list(network().parameters())
    lion = called("Lion", parameters, weight_decay=0.0)
    assert class_known_by_name(Own(parameters)) is None
    assert class_known_by_name(lion) is type(lion)
    register(type(lion), "linf")
    assert class_known_by_name(lion) is None
    assert class_known_by_name(called("Lion", parameters)) is not None  # another class of this name


def test_a_refusal_says_why_for_this_class() -> None:
    module = network()
    name = next(iter(NO_OPTIMIZER_LIMIT))
    with pytest.raises(OptimizerError) as caught:
        geometry_of(called(name, module.parameters()), module)
    assert NO_OPTIMIZER_LIMIT[name] in str(caught.value)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda p: NAdam(p), None),
        (lambda p: RAdam(p), None),
        (lambda p: RAdam(p, betas=(0.5, 0.6)), "never divides"),
        (lambda p: RMSprop(p), None),
        (lambda p: called("RMSprop", p), None),  # with neither centered nor momentum
        (lambda p: RMSprop(p, momentum=0.9), "momentum"),
        (lambda p: Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: called("Lion", p, betas=(0.9, 0.99)), None),
    ],
)
def test_options_that_have_no_limit(build: Callable[[Any], Optimizer], match: str | None) -> None:
    module = network()
    if match is None:
        assert geometry_of(build(module.parameters()), module).norm is PARAMETER_NORMS["linf"]
        return
    with pytest.raises(OptimizerError, match=match):
        geometry_of(build(module.parameters()), module)


def test_what_is_registered_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("implicit_bias.modules.steps.RULES", dict(RULES))
    module = network()
    strange = called("Strange", module.parameters(), weight_decay=0.1)
    with pytest.raises(OptimizerError, match="register"):
        geometry_of(strange, module)
    register("Strange", "spectral", lambda group, shape: float(shape[0]))
    scales = {step.name: step.scale for step in steps_of(strange, module)}
    assert scales == {"0.weight": 6.0, "2.weight": 3.0}
    assert geometry_of(strange, module).norm.name == "weighted spectral"


def test_steps_of_momentum_grow_along_a_constant_gradient() -> None:
    """Until m <- momentum m + (1 - dampening) g leaves m as it is."""
    module = network()
    for momentum, dampening in ((0.0, 0.0), (0.9, 0.0), (0.8, 0.5)):
        sgd = SGD(module.parameters(), lr=0.1, momentum=momentum, dampening=dampening)
        m = 1.0
        for _ in range(300):
            m = momentum * m + (1.0 - dampening)
        for step in steps_of(sgd, module):
            assert step.momentum_gain == pytest.approx(m)


def test_decay_is_decoupled_where_the_group_says_so() -> None:
    module = network()
    for option in ("weight_decouple", "decoupled_weight_decay"):
        for value in (True, False):
            made = called("Lion", module.parameters(), weight_decay=0.1, **{option: value})
            assert {step.decoupled for step in steps_of(made, module)} == {value}
    # Where it does not, it is as the class has it.
    assert all(step.decoupled for step in steps_of(called("Lion", module.parameters()), module))
    assert not any(step.decoupled for step in steps_of(SGD(module.parameters()), module))
