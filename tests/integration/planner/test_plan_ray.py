"""`mileage plan --on ray`: on a real local cluster it comes to the same as on one core."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")

ARGUMENTS = (
    *("--model", "llama-3.1-8b", "--trace", "synthetic:rate=4,duration=60s", "--gpu", "h100,l40s"),
    *("--tp", "1,2", "--gpus-max", "2", "--precision", "bf16,fp8", "--kv-dtype", "bf16"),
    *("--engine-max-seqs", "64", "--engine-tokens", "512,2048", "--slo", "ttft=1s,itl=50ms"),
)


def planned(*arguments: str) -> dict[str, Any]:
    command = (sys.executable, "-m", "mileage.cli.main", "plan", *ARGUMENTS, *arguments, "--json")
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_cluster_comes_to_the_same_as_one_core() -> None:
    alone, spread = planned("--processes", "1"), planned("--on", "ray")
    assert spread["picks"] == alone["picks"]
    assert spread["pareto"] == alone["pareto"]
    assert spread["search"]["rounds"] == alone["search"]["rounds"]


def test_a_cluster_that_is_not_there_is_an_error() -> None:
    command = (
        sys.executable,
        "-m",
        "mileage.cli.main",
        "plan",
        *ARGUMENTS,
        "--on",
        "ray=127.0.0.1:1",
    )
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "--on" in done.stderr
    assert "Ray cluster" in done.stderr
