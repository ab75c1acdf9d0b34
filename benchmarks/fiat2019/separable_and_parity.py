"""Linearly separable data and full parity in d = 100: GaLU and ReLU networks fare alike.

Inputs uniform on {-1, 1}^d; the label is the sign of a random linear function, or the product of
all bits. Left: test error against the number of training samples, k = 64 units; GaLU (hard gates)
and ReLU networks, without bias units, by Adam on the logistic loss; GaLU by least squares; and
linear least squares. Theory: 1/2 for parity. Right: the root mean square correlation of the parity
of d bits with a gated coordinate (the gradient at initialisation, for both networks), against a
Monte Carlo mean over filters; for odd d it is 0.

Source: Fiat, Malach, Shalev-Shwartz (2019) state that both networks fail together; the correlation
is ours.
"""

from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.ticker import NullFormatter
from torch import Tensor
from torch.nn.functional import softplus

from benchmarks.fiat2019.gated_layers import GatedLayers, Kind, as_tensors, train
from benchmarks.fiat2019.parity_correlation import parity_correlation
from benchmarks.harness import Experiment, Verdict, middle_of, whole
from implicit_bias.gating import Gating, NoGates, UnitGates
from implicit_bias.problem import gated_linear
from implicit_bias.report.style import BLACK, BLUE, GREEN, GREY, VERMILION
from implicit_bias.theory.gated_least_squares import least_squares
from implicit_bias.validation import Array

LARGEST_CUBE = 12
CLOSED = "GaLU, closed form"
COLOURS = {"GaLU": BLUE, "ReLU": VERMILION, CLOSED: GREY, "linear": GREEN}


def logistic(outputs: Tensor, labels: Tensor) -> Tensor:
    """Mean logistic loss."""
    return softplus(-outputs * labels).mean()


def monte_carlo(d: int, filters: int) -> float:
    """Root mean square correlation over random filters, exact in the 2^d inputs."""
    cube = np.array(list(itertools.product((-1.0, 1.0), repeat=d)))
    gates = UnitGates.random(
        cube, filters, threshold="zero", firing=">", always_on=False, random_state=d
    ).gates(cube)
    correlations = (cube.prod(axis=1)[:, None] * gates).T @ cube / len(cube)
    return float(np.sqrt(np.mean(correlations**2)))


def least_squares_error(
    gating: Gating, train_set: tuple[Array, Array], test: tuple[Array, Array]
) -> float:
    """Test error of least squares on the labels."""
    X, y = train_set
    found = least_squares(X, gating.gates(X), y)
    decision = gated_linear(test[0], gating.gates(test[0]), found.coef)
    return float(np.mean(decision * test[1] <= 0))


def trained_error(
    kind: Kind,
    train_set: tuple[Array, Array],
    test: tuple[Array, Array],
    width: int,
    seed: int,
    steps: int,
) -> float:
    """Test error of a network trained by Adam."""
    X, y = as_tensors(train_set[0], train_set[1][:, None])
    network = GatedLayers([X.shape[1], width, 1], kind, bias=False, seed=seed)
    train(network, X, y, logistic, steps=steps, rate=0.01, batch_size=128)
    with torch.inference_mode():
        outputs = network(as_tensors(test[0])[0])[:, 0].numpy()
    return float(np.mean(outputs * test[1] <= 0))


def measure(quick: bool) -> pd.DataFrame:
    """Measure test errors by task and sample size, and correlations by dimension."""
    d, sizes, width, tests, seeds, steps = (
        (20, (50, 100), 8, 500, 1, 50)
        if quick
        else (100, (250, 500, 1000, 2000), 64, 4000, 2, 1500)
    )
    rows = []
    for seed, m in itertools.product(range(seeds), sizes):
        rng = np.random.default_rng([seed, m])
        X = rng.choice([-1.0, 1.0], size=(m + tests, d))
        labels = {"linear": np.sign(X @ rng.normal(size=d)), "parity": X.prod(axis=1)}
        gating = UnitGates(rng.normal(size=(width, d)), np.zeros(width))
        for task, y in labels.items():
            parts = (X[:m], y[:m]), (X[m:], y[m:])
            errors = {
                "GaLU": trained_error("hard", *parts, width, seed, steps),
                "ReLU": trained_error("relu", *parts, width, seed, steps),
                CLOSED: least_squares_error(gating, *parts),
                "linear": least_squares_error(NoGates(d), *parts),
            }
            rows += [
                {"part": "error", "d": d, "m": m, "seed": seed, "task": task, "network": name}
                | {"error": error}
                for name, error in errors.items()
            ]
    largest, filters = (6, 200) if quick else (LARGEST_CUBE, 2000)
    for d in range(2, 101 if not quick else 20, 2):
        row = {"part": "correlation", "d": d, "correlation": parity_correlation(d)}
        rows.append(row | {"measured": monte_carlo(d, filters) if d <= largest else np.nan})
    return pd.DataFrame(rows)


def draw(frame: pd.DataFrame) -> Figure:
    """Draw errors against the sample size, and correlations against the dimension."""
    figure = Figure(figsize=(8.8, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    errors = frame[frame["part"] == "error"]
    left.axhline(0.5, color=BLACK, linestyle="--", label="chance")
    for name, colour in COLOURS.items():
        for task, line in (("parity", "-o"), ("linear", ":o")):
            rows = errors[(errors["network"] == name) & (errors["task"] == task)]
            means = rows.groupby("m")["error"].mean()
            left.plot(means.index, means, line, color=colour, label=f"{name}: {task}")
    left.set(xscale="log", ylim=(0, 0.6), xlabel="training samples", ylabel="test error")
    sizes = sorted(errors["m"].astype(int).unique())
    left.set_xticks(sizes, [str(size) for size in sizes])
    left.xaxis.set_minor_formatter(NullFormatter())
    left.legend(ncols=2, title="network: labels")
    rows = frame[frame["part"] == "correlation"]
    right.plot(rows["d"], rows["correlation"], "--", color=BLACK, label="closed form, even d")
    right.plot(rows["d"], rows["measured"], "o", color=BLUE, label="Monte Carlo over filters")
    right.set(yscale="log", xlabel="bits d", ylabel="correlation with the parity")
    right.legend()
    return figure


def found(frame: pd.DataFrame) -> str:
    """Say who learns what, and how small the first gradient is."""
    errors = frame[frame["part"] == "error"]
    linear = mean_errors(frame).xs("linear", level="task").unstack("network")
    ratio, closed = linear["GaLU"] / linear["ReLU"], linear[CLOSED] / linear["GaLU"]
    parity = errors.loc[errors["task"] == "parity", "error"]
    correlations = frame[frame["part"] == "correlation"].set_index("d")
    known = correlations.dropna(subset="measured")
    off = (known["measured"] / known["correlation"] - 1).abs().max()
    largest = correlations["correlation"].iloc[-1]
    return (
        f"d = {errors['d'].iloc[0]:.0f}, mean of {errors['seed'].nunique()} draw(s).\n\n"
        "- Linearly separable labels: both networks learn alike, GaLU with "
        f"{ratio.min():.2f} to {ratio.max():.2f} times the error of ReLU. So does linear least "
        f"squares, which needs no gates. The closed form has {closed.iloc[0]:.2f} times the error "
        f"of GaLU at m = {closed.index[0]}, {closed.iloc[-1]:.2f} times at m = {closed.index[-1]}: "
        "it interpolates all labels with the least norm, a poor choice on the way to m = kd.\n"
        f"- Parity: all errors lie between {parity.min():.3f} and {parity.max():.3f}, also of the "
        "closed form, which interpolates its training samples.\n"
        f"- The correlation of parity with gated coordinates, which is the first gradient of both "
        f"networks, agrees with its closed form within {100 * off:.1f} % for d up to "
        f"{known.index.max():.0f}, and is {largest:.0e} at d = "
        f"{correlations.index[-1]:.0f}: no sample of feasible size shows it. For odd d it is "
        "0, for every filter."
    )


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Test errors for each number of samples."""
    rows = mean_errors(frame).map("{:.3f}".format).unstack(["network", "task"])
    rows = rows[[(name, task) for task in ("linear", "parity") for name in COLOURS]]
    rows.columns = rows.columns.map("{0[0]}: {0[1]} labels".format)
    return rows.rename_axis("samples m").reset_index().astype(str)


def mean_errors(frame: pd.DataFrame) -> pd.Series:
    """Means over the draws, for each number m of samples, task and network."""
    errors = frame[frame["part"] == "error"].astype({"m": int})
    return errors.groupby(["m", "task", "network"])["error"].mean()


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    errors = frame[frame["part"] == "error"]
    parity = errors.loc[errors["task"] == "parity", "error"]
    fail = (parity - 0.5).abs().max() < 0.05
    linear = mean_errors(frame).xs("linear", level="task").unstack("network")[["GaLU", "ReLU"]]
    learn = bool((linear.diff().iloc[1:] < 0).all(axis=None) and (linear.iloc[-1] < 0.1).all())
    return Verdict.of(fail and learn, fail or learn)


EXPERIMENT = Experiment(
    claim=(
        "Theorem 4 makes the failure of ReLU and of GaLU networks equivalent. Both learn linearly "
        "separable data, neither learns the parity of all d = 100 bits. (The theorem's wording was "
        "not at hand. What we check: gradient descent on either begins with the same gradient, of "
        "the gates as drawn, and for parity that gradient is next to nothing.)"
    ),
    how=middle_of(__doc__),
    measure=whole(measure),
    draw=draw,
    found=found,
    rule=(
        "It stands if all errors on parity are within 0.05 of guessing, and those of both "
        "networks on linear labels fall with m to less than 0.1."
    ),
    verdict=verdict,
    tabulate=tabulate,
    alt="Test errors against the sample size, and the correlation with parity against d",
)
