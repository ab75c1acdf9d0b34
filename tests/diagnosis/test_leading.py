"""Modules that are homogeneous only in the limit are measured by their leading part."""

import copy
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import implicit_bias as ib
from diagnosis import asking
from diagnosis.asking import finding
from example_modules import Computed, drawn, known, linear, own_labels, seeded
from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.layers import LayerBounds
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.subject import SeparationError
from implicit_bias.norms.tensors import as_parameter_norm
from implicit_bias.training.limit import Ending

D, H, N = 4, 5, 14
NORMS = ("l2", "linf", "spectral")
# How near a gap is to that of the leading part written by hand.
SAME = 1e-8
X = drawn(N, D)
Gate = Callable[[Tensor], Tensor]


def lora(*, whole: bool = True, outputs: int = 1, gate: Gate = torch.relu) -> nn.Module:
    """Build a frozen network of two layers, of which the first has an update of rank 2."""
    trained = {"A": torch.empty(2, D), "B": torch.empty(H, 2)}
    module = Computed(lambda m, x: gate(x @ (m.W_0 + m.B @ m.A).T) @ m.readout.T, **trained)
    module.register_buffer("W_0", 0.3 * drawn(H, D, seed=7) * whole)
    module.register_buffer("readout", drawn(outputs, H, seed=8))
    return module


def residual(*, whole: bool = True, gate: Gate = torch.relu) -> nn.Module:
    """Two residual blocks with biases, or their leading part: without shortcuts and biases."""

    def blocks(m: Any, x: Tensor) -> Tensor:
        x = m.first(x)
        for inside, outside, bias in ((m.a, m.b, m.bias), (m.c, m.d, m.other)):
            inner = inside(x) + 0.1 * bias if whole else inside(x)
            x = outside(gate(inner)) + x if whole else outside(inner.relu())
        outputs: Tensor = m.last(x)
        return outputs

    biases = {"bias": torch.empty(H), "other": torch.empty(H)}
    matrices = {name: linear(H, H) for name in "abcd"}
    return Computed(blocks, **biases, **matrices, first=linear(D, H), last=linear(H))


def biased() -> nn.Sequential:
    """Build a ReLU layer with a bias above it, which the leading part has not."""
    return nn.Sequential(linear(D, H), nn.ReLU(), nn.Linear(H, 1))


def tokens(x: Tensor) -> Tensor:
    return torch.stack([x, x.roll(1, 1), x.roll(2, 1)], dim=1)


def scored(m: Any, x: Tensor) -> Tensor:
    """Attention with a softmax of scores, written out."""
    outputs: Tensor = m.last((m.scores(tokens(x)).softmax(dim=1) * tokens(x)).sum(dim=1))
    return outputs


def attention() -> nn.Module:
    return Computed(scored, scores=linear(D), last=nn.Linear(D, 1))


def normalised() -> nn.Module:
    """Build a normalisation without a name, of outputs of length nearly 1."""
    by_hand = Computed(lambda _, x: x / (x.square().sum(dim=1, keepdim=True) + 1e-3).sqrt())
    return nn.Sequential(nn.Linear(D, H), by_hand, nn.Linear(H, 1))


def quiet(module: nn.Module, labels: Any, **options: Any) -> ib.Diagnosis:
    return asking.quiet(module, X, labels, **options)


BUILDS: dict[str, Callable[..., nn.Module]] = {
    "LoRA": lora,
    "residual": residual,
    "LoRA, classes": partial(lora, outputs=3),
    "residual, GELU": partial(residual, gate=F.gelu),
    "residual, softplus": partial(residual, gate=F.softplus),
}


def trained(module: nn.Module, labels: Any, steps: range) -> nn.Module:
    """Normalised gradient descent on the logarithm of the exponential loss; its steps shrink."""
    signs = torch.tensor(labels)
    parameters = [p for p in module.parameters() if p.requires_grad]
    for step in steps:
        loss = torch.logsumexp(-signs * module(X)[:, 0], dim=0)
        slopes = torch.autograd.grad(loss, parameters)
        with torch.no_grad():
            size = nn.utils.parameters_to_vector(parameters).norm()
            length = nn.utils.parameters_to_vector(slopes).norm()
            for p, slope in zip(parameters, slopes, strict=True):
                p.sub_(size / length / (20.0 + step) * slope)
    return module


@pytest.mark.fast("LoRA, classes")
@pytest.mark.parametrize("name", BUILDS)
def test_gaps_are_those_of_the_leading_part_written_by_hand(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Out of time a bound of a layer is known to a thousandth only, so that a busy machine would
    # decide what is compared.
    diagnosing = import_module("implicit_bias.diagnosis.diagnose")
    monkeypatch.setattr(diagnosing, "LayerBounds", partial(LayerBounds, seconds=60.0))
    module, by_hand = (seeded(BUILDS[name](whole=whole), 5) for whole in (True, False))
    labels = own_labels(by_hand, X)
    for norm in NORMS:
        found = quiet(module, labels, norm=norm, leading=True)
        expected = quiet(by_hand, labels, norm=norm)
        assert found.degree == expected.degree
        assert found.min_margin == pytest.approx(expected.min_margin, rel=SAME)
        # Biases do not count where they are in no output, and count with KKT value 0 where they
        # vanish from the leading part alone: so the proven bound is the same, not the norm.
        whole = as_parameter_norm(norm).value({k: p.detach() for k, p in module.named_parameters()})
        size = whole * expected.min_margin ** (-1 / expected.degree)
        assert found.parameter_norm == pytest.approx(size, rel=SAME)
        gap = 1 - (1 - expected.gap) * (expected.parameter_norm / size) ** 2
        assert found.gap == pytest.approx(gap, abs=SAME)
        layers = {layer.name: layer for layer in found.layers}
        for layer in expected.layers:
            same = layers[layer.name]
            bounds = pytest.approx((layer.lower, layer.norm), rel=1e-6, nan_ok=True)
            assert (same.lower, same.norm) == bounds
        assert known(found.rest) > 0
        code = Code.LEADING_PART if norm == "l2" else Code.LEADING_PART_WITHOUT_THEOREM
        assert finding(found, code).value == found.rest


@pytest.mark.slow
def test_gaps_and_the_rest_fall_as_training_goes_on() -> None:
    module, by_hand = (seeded(lora(whole=whole, gate=nn.Identity()), 1) for whole in (True, False))
    labels = own_labels(by_hand, X)
    nn.init.zeros_(module.get_parameter("B"))
    with pytest.raises(SeparationError, match="its leading-order part"):
        ib.diagnose(module, X, labels, leading=True)
    recorder = ib.Recorder(module, X, labels, "l2", leading=True)
    recorder.record(0)
    for step in (100, 500, 2000):
        trained(module, labels, range(int(recorder.rows[-1]["step"]), step))
        recorder.record(step)
        if step == 100:
            early = copy.deepcopy(module.state_dict())
    table = recorder.frame()
    # At B = 0 the leading part is 0, so nothing is known of its gap yet.
    assert table["error"][0] == 1.0
    assert np.isnan(table["gap_l2"][0])
    assert (np.diff(table["gap_l2"][1:]) < 0).all()
    assert (np.diff(table["rest"]) < 0).all()
    beside = ib.which_norm(module, X, labels, reference=early, norms="l2", leading=True).rows[0]
    assert beside.gap.upper == pytest.approx(table["gap_l2"][3], abs=SAME)
    assert known(beside.reference_gap).upper == pytest.approx(table["gap_l2"][1], abs=SAME)


def test_samples_that_the_leading_part_alone_misclassifies_are_named() -> None:
    module = seeded(biased(), 1)
    with torch.no_grad():
        leading = module(X)[:, 0] - module.get_parameter("2.bias")
        module.get_parameter("2.bias").copy_(leading.min().abs() + 1.0)
    wrong = np.flatnonzero(leading <= 0)
    assert 0 < len(wrong) < N
    with pytest.raises(SeparationError, match=rf"leading-order.* {wrong[0]}.*train_to_limit\("):
        quiet(module, np.ones(N), leading=True)
    right = copy.deepcopy(module)
    with torch.no_grad():
        right.get_parameter("2.weight").abs_()
    with pytest.raises(SeparationError, match="the reference.*leading-order"):
        ib.which_norm(right, X, np.ones(N), reference=module, norms=["l2"], leading=True)


def test_samples_that_the_module_alone_misclassifies_are_named() -> None:
    module = seeded(biased(), 2)
    nn.init.zeros_(module.get_parameter("2.bias"))
    labels = own_labels(module, X)
    nn.init.constant_(module.get_parameter("2.bias"), 100.0)
    found = quiet(module, labels, leading=True)
    assert finding(found, Code.MODULE_MISCLASSIFIES).value > 0
    assert known(found.rest) > 1


def scalars(function: Callable[..., Tensor], **values: float) -> nn.Module:
    return Computed(function, **{name: torch.tensor([v]) for name, v in values.items()}).double()


def test_a_sample_at_which_the_leading_part_is_0_has_no_margin_in_it() -> None:
    """Beside a shortcut all units are off there; what is left of it at c theta is no margin."""
    module = scalars(
        lambda m, x: m.last * x + m.second * (m.first * x).relu(), first=2.0, second=3.0, last=1.0
    )
    inputs = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    with pytest.raises(SeparationError, match=r"leading-order part.*samples 1\)"):
        ib.diagnose(module, inputs, own_labels(module, inputs), leading=True)
    assert ib.diagnose(module, inputs[:1], [1], leading=True).min_margin == pytest.approx(6.0)
    row = ib.Recorder(module, inputs, own_labels(module, inputs), "l2", leading=True).record()
    assert (row["min_margin"], row["error"]) == (0.0, 0.5)


def test_what_jumps_at_random_parameters_of_less_degree_is_no_jump_of_the_leading_part() -> None:
    """There (1.5, -0.3, -2.2, 0.6, -1.1) the first unit is off, and the second is as it is on."""
    module = scalars(
        lambda m, x: m.last * (m.bias + m.inner * (m.first * x).relu()).relu() + m.upper,
        **{"upper": 0.01, "first": 2.0, "inner": 3.0, "bias": 0.01, "last": 1.0},
    )
    found = ib.diagnose(module, torch.ones(1, 1, dtype=torch.float64), [1], leading=True)
    assert found.degree == 3.0
    assert found.min_margin == pytest.approx(6.0)


@pytest.mark.slow
def test_training_to_the_limit_reaches_that_of_the_leading_part() -> None:
    module = seeded(biased(), 2)
    nn.init.zeros_(module.get_parameter("2.bias"))
    labels = own_labels(module, X)
    nn.init.constant_(module.get_parameter("2.bias"), 1e-2)
    with pytest.raises(HomogeneityError, match="leading=True"):
        ib.train_to_limit(module, X, labels, ib.LimitConfig(steps=9))
    with pytest.raises(ValueError, match="optimum"):
        ib.train_to_limit(module, X, labels, leading=True, optimum=1.0)
    result = ib.train_to_limit(
        module, X, labels, ib.LimitConfig(steps=200), leading=True, stop_at_gap=0.5
    )
    found = quiet(module, labels, leading=True)
    assert result.ending is Ending.GAP
    assert result.history[-1].gap == pytest.approx(found.gap, abs=SAME)
    assert found.gap <= 0.5 < result.history[0].gap
    ib.train_to_limit(module, X, labels, ib.LimitConfig(steps=100), leading=True)
    later = quiet(module, labels, leading=True)
    assert later.gap_across_kinks < 0.1
    assert known(later.rest) < 0.5 * known(found.rest)


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (attention(), "softmax.*'scores.weight'"),
        (nn.Sequential(nn.Linear(D, H), nn.LayerNorm(H), nn.Linear(H, 1)), "layer_norm.*'1'"),
        (normalised(), "degree 0 in '0.weight'"),
        (nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, 1)), "tanh.*'0.weight'"),
    ],
    ids=["softmax", "layer norm", "own normalisation", "tanh"],
)
def test_limits_that_jump_are_refused_by_name(module: nn.Module, match: str) -> None:
    seeded(module, 1)
    with pytest.raises(HomogeneityError, match=match):
        ib.diagnose(module, X, own_labels(module, X), leading=True)


@pytest.mark.parametrize(("leading", "said"), [(False, "far larger"), (True, "no limit")])
def test_what_is_cut_off_above_is_not_homogeneous_and_has_no_leading_part(
    leading: bool, said: str
) -> None:
    """Although it scales where it is, and twice as far."""
    module = Computed(lambda m, x: m.last(x).clamp(-1e6, 1e6), last=linear(D))
    labels = own_labels(seeded(module, 1), X)
    with pytest.raises(HomogeneityError, match=said):
        ib.diagnose(module, X, labels, leading=leading)


@pytest.mark.parametrize("layers", [5, 30])
def test_what_overflows_far_above_is_not_refused(layers: int) -> None:
    """In float32 within the module, or in float64 by its depth."""
    dtype = torch.float32 if layers == 5 else torch.float64

    def product(m: Any, x: Tensor) -> Any:
        hidden = m.first(x).to(dtype)
        for n in range(layers - 1):
            hidden = hidden * m.factors[n].to(dtype)
        return hidden.to(x.dtype)

    module = seeded(Computed(product, first=linear(D), factors=torch.ones(layers - 1)), 1)
    assert quiet(module, own_labels(module, X)).degree == pytest.approx(layers)


# --- limits on the time --------------------------------------------------------------------------


def test_a_limit_of_time_that_is_too_short_is_said() -> None:
    module = seeded(residual(), 1)
    labels = own_labels(seeded(residual(whole=False), 1), X)
    with pytest.raises(TimeoutError, match="max_seconds"):
        quiet(module, labels, leading=True, max_seconds=1e-9)
    with pytest.raises(TimeoutError, match="max_seconds"):
        ib.train_to_limit(module, X, labels, leading=True, max_seconds=1e-9)


def test_jumps_that_there_was_no_time_to_look_for_are_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = seeded(residual(), 1)
    inputs = X[1:].repeat(40, 1)  # of the first one all units are off
    part = residual(whole=False).double()
    part.load_state_dict(module.state_dict())
    labels = own_labels(part, inputs)
    leading = import_module("implicit_bias.modules.leading")
    search = leading.JumpSearch
    monkeypatch.setattr(leading, "JumpSearch", partial(search, share=0.0))
    found = asking.quiet(module, inputs, labels, leading=True, max_seconds=1e3)
    names = finding(found, Code.JUMPS_NOT_CHECKED).names
    assert set(names) == {name for name, _ in module.named_parameters()}
    assert any("max_seconds" in warning for warning in found.warnings)
    config = ib.LimitConfig(steps=1)
    with pytest.warns(RuntimeWarning, match="max_seconds"):
        ib.train_to_limit(module, inputs, labels, config, leading=True, max_seconds=1e3)
    # With time for it there is no such finding, and all numbers are the same.
    monkeypatch.setattr(leading, "JumpSearch", search)
    checked = asking.quiet(module, inputs, labels, leading=True)
    assert Code.JUMPS_NOT_CHECKED not in asking.codes(checked)


def test_a_jump_is_refused_by_the_first_samples_alone() -> None:
    inputs = drawn(600, D)
    labels = np.where(np.arange(600) % 2, 1, -1)
    with pytest.raises(HomogeneityError, match="jumps"):
        asking.quiet(seeded(attention(), 1), inputs, labels, leading=True)
