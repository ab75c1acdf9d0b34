"""What holds for all tests: one thread, and no time limit inside a test.

Two threads on busy cores wait for each other, and small tests need no more than one.
"""

import gc
from collections.abc import Generator
from typing import Any

import pytest
import scipy.linalg  # noqa: F401  (loads its own BLAS, whose threads are limited below)
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

from implicit_bias.training import history, limit, minibatch

torch.set_num_threads(1)
threadpool_limits(1, user_api="blas")
# Drawn cases are the same in each run; --hypothesis-profile=anew draws others.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("anew", deadline=None)
settings.load_profile("same")


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class,
) -> Generator[None, Any, Any]:
    """Of a test marked `fast("id", ...)` only the cases of these ids are in the fast run.

    All cases of a test are made here at once, also where only some are asked for.
    """
    made = yield
    if not isinstance(made, list):
        return made
    items = [each for each in made if isinstance(each, pytest.Function)]
    marks = [mark for item in items[:1] for mark in item.iter_markers("fast")]
    if not marks:
        return made
    listed = {name for mark in marks for name in mark.args}
    found = set()
    for item in items:
        case = item.name.removeprefix(f"{item.originalname}[").removesuffix("]")
        found.add(case)
        if case not in listed:
            item.add_marker(pytest.mark.slow)
    unknown = sorted(listed - found)
    if unknown or not listed:
        raise collector.CollectError(
            f"the mark `fast` of {items[0].originalname} names {unknown or 'no case'}: "
            "list ids of its cases, as `pytest --collect-only` shows them between brackets"
        )
    return made


def pytest_collection_modifyitems() -> None:
    gc.freeze()  # of what is imported and collected nothing is garbage: no search need look at it


@pytest.fixture
def ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C in the first training, at the tenth point of its history."""
    calls = iter(range(1000))

    class Pressed(history.Observer):
        def __call__(self, step: int) -> history.HistoryPoint:
            if next(calls) == 10:
                raise KeyboardInterrupt
            return super().__call__(step)

    for module in (minibatch, limit):
        monkeypatch.setattr(module, "Observer", Pressed)
