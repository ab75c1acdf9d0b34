"""Data and training of the published experiment.

Source: Chizat, Bach, "Implicit bias of gradient descent for wide two-layer neural networks trained
with the logistic loss" (COLT 2020), by the authors' code.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.summaries import log_spaced
from implicit_bias.base.validation import Array
from implicit_bias.networks import ReLUNetwork

# Activations that the networks trained side by side have together at most: 1 MiB in float32.
CACHED_ENTRIES = 2**18


def clusters(k: int, n: int, seed: int, *, n_features: int = 3) -> tuple[Array, Array]:
    """Draw k x k clusters in the plane, a random half of them labelled -1.

    Returns
    -------
    X : ndarray of shape (n, n_features)
        The constant 1, two coordinates, and noise in [-1/2, 1/2] for the rest.
    y : ndarray of shape (n,)
        Labels, -1 or +1.
    """
    rng = np.random.default_rng(seed)
    delta = 1.0 / (3 * k - 1)
    labels = np.ones(k * k)
    labels[rng.permutation(k * k)[: k * k // 2]] = -1.0
    cluster = rng.integers(0, k * k, n)
    angle, radius = rng.uniform(0.0, 2.0 * np.pi, n), delta * rng.uniform(0.0, 1.0, n)
    centre = delta * (1.0 + 3.0 * np.column_stack(np.divmod(cluster, k))) - 0.5
    spread = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    noise = rng.uniform(-0.5, 0.5, (n, n_features - 3))
    return np.column_stack([np.ones(n), centre + spread, noise]), labels[cluster]


def weights_of(network: ReLUNetwork) -> tuple[Array, Array]:
    """Return the W (m, D) and a (m,) of a trained network of one hidden layer."""
    a = network.readout.detach().numpy().ravel()
    return network.hidden_weights[0].detach().numpy().reshape(len(a), -1), a


def path_margin(X: Array, y: Array, W: Array, a: Array) -> float:
    """Smallest margin of a network W (m, D), a (m,) over the path norm sum_j |a_j| ||w_j||."""
    margin = (y * (np.maximum(X @ W.T, 0.0) @ a)).min()
    return float(margin / (np.abs(a) * np.linalg.norm(W, axis=1)).sum())


@dataclass(frozen=True, eq=False)
class Trained:
    """Networks f(x) = mean_j a_j relu(<w_j, x>) and their margins on the way.

    Attributes
    ----------
    first : ndarray of shape (B, m, D)
        W.
    readout : ndarray of shape (B, m)
        The a_j.
    steps : ndarray of int, shape (T,)
        Steps at which margins were taken.
    margins : ndarray of shape (T, B)
        Smallest y f over the path norm mean_j |a_j| ||w_j||: at most 1 / the variation norm's
        optimum.
    """

    first: Array
    readout: Array
    steps: NDArray[np.int64]
    margins: Array


@torch.no_grad()
def train(
    X: Array,
    y: Array,
    width: int,
    n_steps: int,
    *,
    step_size: float = 0.5,
    seed: int = 0,
    n_points: int = 40,
) -> Trained:
    """Ascend on the soft minimum of the margins with both layers, as published.

    Parameters
    ----------
    X : ndarray of shape (B, n, D)
        Inputs of B networks, trained side by side.
    y : ndarray of shape (B, n)
        Labels.
    width : int
        Hidden units m.
    n_steps : int
        Full-batch steps, the t-th of size step_size / sqrt(t + 1).
    seed : int
        Of the standard normal weights at the start.
    n_points : int
        Points of the history, about evenly spaced on a logarithmic axis; the last step is one.
    """
    rng = torch.Generator().manual_seed(seed)
    inputs, labels = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    B, n, D = inputs.shape
    first = torch.randn(B, width, D, generator=rng)
    readout = torch.randn(B, width, 1, generator=rng)
    kept = log_spaced(n_steps, n_points)
    # The networks do not interact; as many are trained together as the processor's cache holds.
    together = max(1, CACHED_ENTRIES // (n * width))
    margins = []
    for start in range(0, B, together):
        some = slice(start, start + together)
        trained = _train(inputs[some], labels[some], first[some], readout[some], kept, step_size)
        first[some], readout[some] = trained[:2]
        margins.append(trained[2])
    return Trained(
        first.double().numpy(), readout[..., 0].double().numpy(), kept, np.hstack(margins)
    )


def _train(
    inputs: Tensor,
    labels: Tensor,
    first: Tensor,
    readout: Tensor,
    kept: NDArray[np.int64],
    step_size: float,
) -> tuple[Tensor, Tensor, Array]:
    """Train from given weights: weights (B, m, D), (B, m, 1) and margins (T, B) at the steps kept.

    A unit is positively homogeneous in w_j, so the readout's gradient is <w_j, gradient of w_j>
    over a_j: one product with the (B, n, m) activations less.
    """
    W, a = first.transpose(1, 2).contiguous(), readout.transpose(1, 2).contiguous()  # (B, ., m)
    width = W.shape[2]
    wanted, margins = set(kept.tolist()), []
    # A fresh block of this size every step would cost more time than the arithmetic on it.
    hidden = torch.empty(*inputs.shape[:2], width)
    inputs_across = inputs.transpose(1, 2).contiguous()  # (B, D, n)
    for t in range(1, int(kept[-1]) + 1):
        torch.bmm(inputs, W, out=hidden).clamp_(min=0.0)  # (B, n, m)
        outputs = torch.bmm(a, hidden.transpose(1, 2))[:, 0] / width
        slopes = (torch.softmax(-labels * outputs, dim=1) * labels)[:, None]  # (B, 1, n)
        active = torch.gt(hidden, 0.0, out=hidden)  # 1 where a unit is active, 0 elsewhere
        to_first = torch.bmm(slopes * inputs_across, active)  # (B, D, m), over a
        to_readout = (W * to_first).sum(dim=1, keepdim=True)
        step = step_size / (t + 1) ** 0.5
        W, a = torch.addcmul(W, a, to_first, value=step), torch.add(a, to_readout, alpha=step)
        if t in wanted:
            margins.append(_margins(inputs, labels, W.transpose(1, 2), a[:, 0]))
    return W.transpose(1, 2), a.transpose(1, 2), np.array(margins).reshape(-1, len(inputs))


def _margins(inputs: Tensor, labels: Tensor, W: Tensor, a: Tensor) -> Array:
    first, readout = W.double(), a.double()
    hidden = torch.relu(torch.bmm(inputs.double(), first.transpose(1, 2)))
    outputs = torch.bmm(hidden, readout[..., None])[..., 0]
    norms = (readout.abs() * first.norm(dim=2)).sum(dim=1)
    return np.asarray(((labels * outputs).amin(dim=1) / norms).numpy())
