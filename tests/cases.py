"""Small problems that every solver must solve, the tolerances, and the definitions in loops.

The functions of the last section recompute what `certify` says, from the definitions alone:
they use the problem's data (X, y, gates, groups, metric, C) but none of its products.
"""

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

import numpy as np
import pytest
import scipy.sparse as sp
from _pytest.mark import ParameterSet

from implicit_bias.base.validation import Array
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.gating import (
    GateMatrix,
    Gating,
    GlobalContexts,
    HyperplaneContexts,
    NoGates,
    UnitGates,
    l2_metric,
)
from implicit_bias.solvers import Tolerances
from implicit_bias.solvers.working_set import WorkingSet

T = TypeVar("T")

# What the solvers are asked for, and what their certificates must reach in any case.
SOLVE_TOL = 1e-10
GAP_LIMIT = 1e-8
# How far two solvers' objectives (relative) and decision values (absolute) may differ.
OBJECTIVE_RTOL = 1e-7
DECISION_ATOL = 1e-5
# What may separate two ways to compute one number.
ROUNDING = 1e-9
# Largest max_g ||V_g|| / (root mean square of the feature norms) of a proof by Gordan.
PROOF_LIMIT = 1e-9

NATIVE = ("interior-point", "working-set")
METHODS = (*NATIVE, "feature-space", "multiprecision")
# With these cases every method is tested in the fast run; with all of them the default one.
HANDFUL = (
    "gln",
    "gated-relu",
    "sparse-gates",
    "linear",
    "one-group",
    "svm-l2",
    "metric-rank-deficient",
    "soft-not-separable",
    "scaled-up",
)
# Of methods that take longer these are in the fast run.
SLOWER: dict[str, Sequence[str]] = {"multiprecision": ("linear", "one-group", "soft-not-separable")}


def case_table(
    names: Iterable[str], methods: Sequence[str], some: Sequence[str] = HANDFUL
) -> list[ParameterSet]:
    """Pairs of a case and a method; of all methods but the first one, most cases are slow."""
    names = list(names)
    fast = {method: some for method in methods} | {methods[0]: names} | SLOWER
    return [
        pytest.param(name, method, marks=() if name in fast[method] else pytest.mark.slow)
        for name, method in itertools.product(names, methods)
    ]


def mostly_slow(values: Iterable[T], kept: Container[object] = HANDFUL) -> list[ParameterSet]:
    """Values as parameters of a test: in the fast run some of them, all in the slow one."""
    return [
        pytest.param(value, marks=() if value in kept else pytest.mark.slow) for value in values
    ]


def asked(solver: str, tol: float = 1e-6, size: int = 10, **options: Any) -> dict[str, Any]:
    """Arguments of `solve`: of a working set so small at first that there are rounds."""
    if solver != "working-set":
        return {"solver": solver, "tol": tol, **options}
    tolerances = Tolerances(gap=tol)
    small = WorkingSet(tolerances=tolerances, first_size=size, first_pairs=size, **options)
    return {"solver": small}


# --- data ------------------------------------------------------------------------------------


def cloud(n: int = 30, d: int = 6, *, shift: float = 0.0, seed: int = 0) -> tuple[Array, Array]:
    """Gaussian points with a constant 1 as last column; the classes are 2 * shift apart."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1.0, -1.0)
    X = rng.normal(size=(n, d))
    X[:, 0] += shift * y
    X[:, -1] = 1.0
    return X, y


def xor() -> tuple[Array, Array]:
    """Return the four corners of a square with a constant 1, labelled by the sign of x1 x2."""
    X = np.array([[1.0, 1, 1], [1, -1, 1], [-1, 1, 1], [-1, -1, 1]])
    return X, X[:, 0] * X[:, 1]


def build(
    data: tuple[Array, Array],
    gating: Callable[[Array], Gating],
    *,
    scale: float = 1.0,
    C: float = np.inf,
) -> MarginProblem:
    """Problem of some data under the gating that a function makes from the inputs."""
    X, y = data
    gates = gating(X)
    return MarginProblem(scale * X, y, gates.gates(X), gates.groups, C=C)


def svm_l2(
    data: tuple[Array, Array], n_units: int, n_hyperplanes: int, C: float = np.inf
) -> MarginProblem:
    """SVM-L2: the contexts of a GLN in one group, under the exact metric."""
    X, y = data
    contexts = HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=3)
    metric = l2_metric(n_units, contexts.n_contexts)
    return MarginProblem(X, y, contexts.gates(X), 0 * contexts.groups, {0: metric}, C)


def gln(n_units: int = 4, n_hyperplanes: int = 1) -> Callable[[Array], Gating]:
    return lambda X: HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=3)


def units(n_units: int = 5, **options: object) -> Callable[[Array], Gating]:
    return lambda X: UnitGates.random(X, n_units, random_state=3, **options)  # type: ignore[arg-type]


def shallow(n_hyperplanes: int = 3) -> Callable[[Array], Gating]:
    def collapsed(X: Array) -> Gating:
        local = HyperplaneContexts.random(X, 1, n_hyperplanes, random_state=3)
        return GlobalContexts.collapse(local, X)

    return collapsed


def linear(X: Array) -> Gating:
    return NoGates(X.shape[1])


def free(
    data: tuple[Array, Array],
    groups: list[int],
    *,
    density: float = 1.0,
    metric: Mapping[int, Array] | None = None,
    C: float = np.inf,
) -> MarginProblem:
    """Gaussian gates of any sign; sparse ones are CSR."""
    X, y = data
    rng = np.random.default_rng(7)
    gates: GateMatrix = rng.normal(size=(len(X), len(groups)))
    if density < 1:
        kept = rng.random(gates.shape) < density
        kept[:, -1] = True  # no sample with all gates off
        gates = sp.csr_array(gates * kept)
    return MarginProblem(X, y, gates, np.array(groups), metric, C)


def random_metric(size: int, rank: int) -> Array:
    factor = np.random.default_rng(11).normal(size=(size, rank))
    return factor @ factor.T


def low_rank(n: int, d: int, rank: int) -> tuple[Array, Array]:
    X, y = cloud(n, d)
    return X[:, :rank] @ np.random.default_rng(5).normal(size=(rank, d)), y


def repeated(data: tuple[Array, Array]) -> tuple[Array, Array]:
    X, y = data
    return np.concatenate([X, X[:10], X[:5]]), np.concatenate([y, y[:10], y[:5]])


def circles() -> tuple[Array, Array]:
    """Two rings in the plane, 90 points: separable by contexts, not by a line."""
    rng = np.random.default_rng(2)
    y = np.where(np.arange(90) % 2, 1.0, -1.0)
    angle = rng.uniform(0, 2 * np.pi, 90)
    radius = np.where(y > 0, 1.0, 2.0) + 0.1 * rng.normal(size=90)
    return np.column_stack([radius * np.cos(angle), radius * np.sin(angle), np.ones(90)]), y


def dead_group() -> MarginProblem:
    """Add a gate that is off at every training sample, as a group of its own."""
    problem = build(cloud(), units())
    off = np.zeros((problem.n_samples, 1))
    gates = np.column_stack([problem.gates, off])
    return MarginProblem(problem.X, problem.y, gates, np.append(problem.groups, problem.n_groups))


def tight() -> tuple[Array, Array]:
    """Linearly separable with a margin of 1/1000."""
    X, y = cloud(40, 4, shift=4.0)
    X[:2] = [[-1e-3, 0, 0, 1], [1e-3, 0, 0, 1]]
    return X, y


def one_class() -> MarginProblem:
    X, _ = cloud(12, 4)
    return MarginProblem(X, np.ones(12), np.ones((12, 1)), np.zeros(1, dtype=int))


# --- the table -------------------------------------------------------------------------------

SEPARABLE: dict[str, Callable[[], MarginProblem]] = {
    # the models of the source
    "gln": lambda: build(cloud(), gln()),
    "gln-four-contexts": lambda: build(cloud(), gln(3, 2)),
    "gln-many-units": lambda: build(cloud(40, 5), gln(20)),
    "gln-circles": lambda: build(circles(), gln(6, 2)),
    "gated-relu": lambda: build(cloud(), units()),
    "gated-relu-orthogonal": lambda: build(cloud(), units(5, init="orthogonal")),
    "sigmoid-gates": lambda: build(cloud(), units(6, firing="sigmoid", always_on=False)),
    "shallow-gln": lambda: build(cloud(), shallow()),
    "linear": lambda: build(cloud(20, 25), linear),
    "linear-n-greater-d": lambda: build(cloud(80, 3, shift=4.0), linear),
    # gates and groups of any kind
    "dense-gates": lambda: free(cloud(), [0, 1, 1, 2, 0, 2]),
    "sparse-gates": lambda: free(cloud(), [0, 1, 1, 2, 0, 2, 3, 3, 4], density=0.4),
    "one-group": lambda: free(cloud(), [0, 0, 0, 0, 0, 0]),
    "one-column-a-group": lambda: free(cloud(), [5, 4, 3, 2, 1, 0]),
    "dead-group": dead_group,
    # metrics
    "metric-identity": lambda: free(cloud(), [0, 0, 0, 1, 1, 1], metric={0: np.eye(3)}),
    "metric-diagonal": lambda: free(
        cloud(), [0, 0, 0, 1, 1, 1], metric={1: np.diag([0.1, 1.0, 30.0])}
    ),
    "metric-rank-deficient": lambda: free(
        cloud(), [0, 1, 0, 1, 0, 1, 0], metric={0: random_metric(4, 2), 1: random_metric(3, 3)}
    ),
    "svm-l2": lambda: svm_l2(cloud(), 4, 1),
    "svm-l2-four-contexts": lambda: svm_l2(cloud(), 3, 2),
    # shapes and degeneracies of the data
    "rank-deficient-x": lambda: build(low_rank(20, 8, 4), gln(5)),
    "duplicated-rows": lambda: build(repeated(cloud()), gln()),
    "two-samples": lambda: build(cloud(2, 3), gln(2)),
    "one-class": one_class,
    "small-margin": lambda: build(tight(), linear),
    # scales
    "scaled-down": lambda: build(cloud(), gln(), scale=1e-6),
    "scaled-up": lambda: build(cloud(), gln(), scale=1e6),
    # soft margins
    "soft-tiny-c": lambda: build(cloud(), gln(), C=1e-5),
    "soft-small-c": lambda: build(cloud(), gln(), C=0.03),
    "soft-not-separable": lambda: build(cloud(60, 3), gln(2), C=1.0),
    "soft-large-c": lambda: build(cloud(), gln(), C=1e5),
    "soft-linear": lambda: build(cloud(60, 3, shift=0.5), linear, C=0.1),
    "soft-svm-l2": lambda: svm_l2(cloud(60, 4), 3, 1, C=0.2),
    "soft-scaled-up": lambda: build(cloud(60, 3), gln(2), scale=1e6, C=1e-7),
    "soft-xor": lambda: build(xor(), linear, C=1.0),
}


@cache
def separable(name: str) -> MarginProblem:
    return SEPARABLE[name]()


HARD = [name for name in SEPARABLE if not name.startswith("soft-")]


@cache
def twin(name: str) -> MarginProblem:
    """Make a hard-margin case inseparable: two samples more, both with the gates of sample 0.

    q, four times sample 0, has its label, and twice sample 0, between the two, has the other one.
    So no two samples are identical, and only a solver can find the conflict, which is exact.
    """
    X = separable(name).X[0]
    return _with_a_point_between(name, 4.0 * X, 2.0 * X)


def near_twin(name: str) -> MarginProblem:
    """Make a hard-margin case inseparable but for rounding.

    The point between the two was rounded when it was stored, so the three may be separable by
    enormous coefficients; nobody who computes in float64 can say.
    """
    X = separable(name).X
    q = X[0] + X[-1]
    return _with_a_point_between(name, q, 0.3 * X[0] + 0.7 * q)


def _with_a_point_between(name: str, q: Array, between: Array) -> MarginProblem:
    problem = separable(name)
    gates = dense(problem.gates)
    return MarginProblem(
        np.vstack([problem.X, q, between]),
        np.append(problem.y, [problem.y[0], -problem.y[0]]),
        np.vstack([gates, gates[0], gates[0]]),
        problem.groups,
        problem.metric,
    )


# --- the definitions, in loops ---------------------------------------------------------------


def dense(gates: GateMatrix) -> Array:
    return sp.csr_array(gates).toarray()


def loop_decision(problem: MarginProblem, coef: Array) -> Array:
    """f(x_n) = sum_m z_m(x_n) <zeta_m, x_n>."""
    Z = dense(problem.gates)
    f = np.zeros(len(problem.X))
    for n in range(len(problem.X)):
        for m in range(Z.shape[1]):
            f[n] += Z[n, m] * sum(coef[m] * problem.X[n])
    return f


def loop_dual_vectors(problem: MarginProblem, alpha: Array) -> Array:
    """V_m = sum_n alpha_n y_n z_m(x_n) x_n."""
    Z = dense(problem.gates)
    V = np.zeros((Z.shape[1], problem.X.shape[1]))
    for m in range(Z.shape[1]):
        for n in range(len(problem.X)):
            V[m] += alpha[n] * problem.y[n] * Z[n, m] * problem.X[n]
    return V


def loop_group_norms(problem: MarginProblem, coef: Array) -> Array:
    """||zeta_g||: sqrt(tr(zeta_g' P_g^+ zeta_g))."""
    return np.array(
        [
            np.sqrt(np.trace(coef[columns].T @ np.linalg.pinv(P, rcond=1e-10) @ coef[columns]))
            for columns, P in loop_groups(problem)
        ]
    )


def loop_dual_norms(problem: MarginProblem, alpha: Array) -> Array:
    """||V_g||: sqrt(tr(V_g' P_g V_g))."""
    V = loop_dual_vectors(problem, alpha)
    squares = [np.trace(V[columns].T @ P @ V[columns]) for columns, P in loop_groups(problem)]
    return np.sqrt(np.maximum(squares, 0.0))


def loop_groups(problem: MarginProblem) -> list[tuple[list[int], Array]]:
    """Columns and metric of each group; the identity where none is given."""
    found = []
    for g in range(max(problem.groups) + 1):
        columns = [m for m in range(len(problem.groups)) if problem.groups[m] == g]
        P = (problem.metric or {}).get(g, np.eye(len(columns)))
        found.append((columns, P))
    return found


def loop_primal(problem: MarginProblem, coef: Array) -> float:
    """Omega(zeta) + C sum_n max(0, 1 - y_n f(x_n)); inf where a hard margin is not reached."""
    norm = float(loop_group_norms(problem, coef).sum())
    margins = problem.y * loop_decision(problem, coef)
    if np.isinf(problem.C):
        return norm if margins.min() >= 1 - ROUNDING else np.inf
    return norm + problem.C * sum(max(0.0, 1.0 - margin) for margin in margins)


def loop_feature_norms(problem: MarginProblem) -> Array:
    """Norm of each sample's features under the metric."""
    Z = dense(problem.gates)
    squares = np.zeros(len(problem.X))
    for n in range(len(problem.X)):
        for columns, P in loop_groups(problem):
            squares[n] += float(Z[n, columns] @ P @ Z[n, columns]) * sum(problem.X[n] ** 2)
    return np.sqrt(squares)


def feature_scale(problem: MarginProblem) -> float:
    """Root mean square, over the samples, of the norms of their features under the metric."""
    return float(np.sqrt(np.mean(loop_feature_norms(problem) ** 2)))
