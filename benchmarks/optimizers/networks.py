"""Two-layer networks: how far each optimizer is from a KKT point, in each geometry.

Source: Lyu, Li (2020) for gradient descent; Tsilivis, Vardi, Kempe (2024) for steepest descent in
any norm; Gronich, Vardi (2026) for Adam, Signum and Muon on homogeneous networks.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import pandas as pd
import torch
from torch.nn.functional import softplus

from benchmarks.drawing import Figure, common_legend, look_of, subplots
from benchmarks.harness import Row, Rows, Tabular, Verdict, rows_of, tabled
from benchmarks.sizes import grid, log_spaced, sized
from implicit_bias import Recorder
from implicit_bias.base.options import OptimizerName
from implicit_bias.base.wording import percent
from implicit_bias.datasets import load_mnist, split
from implicit_bias.diagnosis.traps import DiagnosisWarning
from implicit_bias.networks import FrozenGateReLU, Network, ReLUNetwork
from implicit_bias.training.configuration import TrainingConfig
from implicit_bias.training.optimizers import build_optimizer

NORMS = ("l2", "linf", "spectral")
# Optimizers, the norm of the theory, and the first step size.
OPTIMIZERS: dict[OptimizerName, tuple[str, float]] = {
    "sgd": ("l2", 0.1),
    "sign": ("linf", 0.0003),
    "adam": ("linf", 0.001),
    "muon": ("spectral", 0.01),
}
NAMES = {"sgd": "gradient descent", "sign": "sign descent", "adam": "Adam", "muon": "Muon"}
GATES = ("live", "frozen")
# Gap up to which a run is at a KKT point.
AT_LIMIT = 1e-3


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """What is measured: images of MNIST (published split), units, and full-batch steps."""

    samples: int = 100
    units: int = 30
    steps: int = 10_000
    points: int = 9
    seconds: float = 2.0


WHOLE = Sizes()
QUICK = Sizes(samples=10, units=4, steps=300, points=3, seconds=0.2)


def settings(sizes: Sizes) -> list[Row]:
    """Every optimizer on every kind of gates."""
    return grid(gates=GATES, optimizer=OPTIMIZERS)


def rows(sizes: Sizes, gates: str, optimizer: OptimizerName) -> Rows:
    """One row a step and norm: the KKT gap with the best multipliers found."""
    part = split(load_mnist(), sizes.samples, 1).train
    live = ReLUNetwork(part.n_features, (sizes.units,), seed=0, dtype=torch.float64)
    network: Network = live if gates == "live" else FrozenGateReLU(live)
    inputs, labels = network.prepare_samples(part.X, part.y)
    step_size = OPTIMIZERS[optimizer][1]
    config = TrainingConfig(optimizer=optimizer, learning_rate=step_size, momentum=0.0)
    steps = build_optimizer([p for p in network.parameters() if p.requires_grad], config)
    schedule = torch.optim.lr_scheduler.LambdaLR(steps, lambda t: (1 + t / 100) ** -0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DiagnosisWarning)
        recorder = Recorder(network, inputs, part.y, NORMS, seconds=sizes.seconds)
    kept = set(log_spaced(sizes.steps, sizes.points, first=10))
    for step in range(1, sizes.steps + 1):
        steps.zero_grad()
        torch.autograd.backward(softplus(-labels * network(*inputs)).mean())
        steps.step()
        schedule.step()
        if step in kept:
            row = recorder.record(step)
            for norm in NORMS:
                yield {
                    "step": step,
                    "norm": norm,
                    "gap": row[f"gap_{norm}"],
                    "margin": row[f"margin_{norm}"],
                    "error": row["error"],
                }


def at_end(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the last step of each run: a row a run, the gaps in columns by norm."""
    last = frame[frame["step"] == frame["step"].max()]
    table = last.pivot(index=["gates", "optimizer"], columns="norm", values="gap")
    order = [(gates, name) for gates in GATES for name in OPTIMIZERS]
    return table.loc[order, list(NORMS)]


@tabled
def judged(frame: pd.DataFrame) -> Rows:
    """Say of each run whether its own gap is its least one, and whether it fell to the end."""
    for gaps in rows_of(at_end(frame).reset_index()):
        gates, name = gaps["gates"], gaps["optimizer"]
        norm = OPTIMIZERS[name][0]
        of_run = (frame["gates"] == gates) & (frame["optimizer"] == name) & (frame["norm"] == norm)
        separating = frame[of_run & frame["gap"].notna()].sort_values("step")["gap"]
        falls = len(separating) > 1 and separating.iloc[-1] < separating.iloc[0]
        yield {
            "gates": gates,
            "optimizer": name,
            "own": gaps[norm],
            "least": gaps[norm] == min(gaps[each] for each in NORMS),
            "falls": bool(falls),
        }


def found(frame: pd.DataFrame) -> str:
    """Say what the table says."""
    runs = judged(frame)
    good = runs["least"] & runs["falls"]
    ends = "; ".join(
        f"{NAMES[row['optimizer']]}, {row['gates']} gates {percent(row['own'])}"
        for row in rows_of(runs)
    )
    return (
        f"After {frame['step'].max():,} steps the gap in an optimizer's own geometry is: {ends}. "
        f"In {int(good.sum())} of {len(runs)} runs it has fallen and is the least of the three. "
        f"{_reached(runs)} "
        "Gaps in l_inf and the spectral norm are upper bounds: their multipliers are searched for "
        "a limited time."
    )


def _reached(runs: pd.DataFrame) -> str:
    """Say how many runs are at a limit."""
    there = int((runs["own"] <= AT_LIMIT).sum())
    if there:
        return f"{there} of {len(runs)} have reached a KKT point of their norm (gap <= 0.1 %)."
    return (
        f"None has reached a KKT point of its norm: the smallest gap in a run's own geometry is "
        f"{percent(runs['own'].min())}. So where these runs end is not shown here, and the order "
        "of the gaps is no more than a hint."
    )


def verdict(frame: pd.DataFrame) -> Verdict:
    """Judge the claim by the rule."""
    runs = judged(frame)
    good = runs["least"] & runs["falls"]
    return Verdict.of(good.all(), good.any())


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Gaps at the end, by gates, optimizer and norm."""
    last = at_end(frame).reset_index()
    cells = {
        f"gap in {norm}": last[norm].map(lambda gap: percent(gap) if gap == gap else "-")
        for norm in NORMS
    }
    return {
        "gates": last["gates"],
        "optimizer": last["optimizer"].map(NAMES),
        "its norm": last["optimizer"].map(lambda name: OPTIMIZERS[name][0]),
        **cells,
    }


def draw(frame: pd.DataFrame) -> Figure:
    """Gaps against steps: a row of panels for each kind of gates, a panel an optimizer."""
    figure, panels = subplots(
        (2.5 * len(OPTIMIZERS), 5.6), len(GATES), len(OPTIMIZERS), sharex=True, sharey=True
    )
    for row, gates in zip(panels, GATES, strict=True):
        for ax, name in zip(row, OPTIMIZERS, strict=True):
            runs = frame[(frame["gates"] == gates) & (frame["optimizer"] == name)]
            for place, norm in enumerate(NORMS):
                run = runs[runs["norm"] == norm]
                own = norm == OPTIMIZERS[name][0]
                look = look_of(place, markers=True) | {"linewidth": 2.4 if own else 1.0}
                ax.plot(run["step"], run["gap"], markersize=3.5, **look)
            ax.set(xscale="log", ylim=(0, 1.05), title=f"{NAMES[name]}, {gates} gates")
            ax.grid(axis="both")
        row[0].set_ylabel("relative KKT gap")
    for ax in panels[-1]:
        ax.set_xlabel("steps")
    for place, norm in enumerate(NORMS):  # thin, as thick is the own norm of each panel
        look = look_of(place, markers=True) | {"markersize": 3.5, "linewidth": 1.0}
        label = f"gap in {norm} (thick: the optimizer's own)"
        panels[0][0].plot([], [], label=label, **look)
    return common_legend(figure, panels[0][:1], 2)


EXPERIMENT = sized(settings, rows, found, tabulate, verdict, draw, quick=QUICK, whole=WHOLE)
