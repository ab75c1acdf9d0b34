"""The study of optimizers: each method is what it is said to be, and judged by its rule."""

from itertools import islice, product

import numpy as np
import pandas as pd
import pytest
import torch

from benchmarks.harness import Verdict
from benchmarks.optimizers import (
    boosting,
    descent,
    linear,
    mirror,
    rescaling,
    single_samples,
    speed,
    weight_decay,
)
from implicit_bias import MarginProblem, max_margin, solve
from implicit_bias.norms import GroupNorm, as_norm


def small() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = np.arange(12) % 3
    return rng.normal(size=(12, 4)) + 3.0 * np.eye(4)[y], y


def test_margin_is_the_smallest_difference_to_another_class() -> None:
    X, y = small()
    weights = np.random.default_rng(1).normal(size=(3, 4))
    outputs = X @ weights.T
    brute = min(
        outputs[n, y[n]] - outputs[n, k] for n, k in product(range(12), range(3)) if k != y[n]
    )
    assert descent.margin(X, y, weights) == pytest.approx(brute, rel=1e-12)


@pytest.mark.parametrize("place", range(len(descent.OPTIMIZERS)))
def test_each_optimizer_descends_towards_its_own_norm(place: int) -> None:
    """From zero every step lowers the loss at first; the steepest ones have length 1."""
    optimizer = descent.OPTIMIZERS[place]
    gradient = np.random.default_rng(2).normal(size=(3, 4))
    step = optimizer.start()(gradient)
    assert (step * gradient).sum() < 0
    if optimizer.name != "gradient descent":
        assert as_norm(optimizer.norm).value(step) == pytest.approx(1.0, rel=1e-6)


def test_slopes_are_those_of_autograd_and_outlast_rounding() -> None:
    y = np.array([0, 2])
    for scale in (1.0, 100.0):
        outputs = scale * np.array([[2.0, 1.0, -1.0], [0.5, 0.0, 3.0]])
        found = descent.slopes(outputs, y)
        assert (found[[0, 1], y] < 0).all()
        np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-13 * np.abs(found).max())
    tensor = torch.tensor(outputs / scale, requires_grad=True)
    loss = torch.nn.functional.cross_entropy(tensor, torch.tensor(y), reduction="sum")
    torch.autograd.backward(loss)
    assert tensor.grad is not None
    np.testing.assert_allclose(descent.slopes(outputs / scale, y), tensor.grad, rtol=1e-12)


def test_adam_is_that_of_torch() -> None:
    X, y = small()
    ours = next(each for each in descent.OPTIMIZERS if each.name == "Adam")
    steps = np.arange(1, 21)
    weights = [found for _, found in descent.iterates(X, y, ours, steps)][-1]
    theirs = torch.zeros(3, 4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([theirs], ours.step_size)
    for t in steps:
        optimizer.param_groups[0]["lr"] = ours.step_size / t**0.5
        optimizer.zero_grad()
        outputs = torch.tensor(X) @ theirs.T
        torch.autograd.backward(torch.nn.functional.cross_entropy(outputs, torch.tensor(y)))
        optimizer.step()
    np.testing.assert_allclose(weights, theirs.detach().numpy(), rtol=1e-9)


def table(shares: dict[str, float], elsewhere: float) -> pd.DataFrame:
    """Return runs of two optimizers whose share grows to what is given, in their own norms."""
    rows = [
        {"data": "set", "steps": 100, "optimizer": name, "step": step, "norm": norm}
        | {"share": growth * (share if norm == linear.BY_NAME[name].norm else elsewhere)}
        for name, share in shares.items()
        for norm in ("l2", "linf")
        for step, growth in ((5, 0.5), (100, 1.0))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("share", "elsewhere", "expected"),
    [
        (0.995, 0.5, Verdict.STANDS),
        (0.9, 0.5, Verdict.IN_PART),
        (0.4, 0.5, Verdict.FALLS),
        (-0.2, 0.5, Verdict.OPEN),
    ],
)
def test_a_claim_is_judged_by_its_rule(share: float, elsewhere: float, expected: Verdict) -> None:
    runs = linear.judged(table({"normalised GD": share, "sign descent": share}, elsewhere))
    assert {linear.outcome(runs) for _, runs in runs.groupby("optimizer")} == {expected}


def test_every_stump_is_a_column_once() -> None:
    X = np.array([[0.0, 5.0], [1.0, 5.0], [1.0, 7.0]])
    columns = {tuple(column) for column in boosting.stumps(X).T}
    assert columns == {(-1, 1, 1), (-1, -1, 1), (1, 1, 1)}


def test_mirror_map_and_its_inverse() -> None:
    w = np.array([-2.0, 0.0, 3.0])
    for p in (1.5, 2.0, 3.0):
        np.testing.assert_allclose(mirror.mirrored(np.sign(w) * np.abs(w) ** (p - 1), p), w)


def test_minimum_in_the_box_is_a_minimum() -> None:
    """No point of a grid over the box has a smaller loss."""
    X, y = torch.tensor([[1.0], [2.0], [-1.0]]).double(), torch.tensor([0, 1, 1])
    least = weight_decay.minimum_in_box(X, y, 0.5)
    grid = torch.linspace(-0.5, 0.5, 21).double()
    losses = [
        torch.nn.functional.cross_entropy(X @ torch.stack([a, b])[:, None].T, y).item()
        for a, b in product(grid, grid)
    ]
    assert least <= min(losses) + 1e-12
    assert least == pytest.approx(min(losses), abs=1e-3)


def test_momentum_of_the_dual_is_faster_than_plain_steps() -> None:
    X, y = small()
    labels = np.where(y == 0, 1.0, -1.0)
    Z = labels[:, None] * X / np.linalg.norm(X, axis=1).max()
    optimum = solve(max_margin(Z, np.ones(len(Z)) * 1.0, "l2")).certificate.lower
    excess = {}
    for name in ("normalised GD", "momentum"):
        *_, w = islice(speed.METHODS[name](Z), 1000)
        excess[name] = np.linalg.norm(w) / (Z @ w).min() / optimum - 1
    assert 0 <= excess["momentum"] < excess["normalised GD"] / 10


def test_single_samples_come_in_cyclic_order() -> None:
    """A first pass of Signum by hand: each sample's own slope, one after the other."""
    signed = np.array([[1.0, -2.0], [3.0, 0.5], [-1.0, 4.0]])
    sizes = single_samples.Sizes(passes=1, step_size=0.2, momentum=0.9)
    ((_, found),) = single_samples.iterates(signed, "Signum, one sample", sizes)
    weights, mean = np.zeros(2), np.zeros(2)
    for t, z in enumerate(signed, start=1):
        mean = 0.9 * mean - 0.1 * z / (1 + np.exp(z @ weights))
        weights = weights - 0.2 / t**0.5 * np.sign(mean)
    np.testing.assert_allclose(found, weights, rtol=1e-12)


@pytest.mark.parametrize(
    ("claim", "shares", "holds"),
    [
        ("l2", {"l2": 0.98, "linf": 0.5, "fixed point": 0.98}, True),
        ("l2", {"l2": 0.9, "linf": 0.5, "fixed point": 0.9}, False),
        ("linf", {"l2": 0.99, "linf": 0.98, "fixed point": 0.5}, False),
        ("fixed point", {"l2": 0.975, "linf": 0.5, "fixed point": 0.992}, True),
        ("fixed point", {"l2": 0.975, "linf": 0.5, "fixed point": 0.98}, False),
        ("fixed point", {"l2": 0.995, "linf": 0.5, "fixed point": 0.992}, False),
    ],
)
def test_a_run_of_single_samples_is_judged_by_its_rule(
    claim: str, shares: dict[str, float], holds: bool
) -> None:
    (data, optimizer) = next(key for key, norm in single_samples.CLAIMS.items() if norm == claim)
    rows = [
        {"data": d, "optimizer": o, "passes": 1, "norm": norm, "share": share}
        for d, o in single_samples.CLAIMS
        for norm, share in shares.items()
    ]
    table = single_samples.at_end(pd.DataFrame(rows)).set_index(["data", "optimizer"])
    assert table["holds"][data, optimizer] == holds


def test_the_norm_of_single_samples_is_a_fixed_point() -> None:
    """Its multipliers give its metric; equal sizes of features give l2; a metric poses it, too."""
    signed = np.random.default_rng(0).normal(size=(5, 9))
    shares = single_samples.fixed_point(signed)
    start = np.array([0.6, 0.1, 0.1, 0.1, 0.1])
    np.testing.assert_allclose(single_samples.fixed_point(signed, start), shares, atol=1e-7)
    metric = np.array([sum((shares[n] * signed[n, j]) ** 2 for n in range(5)) for j in range(9)])
    metric **= 0.5
    norm = GroupNorm(np.zeros(9, int), {0: np.diag(1 / metric)})
    posed = solve(MarginProblem(np.ones((5, 1)), np.ones(5), signed, norm=norm), tol=1e-8)
    np.testing.assert_allclose(posed.alpha / posed.alpha.sum(), shares, atol=1e-5)
    along = (shares @ signed) / metric
    expected = along / (signed @ along).min()  # of smallest margin 1
    np.testing.assert_allclose(posed.coef[:, 0], expected, rtol=1e-4, atol=1e-6)
    equal = single_samples.metric_of(shares, np.sign(signed))
    np.testing.assert_allclose(equal, equal[0])


def test_a_pass_of_adam_goes_along_its_metric() -> None:
    """With slopes that stay, and a long memory of squares, from the definition of Adam."""
    signed, shares = np.random.default_rng(1).normal(size=(3, 6)), np.array([0.5, 0.3, 0.2])
    adam, steps = descent.Adam(0.0, (0.9, 1 - 1e-7)), np.zeros((400, 6))
    for step in steps:
        for share, row in zip(shares, signed, strict=True):
            step += adam(-share * row)
    direction = (shares @ signed) / single_samples.metric_of(shares, signed)
    np.testing.assert_allclose(steps[-1], 3**0.5 * direction, rtol=2e-2, atol=2e-2)


def test_rescaling_keeps_to_its_balls() -> None:
    """The radius grows at its steps and at no other; between them the length is at most that."""
    X, y = small()
    labels = np.where(y == 0, 1.0, -1.0)
    Z = labels[:, None] * X / np.linalg.norm(X, axis=1).max()
    sizes = np.array([np.linalg.norm(w) for w in islice(rescaling.progressive(Z, 1.5, 10), 59)])
    radius = 1.5 * sizes[8]  # set before step 10
    for start in range(9, 59, 10):
        assert (sizes[start : start + 10] <= radius * (1 + 1e-12)).all()
        assert sizes[start : start + 10].max() == pytest.approx(radius)
        radius *= 1.5
