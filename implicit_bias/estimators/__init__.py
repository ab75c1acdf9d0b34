"""scikit-learn classifiers: they store, validate, build, solve, and expose. No numerics here.

=================  ============================================================================
MaxMarginSVC       linear, under any norm
GatedSVC           any gating a user brings; without one, the linear SVM
GLNSVC             SVM-GLN and SVM-L2; with one unit, the shallow GLN
GatedReLUSVC       SVM-RC (random gates) and SVM-LC (the gates of a trained network)
HiddenLayerSVC     SVM-HL: a linear SVM on the hidden activations of a network
InfiniteWidthSVC   the limit of an infinitely wide two-layer network, both layers trained
GLNClassifier      a gated linear network trained by gradient descent
ReLUClassifier     a ReLU network trained by gradient descent
GaLURegressor      least squares on random gates: a GaLU network in closed form
GaLUClassifier     the same on labels, for any number of classes
=================  ============================================================================

All classifiers take two classes of any label type; ``classes_[1]`` is the positive
one. A prediction of exactly 0 (an input whose gates are all off) goes to ``classes_[0]``. The SVMs
take more classes, too, and decide by the largest of their predictors.

Source: Lippl, Abbott, Chung (2022), sections 3 to 5; Fiat, Malach, Shalev-Shwartz (2019) for GaLU.
"""

from implicit_bias.estimators.base import BinaryClassifier, FittedMargin, NotSeparableWarning
from implicit_bias.estimators.galu import GaLUClassifier, GaLURegressor
from implicit_bias.estimators.infinite_width import InfiniteWidthSVC
from implicit_bias.estimators.networks import GLNClassifier, NetworkClassifier, ReLUClassifier
from implicit_bias.estimators.svm import (
    GLNSVC,
    GatedReLUSVC,
    GatedSVC,
    HiddenLayerSVC,
    MarginSVC,
    MaxMarginSVC,
)
