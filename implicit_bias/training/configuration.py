"""How to train: by mini-batches (`TrainingConfig`), or towards the limit (`LimitConfig`).

Nothing here needs torch, so a command line can offer these options without loading it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Literal, TypeAlias, get_args

import numpy as np

from implicit_bias.base import options
from implicit_bias.base.options import LossName as LossName
from implicit_bias.base.options import Method as Method
from implicit_bias.base.options import NormName as NormName
from implicit_bias.base.validation import check_choice, check_count, check_number, check_seed

if TYPE_CHECKING:
    from implicit_bias.norms.tensors import ParameterNorm
    from implicit_bias.training.losses import MarginLoss

Rule: TypeAlias = Literal["gradient", "local"]


def _check_loss(loss: LossName | MarginLoss, *, exponential_like: bool = False) -> None:
    """Check a loss."""
    # A name is known without loading torch.
    if isinstance(loss, str) and loss in get_args(LossName):
        return
    from implicit_bias.training.losses import as_loss, check_exponential_like

    found = as_loss(loss)
    if exponential_like:
        check_exponential_like(found)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How to train; the defaults are those of Lippl, Abbott, Chung (2022), without momentum.

    Parameters
    ----------
    steps : int
        Updates of the weights.
    batch_size : int or None
        Samples a step, in a new random order each epoch (an epoch's last batch may be smaller);
        None for all samples in each step.
    learning_rate : float
        Step size at the start.
    decay, decay_at : float
        The step size is multiplied by ``decay`` once, after the fraction ``decay_at`` of
        the steps.
    momentum : float
        Heavy-ball momentum of sgd, sign and muon, in [0, 1); Adam and AdamW keep torch's own.
    optimizer : {"sgd", "sign", "adam", "adamw", "muon"}
        What makes a step of the gradient, see `training.optimizers`. All but adamw are biased
        towards the maximum margin in a norm. The weight decay of adamw bounds the weights, so it
        maximizes no margin and minimizes the loss in a box.
    loss : {"logistic", "exponential", "cross-entropy"} or MarginLoss
        Loss of a margin, of many classes that of `margins.logsumexp_margins`; the mean over the
        batch is minimized. The cross-entropy is the logistic loss.
    rule : {"gradient", "local"}
        What learns from the loss: the network as a whole, or each unit by itself (see
        `training.minibatch`; only networks with fixed gates).
    record : int or tuple of int
        The number of points in the history, at most: evenly spaced in the logarithm of the step
        (early ones coincide), step 0 and the last included. Or the steps themselves, to which
        step 0 and the last are added.
    seed : int
        Seed of the order of the samples.

    Raises
    ------
    ValueError
        A value out of its range.

    Examples
    --------
    >>> config = TrainingConfig(steps=100, optimizer="sign", learning_rate=0.001)
    >>> config.batch_size
    128
    """

    steps: int = 3200
    batch_size: int | None = 128
    learning_rate: float = 0.04
    decay: float = 0.25
    decay_at: float = 0.5
    momentum: float = 0.0
    optimizer: options.OptimizerName = "sgd"
    loss: LossName | MarginLoss = "logistic"
    rule: Rule = "gradient"
    record: int | tuple[int, ...] = 50
    seed: int = 0

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        if self.batch_size is not None:
            check_count(self.batch_size, "batch_size")
        check_number(self.learning_rate, "learning_rate", "(0, inf)")
        check_number(self.decay, "decay", "(0, inf)")
        check_number(self.decay_at, "decay_at", "[0, 1]")
        check_number(self.momentum, "momentum", "[0, 1)")
        check_seed(self.seed)
        check_choice(self.rule, "rule", get_args(Rule))
        check_choice(self.optimizer, "optimizer", options.OPTIMIZER_NAMES)
        # Muon orthogonalizes a whole matrix, in which all units of a layer have their rows.
        if self.rule == "local" and self.optimizer == "muon":
            raise ValueError(
                "muon's step of one unit depends on the others', so no unit learns by itself: use "
                "another optimizer, or rule='gradient'"
            )
        if isinstance(self.record, tuple):
            for step in self.record:
                check_count(step, "each step to record", 0, self.steps)
        else:
            check_count(self.record, "record", 2)
        _check_loss(self.loss)

    def step_size(self, step: int) -> float:
        """Step size of the update that follows ``step`` updates."""
        return self.learning_rate * self.decayed(step)

    def decayed(self, step: int) -> float:
        """Fraction of the first step size that the update after ``step`` updates has."""
        if step >= self.decay_at * self.steps:
            return self.decay
        return 1.0

    @property
    def limit_norm(self) -> str:
        """Norm in which the optimizer's steps are steepest descent.

        Its margin is maximized in the limit, unless the weights are ``constrained``.
        """
        return options.OPTIMIZER_LIMITS[self.optimizer].norm

    @property
    def constrained(self) -> bool:
        """Whether weight decay bounds the weights, so that no margin is maximized."""
        return options.OPTIMIZER_LIMITS[self.optimizer].constrained

    @cached_property
    def recorded_steps(self) -> frozenset[int]:
        """The steps at which the history has a point."""
        if isinstance(self.record, tuple):
            return frozenset({0, self.steps, *map(int, self.record)})
        # Downwards, so that a single point is the last step.
        spaced = np.geomspace(self.steps, 1, self.record - 1)
        return frozenset({0, *np.rint(spaced).astype(int).tolist()})


@dataclass(frozen=True, kw_only=True)
class LimitConfig:
    """Options of `train_to_limit`.

    Parameters
    ----------
    steps : int
        Gradients, at most.
    method : {"plain", "momentum", "accelerated"}
        See `training.limit`.
    loss : {"exponential", "logistic", "cross-entropy"} or MarginLoss
        The cross-entropy is the logistic loss, see `margins.logsumexp_margins`. One of your
        own is checked numerically to be exponential-like.
    momentum : float
        mu of the momentum method, in [0, 1).
    friction, scale_friction : float, optional
        r and R of the accelerated method, positive; by default 2, but 1 until the samples are
        separated, and 15, and 1 and 1 where the outputs are linear in the parameters.
    record : int
        Points of the history a factor of ten in the steps. Which steps these are does not depend
        on ``steps``.
    norm : {"l2", "l1", "linf", "spectral", "nuclear"} or ParameterNorm, optional
        Norm of the steepest descent, of all trained parameters (`parameter_norms`): the limit is a
        KKT point under this norm. In l2 as ``method`` says; in another norm steepest descent, with
        momentum but for the plain method. By default that of the optimizers which `train_to_limit`
        is given, and l2 without any.
    chunk : int or None
        Samples that one forward and backward pass takes at a time, which bounds the memory; None
        for all. It changes rounding alone.

    Raises
    ------
    ValueError
        A value out of its range.
    LossError
        The loss is not exponential-like.

    Examples
    --------
    >>> from implicit_bias import LimitConfig
    >>> LimitConfig(steps=1000).steps
    1000
    """

    steps: int = 10_000
    method: Method = "accelerated"
    loss: LossName | MarginLoss = "exponential"
    momentum: float = 0.9
    friction: float | None = None
    scale_friction: float | None = None
    record: int = 20
    norm: NormName | ParameterNorm | None = None
    chunk: int | None = None

    rule: ClassVar[Rule] = "gradient"  # the network learns as a whole

    def __post_init__(self) -> None:
        check_count(self.steps, "steps")
        check_count(self.record, "record")
        if self.friction is not None:
            check_number(self.friction, "friction", "(0, inf)")
        if self.scale_friction is not None:
            check_number(self.scale_friction, "scale_friction", "(0, inf)")
        check_number(self.momentum, "momentum", "[0, 1)")
        check_choice(self.method, "method", options.METHOD_NAMES)
        if isinstance(self.norm, str):
            check_choice(self.norm, "norm", options.NORM_NAMES, synonyms=options.NORM_SYNONYMS)
        elif self.norm is not None:
            _ = self.geometry  # which checks it
        if self.chunk is not None:
            check_count(self.chunk, "chunk")
        _check_loss(self.loss, exponential_like=True)

    @property
    def geometry(self) -> ParameterNorm:
        """The norm of the parameters."""
        from implicit_bias.norms.tensors import as_parameter_norm

        if self.norm is None:
            return as_parameter_norm("l2")
        return as_parameter_norm(self.norm)

    constrained: ClassVar[bool] = False  # there is no weight decay

    @property
    def limit_norm(self) -> str:
        """Name of the norm whose margin is maximized in the limit."""
        return self.geometry.name

    def is_recorded(self, step: int) -> bool:
        """Whether the history has a point at this step: log-spaced, and step 0."""
        if step == 0:
            return True
        nearest = round(self.record * math.log10(step))
        # Early points coincide, so the neighbours of the nearest one count too.
        points = (nearest - 1, nearest, nearest + 1)
        return any(round(10 ** (point / self.record)) == step for point in points)


@dataclass(frozen=True, kw_only=True)
class OwnLoop:
    """Stands for the configuration of a training by a function of the caller's own.

    Parameters
    ----------
    steps : int
        Updates that it says it did; 0 where it does not say.
    """

    steps: int = 0

    rule: ClassVar[Rule] = "gradient"
    limit_norm: ClassVar[str] = ""  # not known
    constrained: ClassVar[bool] = False
