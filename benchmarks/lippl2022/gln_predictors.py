r"""What a gated linear network computes: its predictors, and the norm that they have.

In the joint context gamma of all its units a GLN is linear, f(x) = <beta_gamma, x>.

=============  ==================  =============================================================
symbol         shape               meaning
=============  ==================  =============================================================
gamma          (H_1 + H_2 + ...,)  joint context: of each unit, layer after layer, 0 .. C_l - 1
beta_gamma     (D,)                predictor
zeta_{h,c}     (D,)                coefficients of a two-layer network (one hidden layer)
B              (D,)                mean of beta over all C^H joint contexts
delta_{h,c}    (D,)                effect of unit h in context c, sum_c delta_{h,c} = 0
p              (h_1, h_2, ...)     path, one unit a hidden layer; its context is that of its units
W_l, w                             weights of hidden layer l, and readout; see `networks`
theta                              all weights, of L layers with the readout
s_h                                norm of the weights that leave unit h of the first layer
=============  ==================  =============================================================

Two layers. The predictors beta_gamma = sum_h zeta_{h,gamma_h} are equivariant: a unit that changes
its context changes beta by the same vector, whatever the contexts of the others. So

    beta_gamma = B + sum_h delta_{h,gamma_h},

and H (C - 1) + 1 of them, those of `free_predictors`, are free and determine all C^H. What
zeta_{h,c} = m_h + delta_{h,c} leaves open is how B is split, sum_h m_h = B. The norm of (20) is

    ||beta|| = min sum_h ||zeta_h|| = min sum_h sqrt(C ||m_h||^2 + ||delta_h||^2)
             = sqrt(C ||B||^2 + (sum_h ||delta_h||)^2)

by Minkowski's inequality, with equality at m_h = B ||delta_h|| / sum_k ||delta_k||. As
||beta||_2^2 = C^H ||B||^2 + C^(H-1) sum_h ||delta_h||^2, this is

    ||beta||^2 = C^(1-H) ||beta||_2^2 + 2 sum_{h<k} ||delta_h|| ||delta_k||:

the norm of SVM-L2 and a price on each pair of units that both matter. For H = C = 2

    ||beta||^2 = 1/2 (||beta||_2^2 + 2 ||beta_00 - beta_10|| ||beta_00 - beta_01||)

(prop. B.9, (60) and (21) of the source leave out the factor 1/2, so their norm is sqrt(2) times
too large). (In lemma B.6 the second condition is missing an index: it is that wherever gamma_h^(1)
differs from gamma_h^(2), gamma_h^(i) equals the changed gammatilde_h^(i), for i = 1, 2 and the same
unit h.) Where data show some contexts only, the other predictors are as small as the shown
ones let them be: that is the margin problem's part, which needs no predictors.

More layers. beta is additive in the contexts of one layer while those of the other layers stay;
its effects differ with the other layers. As a sum over paths the network is one of two layers,

    f(x) = sum_p <zeta_{p,gamma_p}, x>,   zeta_{p,gamma_p} = w_{h_(L-1)} ... W_1[h_1, gamma_{h_1}],

whose units are the paths. ||zeta_p|| is the product of the norms of the weights along the path,
so for any weights theta, with w, A_l[k, h] = ||W_l[k, ., h]||, b[h] = ||W_1[h]||,

    sum_p ||zeta_p|| = |w|' A_(L-1) ... A_2 b  <=  prod_l ||W_l||_F  <=  (||theta||^2 / L)^(L/2).

Hence the optimum of the convex SVM-GLN on the paths is at most (||theta||^2 / L)^(L/2) for all
theta of the non-convex program (6), min ||theta||^2 / 2 subject to y_n f(x_n) >= 1, and with two
layers the best theta reaches it. What the bound misses is that paths share weights. At a stationary
point all layers have the same norm, so the second inequality is an equality there; the first is one
where the units of different layers are independent, so that ||zeta_p|| is a product over the
layers. What no norm of single paths sees: in a context of h_1 the coefficients of all paths through
h_1 have the same direction.

Given its upper layers the network is once more one of two layers. Unit h is gated by its context
and by the slope of f in its output, over the norm s_h of the weights that leave it; in these gates
its coefficients are s_h W_1[h, c], and the program, now convex, has the norm sum_h s_h ||W_1[h]||.
A stationary point of (6) solves it, but for units with s_h = 0. So in a deep network the two-layer
norm holds for the first layer, in gates that the upper layers have learned.

Source: Lippl, Abbott, Chung (2022), (6), (20), (21), lemmas B.6 and B.7, proposition B.9; the
closed form for all H and C and the bound by paths are derived here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array
from implicit_bias.problem.gating import HyperplaneContexts

if TYPE_CHECKING:
    from implicit_bias.networks import GLN

# Share of the largest entry by which predictors may fail to be equivariant: float32 passes.
EQUIVARIANCE = 1e-5


def free_predictors(n_units: int, n_contexts: int) -> NDArray[np.int64]:
    """Joint contexts whose predictors can be chosen at will and determine all others.

    All units in context 0, and the joint contexts that differ from it in one unit.

    Parameters
    ----------
    n_units, n_contexts : int
        H and C of a hidden layer.

    Returns
    -------
    ndarray of int, shape (H (C - 1) + 1, H)

    Notes
    -----
    Lemmas B.6 and B.7 of Lippl et al. (2022).
    """
    contexts = np.zeros((n_units * (n_contexts - 1) + 1, n_units), dtype=np.int64)
    # Row-major: the other contexts of a unit lie together.
    units = np.repeat(np.arange(n_units), n_contexts - 1)
    contexts[1 + np.arange(len(units)), units] = np.tile(np.arange(1, n_contexts), n_units)
    return contexts


@dataclass(frozen=True, eq=False)
class AdditivePredictors:
    """Predictors of a two-layer GLN: beta_gamma = B + sum_h delta_{h,gamma_h}, for all gamma.

    Parameters
    ----------
    mean : array_like of shape (D,)
        B.
    effects : array_like of shape (H, C, D)
        delta. What the effects of a unit have in common over its contexts is moved to the mean,
        so that they sum to 0.
    """

    mean: Array = field(repr=False)
    effects: Array = field(repr=False)

    def __post_init__(self) -> None:
        common = self.effects.mean(axis=1, keepdims=True)
        object.__setattr__(self, "mean", self.mean + common.sum(axis=(0, 1)))
        object.__setattr__(self, "effects", self.effects - common)

    @classmethod
    def from_coef(cls, coef: Array, n_units: int) -> AdditivePredictors:
        """Predictors of coefficients zeta (H * C, D), row h * C + c."""
        # Row-major: the C coefficients of a unit lie together.
        return cls(np.zeros(coef.shape[1]), coef.reshape(n_units, -1, coef.shape[1]))

    @classmethod
    def through(cls, contexts: ArrayLike, beta: Array, n_contexts: int) -> AdditivePredictors:
        """Complete the predictors of some joint contexts to those of all.

        Parameters
        ----------
        contexts : array_like of int, shape (n, H)
            Joint contexts, such as those of `free_predictors`.
        beta : ndarray of shape (n, D)
            Predictors in these joint contexts.
        n_contexts : int
            C.

        Raises
        ------
        ValueError
            Joint contexts that leave other predictors free; predictors that no two-layer GLN has.
        """
        gamma = np.asarray(contexts)
        n_units = gamma.shape[1]
        one_hot = np.zeros((len(gamma), n_units, n_contexts))
        np.put_along_axis(one_hot, gamma[:, :, None], 1.0, axis=2)
        design = one_hot.reshape(len(gamma), n_units * n_contexts)  # row-major, as in zeta
        coef, _, rank, _ = np.linalg.lstsq(design, beta)
        needed = n_units * (n_contexts - 1) + 1
        if rank < needed:
            raise ValueError(
                f"these {len(gamma)} joint contexts determine {rank} of the {needed} free "
                "predictors, and the others could be anything: add joint contexts (see "
                "free_predictors), or ask for the least norm of all completions by a margin problem"
            )
        deviation = np.abs(design @ coef - beta).max(initial=0)
        if deviation > EQUIVARIANCE * np.abs(beta).max(initial=0):
            raise ValueError(
                "no two-layer GLN has these predictors: a unit that changes its context must "
                "change them by the same vector whatever the other units' contexts, but the "
                f"nearest equivariant predictors differ by {deviation:.3g}"
            )
        return cls.from_coef(np.asarray(coef, np.float64), n_units)

    @property
    def n_units(self) -> int:
        """H."""
        return int(self.effects.shape[0])

    @property
    def n_contexts(self) -> int:
        """C."""
        return int(self.effects.shape[1])

    @property
    def effect_norms(self) -> Array:
        """||delta_h|| of each unit, shape (H,), over its contexts: 0 where it is of no use."""
        return np.sqrt(np.square(self.effects).sum(axis=(1, 2)))

    def at(self, contexts: ArrayLike) -> Array:
        """Predictors (n, D) in joint contexts (n, H)."""
        gamma = np.asarray(contexts)
        beta = np.tile(self.mean, (len(gamma), 1))
        for effects, context in zip(self.effects, gamma.T, strict=True):
            beta += effects[context]
        return beta

    def norm(self) -> float:
        """Least sum_h ||zeta_h|| of all coefficients with these predictors, in closed form."""
        mean = np.sqrt(self.n_contexts) * np.linalg.norm(self.mean)
        return float(np.hypot(mean, self.effect_norms.sum()))

    def coef(self) -> Array:
        """Coefficients zeta of least norm, shape (H * C, D), row h * C + c.

        Each unit has its share in the mean: ||delta_h|| / sum_k ||delta_k||, or, where all effects
        are 0 and any split has the same norm, 1 / H.
        """
        norms = self.effect_norms
        total = norms.sum()
        shares = norms / total if total > 0 else np.full(self.n_units, 1.0 / self.n_units)
        zeta = shares[:, None, None] * self.mean + self.effects
        return zeta.reshape(-1, len(self.mean))


def joint_contexts(network: GLN, X: ArrayLike) -> NDArray[np.int64]:
    """Context of each unit, layer after layer: inputs (n, D) to shape (n, H_1 + H_2 + ...)."""
    return np.hstack([gating.contexts(X) for gating in network.gatings])


def predictors(network: GLN, contexts: ArrayLike) -> Array:
    """Predictors of a GLN of any depth, as its weights are now.

    Parameters
    ----------
    network : GLN
        The network.
    contexts : array_like of int, shape (n, H_1 + H_2 + ...)
        Joint contexts, as `joint_contexts` returns them; they need not occur.

    Returns
    -------
    ndarray of shape (n, D)
        beta: f(x) = <beta, x>, plus the readout's bias if there is one.
    """
    gating, gamma = network.gatings[0], np.asarray(contexts)
    own = gamma[:, : gating.n_units]
    return _selected(_slopes(network, gamma), own, gating.n_contexts) @ _weights(network)[0]


def first_layer_gates(network: GLN, X: ArrayLike) -> Array:
    """Gates of a GLN's first layer given its upper layers: its conditional two-layer form.

    Unit h's context, times the slope of f in the unit's output, divided by the norm s_h of the
    weights that leave the unit. With one hidden layer these are the network's own gates up to
    the sign of w_h.

    Parameters
    ----------
    network : GLN
        The network.
    X : array_like of shape (n, D)
        Inputs.

    Returns
    -------
    ndarray of shape (n, H_1 C_1)
        Columns in the order of the weights' rows; group them as ``network.gatings[0].groups``.
    """
    gating = network.gatings[0]
    gamma = joint_contexts(network, X)
    leaving = _leaving_norms(network)
    # A unit without leaving weights has slope 0 everywhere.
    slopes = _slopes(network, gamma) / np.where(leaving > 0, leaving, 1.0)
    return _selected(slopes, gamma[:, : gating.n_units], gating.n_contexts)


def first_layer_coef(network: GLN) -> Array:
    """Coefficients s_h W_1[h, c] to `first_layer_gates`, shape (H_1 C_1, D).

    f without the readout's bias.
    """
    first, *_ = _weights(network)
    return np.repeat(_leaving_norms(network), network.gatings[0].n_contexts)[:, None] * first


def path_contexts(gatings: Sequence[HyperplaneContexts], X: ArrayLike) -> HyperplaneContexts:
    """Contexts of the paths through the hidden layers of a GLN: its two-layer form.

    Parameters
    ----------
    gatings : sequence of HyperplaneContexts
        The contexts of each hidden layer.
    X : array_like of shape (n, D)
        Training inputs; which contexts occur in them is recorded.

    Returns
    -------
    HyperplaneContexts
        H_1 H_2 ... units, one a path (h_1, h_2, ...), the last layer's unit fastest. A path has
        the hyperplanes of all its units, those of the first layer most significant.
    """
    units = np.indices([gating.n_units for gating in gatings]).reshape(len(gatings), -1)
    chosen = list(zip(gatings, units, strict=True))
    return HyperplaneContexts.from_hyperplanes(
        X,
        np.concatenate([gating.weights[h] for gating, h in chosen], axis=1),
        np.concatenate([gating.thresholds[h] for gating, h in chosen], axis=1),
        single_precision=gatings[0].single_precision,
    )


def path_coef(network: GLN) -> Array:
    """Coefficients of a GLN's paths, as its weights are now: f without the readout's bias.

    Returns
    -------
    ndarray of shape (M, D)
        Rows in the column order of `path_contexts`. With one hidden layer that is
        ``network.coef()``.
    """
    first, *upper = _weights(network)
    n_features = first.shape[1]
    # Paths so far without their last unit, that unit, contexts of the path, features; row-major.
    zeta = first.reshape(1, network.gatings[0].n_units, -1, n_features)
    # The readout is a layer of one unit with one context.
    widths = [*(gating.n_units for gating in network.gatings[1:]), 1]
    for weights, width in zip(upper, widths, strict=True):
        layer = weights.reshape(width, -1, zeta.shape[1])
        joined = np.einsum("phkd,jch->phjkcd", zeta, layer)
        zeta = joined.reshape(-1, width, zeta.shape[2] * layer.shape[1], n_features)
    return zeta.reshape(-1, n_features)


def path_norm(network: GLN) -> float:
    """sum_p ||zeta_p|| over the paths of a GLN, without forming them.

    With one hidden layer that is ``network.norm()``; with more it is at most that.
    """
    first, *upper = _weights(network)
    n_units = network.gatings[0].n_units
    norms = np.linalg.norm(first.reshape(n_units, -1), axis=1)  # row-major: C_1 rows a unit
    widths = [*(gating.n_units for gating in network.gatings[1:]), 1]
    for weights, width in zip(upper, widths, strict=True):
        norms = np.linalg.norm(weights.reshape(width, -1, len(norms)), axis=1) @ norms
    return float(norms[0])


def _slopes(network: GLN, gamma: NDArray[np.int64]) -> Array:
    """Slopes of f in the outputs of the first layer's units, (n, H_1), in joint contexts."""
    _, *hidden, readout = _weights(network)
    widths = [gating.n_units for gating in network.gatings]
    layers = np.split(gamma, np.cumsum(widths)[:-1], axis=1)
    slopes = np.repeat(readout, len(gamma), axis=0)
    upper = zip(network.gatings[1:], layers[1:], hidden, strict=True)
    for gating, contexts, weights in reversed(list(upper)):
        slopes = _selected(slopes, contexts, gating.n_contexts) @ weights
    return slopes


def _selected(values: Array, contexts: NDArray[np.int64], n_contexts: int) -> Array:
    """Put a unit's value (n, H) in the column of its context, (n, H * C), column h * C + c."""
    n, n_units = values.shape
    gates = np.zeros((n, n_units * n_contexts))
    columns = contexts + n_contexts * np.arange(n_units)
    np.put_along_axis(gates, columns, values, axis=1)
    return gates


def _leaving_norms(network: GLN) -> Array:
    """s_h, norm over all contexts of the weights from unit h of the first layer, shape (H_1,)."""
    return np.linalg.norm(_weights(network)[1], axis=0)


def _weights(network: GLN) -> list[Array]:
    """Weights of the hidden layers (H_l C_l, H_(l-1)) and readout (1, H), copied to float64."""
    weights = [*network.hidden_weights, network.readout]
    return [np.array(layer.detach().cpu().numpy(), dtype=np.float64) for layer in weights]
