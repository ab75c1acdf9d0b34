"""Strips of digits with the parity of their sum: section 5 of the source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.daniely2020.digit_strips import strips
from benchmarks.daniely2020.methods import Effort, outputs_of_all
from benchmarks.daniely2020.shared import LOOKS, by_method, error_rate, tick_values
from benchmarks.harness import Experiment, Verdict, common_legend, whole
from implicit_bias.datasets.dataset import Dataset, Split
from implicit_bias.datasets.images import load_digits, load_mnist
from implicit_bias.report.style import BLACK, GREY
from implicit_bias.report.words import percent
from implicit_bias.theory.sparse_parities import error_of_parity

EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How many digits, strips and units."""

    digits: tuple[int, ...]
    train_size: int
    test_size: int
    effort: Effort


FULL = Sizes(
    digits=(1, 2, 3),
    train_size=60000,
    test_size=10000,
    effort=Effort(units=512, steps=6000, rate=0.1, features=512, svm_units=64, svm_samples=3000),
)
QUICK = Sizes(
    digits=(1, 2),
    train_size=300,
    test_size=300,
    effort=Effort(units=16, steps=100, rate=0.1, features=32, svm_units=16, svm_samples=100),
)


def measure(quick: bool) -> pd.DataFrame:
    """Test error of every method for every number of digits; quick: on the 8 x 8 digits."""
    sizes, (train_pool, test_pool) = (QUICK, small_images()) if quick else (FULL, halved_mnist())
    rows = [row for k in sizes.digits for row in of_strips(train_pool, test_pool, k, sizes)]
    return pd.DataFrame(rows)


def of_strips(
    train_pool: Dataset, test_pool: Dataset, k: int, sizes: Sizes
) -> Iterator[dict[str, Any]]:
    """One row a method, for strips of k digits."""
    train = strips(train_pool, k, sizes.train_size, random_state=1)
    test = strips(test_pool, k, sizes.test_size, random_state=2)
    facts = {"k": k, "train_size": sizes.train_size, "test_size": sizes.test_size}
    for method, outputs in outputs_of_all(Split(train, test), sizes.effort, seed=0):
        error = error_rate(outputs, test.y)
        yield facts | asdict(sizes.effort) | {"method": method, "error": error}


def small_images() -> tuple[Dataset, Dataset]:
    """Even against odd 8 x 8 digits, two disjoint sets."""
    whole = load_digits(positive=EVEN, negative=ODD, append_constant=False)
    return whole.take(np.arange(1200)), whole.take(np.arange(1200, len(whole)))


def halved_mnist() -> tuple[Dataset, Dataset]:
    """Even against odd digits of MNIST at half the resolution: training and test images."""
    train, test = (
        halved(load_mnist(subset=subset, positive=EVEN, negative=ODD, append_constant=False))
        for subset in ("train", "test")
    )
    return train, test


def halved(images: Dataset) -> Dataset:
    """Average blocks of 2 x 2 pixels of images in [-1, 1], to ink in [0, 1].

    On paper that is 0 the steps of SGD are much better conditioned than on paper that is -1.
    """
    assert images.image_shape is not None
    height, width = (side // 2 for side in images.image_shape)
    blocks = images.X.reshape(-1, height, 2, width, 2)  # C order
    pixels = (blocks.mean(axis=(2, 4)) + 1.0) / 2.0
    return Dataset(
        images.name,
        pixels.reshape(len(images), -1),
        images.y,
        images.class_names,
        image_shape=(height, width),
        has_constant=False,
    )


def errors(frame: pd.DataFrame) -> dict[str, dict[int, float]]:
    """Test error of each method for each number of digits."""
    return by_method(frame, "k", "error")


def independent(frame: pd.DataFrame) -> dict[int, float]:
    """Error of who reads every digit by itself as well as the network reads one."""
    network = errors(frame)["ReLU network"]
    return {k: float(error_of_parity(network[1], k)) for k in network}


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Errors in per cent, and the theory's below."""
    rows = errors(frame) | {"every digit by itself": independent(frame)}
    return pd.DataFrame(
        {"test error": method, **{f"k = {k}": percent(error) for k, error in row.items()}}
        for method, row in rows.items()
    )


def found(frame: pd.DataFrame) -> str:
    """In words."""
    size, linear = frame.iloc[0], errors(frame)
    network = linear.pop("ReLU network")
    last = max(network)
    best = min(linear, key=lambda method: linear[method][last])
    single = [network[1], *(row[1] for row in linear.values())]
    return (
        f"With one digit all methods work: errors of {percent(min(single))} to "
        f"{percent(max(single))}. With {last} the network errs on {percent(network[last])}, "
        f"{best}, the best linear method, on {percent(linear[best][last])}, who guesses on 50 %. "
        "Who read every digit by itself as well as the network reads one would err on "
        f"{percent(independent(frame)[last])} (the dotted line): the network is still between "
        "the two.\n\n"
        f"Sizes: {size['train_size']} strips of images at half the "
        f"resolution, {size['test_size']} test strips of images of their own; "
        f"{size['units']} hidden units, {size['steps']} steps of SGD with momentum 0.9; "
        f"{size['features']} random features; the SVM {size['svm_units']} units and "
        f"{size['svm_samples']} strips. One seed."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw errors against the number of digits, between guessing and reading."""
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    ax = figure.subplots()
    ax.axhline(50, color=GREY, linestyle="--", linewidth=1, label="guessing")
    for method, row in errors(frame).items():
        colour, mark = LOOKS[method]
        ax.plot(list(row), [100 * e for e in row.values()], mark, color=colour, label=method)
    theory = independent(frame)
    percents = [100 * error for error in theory.values()]
    ax.plot(list(theory), percents, ":", color=BLACK, label="every digit by itself")
    ax.set(xlabel="digits k in a strip", ylabel="test error, %")
    tick_values(ax, theory)
    ax.set_ylim(bottom=0)
    return common_legend(figure, [ax], 3)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    linear = errors(frame)
    network = linear.pop("ReLU network")
    last = max(network)
    one = max(network[1], *(row[1] for row in linear.values())) < 0.1
    apart = network[last] < 0.4 and min(row[last] for row in linear.values()) > 0.45
    return Verdict.of(one and apart, one or apart)


EXPERIMENT = Experiment(
    claim=(
        "On strips of k digits of MNIST, labelled with the parity of their sum, a ReLU network "
        "and linear methods (its linearised regime, random features) do equally well for k = 1; "
        "for k = 3 the network still learns, and linear methods do hardly better than guessing "
        "(section 5)."
    ),
    how=(
        "Digits of MNIST at half the resolution side by side; strips of training and test samples"
        " have images of their own."
    ),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if with one digit all errors are below 0.1, and with the most digits the "
        "network errs on less than 0.4 and no linear method on less than 0.45."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Test error of each method against the number of digits in a strip.",
)
