"""Leading parts against those written by hand, and limits that jump or do not exist."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import Computed, drawn, layers, linear, seeded
from implicit_bias.base.deadline import Deadline
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.leading import JumpSearch, leading_part, margins_in_the_limit
from implicit_bias.modules.margins import Margins

N, D, H = 12, 4, 5
X = drawn(N, D)
Y = np.where(np.arange(N) % 2, 1, -1)


def margins(module: nn.Module, seed: int = 1) -> Margins:
    return Margins(seeded(module, seed), (X,), Y)


def block(gate: Callable[[Tensor], Tensor], *, whole: bool) -> nn.Module:
    """Build <a, V gate(W x) + x>, or its part of degree 3."""

    def forward(m: Any, x: Tensor) -> Tensor:
        inner: Tensor = m.V(gate(m.W(x)))
        outputs: Tensor = m.a(inner + x if whole else inner)
        return outputs

    return Computed(forward, W=linear(D, H), V=linear(H, D), a=linear(D))


GATES: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": nn.functional.gelu,
}


@pytest.mark.parametrize("gate", GATES)
def test_the_leading_part_is_the_one_written_by_hand(gate: str) -> None:
    whole = margins(block(GATES[gate], whole=True))
    by_hand = margins(block(torch.relu, whole=False))
    found, degree, _ = leading_part(whole)
    assert degree == pytest.approx(3.0)
    theta = by_hand.theta
    np.testing.assert_allclose(found.margins(theta), by_hand.margins(theta), rtol=1e-9)
    np.testing.assert_allclose(margins_in_the_limit(found), by_hand.margins(theta), rtol=1e-9)
    every = np.arange(N)
    expected = by_hand.rows(theta, every)
    np.testing.assert_allclose(found.rows(theta, every), expected, rtol=1e-9, atol=1e-9)
    known, _, _ = leading_part(whole, 3.0)
    np.testing.assert_array_equal(known.margins(theta), found.margins(theta))


def test_a_homogeneous_module_is_its_own_leading_part() -> None:
    module = margins(layers(D, H, 1))
    found, degree, _ = leading_part(module)
    assert degree == 2.0
    assert found.scaled[0] == 1.0
    np.testing.assert_array_equal(margins_in_the_limit(found), module.margins(module.theta))


def test_the_degree_is_the_largest_of_all_terms() -> None:
    """Of f + b^2 g, also at b = 0, where f of degree 1 is all that there is."""
    module = Computed(
        lambda m, x: m.f(x) + m.b**2 * m.g(x), f=linear(D), g=linear(D), b=torch.empty(1)
    )
    nn.init.zeros_(seeded(module, 1).get_parameter("b"))
    found, degree, _ = leading_part(Margins(module, (X,), Y))
    assert degree == pytest.approx(3.0)
    assert not margins_in_the_limit(found).any()


def test_a_sample_of_less_degree_has_margin_0_in_the_limit() -> None:
    """Where x_1 <= 0 the term of degree 2 is off, and the shortcut is left."""
    module = Computed(
        lambda m, x: (x[:, :1] > 0) * m.f(x) * m.g(x) + m.f(x), f=linear(D), g=linear(D)
    )
    whole = margins(module)
    found, degree, _ = leading_part(whole)
    assert degree == pytest.approx(2.0)
    f = X @ module.get_parameter("f.weight").detach().T
    g = X @ module.get_parameter("g.weight").detach().T
    expected = torch.where(X[:, :1] > 0, f * g, 0.0)[:, 0].numpy() * Y
    np.testing.assert_allclose(margins_in_the_limit(found), expected, rtol=1e-9)


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (Computed(lambda m, x: m.f(x) + (m.f(x)).exp(), f=linear(D)), "tend to no limit"),
        (Computed(lambda m, x: m.f(x) * m.g(x).sigmoid(), f=linear(D), g=linear(D)), "jumps in"),
    ],
    ids=["exponential", "step"],
)
def test_limits_without_a_theorem_are_refused(module: nn.Module, match: str) -> None:
    with pytest.raises(HomogeneityError, match=match):
        leading_part(margins(module))


@pytest.mark.parametrize(("steepness", "jumps"), [(0.0, True), (1e3, False), (1.0, False)])
def test_a_jump_is_told_from_a_steep_slope(steepness: float, jumps: bool) -> None:
    def ramp(m: Any, x: Tensor) -> Tensor:
        inner: Tensor = m.f(x)
        if steepness == 0.0:
            return (inner > 0) * 1.0
        return (steepness * inner).clamp(0.0, 1.0)

    assert JumpSearch().finds(margins(Computed(ramp, f=linear(D)), 3), "f.weight") == jumps


def test_without_time_the_limit_is_not_known() -> None:
    whole = margins(block(torch.relu, whole=True))
    over = Deadline.after(0.0)
    with pytest.raises(TimeoutError, match="max_seconds"):
        leading_part(whole, deadline=over)
    with pytest.raises(TimeoutError):
        JumpSearch().finds(whole, "W.weight", over)
