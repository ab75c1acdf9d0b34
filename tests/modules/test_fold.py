"""Folding batch normalization: the same function, the same names, and what cannot be folded."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import implicit_bias as ib
from example_modules import own_labels
from implicit_bias.modules.fold import FoldError


class Residual(nn.Module):
    """Convolutions with padding, groups and a shortcut, each normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
        self.norm_of_second = nn.BatchNorm2d(8, affine=False)
        self.out = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        """Return scores of shape (N, 2)."""
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(x + self.norm_of_second(self.second(x)))
        scores: Tensor = self.out(x.mean((2, 3)))
        return scores


def with_statistics(module: nn.Module, *shape: int) -> nn.Module:
    """Give each normalization scales, shifts and running statistics that are not 1 and 0."""
    torch.manual_seed(0)
    for p in module.parameters():
        p.data.add_(0.3 * torch.randn_like(p))
    for _ in range(20):
        module(3.0 * torch.randn(16, *shape, dtype=next(module.parameters()).dtype) + 1.0)
    return module.eval()


def mlp() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(5, 7), nn.BatchNorm1d(7), nn.ReLU(), nn.Linear(7, 4, bias=False)
    ).append(nn.BatchNorm1d(4))


@pytest.mark.parametrize(
    ("module", "shape"), [(Residual().double(), (3, 12, 12)), (mlp().double(), (5,))]
)
def test_a_folded_module_is_the_same_function(module: nn.Module, shape: tuple[int, ...]) -> None:
    module = with_statistics(module, *shape)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    folded = ib.fold(module)
    x = torch.randn(6, *shape, dtype=torch.float64)
    assert torch.allclose(folded(x), module(x), rtol=1e-12, atol=1e-12)
    assert not any("norm" in type(part).__name__.lower() for part in folded.modules())
    assert {name for name, _ in folded.named_modules()} == {n for n, _ in module.named_modules()}
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name])


class Beside(nn.Module):
    """A linear layer whose output is used as it is, too, beside its normalization."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: Tensor) -> Tensor:
        """Return features (N, 3)."""
        x = self.layer(x)
        found: Tensor = x + self.norm(x)
        return found


@pytest.mark.parametrize(
    ("module", "word"),
    [
        (nn.Sequential(nn.Linear(3, 2)).eval(), "no batch normalization"),
        (
            nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2, track_running_stats=False)).eval(),
            "running statistics",
        ),
        (Beside().eval(), "does not follow"),
    ],
)
def test_what_cannot_be_folded_is_refused(module: nn.Module, word: str) -> None:
    with pytest.raises(FoldError, match=word):
        ib.fold(module)


def test_the_cure_for_batch_norm_that_the_error_names_works() -> None:
    layers = [nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8), nn.ReLU()]
    module = with_statistics(nn.Sequential(*layers, nn.Linear(8, 1, bias=False)).double(), 5)
    X = torch.randn(30, 5, dtype=torch.float64)
    y = own_labels(module, X)
    with pytest.raises(ib.HomogeneityError, match="fold"):
        ib.diagnose(module, X, y, norm="l2")
    assert ib.diagnose(ib.fold(module), X, y, norm="l2").degree == pytest.approx(2.0)


def test_a_folded_layer_is_trained_where_what_it_comes_from_is() -> None:
    layers = [nn.Linear(5, 8, bias=False), nn.BatchNorm1d(8, affine=False), nn.ReLU()]
    module = nn.Sequential(*layers, nn.Linear(8, 1, bias=False)).eval()
    assert all(p.requires_grad for p in ib.fold(module).parameters())
    module[0].requires_grad_(False)
    frozen = {name for name, p in ib.fold(module).named_parameters() if not p.requires_grad}
    assert frozen == {"0.weight", "0.bias"}
