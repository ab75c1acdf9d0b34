r"""A primal-dual interior point for equality constraints: Mehrotra's predictor and corrector.

The loop is that of every norm. What the norm adds is a `Path`: the variables beside alpha, the
Newton system, and how far a step may go (`group_path`, `entry_path`, `spectral_path`). It differs
from the margin problem's (`solvers.interior_point`) in one thing: alpha is free in sign, so the
Newton matrix is A K^-1 A' alone, without the diagonal s / alpha.

Both bounds are known at each iterate: coefficients are moved onto the equations, and alpha is
scaled into the dual ball.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import scipy.linalg

from implicit_bias.base.validation import Array
from implicit_bias.interpolation.system import LinearSystem, Point

# The change of each variable of a path, in its order; that of alpha is the first.
Step: TypeAlias = tuple[Array, ...]


class Path(ABC):
    """One iterate near the central path of a norm.

    Attributes
    ----------
    system : LinearSystem
        The equations and the norm.
    alpha : ndarray of shape (n, K)
        Multipliers.
    n_products : int
        How many complementary products there are.
    """

    system: LinearSystem
    alpha: Array
    n_products: int

    @abstractmethod
    def zeta(self) -> Array:
        """Coefficients of the iterate, (K, F)."""

    @abstractmethod
    def mean_product(self, step: Step | None = None, length: float = 0.0) -> float:
        """mu: the mean of the complementary products, here or after this length of a step."""

    @abstractmethod
    def factorise(self) -> None:
        """Factorise the Newton system.

        Raises
        ------
        LinAlgError
            Rounding made a matrix singular or indefinite.
        """

    @abstractmethod
    def direction(self, mu: float, predictor: Step | None) -> Step:
        """Return a step to mu, with the predictor's second-order terms."""

    @abstractmethod
    def step_to_boundary(self, step: Step) -> float:
        """Return the longest multiple of a step, at most 1, that stays inside."""

    @abstractmethod
    def move(self, step: Step, length: float) -> None:
        """Go this length of a step."""


@dataclass(frozen=True, kw_only=True)
class InteriorPoint:
    """The method.

    Parameters
    ----------
    max_iterations : int
        Limit on its steps; 10 to 25 are usual.
    boundary_share : float
        Fraction of the way to the boundary that a step may go.
    short : float
        A shorter step than this is compared with one that centres first.
    patience : int
        Steps without a smaller gap after which rounding is held to decide.
    floor : float
        mu need not fall below this fraction of what the tolerance asks for.
    """

    max_iterations: int = 100
    boundary_share: float = 0.99
    short: float = 0.1
    patience: int = 8
    floor: float = 0.05

    name: ClassVar[str] = "interior-point"

    def follow(self, path: Path) -> Point:
        """Follow the central path until the gap is within the system's tolerance."""
        system = path.system
        best_gap = np.inf
        best: Point | None = None
        n_waited = 0
        for n_steps in range(self.max_iterations):
            # --- Bounds of the iterate -----------------------------------------------------------
            zeta = system.corrected(path.zeta())
            gap = system.gap(zeta, path.alpha)
            n_waited += 1
            if gap < 0.9 * best_gap:
                n_waited = 0
            if best is None or gap < best_gap:
                best_gap = gap
                best = Point(zeta, path.alpha, self.name, n_steps)
            if best_gap <= system.tolerance or n_waited > self.patience or system.deadline.passed:
                break
            try:
                # --- Predictor: the centring by the progress of a step to mu = 0 -----------------
                path.factorise()
                mu = path.mean_product()
                predictor = path.direction(0.0, None)
                length = path.step_to_boundary(predictor)
                share = max(path.mean_product(predictor, length) / mu, 0.0)
                lower = abs(float((path.alpha * system.Y).sum()))
                least_mu = self.floor * system.tolerance * lower / path.n_products
                # --- Corrector, with the predictor's second-order terms --------------------------
                step = path.direction(max(min(share**3, 1.0) * mu, least_mu), predictor)
                to_boundary = path.step_to_boundary(step)
                if to_boundary < self.short:  # the predictor overshot
                    centring = path.direction(0.5 * mu, None)
                    of_centring = path.step_to_boundary(centring)
                    if of_centring > to_boundary:
                        step = centring
                        to_boundary = of_centring
            except np.linalg.LinAlgError:
                break
            path.move(step, min(1.0, self.boundary_share * to_boundary))
        assert best is not None
        return best


class NewtonMatrix:
    """The matrix of a step in alpha, (K n, K n), with a border: factorised.

    Parameters
    ----------
    blocks : list of ndarray
        (n, n) of each output, one for all of them, or one of (K n, K n).
    border : ndarray of shape (K, n, q)
        Columns.
    slack : ndarray of shape (q,)
        Not negative: the matrix is the blocks plus border diag(1 / slack) border'.
    """

    def __init__(self, blocks: list[Array], border: Array, slack: Array) -> None:
        self.factors = [_factor(block) for block in blocks]
        self.border = border.reshape(-1, border.shape[-1])
        self.slack = slack
        self.solved = self._solve_blocks(self.border)
        schur = self.border.T @ self.solved
        schur[np.diag_indices(len(schur))] += slack
        self.schur = _factor(schur)

    def solve(
        self,
        right: Array,
        product: Callable[[Array], Array],
        of_border: Array | float = 0.0,
        refinements: int = 1,
    ) -> tuple[Array, Array]:
        """Solve M alpha + border y = right, slack y - border' alpha = of_border.

        Parameters
        ----------
        right : ndarray of shape (n, K)
            Right-hand side.
        product : callable
            Of alpha (n, K) with M, for the residual.
        of_border : ndarray of shape (q,), or 0
            Right-hand side of the border.
        refinements : int
            So often the residual is solved for.

        Returns
        -------
        alpha : ndarray of shape (n, K)
        y : ndarray of shape (q,)
        """
        alpha, y = self._solve_once(right, of_border)
        for _ in range(refinements):
            seen = (self.border @ y).reshape(right.shape[::-1]).T
            rest = right - product(alpha) - seen
            rest_of_border = of_border + self.border.T @ alpha.T.reshape(-1) - self.slack * y
            more, more_y = self._solve_once(rest, rest_of_border)
            alpha = alpha + more
            y = y + more_y
        return alpha, y

    def _solve_once(self, right: Array, of_border: Array | float) -> tuple[Array, Array]:
        """Solve by the factors alone."""
        inner = self._solve_blocks(right.T.reshape(-1, 1))[:, 0]
        y = scipy.linalg.cho_solve(
            self.schur, self.border.T @ inner + of_border, check_finite=False
        )
        alpha = inner - self.solved @ y
        return alpha.reshape(right.shape[::-1]).T, y

    def _solve_blocks(self, right: Array) -> Array:
        """Solve with the blocks, for (K n, q)."""
        size = len(self.factors[0][0])
        solved = []
        for b, block in enumerate(right.reshape(-1, size, right.shape[1])):
            factor = self.factors[b % len(self.factors)]
            solved.append(scipy.linalg.cho_solve(factor, block, check_finite=False))
        return np.concatenate(solved)


def _factor(matrix: Array) -> tuple[Array, bool]:
    """Factorise a symmetric matrix, with a little more on its diagonal where rounding asks for it.

    Raises
    ------
    LinAlgError
        Not positive definite even so.
    """
    for ridge in (0.0, 1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10):
        raised = matrix.copy()
        raised[np.diag_indices(len(matrix))] *= 1.0 + ridge
        try:
            return scipy.linalg.cho_factor(raised, lower=True, check_finite=False)
        except np.linalg.LinAlgError:
            continue
    raise np.linalg.LinAlgError("the Newton matrix is not positive definite")


# --- cones of symmetric matrices, a stack of them (G, r, r) ---------------------------------------


def nesterov_todd(R: Array, T: Array) -> tuple[Array, Array, Array]:
    """Return Nesterov and Todd's S, S T S = R, with T^-1 and T^-1/2.

    S = T^-1/2 (T^1/2 R T^1/2)^1/2 T^-1/2.

    Raises
    ------
    LinAlgError
        R or T is not positive definite.
    """
    values, vectors = np.linalg.eigh(T)
    if not values.min() > 0:
        raise np.linalg.LinAlgError("T is not positive definite")
    root = (vectors * np.sqrt(values)[:, None]) @ vectors.mT
    inverse_root = (vectors / np.sqrt(values)[:, None]) @ vectors.mT
    inverse = (vectors / values[:, None]) @ vectors.mT
    values, vectors = np.linalg.eigh(root @ R @ root)
    if not values.min() > 0:
        raise np.linalg.LinAlgError("R is not positive definite")
    middle = (vectors * np.sqrt(values)[:, None]) @ vectors.mT
    return inverse_root @ middle @ inverse_root, inverse, inverse_root


def step_in_cone(R: Array, change: Array) -> float:
    """Return the longest multiple of a change, at most 1, that keeps R positive definite."""
    L = np.linalg.cholesky(R)
    relative = np.linalg.solve(L, np.linalg.solve(L, change).mT)
    return 1.0 / max(1.0, -float(np.linalg.eigvalsh(relative).min()))


def longest_inside(inside: Callable[[float], bool], longest: float, halvings: int = 20) -> float:
    """Return a length near the last one inside, of an interval from 0 on; the longest if it is."""
    if inside(longest):
        return longest
    low = 0.0
    high = longest
    for _ in range(halvings):
        middle = 0.5 * (low + high)
        if inside(middle):
            low = middle
        else:
            high = middle
    return low
