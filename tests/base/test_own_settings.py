"""What a caller sets for computations of his own changes no answer, and stays as he set it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import implicit_bias as ib
from implicit_bias.kernels.gradient_gram import ACTIVATIONS, finite_gram, gaussian_weights
from implicit_bias.networks import GLN
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training import TrainingConfig, train
from modules import Computed, drawn, of, own_labels

X = drawn(12, 3)
TRAINED = of(np.array([[1.0, 0.1, 0.0]]))
Y = own_labels(TRAINED, X)
PROBLEM = ib.max_margin(X.numpy(), Y)
FITTED = ib.GLNClassifier(3, steps=30, random_state=0).fit(X.numpy(), Y)
FEW = ib.LimitConfig(steps=3)

TRAINEE = deepcopy(TRAINED)


def network() -> GLN:
    return GLN([HyperplaneContexts.random(X, 3, random_state=0)])


def untrained() -> nn.Module:
    TRAINEE.load_state_dict(TRAINED.state_dict())
    return TRAINEE


ANSWERS: dict[str, Callable[[], object]] = {
    "diagnose": lambda: ib.diagnose(TRAINED, X, Y).gap,
    "which_norm": lambda: str(ib.which_norm(TRAINED, X, Y, norms=("l2", "linf"))),
    "Recorder": lambda: ib.Recorder(TRAINED, X, Y).record(),
    "train_to_limit": lambda: ib.train_to_limit(untrained(), X, Y, FEW).history[-1].norm,
    "train": lambda: train(network(), X.numpy(), Y, TrainingConfig(steps=3)).history[-1].norm,
    "finite_gram": lambda: finite_gram(
        X.numpy(), ACTIVATIONS["relu"], gaussian_weights(9, 3), biases=np.ones(9)
    ),
    "contexts": lambda: HyperplaneContexts.random(1e-300 * X, 3, random_state=0).thresholds,
    "certify_network": lambda: ib.certify_network(FITTED.network_, X.numpy(), Y).certificate.gap,
    "solve": lambda: ib.solve(PROBLEM).certificate.upper,
    "certify": lambda: ib.certify(PROBLEM, np.ones((1, 3)), np.full(12, 1e-320)).lower,
    "MaxMarginSVC": lambda: ib.MaxMarginSVC(C=1e-3).fit(X.numpy(), Y).decision_function(X.numpy()),
    "GLNSVC": lambda: ib.GLNSVC(3, random_state=0).fit(X.numpy(), Y).decision_function(X.numpy()),
    "GLNClassifier": lambda: (
        ib.GLNClassifier(3, steps=3, random_state=0)
        .fit(X.numpy(), Y)
        .predict_proba(1e3 * X.numpy())
    ),
    "GaLUClassifier": lambda: (
        ib.GaLUClassifier(3, random_state=0).fit(X.numpy(), Y).decision_function(X.numpy())
    ),
    "InfiniteWidthSVC": lambda: (
        ib.InfiniteWidthSVC(fit_intercept=False).fit(X.numpy(), Y).predict(X.numpy())
    ),
    "compare": lambda: ib.compare({"gln": FITTED}, X, Y, train=(X, Y)).models[0].scores[1],
}


@cache
def usual(ask: Callable[[], object]) -> object:
    return ask()


@contextmanager
def default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


SETTINGS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "errors-of-numpy": lambda: np.errstate(all="raise"),
    "default-device": default_device,
    "no-gradients": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.mark.every(5)
@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("ask", ANSWERS.values(), ids=ANSWERS)
def test_settings_of_the_caller(
    setting: Callable[[], AbstractContextManager[object]], ask: Callable[[], object]
) -> None:
    expected = usual(ask)
    with setting():
        before = torch.empty(0).device, np.geterr(), torch.is_grad_enabled()
        answer = ask()
        assert (torch.empty(0).device, np.geterr(), torch.is_grad_enabled()) == before
    if isinstance(expected, str):
        assert answer == expected
    else:
        assert answer == pytest.approx(expected, rel=1e-9)


def test_a_forward_pass_has_the_default_device_of_its_caller() -> None:
    found = []

    def noting(module: Any, x: torch.Tensor) -> torch.Tensor:
        found.append(torch.empty(0).device.type)
        return x @ module.weight

    module = Computed(noting, weight=torch.tensor([[1.0], [0.1], [0.0]], dtype=torch.float64))
    with default_device():
        ib.diagnose(module, X, Y)
        ib.train_to_limit(module, X, Y, FEW)
    assert {*found} == {"meta"}
