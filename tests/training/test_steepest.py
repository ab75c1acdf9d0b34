"""Steepest descent in any norm: steps by hand, certified maximum margins, KKT points."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import known, weights_of
from implicit_bias import LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.norms import L1, L2
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm
from implicit_bias.training.configuration import NormName
from implicit_bias.training.limit import Ending, LimitPoint
from implicit_bias.training.losses import LOSSES, MarginLoss
from implicit_bias.training.steepest import SteepestDescent
from implicit_bias.training.trainee import as_trainee
from training.samples import LABELS, NORMS, SIGNS, X2, X4, flat, on_clusters, two_layers

OWN_LOSS = MarginLoss("own", lambda q: -q - 3.0 * torch.log1p(nn.functional.softplus(q)))


@pytest.mark.parametrize("norm", [*NORMS, ComposedNorm(L2(), L1(), "sum over layers")], ids=str)
def test_steps_by_hand(norm: Any) -> None:
    config = LimitConfig(norm=norm, momentum=0.7, loss="logistic")
    module = two_layers()
    geometry = as_parameter_norm(norm)
    trainee = as_trainee(module, X4, LABELS, geometry, loss=LOSSES["logistic"])
    descent = SteepestDescent(trainee, config)
    state = trainee.start()
    V = 0.0
    m = 0.0 * state.weights

    def losses(weights: Tensor) -> Tensor:
        trainee.set_weights(weights)
        outputs = module(torch.tensor(X4))
        return nn.functional.cross_entropy(outputs, torch.tensor(LABELS), reduction="none")

    for _ in range(5):
        following = known(descent.advance(state))
        assert following.step == state.step + 1
        mean = losses(state.weights).mean().log()
        g = torch.cat([t.reshape(-1) for t in torch.autograd.grad(mean, list(module.parameters()))])
        m = 0.7 * m + 0.3 * g
        torch.testing.assert_close(following.velocity, m)
        step = (following.weights - state.weights) / following.step_size
        assert geometry.value(trainee.by_name(step)) == pytest.approx(1.0)
        assert (step @ -m).item() == pytest.approx(geometry.dual(trainee.by_name(m)))
        size = 1.0 / geometry.dual(trainee.by_name(g))
        if V:
            size = min(size, 2.0 * math.sqrt(math.log(len(X4)) / V))
        with torch.no_grad():
            if not state.min_margin > 0:
                for _ in range(4):
                    if losses(state.weights + size * step).mean().log() < mean:
                        break
                    size /= 2.0
            before = losses(state.weights)
            after = losses(following.weights)
        assert following.step_size == pytest.approx(size)
        p = (before / before.sum()).numpy()
        slopes = (after / before).log().numpy() / following.step_size
        V += float(p @ (slopes - p @ slopes) ** 2)
        assert following.variation == pytest.approx(V)
        assert following.log_loss == pytest.approx(math.log(after.mean()))
        state = following


@pytest.mark.parametrize(
    ("norm", "classes", "excess", "loss"),
    [
        ("l2", 1, 0.003, OWN_LOSS),
        ("l1", 4, 0.04, "cross-entropy"),
        ("linf", 4, 0.04, "cross-entropy"),
        ("spectral", 4, 0.1, "cross-entropy"),
    ],
    ids=["l2-own-loss", "l1", "linf", "spectral"],
)
def test_a_linear_module_converges_to_the_certified_maximum_margin(
    norm: NormName, classes: int, excess: float, loss: Any
) -> None:
    inputs, labels = (X2, SIGNS) if classes == 1 else (X4, LABELS)
    optimum = solve(max_margin(inputs, labels, norm), tol=1e-8).certificate.lower
    module = flat(classes)
    config = LimitConfig(steps=5000, norm=norm, loss=loss)
    result = train_to_limit(module, inputs, labels, config, optimum=optimum, until_excess=excess)
    assert result.ending is Ending.REACHED
    last = result.history[-1]
    assert -1e-9 < last.excess <= excess
    assert last.error == 0.0
    assert last.norm == pytest.approx(as_parameter_norm(norm).value({"w": module.weight}))
    assert math.isnan(last.balance)
    assert math.isnan(last.gates_changed)


def test_a_network_nears_a_kkt_point_of_its_own_norm() -> None:
    goal = 0.4
    config = LimitConfig(steps=1000, norm="l2", record=3)
    result = train_to_limit(two_layers(), X4, LABELS, config, stop_at_gap=goal)
    assert result.ending is Ending.GAP
    gaps = [point.gap for point in result.history if point.min_margin > 0]
    assert math.isnan(result.history[0].gap)  # not separated yet
    assert gaps[-1] <= goal < min(gaps[:-1])


def test_first_steps_of_spectral_descent_leave_each_sample_units() -> None:
    """A sample on which all units are off has no gradient, and is never classified."""
    network, inputs, labels = on_clusters(2)

    def stop(point: LimitPoint) -> None:
        if point.min_margin > 0:
            raise KeyboardInterrupt

    config = LimitConfig(steps=400, norm="spectral")
    assert train_to_limit(network, inputs, labels, config, on_point=stop).interrupted


def test_the_norm_is_that_of_the_optimizers() -> None:
    """Read once: the same steps as in that norm, which the result's configuration names."""
    module = two_layers()
    other = two_layers()
    both = [
        torch.optim.Adam([p], lr=rate)
        for p, rate in zip(module.parameters(), (0.1, 0.2), strict=True)
    ]
    config = LimitConfig(steps=2)
    own = geometry_of(both, module).norm
    result = train_to_limit(module, X4, LABELS, config, optimizer=both)
    assert result.config == replace(config, norm=own)
    train_to_limit(other, X4, LABELS, result.config)
    np.testing.assert_array_equal(weights_of(module), weights_of(other))
    # Also where l2 is asked for, which would be the default without optimizers.
    with pytest.raises(ValueError, match="leave one out"):
        train_to_limit(module, X4, LABELS, LimitConfig(norm="l2"), optimizer=both)
    with pytest.raises(ValueError, match="in no optimizer"):
        train_to_limit(module, X4, LABELS, config, optimizer=both[0])
