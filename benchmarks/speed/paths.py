"""What a start saves: paths of problems, each solved from its neighbour and anew.

Along a path the two solves of each problem follow one another in one process, so that their
times are comparable; times are seconds of the processor, which another program that takes its
share does not lengthen. The first problem of a path has no neighbour: both solve it anew.

C      the default grid: 50 values from where zeta = 0 is a solution to where the margin is hard
N      growing data: some samples more each time
gates  the gates of a ReLU network at steps of its training; and thresholds of contexts that drift,
       by a share of the spread of their projections
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd
import scipy.sparse as sp
import torch

from benchmarks import harness
from benchmarks.words import span
from implicit_bias import MarginProblem, ReLUClassifier, Solution, solve
from implicit_bias.base.wording import percent
from implicit_bias.problem import Architecture
from implicit_bias.runs.configuration import RunConfig
from implicit_bias.runs.data import Data, load_data
from implicit_bias.runs.models import ModelFactory
from implicit_bias.solvers.active_set import ActiveSet
from implicit_bias.solvers.paths import C_grid, solve_path

# Steps of training between two problems of a path over learned gates, from the last one back.
TRAINING_STEPS, STRIDE, LEARNED = 3200, 100, 6
# Thresholds move by this share of their projections' standard deviation between two problems.
DRIFT, DRIFTING = 1e-3, 8


@dataclass(frozen=True)
class Base:
    """What the paths of one size are made of: N training samples and H hidden units."""

    dataset: str
    N: int
    H: int

    @property
    def name(self) -> str:
        """Words for tables."""
        return f"{self.dataset} N={self.N} H={self.H}"

    @cached_property
    def setting(self) -> RunConfig:
        """Data and draws: the published ones on MNIST."""
        return RunConfig(
            dataset=self.dataset,
            protocol="lippl2022" if self.dataset == "mnist" else "default",
            train_size=self.N,
            units=self.H,
            steps=TRAINING_STEPS,
            models=("svm-gln", "gd-relu"),
        )

    @cached_property
    def data(self) -> Data:
        """The split."""
        return load_data(self.setting)

    @cached_property
    def problem(self) -> MarginProblem:
        """Its SVM-GLN."""
        train = self.data.parts.train
        contexts = ModelFactory(self.setting, self.data).contexts
        return Architecture(contexts).problem(train.X, train.y)

    def over_C(self) -> Iterator[MarginProblem]:
        """Take the default grid, ascending."""
        for C in C_grid(self.problem, solve(self.problem)):
            yield replace(self.problem, C=float(C))

    def over_N(self) -> Iterator[MarginProblem]:
        """From a half of the samples to all, a twentieth more each time."""
        for n in np.linspace(0.5, 1.0, 11) * self.N:
            yield self.problem.subset(np.arange(int(n)))

    def over_learned_gates(self) -> Iterator[MarginProblem]:
        """Those of a ReLU network towards the end of its training."""
        train = self.data.parts.train
        steps = tuple(TRAINING_STEPS - STRIDE * k for k in reversed(range(LEARNED)))
        relu = ModelFactory(self.setting, self.data).build("gd-relu")
        relu.set_params(checkpoints=steps).fit(train.X, train.y)
        assert isinstance(relu, ReLUClassifier)
        for network in relu.checkpoints_.values():
            yield network.architecture().problem(train.X, train.y)

    def over_thresholds(self) -> Iterator[MarginProblem]:
        """Drifting in directions of their own."""
        train = self.data.parts.train
        contexts = ModelFactory(self.setting, self.data).contexts
        spread = np.einsum("nd,hkd->nhk", train.X, contexts.weights).std(axis=0)  # (H, k)
        drift = DRIFT * spread * np.random.default_rng(1).normal(size=spread.shape)
        for t in range(DRIFTING):
            moved = replace(contexts, thresholds=contexts.thresholds + t * drift)
            yield Architecture(moved).problem(train.X, train.y)


PATHS: dict[str, Callable[[Base], Iterator[MarginProblem]]] = {
    "C": Base.over_C,
    "N": Base.over_N,
    "thresholds": Base.over_thresholds,
    "learned gates": Base.over_learned_gates,
}
WORDS = {
    "C": "C: 50 values, from zeta = 0 to the hard margin",
    "N": "N: half of the samples to all, a twentieth more each time",
    "thresholds": "thresholds that drift",
    "learned gates": f"gates that a ReLU network learns, every {STRIDE}th step",
}
GRID = [
    (Base("mnist", 500, 10), "C"),
    (Base("mnist", 1000, 20), "N"),
    (Base("mnist", 2000, 100), "N"),
    (Base("mnist", 1000, 20), "thresholds"),
    (Base("mnist", 2000, 100), "thresholds"),
    (Base("mnist", 1000, 50), "learned gates"),
]
QUICK = [(Base("digits", 300, 10), path) for path in PATHS]


def measure_path(base: Base, path: str, tol: float) -> harness.Rows:
    """Rows of a path, one a problem."""
    problems = list(PATHS[path](base))
    # Made anew for each solve: what a problem has computed once would help the second.
    along = solve_path((replace(problem) for problem in problems), tol=tol)
    for index, problem in enumerate(problems):
        warm, warm_seconds = _timed(lambda: next(along))
        cold, cold_seconds = _timed(lambda: solve(replace(problem), tol=tol))  # noqa: B023
        before = problems[max(index - 1, 0)]
        same_shape = before.n_samples == problem.n_samples
        yield {
            "base": base.name,
            "path": path,
            "index": index,
            "N": problem.n_samples,
            "C": problem.C,
            "gates_changed": _share_changed(before, problem) if same_shape else np.nan,
            "warm_seconds": warm_seconds,
            "cold_seconds": cold_seconds,
            "warm_iterations": warm.stats.iterations,
            "cold_iterations": cold.stats.iterations,
            "fell_back": ActiveSet.fell_back in warm.stats.detail,
            "warm_status": warm.status.name,
            "cold_status": cold.status.name,
            "warm_upper": warm.certificate.upper,
            "cold_upper": cold.certificate.upper,
            "support": len(warm.support),
            "tol": tol,
            "threads": torch.get_num_threads(),
        }


def _timed(call: Callable[[], Solution]) -> tuple[Solution, float]:
    start = time.process_time()
    found = call()
    return found, time.process_time() - start


def _share_changed(before: MarginProblem, after: MarginProblem) -> float:
    """Share of the gates that differ."""
    n_samples, n_gates = after.gates.shape
    return (sp.csr_array(before.gates) != sp.csr_array(after.gates)).nnz / (n_samples * n_gates)


@dataclass(frozen=True, kw_only=True)
class PathOptions(harness.Options):
    """What one can ask of it."""

    tol: float = harness.option(1e-6, "certified gap to solve to")


def measure(run: harness.Run[PathOptions]) -> harness.Frames:
    """Solve along the paths that are not in the table; a path is kept as a whole."""
    wanted, tol = QUICK if run.quick else GRID, run.options.tol
    bases = {base.name: base for base, _ in wanted}
    return harness.growing(
        run,
        [{"base": base.name, "path": path, "tol": tol} for base, path in wanted],
        lambda base, path, tol: measure_path(bases[base], path, tol),
    )


def _by_path(frame: pd.DataFrame) -> pd.DataFrame:
    """Sum over the problems of each path."""
    by_path = frame.groupby(["path", "base"], sort=False)
    sums = by_path.agg(
        solves=("index", "size"),
        cold=("cold_seconds", "sum"),
        warm=("warm_seconds", "sum"),
        changed=("gates_changed", "max"),
        fell_back=("fell_back", "sum"),
    )
    return sums.assign(ratio=sums["cold"] / sums["warm"]).reset_index()


def tabulate(frame: pd.DataFrame) -> pd.DataFrame:
    """Seconds of each path, and how much faster it is than its solves."""
    sums = _by_path(frame)
    changed = sums["changed"].map(percent).where(sums["changed"] > 0, "")
    return sums.assign(path=sums["path"].map(WORDS), changed=changed)


def found(frame: pd.DataFrame) -> str:
    """Say where a start helps."""
    sums = _by_path(frame)
    learned = sums["path"] == "learned gates"
    others = sums[~learned]
    lines = [
        f"**A start makes a path {span(others['ratio'], '.1f')} times as fast, and "
        f"{span(sums.loc[learned, 'ratio'], '.1f')} times where gates are learned.** The sums "
        "include the first problem of a path, which has no neighbour. What a solve costs in any "
        "case (the certificate, the look for samples in conflict) is the same on both sides."
    ]
    for row in harness.rows_of(sums[learned]):
        lines.append(
            f"Learned gates are the exception ({row['ratio']:.1f}): gradient descent changes few "
            f"of them ({percent(row['changed'])}), but a hard margin of this kind hangs on them. "
            f"In {row['fell_back']} of {row['solves']} solves the start is told from a near one at "
            "once, and the interior point solves: little is gained or lost."
        )
    return "\n\n".join(lines)


def verdict(frame: pd.DataFrame, least: float = 2.0) -> harness.Verdict:
    """Judge the claim by the rule."""
    return harness.Verdict.each(_by_path(frame)["ratio"] >= least)


EXPERIMENT = harness.Experiment(measure, found, tabulate, verdict, options=PathOptions)
