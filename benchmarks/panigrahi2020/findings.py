"""What the page says with numbers: the findings, checks of statements, and of the paper's slips.

A statement that no experiment judges is checked here, when the page is written; the others are
stated only, with the reason. Numbers of statements are the paper's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np
import pandas as pd
import torch

from benchmarks.catalogue import Statement
from benchmarks.harness import Judged, Verdict
from benchmarks.page import Kept
from benchmarks.panigrahi2020 import lower_bounds, spectra, training
from benchmarks.panigrahi2020.gram_bounds import (
    boyd_coefficient,
    coefficient_bound,
    drift_allowed,
    polynomial_constraints,
    smoothed_bound,
    smoothed_power,
    zero_index,
)
from benchmarks.panigrahi2020.shared import number
from benchmarks.words import vanishing
from implicit_bias.kernels.gated_least_squares import flow_losses
from implicit_bias.kernels.gradient_gram import (
    ACTIVATIONS,
    circle_points,
    eigenvalues,
    finite_gram,
    gaussian_weights,
    infinite_gram,
    normalise,
    polynomial,
    preprocess,
    separation,
    sphere_eigenvalues,
)


def _gram_of_gradients() -> bool:
    """Equation 2 against autograd, with Gaussian readouts."""
    X = normalise(np.random.default_rng(0).standard_normal((5, 3)))
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn((7, 3), generator=generator, dtype=torch.float64).requires_grad_(True)
    readouts = torch.randn(7, generator=generator, dtype=torch.float64)
    outputs = torch.tanh(torch.tensor(X) @ weights.T) @ readouts / math.sqrt(7)
    rows = [torch.autograd.grad(u, weights, retain_graph=True)[0].reshape(-1) for u in outputs]
    jacobian = torch.stack(rows).numpy()
    gram = finite_gram(X, ACTIVATIONS["tanh"], [weights.detach()], readouts=readouts)
    return bool(np.allclose(gram, jacobian @ jacobian.T, atol=1e-12))


def _analytic_is_positive() -> bool:
    """Lemma 3.2 on samples of which no two are parallel."""
    X = normalise(np.random.default_rng(0).standard_normal((20, 3)))
    return all(sphere_eigenvalues(X, ACTIVATIONS[name])[-1] > 0 for name in ("tanh", "swish"))


def _linear_has_zeros() -> bool:
    """Lemma F.1: n - d eigenvalues are 0."""
    X = normalise(np.random.default_rng(0).standard_normal((12, 5)))
    values = eigenvalues(finite_gram(X, polynomial([0.0, 1.0]), gaussian_weights(50, 5)))
    return int((values < 1e-12 * values[0]).sum()) == 12 - 5


def _preprocessed_is_separated() -> bool:
    """Check the preprocessing: unit vectors, d + 2 features, separation at least D / sqrt 2."""
    X = preprocess(np.random.default_rng(0).standard_normal((30, 4)))
    distances = np.linalg.norm(X[:, None] - X[None], axis=2) + 10 * np.eye(len(X))
    lengths = np.linalg.norm(X, axis=1)
    return bool(
        X.shape[1] == 6
        and np.allclose(lengths, 1)
        and separation(X) >= distances.min() / math.sqrt(2) - 1e-12
    )


def _drift_keeps_half() -> bool:
    """Lemma M.1 for random moves of exactly the length that it allows."""
    X = normalise(np.random.default_rng(0).standard_normal((4, 3)))
    (weights,) = gaussian_weights(200, 3)
    tanh = ACTIVATIONS["tanh"]
    before = eigenvalues(finite_gram(X, tanh, [weights]))[-1]
    allowed = drift_allowed(float(before), 4, 1.0, 4 / (3 * math.sqrt(3)))
    generator = torch.Generator().manual_seed(0)
    for _ in range(20):
        way = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
        way *= allowed / torch.linalg.norm(way, dim=1, keepdim=True)
        if eigenvalues(finite_gram(X, tanh, [weights + way]))[-1] < before / 2:
            return False
    return True


def _flow_is_the_differential_equation() -> bool:
    """Equation 3 against many small steps of d(y - u)/dt = -G (y - u)."""
    gram = infinite_gram(circle_points(5), ACTIVATIONS["relu"])
    residual = start = np.array([1.0, -1.0, 1.0, 1.0, -1.0])
    for _ in range(20_000):
        residual = residual - 5e-4 * gram @ residual
    (loss,) = flow_losses(gram, start, times=np.array([10.0]))
    return bool(abs(loss - residual @ residual / 5) < 1e-3)


def _wide_network_descends_as_predicted() -> bool:
    """Theorem 4.6 for a network of tanh: ||y - u|| within 1 % of the start at all steps."""
    curve = training.training_curves(training.Plan("check", 10, 4096, 1000, 1), "tanh", [0])
    off = (curve["loss"] ** 0.5 - curve["theorem"] ** 0.5).abs().max()
    fallen = curve["loss"].iloc[-1] < 0.9 * curve["loss"].iloc[0]
    return bool(fallen and off < 0.01 * curve["loss"].iloc[0] ** 0.5)


def _duals_are_hermite_series() -> bool:
    """Lemma N.4 for tanh: E phi'(u) phi'(v), by quadrature, is sum_a c_a^2 rho^a."""
    tanh, rho = ACTIVATIONS["tanh"], np.linspace(-0.9, 0.9, 7)
    powers = rho[:, None] ** np.arange(len(tanh.hermite_squares))
    return bool(np.allclose(tanh.kappa(rho), powers @ tanh.hermite_squares, atol=1e-9))


# Errata, in the order of the page.


def displayed_elu() -> str:
    """Differentiate ELU as displayed and as used."""
    z = torch.tensor(-1e-9, dtype=torch.float64, requires_grad=True)
    (displayed,) = torch.autograd.grad(z * torch.expm1(z), z)
    (used,) = torch.autograd.grad(torch.expm1(z), z)
    return (
        f"derivatives at 0 from the left: {abs(float(displayed)):.0f} and {float(used):.0f}, from "
        "the right 1: as displayed it would be J_1"
    )


def coherence() -> str:
    """Compute what separated samples of the least distance multiply to."""
    delta = 0.1
    angle = math.asin(delta)
    X = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    return (
        f"delta = {separation(X):.1f}: the inner product is {float(X[0] @ X[1]):.3f}, not "
        f"{1 - delta:.1f}"
    )


def index() -> str:
    """Find the first eigenvalue that is 0 where theorem 4.3 holds with equality."""
    n, dimension = 10, 2
    X = circle_points(n, dimension)
    values = eigenvalues(infinite_gram(X, polynomial([0.0, 1.0, 1.0])))
    index = zero_index(n, dimension, 2)
    assert index is not None
    return (
        f"z + z^2, d' = {dimension}, n = {n}: C(d' + 2, 2) - 1 = "
        f"{polynomial_constraints(2, dimension)} = n / d', and lambda_{index} = "
        f"{values[index - 1]:.2f}, lambda_{index + 1} {vanishing(values[index])}"
    )


def boyd() -> str:
    """Compare Hermite coefficients with equation 34."""
    squares = ACTIVATIONS["tanh"].hermite_squares
    ratios = [math.sqrt(squares[k]) / boyd_coefficient(k) for k in (20, 100)]
    return f"c_k over it: {ratios[0]:.2g} at k = 20, {ratios[1]:.2g} at k = 100"


def hille() -> str:
    """Compare Hermite coefficients with F.7.1."""
    squares = ACTIVATIONS["tanh"].hermite_squares
    values = [math.sqrt(squares[k]) for k in (20, 100)]
    bounds = [coefficient_bound(k) for k in (20, 100)]
    return (
        f"c_20 = {values[0]:.1e} for a bound of {bounds[0]:.1e}, c_100 = {values[1]:.1e} for "
        f"{bounds[1]:.1e}"
    )


def dropped() -> str:
    """Evaluate 4.7 and I.4.2 side by side."""
    n, gamma, delta = 10**4, 0.5, 0.1
    sigma = delta / (2 * math.sqrt(n))
    formal = smoothed_bound(n, round(1 / gamma), sigma, 1.0)
    return (
        f"n = {n:,}, gamma = 1/2, delta = {delta}, kappa = 1: "
        f"{smoothed_power(n, delta, gamma):.0e} "
        f"for (1/n) (sigma / (n p))^(2p) = {formal:.0e}, even at p = 1/gamma"
    )


def preprocessing() -> str:
    """Measure what preprocessing leaves of the least distance."""
    X = preprocess([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    distance = min(np.linalg.norm(X[i] - X[j]) for i in range(3) for j in range(i))
    return f"distance {distance:.3f}, separation {separation(X):.3f}, at least D / sqrt 2"


def circle() -> str:
    """Measure the separation of points on a whole circle."""
    delta = separation(circle_points(10, arc=2 * math.pi))
    return f"n = 10 on the whole circle: separation {vanishing(delta)}"


def concentration() -> str:
    """Hold fact C.2 against the normal distribution."""
    inside, bound = math.erf(2 / math.sqrt(2)), 1 - 2 * math.exp(-2)
    return f"t = 2 sigma: the probability is {inside:.2f}, the right-hand side {bound:.2f}"


CHECKS = {
    "equation 2": _gram_of_gradients,
    "preprocessing": _preprocessed_is_separated,
    "equation 3": _flow_is_the_differential_equation,
    "lemma 3.2": _analytic_is_positive,
    "lemma F.1": _linear_has_zeros,
    "theorem 4.6 = M.9": _wide_network_descends_as_predicted,
    "M.1, M.11": _drift_keeps_half,
    "N.1, N.2, N.3, N.4": _duals_are_hermite_series,
}
SLIPS = (
    displayed_elu,
    coherence,
    index,
    boyd,
    hille,
    concentration,
    dropped,
    preprocessing,
    circle,
)


def agrees(statement: Statement, kept: Kept) -> str:
    """Check a statement."""
    return "yes, checked" if CHECKS[statement.where]() else "no"


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    powers = lower_bounds.exponents(kept["lower_bounds"])
    ends = spectra.smallest_shares(kept["spectra"])
    half = [name for name in ends if name.startswith("half")][-1]
    found = kept.judge()
    counts = Counter(judged.verdict for judged in found.values())
    said = [f"{count} {_said(verdict, count)}" for verdict in Verdict if (count := counts[verdict])]
    return {
        "claims": len(found),
        "counts": ", ".join(said[:-1]) + f" and {said[-1]}",
        "half": half,
        **{name: number(share) for name, share in ends[half].items()},
        **{f"power_{name}": powers[name]["delta"] for name in ("relu", "elu")},
        "crossings": _crossings(kept["training"]),
        "fallen": _named(kept, found),
        **{slip.__name__: slip() for slip in SLIPS},
    }


def _said(verdict: Verdict, count: int) -> str:
    said = verdict.of_several(count).partition(":")[0]
    return f"{'is' if count == 1 else 'are'} {said}" if verdict is Verdict.UNTESTED else said


def _named(kept: Kept, found: Mapping[str, Judged]) -> str:
    """Name the claims that do not stand, those in part, and those that are not tested."""
    sentences = []
    for verdict in (Verdict.FALLS, Verdict.IN_PART, Verdict.UNTESTED):
        places = [c.where for c in kept.study.claims if found[c.name].verdict is verdict]
        if places:
            opening = verdict.value.partition(":")[0]
            sentences.append(f"{opening[0].upper()}{opening[1:]}: {'; '.join(places)}.")
    return " ".join(sentences)


def _crossings(curves: pd.DataFrame) -> str:
    """Say from which steps ELU is ahead of tanh, in the runs and at infinite width."""
    parts = []
    for n in (10, 50):
        limit = training.crossing(curves, n, "limit")
        run = training.crossing(curves, n, "long")
        ran = "" if run is None else f"{run:,} in the mean of the runs and "
        parts.append(f"{ran}{limit:,} at infinite width for n = {n}")
    return "; ".join(parts)
