"""The prox-linear method: its programs, its descent, and where it ends."""

from dataclasses import replace

import cvxpy as cp
import numpy as np
import pytest
import torch

from implicit_bias import HomogeneityError, LimitConfig, max_margin, solve, train_to_limit
from implicit_bias.networks import GLN
from implicit_bias.norms.tensors import as_parameter_norm
from implicit_bias.problem.gating import HyperplaneContexts
from implicit_bias.training.configuration import NormName
from implicit_bias.training.limit import Ending
from implicit_bias.training.prox_linear import MOST_ENTRIES, ProxLinear
from implicit_bias.training.steepest import SteepestDescent
from implicit_bias.training.trainee import as_trainee
from modules import Computed, known
from training.samples import LABELS, NORMS, SIGNS, X2, X4, flat, two_layers


def prox_linear(**options: object) -> LimitConfig:
    return LimitConfig(method="prox-linear", **options)  # type: ignore[arg-type]


@pytest.mark.every(5)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("classes", [1, 4])
def test_a_linear_module_ends_at_the_certified_optimum(norm: NormName, classes: int) -> None:
    inputs, labels = (X2, SIGNS) if classes == 1 else (X4, LABELS)
    optimum = solve(max_margin(inputs, labels, norm), tol=1e-10).certificate.lower
    config = prox_linear(steps=200, norm=norm)
    result = train_to_limit(flat(classes), inputs, labels, config, optimum=optimum)
    assert result.ending is Ending.STALLED
    assert result.history[-1].excess == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("scale", [1e-200, 1e100, 1e200])
def test_inputs_of_any_size(scale: float) -> None:
    """Squares of the weights at margin 1 overflow, are nearly 0, and underflow."""
    norms = []
    for size in (1.0, scale):
        module = flat(scale=0.1)
        labels = np.sign(module(torch.tensor(X2)).detach().numpy()[:, 0])
        result = train_to_limit(module, size * X2, labels, prox_linear(steps=50))
        norms.append(result.history[-1].norm * size)
    assert norms[1] == pytest.approx(norms[0], rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l1", "linf"])
@pytest.mark.parametrize("change", [0.0, 1e-10, 1e-6, 1e-3, 0.01, 0.03])
def test_a_network_comes_nearer_than_by_steepest_descent(norm: NormName, change: float) -> None:
    """In 120 steps, from starts that lead to other kinks; steepest descent is far in l1 and linf.

    Steps that know one side of a kink alone ended at gaps of .25 (linf) and .99 (l1).
    """
    gaps = []
    for config in (LimitConfig(steps=120, norm=norm), prox_linear(steps=120, norm=norm)):
        module, generator = two_layers(), torch.Generator().manual_seed(5)
        with torch.no_grad():
            for p in module.parameters():
                p.mul_(1.0 + change * torch.randn(p.shape, generator=generator, dtype=p.dtype))
        train_to_limit(module, X4, LABELS, config)
        gaps.append(as_trainee(module, X4, LABELS, as_parameter_norm(norm)).gap())
    assert change > 0.0 or not gaps[0] < 0.5  # or not separated
    assert gaps[1] < 0.15


def test_the_norm_at_margin_1_falls_in_each_step() -> None:
    module, norm = two_layers(), as_parameter_norm("linf")
    trainee = as_trainee(module, X4, LABELS, norm)
    config = prox_linear(norm="linf")
    descent = ProxLinear(trainee, config, before=SteepestDescent(trainee, config))
    state, sizes = descent.start(), list[float]()
    while len(sizes) < 10:
        state = known(descent.advance(state))
        if state.min_margin > 0:
            assert state.min_margin == pytest.approx(1.0)
            sizes.append(norm.value(descent.by_name(state.weights)))
    assert (np.diff(sizes) < 0).all()


@pytest.mark.every(3)
@pytest.mark.parametrize("norm", NORMS)
def test_a_step_by_hand(norm: NormName) -> None:
    """The program on all pairs, said in other words to another solver, then scaled to margin 1.

    The method begins with some of the pairs, which others have to join.
    """
    module, geometry = two_layers(), as_parameter_norm(norm)
    train_to_limit(module, X4, LABELS, LimitConfig(steps=60))
    trainee = as_trainee(module, X4, LABELS, geometry)
    config = prox_linear(norm=norm)
    descent = ProxLinear(trainee, config, before=SteepestDescent(trainee, config), first_pairs=5)
    taken = 2.0**-6  # short enough that no attempt fails
    state = replace(descent.start(), step_size=taken)
    following = known(descent.advance(state))
    assert following.evaluations == state.evaluations + 1
    gradients = trainee.gradients
    theta = state.weights.numpy()
    J = gradients.rows(state.weights, np.arange(len(gradients.pairs)))
    change = cp.Variable(len(theta))
    w = theta + change
    first, second = w[:30], w[30:]
    size = {
        "l2": cp.norm(w, 2),
        "l1": cp.norm(first, 1) + cp.norm(second, 1),
        "linf": cp.maximum(cp.norm(first, "inf"), cp.norm(second, "inf")),
        "spectral": cp.maximum(
            cp.sigma_max(cp.reshape(first, (6, 5), order="C")),
            cp.sigma_max(cp.reshape(second, (4, 6), order="C")),
        ),
    }[norm]
    before = geometry.value(descent.by_name(state.weights))
    mu = before / (taken * theta @ theta)
    q = gradients.margins(state.weights)
    program = cp.Problem(cp.Minimize(size + mu / 2 * cp.sum_squares(change)), [q + J @ change >= 1])
    program.solve(cp.CLARABEL, tol_gap_abs=1e-9, tol_gap_rel=1e-9, tol_feas=1e-9)
    end = torch.tensor(theta + change.value)
    end *= gradients.margins(end).min() ** -0.5
    assert float((end - following.weights).norm()) < 1e-5 * np.linalg.norm(theta)


def test_what_it_does_not_take_is_refused() -> None:
    """As where there are more weights than the programs hold gradients of."""
    many = torch.zeros(MOST_ENTRIES // 30, dtype=torch.float64)
    wide = Computed(lambda m, x: x.sum(dim=1) * m.weights.sum(), weights=many)
    with pytest.raises(ValueError, match="gradients"):
        train_to_limit(wide, X2, SIGNS, prox_linear())
    contexts = HyperplaneContexts.random(X2, 4, 1, random_state=0)
    with pytest.raises(HomogeneityError, match="readout_bias"):
        train_to_limit(GLN([contexts], readout_bias=True), X2, SIGNS, prox_linear())
