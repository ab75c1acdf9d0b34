"""On CUDA everything answers as on the processor: solvers, estimators, measurements, training."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import cases
import implicit_bias as ib
from example_modules import Square, drawn, layers, own_labels, seeded
from implicit_bias.datasets import make_toy
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts

if not torch.cuda.is_available():
    pytest.skip("no CUDA device here", allow_module_level=True)

CUDA = "cuda"
MOONS = make_toy("moons", 60, noise=0.05)
X = drawn(24, 5, seed=1)
IMAGES = drawn(24, 1, 6, 6, seed=1)
CONTEXTS = HyperplaneContexts.random(X.numpy(), 4, 1, random_state=0)


def convolutional(bias: bool = False) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, bias=bias), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3, bias=False)
    )


MODULES: dict[str, tuple[Callable[[], nn.Module], torch.Tensor]] = {
    "linear": (lambda: layers(5, 3), X),
    "relu": (lambda: layers(5, 8, 1), X),
    "deep": (lambda: layers(5, 6, 6, 3), X),
    "squared": (lambda: layers(5, 6, 1, between=Square), X),
    "convolutional": (convolutional, IMAGES),
    "biased": (lambda: convolutional(bias=True), IMAGES),
}
NORMS = ("l2", "l1", "linf", "spectral")


def both(name: str) -> tuple[nn.Module, nn.Module, torch.Tensor, Any]:
    """Return a module, its copy on the device, inputs and labels that it gets right."""
    build, inputs = MODULES[name]
    module = seeded(build(), seed=3)
    return module, copy.deepcopy(module).to(CUDA), inputs, own_labels(module, inputs)


@pytest.mark.parametrize("method", ["interior-point", "working-set", "auto"])
@pytest.mark.parametrize("name", cases.HANDFUL)
def test_problems_are_solved(name: str, method: str) -> None:
    problem = cases.separable(name)
    found = ib.solve(problem, method, device=CUDA)
    here = ib.solve(problem, method)
    assert found.status is here.status
    if here.status is ib.Status.OPTIMAL:
        assert found.certificate.upper == pytest.approx(here.certificate.upper, rel=1e-6)


@pytest.mark.parametrize(
    "name",
    [
        *(name + "-gated" * (name in ("l1.5gates", "layers")) for name in cases.NORMS),
        *cases.WEIGHTED,
    ],
)
def test_problems_of_every_norm_are_solved(name: str) -> None:
    problem = cases.of_norm(name)
    found, here = ib.solve(problem, device=CUDA), ib.solve(problem)
    assert found.status is here.status
    assert found.certificate.upper == pytest.approx(here.certificate.upper, rel=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        ib.GLNSVC(n_units=4, random_state=0),
        ib.GatedReLUSVC(n_units=6, random_state=0),
        ib.MaxMarginSVC(C=1.0),
        ib.GLNClassifier((4, 3), 2, random_state=0, steps=50),
        ib.GLNClassifier(4, random_state=0, steps=50, readout_bias=True, dtype="float32"),
        ib.ReLUClassifier((12, 12), random_state=0, steps=300),
    ],
    ids=lambda model: type(model).__name__,
)
def test_estimators_predict_the_same_and_can_be_pickled(model: Any) -> None:
    here = model.fit(MOONS.X, MOONS.y)
    there = copy.deepcopy(model).set_params(device=CUDA).fit(MOONS.X, MOONS.y)
    for model in (there, pickle.loads(pickle.dumps(there))):
        assert model.score(MOONS.X, MOONS.y) == pytest.approx(
            here.score(MOONS.X, MOONS.y), abs=0.05
        )


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", MODULES)
def test_modules_are_measured(name: str, norm: str) -> None:
    module, there, inputs, labels = both(name)
    here = ib.diagnose(module, inputs, labels, norm=norm, leading=True)
    for given in (inputs, inputs.to(CUDA), inputs.numpy()):
        found = ib.diagnose(there, given, labels, norm=norm, leading=True)
        assert found.gap_lower <= here.gap + 1e-6
        assert here.gap_lower <= found.gap + 1e-6
        assert found.min_margin == pytest.approx(here.min_margin, rel=1e-6)
    assert {p.device.type for p in there.parameters()} == {CUDA}
    assert str(found)
    found.plot()


def test_a_training_is_recorded_and_judged() -> None:
    _, module, inputs, labels = both("deep")
    module.float()
    inputs, targets = inputs.to(CUDA).float(), torch.tensor(labels, device=CUDA)
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    recorder = ib.Recorder(module, inputs, targets, [optimizer])
    for step in range(20):
        if step % 10 == 0:
            recorder.record(step)
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(module(inputs), targets))
        optimizer.step()
    assert len(recorder.frame()) == 2
    recorder.plot()
    found = ib.which_norm(module, inputs, targets, optimizer=optimizer)
    assert str(found)


def test_networks_of_this_package_are_trained_and_certified() -> None:
    found = []
    for device in ("cpu", CUDA):
        network = GLN([CONTEXTS], seed=0).double().to(device)
        y = np.where(X[:, 0].numpy() > 0, 1, -1)
        ib.train_to_limit(network, X.numpy(), y, ib.LimitConfig(steps=200))
        found.append(ib.certify_network(network, X.numpy(), y).certificate)
    assert found[1].lower <= found[0].upper * (1 + 1e-6)
    assert found[0].lower <= found[1].upper * (1 + 1e-6)
    assert found[1].gap < 1.0
