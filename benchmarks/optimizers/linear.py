"""Linear predictors of many classes: which optimizer reaches the largest margin in which norm."""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from benchmarks.data import SEPARABLE_SETS
from benchmarks.drawing import Figure, common_legend, subplots
from benchmarks.harness import Row, Rows, Verdict, rows_of, tabled
from benchmarks.optimizers.data import NORMS, optima, samples
from benchmarks.optimizers.descent import OPTIMIZERS, iterates, margin
from benchmarks.sizes import log_spaced, margin_share, sized
from benchmarks.words import share_span, span
from implicit_bias.base.wording import percent
from implicit_bias.norms import as_norm
from implicit_bias.report.style import COLOURS, GREY, LINES

# Share of the maximum margin at which a claim of convergence counts as reached.
REACHED = 0.99
# Outside of the theorem: steps that are not normalised, and Adam's epsilon.
OUTSIDE = ("gradient descent", "Adam")
POINTS = 60
NORMALISED = ("normalised GD", "sign descent", "spectral descent", "nuclear descent")
BY_NAME = {optimizer.name: optimizer for optimizer in OPTIMIZERS}


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: the steps of the published sets, and those on digits."""

    sets: tuple[str, ...] = (*SEPARABLE_SETS, "mnist-1000")
    steps: int = 100_000
    digit_steps: int = 10_000


QUICK = Sizes(sets=("k10-sigma1",), steps=200)


def settings(sizes: Sizes) -> list[Row]:
    """Every set once."""
    return [
        {"data": name, "steps": sizes.digit_steps if name.startswith("mnist") else sizes.steps}
        for name in sizes.sets
    ]


def rows(sizes: Sizes, data: str, steps: int) -> Rows:
    """One row an optimizer, step and norm: the margin as a share of the largest."""
    X, y = samples(data)
    bounds = {row["norm"]: row for row in rows_of(optima(data))}
    norms = {name: as_norm(name) for name in NORMS}
    recorded = np.array(log_spaced(steps, POINTS))
    for optimizer in OPTIMIZERS:
        for step, weights in iterates(X, y, optimizer, recorded):
            smallest = margin(X, y, weights)
            for name, norm in norms.items():
                yield {
                    "optimizer": optimizer.name,
                    "step": step,
                    "norm": name,
                    "share": smallest / norm.value(weights) * bounds[name]["upper"],
                    "lower": bounds[name]["lower"],
                    "upper": bounds[name]["upper"],
                }


# --- what a table says -------------------------------------------------------------------------


def own(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows in which an optimizer is measured in the norm it is said to go to."""
    norms = frame["optimizer"].map({name: each.norm for name, each in BY_NAME.items()})
    return frame[frame["norm"] == norms]


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of each set's last step."""
    return frame[frame["step"] == frame["steps"]]


def rate(run: pd.DataFrame) -> float:
    """Exponent a of a shortfall 1 - share like t^a, fitted over the last decade of a run."""
    late = run[(run["step"] >= run["steps"] / 10) & (run["share"] < 1)]
    if len(late) < 3 or (late["share"] <= 0).any():
        return float("nan")
    shortfall = np.log(1 - late["share"].to_numpy())
    return float(np.polyfit(np.log(late["step"].to_numpy()), shortfall, 1)[0])


@tabled
def judged(frame: pd.DataFrame, least: float = REACHED) -> Rows:
    """Judge each optimizer on each set by its share in its own norm, and in the others.

    Columns: optimizer, data, share (in its own norm, at the end), rate, rises (over the last
    decade), elsewhere (its largest share in another norm), ahead (whether it rises and is larger
    than that), there (whether it is also what is asked for).
    """
    last = at_end(frame)
    for (name, data), run in own(frame).groupby(["optimizer", "data"], sort=False):
        share = at_end(run)["share"].iloc[0]
        of_run = last[(last["data"] == data) & (last["optimizer"] == name)]
        others = of_run[of_run["norm"] != run["norm"].iloc[0]]
        rises = share > run[run["step"] <= run["steps"] / 10]["share"].iloc[-1]
        ahead = rises and share > others["share"].max()
        yield {
            "optimizer": name,
            "data": data,
            "share": share,
            "rate": rate(run),
            "rises": rises,
            "elsewhere": others["share"].max(),
            "ahead": ahead,
            "there": ahead and share >= least,
        }


def outcome(runs: pd.DataFrame) -> Verdict:
    """Judge one optimizer's claim by its rows of `judged`: those that separate the samples."""
    runs = runs[runs["share"] > 0]
    if runs.empty:
        return Verdict.OPEN
    return Verdict.limit(runs["there"], runs["ahead"])


def found(frame: pd.DataFrame) -> str:
    """Say what the table says, optimizer by optimizer."""
    runs = judged(frame)
    inside = runs[~runs["optimizer"].isin(OUTSIDE)]
    gap = ((frame["upper"] - frame["lower"]) / frame["upper"]).max()
    lines = [
        f"All maximum margins are certified, to a relative gap of {gap:.1g} at most; no optimizer "
        f"exceeds one (the largest share is {percent(frame['share'].max(), 1)})."
    ]
    plain = runs[runs["optimizer"].isin(NORMALISED)]
    digits = plain["data"].str.startswith("mnist")
    clusters = plain[~digits]
    lines[0] += (
        f" **On clusters normalised steps end with {share_span(clusters['share'])} of the "
        f"largest margin in the norm of their theorem, and with "
        f"{share_span(clusters['elsewhere'])} in the best of the others"
        f"{_on_digits(plain[digits], frame)}; {int(inside['rises'].sum())} of "
        f"{len(inside)} shares in these norms still rise.**"
    )
    for name, of_name in runs.groupby("optimizer", sort=False):
        claim = BY_NAME[str(name)]
        shares = "; ".join(
            f"{row['data']} {margin_share(row['share'], 1)} (in other norms at most "
            f"{margin_share(row['elsewhere'], 1)})"
            for row in rows_of(of_name)
        )
        lines.append(
            f"- **{name}** goes to the largest margin in {claim.norm} ({claim.source}; "
            f"{claim.conditions}): {_said(claim.name, outcome(of_name))}. At the end: {shares}."
        )
    return "\n".join([lines[0], "", *lines[1:]])


def _on_digits(runs: pd.DataFrame, frame: pd.DataFrame) -> str:
    """Say the shares on digits, and who is ahead in another norm there."""
    if runs.empty:
        return ""
    steps = frame.loc[frame["data"].isin(runs["data"]), "steps"].max()
    behind = "".join(
        f", {row['optimizer']} with more in another norm ({percent(row['share'])} against "
        f"{percent(row['elsewhere'])})"
        for row in rows_of(runs[runs["share"] < runs["elsewhere"]])
    )
    return f"; on MNIST, after {steps:,} steps, with {span(runs['share'], percent)}{behind}"


def verdict(frame: pd.DataFrame, least: float = REACHED) -> Verdict:
    """Judge all claims together by the rule."""
    runs = judged(frame, least)
    inside = runs[~runs["optimizer"].isin(OUTSIDE) & (runs["share"] > 0)]
    each = {outcome(of_name) for _, of_name in inside.groupby("optimizer")}
    return Verdict.FALLS if Verdict.FALLS in each else outcome(inside)


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Shares at the end in the norm of the claim, with fitted and predicted rates."""
    runs = judged(frame)
    known = [BY_NAME[name] for name in runs["optimizer"]]
    runs = runs.assign(norm=[each.norm for each in known], theory=[each.rate for each in known])
    for column in ("share", "elsewhere"):
        runs[column] = [margin_share(share, 1) for share in runs[column]]
    return runs


def _said(name: str, verdict: Verdict) -> str:
    """Say what becomes of a claim; a run that ends too early says nothing against it."""
    if name in OUTSIDE:
        return "outside of the theorem, and not judged"
    return "too early to say" if verdict is Verdict.OPEN else verdict.value


# --- the picture -------------------------------------------------------------------------------


def draw(frame: pd.DataFrame) -> Figure:
    """Each set: finger-prints, and the shortfall in each optimizer's own norm against steps."""
    sets = list(dict.fromkeys(frame["data"]))
    figure, panels = subplots((9.6, 3.0 * len(sets) + 0.6), len(sets), 2, squeeze=False)
    for (ax, curves), data in zip(panels, sets, strict=True):
        of_set = frame[frame["data"] == data]
        _finger_print(ax, at_end(of_set))
        ax.set_title(f"{data}, {of_set['steps'].iloc[0]:,} steps")
        _shortfalls(curves, own(of_set))
    return common_legend(figure, panels[:, 1], 4)


def _finger_print(ax: Axes, last: pd.DataFrame) -> None:
    """Shares by optimizer and norm; a frame around the norm of each optimizer's claim."""
    names = [each.name for each in OPTIMIZERS]
    shares = last.pivot(index="optimizer", columns="norm", values="share").loc[names, list(NORMS)]
    ax.imshow(np.clip(shares, 0, 1), cmap="Blues", vmin=0, vmax=1.15, aspect="auto")
    for row, name in enumerate(names):
        for column, share in enumerate(shares.to_numpy()[row]):
            ax.text(
                column,
                row,
                f"{100 * share:.0f}" if share > 0 else "·",
                ha="center",
                va="center",
                fontsize=8,
                color="white" if share > 0.7 else "black",
            )
        place = (NORMS.index(BY_NAME[name].norm) - 0.5, row - 0.5)
        ax.add_patch(Rectangle(place, 1, 1, fill=False, edgecolor=COLOURS[1], linewidth=1.8))
    ax.set_xticks(range(len(NORMS)), NORMS)
    ax.set_yticks(range(len(names)), names)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)


def _shortfalls(ax: Axes, runs: pd.DataFrame) -> None:
    for place, (name, run) in enumerate(runs.groupby("optimizer", sort=False)):
        shortfall = (1 - run["share"]).clip(lower=1e-6)
        line = LINES[place % len(LINES)]
        colour = COLOURS[place % len(COLOURS)]
        # Of Adam with and without epsilon the curves are the same: one over the other.
        over = name == "Adam, epsilon 0"
        line, width = (":", 2.6) if over else (line, 1.4)
        ax.plot(
            run["step"], shortfall, color=colour, linestyle=line, linewidth=width, label=str(name)
        )
    ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle=":")
    ax.set(xscale="log", yscale="log", xlabel="steps", ylim=(5e-3, 3.0))
    ax.set_title("1 - margin / certified maximum in the own norm")
    ax.grid(axis="both")


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK)
