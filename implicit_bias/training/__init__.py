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

Without torch there are the configurations alone. Import all other names from their files.
"""

from implicit_bias.training.configuration import LimitConfig, TrainingConfig
