"""Products class by class against those of the pairs' features written out."""

import numpy as np
import pytest
import torch

from implicit_bias.base.validation import Array
from implicit_bias.norms import GroupNorm
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import Rows, grouped_rows, row_index
from implicit_bias.solvers.scaled_pairs import ScaledPairs
from implicit_bias.solvers.scaled_problem import ScaledProblem, ScaledSamples

ATOL = 1e-12


def gated(gates: str, *, apart: bool, C: float = np.inf) -> tuple[MarginProblem, Rows]:
    """Return some pairs of a problem of four classes and two groups of three gates."""
    rng = np.random.default_rng(0)
    n, D, width = 14, 4, 3
    X = rng.normal(size=(n, D))
    X[:, -1] = 1.0
    Z = np.hstack([np.eye(width)[rng.integers(0, width, n)] for _ in range(2)])
    if gates == "dense":
        Z = rng.normal(size=Z.shape) * (rng.random(Z.shape) < 0.7) + 1e-3
    groups = np.repeat([0, 1], width)
    norm = GroupNorm(groups, apart=apart)
    problem = MarginProblem(X, (np.arange(n) % 4).astype(np.float64), Z, groups, norm=norm, C=C)
    samples, rivals = row_index(problem)
    kept = np.sort(rng.permutation(len(samples))[:23])
    return problem, grouped_rows(problem, (samples[kept], rivals[kept]))


def features(problem: MarginProblem, rows: Rows, scaled: ScaledProblem) -> Array:
    """Features of the pairs, (P, K, M, D), with norm 1."""
    assert rows.owners is not None
    assert rows.rivals is not None
    Phi = np.zeros((len(rows), 4, problem.n_gates, problem.X.shape[1]))
    Z = problem.plain_gates.toarray()
    for p, (n, own, rival) in enumerate(zip(rows.samples, rows.owners, rows.rivals, strict=True)):
        z = np.outer(Z[n], problem.X[n]) / float(scaled.nu[p])
        Phi[p, own] += z
        Phi[p, rival] -= z
    return Phi


def by_group(problem: MarginProblem, *, apart: bool) -> list[tuple[int | slice, int]]:
    """Classes and gate group of each group of the problem."""
    return (
        [(k, g) for k in range(4) for g in range(2)]
        if apart
        else [(slice(None), g) for g in range(2)]
    )


@pytest.mark.parametrize("gates", ["contexts", "dense"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("some", [False, True])
def test_products_are_those_of_the_features(gates: str, apart: bool, some: bool) -> None:
    problem, rows = gated(gates, apart=apart, C=np.inf if gates == "dense" else 0.5)
    scaled = ScaledProblem(problem, torch.device("cpu"), rows=rows)
    pairs, Phi = scaled.rows, features(problem, rows, scaled)
    assert isinstance(pairs, ScaledPairs)
    if some:
        index = np.array([1, 4, 5, 9, 20])
        pairs, Phi = pairs.subset(torch.tensor(index)), Phi[index]
    rng = np.random.default_rng(1)
    alpha, d = rng.random(len(Phi)), rng.random(problem.n_groups)
    V = np.einsum("p,pkmd->kmd", alpha, Phi)
    found = pairs.dual_vectors(torch.tensor(alpha))
    products, squares, Q = [], [], np.zeros((len(Phi), len(Phi)))
    for (classes, g), weight in zip(by_group(problem, apart=apart), d, strict=True):
        columns = problem.groups == g
        part = Phi[:, classes][..., columns, :].reshape(len(Phi), -1)
        own = V[classes][..., columns, :].ravel()
        products.append(part @ own)
        squares.append(own @ own)
        Q += weight * part @ part.T
    np.testing.assert_allclose(np.asarray(pairs.inner(found, found)), squares, rtol=0, atol=ATOL)
    np.testing.assert_allclose(
        np.asarray(pairs.group_products(found)), np.transpose(products), rtol=0, atol=ATOL
    )
    scales = torch.tensor(d)
    for _ in range(2):  # the second overwrites the first
        lower = torch.tril(pairs.curvature(scales))
        np.testing.assert_allclose(np.asarray(lower), np.tril(Q), rtol=0, atol=ATOL)
    np.testing.assert_allclose(
        np.asarray(pairs.curvature_diagonal(scales)), np.diag(Q), rtol=0, atol=ATOL
    )


@pytest.mark.parametrize("gates", ["contexts", "dense"])
def test_coefficients_come_back(gates: str) -> None:
    problem, rows = gated(gates, apart=True)
    scaled = ScaledProblem(problem, torch.device("cpu"), rows=rows)
    rng = np.random.default_rng(2)
    alpha, d = rng.random(len(rows)), rng.random(problem.n_groups)
    V = scaled.rows.dual_vectors(torch.tensor(alpha))
    expected = np.einsum("p,pkmd->kmd", alpha, features(problem, rows, scaled))
    expected *= d.reshape(4, 2).repeat(3, axis=1)[:, :, None]
    found = scaled.coef(V, torch.tensor(d))
    np.testing.assert_allclose(found, expected, rtol=0, atol=ATOL)


def test_groups_that_differ_from_class_to_class_are_written_out() -> None:
    problem, rows = gated("dense", apart=True)
    groups = rows.groups.copy()
    groups[:2] = groups[1::-1]
    groups[2] = groups[3]
    other = Rows(**vars(rows) | {"groups": np.unique(groups, return_inverse=True)[1]})
    scaled = ScaledProblem(problem, torch.device("cpu"), rows=other)
    assert isinstance(scaled.rows, ScaledSamples)
