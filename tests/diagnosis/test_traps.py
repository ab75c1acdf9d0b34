"""Each trap has a name and a cure: a warning where it can be mended, else an error."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from example_modules import (
    Computed,
    drawn,
    frozen,
    layers,
    linear,
    own_labels,
    scale_weights,
    seeded,
)
from implicit_bias import Diagnosis, DiagnosisWarning, GLNClassifier, diagnose
from implicit_bias.modules.homogeneity import HomogeneityError
from implicit_bias.modules.subject import SeparationError
from implicit_bias.training.losses import MarginLoss

D = 5
X = drawn(12, D)
ONES = np.ones(12)


def single() -> nn.Module:
    return seeded(linear(D), 1)


def relu(*, bias: bool = False, last_bias: bool = False, outputs: int = 1) -> nn.Module:
    module = layers(D, 7, 6, outputs)
    module[2], module[4] = nn.Linear(7, 6, bias=bias), nn.Linear(6, outputs, bias=last_bias)
    return seeded(module, 1)


def quiet(module: nn.Module, **options: Any) -> Diagnosis:
    """Diagnose, with the warnings only in the result."""
    with warnings.catch_warnings(action="ignore", category=DiagnosisWarning):
        return diagnose(module, X, own_labels(module, X), **options)


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


def homogeneous_attention() -> nn.Module:
    return frozen(attention(), "query", "key")


def skip(*, bias: bool = False) -> nn.Module:
    """Paths of degrees 2 and 1; with a bias in the first layer, this is 0."""
    parts = {"first": nn.Linear(D, 4, bias=bias), "last": linear(4), "shortcut": linear(D)}
    module = built(lambda m, x: m.last(m.first(x).relu()) + m.shortcut(x), **parts)
    if bias:
        nn.init.zeros_(module.get_parameter("first.bias"))
    return module


def biased_residual() -> nn.Module:
    """Build biases in every layer, and a block with a shortcut."""
    parts = {"first": nn.Linear(D, 6), "a": nn.Linear(6, 6), "b": nn.Linear(6, 6)}

    def outputs(m: Any, x: Tensor) -> Tensor:
        h = m.first(x)
        last: Tensor = m.last(h + m.b(m.a(h).relu()))
        return last

    return built(outputs, **parts, last=nn.Linear(6, 1))


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


def attention_and_skip() -> nn.Module:
    parts = {"attention": homogeneous_attention(), "shortcut": single()}
    return Computed(lambda m, x: m.attention(x) + m.shortcut(x), **parts).eval()


# --- warnings --------------------------------------------------------------------------------


def test_parameters_without_gradient_do_not_count() -> None:
    module = gated()
    with pytest.warns(DiagnosisWarning, match="'gate'.*buffer"):
        found = diagnose(module, X, own_labels(module, X))
    assert found.excluded == ("gate",)
    assert any("'gate'" in text for text in found.warnings)
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
    with pytest.warns(DiagnosisWarning, match="hooks"):
        diagnose(module, X, own_labels(module, X))


def test_training_mode_is_named_and_kept() -> None:
    module = layered(nn.Dropout(0.5))
    expected, labels = quiet(module).gap, own_labels(module, X)
    module.train()
    module.get_submodule("2").eval()  # a part in another mode
    state = torch.get_rng_state()
    for p in module.parameters():
        p.grad = torch.ones_like(p)
    with (
        pytest.warns(DiagnosisWarning, match=r"training mode.*eval\(\)"),
        pytest.warns(DiagnosisWarning, match="dropout in '1'"),
    ):
        found = diagnose(module, X, labels)
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


def polynomial(outputs: Tensor, target: Tensor) -> Tensor:
    return (1.0 + (outputs * (2 * target - 1))).clamp_min(1e-3).pow(-2).mean()


def hinge(margins: Tensor) -> Tensor:
    return (1 - margins).relu()


POWER = MarginLoss("power", lambda q: -2.0 * (1.0 + (q + 20.0).clamp_min(0.0)).log())
ZERO = MarginLoss("zero", lambda q: (1.0 - q).relu().log())
EXPONENTIAL = ["logistic", "exponential", F.soft_margin_loss, nn.BCEWithLogitsLoss()]


@pytest.mark.every(3)
@pytest.mark.parametrize(
    ("outputs", "loss", "words"),
    [
        (3, nn.MSELoss(), ["MSELoss", "a finite minimiser", "train"]),
        (3, nn.MultiMarginLoss(), ["MultiMarginLoss", "a finite minimiser", "train"]),
        (3, nn.CrossEntropyLoss(label_smoothing=0.1), ["a finite minimiser", "label_smoothing=0"]),
        (3, nn.BCEWithLogitsLoss(), ["BCEWithLogitsLoss", "another margin", "train"]),
        (1, polynomial, ["polynomial", "no exponential tail"]),
        (1, POWER, ["power", "no exponential tail"]),
        (1, ZERO, ["zero", "a finite minimiser"]),
        (1, hinge, ["hinge"]),
        (1, lambda outputs: outputs, ["not checked"]),
        *((1, loss, []) for loss in (*EXPONENTIAL, nn.SoftMarginLoss())),
        *((3, loss, []) for loss in (F.cross_entropy, nn.CrossEntropyLoss())),
    ],
)
def test_losses_that_are_not_exponential_like_are_named(
    outputs: int, loss: Any, words: list[str]
) -> None:
    found = quiet(seeded(linear(D, outputs), 1), loss=loss).warnings
    assert any(all(word in text for word in words) for text in found) == bool(words)


@pytest.mark.every(5)
@pytest.mark.parametrize(
    ("optimizer", "norm"),
    [
        *((torch.optim.SGD, "l2"), ("sgd", "l2"), ("Muon", "spectral")),
        *((torch.optim.Adam, "linf"), ("adam", "linf")),
    ],
)
def test_the_norm_of_an_optimizer(optimizer: object, norm: str) -> None:
    module = relu()
    assert quiet(module, optimizer=optimizer).norm == norm
    assert quiet(module, norm=norm, optimizer=optimizer).warnings == ()
    other = "l2" if norm != "l2" else "linf"
    (text,) = quiet(module, norm=other, optimizer=optimizer).warnings
    assert f"norm={norm!r}" in text


def test_what_an_optimizer_says_of_the_training() -> None:
    module = relu()
    first, *others = module.parameters()
    found = quiet(module, optimizer=torch.optim.SGD([first], weight_decay=0.1))
    assert found.excluded == ("2.weight", "4.weight")
    assert found.degree == 1.0
    assert any("weight_decay=0" in text for text in found.warnings)
    assert quiet(module, optimizer=torch.optim.SGD([first, *others])).warnings == ()


# --- errors ----------------------------------------------------------------------------------

slow = partial(pytest.param, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: relu(bias=True), r"biases.*'2\.bias'.*bias=False"),
        slow(lambda: relu(last_bias=True), r"biases.*'4\.bias'"),
        slow(lambda: relu(bias=True, last_bias=True), r"biases.*'2\.bias', '4\.bias'"),
        (lambda: layered(nn.LayerNorm(6)), r"normalisation layer.*'1'"),
        slow(lambda: layered(nn.BatchNorm1d(6)), r"normalisation layer.*'1'"),
        (skip, r"skip.*degrees 1 and 2.*'shortcut\.weight'"),
        slow(lambda: skip(bias=True), r"^a skip.*degrees 1 and 2 \('shortcut\.weight'\)"),
        slow(
            lambda: nn.Sequential(computed(lambda block, x: x + block(x), D), single()),
            r"skip.*degrees 1 and 2 \(beside '0\.first\.weight'\)\. Give.*layers \(",
        ),
        slow(
            biased_residual,
            r"^biases \('a\.bias', 'b\.bias', 'last\.bias'; .* skip.* 2 and 4\. Give",
        ),
        (low_rank, r"activations that scale; .*skip connection or an update of frozen weights"),
        (attention, r"attention.*'query', 'key'.*[Ff]reeze"),
        slow(attention_and_skip, r"skip.*degrees 1 and 2.*'shortcut\.weight'"),
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


def test_a_cause_is_looked_for_on_a_few_samples() -> None:
    """All samples pass a bounded number of times, and what the few do not show is found, too."""
    module, inputs = relu(bias=True, last_bias=True, outputs=3), drawn(200, D)
    for given in (inputs, torch.cat([torch.zeros(100, D).double(), inputs])):
        labels, passed = own_labels(module, given), list[int]()
        with (
            module.register_forward_hook(lambda *said, passed=passed: passed.append(len(said[2]))),
            pytest.raises(HomogeneityError, match=r"'2\.bias', '4\.bias'.*leading=True"),
        ):
            diagnose(module, given, labels)
        assert sum(passed) < 100 * len(given)


def test_the_cures_help() -> None:
    assert quiet(homogeneous_attention()).degree == 2.0
    assert quiet(seeded(nn.Sequential(nn.Linear(D, 4), nn.ReLU(), linear(4)), 1)).degree == 2.0


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
        # outputs and labels
        (
            lambda: computed(lambda f, x: f(x).reshape(-1, 2, 2), 4),
            *(X, ONES, ValueError, "flatten"),
        ),
        (lambda: computed(lambda f, x: f(x)[:, None]), X, ONES, ValueError, "flatten"),
        (relu, X, np.arange(12) % 2, ValueError, r"recode them as -1 and \+1"),
        (lambda: relu(outputs=3), X, np.resize([-1, 1], 12), ValueError, "classes 0 .. 2"),
        (lambda: relu(outputs=3), X, np.arange(12), ValueError, "0 .. 2"),
        (relu, X, np.ones(5), ValueError, "labels"),
        (relu, ONES, X, ValueError, "pass the inputs before"),
        (relu, X, np.full(12, np.nan), ValueError, "NaN"),
        (
            *(lambda: relu(outputs=3), X, wrong_on_two(), SeparationError),
            r"2 of 12.*samples 3, 7;.*train until all",
        ),
        (dead, X, ONES, SeparationError, "all margins are 0"),
        # modules that cannot be measured
        (
            lambda: computed(lambda f, x: f(F.dropout(x, 0.5, training=True))),
            *(X, ONES, ValueError, "random"),
        ),
        (
            lambda: computed(lambda f, x: f(x - x.mean(dim=0))),
            *(X, ONES, ValueError, "other samples of its batch"),
        ),
        (lambda: computed(lambda f, x: f(x.mul_(2.0))), X, ONES, ValueError, "writes"),
        (
            lambda: computed(lambda f, x: checkpoint(f, x, use_reentrant=False)),
            *(X, ONES, ValueError, "switch off activation checkpointing"),
        ),
        (lambda: frozen(linear(D)), X, ONES, ValueError, "no parameter.*requires_grad_"),
        (lambda: linear(D).to(torch.float8_e4m3fn), X, ONES, ValueError, "16 bits"),
        (
            lambda: Computed(lambda m, x: x @ m.a, a=torch.eye(D).to_sparse()),
            *(X, ONES, ValueError, "dense"),
        ),
        (lambda: GLNClassifier(3), X, ONES, TypeError, "network_"),
        (
            lambda: seeded(nn.RNN(D, 1, bias=False)).train(),
            *(X[:, None], ONES, ValueError, "tuple"),
        ),
        # inputs
        (relu, X.where(X < X.max(), np.nan), ONES, ValueError, r"at 1 place.*\(\d+, \d+\): impute"),
        (relu, (X, X[:3]), ONES, ValueError, "first axis"),
        (relu, (), ONES, ValueError, "tuple"),
        *(
            (single, inputs, ONES, ValueError, "input")
            for inputs in (X[:, :2], X.long(), torch.tensor(1.0), X.to(torch.complex128))
        ),
    ],
)
def test_what_cannot_be_diagnosed_is_named(
    build: Callable[[], Any], inputs: Any, labels: Any, error: type[Exception], match: str
) -> None:
    given = X.clone()
    with pytest.raises(error, match=match):
        diagnose(build(), inputs, labels)
    assert torch.equal(given, X)


def test_options_that_are_none_are_named() -> None:
    with pytest.raises(ValueError, match="linf"):
        quiet(relu(), norm="l7")
    with pytest.raises(TypeError, match="loss"):
        quiet(relu(), loss=3)
    with pytest.raises(ValueError, match="labels must"):
        diagnose(relu(), X, sp.csr_array(np.ones((1, len(X)))))


@pytest.mark.slow
def test_labels_and_inputs_of_any_type() -> None:
    module = single()
    labels, expected = own_labels(module, X), quiet(module).gap
    for inputs, given in (
        (X, torch.tensor(labels, dtype=torch.bfloat16)),
        (X.numpy()[::-1], labels[::-1]),
        (X.numpy().astype(">f8"), labels),
        (torch._neg_view(-X), torch._neg_view(-torch.tensor(labels))),
    ):
        assert diagnose(module, inputs, given).gap == pytest.approx(expected, abs=1e-12)


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


@pytest.mark.slow
def test_gradients_that_are_switched_off_change_nothing() -> None:
    module = relu()
    expected = quiet(module).gap
    with torch.no_grad():
        assert quiet(module).gap == expected
