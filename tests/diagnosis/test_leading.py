"""Modules that are homogeneous only in the limit are measured by their leading part."""

import copy
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from implicit_bias import Diagnosis, DiagnosisWarning, Recorder, diagnose, which_norm
from implicit_bias.measure.homogeneity import HomogeneityError
from implicit_bias.measure.subject import SeparationError
from implicit_bias.norms.tensors import as_parameter_norm

D, H, N = 4, 5, 14
NORMS = ("l2", "linf", "spectral")
# How near a gap is to that of the leading part written by hand.
SAME = 1e-8


def drawn(*shape: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64)


X = drawn(N, D)


def seeded(module: nn.Module, seed: int = 1) -> nn.Module:
    for place, p in enumerate(module.parameters()):
        p.data = drawn(*p.shape, seed=100 * seed + place)
    return module.eval()


def labels_of(module: nn.Module, X: Tensor = X) -> Any:
    """Labels that a module gets right."""
    with torch.no_grad():
        outputs = module(X)
    if outputs.shape[1] > 1:
        return outputs.argmax(dim=1).numpy()
    return np.where(outputs[:, 0] > 0, 1, -1)


class LoRA(nn.Module):
    """A frozen network of two layers, of which the first has an update of rank 2."""

    def __init__(
        self,
        *,
        whole: bool = True,
        outputs: int = 1,
        gate: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.W_0: Tensor
        self.readout: Tensor
        self.gate = gate
        self.A, self.B = nn.Parameter(torch.empty(2, D)), nn.Parameter(torch.empty(H, 2))
        self.register_buffer("W_0", 0.3 * drawn(H, D, seed=7) * whole)
        self.register_buffer("readout", drawn(outputs, H, seed=8))

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, K)."""
        return self.gate(x @ (self.W_0 + self.B @ self.A).T) @ self.readout.T


class Residual(nn.Module):
    """Two residual blocks with biases, or their leading part: without shortcuts and biases."""

    def __init__(
        self,
        *,
        whole: bool = True,
        outputs: int = 1,
        gate: Callable[[Tensor], Tensor] = torch.relu,
    ) -> None:
        super().__init__()
        self.blocks = nn.ParameterList(torch.empty(H, H) for _ in range(4))
        self.biases = nn.ParameterList(torch.empty(H) for _ in range(2))
        self.first, self.last = (nn.Parameter(torch.empty(s)) for s in ((H, D), (outputs, H)))
        self.whole, self.gate = whole, gate if whole else torch.relu

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, K)."""
        x = x @ self.first.T
        for place, bias in enumerate(self.biases):
            inside, outside = self.blocks[2 * place], self.blocks[2 * place + 1]
            added = self.gate(x @ inside.T + self.whole * 0.1 * bias) @ outside.T
            x = added + x if self.whole else added
        return x @ self.last.T


class Bias(nn.Module):
    """A ReLU layer with a bias above it, which the leading part has not."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(D, H, bias=False), nn.Linear(H, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        outputs: Tensor = self.last(self.first(x).relu())
        return outputs


class Attention(nn.Module):
    """A softmax of trained scores, or of frozen ones; written out, or as torch's own layer."""

    def __init__(self, *, trained: bool, own: bool = False) -> None:
        super().__init__()
        self.own = own
        self.heads = nn.MultiheadAttention(D, 1, bias=False, batch_first=True)
        self.scores = nn.Linear(D, 1, bias=False)
        self.last = nn.Linear(D, 1)
        for part in (self.scores, self.heads.in_proj_weight):
            part.requires_grad_(trained)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, 1)."""
        tokens = torch.stack([x, x.roll(1, 1), x.roll(2, 1)], dim=1)
        if self.own:
            mixed = self.heads(tokens, tokens, tokens, need_weights=False)[0].sum(dim=1)
        else:
            mixed = (self.scores(tokens).softmax(dim=1) * tokens).sum(dim=1)
        outputs: Tensor = self.last(mixed)
        return outputs


class Normalised(nn.Module):
    """A normalisation without a name."""

    def forward(self, x: Tensor) -> Tensor:
        """Compute outputs of length nearly 1."""
        return x / (x.square().sum(dim=1, keepdim=True) + 1e-3).sqrt()


def quiet(module: nn.Module, labels: Any, **options: Any) -> Diagnosis:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosisWarning)
        return diagnose(module, X, labels, **options)


BUILDS: dict[str, Callable[..., nn.Module]] = {
    "LoRA": LoRA,
    "residual": Residual,
    "LoRA, classes": lambda **kw: LoRA(outputs=3, **kw),
    "residual, GELU": lambda **kw: Residual(gate=F.gelu, **kw),
    "residual, softplus": lambda **kw: Residual(gate=F.softplus, **kw),
}


def trained(module: nn.Module, labels: Any, steps: range) -> nn.Module:
    """Normalised gradient descent on the logarithm of the exponential loss; its steps shrink."""
    y = torch.tensor(labels)
    parameters = [p for p in module.parameters() if p.requires_grad]
    for step in steps:
        outputs = module(X)
        if outputs.shape[1] > 1:
            pairs = outputs.gather(1, y[:, None]) - outputs
            margins = pairs[torch.arange(outputs.shape[1]) != y[:, None]]
        else:
            margins = y * outputs[:, 0]
        slopes = torch.autograd.grad(torch.logsumexp(-margins, dim=0), parameters)
        length, size = (
            sum(p.detach().square().sum() for p in t) ** 0.5 for t in (slopes, parameters)
        )
        with torch.no_grad():
            for p, slope in zip(parameters, slopes, strict=True):
                p.sub_(slope, alpha=float(size / length) / (20.0 + step))
    return module


@pytest.mark.parametrize("name", BUILDS)
def test_gaps_are_those_of_the_leading_part_written_by_hand(name: str) -> None:
    module, by_hand = (seeded(BUILDS[name](whole=whole)) for whole in (True, False))
    labels = labels_of(by_hand)
    trained(module, labels, range(300))
    for p, q in zip(by_hand.parameters(), module.parameters(), strict=True):
        p.data.copy_(q)
    for norm in NORMS:
        found, expected = (
            quiet(module, labels, norm=norm, leading=True),
            quiet(by_hand, labels, norm=norm),
        )
        assert found.degree == expected.degree
        assert found.min_margin == pytest.approx(expected.min_margin, rel=SAME)
        # Biases do not count where they are in no output, and count with KKT value 0 where they
        # vanish from the leading part alone: so the proven bound is the same, not the norm.
        assert found.excluded == ()
        whole = as_parameter_norm(norm).value({k: p.detach() for k, p in module.named_parameters()})
        size = whole * expected.min_margin ** (-1 / expected.degree)
        assert found.parameter_norm == pytest.approx(size, rel=SAME)
        gap = 1 - (1 - expected.gap) * (expected.parameter_norm / size) ** 2
        assert gap < 0.9
        assert found.gap == pytest.approx(gap, abs=SAME)
        for layer, bounds in expected.bounds.items():
            assert found.bounds[layer] == pytest.approx(bounds, rel=1e-6, nan_ok=True)
        assert found.rest is not None
        assert found.rest > 0
        assert "leading part" in found.verdict
        assert ("no theorem" in found.verdict) == (norm != "l2")


def test_gaps_and_the_rest_fall_as_training_goes_on() -> None:
    module, by_hand = (seeded(LoRA(whole=whole, gate=nn.Identity())) for whole in (True, False))
    labels = labels_of(by_hand)
    nn.init.zeros_(module.get_parameter("B"))
    with pytest.raises(SeparationError, match="degree 2, is 0"):
        diagnose(module, X, labels, leading=True)
    recorder = Recorder(module, X, labels, "l2", leading=True)
    recorder.record(0)
    for step in (100, 1000, 4000):
        trained(module, labels, range(int(recorder.rows[-1]["step"]), step))
        recorder.record(step)
    table = recorder.frame()
    # At B = 0 the leading part is 0, so nothing is known of its gap yet.
    assert table["error"][0] == 1.0
    assert np.isnan(table["gap_l2"][0])
    assert (np.diff(table["gap_l2"][1:]) < 0).all()
    assert (np.diff(table["rest"]) < 0).all()


def test_norms_of_a_leading_part_are_told_apart_beside_a_reference() -> None:
    start, by_hand = (seeded(LoRA(whole=whole, gate=nn.Identity())) for whole in (True, False))
    labels = labels_of(by_hand)
    early = trained(copy.deepcopy(start), labels, range(100))
    late = trained(copy.deepcopy(start), labels, range(1000))
    found = which_norm(late, X, labels, reference=early, norms=("l2", "linf"), leading=True)
    row = found.rows[0]
    assert row.gap.upper == pytest.approx(quiet(late, labels, leading=True).gap, abs=SAME)
    assert row.reference_gap is not None
    assert row.reference_gap.upper > row.gap.upper
    assert "leading part" in found.conclusion


def test_a_homogeneous_module_is_its_own_leading_part() -> None:
    module = seeded(Residual(whole=False))
    labels = labels_of(module)
    found, expected = (quiet(module, labels, leading=leading) for leading in (True, False))
    assert found.gap == expected.gap
    assert (found.rest, expected.rest) == (0.0, None)


def test_samples_that_the_leading_part_alone_misclassifies_are_named() -> None:
    module = seeded(Bias())
    with torch.no_grad():
        leading = module.get_submodule("last").weight @ module.get_submodule("first")(X).relu().T
        module.get_parameter("last.bias").copy_(leading.min().abs() + 1.0)
    wrong = np.flatnonzero(leading[0] <= 0)
    assert 0 < len(wrong) < N
    with pytest.raises(SeparationError, match=f"leading part.* {wrong[0]}"):
        quiet(module, np.ones(N), leading=True)


def test_samples_that_the_module_alone_misclassifies_are_named() -> None:
    module = seeded(Bias(), 2)
    nn.init.zeros_(module.get_parameter("last.bias"))
    labels = labels_of(module)
    nn.init.constant_(module.get_parameter("last.bias"), 100.0)
    found = quiet(module, labels, leading=True)
    assert any("misclassifies" in note for note in found.notes)
    assert found.rest is not None
    assert found.rest > 1


@pytest.mark.parametrize(
    ("module", "match"),
    [
        (Attention(trained=True), "softmax.*'scores.weight'"),
        (Attention(trained=True, own=True), "multi_head_attention_forward.*'heads'"),
        (
            nn.Sequential(nn.Linear(D, H), nn.LayerNorm(H), nn.Linear(H, 1)),
            "layer_norm.*'1'.*degree 0",
        ),
        (nn.Sequential(nn.Linear(D, H), Normalised(), nn.Linear(H, 1)), "degree 0 in '0.weight'"),
        (nn.Sequential(nn.Linear(D, H), nn.Tanh(), nn.Linear(H, 1)), "tanh.*'0.weight'"),
    ],
    ids=["softmax", "attention", "layer norm", "own normalisation", "tanh"],
)
def test_limits_that_jump_are_refused_by_name(module: nn.Module, match: str) -> None:
    module = seeded(module)
    for leading in (True, False):
        with pytest.raises(HomogeneityError) as caught:
            diagnose(module, X, labels_of(module), leading=leading)
        assert "leading=True" not in str(caught.value)
        if leading:
            caught.match(match)


@pytest.mark.parametrize("own", [False, True])
def test_a_frozen_softmax_is_not_blamed(own: bool) -> None:
    part = seeded(Attention(trained=False, own=own))
    module = nn.Sequential(part, nn.ReLU(), nn.Linear(1, 1)).double().eval()
    for p in module.get_submodule("2").parameters():
        nn.init.ones_(p)
    with pytest.raises(HomogeneityError, match="biases.*leading=True") as caught:
        diagnose(module, X, np.ones(N))
    assert "attention" not in str(caught.value)


def test_directions_of_weight_normalisation_are_named() -> None:
    layers = nn.Linear(D, H, bias=False), nn.ReLU(), nn.Linear(H, 1, bias=False)
    module = seeded(nn.Sequential(*layers), 2)
    nn.utils.parametrizations.weight_norm(module.get_submodule("0"))
    (note,) = quiet(module, labels_of(module)).notes
    assert "'0.parametrizations.weight.original1'" in note
    assert "original0" not in note


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_coarse_weights_are_said(dtype: torch.dtype) -> None:
    module = seeded(nn.Linear(D, 1, bias=False))
    labels = labels_of(module)
    assert quiet(module, labels).notes == ()
    (note,) = quiet(module.to(dtype), labels).notes
    assert str(dtype).removeprefix("torch.") in note
