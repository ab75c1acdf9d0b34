"""Each trap has a name and a cure: a warning where it can be mended, else an error."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_bias import Diagnosis, DiagnosisWarning, GLNClassifier, diagnose
from implicit_bias.measure.homogeneity import HomogeneityError
from implicit_bias.measure.subject import SeparationError
from implicit_bias.training.losses import hinge

D = 5
X = torch.randn(12, D, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def seeded(module: nn.Module) -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    for p in module.parameters():
        nn.init.normal_(p, generator=generator)
    return module.double().eval()


def linear() -> nn.Module:
    return seeded(nn.Linear(D, 1, bias=False))


def relu(*, bias: bool = False, last_bias: bool = False, outputs: int = 1) -> nn.Module:
    return seeded(
        nn.Sequential(
            nn.Linear(D, 7, bias=False),
            nn.ReLU(),
            nn.Linear(7, 6, bias=bias),
            nn.ReLU(),
            nn.Linear(6, outputs, bias=last_bias),
        )
    )


def own_labels(module: nn.Module, X: Tensor = X) -> Any:
    """Labels that a module gets right."""
    with torch.no_grad():
        outputs = module(X)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        return outputs.argmax(dim=1).numpy()
    return np.where(outputs.reshape(-1) > 0, 1, -1)


def quiet(module: nn.Module, **options: Any) -> Diagnosis:
    """Diagnose, with the warnings only in the result."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosisWarning)
        return diagnose(module, X, own_labels(module), **options)


class Gated(nn.Module):
    """A network with a hard gate whose weights are Parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Parameter(torch.empty(8, D))
        self.first = nn.Linear(D, 8, bias=False)
        self.last = nn.Linear(8, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        open_ = (x @ self.gate.T > 0).to(x)
        outputs: Tensor = self.last(open_ * self.first(x))
        return outputs


class Skip(nn.Module):
    """Paths of degrees 2 and 1."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, 4, bias=False)
        self.last = nn.Linear(4, 1, bias=False)
        self.shortcut = nn.Linear(D, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        outputs: Tensor = self.last(self.first(x).relu()) + self.shortcut(x)
        return outputs


class Attention(nn.Module):
    """One head over the features as tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Parameter(torch.empty(3, 2))
        self.key = nn.Parameter(torch.empty(3, 2))
        self.value = nn.Linear(2, 2, bias=False)
        self.last = nn.Linear(2, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        tokens = torch.stack([x[:, :4], x[:, 1:]], dim=-1)
        scores = (tokens @ self.query.T) @ (tokens @ self.key.T).mT
        outputs: Tensor = self.last(scores.softmax(dim=-1) @ self.value(tokens)).mean(dim=1)
        return outputs


class Depths(nn.Module):
    """Degree 1 in one half space, 2 in the other: Lippl et al. with contexts of two degrees."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(D, D, bias=False)
        self.last = nn.Linear(D, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        deep: Tensor = self.last(self.first(x))
        return torch.where(x[:, :1] > 0, deep, self.last(x))


class Computed(nn.Module):
    """Whatever is computed from the inputs and a linear layer."""

    def __init__(self, compute: Callable[[nn.Module, Tensor], Any], outputs: int = 1) -> None:
        super().__init__()
        self.first, self.compute = nn.Linear(D, outputs, bias=False), compute

    def forward(self, x: Tensor) -> Any:
        """Compute the outputs."""
        return self.compute(self.first, x)


def computed(compute: Callable[[Any, Tensor], Any], outputs: int = 1) -> nn.Module:
    return seeded(Computed(compute, outputs))


def frozen_attention_and_skip() -> nn.Module:
    """Its attention is homogeneous, as query and key are not trained."""
    attention = seeded(Attention())
    for name in ("query", "key"):
        attention.get_parameter(name).requires_grad_(False)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention, self.shortcut = attention, linear()

        def forward(self, x: Tensor) -> Tensor:
            outputs: Tensor = self.attention(x) + self.shortcut(x)
            return outputs

    return Both().eval()


def layered(extra: nn.Module) -> nn.Module:
    return seeded(
        nn.Sequential(nn.Linear(D, 6, bias=False), extra, nn.ReLU(), nn.Linear(6, 1, bias=False))
    )


# --- warnings --------------------------------------------------------------------------------


def test_parameters_without_gradient_do_not_count() -> None:
    module = seeded(Gated())
    with pytest.warns(DiagnosisWarning, match="'gate'.*buffer"):
        found = diagnose(module, X, own_labels(module))
    assert found.excluded == ("gate",)
    assert any("'gate'" in text for text in found.warnings)
    frozen = seeded(Gated())
    frozen.get_parameter("gate").requires_grad_(False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = diagnose(frozen, X, own_labels(frozen))
    assert found.gap == pytest.approx(expected.gap, rel=1e-9)
    assert found.normalised_margin == pytest.approx(expected.normalised_margin)
    assert expected.excluded == expected.warnings == ()


def test_training_mode_is_named_and_kept() -> None:
    module = layered(nn.Dropout(0.5))
    expected, labels = quiet(module).gap, own_labels(module)
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
        diagnose(biased, X, own_labels(biased))
    assert biased.training


@pytest.mark.parametrize(
    "loss",
    [nn.MSELoss(), nn.MultiMarginLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)],
    ids=lambda loss: type(loss).__name__,
)
def test_losses_that_are_not_exponential_like(loss: nn.Module) -> None:
    module = relu(outputs=3)
    found = quiet(module, loss=loss)
    assert any(type(loss).__name__ in text and "train" in text for text in found.warnings)


@pytest.mark.parametrize(
    "loss",
    ["logistic", "exponential", nn.BCEWithLogitsLoss(), nn.SoftMarginLoss(), F.soft_margin_loss],
    ids=["logistic", "exponential", "BCEWithLogitsLoss", "SoftMarginLoss", "soft_margin_loss"],
)
def test_exponential_like_losses(loss: object) -> None:
    assert quiet(relu(), loss=loss).warnings == ()


def test_cross_entropy_is_exponential_like() -> None:
    for loss in (nn.CrossEntropyLoss(), F.cross_entropy):
        assert quiet(relu(outputs=3), loss=loss).warnings == ()


def test_a_polynomial_tail_is_found() -> None:
    def polynomial(outputs: Tensor, target: Tensor) -> Tensor:
        return (1.0 + (outputs * (2 * target - 1))).clamp_min(1e-3).pow(-2).mean()

    found = quiet(relu(), loss=polynomial)
    assert any("polynomial" in text and "exponential" in text for text in found.warnings)
    assert any("hinge" in text for text in quiet(relu(), loss=hinge).warnings)


def test_a_loss_that_cannot_be_evaluated_was_not_checked() -> None:
    def strange(outputs: Tensor) -> Tensor:
        return outputs

    assert any("not checked" in text for text in quiet(relu(), loss=strange).warnings)


@pytest.mark.parametrize(
    ("optimizer", "norm"),
    [
        (torch.optim.Adam, "linf"),
        ("adam", "linf"),
        ("sgd", "l2"),
        (torch.optim.SGD, "l2"),
        ("Muon", "spectral"),
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
    held = torch.optim.SGD([first], weight_decay=0.1)
    found = quiet(module, optimizer=held)
    assert found.excluded == ("2.weight", "4.weight")
    assert found.degree == 1.0
    assert any("weight_decay=0" in text for text in found.warnings)
    assert quiet(module, optimizer=torch.optim.SGD([first, *others])).warnings == ()
    rprop = torch.optim.Rprop(module.parameters())
    assert any("not known" in text for text in quiet(module, norm="l2", optimizer=rprop).warnings)


# --- errors ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: relu(bias=True), r"biases.*'2\.bias'.*bias=False"),
        (lambda: relu(last_bias=True), r"biases.*'4\.bias'"),
        (lambda: relu(bias=True, last_bias=True), r"biases.*'2\.bias', '4\.bias'"),
        (lambda: layered(nn.LayerNorm(6)), r"normalisation layer.*'1'"),
        (lambda: layered(nn.BatchNorm1d(6)), r"normalisation layer.*'1'"),
        (lambda: seeded(Skip()), r"skip.*degrees 1 and 2.*'shortcut\.weight'"),
        (
            lambda: nn.Sequential(computed(lambda block, x: x + block(x), D), linear()),
            r"skip.*degrees 1 and 2.*'0\.first\.weight'",
        ),
        (lambda: seeded(Attention()), r"attention.*'query', 'key'.*[Ff]reeze"),
        (frozen_attention_and_skip, r"skip.*degrees 1 and 2.*'shortcut\.weight'"),
        (lambda: layered(nn.Tanh()), r"does not scale.*tanh.*ReLU"),
        (lambda: seeded(Depths()), r"different degrees.*1 at.*2 at"),
        (lambda: computed(lambda f, x: f(x) * f(x).detach().abs()), r"Euler.*detach\(\)"),
    ],
    ids=[
        *("bias", "last-bias", "two-biases", "layer-norm", "batch-norm", "skip", "residual"),
        *("attention", "frozen attention and skip", "tanh", "degrees", "detached"),
    ],
)
def test_what_breaks_homogeneity_is_named(build: Callable[[], nn.Module], match: str) -> None:
    module = build()
    with pytest.raises(HomogeneityError, match=match):
        diagnose(module, X, own_labels(module))


def test_the_cures_help() -> None:
    attention = seeded(Attention())
    for name in ("query", "key"):
        attention.get_parameter(name).requires_grad_(False)
    assert quiet(attention).degree == 2.0
    first_bias = seeded(nn.Sequential(nn.Linear(D, 4), nn.ReLU(), nn.Linear(4, 1, bias=False)))
    assert quiet(first_bias).degree == 2.0


@pytest.mark.parametrize("shape", [(2, 2), (1, 1, 1)])
def test_outputs_of_a_wrong_shape(shape: tuple[int, ...]) -> None:
    module = computed(lambda f, x: f(x).reshape(-1, *shape), int(np.prod(shape)))
    with pytest.raises(ValueError, match="flatten"):
        diagnose(module, X, np.ones(12))


@pytest.mark.parametrize(
    ("outputs", "labels", "match"),
    [
        (1, np.arange(12) % 2, "recode them as -1 and \\+1"),
        (3, np.where(np.arange(12) % 2, 1, -1), "classes 0 .. 2"),
        (3, np.arange(12), "0 .. 2"),
        (1, np.ones(5), "labels"),
        (1, np.full(12, np.nan), "NaN"),
    ],
    ids=["zero-one", "signs", "too-many", "too-few", "nan"],
)
def test_wrong_labels(outputs: int, labels: Any, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        diagnose(relu(outputs=outputs), X, labels)


def test_misclassified_samples_are_named() -> None:
    module = relu(outputs=3)
    labels = own_labels(module)
    labels[[3, 7]] = (labels[[3, 7]] + 1) % 3
    with pytest.raises(SeparationError, match=r"2 of 12.*samples 3, 7;.*train until all"):
        diagnose(module, X, labels)


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (lambda: computed(lambda f, x: f(F.dropout(x, 0.5, training=True))), "random"),
        (lambda: computed(lambda f, x: f(x - x.mean(dim=0))), "other samples of its batch"),
        (lambda: computed(lambda f, x: f(x).detach()), "gradient"),
        (lambda: computed(lambda f, x: f(x.mul_(2.0))), "writes"),
        (lambda: nn.Linear(D, 1, bias=False).requires_grad_(False), "no parameter"),
    ],
    ids=["random", "batch", "detached", "writing", "frozen"],
)
def test_modules_that_cannot_be_measured(build: Callable[[], nn.Module], match: str) -> None:
    given = X.clone()
    with pytest.raises(ValueError, match=match):
        diagnose(build(), given, np.ones(12))
    assert torch.equal(given, X)


def test_dead_modules_and_bad_inputs() -> None:
    dead = relu()
    nn.init.zeros_(dead.get_parameter("4.weight"))
    with pytest.raises(SeparationError, match="all margins are 0"):
        diagnose(dead, X, np.ones(12))
    with pytest.raises(ValueError, match="NaN or infinity"):
        diagnose(relu(), X * np.nan, np.ones(12))
    with pytest.raises(ValueError, match="first axis"):
        diagnose(relu(), (X, X[:3]), np.ones(12))
    with pytest.raises(ValueError, match="tuple"):
        diagnose(relu(), (), np.ones(12))
    with pytest.raises(TypeError, match="network_"):
        diagnose(GLNClassifier(3), X, np.ones(12))
    with pytest.raises(ValueError, match="linf"):
        diagnose(relu(), X, np.ones(12), norm="l7")
    with pytest.raises(TypeError, match="loss"):
        diagnose(relu(), X, own_labels(relu()), loss=3)


@pytest.mark.parametrize("inputs", [X[:, :2], X.long(), torch.tensor(1.0), X.to(torch.complex128)])
def test_inputs_that_the_module_does_not_take_are_named(inputs: Any) -> None:
    with pytest.raises(ValueError, match="input"):
        diagnose(linear(), inputs, np.ones(len(X)))


def test_outputs_that_are_no_tensor_are_named_in_training_mode() -> None:
    module = seeded(nn.RNN(D, 1, bias=False)).train()
    with pytest.raises(ValueError, match="tuple"):
        diagnose(module, X[:, None], np.ones(len(X)))


def test_labels_and_inputs_of_any_type() -> None:
    module = linear()
    labels, expected = own_labels(module), quiet(module).gap
    for inputs, given in (
        (X, torch.tensor(labels, dtype=torch.bfloat16)),
        (X.numpy()[::-1], labels[::-1]),
        (X.numpy().astype(">f8"), labels),
    ):
        assert diagnose(module, inputs, given).gap == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_weights_of_any_scale(scale: float) -> None:
    module = seeded(nn.Sequential(nn.Linear(D, 7, bias=False), nn.Linear(7, 1, bias=False)))
    expected = quiet(module).gap
    with torch.no_grad():
        for p in module.parameters():
            p.mul_(scale)
    assert quiet(module).gap == pytest.approx(expected, abs=1e-9)


class Bag(nn.Module):
    """The sum of the tokens' vectors, by a function that torch differentiates once alone."""

    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(10, 4, mode="sum")
        self.last = nn.Linear(4, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        outputs: Tensor = self.last(self.bag(x))
        return outputs


def hooked() -> nn.Module:
    module = relu()
    module.get_submodule("2").register_full_backward_hook(lambda *_: None)
    return module


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize(
    ("build", "match"),
    [(lambda: seeded(Bag()), "'bag' is an EmbeddingBag.*nn.Embedding"), (hooked, "'2'.*remove")],
    ids=["bag", "hook"],
)
def test_derivatives_that_torch_does_not_have_are_named(
    build: Callable[[], nn.Module], match: str, norm: str
) -> None:
    module = build()
    tokens = torch.randint(10, (8, 3), generator=torch.Generator().manual_seed(0))
    inputs = tokens if isinstance(module, Bag) else X
    with pytest.raises(ValueError, match=match):
        diagnose(module, inputs, own_labels(module, inputs), norm=norm)


@pytest.mark.slow
def test_a_module_that_branches_on_its_data_is_measured_without_single_gradients() -> None:
    module, plain = computed(lambda f, x: f(x) if x.sum() > 0 else f(x)), linear()
    found, expected = (quiet(each, norm="linf") for each in (module, plain))
    assert (found.method, expected.method) == ("level method", "exact")
    assert found.gap_lower - 1e-9 <= expected.gap <= found.gap + 1e-9
    assert found.gap == pytest.approx(expected.gap, abs=1e-3)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_gradients_that_are_switched_off_change_nothing(mode: Callable[[], Any]) -> None:
    module = relu()
    expected = quiet(module).gap
    with mode():
        assert quiet(module).gap == expected
