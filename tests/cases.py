"""Small problems, of two classes and of many, under every norm, and the tolerances of tests."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import make_classification

from implicit_bias.base.validation import Array
from implicit_bias.norms import (
    L1,
    L2,
    GroupNorm,
    LInf,
    Lp,
    MaxOverGroups,
    Norm,
    Nuclear,
    Spectral,
    SumOverGroups,
)
from implicit_bias.problem import Architecture, MarginProblem
from implicit_bias.problem.gating import (
    GateMatrix,
    Gating,
    HyperplaneContexts,
    NoGates,
    UnitGates,
    l2_gates,
)
from implicit_bias.problem.margin_problem import max_margin
from implicit_bias.solvers import Solution, Tolerances, solve
from implicit_bias.solvers.base import Candidate, OnProgress, Solver, Start, no_report
from implicit_bias.solvers.choice import SystemName
from implicit_bias.solvers.interior_point import InteriorPoint
from implicit_bias.solvers.linear_program import LinearProgram
from implicit_bias.solvers.working_set import WorkingSet

# What the solvers are asked for, and what their certificates must reach in any case.
SOLVE_TOL = 1e-10
GAP_LIMIT = 1e-8
# How far two solvers' objectives (relative) and decision values (absolute) may differ.
OBJECTIVE_RTOL = 1e-7
DECISION_ATOL = 1e-5
# What may separate two ways to compute one number.
ROUNDING = 1e-9

NATIVE = ("rows", "features", "working-set")
METHODS = (*NATIVE, "feature-space")
HANDFUL = (
    *("gln", "gated-relu", "sparse-gates", "linear", "one-group", "svm-l2"),
    *("soft-not-separable", "scaled-up"),
)


def asked(method: str, tol: float = 1e-6, size: int = 10, **options: Any) -> dict[str, Any]:
    """Arguments of `solve`, by which small problems go the ways of large ones.

    A working set is so small at first that there are rounds, and first steps are in float32.

    A method is the name of a solver, or the system of an interior point ("rows", "features").
    """
    own: dict[str, Any] = {"tolerances": Tolerances(gap=tol), **options}
    if method == "working-set":
        return {"solver": WorkingSet(first_size=size, few_rounds=0.0, **own)}
    systems: dict[str, SystemName] = {"rows": "rows", "features": "features"}
    if method in systems:
        return {"solver": InteriorPoint(system=systems[method], coarse_rows=0, **own)}
    if method == "highs":
        return {"solver": LinearProgram(first_rows=12, first_columns=0.2, **own)}
    return {"solver": method, "tol": tol, **options}


def dense(gates: GateMatrix) -> Array:
    return sp.csr_array(gates).toarray()


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


def plain(X: Any, y: Any, C: Any = np.inf, **options: Any) -> MarginProblem:
    """One gate that is always on: the classical SVM."""
    return MarginProblem(X, y, np.ones((len(X), 1)), np.zeros(1, dtype=int), C=C, **options)


def svm_l2(
    data: tuple[Array, Array], n_units: int, n_hyperplanes: int, C: float = np.inf
) -> MarginProblem:
    """SVM-L2: the contexts of a GLN under the exact norm over joint contexts."""
    X, y = data
    contexts = HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=3)
    return Architecture(l2_gates(contexts)).problem(X, y, C)


def gln(n_units: int = 4, n_hyperplanes: int = 1) -> Callable[[Array], Gating]:
    return lambda X: HyperplaneContexts.random(X, n_units, n_hyperplanes, random_state=3)


def units(n_units: int = 5, **options: object) -> Callable[[Array], Gating]:
    return lambda X: UnitGates.random(X, n_units, random_state=3, **options)  # type: ignore[arg-type]


def linear(X: Array) -> Gating:
    return NoGates(X.shape[1])


def free(
    data: tuple[Array, Array],
    groups: list[int],
    *,
    density: float = 1.0,
) -> MarginProblem:
    """Gaussian gates of any sign; sparse ones are CSR."""
    X, y = data
    rng = np.random.default_rng(7)
    gates: GateMatrix = rng.normal(size=(len(X), len(groups)))
    if density < 1:
        kept = rng.random(gates.shape) < density
        kept[:, -1] = True  # no sample with all gates off
        gates = sp.csr_array(gates * kept)
    return MarginProblem(X, y, gates, np.array(groups))


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


def clusters(
    n: int = 45, d: int = 5, k: int = 3, *, spread: float = 0.5, seed: int = 1
) -> tuple[Array, Any]:
    """Gaussian clusters around random centres, and the class of each point, 0 .. k - 1."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % k
    return 2.0 * rng.normal(size=(k, d))[y] + spread * rng.normal(size=(n, d)), y


def small_integers(seed: int, n: int, d: int, k: int, *, intercept: bool) -> MarginProblem:
    """Return up to k classes of inputs in -3 .. 3, at random."""
    rng = np.random.default_rng(seed)
    X, y = rng.integers(-3, 4, (n, d)).astype(float), rng.integers(0, k, n)
    y[:2] = [0, 1]
    y = np.unique(y, return_inverse=True)[1]
    return max_margin(X, 2 * y - 1 if y.max() == 1 else y, intercept=intercept)


def noisy_table(
    n: int = 300, d: int = 10, k: int = 2, *, flipped: float = 0.1
) -> tuple[Array, Any]:
    """Return a table as people have them: clusters of each class, and some labels that are wrong.

    Labels are -1 and +1, or 0 .. k - 1 with more classes.
    """
    X, y = make_classification(
        n,
        d,
        n_informative=max(4, d // 2),
        n_redundant=d // 10,
        n_classes=k,
        flip_y=flipped,
        random_state=0,
    )
    return X, 2 * y - 1 if k == 2 else y


def one_class() -> MarginProblem:
    return plain(cloud(12, 4)[0], np.ones(12))


# --- the table -------------------------------------------------------------------------------

SEPARABLE: dict[str, Callable[[], MarginProblem]] = {
    # the models of the source
    "gln": lambda: build(cloud(), gln()),
    "gln-four-contexts": lambda: build(cloud(), gln(3, 2)),
    "gln-circles": lambda: build(circles(), gln(6, 2)),
    "gated-relu": lambda: build(cloud(), units()),
    "sigmoid-gates": lambda: build(cloud(), units(6, firing="sigmoid", always_on=False)),
    "linear": lambda: build(cloud(20, 25), linear),
    "linear-n-greater-d": lambda: build(cloud(80, 3, shift=4.0), linear),
    # gates and groups of any kind
    "dense-gates": lambda: free(cloud(), [0, 1, 1, 2, 0, 2]),
    "sparse-gates": lambda: free(cloud(), [0, 1, 1, 2, 0, 2, 3, 3, 4], density=0.4),
    "one-group": lambda: free(cloud(), [0, 0, 0, 0, 0, 0]),
    "dead-group": dead_group,
    "svm-l2": lambda: svm_l2(cloud(), 4, 1),
    # shapes and degeneracies of the data
    "rank-deficient-x": lambda: build(low_rank(20, 8, 4), gln(5)),
    "duplicated-rows": lambda: build(repeated(cloud()), gln()),
    "two-samples": lambda: build(cloud(2, 3), gln(2)),
    "one-class": one_class,
    "small-margin": lambda: build(tight(), linear),
    # scales
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


HARD = [name for name in SEPARABLE if not name.startswith("soft-")]
# Two classes, and an offset.
OFFSET = "+intercept"

GATES, FEATURES = np.array([0, 1, 0]), np.array([0, 0, 1, 2, 1])
NORMS: dict[str, Norm] = {
    "l1": L1(),
    "l2": L2(),
    "linf": LInf(),
    **{f"l{p}": Lp(p) for p in (1.01, 1.1, 1.5, 3, 10, 100)},
    "l3features": SumOverGroups(Lp(3.0), FEATURES, axis=-1),
    "l1.5gates": SumOverGroups(Lp(1.5), GATES),
    "spectral": Spectral(),
    "nuclear": Nuclear(),
    "features": SumOverGroups(L2(), FEATURES, axis=-1),
    "maxima": SumOverGroups(LInf(), FEATURES, axis=-1),
    "groups": GroupNorm(GATES),
    "apart": GroupNorm(GATES, apart=True),
    "pergate": SumOverGroups(Nuclear(), GATES),
    "layers": MaxOverGroups(Spectral(), GATES),
}


# Problems with a C for each sample.
WEIGHTED = (
    *("l2-binary-weights", "features-weights-intercept", "l1-binary-weights-intercept"),
    *("linf-weights", "spectral-binary-weights", "nuclear-weights-intercept"),
)


def of_norm(name: str) -> MarginProblem:
    """Return clusters under a norm, the first word of the name.

    They are of three classes, a hard margin, without offset or gates, but for the other words:
    "binary" (labels -1 and +1), "two" (classes), "soft", "weights" (a C a sample, of clusters that
    overlap), "intercept", "gated".
    """
    norm, *words = name.split("-")
    two = "two" in words or "binary" in words
    X, y = clusters(k=2 if two else 3, spread=2.5 if "weights" in words else 0.5)
    gates: Any = np.ones((45, 1))
    groups = np.zeros(1, dtype=int)
    if "gated" in words or norm in ("groups", "apart", "pergate"):
        gates, groups = (np.random.default_rng(2).random((45, 3)) < 0.7) + 0.1, GATES
    C: Any = np.inf
    if "soft" in words:
        C = 0.05
    elif "weights" in words:
        C = 10.0 ** np.random.default_rng(3).uniform(-2, 1, 45)
    labels = 2 * y - 1 if "binary" in words else y
    offset, classes = "intercept" in words, 2 if "two" in words else None
    return MarginProblem(X, labels, gates, groups, C, NORMS[norm], offset, classes=classes)


@cache
def separable(name: str) -> MarginProblem:
    """Return a problem of the table, with an offset if its name says so, or one of a norm."""
    plain = name.removesuffix(OFFSET)
    if plain not in SEPARABLE:
        return of_norm(name)
    return replace(SEPARABLE[plain](), intercept=plain != name)


@cache
def twin(name: str) -> MarginProblem:
    return twin_of(separable(name))


def twin_of(problem: MarginProblem) -> MarginProblem:
    """Make a hard-margin problem inseparable: two samples more, both with the gates of sample 0.

    q, four times sample 0, has its label, and twice sample 0, between the two, has the other one.
    So no two samples are identical, and only a solver can find the conflict, which is exact.
    """
    return _with_a_point_between(problem, 4.0 * problem.X[0], 2.0 * problem.X[0])


@cache
def best(name: str) -> Solution:
    """Solve a case to more digits than are asked of any method."""
    method = InteriorPoint(system="rows", tolerances=Tolerances(gap=SOLVE_TOL))
    return solve(separable(name), method)


def near_twin(name: str) -> MarginProblem:
    """Make a hard-margin case inseparable but for rounding.

    The point between the two was rounded when it was stored, so the three may be separable by
    enormous coefficients; nobody who computes in float64 can say.
    """
    problem = separable(name)
    q = problem.X[0] + problem.X[-1]
    return _with_a_point_between(problem, q, 0.3 * problem.X[0] + 0.7 * q)


def _with_a_point_between(problem: MarginProblem, q: Array, between: Array) -> MarginProblem:
    gates, own = dense(problem.gates), problem.y[0]
    other = -own if problem.classes is None else (own + 1) % problem.classes
    return replace(
        problem,
        X=np.vstack([problem.X, q, between]),
        y=np.append(problem.y, [own, other]),
        gates=np.vstack([gates, gates[0], gates[0]]),
    )


# --- what is not this package's --------------------------------------------------------------


@dataclass(frozen=True)
class Stranger:
    """Somebody else's multiple of the Euclidean norm."""

    factor: float = 1.0

    def value(self, coef: Array) -> float:
        """Multiply the Euclidean norm."""
        return self.factor * float(np.linalg.norm(coef))

    def dual(self, V: Array) -> float:
        """Divide the Euclidean norm."""
        return float(np.linalg.norm(V)) / self.factor

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Say it in CVXPY."""
        return self.factor * cp.norm(zeta, 2)


@dataclass(frozen=True, kw_only=True)
class Stub(Solver):
    """A method that hands over what a function returns, or raises what it raises."""

    found: Callable[[MarginProblem], Candidate]
    name: ClassVar[str] = "stub"

    def run(
        self,
        problem: MarginProblem,
        on_progress: OnProgress = no_report,
        start: Start | None = None,
    ) -> Candidate:
        """Answer."""
        return self.found(problem)
