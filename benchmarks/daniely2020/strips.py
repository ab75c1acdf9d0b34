"""Strips of digits with the parity of their sum: section 6 and figure 1 of the source."""

import itertools
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.bench import Part, part
from benchmarks.daniely2020.digit_strips import draw_strips
from benchmarks.daniely2020.looks import LOOKS
from benchmarks.daniely2020.models import HIDDEN, Training, build, train_by_adadelta
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.effects import Effect, paired
from implicit_bias.base.style import BLACK, GREY
from implicit_bias.datasets import Dataset, load_digits, load_mnist

COST = 90
MNIST, SMALL = "MNIST", "8 x 8 digits"
EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
NETWORK = "ReLU network"
LINEAR = tuple(name for name in HIDDEN if name != NETWORK)
# How the numbers of the page name the models.
KEYS = dict(zip(HIDDEN, ("network", "ntk", "relu", "gaussian"), strict=True))


def measure(quick: bool) -> Iterator[Part]:
    """Train one model after another.

    60,000 training strips are as many as MNIST has images. The source does not say how many it
    has, so that the longer strips are also tried with half, twice and four times as many.
    """
    if quick:
        for k in (1, 3):
            for model in HIDDEN:
                yield training(k, 1000, model, 0, Training(units=32, epochs=3, batch=32), SMALL)
        return
    for model in HIDDEN:
        yield training(1, 60000, model, 0)
    for strips in (30000, 120000):
        yield training(3, strips, NETWORK, 0)
    for strips in (60000, 240000):
        for model in HIDDEN:
            for seed in range(3):
                yield training(3, strips, model, seed)


def training(
    k: int,
    strips: int,
    model: str,
    seed: int,
    protocol: Training | None = None,
    images: str = MNIST,
) -> Part:
    """Return the part of one training, by default as in section 6."""
    sizes = asdict(protocol or Training())
    test_strips = 10000 if images == MNIST else 500
    return part(
        train,
        k=k,
        strips=strips,
        model=model,
        seed=seed,
        **sizes,
        test_strips=test_strips,
        images=images,
    )


def train(
    k: int,
    strips: int,
    model: str,
    seed: int,
    units: int,
    epochs: int,
    batch: int,
    test_strips: int,
    images: str,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each epoch of one training; test strips have images of their own."""
    train_images, test_images = mnist() if images == MNIST else small_images()
    training_strips = draw_strips(train_images, k, strips, seed=2 * seed + 1)
    other_strips = draw_strips(test_images, k, test_strips, seed=2 * seed + 2)
    network = build(model, training_strips, units, seed)
    protocol = Training(units=units, epochs=epochs, batch=batch)
    for epoch in train_by_adadelta(network, training_strips, other_strips, protocol, seed):
        yield asdict(epoch)


def small_images() -> tuple[Dataset, Dataset]:
    """Even against odd 8 x 8 digits, two disjoint sets."""
    whole = load_digits(positive=EVEN, negative=ODD, append_constant=False)
    return whole.take(np.arange(1200)), whole.take(np.arange(1200, len(whole)))


def mnist() -> tuple[Dataset, Dataset]:
    """Even against odd digits of MNIST: training and test images."""
    options: Any = {"positive": EVEN, "negative": ODD, "append_constant": False}
    return load_mnist(subset="train", **options), load_mnist(subset="test", **options)


# --- what the table shows ------------------------------------------------------------------------


def last_epochs(frame: pd.DataFrame) -> pd.DataFrame:
    """Return each training after its last epoch, with its accuracies."""
    last = frame[frame["epoch"] == frame["epochs"]]
    return last.assign(accuracy=1 - last["test_error"], fitted=1 - last["train_error"])


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return test accuracies after the last epoch, and leads of the network (points: one seed)."""
    last = last_epochs(frame)
    found = dict[str, Any]()
    few, many = shared_sizes(last).min(), last["strips"].max()
    for (k, strips, model), rows in last.groupby(["k", "strips", "model"]):
        several = rows["seed"].nunique() > 1
        accuracy = Effect.of(rows["accuracy"]) if several else rows["accuracy"].mean()
        sizes = [f"{strips}", "few" if strips == few else "", "most" if strips == many else ""]
        for size in ["1"] if k == 1 else filter(None, sizes):
            found[f"{KEYS[str(model)]}_{size}"] = accuracy
            found[f"fitted_{KEYS[str(model)]}_{size}"] = rows["fitted"].mean()
    one, three = last[last["k"] == 1], last[last["k"] == 3]
    most = three[three["strips"] == three["strips"].max()]
    keys = ["strips", "seed"]
    for model in LINEAR:
        key = KEYS[model]
        found[f"lead_{key}_1"] = 100 * paired(one, "accuracy", NETWORK, model, keys).mean
        found[f"lead_{key}_3"] = paired(most, "accuracy", NETWORK, model, keys)
    network = three[three["model"] == NETWORK]
    by_size = network.pivot_table(index="seed", columns="strips", values="accuracy")
    by_size = by_size.dropna(axis="columns")  # some sizes have one seed
    found["more_strips"] = Effect.of(by_size.iloc[:, -1] - by_size.iloc[:, 0])
    return found | {"accuracies": accuracies(last)}


def shared_sizes(last: pd.DataFrame) -> NDArray[np.int64]:
    """Numbers of strips of three digits with which all models are trained."""
    models = last[last["k"] == 3].groupby("strips")["model"].nunique()
    return models.index[models == len(HIDDEN)].to_numpy()


def accuracies(last: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each model and a column for each kind and number of strips."""
    sizes = sorted(set(zip(last["k"], last["strips"], strict=True)))
    lines = list[dict[str, Any]]()
    for model in HIDDEN:
        line: dict[str, Any] = {"test accuracy, %": model}
        for k, strips in sizes:
            digits = "one digit" if k == 1 else f"{k} digits"
            rows = last[(last["k"] == k) & (last["strips"] == strips) & (last["model"] == model)]
            measured = Effect.of(rows["accuracy"]) if len(rows) else None
            line[f"{digits}, {strips:,} strips"] = measured
        lines.append(line)
    return pd.DataFrame(lines)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy against the epoch: one digit, three digits, and linear models of three."""
    figure, panels = subplots((9.6, 4.4), 1, 3, x="epoch")
    one, three = frame[frame["k"] == 1], frame[frame["k"] == 3]
    most = three["strips"].max()
    fewer = sorted(set(three["strips"]) - {most})
    lines = dict(zip(fewer, itertools.cycle((":", "--", "-.")), strict=False))
    network = three["model"] == NETWORK
    linear = three[~network & (three["strips"] == most)]
    for ax, rows in zip(panels, (one, three[network], linear), strict=True):
        for (model, strips), points in rows.groupby(["model", "strips"], sort=False):
            colour, mark = LOOKS[model]
            curve = 100 * (1 - points.groupby("epoch")["test_error"].mean())
            look: dict[str, Any] = {"color": colour, "label": model}
            if ax is panels[1] and strips != most:
                mark = lines[strips]
                look["label"] = f"{model}, {strips:,} strips"
            ax.plot(curve.index, curve, mark, **look)
        ax.set(xticks=range(0, int(frame["epoch"].max()) + 1, 5))
    panels[0].set(ylabel="test accuracy, %", title="one digit")
    panels[1].set(title="three digits, network")
    panels[2].set(title=f"three digits, linear, {most:,} strips", ylim=(47, 57))
    panels[1].axhline(80, color=BLACK, linewidth=1, label="paper, network: almost 80 %")
    for ax in panels[1:]:
        ax.axhline(50, color=GREY, linestyle="--", linewidth=1, label="chance")
    return common_legend(figure, panels, 3)
