"""Lemmas, constants and slips of the paper, each checked at a small size.

A row is one inequality or equation of the paper with its exact constants: what the paper gives,
what we get, and whether the relation holds. Probabilities are shares of independent draws. Slips
are inequalities that the paper states or uses and that fail, next to what holds in their place; of
theorem 4, what fails is what its assumptions exclude. What cannot fail at sizes that run is no row.

Source: Fiat, Malach, Shalev-Shwartz: [L] arXiv:1906.05032 (2019), [C] the submission of 2018.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import SupportsFloat

import numpy as np
import pandas as pd
import torch
from torch.nn.functional import softplus

from benchmarks.fiat2019 import galu_clusters as clusters
from benchmarks.fiat2019 import theorems_1_and_2
from benchmarks.fiat2019 import theorems_3_to_5 as bounds
from benchmarks.harness import Experiment, Judged, Row, Rows, Verdict, whole
from benchmarks.words import vanishing
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.kernels import gated_least_squares as galu
from implicit_bias.kernels import least_squares as fitted
from implicit_bias.kernels.gradient_gram import normalise

DELTA = 0.05
RELATIONS: dict[str, Callable[[float, float], bool]] = {
    "at most": lambda ours, paper: ours <= paper,
    "at least": lambda ours, paper: ours >= paper,
    "equal": lambda ours, paper: math.isclose(ours, paper, rel_tol=0.06, abs_tol=1e-9),
}


def _check(
    relation: str, what: str, ours: SupportsFloat, paper: float, *, slip: bool = False, **found: str
) -> Row:
    """Return a row: ours should stand in the relation to what the paper gives, but for a slip."""
    row = {"what": what, "paper": paper, "relation": relation, "ours": float(ours), "slip": slip}
    return row | found


at_most, at_least, equal = (partial(_check, relation) for relation in RELATIONS)


def sphere(m: int, d: int, rng: np.random.Generator) -> Array:
    """Draw m uniform points on the unit sphere of R^d."""
    return normalise(rng.normal(size=(m, d)))


def gates_of(X: Array, filters: Array) -> Array:
    """Hard gates (m, k), 1[<u, x> >= 0]."""
    return (X @ filters.T >= 0).astype(np.float64)


# --- optimisation ----------------------------------------------------------------------------


def lemma_1(rng: np.random.Generator, draws: int) -> Rows:
    """Share of draws that fail at the printed width, and at the smaller one."""
    m, d = 30, 15
    X = sphere(m, d, rng)
    half = galu.smallest_eigenvalue(X) / 2
    for constant, words in (
        (theorems_1_and_2.PUBLISHED_CHERNOFF, "8"),
        (theorems_1_and_2.CHERNOFF, "2 / log(e/2) = 6.518"),
    ):
        k = theorems_1_and_2.sufficient_width(X, DELTA, constant=constant)
        failed = [
            np.linalg.eigvalsh(fitted.gated_gram(X, gates_of(X, rng.normal(size=(k, d)))))[0]
            < k * half
            for _ in range(draws // 10)
        ]
        what = (
            f"share with sigma_min^2 < k lambda/2 at k = {k} (constant {words}), m = {m}, d = {d}"
        )
        yield at_most(what, np.mean(failed), DELTA)


def lemma_2(rng: np.random.Generator, draws: int) -> Rows:
    """Check the ingredients: the norm of X, and the Khatri-Rao bound beside lambda(X)."""
    for m, d in ((400, 200), (200, 40), (400, 20)):
        norms = [np.linalg.norm(sphere(m, d, rng), 2) for _ in range(draws // 10)]
        what = f"largest ||X|| of {draws // 10} draws, m = {m}, d = {d}; 2 sqrt(m/d)"
        yield at_most(what, max(norms), 2 * math.sqrt(m / d))
    d = 200
    above = [np.linalg.norm(sphere(d, d, rng), 2) > 2 for _ in range(draws // 4)]
    what = f"share of draws with ||X|| > 2 sqrt(m/d) = 2 at m = d = {d}; e^(-g d), g = 0.05 say"
    yield at_most(what, np.mean(above), math.exp(-0.05 * d), slip=True)
    for d in (40, 80, 160, 320):
        X = sphere(200, d, rng)
        what = f"lambda(X) above sigma_min(X*X)^2/(2 pi), m = 200, d = {d}"
        bound = theorems_1_and_2.khatri_rao_bound(X)
        yield at_least(what, galu.smallest_eigenvalue(X), bound)


# --- clusters --------------------------------------------------------------------------------


def lemma_3(rng: np.random.Generator, draws: int) -> Rows:
    """Check mu of random signs at the printed dimension, and the tail of the proof."""
    for n in (5, 10, 20):
        d = clusters.sufficient_dimension(n, DELTA, constant=clusters.PRINTED_DIMENSION)
        mu = [
            clusters.smallest_eigenvalue(clusters.sign_centres(n, d, random_state=rng))
            for _ in range(draws // 10)
        ]
        what = f"least mu of {draws // 10} draws at the printed d = {d}, n = {n}"
        yield at_least(what, min(mu), 0.125)
    signs, e = 10, 0.4
    sums = np.abs(2 * np.arange(signs + 1) - signs) / signs
    tail = sum(math.comb(signs, i) for i in range(signs + 1) if sums[i] >= e - 1e-12) / 2**signs
    what = "P(|mean of 10 signs| >= 0.4), the proof's 2 exp(-8 d e^2)"
    yield at_most(what, tail, 2 * math.exp(-8 * signs * e**2), slip=True)
    hoeffding = 2 * math.exp(-signs * e**2 / 2)
    yield at_most("the same, Hoeffding's 2 exp(-d e^2 / 2)", tail, hoeffding)


def lemmas_4_to_7(rng: np.random.Generator, draws: int) -> Rows:
    """Draw filters, and see which of them split a cluster."""
    n, d = 5, 10
    V = sphere(n, d, rng)
    smallest, k = clusters.smallest_eigenvalue(V), clusters.sufficient_width(V, DELTA)
    radius = clusters.largest_radius(n, k, d, DELTA)
    few, split = [], []
    for _ in range(draws):
        filters = sphere(k, d, rng)
        A = clusters.centre_gates(filters, V)
        few.append(np.linalg.eigvalsh(A @ A.T)[0] <= k * smallest / 2)
        split.append(clusters.splits(filters, V, radius).any())
    what = f"share with sigma_min(A)^2 <= k mu/2, n = {n}, d = {d}, k = {k}"
    yield at_most(what, np.mean(few), DELTA, statement="[L] Lemma 4")
    for d_, r in ((10, 0.1), (100, 0.01)):
        what = f"P(|<u, x>| <= {r}), d = {d_}; r sqrt d"
        exact, bound = clusters.band_probability(r, d_), clusters.band_bound(r, d_)
        yield at_most(what, exact, bound, statement="[L] Lemma 5")
    what = f"P(one filter splits one cluster) at r = {radius:.1e}; delta/(k n)"
    exact = clusters.band_probability(radius, d)
    yield at_most(what, exact, DELTA / (k * n), statement="[L] Lemma 6")
    what = "share of draws in which a filter splits a cluster; delta"
    yield at_most(what, np.mean(split), DELTA, statement="[L] Lemma 7")


def lemma_10(rng: np.random.Generator, draws: int) -> Rows:
    """Check the inverse of T, as printed and as it is."""
    n, d = 5, 10
    ones = np.ones((n, n))
    T = (np.eye(n) + ones) / 4
    yield equal(f"||T^-1||, n = {n}", np.linalg.norm(np.linalg.inv(T), 2), 4.0)
    for size, words, slip in (
        (d, f"d + 1 = {d + 1} (printed)", True),
        (n, f"n + 1 = {n + 1}", False),
    ):
        error = np.abs(T @ (4 * np.eye(n) - 4 / (size + 1) * ones) - np.eye(n)).max()
        yield equal(f"error of T^-1 = 4 I - 4/({words}) 11'", error, 0.0, slip=slip)


# --- generalisation --------------------------------------------------------------------------


def theorem_3(rng: np.random.Generator, draws: int) -> Rows:
    """Check the steps of the proof; the width is too large to run."""
    m, d, k = 20, 10, 4000
    X = sphere(m, d, rng)
    infinite, smallest = galu.limit_kernel(X), galu.smallest_eigenvalue(X)
    y = infinite @ rng.normal(size=m)
    y /= np.abs(y).max()
    square = float(y @ np.linalg.solve(infinite, y))
    H = fitted.gated_gram(X, gates_of(X, rng.normal(size=(k, d)))) / k
    r = smallest / float(np.linalg.norm(H - infinite, 2))
    apart = np.linalg.norm(np.linalg.inv(H) - np.linalg.inv(infinite), 2)
    what = f"||Hk^-1 - Hinf^-1|| at r = {r:.1f}; 1/((r-1) lambda)"
    yield at_most(what, apart, bounds.inverse_deviation(r, smallest))
    norm, bound = y @ np.linalg.solve(H, y), bounds.interpolant_norm_bound(infinite, y, r)
    yield at_most("||w*||^2; y' Hinf^-1 y + m/((r-1) lambda)", norm, bound)
    # The largest correlation of signs with a ball of coefficients, ||w|| <= sqrt 2 M, is
    # sqrt 2 M ||Phi' signs|| / m, in the mean over signs. They have a generator of their own, so
    # that the rows after this one keep their draws.
    signs = np.random.default_rng(3).choice([-1.0, 1.0], size=(20 * draws, m))
    sizes = np.sqrt(np.einsum("ri,ij,rj->r", signs, H, signs))
    complexity = math.sqrt(2 * square) * float(sizes.mean()) / m
    bound = bounds.kernel_rademacher(math.sqrt(square), m)
    yield at_most("Rademacher complexity of the norm sqrt2 M; sqrt2 M/sqrt m", complexity, bound)


def linear_complexity(rng: np.random.Generator, draws: int) -> Rows:
    """Take the mean over signs of the largest correlation with a ball of coefficients."""
    X = rng.normal(size=(50, 8))
    signs = rng.choice([-1.0, 1.0], size=(20 * draws, 50))
    sums = np.abs(signs @ X / 50)
    largest, bound = np.linalg.norm(sums, axis=1).mean(), bounds.linear_rademacher(X, 1.0, p=2)
    yield at_most("Rademacher complexity, ||w||_2 <= 1, m = 50, d = 8", largest, bound)
    largest, bound = sums.max(axis=1).mean(), bounds.linear_rademacher(X, 1.0, p=1)
    yield at_most("Rademacher complexity, ||w||_1 <= 1", largest, bound)


def linear_losses(rng: np.random.Generator, draws: int) -> Rows:
    """Fit linear targets, and compare the losses with their means."""
    d, s = 10, 0.5
    for m in (d + 2, 4 * d):
        losses = []
        for _ in range(10 * draws):
            X, e = rng.normal(size=(m, d)), s * rng.normal(size=m)
            slope = np.linalg.lstsq(X, e, rcond=None)[0]  # b drops out
            losses.append((np.mean((X @ slope - e) ** 2), s**2 + np.sum(slope**2)))
        train, test = bounds.linear_regression_losses(m, d, s)
        means = np.mean(losses, axis=0)
        yield equal(f"train, m = {m}, d = {d}, s = {s}", means[0], train)
        # At m = d + 2 the test loss has a mean, but no variance: no mean of draws shows it.
        if m > d + 3:
            yield equal(f"test, m = {m}, d = {d}, s = {s}", means[1], test)


# --- relation to ReLU ------------------------------------------------------------------------


def hinge(margins: torch.Tensor) -> torch.Tensor:
    """max(0, 1 - q) of each margin q = y f(x), the loss of support vector machines."""
    return (1 - margins).relu()


def theorem_4(rng: np.random.Generator, draws: int) -> Rows:
    """Gradients of both networks by autograd, where outputs are in [-1, 1] and where not."""
    m, d, k = 200, 20, 30
    X = sphere(m, d, rng) * rng.random((m, 1)) ** (1 / d)
    y = rng.choice([-1.0, 1.0], m)
    U, W, a = rng.normal(size=(k, d)), rng.normal(size=(k, d)), rng.normal(size=k)
    a /= max(bounds.largest_output(U, a), bounds.largest_output(W, a))
    losses: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "hinge": hinge,
        "squared": lambda q: (1 - q) ** 2,
        "logistic": lambda q: softplus(-q),
    }
    for name, scale, slip in (
        ("hinge", 1.0, False),
        ("squared", 1.0, True),
        ("logistic", 1.0, True),
        ("hinge", 300.0, True),
    ):
        apart = gradient_distance(X, y, U, W, scale * a, losses[name])
        where = "" if scale == 1 else ", outputs beyond [-1, 1]"
        what = f"distance of the two gradients over their size, {name} loss{where}"
        yield equal(what, apart, 0.0, slip=slip)


def gradient_distance(
    X: Array, y: Array, U: Array, W: Array, a: Array, loss: Callable[[torch.Tensor], torch.Tensor]
) -> float:
    """Distance of the GaLU gradient in W from the ReLU gradient in U, over the latter's norm."""
    inputs, labels, readout, gated_by = (torch.tensor(v) for v in (X, y, a, U))
    slopes = []
    for start in (W, U):
        weights = torch.tensor(start, requires_grad=True)
        units = (inputs @ gated_by.T >= 0).double() * (inputs @ weights.T)
        torch.autograd.backward(loss(labels * (units @ readout) / math.sqrt(len(a))).mean())
        assert weights.grad is not None
        slopes.append(weights.grad.numpy())
    return float(np.linalg.norm(slopes[0] - slopes[1]) / np.linalg.norm(slopes[1]))


def theorem_5(rng: np.random.Generator, draws: int) -> Rows:
    """Check a step of the proof, which fails as printed, what holds in its place, and lemma 11."""
    of_lemma = partial(at_most, statement="[L] Lemma 11")
    d, eps, k = 20, 1.0, 20_000
    U, x = rng.normal(size=(k, d)), np.eye(d)[0]
    near = U.copy()
    near[:, 0] -= eps * np.sign(U[:, 0])  # flips every gate within eps of x's hyperplane
    flipped = np.mean((U @ x >= 0) != (near @ x >= 0))
    apart = abs(np.sum(np.maximum(near @ x, 0) - (U @ x >= 0) * (near @ x))) / math.sqrt(k)
    largest = float(np.linalg.norm(near, axis=1).max())
    what = f"proof's step: outputs by equal weights, one x, a = 1, d = {d}, eps = {eps}, k = {k}"
    proved = partial(bounds.relu_approximation_error, d, eps, largest=largest, n_units=k)
    derived = bounds.flipped_error(np.ones(k), eps, float(flipped))
    for words, bound, slip in (
        ("as printed", proved(printed=True), True),
        ("with the factor sqrt k", proved(), False),
        ("sqrt k max|a| eps share (derived here)", derived, False),
    ):
        yield at_most(f"{what}; {words}", apart, bound, slip=slip)
    for dimension in (2, 3, 100):
        what = f"P(||u||^2 >= sqrt6 d), d = {dimension}; e^-d"
        failure = bounds.filter_norm_failure(dimension, bounds.PRINTED_NORM_SQUARE)
        yield of_lemma(what, failure, math.exp(-dimension), slip=dimension > 2)
    what = f"P(||u||^2 >= {bounds.NORM_SQUARE:.2f} d), d = 100; e^-d"
    yield of_lemma(what, bounds.filter_norm_failure(100, bounds.NORM_SQUARE), math.exp(-100))
    eps = 0.05
    near = U.copy()
    near[:, 0] -= eps * np.sign(U[:, 0])
    X = np.vstack([x, sphere(200, d, rng)])
    change = np.mean((X @ U.T >= 0) != (X @ near.T >= 0), axis=1).max()
    what = f"largest ||Phi_U(x) - Phi_W(x)||^2 found, d = {d}, eps = {eps}"
    yield of_lemma(what, change, bounds.gate_change_bound(d, eps))


# By the statement of the paper, but for rows that name another.
CHECKS: dict[str, Callable[[np.random.Generator, int], Rows]] = {
    "[L] Lemma 1": lemma_1,
    "[L] Lemma 2": lemma_2,
    "[L] Lemma 3": lemma_3,
    "[L] Lemmas 4 to 7": lemmas_4_to_7,
    "[L] Lemma 10": lemma_10,
    "[L] Theorem 3": theorem_3,
    "[C] 4.2.1": linear_complexity,
    "[C] Lemma 1": linear_losses,
    "[L] Theorem 4": theorem_4,
    "[L] Theorem 5": theorem_5,
}


def measure(quick: bool) -> Rows:
    """Make all checks."""
    rng = np.random.default_rng(0)
    draws = 40 if quick else 400
    return (
        {"statement": statement} | check
        for statement, make in CHECKS.items()
        for check in make(rng, draws)
    )


def holds(frame: pd.DataFrame) -> pd.Series:
    """Whether each row's relation holds."""
    return frame.apply(lambda row: RELATIONS[row["relation"]](row["ours"], row["paper"]), axis=1)


def found(frame: pd.DataFrame) -> str:
    """Count what holds."""
    true = holds(frame)
    right, slips = frame[~frame["slip"]], frame[frame["slip"]]
    return (
        f"Of {len(right)} relations that can fail and should hold {int(true[right.index].sum())} "
        f"hold; of {len(slips)} that should not (slips of the paper, or assumptions of a theorem "
        f"left out) {int((~true[slips.index]).sum())} fail."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Show every row."""
    words = {"at most": "<=", "at least": ">=", "equal": "="}
    rounding = (frame["paper"] == 0) & frame["ours"].between(0, 1e-12, inclusive="neither")
    ours = frame["ours"].map("{:.3g}".format).where(~rounding, "below 1e-12")
    return frame.assign(ours=ours, relation=frame["relation"].map(words), holds=holds(frame))


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    return Verdict.of(bool((holds(frame) != frame["slip"]).all()))


def theorem_4_judged(frame: pd.DataFrame) -> Judged:
    """Judge theorem 4: gradients are the same inside its assumptions, and differ outside."""
    rows = frame[frame["statement"] == "[L] Theorem 4"]
    inside = rows[~rows["slip"]]
    return Judged(
        verdict=Verdict.of(holds(inside).all() and not holds(rows[rows["slip"]]).any()),
        result=f"The distance of the two gradients over their size is "
        f"{vanishing(inside['ours'].max())}, outside the assumptions at least "
        f"{percent(rows.loc[rows['slip'], 'ours'].min())}.",
    )


def theorem_5_judged(moved: float = 4.0) -> Judged:
    """Judge theorem 5 by bounds on the error while filters move by ``moved``/sqrt k."""
    d, widths = 20, (10**2, 10**4, 10**6)
    proved, printed, derived = [], [], []
    for k in widths:
        eps = moved / math.sqrt(k)
        assert bounds.relu_approximation_width(d, eps, DELTA) <= k
        # B of the proof bounds all filters. Of as many, a = 1, the largest is longer than sqrt d.
        largest = math.sqrt(bounds.PRINTED_NORM_SQUARE * d) + eps
        proved.append(bounds.relu_approximation_error(d, eps, largest=largest, n_units=k))
        largest = math.sqrt(d) - eps
        printed.append(
            bounds.relu_approximation_error(d, eps, largest=largest, n_units=k, printed=True)
        )
        share = math.erf(eps / math.sqrt(2))  # of Gaussian filters within eps of any x's hyperplane
        derived.append(bounds.flipped_error(np.ones(k), eps, share))
    own, other = (all(np.less_equal(errors, printed)) for errors in (proved, derived))
    return Judged(
        verdict=Verdict.of(own or other),
        remark=", where filters move by the order of 1/sqrt k"
        + ("" if own else "; its printed proof does not yield it"),
        result="The inequality allows GaLU a loss of up to "
        f"{printed[0]:.0f} (k = {widths[0]:,}) or {printed[-1]:.1f} (k = {widths[-1]:,}) above "
        f"ReLU's; its proof yields {proved[0]:.0f} and {proved[-1]:.0f}, a bound derived here "
        f"{derived[0]:.2g} and {derived[-1]:.2g}.",
        evidence=(
            f"Here a = 1, L = 1, d = {d}, where the theorem's assumptions hold, and filters move "
            f"by {moved:g}/sqrt k. Moved by a constant, neither bound yields it for large k.",
        ),
    )


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict)
