"""Certified implicit-bias SVMs for gated networks.

Where does gradient descent go in the limit when it trains a gated network? To a hard-margin SVM
under a norm that the architecture sets. The package builds that SVM for any gates, solves it
with a certificate, trains the network itself, and compares the two.

The names below are imported on first use, so that ``import implicit_bias`` is quick.
"""

from typing import TYPE_CHECKING, Any

from implicit_bias.base import lazy
from implicit_bias.base.version import VERSION as __version__

if TYPE_CHECKING:
    from implicit_bias.bounds.certificate import Certificate, Status, certify
    from implicit_bias.bounds.run_certificate import certify_run
    from implicit_bias.comparison import Comparison, compare
    from implicit_bias.diagnosis import Diagnosis, DiagnosisWarning, WhichNorm
    from implicit_bias.diagnosis.diagnose import diagnose
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
    from implicit_bias.measure.homogeneity import HomogeneityError
    from implicit_bias.measure.stationarity import certify_network
    from implicit_bias.measure.subject import SeparationError
    from implicit_bias.problem import MarginProblem, attention_margin, max_margin
    from implicit_bias.solvers import Solution, SolveError
    from implicit_bias.solvers.out_of_core import solve_out_of_core
    from implicit_bias.solvers.solve import solve
    from implicit_bias.training.limit import LimitConfig, train_to_limit



def __getattr__(name: str) -> Any:
    return lazy.find(__name__, name)


def __dir__() -> list[str]:
    return [*__getattr__("__all__"), "__version__"]
