"""What the experiments on activation Gram matrices share: looks, cuts, and small helpers."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from benchmarks.panigrahi2020.finite_spectrum import finite_eigenvalues
from implicit_bias.base.style import COLOURS, MARKERS
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams

DRAWN = ("relu", "leaky-relu", "selu", "elu", "swish", "tanh", "quadratic")
COLOUR = dict(zip(DRAWN, COLOURS, strict=True))
LOOK: dict[str, dict[str, Any]] = {
    name: {"color": COLOUR[name], "marker": marker}
    for name, marker in zip(DRAWN, MARKERS, strict=False)
}
# The activations of figure 1 of the paper, and those of figure 2.
FIGURE_1 = ("relu", "elu", "swish", "tanh", "quadratic")
FIGURE_2 = ("relu", "tanh", "swish", "elu")
SMOOTH = ("swish", "tanh")
# Relative to the largest, an eigenvalue below this is rounding: of a float64 matrix, and of
# harmonics and singular values, which square no matrix.
ROUNDING, LEAST = 1e-13, 1e-23


def key(activation: str) -> str:
    """Name an activation as a number of a page does."""
    return activation.replace("-", "_")


def in_subspace(n_samples: int, dimension: int, n_features: int = 10, *, seed: int = 1) -> Array:
    """Draw unit vectors (n_samples, n_features) in a random subspace."""
    rng = np.random.default_rng(seed)
    basis, _ = np.linalg.qr(rng.standard_normal((n_features, dimension)))
    return grams.normalise(rng.standard_normal((n_samples, dimension)) @ basis.T)


def gaussian_readouts(width: int, seed: int) -> torch.Tensor:
    """Draw readouts a ~ N(0, 1), which share no draw with the weights of this seed."""
    generator = torch.Generator().manual_seed(10**6 + seed)
    return torch.randn(width, generator=generator, dtype=torch.float64)


def start_eigenvalues(
    X: Array, phi: grams.Activation, width: int, seed: int, *, train_readouts: bool = False
) -> Array:
    """Eigenvalues of G, or of G + H, of a network at the start, readouts N(0, 1)."""
    return finite_eigenvalues(
        X,
        phi,
        grams.gaussian_weights(width, X.shape[1], seed=seed),
        readouts=gaussian_readouts(width, seed),
        train_readouts=train_readouts,
    )
