"""What makes the numbers of a diagnosis mean less is a finding that warns."""

import warnings

import pytest
import torch
from torch import nn

from diagnosis.asking import D, X, finding, quiet
from example_modules import Computed, frozen, layers, linear, own_labels, seeded
from implicit_bias import DiagnosisWarning, diagnose
from implicit_bias.diagnosis import Code


def test_parameters_without_gradient_do_not_count() -> None:
    """Here the weights of a hard gate."""
    module = Computed(
        lambda m, x: m.last((x @ m.gate.T > 0).to(x) * m.first(x)),
        gate=torch.empty(8, D),
        first=linear(D, 8),
        last=linear(8),
    )
    labels = own_labels(seeded(module, 1), X)
    with pytest.warns(DiagnosisWarning, match="'gate'") as caught:
        found = diagnose(module, X, labels)
    assert caught[0].filename == __file__  # where the caller called it
    assert finding(found, Code.NO_GRADIENT).names == ("gate",)
    frozen(module, "gate")
    with warnings.catch_warnings(action="error"):
        expected = diagnose(module, X, labels)
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)
    assert found.normalised_margin == pytest.approx(expected.normalised_margin)
    assert expected.warnings == ()


def test_training_mode_is_named_and_kept() -> None:
    module = seeded(nn.Sequential(linear(D, 6), nn.Dropout(0.5), nn.ReLU(), linear(6)), 1)
    expected = quiet(module).gap
    labels = own_labels(module, X)
    module.train()
    module.get_submodule("2").eval()  # a part in another mode
    state = torch.get_rng_state()
    found = quiet(module, labels=labels)
    assert finding(found, Code.TRAINING_MODE).names == ("1",)
    assert finding(found, Code.DROPOUT).names == ("1",)
    assert len(found.warnings) == 2
    assert found.gap == expected
    assert [part.training for part in module.modules()] == [True, True, True, False, True]
    assert torch.equal(torch.get_rng_state(), state)


def test_directions_of_weight_normalisation_are_named() -> None:
    module = seeded(layers(D, 4, 1), 2)
    nn.utils.parametrizations.weight_norm(module.get_submodule("0"))
    found = finding(quiet(module), Code.DEGREE_0)
    assert found.names == ("0.parametrizations.weight.original1",)
