"""Losses: exact to enormous margins; and the check finds each condition that fails."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor
from torch.nn.functional import softplus

from implicit_bias.training.losses import (
    LOSSES,
    TAIL,
    LossError,
    MarginLoss,
    check_exponential_like,
)

MARGINS = [-750.0, -3.0, -1e-9, 7.0, TAIL - 1e-6, TAIL, 40.0, 900.0]


def decimal_log_loss(margin: float) -> float:
    """Compute log log(1 + exp(-q)) with enough digits to keep exp(-900) beside 1."""
    with localcontext() as context:
        context.prec = 900
        tail = (-Decimal(margin)).exp()
        return float((1 + tail).ln().ln())


@pytest.mark.parametrize("margin", MARGINS)
def test_log_loss_with_many_digits(margin: float) -> None:
    found = LOSSES["logistic"].log_loss(torch.tensor([margin], dtype=torch.float64)).item()
    assert found == pytest.approx(decimal_log_loss(margin), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_slope_of_the_log_loss(name: str) -> None:
    """The logistic one is -sigmoid(-q) / log(1 + exp(-q))."""
    q = torch.tensor([-1e6, *MARGINS], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(LOSSES[name].log_loss(q).sum(), q)
    assert torch.isfinite(slope).all()
    q = q.detach()
    expected = -torch.ones_like(q)
    if name == "logistic":
        tail = torch.exp(-q)
        by_hand = -torch.sigmoid(-q) / torch.where(q < -700, -q, torch.log1p(tail))
        expected = torch.where(q > 700, expected, by_hand)
    torch.testing.assert_close(slope, expected, rtol=1e-13, atol=0.0)


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_is_the_exponential_of_its_logarithm(name: str) -> None:
    loss = LOSSES[name]
    margins = torch.linspace(-30, 30, 121, dtype=torch.float64)
    torch.testing.assert_close(loss(margins), loss.log_loss(margins).exp(), rtol=1e-9, atol=0.0)
    own = MarginLoss("own", loss.log_loss)
    torch.testing.assert_close(own(margins), loss.log_loss(margins).exp())


# --- the check -----------------------------------------------------------------------------------


def power(exponent: float) -> Callable[[Tensor], Tensor]:
    """f(q) = sign(q) ((1 + q^2)^(p/2) - 1) + q / (1 + |q|): like q^p, and monotone."""
    return lambda q: -torch.sign(q) * ((1 + q.square()).pow(exponent / 2) - 1) - q / (1 + q.abs())


@pytest.mark.parametrize(
    "loss",
    [
        LOSSES["exponential"],
        LOSSES["logistic"],
        # An exponential tail with a polynomial factor.
        MarginLoss("factor", lambda q: -q - 3.0 * torch.log1p(softplus(q))),
        MarginLoss("root", power(0.5)),
    ],
    ids=lambda loss: loss.name,
)
def test_exponential_like_losses_pass(loss: MarginLoss) -> None:
    check_exponential_like(loss)


@pytest.mark.parametrize(
    ("log_loss", "condition", "measured"),
    [
        # A polynomial tail, l = (q + sqrt(1 + q^2))^-3: f'(q) q -> 3.
        (lambda q: -3.0 * torch.asinh(q), "infinity", 0.0),
        # It rises again.
        (lambda q: torch.cos(q) * 2.0 - q, "positive", -1.0),
        # Hinge squared: the loss is 0 from q = 1 on.
        (lambda q: torch.log((1.0 - q).clamp(min=0.0).square()), "finite", math.inf),
        # f'(q) q = q (1 + sin(log q) / 2 ...) falls again and again.
        (lambda q: -2.0 * q - q * torch.sin(8 * torch.log1p(q.relu())) / 8, "decrease", None),
    ],
)
def test_other_losses_are_refused(
    log_loss: Callable[[Tensor], Tensor], condition: str, measured: float | None
) -> None:
    with pytest.raises(LossError, match="'own'") as caught:
        check_exponential_like(MarginLoss("own", log_loss))
    assert condition in caught.value.condition
    if measured is not None:
        assert caught.value.measured == pytest.approx(measured, abs=0.02)
