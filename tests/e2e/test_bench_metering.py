"""The metering benchmark runs, counts every record, and says what it found as JSON."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.skipif(shutil.which("nginx") is None, reason="nginx is not installed"),
    pytest.mark.skipif(not {0, 1} <= os.sched_getaffinity(0), reason="needs the cores 0 and 1"),
]


def test_a_quick_run_measures_both_gateways_and_loses_no_record() -> None:
    command = [sys.executable, "-m", "benchmarks.metering", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout.splitlines()[-1])
    # One short round says nothing of a bar that is missed; a record that is lost is a failure.
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert all("missed" in reason for reason in found["reasons"]), found["reasons"]
    assert found["fast_rows"] == found["fast_requests"] == 4000
    assert found["engine_cpu_s_per_1000"]["median"] > found["gateway_cpu_s_per_1000_with"]["median"]
    assert found["fast_gateway_cpu_s_per_1000_without"]["median"] > 0
