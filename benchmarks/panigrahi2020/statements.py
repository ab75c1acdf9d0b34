"""The statements of the paper, each with its place here, and the paper's slips with their checks.

What agrees is not typed: it is the verdict of the experiment that is named, or the outcome of a
check; "stated only" has its reason. Numbers of statements are the paper's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks.harness import vanishing
from benchmarks.panigrahi2020 import training
from benchmarks.panigrahi2020.gram_bounds import (
    boyd_coefficient,
    coefficient_bound,
    drift_allowed,
    khatri_rao_bound,
    polynomial_constraints,
    smoothed_bound,
    smoothed_power,
    zero_index,
)
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
    smoothed_points,
    sphere_eigenvalues,
)

STATED = "stated only"


@dataclass(frozen=True)
class Statement:
    """A statement of the paper.

    Attributes
    ----------
    number : str
        The paper's.
    says : str
        What it says, with constants and assumptions, in Markdown.
    ours : str
        The function that computes it, or the reason why it is stated only.
    experiment : str
        Name of the one whose verdict says whether it agrees; or "".
    check : callable or None
        Says whether it agrees, where no experiment does; without both it is stated only.
    """

    number: str
    says: str
    ours: str
    experiment: str = ""
    check: Callable[[], bool] | None = None


@dataclass(frozen=True)
class Slip:
    """Something in the paper that is not as it is printed; the check says how we know."""

    what: str
    check: Callable[[], str]


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


# Every row of the facts, in their order.
STATEMENTS = (
    Statement(
        "equation 1, setting",
        "F(x) = (c/sqrt m) sum_k a_k phi(<w_k, x>), c = (E phi(z)^2)^(-1/2), set to 1 in the "
        "theory "
        "of one hidden layer; DZPS: w_k ~ N(0, I), a_k ~ N(0, 1); W is trained, a is kept, no "
        "bias; "
        "L = 1/2 sum (y - u)^2, full batch",
        "`gradient_gram.INITIALISATIONS`; networks of the training curves",
        experiment="extensions",
    ),
    Statement(
        "equation 2",
        "G_ij = <x_i, x_j> (1/m) sum_k a_k^2 phi'(<w_k, x_i>) phi'(<w_k, x_j>) = M'M / m",
        "`gradient_gram.finite_gram(readouts=)`, `finite_eigenvalues` from M; `infinite_gram`",
        check=_gram_of_gradients,
    ),
    Statement(
        "assumptions 1, 2",
        "||x_i|| = 1; delta-separation: ||(I - x_i x_i') x_j|| >= delta for all i != j",
        "`gradient_gram.separation`; rows of other lengths are refused",
        experiment="lower_bounds",
    ),
    Statement(
        "preprocessing",
        "one scale to length <= 1/sqrt 2, a coordinate that fills up to 1/sqrt 2, a coordinate "
        "1/sqrt 2: d + 2 features; distances >= delta then give assumption 2",
        "`gradient_gram.preprocess`; see the slips",
        check=_preprocessed_is_separated,
    ),
    Statement(
        "equation 3",
        "gradient flow, m to infinity: y - u(t) = sum_i e^(-lambda_i t) v_i v_i' (y - u(0))",
        "`gated_least_squares.flow_losses`; beside the training curves",
        check=_flow_is_the_differential_equation,
    ),
    Statement(
        "activations",
        "ReLU, LReLU (alpha < 1), tanh, sigmoid, swish, ELU, SELU, linear, polynomials",
        "`gradient_gram.ACTIVATIONS`, `polynomial`; `Activation` takes any other",
        experiment="spectra",
    ),
    Statement(
        "appendix D",
        "starts: fan-in w ~ N(0, I/d), a ~ N(0, 1/m), b ~ N(0, 0.01); fan-out w ~ N(0, I/m), a ~ "
        "N(0, 1), b ~ N(0, 1/m) (a factor 2 is possible); rates 1 and 1/m give the same G",
        "`gradient_gram.INITIALISATIONS`",
        experiment="extensions",
    ),
    Statement(
        "theorem 3.1 (Du et al.)",
        "ReLU, a = +-1: m >= Omega(n^6 lambda^-4 kappa^-3), eta <= O(lambda / n^2): ||y - u(t)||^2 "
        "<= (1 - eta lambda / 2)^t ||y - u(0)||^2",
        "`gram_bounds.descent_width`: at n = 10 far beyond any width; stated only for the rate",
    ),
    Statement(
        "lemma 3.2",
        "phi analytic, not a polynomial, no two samples parallel: lambda_min(G_inf) > 0",
        "`gradient_gram.sphere_eigenvalues`",
        check=_analytic_is_positive,
    ),
    Statement(
        "theorem 3.3 (Allen-Zhu et al.)",
        "ReLU: ||grad L||_F >= Omega(L m delta d^-1 n^-2) near the start",
        "quoted, and in another parametrisation than the paper's own",
    ),
    Statement(
        "condition J_r",
        "phi = phi_1 left and phi_2 right of a point alpha, |alpha| <= 1; both in C^(r+1), "
        "derivatives 1 to r + 1 bounded by 1; those below r agree at alpha, the r-th jumps by 1. "
        "J_1: ReLU, SELU, LReLU; J_2: ELU",
        "`gradient_gram.KINKS` (SELU and LReLU jump by another amount)",
        experiment="lower_bounds",
    ),
    Statement(
        "theorem K.1, corollary K.2.1",
        "J_1: lambda_min(G(0)) >= Omega(delta / n^3), prob. 1 - exp(-Omega(delta m / n^2)), m >= "
        "Omega(n^3 delta^-1 log(n / delta^(1/4))); the same for ReLU",
        "`gram_bounds.kink_bound`, `kink_width`",
        experiment="lower_bounds",
    ),
    Statement(
        "claim K.2",
        "every unit zeta: ||sum_i zeta_i phi'(<w, x_i>) x_i|| >= const / sqrt n with probability "
        "Omega(delta / n^2)",
        "Monte Carlo for the worst eigenvector",
        experiment="lower_bounds",
    ),
    Statement(
        "theorem 4.1 = K.4, corollary K.4.1",
        "J_2 (ELU): lambda_min(G(0)) >= Omega(delta^3 n^-7 / log n), prob. 1 - exp(-Omega(delta m "
        "/ "
        "n^2)), m >= max(Omega(n^3 delta^-1 log(n / delta^(1/9))), Omega(n^2 delta^-1 log d)); "
        "higher r: like n^(-2r)",
        "`gram_bounds.kink_bound`, `kink_width`; higher r stated only (no exact form)",
        experiment="lower_bounds",
    ),
    Statement(
        "theorem 4.2 = L.2",
        "ReLU, a = +-1, m >= Omega(n^4 delta^-3 log^4 n): lambda_min(G(0)) >= Omega(delta^1.5 "
        "log^-1.5 n), prob. 1 - exp(-Omega(m delta^3 n^-2 log^-3 n)); proof by Gershgorin on a "
        "Hadamard power",
        "`gram_bounds.relu_bound`, `coherence_bound` (the proof with constants)",
        experiment="lower_bounds",
    ),
    Statement(
        "corollary L.3",
        "m = Omega(n^6 log^6 n log m / (delta^6 kappa^3)): gradient flow has error eps for t >= "
        "Omega(delta^-1.5 log^1.5 n log(n / eps))",
        "follows from 4.2 and L.1 by inserting; the width is beyond reach",
    ),
    Statement(
        "theorem L.1",
        "gradient flow, m = Omega(n^6 log m / (lambda^4 kappa^3)): ||u_t - y||^2 <= e^(-lambda t) "
        "||u_0 - y||^2",
        "weaker than equation 3, which is computed; the width is beyond reach",
    ),
    Statement(
        "corollaries K.3.1/2, K.6.1/2",
        "the bounds of J_1 and J_2 for fan-in and fan-out; legible: J_2 fan-in delta^3 / (n^7 d "
        "log "
        "n), fan-out delta^2 / (m n^4 log n), both uncertain in the text we have",
        "smallest eigenvalues under these starts",
        experiment="extensions",
    ),
    Statement(
        "lemma F.1",
        "linear phi: at least n - d eigenvalues are 0",
        "`gram_bounds.polynomial_constraints(1, d)`",
        check=_linear_has_zeros,
    ),
    Statement(
        "theorem 4.3 = F.2, F.3; corollary F.2.1",
        "phi of degree p: if C(d' + p, p) < n + 1, lambda_min(G(0)) = 0, any m; if C(d' + p, p) - "
        "1 "
        "<= n / d', lambda_k = 0 for all k >= ceil(n / d'); rank G <= C(d' + p, p) - 1; d' <= "
        "O(log^0.75 n) allows p = O(n^(1/d'))",
        "`gram_bounds.polynomial_constraints`, `zero_index`, `largest_degree`; exact rank, not in "
        "the paper; derived here: `gradient_gram.polynomial_rank`",
        experiment="zeros",
    ),
    Statement(
        "theorem 4.4 = F.10, corollary F.10.1, theorem G.3",
        "tanh (G.3: swish), d' = O(log^0.75 n), any data: lambda_min(G(0)) <= exp(-Omega(n^(1/(2 "
        "d')))), prob. 1 - n^-3.5; lambda_k <= the same for k >= ceil(n / d'), prob. 1 - n^-2.5",
        "`gram_bounds.smooth_exponent`, `smooth_index`; bounds with constants, not in the paper; "
        "derived here: `gradient_gram.eigenvalue_bounds`",
        experiment="smooth",
    ),
    Statement(
        "F.4, F.5, G.1",
        "Chebyshev: sigmoid(k x) to eps with degree log((4 pi + 2 k) / (pi^2 eps)) / log(1 + pi / "
        "k); products of functions bounded by 1: 3 eps; swish: numerator 4 pi k + 2 k^2",
        "`gram_bounds.chebyshev_degree`",
        experiment="coefficients",
    ),
    Statement(
        "theorem F.8, F.11, F.12",
        "lambda_min <= O(n [(4 pi + 6 s) / (1 + (pi/3) / s)^p]^2), s = sqrt(log(n m)), prob. 1 - 2 "
        "(m n)^-3.5; fan-out s = sqrt(log(n m) / m), fan-in sqrt(log(n m) / d) (n^2 for n), "
        "both with the corollary exp(-Omega(n^(1/(2 d')))), prob. 1 - n^-3.5 (uncertain)",
        "`gram_bounds.small_width_bound(spread=)`: above 1 at the sizes that run (see Smooth "
        "activations)",
    ),
    Statement(
        "theorem F.9",
        "lambda_min <= max(O(n log n log m / sqrt m), O(n^2 sqrt p e^(-(pi/(4 sqrt 2)) sqrt p))), "
        "prob. 1 - e^(-Omega(log^2 n)) - m^-3.5",
        "`gram_bounds.large_width_bound`: above 1 at the sizes that run (see Smooth activations)",
    ),
    Statement(
        "F.7.1, F.7.2 = 6.4",
        "Hermite coefficients of tanh': |c_k| <= O(e^(-(pi/4) sqrt k)), sum_{k>p} c_k^2 <= O(sqrt "
        "p "
        "e^(-(pi/(4 sqrt 2)) sqrt p)); ReLU': c_k ~ k^-0.75",
        "`gram_bounds.coefficient_bound`, `tail_bound`, `Activation.hermite_squares`",
        experiment="coefficients",
    ),
    Statement(
        "H.1",
        "phi with k + 1 derivatives: Chebyshev error O(N^-k); analytic in an ellipse: O(r^-N)",
        "rates of ELU' and tanh'",
        experiment="coefficients",
    ),
    Statement(
        "theorem 4.5 = E.1",
        "phi alpha-Lipschitz, E phi'(<w, x_i>)^2 = 2 c: tr G(0) >= c n, prob. >= 1 - "
        "e^(-Omega(m / (alpha^4 log^2 m))) - m^-3.5",
        "`gram_bounds.trace_bound`",
        experiment="lower_bounds",
    ),
    Statement(
        "theorem 4.6 = M.9",
        "phi in C^3, Lipschitz, gamma-smooth: ||y - u(t)|| = (sum_i (1 - eta c^2 lambda_i)^(2t) "
        "<v_i, y - u(0)>^2)^(1/2) +- eps for all t; m >= Omega(n^5 kappa^-1 lambda_min^-4 eps^-2), "
        "eta <= O(lambda_min / n^2)",
        "`gated_least_squares.predicted_losses`, `gram_bounds.dynamics_width`; checked on 4,096 "
        "units, and beside the training curves",
        check=_wide_network_descends_as_predicted,
    ),
    Statement(
        "assumptions 3, 4",
        "smoothed data: unit x'_i that span V, noise N(0, sigma^2) in V, sigma = O(delta / (2 sqrt "
        "n)), renormalised; d = d' >= 2",
        "`gradient_gram.smoothed_points`",
        experiment="smoothed",
    ),
    Statement(
        "lemma I.1",
        "lambda_min(G_inf) >= c_r(phi')^2 lambda_min((X'X)^(Hadamard r + 1)) for every r >= 0",
        "`gram_bounds.hadamard_bound`",
        experiment="smoothed",
    ),
    Statement(
        "lemma I.2",
        "d'^p >= n: sigma_n(X^(*p)) >= Omega((1/sqrt n) (kappa sigma / (n p))^p), prob. 1 - kappa",
        "`gram_bounds.khatri_rao_bound`",
        experiment="smoothed",
    ),
    Statement(
        "theorem I.3",
        "phi of constant degree p, leading coefficient 1, d' >= Omega(n^(1/p)): lambda_min(G(0)) "
        ">= "
        "Omega((1/n) (kappa sigma / (n p))^(2p)); m >= Omega(p^(4p) n^(4p+4) log(n / kappa) "
        "log^(2p+3) m / (sigma kappa)^(4p))",
        "`gram_bounds.smoothed_bound`; measured for z^3 at infinite width, m is beyond reach",
        experiment="smoothed",
    ),
    Statement(
        "theorem 4.7; I.4, I.4.1, I.4.2",
        "tanh, p the smallest odd integer with d'^p >= n: as I.3 times c_(p-1)(tanh')^2; d' = "
        "Theta(log n): (sigma / n)^O(log n); d' = n^gamma, informally: delta^(2/gamma) "
        "n^(-3/gamma), prob. 0.99, m >~ n^(6/gamma) delta^(-4/gamma)",
        "`gram_bounds.smoothed_bound`, `smoothed_degree`, `smoothed_power`; I.4.1 stated only (the "
        "power is not explicit)",
        experiment="smoothed",
    ),
    Statement(
        "appendix J, setting; J.1",
        "x^(l) = (c/sqrt m) phi(W^(l) x^(l-1)), phi(0) = 0, alpha-Lipschitz, E phi = 0; m >= "
        "Omega(max(2^L log m log(nL) / eps^2, (nL)^(2/7))): all ||x^(l)|| within 1 +- eps",
        "`gradient_gram.correlations`; finite deep networks",
        experiment="depth",
    ),
    Statement(
        "J.2, J.4",
        "c1 = c_1(phi)^2 / sum_{a >= 1} c_a(phi)^2: a layer maps |rho| to at most (1 + c1)/2 "
        "|rho| + "
        "(1 - c1)/2 rho^2; a rho + (1 - a) rho^2 goes from 1 - delta to eps in (1/(1 - a)) "
        "max(O(log 1/delta), O(log 1/eps)) steps",
        "`gram_bounds.linear_share`, `layer_bound`, `layers_until`",
        experiment="depth",
    ),
    Statement(
        "theorem 4.8 = J.6; J.5",
        "tanh, L >= (2 / (1 - c1)) max(Omega(log 1/delta), O(1)): lambda_min(G(0)) >= "
        "e^(-Omega(sqrt(log n))), m >= Omega(2^L n^4 log(n^2 L) log^2 m / delta^2); any such phi: "
        "c_Theta(log n)(phi')^2",
        "`gram_bounds.sufficient_depth`, `coherence_bound`",
        experiment="depth",
    ),
    Statement(
        "J.8",
        "eta <= O(1 / (n^3 2^O(L))): ||y - u(t)||^2 <= (1 - eta / (2n))^t ||y - u(0)||^2",
        "the constant in 2^O(L) is not given, so no step size can be chosen by it",
    ),
    Statement(
        "M.2, theorems M.3, M.4",
        "trained readouts: G + H, H_ij = (1/m) sum_k phi(<w_k, x_i>) phi(<w_k, x_j>); 4.3 and 4.4 "
        "hold for it with k >= ceil(2 n / d')",
        "`finite_gram(train_readouts=True)`, `infinite_gram(train_readouts=True)`, "
        "`gram_bounds.zero_index(train_readouts=True)`; M.4 stated only beyond `smooth_index`",
        experiment="extensions",
    ),
    Statement(
        "M.3, cross entropy",
        "C classes, A (m, C): nC x nC with a_kq a_kq'; block diagonal at m to infinity, each G_inf",
        "`finite_gram(readouts=A)`, `infinite_gram(readouts=I)`",
        experiment="extensions",
    ),
    Statement(
        "M.1, M.11",
        "||w_r(t) - w_r(0)|| <= lambda_min / (4 alpha beta n) for all r: lambda_min(G(t)) >= "
        "lambda_min(G(0)) / 2",
        "`gram_bounds.drift_allowed`; tested by brute force at small sizes",
        check=_drift_keeps_half,
    ),
    Statement(
        "M.2 (descent), M.10 (SGD)",
        "m >= Omega(n^4 alpha^4 beta^2 log m / lambda_min^4); SGD, batch b: m >= Omega(n^6 alpha^4 "
        "beta^2 log m / (b^2 lambda_min^4)), error eps after Omega((n^6 alpha^4 beta / (b^2 "
        "lambda_min^2)) log(n / eps)) steps (uncertain in the text we have)",
        "at n = 10 and tanh the widths are beyond reach",
    ),
    Statement(
        "figure 1 (a, b)",
        "squared loss against epochs, n = 10 and 50, m = 10^6, rate 10^-3, 5 runs: ReLU reaches 0 "
        "much faster than all others, ELU is faster than tanh and swish",
        "5 runs; at the published width 1,000 steps are trained, and 10^6 predicted by theorem "
        "4.6; 10^5 are trained in narrower networks",
        experiment="training",
    ),
    Statement(
        "figure 1 (c, d)",
        "eigenvalues at the start: those of ReLU and ELU are larger than those of tanh and swish",
        "published width, readouts and runs",
        experiment="spectra",
    ),
    Statement(
        "figure 2 (a, b, c)",
        "CIFAR-10, 10^4 images: delta >= 0.1; dimension far above log n; ReLU above the others, "
        "ELU "
        "about as tanh",
        "(a), (b) and, at infinite width, (c) of the published 10^4 images",
        experiment="cifar",
    ),
    Statement(
        "figure 2 (d)",
        "both layers, SGD, batch 256, cross entropy, rate 10^-3, 10^5 neurons: ReLU much faster; "
        "eigenvalues and eigenvectors change considerably",
        "narrower networks, see there",
        experiment="cifar_training",
    ),
)


def _displayed_elu() -> str:
    """One-sided derivatives at 0 of ELU as displayed, and as corollary K.4.1 has it."""
    z = torch.tensor(-1e-9, dtype=torch.float64, requires_grad=True)
    (displayed,) = torch.autograd.grad(z * torch.expm1(z), z)
    (used,) = torch.autograd.grad(torch.expm1(z), z)
    return (
        f"derivatives at 0 from the left: {abs(float(displayed)):.0f} and {float(used):.0f}, from "
        "the right 1: as displayed it would be J_1"
    )


def _coherence() -> str:
    delta = 0.1
    angle = math.asin(delta)
    X = np.array([[1.0, 0.0], [math.cos(angle), math.sin(angle)]])
    return (
        f"delta = {separation(X):.1f}: the inner product is {float(X[0] @ X[1]):.3f}, not "
        f"{1 - delta:.1f}"
    )


def _index() -> str:
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


def _boyd() -> str:
    squares = ACTIVATIONS["tanh"].hermite_squares
    ratios = [math.sqrt(squares[k]) / boyd_coefficient(k) for k in (20, 100)]
    return f"c_k over it: {ratios[0]:.2g} at k = 20, {ratios[1]:.2g} at k = 100"


def _hille() -> str:
    squares = ACTIVATIONS["tanh"].hermite_squares
    values = [math.sqrt(squares[k]) for k in (20, 100)]
    bounds = [coefficient_bound(k) for k in (20, 100)]
    return (
        f"c_20 = {values[0]:.1e} for a bound of {bounds[0]:.1e}, c_100 = {values[1]:.1e} for "
        f"{bounds[1]:.1e}"
    )


def _symmetric() -> str:
    """Lemma I.2 between C(d' + p - 1, p) and d'^p samples."""
    n, dimension, degree, noise = 8, 2, 3, 0.1
    X = smoothed_points(np.eye(dimension)[np.arange(n) % dimension], noise)
    values = eigenvalues((X @ X.T) ** degree)
    bound = khatri_rao_bound(n, degree, noise, 0.1)
    rank = math.comb(dimension + degree - 1, degree)
    return (
        f"d' = 2, p = 3, n = 8 = d'^p, C(d' + p - 1, p) = {rank}: eigenvalue {rank} of "
        f"(X X')^(Hadamard p) is {values[rank - 1]:.0e}, eigenvalue {rank + 1} is "
        f"{vanishing(values[rank])}, and the lemma has sigma_n >= {bound:.0e}; at the sizes "
        "measured here n is within C(d' + p - 1, p)"
    )


def _dropped() -> str:
    n, gamma, delta = 10**4, 0.5, 0.1
    sigma = delta / (2 * math.sqrt(n))
    formal = smoothed_bound(n, round(1 / gamma), sigma, 1.0)
    return (
        f"n = {n:,}, gamma = 1/2, delta = {delta}, kappa = 1: "
        f"{smoothed_power(n, delta, gamma):.0e} "
        f"for (1/n) (sigma / (n p))^(2p) = {formal:.0e}, even at p = 1/gamma"
    )


def _preprocessing() -> str:
    X = preprocess([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    distance = min(np.linalg.norm(X[i] - X[j]) for i in range(3) for j in range(i))
    return f"distance {distance:.3f}, separation {separation(X):.3f}, at least D / sqrt 2"


def _circle() -> str:
    delta = separation(circle_points(10, arc=2 * math.pi))
    return f"n = 10 on the whole circle: separation {vanishing(delta)}"


SLIPS = (
    Slip(
        "ELU is displayed with min(x, 0) (e^x - 1); corollary K.4.1 uses e^x - 1 for x < 0",
        _displayed_elu,
    ),
    Slip(
        "L.2 and appendix J take |rho| <= 1 - delta; assumption 2 gives sqrt(1 - delta^2)",
        _coherence,
    ),
    Slip("4.3: with equality in its condition the index is one too small", _index),
    Slip("equation 34 does not hold for the normalised coefficients", _boyd),
    Slip("F.7.1 is a bound; its rate is half of the true one, e^(-(pi/2) sqrt k)", _hille),
    Slip("4.7 drops factors of I.4.2 (1/n and n^4)", _dropped),
    Slip(
        "I.2 as we have it asks for d'^p >= n alone; x^(*p) is symmetric, so that its p-th powers "
        "span C(d' + p - 1, p) dimensions, and sigma_n = 0 for n beyond (found here)",
        _symmetric,
    ),
    Slip(
        "distances D >= delta after preprocessing give a separation of D sqrt(1 - D^2 / 4), which "
        "is below D",
        _preprocessing,
    ),
    Slip(
        "figure 1 does not say whether the circle is whole; n even on a whole circle has opposite "
        "points",
        _circle,
    ),
    Slip(
        "4.1 has log(n / delta) in the main text, log(n / delta^(1/9)) in K.4",
        lambda: "`gram_bounds.kink_width` follows the appendix; both differ by a constant at most",
    ),
    Slip(
        "3.1 is printed with eta <= O(lambda n^-3); Du et al. have n^-2 (uncertain in our text)",
        lambda: "not checked: quoted by the paper",
    ),
)
