"""`max_seconds` is passed by a second at most, on a module whose passes are what takes the time."""

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import grad, vmap

import implicit_bias as ib
from example_modules import drawn, layers, own_labels, seeded
from implicit_bias.norms import NormName

LIMIT, ALLOWED = 1.0, 1.0
PASS = 0.03
X = drawn(60, 6)


@pytest.fixture(autouse=True, scope="module")
def _imports_of_torch() -> None:
    """Let torch import its compiler, which its first gradient of single samples does."""
    vmap(grad(torch.sum))(torch.ones(2, 2))


def diagnosed(norm: str) -> Callable[[nn.Module, Any], None]:
    def ask(module: nn.Module, labels: Any) -> None:
        ib.diagnose(module, X, labels, norm=norm, max_seconds=LIMIT)

    return ask


def compared(module: nn.Module, labels: Any) -> None:
    ib.which_norm(module, X, labels, reference=module.state_dict(), max_seconds=LIMIT)


def trained(norm: NormName) -> Callable[[nn.Module, Any], None]:
    def ask(module: nn.Module, labels: Any) -> None:
        config = ib.LimitConfig(steps=10**6, norm=norm)
        ib.train_to_limit(module, X, labels, config, stop_at_gap=1e-9, max_seconds=LIMIT)

    return ask


NORMS: tuple[NormName, ...] = ("l2", "linf", "spectral", "l1")


@pytest.mark.fast("which_norm", "diagnose linf", "train spectral")
@pytest.mark.parametrize(
    "ask",
    [compared, *map(diagnosed, NORMS), *map(trained, NORMS)],
    ids=["which_norm", *(f"diagnose {n}" for n in NORMS), *(f"train {n}" for n in NORMS)],
)
def test_a_limit_of_time_holds(ask: Callable[[nn.Module, Any], None]) -> None:
    module = seeded(layers(6, 30, 20, 4), 1)
    labels = own_labels(module, X)

    def slow(part: nn.Module, given: tuple[Tensor, ...], outputs: Tensor) -> None:
        time.sleep(PASS)

    with module.register_forward_hook(slow):
        started = time.perf_counter()
        ask(module, labels)
        took = time.perf_counter() - started
    assert took <= LIMIT + ALLOWED
