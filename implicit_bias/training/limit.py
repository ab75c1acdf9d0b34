r"""Late-phase gradient descent, t -> infinity: full batches, on the log of the loss.

minimize  F(theta) = log(1/N sum_n l(y_n f(x_n; theta))),     l an exponential-like loss.

F has the same descent directions as the loss itself, and no underflow: at a smallest margin of
100000 the gradient of the loss is 0 in any format, that of F is that of a soft minimum of the
margins. In a network that is homogeneous of degree L, scaling theta by c scales the margins by
c^L, so the scale of the weights is the inverse temperature of that soft minimum. With the step
size found by backtracking, training for a loss of exp(-100000) takes thousands of steps; with a
constant one it would take about exp(100000).

=========  =====  ================================================================================
symbol     shape  meaning
=========  =====  ================================================================================
theta      (P,)   weights
g          (P,)   gradient of F at the extrapolated point
s                 step size: halved until F falls by at least s ||g||^2 / 2, which keeps s below
                  1 / (curvature along g), and to no less than F - 1, or -1 where F > 0; times
                  `growth` after success
v          (P,)   last change of the weights, v = v_r + v_t: along theta, and across it
k                 steps since the velocity was last 0
=========  =====  ================================================================================

Without the second bound the scale runs away where F is concave: on a line through 0 and theta, as
F falls like -||theta||^L there. On easy data s then grows without end, 100 steps bring F to -1e100,
and the direction stops where it was, at the non-differentiable points of a soft minimum that has
become hard.

Each step extrapolates along the velocity and descends from there,

    point = theta + a v_t + b v_r,     theta <- point - s g,

plain        a = b = 0: gradient descent; F falls in each step.
momentum     a = b = mu: Nesterov's form of momentum.
accelerated  a = k / (k + r), b = k / (k + R): Nesterov's acceleration, with another friction for
             the scale (R) than for the direction (r).

With r = R = 3 the last is the usual acceleration. F is unbounded below, so most of what it speeds
up is the scale: F falls like -k^2, the soft minimum hardens, steps shrink against the scale, and
the fractions of the hidden units in the norm, which move by differences in growth alone, are left
behind where they were. A larger friction of the scale cools more slowly, by F ~ -k^2 / (2 (1 + R))
times what a plain step gains, and leaves the direction time to follow. The weights grow by 1 + 1 /
k per step, so a direction that keeps its velocity slows down by that factor: r = 2 is already the
usual friction in angles. A linear predictor, of degree 1, has no units, and r = R = 1
as in the momentum of Ji, Srebro and Telgarsky. Before the samples are separated r = 1, too, by
which ReLU networks separate sooner; not R, since weights that grow fast lose the units of narrow
ones.

All three are descent on F in the Euclidean metric from the weights that are given, and rest where g
is parallel to theta: at the KKT points of the margin problem.

Where F rises all the same, the step is taken back and the velocity set to 0 (restart). Restarting
where <g, v_t> > 0 instead is no use here: across the stiffest direction of the soft minimum, steps
overshoot and come back at every other step, and the slow ones would never gather speed.

Kinks. Where a unit's kink runs through a sample, the gradient is that of one side, and the step may
lead to the other, so that no step size lowers F although the weights are not stationary. If that is
so at rest, and ||g|| ||theta|| is no rounding error, steepest descent (`training.steepest`) takes
over for good: its steps decay, and F may rise in one. Of 24 ReLU networks of 64 units on 3 x 3
clusters, 11 had stopped for this reason after 1,500 steps. Weights that approach a kink slowly are
stopped by it, too: F falls in each step, but the steps shrink towards 0, and so do the gains. So a
step size counts as none below `flat` of ||theta||^2 / (1 + |F|)^2, about 1 / (curvature) without
kinks: it was 3e-4 to 5e-3 of it in ReLU networks of two and three layers, 1e-6 to 1e-4 in low-rank
updates of residual blocks, and fell to 1e-12 where such a network was stopped. A linear module has
no kinks, and any step size counts.

A step is one gradient; the forward passes of the backtracking are counted beside it.

In another norm than l2 it is steepest descent, `training.steepest`. What is trained is any module
that is homogeneous in its parameters (`training.trainee`), for two classes or for many.

Source: Lippl, Abbott, Chung (2022), section 3; Lyu and Li (2020), section 5 and appendix A (step
sizes that follow the loss); Nesterov (1983); O'Donoghue and Candes (2015) for restarts; Ji, Srebro
and Telgarsky (2021) for the rate 1/k^2 of the margin of linear predictors.
"""

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from implicit_bias.base.deadline import Deadline
from implicit_bias.base.threads import one_thread_if_small
from implicit_bias.base.validation import Array, as_finite, check_flag, check_number
from implicit_bias.base.wording import percent
from implicit_bias.bounds.status import excess, norm_at_margin_1
from implicit_bias.modules.evaluate import as_module
from implicit_bias.modules.optimizers import geometry_of, left_out
from implicit_bias.norms.tensors import PARAMETER_NORMS
from implicit_bias.training.configuration import LimitConfig as LimitConfig
from implicit_bias.training.configuration import Method as Method
from implicit_bias.training.history import Ending as Ending
from implicit_bias.training.history import HistoryPoint, Observer, OnProgress, Result
from implicit_bias.training.losses import as_loss
from implicit_bias.training.steepest import SteepestDescent
from implicit_bias.training.trainee import (
    Inputs,
    State,
    Trainee,
    as_trainee,
    check_homogeneous,
    predicted,
)

# Of a network of this package, or of the module that is trained.
Measure: TypeAlias = Callable[[Any], Mapping[str, float]]


@dataclass(frozen=True, eq=False)
class ComparisonPredictor:
    """A predictor to compare with along the training.

    Parameters
    ----------
    X : array_like of shape (n, D)
        Inputs.
    decision : array_like of shape (n,) or (n, K)
        What it says of them; the sign is its prediction, or the class of the largest entry.
    """

    X: Array
    decision: Array

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", as_finite(self.X, "X", 2))
        ndim = 2 if np.ndim(self.decision) == 2 else 1
        object.__setattr__(self, "decision", as_finite(self.decision, "decision", ndim))
        if len(self.X) != len(self.decision) or len(self.X) == 0:
            raise ValueError(
                f"{len(self.X)} inputs and {len(self.decision)} decisions: give one for each"
            )


@dataclass(frozen=True, kw_only=True)
class LimitPoint(HistoryPoint):
    """The network after some steps: what `HistoryPoint` says, and more; a step is a gradient.

    Attributes
    ----------
    evaluations : int
        Forward passes of the backtracking so far.
    restarts : int
        How often the velocity was set to 0 so far.
    log_loss : float
        log of the mean loss, which itself is soon 0 in any format.
    step_size : float
        The one to be tried next.
    balance : float
        Largest relative deviation from |w_h| = ||W_h||, eq. (18), over the active units.
    excess : float
        norm / min_margin / optimum - 1; inf before the samples are separated, nan without an
        optimum.
    disagreement : float
        Fraction of the reference's inputs on which the predictions differ; nan without one.
    gap : float
        KKT gap in the norm of the configuration, in [0, 1]; nan without ``stop_at_gap``, or where
        a margin is not positive.
    measures : mapping from name to float
        What the caller's own measure gave.
    """

    evaluations: int
    restarts: int
    log_loss: float
    step_size: float
    balance: float
    excess: float = math.nan
    disagreement: float = math.nan
    gap: float = math.nan
    measures: Mapping[str, float] = field(default_factory=dict)


# What a history has of its own, so that no measure may have these names.
COLUMNS = {"normalised_margin"}.union(column.name for column in fields(LimitPoint))


@dataclass(frozen=True, eq=False, kw_only=True, repr=False)
class LimitResult(Result[LimitConfig, LimitPoint]):
    """A training towards the limit."""


def train_to_limit(
    module: nn.Module,
    inputs: Inputs,
    labels: ArrayLike | Tensor,
    config: LimitConfig | None = None,
    *,
    optimizer: object = None,
    optimum: float | None = None,
    until_excess: float | None = None,
    stop_at_gap: float | None = None,
    reference: ComparisonPredictor | None = None,
    measure: Measure | None = None,
    on_progress: OnProgress | None = None,
    on_point: Callable[[LimitPoint], None] | None = None,
    leading: bool = False,
    max_seconds: float | None = None,
) -> LimitResult:
    r"""Continue the training of a float64 module, in place, towards its max-margin limit.

    .. math:: \frac{\theta}{\|\theta\|} \to \text{KKT points of} \quad
        \min_\theta \; \|\theta\| \quad \text{subject to} \quad q_n(\theta) \ge 1 \text{ for all } n

    with the margins q_n, and the norm of gradient descent (l2) or of another steepest descent.

    Training is on the module's device and begins at its present weights.
    Ctrl-C ends the training and keeps what it has reached.

    Parameters
    ----------
    module : nn.Module
        A network of this package, of any kind and depth, or any other module that is homogeneous
        in its parameters; those that require no gradient, or get none, are left alone. With a
        readout bias a network of this package is not homogeneous, and the theory says nothing of
        its limit.
    inputs : array_like, Tensor, or tuple of them
        Training samples: (n, D) of a network of this package; of another module its argument, or
        a tuple of its arguments, each with the samples as first axis.
    labels : array_like of shape (n,)
        -1 or +1 for one output a sample; 0..K-1 for K outputs.
    config : LimitConfig, optional
        How to train, by default ``LimitConfig()``.
    optimizer : torch.optim.Optimizer, its class or its name, or several optimizers, optional
        Whose max-margin solution to train towards: its norm is read as in `diagnose`, and is in
        the result's configuration. Its steps and rates are not used, only their ratios.
    optimum : float, optional
        Certified optimum of the module's margin problem on these samples (the lower bound, to be
        on the safe side), for the excess of `LimitPoint.norm` at unit margin. Of this package's
        networks one hidden layer only. Gates that are trained make it that of a problem which the
        network leaves.
    until_excess : float, optional
        Stop where the excess is at most this; needs ``optimum``.
    stop_at_gap : float, optional
        Stop where the KKT gap in the norm of the configuration is at most this. It is measured at
        each recorded point, which takes a while for many samples. Without it the history's gaps
        are nan.
    reference : ComparisonPredictor, optional
        Predictor to compare with.
    measure : callable, optional
        More to record: a function of the module to numbers by name (`kkt_measure`, say).
    on_progress : callable, optional
        Called before each step with the steps done, all steps, and what has been reached, such as
        "loss 0.1"; for a progress bar, say.
    on_point : callable, optional
        Called with each new point of the history, when the module has the weights of that point:
        it can keep them in a file (see the examples).
    leading : bool
        Whether to take a module that is homogeneous only in the limit of large parameters
        (residual blocks, biases above the first layer; see `diagnose`). Its own loss is descended;
        the KKT gap is that of its leading-order part. The normalized margin is the margin over the
        norm to the power of that part's degree, so it is comparable only late in the training.
    max_seconds : float, optional
        Limit on the time, gaps included; where it ends a search for one, its bound so far counts. A
        step is not begun where the last one, with the measuring of a point, took longer than what
        is left.

    Returns
    -------
    LimitResult

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, or other labels. The module is not float64, its outputs depend
        on the rest of the batch, or its log loss is not finite at the start. An excess without an
        optimum, or a measure named like a column of the history. The optimizers have no known
        norm, another norm than the configuration, or no trained parameter.
    HomogeneityError
        A module that is not homogeneous in its parameters; or, with ``leading``, not even in the
        limit.
    TimeoutError
        ``max_seconds`` was over before the degree of the leading-order part was known.

    Warns
    -----
    RuntimeWarning
        There was no time to look for jumps of the leading-order part in some parameters.

    Notes
    -----
    Lyu and Li (2020) for homogeneous modules, section 5 and appendix A for steps that follow
    the loss; Tsilivis, Vardi, Kempe (2024) for other norms; Ji, Srebro, Telgarsky (2021) for
    momentum.

    Examples
    --------
    The maximum margin under linf of three points in the plane, by a linear module:

    >>> _ = torch.manual_seed(0)
    >>> module = nn.Linear(2, 1, bias=False).double()
    >>> X, y = [[1.0, 2.0], [2.0, 1.0], [-1.0, -1.0]], [1, 1, -1]
    >>> result = train_to_limit(module, X, y, LimitConfig(steps=300, norm="linf"))
    >>> round(result.history[-1].normalised_margin, 2)  # of the weights (1, 1)
    2.0

    A long training keeps its weights in a file, at each recorded point. If it is stopped from
    outside, another one goes on from these weights, at rest:

    >>> from pathlib import Path
    >>> from tempfile import mkdtemp
    >>> file = Path(mkdtemp()) / "weights.pt"
    >>> def keep(point):
    ...     torch.save(module.state_dict(), file)
    >>> _ = train_to_limit(module, X, y, LimitConfig(steps=20), on_point=keep)
    >>> _ = module.load_state_dict(torch.load(file))
    >>> train_to_limit(module, X, y, LimitConfig(steps=20)).ending.name
    'STEPS'

    A network of this package, by a classifier:

    >>> from functools import partial
    >>> from implicit_bias import GLNClassifier, LimitConfig, train_to_limit
    >>> from implicit_bias.datasets import make_toy
    >>> blobs = make_toy("blobs", 40)
    >>> trainer = partial(train_to_limit, config=LimitConfig(steps=200))
    >>> model = GLNClassifier(3, random_state=0).fit_by(blobs.X, blobs.y, trainer)
    >>> model.history()[-1].min_margin > 0
    True
    """
    # --- what is asked for
    check_goals(until_excess, stop_at_gap)
    if config is None:
        config = LimitConfig()
    check_flag(leading, "leading")
    if optimum is not None:
        check_number(optimum, "optimum", "(0, inf)")
    elif until_excess is not None:
        raise ValueError("until_excess needs the optimum that the excess is over: optimum=...")
    deadline = Deadline.asked(max_seconds)
    module = as_module(module)
    if stop_at_gap is not None:
        check_homogeneous(module)
    if optimizer is not None:
        # Its norm is that of the descent, and a parameter that it leaves out would not be trained.
        frozen = left_out(module, optimizer)
        if frozen:
            raise ValueError(f"{frozen[0]!r} is in no optimizer: add it, or requires_grad_(False)")
        norm = geometry_of(optimizer, module).norm
        if config.norm is not None and config.geometry != norm:
            raise ValueError(
                f"norm= is {config.limit_norm}, that of optimizer= {norm.name}: leave one out"
            )
        config = replace(config, norm=norm)

    with one_thread_if_small(module, inputs):
        # --- the module and its samples, and how they are measured
        loss = as_loss(config.loss)
        trainee = as_trainee(
            module,
            inputs,
            labels,
            config.geometry,
            config.chunk,
            loss=loss,
            leading=leading,
            deadline=deadline,
        )
        if optimum is not None and not trainee.has_margin_problem:
            raise ValueError(
                "a network of several hidden layers, or one homogeneous in the limit only, has no "
                "convex problem whose optimum its norm could exceed: leave optimum out"
            )
        descent: Descent | SteepestDescent
        if trainee.norm == PARAMETER_NORMS["l2"]:
            descent = Descent(trainee, config)
        else:
            descent = SteepestDescent(trainee, config)
        observe = Observer(module, trainee.inputs, trainee.labels, loss, trainee.size, config.chunk)

        def excess_at(state: State) -> float:
            """Excess of the norm over the optimum; nan without one."""
            if optimum is None:
                return math.nan
            trainee.set_weights(state.weights)
            return excess(norm_at_margin_1(trainee.size(), state.min_margin), optimum)

        def point_at(state: State) -> LimitPoint:
            """Measure all that is recorded."""
            trainee.set_weights(state.weights)
            gap = math.nan
            if stop_at_gap is not None:
                gap = trainee.gap(deadline)
            measures = dict[str, float]()
            if measure is not None:
                measures = {name: float(value) for name, value in measure(module).items()}
                clashes = sorted(COLUMNS & measures.keys())
                if clashes:
                    raise ValueError(
                        f"the history already has columns {clashes}: rename those measures"
                    )
            disagreement = math.nan
            if reference is not None:
                theirs = torch.tensor(reference.decision, device=trainee.labels.device)
                differs = trainee.predictions(reference.X) != predicted(theirs)
                disagreement = differs.double().mean().item()
            return LimitPoint(
                **vars(observe(state.step)),
                evaluations=state.evaluations,
                restarts=state.restarts,
                log_loss=state.log_loss,
                step_size=state.step_size,
                balance=trainee.balance(),
                excess=excess_at(state),
                disagreement=disagreement,
                gap=gap,
                measures=measures,
            )

        # --- the descent: record, look whether a goal is reached, do one step
        began = time.perf_counter()
        state = trainee.start()
        history = list[LimitPoint]()
        seconds_of_step = 0.0
        seconds_of_point = 0.0
        ending: Ending | None = None
        try:
            while ending is None:
                if config.is_recorded(state.step):
                    started = time.perf_counter()
                    history.append(point_at(state))
                    seconds_of_point = time.perf_counter() - started
                    if on_point is not None:
                        on_point(history[-1])
                if on_progress is not None:
                    reached = f"log loss {state.log_loss:.4g}"
                    if optimum is not None:
                        reached += f", excess {percent(excess_at(state))}"
                    on_progress(state.step, config.steps, reached)

                # The time is up where the last step and the last point took longer than what is
                # left.
                if until_excess is not None and excess_at(state) <= until_excess:
                    ending = Ending.REACHED
                elif stop_at_gap is not None and history[-1].gap <= stop_at_gap:
                    ending = Ending.GAP
                elif state.step >= config.steps:
                    ending = Ending.STEPS
                elif not deadline.allows(seconds_of_step + seconds_of_point):
                    ending = Ending.TIME
                else:
                    started = time.perf_counter()
                    following = descent.advance(state)
                    seconds_of_step = time.perf_counter() - started
                    if following is None:
                        ending = Ending.STALLED
                    else:
                        state = following  # at once: Ctrl-C leaves a state that is whole
        except KeyboardInterrupt:
            ending = Ending.INTERRUPTED
        finally:  # an error of the module or of the caller's measure leaves what was reached, too
            trainee.set_weights(state.weights)
        # The last point describes the module as it is, recorded or not.
        if not history or history[-1].step < state.step:
            history.append(point_at(state))
        return LimitResult(
            network=module,
            config=config,
            history=tuple(history),
            ending=ending,
            seconds=time.perf_counter() - began,
        )


def check_goals(until_excess: float | None = None, stop_at_gap: float | None = None) -> None:
    """Refuse what no training towards the limit can do, before anything is computed for it.

    Raises
    ------
    ValueError
        A goal out of its range.
    """
    if stop_at_gap is not None:
        check_number(stop_at_gap, "stop_at_gap", "(0, 1]")
    if until_excess is not None:
        check_number(until_excess, "until_excess", "(0, inf]")


@dataclass(frozen=True, eq=False)
class Descent:
    """Descent on F in the Euclidean metric.

    Parameters
    ----------
    trainee : Trainee
        Module and samples.
    config : LimitConfig
        How to train.
    friction, scale_friction : float
        r and R of a module with units where the configuration has none; until the samples are
        separated r is 1.
    growth : float
        What the step size is multiplied by after each step.
    most_gained : float
        Most by which a step may lower F below 0.
    rounding : float
        A decrease below this fraction of F is rounding.
    flat : float
        A step size below this fraction of that of a smooth F of this size is due to a kink.
    stationary : float
        Weights are stationary where ||g|| ||theta||, the change of F by a relative change of the
        weights, is below this; F then is within about its square of the least.
    """

    trainee: Trainee
    config: LimitConfig
    friction: float = 2.0
    scale_friction: float = 15.0
    growth: float = 1.1
    most_gained: float = 1.0
    rounding: float = 1e-15
    flat: float = 1e-8
    stationary: float = 1e-6

    def advance(self, state: State) -> State | None:
        """Do one step; None at stationary weights."""
        steepest = SteepestDescent(self.trainee, self.config)
        if state.variation > 0:  # steepest descent took over, at a kink
            return steepest.advance(state)

        # --- the gradient at the extrapolated point
        point = self.extrapolate(state)
        at_point, g, _ = self.trainee.differentiate(point)
        square = (g @ g).item()
        size = state.weights.norm().item()

        # --- backtracking: s is halved until F falls by s ||g||^2 / 2 at least, but by no more
        # than down to F - 1, or to -1 where F > 0. No step size is found where s is below the
        # least that counts, at a kink, or where what it could gain is rounding.
        least = 0.0
        if self.trainee.has_units:
            least = self.flat * (size / (1.0 + abs(at_point))) ** 2
        smallest_gain = self.rounding * max(1.0, abs(at_point))
        largest_gain = self.most_gained + max(0.0, at_point)
        s = state.step_size
        evaluations = state.evaluations
        while True:
            weights = point - s * g
            log_loss, min_margin, _ = self.trainee.evaluate(weights)
            evaluations += 1
            gained = at_point - log_loss
            if gained > 0 and 0.5 * s * square <= gained <= largest_gain:
                found = True
                break
            s /= 2
            # Not `<=`: an extrapolation too far makes nan of the gradient.
            if not (s > least and s * square > smallest_gain):
                found = False
                break

        # --- at rest, where no velocity has led astray: the weights are stationary, or at a kink
        if not found and state.age == 0:
            if not math.sqrt(square) * size > self.stationary:
                return None
            return steepest.advance(replace(state, evaluations=evaluations))

        # --- restart, where F rises: the step is taken back. If no step size was found from the
        # extrapolated point, the one before is as good as any.
        if not found or log_loss > state.log_loss:
            if not found:
                s = state.step_size
            return replace(
                state,
                step=state.step + 1,
                velocity=torch.zeros_like(state.velocity),
                age=0,
                step_size=s,
                evaluations=evaluations,
                restarts=state.restarts + 1,
            )

        # --- the step
        return replace(
            state,
            step=state.step + 1,
            weights=weights,
            velocity=weights - state.weights,
            age=state.age + 1,
            log_loss=log_loss,
            min_margin=min_margin,
            step_size=self.growth * s,
            evaluations=evaluations,
        )

    def extrapolate(self, state: State) -> Tensor:
        """Extrapolate along the velocity: theta + a v_t + b v_r."""
        theta = state.weights
        v = state.velocity
        k = state.age
        if self.config.method == "plain":
            a = 0.0
            b = 0.0
        elif self.config.method == "momentum":
            a = self.config.momentum
            b = self.config.momentum
        else:
            # A linear predictor has no units that could be left behind: r = R = 1. Nor is the
            # direction held back before the samples are separated.
            r = 1.0
            R = 1.0
            if self.trainee.has_units:
                R = self.scale_friction
                if state.min_margin > 0:
                    r = self.friction
            if self.config.friction is not None:
                r = self.config.friction
            if self.config.scale_friction is not None:
                R = self.config.scale_friction
            a = k / (k + r)
            b = k / (k + R)
        square = (theta @ theta).item()
        along = 0.0  # v_r = along * theta
        if square > 0:
            along = (v @ theta).item() / square
        return (1.0 + (b - a) * along) * theta + a * v
