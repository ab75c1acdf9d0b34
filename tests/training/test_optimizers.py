"""Optimizers by name: torch's own steps, signs by hand, and what names and keys depend on."""

import json
import sys
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from torch import nn
from torch.optim import Optimizer

from implicit_bias import GLNClassifier
from implicit_bias.base.options import OPTIMIZER_LIMITS, OPTIMIZER_NAMES, OptimizerName
from implicit_bias.base.validation import Array
from implicit_bias.cli import main
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model, save_model
from implicit_bias.networks import GLN
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.grid import cell_key
from implicit_bias.training import TrainingConfig, train
from implicit_bias.training.optimizers import OPTIMIZERS, SignDescent

DATA = make_toy("blobs", n_samples=40, random_state=0)
GATING = HyperplaneContexts.random(DATA.X, 4, 1, random_state=0)


def gln(*, readout_bias: bool = False) -> GLN:
    return GLN([GATING], readout_bias=readout_bias)


def weights_of(network: nn.Module) -> Array:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


def by_hand(optimizer: OptimizerName, steps: int) -> Array:
    """Full batches of the logistic loss by torch's own optimizer, its step size cut half way."""
    network = gln()
    matrices = list(network.parameters())
    made: Optimizer
    if optimizer == "muon":
        # torch lengthens the steps of tall matrices: here all are to be 0.1 long.
        groups = [
            {"params": [w], "lr": 0.1 / max(1.0, len(w) / w.shape[1]) ** 0.5} for w in matrices
        ]
        made = cast(Optimizer, torch.optim.Muon(groups, momentum=0.5, weight_decay=0.0))
    elif optimizer == "adam":
        made = torch.optim.Adam(matrices, lr=0.1)
    elif optimizer == "adamw":
        made = torch.optim.AdamW(matrices, lr=0.1)
    else:
        made = torch.optim.SGD(matrices, lr=0.1, momentum=0.5)
    inputs, labels = network.prepare_samples(DATA.X, DATA.y)
    average = [torch.zeros_like(w) for w in matrices]
    for step in range(steps):
        if step == steps // 2:
            for group in made.param_groups:
                group["lr"] *= 0.25
        made.zero_grad()
        torch.autograd.backward(nn.functional.softplus(-labels * network(*inputs)).mean())
        if optimizer == "sign":
            with torch.no_grad():
                for w, m in zip(matrices, average, strict=True):
                    assert w.grad is not None
                    m.mul_(0.5).add_(w.grad)
                    w.sub_((0.1 if step < steps // 2 else 0.025) * m.sign())
        else:
            made.step()
    return weights_of(network)


@pytest.mark.parametrize("optimizer", OPTIMIZER_NAMES)
def test_steps_are_those_of_torch(optimizer: OptimizerName) -> None:
    network = gln()
    config = TrainingConfig(
        steps=6, batch_size=None, learning_rate=0.1, momentum=0.5, optimizer=optimizer
    )
    train(network, DATA.X, DATA.y, config)
    np.testing.assert_allclose(weights_of(network), by_hand(optimizer, 6), rtol=1e-12)


def test_muon_steps_are_equally_long_in_all_layers() -> None:
    """Each of a spectral norm near the step size: torch's own would differ by sqrt(8 / 3)."""
    network = gln()
    before = [w.detach().clone() for w in network.parameters()]
    train(
        network,
        DATA.X,
        DATA.y,
        TrainingConfig(steps=1, batch_size=None, learning_rate=0.1, optimizer="muon", decay=1.0),
    )
    for w, old in zip(network.parameters(), before, strict=True):
        assert 0.065 < torch.linalg.matrix_norm(w.detach() - old, 2).item() < 0.125


def test_an_optimizer_of_your_own() -> None:
    """Of its step sizes the cut half way alone changes anything."""
    own, named = gln(), gln()
    config = TrainingConfig(
        steps=4,
        batch_size=None,
        learning_rate=9.0,
        optimizer=lambda weights: SignDescent(weights, lr=0.1, momentum=0.5),
    )
    train(own, DATA.X, DATA.y, config)
    by_name = TrainingConfig(
        steps=4, batch_size=None, learning_rate=0.1, momentum=0.5, optimizer="sign"
    )
    train(named, DATA.X, DATA.y, by_name)
    np.testing.assert_array_equal(weights_of(own), weights_of(named))
    assert (config.limit_norm, by_name.limit_norm) == ("", "linf")


def test_each_optimizer_has_a_norm_and_a_source() -> None:
    assert set(OPTIMIZERS) == set(OPTIMIZER_LIMITS) == set(OPTIMIZER_NAMES)
    for limit in OPTIMIZER_LIMITS.values():
        assert limit.norm in PARAMETER_NORMS
        assert limit.sources


def test_bad_use_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer"):
        TrainingConfig(optimizer="newton")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="muon"):
        TrainingConfig(optimizer="muon", rule="local")
    with pytest.raises(ValueError, match="muon"):
        RunConfig(models=("local-gln",), optimizer="muon")
    with pytest.raises(ValueError, match="readout_bias"):
        train(gln(readout_bias=True), DATA.X, DATA.y, TrainingConfig(optimizer="muon"))


def test_the_default_leaves_keys_as_they_were() -> None:
    """The key of a configuration without the field, from version 0.1.0's fixture of a store."""
    keys = {cell_key(RunConfig(optimizer=name)) for name in OPTIMIZER_NAMES}
    assert len(keys) == len(OPTIMIZER_NAMES)
    fixture = Path(__file__).parents[1] / "fixtures" / "store" / "cells"
    for file in fixture.iterdir():
        setting = json.loads(file.read_text())["record"]["setting"]
        assert "optimizer" not in setting
        assert cell_key(RunConfig.from_metadata(setting)) == file.stem
    assert not RunConfig(protocol="lippl2022", dataset="mnist", optimizer="adam").trains_as_released


def test_a_classifier_trained_by_name_is_saved_as_data(tmp_path: Path) -> None:
    model = GLNClassifier(4, steps=5, optimizer="sign", random_state=0).fit(DATA.X, DATA.y)
    save_model(tmp_path / "model.safetensors", model)
    found = load_model(tmp_path / "model.safetensors").model
    assert isinstance(found, GLNClassifier)
    assert found.optimizer == "sign"
    assert found.training_.config.limit_norm == "linf"


def test_the_command_line_shows_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    small = ["--dataset", "blobs", "--train-size", "60", "--units", "4", "--steps", "20"]
    asked = ["train", "gd-gln", "--optimizer", "sign", "--learning-rate", "0.01"]
    monkeypatch.setattr(sys, "argv", ["implicit-bias", *asked, *small])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert "linf margin" in " ".join(capsys.readouterr().out.split())
