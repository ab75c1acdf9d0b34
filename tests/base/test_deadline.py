"""Deadlines: what is left of them, and which of two is sooner."""

import pytest

from implicit_bias.base.deadline import NEVER, Deadline


def test_no_limit_is_never_over() -> None:
    for deadline in (NEVER, Deadline.asked(None), NEVER.sooner(0.5), NEVER.leaving(10.0)):
        assert deadline.left is None
        assert not deadline.passed
        assert deadline.allows(1e12)
        deadline.check()


def test_parts_of_a_limit_end_before_it() -> None:
    whole = Deadline.after(100.0)
    assert 99.0 < (whole.left or 0.0) <= 100.0
    assert 49.0 < (whole.sooner(0.5).left or 0.0) <= 50.0
    assert 59.0 < (whole.leaving(40.0).left or 0.0) <= 60.0
    assert (whole.within(1.0).left or 0.0) <= 1.0
    assert whole.within(1e6) == whole
    assert whole.allows(50.0)
    assert not whole.allows(200.0)


def test_a_limit_that_has_passed() -> None:
    over = Deadline.after(-1.0)
    assert over.passed
    assert 0 < (over.left or 0.0) < 1e-6
    with pytest.raises(TimeoutError):
        over.check()
    with pytest.raises(ValueError, match="max_seconds"):
        Deadline.asked(0.0)
