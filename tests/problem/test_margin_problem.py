"""The margin problem: its products against loops, SVM-L2's norm, and errors of input."""

import copy
import itertools
import pickle
from dataclasses import replace
from typing import Any

import cvxpy as cp
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from numpy.typing import ArrayLike

import oracles
from cases import SEPARABLE, cloud, dense, separable
from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L1,
    L2,
    GroupNorm,
    MaxOverGroups,
    Norm,
    Nuclear,
    Schatten,
    Spectral,
    SumOverGroups,
)
from implicit_bias.problem import BLOCK, Architecture, MarginProblem, decision, max_margin
from implicit_bias.problem.euclidean import classes_share_groups
from implicit_bias.problem.gating import HyperplaneContexts, l2_gates
from implicit_bias.solvers import solve

# Agreement of two exact formulas, relative to the size of the terms.
EXACT = 1e-10


@pytest.fixture(params=SEPARABLE)
def problem(request: pytest.FixtureRequest) -> MarginProblem:
    return separable(request.param)


def close(actual: Array, expected: Array) -> None:
    size = max(float(np.abs(expected).max()), np.finfo(float).tiny)
    np.testing.assert_allclose(actual / size, expected / size, rtol=0, atol=EXACT)


def test_coefficients_of_zero_lose_one_per_sample_or_two_per_sample_of_the_smaller_class() -> None:
    hard = max_margin(np.array([[1.0], [2.0], [-1.0]]), np.array([1.0, 1.0, -1.0]))
    assert hard.value_of_zero == np.inf
    soft = replace(hard, C=np.array([0.5, 1.0, 0.25]))
    assert soft.value_of_zero == 1.75
    assert replace(soft, intercept=True).value_of_zero == 0.5


# --- products --------------------------------------------------------------------------------


def test_products_against_loops(problem: MarginProblem) -> None:
    rng = np.random.default_rng(0)
    coef = rng.normal(size=(problem.n_gates, problem.X.shape[1]))
    alpha = rng.exponential(size=problem.n_samples)
    close(problem.decision(coef), oracles.loop_decision(problem, coef))
    close(problem.dual_vectors(alpha), oracles.loop_dual_vectors(problem, alpha))
    close(problem.dual_norms(alpha), oracles.loop_dual_norms(problem, alpha))
    close(problem.group_norms(coef), oracles.loop_group_norms(problem, coef))


@pytest.mark.parametrize("name", ["gln", "sigmoid-gates", "sparse-gates", "dead-group", "svm-l2"])
def test_gram_against_loops(name: str) -> None:
    """Q_g[n, m] = y_n y_m <x_n, x_m> z_g(n)' z_g(m)."""
    problem = separable(name)
    Z = dense(problem.gates)
    total = np.zeros(problem.n_samples)
    for g, columns in enumerate(oracles.loop_groups(problem)):
        expected = np.empty((problem.n_samples, problem.n_samples))
        for n, m in itertools.product(range(problem.n_samples), repeat=2):
            mask = Z[n, columns] @ Z[m, columns]
            expected[n, m] = problem.y[n] * problem.y[m] * (problem.X[n] @ problem.X[m]) * mask
        close(problem.gram(g), expected)
        total += np.diag(expected)
    close(problem.feature_norms, np.sqrt(total))


def test_decisions_in_blocks() -> None:
    n = BLOCK + 3
    rng = np.random.default_rng(0)
    X, gates, coef = rng.normal(size=(n, 2)), rng.normal(size=(n, 3)), rng.normal(size=(3, 2))
    expected = np.einsum("nm,md,nd->n", gates, coef, X)
    close(decision(X, gates, coef), expected)
    close(decision(X, sp.csr_array(gates), coef), expected)


def test_sizes_and_subset() -> None:
    problem = separable("dense-gates")
    assert (problem.n_samples, problem.n_gates, problem.n_groups) == (30, 6, 3)
    assert "3 groups" in repr(problem)
    assert "group" not in repr(replace(problem, norm=L1()))
    assert problem.hard_margin
    rows = np.array([4, 2, 2])
    part = problem.subset(rows)
    np.testing.assert_array_equal(part.X, problem.X[rows])
    np.testing.assert_array_equal(part.y, problem.y[rows])
    np.testing.assert_array_equal(dense(part.gates), dense(problem.gates)[rows])
    assert part.C == problem.C
    offset = replace(problem, intercept=True)
    assert offset.subset(np.arange(4)).intercept
    with pytest.raises(ValueError, match="both classes"):
        offset.subset(np.array([0, 2]))


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_array])
def test_gates_are_compared_by_their_numbers(stored: Any) -> None:
    """Whether they are stored dense or sparse; inputs and groups count, too."""
    problem = MarginProblem(**GOOD)
    gates = GOOD["gates"].copy()
    assert problem.has_features_of(replace(problem, gates=stored(gates), C=2.0))
    gates[3, 1] = 0.5
    assert not problem.has_features_of(replace(problem, gates=stored(gates)))
    assert not problem.has_features_of(replace(problem, X=2.0 * X))
    assert not problem.has_features_of(MarginProblem(**GOOD | {"groups": np.array([0, 1, 1])}))


class FirstThree:
    """A hidden layer that passes its first three inputs on."""

    def hidden_activations(self, X: ArrayLike) -> Array:
        """Columns 0 to 2."""
        return np.asarray(X, dtype=np.float64)[:, :3]


def test_structure_builds_problems() -> None:
    X, y = cloud()
    gating = HyperplaneContexts.random(X, 3, random_state=0)
    structure = Architecture(gating)
    problem = structure.problem(X, y, C=2.0)
    np.testing.assert_array_equal(problem.groups, gating.groups)
    assert problem.C == 2.0
    coef = np.random.default_rng(0).normal(size=(problem.n_gates, 6))
    close(structure.decision(X, coef), problem.decision(coef))
    halves = Architecture(
        HyperplaneContexts.random(X[:, :3], 3, random_state=0),
        groups=np.zeros(6, dtype=int),
        representation=FirstThree(),
    )
    other = halves.problem(X, y)
    assert other.X.shape == (30, 3)
    assert other.n_groups == 1


# --- the exact norm of SVM-L2 ----------------------------------------------------------------


@pytest.mark.parametrize(("n_units", "n_hyperplanes"), [(3, 1), (2, 2), (1, 1)])
def test_svm_l2_is_the_svm_over_all_joint_contexts(n_units: int, n_hyperplanes: int) -> None:
    """Minimum ||beta||_2 over additive beta, by Clarabel on all C^H contexts, one by one."""
    X, y = cloud(24, 3)
    contexts = HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=1)
    H, C = n_units, contexts.n_contexts
    Z = dense(contexts.gates(X)).reshape(len(X), H, C)
    zeta = cp.Variable((H * C, X.shape[1]))
    joint = list(itertools.product(range(C), repeat=H))
    beta = [sum(zeta[h * C + c] for h, c in enumerate(gamma)) for gamma in joint]
    of_sample = [joint.index(tuple(z.argmax(axis=1))) for z in Z]
    margins = [y[n] * (beta[of_sample[n]] @ X[n]) >= 1 for n in range(len(X))]
    program = cp.Problem(cp.Minimize(cp.norm(cp.hstack(beta), 2)), margins)
    program.solve(solver="CLARABEL")
    found = solve(Architecture(l2_gates(contexts)).problem(X, y))
    scale = C ** ((H - 2) / 2)
    assert scale * found.certificate.upper == pytest.approx(program.value, rel=1e-6)


# --- errors ----------------------------------------------------------------------------------

X, Y = cloud(6, 3)
GOOD: dict[str, Any] = {"X": X, "y": Y, "gates": np.ones((6, 3)), "groups": np.array([0, 0, 1])}
NAN = np.where(np.arange(18).reshape(6, 3) == 7, np.nan, 1.0)


CLASSES = np.arange(6) % 3

# Arguments, a word of what is said of them, and a value for each check.
BAD: list[tuple[dict[str, Any], str]] = [
    ({"X": NAN}, "NaN"),
    ({"X": 1e160 * X}, "constant"),
    ({"X": np.ones((6, 0))}, "no features"),
    ({"y": Y[:5]}, "5 labels"),
    ({"y": (Y > 0).astype(float)}, "labels must be"),
    ({"y": CLASSES, "classes": 2}, "labels of 2 classes"),
    ({"y": Y, "classes": 2}, "y . 1. // 2"),
    ({"y": np.full(6, 2), "classes": 3, "intercept": True}, "all labels are equal"),
    ({"gates": np.ones((4, 3))}, "6, got 4"),
    ({"gates": None}, "max_margin"),
    ({"groups": np.array([0, 1])}, "shape"),
    ({"norm": GroupNorm(np.array([0, 1]))}, "other groups"),
    ({"norm": SumOverGroups(L2(), np.array([0, 1]), axis=-1)}, "per feature"),
    ({"C": 0.0}, "in .0, inf"),
    ({"C": 1e308}, "between"),
    ({"C": np.append(np.ones(5), np.inf)}, "inf for some"),
    ({"intercept": 1}, "True or False"),
]


@pytest.mark.parametrize(("changes", "word"), BAD)
def test_bad_input_is_refused(changes: dict[str, Any], word: str) -> None:
    with pytest.raises(ValueError, match=word):
        MarginProblem(**{**GOOD, **changes})


def test_sparse_gates_may_be_repeated_and_read_only() -> None:
    """Entries at the same place count together, as scipy says."""
    ones, rows = np.ones(12), np.arange(0, 13, 2, dtype=np.int32)
    ones.setflags(write=False)
    twice = sp.csr_array((ones, np.zeros(12, dtype=np.int32), rows), shape=(6, 2))
    problem = MarginProblem(X, Y, twice, np.array([0, 0]))
    np.testing.assert_array_equal(sp.csr_array(problem.gates).toarray(), [[2.0, 0.0]] * 6)


def test_one_group_is_one_problem_by_any_name() -> None:
    """The l2 norm of two classes is the group norm of one group, for every solver."""
    groups = np.array([0, 1, 1])
    named = MarginProblem(X, Y, np.ones((6, 3)), groups, norm=L2())
    assert named.is_binary_group_lasso
    np.testing.assert_array_equal(named.groups, [0, 0, 0])
    assert not MarginProblem(X, Y, np.ones((6, 3)), groups, norm=L1()).is_binary_group_lasso
    coef = np.random.default_rng(0).normal(size=(3, 3))
    assert named.group_norms(coef).sum() == pytest.approx(np.linalg.norm(coef), rel=1e-12)


def test_input_of_other_types_is_taken() -> None:
    gates = np.ones((6, 1), bool)
    problem = MarginProblem(X.tolist(), Y.astype(int), gates, [0], C=np.float32(2))  # type: ignore[arg-type]
    assert problem.X.dtype == problem.y.dtype == np.float64
    assert problem.n_groups == 1
    assert problem.C == 2
    # One C for all samples is a number.
    assert replace(problem, C=np.full(6, np.float32(2))).C == 2.0
    assert replace(problem, C=np.full(6, np.inf)).hard_margin


@pytest.mark.parametrize("sparse", [False, True])
def test_a_problem_does_not_change_with_the_callers_arrays(sparse: bool) -> None:
    gates = np.ones((6, 3))
    given: dict[str, Any] = {"X": X.copy(), "y": Y.copy(), "groups": np.array([0, 0, 1])}
    given["C"] = np.arange(1.0, 7.0)
    given["gates"] = sp.csr_array(gates) if sparse else gates
    problem = MarginProblem(**given)
    before = problem.decision(np.ones((3, 3)))
    given["X"][:] = given["y"][:] = given["C"][:] = 7.0
    (given["gates"].data if sparse else gates)[:] = 7.0
    np.testing.assert_array_equal(problem.decision(np.ones((3, 3))), before)
    np.testing.assert_array_equal(problem.y, Y)
    np.testing.assert_array_equal(problem.X, X)
    assert problem.subset(np.array([3, 2])).box.tolist() == [4.0, 3.0]
    for held in (problem.X, np.asarray(problem.C)):
        with pytest.raises(ValueError, match="read-only"):
            held[0] = 1.0


def test_sparse_gates_of_read_only_views_are_copied() -> None:
    gates = sp.csr_array(np.ones((6, 3)))
    values = gates.data
    gates.data, gates.indices, gates.indptr = gates.data[:], gates.indices[:], gates.indptr[:]
    for array in (gates.data, gates.indices, gates.indptr):
        array.setflags(write=False)
    problem = MarginProblem(X, Y, gates, np.array([0, 0, 1]))
    values[:] = 7.0
    np.testing.assert_array_equal(dense(problem.gates), np.ones((6, 3)))


@pytest.mark.parametrize(
    "norm",
    [
        *(Nuclear(), Spectral(), Schatten(3.0)),
        SumOverGroups(Nuclear(), np.array([0, 1, 1])),
        SumOverGroups(Nuclear(), np.array([0, 1, 1]), axis=-1),
        MaxOverGroups(Spectral(), np.array([0, 1, 1])),
        MaxOverGroups(Schatten(3.0), np.array([0, 1, 1]), axis=-1),
    ],
)
def test_singular_values_of_two_classes_are_those_of_one_row(norm: Norm) -> None:
    """A problem's norm of its coefficients is the certified one, without the axis of classes."""
    problem = MarginProblem(X, Y, np.random.default_rng(1).normal(size=(6, 3)), norm=norm)
    solution = solve(problem)
    upper = solution.certificate.upper
    coef = solution.coef  # (M, D)
    assert problem.norm.value(coef) == pytest.approx(upper, rel=1e-6)
    assert problem.norm.value(coef) == pytest.approx(norm.value(coef[None]), rel=1e-12)
    assert problem.norm.dual(coef) == pytest.approx(norm.dual(coef[None]), rel=1e-12)


def test_labels_and_groups_may_be_tensors() -> None:
    labels = torch.tensor(Y, requires_grad=True)
    for y in (labels, labels.bfloat16()):
        np.testing.assert_array_equal(max_margin(X, y).y, Y)
    groups = torch.zeros(X.shape[1], requires_grad=True)
    assert solve(max_margin(X, Y, groups=groups, C=1.0)).certificate.upper > 0


@pytest.mark.parametrize("stored", [np.asarray, sp.csr_array])
def test_copies_cannot_be_written_and_know_nothing_of_before(stored: Any) -> None:
    X, y = cloud(20, 3, shift=3.0)
    gates = (np.random.default_rng(0).random((20, 4)) < 0.6) * 1.0
    problem = MarginProblem(X, y, stored(gates), np.array([0, 0, 1, 1]))
    coef = np.ones(problem.coef_shape)
    expected = problem.decision(coef)
    for other in (copy.deepcopy(problem), pickle.loads(pickle.dumps(problem))):
        np.testing.assert_array_equal(other.decision(coef), expected)
        np.testing.assert_array_equal(other.feature_norms, problem.feature_norms)
        held: Any = other.gates
        arrays = (held.data, held.indices, held.indptr) if sp.issparse(held) else (held,)
        for array in (other.X, other.y, *arrays):
            assert not array.flags.writeable
    assert "features" in vars(problem)
    assert "features" not in vars(copy.deepcopy(problem))


def test_groups_of_floats_and_none_beside_another_norm() -> None:
    X, y, gates = np.eye(4), np.array([1.0, -1.0, 1.0, -1.0]), np.ones((4, 3))
    whole = MarginProblem(X, y, gates, groups=np.array([0.0, 0.0, 1.0]))
    assert whole.groups.tolist() == [0, 0, 1]
    bare = solve(MarginProblem(X, y, gates, norm=L1()))
    grouped = solve(MarginProblem(X, y, gates, whole.groups, norm=L1()))
    assert bare.certificate.upper == pytest.approx(grouped.certificate.upper)


def test_the_scale_is_the_root_mean_square_of_feature_norms() -> None:
    X = np.array([[3.0, 4.0], [0.0, 0.0]])
    assert max_margin(X, [1, -1]).scale == pytest.approx(5.0 / 2**0.5)
    assert max_margin(0.0 * X, [1, -1]).scale == 1.0


@pytest.mark.parametrize("classes", [None, 3])
def test_margins_are_those_of_decisions_with_offsets(classes: int | None) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(6, 2))
    if classes is None:
        y = np.array([1, -1, 1, -1, 1, -1])
        found = max_margin(X, y, intercept=True).margins(X[:, 0], 0.7)
        np.testing.assert_allclose(found, y * (X[:, 0] + 0.7))
        return
    y = np.array([0, 1, 2, 0, 1, 2])
    f = rng.normal(size=(6, 3))
    b = np.array([0.3, -0.2, 0.5])
    found = max_margin(X, y, intercept=True).margins(f, b)
    for n, label in enumerate(y):
        rivals = [k for k in range(3) if k != label]
        expected = min(f[n, label] + b[label] - f[n, k] - b[k] for k in rivals)
        assert found[n] == pytest.approx(expected)


def test_inputs_that_vary_are_counted_and_all_constant_ones_as_one() -> None:
    X = np.array([[1.0, 2.0, 0.0, 5.0], [1.0, 3.0, 0.0, 5.0], [1.0, 2.0, 0.0, 5.0]])
    assert max_margin(X, [1, -1, 1]).features.n_varying_inputs == 2
    assert max_margin(X[:, 1:3], [1, -1, 1]).features.n_varying_inputs == 1


def test_classes_share_the_groups_of_a_norm_that_sees_features_alone() -> None:
    X = np.eye(3)
    y = [0, 1, 2]
    assert classes_share_groups(max_margin(X, y, "l2"))
    assert classes_share_groups(max_margin(X, y, "l2", groups=[0, 1, 1]))
    assert not classes_share_groups(max_margin(X, y, "l1"))
    norm = GroupNorm(np.array([0]), apart=True)
    apart = MarginProblem(X, np.arange(3.0), np.ones((3, 1)), norm=norm)
    assert not classes_share_groups(apart)
