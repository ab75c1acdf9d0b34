"""The products of the native solvers against the definitions in loops."""

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import (
    SEPARABLE,
    build,
    cloud,
    dense,
    free,
    gln,
    loop_dual_norms,
    loop_dual_vectors,
    loop_feature_norms,
    loop_groups,
    separable,
    units,
)
from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.solvers import scaled_problem as kernels
from implicit_bias.solvers.scaled_problem import ScaledProblem, peak_memory

RTOL = 1e-9


def constant_inputs() -> MarginProblem:
    """Two constant columns beside the appended 1, one of them of zeros, and one negative."""
    X, y = cloud()
    return build((np.column_stack([X, 0 * y, -2.0 + 0 * y]), y), gln())


def all_inputs_constant() -> MarginProblem:
    return MarginProblem(np.ones((4, 3)), np.ones(4), np.eye(4)[:, :3] + 1, np.array([0, 0, 1]))


def one_hot(widths: list[int], *, value: float = 1.0) -> MarginProblem:
    """One gate of each group fires at each sample, with the same value."""
    X, y = cloud(40, 5)
    rng = np.random.default_rng(1)
    blocks = [value * np.eye(width)[rng.integers(width, size=40)] for width in widths]
    return MarginProblem(X, y, np.hstack(blocks), np.repeat(np.arange(len(widths)), widths))


def mixed_sums() -> MarginProblem:
    """Mix a one-hot group, one whose sums vary, a constant gate, and a gate that never fires."""
    X, y = cloud()
    rng = np.random.default_rng(2)
    hot, varying = np.eye(3)[rng.integers(3, size=30)], rng.normal(size=(30, 2))
    gates = np.column_stack([hot, varying, np.full(30, 0.7), np.zeros(30), hot[:, :1]])
    return MarginProblem(X, y, gates, np.array([0, 0, 0, 1, 1, 2, 0, 3]))


def scattered_columns() -> MarginProblem:
    """Shuffle columns: those of a group do not stand side by side."""
    problem = one_hot([3, 2, 3])
    order = np.random.default_rng(3).permutation(problem.n_gates)
    return MarginProblem(
        problem.X, problem.y, problem.gates[:, order], problem.groups[order], C=0.3
    )


CASES: dict[str, Callable[[], MarginProblem]] = {
    **SEPARABLE,
    "constant-inputs": constant_inputs,
    "all-inputs-constant": all_inputs_constant,
    "one-hot-narrow": lambda: one_hot([2, 3, 2]),
    "one-hot-widths-1-8-9": lambda: one_hot([1, 8, 9]),
    "one-hot-times-minus-2": lambda: one_hot([3, 4], value=-2.0),
    "mixed-sums": mixed_sums,
    "scattered-columns-soft": scattered_columns,
    "never-on": lambda: MarginProblem(*cloud(6, 3), np.zeros((6, 2)), np.arange(2)),
}


@cache
def case(name: str) -> tuple[MarginProblem, ScaledProblem]:
    problem = CASES[name]()
    return problem, ScaledProblem(problem, torch.device("cpu"))


def dual_vectors(problem: MarginProblem, kernel: ScaledProblem, alpha: Array) -> torch.Tensor:
    return kernel.rows.dual_vectors(kernel.tensor(alpha) * kernel.nu)


def some_alpha(problem: MarginProblem) -> Array:
    return np.random.default_rng(5).random(problem.n_samples)


def some_scales(problem: MarginProblem) -> Array:
    return np.random.default_rng(6).random(problem.n_groups)


def agree(found: torch.Tensor | Array, expected: Array) -> None:
    scale = max(float(np.abs(expected).max()), np.finfo(float).tiny)
    np.testing.assert_allclose(np.asarray(found) / scale, expected / scale, rtol=0, atol=RTOL)


@pytest.mark.parametrize("name", CASES)
def test_samples_are_scaled_to_norm_1(name: str) -> None:
    problem, kernel = case(name)
    norms = loop_feature_norms(problem)
    scale = np.sqrt(np.mean(norms**2)) or 1.0
    agree(kernel.nu, np.where(norms > 0, norms, scale))
    agree(kernel.b, scale / np.where(norms > 0, norms, scale))
    assert kernel.soft == (not np.isinf(problem.C))
    if kernel.soft:
        agree(kernel.C, problem.C * np.where(norms > 0, norms, scale))
    pairs = problem.n_samples + problem.n_groups + kernel.soft * problem.n_samples
    assert kernel.n_pairs == pairs


@pytest.mark.parametrize("name", CASES)
def test_dual_norms_and_inner_products(name: str) -> None:
    problem, kernel = case(name)
    alpha, other = some_alpha(problem), some_alpha(problem)[::-1].copy()
    V, W = dual_vectors(problem, kernel, alpha), dual_vectors(problem, kernel, other)
    agree(kernel.rows.inner(V, V), loop_dual_norms(problem, alpha) ** 2)
    polarised = loop_dual_norms(problem, alpha + other) ** 2
    polarised -= loop_dual_norms(problem, alpha) ** 2 + loop_dual_norms(problem, other) ** 2
    agree(kernel.rows.inner(V, W), polarised / 2)


def gram(problem: MarginProblem, group: int) -> Array:
    """Q_g, by definition."""
    columns, P = loop_groups(problem)[group]
    Z = dense(problem.gates)[:, columns]
    yX = problem.y[:, None] * problem.X
    return (yX @ yX.T) * (Z @ P @ Z.T)


@pytest.mark.parametrize("name", CASES)
def test_group_products_are_gram_times_alpha(name: str) -> None:
    problem, kernel = case(name)
    alpha = some_alpha(problem)
    U = kernel.rows.group_products(dual_vectors(problem, kernel, alpha))
    by_hand = [gram(problem, g) @ alpha for g in range(problem.n_groups)]
    agree(U, np.array(by_hand).T / kernel.nu.numpy()[:, None])


@pytest.mark.parametrize("block", [7, 512])
@pytest.mark.parametrize("name", CASES)
def test_curvature_is_the_weighted_gram(
    name: str, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "BLOCK", block)
    problem, kernel = case(name)
    d = some_scales(problem)
    expected = sum(d[g] * gram(problem, g) for g in range(problem.n_groups))
    expected = expected / np.outer(kernel.nu, kernel.nu)
    rows = kernel.samples.subset(torch.arange(problem.n_samples))  # with no K of another block size
    for _ in range(2):  # the second call overwrites the first
        Q = rows.curvature(kernel.tensor(d))
        agree(np.tril(Q), np.tril(expected))
    assert Q.T.is_contiguous()  # by columns: what LAPACK factors in place
    agree(rows.curvature_diagonal(kernel.tensor(d)), np.diag(expected))
    some = torch.tensor([0, problem.n_samples - 1])
    part = rows.subset(some)
    agree(
        np.tril(part.curvature(kernel.tensor(d))),
        np.tril(expected[np.ix_(some.numpy(), some.numpy())]),
    )
    yX = rows.yX
    agree(rows.masked(yX @ yX.T, kernel.tensor(d)), expected)


@pytest.mark.parametrize("name", CASES)
def test_coefficients_come_back_as_posed(name: str) -> None:
    """zeta_g = d_g P_g V_g, through the merged inputs, the rotated gates and the metric's root."""
    problem, kernel = case(name)
    alpha, d = some_alpha(problem), some_scales(problem)
    expected = loop_dual_vectors(problem, np.where(problem.zero_features, 0.0, alpha))
    for g, (columns, P) in enumerate(loop_groups(problem)):
        expected[columns] = d[g] * P @ expected[columns]
    agree(kernel.coef(dual_vectors(problem, kernel, alpha), kernel.tensor(d)), expected)


def shape(problem: MarginProblem) -> tuple[int, int]:
    """Count the inputs and gates that the kernel keeps, the shared ones included."""
    rows = ScaledProblem(problem, torch.device("cpu")).samples
    return rows.yX.shape[1], rows.Z.shape[1]


def test_constant_inputs_are_one_feature() -> None:
    problem = constant_inputs()
    assert shape(problem)[0] == problem.X.shape[1] - 3 + 1


@pytest.mark.parametrize(("n_units", "n_hyperplanes"), [(4, 1), (3, 2), (5, 2)])
def test_one_hot_gates_lose_a_column_a_group(n_units: int, n_hyperplanes: int) -> None:
    """H C gates become H (C - 1) + 1."""
    problem = build(cloud(200, 4), gln(n_units, n_hyperplanes))
    assert shape(problem)[1] == n_units * (2**n_hyperplanes - 1) + 1


def test_gates_without_a_constant_sum_stay() -> None:
    problem = free(cloud(), [0, 1, 1, 2])
    np.testing.assert_allclose(
        ScaledProblem(problem, torch.device("cpu")).rows.Z[:, :-1], np.asarray(problem.gates)
    )
    always_on = build(cloud(), units(5))  # its constant gate is the shared column
    assert shape(always_on)[1] == always_on.n_gates


@settings(max_examples=30, deadline=None)
@given(
    widths=st.lists(st.integers(1, 10), min_size=1, max_size=4),
    seed=st.integers(0, 1000),
    hot=st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_any_groups_in_any_order(widths: list[int], seed: int, hot: list[bool]) -> None:
    """The rotation loses nothing: norms and coefficients are those of the definition."""
    rng = np.random.default_rng(seed)
    X, y = cloud(12, 4, seed=seed)
    blocks = [
        np.eye(width)[rng.integers(width, size=12)] if one else rng.normal(size=(12, width))
        for width, one in zip(widths, hot, strict=False)
    ]
    groups = np.repeat(np.arange(len(widths)), widths)
    order = rng.permutation(len(groups))
    problem = MarginProblem(X, y, np.hstack(blocks)[:, order], groups[order])
    kernel = ScaledProblem(problem, torch.device("cpu"))
    alpha, d = rng.random(12), rng.random(problem.n_groups)
    V = dual_vectors(problem, kernel, alpha)
    agree(kernel.rows.inner(V, V), loop_dual_norms(problem, alpha) ** 2)
    expected = loop_dual_vectors(problem, alpha) * d[problem.groups][:, None]
    agree(kernel.coef(V, kernel.tensor(d)), expected)


def test_memory_grows_with_the_system() -> None:
    problem = separable("gln-many-units")
    n = problem.n_samples
    everything = peak_memory(n, problem)
    assert everything == peak_memory(n, problem, n)
    assert everything - peak_memory(n, problem, 0) == 8 * 2 * n**2
    assert peak_memory(n, problem, n, n_squares=3) - everything == 8 * n**2
    assert peak_memory(2 * n, problem) > 2 * everything
