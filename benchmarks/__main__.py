"""Measure the studies, and write their pages.

    python -m benchmarks                                   the studies and their experiments
    python -m benchmarks STUDY                             measure all of a study, write its page
    python -m benchmarks STUDY NAME [NAME ...] [--quick]   measure some of its experiments
    python -m benchmarks STUDY page                        draw the pictures, write the page
    python -m benchmarks STUDY COMMAND ...                 what else a study has; --help says more
    python -m benchmarks all [--quick]                     every table and page, at one commit
    python -m benchmarks site                              build the documentation, docs/_build

A run that is stopped (Ctrl-C) has kept what it measured, and the same command goes on.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from benchmarks import bench

ALL, PAGE, SITE = "all", "page", "site"
MISUSE, FAILED, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words[:1] == [SITE]:
        from benchmarks.site import build

        return build(words[1:])
    try:
        if len(words) > 1 and not words[0].startswith("-") and words[0] != ALL:
            study = bench.study(words[0])
            command = words[1].replace("-", "_")
            if command in study.commands:
                module = import_module(f"benchmarks.{study.name}.{command}")
                return int(module.main(words[2:]))
        return _measure(_parser().parse_args(words))
    except bench.UnknownName as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("study", nargs="?", help=f"name of a study, or {ALL!r}")
    add("names", nargs="*", help=f"experiments, by default all, or {PAGE!r}")
    add("--quick", action="store_true", help="small sizes: seconds; kept in a temporary folder")
    add("--fresh", action="store_true", help="forget the tables so far")
    add("--workers", type=int, default=1, help="parts that are computed side by side")
    add("--folder", type=Path, help="where results/, pictures/ and pages go")
    return parser


def _measure(asked: argparse.Namespace) -> int:
    if asked.study is None:
        return _list()
    names = bench.studies() if asked.study == ALL else (asked.study,)
    studies = [bench.study(name) for name in names]
    if asked.names == [PAGE]:
        return _write(studies, asked.folder or bench.HOME)
    folder = asked.folder
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="benchmarks-")) if asked.quick else bench.HOME
    wanted = [
        experiment
        for study in studies
        for experiment in (
            [study.experiment(name) for name in asked.names] or study.experiments.values()
        )
    ]
    if not asked.quick:
        print(f"about {sum(each.cost for each in wanted) / 60:.1f} hours on one core")

    import torch

    from implicit_bias.datasets.files import DataError

    torch.set_num_threads(1)  # the networks are too small to share
    options = {"quick": asked.quick, "fresh": asked.fresh, "workers": asked.workers}
    try:
        for experiment in wanted:
            if experiment.is_measured:
                bench.measure(experiment, folder=folder, **options)
        for experiment in wanted:
            if file := bench.draw(experiment, folder):
                print(file)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\ninterrupted: the same command goes on from what is kept", file=sys.stderr)
        return INTERRUPTED
    return FAILED if not asked.names and _write(studies, folder) else 0


def _list() -> int:
    """Print studies, experiments and what they cost."""
    for study in map(bench.study, bench.studies()):
        print(f"{study.name}: {study.title} (about {study.cost / 60:.1f} hours on one core)")
        measured = [each for each in study.experiments.values() if each.is_measured]
        for experiment in measured:
            print(f"    {experiment.name:24} {experiment.title} ({experiment.cost:g} min)")
        for name, title in study.commands.items():
            print(f"    {name:24} {title}")
    print("\npython -m benchmarks STUDY [NAME ...] [--quick]; --help says more")
    return 0


def _write(studies: Sequence[bench.Study], folder: Path) -> int:
    """Draw the pictures of studies from the tables that are kept, and write their pages."""
    from benchmarks import fill
    from implicit_bias.datasets.files import DataError

    try:
        for study in studies:
            for experiment in study.experiments.values():
                bench.draw(experiment, folder)
            print(fill.write(study, folder))
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


if __name__ == "__main__":
    sys.exit(main())
