"""What a comparison depends on: data, architecture, seeds, training and solver.

The command line has an option for each field (`cli.options`), a sweep a key (`runs.sweep`), and
`runs.models` makes models of a configuration. Nothing here imports torch or numpy before a
configuration is made, so that ``--help`` answers at once.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, TypeAlias, get_args

from implicit_bias.base import options

# Each model, and what it is: a report says so below its title.
MODEL_MEANINGS = {
    "gd-gln": "gated linear network (GLN), trained by gradient descent",
    "local-gln": "the same network, trained locally: each unit predicts the label itself",
    "svm-gln": "SVM on the gates of gd-gln, in the sum of the units’ norms: its predicted limit",
    "svm-l2": "SVM on the same gates, in one Euclidean (l2) norm over all joint contexts",
    "svm-shallow": "SVM of one layer, with a weight vector for each joint context that occurs",
    "svm-linear": "linear SVM, without gates",
    "gd-relu": "ReLU network, trained by gradient descent",
    "svm-rc": "SVM on random contexts: random 0/1 gates, and one unit that is always on",
    "svm-lc": "SVM on learned contexts: the gates that gd-relu has learned",
    "svm-hl": "linear SVM on the hidden layer of gd-relu",
}
MODEL_NAMES = tuple(MODEL_MEANINGS)

# Fields of `RunConfig` that belong together.
DATA = (
    *("dataset", "data", "target", "positive", "negative", "classes", "id", "missing"),
    *("standardize", "train_size", "split_seed"),
)
ARCHITECTURE = ("units", "hyperplanes", "threshold", "seed")
TRAINING = ("steps", "batch_size", "learning_rate", "momentum", "optimizer")
# Those that a training towards the limit takes.
LIMIT = (*DATA, *ARCHITECTURE, "device")

# What the name of a model ends with that was trained towards its limit, what it is, the excess that
# is wanted there, and the most steps where no other number is asked for.
LIMIT_SUFFIX = "-limit"
LIMIT_MEANING = (
    "the same network, trained again from the same initial weights, by accelerated full-batch "
    "descent, until near its limit"
)
WANTED_EXCESS = 0.01
WANTED_STEPS = 100_000

Labels: TypeAlias = tuple[int, ...] | tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Data, architecture, seeds and training of a comparison.

    ``implicit-bias compare --help`` prints what each field means. The training defaults are those
    of `TrainingConfig`, but for the momentum. Lists are kept as tuples, and whole numbers where a
    decimal is meant as decimals: equal configurations compare equal, however they were written.

    Raises
    ------
    TypeError, ValueError
        A value of the wrong type, a name or number out of its range, or fields that contradict
        each other.
    """

    # Data: a built-in set, or a table of the user's own, and its split.
    dataset: str = "digits"
    data: str | None = None
    target: str | None = None
    positive: Labels | None = None
    negative: Labels | None = None
    classes: Labels | None = None
    id: tuple[str, ...] = ()
    missing: options.Missing = "refuse"
    standardize: bool | None = None  # whether the data are a table
    train_size: int | None = None  # min(1000, 4/5 of the samples)
    split_seed: int = 1

    # Models and their architecture. The seed is that of gates, weights and batches.
    models: tuple[str, ...] = ("gd-gln", "svm-gln", "svm-l2")
    units: int = 20
    hyperplanes: int = 1
    threshold: options.ThresholdRule = "median"
    seed: int = 1

    # Hard and soft margins of the SVMs.
    C: float = math.inf
    on_failure: options.OnFailure | None = None  # "soft" for a table, "warn" for a built-in set

    # Training of the networks. A batch size of None, or 0, is all samples.
    steps: int = 3200
    batch_size: int | None = 128
    learning_rate: float = 0.04
    momentum: float = 0.9
    optimizer: options.OptimizerName = "sgd"

    # Solver of the SVMs.
    solver: str = "auto"
    tol: float = options.TOLERANCE
    device: str = "cpu"

    def __post_init__(self) -> None:
        from implicit_bias.base.validation import (
            check_choice,
            check_count,
            check_flag,
            check_number,
            check_seed,
        )
        from implicit_bias.solvers import Tolerances
        from implicit_bias.training.configuration import TrainingConfig

        # Lists of a TOML file become tuples, so that equal configurations are equal.
        for name, value in [*vars(self).items()]:
            if isinstance(value, list):
                self._set(name, tuple(value))

        own_table = self.data is not None
        if self.data is not None:
            self._set("data", os.path.abspath(self.data))  # found again from any folder
        if self.standardize is None:
            self._set("standardize", own_table)
        if self.on_failure is None:
            self._set("on_failure", "soft" if own_table else "warn")
        # Zero is how a command line and a TOML file, which has no null, say "all samples".
        self._set("batch_size", self.batch_size or None)

        check_choice(self.dataset, "dataset", options.DATASET_NAMES)
        check_choice(self.missing, "missing", get_args(options.Missing))
        check_flag(self.standardize, "standardize")
        if self.train_size is not None:
            check_count(self.train_size, "train_size")
        check_seed(self.split_seed, "split_seed")
        for model in self.models:
            check_choice(model, "models", MODEL_NAMES)
        check_count(self.units, "units")
        check_count(self.hyperplanes, "hyperplanes", 0)
        check_choice(self.threshold, "threshold", get_args(options.ThresholdRule))
        check_count(self.seed, "seed", 0)
        check_number(self.C, "C", "(0, inf]")
        check_choice(self.on_failure, "on_failure", get_args(options.OnFailure))
        check_choice(self.solver, "solver", options.SOLVER_NAMES)
        Tolerances(gap=self.tol)
        rule: Any = "local" if "local-gln" in self.models else "gradient"
        TrainingConfig(rule=rule, **self.chosen(*TRAINING))
        # 0 and 0.0 are one value, but would be two in the text that a cell's key is a hash of.
        for name in ("C", "learning_rate", "momentum", "tol"):
            self._set(name, float(getattr(self, name)))

        if len(self.models) == 0 or len(set(self.models)) < len(self.models):
            raise ValueError(
                f"models must name each model once, and one at least; got {list(self.models)}"
            )
        if own_table and self.dataset != "digits":
            raise ValueError(f"choose one of --data {self.data} and --dataset {self.dataset}")
        if not own_table and (self.target is not None or self.id or self.missing != "refuse"):
            raise ValueError("target, id and missing are for a table, named by --data FILE")

    def _set(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    @property
    def solving(self) -> options.SolverOptions:
        """How to solve."""
        return options.SolverOptions(self.solver, self.tol, self.device)

    def chosen(self, *names: str) -> dict[str, Any]:
        """Return the values of these fields."""
        return {name: getattr(self, name) for name in names}

    def metadata(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: lists for tuples, "inf" for infinity.

        Without ``dataset`` where the data are a table, which ``data`` names.
        """
        kept: dict[str, Any] = {}
        for name, value in vars(self).items():
            if isinstance(value, tuple):
                kept[name] = list(value)
            elif value == math.inf:
                kept[name] = "inf"
            else:
                kept[name] = value
        if self.data is not None:
            del kept["dataset"]
        return kept
