r"""Gated linear networks whose readout has contexts, too, and the relaxation of their program.

With one hidden layer of H units with C contexts each, and a readout with C_o contexts,

    f(x) = sum_h w[o(x), h] <W_1[h, context_h(x)], x>,     w (C_o, H),

and unit h has the matrix zeta_h = w_h (x) W_1[h], (C_o, C D), of rank one. By the inequality of the
means 1/2 ||theta||^2 >= sum_h ||w_h|| ||W_1[h]||_F = sum_h ||zeta_h||_F, with equality at balanced
units, so the network's program is

    minimise  sum_h ||zeta_h||_F  over zeta_h of rank one,  subject to  y_n f(x_n) >= 1,

which is not convex for C_o > 1. On matrices of rank one the Frobenius norm is the nuclear norm. The
margin problem is the convex relaxation over all zeta_h, with sum_h of their nuclear norms and for
dual norm max_h of the spectral norms of V_h, so that for every alpha >= 0

    sum_n alpha_n / max_h ||V_h(alpha)||_2  <=  its optimum  <=  1/2 ||theta||^2

of every theta with smallest margin 1. With one context of the readout this is the SVM-GLN.

Source: derived here after Sahiner et al. (2021), "Vector-output ReLU neural network problems are
copositive programs"; the networks are those of Lippl, Abbott, Chung (2022), section 4.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from implicit_bias.base.validation import Array
from implicit_bias.problem.gating import Gating, HyperplaneContexts


@dataclass(frozen=True, eq=False)
class GatedReadout(Gating):
    """Contexts of hidden units whose readout has contexts, too.

    Column ``o * H * C + h * C + c`` is 1 where the readout is in context o and unit h in c.

    Parameters
    ----------
    readout : HyperplaneContexts
        Contexts of the readout: one unit.
    hidden : HyperplaneContexts
        Contexts of the hidden units.

    Raises
    ------
    ValueError
        Readout contexts of several units, or of other inputs.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.array([[-1.0], [1.0]])
    >>> hidden = HyperplaneContexts.random(X, 3, 1, random_state=0)
    >>> readout = HyperplaneContexts.random(X, 1, 1, random_state=1)
    >>> GatedReadout(readout, hidden).gates(X).shape  # 3 units of 2 contexts, in 2 of the readout
    (2, 12)
    """

    readout: HyperplaneContexts
    hidden: HyperplaneContexts

    def __post_init__(self) -> None:
        if self.readout.n_units != 1 or self.readout.n_features != self.hidden.n_features:
            raise ValueError(
                "a readout has contexts of one unit and of the network's inputs, got "
                f"{self.readout.n_units} units of {self.readout.n_features} features"
            )

    @property
    def n_features(self) -> int:
        """D, the number of input features."""
        return self.hidden.n_features

    @property
    def groups(self) -> NDArray[np.int64]:
        """A unit has its columns in all contexts of the readout."""
        return np.tile(self.hidden.groups, self.readout.n_contexts)

    def gates(self, X: ArrayLike) -> sp.csr_array:
        """One-hot contexts, shape (n, C_o * H * C), CSR with exactly H ones a row."""
        size = len(self.hidden.groups)
        # Broadcasts the readout's context (n, 1) over the units (n, H).
        columns = size * self.readout.contexts(X) + self.hidden.columns(X)
        starts = np.arange(0, columns.size + 1, self.hidden.n_units)
        shape = (len(columns), self.readout.n_contexts * size)
        # Row-major: the entries of one sample lie together.
        return sp.csr_array((np.ones(columns.size), columns.ravel(), starts), shape)

    def unseen(self, X: ArrayLike) -> NDArray[np.int64]:
        """Count the units in a context that training never saw: all, where the readout is."""
        everything = self.readout.unseen(X) > 0
        return np.where(everything, self.hidden.n_units, self.hidden.unseen(X))


@dataclass(frozen=True)
class NuclearNormOfUnits:
    """Sum over the units of the nuclear norms of zeta_h: the norm of the relaxation.

    Parameters
    ----------
    gating : GatedReadout
        The contexts, which say which entries are zeta_h.
    """

    gating: GatedReadout

    def value(self, coef: Array) -> float:
        """Sum of the units' nuclear norms, of coefficients (1, C_o H C, D)."""
        return float(sum(np.linalg.norm(coef.ravel()[of], "nuc") for of in self._places(coef)))

    def dual(self, V: Array) -> float:
        """Largest of the units' spectral norms."""
        return float(max(np.linalg.norm(V.ravel()[of], 2) for of in self._places(V)))

    def atom(self, zeta: Any, shape: tuple[int, ...], cp: Any) -> Any:
        """Say it in CVXPY, of coefficients flattened in C order."""
        terms = []
        for of in self._places(np.empty(shape)):
            matrix = cp.reshape(zeta[of.ravel()], of.shape, order="C")
            terms.append(cp.normNuc(matrix))
        return sum(terms)

    def _places(self, coef: Array) -> NDArray[np.int64]:
        """Places of the entries of zeta_h among those of the coefficients: (H, C_o, C D)."""
        n_readout, hidden = self.gating.readout.n_contexts, self.gating.hidden
        places = np.arange(coef.size)
        # Row-major: context of the readout, unit, context of the unit, feature.
        by_context = places.reshape(n_readout, hidden.n_units, hidden.n_contexts * coef.shape[-1])
        return by_context.transpose(1, 0, 2)
