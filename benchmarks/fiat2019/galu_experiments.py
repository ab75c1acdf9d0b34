"""Experiments on GaLU networks: theorems, and how near they come to ReLU networks.

    python benchmarks/fiat2019/galu_experiments.py limit-kernel       # --help lists all nine
    IMPLICIT_BIAS_DATA=... python benchmarks/fiat2019/galu_experiments.py image-width
    python benchmarks/fiat2019/galu_experiments.py page               # README.md, all pictures

Each command takes at most a few minutes on one core, or seconds with ``--quick``; see
`implicit_bias.report.gallery` for what it keeps, and `implicit_bias.theory.gated_least_squares` for
the mathematics.

Source: Fiat, Malach, Shalev-Shwartz, "Decoupling Gating from Linearity" (2019).
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fiat2019 import (
    image_width,
    limit_kernel,
    linear_convergence,
    memorisation_width,
    noisy_clusters,
    norms_and_gap,
    separable_and_parity,
    several_outputs,
    too_few_parameters,
)
from implicit_bias.report.gallery import Gallery

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
`python benchmarks/fiat2019/galu_experiments.py page` from the tables in
`benchmarks/results/fiat2019`."""

GALLERY = Gallery(
    script=Path(__file__),
    head=HEAD,
    experiments=(
        limit_kernel.EXPERIMENT,
        linear_convergence.EXPERIMENT,
        memorisation_width.EXPERIMENT,
        too_few_parameters.EXPERIMENT,
        noisy_clusters.EXPERIMENT,
        norms_and_gap.EXPERIMENT,
        several_outputs.EXPERIMENT,
        separable_and_parity.EXPERIMENT,
        image_width.EXPERIMENT,
    ),
)
app = GALLERY.app()

if __name__ == "__main__":
    app()
