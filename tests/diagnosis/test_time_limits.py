"""`max_seconds` holds on a module whose passes take the time, by a clock that they move."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor, nn

import implicit_bias as ib
from example_modules import drawn, layers, own_labels, seeded

LIMIT, ALLOWED = 2.0, 0.5
# Seconds of a pass, and of everything else from one look at the clock to the next.
PASS, ELSE = 0.03, 1e-4
X = drawn(60, 6)


def diagnosed(norm: str) -> Callable[[nn.Module, Any], None]:
    def ask(module: nn.Module, labels: Any) -> None:
        ib.diagnose(module, X, labels, norm=norm, max_seconds=LIMIT)

    return ask


def compared(module: nn.Module, labels: Any) -> None:
    ib.which_norm(module, X, labels, reference=module.state_dict(), max_seconds=LIMIT)


NORMS = ("l2", "linf", "spectral", "l1")


@pytest.mark.fast("which_norm", "linf")
@pytest.mark.parametrize("ask", [compared, *map(diagnosed, NORMS)], ids=["which_norm", *NORMS])
def test_a_limit_of_time_holds(
    ask: Callable[[nn.Module, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = seeded(layers(6, 30, 20, 4), 1)
    labels = own_labels(module, X)
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += ELSE
        return now

    def slow(part: nn.Module, given: tuple[Tensor, ...], outputs: Tensor) -> None:
        nonlocal now
        now += PASS

    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(time, "monotonic", clock)
    with module.register_forward_hook(slow):
        ask(module, labels)
    assert now <= LIMIT + ALLOWED
