"""Bounds and alignments of a training's own gradients, against brute force."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, softplus

import implicit_bias as ib
from example_modules import drawn, known, layers, margins_by_hand, own_labels, seeded
from implicit_bias.norms import NormName
from implicit_bias.norms.tensors import PARAMETER_NORMS

N, D, K = 12, 4, 3
X = drawn(N, D)


def linear(outputs: int) -> nn.Module:
    return seeded(nn.Linear(D, outputs, bias=False).double(), 1)


def labels_of(outputs: int) -> Tensor:
    return torch.as_tensor(own_labels(seeded(nn.Linear(D, outputs, bias=False).double(), 5), X))


def loss_of(outputs: Tensor, labels: Tensor) -> Tensor:
    if outputs.shape[1] == 1:
        return softplus(-labels * outputs[:, 0]).mean()
    return cross_entropy(outputs, labels)


def maximum_margin(norm: NormName, labels: Tensor) -> float:
    """1 / ||w|| of the certified solution."""
    problem = ib.max_margin(X.numpy(), labels.numpy(), norm)
    return 1.0 / problem.norm.value(ib.solve(problem, tol=1e-9).coef)


def record(
    module: nn.Module, labels: Tensor, trace: ib.MarginTrace, rows: Any = slice(None)
) -> Tensor:
    """Record the gradients of a batch; return its outputs."""
    module.zero_grad()
    outputs: Tensor = module(X[rows].to(next(module.parameters())))
    loss_of(outputs, labels[rows]).backward()  # type: ignore[no-untyped-call]
    trace.record(outputs, labels[rows])
    return outputs.detach()


def step(module: nn.Module, labels: Tensor, trace: ib.MarginTrace, rows: Any, rate: float) -> None:
    """Take one step of normalized steepest descent in the trace's norm."""
    record(module, labels, trace, rows)
    gradients = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    move = trace.norm.maximiser(gradients)
    with torch.no_grad():
        for name, p in module.named_parameters():
            p.sub_(rate * move[name])


@pytest.mark.parametrize(("norm", "outputs"), [("l2", 1), ("spectral", K)])
def test_the_bound_is_above_the_maximum_margin_and_tends_to_it(
    norm: NormName, outputs: int
) -> None:
    labels = labels_of(outputs)
    maximum = maximum_margin(norm, labels)
    module = linear(outputs)
    trace = ib.MarginTrace(module, X, labels, norm, loss=loss_of, every=5)
    assert trace.linear
    for number in range(150):
        step(module, labels, trace, slice(None), 1.0 / math.sqrt(1.0 + number))
    frame = trace.frame()
    assert trace.upper <= 1.05 * maximum
    assert frame["margin"].max() >= 0.9 * maximum
    assert (frame["upper"] >= maximum * (1 - 1e-7)).all()
    assert (frame["margin"] <= maximum * (1 + 1e-7)).all()
    assert (frame["best_upper"] <= frame["upper"].cummin()).all()
    assert frame["best_upper"].is_monotonic_decreasing


def test_bounds_of_batches_hold_and_averages_bring_all_samples_in() -> None:
    labels = labels_of(K)
    maximum = maximum_margin("l2", labels)
    module = linear(K)
    alone = ib.MarginTrace(module, X, labels, loss=cross_entropy, average=0.0)
    averaged = ib.MarginTrace(module, X, labels, loss=cross_entropy, average=0.95)
    generator = torch.Generator().manual_seed(0)
    for number in range(100):
        rows = torch.randperm(N, generator=generator)[:3]
        step(module, labels, alone, rows, 0.0)
        step(module, labels, averaged, rows, 0.3 / math.sqrt(1.0 + number))
    for trace in (alone, averaged):
        assert (trace.frame()["upper"] >= maximum * (1 - 1e-7)).all()
    assert maximum <= averaged.upper < alone.upper


def test_numbers_are_those_by_hand() -> None:
    """Two steps of three samples each, with the sums written as loops."""
    labels = labels_of(K)
    module = linear(K)
    norm = PARAMETER_NORMS["linf"]
    trace = ib.MarginTrace(module, X, labels, "linf", average=0.5)
    total = torch.zeros(K, D, dtype=torch.float64)
    weight = 0.0
    for rows in (slice(0, 3), slice(3, 6)):
        outputs = record(module, labels, trace, rows)
        total *= 0.5
        weight *= 0.5
        margins = []
        for x, y, scores in zip(X[rows], labels[rows], outputs, strict=True):
            shares = scores.softmax(dim=0) / 3
            for k in range(K):
                if k == y:
                    continue
                # The margin f_y - f_k has the gradient x in row y, and -x in row k.
                total[y] += shares[k] * x
                total[k] -= shares[k] * x
                weight += float(shares[k])
                margins.append(float(scores[y] - scores[k]))
        row = trace.rows[-1]
        (theta,) = (p.detach() for p in module.parameters())
        assert row["upper"] == pytest.approx(float(total.abs().sum()) / weight, rel=1e-12)
        size = norm.value({"weight": theta})
        assert row["margin"] == pytest.approx(min(margins) / size, rel=1e-12)
        (g,) = (-p.grad for p in module.parameters() if p.grad is not None)
        aligned = float((theta * g).sum()) / (size * float(g.abs().sum()))
        assert row["alignment"] == pytest.approx(aligned, rel=1e-12)


def test_of_networks_the_alignment_tends_to_1_and_there_is_no_bound() -> None:
    norm: NormName = "spectral"
    module = seeded(layers(D, 6, K), 1)
    labels = torch.as_tensor(own_labels(module, X))
    trace = ib.MarginTrace(module, X, labels, norm, every=25)
    assert not trace.linear
    assert trace.degree == pytest.approx(2.0)
    for number in range(100):
        step(module, labels, trace, slice(None), 0.3 / math.sqrt(1.0 + number))
    frame = trace.frame()
    assert frame["upper"].isna().all()
    assert frame["alignment"].max() > 0.8
    assert (frame["alignment"] <= 1.0 + 1e-12).all()
    assert frame["alignment"].iloc[0] < 0.2
    # The margin over ||theta||^L.
    last = ib.MarginTrace(module, X, labels, norm)
    value = PARAMETER_NORMS[norm].value(dict(module.named_parameters()))
    margins, _ = margins_by_hand(module, X, labels)
    record(module, labels, last)
    assert last.rows[0]["margin"] == pytest.approx(margins.min() / value**2, rel=1e-12)


def test_the_norm_of_an_optimizer_is_read() -> None:
    module = linear(K)
    adam = torch.optim.Adam(module.parameters(), lr=0.1)
    assert ib.MarginTrace(module, X, labels_of(K), adam).norm.name == "linf"


def test_rounding_in_single_precision_gives_no_bound() -> None:
    """Where the margins are large the gradient of cross-entropy is rounding."""
    labels = labels_of(K)
    maximum = maximum_margin("l2", labels)
    module = seeded(nn.Linear(D, K, bias=False).double(), 5).float()
    trace = ib.MarginTrace(module, X, labels)
    for scale in (1.0, 10.0, 10.0, 0.01):
        with torch.no_grad():
            module.weight *= scale
        record(module, labels, trace)
    frame = trace.frame()
    assert frame["upper"].isna().any()
    assert frame["upper"].notna().any()
    assert (frame["upper"].dropna() >= maximum * (1 - 1e-3)).all()


def test_what_cannot_be_recorded_is_refused() -> None:
    labels = labels_of(K)
    module = linear(K)

    rising = ib.MarginTrace(module, X, labels, loss=lambda scores, y: cross_entropy(-scores, y))
    outputs = record(module, labels, ib.MarginTrace(module, X, labels))
    with pytest.raises(ValueError, match="rises"):
        rising.record(-outputs, labels)
    for p in module.parameters():
        p.grad = 2.0 * known(p.grad)
    with pytest.raises(ValueError, match="not those of this loss"):
        ib.MarginTrace(module, X, labels).record(outputs, labels)
