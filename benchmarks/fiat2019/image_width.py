"""Width against accuracy on MNIST and Fashion-MNIST: GaLU, GaLU0, ReLU and linear networks.

Ten classes, cross-entropy; images reduced to their first 64 principal components, each of variance
1, fitted on the training images; hidden layers of k units with bias units. Two hidden layers
(figure 1 of the submission): ReLU; GaLU0, whose gates are sigmoids of random projections of the
network's input, of standard deviation 1/(8 alpha), alpha = 0.1; linear; and ReLU with the readout
alone trained. One hidden layer (figure 3 of the arXiv version, whose sizes are not said): ReLU and
GaLU with hard gates. The published training: Adam, rate 0.001, batches of 128, 100,000 steps. One
repeat where 4 are published, and one rate and slope in all cells: the published ones have, cell by
cell, the rate in {1e-3, 5e-4, 1e-4} and the slope in alpha in {0.01, 0.1, 0.5, 1, 2, 10} of least
*test* error. --quick takes the digits of 8 x 8 pixels, and 16 components.

Source: Fiat, Malach, Shalev-Shwartz; the values are those of the file of figure 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.fiat2019.published_training import STEPS, outputs_of, train_as_published
from benchmarks.harness import Experiment, Run, Verdict
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.images import load_digits, load_fashion_mnist, load_mnist
from implicit_bias.theory.galu_networks import GatedLayers, Kind
from implicit_bias.validation import Array

SHARPNESS = 1.25  # 1 / (8 alpha) for alpha = 0.1
READOUT = "ReLU, readout only"


@dataclass(frozen=True)
class Shape:
    """A network: hidden layers, gates, what is trained, and the widths that are tried."""

    layers: int
    kind: Kind
    sharpness: float = 1.0
    readout_only: bool = False
    widths: tuple[int, ...] = (16, 96)


# The width of a linear network does not matter from the number of classes on.
NETWORKS = {
    "ReLU": Shape(2, "relu"),
    "GaLU0": Shape(2, "sigmoid", SHARPNESS),
    "linear": Shape(2, "linear", widths=(16,)),
    READOUT: Shape(2, "relu", readout_only=True, widths=(96,)),
    "ReLU, one layer": Shape(1, "relu", widths=(96,)),
    "GaLU, one layer": Shape(1, "hard", widths=(96,)),
}
# Test errors of the published figure 1, in percent.
PUBLISHED_WIDTHS = (16, 32, 48, 64, 80, 96)
PUBLISHED = {
    ("MNIST", "ReLU"): (4.08, 3.53, 3.24, 2.67, 2.38, 2.18),
    ("MNIST", "GaLU0"): (5.67, 4.21, 3.51, 3.22, 3.08, 2.81),
    ("MNIST", "linear"): (8.28,),
    ("Fashion-MNIST", "ReLU"): (13.9, 13.0, 12.9, 12.8, 12.6, 12.7),
    ("Fashion-MNIST", "GaLU0"): (14.9, 13.6, 13.0, 12.8, 12.3, 12.3),
    ("Fashion-MNIST", "linear"): (16.8,),
}


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


def published_error(dataset: str, network: str, width: int) -> float:
    """Percentage of the figure's file, or nan."""
    values = dict(zip(PUBLISHED_WIDTHS, PUBLISHED.get((dataset, network), ()), strict=False))
    return values.get(width, np.nan)


def measure(run: Run[Any]) -> Iterator[pd.DataFrame]:
    """Train each network at each width."""
    steps = 50 if run.quick else STEPS
    frame = run.kept if "layers" in run.kept else pd.DataFrame()
    columns = ["dataset", "network", "width"]
    done = set() if frame.empty else set(frame[columns].itertuples(index=False, name=None))
    for dataset, (train_set, test_set, components) in data_sets(run.quick).items():
        X, test_X = reduced(train_set.X, test_set.X, components)
        one_hot = np.eye(10)[train_set.y]
        cells = [(name, width) for name, shape in NETWORKS.items() for width in shape.widths]
        for name, width in cells:
            if (dataset, name, width) in done:
                continue
            shape = NETWORKS[name]
            network = GatedLayers(
                [components, *[width] * shape.layers, 10],
                shape.kind,
                bias=True,
                readout_only=shape.readout_only,
                sharpness=shape.sharpness,
                seed=0,
            )
            train_as_published(network, X, one_hot, "cross-entropy", steps=steps)
            row = {"dataset": dataset, "network": name, "width": width, "layers": shape.layers}
            row |= {"steps": steps, "train_error": error(network, X, train_set.y)}
            row |= {"test_error": error(network, test_X, test_set.y)}
            row |= {"published": published_error(dataset, name, width)}
            frame = pd.concat([frame, pd.DataFrame([row])], ignore_index=True)
            run.say(f"{dataset}, {name}, k = {width}: {row['test_error']:.2f} %")
            yield frame


def error(network: GatedLayers, X: Array, classes: NDArray[np.int64]) -> float:
    """Percentage of the samples that are misclassified."""
    return 100 * float(np.mean(outputs_of(network, X).argmax(axis=1) != classes))


EXPERIMENT = Experiment(
    claim="",
    how="",
    measure=measure,
    found=lambda f: "",
    rule="",
    verdict=lambda f: Verdict.STANDS,
    tabulate=lambda f: f,
)
