"""Batch norm with the statistics of the whole data: the function that is trained, by autograd."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import implicit_bias as ib
from diagnosis.asking import codes, finding, quiet
from example_modules import drawn, known, margins_by_hand, own_labels, seeded, weights_of
from implicit_bias.diagnosis import Code
from implicit_bias.modules.fold import FoldError
from implicit_bias.modules.margins import Margins
from modules.programs import check_products
from modules.test_fold import Residual

X = drawn(14, 5)
NO_EPS = 1e-30


def mlp() -> nn.Sequential:
    return seeded(
        nn.Sequential(
            *(nn.Linear(5, 6, bias=False), nn.BatchNorm1d(6, eps=NO_EPS), nn.ReLU()),
            *(nn.Linear(6, 4, bias=False), nn.BatchNorm1d(4, eps=NO_EPS), nn.ReLU()),
            nn.Linear(4, 3, bias=False),
        ),
        1,
    )


def residual() -> Residual:
    module = seeded(Residual())
    module.norm.eps = NO_EPS
    module.norm_of_second.eps = NO_EPS
    return module


@pytest.mark.parametrize(
    ("module", "inputs"),
    [(mlp(), X), (residual(), drawn(6, 3, 4, 4))],
    ids=["mlp", "residual"],
)
def test_margins_and_gradients_are_those_of_training_mode(
    module: nn.Module, inputs: Tensor
) -> None:
    """Autograd in training mode, one margin after the other, through the statistics."""
    whole = ib.full_batch(module, inputs)
    labels = own_labels(whole, inputs)
    q, J = margins_by_hand(module.train(), inputs, labels)
    classes = whole(inputs).shape[1]
    margins = Margins(whole.eval(), (inputs,), labels, classes)
    np.testing.assert_allclose(margins.margins(margins.theta), q, rtol=1e-11)
    check_products(margins, margins.theta, J)


def test_scale_invariant_weights_are_named() -> None:
    """What is in front of a normalization, and the weights of all but the last of these."""
    whole = ib.full_batch(mlp(), X)
    found = quiet(whole, X)
    assert found.degree == pytest.approx(2.0)
    assert finding(found, Code.DEGREE_0).names == ("0.weight", "1.weight", "1.bias", "3.weight")
    turned = finding(found, Code.DEGREE_0_WITHOUT_THEOREM)
    assert turned.names == finding(found, Code.DEGREE_0).names
    assert 0.0 < found.gap_lower <= found.gap <= 1.0
    assert Code.TRAINING_MODE not in codes(found)


def test_it_follows_the_training_of_the_module() -> None:
    module = mlp()
    whole = ib.full_batch(module, X.numpy())
    module.get_parameter("0.weight").data.add_(drawn(6, 5, seed=1))
    module.train()
    torch.testing.assert_close(whole(X), module(X))
    read = quiet(whole, X, optimizer=torch.optim.SGD(module.parameters(), lr=0.1))
    assert Code.NOT_IN_OPTIMIZER not in codes(read)
    assert {*whole.state_dict()} == {*module.state_dict()}


@pytest.mark.parametrize("used", [False, True])
def test_a_copy_has_the_statistics_of_its_own_weights(used: bool) -> None:
    """A copy of a module that has made a pass, whose statistics are part of a graph, too."""
    module = mlp()
    whole = ib.full_batch(module, X)
    if used:
        whole(X[:3])
    copied = copy.deepcopy(whole)
    torch.testing.assert_close(copied(X[:3]), whole(X[:3]))
    # The copy has parameters of its own.
    copied.get_parameter("0.weight").data.add_(drawn(6, 5, seed=1))
    other = copy.deepcopy(module)
    other.load_state_dict(copied.state_dict())
    torch.testing.assert_close(copied(X[:3]), other.train()(X)[:3])
    torch.testing.assert_close(whole(X[:3]), module.train()(X)[:3])


def test_a_pass_that_fails_leaves_no_trace() -> None:
    whole = ib.full_batch(mlp(), X)
    expected = whole(X[:3])
    with pytest.raises(RuntimeError):
        whole(X[:3, :4])
    with torch.no_grad():
        torch.testing.assert_close(whole(X)[:3], expected)
    torch.testing.assert_close(whole(X[:3]), expected)


def test_it_is_compared_with_its_start() -> None:
    """Which takes a copy of it."""
    start = mlp()
    module = copy.deepcopy(start)
    module.get_parameter("3.weight").data.mul_(2.0)
    for before in (start.state_dict(), ib.full_batch(start, X)):
        found = known(quiet(ib.full_batch(module, X), X, start=before).regime)
        moved = np.linalg.norm(start.get_parameter("3.weight").detach())
        assert found.distance == pytest.approx(moved / np.linalg.norm(weights_of(start)))


def test_a_constant_channel_is_normalised_to_its_shift() -> None:
    module = mlp()
    first, norm = module[0], module[1]
    assert isinstance(first, nn.Linear)
    assert isinstance(norm, nn.BatchNorm1d)
    with torch.no_grad():
        first.weight[2] = 0.0
    hidden = ib.full_batch(module[:2], X)(X)
    torch.testing.assert_close(hidden[:, 2], norm.bias[2].expand(14))
    whole = ib.full_batch(module, X)
    gradients = torch.autograd.grad(whole(X[:3]).sum(), list(whole.parameters()))
    assert all(bool(g.isfinite().all()) for g in gradients)


def test_a_loader_and_single_precision() -> None:
    module = mlp().float()
    loader = DataLoader(TensorDataset(X, torch.zeros(14)), batch_size=4, shuffle=True)
    of_loader = ib.full_batch(module, loader)
    assert of_loader(X.float()).dtype is torch.float32
    torch.testing.assert_close(of_loader(X.float()), ib.full_batch(module, X)(X.float()))


def test_what_has_no_statistics_is_refused() -> None:
    with pytest.raises(FoldError, match="no batch normalization"):
        ib.full_batch(nn.Linear(5, 2), X)
    with pytest.raises(ValueError, match="at least 2"):
        ib.full_batch(mlp(), X[:1])
