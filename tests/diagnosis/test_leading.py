"""Modules that are homogeneous only in the limit are measured by their leading part."""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import implicit_bias as ib
from diagnosis import asking
from diagnosis.asking import codes, finding
from example_modules import Computed, drawn, known, linear, own_labels, seeded
from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.layers import LayerBounds
from implicit_bias.modules.subject import SeparationError
from implicit_bias.norms import NormName
from implicit_bias.norms.tensors import as_parameter_norm
from implicit_bias.training.limit import Ending

D, H, N = 4, 5, 9
# How near a gap is to that of the leading part written by hand.
SAME = 1e-8
X = drawn(N, D)


def lora(*, whole: bool = True, outputs: int = 1) -> nn.Module:
    """Build a frozen network of two layers, of which the first has an update of rank 2."""
    trained = {"A": torch.empty(2, D), "B": torch.empty(H, 2)}
    module = Computed(lambda m, x: (x @ (m.W_0 + m.B @ m.A).T).relu() @ m.readout.T, **trained)
    module.register_buffer("W_0", 0.3 * drawn(H, D, seed=7) * whole)
    module.register_buffer("readout", drawn(outputs, H, seed=8))
    return module


def biased(*, whole: bool = True) -> nn.Sequential:
    """Build a ReLU layer with a bias above it, which the leading part has not."""
    return nn.Sequential(linear(D, H), nn.ReLU(), nn.Linear(H, 1, bias=whole))


def quiet(module: nn.Module, labels: Any, **options: Any) -> ib.Diagnosis:
    return asking.quiet(module, X, labels, **options)


@pytest.mark.parametrize(
    ("build", "norm"),
    [(partial(lora, outputs=3), "spectral"), (biased, "l2")],
    ids=["lora", "biased"],
)
def test_gaps_are_those_of_the_leading_part_written_by_hand(
    build: Callable[..., nn.Module], norm: NormName, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Out of time a bound of a layer is known to a thousandth only, so that a busy machine would
    # decide what is compared.
    diagnosing = import_module("implicit_bias.diagnosis.diagnose")
    monkeypatch.setattr(diagnosing, "LayerBounds", partial(LayerBounds, seconds=60.0))
    module, by_hand = (seeded(build(whole=whole), 5) for whole in (True, False))
    labels = own_labels(by_hand, X)
    found = quiet(module, labels, norm=norm, leading=True)
    expected = quiet(by_hand, labels, norm=norm)
    assert found.degree == expected.degree
    assert found.min_margin == pytest.approx(expected.min_margin, rel=SAME)
    # The bias counts with KKT value 0: so the proven bound is the same, not the norm.
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
    assert Code.JUMPS_NOT_CHECKED not in codes(found)
    code = Code.LEADING_PART if norm == "l2" else Code.LEADING_PART_WITHOUT_THEOREM
    assert finding(found, code).value == found.rest


def test_which_norm_and_the_recorder_measure_the_leading_part() -> None:
    module, by_hand = (seeded(lora(whole=whole), 1) for whole in (True, False))
    labels = own_labels(by_hand, X)
    expected = quiet(module, labels, leading=True)
    found = ib.which_norm(module, X, labels, reference=module, norms="l2", leading=True)
    assert found.rows[0].gap.upper == pytest.approx(expected.gap, abs=SAME)
    assert known(found.rows[0].reference_gap).upper == pytest.approx(expected.gap, abs=SAME)
    recorder = ib.Recorder(module, X, labels, "l2", leading=True)
    row = recorder.record()
    assert row["gap_l2"] == pytest.approx(expected.gap, abs=SAME)
    assert row["rest"] == pytest.approx(expected.rest)
    nn.init.zeros_(module.get_parameter("B"))
    row = recorder.record()
    # At B = 0 the leading part is 0, so nothing is known of its gap.
    assert row["error"] == 1.0
    assert np.isnan(row["gap_l2"])


def test_samples_that_the_leading_part_alone_misclassifies_are_named() -> None:
    module = seeded(biased(), 1)
    with torch.no_grad():
        leading = module(X)[:, 0] - module.get_parameter("2.bias")
        module.get_parameter("2.bias").copy_(leading.min().abs() + 1.0)
    wrong = np.flatnonzero(leading <= 0)
    assert 0 < len(wrong) < N
    with pytest.raises(SeparationError, match=rf"leading-order.* {wrong[0]}.*train_to_limit\("):
        quiet(module, np.ones(N), leading=True)


def test_training_to_the_limit_reaches_that_of_the_leading_part() -> None:
    module = seeded(biased(), 2)
    nn.init.zeros_(module.get_parameter("2.bias"))
    labels = own_labels(module, X)
    nn.init.constant_(module.get_parameter("2.bias"), 1e-2)
    before = quiet(module, labels, leading=True)
    config = ib.LimitConfig(steps=200, record=8)
    result = ib.train_to_limit(module, X, labels, config, leading=True, stop_at_gap=0.5)
    found = quiet(module, labels, leading=True)
    assert result.ending is Ending.GAP
    assert result.history[-1].gap == pytest.approx(found.gap, abs=SAME)
    assert found.gap <= 0.5 < before.gap


# --- limits on the time --------------------------------------------------------------------------


def test_jumps_that_there_was_no_time_to_look_for_are_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = seeded(lora(), 1)
    labels = own_labels(seeded(lora(whole=False), 1), X)
    search = import_module("implicit_bias.modules.leading")
    monkeypatch.setattr(search, "JumpSearch", partial(search.JumpSearch, share=0.0))
    found = quiet(module, labels, leading=True, max_seconds=1e3)
    names = finding(found, Code.JUMPS_NOT_CHECKED).names
    assert set(names) == {name for name, _ in module.named_parameters()}
