"""The steps after the first: the theorem's own step size beside ours, and lemmas 13 to 16."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.daniely2020 import parity_descent as descent
from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.linear_methods import hinge_loss
from benchmarks.daniely2020.network import Point, Schedule, descend
from benchmarks.daniely2020.parity_separation import SeparatingLayer, separating_layer
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Experiment, Judged, Rows, Verdict, parts, whole
from benchmarks.words import span, vanishing
from implicit_bias.base.wording import percent
from implicit_bias.datasets.parities import ParityDistribution, cube
from implicit_bias.report.style import BLUE, GREY, ORANGE, VERMILION

# Of theorem 3.
DELTA = 0.1
THEOREM, LONGER, OWN = "the theorem's", "50 times the theorem's", "our own"


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Bits and seed of each start, pairs, steps, and the step size of our own."""

    starts: tuple[tuple[int, int], ...] = ((11, 0), (11, 1), (13, 0))
    k: int = 3
    pairs: int = 100
    steps: int = 400
    own_step: float = 0.5
    own_steps: int = 1000


WHOLE = Sizes()
QUICK = Sizes(starts=((7, 0),), steps=100)


def measure(quick: bool) -> Rows:
    """Points of all descents: loss, error, and how far the weights are below their bounds."""
    sizes = QUICK if quick else WHOLE
    return (row for n, seed in sizes.starts for row in of_start(n, seed, sizes))


def of_start(n: int, seed: int, sizes: Sizes) -> Rows:
    """Descend on the whole distribution from one start, with each step size."""
    distribution = ParityDistribution.random(n, sizes.k, random_state=seed)
    bits = cube(n)
    y, shares = distribution.labels(bits), distribution.probabilities(bits)
    initial = parity.start(n, sizes.k, sizes.pairs, random_state=seed)
    printed = parity.start(n, sizes.k, sizes.pairs, printed=True, random_state=seed)
    published = descent.published_step(sizes.k, sizes.pairs, sizes.steps)
    decay = descent.largest_decay(n, sizes.k)
    schedules = {
        THEOREM: Schedule(step=published, decay=decay, steps=sizes.steps, record=20),
        LONGER: Schedule(step=50 * published, decay=0.0, steps=sizes.steps, record=20),
        OWN: Schedule(step=sizes.own_step, decay=0.0, steps=sizes.own_steps, record=20),
    }
    for name, schedule in schedules.items():
        history = descend(bits, y, initial, schedule, probabilities=shares)
        first = history[1].network
        layer = separating_layer(distribution, first)
        facts = {
            "n": n,
            "k": sizes.k,
            "pairs": sizes.pairs,
            "seed": seed,
            "schedule": name,
            "eta": schedule.step,
            "decay": schedule.decay,
            "steps": schedule.steps,
            "printed_output": float(np.abs(printed.outputs(bits)).max()),
            "printed_active": float(shares @ (y * printed.outputs(bits) < 1)),
            "output": float(np.abs(initial.outputs(bits)).max()),
            "lemma_14": float(np.abs(first.readout).max())
            / descent.first_readout_bound(n, sizes.k),
        }
        for point in history:
            moved = ratios(point, first, facts) if point.step > 1 else {}
            fixed = (
                fixed_layer(point, first, layer, facts, (bits, y, shares))
                if point.step > 1 and layer is not None
                else {}
            )
            yield (
                facts
                | moved
                | fixed
                | {
                    "step": point.step,
                    "loss": point.loss,
                    "error": point.error,
                }
            )


def ratios(point: Point, first: parity.TwoLayers, facts: dict[str, Any]) -> dict[str, float]:
    """Largest movement over its bound: lemma 15, for steps of at most 1/2."""
    bound = descent.movement_bound(facts["n"], facts["k"], facts["eta"], facts["decay"], point.step)
    now = point.network
    return {
        "lemma_15_readout": float(np.abs(now.readout).max()) / bound.readout,
        "lemma_15_weights": float(np.linalg.norm(now.weights - first.weights, axis=1).max())
        / bound.weights,
        "lemma_15_bias": float(np.abs(now.biases - first.biases).max()) / bound.bias,
    }


def fixed_layer(
    point: Point,
    first: parity.TwoLayers,
    layer: SeparatingLayer,
    facts: dict[str, Any],
    on: tuple[np.ndarray, np.ndarray, np.ndarray],
) -> dict[str, float]:
    """Loss of lemma 12's second layer on the hidden layer as it is now: lemma 16."""
    bits, y, shares = on
    before, now = (
        hinge_loss(y, network.hidden(bits) @ layer.readout, shares)
        for network in (first, point.network)
    )
    bound = descent.movement_bound(facts["n"], facts["k"], facts["eta"], facts["decay"], point.step)
    allowed = descent.moved_loss_bound(bound, layer.norm, layer.n_used)
    return {"fixed_loss": now, "lemma_16": abs(now - before) / allowed}


def runs(frame: pd.DataFrame) -> Iterator[tuple[str, int, pd.DataFrame]]:
    """Schedule, n, and all points after the first step."""
    later = frame[frame["step"] >= 1]
    for (schedule, n), rows in parts(later, "schedule", "n"):
        yield schedule, n, rows


def tabulate(frame: pd.DataFrame) -> Rows:
    """Losses, errors, and ratios of lemmas 14 to 16, the worst of the seeds."""
    for name, n, points in runs(frame):
        least = points.groupby("seed")[["loss", "error"]].min()
        last = points.groupby("seed")[["loss"]].last()
        yield {
            "n": str(n),
            "step size": f"{name}, {points['eta'].iloc[0]:.3g}",
            "steps": str(points["steps"].iloc[0]),
            "least loss": span(least["loss"], ".3f"),
            "last loss": span(last["loss"], ".3f"),
            "least error": span(least["error"], percent),
            "lemma 14": f"{points['lemma_14'].max():.2f}",
            "15: u, w, b": ", ".join(
                f"{points[f'lemma_15_{part}'].max():.2g}" for part in ("readout", "weights", "bias")
            ),
            "16": f"{points['lemma_16'].max():.1g}",
        }


def found(frame: pd.DataFrame) -> str:
    """In words."""
    later = frame[frame["step"] >= 1]
    least = later.groupby(["schedule", "n", "seed"])["loss"].min().groupby("schedule")
    high, own = least.max(), frame[frame["schedule"] == OWN]
    jump = own[own["step"] > 1].nlargest(1, "loss").iloc[0]
    one = frame.iloc[0]
    return (
        f"At k = {one['k']} and q = {one['pairs']} the theorem's own step size, "
        f"{one['eta']:.2g}, brings the loss to {high[THEOREM]:.2f}, that of the mean of the "
        f"relevant bits (1/2), 50 times as much to {high[LONGER]:.2f}, and one of our own, "
        f"{own['eta'].iloc[0]:g}, to {high[OWN]:.2g}. With the last it does not fall smoothly: one "
        f"loss at step {jump['step']} is still {jump['loss']:.2f}. So the "
        "theorem's start and first step lead to the parity, with other later steps than its own, "
        "which are made for widths that cannot be run.\n\n"
        f"The start: paired as (w, b, -u), |g| is {vanishing(frame['output'].max())}; paired as "
        f"printed, (-w, -b, -u), it is up to {frame['printed_output'].max():.0f}, and "
        f"{span(frame['printed_active'], percent)} of the inputs have an active hinge, by which "
        "the first gradient is no correlation with the label.\n\n"
        f"Sizes: the whole distribution, {frame.groupby(['n', 'seed']).ngroups} starts, biases "
        "trained; lambda = k/n with the theorem's step size and 0 with the others."
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw loss and error against the step, a line a start."""
    figure, (left, right) = subplots((8.4, 4.0), 1, 2)
    looks = {THEOREM: (BLUE, "-"), LONGER: (ORANGE, "--"), OWN: (VERMILION, ":")}
    for (schedule, _, _), rows in parts(frame, "schedule", "n", "seed"):
        colour, line = looks[schedule]
        left.plot(rows["step"], rows["loss"], line, color=colour, label=f"{schedule} step size")
        right.plot(rows["step"], 100 * rows["error"], line, color=colour)
    left.axhline(0.5, color=GREY, linewidth=1, linestyle="-.", label="mean of the relevant bits")
    left.set(xlabel="step", ylabel="hinge loss on D_A")
    left.set_ylim(bottom=0)
    right.set(xlabel="step", ylabel="error on D_A, %")
    right.set_ylim(bottom=0)
    return common_legend(figure, [left], 3)


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule: only where the theorem claims something, constants 1."""
    k = frame["k"]
    width = k**7 * np.log(k / DELTA)
    rows = frame[(k >= 7) & (frame["n"] >= k**10) & (frame["pairs"] >= width)]
    if rows.empty:
        return Verdict.UNTESTED
    least = rows.groupby(["schedule", "n", "seed"])["loss"].min().groupby("schedule").max()
    return Verdict.of(least[THEOREM] < 0.1)


def lemmas_14_to_16(frame: pd.DataFrame) -> Judged:
    """Judge the lemmas by the largest ratio of a side to its bound."""
    worst = frame.filter(regex="lemma_1[456]").max().max()
    return Judged(
        verdict=Verdict.of(worst <= 1),
        result=f"Of all points of the descents the largest ratio of a side to its bound is "
        f"{worst:.2g}.",
    )


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, draw)
