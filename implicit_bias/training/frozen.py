"""Train a ReLU network and a copy whose gates are frozen side by side.

Source: Fiat, Malach, Shalev-Shwartz (2019).
"""

from __future__ import annotations

import copy
import math
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from implicit_bias.base.validation import Array, as_features
from implicit_bias.networks import FrozenGateReLU, ReLUNetwork
from implicit_bias.training.configuration import TrainingConfig
from implicit_bias.training.driver import OnProgress
from implicit_bias.training.history import HistoryPoint
from implicit_bias.training.minibatch import TrainingResult, train

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Divergence:
    """How far a network with frozen gates is from the live one after the same steps.

    Attributes
    ----------
    step : int
        Updates done since the gates were frozen.
    gates_changed : float
        Share of the live network's (sample, hidden unit) gates that are not the frozen ones any
        more, on the training samples.
    distance : float
        ||f_frozen - f_live|| / ||f_live||, norms over the outputs on the training samples.
    disagreement : float
        Share of the training samples on which their predictions, f(x) > 0, differ.
    eval_distance, eval_disagreement : float
        The same on the evaluation samples; nan without any.
    """

    step: int
    gates_changed: float
    distance: float
    disagreement: float
    eval_distance: float = math.nan
    eval_disagreement: float = math.nan


@dataclass(frozen=True, eq=False)
class FrozenComparison:
    """A ReLU network and its copy with frozen gates, trained side by side.

    Attributes
    ----------
    live, frozen : TrainingResult
        Both trainings, from the same weights with the same batches; ``frozen.network`` is a
        `FrozenGateReLU`.
    divergence : tuple of Divergence
        A point for each recorded step that both have reached.
    """

    live: TrainingResult
    frozen: TrainingResult
    divergence: tuple[Divergence, ...]

    def frame(self) -> pd.DataFrame:
        """Return the divergence as a table: a row for each recorded step."""
        import pandas as pd

        return pd.DataFrame([asdict(point) for point in self.divergence])


def train_beside_frozen(
    network: ReLUNetwork,
    X: ArrayLike,
    y: ArrayLike,
    config: TrainingConfig,
    *,
    X_eval: ArrayLike | None = None,
    on_progress: OnProgress | None = None,
) -> FrozenComparison:
    """Train a ReLU network with and without its gates frozen as they are, and compare.

    To freeze the gates after some steps, `train` the network so far and then call this. Both
    networks start from the network's present weights, at step 0 of the configuration, at rest (no
    momentum is carried over). Ctrl-C ends the one of the two trainings that is running.

    Parameters
    ----------
    network : ReLUNetwork
        Left as it is: copies are trained.
    X : array_like of shape (n, D)
        Training inputs.
    y : array_like of shape (n,)
        Labels, -1 or +1.
    config : TrainingConfig
        How to train both; ``record`` says at which steps they are compared.
    X_eval : array_like of shape (n', D), optional
        More inputs on which to compare them.
    on_progress : callable, optional
        As in `train`.

    Raises
    ------
    ValueError, TrainingDiverged
        As in `train`.
    """
    samples = [as_features(x, network.n_features) for x in (X, X_eval) if x is not None]
    live, frozen = copy.deepcopy(network), FrozenGateReLU(network)
    reached: dict[int, tuple[HistoryPoint, list[Array]]] = {}
    divergence: list[Divergence] = []

    def keep(point: HistoryPoint) -> None:
        reached[point.step] = point, [live.decision(x) for x in samples]

    def compare(point: HistoryPoint) -> None:
        if point.step not in reached:
            return
        live_point, live_outputs = reached[point.step]
        pairs = zip(samples, live_outputs, strict=True)
        apart = (_apart(frozen.decision(x), outputs) for x, outputs in pairs)
        shares = chain.from_iterable(apart)
        divergence.append(Divergence(point.step, live_point.gates_changed, *shares))

    trained = train(live, X, y, config, on_progress=on_progress, on_point=keep)
    beside = train(frozen, X, y, config, on_progress=on_progress, on_point=compare)
    return FrozenComparison(trained, beside, tuple(divergence))


def _apart(outputs: Array, reference: Array) -> tuple[float, float]:
    """Distance of outputs (n,) relative to the reference (n,), and share of other predictions."""
    distance, scale = np.linalg.norm(outputs - reference), np.linalg.norm(reference)
    relative = distance / scale if scale > 0 else math.inf if distance > 0 else 0.0
    return float(relative), float(np.mean((outputs > 0) != (reference > 0)))
