"""Training: reproducible, equal to a loop by hand, kept when interrupted, loud when diverged."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from example_modules import weights_of
from implicit_bias.base.validation import Array
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.training.history import HistoryPoint
from implicit_bias.training.limit import LimitConfig
from implicit_bias.training.losses import LOSSES, LossName, MarginLoss
from implicit_bias.training.minibatch import (
    TrainingConfig,
    TrainingDiverged,
    shuffled_batches,
    train,
)
from system import stop_at
from training.samples import GATING, X, Y, gln

SHORT = TrainingConfig(steps=30, batch_size=16, record=8)


def weights_after(config: TrainingConfig, network: Network | None = None) -> Array:
    return weights_of(train(network or gln(), X, Y, config).network)


# --- the algorithm ---------------------------------------------------------------------------


def test_what_does_not_change_the_training() -> None:
    """One batch of all samples is a full batch, up to the order; what is recorded is no step."""
    full = weights_after(replace(SHORT, batch_size=None))
    np.testing.assert_allclose(
        weights_after(replace(SHORT, batch_size=np.array([len(Y)])[0])), full, rtol=1e-10
    )
    np.testing.assert_array_equal(weights_after(SHORT), weights_after(replace(SHORT, record=2)))


def test_an_epoch_takes_each_sample_once() -> None:
    batches = [np.asarray(batch) for batch in itertools.islice(shuffled_batches(40, SHORT), 6)]
    assert [len(batch) for batch in batches] == [16, 16, 8, 16, 16, 8]
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize("config", [SHORT, replace(SHORT, rule="local")], ids=["", "local"])
def test_training_is_reproducible_and_the_global_generator_stays(config: TrainingConfig) -> None:
    state = torch.get_rng_state()
    first, again = weights_after(config), weights_after(config)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, weights_after(replace(config, seed=1)))
    assert not np.array_equal(first, weights_after(config, gln(seed=1)))


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "build",
    [
        lambda: GLN([GATING], readout_bias=True),
        lambda: GLN([GATING, GATING]),
        lambda: ReLUNetwork(X.shape[1], [8]),
        lambda: ReLUNetwork(X.shape[1], [8, 4], dtype=torch.float32),
    ],
)
def test_separable_data_are_learned(build: Callable[[], Network]) -> None:
    result = train(build(), X, Y, TrainingConfig(steps=300, batch_size=None, learning_rate=0.2))
    first, last = result.history[0], result.history[-1]
    assert last.error == 0.0
    assert last.min_margin > 0.0
    assert last.loss < first.loss
    assert last.normalised_margin > first.normalised_margin


@pytest.fixture
def ninth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in the ninth evaluation of the loss: points 0 and 1 of 30, then step 6."""
    calls = itertools.count(1)

    def loss_then_interrupt(margins: torch.Tensor) -> torch.Tensor:
        if next(calls) == 9:
            raise KeyboardInterrupt
        return torch.nn.functional.softplus(-margins)

    monkeypatch.setitem(LOSSES, "logistic", MarginLoss("stop", torch.neg, loss_then_interrupt))


# --- configuration ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("steps", "record", "expected"),
    [
        (100, 2, {0, 100}),
        (100, 4, {0, 1, 10, 100}),
        (1, 50, {0, 1}),
        (3, 50, {0, 1, 2, 3}),
        (100, (50, 7, 7), {0, 7, 50, 100}),
        (100, (), {0, 100}),
        (100, (0, 100), {0, 100}),
    ],
)
def test_recorded_steps(steps: int, record: int | tuple[int, ...], expected: set[int]) -> None:
    assert TrainingConfig(steps=steps, record=record).recorded_steps == expected


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        (TrainingConfig, "steps", 0),
        (TrainingConfig, "learning_rate", math.nan),
        (TrainingConfig, "momentum", 1.0),
        (TrainingConfig, "rule", "hebb"),
        (TrainingConfig, "record", (0, 3201)),
        (TrainingConfig, "loss", "hinge"),
        (LimitConfig, "record", 0.5),
        (LimitConfig, "method", "newton"),
        (LimitConfig, "friction", 0.0),
        (LimitConfig, "norm", "l3"),
    ],
)
def test_a_configuration_out_of_range_is_refused(
    kind: type[TrainingConfig | LimitConfig], name: str, value: Any
) -> None:
    with pytest.raises(ValueError, match=name):
        kind(**{name: value})


def test_a_loss_of_ones_own() -> None:
    steep = MarginLoss("steep", lambda margins: -2.0 * margins)
    result = train(gln(), X, Y, replace(SHORT, loss=steep))
    margins = Y * result.network.decision(X)
    assert result.history[-1].loss == pytest.approx(np.exp(-2.0 * margins).mean())


# --- history ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("record", "classes"), [(8, None), ((3, 17), None), (8, 4)])
def test_history_describes_the_network(record: int | tuple[int, ...], classes: int | None) -> None:
    reported: list[HistoryPoint] = []
    config = replace(SHORT, record=record, loss="cross-entropy" if classes else "logistic")
    start = ReLUNetwork(X.shape[1], [6], classes=4) if classes else gln()
    y = np.arange(len(Y)) % 4 if classes else Y
    result = train(start, X, y, config, on_point=reported.append)
    assert result.history == tuple(reported)
    assert [point.step for point in reported] == sorted(config.recorded_steps)
    assert (result.steps, result.interrupted) == (SHORT.steps, False)
    last, f = result.history[-1], result.network.decision(X)
    if classes:
        margins = np.array([row[k] - np.delete(row, k).max() for row, k in zip(f, y, strict=True)])
        loss = cross_entropy(torch.tensor(f), torch.tensor(y)).item()
    else:
        margins = y * f
        loss = np.log1p(np.exp(-margins)).mean()
    assert last.loss == pytest.approx(loss)
    assert last.error == np.mean(margins <= 0)
    assert last.min_margin == pytest.approx(margins.min())
    assert last.norm == pytest.approx(result.network.norm())
    assert last.normalised_margin == pytest.approx(margins.min() / result.network.norm())
    table = result.frame()
    assert table.columns[0] == "step"
    for name in table.columns:
        assert table[name].tolist() == [getattr(point, name) for point in reported]


def relu_gates(network: Network) -> Array:
    """Gates of a ReLU network by hand, layer beside layer: (n, H_1 + H_2 + ...)."""
    outputs, gates = X, []
    for weights in network.hidden_weights:
        excess = outputs @ weights.detach().numpy().T
        gates.append(excess > 0)
        outputs = np.maximum(excess, 0)
    return np.hstack(gates)


def test_changed_gates_are_counted() -> None:
    network = ReLUNetwork(X.shape[1], [8, 4], seed=1)
    seen: list[tuple[float, Array]] = []

    def on_point(point: HistoryPoint) -> None:
        seen.append((point.gates_changed, relu_gates(network)))

    train(network, X, Y, replace(SHORT, learning_rate=0.5), on_point=on_point)
    start = seen[0][1]
    assert seen[0][0] == 0.0
    assert seen[-1][0] > 0.0
    for changed, gates in seen:
        assert changed == np.mean(gates != start)


def test_fixed_gates_do_not_change() -> None:
    network = FrozenGateReLU(ReLUNetwork(3, [8, 4]))
    result = train(network, X, Y, replace(SHORT, learning_rate=0.5))
    assert [point.gates_changed for point in result.history] == [0.0] * len(result.history)


def test_an_output_of_zero_is_an_error() -> None:
    network = gln()
    torch.nn.init.zeros_(network.readout)
    first = train(network, X, Y, SHORT).history[0]
    assert first.error == 1.0
    assert np.isnan(first.normalised_margin)


def test_progress_is_said_before_each_step() -> None:
    said: list[tuple[int, int]] = []
    train(gln(), X, Y, SHORT, on_progress=lambda done, steps, _: said.append((done, steps)))
    assert said == [(done, SHORT.steps) for done in range(SHORT.steps + 1)]
    with pytest.raises(TypeError, match="on_progress"):
        train(gln(), X, Y, SHORT, on_progress=True)  # type: ignore[arg-type]


# --- when it ends early ----------------------------------------------------------------------


def test_interruption_at_a_point_keeps_the_history() -> None:
    complete = train(gln(), X, Y, SHORT)
    stop = complete.history[4].step
    result = train(gln(), X, Y, SHORT, on_point=stop_at(stop))
    assert result.interrupted
    assert result.steps == stop
    assert result.history == complete.history[:5]


@pytest.mark.usefixtures("ninth")
def test_interruption_between_points_adds_the_last_one() -> None:
    result = train(gln(), X, Y, replace(SHORT, record=3))
    assert result.interrupted
    assert [point.step for point in result.history] == [0, 1, 6]
    margins = Y * result.network.decision(X)
    assert result.history[-1].min_margin == pytest.approx(margins.min())


@pytest.mark.parametrize(("loss", "learning_rate"), [("exponential", 1e4), ("logistic", 1e200)])
def test_divergence_is_named(loss: LossName, learning_rate: float) -> None:
    config = replace(SHORT, loss=loss, learning_rate=learning_rate)
    with pytest.raises(TrainingDiverged, match=r"after \d+ steps"):
        train(gln(), X, -Y, config)
