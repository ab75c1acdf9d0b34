"""The wheel holds all that `compare` needs, and the sdist all that the wheel is built from."""

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build both, offline, by the build backend itself."""
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    for kind in ("wheel", "sdist"):
        code = f"from hatchling.build import build_{kind}; build_{kind}({str(folder)!r})"
        subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True)
    return folder


def test_compare_runs_from_the_wheel(built: Path, tmp_path: Path) -> None:
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    command = ["-m", "implicit_bias", "compare", "--train-size", "60", "--steps", "50", "--json"]
    done = subprocess.run(
        [sys.executable, "-P", *command],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path / "site"), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)["models"]) == 3
    page = (tmp_path / "implicit-bias-report" / "report.html").read_text("utf-8")
    assert "implicit-bias compare <span>--train-size</span> 60" in page


def test_the_sdist_has_the_sources_and_no_results(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}
    assert {"pyproject.toml", "README.md", "LICENSE", "implicit_bias/report/page.css"} <= names
    assert {"tests/test_package.py", "examples/plot_deep_linear.py", "docs/conf.py"} <= names
    assert not any(name.startswith("benchmarks/results") for name in names)
    assert sdist.stat().st_size < 5e6
