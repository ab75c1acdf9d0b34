"""What the command line shows while it computes."""

import io

import pytest
from rich.console import Console

from implicit_bias.cli import output


@pytest.mark.parametrize("terminal", [False, True])
def test_a_terminal_has_a_bar_of_the_training_and_a_pipe_has_nothing(
    terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120)
    monkeypatch.setattr(output, "err", console)
    with output.training_bar() as move:
        move(1200, 3000, "loss 0.25")
    shown = stream.getvalue()
    if terminal:
        assert "1,200 / 3,000" in shown
        assert "loss 0.25" in shown
    else:
        assert shown == ""


def test_an_error_of_several_lines_keeps_them(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(output, "err", Console(file=stream, width=40))
    with pytest.raises(SystemExit):
        output.fail("a file is missing. Looked in\n  one/folder\n\n  another/folder\n", 1)
    first, *others = stream.getvalue().splitlines()
    assert first.startswith("implicit-bias: a file")
    assert others == ["  one/folder", "  another/folder"]
