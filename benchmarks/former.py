"""Measure, list and write up the benchmarks.

    python -m benchmarks                              the studies and their experiments
    python -m benchmarks STUDY                        the experiments of one
    python -m benchmarks STUDY EXPERIMENT [--quick]   measure one; --help lists its options
    python -m benchmarks STUDY COMMAND                what else a study has
    python -m benchmarks STUDY page                   write the page and draw the pictures again
    python -m benchmarks site                         build the documentation, docs/_build

Listing imports no torch. A run that is stopped (Ctrl-C) has kept what it says it keeps, and the
same command goes on.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import MISSING, Field, fields
from importlib import import_module
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from benchmarks import catalogue
from benchmarks.catalogue import Entry, Study, UnknownName

if TYPE_CHECKING:
    from benchmarks.harness import Options

PAGE, SITE = "page", "site"
MISUSE, FAILED, INTERRUPTED = 2, 1, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say, and return the exit status."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    names = [word for word in words[:2] if not word.startswith("-")]
    try:
        if not names:
            return _list([catalogue.study(name) for name in catalogue.studies()], words)
        if names[0] == SITE:
            return _site(words[1:])
        study = catalogue.study(names[0])
        if len(names) == 1:
            return _list([study], words[1:])
        if names[1] == PAGE:
            return _page(study, words[2:])
        if names[1] in study.commands:
            command = import_module(f"benchmarks.{study.name}.{names[1]}")
            return int(command.main(words[2:]))
        return _run(study, study.entry(names[1]), words[2:])
    except UnknownName as error:
        print(f"error: {error}", file=sys.stderr)
        return MISUSE


def _list(studies: Sequence[Study], words: Sequence[str]) -> int:
    """Print studies and their experiments."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(words)
    width = max(len(entry.command) for study in studies for entry in study.experiments)
    for study in studies:
        print(f"{study.name}: {study.title}")
        for entry in study.experiments:
            print(f"    {entry.command:{width}}  {entry.title} ({entry.cost})")
        for name, title in study.commands.items():
            print(f"    {name:{width}}  {title}")
        print(f"    {PAGE:{width}}  write {study.name}/README.md from the tables that are kept\n")
    print("python -m benchmarks STUDY EXPERIMENT [--quick] [--folder FOLDER]; --help has the rest")
    print("python -m benchmarks site                 build the documentation (two minutes)")
    return 0


def _site(words: Sequence[str]) -> int:
    """Build the site with Sphinx: warnings are errors, and the links between pages are checked."""
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {SITE}",
        description="Build the documentation: its pages, the API, and the examples, which run.",
    )
    docs = catalogue.HOME.parent / "docs"
    parser.add_argument("--folder", type=Path, default=docs / "_build", help="where the site goes")
    folder = parser.parse_args(words).folder
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # the examples are too small to share
    try:
        from sphinx.cmd.build import main as sphinx
    except ImportError:
        print("error: Sphinx is missing: pip install -e '.[docs]'", file=sys.stderr)
        return FAILED

    from benchmarks.links import dead_links

    # Pages of names that are listed no more are in no table of contents.
    shutil.rmtree(docs / "generated", ignore_errors=True)
    if sphinx(["-W", "--keep-going", "-q", str(docs), str(folder)]):
        return FAILED
    dead = dead_links(folder)
    for link in dead:
        print(f"error: {link}", file=sys.stderr)
    print(folder / "index.html")
    return FAILED if dead else 0


def _page(study: Study, words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {study.name} {PAGE}",
        description="Write the page, and draw all pictures again, from the tables that are kept.",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=catalogue.HOME,
        help="where results/ and pictures/ are, and the page goes",
    )
    asked = parser.parse_args(words)

    from benchmarks.page import write
    from implicit_bias.datasets.files import DataError

    try:
        for file in write(study, asked.folder):
            print(file)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    return 0


def _run(study: Study, entry: Entry, words: Sequence[str]) -> int:
    import torch
    from rich.console import Console
    from rich.markdown import Markdown

    from benchmarks import harness, page
    from implicit_bias.datasets.files import DataError

    experiment = harness.load(study, entry)
    parser = argparse.ArgumentParser(
        prog=f"python -m benchmarks {study.name} {entry.command}",
        description=f"{entry.title} ({entry.cost}).",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: seconds")
    parser.add_argument(
        "--folder",
        type=Path,
        default=None,
        help="where results/ and pictures/ are; with --quick a temporary folder",
    )
    add_options(parser, experiment.options)
    asked = vars(parser.parse_args(words))
    quick, folder = asked.pop("quick"), asked.pop("folder")
    folder = harness.kept_in(folder, quick=quick, name=study.name)
    torch.set_num_threads(1)  # the networks are too small to share; runs in processes set their own
    try:
        options = experiment.options(**asked)
        frame = harness.run(study, entry, quick=quick, folder=folder, options=options)
    except DataError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    except harness.Misuse as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        print(f"\ninterrupted: --folder {folder} goes on from what is kept there", file=sys.stderr)
        return INTERRUPTED
    Console(width=140).print(Markdown(page.findings(page.Result(study, entry, frame))))
    print(f"\n{study.table(entry, folder)}")
    if experiment.draw is not None:
        print(study.picture(entry, folder))
    return 0


def add_options(parser: argparse.ArgumentParser, options: type[Options]) -> None:
    """Make each field of a class an option of the command line, of its type."""
    hints = get_type_hints(options)
    for each in fields(options):
        parser.add_argument(
            f"--{each.name.replace('_', '-')}",
            help=each.metadata["help"],
            default=None if each.default is MISSING else each.default,
            **_kind(each, hints[each.name]),
        )


def _kind(each: Field[Any], hint: Any) -> dict[str, Any]:
    """How a field of a type is read: a flag, several values, or one."""
    if hint is bool:
        return {"action": "store_true"}
    if get_origin(hint) is UnionType:  # T | None
        hint = get_args(hint)[0]
    if get_origin(hint) is tuple:
        return {"type": get_args(hint)[0], "nargs": "+"}
    return {"type": hint}


if __name__ == "__main__":
    sys.exit(main())
