"""Steps of the logistic loss beyond its curvature: when the loss falls for good, and how fast then.

Of z_n = y_n x_n with length at most 1 the mean logistic loss has curvature 1/4 at most, so that
steps of size up to 8 lower it always. Larger ones may raise it at first.

Source: Wu, Bartlett, Telgarsky, Yu (2024).
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy.special

from benchmarks.drawing import Figure, common_legend, curves, subplots
from benchmarks.harness import Row, Rows, Verdict, tabled
from benchmarks.optimizers import speed
from benchmarks.sizes import grid, log_spaced, sized

# How far the product eta t loss may rise above that of the smallest step at a tenth of its steps.
ABOVE = 2.0


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: images of MNIST (published split), steps, and their sizes."""

    samples: int = 200
    steps: int = 30_000
    step_sizes: tuple[float, ...] = (8.0, 100.0, 1000.0, 10_000.0)


QUICK = Sizes(samples=20, steps=300, step_sizes=(8.0, 100.0))


def settings(sizes: Sizes) -> list[Row]:
    """Every step size once."""
    return grid(eta=sizes.step_sizes)


def rows(sizes: Sizes, eta: float) -> Rows:
    """One row a recorded step: the loss, and the last step so far that raised it."""
    _, _, Z = speed.posed(speed.Sizes(samples=sizes.samples))
    w, before, risen = np.zeros(Z.shape[1]), np.inf, 0
    kept = set(log_spaced(sizes.steps, speed.POINTS))
    for step in range(sizes.steps + 1):
        margins = Z @ w
        loss = float(np.logaddexp(0.0, -margins).mean())
        if loss > before:
            risen = step
        if step in kept:
            yield {"step": step, "loss": loss, "risen": risen}
        w, before = w + eta * scipy.special.expit(-margins) @ Z / len(Z), loss


@tabled
def ends(frame: pd.DataFrame) -> Rows:
    """Return a row a step size: its last rise, and the power and the factor of the loss after."""
    for (eta,), run in frame.groupby(["eta"], sort=False):
        risen = run["risen"].iloc[-1]
        late = run[run["step"] > max(10 * risen, run["step"].max() / 10)]
        after = late["step"] - risen
        power = np.polyfit(np.log(after), np.log(late["loss"]), 1)[0] if len(late) > 1 else np.nan
        product = eta * after * late["loss"]
        first, most = product.head(1).max(), product.max()
        yield {"eta": eta, "risen": risen, "power": power, "first": first, "product": most}


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    table = ends(frame)
    each = "; ".join(
        f"{row['risen']:,} and {row['product']:,.0f} (eta {row['eta']:,g})"
        for row in table.to_dict("records")
    )
    return f"**Steps until the loss falls for good, and the most of eta t loss then: {each}.**"


def verdict(frame: pd.DataFrame, above: float = ABOVE) -> Verdict:
    """Judge the claim by the rule."""
    table = ends(frame)
    large = table[table["risen"] > 0]
    pace = large["risen"] / large["eta"]
    ended = len(pace) > 1 and (pace <= pace.iloc[0]).all()
    bounded = (table["product"] <= above * table["first"].iloc[0]).all()
    return Verdict.of(ended and bounded, ended or bounded)


def draw(frame: pd.DataFrame) -> Figure:
    """Losses against steps."""
    figure, ax = subplots((6.0, 3.8), grid="both")
    curves(ax, frame.assign(eta=frame["eta"].map("eta {:,g}".format)), "eta", "step", "loss")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylabel="mean logistic loss")
    return common_legend(figure, [ax], 4)


EXPERIMENT = sized(settings, rows, found, ends, verdict, draw, quick=QUICK)
