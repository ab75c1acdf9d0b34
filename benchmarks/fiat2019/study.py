"""Experiments on GaLU networks: theorems, and how near they come to ReLU networks.

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity" (2019).
"""

from __future__ import annotations

from benchmarks.catalogue import Entry, Study

HEAD = """\
# GaLU networks

Fiat, Malach and Shalev-Shwartz, ["Decoupling Gating from Linearity"](
https://arxiv.org/abs/1906.05032) (2019): a ReLU unit is a gate times a linear map, and a network
whose gates are random and fixed is linear in what it trains. So it has a closed form
(`implicit_bias.theory.gated_least_squares`), theorems, and, as they find, much of what ReLU
networks do.

Each command takes at most a few minutes on one core, and `--quick` seconds. The sizes are smaller
than the published ones where it says so. Published values are those of the figures' files in the
paper's code ([a copy](https://github.com/keyboardAnt/Decoupling-Gating-From-Linearity)). Its proofs
we could not see, so all constants are ours, derived in the docstrings. This page is written by
`python -m benchmarks fiat2019 page` from the tables in
`benchmarks/results/fiat2019`."""

STUDY = Study(
    name="fiat2019",
    head=HEAD,
    experiments=(
        Entry(
            name="limit_kernel",
            title="The kernel of many gates, and its smallest eigenvalue",
            cost="seconds",
        ),
        Entry(
            name="linear_convergence", title="Gradient descent converges linearly", cost="seconds"
        ),
        Entry(name="memorisation_width", title="The smallest width that memorises", cost="minutes"),
        Entry(
            name="too_few_parameters",
            title="Too few parameters, and better filters",
            cost="minutes",
        ),
        Entry(name="noisy_clusters", title="Clusters with noisy labels", cost="minutes"),
        Entry(name="norms_and_gap", title="Generalization gap against the norms", cost="a minute"),
        Entry(
            name="several_outputs",
            title="Several outputs, by alternating convex search",
            cost="minutes",
        ),
        Entry(
            name="separable_and_parity",
            title="Where both succeed and where both fail: separable data and full parity, d = 100",
            cost="minutes",
        ),
        Entry(name="image_width", title="Width against accuracy on images", cost="minutes"),
    ),
)
