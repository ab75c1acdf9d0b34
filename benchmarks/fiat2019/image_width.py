"""Width against accuracy on MNIST and Fashion-MNIST: GaLU0, ReLU and linear networks.

Two hidden layers of k units with bias units, ten classes, cross-entropy; images reduced to their
first 64 principal components, each of variance 1, fitted on the training images. GaLU0: the gates
of both layers are sigmoids of random projections of the network's input, of standard deviation
1.25: of the six published slopes the one whose published errors are least where the rates of the
steps sum to what they do here. Adam, batch 128, 6,000 steps (13 epochs), rate 0.003 falling to 0.
Published: 100,000 steps of Adam; rate and slope, in each cell, those with the least *test* error.
--quick takes the digits of 8 x 8 pixels, and 16 components.

Source: Fiat, Malach, Shalev-Shwartz (2019); the published values are those of their figure's file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import cross_entropy

from benchmarks.fiat2019.gated_layers import GatedLayers, Kind, as_tensors, train
from benchmarks.harness import Experiment, Verdict, middle_of, whole
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist
from implicit_bias.report.style import BLUE, GREEN, GREY, VERMILION
from implicit_bias.validation import Array

NETWORKS: dict[str, Kind] = {"ReLU": "relu", "GaLU0": "sigmoid", "linear": "linear"}
SHARPNESS = 1.25
# Widths, and test errors of the published figure 1.
WIDTHS = (16, 32, 64, 96)
PUBLISHED = {
    ("MNIST", "ReLU"): (0.0408, 0.0353, 0.0267, 0.0218),
    ("MNIST", "GaLU0"): (0.0567, 0.0421, 0.0322, 0.0281),
    ("MNIST", "linear"): (0.0828, 0.0830, 0.0832, 0.0834),
    ("Fashion-MNIST", "ReLU"): (0.139, 0.130, 0.128, 0.127),
    ("Fashion-MNIST", "GaLU0"): (0.149, 0.136, 0.128, 0.123),
    ("Fashion-MNIST", "linear"): (0.168, 0.168, 0.168, 0.168),
}
UNPUBLISHED = (np.nan,) * len(WIDTHS)


@dataclass(frozen=True, eq=False)
class Classes:
    """Images X (n, D) and their classes y (n,), 0 to 9."""

    X: Array
    y: NDArray[np.int64]

    @classmethod
    def load(cls, loader: Callable[..., Dataset], **options: object) -> Classes:
        """Load images by the four two-class problems that the bits of their class are."""
        data = None
        y = np.zeros(0, dtype=np.int64)
        for bit in range(4):
            ones = [c for c in range(10) if c >> bit & 1]
            zeros = [c for c in range(10) if not c >> bit & 1]
            data = loader(positive=ones, negative=zeros, append_constant=False, **options)
            ours = (data.y > 0).astype(np.int64) << bit
            y = ours if bit == 0 else y + ours
        assert data is not None
        return cls(data.X, y)

    def rows(self, rows: slice) -> Classes:
        """Return some of them."""
        return Classes(self.X[rows], self.y[rows])


def data_sets(quick: bool) -> dict[str, tuple[Classes, Classes, int]]:
    """Training and test images, and how many components to take."""
    if quick:
        digits = Classes.load(load_digits)
        return {"digits": (digits.rows(slice(0, 1200)), digits.rows(slice(1200, None)), 16)}
    return {
        name: (Classes.load(loader), Classes.load(loader, subset="test"), 64)
        for name, loader in (("MNIST", load_mnist), ("Fashion-MNIST", load_fashion_mnist))
    }


def reduced(train_X: Array, test_X: Array, components: int) -> tuple[Array, Array]:
    """First principal components of the training images, scaled to variance 1, of both sets."""
    mean = train_X.mean(axis=0)
    centred = train_X - mean
    values, vectors = np.linalg.eigh(centred.T @ centred / len(train_X))
    directions = vectors[:, -components:] / np.sqrt(values[-components:])
    return centred @ directions, (test_X - mean) @ directions


def measure(quick: bool) -> pd.DataFrame:
    """Train each network at each width."""
    steps = 50 if quick else 6000
    rows = []
    for name, (train_set, test_set, components) in data_sets(quick).items():
        X, test_X = as_tensors(*reduced(train_set.X, test_set.X, components))
        y, test_y = torch.tensor(train_set.y), torch.tensor(test_set.y)
        for network_name, kind in NETWORKS.items():
            published = PUBLISHED.get((name, network_name), UNPUBLISHED)
            for width, value in zip(WIDTHS, published, strict=True):
                sizes = [components, width, width, 10]
                network = GatedLayers(sizes, kind, bias=True, sharpness=SHARPNESS, seed=0)
                train(network, X, y, cross_entropy, steps=steps, rate=0.003, batch_size=128)
                rows.append(
                    {
                        "dataset": name,
                        "network": network_name,
                        "width": width,
                        "steps": steps,
                        "train_error": error(network, X, y),
                        "test_error": error(network, test_X, test_y),
                        "published": value,
                    }
                )
    return pd.DataFrame(rows)


@torch.inference_mode()
def error(network: GatedLayers, X: Tensor, classes: Tensor) -> float:
    """Share of the samples that are misclassified."""
    return (network(X).argmax(dim=1) != classes).float().mean().item()


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the test error against the width; crosses are the published values."""
    panels_of = frame.groupby("dataset", sort=False)
    figure = Figure(figsize=(4.8 * len(panels_of), 3.8), layout="constrained")
    panels = figure.subplots(1, len(panels_of), squeeze=False)[0]
    for ax, (dataset, rows) in zip(panels, panels_of, strict=True):
        for name, colour in (("ReLU", VERMILION), ("GaLU0", BLUE), ("linear", GREEN)):
            ours = rows[rows["network"] == name]
            ax.plot(ours["width"], 100 * ours["test_error"], "-o", color=colour, label=name)
            ax.plot(ours["width"], 100 * ours["published"], "x", color=colour)
        ax.plot([], [], "x", color=GREY, label="published")
        ax.set(title=str(dataset), xlabel="width k", ylabel="test error, %", xticks=WIDTHS)
        ax.set_ylim(bottom=0)
    panels[0].legend()
    return figure


def found(frame: pd.DataFrame) -> str:
    """Compare errors with the published ones."""
    errors = frame.set_index(["network", "dataset", "width"])["test_error"]
    apart = 100 * (errors["GaLU0"] - errors["ReLU"])
    linear = 100 * (errors["linear"] - errors["GaLU0"])
    # Of what trained gates give, the share that untrained ones do.
    shares = (linear / (linear + apart)).groupby("width")
    low, high = 100 * shares.min(), 100 * shares.max()
    narrow, wide = low.index[0], low.index[-1]
    return (
        f"One training of {frame['steps'].iloc[0]:,} steps a cell; in brackets the published "
        "value.\n\n"
        f"- GaLU0 is {apart.min():.1f} to {apart.max():.1f} points above ReLU, and "
        f"{linear.min():.1f} to {linear.max():.1f} below the linear network. Of what trained gates "
        f"gain on the linear network, untrained ones gain {low[narrow]:.0f} % to "
        f"{high[narrow]:.0f} % at k = {narrow}, and {low[wide]:.0f} % to {high[wide]:.0f} % at "
        f"k = {wide}.\n"
        "- Our training is shorter than the published one, and its rate and the gates' slope are "
        "the same in all cells, not those with the least test error."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Test errors, and the published ones in brackets."""
    cells = (100 * frame["test_error"]).map("{:.1f}".format)
    cells += (100 * frame["published"]).map(" ({:.1f})".format)
    rows = frame.assign(cell=cells).pivot(
        index=["dataset", "network"], columns="width", values="cell"
    )
    rows = rows.loc[list(frame["dataset"].unique())]  # in the order of the picture
    rows.columns = [f"k = {width}" for width in rows.columns]
    rows.insert(0, "test error, %", rows.index.map(", ".join))
    return rows


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    widest = frame[frame["width"] == frame["width"].max()]
    errors = widest.set_index(["network", "dataset"])["test_error"]
    linear = errors["linear"]
    gain = ((linear - errors["GaLU0"]) / (linear - errors["ReLU"])).min()
    return Verdict.of(gain >= 0.75, gain >= 0.5)


EXPERIMENT = Experiment(
    claim=(
        "Two-hidden-layer GaLU0 networks on MNIST and Fashion-MNIST, 64 principal components, come "
        "close to ReLU networks of the same width, and far surpass linear ones (figure 1)."
    ),
    how=middle_of(__doc__),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "Close and far, at the largest width: it stands if untrained gates gain at least three "
        "quarters of what trained ones gain on the linear network, on both data sets; in part if "
        "at least half."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Test error against the width on MNIST and Fashion-MNIST for three networks",
)
