r"""Optimizers of a linear predictor of many classes, from zero, with all samples at each step.

A step of steepest descent in a norm goes along the maximiser of <direction, -gradient> in its unit
ball, by eta / sqrt(t). Each optimizer below but Adam is that, in another norm:

=====================  ========  ====================================================
optimizer              norm      direction
=====================  ========  ====================================================
gradient descent       l2        -gradient, not normalised
normalised GD          l2        -gradient / ||gradient||_F
coordinate descent     l1        the largest entry of the gradient
sign descent           linf      -sign(gradient)
spectral descent       spectral  -U V' of the singular vectors of a running mean (Muon,
                                 with momentum 0.9 and a whole decomposition)
nuclear descent        nuclear   -u_1 v_1' of the largest singular value
=====================  ========  ====================================================

Sources: the sets of `data` and the step sizes are those of the code of Xie, Wu, Chen, Tang (2026,
arXiv 2603.22824); Gunasekar et al. (2018) and Fan, Schmidt, Thrampoulidis (2025) for steepest
descent in any norm.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import scipy.special
from numpy.typing import NDArray

from implicit_bias.base.validation import Array
from implicit_bias.norms import as_norm


class Direction(Protocol):
    """An optimizer in the middle of a run: it may remember what it has seen."""

    def __call__(self, gradient: Array) -> Array:
        """Return the step (K, D), of step size 1, that follows from a gradient (K, D)."""


@dataclass(frozen=True, kw_only=True)
class Optimizer:
    """An optimizer, with the norm of its max-margin limit.

    Attributes
    ----------
    name : str
        Its name.
    norm : str
        The norm whose maximum margin it converges to, by theory.
    step_size : float
        eta: the t-th step is eta / sqrt(t).
    source : str
        Who proves so.
    start : callable or None
        Returns the `Direction` of a new run; by default steepest descent in the norm, normalised.
    slope : float or None
        Exponent a by which the shortfall of the margin shrinks at least like t^a with these steps,
        by theory; None where the theory has no power.
    """

    name: str
    norm: str
    step_size: float
    source: str
    start: Callable[[], Direction] | None = None
    slope: float | None = -0.5

    def direction(self) -> Direction:
        """Start a run."""
        if self.start is not None:
            return self.start()
        chosen = as_norm(self.norm)
        return lambda gradient: chosen.maximiser(-gradient)


def gradient_descent() -> Direction:
    """Return the negative gradient as it is."""
    return lambda gradient: -gradient


class Momentum:
    """Steepest descent along a running mean of the gradients."""

    def __init__(self, norm: str, decay: float):
        self.norm, self.decay = as_norm(norm), decay
        self.mean: Array | float = 0.0

    def __call__(self, gradient: Array) -> Array:
        """Return the maximiser at the mean with this gradient in it."""
        self.mean = self.decay * self.mean + gradient
        return self.norm.maximiser(-self.mean)

    def rescale(self, factor: float) -> None:
        """Take all gradients seen so far to have been this many times as large."""
        self.mean = factor * self.mean


class Adam:
    """Adam: running means of gradients over the root of those of their squares.

    Parameters
    ----------
    epsilon : float or ndarray
        Added to the root; the theory of its limit asks for 0. A column is for rows side by side.
    decay : (float, float or ndarray)
        beta1 and beta2.
    """

    def __init__(
        self, epsilon: float | Array, decay: tuple[float, float | Array] = (0.9, 0.999)
    ) -> None:
        self.epsilon, self.decay = epsilon, decay
        self.first: Array | float = 0.0
        self.second: Array | float = 0.0
        self.t = 0

    def __call__(self, gradient: Array) -> Array:
        """Return the step of bias-corrected means."""
        self.t += 1
        one, two = self.decay
        self.first = one * self.first + (1 - one) * gradient
        self.second = two * self.second + (1 - two) * gradient**2
        mean = self.first / (1 - one**self.t)
        root = np.sqrt(self.second / (1 - two**self.t)) + self.epsilon
        return -np.divide(mean, root, out=np.zeros_like(gradient), where=root > 0)

    def rescale(self, factor: float) -> None:
        """Take all gradients seen so far to have been this many times as large."""
        self.first = factor * self.first
        self.second = factor**2 * self.second


def speed_limit(beta2: float) -> float:
    """Most by which a margin grows a step while Adam forgets by beta2 (`adam_memory`)."""
    return 0.5 * math.log(1 / beta2)


def sign_time(step_size: float, beta2: float, gamma: float) -> float:
    """t_sign: from this step on Adam, with steps step_size / sqrt(t), is sign descent.

    ``gamma`` is the largest margin in l_inf.
    """
    return (step_size * gamma / speed_limit(beta2)) ** 2


OPTIMIZERS = (
    Optimizer(
        name="gradient descent",
        norm="l2",
        step_size=10.0,
        start=gradient_descent,
        slope=None,  # 1 / log t
        source="Soudry et al. 2018; many classes: Ravi et al. 2024",
    ),
    Optimizer(
        name="normalised GD",
        norm="l2",
        step_size=0.05,
        source="Nacson et al. 2019; Fan et al. 2025",
    ),
    Optimizer(
        name="coordinate descent",
        norm="l1",
        step_size=0.05,
        source="Telgarsky 2013; Gunasekar et al. 2018",
    ),
    Optimizer(
        name="sign descent",
        norm="linf",
        step_size=0.01,
        source="Gunasekar et al. 2018; Fan et al. 2025",
    ),
    Optimizer(
        name="Adam",
        norm="linf",
        step_size=0.001,
        start=lambda: Adam(1e-8),
        slope=None,
        source="Fan et al. 2025; two classes: Zhang, Zou, Cao 2024",
    ),
    Optimizer(
        name="Adam, epsilon 0",
        norm="linf",
        step_size=0.001,
        start=lambda: Adam(0.0),
        slope=None,
        source="Fan et al. 2025; two classes: Zhang, Zou, Cao 2024",
    ),
    Optimizer(
        name="spectral descent",
        norm="spectral",
        step_size=0.02,
        start=lambda: Momentum("spectral", 0.9),
        source="Fan et al. 2025 (Muon)",
    ),
    Optimizer(name="nuclear descent", norm="nuclear", step_size=0.25, source="Fan et al. 2025"),
)


def iterates(
    X: Array, y: NDArray[np.int64], optimizer: Optimizer, steps: NDArray[np.int64]
) -> Iterator[tuple[int, Array]]:
    """Train from zero on the cross-entropy, and yield steps and weights (K, D) at some of them.

    Parameters
    ----------
    X : ndarray of shape (N, D)
        Inputs.
    y : ndarray of int, shape (N,)
        Classes 0 .. K - 1.
    optimizer : Optimizer
        Which.
    steps : ndarray of int
        Increasing numbers of steps; the last one ends the run.
    """
    weights = np.zeros((int(y.max()) + 1, X.shape[1]))
    direction, wanted = optimizer.direction(), set(steps.tolist())
    for t in range(1, int(steps[-1]) + 1):
        gradient = slopes(X @ weights.T, y).T @ X / len(X)
        weights = weights + optimizer.step_size / t**0.5 * direction(gradient)
        if t in wanted:
            yield t, weights


def slopes(outputs: Array, y: NDArray[np.int64]) -> Array:
    """Gradient (N, K) of each sample's cross-entropy in its outputs (N, K).

    That of the own class is minus the sum of the others, not its probability minus 1, which is
    rounding alone once the margins exceed 36.
    """
    found = np.asarray(scipy.special.softmax(outputs, axis=1))
    rows = np.arange(len(y))
    found[rows, y] = 0.0
    found[rows, y] = -found.sum(axis=1)
    return found


def margin(X: Array, y: NDArray[np.int64], weights: Array) -> float:
    """Smallest f_y - f_k over samples and the other classes k, of weights (K, D)."""
    outputs = X @ weights.T
    rows = np.arange(len(y))
    own = outputs[rows, y]
    outputs[rows, y] = -np.inf
    return float(np.min(own - outputs.max(axis=1)))
