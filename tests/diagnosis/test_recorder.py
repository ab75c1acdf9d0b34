"""The recorder of other people's loops: margins and gaps by brute force, the module left alone."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from cases import clusters
from diagnosis.asking import descend
from example_modules import layers, scale_weights
from implicit_bias import DiagnosisWarning, Recorder, diagnose, max_margin, solve

X, LABELS = clusters(18, 4, spread=0.2, seed=0)
NORMS = ("l2", "linf")


def linear(outputs: int = 3) -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(4, outputs, bias=False)


def trained(module: nn.Module) -> None:
    """Take 20 steps by Adam."""
    inputs, labels = torch.tensor(X).float(), torch.tensor(LABELS)
    adam = torch.optim.Adam(module.parameters(), lr=0.05)
    descend(adam, lambda: nn.functional.cross_entropy(module(inputs), labels), 20)


def test_frame_by_brute_force() -> None:
    """Of a linear module the optimum in each norm is solved: 1 - gap = (optimum / norm)^2."""
    module = linear()
    recorder = Recorder(module, X, LABELS, NORMS)
    recorder.record()
    trained(module)
    W = module.weight.detach().double().numpy()
    row = recorder.record(20)
    outputs = X @ W.T
    q = np.array(
        [outputs[n, y] - outputs[n, k] for n, y in enumerate(LABELS) for k in range(3) if k != y]
    )
    sizes = {"l2": np.sqrt((W**2).sum()), "linf": np.abs(W).max()}
    assert row["min_margin"] == pytest.approx(q.min())
    assert row["error"] == 0.0
    assert q.min() > 0
    for name in NORMS:
        margin = q.min() / sizes[name]
        optimum = solve(max_margin(X, LABELS, name), tol=1e-9).certificate.lower
        assert row[f"margin_{name}"] == pytest.approx(margin)
        expected = 1.0 - (optimum * margin) ** 2
        assert row[f"gap_{name}"] == pytest.approx(expected, abs=1e-6)
    assert recorder.frame()["step"].tolist() == [0, 20]
    assert recorder.frame().iloc[-1].to_dict() == row


def test_norms_are_read_from_optimizers() -> None:
    """As by diagnose: here from two that train the module together, and from one of them."""
    torch.manual_seed(0)
    module = layers(4, 16, 3)
    first, last = module.parameters()
    both = [torch.optim.Adam([first]), torch.optim.Adam([last], lr=0.01)]
    trained(module)
    recorder = Recorder(module, X, LABELS, norms=[both, "l2"])
    read = diagnose(module, X, LABELS, optimizer=both)
    assert tuple(recorder.norms) == (read.norm, "l2")
    free = recorder.record()
    assert free[f"gap_{read.norm}"] == pytest.approx(read.gap, abs=1e-3)
    hurried = Recorder(module, X, LABELS, norms=["l2"], max_seconds=1e-9).record()
    assert hurried["gap_l2"] > free["gap_l2"] + 0.05  # the search was stopped
    with pytest.warns(DiagnosisWarning, match="optimizer") as caught:
        half = Recorder(module, X, LABELS, norms=both[:1])
    assert caught[0].filename == __file__  # where the caller called it
    assert half.subject.function.shapes.keys() == {"0.weight"}


def test_points_before_separation_have_no_gap() -> None:
    module = scale_weights(linear(), -1.0)
    recorder = Recorder(module, X, LABELS, ["l2"])
    row = recorder.record()
    outputs = X @ module.weight.detach().double().numpy().T
    assert row["error"] == np.mean(outputs.argmax(axis=1) != LABELS)
    assert row["margin_l2"] < 0
    assert math.isnan(row["gap_l2"])


def test_weights_that_have_diverged_or_start_at_zero() -> None:
    """The degree shows once the outputs do."""
    module = linear()
    nn.init.zeros_(module.weight)
    recorder = Recorder(module, X, LABELS)
    assert math.isnan(recorder.record()["margin_l2"])
    module.load_state_dict(linear().state_dict())
    assert math.isfinite(recorder.record()["margin_linf"])
    nn.init.constant_(module.weight, math.nan)
    row = recorder.record()
    assert row.pop("step") == 2
    assert all(math.isnan(value) for value in row.values())


def test_inputs_are_kept() -> None:
    inputs = X.copy()
    recorder = Recorder(linear().double(), inputs, LABELS)
    recorder.record()
    inputs *= 2.0
    recorder.record()
    assert recorder.frame().min_margin.nunique() == 1


def test_a_module_that_has_gained_parameters_is_another() -> None:
    module = nn.Sequential(linear())
    recorder = Recorder(module, X, LABELS)
    module[0] = nn.Linear(4, 3)
    with pytest.raises(ValueError, match="anew"):
        recorder.record()
    assert not recorder.rows
