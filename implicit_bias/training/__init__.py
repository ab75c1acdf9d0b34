"""Training: mini-batches, towards the limit, beside frozen gates.

=============  =============================================================================
file           what
=============  =============================================================================
minibatch.py   (mini-batch) gradient descent with momentum, and local learning
limit.py       full batches on the log of the loss, towards infinite time
frozen.py      a ReLU network beside a copy whose gates are frozen
losses.py      exponential-like losses, and the check that a loss is one
history.py     what is measured of a network on the way
=============  =============================================================================
"""

from implicit_bias.training.frozen import Divergence, FrozenComparison, train_beside_frozen
from implicit_bias.training.history import HistoryPoint, Observer, history_frame
from implicit_bias.training.minibatch import (
    TrainingConfig,
    TrainingDiverged,
    TrainingResult,
    train,
)

__all__ = [
    "Divergence",
    "FrozenComparison",
    "HistoryPoint",
    "Observer",
    "TrainingConfig",
    "TrainingDiverged",
    "TrainingResult",
    "history_frame",
    "train",
    "train_beside_frozen",
]
