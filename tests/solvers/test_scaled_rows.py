"""The products of the interior points, by their definitions."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from cases import SEPARABLE, build, cloud, dense, gln
from implicit_bias.base.validation import Array
from implicit_bias.norms import Nuclear
from implicit_bias.problem import Constraints, MarginProblem
from implicit_bias.solvers.base import Start
from implicit_bias.solvers.scaled_rows import ScaledRows
from implicit_bias.solvers.scaling import Layout, ScaledProblem
from oracles import loop_dual_vectors, loop_feature_norms, loop_groups

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
    hot = np.eye(3)[rng.integers(3, size=30)]
    varying = rng.normal(size=(30, 2))
    gates = np.column_stack([hot, varying, np.full(30, 0.7), np.zeros(30), hot[:, :1]])
    return MarginProblem(X, y, gates, np.array([0, 0, 0, 1, 1, 2, 0, 3]))


def scattered_columns() -> MarginProblem:
    """Shuffle columns: those of a group do not stand side by side."""
    problem = one_hot([3, 2, 3])
    order = np.random.default_rng(3).permutation(problem.n_gates)
    return MarginProblem(
        problem.X, problem.y, problem.gates[:, order], problem.groups[order], C=0.3
    )


OF_THE_TABLE = ["gln", "sparse-gates", "dead-group", "svm-l2", "one-class", "soft-linear"]
CASES: dict[str, Callable[[], MarginProblem]] = {
    **{name: SEPARABLE[name] for name in OF_THE_TABLE},
    "constant-inputs": constant_inputs,
    "all-inputs-constant": all_inputs_constant,
    "one-hot-times-minus-2": lambda: one_hot([3, 9], value=-2.0),
    "mixed-sums": mixed_sums,
    "scattered-columns-soft": scattered_columns,
    "never-on": lambda: MarginProblem(*cloud(6, 3), np.zeros((6, 2)), np.arange(2)),
}


def scaled_of(problem: MarginProblem, rows: Constraints | None = None) -> ScaledProblem:
    return ScaledProblem(Layout.of_groups(problem, rows), torch.device("cpu"))


def agree(found: torch.Tensor | Array, expected: Array) -> None:
    scale = max(float(np.abs(expected).max()), np.finfo(float).tiny)
    np.testing.assert_allclose(np.asarray(found) / scale, expected / scale, rtol=0, atol=RTOL)


def gram(problem: MarginProblem, group: int) -> Array:
    """Q_g, by definition."""
    Z = dense(problem.gates)[:, loop_groups(problem)[group]]
    yX = problem.y[:, None] * problem.X
    return (yX @ yX.T) * (Z @ Z.T)


@pytest.mark.parametrize("name", CASES)
def test_products_of_two_classes_by_definition(name: str) -> None:
    problem = CASES[name]()
    scaled = scaled_of(problem)
    norms = loop_feature_norms(problem)
    nu = np.where(norms > 0, norms, np.sqrt(np.mean(norms**2)) or 1.0)
    agree(scaled.nu, nu)
    agree(scaled.b, (np.sqrt(np.mean(norms**2)) or 1.0) / nu)
    if scaled.soft:
        agree(scaled.C, problem.C * nu)
    rng = np.random.default_rng(5)
    alpha, other, d = *rng.random((2, problem.n_samples)), rng.random(problem.n_groups)
    rows = scaled.rows
    scales = scaled.tensor(d)
    V, W = (rows.dual_vectors(scaled.tensor(x) * scaled.nu) for x in (alpha, other))
    grams = [gram(problem, g) for g in range(problem.n_groups)]
    agree(rows.inner(V, W), np.array([alpha @ Q @ other for Q in grams]))
    agree(rows.group_products(V), np.array([Q @ alpha for Q in grams]).T / nu[:, None])
    # zeta_g = d_g V_g, through the merged inputs, and the rotated gates.
    expected = loop_dual_vectors(problem, np.where(problem.zero_features, 0.0, alpha))
    for g, columns in enumerate(loop_groups(problem)):
        expected[columns] *= d[g]
    agree(scaled.coef_of(V, scales), expected)
    whole = sum(scale * Q for scale, Q in zip(d, grams, strict=True)) / np.outer(nu, nu)
    for index in (np.arange(problem.n_samples), np.array([0, problem.n_samples - 1])):
        part = rows.subset(torch.tensor(index))
        expected = whole[np.ix_(index, index)]
        for _ in range(2):  # the second call overwrites the first
            Q = part.curvature(scales)
            agree(np.tril(Q), np.tril(expected))
        assert Q.T.is_contiguous()  # by columns: what LAPACK factors in place
        agree(part.curvature_diagonal(scales), np.diag(expected))


def test_curvature_in_several_blocks() -> None:
    rng = np.random.default_rng(0)
    n = 2 * ScaledRows.block + 3
    problem = MarginProblem(
        rng.normal(size=(n, 3)), np.sign(rng.normal(size=n)), rng.normal(size=(n, 2)), np.arange(2)
    )
    scaled = scaled_of(problem)
    nu = problem.feature_norms
    expected = (gram(problem, 0) + 2 * gram(problem, 1)) / np.outer(nu, nu)
    agree(np.tril(scaled.rows.curvature(scaled.tensor(np.array([1.0, 2.0])))), np.tril(expected))


# --- many classes ----------------------------------------------------------------------------


def four_classes(C: float) -> tuple[MarginProblem, Constraints]:
    """Return a problem of four classes and six gates, and some of its constraints."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(14, 4))
    X[:, -1] = 1.0
    Z = rng.normal(size=(14, 6)) * (rng.random((14, 6)) < 0.7) + 1e-3
    y: Any = np.arange(14) % 4
    problem = MarginProblem(X, y, Z, np.repeat([0, 1], 3), norm=Nuclear(), C=C)
    rows = problem.constraints
    return problem, rows.subset(np.sort(rng.permutation(len(rows))[:23]))


def features_of(problem: MarginProblem, chosen: Constraints) -> Array:
    """Features of the constraints, (P, K, M, D)."""
    Z = problem.features.sparse_gates.toarray()
    unit = np.eye(4)
    rows = [
        np.einsum("k,m,d->kmd", unit[problem.sample_classes[n]] - unit[k], Z[n], problem.X[n])
        for n, k in zip(chosen.samples, chosen.rivals, strict=True)
    ]
    return np.array(rows)


@pytest.mark.parametrize(("C", "merge"), [(np.inf, False), (0.5, True)])
def test_products_of_features_by_definition(
    C: float, merge: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phi' alpha, Phi zeta, Phi Phi', Phi' D^-1 Phi and the way back, of Phi row by row."""
    problem, chosen = four_classes(C)
    scaled = ScaledProblem(Layout.of_features(problem, chosen, merge=merge), torch.device("cpu"))
    rows = scaled.rows
    Phi = features_of(problem, chosen)
    P = len(Phi)
    Phi = Phi.reshape(P, 4, -1)
    Phi /= np.linalg.norm(Phi.reshape(P, -1), axis=1)[:, None, None]
    rng = np.random.default_rng(4)
    alpha, h = rng.random((2, P))
    inside = scaled.layout.inputs.inside
    agree(rows.dual_vectors(torch.tensor(alpha))[:, 0], inside(np.einsum("p,pkf->kf", alpha, Phi)))
    zeta = inside(np.einsum("p,pkf->kf", h, Phi))
    agree(
        rows.apply(torch.tensor(zeta)),
        np.einsum("pkf,kf->p", Phi, scaled.layout.inputs.expand(zeta)),
    )
    samples, place = np.unique(chosen.samples, return_inverse=True)
    same = place[:, None] == place
    n = len(samples)
    grams, left, right = (rng.random(size) for size in ((2, n, n), (2, P, 3), (P, 3)))
    masked = rows.masked_by_labels(
        [*torch.tensor(grams)], [*torch.tensor(left)], torch.tensor(right)
    )
    expected = np.einsum("bpq,bpr,qr->pq", grams[:, place[:, None], place], left, right)
    agree(masked.triu(), np.triu(expected))
    loose = rng.random(n)
    basis = rng.normal(size=(4, 3))
    by_class = np.einsum("pkf,kr->prf", np.stack([inside(Phi[:, k]) for k in range(4)], 1), basis)
    flat = by_class.reshape(P, -1)
    inverse = np.linalg.inv(np.diag(1.0 / h) + same / loose[place])
    # All pairs of classes at once, one by one, and as a Laplacian.
    for few, many in ((200, 20), (0, 20), (0, 2)):
        monkeypatch.setattr(ScaledRows, "few_features", few)
        monkeypatch.setattr(ScaledRows, "many_classes", many)
        hard = rows.normal_matrix(torch.tensor(h), None, torch.tensor(basis))
        agree(hard.triu(), np.triu(flat.T @ np.diag(h) @ flat))
        soft = rows.normal_matrix(torch.tensor(h), torch.tensor(loose), torch.tensor(basis))
        agree(soft.triu(), np.triu(flat.T @ inverse @ flat))
        for weights, exact in ((None, hard), (torch.tensor(loose), soft)):
            coarse = rows.normal_matrix(torch.tensor(h), weights, torch.tensor(basis), coarse=True)
            assert 0.0 < (coarse - exact).abs().max() < 1e-5 * exact.abs().max()
    answer = scaled.answer(
        torch.tensor(alpha), torch.tensor(zeta)[:, None], torch.ones(1), scaled.offset()
    )
    start = Start(alpha=answer.alpha, group_norms=np.ones(1), coef=answer.coef)
    agree(scaled.start_alpha(start), alpha)
    agree(scaled.start_coef(start), zeta)
