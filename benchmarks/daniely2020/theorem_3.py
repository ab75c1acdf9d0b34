r"""Theorem 3: the first step finds A, a second layer separates after it, and later steps learn.

Four kinds of rows, told apart by ``what``:

================  ============================================================================
`FIRST_STEP`      the first gradient from the source's start, exact over D_A: lemmas 5 to 9
`SEPARATION`      a second layer that separates all inputs after that step: lemmas 11, 12, 14
`DESCENT`         points of gradient descent on all 2^n inputs, by the theorem's own step size
                  and by larger ones: theorem 3, lemmas 14 to 16
`SAMPLES`         the same network on samples of D_A, beside linear methods and an SVM
================  ============================================================================
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from benchmarks.bench import Part, part
from benchmarks.daniely2020 import parity_descent as descent
from benchmarks.daniely2020 import parity_first_step as parity
from benchmarks.daniely2020.linear_methods import hinge_loss, least_hinge_loss
from benchmarks.daniely2020.models import HIDDEN, Table, Training, build, outputs, train_by_adadelta
from benchmarks.daniely2020.network import Point, Schedule, descend
from benchmarks.daniely2020.parity_separation import SeparatingLayer, separating_layer
from benchmarks.drawing import Figure, subplots
from implicit_bias.base.style import BLUE, GREY, ORANGE, VERMILION
from implicit_bias.base.validation import Array
from implicit_bias.datasets.dataset import Dataset
from implicit_bias.datasets.parities import ParityDistribution, cube
from implicit_bias.estimators.svm import GatedReLUSVC
from implicit_bias.networks import ReLUNetwork

COST = 5
FIRST_STEP, SEPARATION, DESCENT, SAMPLES = "first step", "separation", "descent", "samples"
THEOREM, LONGER, OWN = "the theorem's", "50 times the theorem's", "our own"
# Methods on samples whose features are learned; those of all others are fixed before the data.
NETWORKS = ("theorem 3", "ReLU network")
# Least n that lemma 9 takes for k = 7: k <= n^(1/4) / (2 sqrt 2).
LEAST_BITS = 64 * 7**4
# c of lemma 5, eps of lemma 11, and delta of lemma 12 and corollary 4, at which we measure.
LEMMA_5_AT, EPS, DELTA = 2.0, 0.5, 0.1
# Samples of which the noise of a gradient is said.
NOISE_SAMPLES = 4000
# Pairs from which every start should separate.
WIDE = 1000
OWN_STEP = 0.5


def measure(quick: bool) -> Iterator[Part]:
    """Measure each of the four, from the proof's first step to samples.

    A kind has a name of its own among its settings (units, q, pairs, samples), so that no part is
    taken for one of another kind.
    """
    if quick:
        for k, n in ((3, 11), (3, 21), (7, 21), (7, 31)):
            yield part(first_step, k=k, n=n, units=64)
        yield part(separation, k=3, n=9, q=30, seed=1)
        yield part(descend_all, k=3, n=7, pairs=100, seed=0, steps=100, own_steps=1000)
        yield part(learn, k=3, n=10, seed=0, samples=500, hidden=64, epochs=5, steps=600)
        return
    for n in (11, 21, 41, 81, 161, 321, 641, 1281):
        yield part(first_step, k=3, n=n, units=512)
    for n in (21, 41, 81, 161, 321, 641, 1281):
        yield part(first_step, k=7, n=n, units=512)
    yield part(first_step, k=7, n=LEAST_BITS + 1, units=128)
    for k, n in ((3, 13), (3, 101), (3, 1001), (5, 101), (7, 101), (7, 1001)):
        for q in (30, 100, 300, WIDE):
            for seed in range(3):
                if (k, n, q) != (7, 1001, WIDE):  # minutes
                    yield part(separation, k=k, n=n, q=q, seed=seed)
    for n, seed in ((11, 0), (11, 1), (13, 0)):
        yield part(descend_all, k=3, n=n, pairs=100, seed=seed, steps=400, own_steps=1000)
    for n in (10, 40, 160):
        yield part(learn, k=3, n=n, seed=0, samples=5000, hidden=512, epochs=30, steps=1500)


# --- the first step: lemmas 5 to 9 ---------------------------------------------------------------


def first_step(k: int, n: int, units: int) -> Iterator[dict[str, Any]]:
    """Yield one row of exact averages of one draw of units, from the start and after the step."""
    distribution = ParityDistribution.random(n, k)
    initial = parity.start(n, k, units)
    # The first of each pair; the other one moves alike.
    signs, biases, readout = (
        values[:units] for values in (initial.weights, initial.biases, initial.readout)
    )
    at = parity.label_averages(distribution, signs, n**-0.5, biases)
    # Bits of A, the other bits, and all that is off A, the constant of the bias included.
    on = np.isin(np.arange(n + 1), distribution.relevant)
    other = ~on[:n]
    good = parity.is_good(distribution, signs)
    bound, uniform = parity.correlation_bound(n, k), np.abs(at.uniform[:, ~on])
    # Of the logarithms of binomial probabilities; at many bits the bound is below it.
    rounding = 4 * n * math.log(n) * np.finfo(float).eps
    alpha = at.easy[good][:, on][:, 0] / 2.0
    moved = parity.first_step(distribution, initial)
    common = (alpha * readout[good])[:, None] / math.sqrt(n)
    yield {
        "what": FIRST_STEP,
        "good": float(good.mean()),
        "alpha_least": float(alpha.min()),
        "alpha_largest": float(alpha.max()),
        "on": rms(at.mean[:, on]),
        "off": rms(at.mean[:, :n][:, other]),
        "off_good": float(np.abs(at.mean[good][:, ~on]).max()),
        "lemma_5_within": float((uniform <= LEMMA_5_AT * bound + rounding).mean()),
        "lemma_5": float(uniform.max() / bound) if bound > rounding else math.nan,
        "lemma_8": lemma_8(distribution, signs, at.mean, on),
        "lemma_9_on": float(np.abs(moved.weights[:units][good][:, on[:n]] - common).max()),
        "lemma_9_off": float(np.abs(moved.weights[:units][good][:, other]).max()) * (n - 1),
        "lemma_9_bias": float(np.abs(moved.biases[:units] - biases)[good].max()) * n**0.5,
        # Standard deviation of a mean of so many signs, 0 where the gate is shut.
        "noise": math.sqrt(at.easy[:, on].mean() / NOISE_SAMPLES),
    }


def lemma_8(
    distribution: ParityDistribution, signs: Array, averages: Array, on: NDArray[np.bool_]
) -> float:
    """Return the least C of lemma 8 for h = y and h = y x_j, j in A: means 0 and 1/2 over D_A."""
    n, k = distribution.n_bits, distribution.k
    active = (signs[:, ~on[:n]] != 0).sum(axis=1)
    phi = np.array([parity.open_share(n, k, int(m), 1.0 / (8 * k)) for m in active])
    of_label = np.abs(averages[:, n])
    of_bits = np.abs(averages[:, on] - phi[:, None] / 2.0).max(axis=1)
    return float((np.maximum(of_label, of_bits) * np.sqrt(active) / k).max())


def rms(values: Array) -> float:
    """Root mean square of all entries."""
    return math.sqrt(float(np.mean(np.square(values))))


# --- a second layer that separates: lemmas 11, 12 and 14 -----------------------------------------


def separation(k: int, n: int, q: int, seed: int) -> Iterator[dict[str, Any]]:
    """Yield one row of one start; without a separating layer the numbers of it are missing."""
    distribution = ParityDistribution.random(n, k, random_state=seed)
    initial = parity.start(n, k, q, random_state=seed)
    units = parity.first_step(distribution, initial)
    good = parity.is_good(distribution, initial.weights)
    only_good = parity.TwoLayers(units.weights[good], units.biases[good], units.readout[good])
    near = list[float]()
    for r in range(-k, k + 1, 2):
        near.append(float((parity.worst_errors(distribution, units, r) <= 2 * EPS).mean()))
    row = {
        "what": SEPARATION,
        "near_hinge": float(np.mean(near)),
        "lemma_14": largest_readout(units, n, k),
        "separates": False,
    }
    layer = separating_layer(distribution, only_good)
    if layer is not None:
        row |= {
            "separates": True,
            "margin": layer.margin,
            "norm": layer.norm * math.sqrt(q) / k**5,
            "used": layer.n_used * k**2.5 / q,
            "largest_output": float(parity.hidden_ranges(distribution, only_good)[2].max()),
        }
    yield row


def largest_readout(units: parity.TwoLayers, n: int, k: int) -> float:
    """Largest |u_i| after the first step, over the bound of lemma 14."""
    return float(np.abs(units.readout).max()) / descent.first_readout_bound(n, k)


# --- the later steps: theorem 3, lemmas 14 to 16 -------------------------------------------------


def descend_all(
    k: int, n: int, pairs: int, seed: int, steps: int, own_steps: int
) -> Iterator[dict[str, Any]]:
    """Descend on the whole distribution from one start, with each step size; rows are points."""
    distribution = ParityDistribution.random(n, k, random_state=seed)
    bits = cube(n)
    y, shares = distribution.labels(bits), distribution.probabilities(bits)
    initial = parity.start(n, k, pairs, random_state=seed)
    printed = parity.start(n, k, pairs, printed=True, random_state=seed).outputs(bits)
    published = descent.published_step(k, pairs, steps)
    decay = descent.largest_decay(n, k)
    schedules = {
        THEOREM: Schedule(step=published, decay=decay, steps=steps, record=20),
        LONGER: Schedule(step=50 * published, steps=steps, record=20),
        OWN: Schedule(step=OWN_STEP, steps=own_steps, record=20),
    }
    for name, schedule in schedules.items():
        history = descend(bits, y, initial, schedule, probabilities=shares)
        first = history[1].network
        layer = separating_layer(distribution, first)
        for point in history:
            row = {
                "what": DESCENT,
                "schedule": name,
                "eta": schedule.step,
                "step": point.step,
                "loss": point.loss,
                "error": point.error,
                "output": float(np.abs(initial.outputs(bits)).max()),
                "printed_output": float(np.abs(printed).max()),
                "printed_active": float(shares @ (y * printed < 1)),
                "lemma_14": largest_readout(first, n, k),
            }
            if point.step > 1:
                bound = descent.movement_bound(n, k, schedule.step, schedule.decay, point.step)
                row |= moved(point, first, bound)
                if layer is not None:
                    row["lemma_16"] = moved_loss(point, first, bound, layer, (bits, y, shares))
            yield row


def moved(point: Point, first: parity.TwoLayers, bound: descent.Movement) -> dict[str, float]:
    """Largest movement since the first step over its bound: lemma 15."""
    now = point.network
    weights = np.linalg.norm(now.weights - first.weights, axis=1).max()
    return {
        "lemma_15_readout": float(np.abs(now.readout).max()) / bound.readout,
        "lemma_15_weights": float(weights) / bound.weights,
        "lemma_15_bias": float(np.abs(now.biases - first.biases).max()) / bound.bias,
    }


def moved_loss(
    point: Point,
    first: parity.TwoLayers,
    bound: descent.Movement,
    layer: SeparatingLayer,
    on: tuple[Array, Array, Array],
) -> float:
    """Change of the loss of lemma 12's second layer since the first step, over that of lemma 16."""
    bits, y, shares = on
    before, now = (
        hinge_loss(y, network.hidden(bits) @ layer.readout, shares)
        for network in (first, point.network)
    )
    return abs(now - before) / descent.moved_loss_bound(bound, layer.norm, layer.n_used)


# --- samples -------------------------------------------------------------------------------------


def learn(
    k: int, n: int, seed: int, samples: int, hidden: int, epochs: int, steps: int
) -> Iterator[dict[str, Any]]:
    """Yield a row for each method, trained on one draw of A, of samples and of weights.

    The hinge loss is that of the best multiple of the outputs on the test samples, so that methods
    that are trained by other losses can be compared.
    """
    distribution = ParityDistribution.random(n, k, random_state=seed)
    train = distribution.sample(samples, random_state=1000 + seed)
    test = distribution.sample(samples, random_state=2000 + seed)
    for method, values in outputs_of_all(train, test, k, seed, hidden, epochs, steps):
        yield {
            "what": SAMPLES,
            "method": method,
            "hinge_loss": least_hinge_loss(test.y, values),
            "error": float(np.mean(test.y * values <= 0)),
        }


def outputs_of_all(
    train: Dataset, test: Dataset, k: int, seed: int, hidden: int, epochs: int, steps: int
) -> Iterator[tuple[str, Array]]:
    """Train every method; name and outputs (n',) on the test samples, which end in a constant."""
    train_bits, test_bits = train.X[:, :-1], test.X[:, :-1]
    initial = parity.start(train_bits.shape[1], k, hidden // 8, random_state=seed)
    schedule = Schedule(step=OWN_STEP, steps=steps, record=steps)
    history = descend(train_bits, train.y, initial, schedule)
    yield "theorem 3", history[-1].network.outputs(test_bits)

    train_table = Table(torch.tensor(train_bits).float(), torch.tensor(train.y).float())
    test_table = Table(torch.tensor(test_bits).float(), torch.tensor(test.y).float())
    for name in HIDDEN:
        model = build(name, train_table, hidden, seed)
        protocol = Training(units=hidden, epochs=epochs)
        for _ in train_by_adadelta(model, train_table, test_table, protocol, seed):
            pass
        yield name, torch.cat(list(outputs(model, test_table)))[:, 0].double().numpy()

    gates = ReLUNetwork(train.n_features, [hidden // 16], seed=seed)
    some = train.take(np.arange(len(train) // 5))
    # Few bits and few units: the samples need not be separable, and then a soft margin is.
    with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
        svm = GatedReLUSVC(gates=gates, tol=1e-4, on_failure="soft").fit(some.X, some.y)
    yield "group SVM", svm.decision_function(test.X)


# --- what the table shows ------------------------------------------------------------------------


def numbers(frame: pd.DataFrame) -> dict[str, Any]:
    """Return what each kind of rows says, and what follows from the theorem by arithmetic."""
    kinds = dict(list(frame.groupby("what")))
    return {
        **of_first_step(kinds[FIRST_STEP]),
        **of_separation(kinds[SEPARATION]),
        **of_descent(kinds[DESCENT]),
        **of_samples(kinds[SAMPLES]),
        **of_corollary_4(),
    }


def of_first_step(rows: pd.DataFrame) -> dict[str, float]:
    """Constants of lemmas 5 to 9, and the numbers inside the assumptions of lemma 9."""
    found = dict[str, float]()
    for k in rows["k"].unique():
        sizes = rows[rows["k"] == k]
        least, most = sizes.iloc[0], sizes.iloc[-1]
        fall = math.log(most["off"] / least["off"]) / math.log(most["n"] / least["n"])
        found |= {f"good_{k:g}": parity.good_share(int(k)), f"slope_{k:g}": fall}
    inside = rows.sort_values("n").iloc[-1]
    return found | {
        "bits": inside["n"],
        "good_drawn": inside["good"],
        "good_asked": 1 / (14 * math.sqrt(inside["k"])),
        "alpha_low": inside["alpha_least"],
        "alpha_high": inside["alpha_largest"],
        "lemma_9": inside["lemma_9_on"],
        "lemma_9_off": rows[["lemma_9_off", "lemma_9_bias"]].max().max(),
        "within": rows["lemma_5_within"].min(),
        "lemma_5": rows["lemma_5"].max(),
        "lemma_6": (rows["lemma_5"] / (rows["n"] - 1)).max(),
        "lemma_8": rows["lemma_8"].max(),
        "off_good": rows["off_good"].max(),
    }


def of_separation(rows: pd.DataFrame) -> dict[str, float]:
    """Count the starts that separate, and the constants of lemmas 11 and 12."""
    separates = rows["separates"].astype(bool)
    wide, widest_k = rows["q"] >= WIDE, rows["k"].max()
    return {
        "separated": (separates & wide).sum(),
        "starts": wide.sum(),
        "all_separated": separates.sum(),
        "all_starts": len(rows),
        "width_asked": widest_k**7 * math.log((widest_k + 1) / DELTA),
        "norm_low": rows["norm"][wide].min(),
        "norm_high": rows["norm"][wide].max(),
        "output": rows["largest_output"].max(),
        "near_low": rows["near_hinge"].min(),
        "near_high": rows["near_hinge"].max(),
        "near_asked": EPS / (112 * rows["k"].min() ** 2.5),
    }


def of_descent(rows: pd.DataFrame) -> dict[str, float]:
    """Least loss of the worst start by each step size, and what the printed pairs start from."""
    later = rows[rows["step"] >= 1]
    least = later.groupby(["schedule", "n", "seed"])["loss"].min().groupby("schedule").max()
    size = rows.sort_values("n").iloc[-1]
    steps = rows.loc[rows["schedule"] == THEOREM, "step"].max()
    return {
        "loss_theorem": least[THEOREM],
        "loss_longer": least[LONGER],
        "loss_own": least[OWN],
        "step_theorem": rows.loc[rows["schedule"] == THEOREM, "eta"].iloc[0],
        "step_own": rows.loc[rows["schedule"] == OWN, "eta"].iloc[0],
        "moved": rows.filter(regex="lemma_1[456]").max().max(),
        "start_output": rows["output"].max(),
        "printed_output": rows["printed_output"].max(),
        "printed_active_low": rows["printed_active"].min(),
        "printed_active_high": rows["printed_active"].max(),
        "bound": descent.theorem_3_order(size["n"], size["k"], size["pairs"], steps),
        "descents": rows.groupby(["n", "seed"]).ngroups,
    }


def of_samples(rows: pd.DataFrame) -> dict[str, float]:
    """Errors and hinge losses at the largest n, and the worst of the network of theorem 3."""
    most = rows[rows["n"] == rows["n"].max()].set_index("method")
    fixed = most.drop(list(NETWORKS))
    return {
        "samples_error": rows.loc[rows["method"] == "theorem 3", "error"].max(),
        "samples_linear": fixed["hinge_loss"].min(),
        "samples_relu": most.loc["ReLU network", "error"],
        "samples_ntk": most.loc["NTK regime", "error"],
    }


def of_corollary_4() -> dict[str, float]:
    """Bound of theorem 3 over eps: at the sizes of the corollary's proof, and at least sizes."""
    printed, least = list[float](), list[float]()
    for k in (7, 11):
        for eps in (0.5, 0.1, 0.01):
            for sizes, found in (
                (descent.corollary_4_sizes(eps, k, DELTA), printed),
                (descent.sizes_for(eps, k, DELTA), least),
            ):
                bound = descent.theorem_3_order(sizes.n_bits, k, sizes.pairs, sizes.steps)
                found.append(bound / eps)
    return {
        "corollary_low": min(printed),
        "corollary_high": max(printed),
        "sizes_for": max(least),
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Draw the first gradient on and off A against n, and the loss against the step."""
    figure, (left, right) = subplots((9.0, 4.2), 1, 2)
    rows = frame[(frame["what"] == FIRST_STEP) & (frame["k"] == 7)]
    left.plot(rows["n"], rows["on"], "s-", color=BLUE, label="bits in A")
    left.plot(rows["n"], rows["off"], "^", color=VERMILION, label="bits off A")
    noise = f"noise of {NOISE_SAMPLES:,} samples"
    left.plot(rows["n"], rows["noise"], "-.", color=GREY, label=noise)
    left.set(xscale="log", yscale="log", xlabel="bits n", ylabel="sqrt(n) E[y sigma' x], rms")
    left.set_title("first gradient, k = 7")
    left.legend()
    looks = {THEOREM: (BLUE, "-"), LONGER: (ORANGE, "--"), OWN: (VERMILION, ":")}
    points = frame[frame["what"] == DESCENT]
    for (schedule, _, _), run in points.groupby(["schedule", "n", "seed"], sort=False):
        colour, line = looks[str(schedule)]
        label = f"{schedule} step size" if run["n"].iloc[0] == points["n"].max() else None
        right.plot(run["step"], run["loss"], line, color=colour, label=label)
    right.axhline(0.5, color=GREY, linewidth=1, linestyle="-.", label="mean of the relevant bits")
    right.set(xlabel="step", ylabel="hinge loss on D_A", title="descent, k = 3")
    right.set_ylim(bottom=0)
    right.legend()
    return figure
