"""The page of the experiments on GaLU networks: README.md beside this file, and its pictures.

    python benchmarks/fiat2019/galu_gallery.py

Each section has the claim of the paper, the command, the picture, and what we measured. Its numbers
and pictures are those of the tables under results/fiat2019: run it again after an experiment.
"""

from __future__ import annotations

import image_width
import limit_kernel
import linear_convergence
import memorisation_width
import noisy_clusters
import norms_and_gap
import pandas as pd
import separable_and_parity
import several_outputs
import too_few_parameters
import typer
from galu_experiment import HERE

from implicit_bias.files import write_atomically

EXPERIMENTS = (
    limit_kernel.EXPERIMENT,
    linear_convergence.EXPERIMENT,
    memorisation_width.EXPERIMENT,
    too_few_parameters.EXPERIMENT,
    noisy_clusters.EXPERIMENT,
    norms_and_gap.EXPERIMENT,
    several_outputs.EXPERIMENT,
    separable_and_parity.EXPERIMENT,
    image_width.EXPERIMENT,
)
HEAD = """\
# GaLU networks

Fiat, Malach and Shalev-Shwartz, ["Decoupling Gating from Linearity"](
https://arxiv.org/abs/1906.05032) (2019): a ReLU unit is a gate times a linear map, and a network
whose gates are random and fixed is linear in what it trains. So it has a closed form
(`implicit_bias.galu`), theorems, and, as they find, much of what ReLU networks do.

Each command takes at most a few minutes on one core, and `--quick` seconds. The sizes are smaller
than the published ones where it says so. Published values are those of the figures' files in the
paper's code ([a copy](https://github.com/keyboardAnt/Decoupling-Gating-From-Linearity)). Its proofs
we could not see, so all constants are ours, derived in the docstrings. This page is written by
`python benchmarks/fiat2019/galu_gallery.py` from the tables in `benchmarks/results/fiat2019`."""


def page() -> str:
    """Return the page in Markdown."""
    return "\n\n".join([HEAD, *(experiment.section() for experiment in EXPERIMENTS)]) + "\n"


def main() -> None:
    """Draw the pictures again, and write the page."""
    for experiment in EXPERIMENTS:
        experiment.keep_picture(pd.read_parquet(experiment.results()))
    readme = HERE / "README.md"
    write_atomically(readme, lambda path: path.write_text(page(), encoding="utf-8"))
    typer.echo(readme)


if __name__ == "__main__":
    typer.run(main)
