"""Training towards the limit: right gradients, honest descent, the SVM at the end, checkpoints."""

import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from cases import cloud, mostly_slow
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.cli import main
from implicit_bias.datasets.dataset import split
from implicit_bias.datasets.files import DATA_VARIABLE
from implicit_bias.datasets.images import load_mnist
from implicit_bias.datasets.toys import make_toy
from implicit_bias.estimators.saved_models import load_model
from implicit_bias.measure.kinks import gap_across_kinks
from implicit_bias.measure.subject import Subject, margins_of
from implicit_bias.networks import GLN, FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.problem import MarginProblem, gated_linear
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.protocols import lippl2022
from implicit_bias.solvers import Solution, solve
from implicit_bias.training.limit import (
    GROWTH,
    CheckpointError,
    ComparisonPredictor,
    Ending,
    LimitConfig,
    LimitPoint,
    Method,
    _Descent,
    train_to_limit,
)
from implicit_bias.training.losses import LOSSES, LossError, MarginLoss
from implicit_bias.training.objective import State
from implicit_bias.training.trainee import as_trainee

DATA = make_toy("blobs", n_samples=40, random_state=0)
X, Y = DATA.X, DATA.y
GATING = HyperplaneContexts.random(X, 4, 1, random_state=0)
NO_HYPERPLANES = HyperplaneContexts.random(X, 1, 0, random_state=0)
CLOUD = cloud()
CLOUD_GATING = HyperplaneContexts.random(CLOUD[0], 4, 1, random_state=0)
SHORT = LimitConfig(steps=60, checkpoint_every=10)
OWN_LOSS = MarginLoss("own", lambda q: -q - 3.0 * torch.log1p(torch.nn.functional.softplus(q)))
LOGISTIC = LOSSES["logistic"]
METHODS: tuple[Method, ...] = ("plain", "momentum", "accelerated")
NETWORKS: dict[str, Callable[[], Network]] = {
    "GLN": lambda: GLN([GATING]),
    "deep GLN": lambda: GLN([GATING, GATING]),
    "GLN with bias": lambda: GLN([GATING], readout_bias=True),
    "ReLU": lambda: ReLUNetwork(X.shape[1], [8, 4]),
    "frozen gates": lambda: FrozenGateReLU(ReLUNetwork(X.shape[1], [8, 4])),
}


def gln(seed: int = 0) -> GLN:
    return GLN([GATING], seed=seed)


def problem_of(network: Network) -> MarginProblem:
    gating = network.gating()
    return MarginProblem(X, Y, gating.gates(X), gating.groups)


@cache
def svm() -> Solution:
    solution = solve(problem_of(gln()), tol=1e-9)
    assert solution.status is Status.OPTIMAL
    return solution


def weights_of(network: Network) -> Array:
    return torch.nn.utils.parameters_to_vector(network.parameters()).detach().numpy()


def states(network: Network, config: LimitConfig, y: Array = Y) -> list[State]:
    """All states of a training, step by step."""
    descent = _Descent(as_trainee(network, X, y), config)
    found = [descent.start()]
    while found[-1].step < config.steps:
        following = descent.advance(found[-1])
        assert following is not None
        found.append(following)
    return found


# --- the algorithm ---------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_gradient_is_that_of_the_log_loss(build: Callable[[], Network], loss: MarginLoss) -> None:
    """Along a random direction, by central differences; F itself from the definition."""
    network = build()
    descent = _Descent(as_trainee(network, X, Y), LimitConfig(loss=loss))
    weights = descent.start().weights
    log_loss, gradient = descent.gradient(weights)
    assert (log_loss, descent.value(weights)[0]) == (log_loss, log_loss)
    exact = np.exp(-Y * network.decision(X))
    losses = np.log1p(exact) if loss.name == "logistic" else exact
    assert log_loss == pytest.approx(np.log(losses.mean()), rel=1e-12)
    direction = torch.randn(weights.shape, generator=torch.Generator().manual_seed(0)).double()
    ahead, behind = (descent.value(weights + h * direction)[0] for h in (1e-6, -1e-6))
    assert (gradient @ direction).item() == pytest.approx((ahead - behind) / 2e-6, rel=1e-6)


@pytest.mark.parametrize("build", NETWORKS.values(), ids=NETWORKS)
def test_plain_descent_falls_in_each_step(build: Callable[[], Network]) -> None:
    """And each step is s times the gradient, with the decrease that the backtracking asks for."""
    network = build()
    config = replace(SHORT, method="plain")
    found = states(network, config)
    descent = _Descent(as_trainee(network, X, Y), config)
    for before, after in pairwise(found):
        s = after.step_size / GROWTH
        log_loss, gradient = descent.gradient(before.weights)
        gained = log_loss - after.log_loss
        assert 0.5 * s * (gradient @ gradient).item() <= gained <= 1.0 + max(0.0, log_loss)
        torch.testing.assert_close(after.weights, before.weights - s * gradient)
    assert found[-1].restarts == 0


@pytest.mark.parametrize(
    ("config", "coefficient"),
    [
        (LimitConfig(method="momentum", momentum=0.7, steps=40), lambda k: 0.7 if k else 0.0),
        (LimitConfig(friction=3.0, scale_friction=3.0, steps=40), lambda k: k / (k + 3)),
    ],
    ids=["momentum", "accelerated"],
)
def test_equal_frictions_are_the_textbook_methods(
    config: LimitConfig, coefficient: Callable[[int], float]
) -> None:
    """Nesterov's: point = theta + c (theta - theta before), theta = point - s g(point)."""
    network = gln()
    found = states(network, config)
    assert found[-1].restarts == 0
    descent = _Descent(as_trainee(network, X, Y), config)
    before = found[0].weights
    for k, (now, after) in enumerate(pairwise(found)):
        point = now.weights + coefficient(k) * (now.weights - before)
        gradient = descent.gradient(point)[1]
        by_hand = point - after.step_size / GROWTH * gradient
        torch.testing.assert_close(after.weights, by_hand, rtol=1e-10, atol=1e-12)
        before = now.weights


def test_friction_of_the_scale_acts_along_the_weights_only() -> None:
    descent = _Descent(as_trainee(gln(), X, Y), LimitConfig(friction=3.0, scale_friction=9.0))
    theta = descent.start().weights
    across = torch.ones_like(theta)
    across -= (across @ theta) / (theta @ theta) * theta
    state = replace(descent.start(), velocity=across + 0.5 * theta, age=3)
    point = descent._extrapolate(state)
    torch.testing.assert_close(point, theta + 3 / 6 * across + 3 / 12 * 0.5 * theta)


def test_restart_takes_back_a_step_that_rises() -> None:
    """Labels at random are not separable, and F has a minimum to swing about."""
    labels = np.random.default_rng(0).choice([-1.0, 1.0], len(Y))
    config = LimitConfig(method="momentum", momentum=0.99, steps=200)
    found = states(gln(), config, labels)
    restarted = [
        (before, after) for before, after in pairwise(found) if after.restarts > before.restarts
    ]
    assert restarted
    for before, after in restarted:
        assert torch.equal(after.weights, before.weights)
        assert (after.log_loss, after.age) == (before.log_loss, 0)
        assert not after.velocity.any()
    falls = [after.log_loss <= before.log_loss for before, after in pairwise(found)]
    assert all(falls)


def test_log_loss_far_below_underflow() -> None:
    result = train_to_limit(gln(), X, Y, LimitConfig(steps=2200))
    last = result.history[-1]
    assert last.log_loss < -1e5
    assert math.isfinite(last.norm)
    # Sums of 40 losses: the largest decides, up to its number.
    assert -math.log(40) <= last.log_loss + last.min_margin <= 0.0


@pytest.mark.parametrize(
    "loss",
    mostly_slow([*LOSSES.values(), OWN_LOSS], [LOGISTIC, OWN_LOSS]),
    ids=[*LOSSES, "own"],
)
def test_a_linear_network_goes_to_the_hard_margin_svm(loss: MarginLoss) -> None:
    network = GLN([NO_HYPERPLANES])
    solution = solve(problem_of(network), tol=1e-9)
    train_to_limit(network, X, Y, LimitConfig(steps=1000, loss=loss))
    found, expected = network.coef()[0], solution.coef[0]
    found, expected = found / np.linalg.norm(found), expected / np.linalg.norm(expected)
    np.testing.assert_allclose(found, expected, atol=1e-3)


def test_a_gln_goes_to_its_svm() -> None:
    network = GLN([CLOUD_GATING])
    problem = MarginProblem(*CLOUD, CLOUD_GATING.gates(CLOUD[0]), CLOUD_GATING.groups)
    solution = solve(problem, tol=1e-9)
    unseen = cloud(n=500, seed=1)[0]
    decision = gated_linear(unseen, CLOUD_GATING.gates(unseen), solution.coef)
    result = train_to_limit(
        network,
        *CLOUD,
        LimitConfig(steps=2000),
        optimum=solution.certificate.lower,
        reference=ComparisonPredictor(unseen, decision),
    )
    first, last = result.history[0], result.history[-1]
    bounds = certify(problem, coef=network.coef(), alpha=solution.alpha)
    assert last.excess == pytest.approx(bounds.gap, rel=1e-6, abs=1e-8)
    assert 0.0 < last.excess < 1e-3
    assert last.disagreement <= 0.01 < 0.2 < first.disagreement
    assert last.balance < 1e-2 < first.balance


def test_acceleration_is_faster_than_momentum_and_that_than_plain_descent() -> None:
    optimum = svm().certificate.upper
    excess = [
        train_to_limit(gln(), X, Y, LimitConfig(steps=400, method=method), optimum=optimum)
        .history[-1]
        .excess
        for method in METHODS
    ]
    assert excess[0] > 1.5 * excess[1] > 15 * excess[2] > 0.0


def test_a_dead_unit_stays_dead() -> None:
    """What is reached is the SVM of the other units: another stationary point."""
    X, y = CLOUD
    gates, groups = CLOUD_GATING.gates(X), CLOUD_GATING.groups
    optimum = solve(MarginProblem(X, y, gates, groups), tol=1e-9).certificate.upper
    network = GLN([CLOUD_GATING])
    with torch.no_grad():
        network.hidden_weights[0][:2] = 0.0  # the two contexts of unit 0
        network.readout[0, 0] = 0.0
    result = train_to_limit(network, X, y, LimitConfig(steps=2000), optimum=optimum)
    assert not network.coef()[:2].any()
    without = solve(MarginProblem(X, y, gates[:, 2:], groups[2:] - 1), tol=1e-9)
    excess = without.certificate.upper / optimum - 1.0
    assert excess > 0.01
    assert result.history[-1].excess == pytest.approx(excess, abs=2e-3)


def test_scale_of_the_weights_may_be_anything() -> None:
    for scale in (1e-3, 30.0):
        network = gln()
        with torch.no_grad():
            for weights in network.parameters():
                weights.mul_(scale)
        result = train_to_limit(network, X, Y, SHORT)
        assert result.history[-1].log_loss < result.history[0].log_loss


# --- how it ends, and what is recorded -----------------------------------------------------------


def test_until_excess() -> None:
    lower = svm().certificate.lower
    network = gln()
    result = train_to_limit(
        network, X, Y, LimitConfig(steps=5000), optimum=lower, until_excess=0.02
    )
    assert result.ending is Ending.REACHED
    last = result.history[-1]
    assert 0.0 < last.excess <= 0.02
    assert certify(problem_of(network), coef=network.coef(), alpha=svm().alpha).gap <= 0.02
    before = train_to_limit(gln(), X, Y, LimitConfig(steps=last.step - 1), optimum=lower)
    assert before.history[-1].excess > 0.02


class Kinked(torch.nn.Module):
    """f(x) = x (a + b + c - 10 relu(c)): the largest normalised margin is that of c = 0, a = b."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x (a + b + c - 10 relu(c))."""
        slope: torch.Tensor = self.weights.sum() - 10.0 * torch.relu(self.weights[2])
        return x * slope


@pytest.mark.parametrize("method", METHODS)
def test_goes_on_where_a_kink_lets_no_step_size_lower_the_loss(method: Method) -> None:
    """At c = 0 autograd takes the slope of c < 0, and its step leads to c > 0."""
    config = LimitConfig(steps=300, method=method)
    result = train_to_limit(Kinked(), np.array([[1.0], [2.0]]), [1, 1], config)
    assert result.ending is Ending.STEPS
    assert result.history[0].normalised_margin == pytest.approx(1.0)
    assert max(point.normalised_margin for point in result.history) > 1.3  # of sqrt(2)


@pytest.mark.slow
def test_no_relu_network_stalls_at_a_positive_margin() -> None:
    """Scaling the weights lowers the loss of separated samples: none of them can be stationary.

    Across the kinks that training ends on, most are near a KKT point.
    """
    gaps = list[float]()
    centres = 0.375 * (np.array([(i, j) for i in range(3) for j in range(3)]) - 1.0)
    for seed in range(8):
        rng = np.random.default_rng(seed)
        place = rng.integers(0, 9, 64)
        angle, radius = rng.uniform(0.0, 2.0 * np.pi, 64), rng.uniform(0.0, 0.125, 64)
        spread = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
        X = np.column_stack([centres[place] + spread, np.ones(64)])
        torch.manual_seed(seed)
        network = torch.nn.Sequential(
            torch.nn.Linear(3, 64, bias=False),
            torch.nn.ReLU(),
            torch.nn.Linear(64, 1, bias=False),
        ).double()
        labels = rng.permutation(np.resize([-1, 1], 9))[place]
        result = train_to_limit(network, X, labels, LimitConfig(steps=3000))
        assert result.ending is Ending.STEPS
        assert result.history[-1].min_margin > 0
        subject = Subject.of(margins_of(network, X, labels))
        gaps.append(gap_across_kinks(subject.measure(PARAMETER_NORMS["l2"])))
    assert np.median(gaps) < 0.05


@pytest.mark.parametrize("method", METHODS)
def test_stalls_where_nothing_is_left_to_gain(method: Method) -> None:
    """Each sample twice, with both labels: the best is f = 0, and F = 0 there."""
    network = GLN([NO_HYPERPLANES])
    result = train_to_limit(
        network,
        np.vstack([X[:4], X[:4]]),
        np.repeat([-1.0, 1.0], 4),
        LimitConfig(steps=20_000, method=method),
    )
    assert result.ending is Ending.STALLED
    assert result.history[-1].log_loss == pytest.approx(0.0, abs=1e-12)
    assert "stationary" in result.ending.message


def test_history() -> None:
    seen: list[LimitPoint] = []
    network = gln()
    result = train_to_limit(
        network, X, Y, SHORT, measure=lambda n: {"largest": n.coef().max()}, on_point=seen.append
    )
    assert result.ending is Ending.STEPS
    steps = [point.step for point in result.history]
    assert steps == [step for step in range(61) if SHORT.is_recorded(step) or step == 60]
    assert list(result.history)[: len(seen)] == seen
    last = result.history[-1]
    margins = Y * network.decision(X)
    assert last.min_margin == pytest.approx(margins.min())
    assert last.log_loss == pytest.approx(np.log(np.exp(-margins).mean()))
    assert last.loss == pytest.approx(np.exp(-margins).mean())
    assert (last.error, last.gates_changed) == (0.0, 0.0)
    assert last.normalised_margin == pytest.approx(margins.min() / network.norm())
    assert (result.steps, result.interrupted) == (last.step, False)
    assert last.evaluations >= last.step
    assert math.isnan(last.excess)
    assert math.isnan(last.disagreement)
    table = result.frame()
    assert table["largest"].iloc[-1] == network.coef().max()
    assert table["normalised_margin"].iloc[-1] == last.normalised_margin
    assert list(table.columns)[:4] == ["step", "loss", "error", "min_margin"]
    assert list(table.columns)[-2:] == ["normalised_margin", "largest"]


def test_recorded_steps_are_log_spaced() -> None:
    config = LimitConfig(record=2)
    assert [step for step in range(1001) if config.is_recorded(step)] == [
        *(0, 1, 3, 10, 32, 100, 316, 1000)
    ]
    dense = LimitConfig(record=50)
    assert all(dense.is_recorded(step) for step in range(15))


def test_margin_leaves_the_bias_out() -> None:
    network = GLN([GATING], readout_bias=True)
    result = train_to_limit(network, X, Y, SHORT)
    margins = Y * (network.decision(X) - network.readout_bias_value)
    assert network.readout_bias_value != 0.0
    assert result.history[-1].min_margin == pytest.approx(margins.min())


def test_progress_goes_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    train_to_limit(gln(), X, Y, SHORT)
    assert capsys.readouterr() == ("", "")
    train_to_limit(gln(), X, Y, SHORT, optimum=1.0, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert "60 / 60 steps" in err
    assert "excess" in err


# --- checkpoints ---------------------------------------------------------------------------------


def stop_at(step: int) -> Callable[[LimitPoint], None]:
    def on_point(point: LimitPoint) -> None:
        if point.step >= step:
            raise KeyboardInterrupt

    return on_point


@pytest.mark.parametrize("method", METHODS)
def test_resumption_is_bit_identical(method: Method, tmp_path: Path) -> None:
    config = replace(SHORT, method=method, loss=LOSSES["logistic"])
    complete, network, file = gln(), gln(), tmp_path / "state.safetensors"
    options: dict[str, Any] = {"optimum": 1.0, "measure": lambda n: {"own": np.float32(n.norm())}}
    expected = train_to_limit(complete, X, Y, config, **options)
    part = train_to_limit(network, X, Y, config, checkpoint=file, on_point=stop_at(28), **options)
    assert part.ending is Ending.INTERRUPTED
    assert part.history[-1].step == 28
    # The weights of the network that resumes do not count: those of the checkpoint do.
    other = gln(seed=5)
    result = train_to_limit(other, X, Y, config, checkpoint=file, resume=True, **options)
    np.testing.assert_array_equal(weights_of(other), weights_of(complete))
    assert result.frame().equals(expected.frame())


def test_more_steps_continue_a_finished_training(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    train_to_limit(gln(), X, Y, replace(SHORT, steps=33), checkpoint=file)
    network, complete = gln(), gln()
    result = train_to_limit(network, X, Y, SHORT, checkpoint=file, resume=True)
    expected = train_to_limit(complete, X, Y, SHORT)
    np.testing.assert_array_equal(weights_of(network), weights_of(complete))
    assert result.frame().equals(expected.frame())


KILLED = """
import os, signal, sys
sys.path.insert(0, {tests!r})
import torch
torch.set_num_threads(1)
from training.test_limit import SHORT, X, Y, gln, train_to_limit

def kill(point):
    if point.step >= 36:
        os.kill(os.getpid(), signal.SIGKILL)

train_to_limit(gln(), X, Y, SHORT, checkpoint={file!r}, on_point=kill)
"""


@pytest.mark.slow
def test_a_killed_training_loses_only_what_is_since_the_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    code = KILLED.format(tests=str(Path(__file__).parents[1]), file=str(file))
    killed = subprocess.run([sys.executable, "-c", code], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [file.name]
    done: list[int] = []
    network, complete = gln(), gln()
    train_to_limit(
        network,
        X,
        Y,
        SHORT,
        checkpoint=file,
        resume=True,
        on_point=lambda point: done.append(point.step),
    )
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


@pytest.mark.parametrize(
    ("network", "X", "Y", "config"),
    [
        (gln(), X + 1.0, Y, SHORT),
        (gln(), X, -Y, SHORT),
        (GLN([HyperplaneContexts.random(X, 4, 1, random_state=1)]), X, Y, SHORT),
        (GLN([GATING, GATING]), X, Y, SHORT),
        (gln(), X, Y, replace(SHORT, method="plain")),
        (gln(), X, Y, replace(SHORT, loss=LOSSES["logistic"])),
        (gln(), X, Y, replace(SHORT, loss=MarginLoss("exponential", lambda q: -2.0 * q))),
    ],
    ids=["inputs", "labels", "gates", "depth", "method", "loss", "loss of the same name"],
)
def test_a_checkpoint_of_another_training_is_refused(
    network: Network, X: Array, Y: Array, config: LimitConfig, tmp_path: Path
) -> None:
    file = tmp_path / "state.safetensors"
    train_to_limit(gln(), DATA.X, DATA.y, SHORT, checkpoint=file)
    with pytest.raises(CheckpointError, match="of another training"):
        train_to_limit(network, X, Y, config, checkpoint=file, resume=True)


@pytest.mark.parametrize("content", [b"", b"nonsense", None])
def test_a_damaged_checkpoint_is_named(content: bytes | None, tmp_path: Path) -> None:
    file = tmp_path / "state.safetensors"
    train_to_limit(gln(), X, Y, SHORT, checkpoint=file)
    file.write_bytes(file.read_bytes()[:-100] if content is None else content)
    with pytest.raises(
        CheckpointError, match=r"state\.safetensors is no checkpoint, or is damaged"
    ):
        train_to_limit(gln(), X, Y, SHORT, checkpoint=file, resume=True)


# --- bad use -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 0),
        ("record", 0.5),
        ("checkpoint_every", 0),
        ("method", "newton"),
        ("loss", "hinge"),
        ("loss", 1.0),
        ("momentum", 1.0),
        ("friction", 0.0),
        ("scale_friction", math.inf),
    ],
)
def test_configuration_out_of_range(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=name):
        LimitConfig(**{name: value})  # type: ignore[arg-type]


def test_a_loss_has_a_name() -> None:
    named, given = (
        train_to_limit(gln(), X, Y, replace(SHORT, loss=loss)) for loss in ("logistic", LOGISTIC)
    )
    assert named.history == given.history


def test_a_loss_without_an_implicit_bias_is_refused() -> None:
    with pytest.raises(LossError, match="infinity"):
        LimitConfig(loss=MarginLoss("student", lambda q: -2.0 * torch.asinh(q)))


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (lambda: GLN([GATING], dtype=torch.float32), {}, "float64"),
        (gln, {"until_excess": 0.01}, "optimum"),
        (gln, {"optimum": 0.0}, "optimum must be positive"),
        (gln, {"optimum": 1.0, "until_excess": 0.0}, "until_excess must be"),
        (lambda: GLN([GATING, GATING]), {"optimum": 1.0}, "no convex program"),
        (gln, {"reference": ComparisonPredictor(X[:, :1], Y)}, "features"),
        (gln, {"resume": True}, "resume needs the checkpoint"),
        (gln, {"measure": lambda n: {"norm": 1.0}}, r"\['norm'\] of its own"),
    ],
)
def test_bad_use_is_refused(
    build: Callable[[], Network], options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train_to_limit(build(), X, Y, SHORT, **options)


def test_a_reference_has_one_decision_an_input() -> None:
    with pytest.raises(ValueError, match="40 inputs and 39 decisions"):
        ComparisonPredictor(X, Y[:-1])


def test_weights_that_are_not_finite_are_refused() -> None:
    network = gln()
    torch.nn.init.constant_(network.readout, math.nan)
    with pytest.raises(ValueError, match="not finite"):
        train_to_limit(network, X, Y, SHORT)


# --- the command line ----------------------------------------------------------------------------


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    small = ["--dataset", "blobs", "--train-size", "60", "--units", "4"]
    monkeypatch.setattr(sys, "argv", ["implicit-bias", "train", *arguments, *small])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


def test_train_until_excess(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted and resumed, the command saves the network, and the history, of one run."""
    monkeypatch.chdir(tmp_path)
    asked = ["gd-gln", "--until-excess", "0.01", "--checkpoint", "state.safetensors", "--json"]
    assert run(monkeypatch, *asked, "--limit-steps", "20") == 0
    short = json.loads(capsys.readouterr().out)
    assert (short["steps"], short["ending"]) == (20, Ending.STEPS.message)
    assert short["excess"] > 0.01
    assert run(monkeypatch, *asked) == 2
    assert "--resume" in capsys.readouterr().err
    assert run(monkeypatch, *asked, "--resume", "--out", "resumed.safetensors") == 0
    resumed = json.loads(capsys.readouterr().out)
    assert run(monkeypatch, *asked[:3], "--out", "sub/through.safetensors") == 0
    output, errors = capsys.readouterr()
    assert "excess" in errors
    assert "Picture: sub/through-limit-excess.png" in output
    assert "residual: share of the weights that no multipliers explain; slackness: " in output
    assert resumed["ending"] == Ending.REACHED.message
    assert 0.0 < resumed["excess"] <= 0.01
    assert {Path(picture).name for picture in resumed["pictures"]} == {
        f"resumed-limit-{name}.png"
        for name in ("excess", "residual", "slackness", "min-margin", "balance", "units")
    }  # there is no disagreement to draw on data as easy as these
    assert all(Path(picture).is_file() for picture in resumed["pictures"])
    models = [load_model(f"{name}.safetensors").model for name in ("resumed", "sub/through")]
    assert models[0].history()[-1].step == resumed["steps"]
    views = [model.margin_view() for model in models]
    assert views[0] is not None
    assert views[1] is not None
    np.testing.assert_array_equal(views[0].coef, views[1].coef)


def test_train_so_many_steps_towards_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A ReLU network's gates move, so there is no optimum to exceed, but a KKT residual."""
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, "gd-relu", "--limit-steps", "200", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["steps"] == 200
    assert facts["excess"] is None
    assert 0.0 < facts["residual"] < 1.0
    names = {Path(picture).name for picture in facts["pictures"]}
    assert "gd-relu-limit-residual.png" in names
    assert "gd-relu-limit-excess.png" not in names


# --- publication ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(
    not (Path(os.environ.get(DATA_VARIABLE, "/nowhere")) / "mnist").is_dir(),
    reason=f"MNIST is needed: set {DATA_VARIABLE} to a folder with mnist/",
)
def test_published_cell() -> None:
    """N=500, H=10, C=2: it is finite time that keeps the network from its SVM."""
    mnist = load_mnist()
    data = split(mnist, 500, 12_000, seed=1)
    gating = lippl2022.draw_contexts(
        data.train.X, 10, 1, threshold="median", reference=mnist.X, seed=1
    )
    problem = MarginProblem(data.train.X, data.train.y, gating.gates(data.train.X), gating.groups)
    solution = solve(problem, tol=1e-9)
    validation = data.validation.X
    result = train_to_limit(
        GLN([gating], seed=1),
        data.train.X,
        data.train.y,
        LimitConfig(steps=4000),
        optimum=solution.certificate.lower,
        reference=ComparisonPredictor(
            validation, gated_linear(validation, gating.gates(validation), solution.coef)
        ),
    )
    by_2000 = [point for point in result.history if point.step <= 2000][-1]
    assert by_2000.excess <= 0.005
    assert result.history[-1].excess <= 0.001
    assert result.history[-1].disagreement <= 0.005  # asked of 10,000 steps
