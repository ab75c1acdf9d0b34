"""The implicit bias of optimizers: certified max-margin problems, and trained networks beside them.

On separable data the direction of a homogeneous network converges to a KKT point of a max-margin
problem, whose norm optimizer and architecture determine; for gated networks with fixed gates the
problem is a support vector machine. The package builds and solves it, with certified bounds on the
optimum, trains networks, and measures how close a trained network is to the limit.

The names below are imported on first use, so that ``import implicit_bias`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from implicit_bias.base.package import VERSION as __version__

if TYPE_CHECKING:
    from implicit_bias.bounds.certificate import Certificate, Status, certify
    from implicit_bias.bounds.run_certificate import certify_run
    from implicit_bias.comparison import Comparison, compare
    from implicit_bias.diagnosis import Diagnosis, DiagnosisWarning, WhichNorm
    from implicit_bias.diagnosis.box import BoxLimit, box_gap
    from implicit_bias.diagnosis.box_trace import BoxTrace
    from implicit_bias.diagnosis.diagnose import diagnose
    from implicit_bias.diagnosis.margin_trace import MarginTrace
    from implicit_bias.diagnosis.recorder import Recorder
    from implicit_bias.diagnosis.which_norm import which_norm
    from implicit_bias.estimators import (
        GLNSVC,
        GaLUClassifier,
        GaLURegressor,
        GatedReLUSVC,
        GatedSVC,
        GLNClassifier,
        HiddenLayerSVC,
        InfiniteWidthSVC,
        MaxMarginSVC,
        NotSeparableWarning,
        ReLUClassifier,
    )
    from implicit_bias.interpolation import min_norm
    from implicit_bias.modules.fold import fold, full_batch
    from implicit_bias.modules.homogeneity import HomogeneityError
    from implicit_bias.modules.stationarity import certify_network
    from implicit_bias.modules.subject import SeparationError
    from implicit_bias.problem import MarginProblem, attention_margin, max_margin
    from implicit_bias.solvers import Solution, SolveError
    from implicit_bias.solvers.out_of_core import solve_out_of_core
    from implicit_bias.solvers.solve import solve
    from implicit_bias.training.limit import LimitConfig, train_to_limit

# Where each of these names is: the import waits until a name is asked for.
HOMES = {
    "attention_margin": "implicit_bias.problem",
    "box_gap": "implicit_bias.diagnosis.box",
    "BoxLimit": "implicit_bias.diagnosis.box",
    "BoxTrace": "implicit_bias.diagnosis.box_trace",
    "Certificate": "implicit_bias.bounds.certificate",
    "certify": "implicit_bias.bounds.certificate",
    "certify_network": "implicit_bias.modules.stationarity",
    "certify_run": "implicit_bias.bounds.run_certificate",
    "compare": "implicit_bias.comparison",
    "Comparison": "implicit_bias.comparison",
    "diagnose": "implicit_bias.diagnosis.diagnose",
    "Diagnosis": "implicit_bias.diagnosis",
    "DiagnosisWarning": "implicit_bias.diagnosis",
    "fold": "implicit_bias.modules.fold",
    "full_batch": "implicit_bias.modules.fold",
    "GaLUClassifier": "implicit_bias.estimators",
    "GaLURegressor": "implicit_bias.estimators",
    "GatedReLUSVC": "implicit_bias.estimators",
    "GatedSVC": "implicit_bias.estimators",
    "GLNClassifier": "implicit_bias.estimators",
    "GLNSVC": "implicit_bias.estimators",
    "HiddenLayerSVC": "implicit_bias.estimators",
    "HomogeneityError": "implicit_bias.modules.homogeneity",
    "InfiniteWidthSVC": "implicit_bias.estimators",
    "LimitConfig": "implicit_bias.training.limit",
    "MarginProblem": "implicit_bias.problem",
    "MarginTrace": "implicit_bias.diagnosis.margin_trace",
    "max_margin": "implicit_bias.problem",
    "MaxMarginSVC": "implicit_bias.estimators",
    "min_norm": "implicit_bias.interpolation",
    "NotSeparableWarning": "implicit_bias.estimators",
    "Recorder": "implicit_bias.diagnosis.recorder",
    "ReLUClassifier": "implicit_bias.estimators",
    "SeparationError": "implicit_bias.modules.subject",
    "Solution": "implicit_bias.solvers",
    "solve": "implicit_bias.solvers.solve",
    "solve_out_of_core": "implicit_bias.solvers.out_of_core",
    "SolveError": "implicit_bias.solvers",
    "Status": "implicit_bias.bounds.certificate",
    "train_to_limit": "implicit_bias.training.limit",
    "which_norm": "implicit_bias.diagnosis.which_norm",
    "WhichNorm": "implicit_bias.diagnosis",
}
__all__ = sorted(HOMES)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
