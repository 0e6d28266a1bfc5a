"""Every command loads where only the base install is: an extra is asked for when it is used."""

from __future__ import annotations

import subprocess
import sys
import tomllib

from tests.docs.pages import ROOT

PROGRAM = """
import sys
BLOCKED = {blocked!r}
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in BLOCKED:
            raise ModuleNotFoundError(f"No module named {{name!r}}: an extra's", name=name)
sys.meta_path.insert(0, Blocker())
from mileage.cli.whole_command import app
assert app.registered_groups and app.registered_commands
"""
MODULES = {
    "nvidia-ml-py": "pynvml",
    "opentelemetry-sdk": "opentelemetry",
    "opentelemetry-exporter-otlp-proto-http": "opentelemetry",
    "psycopg": "psycopg",
    "pyyaml": "yaml",
    "scikit-learn": "sklearn",
}
"""Distributions whose module has another name."""


def extras() -> set[str]:
    """Modules of all extras that are not in the base install."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    base = {name(each) for each in project["dependencies"]}
    found = {name(each) for extra in project["optional-dependencies"].values() for each in extra}
    return {MODULES.get(each, each.replace("-", "_")) for each in found - base}


def name(requirement: str) -> str:
    """Of a distribution, without its versions and extras."""
    for mark in "[<>=!~; ":
        requirement = requirement.partition(mark)[0]
    return requirement.lower()


def test_every_command_loads_without_extras() -> None:
    blocked = sorted(extras())
    assert "plotly" in blocked
    program = PROGRAM.format(blocked=set(blocked))
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
