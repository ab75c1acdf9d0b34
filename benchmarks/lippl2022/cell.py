"""Compute one published cell on MNIST, and print the errors of its models.

    python -m benchmarks lippl2022 cell --train-size 500 --units 10 --model gd-gln --json

Source: Lippl, Abbott, Chung (2022), figures 2 to 5.
"""

import argparse
import json
import math
import sys
from collections.abc import Sequence

from benchmarks.lippl2022.cells import MODEL_NAMES, Models, Setting
from implicit_bias.datasets.files import DataError

FAILED = 1


def main(words: Sequence[str]) -> int:
    """Fit the models of a cell, and print what share of the validation images each gets wrong."""
    asked = vars(_parser().parse_args(words))
    as_json = asked.pop("json")
    names = tuple(dict.fromkeys(asked.pop("model") or ["gd-gln"]))
    try:
        models = Models(Setting(**asked, models=names))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    fitted = dict(models.fit())
    comparison = models.compare({name: fitted[name] for name in names})
    rows = []
    for model in comparison.models:
        # An SVM whose samples nothing separates has no predictor.
        wrong = None if math.isnan(model.error) else model.error
        rows.append({"model": model.name, "error": wrong})
    if as_json:
        print(json.dumps({"models": rows}))
    else:
        for row in rows:
            print(f"{row['model']:12} {row['error']}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks lippl2022 cell",
        description="Fit the models of a published cell, with the released draws, on MNIST.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    cell = Setting()
    add = parser.add_argument
    add("--train-size", type=int, default=cell.train_size, help="training samples N")
    add("--units", type=int, default=cell.units, help="hidden units H")
    add("--hyperplanes", type=int, default=cell.hyperplanes, help="hyperplanes of a unit, k")
    add("--seed", type=int, default=cell.seed, help="seed of gates and weights")
    add("--split-seed", type=int, default=cell.split_seed, help="seed of the split, and of batches")
    add("--threshold", choices=("median", "random"), default=cell.threshold, help="of hyperplanes")
    add("--momentum", type=float, default=cell.momentum, help="of the networks' training")
    add("--model", action="append", choices=MODEL_NAMES, help="once for each; gd-gln if none is")
    add("--json", action="store_true", help="print one JSON object")
    return parser
