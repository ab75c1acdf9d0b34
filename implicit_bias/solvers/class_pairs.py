"""Pairs of samples and rivals on a device: what `norm_path` knows of a problem with classes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import scipy.linalg
import torch
from numpy.typing import NDArray
from torch import Tensor

from implicit_bias.base.validation import Array
from implicit_bias.bounds.certificate import repaired
from implicit_bias.norms import L1, L2, LInf, Norm, Nuclear, Spectral, nuclear_groups
from implicit_bias.problem import MarginProblem
from implicit_bias.problem.rows import merged_classes
from implicit_bias.solvers.iteration import Answer
from implicit_bias.solvers.scaled_problem import Boxes

Integers = NDArray[np.int64]
NormOf: TypeAlias = Callable[[Tensor], float]

# Samples whose weighted products are formed at once.
BLOCK = 2048


class ClassPairs:
    """Pairs and features on the device; features have a root mean square norm of about 1.

    Classes without samples are merged into one (`merged_classes`), of weight m if there are m of
    them. The norm of coefficients that are the same for all m is that of their row times sqrt(m);
    for l1 times m, and for l_inf times 1. So the coordinates have that factor in them.
    """

    def __init__(
        self, problem: MarginProblem, pairs: tuple[Integers, Integers], device: torch.device
    ) -> None:
        self._problem, self._pairs = problem, pairs
        self._kinds = merged_classes(problem)
        self._empty = np.setdiff1d(np.arange(len(self._kinds)), problem.owners)
        self.K = int(self._kinds.max()) + 1
        # A power of two: balanced dual variables stay balanced, exactly, in the problem's units.
        self.scale = float(np.exp2(np.round(np.log2(problem.scale))))
        samples, rivals = pairs
        used, place = np.unique(samples, return_inverse=True)
        owners = self._kinds[problem.owners[used]]
        X = problem.X[used]
        Z = problem.plain_gates[used].toarray()
        if Z.shape[1] > 1 or (Z != 1).any():
            X = (Z[:, :, None] * X[:, None, :]).reshape(len(used), -1)

        def tensor(values: Array) -> Tensor:
            return torch.tensor(values, dtype=torch.float64, device=device)

        def index(values: Integers) -> Tensor:
            return torch.tensor(values, device=device)

        # Columns orthonormal and orthogonal to 1: coordinates of what sums to 0 over the classes.
        # The norms of entries have the classes themselves as coordinates.
        self.entries = problem.norm in (L1(), LInf())
        sizes = np.ones(self.K)
        if len(self._empty):
            powers: dict[Norm, float] = {L1(): 1.0, LInf(): 0.0}
            sizes[-1] = len(self._empty) ** powers.get(problem.norm, 0.5)
        basis = np.eye(self.K) if self.entries else _sum_free(sizes)
        self.basis = tensor(basis / sizes[:, None])  # (K, r), from coordinates to classes
        self._into = tensor((basis * sizes[:, None]).T)  # (r, K), and back
        self.X = tensor(X) / self.scale
        self.owners, self.place, self.rivals = (
            index(owners),
            index(place),
            index(self._kinds[rivals]),
        )
        # Places of own class and rival in an array (n, K).
        self._own = self.place * self.K + self.owners[self.place]
        self._rival = self.place * self.K + self.rivals
        self.free_t = problem.norm in (Spectral(), LInf())
        r, F = self.basis.shape[1], X.shape[1]
        self.shape = (r, F)
        groups = nuclear_groups(problem.norm)
        self.columns = [] if groups is None else _columns(groups, problem.X.shape[1])
        self.n_balls = max(len(self.columns), 1)
        self.ball_shape = (1, r * F) if problem.norm == L2() else (self.n_balls * r, F)
        if self.columns:
            self.norm = self._over_balls(_nuclear, sum)
            self.dual_norm = self._over_balls(_spectral, max)
        else:
            self.norm, self.dual_norm = norms_of(problem)
        # One class's offset is 0, since only differences count; one without samples has none.
        present = np.unique(problem.owners)[: -1 if problem.intercept else 0]
        self._offset_classes = present
        offsets = torch.eye(self.K, len(present), dtype=torch.float64, device=device)
        self.E = offsets[self.owners[self.place]] - offsets[self.rivals]  # (P, J)
        self.norms = self.X.norm(dim=1)[self.place]
        self.C = problem.C * self.scale
        self.boxes = Boxes() if problem.hard_margin else Boxes(self.place)
        self.n_boxes = 0 if problem.hard_margin else len(used)
        self._gram: Tensor | None = None
        self._grams: list[Tensor] = []  # of the samples, one a ball
        self._touching: list[tuple[Tensor, Tensor, Tensor, Tensor]] | None = None
        self._members = [torch.nonzero(self.owners == k)[:, 0] for k in range(self.K)]

    @property
    def gram(self) -> Tensor:
        """Inner products of the pairs' features, (P, P)."""
        if self._gram is None:
            self._gram = (self.X @ self.X.T)[self.place[:, None], self.place]
        return self._gram

    def gram_of(self, ball: int) -> Tensor:
        """Inner products of the pairs' features in one ball, (P, P)."""
        if not self.columns:
            return self.gram
        if not self._grams:
            parts = [self.X[:, columns] for columns in self.columns]
            self._grams = [part @ part.T for part in parts]
        return self._grams[ball][self.place[:, None], self.place]

    @property
    def a(self) -> Tensor:
        """e_{y_n} - e_k in coordinates, (P, r)."""
        return self.basis[self.owners[self.place]] - self.basis[self.rivals]

    def dual_vectors(self, alpha: Tensor) -> Tensor:
        """Phi' alpha, in the shape of the ball."""
        weights = self.X.new_zeros(len(self.X) * self.K)
        weights[self._rival] = alpha
        weights = weights.view(-1, self.K)
        total = weights.sum(1, keepdim=True)
        weights = (-weights).scatter_add_(1, self.owners[:, None], total)
        return self._in_balls((weights @ self.basis).T @ self.X)

    def margins(self, zeta: Tensor) -> Tensor:
        """Phi zeta, (P,)."""
        scores = (self.X @ (self.basis @ self._whole(zeta)).T).reshape(-1)
        return scores[self._own] - scores[self._rival]

    def _in_balls(self, V: Tensor) -> Tensor:
        """Coefficients (r, F) in the shape of the ball; of several balls one below the other.

        Then each has its own columns, and 0 in those of the others: singular values of all are
        those of the whole matrix, and its products with itself are block diagonal.
        """
        if not self.columns:
            return V.reshape(self.ball_shape)
        r, found = len(V), V.new_zeros(self.ball_shape)
        for ball, columns in enumerate(self.columns):
            found[ball * r : (ball + 1) * r, columns] = V[:, columns]
        return found

    def _whole(self, zeta: Tensor) -> Tensor:
        """Coefficients (r, F) of those in the shape of the ball."""
        if not self.columns:
            return zeta.reshape(self.shape)
        return zeta.reshape(self.n_balls, *self.shape).sum(0)

    def _over_balls(self, norm: NormOf, total: Callable[[list[float]], float]) -> NormOf:
        """Return the sum, or the maximum, of a norm of each ball."""

        def value(A: Tensor) -> float:
            whole = self._whole(A)
            return total([norm(whole[:, columns]) for columns in self.columns])

        return value

    def masked(self, k: Tensor) -> Tensor:
        """Phi diag(k) Phi', (P, P), of k (K, F): class by class, of the pairs that touch it."""
        if self._touching is None:
            self._touching = []
            for c in range(self.K):
                own = self.owners[self.place] == c
                index = torch.nonzero(own | (self.rivals == c))[:, 0]
                sign = torch.where(own[index], 1.0, -1.0).to(k) * self.basis[c, c]
                samples, place = torch.unique(self.place[index], return_inverse=True)
                self._touching.append((index, sign, samples, place))
        whole = k.new_zeros(len(self.place), len(self.place))
        for of_class, (index, sign, samples, place) in zip(k, self._touching, strict=True):
            X = self.X[samples] * of_class.sqrt()
            gram = (X @ X.T)[place[:, None], place] * (sign[:, None] * sign)
            whole[index[:, None], index] += gram
        return whole

    def products(self, V: Tensor) -> Tensor:
        """V x_p, (P, r)."""
        return (self.X @ V.T)[self.place]

    def normal_matrix(self, h: Tensor, shares: Tensor | None) -> Tensor:
        """Phi' D^-1 Phi, (r F, r F); D^-1 = diag(h) less h h' times a share for each sample."""
        K, (r, F) = self.K, self.shape
        dense = self.X.new_zeros(len(self.X) * K)
        dense[self._rival] = h
        dense = dense.view(-1, K)
        whole = self.X.new_zeros(K, K, F, F)
        for k, members in enumerate(self._members):
            for start in range(0, len(members), BLOCK):
                index = members[start : start + BLOCK]
                X, weights = self.X[index], dense[index]
                each = _weighted_squares(X, weights)  # (K, F, F), one a rival
                total = each.sum(0)
                whole[k, k] += total
                whole.diagonal().add_(each.permute(1, 2, 0))
                whole[k] -= each
                whole[:, k] -= each
                if shares is not None:
                    q = -weights
                    q[:, k] += weights.sum(1)
                    products = q[:, :, None] * q[:, None, :] * shares[index, None, None]
                    each = _weighted_squares(X, products.reshape(len(index), -1))
                    whole -= each.reshape(K, K, F, F)
        reduced = torch.einsum("ki,klfg,lj->ifjg", self.basis, whole, self.basis)
        return reduced.reshape(r * F, r * F)

    def balanced(self, alpha: Tensor) -> Tensor:
        """Return alpha with E' alpha = 0, exactly."""
        found = repaired(self._problem, self.alpha(alpha))[self._pairs]
        return torch.tensor(found, device=alpha.device) * self.scale

    def alpha(self, values: Tensor) -> Array:
        """Dual variables of the problem."""
        alpha = np.zeros(self._problem.alpha_shape)
        alpha[self._pairs] = values.cpu().numpy() / self.scale
        if len(self._empty) > 1:
            alpha[:, self._empty] = alpha[:, self._empty].mean(axis=1, keepdims=True)
        return alpha

    def coef(self, zeta: Tensor) -> Array:
        """Coefficients (K, M, D) of zeta."""
        plain = (self.basis @ self._whole(zeta)).cpu().numpy() / self.scale
        by_class = plain[self._kinds].reshape(len(self._kinds), -1, self._problem.X.shape[1])
        return np.stack([np.asarray(self._problem.root @ part) for part in by_class])

    def of_answer(self, near: Answer) -> tuple[Tensor, Tensor, Tensor]:
        """Return alpha, zeta and b of an answer in the problem's shapes."""
        device = self.X.device
        of_pairs = near.alpha[self._pairs]
        plain = self._problem.plain_coef(near.coef).reshape(len(self._kinds), -1) * self.scale
        if len(self._empty) > 1:
            merged = np.isin(self._pairs[1], self._empty)
            total = near.alpha[:, self._empty].sum(axis=1)
            of_pairs = np.where(merged, total[self._pairs[0]], of_pairs)
            plain[self._empty] = plain[self._empty].mean(axis=0)
        alpha = torch.tensor(of_pairs * self.scale, device=device)
        firsts = np.unique(self._kinds, return_index=True)[1]
        zeta = self._in_balls(self._into @ torch.tensor(plain[firsts], device=device))
        b = torch.tensor(np.asarray(near.intercept)[self._offset_classes], device=device)
        return alpha, zeta, b

    def intercept(self, b: Tensor) -> Array:
        """Offsets (K,) of the problem."""
        found = np.zeros(len(self._kinds))
        found[self._offset_classes] = b.cpu().numpy()
        return found


def _sum_free(sizes: Array) -> Array:
    """Columns orthonormal and orthogonal to the sizes of the classes, (K, K - 1)."""
    if (sizes == 1).all():
        return np.asarray(scipy.linalg.helmert(len(sizes)).T)
    return scipy.linalg.null_space(sizes[None, :])


def memory_of_balls(problem: MarginProblem, pairs: tuple[Integers, Integers]) -> int:
    """Bytes that the balls of several groups take beside what one ball does."""
    groups = nuclear_groups(problem.norm)
    if groups is None:
        return 0
    samples, features = len(np.unique(pairs[0])), len(groups) * problem.X.shape[1]
    return 8 * int(groups.max() + 1) * (samples**2 + 8 * (problem.classes or 2) * features)


def _columns(groups: Integers, n_features: int) -> list[Tensor]:
    """Columns of the features z(x) (x) x that belong to each group of gates."""
    of_columns = np.repeat(groups, n_features)
    return [torch.tensor(np.flatnonzero(of_columns == g)) for g in range(int(groups.max()) + 1)]


def norms_of(problem: MarginProblem) -> tuple[NormOf, NormOf]:
    """Return Omega and Omega_* of matrices in the shape of the ball."""
    kinds: dict[Norm, tuple[NormOf, NormOf]] = {
        L1(): (_total, _largest),
        LInf(): (_largest, _total),
        L2(): (_euclidean, _euclidean),
        Nuclear(): (_nuclear, _spectral),
        Spectral(): (_spectral, _nuclear),
    }
    return kinds[problem.norm]


def _total(A: Tensor) -> float:
    return float(A.abs().sum())


def _largest(A: Tensor) -> float:
    return float(A.abs().max())


def _euclidean(A: Tensor) -> float:
    return float(A.norm())


def _nuclear(A: Tensor) -> float:
    return float(torch.linalg.matrix_norm(A, "nuc"))


def _spectral(A: Tensor) -> float:
    return float(torch.linalg.matrix_norm(A, 2))


def _weighted_squares(X: Tensor, weights: Tensor) -> Tensor:
    """X' diag(w) X for each column w of weights (n, k): (k, F, F)."""
    n, F = X.shape
    return ((weights[:, :, None] * X[:, None, :]).reshape(n, -1).T @ X).reshape(-1, F, F)
