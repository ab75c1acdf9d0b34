"""Short passes have one thread, long ones as many as there are; what was before comes back."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import implicit_bias as ib
from example_modules import drawn, linear, own_labels, seeded
from implicit_bias.base.threads import SMALL_PASS, one_thread_if_small

X = drawn(20, 3)


@pytest.fixture(autouse=True)
def _two_threads() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def trained(module: nn.Module, inputs: Tensor, labels: Any) -> None:
    ib.train_to_limit(module, inputs, labels, ib.LimitConfig(steps=2))


def recorded(module: nn.Module, inputs: Tensor, labels: Any) -> None:
    ib.Recorder(module, inputs, labels).record()


@pytest.mark.parametrize("ask", [ib.diagnose, recorded, trained])
def test_a_small_module_is_evaluated_by_one_thread(ask: Callable[..., Any]) -> None:
    module, seen = seeded(linear(3, 2), 1), set[int]()
    labels = own_labels(module, X)
    with module.register_forward_hook(lambda *_: seen.add(torch.get_num_threads())):
        ask(module, X, labels)
    assert seen == {1}
    assert torch.get_num_threads() == 2
    with pytest.raises(ValueError, match="labels"):
        ask(module, X, labels[:-1])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize(
    ("shape", "parameters", "products"),
    [
        ((30_000, 1000), 1000, 3e7),
        ((100, 3, 32, 32), 300, 100 * 300 * 32 * 32),
        ((100, 64, 64, 64), 1000, 100 * 1000 * 64 * 64),
    ],
)
def test_the_products_of_a_pass_are_counted(
    shape: tuple[int, ...], parameters: int, products: float
) -> None:
    """Parameters by samples by positions, those of an image by its pixels."""
    module = nn.Module()
    module.weight = nn.Parameter(torch.empty(parameters))
    for inputs in (torch.empty(shape, device="meta"), (torch.empty(shape, device="meta"),)):
        with one_thread_if_small(module, inputs):
            assert (torch.get_num_threads() == 1) == (products < SMALL_PASS)
        assert torch.get_num_threads() == 2
