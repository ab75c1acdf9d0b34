"""Checkpoints: a training that ends early goes on to the bit, and no other one takes its file."""

import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

from implicit_bias import LimitConfig, train_to_limit
from implicit_bias.networks import GLN
from implicit_bias.norms import L1, LInf
from implicit_bias.norms.tensors import ComposedNorm
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.limit import CheckpointError, Ending, LimitPoint
from implicit_bias.training.losses import MarginLoss
from modules import layers, scale_weights, seeded, weights_of
from system import retold, stop_at
from training.samples import GATING, LABELS, SHORT, SIGNS, X2, X4, X, Y, gln, two_layers

# A module, samples, labels and a configuration.
Training = tuple[Callable[[], nn.Module], Any, Any, LimitConfig]


def of_blobs(
    build: Callable[[], nn.Module] = gln, X: Any = X, y: Any = Y, **changes: Any
) -> Training:
    return build, X, y, replace(SHORT, **changes)


def of_four(steps: int = 9, **options: Any) -> Training:
    return two_layers, X4, LABELS, LimitConfig(steps=steps, checkpoint_every=5, **options)


def activated(activation: nn.Module) -> Training:
    def build() -> nn.Module:
        return seeded(layers(5, 4, 1, between=lambda: activation))

    return build, X2, SIGNS, LimitConfig(steps=5)


KEYS = ("first", "second")  # of `two_layers`
TRAININGS = {
    "plain": of_blobs(method="plain", loss="logistic"),
    "momentum": of_blobs(method="momentum", loss="logistic"),
    "accelerated": of_blobs(method="accelerated", loss="logistic"),
    "steepest": of_four(30, norm="spectral", chunk=np.int8(9), record=np.int64(20)),
}


@pytest.mark.every(5)
@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("interrupted", [True, False])
def test_resumption_is_bit_identical(interrupted: bool, name: str, tmp_path: Path) -> None:
    """After Ctrl-C, and where a training that has finished is asked for more steps."""
    build, inputs, labels, config = TRAININGS[name]
    complete, other, file = build(), build(), tmp_path / "state.safetensors"
    options: dict[str, Any] = {"measure": lambda n: {"own": np.float32(weights_of(n).max())}}
    options |= {"optimum": 1.0} if build is gln else {}
    expected = train_to_limit(complete, inputs, labels, config, **options)
    early = config.steps // 2 - 2
    asked = config if interrupted else replace(config, steps=early)
    on_point = stop_at(early) if interrupted else None
    options |= {"checkpoint": file}
    part = train_to_limit(build(), inputs, labels, asked, on_point=on_point, **options)
    assert part.ending is (Ending.INTERRUPTED if interrupted else Ending.STEPS)
    assert part.history[-1].step == early
    scale_weights(other, 2.0)  # they do not count: those of the checkpoint do
    result = train_to_limit(other, inputs, labels, config, resume=True, **options)
    np.testing.assert_array_equal(weights_of(other), weights_of(complete))
    assert result.frame().equals(expected.frame())


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
import torch
torch.set_num_threads(1)
from implicit_bias import train_to_limit
from training.samples import SHORT, X, Y, gln

def kill(point):
    if point.step >= 36:
        os.kill(os.getpid(), signal.SIGKILL)

train_to_limit(gln(), X, Y, SHORT, checkpoint=sys.argv[2], on_point=kill)
"""


@pytest.mark.slow
def test_a_killed_training_loses_only_what_is_since_the_checkpoint(tmp_path: Path) -> None:
    file, tests = tmp_path / "state.safetensors", Path(__file__).parents[1]
    command = [sys.executable, "-c", KILLED, str(tests), str(file)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    done: list[int] = []
    network, complete = gln(), gln()
    kept: dict[str, Any] = {"checkpoint": file, "resume": True}
    train_to_limit(network, X, Y, SHORT, on_point=lambda point: done.append(point.step), **kept)
    assert min(done) > 30  # the last multiple of 10 before 36
    train_to_limit(complete, X, Y, SHORT)
    np.testing.assert_array_equal(weights_of(network), weights_of(complete))


def test_a_checkpoint_is_not_overwritten_unasked(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    train_to_limit(gln(), X, Y, SHORT, checkpoint=file, resume=True)  # nothing there: from anew
    before = file.read_bytes()
    with pytest.raises(FileExistsError, match="resume=True"):
        train_to_limit(gln(), X, Y, SHORT, checkpoint=file)
    assert file.read_bytes() == before


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("first", "second", "other"),
    [
        *(
            (of_blobs(), changed, "training")
            for changed in (
                of_blobs(X=X + 1.0),
                of_blobs(y=-Y),
                of_blobs(lambda: GLN([HyperplaneContexts.random(X, 4, 1, random_state=1)])),
                of_blobs(lambda: GLN([GATING, GATING])),
                of_blobs(method="plain"),
                of_blobs(loss="logistic"),
                of_blobs(loss=MarginLoss("exponential", lambda q: -2.0 * q)),
            )
        ),
        (of_four(norm="spectral"), of_four(), "training"),
        (of_four(norm="spectral"), of_four(norm="linf"), "training"),
        (*(of_four(norm=ComposedNorm(L1(), L1(), "a", {"": s})) for s in (1.0, 2.0)), "training"),
        (
            *(of_four(norm=ComposedNorm({k: L1(), "": LInf()}, LInf(), "a")) for k in KEYS),
            "training",
        ),
        (of_four(), of_four(chunk=3), "training"),
        (activated(nn.ReLU()), activated(nn.LeakyReLU(0.2)), "module"),
    ],
)
def test_a_checkpoint_of_another_training_is_refused(
    first: Training, second: Training, other: str, tmp_path: Path
) -> None:
    file, module = tmp_path / "state.safetensors", second[0]()
    train_to_limit(first[0](), *first[1:], checkpoint=file)
    before = weights_of(module)
    with pytest.raises(CheckpointError, match=f"of another {other}"):
        train_to_limit(module, *second[1:], checkpoint=file, resume=True)
    np.testing.assert_array_equal(weights_of(module), before)


def test_an_error_of_the_module_leaves_what_was_reached(tmp_path: Path) -> None:
    """The module and the checkpoint; this goes on where the norm is an optimizer's, the same."""
    module, file, kept = two_layers(), tmp_path / "state.safetensors", list[Any]()

    def fail(*_: Any) -> None:
        raise RuntimeError("out of memory")

    def on_point(point: LimitPoint) -> None:
        if point.step == 4:
            kept.append(weights_of(module))
            module.register_forward_hook(fail)

    with pytest.raises(RuntimeError, match="memory"):
        train_to_limit(module, X4, LABELS, LimitConfig(steps=9), checkpoint=file, on_point=on_point)
    np.testing.assert_array_equal(weights_of(module), kept[0])
    options: dict[str, Any] = {"checkpoint": file, "resume": True, "optimizer": "sgd"}
    train_to_limit(two_layers(), X4, LABELS, LimitConfig(steps=5), on_point=kept.append, **options)
    assert [point.step for point in kept[1:]] == [5]


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_checkpoint_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    train_to_limit(gln(), X, Y, SHORT, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    words = r"state\.safetensors is no checkpoint, or is damaged"
    with pytest.raises(CheckpointError, match=words):
        train_to_limit(gln(), X, Y, SHORT, checkpoint=file, resume=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda header, _: header["state"].update(min_margin=None),
        lambda header, _: header["state"].update(step=-1),
        lambda header, _: header["history"][0].update(loss="x"),
        lambda _, tensors: tensors.update(velocity=tensors["velocity"][:1]),
        lambda _, tensors: tensors.update(weights=tensors["weights"].astype(np.float32)),
    ],
    ids=["margin", "step", "loss", "size", "precision"],
)
def test_a_part_of_another_type_is_damage(
    change: Callable[[Any, Any], None], tmp_path: Path
) -> None:
    file = tmp_path / "state.safetensors"
    build, inputs, labels, config = of_four(steps=1)
    train_to_limit(build(), inputs, labels, config, checkpoint=file)
    retold(file, "implicit-bias limit checkpoint 1", change)
    with pytest.raises(CheckpointError, match="damaged"):
        train_to_limit(build(), inputs, labels, config, checkpoint=file, resume=True)
