"""The one line of progress that set-up shows, read off pip's own lines."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def pip_progress(repository: Path) -> ModuleType:
    """The script as a module: its name is a command's, and cannot be imported."""
    path = repository / "scripts" / "pip-progress.py"
    spec = importlib.util.spec_from_file_location("pip_progress", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def after(pip_progress: ModuleType, *lines: str) -> str:
    """The progress line after these lines of pip, 7 s into the run."""
    progress = pip_progress.Progress()
    for line in lines:
        progress.feed(line)
    return str(progress.line(7.0))


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        pytest.param([], "resolving (0 found, 0 MB, 7 s)", id="nothing said yet"),
        pytest.param(
            ["Collecting numpy>=1.26 (from mileage==0.1.0)", "Collecting numpy"],
            "resolving numpy (1 found, 0 MB, 7 s)",
            id="a package counts once",
        ),
        pytest.param(
            [
                "Collecting a",
                "  Downloading a_b-1.0-py3-none-any.whl (9 MB)",
                "Progress 1000000 of 9000000",
                "Progress 3000000 of 9000000",
            ],
            "downloading a_b (1 found, 3 MB, 7 s)",
            id="bytes of a download replace each other",
        ),
        pytest.param(
            [
                "  Downloading a-1.whl",
                "Progress 2000000 of 2000000",
                "  Downloading b-1.whl",
                "Progress 1000000 of 2000000",
            ],
            "downloading b (0 found, 3 MB, 7 s)",
            id="bytes of several downloads add up",
        ),
        pytest.param(
            ["Processing some/where/uvloop-0.22-cp311.whl (from x)"],
            "resolving uvloop (1 found, 0 MB, 7 s)",
            id="a local wheel",
        ),
        pytest.param(
            ["Installing collected packages: a, b, c"],
            "installing 3 packages (0 found, 0 MB, 7 s)",
            id="installing",
        ),
    ],
)
def test_progress_line(pip_progress: ModuleType, lines: list[str], shown: str) -> None:
    assert after(pip_progress, *lines) == shown


def test_the_result_counts_packages(pip_progress: ModuleType) -> None:
    progress = pip_progress.Progress()
    progress.feed("Successfully installed a-1.0")
    assert progress.result == "1 package installed"
