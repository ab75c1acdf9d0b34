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

All classifiers take two classes or more, of any label type. Of two, ``classes_[1]`` is the positive
one, and where the predictor is exactly 0 (all gates of an input are off) they predict
``classes_[0]``. Of more, the largest of their predictors decides.

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
