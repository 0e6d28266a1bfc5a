"""Set-up scripts: which Python they take, what they say without one, when they do nothing."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash") or "bash"
COMMANDS = ("bash", "cat", "cut", "dirname", "dpkg-query", "grep", "sha256sum")
OLD = "exit 1"
SHIM = 'echo "not active" >&2; exit 127'
NO_ENSUREPIP = (
    'case "$2" in *"ensurepip, venv"*) exit 1;; *-venv*) echo python3.99-venv; exit 0;; esac; '
    f'exec "{sys.executable}" "$@"'
)
GOOD = f'exec "{sys.executable}" "$@"'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A PATH without any Python and without apt-get."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for command in COMMANDS:
        if found := shutil.which(command):
            (directory / command).symlink_to(found)
    return directory


def run(repository: Path, path: Path, script: str) -> subprocess.CompletedProcess[str]:
    """Run lines of shell with the functions of venv.sh and that PATH."""
    return subprocess.run(
        [BASH, "-euo", "pipefail", "-c", f". scripts/venv.sh; {script}"],
        cwd=repository,
        env={"PATH": str(path)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def put(path: Path, name: str, body: str) -> None:
    """Put a command on the PATH."""
    (path / name).write_text(f"#!{BASH}\n{body}\n")
    (path / name).chmod(0o755)


@pytest.mark.parametrize(
    ("pythons", "taken"),
    [
        pytest.param({"python3": GOOD}, "python3", id="the default is good"),
        pytest.param({"python3": OLD, "python3.12": GOOD}, "python3.12", id="it is too old"),
        pytest.param({"python3": SHIM, "python3.11": GOOD}, "python3.11", id="it is a dead shim"),
        pytest.param(
            {"python3": NO_ENSUREPIP, "python3.13": GOOD}, "python3.13", id="it has no ensurepip"
        ),
    ],
)
def test_the_first_usable_python_is_taken(
    repository: Path, path: Path, pythons: dict[str, str], taken: str
) -> None:
    for name, body in pythons.items():
        put(path, name, body)
    done = run(repository, path, "find_python")
    assert (done.returncode, done.stdout) == (0, f"{taken}\n")


@pytest.mark.parametrize(
    ("pythons", "message"),
    [
        pytest.param({}, "no Python 3.11 or newer found;", id="none"),
        pytest.param(
            {"python3": 'case "$2" in "") exit 0;; esac; exit 1'},
            "(too old: python3)",
            id="an old one",
        ),
        pytest.param(
            {"python3": NO_ENSUREPIP}, "install python3.99-venv", id="one without ensurepip"
        ),
    ],
)
def test_what_is_missing_is_named(
    repository: Path, path: Path, pythons: dict[str, str], message: str
) -> None:
    for name, body in pythons.items():
        put(path, name, body)
    done = run(repository, path, "find_python")
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stdout == ""


def test_a_step_is_done_again_when_a_file_changes(
    repository: Path, path: Path, tmp_path: Path
) -> None:
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "bin" / "python").symlink_to(sys.executable)
    file = tmp_path / "project.toml"
    file.write_text("a")
    check = f'is_current "{venv}" run "$(fingerprint "{file}" x)"'
    assert run(repository, path, check).returncode != 0
    run(repository, path, f'mark_current "{venv}" run "$(fingerprint "{file}" x)"')
    assert run(repository, path, check).returncode == 0
    file.write_text("b")
    assert run(repository, path, check).returncode != 0


def test_debian_packages_that_are_there_need_no_root(repository: Path, path: Path) -> None:
    done = run(repository, path, "scripts/setup-debian.sh bash cat")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_debian_package_that_cannot_be_installed_is_named(repository: Path, path: Path) -> None:
    done = run(repository, path, "scripts/setup-debian.sh bash no-such-package-here")
    assert done.returncode == 3
    assert "no-such-package-here" in done.stderr
    assert "bash" not in done.stderr


def test_every_script_is_valid_shell(repository: Path) -> None:
    scripts = [*repository.glob("scripts/*.sh"), repository / ".ci" / "run"]
    assert len(scripts) > 5
    for script in scripts:
        subprocess.run([BASH, "-n", script], check=True, timeout=60)
