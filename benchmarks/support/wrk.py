"""wrk as the generator of closed-loop load: its script, one run, its figures."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.support.machine import pinned
from benchmarks.support.payloads import TICKET
from benchmarks.support.processes import NotReadyError

__all__ = ["WrkResult", "parse_wrk", "run_wrk", "wrk_script"]

_MARK = "BENCHMARK-RESULT "
_REQUEST = """
local before, behind, count
function init(args)
  local whole = wrk.format()
  local at = whole:find("%s", 1, true)
  before, behind, count = whole:sub(1, at - 1), whole:sub(at + 8), 0
end
function request()
  count = count + 1
  return before .. string.format("%%08d", count) .. behind
end
"""
_DONE = """
function done(summary, latency, requests)
  local e = summary.errors
  io.write(string.format(
    '%s{"completed":%%d,"bytes":%%d,"duration_us":%%d,"errors":%%d,"p50_us":%%d,"p99_us":%%d}\\n',
    summary.requests, summary.bytes, summary.duration,
    e.connect + e.read + e.write + e.status + e.timeout,
    latency:percentile(50), latency:percentile(99)))
end
"""


@dataclass(frozen=True, slots=True)
class WrkResult:
    """Figures of one run. `bytes` are those of whole responses, heads included."""

    completed: int
    bytes: int
    duration_us: int
    errors: int
    p50_us: int
    p99_us: int
    failure: str | None = None

    @property
    def requests_per_s(self) -> float:
        """Completed requests per second."""
        return self.completed / (self.duration_us / 1e6)


def wrk_script(body: bytes, key: str | None) -> str:
    """The Lua script that posts `body`, each time with another ticket number in it."""
    lines = [
        'wrk.method = "POST"',
        f"wrk.body = {_lua_string(body.decode())}",
        'wrk.headers["Content-Type"] = "application/json"',
    ]
    if key is not None:
        lines.append(f'wrk.headers["Authorization"] = {_lua_string(f"Bearer {key}")}')
    lines.append(_REQUEST % TICKET)
    return "\n".join(lines) + _DONE % _MARK


def parse_wrk(output: str) -> WrkResult:
    """The figures in wrk's output; an error and no figures where it has none."""
    for line in output.splitlines():
        if line.startswith(_MARK):
            return WrkResult(**json.loads(line.removeprefix(_MARK)))
    return WrkResult(0, 0, 1, 1, 0, 0, failure=f"wrk gave no result: {output[-500:].strip()}")


def run_wrk(
    url: str,
    body: bytes,
    *,
    key: str | None,
    connections: int,
    duration_s: float,
    core: int,
    directory: Path,
    meanwhile: Callable[[], None],
) -> WrkResult:
    """One run of one thread on `core`; `directory` holds its script.

    `meanwhile` is called twice a second until shortly before the end.
    """
    program = shutil.which("wrk")
    if program is None:
        raise NotReadyError("wrk is not installed: apt-get install wrk")
    script = directory / "post.lua"
    script.write_text(wrk_script(body, key))
    seconds = max(1, round(duration_s))
    argv = [program, "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s"]
    with pinned(core):
        running = subprocess.Popen(
            [*argv, "-s", str(script), url],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        for _ in range(seconds * 2 - 1):
            time.sleep(0.5)
            meanwhile()
        output, _ = running.communicate(timeout=30)
    finally:
        running.kill()
        running.wait()
    return parse_wrk(output)


def _lua_string(text: str) -> str:
    # JSON escapes are Lua escapes, \\/ and \\uXXXX apart: json.dumps makes neither of ASCII text.
    if not text.isascii():
        raise ValueError("the script takes ASCII text only")
    return json.dumps(text)
