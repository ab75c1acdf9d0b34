"""The box that decoupled weight decay sets: scores by hand, bounds by CVXPY, and readings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, softplus

import implicit_bias as ib
from diagnosis.asking import descend, finding, quiet
from example_modules import known, seeded
from implicit_bias.diagnosis import Code
from implicit_bias.modules.steps import OptimizerError

RNG = np.random.default_rng(0)
X = torch.tensor(RNG.normal(size=(30, 5)))
Y = torch.tensor(RNG.integers(3, size=30))


def network() -> nn.Sequential:
    return seeded(nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)))


def gradients(module: nn.Module, x: Tensor = X, y: Tensor = Y) -> list[Tensor]:
    return list(torch.autograd.grad(cross_entropy(module(x), y), list(module.parameters())))


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_score_of_muon_beside_adamw_with_other_decays() -> None:
    module = network()
    matrices = [p for p in module.parameters() if p.ndim == 2]
    rest = [p for p in module.parameters() if p.ndim == 1]
    muon = torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW(
        [{"params": rest[:2], "weight_decay": 0.8}, {"params": rest[2:], "weight_decay": 0.0}]
    )
    found = ib.box_gap(module, X, Y, optimizer=[muon, adamw], loss=cross_entropy)
    held = dict(zip(module.parameters(), gradients(module), strict=True))
    duals = products = 0.0
    sizes = list[Tensor]()  # over their radius
    for p in matrices:
        radius = 0.2 * max(p.shape) ** 0.5 / 0.1
        duals += radius * float(torch.linalg.svdvals(held[p]).sum())
        products += float((held[p] * p.detach()).sum())
        sizes.append(torch.linalg.svdvals(p.detach()) / radius)
    for p in rest[:2]:
        duals += float(held[p].abs().sum()) / 0.8
        products += float((held[p] * p.detach()).sum())
        sizes.append(0.8 * p.detach().abs())
    assert found.score == pytest.approx((duals + products) / duals, rel=1e-10)
    assert found.gap == pytest.approx(duals + products, rel=1e-10)
    assert found.reached == pytest.approx(float(torch.cat(sizes).max()))
    assert found.at_wall == pytest.approx(float((torch.cat(sizes) >= 0.99).double().mean()))
    names = {id(p): name for name, p in module.named_parameters()}
    expected = {names[id(p)]: float(held[p].abs().sum()) for p in rest[2:]}
    assert found.free == pytest.approx(expected)
    assert all(math.isinf(found.radii[name]) for name in expected)


def cross_entropy_of(scores: cp.Expression) -> cp.Expression:
    """Mean over the samples of log sum_k exp(s_k) - s_y."""
    chosen = cp.sum(cp.multiply(np.eye(3)[Y.numpy()], scores))
    return (cp.sum(cp.log_sum_exp(scores, axis=1)) - chosen) / len(X)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_the_bound_is_below_the_optimum_over_a_product_of_balls() -> None:
    """Muon on the weights and AdamW on the biases, with decays of their own."""
    module = nn.Linear(5, 3).double()
    muon = torch.optim.Muon([module.weight], weight_decay=2.0, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([module.bias], weight_decay=10.0)
    W, b = cp.Variable((3, 5)), cp.Variable(3)
    scores = X.numpy() @ W.T + np.ones((30, 1)) @ cp.reshape(b, (1, 3), order="C")
    radius = 0.2 * 5**0.5 / 2.0
    balls = [cp.sigma_max(W) <= radius, cp.max(cp.abs(b)) <= 0.1]
    best = cp.Problem(cp.Minimize(cross_entropy_of(scores)), balls)
    best.solve(solver="CLARABEL")
    generator = torch.Generator().manual_seed(0)
    for share in (0.0, 0.9, 1.0):
        # From random weights within the balls to the optimum.
        start_W = torch.randn(3, 5, generator=generator, dtype=torch.float64)
        start_b = torch.randn(3, generator=generator, dtype=torch.float64)
        start_W *= radius / torch.linalg.matrix_norm(start_W, 2)
        start_b *= 0.1 / start_b.abs().max()
        module.weight.data.copy_(torch.lerp(start_W, torch.tensor(W.value), share))
        module.bias.data.copy_(torch.lerp(start_b, torch.tensor(b.value), share))
        found = ib.box_gap(module, X, Y, optimizer=[muon, adamw], loss=cross_entropy)
        assert found.radii == pytest.approx({"weight": radius, "bias": 0.1})
        assert found.lower_bound - 1e-8 <= best.value <= found.loss + 1e-8
        assert found.near == (share == 1.0)
    assert found.lower_bound == pytest.approx(best.value, abs=1e-5)


@pytest.mark.parametrize("kind", ["AdamW", "Muon"])
def test_eps_is_compared_with_the_gradients(kind: str) -> None:
    """Muon adds it to the norm of a matrix, AdamW to each entry."""
    module = nn.Sequential(nn.Linear(5, 7, bias=False), nn.Tanh(), nn.Linear(7, 3, bias=False))
    module.double()
    sizes = [float(g.norm()) / g.numel() ** (0.5 * (kind == "AdamW")) for g in gradients(module)]
    for eps, short in ((0.099, False), (0.101, True)):
        options = {"weight_decay": 0.5, "eps": eps * max(sizes)}
        optimizer = getattr(torch.optim, kind)(module.parameters(), **options)
        found = ib.box_gap(module, X, Y, optimizer=optimizer, loss=cross_entropy)
        assert found.eps_ratio == pytest.approx(eps)
        assert found.short_steps is short
        assert math.isnan(found.lower_bound)  # the module is not linear in its parameters


def test_the_penalised_minimum_is_stationary() -> None:
    """Ridge regression: (A + decay I) W' = B with the gradient A W' - B of the squared error."""
    module = nn.Linear(5, 3, bias=False).double()
    targets = X[:, :3] ** 2
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.3)
    before = ib.box_gap(module, X, targets, optimizer=sgd, loss=mse_loss)
    (g,) = torch.autograd.grad(mse_loss(module(X), targets), [module.weight])
    penalised = g + 0.3 * module.weight.detach()
    assert before.penalty_score == pytest.approx(float(penalised.norm() / g.norm()))
    assert not before.near
    A = 2.0 * X.T @ X / targets.numel()
    B = 2.0 * X.T @ targets / targets.numel()
    module.weight.data.copy_(torch.linalg.solve(A + 0.3 * torch.eye(5, dtype=torch.float64), B).T)
    found = ib.box_gap(module, X, targets, optimizer=sgd, loss=mse_loss)
    assert found.penalty_score < 1e-12
    assert found.near


def test_weights_outside_of_the_box_are_at_no_kkt_point() -> None:
    """There the score may be 0, as here with a gradient of 0, which says nothing."""
    module = nn.Linear(5, 3, bias=False).double()
    targets = module(X).detach()  # so that the squared error is 0
    largest = float(module.weight.detach().abs().max())
    for reached in (0.5, 2.0):
        adamw = torch.optim.AdamW(module.parameters(), weight_decay=reached / largest)
        found = ib.box_gap(module, X, targets, optimizer=adamw, loss=mse_loss)
        assert found.score == 0.0
        assert found.reached == pytest.approx(reached)
        assert found.near == (reached < 1.0)


def test_the_module_stays_as_it_is() -> None:
    """So do random numbers, which dropout draws."""
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(0.5), nn.Linear(4, 3))
    module.double().train()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1.0)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    drawn = torch.get_rng_state()
    ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(p.grad is None for p in module.parameters())
    assert torch.equal(torch.get_rng_state(), drawn)


def test_batches_are_read_once() -> None:
    """A generator has no second pass, and the bound of a linear module needs none."""
    module = nn.Linear(5, 3).double()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1.0)
    whole = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    held = 0

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal held
        for rows in (slice(0, 8), slice(8, 20), slice(20, 30)):
            held += 1
            yield X[rows], Y[rows]

    parts = ib.box_gap(module, batches(), optimizer=adamw, loss=cross_entropy)
    assert held == 3
    assert parts.score == pytest.approx(whole.score, rel=1e-12)
    assert parts.lower_bound == pytest.approx(whole.lower_bound, rel=1e-12)


def test_what_cannot_be_measured_is_refused() -> None:
    module = network()
    plain = torch.optim.AdamW(module.parameters(), weight_decay=0.0)
    decayed = torch.optim.AdamW(module.parameters())
    with pytest.raises(OptimizerError, match="no weight decay"):
        ib.box_gap(module, X, Y, optimizer=plain, loss=cross_entropy)
    with pytest.raises(ValueError, match="one number"):
        ib.box_gap(module, X, Y, optimizer=decayed, loss=lambda scores, y: scores)
    with pytest.raises(ValueError, match="no gradient"):
        ib.box_gap(module, X, Y, optimizer=decayed, loss=lambda s, y: cross_entropy(s.detach(), y))
    for loss in ("cross_entropy", nn.CrossEntropyLoss):
        with pytest.raises(ValueError, match="must be a function"):
            ib.box_gap(module, X, Y, optimizer=decayed, loss=loss)  # type: ignore[arg-type]


def test_far_from_the_walls_the_least_score_is_shown() -> None:
    module = network()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=0.1)
    found = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    least = 1.0 - found.reached
    assert 0.5 < least <= found.score
    assert f"{least:.3g}" in str(found)
    # At the walls it says nothing, and with a gradient of 0 each score is 0.
    for other in (replace(found, reached=0.99), replace(found, score=0.0, gradient_norm=0.0)):
        assert len(str(other).splitlines()) <= len(str(found).splitlines())
        assert f"{least:.3g}" not in str(other)


# --- within a diagnosis --------------------------------------------------------------------------

FEW = X[:8]


def separating(decay: float, steps: int = 40) -> tuple[nn.Module, Tensor, torch.optim.Optimizer]:
    """Build a linear module, the labels that it gives, and AdamW that trained it on these."""
    module = seeded(nn.Linear(5, 3, bias=False).double(), 1)
    labels = module(FEW).argmax(dim=1)
    adamw = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=decay)
    descend(adamw, lambda: cross_entropy(module(FEW), labels), steps)
    return module, labels, adamw


@pytest.mark.parametrize(
    ("decay", "code"), [(2.0, Code.NOT_NEAR_IN_THE_BOX), (0.1, Code.DECAY_HAS_HARDLY_ACTED)]
)
def test_a_verdict_says_which_problem_describes_the_weights(decay: float, code: Code) -> None:
    module, labels, adamw = separating(decay)
    found = quiet(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
    box = known(found.box)
    expected = ib.box_gap(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
    assert (box.score, box.decayed) == (expected.score, expected.decayed)
    in_box = code is Code.NOT_NEAR_IN_THE_BOX
    assert box.describes == (1 - math.exp(-decay * 0.4) >= 0.5) == in_box
    assert finding(found, code).value == box.decayed
    lines = found.verdict.splitlines()
    # Where decay has acted its problem comes first.
    assert finding(found, code).found == lines[0 if in_box else 1]


def test_a_verdict_says_near_at_a_kkt_point_of_the_box() -> None:
    """In a small box the gradient is nearly that at 0, so that weights of its signs are optimal."""
    module = nn.Linear(5, 3, bias=False).double()
    labels = torch.arange(len(FEW)) % 3
    # Each sample's own direction, so that the signs of the gradient separate all of them.
    inputs = FEW + 3.0 * torch.eye(5, dtype=torch.float64)[labels]
    nn.init.zeros_(module.weight)
    (g,) = gradients(module, inputs, labels)
    with torch.no_grad():
        module.weight.copy_(-1e-3 * g.sign())
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1e3)
    for rates, describes in ((None, False), ([1e-4] * 20, True)):
        found = quiet(module, inputs, labels, optimizer=adamw, loss=cross_entropy, rates=rates)
        box = known(found.box)
        assert box.score < 1e-9
        assert (box.describes is True) == describes
        assert finding(found, Code.NEAR_IN_THE_BOX).details["score"] == box.score
        # The margin problem, whose limit this is not, comes after it.
        assert found.verdict.startswith(finding(found, Code.NEAR_IN_THE_BOX).found)


def test_without_decay_or_a_loss_there_is_no_box() -> None:
    module, labels, adamw = separating(0.5)
    plain = torch.optim.AdamW(module.parameters(), weight_decay=0.0)
    assert quiet(module, FEW, labels, optimizer=plain, loss=cross_entropy).box is None
    found = quiet(module, FEW, labels, optimizer=adamw)
    assert found.box is None
    assert found.findings[1].code is Code.WEIGHT_DECAY


@pytest.mark.parametrize(
    "loss",
    [nn.BCEWithLogitsLoss(), lambda outputs, signs: softplus(-signs * outputs[:, 0]).mean()],
    ids=["0 and 1", "of a column"],
)
def test_a_loss_of_one_output_gets_the_targets_that_it_takes(loss: Any) -> None:
    module = seeded(nn.Linear(5, 1, bias=False).double(), 1)
    signs = module(FEW)[:, 0].sign().detach()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=0.5)
    box = known(quiet(module, FEW, signs, optimizer=adamw, loss=loss).box)
    expected = softplus(-signs * module(FEW)[:, 0]).mean().detach()
    assert box.loss == pytest.approx(float(expected))


def test_a_refusal_names_what_measures_the_limit_with_decay() -> None:
    module, labels, _ = separating(0.5, steps=0)
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=0.5)
    with pytest.raises(ib.SeparationError, match="box_gap"):
        quiet(module, FEW, (labels + 1) % 3, optimizer=adamw)
    other = network()
    adamw = torch.optim.AdamW(other.parameters(), weight_decay=0.5)
    with pytest.raises(ib.HomogeneityError, match="box_gap"):
        quiet(other, FEW, labels, optimizer=adamw)
