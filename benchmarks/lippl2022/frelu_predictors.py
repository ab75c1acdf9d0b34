r"""What a ReLU network with frozen gates (FReLU) computes: its free predictors, and their norm.

A unit is on or off, and adds its coefficients where it is on:

    beta_gamma = sum of zeta_h over the units h that are on in gamma,   gamma in {0, 1}^H.

So H of the 2^H predictors are free, those of one unit on, and determine all others: beta_gamma is
the sum of them, and beta_0 = 0. Contrary to a gated linear network, whose zeta are determined by
its predictors only up to how the mean is split (lemma B.6), each zeta_h is a predictor itself. The
norm of (22), sum_h ||zeta_h||, therefore needs no minimum over zeta: it is the sum of the norms of
the free predictors.

Source: Lippl, Abbott, Chung (2022), (22), and lemmas B.6 and B.7 for gated linear networks; their
analogue here is derived.
"""

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array

# Share of the largest entry by which predictors may fail to be sums.
ADDITIVE = 1e-9


def coef_through(contexts: ArrayLike, predictors: Array) -> Array:
    """Coefficients zeta (H, D) with these predictors (n, D) in joint contexts (n, H).

    Raises
    ------
    ValueError
        Joint contexts that leave coefficients free; predictors that no FReLU network has.
    """
    gates = np.asarray(contexts)
    zeta, _, rank, _ = np.linalg.lstsq(gates, predictors)
    if rank < gates.shape[1]:
        raise ValueError(
            f"these joint contexts determine {rank} of {gates.shape[1]} coefficients: add those "
            "of one unit"
        )
    if np.abs(gates @ zeta - predictors).max() > ADDITIVE * np.abs(predictors).max():
        raise ValueError("no FReLU network has these predictors: they are no sums over units")
    return np.asarray(zeta)
