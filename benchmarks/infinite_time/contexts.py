"""When has a ReLU network finished choosing its contexts? SVM-LC along its training.

Source: Lippl, Abbott, Chung (2022), section 5, for SVM-LC; the trajectory is not in the paper.
"""

from __future__ import annotations

from dataclasses import asdict

import pandas as pd

from benchmarks.harness import Experiment, Rows, Tabular, Verdict, whole
from implicit_bias.base.wording import percent
from implicit_bias.report.figures.trajectory import trajectory_figure
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data
from implicit_bias.runs.trajectory import context_trajectory


def measure(quick: bool) -> Rows:
    """Take the gates at some steps of one training, and solve for each."""
    setting = (
        RunConfig(dataset="digits", train_size=100, units=10, steps=100)
        if quick
        else RunConfig(dataset="mnist", protocol="lippl2022", train_size=1000, units=50)
    )
    return (asdict(point) for point in context_trajectory(setting, load_data(setting)))


def found(frame: pd.DataFrame) -> str:
    """Say when the gates flip, and when they are good."""
    first, last = frame.iloc[0], frame.iloc[-1]
    early = frame.iloc[1]
    better = frame[frame["error"] < first["error"]]
    since = better["step"].iloc[0] if len(better) else last["step"]
    return (
        f"One network. **At the start {percent(first['gates_left'])} of its gates are unlike those "
        f"at the end, after {early['step']:.0f} steps {percent(early['gates_left'])}, where it is "
        f"wrong on {percent(early['network_error'])}; the contexts become better than random ones "
        f"from step {since:.0f} on.** From random to learned contexts the SVM's error falls from "
        f"{percent(first['error'])} to {percent(last['error'])}: that share of the network's "
        "generalization is context learning."
    )


def verdict(frame: pd.DataFrame, part: float = 0.5) -> Verdict:
    """Judge the claim by the rule."""
    early, last = frame.iloc[1], frame.iloc[-1]
    flips = early["gates_left"] <= part * frame["gates_left"].iloc[0]
    learns = last["error"] < frame["error"].iloc[0]
    return Verdict.of(flips and learns, flips or learns)


def tabulate(frame: pd.DataFrame) -> Tabular:
    """Errors and disagreements at each step."""
    columns = {
        "gates unlike the first": "gates_changed",
        "unlike the last": "gates_left",
        "network's error": "network_error",
        "SVM-LC's error": "error",
        "disagreement, network of this step": "disagreement",
        "trained network": "disagreement_at_end",
    }
    cells = {name: frame[column].map(percent) for name, column in columns.items()}
    return {"step": frame["step"].astype(str), **cells}


EXPERIMENT = Experiment(whole(measure), found, tabulate, verdict, trajectory_figure)
