"""The published experiments of Lippl, Abbott, Chung (2022): their draws, and how they trained.

The published draws, in order. Each line has a torch generator of its own, but for the GLNs, whose
weights come from the generator of their contexts, after these.

================  ================================================================================
generator         draws
================  ================================================================================
split             a permutation of the samples, by the split's seed (`datasets.dataset.split`)
GLN, contexts     weights of a torch Linear (H k, D), overwritten; hyperplanes N(0, 36^2) (H k, D);
                  thresholds N(0, 9^2) (H, k)
GLN, weights      weights of a torch Linear (H C, D) and of one (1, H), both overwritten; bias of
                  the readout, uniform in +-1/sqrt(H); orthogonal hidden weights (H C, D) and
                  readout (1, H)
shallow GLN       as a GLN of one unit, without readout and bias
ReLU network      Kaiming normal weights, (H, D) and then (1, H)
gates of SVM-RC   an orthogonal matrix (H, D)
training          for each epoch an integer that is not used (the seed of a data loader's workers)
                  and a permutation of the samples, by the data seed 1
================  ================================================================================

`draw_contexts` and `draw_unit_gates` repeat those of contexts and gates to the bit, and
`released_training` those of networks and training. `training_config` has the published
hyperparameters alone, and simplifies the rest: see there.

The data are the 60,000 training images of MNIST; medians are taken over all of them, the
validation images included.
"""

import math
from typing import Literal

from numpy.typing import ArrayLike

from implicit_bias.base.validation import as_features, as_finite, check_count, torch_generator
from implicit_bias.problem import gating
from implicit_bias.training.configuration import TrainingConfig


def draw_contexts(
    X: ArrayLike,
    n_units: int,
    n_hyperplanes: int = 1,
    *,
    threshold: Literal["median", "random"],
    reference: ArrayLike,
    seed: int,
) -> gating.HyperplaneContexts:
    """Repeat the draws of the published gated linear networks.

    Parameters
    ----------
    X : array_like of shape (n, D)
        Training inputs.
    n_units, n_hyperplanes : int
        H and k.
    threshold : {"median", "random"}
        The published option; the median is the 0.5-quantile over ``reference``.
    reference : array_like of shape (n', D)
        In the published code all 60,000 images, validation images included.
    seed : int
        The context seed of the published tables.

    Raises
    ------
    ValueError
        Counts out of range, another threshold, NaN or shapes that do not fit.
    """
    import torch

    X = as_finite(X, "X", 2)
    check_count(n_units, "n_units")
    check_count(n_hyperplanes, "n_hyperplanes", 0, gating.MAX_HYPERPLANES)
    n_features, rows = X.shape[1], n_units * n_hyperplanes
    generator = torch_generator(seed)
    # The published code constructs a torch Linear first, whose default initialisation draws this.
    bound = 1.0 / math.sqrt(n_features)
    torch.empty(rows, n_features).uniform_(-bound, bound, generator=generator)
    weights = torch.empty(rows, n_features).normal_(0.0, gating.WEIGHT_SCALE, generator=generator)
    drawn = torch.empty(rows).normal_(0.0, gating.THRESHOLD_SCALE, generator=generator)
    if threshold == "median":
        projections = gating.single_precision_projections(
            as_features(reference, n_features), weights
        )
        for row, column in enumerate(projections.unbind(1)):  # quantile refuses large tensors
            drawn[row] = column.quantile(0.5)
    elif threshold != "random":
        raise ValueError(f"threshold must be 'median' or 'random', got {threshold!r}")
    # Row-major: row h * k + j is hyperplane j of unit h.
    shape = (n_units, n_hyperplanes)
    return gating.HyperplaneContexts.from_hyperplanes(
        X,
        weights.double().numpy().reshape(*shape, n_features),
        drawn.double().numpy().reshape(shape),
        single_precision=True,
    )


def draw_unit_gates(
    n_units: int, *, reference: ArrayLike, seed: int, always_on: bool = True
) -> gating.UnitGates:
    """Repeat the gates of the published SVM-RC: orthogonal, lower median, and one unit on.

    Parameters
    ----------
    n_units : int
        H, without the always-on unit.
    reference : array_like of shape (n', D)
        The inputs whose lower median (torch.median) is taken: all 60,000 images.
    seed : int
        Seed of the published tables.
    always_on : bool
        Without this unit some samples have all gates off.

    Raises
    ------
    ValueError
        A count out of range, NaN or shapes that do not fit.
    """
    import torch

    reference = as_finite(reference, "reference", 2)
    check_count(n_units, "n_units")
    generator = torch_generator(seed)
    drawn = torch.empty(n_units, reference.shape[1])
    torch.nn.init.orthogonal_(drawn, generator=generator)
    thresholds = gating.single_precision_projections(reference, drawn).median(dim=0).values
    return gating.UnitGates(
        drawn.double().numpy(), thresholds.double().numpy(), ">=", always_on, single_precision=True
    )


def training_config(*, momentum: float = 0.0, seed: int = 0) -> TrainingConfig:
    """Return the training of the published experiments (momentum 0 and 0.9, float32 networks).

    Mini-batch SGD, not the gradient descent of the theory: 3,200 steps, batch 128, binary
    cross-entropy, step size 0.04, times 0.25 halfway.

    With it `training.minibatch.train` does what the published code does in distribution, not to the
    bit: an epoch draws its permutation without the unused integer before it; a network has the
    initial weights of its own seed, without the draws of its contexts before them; and there are
    3,200 steps for any number of samples, where the published code has 400,000 / N whole epochs:
    3,200 steps, too, for the published N = 500, 1,000 and 2,000. `released_training` repeats all of
    it exactly.
    """
    # The other published values are the defaults of `TrainingConfig`; a test holds them.
    return TrainingConfig(momentum=momentum, seed=seed)
