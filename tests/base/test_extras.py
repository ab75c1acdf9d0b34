"""Packages that only some functions need."""

import sys

import pytest

from implicit_bias.base.package import check_installed


def test_nothing_is_said_of_a_package_that_is_there() -> None:
    check_installed("numpy", "arrays need NumPy", "all")


def test_a_missing_package_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"Dask.*implicit-bias\[dask\]") as caught:
        check_installed("dask", "data in blocks need Dask", "dask")
    assert caught.value.name == "dask"
