r"""The angle between a module and a limit that is known: of its parameters, or of its predictor.

    cos = <theta, theta_*> / (||theta|| ||theta_*||)      of parameters,
    cos = <beta, beta_*> / (||beta|| ||beta_*||)          of a predictor <beta, phi(x)>

The predictor of linear, deep linear, diagonal and gated networks is what `function_space`
recognizes; its limit is a `Solution` of the margin problem.

Source: Soudry et al. (2018) for the angle as the measure of convergence in direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.validation import Array, detached
from implicit_bias.diagnosis.function_space import predictor_of
from implicit_bias.modules.subject import Subject
from implicit_bias.solvers.base import Solution

# A limit of the parameters, in their order or by name, or that of the predictor.
GivenLimit: TypeAlias = Solution | nn.Module | Mapping[str, ArrayLike | Tensor] | ArrayLike | Tensor


@dataclass(frozen=True, eq=False)
class KnownLimit:
    """A direction, of the parameters or of the predictor.

    Attributes
    ----------
    direction : ndarray
        theta_* (P,), or beta_*, as one vector.
    of_predictor : bool
        Which of the two it is.
    """

    direction: Array
    of_predictor: bool

    @classmethod
    def of(cls, limit: GivenLimit, subject: Subject) -> KnownLimit:
        """Check that a limit fits a module.

        Raises
        ------
        ValueError
            Parameters are missing, or shapes do not fit; a limit of 0, or not finite; a `Solution`
            of a module whose predictor is not known.
        """
        if isinstance(limit, Solution):
            direction = np.asarray(limit.coef, dtype=np.float64).reshape(-1)
            own = predictor_of(subject.function)
            if own is None:
                raise ValueError(
                    "limit is a Solution, but the module is not recognized as a linear, deep "
                    "linear, diagonal or gated network: pass the parameters of the limit"
                )
        else:
            direction = _parameters(limit, subject)
            own = subject.function.theta.cpu().numpy()
        if direction.size != own.size:
            raise ValueError(
                f"limit has {direction.size} entries, but the module has {own.size}: pass those "
                "that are trained, in the order of its parameters, or a Solution of the same data, "
                "features and classes"
            )
        # A direction has no length, so 0 is none.
        if not np.isfinite(direction).all() or not direction.any():
            raise ValueError("limit must be finite, and not 0")
        return cls(direction, isinstance(limit, Solution))

    def cosine(self, subject: Subject) -> float:
        """Cosine of the angle with the module as it is; nan of a module at 0, or not finite."""
        own: Array | None = subject.function.theta.cpu().numpy()
        if self.of_predictor:
            own = predictor_of(subject.function)
        if own is None or not np.isfinite(own).all() or not own.any():
            return float("nan")
        # Over the largest entries first, whose squares are within float64.
        own = own / np.abs(own).max()
        limit = self.direction / np.abs(self.direction).max()
        return float(own @ limit / (np.linalg.norm(own) * np.linalg.norm(limit)))


def _parameters(
    limit: nn.Module | Mapping[str, ArrayLike | Tensor] | ArrayLike | Tensor, subject: Subject
) -> Array:
    """Parameters that count, one after the other."""
    if isinstance(limit, nn.Module):
        limit = dict(limit.named_parameters())
    if not isinstance(limit, Mapping):
        # A vector has no names: it is checked by its length alone, above.
        return np.asarray(detached(limit), dtype=np.float64).reshape(-1)
    parts = list[Array]()
    for name, shape in subject.function.shapes.items():
        if name not in limit:
            raise ValueError(f"limit has no parameter {name!r}")
        part = np.asarray(detached(limit[name]), dtype=np.float64)
        if part.shape != tuple(shape):
            raise ValueError(
                f"limit has {name!r} of shape {part.shape}, but the module of {tuple(shape)}"
            )
        parts.append(part.reshape(-1))
    return np.concatenate(parts)
