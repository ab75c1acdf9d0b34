"""`implicit-bias data`: list, verify and download the data sets."""

from implicit_bias.cli.options import JsonOption
from implicit_bias.cli.output import print_json, print_table, usage_errors


def data(
    download: str | None = None,
    as_json: JsonOption = False,
) -> None:
    """List the data sets, verify their files, and download what is missing.

    Parameters
    ----------
    download
        Download this data set: mnist or fashion-mnist.
    """
    from implicit_bias import datasets

    if download is not None:
        with usage_errors():
            datasets.download(download)
    files = datasets.data_status()
    if as_json:
        print_json({"files": [vars(file) for file in files]})
    else:
        rows = [("digits", "(comes with scikit-learn)", "ok", "")]
        rows += [(f.dataset, f.file, f.state, f.detail or str(f.path or "")) for f in files]
        print_table("data set", "file", "state", "where or why", rows=rows)
    if any(file.state == "corrupt" for file in files):
        raise RuntimeError("a data file is corrupt: delete it and download it again")
