"""The verdict says "train longer" only where nothing is known to be in the way."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import nn

from diagnosis.test_traps import X, quiet, relu, single
from example_modules import known, linear, of, own_labels, scale_weights, seeded
from implicit_bias import DiagnosisWarning, Recorder, diagnose, max_margin, solve
from implicit_bias.base.wording import percent_bounds
from implicit_bias.training.losses import as_loss

LONGER = "train longer"


def of_margin(margin: float, dtype: torch.dtype = torch.float64) -> nn.Module:
    """Scale a network to a smallest margin; it is near no limit."""
    module = relu()
    smallest = float(module(X).detach().abs().min())  # its labels are its own
    scale_weights(module, (margin / smallest) ** (1 / 3))
    return module.to(dtype)


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("margin", "dtype", "word"),
    [
        (5.0, torch.float32, f"{LONGER} by `train_to_limit(module.double(), inputs, labels"),
        (200.0, torch.float32, "in float64, or by `train_to_limit(module.double(), inputs, labels"),
        (200.0, torch.float64, LONGER),
        (
            2000.0,
            torch.float64,
            "by `train_to_limit(module, inputs, labels, LimitConfig(norm='l2')",
        ),
    ],
)
def test_a_gradient_of_0_is_seen(margin: float, dtype: torch.dtype, word: str) -> None:
    module = of_margin(margin, dtype)
    labels = own_labels(module, X.to(dtype))
    with warnings.catch_warnings(action="error"):  # it changes no number, so it is no warning
        found = diagnose(module, X.to(dtype), labels)
    assert word in found.verdict
    assert (LONGER in found.verdict) == ("what helps" not in found.advice)


@pytest.mark.every(3)
@pytest.mark.parametrize("leading", [False, True])
@pytest.mark.parametrize(("margin", "dtype"), [(20.0, torch.float32), (40.0, torch.float64)])
def test_a_gradient_of_rounding_errors_is_seen(
    margin: float, dtype: torch.dtype, leading: bool
) -> None:
    """Cross-entropy computes p - 1: its gradient has another direction than the exact one."""
    module = seeded(linear(X.shape[1], 3), 1)
    labels = module(X).argmax(dim=1)
    rivals = ~nn.functional.one_hot(labels, 3).bool()

    def margins_of() -> torch.Tensor:
        outputs = module(X)
        return (outputs.gather(1, labels[:, None]) - outputs)[rivals]

    scale_weights(module, margin / float(margins_of().detach().min()))
    margins = margins_of()
    exact = torch.autograd.grad(torch.logsumexp(-margins, 0), module.weight)[0]
    module, inputs = module.to(dtype), X.to(dtype)
    loss = nn.functional.cross_entropy(module(inputs), labels)
    found = torch.autograd.grad(loss, module.weight)[0].double()
    assert nn.functional.cosine_similarity(exact.ravel(), found.ravel(), dim=0) < 0.95
    verdict = diagnose(module, inputs, labels, leading=leading).verdict
    assert "rounding errors" in verdict
    assert "train_to_limit" in verdict
    assert ("leading=True" in verdict) == leading
    assert LONGER not in verdict
    precise = as_loss("logistic")
    assert LONGER in diagnose(module, inputs, labels, loss=precise, leading=leading).verdict


@pytest.mark.slow
def test_who_minimised_the_logarithm_is_not_told_to() -> None:
    module = of_margin(2000.0)
    adam = torch.optim.Adam(module.parameters(), eps=1e-8)

    def log_loss(outputs: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
        return torch.logsumexp(-signs * outputs.squeeze(-1), 0)

    found = quiet(module, loss=log_loss, optimizer=adam)
    assert found.warnings == ()
    assert LONGER in found.verdict
    flat = quiet(module, loss=lambda outputs, signs: -torch.log1p((signs * outputs).exp().log1p()))
    assert "no exponential tail" in flat.warnings[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam])
def test_an_epsilon_above_the_gradients_is_a_warning(kind: Any) -> None:
    module = of_margin(5.0)
    large, small = (kind(module.parameters(), eps=e, weight_decay=0.0) for e in (1.0, 1e-30))
    with pytest.warns(DiagnosisWarning, match="eps of 1 is above"):
        found = diagnose(module, X, own_labels(module, X), optimizer=large)
    assert "eps" in found.verdict
    assert LONGER not in found.verdict
    by_default = quiet(of_margin(30.0), optimizer=kind)
    assert "default eps of 1e-08 is above" in by_default.verdict
    found = quiet(module, optimizer=small)
    assert found.warnings == ()
    assert LONGER in found.verdict
    assert "rate that falls, at which gradients shrink slower than beta2 forgets" in found.verdict
    # No eps helps where gradients are 0, or their squares in single precision.
    for underflowed in (of_margin(2000.0), *(of_margin(q, torch.float32) for q in (60.0, 200.0))):
        inputs = X.to(next(underflowed.parameters()).dtype)
        tiny = kind(underflowed.parameters(), eps=1e-30, weight_decay=0.0)
        labels = own_labels(underflowed, inputs)
        with pytest.warns(DiagnosisWarning):
            found = diagnose(underflowed, inputs, labels, optimizer=tiny)
        (said,) = found.warnings
        assert "train_to_limit" in said
        assert "that call" not in found.verdict
        assert "far below" not in said


def test_gradients_that_shrank_faster_than_adam_forgets_are_seen() -> None:
    module = of_margin(5.0)
    parameters, signs = list(module.parameters()), torch.tensor(own_labels(module, X))
    loss = nn.functional.soft_margin_loss(module(X)[:, 0], signs)
    slopes = torch.autograd.grad(loss, parameters)

    def stepped(*sizes: float) -> torch.optim.Optimizer:
        optimizer = torch.optim.Adam(parameters, lr=1e-12, eps=1e-30)
        for size in sizes:
            for p, slope in zip(parameters, slopes, strict=True):
                p.grad = size * slope
            optimizer.step()
        return optimizer

    # Neither a gradient that changes sign, whose average is small, nor a summed loss has shrunk.
    for sizes in ((), (1.0, -1.0) * 300, [100.0] * 50):
        assert LONGER in quiet(module, optimizer=stepped(*sizes)).verdict
    optimizer = stepped(1e3, *[1.0] * 50)
    verdict = quiet(module, optimizer=optimizer).verdict
    assert "minimise the logarithm of the loss" in verdict
    assert "beta2" in verdict
    assert LONGER not in verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "Muon"])
def test_the_size_of_the_gradients_is_that_of_the_loss(name: str) -> None:
    """An epsilon just above that of the gradient that autograd finds is seen, one below is not.

    Muon divides by the norm of a matrix, which is larger than its entries.
    """
    module = of_margin(5.0)
    signs = torch.tensor(own_labels(module, X))
    loss = nn.functional.soft_margin_loss(module(X)[:, 0], signs)
    slopes = torch.autograd.grad(loss, list(module.parameters()))
    largest = max(float(g.norm() / (g.numel() ** 0.5 if name == "Adam" else 1)) for g in slopes)
    for factor, warned in ((1.01, True), (0.99, False)):
        kind = getattr(torch.optim, name)
        optimizer = kind(module.parameters(), eps=factor * largest, weight_decay=0.0)
        found = quiet(module, optimizer=optimizer).warnings
        assert any("eps" in text for text in found) == warned


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "options",
    [
        {"loss": nn.MSELoss()},
        {"optimizer": "adam", "norm": "l2"},
        {"optimizer": torch.optim.Rprop, "norm": "l2"},
    ],
    ids=["loss", "norm", "unknown"],
)
def test_warnings_and_verdict_agree(options: dict[str, Any]) -> None:
    found = quiet(relu(), **options)
    (warning,) = found.warnings
    assert warning.endswith(found.advice.removeprefix("what helps: "))
    assert found.advice in found.verdict
    assert LONGER not in found.verdict


@pytest.mark.slow
def test_weight_decay_is_no_case_for_longer_training_and_an_unchecked_loss_is_one() -> None:
    module = relu()
    found = quiet(module, optimizer=torch.optim.SGD(module.parameters(), weight_decay=0.1))
    assert "weight_decay=0" in found.verdict
    assert LONGER not in found.verdict
    assert LONGER in quiet(module, loss=lambda outputs: outputs).verdict


@pytest.mark.slow
def test_a_gap_that_rose_is_seen() -> None:
    module = single()
    labels = own_labels(module, X)
    recorder = Recorder(module, X, labels, norms=["linf"])
    (weight,) = module.parameters()
    given = weight.detach().clone()
    assert LONGER in quiet(module, norm="linf", recorder=recorder).verdict  # nothing is recorded
    recorder.record(1)
    assert LONGER in quiet(module, norm="linf", recorder=recorder).verdict  # it is as it was
    limit = of(solve(max_margin(X.numpy(), labels, "linf")).coef)
    weight.data.copy_(next(limit.parameters()))
    recorder.record(7)
    weight.data.copy_(given)
    found = quiet(module, norm="linf", recorder=recorder)
    assert "rose while training" in found.verdict
    assert "step 7" in found.verdict
    assert LONGER not in found.verdict
    with pytest.raises(ValueError, match=r"norms=\['l2'\]"):
        diagnose(module, X, labels, norm="l2", recorder=recorder)


@pytest.mark.every(3)
@pytest.mark.parametrize("norm", ["l2", "linf", "spectral"])
def test_a_stopped_search_says_so_and_its_bounds_hold(norm: str) -> None:
    module = relu()
    free, hurried = quiet(module, norm=norm), quiet(module, norm=norm, max_seconds=1e-6)
    assert hurried.method == "stopped"
    assert "stopped by max_seconds" in hurried.verdict
    assert hurried.gap_lower > 0.1 or "perhaps far" in hurried.verdict  # as far as is known
    assert "stopped" not in free.verdict
    assert 0 <= hurried.gap_lower <= free.gap + 1e-9
    assert free.gap_lower <= hurried.gap + 1e-9
    for slow, fast in zip(free.layers, hurried.layers, strict=True):
        if fast.method == "stopped":  # before anything was known
            assert math.isnan(fast.lower)
        else:
            assert fast.lower <= slow.norm * (1 + 1e-9)
    with pytest.raises(ValueError, match="max_seconds"):
        quiet(module, max_seconds=0)


def test_a_stopped_search_of_a_linear_module_claims_no_optimum() -> None:
    free, hurried, patient = (
        known(quiet(single(), max_seconds=s).function_space) for s in (None, 1e-6, 600.0)
    )
    assert "time limit" in hurried.obstacle
    assert hurried.certificate is None
    assert not hurried.excess > 0
    assert (free.obstacle, patient.obstacle) == ("", "")
    assert patient.excess == pytest.approx(free.excess)


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ((0.863, 0.87), "between 86 and 87 %"),
        ((0.0, 0.87), "at most 87 %"),
        ((0.9999984, 1.0), "100 %"),
        ((0.31, 0.31), "31 %"),
        ((0.863, 1.0), "between 86 and 100 %"),
        ((0.0, 0.0), "0 %"),
    ],
)
def test_both_bounds_are_written(bounds: tuple[float, float], words: str) -> None:
    assert percent_bounds(*bounds) == words
