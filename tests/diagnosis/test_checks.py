"""What is wrong with a module is named: a finding where it can be mended, else an error."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from diagnosis.asking import D, X, codes, finding, quiet, relu, single
from example_modules import (
    Computed,
    frozen,
    layers,
    linear,
    own_labels,
    scale_weights,
    seeded,
)
from implicit_bias import DiagnosisWarning, diagnose
from implicit_bias.diagnosis import Code
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.subject import SeparationError

ONES = np.ones(12)


def built(function: Callable[..., Any], **parts: nn.Module | Tensor) -> nn.Module:
    return seeded(Computed(function, **parts), 1)


def computed(function: Callable[..., Any], outputs: int = 1) -> nn.Module:
    """Whatever is computed from a linear layer and the inputs."""
    return built(lambda m, x: function(m.first, x), first=linear(D, outputs))


def of_an_inverse() -> nn.Module:
    """Degree 0, and without a value where the matrix is 0."""
    matrix, last = torch.empty(D, D), torch.empty(D, 1)
    return Computed(lambda m, x: x @ torch.linalg.inv(m.matrix) @ m.last, matrix=matrix, last=last)


def layered(extra: nn.Module) -> nn.Module:
    return seeded(nn.Sequential(linear(D, 6), extra, nn.ReLU(), linear(6)), 1)


def gated() -> nn.Module:
    """Build a network with a hard gate whose weights are Parameters."""
    return built(
        lambda m, x: m.last((x @ m.gate.T > 0).to(x) * m.first(x)),
        gate=torch.empty(8, D),
        first=linear(D, 8),
        last=linear(8),
    )


def attention() -> nn.Module:
    """One head over the features as tokens."""

    def head(m: Any, x: Tensor) -> Tensor:
        tokens = torch.stack([x[:, :4], x[:, 1:]], dim=-1)
        scores = (tokens @ m.query.T) @ (tokens @ m.key.T).mT
        outputs: Tensor = m.last(scores.softmax(dim=-1) @ m.value(tokens)).mean(dim=1)
        return outputs

    parts = {"query": torch.empty(3, 2), "key": torch.empty(3, 2)}
    return built(head, **parts, value=linear(2, 2), last=linear(2))


def skip(*, bias: bool = False) -> nn.Module:
    """Paths of degrees 2 and 1; with a bias in the first layer, this is 0."""
    parts = {"first": nn.Linear(D, 4, bias=bias), "last": linear(4), "shortcut": linear(D)}
    module = built(lambda m, x: m.last(m.first(x).relu()) + m.shortcut(x), **parts)
    if bias:
        nn.init.zeros_(module.get_parameter("first.bias"))
    return module


def low_rank() -> nn.Module:
    """Build a frozen matrix with a trained update inside a ReLU."""
    parts = {"W": linear(D, D), "a": linear(D, 2), "b": linear(2, D), "last": linear(D)}
    return frozen(built(lambda m, x: m.last((m.W(x) + m.b(m.a(x))).relu()), **parts), "W.weight")


def depths() -> nn.Module:
    """Degree 1 in one half space, 2 in the other: Lippl et al. with contexts of two degrees."""
    return built(
        lambda m, x: torch.where(x[:, :1] > 0, m.last(m.first(x)), m.last(x)),
        first=linear(D, D),
        last=linear(D),
    )


# --- warnings --------------------------------------------------------------------------------


def test_parameters_without_gradient_do_not_count() -> None:
    module = gated()
    with pytest.warns(DiagnosisWarning, match="'gate'"):
        found = diagnose(module, X, own_labels(module, X))
    assert found.excluded == finding(found, Code.NO_GRADIENT).names == ("gate",)
    frozen(module, "gate")
    with warnings.catch_warnings(action="error"):
        expected = diagnose(module, X, own_labels(module, X))
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)
    assert found.normalised_margin == pytest.approx(expected.normalised_margin)
    assert expected.excluded == expected.warnings == ()


def test_hooks_of_a_parameter_are_named() -> None:
    module = single()
    parameter: Any = next(module.parameters())
    parameter.register_hook(torch.zeros_like)
    assert finding(quiet(module), Code.GRADIENT_HOOKS).names == ("weight",)


def test_training_mode_is_named_and_kept() -> None:
    module = layered(nn.Dropout(0.5))
    expected, labels = quiet(module).gap, own_labels(module, X)
    module.train()
    module.get_submodule("2").eval()  # a part in another mode
    state = torch.get_rng_state()
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    found = quiet(module, labels=labels)
    assert Code.TRAINING_MODE in codes(found)
    assert finding(found, Code.DROPOUT).names == ("1",)
    assert len(found.warnings) == 2
    assert found.gap == expected
    assert [part.training for part in module.modules()] == [True, True, True, False, True]
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is not None and (p.grad == 1).all() for p in module.parameters())
    assert {p.dtype for p in module.parameters()} == {torch.float64}


def test_modes_without_effect_are_no_trap_and_kept() -> None:
    module = relu().train()
    assert quiet(module).warnings == ()
    assert module.training
    biased = relu(bias=True).train()
    with pytest.raises(HomogeneityError):
        diagnose(biased, X, own_labels(biased, X))
    assert biased.training


# --- errors ----------------------------------------------------------------------------------

slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: relu(bias=True), r"biases.*'2\.bias'.*bias=False"),
        slow(lambda: relu(bias=True, last_bias=True), r"biases.*'2\.bias', '4\.bias'"),
        (lambda: layered(nn.LayerNorm(6)), r"normalisation layer.*'1'"),
        (skip, r"skip.*degrees 1 and 2.*'shortcut\.weight'"),
        slow(lambda: skip(bias=True), r"^a skip.*degrees 1 and 2 \('shortcut\.weight'\)"),
        slow(
            lambda: nn.Sequential(computed(lambda block, x: x + block(x), D), single()),
            r"skip.*degrees 1 and 2 \(beside '0\.first\.weight'\)\. Give.*layers \(",
        ),
        (low_rank, r"activations that scale; .*skip connection or an update of frozen weights"),
        (attention, r"attention.*'query', 'key'.*[Ff]reeze"),
        (lambda: layered(nn.Tanh()), r"does not scale.*tanh.*ReLU"),
        slow(lambda: computed(lambda f, x: F.glu(f(x)), 2), "returns what glu makes"),
        (
            lambda: seeded(nn.Sequential(linear(D, 6), nn.PReLU(), linear(6))),
            r"factors: with '1\.weight' held.*Freeze",
        ),
        (depths, r"different degrees.*1 at.*2 at"),
        (lambda: computed(lambda f, x: f(x) * f(x).detach().abs()), r"Euler.*detach\(\)"),
        (
            lambda: computed(lambda f, x: torch.where(f(x) > 0, f(x).sqrt() ** 2, f(x))),
            r"'first\.weight' are NaN",
        ),
        (lambda: seeded(of_an_inverse()), "invert no trained"),
    ],
)
def test_what_breaks_homogeneity_is_named(build: Callable[[], nn.Module], match: str) -> None:
    module = build()
    with pytest.raises(HomogeneityError, match=match):
        diagnose(module, X, own_labels(module, X))


def dead() -> nn.Module:
    module = relu()
    nn.init.zeros_(module.get_parameter("4.weight"))
    return module


def wrong_on_two() -> Any:
    labels = own_labels(relu(outputs=3), X)
    labels[[3, 7]] = (labels[[3, 7]] + 1) % 3
    return labels


@pytest.mark.parametrize(
    ("build", "inputs", "labels", "error", "match"),
    [
        (lambda: computed(lambda f, x: f(x)[:, None]), X, ONES, ValueError, "flatten"),
        (relu, X, np.arange(12) % 2, ValueError, "labels"),
        (lambda: relu(outputs=3), X, wrong_on_two(), SeparationError, "samples 3, 7"),
        (dead, X, ONES, SeparationError, "margins"),
        (
            lambda: computed(lambda f, x: f(F.dropout(x, 0.5, training=True))),
            *(X, ONES, ValueError, "random"),
        ),
        (lambda: computed(lambda f, x: f(x - x.mean(dim=0))), X, ONES, ValueError, "batch"),
        (lambda: computed(lambda f, x: f(x.mul_(2.0))), X, ONES, ValueError, "writes"),
        (
            lambda: computed(lambda f, x: checkpoint(f, x, use_reentrant=False)),
            *(X, ONES, ValueError, "checkpointing"),
        ),
        (lambda: frozen(linear(D)), X, ONES, ValueError, "requires_grad_"),
        (relu, X.where(X < X.max(), np.nan), ONES, ValueError, r"\(\d+, \d+\)"),
    ],
)
def test_what_cannot_be_diagnosed_is_named(
    build: Callable[[], Any], inputs: Any, labels: Any, error: type[Exception], match: str
) -> None:
    given = X.clone()
    with pytest.raises(error, match=match):
        diagnose(build(), inputs, labels)
    assert torch.equal(given, X)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_weights_of_any_scale(scale: float) -> None:
    module = seeded(layers(D, 7, 1, between=None), 1)
    expected = quiet(module).gap
    scale_weights(module, scale)
    assert quiet(module).gap == pytest.approx(expected, abs=1e-9)


def bag() -> nn.Module:
    """Build a sum of the tokens' vectors, by a function that torch differentiates once alone."""
    vectors = nn.EmbeddingBag(10, 4, mode="sum")
    return built(lambda m, x: m.last(m.bag(x)), bag=vectors, last=linear(4))


def sparse() -> nn.Module:
    vectors = nn.Embedding(10, 4, sparse=True)
    return built(lambda m, x: m.last(m.a(x).sum(dim=1)), a=vectors, last=linear(4))


def hooked() -> nn.Module:
    module = relu()
    module.get_submodule("2").register_full_backward_hook(lambda *_: None)
    return module


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(
    ("build", "match"),
    [
        (bag, "'bag' is an EmbeddingBag.*nn.Embedding"),
        (sparse, "sparse=False"),
        (hooked, "'2'.*remove"),
    ],
)
def test_derivatives_that_torch_does_not_have_are_named(
    build: Callable[[], nn.Module], match: str, norm: str
) -> None:
    module = build()
    tokens = torch.randint(10, (8, 3), generator=torch.Generator().manual_seed(0))
    inputs = X if build is hooked else tokens
    with pytest.raises(ValueError, match=match):
        diagnose(module, inputs, own_labels(module, inputs), norm=norm)


@pytest.mark.slow
def test_a_module_that_branches_on_its_data_is_measured_without_single_gradients() -> None:
    module, plain = computed(lambda f, x: f(x) if x.sum() > 0 else f(x)), single()
    found, expected = (quiet(each, norm="linf") for each in (module, plain))
    assert (found.method, expected.method) == ("level method", "exact")
    assert found.gap_lower - 1e-9 <= expected.gap <= found.gap + 1e-9
    assert found.gap == pytest.approx(expected.gap, abs=1e-3)
