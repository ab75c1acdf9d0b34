"""Figure 2 (d): both layers trained by SGD with cross entropy on CIFAR-10."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn import functional

from benchmarks.drawing import subplots
from benchmarks.harness import Experiment, Options, Run, Verdict, growing, rows_of
from benchmarks.panigrahi2020.cifar import FIGURE_2, PUBLISHED_WIDTH, images
from benchmarks.panigrahi2020.shared import COLOUR, parts
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import ACTIVATIONS, eigenvalues, finite_gram

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


def measure(run: Run[Options]) -> Iterator[pd.DataFrame]:
    """Train every network that is not kept."""
    plans = {(plan.width, plan.epochs): plan for plan in (QUICK if run.quick else PLANS)}
    frame = run.kept
    if "epochs" in frame:
        pairs = zip(frame["width"], frame["epochs"], strict=True)
        frame = frame[[pair in plans for pair in pairs]]
    else:
        frame = pd.DataFrame()

    def curve(width: int, epochs: int, activation: str) -> list[dict[str, Any]]:
        plan = plans[width, epochs]
        X, labels = images(plan.n)
        return rows_of(train(activation, torch.tensor(X).float(), torch.tensor(labels), plan))

    wanted = [
        {"width": width, "epochs": epochs, "activation": activation}
        for width, epochs in plans
        for activation in FIGURE_2
    ]
    return growing(run, wanted, curve, frame)


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


def draw(frame: pd.DataFrame) -> Figure:
    """Draw loss and accuracy by epoch."""
    figure, axes = subplots((9, 4), 1, 2)
    widths = list(dict.fromkeys(frame["width"]))
    for ax, column in zip(axes, ("loss", "accuracy"), strict=True):
        for activation, rows in parts(frame, "activation"):
            for width, line in zip(widths, ("-", ":"), strict=True):
                cells = rows[rows["width"] == width]
                label = f"{activation}, m = {width:,}"
                colour = COLOUR[activation]
                ax.plot(cells["epoch"], cells[column], line, color=colour, label=label)
        ax.set(xlabel="epoch", ylabel=f"training {column}")
        ax.grid(axis="y")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


def last(frame: pd.DataFrame, values: str = "loss") -> pd.DataFrame:
    """Loss, or another column, at the last epoch that both widths have: activation by width."""
    epoch = frame.groupby("width")["epoch"].max().min()
    cells = frame[frame["epoch"] == epoch]
    return cells.pivot(index="activation", columns="width", values=values)


def found(frame: pd.DataFrame) -> str:
    """Say which is fastest."""
    both, turned = last(frame), 100 * last(frame, "turned")
    narrow, wide = (int(column) for column in both.columns)
    long = frame[frame["width"] == narrow]
    end = long[long["epoch"] == long["epoch"].max()].set_index("activation")
    apart = float((both[wide] / both[narrow] - 1).abs().max())
    smaller = " and ".join(f"{PUBLISHED_WIDTH // width}" for width in (wide, narrow))
    accuracy = 100 * end["accuracy"]
    return (
        f"{int(frame['n'].iloc[0]):,} images, W and ten readouts a neuron N(0, 1) and trained, "
        "gradients summed over the batch as in the paper's loss. **Training loss in epoch "
        f"{int(end['epoch'].iloc[0])} at m = {narrow:,}: "
        + ", ".join(f"{name} {row.loss:.3f}" for name, row in end.iterrows())
        + f"; accuracy {accuracy.min():.0f} to {accuracy.max():.0f} %.** "
        f"The smallest loss has {end['loss'].idxmin()}; at the last epoch of both widths "
        + ", ".join(f"{both[width].idxmin()} (m = {width:,})" for width in (narrow, wide))
        + f". With {wide // narrow} times the width no loss is off by more than "
        f"{100 * apart:.1f} % at the last epoch of both; both widths are smaller than the "
        f"published {PUBLISHED_WIDTH:,}, {smaller} times. In the narrower networks G, on "
        f"{WATCHED} images, moves by "
        + ", ".join(f"{100 * row.turned:.0f} % ({name})" for name, row in end.iterrows())
        + f" of its norm; at the last epoch of both by {turned[narrow].min():.1f} to "
        f"{turned[narrow].max():.1f} %, and with {wide // narrow} times the width by "
        f"{turned[wide].min():.1f} to {turned[wide].max():.1f} %. How long the published runs "
        "were, and in which units of the rate, is not in the text."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Losses at some epochs."""
    rows = []
    for (width, activation), cells in frame.groupby(["width", "activation"], sort=False):
        final = cells.iloc[-1]
        rows.append(
            {
                "m": f"{width:,}",
                "activation": str(activation),
                "epochs": str(int(final["epoch"])),
                "loss, first epoch": f"{cells['loss'].iloc[0]:.3f}",
                "loss, last": f"{final['loss']:.3f}",
                "accuracy, last": f"{final['accuracy']:.3f}",
                "change of G": f"{100 * final['turned']:.0f} %",
                "of its eigenvalues": f"{100 * final['drift']:.0f} %",
            }
        )
    return pd.DataFrame(rows)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    ends = frame[frame["epoch"] == frame["epochs"]]
    losses = ends.pivot(index="activation", columns="width", values="loss")
    first = all(losses[width].idxmin() == "relu" for width in losses)
    longest = ends[ends["epochs"] == ends["epochs"].max()]
    changed = bool((longest["turned"] > 0.05).all())
    return Verdict.of(first and changed, first or changed)


EXPERIMENT = Experiment(measure=measure, draw=draw, found=found, verdict=verdict, tabulate=tabulate)
