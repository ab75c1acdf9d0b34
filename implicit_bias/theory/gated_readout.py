r"""A gated linear network whose readout is gated, too, and the norm that it minimises.

In section 2 of the source every layer may depend on the context, in section 4 the readout has one.
With C_o contexts of the output the network is

    f(x) = sum_h w_h[o(x)] <W_h[c_h(x)], x>

=========  ==============  =====================================================================
symbol     shape           meaning
=========  ==============  =====================================================================
w_h        (C_o,)          readout of unit h in each context of the output
W_h        (C, D)          its hidden weights in each of its own contexts
zeta_h     (C_o, C D)      w_h (x) W_h: of rank one
V_h        (C_o, C D)      sum_n alpha_n y_n e_{o(n)} (x) e_{c_h(n)} (x) x_n
=========  ==============  =====================================================================

By the inequality of the means 1/2 ||theta||^2 = 1/2 sum_h (||w_h||^2 + ||W_h||^2) >= sum_h
||w_h|| ||W_h||_F = sum_h ||zeta_h||_F, with equality at balanced units, so the network's program is

    minimise  sum_h ||zeta_h||_F  over zeta_h of rank one,  subject to  y_n f(x_n) >= 1,

which is not convex for C_o > 1. On matrices of rank one the Frobenius norm is the nuclear norm. Its
convex relaxation, over all zeta_h, is sum_h ||zeta_h||_*, whose dual norm is max_h of the spectral
norms: for every alpha >= 0

    sum_n alpha_n / max_h ||V_h(alpha)||_2  <=  optimum of the relaxation  <=  1/2 ||theta||^2

of every theta with smallest margin 1. The loss's own weights are such alpha, so that a trained
network bounds itself. With one output context all of this is the SVM-GLN.

Source: Lippl, Abbott, Chung (2022), section 2 and (18) to (20); the relaxation is derived here,
after Sahiner et al. (2021) for several outputs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from implicit_bias.gating import HyperplaneContexts
from implicit_bias.run_certificate import weights_of_margins
from implicit_bias.validation import Array, as_features, as_labels


class GatedReadoutGLN(nn.Module):
    """A two-layer gated linear network with contexts in both layers, homogeneous of degree 2.

    Parameters
    ----------
    hidden : HyperplaneContexts
        Contexts of the H hidden units.
    output : HyperplaneContexts
        Contexts of the output: one unit.
    seed : int
        Of the initial weights, normal with variances 1 / D and 1 / H.

    Raises
    ------
    ValueError
        Output contexts of several units, or of other inputs.
    """

    def __init__(
        self, hidden: HyperplaneContexts, output: HyperplaneContexts, *, seed: int = 0
    ) -> None:
        super().__init__()
        if output.n_units != 1 or output.n_features != hidden.n_features:
            raise ValueError(
                "the output has contexts of one unit and of the same inputs, got "
                f"{output.n_units} units of {output.n_features} features"
            )
        self.hidden, self.output = hidden, output
        generator = torch.Generator().manual_seed(seed)
        size = (hidden.n_units, hidden.n_contexts, hidden.n_features)
        drawn = torch.randn(size, generator=generator, dtype=torch.float64)
        self.weights = nn.Parameter(drawn / size[2] ** 0.5)
        readout = torch.randn(size[0], output.n_contexts, generator=generator, dtype=torch.float64)
        self.readout = nn.Parameter(readout / size[0] ** 0.5)

    def prepare(self, X: ArrayLike) -> tuple[Tensor, Tensor, Tensor]:
        """Return inputs (n, D), contexts of the units (n, H), and of the output (n,)."""
        X = as_features(X, self.hidden.n_features)
        contexts = self.hidden.contexts(X), self.output.contexts(X)[:, 0]
        return torch.tensor(X), torch.tensor(contexts[0]), torch.tensor(contexts[1])

    def forward(self, inputs: Tensor, contexts: Tensor, of_output: Tensor) -> Tensor:
        """f(x), shape (n,)."""
        units = torch.arange(len(self.weights))
        outputs = torch.einsum("nhd,nd->nh", self.weights[units, contexts], inputs)
        return (self.readout.T[of_output] * outputs).sum(dim=1)


@dataclass(frozen=True)
class Bounds:
    """Bounds on the optimum of the relaxation.

    Attributes
    ----------
    lower : float
        From multipliers.
    upper : float
        sum_h ||zeta_h||_* over the smallest margin, infinity where a sample is misclassified.
    """

    lower: float
    upper: float


def bounds(network: GatedReadoutGLN, X: ArrayLike, y: ArrayLike, alpha: ArrayLike) -> Bounds:
    """Bound the relaxation's optimum by a network's own weights and by multipliers.

    Parameters
    ----------
    network : GatedReadoutGLN
        The network.
    X : array_like of shape (N, D)
        Inputs.
    y : array_like of shape (N,)
        Labels -1 and +1.
    alpha : array_like of shape (N,)
        Multipliers; negative ones count as 0. `loss_weights` has those of the logistic loss.

    Raises
    ------
    ValueError
        NaN, shapes that do not fit.
    """
    X = as_features(X, network.hidden.n_features)
    labels = as_labels(y, len(X))
    multipliers = np.maximum(np.asarray(alpha, dtype=np.float64), 0.0)
    if multipliers.shape != labels.shape or not np.isfinite(multipliers).all():
        raise ValueError(f"alpha must have shape {labels.shape}, got {multipliers.shape}")
    V = dual_matrices(network, X, labels * multipliers)
    largest = max(float(np.linalg.norm(each, 2)) for each in V)
    lower = float(multipliers.sum()) / largest if largest > 0 else 0.0
    with torch.no_grad():
        margin = float((labels * network(*network.prepare(X)).numpy()).min())
        sizes = network.readout.norm(dim=1) * network.weights.flatten(1).norm(dim=1)
    return Bounds(lower, float(sizes.sum()) / margin if margin > 0 else np.inf)


def dual_matrices(network: GatedReadoutGLN, X: Array, weights: Array) -> Array:
    """V_h of signed weights alpha_n y_n (N,), shape (H, C_o, C D)."""
    hidden, of_output = network.hidden.contexts(X), network.output.contexts(X)[:, 0]
    H, C, D = network.weights.shape
    V = np.zeros((H, network.output.n_contexts, C, D))
    for h in range(H):
        np.add.at(V[h], (of_output, hidden[:, h]), weights[:, None] * X)
    return V.reshape(H, -1, C * D)  # row-major: the features of a context lie together


def loss_weights(network: GatedReadoutGLN, X: ArrayLike, y: ArrayLike) -> Array:
    """Return the weights of the logistic loss, 1 / (1 + e^q), up to a factor, shape (N,)."""
    labels: NDArray[np.float64] = as_labels(y, len(np.asarray(X)))
    with torch.no_grad():
        q = torch.tensor(labels) * network(*network.prepare(X))
    return weights_of_margins(q.numpy()[:, None])[:, 0]
