"""Problems that are hard in float64, drawn from a seed, a family and a number.

Those of the family "general" have two
classes and groups of gates: inputs of 1 to 80 samples and features, Gaussian, whole numbers or far
from 0; gates in groups, some combined with others of their group; labels of a predictor with
margins down to 1e-9, or of no rule; then samples repeated, features that are multiples or sums of
others, and one or two scalings of samples, features or groups by factors from 1e-12 to 1e12. Those
of other families are smaller, and each draws one of all norms:

=============  ===============================================================================
classes        3 to 10, scaled like those of the general family by 1e-6 to 1e6
gate scales    gates of 1e-8, 1 and 1e8 mixed, 2 to 6 classes
combined       gates combined by matrices of 1e-30 to 1e30 and any rank, 2 to 6 classes
subnormal      inputs of 5e-324 to 1e-300 beside ordinary ones
C              soft margins with C from 1e-290 to 1e290
=============  ===============================================================================
"""

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from implicit_bias import MarginProblem, Solution, Status, norms, solve
from implicit_bias.base.validation import Array
from oracles import find_lies

SEED = 13
MOST = 80
TOLERANCE = 1e-6
# Decimal exponents of the factors of a scaling.
REACH = 12.0
# Exponents of Lp; the last is that of l_inf, almost.
POWERS = (1.01, 1.5, 3.0, 8.0, 1e3, 1e16)


@dataclass(frozen=True)
class Draw:
    """A problem, and what it is solved from."""

    problem: MarginProblem
    similar: MarginProblem | None


def draw(index: int, family: str = "general") -> Draw:
    """Draw a problem: the same one whenever and wherever."""
    if family != "general":
        return _drawn_from(family, index)
    rng = np.random.default_rng([SEED, index])
    while True:
        X, gates, groups = _inputs(rng)
        y = _labels(rng, X, gates)
        X, y, gates = _repeated(rng, X, y, gates)
        _scale(rng, X, gates, groups)
        if rng.random() < 0.2:
            gates, groups = _combined(gates, groups, _factors(rng, groups))
        both = len(np.unique(y)) == 2
        intercept = both and bool(rng.random() < 0.4)
        try:
            problem = MarginProblem(X, y, gates, groups, intercept=intercept)
        except ValueError:  # out of the range that is accepted
            continue
        if rng.random() < 0.4:
            problem = replace(problem, C=float(10.0 ** rng.uniform(-3, 6) / problem.scale**2))
        similar = _similar(rng, problem) if rng.random() < 0.3 else None
        return Draw(problem, similar)


def _inputs(rng: np.random.Generator) -> tuple[Array, Array, NDArray[np.int64]]:
    """Draw inputs (N, D), some features dependent; gates (N, M); groups (M,)."""
    N, D = int(rng.integers(1, MOST + 1)), int(MOST ** rng.random())
    M = int(rng.integers(1, 7)) if rng.random() < 0.6 else 1
    kind = str(rng.choice(["gaussian", "integers", "offset"], p=[0.6, 0.2, 0.2]))
    X = rng.normal(size=(N, D))
    if kind == "integers":
        X = rng.integers(-5, 6, size=(N, D)).astype(float)
    elif kind == "offset":
        X += 10.0 ** rng.uniform(0, 8, size=D)
    if D > 1 and rng.random() < 0.2:
        for d in rng.choice(D, size=max(1, D // 3), replace=False):
            a, b = rng.integers(D, size=2)
            X[:, d] = rng.choice([1.0, 2.0, 0.3]) * X[:, a] + rng.choice([0.0, 1.0]) * X[:, b]
    if rng.random() < 0.3:
        X[:, -1] = 1.0
    gates = np.ones((N, M)) if M == 1 else rng.choice([0.0, 1.0], size=(N, M))
    if M > 1 and rng.random() < 0.3:
        gates = rng.normal(size=(N, M))
    groups = _groups(rng, M)
    return X, gates, groups


def _labels(rng: np.random.Generator, X: Array, gates: Array) -> Array:
    """Draw those of a predictor, whose margins may be tiny; or of none."""
    rule = str(rng.choice(["predictor", "tiny margin", "none"], p=[0.5, 0.2, 0.3]))
    if rule == "none":
        return np.asarray(rng.choice([-1.0, 1.0], size=len(X)))
    w = rng.normal(size=(gates.shape[1], X.shape[1]))
    f = np.einsum("nm,md,nd->n", gates, w, X - X.mean(axis=0))
    y = np.where(f > np.median(f), 1.0, -1.0)
    if rule == "tiny margin" and np.ptp(f) > 0:
        # Along a feature, samples move to a small distance from where the predictor is the median.
        d = int(rng.integers(X.shape[1]))
        slope = gates @ w[:, d]
        near = (rng.random(len(X)) < 0.5) & (np.abs(slope) > 0.1)
        margin = 10.0 ** rng.uniform(-9, -2)
        X[near, d] -= (f[near] - np.median(f) - margin * y[near]) / slope[near]
    return y


def _repeated(
    rng: np.random.Generator, X: Array, y: Array, gates: Array
) -> tuple[Array, Array, Array]:
    """Draw samples, some several times; seldom with the other label."""
    if rng.random() >= 0.2:
        return X, y, gates
    rows = rng.integers(len(X), size=len(X))
    y = y[rows]
    if rng.random() < 0.1:
        y[0] = -y[0]
    return X[rows], y, gates[rows]


def _scale(
    rng: np.random.Generator,
    X: Array,
    gates: Array,
    groups: NDArray[np.int64],
    reach: float = REACH,
) -> None:
    """Multiply one or two of samples, features and groups, in place."""
    kinds = rng.choice(["samples", "features", "groups"], size=rng.integers(1, 3), replace=False)
    for kind in sorted(kinds):
        size = {"samples": len(X), "features": X.shape[1], "groups": int(groups.max()) + 1}[kind]
        factors = 10.0 ** rng.uniform(-reach, reach, size=size)
        if rng.random() < 0.5:  # one factor for some of them
            factors = np.where(rng.random(size) < 0.5, factors[0], 1.0)
        if kind == "samples":
            X *= factors[:, None]
        elif kind == "features":
            X *= factors
        else:
            gates *= factors[groups]


def _factors(rng: np.random.Generator, groups: NDArray[np.int64]) -> list[Array]:
    """Draw a matrix (M_g, r) for each group, of any r up to M_g."""
    factors = []
    for g in range(int(groups.max()) + 1):
        size = int((groups == g).sum())
        factors.append(rng.normal(size=(size, int(rng.integers(1, size + 1)))))
    return factors


def _combined(
    gates: Any, groups: NDArray[np.int64], factors: list[Array]
) -> tuple[Array, NDArray[np.int64]]:
    """Return gates Z_g R_g of each group, and the groups of their columns."""
    Z = sp.csr_array(gates).toarray()
    parts = [Z[:, groups == g] @ factor for g, factor in enumerate(factors)]
    return np.hstack(parts), np.repeat(np.arange(len(parts)), [part.shape[1] for part in parts])


def _similar(rng: np.random.Generator, problem: MarginProblem) -> MarginProblem:
    """Draw another C, fewer samples, or inputs that differ a little."""
    kind = rng.integers(3)
    if kind == 0 and not problem.hard_margin:
        return replace(problem, C=problem.C * float(10.0 ** rng.uniform(-1, 1)))
    n = problem.n_samples - 1 - problem.n_samples // 20
    if kind == 1 and n > 0 and len(np.unique(problem.y[:n])) == 2:
        return problem.subset(np.arange(n))
    return replace(problem, X=problem.X * (1.0 + 1e-3 * rng.normal(size=problem.X.shape)))


# --- other families --------------------------------------------------------------------------

FAMILIES = ("classes", "gate scales", "combined", "subnormal", "C")


def _drawn_from(family: str, index: int) -> Draw:
    """Draw a problem of another family than the general one."""
    rng = np.random.default_rng([SEED, 1 + FAMILIES.index(family), index])
    while True:
        problem = _other(rng, family)
        if problem is not None:
            return Draw(problem, None)


def _other(rng: np.random.Generator, family: str) -> MarginProblem | None:
    """Draw a small problem; None where it is out of the range that is accepted."""
    N, D = int(rng.integers(2, 41)), int(rng.integers(1, 9))
    M = int(rng.integers(1, 5)) + (family == "gate scales")
    K = int(rng.integers(3, 11) if family == "classes" else rng.integers(2, 7))
    X, groups = rng.normal(size=(N, D)), _groups(rng, M)
    gates = rng.choice([0.0, 1.0], size=(N, M), p=[0.3, 0.7])
    gates[:, 0] = 1.0
    match family:
        case "classes":
            _scale(rng, X, gates, groups, reach=6.0)
        case "gate scales":
            gates *= rng.choice([1e-8, 1.0, 1e8], size=M)
        case "subnormal":
            tiny = rng.random(X.shape if rng.random() < 0.5 else D) < 0.4
            X *= np.where(tiny, 10.0 ** rng.uniform(-323, -300), 1.0)
    y = np.einsum("nm,kmd,nd->nk", gates, rng.normal(size=(K, M, D)), X).argmax(axis=1)
    if rng.random() < 0.2:
        y = rng.integers(K, size=N)
    y = np.unique(y, return_inverse=True)[1]  # those classes that have samples
    K = max(int(y.max()) + 1, 2)
    labels = np.where(y == 0, -1.0, 1.0) if K == 2 else y.astype(np.float64)
    intercept = bool(len(np.unique(y)) > 1 and rng.random() < 0.3)
    if family == "combined":
        factors = [R * 10.0 ** rng.uniform(-30, 30) for R in _factors(rng, groups)]
        gates, groups = _combined(gates, groups, factors)
        norm: norms.Norm = norms.GroupNorm(groups, apart=bool(K > 2 and rng.random() < 0.3))
    else:
        norm = _norm(rng, groups, D, apart=K > 2)
    C = np.inf
    if family == "C":
        C = float(10.0 ** rng.uniform(-290, 290))
    elif rng.random() < 0.3:
        C = float(10.0 ** rng.uniform(-3, 6))
    classes = None if K == 2 else K
    try:
        return MarginProblem(X, labels, gates, groups, C, norm, intercept, classes=classes)
    except ValueError:
        return None


def _groups(rng: np.random.Generator, size: int) -> NDArray[np.int64]:
    """Draw groups of columns."""
    count = int(rng.integers(1, size + 1))
    found = np.append(np.arange(count), rng.integers(count, size=size - count))
    return np.sort(found).astype(np.int64)


def _norm(
    rng: np.random.Generator, groups: NDArray[np.int64], D: int, *, apart: bool
) -> norms.Norm:
    """Draw a norm, or a sum or maximum of norms over groups."""
    inner = [
        norms.L1(),
        norms.L2(),
        norms.LInf(),
        norms.Spectral(),
        norms.Nuclear(),
        norms.Lp(float(rng.choice(POWERS))),
    ]
    one = inner[rng.integers(len(inner))]
    kind = rng.choice(["one", "sum", "max", "groups"], p=[0.5, 0.2, 0.15, 0.15])
    if kind == "one":
        return one
    if kind == "groups":
        return norms.GroupNorm(groups, apart=bool(apart and rng.random() < 0.3))
    axis = int(rng.choice([-2, -1]))
    over = groups if axis == -2 else _groups(rng, D)
    joined = norms.SumOverGroups if kind == "sum" else norms.MaxOverGroups
    return joined(one, over, axis)


# --- answers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Graded:
    """What `solve` says of a problem, and what of it is not true in exact arithmetic.

    Attributes
    ----------
    solution : Solution
        The answer.
    lies : list of str
        See `oracles.find_lies`.
    seconds : float
        Of the solve.
    """

    solution: Solution
    lies: list[str]
    seconds: float

    @property
    def missed(self) -> bool:
        """Whether there is neither an optimum nor a proof that nothing separates the samples."""
        return self.solution.status not in (Status.OPTIMAL, Status.NOT_SEPARABLE)


def graded(drawn: Draw, method: str = "auto") -> Graded:
    """Solve a problem, from a similar one where it has one, and grade the answer."""
    start = None if drawn.similar is None else solve(drawn.similar, tol=TOLERANCE)
    began = time.perf_counter()
    solution = solve(drawn.problem, method, TOLERANCE, start=start)
    seconds = time.perf_counter() - began
    return Graded(solution, find_lies(drawn.problem, solution, TOLERANCE), seconds)
