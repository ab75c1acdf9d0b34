"""Training towards the limit of any module: maximum margins in each norm, classes, chunks, ends."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import Computed, drawn, frozen, known, layers, scale_weights, weights_of
from implicit_bias import HomogeneityError, LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.base import options
from implicit_bias.base.validation import Array
from implicit_bias.modules.optimizers import geometry_of
from implicit_bias.modules.stationarity import stationarity
from implicit_bias.networks import GLN, ReLUNetwork
from implicit_bias.norms import L1, L2, Lp
from implicit_bias.norms.tensors import ComposedNorm, as_parameter_norm
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.configuration import Method, NormName
from implicit_bias.training.limit import ComparisonPredictor, Ending, LimitPoint
from implicit_bias.training.losses import LOSSES, MarginLoss
from implicit_bias.training.steepest import SteepestDescent
from implicit_bias.training.trainee import Inputs, as_trainee
from system import stop_at
from training.samples import LABELS, NORMS, SIGNS, X2, X4, flat, two_layers

OWN_LOSS = MarginLoss("own", lambda q: -q - 3.0 * torch.log1p(nn.functional.softplus(q)))

# --- the maximum margin of each norm -------------------------------------------------------------


@pytest.mark.every(9)
@pytest.mark.parametrize(
    ("norm", "classes", "steps", "share", "loss"),
    [
        ("l2", 1, 100, 0.02, "cross-entropy"),
        *(("l2", 1, 400, 0.003, loss) for loss in ("exponential", OWN_LOSS)),
        *(
            (norm, classes, 400, share, "cross-entropy")
            for norm, share in zip(NORMS, (0.003, 0.04, 0.04, 0.04), strict=True)
            for classes in (1, 4)
        ),
    ],
)
def test_a_linear_module_goes_to_the_certified_maximum_margin(
    norm: NormName, classes: int, steps: int, share: float, loss: Any
) -> None:
    """From zero: within 4 % (l2: 0.3 %) after 400 steps."""
    inputs, labels = (X2, SIGNS) if classes == 1 else (X4, LABELS)
    solution = solve(max_margin(inputs, labels, norm), tol=1e-8)
    module = flat(classes)
    result = train_to_limit(
        module,
        inputs,
        labels,
        LimitConfig(steps=steps, norm=norm, loss=loss),
        optimum=solution.certificate.lower,
    )
    last = result.history[-1]
    assert -1e-9 < last.excess < share
    assert last.error == 0.0
    assert last.norm == pytest.approx(as_parameter_norm(norm).value({"w": module.weight}))
    assert math.isnan(last.balance)
    assert math.isnan(last.gates_changed)


def test_a_norm_of_your_own() -> None:
    """The sum over the layers of their l2 norms."""
    own = ComposedNorm(L2(), L1(), "sum over layers")
    result = train_to_limit(two_layers(), X4, LABELS, LimitConfig(steps=100, norm=own))
    assert result.history[-1].error == 0.0
    assert result.config.limit_norm == "sum over layers"


def test_the_norm_is_that_of_the_optimizers() -> None:
    """Read once: the same steps as in that norm, which the result's configuration names."""
    modules = two_layers(), two_layers()
    rates = zip(modules[0].parameters(), (0.1, 0.2), strict=True)
    both = [torch.optim.Adam([p], lr=rate) for p, rate in rates]
    config, own = LimitConfig(steps=2), geometry_of(both, modules[0]).norm
    result = train_to_limit(modules[0], X4, LABELS, config, optimizer=both)
    assert result.config == replace(config, norm=own)
    assert len(repr(result)) < 200
    assert result.ending.message in repr(result)
    train_to_limit(modules[1], X4, LABELS, result.config)
    np.testing.assert_array_equal(weights_of(modules[0]), weights_of(modules[1]))
    for given in ("spectral", "l2"):  # also what would be the default without them
        with pytest.raises(ValueError, match="leave one out"):
            train_to_limit(modules[0], X4, LABELS, LimitConfig(norm=given), optimizer=both)
    with pytest.raises(ValueError, match="in no optimizer"):
        train_to_limit(modules[0], X4, LABELS, config, optimizer=both[0])


@pytest.mark.every(3)
@pytest.mark.parametrize(("norm", "goal"), [("l2", 0.4), ("linf", 0.6), ("spectral", 0.3)])
def test_a_network_nears_a_kkt_point_of_its_own_norm(norm: NormName, goal: float) -> None:
    config = LimitConfig(steps=1000, norm=norm, record=5)
    result = train_to_limit(two_layers(), X4, LABELS, config, stop_at_gap=goal)
    assert result.ending is Ending.GAP
    gaps = [point.gap for point in result.history]
    assert gaps[-1] <= goal
    assert math.isnan(gaps[0])  # not separated yet
    assert all(math.isnan(gap) or gap > goal for gap in gaps[:-1])
    assert any(gap > goal for gap in gaps)


def test_every_norm_of_a_configuration_has_a_name() -> None:
    names = {"l1": L1(), "Lp(p=3)": Lp(3), "the largest of l1 of all others": {"": "l1"}}
    assert [LimitConfig(norm=norm).limit_norm for norm in names.values()] == list(names)  # type: ignore[arg-type]


# --- steps by hand -------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", NORMS)
def test_steps_of_steepest_descent_by_hand(norm: NormName) -> None:
    config = LimitConfig(norm=norm, momentum=0.7, loss="logistic")
    module, geometry = two_layers(), as_parameter_norm(norm)
    trainee = as_trainee(module, X4, LABELS, geometry, loss=LOSSES["logistic"])
    descent = SteepestDescent(trainee, config)
    state, spread, average = trainee.start(), 0.0, None

    def losses(weights: Tensor) -> Tensor:
        trainee.set_weights(weights)
        return nn.functional.cross_entropy(
            module(torch.tensor(X4)), torch.tensor(LABELS), reduction="none"
        )

    for _ in range(5):
        following = known(descent.advance(state))
        mean = losses(state.weights).mean().log()
        g = torch.cat([t.reshape(-1) for t in torch.autograd.grad(mean, list(module.parameters()))])
        average = 0.3 * g if average is None else 0.7 * average + 0.3 * g
        torch.testing.assert_close(following.velocity, average)
        step = (following.weights - state.weights) / following.step_size
        by_name = trainee.by_name(step)
        assert geometry.value(by_name) == pytest.approx(1.0)
        assert (step @ -average).item() == pytest.approx(geometry.dual(trainee.by_name(average)))
        size = 1.0 / geometry.dual(trainee.by_name(g))
        if spread:
            size = min(size, 2.0 * math.sqrt(math.log(len(X4)) / spread))
        with torch.no_grad():
            for _ in range(0 if state.min_margin > 0 else 4):
                if losses(state.weights + size * step).mean().log() < mean:
                    break
                size /= 2.0
        assert following.step_size == pytest.approx(size)
        with torch.no_grad():
            before, after = losses(state.weights), losses(following.weights)
        shares = (before / before.sum()).numpy()
        change = (after / before).log().numpy() / following.step_size
        spread += float(shares @ (change - shares @ change) ** 2)
        assert following.variation == pytest.approx(spread)
        assert following.log_loss == pytest.approx(math.log(after.mean()))
        state = following


# --- classes and chunks --------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_two_classes_are_the_binary_training(norm: NormName) -> None:
    """One output for two classes is f_1 - f_0 of a module of two outputs."""
    classes, binary = two_layers(2), two_layers(2)
    single = Computed(lambda m, x: m.both(x)[:, 1] - m.both(x)[:, 0], both=binary)
    config = LimitConfig(steps=40, norm=norm, loss="cross-entropy")
    first = train_to_limit(classes, X2, (SIGNS > 0).astype(int), config)
    second = train_to_limit(single, X2, SIGNS, config)
    np.testing.assert_allclose(weights_of(classes), weights_of(binary), rtol=1e-9)
    assert first.history[-1].min_margin == pytest.approx(second.history[-1].min_margin)


@pytest.mark.parametrize("chunk", [1, 7, 32, 100])
@pytest.mark.parametrize("build", [two_layers, lambda: ReLUNetwork(5, [6])])
def test_chunks_are_the_full_batch_to_rounding(build: Callable[[], nn.Module], chunk: int) -> None:
    """Also at margins whose losses have underflowed in all chunks but one."""
    module, own = build(), build is not two_layers
    inputs, labels = (X2, SIGNS) if own else (X4, LABELS)
    for scale in (1.0, 30.0):
        whole, parts = (as_trainee(module, inputs, labels, chunk=size) for size in (None, chunk))
        weights = scale * whole.start().weights
        for found, expected in zip(
            parts.differentiate(weights), whole.differentiate(weights), strict=True
        ):
            np.testing.assert_allclose(
                np.asarray(found), np.asarray(expected), rtol=1e-10, atol=1e-12
            )
        found, expected = parts.evaluate(weights), whole.evaluate(weights)
        assert found[:2] == pytest.approx(expected[:2], rel=1e-12)


def test_a_training_in_chunks() -> None:
    whole, parts = two_layers(), two_layers()
    config = LimitConfig(steps=20)
    train_to_limit(whole, X4, LABELS, config)
    train_to_limit(parts, X4, LABELS, replace(config, chunk=5))
    np.testing.assert_allclose(weights_of(parts), weights_of(whole), rtol=1e-9)


def test_a_network_of_this_package_is_a_module_like_any_other() -> None:
    """The same log losses, steps and margins as by its prepared arguments."""
    own, other = ReLUNetwork(5, [6]), ReLUNetwork(5, [6])
    wrapped = Computed(lambda m, x: m.inner(x), inner=other)
    config = LimitConfig(steps=50)
    expected = train_to_limit(own, X2, SIGNS, config).frame()
    found = train_to_limit(wrapped, (torch.tensor(X2),), torch.tensor(SIGNS), config).frame()
    np.testing.assert_array_equal(weights_of(own), weights_of(other))
    same = ["step", "loss", "error", "min_margin", "log_loss", "step_size", "evaluations"]
    assert found[same].equals(expected[same])


# --- ends, and what is kept on the way -----------------------------------------------------------


def test_an_error_of_the_module_leaves_what_was_reached() -> None:
    module, kept = two_layers(), list[Array]()

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    def on_point(point: LimitPoint) -> None:
        if point.step == 4:
            kept.append(weights_of(module))
            module.register_forward_hook(fail)

    with pytest.raises(RuntimeError, match="memory"):
        train_to_limit(module, X4, LABELS, LimitConfig(steps=9), on_point=on_point)
    np.testing.assert_array_equal(weights_of(module), kept[0])


def test_weights_are_kept_at_each_point_and_trained_further(tmp_path: Path) -> None:
    """Those at a point are those that it describes, and another training goes on from them."""
    module, other, file = two_layers(), two_layers(), tmp_path / "weights.pt"

    def keep(point: LimitPoint) -> None:
        torch.save(module.state_dict(), file)
        other.load_state_dict(torch.load(file))
        margins = as_trainee(other, X4, LABELS).gradients
        assert point.min_margin == pytest.approx(margins.margins(margins.theta).min())

    first = train_to_limit(module, X4, LABELS, LimitConfig(steps=32), on_point=keep)
    np.testing.assert_array_equal(weights_of(other), weights_of(module))
    later = train_to_limit(other, X4, LABELS, LimitConfig(steps=30))
    assert later.history[0].log_loss == pytest.approx(first.history[-1].log_loss)
    assert later.history[-1].log_loss < first.history[-1].log_loss


def test_the_default_configuration() -> None:
    result = train_to_limit(flat(4), X4, LABELS, on_point=stop_at(3))
    assert (result.config, result.ending) == (LimitConfig(), Ending.INTERRUPTED)
    assert result.history[-1].step == 3


def test_a_predictor_of_classes_to_compare_with() -> None:
    other = flat(4, 1.0)
    with torch.no_grad():
        other.weight[0] += 1.0
        decision = other(torch.tensor(X4)).numpy()
    reference = ComparisonPredictor(X4, decision)
    result = train_to_limit(flat(4), X4, LABELS, LimitConfig(steps=30), reference=reference)
    expected = np.mean(decision.argmax(axis=1) != LABELS)  # the module is right on all of them
    assert result.history[-1].error == 0.0
    assert result.history[-1].disagreement == expected


def test_the_time_ends_a_training_and_the_search_for_its_gap() -> None:
    module = two_layers()
    config = LimitConfig(steps=10_000, norm="spectral")
    result = train_to_limit(module, X4, LABELS, config, stop_at_gap=1e-6, max_seconds=1e-6)
    assert (result.ending, result.steps, len(result.history)) == (Ending.TIME, 0, 1)
    free = train_to_limit(module, X4, LABELS, replace(config, steps=2), max_seconds=600.0)
    assert free.ending is Ending.STEPS
    with pytest.raises(ValueError, match="max_seconds"):
        train_to_limit(module, X4, LABELS, config, max_seconds=0.0)


# --- what is not trained, and bad use ------------------------------------------------------------


def test_what_gets_no_gradient_is_left_alone() -> None:
    """Neither the weights of hard gates, which are a Parameter, nor a frozen layer is trained."""
    module = Computed(
        lambda m, x: ((x @ m.gates.T > 0).double() * (x @ m.units.T)) @ m.last,
        gates=drawn(6, 5),
        units=drawn(6, 5, seed=1),
        last=torch.ones(6).double(),
    )
    result = train_to_limit(frozen(module, "last"), X2, SIGNS, LimitConfig(steps=60))
    assert torch.equal(module.get_parameter("gates"), drawn(6, 5))
    size = module.get_parameter("units").norm().item()
    assert result.history[-1].norm == pytest.approx(size)
    found = as_trainee(module, X2, SIGNS)
    assert list(found.parameters) == ["units"]
    frozen(module, "gates")
    expected = stationarity(module, (torch.tensor(X2),), SIGNS)
    assert found.gap() == pytest.approx(expected.gap, abs=1e-9)
    assert found.degree == pytest.approx(1.0)


def test_a_module_that_is_not_homogeneous_is_refused() -> None:
    module = layers(5, 6, 4, between=nn.Tanh).double()
    before = weights_of(module)
    with pytest.raises(HomogeneityError, match="homogeneous"):
        train_to_limit(module, X4, LABELS, LimitConfig(steps=9))
    np.testing.assert_array_equal(weights_of(module), before)


@pytest.mark.every(5)
@pytest.mark.parametrize("norm", ["l2", "spectral"])
@pytest.mark.parametrize("scale", [1e200, 1e-100])
@pytest.mark.parametrize("method", options.METHOD_NAMES)
def test_huge_and_tiny_outputs_are_trained_on(method: Method, scale: float, norm: NormName) -> None:
    module = scale_weights(two_layers(), min(1.0, scale))
    config = LimitConfig(steps=5, method=method, norm=norm)
    found = train_to_limit(module, scale * X4, LABELS, config)
    assert np.isfinite(found.frame()["log_loss"]).all()
    assert np.isfinite(weights_of(module)).all()


@pytest.mark.parametrize(
    ("build", "inputs", "labels", "message"),
    [
        (lambda: nn.Linear(5, 1, bias=False), X4, SIGNS, "float64"),
        # One refusal lists all that must change.
        (lambda: nn.Sequential(nn.Linear(5, 1), nn.Linear(1, 1)), X4, SIGNS, "double.*leading=T"),
        (lambda: flat(4), X4, SIGNS, "classes"),
        (lambda: flat(4), X4, LABELS[:-1], "samples"),
        (lambda: nn.Sequential(flat(4, 1.0), nn.Dropout()), X4, LABELS, "eval"),
        (lambda: flat(1, math.nan), X4, SIGNS, "diverged"),
        (lambda: flat().requires_grad_(False), X4, SIGNS, "gradient"),
        (lambda: flat(4), 0.0 * X4, LABELS, "inputs all 0"),
        (lambda: scale_weights(two_layers(), 1e160), 1e-100 * X4, LABELS, "finite number"),
        (flat, X2[:0], SIGNS[:0], "samples"),
    ],
)
def test_bad_use_is_refused(
    build: Callable[[], nn.Module], inputs: Inputs, labels: Array, message: str
) -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match=message):
        train_to_limit(build(), inputs, labels, LimitConfig(steps=9))


def test_a_gap_needs_homogeneity() -> None:
    contexts = HyperplaneContexts.random(X2, 4, 1, random_state=0)
    network = GLN([contexts], readout_bias=True)
    with pytest.raises(HomogeneityError, match="readout_bias"):
        train_to_limit(network, X2, SIGNS, stop_at_gap=0.1)
    with pytest.raises(ValueError, match="stop_at_gap"):
        train_to_limit(flat(4), X4, LABELS, stop_at_gap=0.0)
