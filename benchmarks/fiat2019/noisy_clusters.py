"""Clustered data with noisy labels: training and test error of GaLU and ReLU networks.

n = 30 Gaussian centres in R^30, inputs at a centre plus noise of standard deviation 0.1; 1,000
training and 9,000 test samples. Regression: the target of a centre is N(0, 1), the noise has
standard deviation s; squared loss. Classification: the label of a centre is a fair coin, flipped
with probability p; hinge loss. k = 30 units, hard gates, readout trained too, no bias units. The
published training: Adam, rate 0.001 throughout, batches of 128 cut from permutations, 100,000
steps; eleven noises and 16 repeats, as published. The best possible: s^2 and p.

Source: Fiat, Malach, Shalev-Shwartz, submission of 2018, figure 3; the values are those of the
figure's file.
"""

import itertools
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import harness
from benchmarks.drawing import Figure, subplots
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.published_training import STEPS, LossName, outputs_of, train_as_published
from benchmarks.harness import Experiment, Frames, Judged, Row, Rows, Run, Verdict
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.base.wording import percent
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
REPEATS = 16
# Noise: s, or twice the probability of a flip.
NOISE = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# Figure 3 at some of them: mean squared errors, and shares of samples that are misclassified, then
# mean hinge losses.
PUBLISHED_NOISE = (0.0, 0.3, 0.6, 1.0)
PUBLISHED = {
    ("regression", "ReLU", "train"): (0.0002, 0.0204, 0.0898, 0.258),
    ("regression", "ReLU", "test"): (0.0024, 0.216, 0.798, 2.14),
    ("regression", "GaLU", "train"): (0.0002, 0.0217, 0.0891, 0.259),
    ("regression", "GaLU", "test"): (0.0039, 0.350, 1.27, 3.26),
    ("classification", "ReLU", "train"): (0.0, 0.0025, 0.0288, 0.0486),
    ("classification", "ReLU", "test"): (0.0, 0.267, 0.430, 0.501),
    ("classification", "GaLU", "train"): (0.0, 0.0009, 0.0221, 0.0439),
    ("classification", "GaLU", "test"): (0.0, 0.280, 0.430, 0.502),
}
PUBLISHED_HINGE = {
    ("ReLU", "test"): (np.nan, 0.904, 1.36, 1.55),
    ("GaLU", "test"): (np.nan, 1.34, 1.85, 2.01),
}
# Ratio of test errors up to which the two networks count as similar, and share of them below which
# a training error counts as small.
SIMILAR, SMALL, MORE = 1.2, 0.2, 1.5
TASKS: dict[str, LossName] = {"regression": "squared", "classification": "hinge"}


def clusters(
    m: int, d: int, centres: int, noise: float, task: str, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Draw m inputs (m, d) around the centres and their noisy targets (m,)."""
    places = rng.normal(size=(centres, d))
    of_centre = rng.normal(size=centres)
    which = rng.integers(centres, size=m)
    X = places[which] + 0.1 * rng.normal(size=(m, d))
    if task == "regression":
        return X, of_centre[which] + noise * rng.normal(size=m)
    flipped = rng.random(m) < noise / 2
    return X, np.sign(of_centre[which]) * np.where(flipped, -1.0, 1.0)


def errors(task: str, outputs: Array, targets: Array) -> dict[str, float]:
    """Mean squared error; or share of wrong signs, and mean hinge loss. Arrays of shape (n, 1)."""
    if task == "regression":
        return {"error": float(np.mean((outputs - targets) ** 2))}
    margins = outputs * targets
    return {
        "error": float(np.mean(margins <= 0)),
        "hinge": float(np.maximum(0.0, 1.0 - margins).mean()),
    }


def trained(
    network: GatedLayers, task: str, X: Array, y: Array, *, m: int, steps: int, seed: int
) -> list[Row]:
    """Train on the first m samples; errors of both parts after a tenth, half and all steps."""
    targets, rows = y[:, None], []

    def record(step: int) -> bool:
        if step in (steps // 10, steps // 2, steps):
            outputs = outputs_of(network, X)
            for part, rows_of in (("train", slice(0, m)), ("test", slice(m, None))):
                found = errors(task, outputs[rows_of], targets[rows_of])
                rows.append({"part": part, "steps": step, **found})
        return False

    train_as_published(
        network, X[:m], targets[:m], TASKS[task], steps=steps, watch=record, seed=seed
    )
    return rows


def measure(run: Run[Any]) -> Frames:
    """Train both networks at each noise; a repeat more at a time."""
    m, tests, steps = (100, 500, 2000) if run.quick else (1000, 9000, STEPS)

    def repeat(seed: int) -> Rows:
        for task, noise, (name, kind) in itertools.product(TASKS, NOISE, NETWORKS.items()):
            rng = np.random.default_rng([seed, round(10 * noise)])
            X, y = clusters(m + tests, 30, 30, noise, task, rng)
            network = GatedLayers([30, 30, 1], kind, bias=False, seed=seed)
            best = noise**2 if task == "regression" else noise / 2
            for row in trained(network, task, X, y, m=m, steps=steps, seed=seed):
                yield {"task": task, "noise": noise, "network": name, "m": m, "best": best, **row}

    return harness.growing(run, [{"seed": s} for s in range(1 if run.quick else REPEATS)], repeat)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw means over the repeats against the noise; crosses are the published values."""
    figure, panels = subplots((9.6, 4.0), 1, 2)
    last = with_published(frame)
    for ax, (task, rows) in zip(panels, last.groupby("task", sort=False), strict=True):
        share = 1.0 if task == "regression" else 0.5
        best = rows.groupby("noise")["best"].first()
        ax.plot(share * best.index, best, "--", color=BLACK, label="best possible")
        for name, colour, mark in (("GaLU", BLUE, "s"), ("ReLU", VERMILION, "o")):
            for part, line, fill in (("train", ":", "none"), ("test", "-", "full")):
                kept = rows[(rows["network"] == name) & (rows["part"] == part)]
                means = kept.groupby("noise")[["error", "published"]].mean()
                noise = share * means.index
                look = {"color": colour, "fillstyle": fill, "label": f"{name}, {part}"}
                ax.plot(noise, means["error"], line + mark, **look)
                ax.plot(noise, means["published"], "x", color=colour)
        ax.plot([], [], "x", color=GREY, label="published")
        ax.set_title(str(task))
    panels[0].set(xlabel="noise s", ylabel="mean squared error")
    panels[1].set(xlabel="probability of a flip p", ylabel="share misclassified")
    panels[0].legend()
    return figure


def with_published(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows of the last step, with the published values."""
    last = frame[frame["steps"] == frame["steps"].max()]
    keys = zip(last["task"], last["network"], last["part"], last["noise"], strict=True)
    values = [published(PUBLISHED[task, name, part], s) for task, name, part, s in keys]
    return last.assign(published=values)


def published(values: tuple[float, ...], noise: float) -> float:
    """Return the value of the figure at a noise; nan where we have none."""
    return dict(zip(PUBLISHED_NOISE, values, strict=True)).get(noise, np.nan)


def ratios(frame: pd.DataFrame) -> pd.DataFrame:
    """Test error of GaLU over that of ReLU, ours and published, where there is noise."""
    errors = of_noise(with_published(frame)).xs("test", level="part")[["error", "published"]]
    both = errors.unstack("network")
    shares = {name: both[name, "GaLU"] / both[name, "ReLU"] for name in errors.columns}
    return pd.DataFrame(shares)


def found(frame: pd.DataFrame) -> str:
    """Compare errors with the published ones."""
    ratio = ratios(frame)
    values = of_noise(with_published(frame))
    off = (values["error"] / values["published"] - 1).xs("test", level="part").abs()
    steps = sorted(frame["steps"].unique())
    noisiest = frame[(frame["part"] == "test") & (frame["task"] == "regression")]
    noisiest = noisiest[noisiest["noise"] == NOISE[-1]]
    tests = noisiest.groupby(["network", "steps"])["error"].mean()
    later = "; ".join(
        f"{name} " + ", ".join(f"{tests[name, step]:.2f}" for step in steps) for name in NETWORKS
    )
    classified = with_published(frame).query("task == 'classification' and part == 'test'")
    hinges = classified.groupby(["network", "noise"])["hinge"].mean()
    words = "; ".join(
        f"{name} "
        + ", ".join(
            f"{hinges[name, s]:.2f} ({published(PUBLISHED_HINGE[name, 'test'], s):.2f})"
            for s in PUBLISHED_NOISE[1:]
        )
        for name in NETWORKS
    )
    shares = ", ".join(f"{noise / 2:.2f}" for noise in PUBLISHED_NOISE[1:])
    errors = of_noise(with_published(frame)).xs("test", level="part")
    follow = min(
        cells["error"].corr(cells["best"]) for _, cells in errors.groupby(["task", "network"])
    )
    return (
        f"{frame['m'].iloc[0]} training samples, {steps[-1]:,} steps, mean of "
        f"{frame['seed'].nunique()} repeats; in brackets the published value.\n\n"
        "- **Test errors of GaLU over those of ReLU: in regression "
        f"{_ranges(ratio, 'regression')}, in classification {_ranges(ratio, 'classification')}.** "
        f"Hinge loss on test samples at p = {shares}: {words}.\n"
        f"- Training errors are at most {percent(of_training(frame).max())} of the test errors. "
        f"Test errors are within {100 * off.max():.0f} % of the published ones, and correlate with "
        f"the best possible by at least {follow:.2f} (published: “highly correlated”).\n"
        f"- Test errors of regression at s = {NOISE[-1]:g}, after "
        f"{', '.join(f'{s:,}' for s in steps)} steps: {later}. The paper says that the difference "
        "of the two networks may be an artefact of optimisation."
    )


def _ranges(ratios: pd.DataFrame, task: str) -> str:
    """Range of ours over all noises, and of the published ratios that are at hand."""
    low, high = ratios.query("task == @task").agg(["min", "max"]).to_numpy()
    return f"{low[0]:.2f} to {high[0]:.2f} (published {low[1]:.2f} to {high[1]:.2f})"


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Errors, and the published ones in brackets, where there are such."""
    values = of_noise(with_published(frame)).dropna(subset="published")
    cells = values["error"].map("{:.3f}".format) + " (" + values["published"].map("{:.3f})".format)
    rows = cells.unstack(["network", "part"])
    rows.columns = rows.columns.map("{0[0]}, {0[1]}".format)
    best = values["best"].groupby(["task", "noise"]).first()
    rows.insert(0, "best possible", best.map("{:.2f}".format))
    rows.insert(0, "noise", [f"{task}, {name_of(task, noise)}" for task, noise in rows.index])
    return rows


def of_noise(frame: pd.DataFrame) -> pd.DataFrame:
    """Means over the repeats, where there is noise."""
    means = frame.groupby(["task", "noise", "network", "part"])[["error", "published", "best"]]
    return means.mean().query("noise > 0")


def name_of(task: str, noise: float) -> str:
    """Noise as the task calls it."""
    return f"s = {noise:.1f}" if task == "regression" else f"p = {noise / 2:.2f}"


def verdict(frame: pd.DataFrame, most: float = SIMILAR) -> Verdict:
    """Judge the claim by the rule, with a ratio up to which networks are similar."""
    ratio = ratios(frame)["error"]
    similar = ratio.between(1 / most, most).groupby("task").all()
    last = frame[(frame["steps"] == frame["steps"].max()) & (frame["part"] == "test")]
    tests = last.groupby(["task", "network", "noise"])["error"].mean()
    grows = bool((tests.groupby(["task", "network"]).diff().dropna() > 0).all())
    small = bool((of_training(frame) < SMALL).all())
    return Verdict.of(similar.all() and grows and small, similar.any() and grows and small)


def more_steps(frame: pd.DataFrame) -> Judged:
    """Judge what more steps do to test errors in regression."""
    tests = frame[(frame["part"] == "test") & (frame["noise"] > 0)]
    errors = tests.groupby(["task", "network", "noise", "steps"])["error"].mean().unstack()
    times = (errors.iloc[:, -1] / errors.iloc[:, 0]).groupby("task")
    of_regression = errors.loc["regression"].to_numpy()
    grows = bool((np.diff(of_regression) > 0).all())
    first, last = errors.columns[[0, -1]]
    least = times.min()["regression"]
    return Judged(
        Verdict.of(grows and least > MORE, grows),
        f"From {first:,} to {last:,} steps test errors in regression grow "
        f"{span(times.get_group('regression'), '.2f')} times.",
        f"in classification {span(times.get_group('classification'), '.2f')} times.",
        remark=harness.otherwise(Verdict.of(grows and least > 2, grows), "a factor of 2"),
    )


def of_training(frame: pd.DataFrame) -> pd.Series:
    """Training error over test error, of each network where there is noise."""
    errors = of_noise(with_published(frame))["error"].unstack("part")
    return errors["train"] / errors["test"]


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw)
