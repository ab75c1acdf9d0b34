"""Margins as an operator and the best multipliers: all against gradients by brute force."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from example_modules import Computed, drawn, layers, linear, margins_by_hand, of, own_labels, seeded
from implicit_bias.base.deadline import Deadline
from implicit_bias.base.validation import Array
from implicit_bias.modules import multipliers
from implicit_bias.modules.margins import Margins
from implicit_bias.modules.subject import Subject, margins_of
from implicit_bias.norms import L1, L2, LInf, Spectral
from implicit_bias.norms.tensors import ComposedNorm, ParameterNorm, as_parameter_norm
from implicit_bias.problem import Constraints, max_margin
from implicit_bias.solvers import solve

N, D = 9, 4
X = drawn(N, D)
NORMS: dict[str, ParameterNorm] = {
    **{name: as_parameter_norm(name) for name in ("l2", "l1", "linf", "spectral", "nuclear")},
    "sum-of-spectral": ComposedNorm(Spectral(), L1()),
    "max-of-l2": ComposedNorm(L2(), LInf()),
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
) -> tuple[multipliers.TangentProgram, Array]:
    """Pose the tangent program at margin 1; J by brute force."""
    gradients = labelled(module)
    q, J = margins_by_hand(module, X, gradients.labels)
    np.testing.assert_allclose(gradients.margins(gradients.theta), q)
    program = Subject(gradients, degree).at_margin_1(norm)
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


@pytest.mark.parametrize("blocks", [None, 3])
@pytest.mark.parametrize("name", CASES)
def test_products_with_the_gradients(name: str, blocks: int | None) -> None:
    degree, build = CASES[name]
    program, J = scaled(build(), degree)
    gradients, theta = program.gradients, program.theta
    gradients.entries = gradients.entries if blocks is None else blocks * len(theta)
    rng = np.random.default_rng(0)
    weights, w = rng.random(len(J)), rng.normal(size=J.shape[1])
    chosen = rng.permutation(len(J))[: len(J) - 2]
    np.testing.assert_allclose(gradients.combine(theta, weights), J.T @ weights, atol=1e-9)
    np.testing.assert_allclose(gradients.slopes(theta, torch.tensor(w)), J @ w, atol=1e-9)
    np.testing.assert_allclose(gradients.rows(theta, chosen), J[chosen], atol=1e-9)
    gram = gradients.gram(theta, chosen)
    np.testing.assert_allclose(gram, J[chosen] @ J[chosen].T, rtol=1e-9, atol=1e-9)
    others = rng.permutation(len(J))[:5]
    gram, J_other = gradients.gram(theta, chosen, others=others), J[others]
    np.testing.assert_allclose(gram, J[chosen] @ J_other.T, rtol=1e-10, atol=1e-10 * gram.max())
    np.testing.assert_allclose(J @ theta.numpy(), degree * gradients.margins(theta), rtol=1e-9)


def test_restricted_margins_hold_the_other_parameters() -> None:
    program, J = scaled(CASES["mixed-classes"][1](), 4.0)
    alone = program.gradients.restricted(["conv.weight"], program.theta)
    np.testing.assert_allclose(alone.margins(alone.theta), program.margins)
    shapes = program.gradients.shapes
    start = sum(shapes[k].numel() for k in shapes if k in ("first.weight", "second", "scale"))
    start -= shapes["scale"].numel() * (
        list(shapes).index("scale") > list(shapes).index("conv.weight")
    )
    np.testing.assert_allclose(
        alone.rows(alone.theta, np.arange(len(J))), J[:, start : start + 6], atol=1e-9
    )


def used_twice() -> nn.Module:
    """Use a matrix as one and entry by entry: its gradient is no outer product."""
    return Computed(
        lambda m, x: m.last(nn.functional.linear(x, m.matrix) + (m.matrix * x[:, None]).sum(2)),
        matrix=torch.empty(D, D),
        last=linear(D),
    )


@pytest.mark.parametrize(
    "build",
    [
        used_twice,
        lambda: nn.Sequential(*[linear(D, D)] * 2, linear(D)),
        lambda: nn.Sequential(nn.Linear(D, 5), nn.ReLU(), linear(5, 3)),
    ],
    ids=["twice", "tied", "bias"],
)
def test_grams_of_matrices_that_are_used_twice(build: Callable[[], nn.Module]) -> None:
    gradients = labelled(seeded(build(), 2))
    every = np.arange(len(gradients.pairs))
    J = gradients.rows(gradients.theta, every)
    np.testing.assert_allclose(gradients.gram(gradients.theta, every), J @ J.T, rtol=1e-9)


def by_cvxpy(gradients: Margins, J: Array, degree: float, norm: ParameterNorm) -> float:
    """Optimum of the tangent program."""
    w, parts, start = cp.Variable(J.shape[1]), {}, 0
    for name, shape in gradients.shapes.items():
        parts[name] = w[start : start + shape.numel()]
        start += shape.numel()
    program = cp.Problem(cp.Minimize(norm.atom(parts, gradients.shapes, cp)), [J @ w >= degree])
    return float(program.solve(solver=cp.CLARABEL))


def check(found: multipliers.Multipliers, J: Array, degree: float) -> None:
    """Check that multipliers, direction and scaling are what they claim to be."""
    assert (found.weights >= 0).all()
    np.testing.assert_allclose(found.combination, J.T @ found.weights, atol=1e-9)
    assert found.lower**2 == pytest.approx(degree * found.weights.sum())
    assert (J @ found.direction.numpy()).min() >= degree * (1 - 1e-9)


@pytest.mark.every(7)
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("norm", NORMS)
def test_the_best_multipliers_are_those_of_brute_force(name: str, norm: str) -> None:
    degree, build = CASES[name]
    program, J = scaled(build(), degree, NORMS[norm])
    found = multipliers.best_multipliers(program)
    optimum = by_cvxpy(program.gradients, J, degree, NORMS[norm])
    assert found.method == "exact"
    assert found.lower == pytest.approx(optimum, rel=1e-6)
    assert found.upper == pytest.approx(optimum, rel=1e-6)
    v = program.gradients.parameters(found.combination)
    assert found.lower == pytest.approx(NORMS[norm].dual(v))
    check(found, J, degree)


@dataclass(frozen=True)
class Wrapped:
    """A norm that cannot say itself in CVXPY, so that no solver takes its program."""

    norm: ParameterNorm

    def __getattr__(self, name: str) -> Any:
        if name not in ("value", "dual", "maximiser"):
            raise AttributeError(name)
        return getattr(self.norm, name)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l1", "linf", "spectral"])
def test_the_level_method_brackets_the_optimum(norm: str) -> None:
    program, J = scaled(relu(3), 2.0, as_parameter_norm(Wrapped(NORMS[norm])))
    start = multipliers.loss_weights(program.margins, 2)
    found, hurried = (
        multipliers.best_multipliers(program, seconds=seconds, starts=[start])
        for seconds in (4.0, 0.0)
    )
    optimum = by_cvxpy(program.gradients, J, 2.0, NORMS[norm])
    assert found.method == hurried.method == "level method"
    first = program.judge(start).lower * (1 - 1e-9)
    assert first <= hurried.lower < found.lower <= optimum * (1 + 1e-6)
    assert optimum * (1 - 1e-6) <= found.upper <= hurried.upper <= program.size * (1 + 1e-9)
    check(found, J, 2.0)


@pytest.mark.slow
def test_working_sets_exchange_their_pairs() -> None:
    """More pairs than the first set has; most of those of the smallest margins are not needed."""
    rng = np.random.default_rng(0)
    inputs = torch.tensor(rng.normal(size=(1500, 6)) + 3.0 * np.eye(6)[0])
    module = of(3.0 * np.eye(6)[:1] + 0.1)
    found = Subject(labelled(module, inputs), 1.0).measure(NORMS["l2"])
    assert found.method == "exact"
    assert found.upper == pytest.approx(found.lower, rel=1e-8)
    optimum = solve(max_margin(inputs.numpy(), found.program.gradients.labels), tol=1e-10)
    assert found.lower == pytest.approx(optimum.certificate.lower, rel=1e-7)


def test_out_of_time_the_bounds_so_far_are_returned() -> None:
    program, J = scaled(relu(3), 2.0)
    found = multipliers.best_multipliers(program, deadline=Deadline.after(0.0))
    best = multipliers.best_multipliers(program)
    assert (found.method, best.method) == ("stopped", "exact")
    assert 0 < found.lower <= best.lower * (1 + 1e-9)
    assert best.upper * (1 - 1e-9) <= found.upper <= program.size
    check(found, J, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("norm", ["l2", "l1", "linf"])
@pytest.mark.parametrize(("n_samples", "width"), [(1300, 20), (4000, 2)])
def test_many_pairs_are_solved_on_some(norm: str, n_samples: int, width: int) -> None:
    """More than the first working set has, and more than least squares take."""
    inputs = drawn(n_samples, width)
    gradients = labelled(seeded(linear(width), 2), inputs)
    found = Subject(gradients, 1.0).measure(NORMS[norm])
    optimum = solve(max_margin(inputs.numpy(), gradients.labels, norm), tol=1e-10)
    assert found.lower == pytest.approx(optimum.certificate.lower, rel=1e-6)
    assert found.upper == pytest.approx(optimum.certificate.upper, rel=1e-6)


def test_the_weights_of_the_loss_are_its_derivatives() -> None:
    outputs, labels = drawn(5, 3).requires_grad_(), torch.tensor([0, 1, 2, 0, 1])
    (slopes,) = torch.autograd.grad(
        nn.functional.cross_entropy(outputs, labels, reduction="sum"), outputs
    )
    pairs = Constraints.of_labels(labels.numpy(), 3, intercept=False)
    margins = pairs.margins(outputs.detach().numpy())
    expected = slopes.numpy()
    expected[np.arange(5), labels] = 0.0
    table = pairs.alpha(multipliers.loss_weights(margins, 2))
    np.testing.assert_allclose(table, expected / expected.max())
    huge = multipliers.loss_weights(np.array([800.0, 801.0]), 1)
    np.testing.assert_allclose(huge, [1.0, np.exp(-1.0)])


def test_two_classes_are_two_labels() -> None:
    """One output f and two outputs (-f / 2, f / 2) have the same margins, so the same gap."""
    single = relu(1)
    W, a = (p.detach().numpy() for p in single.parameters())
    both, y = of(W, np.vstack([-a / 2, a / 2]), between=nn.ReLU), own_labels(single, X)
    of_two = Margins(both, (X,), (y + 1) // 2, 2)
    of_one = Margins(single, (X,), y)
    np.testing.assert_allclose(of_two.margins(of_two.theta), of_one.margins(of_one.theta))
    # with the readout's two rows as one direction, its gradient is shorter by the root of 2
    weights = np.random.default_rng(0).random(N)
    v1 = of_one.parameters(of_one.combine(of_one.theta, weights))
    v2 = of_two.parameters(of_two.combine(of_two.theta, weights))
    np.testing.assert_allclose(v2["0.weight"], v1["0.weight"], atol=1e-12)
    np.testing.assert_allclose(v2["2.weight"], torch.cat([-v1["2.weight"], v1["2.weight"]]))
