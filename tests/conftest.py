"""What holds for all tests: one thread, and no time limit inside a test.

Two threads on busy cores wait for each other, and small tests need no more than one.
"""

import gc
from collections import Counter

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


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of a test marked `every(n)` each n-th case is in the fast run, the others in the slow one.

    Where n has a factor of the length of a list of parameters, some of its values are never fast.
    """
    seen = Counter[str]()
    for item in items:
        for mark in item.iter_markers("every"):
            test = item.nodeid.partition("[")[0]
            if seen[test] % mark.args[0]:
                item.add_marker(pytest.mark.slow)
            seen[test] += 1
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
