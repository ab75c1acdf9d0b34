"""Experiments on GaLU networks: theorems, and how near they come to ReLU networks.

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity" (2018, 2019).
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# GaLU networks

Fiat, Malach and Shalev-Shwartz, "Decoupling Gating from Linearity". There are two versions with
different numbers, named with each statement: [L] is [arXiv:1906.05032](
https://arxiv.org/abs/1906.05032) (2019), [C] the anonymous submission of 2018, whose published
values are those of the files of its figures.

**What the paper says.** A ReLU unit max(0, <w, x>) is a gate times a linear map. A GaLU unit
1[<u, x> >= 0] <w, x> has a gate of its own, whose filter u is random and never trained; so the
network is linear in what it trains, and least squares has a closed form. [L] proves that width of
the order of m/d suffices for gradient descent to reach loss 0, bounds the test loss of the
minimum-norm interpolant by the order of 1/m, lets the width depend on clusters and not on samples,
and relates GaLU to ReLU: the same first gradients by the hinge loss, nearly the same functions
while filters move little. [L] and [C] measure both side by side: similar, ReLU somewhat better.

Statements are computed by `implicit_bias.kernels` (`gated_least_squares` and `gated_layers`) and by
`gated_bounds`, `galu_clusters` and `galu_bounds` here; `implicit_bias.GaLURegressor` and
`GaLUClassifier` are the networks in scikit-learn's contract. This page is written by `python -m
benchmarks fiat2019 page` from the tables in `benchmarks/results/fiat2019`."""

STUDY = Study(
    name="fiat2019",
    head=HEAD,
    opening="statements",
    experiments=(
        Entry(name="constants", title="Lemmas, constants and slips", cost="seconds"),
        Entry(
            name="limit_kernel",
            title="The kernel of many gates, and its smallest eigenvalue",
            cost="seconds",
        ),
        Entry(
            name="linear_convergence", title="Gradient descent converges linearly", cost="seconds"
        ),
        Entry(name="clustered", title="Clusters: exact predictions", cost="seconds"),
        Entry(name="generalisation", title="Test loss of the interpolant", cost="seconds"),
        Entry(
            name="memorisation_width",
            title="The smallest width that memorises",
            cost="10 minutes",
        ),
        Entry(
            name="too_few_parameters",
            title="Too few parameters, and better filters",
            cost="an hour",
        ),
        Entry(name="noisy_clusters", title="Clusters with noisy labels", cost="an hour"),
        Entry(name="norms_and_gap", title="Generalization gap against the norms", cost="a minute"),
        Entry(
            name="several_outputs",
            title="Several outputs, by alternating convex search",
            cost="an hour",
        ),
        Entry(
            name="separable_and_parity",
            title="Where both succeed and where both fail: separable data and full parity, d = 100",
            cost="minutes",
        ),
        Entry(name="image_width", title="Width against accuracy on images", cost="2 hours"),
    ),
)
