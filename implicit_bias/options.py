"""Names and defaults of options that several layers share; needs no numpy.

The command line offers them without loading a library, and the library checks them.
"""

from typing import Any, Literal, NamedTuple, TypeAlias, get_args

SolverName: TypeAlias = Literal[
    "auto",
    "interior-point",
    "feature-space",
    "working-set",
    "active-set",
    "multiprecision",
    "ecos",
    "osqp",
    "clarabel",
    "scs",
    "highs",
]
SOLVER_NAMES: tuple[SolverName, ...] = get_args(SolverName)
ToyKind: TypeAlias = Literal["xor", "circles", "moons", "spirals", "blobs"]
IMAGE_SETS = ("digits", "mnist", "fashion-mnist")
TOY_KINDS: tuple[ToyKind, ...] = get_args(ToyKind)
DATASET_NAMES = (*IMAGE_SETS, *TOY_KINDS)
ThresholdRule: TypeAlias = Literal["median", "random", "zero"]
OnFailure: TypeAlias = Literal["raise", "warn", "soft", "drop"]
# Relative gap between the certified bounds at which solvers stop.
TOLERANCE = 1e-6


class SolverOptions(NamedTuple):
    """How to solve, in the order in which `solve` takes it: ``solve(problem, *options)``."""

    solver: Any = "auto"  # a name, or a `Solver`, which is above this module
    tol: float = TOLERANCE
    device: str = "cpu"


DEFAULTS = SolverOptions()
