"""Figure 2 (d): both layers trained by SGD with cross entropy on CIFAR-10."""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional

from benchmarks import harness
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Frames, Judged, Options, Run, Verdict
from benchmarks.panigrahi2020.cifar import FIGURE_2, PUBLISHED_WIDTH, images
from benchmarks.panigrahi2020.shared import LOOK
from benchmarks.sizes import grid
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import ACTIVATIONS, eigenvalues, finite_gram
from implicit_bias.report.style import GREY

RATE, BATCH, CLASSES = 1e-3, 256, 10
# Images on which G is compared before and after.
WATCHED = 200


@dataclass(frozen=True)
class Plan:
    """Networks of one width."""

    width: int
    epochs: int
    n: int = 10**4


PLANS = (Plan(256, 150), Plan(1024, 20))
QUICK = (Plan(32, 2, 300), Plan(64, 1, 300))
# Rates at infinite width: the published one, and one ten times as large, as its units are not said.
RATES = (RATE, 10 * RATE)
# Units of the network whose outputs are those at the start of infinite width.
DRAWN_UNITS = 4096
# Nodes of the interpolation of G + H, as a function of the angle.
ANGLES = 20_001
OUT_OF_REACH = ": the published width is out of reach"


def measure(run: Run[Options]) -> Frames:
    """Train every network that is not kept."""
    plans = {(plan.width, plan.epochs): plan for plan in (QUICK if run.quick else PLANS)}
    longest = QUICK[0] if run.quick else PLANS[0]

    @lru_cache(maxsize=1)  # one of them is held at a time
    def gram_of(activation: str) -> Tensor:
        return limit_gram(activation, images(longest.n)[0])

    def curve(width: int, epochs: int, activation: str) -> pd.DataFrame:
        plan = plans[width, epochs]
        X, labels = images(plan.n)
        return train(activation, torch.tensor(X).float(), torch.tensor(labels), plan)

    def limit(activation: str, rate: float) -> pd.DataFrame:
        X, labels = (torch.tensor(each) for each in images(longest.n))
        start = outputs(activation, X.float())
        return train_limit(gram_of(activation), start, labels, longest.epochs, rate)

    wanted = [
        {"width": width, "epochs": epochs, "activation": activation}
        for width, epochs in plans
        for activation in FIGURE_2
    ]
    wanted += grid(activation=FIGURE_2, rate=RATES)
    return harness.growing(run, wanted, lambda **of: (limit if "rate" in of else curve)(**of))


def limit_gram(activation: str, X: Array) -> Tensor:
    """Interpolate G + H at infinite width in its exact values at many angles, in float32."""
    phi, angles = ACTIVATIONS[activation], np.linspace(math.pi, 0, ANGLES)
    values = np.cos(angles) * phi.kappa.at_angle(angles) + phi.dual.at_angle(angles)
    gram = np.interp(X @ X.T, np.cos(angles), values)
    return torch.from_numpy(gram.astype(np.float32))


def outputs(activation: str, X: Tensor) -> Tensor:
    """Draw the outputs (n, CLASSES) of a network at the start."""
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn((DRAWN_UNITS, X.shape[1]), generator=generator)
    readouts = torch.randn((DRAWN_UNITS, CLASSES), generator=generator)
    return ACTIVATIONS[activation].value(X @ weights.T) @ readouts / math.sqrt(DRAWN_UNITS)


def train_limit(
    gram: Tensor, outputs: Tensor, labels: Tensor, epochs: int, rate: float
) -> pd.DataFrame:
    """Train at infinite width: a step moves all outputs by -rate (G + H)[:, batch] (p - y)."""
    generator, rows = torch.Generator().manual_seed(0), []
    targets = functional.one_hot(labels, CLASSES).float()
    for epoch in range(1, epochs + 1):
        total = right = 0.0
        for batch in torch.split(torch.randperm(len(labels), generator=generator), BATCH):
            total += float(functional.cross_entropy(outputs[batch], labels[batch], reduction="sum"))
            right += float((outputs[batch].argmax(dim=1) == labels[batch]).sum())
            residual = functional.softmax(outputs[batch], dim=1) - targets[batch]
            outputs = outputs - rate * gram[batch].T @ residual
        rows.append({"epoch": epoch, "loss": total / len(labels), "accuracy": right / len(labels)})
    return pd.DataFrame(rows).assign(width=0, epochs=epochs, n=len(labels), turned=0.0, drift=0.0)


def train(activation: str, X: Tensor, labels: Tensor, plan: Plan) -> pd.DataFrame:
    """Train one network; the loss of an epoch is the mean over its batches, before each step."""
    phi, generator = ACTIVATIONS[activation], torch.Generator().manual_seed(0)
    weights = torch.randn((plan.width, X.shape[1]), generator=generator).requires_grad_(True)
    readouts = torch.randn((plan.width, CLASSES), generator=generator).requires_grad_(True)
    before = gram(activation, X, weights, readouts)
    size, spectrum = np.linalg.norm(before), eigenvalues(before)
    rows = []
    for epoch in range(1, plan.epochs + 1):
        order = torch.randperm(len(X), generator=generator)
        total = right = 0.0
        for batch in torch.split(order, BATCH):
            hidden = phi.value(X[batch] @ weights.T)
            outputs = hidden @ readouts / math.sqrt(plan.width)
            loss = functional.cross_entropy(outputs, labels[batch], reduction="sum")
            gradients = torch.autograd.grad(loss, (weights, readouts))
            with torch.no_grad():
                for parameter, gradient in zip((weights, readouts), gradients, strict=True):
                    parameter -= RATE * gradient
            total += float(loss.detach())
            right += float((outputs.argmax(dim=1) == labels[batch]).sum())
        after = gram(activation, X, weights, readouts)
        rows.append(
            {
                "epoch": epoch,
                "loss": total / len(X),
                "accuracy": right / len(X),
                "turned": float(np.linalg.norm(after - before) / size),
                "drift": float(np.abs(eigenvalues(after) - spectrum).max() / spectrum[0]),
            }
        )
    return pd.DataFrame(rows).assign(
        width=plan.width, epochs=plan.epochs, activation=activation, n=len(X)
    )


def gram(activation: str, X: Tensor, weights: Tensor, readouts: Tensor) -> Array:
    """G of the first output on some images."""
    samples = X[:WATCHED].numpy()
    return finite_gram(
        samples, ACTIVATIONS[activation], [weights.detach()], readouts=readouts[:, 0]
    )


def trained(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of finite width."""
    return frame[frame["width"] > 0]


def at_limit(frame: pd.DataFrame) -> dict[float, pd.DataFrame]:
    """Rows of infinite width by rate, those of the last epoch."""
    rows = frame[(frame["width"] == 0) & (frame["epoch"] == frame["epochs"])]
    return {rate: rows[rows["rate"] == rate].set_index("activation") for rate in RATES}


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the loss by epoch: the longest runs of finite width, and infinite width."""
    longest = trained(frame)[trained(frame)["epochs"] == trained(frame)["epochs"].max()]
    panels = [(f"m = {longest['width'].iloc[0]:,}, rate {RATE:g}", longest)]
    limit = frame[frame["width"] == 0]
    panels += [(f"infinite width, rate {rate:g}", rows) for rate, rows in limit.groupby("rate")]
    figure, axes = subplots((10, 4.2), 1, len(panels), grid="y", y="training loss")
    for ax, (title, rows) in zip(axes, panels, strict=True):
        for activation, cells in harness.parts(rows, "activation"):
            look = LOOK[activation] | {"ms": 4, "markevery": max(1, len(cells) // 8)}
            ax.plot(cells["epoch"], cells["loss"], label=activation, **look)
        ax.axhline(math.log(CLASSES), color=GREY, linestyle=":", label="ln 10: chance")
        ax.set(title=title, xlabel="epoch")
    return common_legend(figure, axes, 5)


def found(frame: pd.DataFrame) -> str:
    """Say how it was trained, and what the width does."""
    frame = trained(frame)
    longest = frame["epochs"].max()
    end = frame[(frame["epoch"] == longest)].set_index("activation")
    common = frame.groupby("width")["epoch"].max().min()
    both = frame[frame["epoch"] == common].pivot(index="activation", columns="width", values="loss")
    narrow, wide = both.columns
    return (
        f"{int(frame['n'].iloc[0]):,} images. Widths are "
        + " and ".join(f"{PUBLISHED_WIDTH // width}" for width in (wide, narrow))
        + f" times smaller than the published {PUBLISHED_WIDTH:,}; with {wide // narrow} times the "
        "width no loss is off by more than "
        f"{100 * (both[wide] / both[narrow] - 1).abs().max():.1f} % at epoch {common}, the last of "
        f"both. Accuracy in epoch {longest} at m = {narrow:,}: "
        f"{span(100 * end['accuracy'], '.0f')} %."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Losses in the first and in the last epoch."""
    rates = frame.get("rate", pd.Series(RATE, frame.index)).fillna(RATE)
    groups = frame.assign(rate=rates).groupby(["width", "rate", "activation"], sort=False)
    table = groups.last().assign(first=groups["loss"].first()).reset_index()
    widths = table["width"].map("{:,}".format).where(table["width"] > 0, "infinite")
    return table.assign(width=widths, turned=100 * table["turned"], drift=100 * table["drift"])


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Say what was measured of two claims whose setting is not reached."""
    finite = trained(frame)
    longest = finite["epochs"].max()
    end = finite[finite["epoch"] == longest].set_index("activation")
    common = finite.groupby("width")["epoch"].max().min()
    turned = finite[finite["epoch"] == common].groupby("width")["turned"].max()
    narrow, wide = turned.index
    return {
        "figure-2-d": Judged(
            verdict=Verdict.UNTESTED,
            remark=OUT_OF_REACH,
            result=f"Loss in epoch {longest}, ReLU and the best of the others: "
            + "; ".join(
                f"{rows['loss'].loc['relu']:.3f} and {rows['loss'].drop('relu').min():.3f} "
                f"({rows['loss'].drop('relu').idxmin()}; {where})"
                for where, rows in (
                    (f"m = {narrow:,}", end),
                    *(
                        (f"m infinite, rate {rate:g}", rows)
                        for rate, rows in at_limit(frame).items()
                    ),
                )
            )
            + ".",
        ),
        "figure-2-change": Judged(
            verdict=Verdict.UNTESTED,
            remark=OUT_OF_REACH,
            result=f"G moves by {span(100 * end['turned'], '.0f')} "
            f"% of its norm at m = {narrow:,} in {longest} epochs; in {common}, by at most "
            f"{100 * turned[narrow]:.1f} %, and at m = {wide:,} by {100 * turned[wide]:.1f} %.",
        ),
        "figure-2-attributed": Judged(
            verdict=Verdict.UNTESTED,
            remark=": iterations are not kept",
            result="Losses here are of epochs, of some 40 iterations each.",
        ),
    }


EXPERIMENT = Experiment(measure, found, tabulate, draw=draw, judge=judge)
