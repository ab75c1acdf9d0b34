"""A module is left as it was, whoever measures or trains it; what cannot be measured is refused.

Whatever a module consists of, and however the call ends: tensors, types, precision, gradients,
modes, hooks, attributes, and the global state of torch.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import implicit_bias as ib
from example_modules import Computed, drawn, frozen, linear, own_labels
from implicit_bias.modules.evaluate import as_arguments, as_inputs
from implicit_bias.modules.stationarity import stationarity

D = 4
X = drawn(6, D)


def square() -> nn.Linear:
    return linear(D, D)


def layered(*between: nn.Module, first: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(first or square(), nn.ReLU(), *between, linear(D))


def tied() -> nn.Module:
    first, other = square(), square()
    other.weight = first.weight
    return layered(other, nn.ReLU(), first=first)


def weight_norm(kind: Callable[..., Any]) -> Callable[[], nn.Module]:
    return lambda: layered(first=kind(square()))


class Counting(nn.Module):
    """Buffers, one of them in no state dict, and a forward pass that writes into attributes."""

    scale: Tensor
    passes: Tensor
    rebound: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.tensor(2.0))
        self.register_buffer("passes", torch.tensor(0), persistent=False)
        self.register_buffer("rebound", torch.tensor(0.0))
        self.register_buffer("absent", None)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """Scale."""
        self.passes += 1
        self.rebound = self.rebound + 1
        self.calls += 1
        self.last = x
        return self.scale * x


def hooked() -> nn.Module:
    first = square()
    first.register_forward_pre_hook(lambda part, inputs: (inputs[0] * 2.0,))
    first.register_forward_hook(lambda part, inputs, outputs: outputs * 2.0)
    cast(Any, first.weight).register_hook(lambda gradient: gradient)
    return layered(first=first)


MODULES: dict[str, Callable[[], nn.Module]] = {
    "tied": tied,
    "weight norm": weight_norm(parametrizations.weight_norm),
    "spectral norm by hooks": weight_norm(nn.utils.spectral_norm),
    "batch norm": lambda: layered(nn.BatchNorm1d(D)),
    "counting": lambda: layered(Counting()),
    "hooks": hooked,
    "partly frozen": lambda: layered(first=frozen(square())),
    "modes": lambda: layered(nn.Sequential(nn.Dropout(0.5).eval(), nn.Dropout(0.1))),
}


def record(module: nn.Module, inputs: Any, labels: Any) -> None:
    ib.Recorder(module, inputs, labels, ("l2", "linf"), max_seconds=0.2).record()


def limit(module: nn.Module, inputs: Any, labels: Any) -> object:
    return ib.train_to_limit(module, inputs, labels, ib.LimitConfig(steps=3))


def until_gap(module: nn.Module, inputs: Any, labels: Any) -> object:
    config = ib.LimitConfig(steps=2, norm="linf")
    return ib.train_to_limit(module, inputs, labels, config, stop_at_gap=1e-9)


FUNCTIONS: dict[str, Callable[[nn.Module, Any, Any], object]] = {
    "diagnose": ib.diagnose,
    "which_norm": lambda module, inputs, labels: ib.which_norm(
        module, inputs, labels, norms="l2", reference=module.state_dict()
    ),
    "stationarity": lambda module, inputs, labels: stationarity(module, (inputs,), labels),
    "Recorder": record,
    "train_to_limit": limit,
    "train_to_limit in linf": until_gap,
}


def state_of(module: nn.Module, *, values: bool = True) -> list[Any]:
    """All that a module and torch hold, as things that can be compared, and the things."""
    found: list[Any] = [list(module.state_dict())]
    for name, part in module.named_modules(remove_duplicate=False):
        found += [name, id(part), type(part), part.training]
        for table in (vars(part), *(v for v in vars(part).values() if isinstance(v, dict))):
            # The weight that the old weight norm leaves behind is of the last forward pass.
            kept = [(k, v) for k, v in table.items() if values or not isinstance(v, Tensor)]
            found += [id(table), [(key, id(value)) for key, value in kept]]
        found += [[*map(id, v)] for v in vars(part).values() if isinstance(v, list)]
        for label, tensor in (*part.named_parameters(), *part.named_buffers()):
            found += [label, id(tensor), type(tensor), tensor.dtype, tensor.requires_grad]
            found += [tensor.is_leaf, id(tensor.grad)]
            if values or not tensor.requires_grad:
                found.append(tensor.detach().numpy().tobytes())
    found += [
        *(torch.get_default_dtype(), torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        *(torch.are_deterministic_algorithms_enabled(), torch.get_num_threads()),
        torch.get_rng_state().numpy().tobytes(),
    ]
    return found


@contextmanager
def unchanged(module: nn.Module, *, values: bool = True) -> Iterator[None]:
    before, held = state_of(module, values=values), list(module.modules())
    kept = [value for part in held for value in vars(part).values()]  # so that no id is reused
    try:
        yield
    finally:
        assert state_of(module, values=values) == before
        assert kept


def built(name: str, dtype: torch.dtype, *, training: bool) -> tuple[nn.Module, Tensor, Any]:
    """Build a module with gradients of its own, its inputs, and labels that it gets right."""
    with torch.random.fork_rng():
        torch.manual_seed(3)
        module = MODULES[name]().to(dtype)
        inputs = X.to(dtype)
        modes = {part: part.training for part in module.modules()}
        labels = own_labels(module.eval(), inputs)
    for part, mode in modes.items():
        part.training = mode and training
    for parameter in module.parameters():
        parameter.grad = torch.ones_like(parameter)
    return module, inputs, labels


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize(
    ("function", "name"),
    [
        *(("stationarity", name) for name in MODULES),
        *(("train_to_limit", name) for name in MODULES if name != "counting"),
        ("diagnose", "spectral norm by hooks"),
        ("which_norm", "counting"),
        ("Recorder", "modes"),
        ("train_to_limit in linf", "spectral norm by hooks"),
    ],
)
def test_a_module_is_left_as_it_is(function: str, name: str) -> None:
    """Also where it is refused, as batch norm is. Training changes values of parameters alone.

    For a training it is in evaluation mode, else its parts are in modes of their own. A training
    may count its passes.
    """
    training = function.startswith("train")
    module, inputs, labels = built(name, torch.float64, training=not training)
    refused = False
    with (
        warnings.catch_warnings(action="ignore", category=ib.DiagnosisWarning),
        unchanged(module, values=not training),
    ):
        try:
            FUNCTIONS[function](module, inputs, labels)
        except ValueError:
            refused = True
    module(inputs).sum().backward()
    assert refused == (name == "batch norm")


def test_a_module_in_single_precision_is_measured_and_not_trained() -> None:
    module, inputs, labels = built("hooks", torch.float32, training=True)
    with unchanged(module):
        assert stationarity(module, (inputs,), labels).program.degree == 2.0
        with pytest.raises(ValueError, match="float64"):
            limit(module, inputs, labels)


def test_a_tied_weight_is_one_parameter() -> None:
    module, inputs, labels = built("tied", torch.float64, training=False)
    first, last = (p.detach().clone() for p in module.parameters())
    plain = Computed(
        lambda m, x: ((x @ m.first.T).relu() @ m.first.T).relu() @ m.last.T, first=first, last=last
    )
    found, expected = (stationarity(each, (inputs,), labels) for each in (module, plain))
    assert found.program.degree == pytest.approx(3.0)
    assert found.program.size == pytest.approx(expected.program.size)
    assert found.gap == pytest.approx(expected.gap)


def compiled(module: nn.Module) -> nn.Module:
    return cast(nn.Module, torch.compile(module, backend="eager"))


def returning(made: Callable[[Tensor], Any], *unseen: nn.Module) -> nn.Module:
    """Make something of the outputs, and keep parts where torch does not find them."""
    return Computed(
        lambda m, x: made(sum((part(x) for part in unseen), start=m.first(x))), first=linear(D)
    ).double()


def in_one_memory() -> nn.Module:
    first = drawn(D, D)
    module = Computed(lambda m, x: (x @ m.a @ m.b).sum(dim=1), a=first)
    module.b = nn.Parameter(first)
    return module


@pytest.mark.parametrize(
    ("build", "match"),
    [
        (in_one_memory, "share memory"),
        (lambda: returning(lambda y: y, linear(D).double()), "ModuleList"),
        (lambda: returning(lambda y: y * torch.rand(())), "random"),
        (lambda: returning(lambda y: y - y.mean()), "other samples"),
        (lambda: nn.Sequential(nn.ReLU(inplace=True), linear(D)).double(), "inputs"),
        (lambda: returning(lambda y: y.detach()), "detach"),
    ],
)
def test_what_cannot_be_measured_is_refused(build: Callable[[], nn.Module], match: str) -> None:
    torch.manual_seed(0)
    module = build()
    with unchanged(module), pytest.raises(ValueError, match=match):
        stationarity(module, (X,), np.ones(len(X)))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_function_checks_the_module_and_its_samples(function: str) -> None:
    """By `as_module`, `check_outputs`, `as_inputs` and `labels_as_array`, one case of each."""
    call = FUNCTIONS[function]
    torch.manual_seed(0)
    ones = np.ones(len(X))
    with pytest.raises(TypeError, match="_orig_mod"):
        call(compiled(layered()), X, ones)
    with pytest.raises(ValueError, match="dict"):
        call(returning(lambda y: {"y": y}), X, ones)
    with pytest.raises(ValueError, match="labels"):
        call(linear(D).double(), X, [None] * len(X))


def test_arguments_are_taken_to_float64_with_the_samples_first() -> None:
    """Arrays of any memory order; indices and masks stay what they are."""
    module = linear(D)
    features = np.asfortranarray(X.numpy()[::-1, ::2]).astype("f4")
    places = torch.arange(6)
    given = as_arguments((features, places, np.array([True] * 6)), module)
    first, second, third = as_inputs(given, 6, torch.device("cpu"))
    np.testing.assert_array_equal(first.numpy(), features)
    assert (first.dtype, second.dtype, third.dtype) == (torch.float64, torch.int64, torch.bool)
    with pytest.raises(ValueError, match="first axis"):
        as_inputs(given, 5, torch.device("cpu"))
