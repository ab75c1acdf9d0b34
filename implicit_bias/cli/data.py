"""`implicit-bias data`: list, verify and download the data sets."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table

from implicit_bias.cli.options import JsonOption
from implicit_bias.cli.output import out, print_json, usage_errors


def data(
    download: Annotated[
        str | None, typer.Option(help="Download this data set: mnist or fashion-mnist.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the data sets, verify their files, and download what is missing."""
    from implicit_bias import datasets

    if download is not None:
        with usage_errors():
            datasets.download(download)
    files = datasets.data_status()
    if as_json:
        print_json({"files": [vars(file) for file in files]})
    else:
        table = Table("data set", "file", "state", "where or why")
        table.add_row("digits", "(comes with scikit-learn)", "ok", "")
        for file in files:
            where = file.detail or str(file.path or "")
            table.add_row(file.dataset, file.file, file.state, where)
        out.print(table)
    if any(file.state == "corrupt" for file in files):
        raise RuntimeError("a data file is corrupt: delete it and download it again")
