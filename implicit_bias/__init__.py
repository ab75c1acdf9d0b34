"""Certified implicit-bias SVMs for gated networks.

Where does gradient descent go in the limit when it trains a gated network? To a hard-margin SVM
under a norm that the architecture sets. The package builds that SVM for any gates, solves it
with a certificate, trains the network itself, and compares the two.

The names below are imported on first use, so that ``import implicit_bias`` is quick.
"""

from typing import TYPE_CHECKING, Any

from implicit_bias import _lazy

if TYPE_CHECKING:
    from implicit_bias.certificate import Certificate, Status, certify
    from implicit_bias.comparison import Comparison, compare
    from implicit_bias.diagnosis import Diagnosis, DiagnosisWarning, diagnose
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
        ReLUClassifier,
    )
    from implicit_bias.problem import MarginProblem, max_margin
    from implicit_bias.recorder import Recorder
    from implicit_bias.run_certificate import certify_run
    from implicit_bias.solvers import Solution, SolveError
    from implicit_bias.solvers.out_of_core import solve_out_of_core
    from implicit_bias.solvers.solve import solve
    from implicit_bias.stationarity import HomogeneityError, SeparationError, certify_network
    from implicit_bias.training.limit import LimitConfig, train_to_limit

__version__ = "0.2.0"

ESTIMATORS = (
    *("GLNSVC", "GatedReLUSVC", "GatedSVC", "HiddenLayerSVC", "InfiniteWidthSVC", "MaxMarginSVC"),
    *("GLNClassifier", "ReLUClassifier", "GaLUClassifier", "GaLURegressor"),
)
HOMES = {
    "certificate": ("Certificate", "Status", "certify"),
    "comparison": ("Comparison", "compare"),
    "diagnosis": ("Diagnosis", "DiagnosisWarning", "diagnose"),
    "estimators": ESTIMATORS,
    "problem": ("MarginProblem", "max_margin"),
    "recorder": ("Recorder",),
    "run_certificate": ("certify_run",),
    "solvers": ("Solution", "SolveError", "solve"),
    "solvers.out_of_core": ("solve_out_of_core",),
    "stationarity": ("HomogeneityError", "SeparationError", "certify_network"),
    "training.limit": ("LimitConfig", "train_to_limit"),
}


def __getattr__(name: str) -> Any:
    return _lazy.find(__name__, HOMES, name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
