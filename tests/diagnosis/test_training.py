"""What stands between a training and the limit that is measured: codes, numbers and cures."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from diagnosis.asking import X, codes, finding, quiet, relu, single
from example_modules import layers, linear, margins_by_hand, own_labels, scale_weights, seeded
from implicit_bias import LimitConfig, diagnose, train_to_limit
from implicit_bias.diagnosis import Code
from implicit_bias.diagnosis.findings import WORDS, Topic
from implicit_bias.modules.steps import OptimizerError
from implicit_bias.training.losses import MarginLoss, as_loss

RATES = {Code.LOGARITHMIC_RATE, Code.CONSTANT_RATE}


def of_margin(margin: float) -> nn.Module:
    """Scale a network to a smallest margin; it is near no limit."""
    module = seeded(layers(X.shape[1], 4, 1), 1)
    smallest = float(module(X).detach().abs().min())  # its labels are its own
    return scale_weights(module, (margin / smallest) ** 0.5)


# --- the loss's gradient -------------------------------------------------------------------------


def test_a_gradient_of_rounding_errors_is_seen() -> None:
    """Cross-entropy computes p - 1, which in single precision is rounding from margin 16 on."""
    module = seeded(linear(X.shape[1], 3), 1)
    labels = own_labels(module, X)
    margins, _ = margins_by_hand(module, X, labels)
    scale_weights(module, 20.0 / margins.min())
    assert Code.LOGARITHMIC_RATE in codes(diagnose(module, X, labels))
    module.float()
    assert Code.GRADIENT_OF_ROUNDING_ERRORS in codes(diagnose(module, X, labels))
    precise = diagnose(module, X, labels, loss=as_loss("logistic"))
    assert Code.LOGARITHMIC_RATE in codes(precise)


def test_of_the_logarithm_of_a_loss_no_gradient_vanishes() -> None:
    module = of_margin(2000.0)
    adam = torch.optim.Adam(module.parameters())

    def log_loss(outputs: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(-signs * outputs.squeeze(-1), 0)

    found = quiet(module, loss=log_loss, optimizer=adam)
    assert found.warnings == ()
    assert Code.CONSTANT_RATE in codes(found)


# --- epsilon and memory --------------------------------------------------------------------------


def test_an_epsilon_above_gradients_that_are_0_is_no_advice() -> None:
    """Their squares underflow before they do: no eps is small enough then."""
    for margin, code in (
        (100.0, Code.EPSILON),
        (500.0, Code.SQUARES_OF_ZERO),
        (2000.0, Code.GRADIENT_OF_ZERO),
    ):
        module = of_margin(margin)
        found = quiet(module, optimizer=torch.optim.Adam(module.parameters()))
        about_gradients = {Code.EPSILON, Code.SQUARES_OF_ZERO, Code.GRADIENT_OF_ZERO}
        assert about_gradients & {*codes(found)} == {code}
        assert finding(found, code).value > 0.0
        assert (found.warnings == ()) == (code is not Code.EPSILON)
    assert finding(found, code).value == pytest.approx(margin)
    assert found.advice == finding(found, code).cure
    assert RATES.isdisjoint(codes(found))


def test_after_train_to_limit_nobody_is_told_to_train_to_the_limit() -> None:
    module = nn.Linear(2, 1, bias=False).double()
    # The limits in l2 and in linf are far apart: (4, 1) and (1, 1).
    inputs = torch.tensor([[4.0, 1.0], [5.0, 1.0], [-4.0, -1.0]], dtype=torch.float64)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.1)
    config = LimitConfig(steps=1000)
    train_to_limit(module, inputs, [1, 1, -1], config, optimizer=optimizer, stop_at_gap=0.05)
    found = quiet(module, inputs, [1, 1, -1], optimizer=optimizer)
    assert found.gap <= 0.05
    assert not {Topic.RATE, Topic.OBSTACLE} & {code.topic for code in codes(found)}


def test_gradients_that_shrank_faster_than_adam_forgets_are_seen() -> None:
    module = of_margin(5.0)
    parameters, signs = list(module.parameters()), torch.tensor(own_labels(module, X))
    loss = nn.functional.soft_margin_loss(module(X)[:, 0], signs)
    slopes = torch.autograd.grad(loss, parameters)

    def stepped(*sizes: float) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(parameters, lr=1e-12, eps=1e-30)
        for size in sizes:
            for p, slope in zip(parameters, slopes, strict=True):
                p.grad = size * slope
            optimizer.step()
        return optimizer

    # Neither a gradient that changes sign, whose average is small, nor a summed loss has shrunk.
    for sizes in ((1.0, -1.0) * 30, (100.0,) * 50):
        assert Code.CONSTANT_RATE in codes(quiet(module, optimizer=stepped(*sizes)))
    found = quiet(module, optimizer=stepped(1e3, *[1.0] * 50))
    # By definition: the average gradient over the root of the average square, both unbiased.
    weights = [0.999**50 * 1e6 * 0.001, *(0.999 ** (50 - t) * 0.001 for t in range(1, 51))]
    first = [0.9**50 * 1e3 * 0.1, *(0.9 ** (50 - t) * 0.1 for t in range(1, 51))]
    expected = sum(first) / (1 - 0.9**51) / (sum(weights) / (1 - 0.999**51)) ** 0.5
    assert finding(found, Code.ADAMS_MEMORY).value == pytest.approx(expected)
    assert RATES.isdisjoint(codes(found))


def test_adam_of_beta1_above_beta2_is_told() -> None:
    module = of_margin(5.0)
    for betas, told in (((0.99, 0.9), True), ((0.9, 0.9), False)):
        found = quiet(module, optimizer=torch.optim.Adam(module.parameters(), betas=betas))
        assert (Code.BETAS in codes(found)) == told


@pytest.mark.parametrize("name", ["Adam", "Muon"])
def test_the_size_of_the_gradients_is_that_of_the_loss(name: str) -> None:
    """An epsilon just above that of the gradient that autograd finds is seen, one below is not.

    Muon divides by the norm of a matrix, which is larger than its entries.
    """
    module = of_margin(5.0)
    signs = torch.tensor(own_labels(module, X))
    loss = nn.functional.soft_margin_loss(module(X)[:, 0], signs)
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    largest = max(float(g.norm() / (g.numel() ** 0.5 if name == "Adam" else 1)) for g in slopes)
    for factor, seen in ((1.01, True), (0.99, False)):
        kind = getattr(torch.optim, name)
        optimizer = kind(module.parameters(), eps=factor * largest, weight_decay=0.0)
        found = quiet(module, optimizer=optimizer)
        assert (Code.EPSILON in codes(found)) == seen
        if seen:
            assert finding(found, Code.EPSILON).value == pytest.approx(largest)


# --- the loss ------------------------------------------------------------------------------------


POWER = MarginLoss("power", lambda q: -2.0 * (1.0 + (q + 20.0).clamp_min(0.0)).log())


@pytest.mark.parametrize(
    ("outputs", "loss", "code"),
    [
        (3, nn.MSELoss(), Code.FINITE_MINIMISER),
        (1, POWER, Code.NO_EXPONENTIAL_TAIL),
        (1, lambda margins: (1 - margins).relu(), Code.LOSS_NOT_CHECKED),
        (3, F.cross_entropy, None),
    ],
)
def test_losses_that_are_not_exponential_like_are_named(
    outputs: int, loss: Any, code: Code | None
) -> None:
    found = quiet(seeded(linear(X.shape[1], outputs), 1), loss=loss)
    if code is None:
        assert found.warnings == ()
    else:
        assert found.warnings == (str(finding(found, code)),)
        assert RATES.isdisjoint(codes(found)) == code.keeps_from_limit


# --- the optimizer -------------------------------------------------------------------------------


@pytest.mark.parametrize(("optimizer", "norm"), [(torch.optim.SGD, "l2"), ("Muon", "spectral")])
def test_the_norm_of_an_optimizer(optimizer: object, norm: str) -> None:
    module = single()
    found = quiet(module, optimizer=optimizer)
    assert (found.norm, found.warnings) == (norm, ())
    other = quiet(module, norm="l1", optimizer=optimizer)
    assert (other.norm, other.trained_by) == ("l1", "")
    assert finding(other, Code.OTHER_NORM).details["own"] == norm


def test_an_unknown_limit_needs_a_norm() -> None:
    with pytest.raises(OptimizerError):
        quiet(single(), optimizer=torch.optim.Rprop)
    found = quiet(single(), optimizer=torch.optim.Rprop, norm="l2")
    assert Code.UNKNOWN_LIMIT in codes(found)
    assert found.advice == finding(found, Code.UNKNOWN_LIMIT).cure


def test_weight_decay_and_parameters_that_the_optimizer_does_not_have() -> None:
    module = relu()
    first = next(module.parameters())
    found = quiet(module, optimizer=torch.optim.SGD([first], weight_decay=0.1))
    assert finding(found, Code.NOT_IN_OPTIMIZER).names == ("2.weight", "4.weight")
    assert found.degree == 1.0
    assert finding(found, Code.WEIGHT_DECAY).value == 0.1


# --- words ---------------------------------------------------------------------------------------


def test_every_code_has_a_sentence() -> None:
    for code in Code:
        assert WORDS[code]["found"]
