r"""The margin problem of infinitely wide two-layer networks, its bounds and its separability.

Primal, dual and symbols: see `column_generation`. Here is what needs no solver: the
function h of dual variables as one that `arrangement` maximizes, the value of any network and of
any dual variables as bounds on the optimum, and Gordan's alternative. Labels, margins and dual
variables are those of a `MarginProblem`: coef (J,) and alpha (N,) with two classes, (J, K) and
(N, K) with more.

**Separability.** Distinct lines have linearly independent |<u, w>|, so h = 0 exactly if the
kink of each line and the linear part vanish. "Not separable" is said where this is proven in exact
arithmetic on the stored floats, and nowhere else: see `InfiniteWidthProblem.find_conflict`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from implicit_bias.base.validation import Array, as_finite, check_choice, check_number
from implicit_bias.bounds.separability import Conflict
from implicit_bias.bounds.status import Status
from implicit_bias.infinite_width.arrangement import EPS, Kinked, Lines, row_space
from implicit_bias.problem import MarginProblem, check_C
from implicit_bias.solvers.solve import solve

Activation: TypeAlias = (
    Literal["relu", "leaky relu", "absolute value", "linear plus relu"] | tuple[float, float]
)
SLOPES = {
    "relu": (0.0, 1.0),
    "leaky relu": (0.01, 1.0),
    "absolute value": (-1.0, 1.0),
    "linear plus relu": (1.0, 2.0),
}


@dataclass(frozen=True, eq=False)
class InfiniteWidthProblem:
    """Maximum margin under the variation norm; see the module's head.

    Parameters
    ----------
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels: -1 and +1, or integers 0 .. K - 1 for K > 2 classes.
    activation : {"relu", "leaky relu", "absolute value", "linear plus relu"} or (float, float)
        Sigma, or its slopes below and above 0. The leaky ReLU has the slopes (0.01, 1), linear
        plus ReLU (1, 2).
    C : float
        Weight of the hinge loss in (0, inf]; inf is the hard margin.
    classes : int, optional
        K, where the labels are 0 .. K - 1 but not all of them occur, or K = 2.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels of neither kind, an unknown activation, slopes
        that are both 0, C not positive, inputs whose norms are too far apart.
    TypeError
        C that is no number.
    """

    X: Array = field(repr=False)
    y: Array = field(repr=False)
    activation: Activation = "relu"
    C: float = np.inf
    classes: int | None = None

    def __post_init__(self) -> None:
        X = as_finite(self.X, "X", 2)
        if X.shape[1] == 0:
            raise ValueError(f"X of shape {X.shape} has no columns: append a constant 1")
        object.__setattr__(self, "X", X)
        labels = self.labelled
        object.__setattr__(self, "y", labels.y)
        object.__setattr__(self, "classes", labels.classes)
        sizes = self.sizes[self.sizes > 0]  # without zeros, which have no direction
        if len(sizes) == 0:
            raise ValueError("all inputs are 0, where every network is 0: append a constant 1")
        if not 1e-100 <= sizes.min() <= sizes.max() <= min(1e100, 1e9 * sizes.min()):
            raise ValueError(
                f"norms of the inputs lie between {sizes.min():.3g} and {sizes.max():.3g}, too far "
                "apart or from 1 for float64: standardize the features, or append a constant 1"
            )
        object.__setattr__(self, "C", check_C(self.C))
        if np.shape(self.activation) != (2,):
            check_choice(self.activation, "activation", SLOPES, "its two slopes")
        check_number(self.slope, "the steeper of the two slopes", "(1e-50, 1e50)")

    @cached_property
    def labelled(self) -> MarginProblem:
        """The labels, for what inputs and gates, here all 1, play no part in."""
        # Its constraints and labels are those of this problem, whatever the inputs are.
        ones = np.ones((len(self.X), 1))
        return MarginProblem(ones, self.y, ones, np.zeros(1, np.int64), classes=self.classes)

    @cached_property
    def slopes(self) -> tuple[float, float]:
        """Slopes (a, b) of sigma below and above 0."""
        if isinstance(self.activation, str):
            return SLOPES[self.activation]
        a, b = self.activation
        return float(a), float(b)

    @property
    def slope(self) -> float:
        """The steeper one: |sigma(t)| is at most this times |t|."""
        return max(map(abs, self.slopes))

    @cached_property
    def basis(self) -> Array:
        """Orthonormal basis of the row space of X, shape (D, r), up to what `unresolved` bounds."""
        return row_space(self._units)

    @cached_property
    def inputs(self) -> Array:
        """Inputs divided by their norms, in the basis, shape (N, r); zeros stay."""
        return self._units @ self.basis

    @cached_property
    def unresolved(self) -> float:
        """Bound on what rounding, the basis and the merged lines move an input, per its norm."""
        outside = np.linalg.norm(self._units - self.inputs @ self.basis.T, axis=1).max()
        rounding = EPS * (2 * self.X.shape[1] + self.rank + 8)
        return float(outside) + self.lines.deviation + rounding

    @cached_property
    def lines(self) -> Lines:
        """Lines through 0 that hold the inputs, in the basis."""
        return Lines.of(self.inputs)

    @property
    def rank(self) -> int:
        """Rank r of the inputs."""
        return self.basis.shape[1]

    @cached_property
    def scale(self) -> float:
        """Largest norm of an input."""
        return float(self.sizes.max())

    @cached_property
    def sizes(self) -> Array:
        """Norms of the inputs, shape (N,)."""
        with np.errstate(over="ignore"):  # what overflows is refused
            return np.asarray(np.linalg.norm(self.X, axis=1))

    @cached_property
    def _units(self) -> Array:
        return self.X / np.where(self.sizes > 0, self.sizes, 1.0)[:, None]

    def activations(self, directions: Array, X: Array | None = None) -> Array:
        """sigma(<w_j, x_n>) of directions (J, D) at X (n, D), by default the data: (n, J)."""
        if X is None:
            X = self.X
        return self.sigma(X @ directions.T)

    def sigma(self, products: Array) -> Array:
        """Return the activation of each entry."""
        a, b = self.slopes
        return np.where(products > 0, b * products, a * products)

    def margins(self, directions: Array, coef: Array) -> Array:
        """Return the smallest margin of each sample, shape (N,), of a network."""
        return self.labelled.margins(self.activations(directions) @ coef)

    def dual_function(self, alpha: Array) -> Kinked:
        """Return h of dual variables, in the basis of the row space."""
        a, b = self.slopes
        # sigma is homogeneous, so that the norms of the inputs enter here alone.
        weights = self.labelled.weights(alpha).reshape(len(alpha), -1) * self.sizes[:, None]
        # sigma(t) = (a + b) / 2 t + (b - a) / 2 |t|: a linear part, and a kink for each line.
        # |<x_n, w>| = |t_n| |<u, w>|: which way an input points on its line does not matter here.
        kinks = 0.5 * (b - a) * self.lines.sums(weights * np.abs(self.lines.lengths)[:, None])
        total = float(np.linalg.norm(weights, axis=1).sum())
        # Where an input is moved, sigma changes by at most its steeper slope times the way.
        slack = self.slope * (self.unresolved + EPS * len(alpha)) * total
        return Kinked(0.5 * (a + b) * (weights.T @ self.inputs), self.lines.normals, kinks, slack)

    def signs(self, alpha: Array, points: Array) -> Array:
        """Signs of h at points (k, r) of the basis; 0 with classes, where it has no sign."""
        if self.classes is not None:
            return np.zeros(len(points))
        return np.asarray(np.sign(self.dual_function(alpha).values(points)[:, 0]))

    def dual_values(self, alpha: Array, directions: Array) -> Array:
        """h(w_j) at directions (J, D): shape (J,), or (J, K)."""
        return np.asarray(self.activations(directions).T @ self.labelled.weights(alpha))

    def first_directions(self, most: int = 64) -> Array:
        """Return some lines of the data and the axes, both ways: unit vectors (J, r)."""
        normals = self.lines.normals
        count = min(len(normals), most)
        some = normals[np.linspace(0, len(normals) - 1, count).astype(np.int64)]
        some = np.vstack([some, np.eye(self.rank)])
        return np.vstack([some, -some])

    def dual_bound(self, alpha: Array, largest: float) -> float:
        """Lower bound of alpha >= 0 on the smallest norm, given an upper bound of its max ||h||."""
        total = float(alpha.sum())
        if total <= 0:
            return 0.0
        # The largest multiple that is feasible: max ||h|| <= 1, and at most C a sample.
        scale = self.C / float(self.labelled.totals(alpha).max())
        if largest > 0:
            scale = min(scale, 1.0 / largest)
        rounding = EPS * (alpha.size + self.X.shape[1] + 8)
        return total * scale * (1.0 - rounding)

    def gordan_ratio(self, alpha: Array) -> float:
        """Lower bound on a separator's norm, of the inputs scaled to norm 1, if max ||h|| <= 1."""
        return float(self.labelled.totals(alpha) @ self.sizes) * self.slope

    def primal_bound(self, directions: Array, coef: Array) -> tuple[float, float]:
        """Upper bound of a network on the smallest norm, and its smallest margin.

        Parameters
        ----------
        directions : ndarray of shape (J, D)
            First-layer weights, of any length.
        coef : ndarray of shape (J,) or (J, K)
            Second-layer weights.
        """
        norm = float(unit_weights(coef) @ np.linalg.norm(directions, axis=1))
        n_outputs = self.classes or 1
        terms = len(coef) + self.X.shape[1] + n_outputs + 3
        # A margin is an output, or a difference of two, each rounded by its number of terms.
        rounding = min(n_outputs, 2) * EPS * terms * self.slope * norm * self.sizes
        margins = self.margins(directions, coef)
        if np.isfinite(self.C):
            hinge = float(np.maximum(0.0, 1.0 - margins + rounding).sum())
            # The network of 0 has the loss 1 at each sample.
            value = min(norm + self.C * hinge, self.C * len(margins))
            return value * (1.0 + EPS * (4 * len(margins) + terms + 4)), float(margins.min())
        smallest = float((margins - rounding).min())
        if not smallest > 0:  # no margin that rounding leaves positive: no bound
            return np.inf, float(margins.min())
        return norm * (1.0 + EPS * (terms + 4)) / smallest, float(margins.min())

    def find_conflict(self) -> Conflict | None:
        """Look for an exact proof that no network separates some two of the classes.

        Gordan's alpha with h = 0, on the stored floats, in exact arithmetic. None: separable, or
        inseparable for a reason that takes three classes, or too nearly so for a proof. A finite C
        forgives everything.
        """
        if np.isfinite(self.C):
            return None
        zeros = np.flatnonzero(self.sizes == 0)
        if len(zeros):
            alpha = np.zeros(self.labelled.alpha_shape)
            alpha[zeros] = self.labelled.constraints.equal_alpha()[zeros] / len(zeros)
            return Conflict(
                f"the input of sample {zeros[0]} is 0, where every network is 0: drop it, append a "
                "constant to the inputs, or choose a finite C (soft margin)",
                zeros,
                alpha,
            )
        if self.classes is None:
            return _conflict_of_two(self)
        # A proof for two of the classes is one for all: their pairs' alpha, and 0 elsewhere.
        for one, other in combinations(np.unique(self.y).tolist(), 2):
            some = np.flatnonzero((self.y == one) | (self.y == other))
            signs = np.where(self.y[some] == one, 1.0, -1.0)
            found = _conflict_of_two(InfiniteWidthProblem(self.X[some], signs, self.activation))
            if found is not None:
                alpha = np.zeros(self.labelled.alpha_shape)
                alpha[some, np.where(signs > 0, other, one)] = found.alpha
                named = f"of classes {one} and {other} (samples counted among theirs alone): "
                return Conflict(named + found.cause, some[found.samples], alpha)
        return None


def unit_weights(coef: Array) -> Array:
    """|coef_j|, or the length of the output weights of each unit: shape (J,)."""
    return np.asarray(np.linalg.norm(np.atleast_2d(coef.T), axis=0))


def _conflict_of_two(problem: InfiniteWidthProblem) -> Conflict | None:
    """Look for a proof that no network separates labels -1 and +1 of inputs that are not 0.

    On a line without two equal directions of opposite labels, only two opposite directions of
    opposite labels can cancel the kink, and they leave a linear function along the line. So
    what is left is whether these linear functions cancel: separability by a linear predictor.
    """
    a, b = problem.slopes
    if a == b:  # sigma is linear
        partners = {n: n for n in range(len(problem.y))}
    else:
        found = _opposites(problem, even=a == -b)
        if isinstance(found, Conflict):
            return found
        partners = found
    # Each pair of opposite inputs is one input of a linear predictor.
    weights = _linear_gordan(problem, np.array(list(partners), dtype=np.int64))
    if weights is None:
        return None
    shares = np.zeros(len(problem.y))
    for weight, (n, m) in zip(weights, partners.items(), strict=True):
        # Half to each of a pair, whose kinks then cancel; n = m, of a linear sigma, gets both.
        shares[n] += 0.5 * weight
        shares[m] += 0.5 * weight
    return _conflict(problem, shares)


def _opposites(problem: InfiniteWidthProblem, *, even: bool) -> Conflict | dict[int, int]:
    """Two inputs of one direction and opposite labels; or pairs of opposite direction and label.

    An even activation has the same value at opposite directions.
    """
    # Exact multiples are looked for among inputs whose directions differ by rounding.
    near = Lines.of(problem.inputs, 1e-12).line
    shared = np.flatnonzero(np.bincount(near)[near] > 1)
    first: dict[tuple[int, ...], int] = {}
    partners: dict[int, int] = {}
    for n in shared.tolist():
        ray = _ray(problem.X[n])
        back = tuple(-v for v in ray)
        if even:
            ray = max(ray, back)
        other = first.setdefault(ray, n)
        if problem.y[other] != problem.y[n]:
            shares = np.zeros(len(problem.y))
            shares[[other, n]] = 0.5
            return _conflict(problem, shares)
        opposite = first.get(back)
        if opposite is not None and problem.y[opposite] != problem.y[n]:
            partners[opposite] = n
    return partners


def _ray(x: Array) -> tuple[int, ...]:
    """Coprime integers proportional to x: equal for exact positive multiples alone."""
    ratios = [value.as_integer_ratio() for value in x.tolist()]
    common = max(denominator for _, denominator in ratios)  # they are powers of two
    integers = [numerator * (common // denominator) for numerator, denominator in ratios]
    divisor = math.gcd(*integers)
    return tuple(value // divisor for value in integers)


def _linear_gordan(problem: InfiniteWidthProblem, samples: NDArray[np.int64]) -> Array | None:
    """Weights >= 0 of the unit inputs of some samples whose labelled sum is proven to reach 0."""
    if not len(samples):
        return None
    gates = np.ones((len(samples), 1))
    groups = np.zeros(1, dtype=np.int64)
    linear = MarginProblem(problem.X[samples], problem.y[samples], gates, groups)
    found = solve(linear, "feature-space")
    if found.status is not Status.NOT_SEPARABLE:
        return None
    return np.asarray(found.alpha * problem.sizes[samples])


def _conflict(problem: InfiniteWidthProblem, shares: Array) -> Conflict:
    """Name the samples whose unit inputs have these weights (N,) in Gordan's alternative."""
    alpha = shares / problem.sizes
    alpha /= alpha.sum()
    samples = np.flatnonzero(alpha)
    names = ", ".join(map(str, samples[:5]))
    if len(samples) > 5:
        names += ", ..."
    networks = " without offsets"
    cure = "append a constant, "
    if ((problem.X == problem.X[0]).all(axis=0) & (problem.X[0] != 0)).any():  # it is there
        networks = cure = ""
    return Conflict(
        f"samples {names} contradict each other for every network{networks}: equal (or "
        "proportional) inputs with opposite labels, or inputs on lines through 0 whose labels no "
        f"homogeneous function takes; drop one, {cure}or choose a finite C",
        samples,
        alpha,
    )
