"""A line on the terminal while something takes long, and nothing elsewhere."""

import io
import sys
import time
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import ModuleType

import numpy as np
import pytest

from implicit_bias import max_margin, solve
from implicit_bias.base.progress import SWITCH, progress_bar, say, showing
from implicit_bias.solvers.base import BoundsAt


class Terminal(io.StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        """Claim to be one."""
        return True

    def wait_for(self, text: str) -> None:
        """Wait until a text was written, by a thread that draws when it likes to."""
        for _ in range(3000):
            if text in self.getvalue():
                return
            time.sleep(0.01)
        raise AssertionError(f"{text!r} is not in {self.getvalue()!r}")


def terminal_of(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Replace standard error, within the test: pytest takes it back between fixture and test."""
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv(SWITCH, raising=False)
    return stream


def test_one_line_for_what_takes_long_and_for_what_it_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    terminal = terminal_of(monkeypatch)
    with showing("digging", delay=0.0):
        terminal.wait_for("digging")
        with showing("shovelling", delay=0.0):
            say("{} of {} holes", 2, 3)
            terminal.wait_for("2 of 3 holes")
        with progress_bar(3) as bar:
            bar(1, "")
    assert "shovelling" not in terminal.getvalue()
    with showing("digging again", delay=0.0):
        terminal.wait_for("digging again")


def test_what_a_solver_has_found_so_far_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    X = np.random.default_rng(0).normal(size=(20, 4))
    problem = max_margin(X, np.sign(X[:, 0]))

    def wait(_: BoundsAt) -> None:
        terminal.wait_for("optimum between")

    with showing("one", delay=0.0):
        terminal.wait_for("one")
        assert solve(problem, "interior-point", on_progress=wait).stats.history


def notebook(monkeypatch: pytest.MonkeyPatch, *, widgets: bool) -> None:
    """Pretend to run in a notebook's process, with or without its widgets."""
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    found = module_from_spec(ModuleSpec("ipywidgets", None)) if widgets else None
    monkeypatch.setitem(sys.modules, "ipywidgets", found)


def test_a_notebook_is_no_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = terminal_of(monkeypatch)
    monkeypatch.setattr(stream, "isatty", lambda: False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # so that rich, which is in none, writes
    notebook(monkeypatch, widgets=True)
    with showing("digging", delay=0.0):
        stream.wait_for("digging")


@pytest.mark.parametrize("why", ["quick", "pipe", "switch", "dumb", "no widgets", "error"])
def test_silence(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = terminal_of(monkeypatch)
    match why:
        case "pipe":
            monkeypatch.setattr(sys, "stderr", io.StringIO())
        case "switch":
            monkeypatch.setenv(SWITCH, "0")
        case "dumb":
            monkeypatch.setenv("TERM", "dumb")
        case "no widgets":
            notebook(monkeypatch, widgets=False)
    if why == "error":
        with pytest.raises(ZeroDivisionError), showing("dividing"):
            raise ZeroDivisionError
    else:
        with showing("waiting", delay=60.0 if why == "quick" else 0.0):
            say("nothing")
    assert not terminal.getvalue()
