"""Training: mini-batches, towards the limit, beside frozen gates.

================  ==========================================================================
file              what
================  ==========================================================================
configuration.py  how to train, by mini-batches or towards the limit; needs no torch
minibatch.py      (mini-batch) gradient descent with momentum, and local learning
limit.py          full batches on the log of the loss, towards infinite time
frozen.py         a ReLU network beside a copy whose gates are frozen
driver.py         the loop of every training, which Ctrl-C ends, and what results have in common
progress.py       the bar on standard error
losses.py         exponential-like losses, and the check that a loss is one
history.py        what is measured of a network on the way
================  ==========================================================================

The names below are imported on first use: a configuration alone does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from implicit_bias.training.configuration import LimitConfig, TrainingConfig
    from implicit_bias.training.frozen import Divergence, FrozenComparison, train_beside_frozen
    from implicit_bias.training.history import HistoryPoint, Observer, history_frame
    from implicit_bias.training.minibatch import TrainingDiverged, TrainingResult, train

__all__ = [
    "Divergence",
    "FrozenComparison",
    "HistoryPoint",
    "LimitConfig",
    "Observer",
    "TrainingConfig",
    "TrainingDiverged",
    "TrainingResult",
    "history_frame",
    "train",
    "train_beside_frozen",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for module in ("configuration", "history", "minibatch", "frozen"):
            if found := vars(import_module(f"{__name__}.{module}")).get(name):
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
