"""Definition B.10 of Lippl et al. (2022), which is of fewer losses than (B3) of Lyu and Li."""

import math

import pytest
import torch

from benchmarks.lippl2022.tight_tail import tight_tail
from implicit_bias.training.losses import LOSSES, LossError, MarginLoss, check_exponential_like


def test_constants_of_the_logistic_loss() -> None:
    """C = a = mu = 1: -l' = e^-u (1 - 1 / (1 + e^u)), below the tail only."""
    tail = tight_tail(LOSSES["logistic"])
    assert (tail.c, tail.a) == pytest.approx((1.0, 1.0), abs=1e-9)
    assert tail.mu_upper == math.inf
    # By hand: 1 / (1 + e^u) <= e^(-mu u) for all u >= 1 holds with mu = 1 and no larger one.
    assert tail.mu_lower == pytest.approx(1.0, abs=1e-5)


def test_the_exponential_loss_has_nothing_but_its_tail() -> None:
    tail = tight_tail(LOSSES["exponential"])
    assert (tail.c, tail.a) == pytest.approx((1.0, 1.0), abs=1e-9)
    assert tail.mu_upper == tail.mu_lower == math.inf


def test_rate_and_factor_are_found() -> None:
    """L = 3 exp(-2 u) (1 + exp(-u) / 2): -l' = 6 exp(-2 u) (1 + 3/4 exp(-u))."""

    def log_loss(q: torch.Tensor) -> torch.Tensor:
        return math.log(3) - 2 * q + torch.log1p(torch.exp(-q) / 2)

    tail = tight_tail(MarginLoss("own", log_loss))
    assert (tail.c, tail.a) == pytest.approx((6.0, 2.0), rel=1e-6)
    assert 1.0 <= tail.mu_upper <= 1.0 + math.log(4 / 3)
    assert tail.mu_lower == math.inf


@pytest.mark.parametrize(
    "log_loss",
    [
        lambda q: -q.abs() * q,
        lambda q: -(q**3),
        lambda q: torch.where(q > 1, -q.clamp(min=0.25).sqrt(), -(q + 1) / 2),
        lambda q: -q - 3 * torch.log1p(q.clamp(min=-0.5)),
    ],
    ids=["square", "cube", "root", "with a power"],
)
def test_losses_of_lyu_and_li_without_a_tight_tail(log_loss: object) -> None:
    with pytest.raises(LossError, match=r"B\.10"):
        tight_tail(MarginLoss("own", log_loss))  # type: ignore[arg-type]


def test_a_loss_with_a_power_is_exponential_like_all_the_same() -> None:
    """(1 + q)^-3 exp(-q), continued by a line where q < 0: (B3) holds, B.10 does not."""
    loss = MarginLoss("own", lambda q: -q - 3 * torch.where(q > 0, torch.log1p(q.clamp(min=0)), q))
    check_exponential_like(loss)
    with pytest.raises(LossError, match=r"B\.10"):
        tight_tail(loss)
