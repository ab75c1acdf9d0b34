"""What holds for all tests: one thread, no time limit inside a test, no hidden defect.

Two threads on busy cores wait for each other, and small tests need no more than one.
"""

import logging
from collections.abc import Iterator

import pytest
import scipy.linalg  # noqa: F401  (loads its own BLAS, whose threads are limited below)
import torch
from hypothesis import settings
from threadpoolctl import threadpool_limits

torch.set_num_threads(1)
threadpool_limits(1, user_api="blas")
settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")


@pytest.fixture(autouse=True)
def no_solver_hides_a_defect(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Fail where a method ended by an IndexError or the like, and another one answered."""
    yield
    for when in ("setup", "call"):
        for record in caplog.get_records(when):
            hidden = record.name == "implicit_bias.solvers.base" and record.levelno > logging.INFO
            assert not hidden, record.exc_text
