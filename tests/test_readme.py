"""What the README shows runs as it stands."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.slow
def test_python_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """All blocks one after the other, as a reader would paste them."""
    blocks = re.findall(
        r"^```python\n(.*?)^```$", README.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(README), "exec"), names)
    assert "of the limit; dead units" in capsys.readouterr().out
