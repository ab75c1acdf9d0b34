"""Certified implicit-bias SVMs for gated networks.

Where does gradient descent go in the limit when it trains a gated network? To a hard-margin SVM
under a norm that the architecture sets. The package builds that SVM for any gates, solves it
with a certificate, trains the network itself, and compares the two.

The names below are imported on first use, so that ``import implicit_bias`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from implicit_bias import _deprecated

if TYPE_CHECKING:
    from implicit_bias.certificate import Certificate, Status, certify
    from implicit_bias.comparison import Comparison, compare
    from implicit_bias.estimators import (
        GLNSVC,
        GaLUClassifier,
        GaLURegressor,
        GatedReLUSVC,
        GatedSVC,
        GLNClassifier,
        HiddenLayerSVC,
        MaxMarginSVC,
        ReLUClassifier,
    )
    from implicit_bias.problem import MarginProblem, max_margin
    from implicit_bias.run_certificate import certify_run
    from implicit_bias.solvers import Solution, SolveError, solve
    from implicit_bias.stationarity import certify_network
    from implicit_bias.training.limit import LimitConfig, train_to_limit

__version__ = "0.1.0"

_HOME = {
    "Certificate": "certificate",
    "Comparison": "comparison",
    "GLNClassifier": "estimators",
    "GLNSVC": "estimators",
    "GaLUClassifier": "estimators",
    "GaLURegressor": "estimators",
    "GatedReLUSVC": "estimators",
    "GatedSVC": "estimators",
    "HiddenLayerSVC": "estimators",
    "LimitConfig": "training.limit",
    "MarginProblem": "problem",
    "MaxMarginSVC": "estimators",
    "ReLUClassifier": "estimators",
    "Solution": "solvers",
    "SolveError": "solvers",
    "Status": "certificate",
    "certify": "certificate",
    "certify_network": "stationarity",
    "certify_run": "run_certificate",
    "compare": "comparison",
    "max_margin": "problem",
    "solve": "solvers",
    "train_to_limit": "training.limit",
}

__all__ = [
    "Certificate",
    "Comparison",
    "GLNClassifier",
    "GLNSVC",
    "GaLUClassifier",
    "GaLURegressor",
    "GatedReLUSVC",
    "GatedSVC",
    "HiddenLayerSVC",
    "LimitConfig",
    "MarginProblem",
    "MaxMarginSVC",
    "ReLUClassifier",
    "Solution",
    "SolveError",
    "Status",
    "certify",
    "certify_network",
    "certify_run",
    "compare",
    "max_margin",
    "solve",
    "train_to_limit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'implicit_bias' has no attribute {name!r}")
    return getattr(import_module(f"implicit_bias.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_deprecated.redirect_old_names()
