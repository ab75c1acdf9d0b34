"""The gradient of the first step, on A and off A: why gradient descent finds the relevant bits."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from benchmarks.daniely2020.network import ParityConfig, ParityNetwork
from benchmarks.daniely2020.shared import rms
from benchmarks.harness import Experiment, Verdict, common_legend, whole
from implicit_bias.report.style import BLACK, BLUE, GREY, VERMILION
from implicit_bias.report.words import percent
from implicit_bias.theory.sparse_parities import (
    CEILING,
    ParityDistribution,
    gate_correlations,
    limiting_correlations,
)

K = 3
FULL_BITS, FULL_SAMPLES, FULL_PAIRS = (10, 20, 40, 80, 160, 320, 640, 1280), 4000, 256
QUICK_BITS, QUICK_SAMPLES, QUICK_PAIRS = (10, 20), 500, 16


def measure(quick: bool) -> pd.DataFrame:
    """Root mean squares of G for every n."""
    bits = QUICK_BITS if quick else FULL_BITS
    samples = QUICK_SAMPLES if quick else FULL_SAMPLES
    pairs = QUICK_PAIRS if quick else FULL_PAIRS
    return pd.DataFrame([first_gradient(n, samples, pairs) for n in bits])


def first_gradient(n: int, train_size: int, pairs: int) -> dict[str, float]:
    """Of one n: G in expectation, on samples, and in the limit, over the units at their start."""
    distribution = ParityDistribution.random(n, K)
    config = ParityConfig(pairs=pairs)
    network = ParityNetwork(n, config)
    weights = network.weights.detach().numpy()[:pairs]
    biases = network.biases.numpy()[:pairs]
    exact = gate_correlations(distribution, np.sign(weights), 1.0 / math.sqrt(n), biases)
    limit = limiting_correlations(distribution, np.sign(weights), biases)
    data = distribution.sample(train_size, random_state=1, append_constant=False)
    before = data.X @ weights.T + biases
    gates = ((before > 0) & (before < CEILING)).astype(np.float64)
    sampled = (gates * data.y[:, None]).T @ data.X / train_size
    on = np.isin(np.arange(n), distribution.relevant)
    return {
        "n": n,
        "k": K,
        "train_size": train_size,
        "pairs": pairs,
        "bias_range": config.bias_range,
        "on": rms(exact[:, on]),
        "on_limit": rms(limit[:, on]),
        "on_sampled": rms(sampled[:, on]),
        "off": rms(exact[:, ~on]),
        "off_limit": rms(limit[:, ~on]),
        "off_sampled": rms(sampled[:, ~on]),
        # Standard deviation of a mean of train_size signs, 0 where the gate is shut.
        "noise": math.sqrt(gates.mean() / train_size),
    }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Root mean squares for every n."""
    samples = f"{frame['train_size'].iloc[0]} samples"
    columns = {
        "on": "on A",
        "on_limit": "on A, limit",
        "on_sampled": f"on A, {samples}",
        "off": "off A",
        "off_limit": "off A, limit",
        "off_sampled": f"off A, {samples}",
        "noise": "noise of samples",
    }
    shown = frame[list(columns)].map("{:.5f}".format).rename(columns=columns)
    shown.insert(0, "n", frame["n"].astype(str))
    return shown


def found(frame: pd.DataFrame) -> str:
    """In words."""
    first, last = frame.iloc[0], frame.iloc[-1]
    slope = math.log(last["off"] / first["off"]) / math.log(last["n"] / first["n"])
    on, off = frame["on"] / frame["on_limit"] - 1, frame["off"] / frame["off_limit"] - 1
    noise = frame["off_sampled"] / (frame["off"] ** 2 + frame["noise"] ** 2) ** 0.5 - 1
    spread = f"[{-first['bias_range']:g}, {first['bias_range']:g}]"
    return (
        f"On A the entries stay at {frame['on'].min():.2f} to {frame['on'].max():.2f}, half the "
        f"share of open gates (within {largest(on)}); off A they fall like n^{slope:.2f}, and "
        f"from n = {frame['n'].iloc[1]:.0f} on are within {largest(off.iloc[1:])} of the limit "
        "that we derive (`limiting_correlations`, order 1/n; no constant is fitted). On samples "
        "the noise (open gates / samples)^(1/2) is added off A (squares add up, within "
        f"{largest(noise)}): beyond some twenty bits the number of samples decides how clean the "
        "first step is, not that of bits. With 2 eta_1 lambda_1 = 1 the first step leaves nothing "
        "but this gradient.\n\n"
        f"Sizes: k = {first['k']:.0f}, {first['pairs']:.0f} units, w uniform in "
        f"{{-1, +1}}^n / n^(1/2), biases uniform in {spread}; root mean squares over units and "
        "bits."
    )


def largest(ratios: pd.Series) -> str:
    """Largest deviation in per cent."""
    return percent(ratios.abs().max())


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the gradient against n, with the limits of theory."""
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    ax = figure.subplots()
    n, samples = frame["n"], frame["train_size"].iloc[0]
    ax.plot(n, frame["on"], "s", color=BLUE, markersize=8, fillstyle="none", label="on A, exact")
    ax.plot(n, frame["on_sampled"], ".", color=BLUE, label=f"on A, {samples} samples")
    ax.plot(n, frame["on_limit"], "--", color=BLACK, label="limit: open gates / 2")
    ax.plot(
        n, frame["off"], "^", color=VERMILION, markersize=8, fillstyle="none", label="off A, exact"
    )
    ax.plot(n, frame["off_sampled"], ".", color=VERMILION, label=f"off A, {samples} samples")
    ax.plot(n, frame["off_limit"], ":", color=BLACK, label="limit: order 1 / n")
    ax.plot(n, frame["noise"], "-.", color=GREY, label="noise of the samples")
    ax.set(xscale="log", yscale="log", xlabel="bits n", ylabel="gradient of the first step, rms")
    return common_legend(figure, [ax], 3)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    large = (frame["on"] >= 10 * frame["off"]).all()
    return Verdict.of(large and (frame["off"].diff().iloc[1:] < 0).all(), bool(large))


EXPERIMENT = Experiment(
    claim=(
        "From the start of theorem 3 the gradient of the first step is large in the weights of "
        "the relevant bits, and nearly vanishes in all others."
    ),
    how=("The gradient at the start of theorem 3, over the whole distribution and on samples."),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if the gradient on A is at least ten times that off A for every n, and the "
        "latter falls throughout."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Gradient of the first step on A and off A against the number of bits.",
)
