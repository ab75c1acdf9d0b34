"""Names and defaults of options that several layers share; needs no numpy.

The command line offers them without loading a library, and the library checks them.
"""

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from implicit_bias.base.package import table_of

# Those of CVXPY, which need no solver of this package.
CvxpyName: TypeAlias = Literal["ecos", "osqp", "clarabel", "scs"]
CVXPY_NAMES: tuple[CvxpyName, ...] = get_args(CvxpyName)
SolverName: TypeAlias = Literal[
    "auto",
    "interior-point",
    "feature-space",
    "working-set",
    "one-group",
    CvxpyName,
    "highs",
]
SOLVER_NAMES: tuple[SolverName, ...] = get_args(SolverName)
ToyKind: TypeAlias = Literal["xor", "circles", "moons", "spirals", "blobs"]
IMAGE_SETS = ("digits", "mnist", "fashion-mnist")
TOY_KINDS: tuple[ToyKind, ...] = get_args(ToyKind)
DATASET_NAMES = (*IMAGE_SETS, *TOY_KINDS)
ThresholdRule: TypeAlias = Literal["median", "random", "zero"]
# What is done with samples of a file that lack a value.
Missing: TypeAlias = Literal["refuse", "drop", "median"]
OnFailure: TypeAlias = Literal["raise", "warn", "soft", "drop"]
# Relative gap between the certified bounds at which solvers stop.
TOLERANCE = 1e-6


class SolverOptions(NamedTuple):
    """How to solve, in the order in which `solve` takes it: ``solve(problem, *options)``."""

    solver: Any = "auto"  # a name, or a `Solver`, which is above this module
    tol: float = TOLERANCE
    device: str = "cpu"


DEFAULTS = SolverOptions()


class OptimizerLimit(NamedTuple):
    """Implicit bias of an optimizer with full batches, for homogeneous models on separable data.

    Attributes
    ----------
    norm : str
        The norm whose margin it maximizes in a linear model; a homogeneous network converges in
        direction to a KKT point of its max-margin problem. Names are those of
        `norms.tensors.PARAMETER_NORMS`, of optimizers with one norm for all groups.
    scale : str
        How long a step is in that norm, over the rate.
    decay : {"coupled", "decoupled"}
        Whether weight decay is added to the gradient, or shrinks the weights themselves.
    condition : str
        What the limit requires, or what else is known.
    sources : str
        Who proves it.
    classes : tuple of str
        Names of the optimizer's classes.
    constrained : bool
        Whether it usually has weight decay that bounds the weights in that norm. Then it maximizes
        no margin, and minimizes the loss within the bound.
    """

    norm: str
    scale: str
    decay: str
    condition: str
    sources: str
    classes: tuple[str, ...]
    constrained: bool = False


# Norms of a training towards the limit, and its methods (`training.LimitConfig`).
NormName: TypeAlias = Literal["l2", "l1", "linf", "spectral", "nuclear"]
NORM_NAMES: tuple[NormName, ...] = get_args(NormName)
# What other words for a norm mean, in lower case.
NORM_SYNONYMS: dict[str, NormName] = {
    "euclidean": "l2",
    "frobenius": "l2",
    "manhattan": "l1",
    "inf": "linf",
    "max": "linf",
    "chebyshev": "linf",
    "operator": "spectral",
    "trace": "nuclear",
}
Method: TypeAlias = Literal["plain", "momentum", "accelerated"]
METHOD_NAMES: tuple[Method, ...] = get_args(Method)
# "cross-entropy" is the logistic loss, as it is called where there are many classes.
LossName: TypeAlias = Literal["logistic", "exponential", "cross-entropy"]
OptimizerName: TypeAlias = Literal["sgd", "sign", "adam", "adamw", "muon"]
OPTIMIZER_NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)
_OPTIMIZERS = table_of("base/optimizers.toml")
# All optimizers whose limit is known, and of them those that networks are trained by here.
ALL_OPTIMIZER_LIMITS: dict[str, OptimizerLimit] = {}
for _name, _limit in _OPTIMIZERS["limits"].items():
    _limit["classes"] = tuple(_limit["classes"])
    ALL_OPTIMIZER_LIMITS[_name] = OptimizerLimit(**_limit)
OPTIMIZER_LIMITS: dict[OptimizerName, OptimizerLimit] = {
    _name: ALL_OPTIMIZER_LIMITS[_name] for _name in OPTIMIZER_NAMES
}
# Why no limit is known: of a class, and of an option of a class that has one.
NO_OPTIMIZER_LIMIT: dict[str, str] = _OPTIMIZERS["no_limit"]
NO_LIMIT_WITH: dict[str, str] = _OPTIMIZERS["no_limit_with"]


def limit_words(optimizer: OptimizerName) -> str:
    """Say which margin an optimizer maximizes in the limit, if any.

    Examples
    --------
    >>> limit_words("sgd")
    'maximizes the l2 margin in the limit'
    >>> limit_words("adamw")
    'maximizes no margin: weight decay bounds the linf norm, and the loss is minimized in that box'
    """
    limit = OPTIMIZER_LIMITS[optimizer]
    if limit.constrained:
        return (
            f"maximizes no margin: weight decay bounds the {limit.norm} norm, and the loss is "
            "minimized in that box"
        )
    words = f"maximizes the {limit.norm} margin in the limit"
    if limit.condition:
        words += f" ({limit.condition})"
    return words


def optimizer_tables() -> str:
    """Return what is known of each class of optimizers, as two tables in Markdown.

    Examples
    --------
    >>> optimizer_tables().splitlines()[0]
    '| class | norm | length of a step / rate | weight decay | on condition | sources |'
    """
    rows = [
        "| class | norm | length of a step / rate | weight decay | on condition | sources |",
        "|---|---|---|---|---|---|",
    ]
    for limit in ALL_OPTIMIZER_LIMITS.values():
        classes = ", ".join(f"`{name}`" for name in limit.classes)
        cells = [classes, limit.norm, limit.scale, limit.decay, limit.condition, limit.sources]
        rows.append(f"| {' | '.join(cells)} |")
    rows += ["", "| class | why no max-margin limit is known |", "|---|---|"]
    classes_by_reason: dict[str, list[str]] = {}
    for name, reason in NO_OPTIMIZER_LIMIT.items():
        classes_by_reason.setdefault(reason, []).append(f"`{name}`")
    for reason, names in classes_by_reason.items():
        rows.append(f"| {', '.join(names)} | {reason} |")
    return "\n".join(rows)
