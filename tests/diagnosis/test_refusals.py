"""A module that is not homogeneous is refused by the names of its layers, on its first samples."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import implicit_bias as ib
from example_modules import Computed, drawn, linear, own_labels, seeded

D, H, N = 5, 6, 400
X = drawn(N, D)
# Samples that a refusal may send through a module in all, of which it looks at two.
PASSED = 150
BIASES = r"biases of Linear layers.*'{}\.bias'.*bias=False"


def stacked(*between: nn.Module, bias: bool = False) -> nn.Module:
    return nn.Sequential(linear(D, H), *between, nn.ReLU(), nn.Linear(H, 3, bias=bias))


class Block(nn.Module):
    """x + V relu(W x)."""

    def __init__(self) -> None:
        super().__init__()
        self.W = linear(H, H)
        self.V = linear(H, H)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the outputs (n, H)."""
        inner: Tensor = self.V(self.W(x).relu())
        return x + inner


def residual(blocks: int, *, bias: bool = False) -> nn.Module:
    parts = [Block() for _ in range(blocks)]
    return nn.Sequential(linear(D, H), *parts, nn.Linear(H, 3, bias=bias))


def transformer() -> nn.Module:
    layer = nn.TransformerEncoderLayer(H, 2, 8, batch_first=True)
    parts = {
        "first": linear(1, H),
        "encoder": nn.TransformerEncoder(layer, 2, enable_nested_tensor=False),
        "last": linear(H, 3),
    }
    return Computed(lambda m, x: m.last(m.encoder(m.first(x[:, :, None])).mean(1)), **parts)


def rooted() -> nn.Module:
    """Build a layer whose outputs are of another degree by no layer that has a name."""
    return Computed(lambda m, x: m.last(m.first(x).exp()), first=linear(D, H), last=linear(H, 3))


REFUSED = [
    (lambda: stacked(bias=True), BIASES.format(2), True),
    (lambda: stacked(linear(H, H), nn.Linear(H, H)), BIASES.format(2), True),
    (lambda: stacked(nn.LayerNorm(H)), r"layer_norm in '1' \(LayerNorm\).*'0\.weight'", False),
    (lambda: stacked(nn.GELU()), r"gelu in '1' \(GELU\).*ReLU", True),
    (lambda: stacked(nn.Tanh()), r"tanh in '1' \(Tanh\).*ReLU", False),
    (transformer, r"'encoder\.layers\.0\.self_attn'.*\(MultiheadAttention\).*[Ff]reeze", False),
    (lambda: residual(1), r"skip connection.*degrees 2 and 4", True),
    (lambda: residual(8), r"skip connection: '1' \(Block\) adds terms of degrees 1 and 3", True),
    (
        lambda: residual(8, bias=True),
        r"biases \('9\.bias'.*skip connection: '1' \(Block\) adds terms of degrees 1 and 3",
        True,
    ),
    (rooted, "not homogeneous", False),
]
IDS = ["bias", "inner bias", "LN", "GELU", "tanh", "MHA", "block", "blocks", "biases", "unnamed"]


def trained(module: nn.Module, inputs: Tensor, labels: Any) -> None:
    ib.train_to_limit(module, inputs, labels, ib.LimitConfig(steps=1))


@pytest.mark.parametrize("ask", [ib.diagnose, ib.which_norm, ib.Recorder, trained])
@pytest.mark.parametrize(("build", "match", "leads"), REFUSED, ids=IDS)
def test_the_cause_is_named_from_a_few_samples(
    ask: Callable[..., Any], build: Callable[[], nn.Module], match: str, leads: bool
) -> None:
    module = seeded(build(), 1).eval()
    labels, passed = own_labels(module, X), list[int]()
    with (
        module.register_forward_hook(lambda _, given, out: passed.append(len(out))),
        pytest.raises(ib.HomogeneityError, match=re.compile(match, re.DOTALL)) as caught,
    ):
        ask(module, X, labels)
    assert sum(passed) <= PASSED
    assert max(passed) < N
    assert ("leading=True" in str(caught.value)) == leads


def test_what_the_first_samples_do_not_show_is_found_on_all() -> None:
    """There all units are off; and a bias that counts for no optimizer is a constant."""
    module = seeded(stacked(nn.ReLU(), nn.Linear(H, H)), 1)
    inputs = torch.cat([torch.zeros(10, D).double(), X])
    with pytest.raises(ib.HomogeneityError, match=BIASES.format(2)):
        ib.diagnose(module, inputs, own_labels(module, inputs))


def test_parameters_that_do_not_count_are_no_cause() -> None:
    module = seeded(stacked(bias=True), 1)
    weights = [p for name, p in module.named_parameters() if not name.endswith("bias")]
    last = [p for name, p in module.named_parameters() if name.startswith("2")]
    labels = own_labels(module, X)
    with pytest.raises(ib.HomogeneityError, match="not homogeneous"):
        ib.diagnose(module, X, labels, optimizer=torch.optim.SGD(weights))
    with pytest.warns(ib.DiagnosisWarning, match="optimizer"):
        found = ib.diagnose(module, X, labels, optimizer=torch.optim.SGD(last))
    assert found.degree == 1.0


def test_layers_with_such_names_are_accepted_where_they_scale() -> None:
    """A normalisation of the inputs, a bias of inputs, and one above what is of degree 0."""
    ahead = nn.Sequential(nn.LayerNorm(D, elementwise_affine=False), nn.Linear(D, 3))
    above = Computed(
        lambda m, x: m.last(nn.functional.normalize(m.first(x))),
        first=linear(D, H),
        last=nn.Linear(H, 3),
    )
    for module in (ahead, above):
        labels = own_labels(seeded(module, 1), X)
        subject = ib.modules.subject.margins_of(module, (X,), labels)
        assert ib.modules.homogeneity.degree_of(subject) == pytest.approx(1.0)
        if module is ahead:
            assert ib.diagnose(module, X, labels).degree == pytest.approx(1.0)


def test_a_gate_without_gradient_is_not_scaled() -> None:
    """Its threshold would move with its weights, which no training moves."""
    module = Computed(
        lambda m, x: m.last(m.first(x) * (((x @ m.gate) > 0.1) + 0.5)),
        gate=torch.empty(D, H),
        first=linear(D, H),
        last=linear(H, 3),
    )
    labels = own_labels(seeded(module, 1), X)
    with pytest.warns(ib.DiagnosisWarning, match="'gate'"):
        found = ib.diagnose(module, X, labels, max_seconds=1.0)
    assert found.degree == pytest.approx(2.0)
    assert np.isfinite(found.gap)
