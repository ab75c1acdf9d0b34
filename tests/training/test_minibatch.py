"""Training: reproducible, equal to a loop by hand, kept when interrupted, loud when diverged."""

from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch

from implicit_bias.base.validation import Array
from implicit_bias.datasets.toys import make_toy
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.frozen import train_beside_frozen
from implicit_bias.training.history import HistoryPoint
from implicit_bias.training.losses import LOSSES, LossName, MarginLoss
from implicit_bias.training.minibatch import TrainingConfig, TrainingDiverged, _batches, train

DATA = make_toy("blobs", n_samples=40, random_state=0)
X, Y = DATA.X, DATA.y
GATING = HyperplaneContexts.random(X, 4, 1, random_state=0)
SHORT = TrainingConfig(steps=30, batch_size=16, record=8)


def gln(seed: int = 0) -> GLN:
    return GLN([GATING], seed=seed)


def weights_after(config: TrainingConfig, network: Network | None = None) -> Array:
    result = train(network or gln(), X, Y, config)
    return torch.nn.utils.parameters_to_vector(result.network.parameters()).detach().numpy()


# --- the algorithm ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES)
def test_full_batch_equals_gradient_descent_by_hand(loss: LossName) -> None:
    config = TrainingConfig(steps=6, batch_size=None, learning_rate=0.1, momentum=0.5, loss=loss)
    network = gln()
    parameters = list(network.parameters())
    velocities = [torch.zeros_like(p) for p in parameters]
    y = torch.tensor(Y)
    for step in range(6):
        margins = y * network(*network.prepare(X))
        losses = torch.log1p(torch.exp(-margins)) if loss == "logistic" else torch.exp(-margins)
        gradients = torch.autograd.grad(losses.mean(), parameters)
        for p, v, gradient in zip(parameters, velocities, gradients, strict=True):
            v.mul_(0.5).add_(gradient)
            p.data -= (0.1 if step < 3 else 0.025) * v
    by_hand = torch.nn.utils.parameters_to_vector(parameters).detach().numpy()
    np.testing.assert_allclose(weights_after(config), by_hand, rtol=1e-10)


def test_what_does_not_change_the_training() -> None:
    """One batch of all samples is a full batch, up to the order; what is recorded is no step."""
    full = weights_after(replace(SHORT, batch_size=None))
    np.testing.assert_allclose(weights_after(replace(SHORT, batch_size=len(Y))), full, rtol=1e-10)
    np.testing.assert_array_equal(weights_after(SHORT), weights_after(replace(SHORT, record=2)))


def test_an_epoch_takes_each_sample_once() -> None:
    batches = [np.asarray(batch) for batch in islice(_batches(40, SHORT), 6)]
    assert [len(batch) for batch in batches] == [16, 16, 8, 16, 16, 8]
    first, second = np.concatenate(batches[:3]), np.concatenate(batches[3:])
    assert sorted(first) == sorted(second) == list(range(40))
    assert not np.array_equal(first, second)


def test_training_is_reproducible_and_the_global_generator_stays() -> None:
    state = torch.get_rng_state()
    first, again = weights_after(SHORT), weights_after(SHORT)
    assert torch.equal(torch.get_rng_state(), state)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, weights_after(replace(SHORT, seed=1)))
    assert not np.array_equal(first, weights_after(SHORT, gln(seed=1)))


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


def test_permuting_hidden_units_permutes_their_training() -> None:
    order = torch.tensor([3, 0, 2, 1])
    network, permuted = (ReLUNetwork(X.shape[1], [4], seed=1) for _ in range(2))
    with torch.no_grad():
        permuted.hidden_weights[0].copy_(network.hidden_weights[0][order])
        permuted.readout.copy_(network.readout[:, order])
    config = replace(SHORT, momentum=0.9)
    train(network, X, Y, config)
    train(permuted, X, Y, config)
    torch.testing.assert_close(permuted.hidden_weights[0], network.hidden_weights[0][order])
    torch.testing.assert_close(permuted.readout, network.readout[:, order])
    np.testing.assert_allclose(permuted.decision(X), network.decision(X), rtol=1e-9)


# --- frozen gates ----------------------------------------------------------------------------


def test_the_divergence_from_the_frozen_copy() -> None:
    network = ReLUNetwork(X.shape[1], [8, 4], seed=1)
    before, gates = network.decision(X), relu_gates(network)
    config = replace(SHORT, learning_rate=0.5, momentum=0.5)
    result = train_beside_frozen(network, X, Y, config, X_eval=-X[:9])
    np.testing.assert_array_equal(network.decision(X), before)

    first, last = result.divergence[0], result.divergence[-1]
    assert (first.distance, first.disagreement, first.gates_changed) == (0.0, 0.0, 0.0)
    assert (first.eval_distance, first.eval_disagreement) == (0.0, 0.0)
    assert {point.step for point in result.divergence} == config.recorded_steps()

    live, frozen = result.live.network, result.frozen.network
    for inputs, distance, disagreement in (
        (X, last.distance, last.disagreement),
        (-X[:9], last.eval_distance, last.eval_disagreement),
    ):
        f, g = live.decision(inputs), frozen.decision(inputs)
        assert distance == pytest.approx(np.linalg.norm(g - f) / np.linalg.norm(f))
        assert disagreement == np.mean((g > 0) != (f > 0))
    assert last.distance > 0.0
    assert last.gates_changed == np.mean(relu_gates(live) != gates) > 0.0
    table = result.frame()
    assert table["distance"].tolist() == [point.distance for point in result.divergence]


@pytest.mark.parametrize("before", ["new", "trained", "of zero"])
def test_both_copies_are_trained_as_each_would_be_alone(before: str) -> None:
    network = ReLUNetwork(X.shape[1], [8, 4], seed=1)
    if before == "trained":
        train(network, X, Y, SHORT)
    elif before == "of zero":
        torch.nn.init.zeros_(network.readout)
    result = train_beside_frozen(network, X, Y, SHORT)
    alone = train(FrozenGateReLU(network), X, Y, SHORT)
    assert repr(result.frozen.history) == repr(alone.history)  # where f = 0 some of it is NaN
    assert repr(result.live.history) == repr(train(network, X, Y, SHORT).history)
    assert result.divergence[0].distance == 0.0
    assert result.frame()["eval_distance"].isna().all()


def test_both_copies_are_one_while_no_gate_changes() -> None:
    inputs = np.column_stack([X, np.full(len(X), 50.0)])
    network = ReLUNetwork(4, [2])
    with torch.no_grad():
        network.hidden_weights[0][:, -1] = 2.0  # always on
    result = train_beside_frozen(network, inputs, Y, replace(SHORT, learning_rate=1e-4))
    assert result.live.history[-1].loss < result.live.history[0].loss
    assert [point.gates_changed for point in result.divergence] == [0.0] * len(result.divergence)
    assert [point.distance for point in result.divergence] == [0.0] * len(result.divergence)


def test_copies_are_compared_at_the_steps_that_both_reached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def loss_then_interrupt(margins: torch.Tensor) -> torch.Tensor:
        calls.append(len(margins))
        if len(calls) == 9:  # in the live training, at step 6, between the points 1 and 30
            raise KeyboardInterrupt
        return torch.nn.functional.softplus(-margins)

    calls: list[int] = []
    monkeypatch.setitem(LOSSES, "logistic", MarginLoss("stop", torch.neg, loss_then_interrupt))
    network = ReLUNetwork(X.shape[1], [8], seed=1)
    result = train_beside_frozen(network, X, Y, replace(SHORT, record=3))
    assert result.live.interrupted
    assert not result.frozen.interrupted
    assert [point.step for point in result.divergence] == [0, 1]


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
    assert TrainingConfig(steps=steps, record=record).recorded_steps() == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("steps", 1.5),
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("decay", -1.0),
        ("decay_at", 1.1),
        ("momentum", 1.0),
        ("loss", "hinge"),
        ("loss", 1.0),
        ("rule", "hebb"),
        ("record", 1),
        ("record", [0, 10]),
        ("record", (-1, 10)),
        ("record", (0, 3201)),
        ("record", (0, 1.5)),
        ("steps", (5,)),
    ],
)
def test_values_out_of_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        TrainingConfig(**{name: value})


@pytest.mark.parametrize("name", ["learning_rate", "decay", "momentum"])
@pytest.mark.parametrize("value", ["x", True, None])
def test_numbers_of_the_wrong_type_are_refused(name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=f"{name} must be a number"):
        TrainingConfig(**{name: value})


def test_a_loss_of_ones_own() -> None:
    steep = MarginLoss("steep", lambda margins: -2.0 * margins)
    result = train(gln(), X, Y, replace(SHORT, loss=steep))
    margins = Y * result.network.decision(X)
    assert result.history[-1].loss == pytest.approx(np.exp(-2.0 * margins).mean())


# --- history ---------------------------------------------------------------------------------


@pytest.mark.parametrize("record", [8, (3, 17)])
def test_history_describes_the_network(record: int | tuple[int, ...]) -> None:
    reported: list[HistoryPoint] = []
    config = replace(SHORT, record=record)
    result = train(gln(), X, Y, config, on_point=reported.append)
    assert result.history == tuple(reported)
    assert [point.step for point in reported] == sorted(config.recorded_steps())
    assert (result.steps, result.interrupted) == (SHORT.steps, False)
    last, margins = result.history[-1], Y * result.network.decision(X)
    assert last.loss == pytest.approx(np.log1p(np.exp(-margins)).mean())
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


@pytest.mark.parametrize(
    "build", [lambda: GLN([GATING, GATING]), lambda: FrozenGateReLU(ReLUNetwork(3, [8, 4]))]
)
def test_fixed_gates_do_not_change(build: Callable[[], Network]) -> None:
    network = build()
    pattern = network.gate_pattern(*network.prepare(X))
    result = train(network, X, Y, replace(SHORT, learning_rate=0.5))
    assert [point.gates_changed for point in result.history] == [0.0] * len(result.history)
    assert torch.equal(network.gate_pattern(*network.prepare(X)), pattern)


def test_an_output_of_zero_is_an_error() -> None:
    network = gln()
    torch.nn.init.zeros_(network.readout)
    first = train(network, X, Y, SHORT).history[0]
    assert first.error == 1.0
    assert np.isnan(first.normalised_margin)


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    train(gln(), X, Y, SHORT)
    assert capsys.readouterr() == ("", "")
    train(gln(), X, Y, SHORT, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "100%" in err


# --- when it ends early ----------------------------------------------------------------------


def stop_at(step: int) -> Callable[[HistoryPoint], None]:
    def on_point(point: HistoryPoint) -> None:
        if point.step >= step:
            raise KeyboardInterrupt

    return on_point


def test_interruption_at_a_point_keeps_the_history() -> None:
    complete = train(gln(), X, Y, SHORT)
    stop = complete.history[4].step
    result = train(gln(), X, Y, SHORT, on_point=stop_at(stop))
    assert result.interrupted
    assert result.steps == stop
    assert result.history == complete.history[:5]


def test_interruption_between_points_adds_the_last_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss_then_interrupt(margins: torch.Tensor) -> torch.Tensor:
        calls.append(len(margins))
        if len(calls) == 9:  # two measurements (steps 0 and 1 of 30), then the batch of step 6
            raise KeyboardInterrupt
        return -margins

    calls: list[int] = []
    monkeypatch.setitem(LOSSES, "logistic", MarginLoss("stop", torch.neg, loss_then_interrupt))
    result = train(gln(), X, Y, replace(SHORT, record=3))
    assert result.interrupted
    assert [point.step for point in result.history] == [0, 1, 6]
    margins = Y * result.network.decision(X)
    assert result.history[-1].min_margin == pytest.approx(margins.min())


@pytest.mark.parametrize(("loss", "learning_rate"), [("exponential", 1e4), ("logistic", 1e200)])
def test_divergence_is_named(loss: LossName, learning_rate: float) -> None:
    config = replace(SHORT, loss=loss, learning_rate=learning_rate)
    with pytest.raises(TrainingDiverged, match=r"after \d+ steps.*smaller learning_rate"):
        train(gln(), X, -Y, config)


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        (X, Y[:-1], "one label a row"),
        (X[:0], Y[:0], "at least one row"),
        (X, (Y + 1) / 2, "labels must be -1 or \\+1"),
        (X, np.full(len(Y), np.nan), "NaN"),
        (X[:, :1], Y, "features"),
    ],
)
def test_unusable_data_are_refused(X: Array, y: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        train(gln(), X, y, SHORT)
