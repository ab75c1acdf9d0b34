"""Strips of digits with the parity of their sum: section 6 and figure 1 of the source."""

import itertools
from dataclasses import asdict, dataclass

import numpy as np
import pandas as pd

from benchmarks import harness
from benchmarks.daniely2020.digit_strips import draw_strips
from benchmarks.daniely2020.looks import LOOKS
from benchmarks.daniely2020.models import HIDDEN, Training, build, train_by_adadelta
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Frames, Judged, Options, Rows, Run, Verdict
from benchmarks.words import span, with_interval
from implicit_bias.base.wording import percent
from implicit_bias.datasets import Dataset, load_digits, load_mnist
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


# 60,000 training strips, as many as MNIST has images; of the longer strips four times as many, too,
# and for the network half and twice, as the source does not say how many it has. What takes
# seconds, features that are not trained, comes before what takes most of an hour.
QUICKLY, SLOWLY = ("ReLU features", "Gaussian features"), (NETWORK, "NTK regime")
WHOLE = Sizes(
    jobs=(
        *(Job(k, 60000, model, seed=0) for k in (3, 1) for model in HIDDEN),
        *(Job(3, strips, NETWORK, seed=0) for strips in (30000, 120000, 240000)),
        *(
            Job(3, strips, model, seed)
            for models in (QUICKLY, SLOWLY)
            for strips in (60000, 240000)
            for seed in range(3)
            for model in models
        ),
    ),
    test_strips=10000,
    training=Training(),
)
QUICK = Sizes(
    jobs=tuple(Job(k, 1000, model, seed=0) for k in (1, 3) for model in HIDDEN),
    test_strips=500,
    training=Training(units=32, epochs=3, batch=32),
)


def measure(run: Run[Options]) -> Frames:
    """Train one model after another; rows are epochs. Quick: on the 8 x 8 digits."""
    sizes, pools = (QUICK, small_images()) if run.quick else (WHOLE, mnist())
    jobs = [asdict(job) for job in sizes.jobs]
    return harness.growing(run, jobs, lambda **job: train(Job(**job), sizes, *pools))


def train(job: Job, sizes: Sizes, train_pool: Dataset, test_pool: Dataset) -> Rows:
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

    With the most training strips that all models have, or another number.
    """
    last = last_epochs(frame[frame["k"] == k])
    rows = last[last["strips"] == (main_strips(last) if strips is None else strips)]
    means = 1.0 - rows.groupby("model")["test_error"].mean()
    return {model: float(means[model]) for model in HIDDEN if model in means}


def main_strips(frame: pd.DataFrame) -> int:
    """Return the most training strips with which all models are trained."""
    models = frame.groupby("strips")["model"].nunique()
    return int(models.index[models == models.max()].max())


def tabulate(frame: pd.DataFrame) -> Rows:
    """Test accuracies after the last epoch, every k and number of strips, beside the source's."""
    last = last_epochs(frame)
    sizes = sorted(set(zip(last["k"], last["strips"], strict=True)))
    return (
        {
            "test accuracy": model,
            **{f"paper, k = {k}": words[model] for k, words in PUBLISHED.items()},
            **{f"k = {k}, {strips:,} strips": _cell(last, k, strips, model) for k, strips in sizes},
        }
        for model in HIDDEN
    )


def _cell(last: pd.DataFrame, k: int, strips: int, model: str) -> str:
    """Say the mean accuracy, and of how many seeds it is, with their range."""
    rows = last[(last["k"] == k) & (last["strips"] == strips) & (last["model"] == model)]
    right = 1 - rows["test_error"]
    if len(right) < 2:
        return percent(right.item(), 1) if len(right) else "–"
    spread = f"{percent(right.min(), 1)} to {percent(right.max(), 1)}"
    return f"{percent(right.mean(), 1)} ({len(right)} seeds, {spread})"


def found(frame: pd.DataFrame) -> str:
    """In words."""
    size, last = frame.iloc[0], last_epochs(frame)
    trained = last[(last["k"] == frame["k"].max()) & (last["model"] == NETWORK)]
    errors = trained.groupby("strips")["train_error"].mean()
    fitted = ", ".join(f"{percent(1 - error)} of {strips:,}" for strips, error in errors.items())
    return (
        f"Sizes: {size['units']} units or features, AdaDelta, {size['epochs']} epochs in batches "
        f"of {size['batch']}, full resolution: all as published; {size['test_strips']:,} test "
        "strips of images of their own. One seed where the table says no other number. On the "
        f"strips it is trained on the network has {fitted}."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw test accuracy against the epoch; the linear models of long strips have a panel."""
    figure, panels = subplots((9.6, 4.4), 1, 3)
    few, k = min(PUBLISHED), frame["k"].max()  # of a run that is stopped, k alone
    short, long = frame[frame["k"] < k], frame[frame["k"] == k]
    main, network = main_strips(long), long["model"] == NETWORK
    linear = long[~network & (long["strips"] == main)]
    for ax, rows, title in zip(
        panels,
        (short, long[network], linear),
        (f"k = {few}", f"k = {k}, network", f"k = {k}, linear, {main:,} strips"),
        strict=True,
    ):
        styles = itertools.cycle([":", "--", "-."])
        for (model, strips), points in harness.parts(rows, "model", "strips"):
            colour, mark = LOOKS[model]
            curve = 100 * (1 - points.groupby("epoch")["test_error"].mean())
            (line,) = ax.plot(curve.index, curve, mark, color=colour, label=model)
            if ax is panels[1] and strips != main:
                line.set(marker="", linestyle=next(styles), label=f"{model}, {strips:,} strips")
        ax.set(xlabel="epoch", title=title, xticks=range(0, int(frame["epoch"].max()) + 1, 5))
    panels[1].axhline(80, color=BLACK, linewidth=1, label="paper, network: almost 80 %")
    for ax in panels[1:]:
        ax.axhline(50, color=GREY, linestyle="--", linewidth=1, label="chance")
    panels[0].set(ylabel="test accuracy, %")
    panels[2].set_ylim(47, 57)
    return common_legend(figure, panels, 3)


def verdict(frame: pd.DataFrame, strips: int, near: float = 1.0) -> Verdict:
    """Judge with so many strips of the longer kind; with one digit all are so near the network."""
    one, more = (
        accuracies(frame, int(frame["k"].min())),
        accuracies(frame, int(frame["k"].max()), strips),
    )
    linear = max(more[model] for model in LINEAR)
    least, most = min(one.values()), max(one.values())
    alike = least > 0.9 and one[NETWORK] == most and most - least < near
    apart = more[NETWORK] > 0.75 and linear < 0.6
    return Verdict.of(alike and apart, alike or apart)


def _accuracy(last: pd.DataFrame) -> str:
    """Say the mean accuracy of a model over its seeds, with the interval of that mean."""
    return f"{with_interval(100 * (1 - last['test_error']), '.1f')} %"


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge the claim by its rule, at the most strips that all models have, and at the least."""
    last = last_epochs(frame)
    one, longer = accuracies(frame, int(last["k"].min())), last[last["k"] == last["k"].max()]
    models = longer.groupby("strips")["model"].nunique()
    few, many = models.index[models == len(HIDDEN)][[0, -1]]
    trained = longer[longer["model"] == NETWORK].groupby("strips")
    linear = longer[longer["model"].isin(LINEAR) & (longer["strips"] == many)]
    behind = {name: 100 * (one[NETWORK] - one[name]) for name in LINEAR}
    best = min(harness.parts(linear, "model"), key=lambda part: part[1]["test_error"].mean())[1]
    return {
        "section_6": Judged(
            verdict=verdict(frame, many),
            remark=f" at {many:,} strips; at {few:,}: {verdict(frame, few).value}"
            + "; within five points of the network with one digit: "
            + verdict(frame, many, 0.05).value,
            result=f"With one digit (one seed) the network has {percent(one[NETWORK], 1)}, the "
            "linear models "
            f"{span(np.array([one[name] for name in LINEAR]), lambda share: percent(share, 1))} "
            f"(the rule's 90 % is passed by {100 * min(one.values()) - 90:.1f} points); "
            + ", ".join(f"{name} {behind[name]:.1f}" for name in behind if behind[name] > 5)
            + " points behind. With three the network has "
            + ", ".join(_accuracy(rows) for _, rows in trained)
            + f" on {', '.join(f'{strips:,}' for strips, _ in trained)} strips (one seed where "
            f"no interval is given), the best linear model {_accuracy(best)} on {many:,}.",
        )
    }


EXPERIMENT = Experiment(measure, found, tabulate, draw=draw, judge=judge)
