"""A finished training from its checkpoints: the same table as recorded along the way."""

from __future__ import annotations

import copy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, nn

from diagnosis.asking import descend
from example_modules import drawn
from implicit_bias import Recorder

X = drawn(12, 4)
LABELS = X[:, :3].argmax(1)
STEPS = (0, 9, 10, 100)


@pytest.fixture(scope="module")
def run() -> tuple[list[dict[str, Tensor]], pd.DataFrame]:
    """States of a training, and what was recorded of it."""
    module = trained(0)
    recorder = Recorder(module, X, LABELS, ["l2"], gaps=False)
    adam = torch.optim.Adam(module.parameters(), lr=0.05)
    states = list[dict[str, Tensor]]()
    for step, following in pairwise([*STEPS, max(STEPS)]):
        recorder.record(step)
        states.append(copy.deepcopy(module.state_dict()))
        descend(adam, lambda: nn.functional.cross_entropy(module(X), LABELS), following - step)
    return states, recorder.frame()


def trained(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = (nn.Linear(4, 5, bias=False), nn.ReLU(), nn.Linear(5, 3, bias=False))
    return nn.Sequential(*layers).double()


def frame(checkpoints: Any) -> pd.DataFrame:
    module = trained(1)
    before = copy.deepcopy(module.state_dict())
    found = Recorder.from_checkpoints(checkpoints, module, X, LABELS, ["l2"], gaps=False).frame()
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])
    return found


def test_a_folder_is_in_the_order_of_its_steps(run: Any, tmp_path: Path) -> None:
    states, expected = run
    for step, state in zip(STEPS, states, strict=True):
        torch.save(state, tmp_path / f"run2-step={step}.pt")
    (tmp_path / "notes-3.txt").write_text("no checkpoint")
    pd.testing.assert_frame_equal(frame(tmp_path), expected)


def test_a_list_of_files_and_state_dicts(run: Any, tmp_path: Path) -> None:
    """Files hold more than the weights, whose names may begin with that of a wrapper."""
    states, expected = run
    files = [tmp_path / name for name in ("first.pt", "b.ckpt", "a.pth")]
    # DataParallel alone, and within and around torch.compile.
    prefixes = ("module.", "_orig_mod.module.", "module._orig_mod.")
    for path, state, prefix in zip(files, states[:3], prefixes, strict=True):
        prefixed = {prefix + name: value for name, value in state.items()}
        torch.save({"state_dict": prefixed, "epoch": 3, "optimizer": {"state": {}}}, path)
    found = frame([*files, states[3]])
    assert found["step"].tolist() == [0, 1, 2, 3]
    pd.testing.assert_frame_equal(found.drop(columns="step"), expected.drop(columns="step"))


def test_errors_name_the_file(run: Any, tmp_path: Path) -> None:
    states, _ = run
    broken = tmp_path / "step-5.pt"
    broken.write_bytes(b"no tensors")
    with pytest.raises(ValueError, match="step-5.pt cannot be read"):
        frame(tmp_path)
    torch.save({"0.weight": torch.zeros(5, 4)}, broken)
    with pytest.raises(ValueError, match="step-5.pt is of another module.*2.weight"):
        frame(tmp_path)
    torch.save(states[0], broken)
    torch.save(states[0], tmp_path / "last.pt")
    with pytest.raises(ValueError, match="last.pt in .* has no step"):
        frame(tmp_path)
