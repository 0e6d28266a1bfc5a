"""What every test gets: an environment of its own, shared data, and a check for left processes."""

from __future__ import annotations

import ctypes
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
KEPT = ("MILEAGE_DATA_DIR", "MILEAGE_CACHE_DIR", "MILEAGE_CI_RUN")
XDG = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
PR_SET_CHILD_SUBREAPER = 36
END_WAIT_S = 60.0

_saved_environment: dict[str, str] = {}
_home: Path | None = None


def pytest_configure(config: pytest.Config) -> None:
    """Point the directories of the user at a temporary place before any test module is imported.

    The model cache stays the user's own, so that the model is fetched once and not per run.
    """
    global _home
    # A busy machine is no failure of the code: examples have no deadline. They are the same in each
    # run, so that a change is not blamed for what another run would have found before it.
    settings.register_profile(
        "mileage",
        deadline=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=not os.environ.get("MILEAGE_TEST_EXPLORE"),
    )
    settings.load_profile("mileage")
    _saved_environment.update(os.environ)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    os.environ.setdefault("MILEAGE_CACHE_DIR", str(Path(cache) / "mileage"))
    for key in [k for k in os.environ if k.startswith("MILEAGE_") and k not in KEPT]:
        del os.environ[key]
    _home = Path(tempfile.mkdtemp(prefix="mileage-test-"))
    for key in XDG:
        os.environ[key] = str(_home / key.lower())
    if sys.platform == "linux":
        # Orphans of our children become our children, and the check below sees them.
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the temporary place and restore the environment."""
    if _home is not None:
        shutil.rmtree(_home, ignore_errors=True)
    os.environ.clear()
    os.environ.update(_saved_environment)


def left_processes(wait_s: float) -> list[str]:
    """Command lines of children and orphans that still run after waiting up to `wait_s`."""
    deadline_s = time.monotonic() + wait_s
    while True:
        left = []
        for process in psutil.Process().children(recursive=True):
            try:
                if process.status() == psutil.STATUS_ZOMBIE:
                    continue
                command = " ".join(process.cmdline())
            except psutil.NoSuchProcess:
                continue
            # The standard library's own, which ends with this process.
            if "multiprocessing.resource_tracker" not in command:
                left.append(f"{process.pid}: {command}")
        if not left or time.monotonic() >= deadline_s:
            return left
        time.sleep(0.05)


@pytest.fixture(scope="session", autouse=True)
def no_process_left() -> Iterator[None]:
    """At the end of the session nothing that a test started still runs."""
    yield
    left = left_processes(END_WAIT_S)
    assert not left, "processes left behind by tests:\n" + "\n".join(left)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """Recorded traces and metrics (MILEAGE_DATA_DIR); skips where there are none."""
    value = os.environ.get("MILEAGE_DATA_DIR")
    if not value:
        pytest.skip("MILEAGE_DATA_DIR is not set: no recorded traces and metrics here")
    path = Path(value)
    if not path.is_dir():
        pytest.skip(f"MILEAGE_DATA_DIR={value} is no directory")
    return path


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The Python of the environment that has vLLM; skips where it was not set up."""
    python = ROOT / ".venvs" / "vllm" / "bin" / "python"
    if not python.exists():
        pytest.skip("no vLLM here: run scripts/setup-vllm.sh (make test-heavy does)")
    return python
