"""Ordinary tables: noisy problems of classification, as scikit-learn's `make_classification` draws.

Samples are Gaussian clusters at the corners of a cube, two for each class, mixed by a random
matrix; some features are combinations of others, some are noise, and some labels are wrong. So
most tables are not separable, and most problems have a soft margin.

A `Table` is the recipe of one problem. `draw` makes one up from a kind and a seed:

=============  ====================================================================================
linear         the l2 norm
gated          sums of l2 norms, one group a unit; the gates of a unit are the two sides of a
               hyperplane through the median
l1, linf       entrywise norms
spectral,      norms of the matrix of all classes, 3 classes or more
nuclear
separable      linear or gated, hard margin, not fewer features than samples
=============  ====================================================================================
"""

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import make_classification

from implicit_bias import MarginProblem, max_margin
from implicit_bias.base.validation import Array

KINDS = ("linear", "gated", "l1", "linf", "spectral", "nuclear", "separable")
GATED = "groups"
SEED = 11
# Ranges of `draw`: features, wrong labels, and how many tables have a soft margin, with which C.
FEATURES, WRONG, SOFT, LOG_C = (5, 100), 0.2, 0.8, (-2.0, 2.0)
SEPARABLE_SAMPLES, SEPARABLE_FEATURES = (200, 351), (400, 501)


@dataclass(frozen=True, kw_only=True)
class Table:
    """The recipe of a problem.

    Attributes
    ----------
    N, D, K : int
        Samples, features and classes.
    norm : str
        A name of `max_margin`, or "groups": one group for each of H units.
    H : int
        Units whose gates the problem has; 0 is a linear predictor.
    C : float
        Weight of the losses; inf is the hard margin.
    intercept : bool
        Whether predictors have a free intercept.
    wrong : float
        Fraction of the labels that are drawn anew.
    seed : int
        Of all draws.
    """

    N: int
    D: int
    K: int = 2
    norm: str = "l2"
    H: int = 0
    C: float = 1.0
    intercept: bool = False
    wrong: float = 0.05
    seed: int = 3

    @property
    def name(self) -> str:
        """Words for tables, and what ``--only`` looks in."""
        gates = f" H={self.H}" if self.H else ""
        offset = " intercept" if self.intercept else ""
        return f"{self.N}x{self.D} K={self.K} {self.norm}{gates} C={self.C:g}{offset}"

    def samples(self) -> tuple[Array, Array]:
        """Return inputs (N, D) and labels (N,): -1 and +1, or 0 to K - 1."""
        X, y = make_classification(
            self.N,
            self.D,
            # Two clusters a class need as many corners of the cube of informative features.
            n_informative=max(5 if self.K > 8 else 4, self.D // 2),
            n_redundant=self.D // 10,
            n_classes=self.K,
            flip_y=self.wrong,
            random_state=self.seed,
        )
        return X, np.where(y == 1, 1, -1) if self.K == 2 else y

    def problem(self) -> MarginProblem:
        """Return the problem: the same one whenever and wherever."""
        X, y = self.samples()
        if not self.H:
            return max_margin(X, y, self.norm, C=self.C, intercept=self.intercept)
        normals = np.random.default_rng(self.seed).normal(size=(self.D, self.H))
        scores = X @ normals
        side = (scores > np.median(scores, axis=0)).astype(float)
        gates = np.stack([side, 1.0 - side], axis=2).reshape(self.N, 2 * self.H)
        groups = np.repeat(np.arange(self.H), 2)
        return MarginProblem(X, y, gates, groups, C=self.C, intercept=self.intercept)


def draw(kind: str, seed: int, most: int = 10_000) -> Table:
    """Draw a table of a kind, one of `KINDS`, with 200 to ``most`` samples."""
    rng = np.random.default_rng([SEED, KINDS.index(kind), seed])
    N = round(200 * (most / 200) ** rng.random())
    D = round(FEATURES[0] * (FEATURES[1] / FEATURES[0]) ** rng.random())
    K = int(rng.integers(3 if kind in ("spectral", "nuclear") else 2, 6))
    wrong = float(rng.uniform(0.0, WRONG))
    C = float(10.0 ** rng.uniform(*LOG_C))
    if rng.random() > SOFT:
        C = np.inf
    H = int(rng.integers(2, 12))
    gated = kind == "gated"
    if kind == "separable":
        N = int(rng.integers(*SEPARABLE_SAMPLES))
        D = int(rng.integers(*SEPARABLE_FEATURES))
        C = np.inf
        gated = bool(rng.random() < 0.5)
    norm = kind
    if kind in ("linear", "separable"):
        norm = "l2"
    if gated:
        norm = GATED
    return Table(
        N=N,
        D=D,
        K=K,
        norm=norm,
        H=H if gated else 0,
        C=C,
        intercept=bool(rng.random() < 0.5),
        wrong=wrong,
        seed=int(rng.integers(2**31)),
    )
