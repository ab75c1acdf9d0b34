"""The version, files that come with the package, and packages that only some functions need."""

import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

VERSION = "0.3.0"


def text_of(path: str) -> str:
    """Return the text of a file of this package."""
    return (Path(__file__).parents[1] / path).read_text("utf-8")


def table_of(path: str) -> dict[str, Any]:
    """Return what a .toml file of this package holds."""
    return tomllib.loads(text_of(path))


def check_installed(package: str, needed_for: str, extra: str, otherwise: str = "") -> None:
    """Raise ImportError, with the cure, where a package is not installed.

    Parameters
    ----------
    package : str
        Its name in an import statement.
    needed_for : str
        What is done with it: the first half of a sentence.
    extra : str
        The extra of this package that installs it.
    otherwise : str
        What else would do: the rest of the sentence.

    Examples
    --------
    >>> check_installed("numpy", "arrays need NumPy", "all")
    >>> try:
    ...     check_installed("no_such_package", "data in blocks need Dask", "dask")
    ... except ImportError as error:
    ...     print(error)
    data in blocks need Dask: pip install 'implicit-bias[dask]'
    """
    if find_spec(package) is None:
        raise ImportError(
            f"{needed_for}: pip install 'implicit-bias[{extra}]'{otherwise}", name=package
        )
