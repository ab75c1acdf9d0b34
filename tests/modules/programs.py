"""Tangent programs of small modules, with their gradients by brute force and their optimum."""

from collections.abc import Callable
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import Computed, drawn, layers, linear, margins_by_hand, own_labels, seeded
from implicit_bias.base.validation import Array
from implicit_bias.modules import tangent_program
from implicit_bias.modules.kinks import Pieces
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.norms import LInf, Spectral
from implicit_bias.norms.tensors import ComposedNorm, ParameterNorm, as_parameter_norm

N, D = 9, 4
X = drawn(N, D)
NORMS: dict[str, ParameterNorm] = {
    **{name: as_parameter_norm(name) for name in ("l2", "l1", "linf", "spectral", "nuclear")},
    "mixed": ComposedNorm({"": Spectral(), "2": LInf(), "scale": LInf()}, LInf(), scale={"2": 0.3}),
}


def mixed(outputs: int) -> nn.Module:
    """Use a matrix in nn.Linear, one in @, a convolution and a product with a vector: degree 4."""
    return seeded(
        Computed(
            lambda m, x: (
                m.conv((m.first(x).relu() @ m.second.T)[:, None]).relu().flatten(1) @ m.scale
            ),
            second=torch.empty(6, 5),
            scale=torch.empty(8, outputs),
            first=linear(D, 5),
            conv=nn.Conv1d(1, 2, 3, bias=False),
        ),
        2,
    )


def pooled() -> nn.Module:
    """Take the Euclidean norm of each pair of units."""
    pool: Any = nn.LPPool1d(2, 2)
    return seeded(nn.Sequential(linear(D, 8), nn.ReLU(), pool, linear(4)), 2)


def relu(outputs: int) -> nn.Module:
    return seeded(layers(D, 8, outputs), 2)


def labelled(module: nn.Module, X: Tensor = X) -> Margins:
    """Margins with labels that the module gets right."""
    return margins_of(module, X, own_labels(module, X))


def scaled(
    module: nn.Module, degree: float, norm: ParameterNorm = NORMS["l2"]
) -> tuple[tangent_program.TangentProgram, Array]:
    """Tangent program at margin 1; J by brute force."""
    function = labelled(module)
    q, J = margins_by_hand(module, X, function.labels)
    np.testing.assert_allclose(function.margins(function.theta), q)
    program = Subject(function, degree).at_margin_1(norm)
    assert program.margins.min() == pytest.approx(1.0)
    return program, J * program.scale ** (1 - degree)


CASES: dict[str, tuple[float, Callable[[], nn.Module]]] = {
    "relu-binary": (2.0, lambda: relu(1)),
    "relu-classes": (2.0, lambda: relu(3)),
    "mixed-binary": (4.0, lambda: mixed(1)),
    "mixed-classes": (4.0, lambda: mixed(3)),
    # Where all units of a root are off, its second derivative is not finite.
    "pooled-binary": (2.0, lambda: pooled()),
}


def by_cvxpy(function: Margins, J: Array, degree: float, norm: ParameterNorm) -> float:
    """Optimum of the tangent program."""
    w, parts, start = cp.Variable(J.shape[1]), {}, 0
    for name, shape in function.shapes.items():
        parts[name] = w[start : start + shape.numel()]
        start += shape.numel()
    program = cp.Problem(cp.Minimize(norm.atom(parts, function.shapes, cp)), [J @ w >= degree])
    return float(program.solve(solver=cp.CLARABEL))


def check_products(margins: Margins | Pieces, theta: Tensor, J: Array) -> None:
    """Compare the products with the gradients, of all pairs or of some, with those of J."""
    rng = np.random.default_rng(0)
    weights, w = rng.random(len(J)), rng.normal(size=J.shape[1])
    close = {"rtol": 1e-9, "atol": 1e-11 * np.abs(J).max() ** 2}
    np.testing.assert_allclose(margins.vjp(theta, weights), J.T @ weights, **close)
    np.testing.assert_allclose(margins.jvp(theta, torch.tensor(w)), J @ w, **close)
    for count in (len(J) // 2, len(J) - 2):
        some = rng.permutation(len(J))[:count]
        np.testing.assert_allclose(margins.rows(theta, some), J[some], **close)
        np.testing.assert_allclose(margins.gram(theta, some), J[some] @ J[some].T, **close)


def check(found: tangent_program.Multipliers, J: Array, degree: float) -> None:
    """Check that multipliers, direction and scaling are what they claim to be."""
    assert (found.weights >= 0).all()
    np.testing.assert_allclose(found.combination, J.T @ found.weights, atol=1e-9)
    assert found.lower**2 == pytest.approx(degree * found.weights.sum())
    assert (J @ found.direction.numpy()).min() >= degree * (1 - 1e-9)
