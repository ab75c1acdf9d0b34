"""How optimizers that people use move each tensor: against a step by the rules of their code."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, NAdam, Optimizer, RAdam, RMSprop

from example_modules import Square, drawn, layers, own_labels, seeded
from implicit_bias import box_gap, diagnose
from implicit_bias.base.options import (
    ALL_OPTIMIZER_LIMITS,
    NO_OPTIMIZER_LIMIT,
)
from implicit_bias.diagnosis import Code
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.modules.steps import (
    RULES,
    OptimizerError,
    class_known_by_name,
    register,
    steps_of,
)
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.training.optimizers import SignDescent

X = drawn(12, 4)


def network(outputs: int = 3) -> nn.Sequential:
    return seeded(layers(4, 6, outputs, between=Square), 3)


class Made(Optimizer):
    """An optimizer of another library, as far as its groups go."""

    def __init__(self, params: Any, **defaults: Any) -> None:
        super().__init__(params, {"lr": 0.01, **defaults})


def called(name: str, params: Any, **defaults: Any) -> Optimizer:
    return type(name, (Made,), {})(params, **defaults)


def codes_of(module: nn.Module, optimizer: Optimizer) -> set[Code]:
    found = diagnose(module, X, own_labels(module, X), optimizer=optimizer)
    return {finding.code for finding in found.findings}


def polar(g: Tensor) -> Tensor:
    U, _, V = torch.linalg.svd(g.reshape(len(g), -1), full_matrices=False)
    return (U @ V).reshape(g.shape)


def size(theta: Tensor, norm: str) -> float:
    """Return the norm of a tensor, from its definition."""
    W = theta.reshape(len(theta), -1)
    if norm == "spectral":
        return float(torch.linalg.matrix_norm(W, 2))
    if norm == "linf":
        return float(W.abs().max())
    return float(W.norm(dim=1 if norm == "rows" else 0).max())


def dual(g: Tensor, norm: str) -> float:
    W = g.reshape(len(g), -1)
    if norm == "spectral":
        return float(torch.linalg.matrix_norm(W, "nuc"))
    if norm == "linf":
        return float(W.abs().sum())
    return float(W.norm(dim=1 if norm == "rows" else 0).sum())


# --- Scion: the `lmo` of each norm, as in its public code, with whole singular value decompositions


def column_norm(g: Tensor, normalized: bool = False, transpose: bool = False) -> Tensor:
    g = g.T if transpose else g
    rms = g.square().mean(dim=0, keepdim=True).sqrt()
    u = g / (rms * g.shape[1] if normalized else rms)
    return u.T if transpose else u


def row_norm(g: Tensor, normalized: bool = True, transpose: bool = False) -> Tensor:
    g = g.T if transpose else g
    lengths = g.square().sum(dim=-1, keepdim=True).sqrt()
    u = g / (lengths * math.sqrt(g.shape[-1]) if normalized else lengths)
    return u.T if transpose else u


def spectral(g: Tensor, max: bool = False, normalized: bool = True) -> Tensor:
    d_out, d_in = g.shape
    scale = (d_out / d_in) ** 0.5 if normalized else d_out**0.5
    return polar(g) * (scale if not max or scale > 1 else 1.0)


def spectral_of_convolution(g: Tensor) -> Tensor:
    d_out, d_in, k = g.shape[:3]
    return polar(g) * (d_out / d_in) ** 0.5 / (k if g.ndim == 3 else k**2)


def sign(g: Tensor, normalized: bool = True) -> Tensor:
    return g.sign() / g.shape[1] if normalized else g.sign()


SCION: list[tuple[str, dict[str, bool], tuple[int, ...], Callable[..., Tensor]]] = [
    ("Spectral", {}, (6, 4), spectral),
    ("Spectral", {"max": True}, (2, 6), spectral),
    ("Spectral", {"normalized": False}, (6, 4), spectral),
    ("Sign", {}, (6, 4), sign),
    ("Sign", {"normalized": False}, (6, 4), sign),
    ("SpectralConv", {}, (6, 2, 5), spectral_of_convolution),
    ("BiasRMS", {}, (6, 4), column_norm),
    ("Auto", {}, (6, 4), spectral),
    ("Auto", {}, (6,), column_norm),
    ("Auto", {}, (6, 2, 3, 3), spectral_of_convolution),
    ("ColNorm", {}, (6, 4), column_norm),
    ("ColNorm", {"normalized": True, "transpose": True}, (6, 4), column_norm),
    ("RowNorm", {"normalized": False}, (6, 4), row_norm),
    ("RowNorm", {"transpose": True}, (6, 4), row_norm),
]


@pytest.mark.parametrize(("name", "options", "shape", "lmo"), SCION)
def test_norms_of_scion_are_those_of_its_steps(
    name: str, options: dict[str, bool], shape: tuple[int, ...], lmo: Callable[..., Tensor]
) -> None:
    """A step u is of length s in the norm, and steepest: <g, u> = s ||g||_*."""
    g = drawn(*shape)
    module = nn.ParameterDict({"w": drawn(*shape, seed=1)})
    group = {"norm": name, "norm_kwargs": options, "scale": 50.0, "unconstrained": False}
    (step,) = steps_of(called("Scion", module.parameters(), momentum=0.1, **group), module)
    u = 50.0 * lmo(g, **options)
    assert step.scale == pytest.approx(size(u, step.norm))
    assert float((g * u).sum()) == pytest.approx(step.scale * dual(g, step.norm))
    # p <- (1 - lr) p - lr u: decay of 1, so that the radius of the box is the length of u.
    assert (step.decay, step.decoupled) == (1.0, True)


def test_scion_is_read_by_group() -> None:
    module = network()
    first, last = module.parameters()
    groups = [
        {"params": [first], "norm": "Spectral", "scale": 50.0, "unconstrained": True},
        {"params": [last], "norm": "Sign", "scale": 3000.0, "unconstrained": False},
    ]
    steps = steps_of(called("Scion", groups, norm_kwargs={}, momentum=0.1), module)
    assert [step.norm for step in steps] == ["spectral", "linf"]
    assert [step.scale for step in steps] == pytest.approx([50.0 * math.sqrt(6 / 4), 500.0])
    assert [step.decay for step in steps] == [0.0, 1.0]


def test_steps_along_rows_have_a_box_and_no_margin_problem() -> None:
    module = seeded(layers(4, 3), 1)
    scion = called(
        "Scion",
        module.parameters(),
        **{"norm": "RowNorm", "norm_kwargs": {}, "scale": 2.0, "unconstrained": False},
    )
    with pytest.raises(OptimizerError, match="rows"):
        geometry_of(scion, module)
    labels = torch.tensor(own_labels(module, X))
    found = box_gap(module, X, labels, optimizer=scion, loss=nn.functional.cross_entropy)
    (W,) = module.parameters()
    (g,) = torch.autograd.grad(nn.functional.cross_entropy(module(X), labels), [W])
    assert found.radii == pytest.approx({"0.weight": 1.0})  # 2 / root of 4 columns
    theta = W.detach()
    gap = float(g.norm(dim=1).sum() + (g * theta).sum())
    assert found.gap == pytest.approx(gap)
    assert found.norms["0.weight"] == pytest.approx(float(theta.norm(dim=1).max()))


# --- Muon of Keller Jordan -----------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(6, 4), (4, 6), (6, 2, 3, 3), (6, 2, 5, 3)])
@pytest.mark.parametrize("name", ["Muon", "SingleDeviceMuon"])
def test_the_scale_of_jordans_muon(name: str, shape: tuple[int, ...]) -> None:
    """As `muon_update`: a matrix (first axis, all others), times a root of the last axes' ratio."""
    g = drawn(*shape)
    u = polar(g) * max(1.0, g.size(-2) / g.size(-1)) ** 0.5
    module = nn.ParameterDict({"w": drawn(*shape, seed=1)})
    muon = called(name, module.parameters(), weight_decay=0.1, momentum=0.95)
    (step,) = steps_of(muon, module)
    assert step.norm == "spectral"
    assert step.scale == pytest.approx(size(u, "spectral"))
    assert (step.decay, step.decoupled) == (0.1, True)


@pytest.mark.parametrize("name", ["MuonWithAuxAdam", "SingleDeviceMuonWithAuxAdam"])
def test_muon_with_an_adam_of_its_own_is_read_by_group(name: str) -> None:
    module = network()
    first, last = module.parameters()
    groups = [
        {"params": [first], "use_muon": True, "lr": 0.02},
        {"params": [last], "use_muon": False, "lr": 0.003, "weight_decay": 0.1},
    ]
    steps = steps_of(called(name, groups), module)
    assert [step.norm for step in steps] == ["spectral", "linf"]
    assert [step.scale for step in steps] == pytest.approx([math.sqrt(6 / 4), 1.0])
    assert [(step.rate, step.decay) for step in steps] == [(0.02, 0.0), (0.003, 0.1)]
    assert steps[1].decoupled
    with pytest.raises(OptimizerError, match="use_muon"):
        geometry_of(name, module)


def test_a_muon_of_other_code_is_refused() -> None:
    module = network()
    other = called("Muon", module.parameters(), wd=0.1, ns_steps=5, nesterov=True)
    with pytest.raises(OptimizerError, match="register"):
        geometry_of(other, module)
    stack = nn.ParameterDict({"w": drawn(2, 6, 4)})
    with pytest.raises(OptimizerError, match="stack"):
        steps_of(called("Muon", stack.parameters(), momentum=0.95), stack)


# --- others --------------------------------------------------------------------------------------


class Own(Adam):
    """A plain subclass."""


class Accelerated(Optimizer):
    """As accelerate's."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    param_groups = property(lambda self: self.optimizer.param_groups)
    state = property(lambda self: self.optimizer.state)


class Lightning:
    """As Lightning's: its class derives from that of the optimizer, whose attributes it has."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.__dict__.update({k: v for k, v in optimizer.__dict__.items() if k != "step"})
        bases = (Lightning, type(optimizer))
        self.__class__ = type("Lightning" + type(optimizer).__name__, bases, {})
        self._optimizer = optimizer


class Holder:
    """A wrapper that has nothing but what it holds."""

    def __init__(self, optimizer: Any) -> None:
        self._optimizer = optimizer


@pytest.mark.parametrize("wrap", [Lightning, lambda optimizer: Holder(Accelerated(optimizer))])
def test_wrappers_are_read(wrap: Callable[[Any], Any]) -> None:
    module = network()
    first, last = module.parameters()
    groups = [{"params": [first], "lr": 0.1}, {"params": [last], "lr": 0.01}]
    inner = Own(groups)
    assert geometry_of(wrap(inner), module).norm == geometry_of(inner, module).norm
    decayed = AdamW(module.parameters(), weight_decay=0.3)
    assert {step.decay for step in steps_of(wrap(decayed), module)} == {0.3}


def test_a_wrapper_with_steps_of_its_own_is_not_looked_into() -> None:
    module = network()
    for name in ("SAM", "Lookahead"):
        wrapper = type(name, (Holder,), {})(Adam(module.parameters()))
        with pytest.raises(OptimizerError, match=NO_OPTIMIZER_LIMIT[name][:20]):
            geometry_of(wrapper, module)


def test_a_class_that_is_known_by_its_name_alone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes of torch, their subclasses, and what was registered are known otherwise."""
    monkeypatch.setattr("implicit_bias.modules.steps.RULES", dict(RULES))
    monkeypatch.setattr("implicit_bias.modules.steps.REGISTERED", {})
    module = network()
    parameters = list(module.parameters())
    lion = called("Lion", parameters, weight_decay=0.0)
    for sure in (
        Own(parameters),
        "Lion",
        SignDescent(parameters, 0.1),
        called("Other", parameters),
    ):
        assert class_known_by_name(sure) is None
    assert class_known_by_name(lion) is type(lion)
    assert class_known_by_name(type("Heir", (type(lion),), {})) is type(lion)
    assert Code.KNOWN_BY_NAME in codes_of(module, lion)
    register(type(lion), "linf")
    assert class_known_by_name(lion) is None
    assert class_known_by_name(called("Lion", parameters)) is not None  # another class of this name
    register("Lion", "linf")
    assert class_known_by_name(called("Lion", parameters)) is None


@pytest.mark.parametrize("name", NO_OPTIMIZER_LIMIT)
def test_a_refusal_says_why_for_this_class(name: str) -> None:
    module = network()
    for given in (name, called(name, module.parameters())):
        with pytest.raises(OptimizerError) as caught:
            geometry_of(given, module)
        assert NO_OPTIMIZER_LIMIT[name] in str(caught.value)


def test_every_optimizer_of_torch_is_in_the_table() -> None:
    known = {name for limit in ALL_OPTIMIZER_LIMITS.values() for name in limit.classes}
    for name, given in vars(torch.optim).items():
        if isinstance(given, type) and issubclass(given, Optimizer) and given is not Optimizer:
            assert name in known or name in NO_OPTIMIZER_LIMIT, name


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda p: NAdam(p), None),
        (lambda p: RAdam(p), None),
        (lambda p: RAdam(p, betas=(0.5, 0.6)), "never divides"),
        (lambda p: RMSprop(p), None),
        (lambda p: RMSprop(p, momentum=0.9), "momentum"),
        (lambda p: RMSprop(p, centered=True), "centered"),
        (lambda p: Adam(p, amsgrad=True), "amsgrad"),
        (lambda p: called("Lion", p, betas=(0.9, 0.99)), None),
        (lambda p: called("Signum", p, momentum=0.9), None),
    ],
)
def test_options_that_have_no_limit(build: Callable[[Any], Optimizer], match: str | None) -> None:
    module = network()
    if match is None:
        assert geometry_of(build(module.parameters()), module).norm is PARAMETER_NORMS["linf"]
        return
    with pytest.raises(OptimizerError, match=match):
        geometry_of(build(module.parameters()), module)


def test_shampoo_is_spectral_only_without_accumulation() -> None:
    module = network()
    fresh = called("DistributedShampoo", module.parameters(), betas=(0.9, 0.0))
    assert geometry_of(fresh, module).norm is PARAMETER_NORMS["spectral"]
    with pytest.raises(OptimizerError, match="accumulates"):
        geometry_of(called("DistributedShampoo", module.parameters()), module)


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
    register("Adagrad", "linf")
    assert geometry_of("adagrad", module).norm is PARAMETER_NORMS["linf"]
    with pytest.raises(ValueError, match="norm"):
        register("Strange", "l7")  # type: ignore[arg-type]


def test_decay_is_decoupled_where_the_group_says_so() -> None:
    module = network()
    for option in ("weight_decouple", "decoupled_weight_decay"):
        for value in (True, False):
            made = called("Lion", module.parameters(), weight_decay=0.1, **{option: value})
            assert {step.decoupled for step in steps_of(made, module)} == {value}
    # Where it does not, it is as the class has it.
    assert all(step.decoupled for step in steps_of(called("Lion", module.parameters()), module))
    shampoo = called("Shampoo", module.parameters(), betas=(0.9, 0.0))
    for coupled in (SGD(module.parameters()), shampoo):
        assert not any(step.decoupled for step in steps_of(coupled, module))


def test_adam_of_beta1_above_beta2_is_told() -> None:
    module = network()
    with pytest.warns(UserWarning, match=r"betas\[0\] of 0\.99"):
        assert Code.BETAS in codes_of(module, Adam(module.parameters(), betas=(0.99, 0.9)))
    codes = codes_of(module, Adam(module.parameters(), betas=(0.9, 0.9)))
    assert not codes & {Code.BETAS, Code.KNOWN_BY_NAME}
