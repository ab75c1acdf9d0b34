r"""Gradient descent towards infinite time: full batches, on the log of the loss.

minimise  F(theta) = log(1/N sum_n l(y_n f(x_n; theta))),     l an exponential-like loss.

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
                  `GROWTH` after success
v          (P,)   last change of the weights, v = v_r + v_t: along theta, and across it
k                 steps since the velocity was last 0
=========  =====  ================================================================================

Without the second bound the scale runs away where F is concave: on a line through 0 and theta, as
F falls like -||theta||^L there. On easy data s then grows for ever, 100 steps bring F to -1e100,
and the direction is frozen where it was, in the kinks of a soft minimum that has become hard.

Each step extrapolates along the velocity and descends from there,

    point = theta + a v_t + b v_r,     theta <- point - s g,

plain        a = b = 0: gradient descent; F falls in each step.
momentum     a = b = mu: Nesterov's form of momentum.
accelerated  a = k / (k + r), b = k / (k + R): Nesterov's acceleration, with another friction for
             the scale (R) than for the direction (r).

With r = R = 3 the last is the usual acceleration. F is unbounded below, so most of what it speeds
up is the scale: F falls like -k^2, the soft minimum hardens, steps shrink against the scale, and
the shares of the hidden units, which move by differences in growth alone, are left behind where
they were. A larger friction of the scale cools more slowly, by F ~ -k^2 / (2 (1 + R)) times what
a plain step gains, and leaves the direction time to follow; and as the weights grow by 1 + 1 / k a
step, a direction that keeps its velocity slows down by that factor, so that r = 2 is already the
usual friction in angles. All three are descent on F in the Euclidean metric from the weights that
are given, and rest where g is parallel to theta: at the KKT points of the margin problem.

Where F rises all the same, the step is taken back and the velocity set to 0 (restart). Restarting
where <g, v_t> > 0 instead is no use here: across the stiffest direction of the soft minimum, steps
overshoot and come back at every other step, and the slow ones would never gather speed.

A step is one gradient; the forward passes of the backtracking are counted beside it.

Source: Lippl, Abbott, Chung (2022), section 3; Lyu and Li (2020), section 5 and appendix A (step
sizes that follow the loss); Nesterov (1983); O'Donoghue and Candes (2015) for restarts; Ji, Srebro
and Telgarsky (2021) for the rate 1/k^2 of the margin of linear predictors.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
import safetensors
import safetensors.torch
import torch
from numpy.typing import ArrayLike
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from torch import Tensor

from implicit_bias.networks import Network
from implicit_bias.stationarity import balance
from implicit_bias.storage.atomic import write_atomically
from implicit_bias.training.history import HistoryPoint, Observer, history_frame
from implicit_bias.training.losses import LOSSES, MarginLoss, check_exponential_like
from implicit_bias.validation import Array, as_features, as_finite, as_labels

if TYPE_CHECKING:
    import pandas as pd

Method: TypeAlias = Literal["plain", "momentum", "accelerated"]
Measure: TypeAlias = Callable[[Network], Mapping[str, float]]

# Step size before the first step, and what it is multiplied by after each.
FIRST_STEP_SIZE, GROWTH = 1.0, 1.1
# Most by which a step may lower F below 0.
MOST_GAINED = 1.0
# A decrease below this share of F is rounding.
ROUNDING = 1e-15
FORMAT = "implicit-bias limit checkpoint 1"

# Extrapolation across and along the weights, a and b, after k steps without a restart.
METHODS: dict[str, Callable[[LimitConfig, int], tuple[float, float]]] = {
    "plain": lambda config, k: (0.0, 0.0),
    "momentum": lambda config, k: (config.momentum, config.momentum),
    "accelerated": lambda config, k: (k / (k + config.friction), k / (k + config.scale_friction)),
}


class CheckpointError(ValueError):
    """A checkpoint that is damaged or of another training; the message names it."""


class Ending(Enum):
    """Why a training ended; each member carries its message."""

    STEPS = "all steps are done"
    REACHED = "the excess asked for is reached"
    STALLED = (
        "no step size lowers the log loss any more: the weights are stationary, or what is left "
        "to gain is below rounding"
    )
    INTERRUPTED = "it was interrupted"

    @property
    def message(self) -> str:
        """One sentence for people."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class LimitConfig:
    """How to train towards the limit.

    Parameters
    ----------
    steps : int
        Gradients, at most.
    method : {"plain", "momentum", "accelerated"}
        See the module.
    loss : MarginLoss
        Checked numerically to be exponential-like.
    momentum : float
        mu of the momentum method, in [0, 1).
    friction, scale_friction : float
        r and R of the accelerated method, positive.
    record : int
        Points of the history a factor of ten in the steps. Which steps these are does not depend
        on ``steps``.
    checkpoint_every : int
        Steps between two checkpoints.

    Raises
    ------
    ValueError
        A value out of its range.
    LossError
        The loss is not exponential-like.
    """

    steps: int = 10_000
    method: Method = "accelerated"
    loss: MarginLoss = LOSSES["exponential"]
    momentum: float = 0.9
    friction: float = 2.0
    scale_friction: float = 15.0
    record: int = 20
    checkpoint_every: int = 1000

    def __post_init__(self) -> None:
        for name in ("steps", "record", "checkpoint_every"):
            count = getattr(self, name)
            if not isinstance(count, int | np.integer) or count < 1:
                raise ValueError(f"{name} must be a whole number, at least 1, got {count!r}")
        if self.method not in METHODS:
            raise ValueError(f"method must be one of {list(METHODS)}, got {self.method!r}")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {self.momentum!r}")
        for name in ("friction", "scale_friction"):
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise ValueError(f"{name} must be positive and finite, got {value!r}")
        if not isinstance(self.loss, MarginLoss):
            raise ValueError(f"loss must be a MarginLoss, as those of LOSSES, got {self.loss!r}")
        check_exponential_like(self.loss)

    def is_recorded(self, step: int) -> bool:
        """Whether the history has a point at this step: log-spaced, and step 0."""
        if step == 0:
            return True
        index = round(self.record * math.log10(step))
        # Early points coincide, so the neighbours of the nearest one count too.
        return any(round(10 ** (i / self.record)) == step for i in (index - 1, index, index + 1))


@dataclass(frozen=True, eq=False)
class Reference:
    """A predictor to compare with along the training.

    Parameters
    ----------
    X : array_like of shape (n, D)
        Inputs.
    decision : array_like of shape (n,)
        What it says of them; the sign is its prediction.
    """

    X: Array
    decision: Array

    def __post_init__(self) -> None:
        X, decision = as_finite(self.X, "X", 2), as_finite(self.decision, "decision", 1)
        if len(X) != len(decision) or len(X) == 0:
            raise ValueError(f"{len(X)} inputs and {len(decision)} decisions: give one for each")
        object.__setattr__(self, "X", X)
        object.__setattr__(self, "decision", decision)


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
        Largest relative deviation from |w_h| = ||W_h||, eq. (18), over the live units.
    excess : float
        norm / min_margin / optimum - 1; inf before the samples are separated, nan without an
        optimum.
    disagreement : float
        Share of the reference's inputs on which the predictions f(x) > 0 differ; nan without one.
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
    measures: Mapping[str, float] = field(default_factory=dict)


# Names of the history's columns that no measure of the caller's may have.
OWN_COLUMNS = {"normalised_margin", *(column.name for column in fields(LimitPoint))}


@dataclass(frozen=True, eq=False)
class LimitResult:
    """A training towards the limit.

    Attributes
    ----------
    network : Network
        The trained network, the one that was given.
    config : LimitConfig
        How it was trained.
    history : tuple of LimitPoint
        In the order of the steps; the last point describes the network as it is.
    ending : Ending
        Why it ended.
    seconds : float
        Wall time, without that before a resumption.
    """

    network: Network
    config: LimitConfig
    history: tuple[LimitPoint, ...]
    ending: Ending
    seconds: float

    @property
    def steps(self) -> int:
        """Steps done."""
        return self.history[-1].step

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C stopped it before the end."""
        return self.ending is Ending.INTERRUPTED

    @property
    def local(self) -> bool:
        """Never: the network learns as a whole."""
        return False

    def frame(self) -> pd.DataFrame:
        """Return the history as a table: a row a point, the caller's measures as last columns."""
        return history_frame(self.history)


@dataclass(frozen=True, eq=False)
class _State:
    """All that the next step depends on; weights and velocity (P,)."""

    step: int
    weights: Tensor
    velocity: Tensor
    age: int  # k
    log_loss: float
    min_margin: float
    step_size: float = FIRST_STEP_SIZE
    evaluations: int = 0
    restarts: int = 0


def train_to_limit(
    network: Network,
    X: ArrayLike,
    y: ArrayLike,
    config: LimitConfig,
    *,
    optimum: float | None = None,
    until_excess: float | None = None,
    reference: Reference | None = None,
    measure: Measure | None = None,
    checkpoint: str | Path | None = None,
    resume: bool = False,
    progress: bool = False,
    record: Callable[[LimitPoint], None] | None = None,
) -> LimitResult:
    """Train a float64 network in place, on its device, from its present weights.

    Ctrl-C ends the training and keeps what it has reached.

    Parameters
    ----------
    network : Network
        Of any kind and depth. With a readout bias the network is not homogeneous, and the theory
        says nothing of its limit.
    X : array_like of shape (n, D)
        Training inputs.
    y : array_like of shape (n,)
        Labels, -1 or +1.
    config : LimitConfig
        How to train.
    optimum : float, optional
        Certified optimum of the network's margin problem on these samples (the lower bound, to be
        on the safe side), for the excess. One hidden layer only. Gates that are trained make it
        that of a problem which the network leaves.
    until_excess : float, optional
        Stop where the excess is at most this; needs ``optimum``.
    reference : Reference, optional
        Predictor to compare with.
    measure : callable, optional
        More to record: a function of the network to numbers by name (`kkt_measure`, say).
    checkpoint : str or Path, optional
        File to which the state is written each ``config.checkpoint_every`` steps and at the end.
    resume : bool
        Continue from the checkpoint if the file is there, with bit-identical steps on the same
        machine. ``config.steps`` may differ from that of the training that wrote it. Only
        ``gates_changed`` counts from the gates of the network that is given.
    progress : bool
        Show step, log loss and excess on standard error.
    record : callable, optional
        Called with each new point of the history.

    Returns
    -------
    LimitResult

    Raises
    ------
    ValueError
        NaN, shapes that do not fit, labels other than -1 and +1, a network that is not float64, a
        log loss that is not finite at the start, an excess without an optimum, a resumption
        without a checkpoint, a measure named like a column of the history.
    FileExistsError
        The checkpoint's file is there, and ``resume`` is not asked for.
    CheckpointError
        The checkpoint is damaged, or of another network, other data or another configuration.
    """
    _check_excess(network, optimum, until_excess)
    if resume and checkpoint is None:
        raise ValueError("resume needs the checkpoint to continue from: checkpoint=...")
    descent = _Descent(network, X, y, config)
    observe = _LimitObserver(descent, optimum, reference, measure)
    state = descent.start()
    history: list[LimitPoint] = []
    if checkpoint is not None and Path(checkpoint).exists():
        if not resume:
            raise FileExistsError(
                f"{checkpoint} is there already: continue it with resume=True (--resume), or "
                "delete it"
            )
        state, history = _load(Path(checkpoint), descent)
    started, saved = time.perf_counter(), -1
    ending = Ending.STEPS
    try:
        with _bar(progress) as bar:
            task = bar.add_task("", total=config.steps, log_loss=math.nan, excess="")
            while True:
                if config.is_recorded(state.step) and (
                    not history or history[-1].step < state.step
                ):
                    history.append(observe.point(state))
                    if record is not None:
                        record(history[-1])
                excess = observe.excess(state)
                shown = "" if math.isnan(excess) else f"excess {100 * excess:.3g} %"
                bar.update(task, completed=state.step, log_loss=state.log_loss, excess=shown)
                if until_excess is not None and excess <= until_excess:
                    ending = Ending.REACHED
                    break
                if state.step >= config.steps:
                    break
                if checkpoint is not None and state.step % config.checkpoint_every == 0:
                    _save(Path(checkpoint), descent, state, history)
                    saved = state.step
                following = descent.advance(state)
                if following is None:
                    ending = Ending.STALLED
                    break
                state = following  # at once: an interruption leaves a state that is whole
    except KeyboardInterrupt:
        ending = Ending.INTERRUPTED
    if checkpoint is not None and saved < state.step:
        _save(Path(checkpoint), descent, state, history)
    if not history or history[-1].step < state.step:
        # Not in the checkpoint: a training that goes on from there has no point here.
        history = [*history, observe.point(state)]
    descent.set_weights(state.weights)
    return LimitResult(network, config, tuple(history), ending, time.perf_counter() - started)


def _check_excess(network: Network, optimum: float | None, until_excess: float | None) -> None:
    if optimum is None:
        if until_excess is not None:
            raise ValueError("until_excess needs the optimum that the excess is over: optimum=...")
        return
    if not 0 < optimum < math.inf:
        raise ValueError(f"optimum must be positive and finite, got {optimum}")
    if until_excess is not None and not until_excess > 0:
        raise ValueError(f"until_excess must be positive, got {until_excess}")
    if not network.has_margin_structure:
        raise ValueError(
            "a network of several hidden layers has no convex program whose optimum its norm "
            "could exceed: leave optimum out"
        )


class _Descent:
    """The function F of a network and its samples, and one step of a method."""

    def __init__(self, network: Network, X: ArrayLike, y: ArrayLike, config: LimitConfig) -> None:
        self.network, self.config = network, config
        self.parameters = list(network.parameters())
        if {weights.dtype for weights in self.parameters} != {torch.float64}:
            raise ValueError(
                "training towards the limit needs float64: build the network with "
                "dtype=torch.float64 (dtype='float64'), or call network.double()"
            )
        self.inputs = network.prepare(X)
        self.labels = torch.tensor(as_labels(y, len(self.inputs[0]))).to(self.inputs[0])

    def start(self) -> _State:
        """Return the state at the network's present weights, at rest."""
        weights = torch.cat([w.detach().reshape(-1) for w in self.parameters])
        log_loss, min_margin = self.value(weights)
        if not math.isfinite(log_loss):
            raise ValueError(
                f"the log loss is {log_loss} at the network's present weights: they, or the "
                "outputs, are not finite; start from smaller weights"
            )
        return _State(0, weights, torch.zeros_like(weights), 0, log_loss, min_margin)

    def set_weights(self, weights: Tensor) -> None:
        """Give the network the weights (P,), in the order of its parameters."""
        with torch.no_grad():
            chunks = torch.split(weights, [w.numel() for w in self.parameters])
            for parameter, chunk in zip(self.parameters, chunks, strict=True):
                parameter.copy_(chunk.view_as(parameter))

    @torch.no_grad()
    def value(self, weights: Tensor) -> tuple[float, float]:
        """F and the smallest margin (without the readout's bias) at weights (P,)."""
        self.set_weights(weights)
        outputs = self.network(*self.inputs)
        log_loss = self.config.loss.log_mean(self.labels * outputs)
        smallest = (self.labels * (outputs - self.network.readout_bias_value)).min()
        return log_loss.item(), smallest.item()

    def gradient(self, weights: Tensor) -> tuple[float, Tensor]:
        """F and its gradient (P,) at weights (P,)."""
        self.set_weights(weights)
        log_loss = self.config.loss.log_mean(self.labels * self.network(*self.inputs))
        gradients = torch.autograd.grad(log_loss, self.parameters)
        return log_loss.item(), torch.cat([g.reshape(-1) for g in gradients])

    def advance(self, state: _State) -> _State | None:
        """Do one step; None where no step size lowers F."""
        point = self._extrapolate(state)
        at_point, g = self.gradient(point)
        square = (g @ g).item()
        s, evaluations = state.step_size, state.evaluations
        while True:
            weights = point - s * g
            log_loss, min_margin = self.value(weights)
            evaluations += 1
            gained = at_point - log_loss
            if 0.5 * s * square <= gained <= MOST_GAINED + max(0.0, at_point) and gained > 0:
                break
            s /= 2
            if not s * square > ROUNDING * max(1.0, abs(at_point)):
                if state.age == 0:
                    return None
                log_loss = math.inf  # the velocity may have led astray: restart
                s = state.step_size
                break
        counted = replace(state, step=state.step + 1, step_size=s, evaluations=evaluations)
        if log_loss > state.log_loss:
            at_rest = torch.zeros_like(state.velocity)
            return replace(counted, velocity=at_rest, age=0, restarts=state.restarts + 1)
        return replace(
            counted,
            weights=weights,
            velocity=weights - state.weights,
            age=state.age + 1,
            log_loss=log_loss,
            min_margin=min_margin,
            step_size=GROWTH * s,
        )

    def _extrapolate(self, state: _State) -> Tensor:
        theta, v = state.weights, state.velocity
        a, b = METHODS[self.config.method](self.config, state.age)
        square = (theta @ theta).item()
        along = (v @ theta).item() / square if square > 0 else 0.0
        return (1.0 + (b - a) * along) * theta + a * v

    @cached_property
    def fingerprint(self) -> str:
        """Digest of all that a checkpoint must share with the training that continues it."""
        config = {key: value for key, value in vars(self.config).items() if key != "steps"}
        probes = torch.tensor([-3.0, 0.0, 1.0, 30.0], dtype=torch.float64)
        config["loss"] = [self.config.loss.name, self.config.loss.log_loss(probes).tolist()]
        shapes = [list(w.shape) for w in self.parameters]
        digest = hashlib.blake2b(json.dumps([config, shapes]).encode(), digest_size=16)
        for tensor in (*self.inputs, self.labels):  # the gates are among them
            digest.update(tensor.cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()


class _LimitObserver:
    """What the history says of a state."""

    def __init__(
        self,
        descent: _Descent,
        optimum: float | None,
        reference: Reference | None,
        measure: Measure | None,
    ) -> None:
        self.descent, self.optimum, self.measure = descent, optimum, measure
        self.observe = Observer(
            descent.network, descent.inputs, descent.labels, descent.config.loss
        )
        self.predictions: Tensor | None = None
        if reference is not None:
            network = descent.network
            self.inputs = network.prepare(as_features(reference.X, network.n_features))
            self.predictions = torch.tensor(reference.decision > 0, device=network.device)

    def excess(self, state: _State) -> float:
        """Excess of the norm over the optimum; nan without one."""
        if self.optimum is None:
            return math.nan
        if state.min_margin <= 0:
            return math.inf
        self.descent.set_weights(state.weights)
        return self.descent.network.norm() / state.min_margin / self.optimum - 1.0

    def measured(self) -> dict[str, float]:
        """Return the caller's own measures as plain numbers, which a checkpoint can keep."""
        if self.measure is None:
            return {}
        measures = self.measure(self.descent.network)
        if clashes := sorted(OWN_COLUMNS & measures.keys()):
            raise ValueError(f"the history has columns {clashes} of its own: rename those measures")
        return {name: float(value) for name, value in measures.items()}

    def point(self, state: _State) -> LimitPoint:
        """Measure everything."""
        network = self.descent.network
        excess = self.excess(state)
        self.descent.set_weights(state.weights)
        disagreement = math.nan
        if self.predictions is not None:
            with torch.no_grad():
                differs = (network(*self.inputs) > 0) != self.predictions
            disagreement = differs.double().mean().item()
        return LimitPoint(
            **vars(self.observe(state.step)),
            evaluations=state.evaluations,
            restarts=state.restarts,
            log_loss=state.log_loss,
            step_size=state.step_size,
            balance=balance(network),
            excess=excess,
            disagreement=disagreement,
            measures=self.measured(),
        )


def _bar(shown: bool) -> Progress:
    return Progress(
        TextColumn("{task.completed:,} / {task.total:,} steps"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("log loss {task.fields[log_loss]:.4g} {task.fields[excess]}"),
        console=Console(stderr=True),
        disable=not shown,
    )


# --- checkpoints -------------------------------------------------------------------------------


def _save(path: Path, descent: _Descent, state: _State, history: list[LimitPoint]) -> None:
    """Write weights and velocity as tensors, all numbers as JSON, which keeps every bit."""
    numbers = {key: value for key, value in vars(state).items() if not isinstance(value, Tensor)}
    header = {
        "format": FORMAT,
        "fingerprint": descent.fingerprint,
        "state": numbers,
        "history": [asdict(point) for point in history],
    }
    tensors = {"weights": state.weights.cpu(), "velocity": state.velocity.cpu()}
    metadata = {"header": json.dumps(header)}
    write_atomically(
        path, lambda partial: safetensors.torch.save_file(tensors, partial, metadata=metadata)
    )


def _load(path: Path, descent: _Descent) -> tuple[_State, list[LimitPoint]]:
    """Undo `_save`."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {})["header"])
            tensors = {
                key: file.get_tensor(key).to(descent.network.device)
                for key in ("weights", "velocity")
            }
        if header["format"] != FORMAT:
            raise ValueError(f"its format is {header['format']!r}, not {FORMAT!r}")
        state = _State(**tensors, **header["state"])
        history = [LimitPoint(**point) for point in header["history"]]
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(
            f"{path} is no checkpoint, or is damaged ({error}): delete it to start anew"
        ) from error
    if header["fingerprint"] != descent.fingerprint:
        raise CheckpointError(
            f"{path} is a checkpoint of another training (other samples, gates, sizes, method or "
            "loss): give those it was made with, or name another file"
        )
    return state, history
