"""Training towards the limit: steps by hand, the SVM at the end, kinks, and what is recorded."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from example_modules import known, layers, weights_of
from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import Status, certify
from implicit_bias.modules.kinks import gap_across_kinks
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.networks import GLN, Network, ReLUNetwork
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.solvers import Solution, solve
from implicit_bias.training.limit import (
    ComparisonPredictor,
    Descent,
    Ending,
    LimitConfig,
    LimitPoint,
    train_to_limit,
)
from implicit_bias.training.trainee import State, as_trainee
from system import stop_at
from training.samples import LABELS, SHORT, SIGNS, X2, X4, X, Y, flat, gln, on_clusters, two_layers

NO_HYPERPLANES = HyperplaneContexts.random(X, 1, 0, random_state=0)


def problem_of(network: Network) -> MarginProblem:
    return network.architecture().problem(X, Y)


@cache
def svm() -> Solution:
    solution = solve(problem_of(gln()), tol=1e-9)
    assert solution.status is Status.OPTIMAL
    return solution


def states(network: Network, config: LimitConfig, y: Array = Y) -> list[State]:
    """All states of a training, step by step."""
    descent = Descent(as_trainee(network, X, y), config)
    found = [descent.trainee.start()]
    while found[-1].step < config.steps:
        found.append(known(descent.advance(found[-1])))
    return found


# --- the algorithm ---------------------------------------------------------------------------


def test_plain_descent_falls_in_each_step() -> None:
    """And each step is s times the gradient, with the decrease that the backtracking asks for."""
    network = ReLUNetwork(X.shape[1], [8, 4])
    config = LimitConfig(steps=40, method="plain")
    found = states(network, config)
    descent = Descent(as_trainee(network, X, Y), config)
    for before, after in pairwise(found):
        s = after.step_size / Descent.growth
        log_loss, gradient, _ = descent.trainee.differentiate(before.weights)
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
    descent = Descent(as_trainee(network, X, Y), config)
    before = found[0].weights
    for k, (now, after) in enumerate(pairwise(found)):
        point = now.weights + coefficient(k) * (now.weights - before)
        gradient = descent.trainee.differentiate(point)[1]
        by_hand = point - after.step_size / Descent.growth * gradient
        torch.testing.assert_close(after.weights, by_hand, rtol=1e-10, atol=1e-12)
        before = now.weights


@pytest.mark.parametrize(
    ("module", "config", "min_margin", "friction", "scale_friction"),
    [
        (gln(), LimitConfig(friction=3.0, scale_friction=9.0), -1.0, 3, 9),
        (gln(), LimitConfig(), 1.0, 2, 15),
        (gln(), LimitConfig(), -1.0, 1, 15),  # less until samples are separated
        (nn.Linear(X.shape[1], 1, bias=False).double(), LimitConfig(), 1.0, 1, 1),
    ],
)
def test_friction_of_the_scale_acts_along_the_weights_only(
    module: nn.Module, config: LimitConfig, min_margin: float, friction: int, scale_friction: int
) -> None:
    descent = Descent(as_trainee(module, X, Y), config)
    start = descent.trainee.start()
    theta = start.weights
    across = theta.roll(1) - (theta.roll(1) @ theta) / (theta @ theta) * theta
    state = replace(start, velocity=across + 0.5 * theta, age=3, min_margin=min_margin)
    expected = theta + 3 / (3 + friction) * across + 3 / (3 + scale_friction) * 0.5 * theta
    torch.testing.assert_close(descent.extrapolate(state), expected)


def test_restart_takes_back_a_step_that_rises() -> None:
    """Labels at random are not separable, and F has a minimum to swing about."""
    labels = np.random.default_rng(1).choice([-1.0, 1.0], len(Y))
    config = LimitConfig(method="momentum", momentum=0.99, steps=60, record=1000)
    found = states(gln(), config, labels)
    descent = Descent(as_trainee(gln(), X, labels), config)
    assert found[-1].restarts > 0
    for before, after in pairwise(found):
        assert after.log_loss <= before.log_loss
        if after.restarts > before.restarts:
            assert torch.equal(after.weights, before.weights)
            assert (after.log_loss, after.age) == (before.log_loss, 0)
            assert not after.velocity.any()
            # The step size is the one that lowered F from the extrapolated point.
            point = descent.extrapolate(before)
            log_loss, g, _ = descent.trainee.differentiate(point)
            s = before.step_size
            while log_loss - descent.trainee.evaluate(point - s * g)[0] < 0.5 * s * (g @ g).item():
                s /= 2
            assert after.step_size == s

    # A point of the history describes the weights that were kept, not those that were tried.
    for recorded in train_to_limit(gln(), X, labels, config).history:
        assert recorded.log_loss == found[recorded.step].log_loss


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
    gap = certify(problem_of(network), coef=network.coef(), alpha=svm().alpha).gap
    assert last.excess == pytest.approx(gap, rel=1e-6)
    before = train_to_limit(gln(), X, Y, LimitConfig(steps=last.step - 1), optimum=lower)
    assert before.history[-1].excess > 0.02


@pytest.mark.slow
def test_steps_do_not_shrink_to_nothing_at_a_kink_while_the_loss_still_falls() -> None:
    """Random labels: weights that approached a kink gained 1e-6 a step, with steps of 1e-13."""
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(60, 3))
    labels = rng.choice([-1, 1], 60)
    torch.manual_seed(0)
    network = layers(3, 64, 1).double()
    points = train_to_limit(network, inputs, labels, LimitConfig(steps=1500)).history
    assert min(point.step_size for point in points) > 1e-9
    assert points[-1].log_loss < -1.5


@pytest.mark.slow
@pytest.mark.parametrize(("norm", "most"), [("l2", 0.05), ("spectral", 0.2)])
def test_no_relu_network_stalls_at_a_positive_margin(
    norm: Literal["l2", "spectral"], most: float
) -> None:
    """Scaling the weights lowers the loss of separated samples: none of them can be stationary.

    Across the kinks that training ends on, most are near a KKT point.
    """
    gaps = list[float]()
    for seed in range(2):
        network, inputs, labels = on_clusters(seed)
        result = train_to_limit(network, inputs, labels, LimitConfig(steps=3000, norm=norm))
        assert result.ending is Ending.STEPS
        assert result.history[-1].min_margin > 0
        subject = Subject.of(margins_of(network, inputs, labels))
        # Out of time the search has another bound, on a machine that has other work.
        gaps.append(gap_across_kinks(subject.measure(PARAMETER_NORMS[norm]), seconds=60.0))
    assert np.median(gaps) < most


def test_stalls_where_nothing_is_left_to_gain() -> None:
    """Each sample twice, with both labels: the best is f = 0, and F = 0 there."""
    network = GLN([NO_HYPERPLANES])
    result = train_to_limit(
        network,
        np.vstack([X[:4], X[:4]]),
        np.repeat([-1.0, 1.0], 4),
        LimitConfig(steps=20_000),
    )
    assert result.ending is Ending.STALLED
    assert result.history[-1].log_loss == pytest.approx(0.0, abs=1e-12)


def test_history() -> None:
    points: list[LimitPoint] = []
    progress: list[str] = []
    network = gln()

    def on_point(point: LimitPoint) -> None:
        points.append(point)
        margins = Y * network.decision(X)  # the network is as the point describes it
        assert point.min_margin == pytest.approx(margins.min())
        assert point.log_loss == pytest.approx(np.log(np.exp(-margins).mean()))

    result = train_to_limit(
        network,
        *(X, Y, SHORT),
        optimum=1.0,
        measure=lambda n: {"largest": n.coef().max()},
        on_point=on_point,
        on_progress=lambda done, steps, reached: progress.append(reached),
    )
    assert result.ending is Ending.STEPS
    steps = [point.step for point in result.history]
    assert steps == [step for step in range(61) if SHORT.is_recorded(step) or step == 60]
    assert list(result.history)[: len(points)] == points
    assert len(progress) == SHORT.steps + 1
    last = result.history[-1]
    margins = Y * network.decision(X)
    assert last.loss == pytest.approx(np.exp(-margins).mean())
    assert (last.error, last.gates_changed) == (0.0, 0.0)
    assert last.normalised_margin == pytest.approx(margins.min() / network.norm())
    assert last.excess == pytest.approx(1.0 / last.normalised_margin - 1.0)
    assert result.frame()["largest"].iloc[-1] == network.coef().max()


@pytest.mark.parametrize(("inputs", "labels"), [(X2, SIGNS), (X4, LABELS)], ids=["two", "four"])
def test_a_predictor_to_compare_with(inputs: Array, labels: Array) -> None:
    decision = np.random.default_rng(0).normal(size=(len(inputs), 4))
    predicted = decision.argmax(axis=1)
    if labels is SIGNS:
        decision = decision[:, 0]
        predicted = np.sign(decision)
    reference = ComparisonPredictor(inputs, decision)
    module = flat(1 if labels is SIGNS else 4)
    result = train_to_limit(module, inputs, labels, LimitConfig(steps=30), reference=reference)
    assert result.history[-1].error == 0.0  # so that the others' errors are the disagreement
    assert result.history[-1].disagreement == np.mean(predicted != labels)


def test_an_error_of_the_module_leaves_what_was_reached() -> None:
    module = two_layers()
    kept: list[Array] = []

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    def on_point(point: LimitPoint) -> None:
        if point.step == 4:
            kept.append(weights_of(module))
            module.register_forward_hook(fail)

    with pytest.raises(RuntimeError, match="memory"):
        train_to_limit(module, X4, LABELS, LimitConfig(steps=9), on_point=on_point)
    np.testing.assert_array_equal(weights_of(module), kept[0])


def test_interruption_and_time_keep_what_was_reached() -> None:
    result = train_to_limit(flat(4), X4, LABELS, on_point=stop_at(3))
    assert (result.config, result.ending) == (LimitConfig(), Ending.INTERRUPTED)
    assert result.history[-1].step == 3
    config = LimitConfig(norm="spectral")
    late = train_to_limit(two_layers(), X4, LABELS, config, stop_at_gap=1e-6, max_seconds=1e-6)
    assert (late.ending, late.steps, len(late.history)) == (Ending.TIME, 0, 1)


# --- bad use -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"until_excess": 0.01}, "optimum"),
        ({"stop_at_gap": 0.0}, "stop_at_gap"),
        ({"measure": lambda n: {"norm": 1.0}}, "norm"),
    ],
)
def test_bad_use_is_refused(options: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        train_to_limit(gln(), X, Y, SHORT, **options)
