"""A run's configuration: everything that one comparison depends on.

The defaults, the choices and the help texts of the command line stand here and nowhere else, so
this module imports neither torch nor numpy before a configuration is made; `runs.models` makes
models of one.
"""

import math
import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import Field, dataclass, field, fields
from reprlib import repr as cut
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from implicit_bias.base import options

T = TypeVar("T")

# Each model, and what it is: a report says so below its title.
MODEL_MEANINGS = {
    "gd-gln": "gated linear network (GLN), trained by gradient descent",
    "local-gln": "the same network, trained locally: each unit predicts the label itself",
    "svm-gln": "SVM on the network’s gates under the sum of its units’ norms, which is its limit",
    "svm-l2": "SVM on the same gates under one Euclidean (l2) norm over all joint contexts",
    "svm-shallow": "SVM of one layer, with a weight vector for each joint context that occurs",
    "svm-linear": "linear SVM, without gates",
    "gd-relu": "ReLU network, trained by gradient descent",
    "svm-rc": "SVM on random contexts: random 0/1 gates, and one unit that is always on",
    "svm-lc": "SVM on learned contexts: the gates that gd-relu has learned",
    "svm-hl": "linear SVM on the hidden layer of gd-relu",
}
MODEL_NAMES = tuple(MODEL_MEANINGS)

# "sgd goes to l2, sign to linf, ..."
LIMIT_NORMS = ", ".join(
    f"{name} goes to {limit.norm}" for name, limit in options.OPTIMIZER_LIMITS.items()
)


def option(
    default: T,
    group: str,
    *,
    also: str = "",
    choices: tuple[str, ...] = (),
    least: int | None = None,
    most: int | None = None,
    within: str = "",
) -> T:
    """Declare a field of `RunConfig`.

    Parameters
    ----------
    default : object
        Its default.
    group : str
        Heading that it stands under in the help of the command line.
    also : str
        What the help of the command line says beside the docstring's line on it.
    choices : tuple of str
        The names that it may take; empty for any value.
    least, most : int, optional
        The smallest and the largest whole number that it may be.
    within : str
        Interval that it must be in, as in `check_number`; None is allowed, too.
    """
    limits = {"choices": choices, "least": least, "most": most, "within": within}
    return field(default=default, metadata={"group": group, "also": also, **limits})


@dataclass(frozen=True, kw_only=True)
class RunConfig:
    """Data, architecture, seeds and training of a comparison.

    ``implicit-bias compare --help`` prints what each field means. Of the defaults, those of
    training are the ones of `TrainingConfig` but for the momentum.

    Parameters
    ----------
    dataset
        Data set.
    data
        A table of your own instead: CSV, TSV or Parquet.
    target
        Its column that holds the labels.
    positive
        Classes that are +1, such as 0,1,2 or sneaker (default 0,1,2,3,4; the second of two).
    negative
        Classes that are -1, such as 7,8 (default 5,6,7,8,9; all others where names are given).
    classes
        Instead of two classes, these, such as 0,1,2 or sneaker,bag,coat; or all.
    id
        Columns of your file that are no inputs, such as name,remark: they are carried along to
        predictions.csv.
    missing
        Rows that lack a value: none may, leave them out, or fill in the median of the training
        samples. Rows without a label are left out with drop and median.
    standardize
        Scale each input to mean 0 and variance 1 over the training samples (default: the numbers of
        a file of your own are scaled, a built-in data set is not).
    train_size
        Training samples N (default 1000, at most 4/5 of the data).
    models
        Models to compare, separated by commas.
    units
        Hidden units H.
    hyperplanes
        Hyperplanes a unit, k: C = 2^k contexts.
    threshold
        Thresholds of the hyperplanes.
    seed
        Seed of gates, weights and batches.
    split_seed
        Seed of the training/validation split.
    C
        Weight of the hinge loss; inf is the hard margin.
    class_weight
        Weights of the classes in the hinge loss of the SVMs: balanced, which gives all classes the
        same sum, or one for each, such as spam=5,ham=1.
    on_failure
        Where samples are not separable: refuse, stop at the proof of that, solve a soft margin, or
        leave out the samples that it misclassifies (default: soft for a file of your own, warn for
        a built-in data set).
    soft_C
        C of the soft margin that soft and drop solve (default 100 / rms feature norm).
    steps
        Gradient steps.
    batch_size
        Samples a step; 0 for all.
    learning_rate
        Step size; a quarter from half way.
    momentum
        Momentum of gradient descent.
    optimizer
        Optimizer.
    solver
        Solver of the SVMs.
    tol
        Relative gap between the certified bounds.
    device
        Where torch computes, such as cpu, cuda or cuda:1.

    Raises
    ------
    ValueError
        A name or number out of its range.
    """

    dataset: str = option("digits", "Data", choices=options.DATASET_NAMES)
    data: str | None = option(None, "Data")
    target: str | None = option(None, "Data")
    positive: tuple[int, ...] | tuple[str, ...] | None = option(None, "Data")
    negative: tuple[int, ...] | tuple[str, ...] | None = option(None, "Data")
    classes: tuple[int, ...] | tuple[str, ...] | None = option(None, "Data")
    id: tuple[str, ...] = option((), "Data")
    missing: options.Missing = option("refuse", "Data", choices=get_args(options.Missing))
    standardize: bool | None = option(None, "Data")
    train_size: int | None = option(None, "Data")
    models: tuple[str, ...] = option(("gd-gln", "svm-gln", "svm-l2"), "Models", choices=MODEL_NAMES)
    units: int = option(20, "Architecture", least=1, most=1_000_000)
    hyperplanes: int = option(1, "Architecture", least=0)
    threshold: options.ThresholdRule = option(
        "median", "Architecture", choices=get_args(options.ThresholdRule)
    )
    seed: int = option(1, "Architecture", least=0)
    split_seed: int = option(1, "Data", least=options.SMALLEST_SEED, most=options.LARGEST_SEED)
    C: float = option(math.inf, "Margin", within="(0, inf]")
    class_weight: tuple[str, ...] | None = option(None, "Margin")
    on_failure: options.OnFailure | None = option(
        None, "Margin", choices=get_args(options.OnFailure)
    )
    soft_C: float | None = option(None, "Margin", within="(0, inf)")
    steps: int = option(3200, "Training", least=1)
    batch_size: int | None = option(128, "Training")
    learning_rate: float = option(0.04, "Training")
    momentum: float = option(0.9, "Training")
    optimizer: options.OptimizerName = option(
        "sgd",
        "Training",
        also=f"on separable data with full batches {LIMIT_NORMS}",
        choices=options.OPTIMIZER_NAMES,
    )
    solver: str = option("auto", "Solver", choices=options.SOLVER_NAMES)
    tol: float = option(options.TOLERANCE, "Solver")
    device: str = option("cpu", "Solver")

    def __post_init__(self) -> None:
        if self.data is not None:  # found again from any folder
            object.__setattr__(self, "data", os.path.abspath(self.data))
        for name in ("standardize", "on_failure"):  # which depend on the data
            if getattr(self, name) is None:
                object.__setattr__(self, name, self.defaults[name])
        # Zero is how a command line and a TOML file, which has no null, say "all samples".
        object.__setattr__(self, "batch_size", self.batch_size or None)
        for described in fields(self):
            _check(described, getattr(self, described.name))
        if len(set(self.models)) < len(self.models):
            raise ValueError(f"models names one twice: {', '.join(self.models)}")
        of_files = ("target", "id", "missing")
        asked = [name for name in of_files if getattr(self, name) != self.defaults[name]]
        if self.data is None and asked:
            raise ValueError(f"{', '.join(asked)}: for a file of your own, named by --data FILE")
        if self.data is not None and self.dataset != "digits":
            raise ValueError(f"choose one of --data {self.data} and --dataset {self.dataset}")
        from implicit_bias.solvers import Tolerances
        from implicit_bias.training.configuration import TrainingConfig

        Tolerances(gap=self.tol)
        rule: Any = "local" if "local-gln" in self.models else "gradient"
        TrainingConfig(rule=rule, **chosen(self, "Training"))

    @property
    def defaults(self) -> dict[str, Any]:
        """What each field is where nothing else is asked, by these data."""
        of_fields = {field.name: field.default for field in fields(self)}
        own_file = self.data is not None
        own = {"standardize": own_file, "on_failure": "soft" if own_file else "warn"}
        return of_fields | own

    @property
    def solving(self) -> options.SolverOptions:
        """How to solve."""
        return options.SolverOptions(self.solver, self.tol, self.device)

    def metadata(self) -> dict[str, Any]:
        """Return the fields as JSON can hold them: lists for tuples, "inf" for infinity.

        Without ``dataset`` where the data are a file of the user's own, which ``data`` names.
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


def model_words(names: Iterable[str]) -> str | None:
    """Say what some models are, a paragraph each; None for no names."""
    return "\n\n".join(f"{name}: {MODEL_MEANINGS[name]}" for name in names) or None


def group(*names: str) -> tuple[str, ...]:
    """Return the fields of `RunConfig` in these groups, or of these names, in their order."""
    return tuple(f.name for f in fields(RunConfig) if {f.name, f.metadata["group"]} & {*names})


def chosen(config: RunConfig, *names: str) -> dict[str, Any]:
    """Return the values of the fields in these groups, or of these names."""
    return {name: getattr(config, name) for name in group(*names)}


def kinds(name: str) -> tuple[Any, ...]:
    """Return the types that a field of `RunConfig` is declared with, one by one."""
    hint = _HINTS[name]
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def typed(name: str, value: Any) -> Any:
    """Return a value as the type that a field of `RunConfig` is declared with.

    Lists are tuples, and 1 and 1.0 are one momentum.

    Raises
    ------
    ValueError
        A value of another type, or that holds one.
    """
    for kind in kinds(name):
        if kind is float and type(value) in (int, float, str):
            # Also text, because JSON has "inf".
            with suppress(ValueError, OverflowError):
                if not math.isnan(number := float(value)):
                    return number
        elif get_origin(kind) is tuple and isinstance(value, list | tuple):
            if all(type(item) is get_args(kind)[0] for item in value):
                return tuple(value)
        elif type(value) is (str if get_origin(kind) is Literal else kind):
            return value
    cure = "write a list"
    if type(value) is not str or not holds_list(name):
        names = (getattr(kind, "__name__", str(kind)) for kind in kinds(name))
        cure = f"its type is {' or '.join(names)}"
    raise ValueError(f"{name} cannot be {cut(value)}: {cure}")


def holds_list(name: str) -> bool:
    """Whether a field of `RunConfig` has several values."""
    return any(get_origin(kind) is tuple for kind in kinds(name))


_HINTS = get_type_hints(RunConfig)


def _check(described: Field[Any], value: Any) -> None:
    """Refuse a value that its field's metadata do not allow."""
    from implicit_bias.base.validation import check_choice, check_count, check_number  # needs numpy

    name, limits = described.name, described.metadata
    if limits["least"] is not None:
        check_count(value, name, limits["least"], limits["most"])
    choices = limits["choices"]
    if limits["within"] and value is not None:
        check_number(value, name, limits["within"])
    elif choices:
        if value == ():
            raise ValueError(f"{name} must name at least one of {', '.join(choices)}")
        for item in value if isinstance(value, tuple) else (value,):
            check_choice(item, name, choices)
