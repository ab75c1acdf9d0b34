"""Where both networks succeed and where both fail: separable data and full parity in d = 100.

Left: x ~ N(0, I_100), w uniform on the sphere, labels sign<w, x>, samples of margin |<w, x>| at
least 0.01. Middle: x uniform on {-1, 1}^100, labels the product of all bits. 50,000 training and
10,000 test samples, hard gates, readout trained too, no bias units, by the published training
(Adam, rate 0.001, batches of 128, 100,000 steps), mean of the published 3 repeats. The paper says
neither the loss nor the widths: the hinge loss and k = 16 and 64 are ours. Right: the root mean
square correlation of the parity of d bits with a gated coordinate (the gradient at initialisation,
for both networks, of inputs x / sqrt d in the unit ball, where theorem 4 applies), against a Monte
Carlo mean over filters; for odd d it is 0. (Not in the paper; derived here.)

Source: Fiat, Malach, Shalev-Shwartz (2019), arXiv:1906.05032, figure 4.
"""

import itertools
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.drawing import Figure, subplots, tick_values
from benchmarks.fiat2019.gated_layers import GatedLayers, Kind
from benchmarks.fiat2019.parity_correlation import parity_correlation
from benchmarks.fiat2019.published_training import STEPS, outputs_of, train_as_published
from benchmarks.harness import Experiment, Frames, Row, Rows, Run, Verdict, growing
from benchmarks.sizes import grid
from benchmarks.words import span
from implicit_bias.base.validation import Array
from implicit_bias.kernels.gradient_gram import normalise
from implicit_bias.problem.gating import UnitGates
from implicit_bias.report.style import BLACK, BLUE, VERMILION

NETWORKS: dict[str, Kind] = {"GaLU": "hard", "ReLU": "relu"}
LOOKS = {"GaLU": (BLUE, "s"), "ReLU": (VERMILION, "o")}
LARGEST_CUBE = 12
MARGIN = 0.01
REPEATS = 3
WIDTHS = (16, 64)


def separable(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n Gaussian inputs (n, d) of margin at least 0.01, and their labels (n,)."""
    w = normalise(rng.normal(size=(1, d)))[0]
    X = rng.normal(size=(2 * n, d))
    X = X[np.abs(X @ w) >= MARGIN][:n]  # a share of about 0.99 is kept
    return X, np.sign(X @ w)


def parity(n: int, d: int, rng: np.random.Generator) -> tuple[Array, Array]:
    """Draw n inputs (n, d) of bits -1 and 1, and their parities (n,)."""
    X = rng.choice([-1.0, 1.0], size=(n, d))
    return X, X.prod(axis=1)


TASKS = {"separable": separable, "parity": parity}


def monte_carlo(d: int, filters: int) -> float:
    """Root mean square correlation over random filters, exact in the 2^d inputs."""
    cube = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    gates = UnitGates.random(
        cube, filters, threshold="zero", firing=">", always_on=False, random_state=d
    ).gates(cube)
    correlations = (cube.prod(axis=1)[:, None] * gates).T @ cube / len(cube)
    return float(np.sqrt(np.mean(correlations**2)))


def measure(run: Run[Any]) -> Frames:
    """Measure test errors by task and width, and correlations by dimension."""
    d, m, tests, steps = (20, 500, 500, 1000) if run.quick else (100, 50_000, 10_000, STEPS)
    largest, filters = (6, 200) if run.quick else (LARGEST_CUBE, 2000)
    frame = run.kept
    if frame.empty:
        rows: list[Row] = []
        for bits in range(2, 20 if run.quick else 101, 2):
            row = {"part": "correlation", "d": bits, "correlation": parity_correlation(bits)}
            rows.append(
                row | {"measured": monte_carlo(bits, filters) if bits <= largest else np.nan}
            )
        frame = pd.DataFrame(rows)

    def trained(part: str, seed: int, width: int, task: str, network: str) -> Rows:
        X, y = TASKS[task](m + tests, d, np.random.default_rng(seed))
        layers = GatedLayers([d, width, 1], NETWORKS[network], bias=False, seed=seed)
        train_as_published(layers, X[:m], y[:m, None], "hinge", steps=steps, seed=seed)
        wrong = outputs_of(layers, X)[:, 0] * y <= 0
        found = {"train_error": float(wrong[:m].mean()), "error": float(wrong[m:].mean())}
        yield {"d": d, "m": m, "steps": steps, **found}

    wanted = grid(part=["error"], seed=range(REPEATS), width=WIDTHS, task=TASKS, network=NETWORKS)
    return growing(
        run,
        wanted,
        trained,
        frame,
        enough=lambda rows, _: (rows["steps"] == steps).all(),  # shorter trainings are done again
    )


def draw(frame: pd.DataFrame) -> Figure:
    """Draw errors against the width, and correlations against the dimension."""
    figure, (*panels, right) = subplots((10, 3.4), 1, 3)
    errors = frame[frame["part"] == "error"]
    for ax, task in zip(panels, TASKS, strict=True):
        for name, (colour, mark) in LOOKS.items():
            rows = errors[(errors["network"] == name) & (errors["task"] == task)]
            means = rows.groupby("width")[["train_error", "error"]].mean()
            for column, part, line, fill in (
                ("error", "test", "-", "full"),
                ("train_error", "train", ":", "none"),
            ):
                look = {"color": colour, "fillstyle": fill, "label": f"{name}, {part}"}
                ax.plot(means.index, means[column], line + mark, **look)
        ax.set(xscale="log", xlabel="width k", title=task)
        tick_values(ax, WIDTHS)
    panels[0].set(ylabel="share misclassified")
    panels[1].axhline(0.5, color=BLACK, linestyle="--", label="chance")
    for ax in panels:
        ax.set_ylim(bottom=0)
        ax.legend()
    rows = frame[frame["part"] == "correlation"]
    right.plot(rows["d"], rows["correlation"], "--", color=BLACK, label="closed form, even d")
    right.plot(rows["d"], rows["measured"], "o", color=BLUE, label="Monte Carlo over filters")
    right.set(yscale="log", xlabel="bits d", ylabel="correlation with the parity")
    right.legend()
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say who learns what, and how small the first gradient is."""
    errors = frame[frame["part"] == "error"]
    means = 100 * errors.groupby(["task", "network", "width"])["error"].mean()
    parity = errors.loc[errors["task"] == "parity", "error"]
    train = errors[errors["task"] == "parity"].groupby("network")["train_error"].min()
    correlations = frame[frame["part"] == "correlation"].set_index("d")
    known = correlations.dropna(subset="measured")
    off = (known["measured"] / known["correlation"] - 1).abs().max()
    largest = correlations["correlation"].iloc[-1]
    widths = sorted(errors["width"].astype(int).unique())
    repeats = errors.groupby(["task", "network", "width"])["seed"].nunique()
    by_seed = 100 * errors[errors["task"] == "separable"].pivot(
        index="seed", columns=["width", "network"], values="error"
    )
    ahead = {width: by_seed[width, "GaLU"] - by_seed[width, "ReLU"] for width in widths}
    lead = "; ".join(f"k = {width} {span(lead, '+.2f')}" for width, lead in ahead.items())
    lines = "; ".join(
        f"k = {width}: GaLU {means['separable', 'GaLU', width]:.2f} %, "
        f"ReLU {means['separable', 'ReLU', width]:.2f} %"
        for width in widths
    )
    return (
        f"d = {errors['d'].iloc[0]:.0f}, m = {errors['m'].iloc[0]:,.0f}, "
        f"{errors['steps'].iloc[0]:,.0f} steps, mean of {span(repeats)} repeats.\n\n"
        "- **On separable data all test errors are at most "
        f"{by_seed.to_numpy().max():.1f} %, those of ReLU less than GaLU's by, in points, {lead}; "
        f"on parity all test errors lie between {parity.min():.3f} and {parity.max():.3f}.** The "
        "paper has a visible advantage of ReLU, at widths that are not said. Test errors on "
        f"separable data: {lines}.\n"
        f"- On parity (published: chance) the training error falls to {train['GaLU']:.3f} (GaLU) "
        f"and {train['ReLU']:.3f} (ReLU).\n"
        "- The correlation of parity with gated coordinates agrees with its closed form within "
        f"{100 * off:.1f} % for d up to {known.index.max():.0f}, and is {largest:.0e} at d = "
        f"{correlations.index[-1]:.0f}: no sample of feasible size shows it."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Errors for each width."""
    errors = frame[frame["part"] == "error"].astype({"width": int})
    return errors.groupby(["task", "network", "width"]).mean(numeric_only=True).reset_index()


def verdict(frame: pd.DataFrame, most: float = 0.05) -> Verdict:
    """Judge the claim by the rule."""
    errors = frame[frame["part"] == "error"]
    means = errors.groupby(["task", "network", "width"])["error"].mean()
    fail = bool((means["parity"] - 0.5).abs().max() < 0.02)
    learn = bool((means["separable"] < most).all())
    better = bool((means["separable", "ReLU"] <= means["separable", "GaLU"]).all())
    return Verdict.of(fail and learn and better, fail and learn)


EXPERIMENT = Experiment(measure, found, tabulate, verdict, draw)
