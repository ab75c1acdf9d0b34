"""Figure 1 (a, b): training curves of the first layer, and the equation of theorem 4.6.

Three kinds of rows, on n points of the half circle, labels -1 and +1 drawn, readouts N(0, 1):

===============  ===============================================================================
`TRAINED`        gradient descent in float32, and beside each loss what the equation of theorem
                 4.6 makes of the spectrum of the network's own G at the start
`LINEARISED`     that equation alone, at the published width, for many more steps
`LIMIT`          the mean over labels and starts at infinite width
===============  ===============================================================================

The published width is trained for 1,000 steps; whole curves are of narrower networks. No width and
no rate here meets the conditions of theorem 4.6: its equation is that of networks whose G stays as
it is, and how far it is off is measured. L = 1/2 sum (y - u)^2, as in the paper's section 2. (Its
section 7 says mean squared loss: with a mean over n and without the 1/2 the same curves take n / 2
times as many steps.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.lines import Line2D
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.bench import Part, part
from benchmarks.drawing import Figure, subplots
from benchmarks.effects import Effect
from benchmarks.panigrahi2020 import gram_bounds as bounds
from benchmarks.panigrahi2020.gram_spectrum import circle_points
from benchmarks.panigrahi2020.shared import COLOUR, FIGURE_1, LOOK
from implicit_bias.base.style import BLACK, GREY
from implicit_bias.base.validation import Array
from implicit_bias.kernels import gradient_gram as grams
from implicit_bias.kernels.gated_least_squares import predicted_losses

COST = 87
TRAINED, LINEARISED, LIMIT = "trained", "linearised", "infinite width"
# The paper's step size, for every activation, and the width of its networks.
RATE, PUBLISHED_WIDTH = 1e-3, 10**6
# Widths of the networks that are trained for long, by n.
NARROW = {10: 8192, 50: 4096}
# The quadratic comes to its floor within 10,000 steps: its G has rank 3.
COMPARED = FIGURE_1[:-1]
# The loss at which a network counts as having learned.
LEARNED = 0.1
# Gate values that are computed at once: they stay in the cache of a core.
BLOCK = 4 * 10**5
# Steps after which the way of the weights is added to them in float64.
SETTLE = 1000


def measure(quick: bool) -> Iterator[Part]:
    """Train, linearise, and go to infinite width."""
    narrow, published = ({10: 256, 50: 128}, 4096) if quick else (NARROW, PUBLISHED_WIDTH)
    runs, few, many = (2, 30, 300) if quick else (5, 1000, 10**5)
    for n in (10, 50):
        for phi in FIGURE_1:
            yield part(limit_curve, n=n, activation=phi, steps=10**7)
            at = {"n": n, "width": published, "activation": phi, "runs": runs}
            yield part(linearised_curves, steps=10**6, **at)
            yield part(training_curves, steps=few, **at)
            steps = many if phi in COMPARED else many // 10
            yield part(training_curves, steps=steps, **(at | {"width": narrow[n]}))


def limit_curve(n: int, activation: str, steps: int) -> pd.DataFrame:
    """Mean loss at infinite width over labels and starts: E (y - u)(y - u)' = I + H at the start.

    sum_i (1 - eta lambda_i)^(2t) v_i' (I + H) v_i / n, H the conjugate kernel.
    """
    phi, X = grams.ACTIVATIONS[activation], circle_points(n, 2)
    values, vectors = np.linalg.eigh(grams.infinite_gram(X, phi))
    hidden = grams.infinite_gram(X, phi, train_readouts=True) - grams.infinite_gram(X, phi)
    energy = np.einsum("ij,ik,kj->j", vectors, np.eye(n) + hidden, vectors) / n
    at = recorded_steps(steps, 85)
    factors = (1 - RATE * np.clip(values, 0.0, None)) ** (2 * at[:, None])
    return pd.DataFrame(
        {
            "kind": LIMIT,
            "width": 0,
            "run": 0,
            "step": at,
            "loss": factors @ energy,
            "lambda_min": values[0],
        }
    )


def recorded_steps(last: int, count: int) -> NDArray[np.int64]:
    """Return step 0, the last one, and steps in between, evenly on a logarithmic axis."""
    return np.unique(np.append(0, np.geomspace(1, last, count).astype(np.int64)))


def starts(n: int, width: int, seeds: Sequence[int]) -> tuple[Array, Array, Tensor, Tensor]:
    """Draw X (n, 2), labels (R, n), weights (R, m, 2) and readouts (R, m) of R networks."""
    X = circle_points(n, 2)  # lifted to R^10 or not is the same: steps stay in the plane
    weights = [torch.cat(list(grams.gaussian_weights(width, 2, seed=seed))) for seed in seeds]
    labels, readouts = list[Array](), list[Tensor]()
    for seed in seeds:
        rng = np.random.default_rng(seed)
        labels.append(rng.choice((-1.0, 1.0), n))
        readouts.append(torch.tensor(rng.standard_normal(width)))
    return X, np.stack(labels), torch.stack(weights), torch.stack(readouts)


def training_curves(n: int, width: int, activation: str, steps: int, runs: int) -> pd.DataFrame:
    """Train networks, and predict each loss ||y - u||^2 / n with the spectrum at its start."""
    phi, at = grams.ACTIVATIONS[activation], recorded_steps(steps, 40)
    X, labels, weights, readouts = starts(n, width, range(runs))
    residuals, moved = train(activation, X, labels, weights, readouts, at)
    curves = list[pd.DataFrame]()
    for run in range(runs):
        before = grams.finite_gram(X, phi, [weights[run]], readouts=readouts[run])
        after = grams.finite_gram(X, phi, [weights[run] + moved[run]], readouts=readouts[run])
        values, last = grams.eigenvalues(before), grams.eigenvalues(after)
        start = residuals[0, run]
        curve = {
            "kind": TRAINED,
            "run": run,
            "step": at,
            "loss": (residuals[:, run] ** 2).sum(axis=1) / n,
            "equation": predicted_losses(before, start, step_size=RATE, steps=at),
            "lambda_min": values[-1],
            "drift": float(np.abs(last - values).max() / values[0]),
            "turned": float(np.linalg.norm(after - before) / np.linalg.norm(before)),
        }
        curves.append(pd.DataFrame(curve))
    return pd.concat(curves, ignore_index=True)


def linearised_curves(n: int, width: int, activation: str, steps: int, runs: int) -> pd.DataFrame:
    """Predict by theorem 4.6 with the spectrum of each network at its start; train none."""
    phi, at = grams.ACTIVATIONS[activation], recorded_steps(steps, 85)
    curves = list[pd.DataFrame]()
    for run in range(runs):
        X, labels, weights, readouts = starts(n, width, [run])
        start = train(activation, X, labels, weights, readouts, np.array([0]))[0][0, 0]
        gram = grams.finite_gram(X, phi, [weights[0]], readouts=readouts[0])
        curve = {
            "kind": LINEARISED,
            "run": run,
            "step": at,
            "loss": predicted_losses(gram, start, step_size=RATE, steps=at),
            "lambda_min": grams.eigenvalues(gram)[-1],
        }
        curves.append(pd.DataFrame(curve))
    return pd.concat(curves, ignore_index=True)


def train(
    activation: str,
    X: Array,
    labels: Array,
    weights: Tensor,
    readouts: Tensor,
    recorded: NDArray[np.int64],
) -> tuple[Array, Tensor]:
    """Descend on 1/2 ||u - y||^2 in the first layer of R networks side by side, in float32.

    The way of the weights is added up by itself, and to the weights in float64 every `SETTLE`
    steps: a step is far below the rounding of a weight in float32.

    Parameters
    ----------
    activation : str
        A key of `FAST`.
    X : ndarray of shape (n, d)
        Samples, the same for all networks.
    labels : ndarray of shape (R, n)
        y of each network.
    weights, readouts : Tensor of shape (R, m, d), (R, m)
        The start.
    recorded : ndarray of shape (T,)
        Steps at which residuals are kept; the last one ends the descent.

    Returns
    -------
    ndarray of shape (T, R, n)
        u - y at the recorded steps.
    Tensor of shape (R, m, d)
        W(t) - W(0), after the last step.
    """
    value_and_slope = FAST[activation]
    count, width, n = *readouts.shape, len(X)
    inputs = torch.tensor(X, dtype=torch.float32).expand(count, *X.shape)  # (R, n, d)
    units = max(1, BLOCK // (count * n))
    scales = [
        block.float().contiguous()
        for block in torch.split((readouts / math.sqrt(width))[:, None, :], units, dim=2)
    ]  # (R, 1, units) each
    settled = [block.mT.contiguous() for block in torch.split(weights, units, dim=1)]
    base = [block.float() for block in settled]  # (R, d, units)
    moved = [torch.zeros_like(block) for block in base]
    slopes = [torch.empty((count, n, block.shape[2])) for block in base]
    blocks = list(zip(base, moved, slopes, scales, strict=True))
    target, residuals, waiting = torch.tensor(labels), [], set(recorded.tolist())
    for step in range(int(recorded[-1]) + 1):
        outputs = torch.zeros((count, n), dtype=torch.float64)
        for start, way, slope, scale in blocks:
            z = torch.bmm(inputs, start + way)
            outputs += torch.bmm(value_and_slope(z, slope), scale.mT)[:, :, 0]
        residual = outputs - target
        if step in waiting:
            residuals.append(residual.numpy().copy())
        weighted = (residual[:, None, :] * -RATE).float() * inputs.mT  # (R, d, n)
        for _, way, slope, scale in blocks:
            way.addcmul_(torch.bmm(weighted, slope), scale)
        if (step + 1) % SETTLE == 0:
            for exact, start, way in zip(settled, base, moved, strict=True):
                start.copy_(exact.add_(way))
                way.zero_()
    ended = torch.cat([exact + way for exact, way in zip(settled, moved, strict=True)], dim=2)
    return np.stack(residuals), ended.mT - weights


def _relu(z: Tensor, slope: Tensor) -> Tensor:
    torch.gt(z, 0, out=slope)
    return z.clamp_(min=0)


def _elu(z: Tensor, slope: Tensor) -> Tensor:
    torch.clamp(z, max=0, out=slope).exp_()
    return z.clamp_(min=0).add_(slope).sub_(1)


def _tanh(z: Tensor, slope: Tensor) -> Tensor:
    value = z.tanh_()
    torch.mul(value, value, out=slope)
    slope.neg_().add_(1)
    return value


def _swish(z: Tensor, slope: Tensor) -> Tensor:
    torch.sigmoid(z, out=slope)
    value = z.mul_(slope)
    # sigmoid (1 - value) + value
    slope.addcmul_(slope, value, value=-1).add_(value)
    return value


def _quadratic(z: Tensor, slope: Tensor) -> Tensor:
    torch.mul(z, 2, out=slope)
    return z.square_()


# phi(z), in the place of z, and phi'(z) into a second tensor: several times faster than autograd.
FAST: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "relu": _relu,
    "elu": _elu,
    "tanh": _tanh,
    "swish": _swish,
    "quadratic": _quadratic,
}


# --- what the table shows ------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return losses at the published width, steps until learned, and errors of the equation."""
    found = dict[str, Any]()
    firsts = list[bool]()
    for n in (10, 50):
        wide = published(frame, n)
        for activation in COMPARED:
            found[f"loss_{activation}_{n}"] = Effect.of(wide[activation])
            found[f"steps_{activation}_{n}"] = steps_to(frame, n, activation, LEARNED)
        found[f"relu_lead_{n}"] = Effect.of(wide["tanh"] - wide["relu"])
        found[f"elu_lead_{n}"] = Effect.of(wide["tanh"] - wide["elu"])
        found[f"elu_place_{n}"] = int(wide.mean().rank()["elu"])
        late = mean_losses(frame, LINEARISED, n).iloc[-1]
        found[f"elu_late_{n}"] = int(late.rank()["elu"])
        found[f"crossing_{n}"] = crossing(mean_losses(frame, LINEARISED, n))
        found[f"crossing_limit_{n}"] = crossing(mean_losses(frame, LIMIT, n))
        others = [found[f"steps_{name}_{n}"] for name in COMPARED if name != "relu"]
        found[f"times_{n}"] = min(others) / found[f"steps_relu_{n}"]
        for kind in (TRAINED, LINEARISED, LIMIT):
            losses = mean_losses(frame, kind, n)
            firsts.append(losses.loc[: 10**6].iloc[-1].idxmin() == "relu")
        firsts.append(wide.mean().idxmin() == "relu")
    trained = frame[frame["kind"] == TRAINED]
    widest = trained["width"] == trained["width"].max()
    error = errors(trained)
    kinked = error.index.isin(["relu", "elu"])
    tanh = frame[(frame["kind"] == LIMIT) & (frame["n"] == 10) & (frame["activation"] == "tanh")]
    smallest = tanh["lambda_min"].iloc[0]
    return found | {
        "first": sum(firsts),
        "comparisons": len(firsts),
        "trained_steps": trained["step"][widest].max(),
        "turned_wide": trained["turned"][widest].max(),
        "turned_narrow": trained["turned"][~widest].max(),
        "drift_wide": trained["drift"][widest].max(),
        "error_kinked": error[kinked].max(),
        "error_smooth": error[["swish", "tanh"]].max(),
        # What theorem 4.6 asks for at n = 10, with constants 1 and kappa = eps = 0.1.
        "width_asked": bounds.dynamics_width(10, smallest, 0.1, 0.1),
        "rate_asked": smallest / 10**2,
    }


def published(frame: pd.DataFrame, n: int) -> pd.DataFrame:
    """Last losses that were trained at the published width: a row a run, a column an activation."""
    rows = frame[(frame["kind"] == TRAINED) & (frame["n"] == n)]
    rows = rows[rows["width"] == rows["width"].max()]
    last = rows[rows["step"] == rows["step"].max()]
    return last.pivot(index="run", columns="activation", values="loss")[list(COMPARED)]


def mean_losses(frame: pd.DataFrame, kind: str, n: int) -> pd.DataFrame:
    """Mean losses of the runs by step, a column an activation; of those trained the narrow ones."""
    rows = frame[(frame["kind"] == kind) & (frame["n"] == n)]
    rows = rows[rows["width"] == rows["width"].min()]
    means = rows.pivot_table(index="step", columns="activation", values="loss")
    return means[list(COMPARED)].dropna()


def steps_to(frame: pd.DataFrame, n: int, activation: str, loss: float) -> float:
    """Count the steps of linearised networks until their mean loss is this small, or infinity."""
    losses = mean_losses(frame, LINEARISED, n)[activation]
    enough = losses.index[losses <= loss]
    return float(enough.min()) if len(enough) else math.inf


def crossing(losses: pd.DataFrame) -> float:
    """First step from which ELU's mean loss stays below that of tanh; infinity if it ends above."""
    above = losses.index[losses["elu"] >= losses["tanh"]]
    later = losses.index[losses.index > above.max()] if len(above) else losses.index
    return float(later[0]) if len(later) else math.inf


def errors(trained: pd.DataFrame) -> pd.Series[float]:
    """Largest error of theorem 4.6's equation in ||y - u||, over the one at the start."""
    gap = (trained["loss"] ** 0.5 - trained["equation"] ** 0.5).abs()
    curve = trained.groupby(["n", "width", "activation", "run"])
    error = gap / curve["loss"].transform("first") ** 0.5
    return error.groupby(trained["activation"]).max()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw mean losses as in figure 1 (a, b), on a linear axis above and a logarithmic one below.

    Linearised at the published width as lines, trained networks as marks, infinite width dotted.
    """
    figure, axes = subplots((9.6, 7.6), 2, 2, grid="y")
    keys = ["kind", "n", "width", "activation", "step"]
    means = frame[frame["step"] > 0].groupby(keys)["loss"].mean().reset_index()
    widest = means["width"].max()
    for row, (column, n) in itertools.product((0, 1), enumerate((10, 50))):
        ax = axes[row][column]
        cells = means[means["n"] == n]
        narrow = cells["width"][cells["width"] > 0].min()
        for activation in FIGURE_1:
            rows = cells[cells["activation"] == activation]
            colour = {"color": COLOUR[activation]}
            marks: dict[str, Any] = LOOK[activation] | {"ls": ""}
            limit, line = (rows[rows["kind"] == kind] for kind in (LIMIT, LINEARISED))
            trained = rows[rows["kind"] == TRAINED]
            few, full = (trained[trained["width"] == width] for width in (narrow, widest))
            ax.plot(limit["step"], limit["loss"], ":", lw=1, **colour)
            ax.plot(line["step"], line["loss"], "-", lw=1.3, **colour)
            ax.plot(few["step"], few["loss"], ms=4, fillstyle="none", **marks)
            ax.plot(full["step"], full["loss"], ms=5, markevery=3, **marks)
        if row == 0:
            ax.set(xlim=(0, 1e5))
            ax.xaxis.set_major_formatter("{x:,.0f}")
        else:
            ax.set(xscale="log", xlim=(10, 1e6))
        ax.set(ylim=(0, 1.4), xlabel="step", ylabel="||y - u||^2 / n")
        ax.set_title(f"n = {n}; open marks: m = {narrow:,}")
    handles = [
        *(Line2D([], [], label=name, **LOOK[name]) for name in FIGURE_1),
        Line2D([], [], color=GREY, ls="", marker="o", label=f"trained, m = {widest:,}"),
        Line2D([], [], color=GREY, label=f"linearised, own G, m = {widest:,}"),
        Line2D([], [], color=GREY, ls="", marker="o", fillstyle="none", label="trained, narrower"),
        Line2D([], [], color=BLACK, linestyle=":", label="infinite width, mean"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=5)
    return figure
