"""What the page says with numbers: the findings, and checks of the paper's errata."""

import math
from collections.abc import Mapping

import numpy as np
import torch

from benchmarks.harness import Judged, Verdict
from benchmarks.page import Kept
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020 import spectra
from benchmarks.panigrahi2020.finite_spectrum import polynomial
from benchmarks.panigrahi2020.gram_spectrum import circle_points, preprocess, separation
from benchmarks.words import vanishing

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


def dropped() -> str:
    """Evaluate 4.7 and I.4.2 side by side."""
    n, gamma, delta = 10**4, 0.5, 0.1
    sigma = delta / (2 * math.sqrt(n))
    formal = bounds.smoothed_bound(n, round(1 / gamma), sigma, 1.0)
    return (
        f"n = {n:,}, gamma = 1/2, delta = {delta}, kappa = 1: "
        f"{bounds.smoothed_power(n, delta, gamma):.0e} "
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


def leading() -> str:
    """Compute the Hermite coefficient of a power's derivative."""
    highest = math.sqrt(polynomial([0.0, 0.0, 0.0, 1.0]).hermite_squares[2])
    return f"z^3: {highest:.2f}, and 3 sqrt 2! = {3 * math.sqrt(2):.2f}; a constant, as p is"


SLIPS = (
    displayed_elu,
    coherence,
    concentration,
    dropped,
    preprocessing,
    circle,
    leading,
)


def words(kept: Kept) -> dict[str, object]:
    """Return the values that the texts of the page name."""
    ends = spectra.smallest_shares(kept["spectra"])
    half = [name for name in ends if name.startswith("half")][-1]
    return {
        "half": half,
        **{name: spectra.share_in_words(share, half, name) for name, share in ends[half].items()},
        "fallen": _named(kept, kept.judge()),
        **{slip.__name__: slip() for slip in SLIPS},
    }


def _named(kept: Kept, found: Mapping[str, Judged]) -> str:
    """Name the claims that do not stand."""
    places = [
        f"{each.where}{f' ({reason})' if reason else ''}"
        for each in kept.study.claims
        if found[each.name].verdict is Verdict.FALLS
        for reason in [found[each.name].remark.strip(",; ").partition(";")[0]]
    ]
    return f"Does not stand: {'; '.join(places)}." if places else "No claim falls."
