"""Strips of digits with the parity of their sum: section 6 and figure 1 of the source."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.daniely2020.digit_strips import draw_strips
from benchmarks.daniely2020.looks import LOOKS
from benchmarks.daniely2020.models import HIDDEN, Training, build, train_by_adadelta
from benchmarks.drawing import common_legend
from benchmarks.harness import Experiment, Options, Run, Verdict, growing
from implicit_bias.base.wording import percent
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.images import load_digits, load_mnist
from implicit_bias.report.style import BLACK, GREY

EVEN, ODD = (0, 2, 4, 6, 8), (1, 3, 5, 7, 9)
NETWORK = "ReLU network"
LINEAR = tuple(name for name in HIDDEN if name != NETWORK)
# What the source reports, in words; it has curves and no table.
PUBLISHED = {
    1: {NETWORK: "slight advantage", **dict.fromkeys(LINEAR, "similar")},
    3: {NETWORK: "almost 80 %", **dict.fromkeys(LINEAR, "barely above chance, 50 %")},
}


@dataclass(frozen=True)
class Job:
    """One training: digits in a strip, training strips, model and seed."""

    k: int
    strips: int
    model: str
    seed: int


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Trainings in the order in which they are run, test strips, and how each is trained."""

    jobs: tuple[Job, ...]
    test_strips: int
    training: Training


# 60,000 training strips, as many as MNIST has images; for the network half, twice and four times as
# many of the longer strips, too, as the source does not say how many it has.
FULL = Sizes(
    jobs=(
        *(Job(k, 60000, model, seed=0) for k in (3, 1) for model in HIDDEN),
        *(Job(3, strips, NETWORK, seed=0) for strips in (30000, 120000, 240000)),
    ),
    test_strips=10000,
    training=Training(),
)
QUICK = Sizes(
    jobs=tuple(Job(k, 1000, model, seed=0) for k in (1, 3) for model in HIDDEN),
    test_strips=500,
    training=Training(units=32, epochs=3, batch=32),
)


def measure(run: Run[Options]) -> Iterator[pd.DataFrame]:
    """Train one model after another; rows are epochs. Quick: on the 8 x 8 digits."""
    sizes, pools = (QUICK, small_images()) if run.quick else (FULL, mnist())
    jobs = [asdict(job) for job in sizes.jobs]
    return growing(run, jobs, lambda **job: train(Job(**job), sizes, *pools))


def train(
    job: Job, sizes: Sizes, train_pool: Dataset, test_pool: Dataset
) -> Iterator[dict[str, object]]:
    """One row an epoch of one training; test strips have images of their own."""
    train_strips = draw_strips(train_pool, job.k, job.strips, seed=2 * job.seed + 1)
    test_strips = draw_strips(test_pool, job.k, sizes.test_strips, seed=2 * job.seed + 2)
    model = build(job.model, train_strips, sizes.training.units, job.seed)
    facts = asdict(job) | asdict(sizes.training) | {"test_strips": sizes.test_strips}
    for epoch in train_by_adadelta(model, train_strips, test_strips, sizes.training, job.seed):
        yield facts | asdict(epoch)


def small_images() -> tuple[Dataset, Dataset]:
    """Even against odd 8 x 8 digits, two disjoint sets."""
    whole = load_digits(positive=EVEN, negative=ODD, append_constant=False)
    return whole.take(np.arange(1200)), whole.take(np.arange(1200, len(whole)))


def mnist() -> tuple[Dataset, Dataset]:
    """Even against odd digits of MNIST: training and test images."""
    train, test = (
        load_mnist(subset=subset, positive=EVEN, negative=ODD, append_constant=False)
        for subset in ("train", "test")
    )
    return train, test


# --- what the table shows ------------------------------------------------------------------------


def last_epochs(frame: pd.DataFrame) -> pd.DataFrame:
    """Each training after its last epoch."""
    last = frame.sort_values("epoch").groupby(["k", "strips", "model", "seed"], sort=False).last()
    return last.reset_index()


def accuracies(frame: pd.DataFrame, k: int, strips: int | None = None) -> dict[str, float]:
    """Mean test accuracy of each model after the last epoch, in the order of `HIDDEN`.

    With the number of training strips that all models have, or another.
    """
    last = last_epochs(frame)
    size = main_strips(frame) if strips is None else strips
    rows = last[(last["k"] == k) & (last["strips"] == size)]
    means = 1.0 - rows.groupby("model")["test_error"].mean()
    return {model: float(means[model]) for model in HIDDEN if model in means}


def main_strips(frame: pd.DataFrame) -> int:
    """Return the number of training strips with which all models are trained."""
    models = frame.groupby("strips")["model"].nunique()
    return int(models.index[models == models.max()].max())


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Test accuracies after the last epoch, every k and number of strips, beside the source's."""
    last = last_epochs(frame)
    sizes = sorted(set(zip(last["k"], last["strips"], strict=True)))
    columns = {size: accuracies(frame, *size) for size in sizes}
    return pd.DataFrame(
        {
            "test accuracy": model,
            **{f"paper, k = {k}": words[model] for k, words in PUBLISHED.items()},
            **{
                f"k = {k}, {strips} strips": percent(row[model], 1) if model in row else "–"
                for (k, strips), row in columns.items()
            },
        }
        for model in HIDDEN
    )


def found(frame: pd.DataFrame) -> str:
    """In words."""
    size, last, main = frame.iloc[0], last_epochs(frame), main_strips(frame)
    few, many = int(frame["k"].min()), int(frame["k"].max())
    one, more = accuracies(frame, few), accuracies(frame, many)
    best = max(more[model] for model in LINEAR)
    trained = last[(last["model"] == NETWORK) & (last["k"] == many)]
    lines = _network_lines(trained)
    return (
        f"With one digit the network has {percent(one[NETWORK], 1)}, the linear models "
        f"{percent(min(one[m] for m in LINEAR))} to {percent(max(one[m] for m in LINEAR))}. "
        f"**With {many} digits the network has {lines}; the best linear model has "
        f"{percent(best, 1)}.** The paper has almost 80 % and barely above 50 %, and does not give "
        f"the number of strips: with more of them the network {_with_more(trained)}.\n\n"
        f"Sizes: {size['units']} units or features, AdaDelta, {size['epochs']} epochs in batches "
        f"of {size['batch']}, full resolution: all as published. Not given in the paper, and ours: "
        f"the number of strips ({main} for all models, {size['test_strips']} test strips of images "
        "of their own), pixels in [0, 1], the logistic loss, the constants of AdaDelta and the "
        "start (torch's), and the bandwidth (the median distance). "
        f"Seeds: {last['seed'].nunique()}. The example strips of figure 1 are not drawn again."
    )


def _network_lines(trained: pd.DataFrame) -> str:
    """Test and training accuracy of the network for each number of strips."""
    return ", ".join(
        f"{percent(1 - rows['test_error'].mean(), 1)} with {strips} strips (on the strips it is "
        f"trained on {percent(1 - rows['train_error'].mean())})"
        for strips, rows in trained.groupby("strips")
    )


def _with_more(trained: pd.DataFrame) -> str:
    """Say whether more strips always raise the network's test accuracy."""
    errors = trained.groupby("strips")["test_error"].mean()
    return "has more each time" if errors.is_monotonic_decreasing else "does not always have more"


def draw(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy against the epoch, a panel for each k."""
    figure = Figure(figsize=(8.4, 4.4), layout="constrained")
    panels = figure.subplots(1, frame["k"].nunique(), sharey=True, squeeze=False)[0]
    main = main_strips(frame)
    others = sorted(set(frame["strips"]) - {main})
    line_of = dict(zip(others, itertools.cycle([":", "--", "-."])))
    at: Any  # model and number of strips
    for ax, (k, rows) in zip(panels, frame.groupby("k"), strict=True):
        for at, points in rows.groupby(["model", "strips"], sort=False):
            model, strips = at
            colour, mark = LOOKS[model]
            curve = 100 * (1 - points.groupby("epoch")["test_error"].mean())
            whole = strips == main
            label = model if whole else f"{model}, {strips} strips"
            look = {} if whole else {"fillstyle": "none", "linestyle": line_of[strips]}
            (line,) = ax.plot(curve.index, curve, mark, color=colour, label=label)
            line.set(**look)
        ax.axhline(50, color=GREY, linestyle="--", linewidth=1, label="chance")
        if k == frame["k"].max():
            label = "paper, ReLU network, k = 3: almost 80 %"
            ax.axhline(80, color=BLACK, linestyle=":", linewidth=1, label=label)
        ax.set(xlabel="epoch", title=f"k = {k}, {main} strips")
        ax.set_xticks(range(0, int(frame["epoch"].max()) + 1, 5))
    panels[0].set(ylabel="test accuracy, %")
    return common_legend(figure, panels, 3)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    one = accuracies(frame, int(frame["k"].min()))
    many = int(frame["k"].max())
    more = accuracies(frame, many)
    linear = max(more[model] for model in LINEAR)
    alike = min(one.values()) > 0.9 and one[NETWORK] == max(one.values())
    apart = more[NETWORK] > 0.75 and linear < 0.6
    return Verdict.of(alike and apart, alike or apart)


EXPERIMENT = Experiment(measure=measure, draw=draw, found=found, verdict=verdict, tabulate=tabulate)
