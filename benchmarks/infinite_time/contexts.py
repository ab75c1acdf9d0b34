"""When has a ReLU network finished choosing its contexts? SVM-LC along its training.

Source: Lippl, Abbott, Chung (2022), section 5, for SVM-LC; the trajectory is not in the paper.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import pandas as pd
from matplotlib.figure import Figure

from benchmarks.harness import Judged, Row, Rows, Verdict, otherwise
from benchmarks.infinite_time.trajectory import context_trajectory, trajectory_figure
from benchmarks.sizes import grid, sized
from benchmarks.words import span
from implicit_bias.base.wording import percent
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import load_data

# Gates unlike those at the end, over those at the start, and share of the networks: of the rules.
LEFT, MOST = 0.5, 0.5


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Data and width as published, numbers of samples, and seeds of networks."""

    dataset: str = "mnist"
    units: int = 50
    steps: int = 3200
    samples: tuple[int, ...] = (500, 1000, 2000)
    seeds: int = 10


QUICK = Sizes(dataset="digits", units=10, steps=100, samples=(100,), seeds=2)


def settings(sizes: Sizes) -> list[Row]:
    """Networks, each with its own draw of weights."""
    return grid(samples=sizes.samples, seed=range(1, sizes.seeds + 1))


def rows(sizes: Sizes, samples: int, seed: int) -> Rows:
    """Take the gates at some steps of one training, and solve for each."""
    config = RunConfig(
        dataset=sizes.dataset,
        train_size=samples,
        units=sizes.units,
        steps=sizes.steps,
        seed=seed,
    )
    return (asdict(point) for point in context_trajectory(config, load_data(config)))


def by_network(frame: pd.DataFrame) -> pd.DataFrame:
    """Return what decides, a row a network: gates unlike the last ones, and errors."""

    def decides(run: pd.DataFrame) -> pd.Series[float]:
        first, early, last = run.iloc[0], run.iloc[1], run.iloc[-1]
        no_better = run["step"][run["error"] >= first["error"]].max()
        return pd.Series(
            {
                "left": first["gates_left"],
                "left early": early["gates_left"],
                "network early": early["network_error"],
                "error": first["error"],
                "error at end": last["error"],
                "better from": run["step"][run["step"] > no_better].min(),
            }
        )

    networks = {key: decides(run) for key, run in frame.groupby(["samples", "seed"])}
    return pd.DataFrame(networks).T


def found(frame: pd.DataFrame) -> str:
    """Say when the gates flip, and when they are good."""
    networks = by_network(frame)
    shares = {name: span(networks[name], percent) for name in networks}
    return (
        f"After {second_step(frame)} steps {shares['left early']} of the gates are unlike those at "
        f"the end ({shares['left']} at the start), and networks are wrong on "
        f"{shares['network early']}. From random to learned contexts the SVM's error falls from "
        f"{shares['error']} to {shares['error at end']}."
    )


def second_step(frame: pd.DataFrame) -> int:
    """Return the first step after the start."""
    return sorted(set(frame["step"]))[1]


def judge(frame: pd.DataFrame) -> dict[str, Judged]:
    """Judge each claim by its rule."""
    networks = by_network(frame)
    learns = networks["error at end"] < networks["error"]
    part = networks["left early"] / networks["left"]
    of = f"of {len(networks)} networks"
    return {
        "learned": Judged(
            Verdict.each(learns, MOST),
            f"{learns.sum()} {of} learn contexts that are better than random ones, the first from "
            f"step {networks['better from'].min():g} on, the last from step "
            f"{networks['better from'].max():g}.",
        ),
        "early": Judged(
            Verdict.each(part <= LEFT, MOST),
            f"After {second_step(frame)} steps the gates that differ from those at the end are "
            f"{span(part, percent)} as many as at the start: half or fewer in "
            f"{(part <= LEFT).sum()} {of}.",
            remark=otherwise(Verdict.each(part <= LEFT / 2, MOST), "a quarter left"),
        ),
    }


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Medians at each step, of the networks of one number of samples."""
    return frame.groupby(["samples", "step"]).median(numeric_only=True).reset_index()


def draw(frame: pd.DataFrame) -> Figure:
    """Medians of the networks of the middle number of samples, along their training."""
    sizes = sorted(set(frame["samples"]))
    middle = frame[frame["samples"] == sizes[len(sizes) // 2]]
    return trajectory_figure(middle.groupby("step").median(numeric_only=True).reset_index())


EXPERIMENT = sized(settings, rows, found, tabulate, draw=draw, judge=judge, quick=QUICK)
