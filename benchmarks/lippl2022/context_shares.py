r"""Theorem 3.1: its proof for contexts of one degree, and what is left of it for several.

A generalised gated linear network is linear in its input in each context gamma, with weights that
are a homogeneous polynomial of degree nu_gamma of the parameters w. Theorem 3.1 of the source says
that gradient descent, where the loss goes to 0 and w / ||w|| converges, goes to a stationary point
of

    (6)  minimise  ||w||^2   subject to   q_n(w) = y_n f(x_n; gamma_n, w) >= 1 for all n,

which is w = sum_n lambda_n grad q_n(w) with lambda_n >= 0 for the samples of *least* margin and 0
for all others. Its proof shows (7), where the sum is over the samples of least margin of each
context. That is less: a context whose least margin is above 1 must lose its multipliers, too. For
one degree it does, and for several it need not (`counterexample`: at 20 degrees (7) holds with
lambda = (1, 0), as both samples are the least of their contexts, but the first one's margin is
above 1). GLNs and FReLUs have one degree, so the experiments of the source are not touched.

**Theorem.** Let -l'(u) = c exp(-a u) (1 + delta(u)) with delta(u) -> 0 (B.1), w(t+1) = w(t) -
eta_t grad L(w(t)) with L(w(t)) -> 0 (B.2), w(t) / ||w(t)|| -> v (B.3), and q_n(v) > 0 for all n
(B.4). Let nu be the least degree, S the samples of least q_n(v) among those of degree nu, and m
that margin. Then v is proportional to a stationary point of (6) for the samples of degree nu. If
all degrees are equal, that is theorem 3.1. B.5 is not needed.

*Proof.* Let g = ||w(t)|| and lambda_n(t) = -l'(q_n(w(t))). As L -> 0, all q_n(w(t)) go to infinity,
and g with them; the lambda_n are then above 0.

1. Homogeneity: q_n(w(t)) = g^nu_n (q_n(v) + o(1)) and grad q_n(w(t)) = g^(nu_n - 1) (grad q_n(v) +
   o(1)), since both are continuous at v.
2. For k in S and any n, by (B.1),

       lambda_n g^(nu_n - 1) / (lambda_k g^(nu - 1))
           = exp(-a (g^nu_n (q_n(v) + o(1)) - g^nu (m + o(1)))) g^(nu_n - nu) (1 + o(1)).

   If nu_n = nu and n is not in S, then q_n(v) > m, and it goes to 0. If nu_n > nu, then the first
   power outgrows the second, since q_n(v) > 0, and it goes to 0 as well.
3. With s(t) = eta_t g^(nu - 1) sum_{k in S} lambda_k, and the shares p_n(t) = lambda_n /
   sum_{k in S} lambda_k of the samples in S, which sum to 1, the steps are therefore

       w(t+1) - w(t) = s(t) (sum_{n in S} p_n(t) grad q_n(v) + e(t)),     e(t) -> 0.

4. What is in brackets is bounded and ||w(t)|| -> infinity, so A(T) = sum_{t<T} s(t) -> infinity.
   Means with the weights s(t) / A(T) of what goes to 0 go to 0 then (Toeplitz), and so does
   w(0) / A(T). With P_n(T) = sum_{t<T} s(t) p_n(t) / A(T), therefore,

       w(T) / A(T) = sum_{n in S} P_n(T) grad q_n(v) + o(1).

   The P_n(T) lie in [0, 1] and sum to 1: along some T they converge, to P_n >= 0 with sum 1.
5. Let u = sum_{n in S} P_n grad q_n(v). By Euler <v, u> = nu sum_{n in S} P_n q_n(v) = nu m > 0, so
   u is not 0, and along these T w(T) / ||w(T)|| -> u / ||u||. That limit is v: v = u / ||u||.
6. Let w* = m^(-1/nu) v. Of the samples of degree nu, q_n(w*) = 1 in S and above 1 elsewhere, and
   grad q_n(w*) is a positive multiple of grad q_n(v), the same for all n. So w* = sum_{n in S} mu_n
   grad q_n(w*) with mu_n >= 0, which is stationarity for (6). QED.

===========  ========  ===========================================================================
symbol       shape     meaning
===========  ========  ===========================================================================
q            (N,)      margins y_n f(x_n; gamma_n, w)
lambda       (N,)      -l'(q_n), the loss's weights
nu_gamma     (G,)      degree of context gamma: <w, grad q_n> = nu_gamma q_n (Euler)
m_gamma      (G,)      least q_n / ||w||^(nu_gamma) of the context: B.4 asks that all stay above 0
k_gamma      (G,)      sum of lambda_n ||grad q_n|| over the context; its share is k_gamma / sum k
===========  ========  ===========================================================================

B.5 asks that the direction of each context's negative gradient in beta_gamma, which is the sum of
lambda_n y_n x_n over the context, converges: `Record.directions`, and `cosines` of two records.

**Lemma B.11**, corrected. Take a loss with a tight exponential tail, -l'(u) = c exp(-a u)
(1 + delta(u)), and h = sum_n a_n y_n x_n with a_n = c exp(-a m_n). The gradient g = sum_n a_n
(1 + delta_n) y_n x_n then has

    ||g - h|| <= max |delta_n| sum_n a_n ||x_n||,     ||h|| >= <h, u> >= rho sum_n a_n

for any unit u that separates the samples with margin rho, so that ||g - h|| / ||h|| is at most
max |delta_n| max ||x_n|| / rho (`tail_deviation`). (The source divides by a vector in (89) to (91),
and has one minus too many in (83).)

(In (31) and B.5 of the source the gradient has the wrong sign, and the sum in (32) is over the
steps.)

Source: Lippl, Abbott, Chung (2022), (5) to (7), B.1 to B.5, theorem 3.1, lemma B.11; the proof, the
statement for several degrees, the counterexample and the bound are derived here.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.integrate import solve_ivp
from torch import Tensor

from implicit_bias.base.validation import Array

# Margins (N,) of parameters (P,).
Margins: TypeAlias = Callable[[Tensor], Tensor]
# The logarithm of the loss of each margin (N,): `training.losses.MarginLoss.log_loss`, say.
LogLoss: TypeAlias = Callable[[Tensor], Tensor]

# Share by which the degrees of two samples of a context may differ, by rounding.
DEGREE_TOLERANCE = 1e-6
# Angle of the first input of the counterexample, and the scale of the second context.
ANGLE, SCALE = math.radians(20.0), 0.05


def exponential(margins: Tensor) -> Tensor:
    """Logarithm of the exponential loss of margins (N,)."""
    return -margins


@dataclass(frozen=True, eq=False)
class Record:
    """What theorem 3.1 asks of a point of a training.

    Attributes
    ----------
    norm : float
        ||w||.
    degrees, margins, shares : ndarray of shape (G,)
        nu_gamma, m_gamma and k_gamma / sum k of each context.
    directions : ndarray of shape (G, D) or None
        Unit vectors along sum lambda_n y_n x_n of each context, where inputs were given.
    """

    norm: float
    degrees: Array
    margins: Array
    shares: Array
    directions: Array | None


def record(
    margins: Margins,
    w: Tensor,
    contexts: ArrayLike,
    *,
    log_loss: LogLoss = exponential,
    inputs: ArrayLike | None = None,
) -> Record:
    """Measure degrees, margins and shares of the contexts at parameters w.

    Parameters
    ----------
    margins : callable
        Margins y_n f(x_n), shape (N,), of parameters (P,), differentiable by torch.
    w : Tensor of shape (P,)
        Parameters, float64.
    contexts : array_like of int, shape (N,)
        Context of each sample, 0 .. G - 1.
    log_loss : callable
        Logarithm of the loss of each margin, differentiable by torch.
    inputs : array_like of shape (N, D), optional
        y_n x_n, for the directions of B.5.

    Raises
    ------
    ValueError
        Margins that are not all positive; a context whose samples have different degrees.

    Examples
    --------
    >>> w = torch.tensor([1.0, 1.0], dtype=torch.float64)
    >>> record(counterexample(), w, [0, 1]).degrees
    array([1., 2.])
    """
    point = w.detach().clone().requires_grad_()
    q = margins(point)
    if not bool((q > 0).all()):
        raise ValueError("all margins must be above 0: theorem 3.1 is of separating weights")
    gradients = torch.stack([torch.autograd.grad(one, point, retain_graph=True)[0] for one in q])
    sizes = gradients.norm(dim=1)
    log_weights = _log_weights(q.detach(), log_loss)
    group = np.asarray(contexts, dtype=np.int64)
    norm = float(point.detach().norm())
    degree = (gradients @ point.detach() / q.detach()).numpy()
    log_sizes = (log_weights + sizes.log()).numpy()
    weights = np.exp(log_sizes - log_sizes.max())
    counts = range(group.max() + 1)
    degrees = np.array([_common(degree[group == g], g) for g in counts])
    # q / ||w||^nu by logarithms: powers of large norms overflow.
    normalised = np.exp(np.log(q.detach().numpy()) - degrees[group] * math.log(norm))
    shares = np.array([weights[group == g].sum() for g in counts])
    directions = None
    if inputs is not None:
        largest = np.array([log_weights.numpy()[group == g].max() for g in counts])
        within = np.exp(log_weights.numpy() - largest[group])
        sums = [within[group == g] @ np.asarray(inputs)[group == g] for g in counts]
        directions = np.array([each / np.linalg.norm(each) for each in sums])
    return Record(
        norm,
        degrees,
        np.array([normalised[group == g].min() for g in counts]),
        shares / shares.sum(),
        directions,
    )


def cosines(first: Record, second: Record) -> Array:
    """Cosines of each context's directions at two points, shape (G,): B.5 asks for a limit of 1."""
    assert first.directions is not None
    assert second.directions is not None
    return np.asarray(np.sum(first.directions * second.directions, axis=1))


def limit_contexts(degrees: ArrayLike) -> NDArray[np.int64]:
    """Contexts whose samples can keep multipliers in the limit: those of the least degree.

    Where all degrees are equal these are all contexts, and theorem 3.1 holds.
    """
    known = np.asarray(degrees, dtype=np.float64)
    return np.flatnonzero(known <= known.min() * (1 + DEGREE_TOLERANCE))


def counterexample(angle: float = ANGLE, scale: float = SCALE) -> Margins:
    """Return the margins of two samples in contexts of degrees 1 and 2.

    In context 0 f = <w, x_0> with x_0 = (cos angle, sin angle), in context 1 f = scale w_1 w_2. B.1
    to B.5 hold. Program (6) has one stationary point, w_1 = w_2 = sqrt(1 / scale) at 45 degrees,
    where context 0 has a margin above 1; gradient descent goes to ``angle``.
    """
    x = torch.tensor([math.cos(angle), math.sin(angle)], dtype=torch.float64)

    def margins(w: Tensor) -> Tensor:
        return torch.stack([w @ x, scale * w[0] * w[1]])

    return margins


def gradient_path(
    margins: Margins,
    start: ArrayLike,
    norms: Iterable[float],
    *,
    log_loss: LogLoss = exponential,
) -> list[Tensor]:
    """Follow gradient flow to points of the given norms.

    The path of gradient flow does not depend on its speed, so it is followed along its direction
    -grad L / ||grad L||, in logarithms of the loss, by an implicit method: time itself would grow
    exponentially with the norm.

    Parameters
    ----------
    margins : callable
        As in `record`.
    start : array_like of shape (P,)
        Where it starts.
    norms : iterable of float
        Norms to reach, increasing, above that of the start.
    log_loss : callable
        Logarithm of the loss of each margin, differentiable by torch.

    Returns
    -------
    list of Tensor
        Parameters (P,) at the norms.

    Raises
    ------
    RuntimeError
        The path did not reach a norm.
    """
    w = np.asarray(start, dtype=np.float64)

    def direction(_: float, at: Array) -> Array:
        """Change of w with the logarithm of the path's length."""
        point = torch.tensor(at, requires_grad=True)
        total = torch.logsumexp(log_loss(margins(point)), dim=0)
        (gradient,) = torch.autograd.grad(total, point)
        return np.asarray(-(gradient / gradient.norm()).numpy() * np.linalg.norm(at))

    points = []
    for norm in norms:

        def reached(_: float, at: Array, norm: float = norm) -> float:
            return float(np.linalg.norm(at) - norm)

        reached.terminal = True  # type: ignore[attr-defined]  # as scipy's events are marked
        longest = 10.0 * (1.0 + math.log(norm / np.linalg.norm(w)))
        path = solve_ivp(
            direction, (0.0, longest), w, "LSODA", events=reached, rtol=1e-8, atol=1e-8
        )
        if not len(path.t_events[0]):
            raise RuntimeError(f"gradient flow did not reach the norm {norm:g}: {path.message}")
        w = path.y_events[0][0]
        points.append(torch.tensor(w))
    return points


def tail_deviation(deltas: Array, inputs: Array, margin: float) -> float:
    """Bound how far a gradient is from its exponential part, relative to that: lemma B.11.

    Parameters
    ----------
    deltas : ndarray of shape (N,)
        delta_n: -l'(m_n) = c exp(-a m_n) (1 + delta_n).
    inputs : ndarray of shape (N, D)
        Inputs.
    margin : float
        rho > 0, the margin of any unit vector that separates the samples.
    """
    return float(np.abs(deltas).max() * np.linalg.norm(inputs, axis=1).max() / margin)


def _log_weights(q: Tensor, log_loss: LogLoss) -> Tensor:
    """log(-l'(q_n)) = log l + log f', which does not underflow."""
    at = q.clone().requires_grad_()
    values = log_loss(at)
    (slope,) = torch.autograd.grad(values.sum(), at)
    return values.detach() + (-slope).log()


def _common(degrees: Array, context: int) -> float:
    if np.ptp(degrees) > DEGREE_TOLERANCE * np.abs(degrees).max():
        raise ValueError(
            f"the samples of context {context} have degrees from {degrees.min():.6g} to "
            f"{degrees.max():.6g}: a context is homogeneous of one degree"
        )
    # Rounded to what the tolerance can tell apart, so that a degree of 2 reads 2.
    return round(float(degrees.mean()), 6)
