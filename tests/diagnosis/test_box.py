"""The box that decoupled weight decay sets: scores by hand, bounds by CVXPY, and readings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss, softplus
from torch.utils.data import DataLoader, TensorDataset

import implicit_bias as ib
from diagnosis.asking import finding, quiet
from example_modules import known, seeded
from implicit_bias.diagnosis import Code
from implicit_bias.modules.optimizers import OptimizerError
from implicit_bias.modules.steps import KINDS, REGISTERED, register, steps_of

RNG = np.random.default_rng(0)
X = torch.tensor(RNG.normal(size=(30, 5)))
Y = torch.tensor(RNG.integers(3, size=30))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.LayerNorm(7), nn.Linear(7, 3)).double()


def gradients(module: nn.Module, x: Tensor = X, y: Tensor = Y) -> list[Tensor]:
    return list(torch.autograd.grad(cross_entropy(module(x), y), list(module.parameters())))


class Lion(torch.optim.Optimizer):
    """Of Chen et al. (2023), in as few lines."""

    def __init__(self, params: Any, lr: float, decay: float) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Move by the sign of a mixed momentum, after the decay."""
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("m", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * (0.9 * m + 0.1 * p.grad).sign())
                m.mul_(0.99).add_(p.grad, alpha=0.01)


@pytest.mark.parametrize("lion", [False, True])
def test_scores_of_sign_like_optimizers_are_those_by_hand(lion: bool) -> None:
    """Xie and Li's score in a line."""
    module = network()
    decay = 0.7
    optimizer: torch.optim.Optimizer = Lion(module.parameters(), 1e-2, decay)
    if not lion:
        optimizer = torch.optim.AdamW(module.parameters(), weight_decay=decay)
    found = ib.box_gap(module, X, Y, optimizer=optimizer, loss=cross_entropy)
    g = torch.cat([one.reshape(-1) for one in gradients(module)])
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    by_hand = (g.abs().sum() + decay * g @ theta) / g.abs().sum()
    assert found.score == pytest.approx(float(by_hand), rel=1e-10)
    assert found.reached == pytest.approx(decay * float(theta.abs().max()), rel=1e-12)
    wall = float((theta.abs() >= 0.99 / decay).double().mean())
    assert found.at_wall == pytest.approx(wall)
    assert math.isnan(found.lower_bound)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
@pytest.mark.parametrize("adjust", ["original", "match_rms_adamw"])
def test_score_of_muon_beside_adamw_with_other_decays(adjust: str) -> None:
    module = network()
    matrices = [p for p in module.parameters() if p.ndim == 2]
    rest = [p for p in module.parameters() if p.ndim == 1]
    muon = torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn=adjust)
    adamw = torch.optim.AdamW(
        [{"params": rest[:2], "weight_decay": 0.5}, {"params": rest[2:], "weight_decay": 0.0}]
    )
    found = ib.box_gap(module, X, Y, optimizer=[muon, adamw], loss=cross_entropy)
    held = dict(zip(module.parameters(), gradients(module), strict=True))
    duals = gap = 0.0
    for p in matrices:
        rows, columns = p.shape
        scale = max(1.0, rows / columns) ** 0.5
        if adjust == "match_rms_adamw":
            scale = 0.2 * max(rows, columns) ** 0.5
        dual = scale / 0.1 * float(torch.linalg.svdvals(held[p]).sum())
        duals += dual
        gap += dual + float((held[p] * p.detach()).sum())
    for p in rest[:2]:
        dual = float(held[p].abs().sum()) / 0.5
        duals += dual
        gap += dual + float((held[p] * p.detach()).sum())
    assert found.score == pytest.approx(gap / duals, rel=1e-10)
    assert found.gap == pytest.approx(gap, rel=1e-10)
    names = {id(p): name for name, p in module.named_parameters()}
    expected = {names[id(p)]: float(held[p].abs().sum()) for p in rest[2:]}
    assert found.free == pytest.approx(expected)
    assert all(math.isinf(found.radii[name]) for name in expected)


@pytest.mark.parametrize("loss", [cross_entropy, mse_loss])
@pytest.mark.parametrize("spectral", [False, True])
def test_of_linear_modules_the_loss_is_bounded(loss: Any, spectral: bool) -> None:
    if spectral and not hasattr(torch.optim, "Muon"):
        pytest.skip("torch has no Muon")
    module = nn.Linear(5, 3, bias=False).double()
    labels = Y if loss is cross_entropy else X[:, :3]
    make: Any = torch.optim.Muon if spectral else torch.optim.AdamW
    optimizer = make(module.parameters(), weight_decay=8.0)
    W = cp.Variable((3, 5))
    scores = X.numpy() @ W.T
    if loss is cross_entropy:
        chosen = cp.sum(cp.multiply(np.eye(3)[Y.numpy()], scores))
        value = (cp.sum(cp.log_sum_exp(scores, axis=1)) - chosen) / 30
    else:
        value = cp.sum_squares(scores - labels.numpy()) / 90
    norm = cp.sigma_max(W) if spectral else cp.max(cp.abs(W))
    best = cp.Problem(cp.Minimize(value), [norm <= 0.125])
    best.solve(solver="CLARABEL")
    found = ib.box_gap(module, X, labels, optimizer=optimizer, loss=loss)
    assert found.lower_bound < best.value < found.loss
    assert not found.near
    module.weight.data.copy_(torch.tensor(W.value))
    there = ib.box_gap(module, X, labels, optimizer=optimizer, loss=loss)
    assert there.near
    assert abs(there.score) < 1e-4
    assert there.lower_bound == pytest.approx(best.value, abs=1e-5)
    assert there.loss == pytest.approx(best.value, abs=1e-5)


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has no Muon")
def test_the_bound_is_below_the_optimum_over_a_product_of_balls() -> None:
    """Muon on the weights and AdamW on the biases, with decays of their own."""
    module = nn.Linear(5, 3).double()
    muon = torch.optim.Muon([module.weight], weight_decay=2.0, adjust_lr_fn="match_rms_adamw")
    adamw = torch.optim.AdamW([module.bias], weight_decay=10.0)
    W, b = cp.Variable((3, 5)), cp.Variable(3)
    scores = X.numpy() @ W.T + np.ones((30, 1)) @ cp.reshape(b, (1, 3), order="C")
    chosen = cp.sum(cp.multiply(np.eye(3)[Y.numpy()], scores))
    value = (cp.sum(cp.log_sum_exp(scores, axis=1)) - chosen) / 30
    radius = 0.2 * 5**0.5 / 2.0
    best = cp.Problem(cp.Minimize(value), [cp.sigma_max(W) <= radius, cp.max(cp.abs(b)) <= 0.1])
    best.solve(solver="CLARABEL")
    generator = torch.Generator().manual_seed(0)
    for share in (0.0, 0.5, 0.9, 1.0):
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
    assert found.lower_bound == pytest.approx(best.value, abs=1e-5)
    assert found.near


@pytest.mark.parametrize(
    "wrong", [torch.arange(30.0) % 2, (torch.arange(30) % 2).reshape(-1, 1)], ids=["shape", "dtype"]
)
def test_labels_that_the_loss_does_not_take_are_named(wrong: Tensor) -> None:
    module = nn.Linear(5, 1)
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1.0)
    loss = nn.BCEWithLogitsLoss()
    with pytest.raises(ValueError, match=str(wrong.dtype)) as caught:
        ib.box_gap(module, X, wrong, optimizer=adamw, loss=loss)
    assert str(tuple(wrong.shape)) in str(caught.value)
    found = ib.box_gap(module, X, wrong.reshape(-1, 1).float(), optimizer=adamw, loss=loss)
    assert found.loss > 0


def test_weights_outside_of_the_box_are_at_no_kkt_point() -> None:
    """There the score falls below 0, which says nothing."""
    module = nn.Linear(5, 3, bias=False).double()
    module.weight.data.zero_()
    (g,) = gradients(module)
    module.weight.data.copy_(-1.2e-3 * g.sign())
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1e3)
    found = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    assert found.score < 0.05
    assert found.reached == pytest.approx(1.2)
    assert not found.near
    assert "outside" in str(found)


def test_with_a_gradient_of_0_all_weights_in_the_box_are_stationary() -> None:
    """Not those outside, and not with a penalty, which has a gradient of its own."""
    module = nn.Linear(5, 3, bias=False).double()
    labels = module(X).detach()  # so that the squared error is 0

    def measured(kind: Any, decay: float) -> ib.BoxLimit:
        optimizer = kind(module.parameters(), weight_decay=decay)
        return ib.box_gap(module, X, labels, optimizer=optimizer, loss=mse_loss)

    largest = float(module.weight.detach().abs().max())
    inside = measured(torch.optim.AdamW, 0.5 / largest)
    assert inside.gradient_norm == inside.loss == inside.gap == inside.score == 0.0
    assert inside.near
    assert not inside.short_steps  # a gradient of 0 has no step
    assert "gradient of the loss is 0" in str(inside)
    assert not measured(torch.optim.AdamW, 2.0 / largest).near
    penalised = measured(torch.optim.SGD, 0.5)
    assert penalised.penalty_score == math.inf
    assert not penalised.near
    module.weight.data.zero_()
    labels = module(X).detach()
    at_0 = measured(torch.optim.SGD, 0.5)
    assert at_0.penalty_score == 0.0
    assert at_0.near


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
        assert ("eps" in str(found)) is short
    lion = Lion(module.parameters(), 1e-2, 0.5)
    without = ib.box_gap(module, X, Y, optimizer=lion, loss=cross_entropy)
    assert math.isnan(without.eps_ratio)
    assert not without.short_steps


def test_a_tensor_without_a_gradient_has_no_step_to_be_short() -> None:
    module = nn.Linear(5, 3).double()
    unused = nn.Parameter(torch.ones(2, dtype=torch.float64))
    module.register_parameter("unused", unused)
    adamw = torch.optim.AdamW([unused], weight_decay=0.5)
    lion = Lion([module.weight, module.bias], 1e-2, 0.5)
    found = ib.box_gap(module, X, Y, optimizer=[adamw, lion], loss=cross_entropy)
    assert found.gradient_norm > 0.0
    assert math.isnan(found.eps_ratio)
    assert not found.short_steps


@pytest.mark.parametrize("eps", [None, (1e-30, 1e-3)])
def test_an_optimizer_of_ones_own_may_have_no_number_as_eps(
    eps: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("implicit_bias.modules.steps.KINDS", dict(KINDS))
    monkeypatch.setattr("implicit_bias.modules.steps.REGISTERED", dict(REGISTERED))

    class Factored(torch.optim.SGD):
        pass

    register(Factored, "linf")
    module = nn.Linear(5, 3, bias=False).double()
    labels = module(X).argmax(dim=1)
    optimizer = Factored(module.parameters(), lr=0.1, weight_decay=0.5)
    optimizer.param_groups[0]["eps"] = eps
    found = quiet(module, X, labels, optimizer=optimizer, loss=cross_entropy, max_seconds=2.0)
    assert math.isnan(known(found.box).eps_ratio)


def test_an_eps_above_the_gradients_keeps_weights_from_the_walls() -> None:
    """In the box the score is at least 1 - reached, and decay has acted in both trainings."""
    x = X[:, :3]
    labels = (x[:, 0] > 0).long()
    found = {}
    for eps in (1e-1, 1e-12):
        module = seeded(nn.Linear(3, 2, bias=False).double(), 1)
        settings: dict[str, Any] = {"lr": 0.01, "weight_decay": 1.0, "betas": (0.9, 0.95)}
        adamw = torch.optim.AdamW(module.parameters(), eps=eps, **settings)
        for _ in range(1000):
            adamw.zero_grad()
            cross_entropy(module(x), labels).backward()  # type: ignore[no-untyped-call]
            adamw.step()
        found[eps] = ib.box_gap(module, x, labels, optimizer=adamw, loss=cross_entropy)
        assert found[eps].score >= 1.0 - found[eps].reached
        assert known(found[eps].describes)
    large, small = found.values()
    assert large.short_steps
    assert not small.short_steps
    assert large.reached < 0.8 < 0.99 < small.reached
    assert large.score > 0.2 > small.score


def test_coupled_decay_is_a_penalty() -> None:
    module = network()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.3)
    found = ib.box_gap(module, X, Y, optimizer=sgd, loss=cross_entropy)
    g = torch.cat([one.reshape(-1) for one in gradients(module)])
    theta = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    assert found.penalty_score == pytest.approx(float((g + 0.3 * theta).norm() / g.norm()))
    assert math.isnan(found.score)
    assert math.isnan(found.at_wall)
    adam = torch.optim.Adam(module.parameters(), weight_decay=0.3)
    same = ib.box_gap(module, X, Y, optimizer=adam, loss=cross_entropy)
    assert same.penalty_score == found.penalty_score


def test_the_penalised_minimum_is_stationary() -> None:
    module = nn.Linear(5, 3, bias=False).double()
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.3)
    assert not ib.box_gap(module, X, Y, optimizer=sgd, loss=cross_entropy).near
    W = cp.Variable((3, 5))
    scores = X.numpy() @ W.T
    chosen = cp.sum(cp.multiply(np.eye(3)[Y.numpy()], scores))
    value = (cp.sum(cp.log_sum_exp(scores, axis=1)) - chosen) / 30
    cp.Problem(cp.Minimize(value + 0.15 * cp.sum_squares(W))).solve(solver="CLARABEL")
    module.weight.data.copy_(torch.tensor(W.value))
    found = ib.box_gap(module, X, Y, optimizer=sgd, loss=cross_entropy)
    assert found.penalty_score < 1e-4
    assert found.near


def test_a_loader_is_its_samples_and_the_module_stays() -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double().eval()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1.0)
    whole = ib.box_gap(module, X.numpy(), Y.numpy(), optimizer=adamw, loss=cross_entropy)
    loader = DataLoader(TensorDataset(X, Y), batch_size=8)
    parts = ib.box_gap(module, loader, optimizer=adamw, loss=cross_entropy)
    assert parts.score == pytest.approx(whole.score, rel=1e-12)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-12)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    ib.box_gap(module.train(), X, Y, optimizer=adamw, loss=cross_entropy)
    for name, value in module.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(p.grad is None for p in module.parameters())


def test_batches_are_read_once() -> None:
    """A generator has no second pass, and the bound of a linear module needs none."""
    module = nn.Linear(5, 3).double()
    adamw = torch.optim.AdamW(module.parameters(), weight_decay=1.0)
    whole = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    held = 0

    def batches() -> Iterator[tuple[Tensor, Tensor]]:
        nonlocal held
        for start in range(0, len(X), 10):
            held += 1
            yield X[start : start + 10], Y[start : start + 10]

    parts = ib.box_gap(module, batches(), optimizer=adamw, loss=cross_entropy)
    assert held == 3
    assert parts.score == pytest.approx(whole.score, rel=1e-12)
    assert parts.lower_bound == pytest.approx(whole.lower_bound, rel=1e-12)


def test_how_far_decay_has_acted() -> None:
    module = nn.Linear(5, 3).double()
    adamw = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=0.5)
    fresh = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    assert math.isnan(fresh.decayed)  # the state says nothing yet
    for _ in range(40):
        adamw.zero_grad()
        cross_entropy(module(X), Y).backward()  # type: ignore[no-untyped-call]
        adamw.step()
    found = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    assert found.decayed == pytest.approx(1 - math.exp(-0.5 * 40 * 0.01))
    rates = [0.02] * 40
    told = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy, rates=rates)
    assert told.decayed == pytest.approx(1 - math.exp(-0.5 * 0.8))
    torch.optim.lr_scheduler.StepLR(adamw, 10)
    unknown = ib.box_gap(module, X, Y, optimizer=adamw, loss=cross_entropy)
    assert math.isnan(unknown.decayed)


class Wrapped:
    """As accelerate's and Lightning's."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.param_groups = optimizer.param_groups


class Own(torch.optim.AdamW):
    """A plain subclass."""


def test_subclasses_and_wrappers_are_read() -> None:
    module = network()
    for optimizer in (Own(module.parameters()), Wrapped(torch.optim.AdamW(module.parameters()))):
        steps = steps_of(optimizer, module)
        assert {(step.norm, step.decay, step.decoupled) for step in steps} == {("linf", 0.01, True)}
    decoupled = torch.optim.NAdam(
        module.parameters(), weight_decay=0.2, decoupled_weight_decay=True
    )
    assert all(step.decoupled for step in steps_of(decoupled, module))


def test_an_optimizer_of_ones_own_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("implicit_bias.modules.steps.KINDS", dict(KINDS))
    module = nn.Linear(5, 3).double()

    class Mine(torch.optim.SGD):
        """Which is no SGD."""

    register(Mine, "linf", lambda group, shape: 2.0)
    mine = Mine(module.parameters(), lr=0.1, weight_decay=0.5)
    found = ib.box_gap(module, X, Y, optimizer=mine, loss=cross_entropy)
    assert set(found.radii.values()) == {4.0}


def test_what_cannot_be_measured_is_refused() -> None:
    module = network()
    plain = torch.optim.AdamW(module.parameters(), weight_decay=0.0)
    decayed = torch.optim.AdamW(module.parameters())
    other = torch.optim.AdamW(network().parameters())

    class Strange(torch.optim.Optimizer):
        def __init__(self) -> None:
            super().__init__(module.parameters(), {"lr": 1.0})

    for optimizer, error, word in (
        (plain, OptimizerError, "no weight decay"),
        (other, OptimizerError, "none of the module"),
        ([decayed, decayed], OptimizerError, "two optimizers"),
        (Strange(), OptimizerError, "register"),
        ("adamw", TypeError, "optimizer"),
    ):
        with pytest.raises(error, match=word):
            ib.box_gap(module, X, Y, optimizer=optimizer, loss=cross_entropy)
    for loss, word in (
        (lambda scores, y: scores, "one number"),
        (lambda scores, y: scores.sum() * math.inf, "not finite"),
    ):
        with pytest.raises(ValueError, match=word):
            ib.box_gap(module, X, Y, optimizer=decayed, loss=loss)
    with pytest.raises(ValueError, match="labels"):
        ib.box_gap(module, X, optimizer=decayed, loss=cross_entropy)


# --- within a diagnosis --------------------------------------------------------------------------

FEW = X[:8]


def separating(
    decay: float, steps: int = 40, betas: tuple[float, float] = (0.9, 0.999)
) -> tuple[nn.Module, Tensor, torch.optim.Optimizer]:
    """Build a linear module, the labels that it gives, and AdamW that trained it on these."""
    module = seeded(nn.Linear(5, 3, bias=False).double(), 1)
    labels = module(FEW).argmax(dim=1)
    adamw = torch.optim.AdamW(module.parameters(), lr=0.01, weight_decay=decay, betas=betas)
    for _ in range(steps):
        adamw.zero_grad()
        cross_entropy(module(FEW), labels).backward()  # type: ignore[no-untyped-call]
        adamw.step()
    return module, labels, adamw


@pytest.mark.parametrize(
    ("decay", "code", "word"),
    [
        (2.0, Code.NOT_NEAR_IN_THE_BOX, "entries up to 0.5"),
        (0.1, Code.DECAY_HAS_HARDLY_ACTED, "margin problem describes the weights"),
    ],
)
def test_a_verdict_says_which_problem_describes_the_weights(
    decay: float, code: Code, word: str
) -> None:
    module, labels, adamw = separating(decay)
    found = quiet(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
    box = known(found.box)
    expected = ib.box_gap(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
    assert (box.score, box.decayed) == (expected.score, expected.decayed)
    in_box = code is Code.NOT_NEAR_IN_THE_BOX
    assert box.describes == (1 - math.exp(-decay * 0.4) >= 0.5) == in_box
    assert finding(found, code).value == box.decayed
    lines = found.verdict.splitlines()
    assert len(lines) == 3
    # Where decay has acted its problem comes first.
    line = lines[0] if in_box else lines[1]
    assert word in line
    assert any(warning.startswith(line) for warning in found.warnings)


def test_a_verdict_says_near_at_a_kkt_point_of_the_box() -> None:
    module, labels, adamw = separating(0.5, steps=1000, betas=(0.9, 0.95))
    for scheduled in (False, True):
        if scheduled:
            torch.optim.lr_scheduler.StepLR(adamw, 10)
        found = quiet(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
        box = known(found.box)
        assert box.score < 0.05
        assert (box.describes is None) == scheduled
        assert finding(found, Code.NEAR_IN_THE_BOX).details["score"] == box.score
        assert found.verdict.startswith("Near")
        # The margin problem, whose limit this is not, comes after it.
        assert found.verdict.splitlines()[1].startswith("Not near")


def test_how_far_decay_has_acted_may_be_unknown() -> None:
    module, labels, adamw = separating(2.0)
    torch.optim.lr_scheduler.StepLR(adamw, 10)
    found = quiet(module, FEW, labels, optimizer=adamw, loss=cross_entropy)
    assert known(found.box).describes is None
    assert finding(found, Code.DECAY_IS_UNKNOWN).value == 2.0


def test_one_tensor_of_unknown_decay_leaves_it_unknown() -> None:
    """Decay may have acted on it least, wherever it is among the others."""
    for first in (0, 1):
        module = nn.Linear(5, 3).double()
        parts = [torch.optim.AdamW([p], weight_decay=0.5) for p in module.parameters()]
        cross_entropy(module(X), Y).backward()  # type: ignore[no-untyped-call]
        for part in parts:
            part.step()
        torch.optim.lr_scheduler.StepLR(parts[first], 10)
        found = ib.box_gap(module, X, Y, optimizer=parts, loss=cross_entropy)
        assert math.isnan(found.decayed)


def test_coupled_decay_is_a_penalty_in_a_diagnosis_too() -> None:
    module, labels, _ = separating(0.0)
    sgd = torch.optim.SGD(module.parameters(), lr=0.1, weight_decay=0.3)
    found = quiet(module, FEW, labels, optimizer=sgd, loss=nn.CrossEntropyLoss())
    expected = ib.box_gap(module, FEW, labels, optimizer=sgd, loss=cross_entropy)
    assert known(found.box).penalty_score == expected.penalty_score


def test_without_decay_or_a_loss_there_is_no_box() -> None:
    module, labels, adamw = separating(0.5)
    plain = torch.optim.AdamW(module.parameters(), weight_decay=0.0)
    for optimizer, loss in (
        (plain, cross_entropy),
        (torch.optim.AdamW, cross_entropy),
        (None, cross_entropy),
        (adamw, None),
        (adamw, "cross_entropy"),
        (adamw, lambda margins: margins),
        (adamw, nn.CrossEntropyLoss(reduction="none")),
    ):
        assert quiet(module, FEW, labels, optimizer=optimizer, loss=loss).box is None
    assert quiet(module, FEW, labels, optimizer=adamw).findings[1].code is Code.WEIGHT_DECAY


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
    assert quiet(module, FEW, signs, optimizer=adamw, loss=mse_loss).box is None


def test_a_refusal_names_what_measures_the_limit_with_decay() -> None:
    module, labels, _ = separating(0.5)
    wrong = (labels + 1) % 3
    whole = network()
    for refused, targets in ((module, wrong), (whole, labels)):
        decayed = torch.optim.AdamW(refused.parameters(), weight_decay=0.5)
        plain = torch.optim.AdamW(refused.parameters(), weight_decay=0.0)
        with pytest.raises((ib.SeparationError, ib.HomogeneityError), match="box_gap"):
            quiet(refused, FEW, targets, optimizer=decayed)
        for optimizer in (plain, None):
            with pytest.raises((ib.SeparationError, ib.HomogeneityError)) as caught:
                quiet(refused, FEW, targets, optimizer=optimizer)
            assert "box_gap" not in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(("decay", "near"), [(2.0, True), (0.05, False)])
def test_digits_end_in_the_box_where_decay_has_acted(decay: float, near: bool) -> None:
    data = load_digits()
    x = torch.tensor(data.data / 16.0, dtype=torch.float32)
    y = torch.tensor(data.target)
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 10))
    # With betas that forget within the time of the decay: steps are no longer than the rate.
    adamw = torch.optim.AdamW(module.parameters(), lr=1e-3, weight_decay=decay, betas=(0.9, 0.95))
    steps = 4000 if near else 2000
    schedule = torch.optim.lr_scheduler.LambdaLR(adamw, lambda t: 1.0 if t < 0.8 * steps else 0.1)
    rates = []
    for _ in range(steps):
        rates.append(float(schedule.get_last_lr()[0]))
        adamw.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        adamw.step()
        schedule.step()
    found = ib.box_gap(module, x, y, optimizer=adamw, loss=cross_entropy, rates=rates)
    assert found.near is near
    assert ("not near" in str(found)) is not near
    g = torch.cat([one.double().reshape(-1) for one in gradients(module, x, y)])
    theta = torch.cat([p.detach().double().reshape(-1) for p in module.parameters()])
    by_hand = (g.abs().sum() + decay * g @ theta) / g.abs().sum()
    # The gradients are in single precision.
    assert found.score == pytest.approx(float(by_hand), abs=1e-6)
    if near:
        assert found.score < 0.05
        assert 0.9 < found.reached < 1.05
        assert found.decayed > 0.9
    else:
        assert found.score > 0.5
        assert found.decayed < 0.1
