"""Training: by mini-batches, and towards the limit.

================  ==========================================================================
file              what
================  ==========================================================================
configuration.py  how to train, by mini-batches or towards the limit; needs no torch
losses.py         exponential-like losses, and the check that a loss is one
optimizers.py     torch's optimizers and sign descent by name
history.py        what a training records on its way, and what it returns
minibatch.py      (mini-batch) gradient descent with momentum, and local learning
trainee.py        a module's log loss as a function of its weights, and its gradient
limit.py          descent on it towards its limit, t -> infinity
steepest.py       the same in another norm than l2: steepest descent with momentum
================  ==========================================================================

The names below are imported on first use: a configuration alone does not load torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from implicit_bias.training.configuration import LimitConfig, OwnLoop, TrainingConfig
    from implicit_bias.training.history import HistoryPoint, Observer, history_frame
    from implicit_bias.training.minibatch import OwnResult, TrainingDiverged, TrainingResult, train

# Where each of these names is: the import waits until a name is asked for.
HOMES = {
    "history_frame": "implicit_bias.training.history",
    "HistoryPoint": "implicit_bias.training.history",
    "LimitConfig": "implicit_bias.training.configuration",
    "Observer": "implicit_bias.training.history",
    "OwnLoop": "implicit_bias.training.configuration",
    "OwnResult": "implicit_bias.training.minibatch",
    "train": "implicit_bias.training.minibatch",
    "TrainingConfig": "implicit_bias.training.configuration",
    "TrainingDiverged": "implicit_bias.training.minibatch",
    "TrainingResult": "implicit_bias.training.minibatch",
}


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)
