"""`mileage bench` as a process: what it printed, its document, and its exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import msgspec

__all__ = ["QUICK", "Told", "bench", "start_bench"]

WITHIN_S = 60.0
QUICK = ("--rate", "40", "--duration", "1s", "--warmup", "0.3s", "--prompt-tokens", "20",
         "--output-tokens", "5", "--no-calibrate", "--metrics-url", "none")  # fmt: skip
"""A short run of short requests."""


class Told(msgspec.Struct, frozen=True):
    """What a process said when it was over."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """Standard output as one JSON document, which is all of it."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def start_bench(*arguments: str, environ: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """The command under way."""
    return subprocess.Popen(
        [sys.executable, "-m", "mileage.cli.main", "bench", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(environ or {})},
    )


def bench(*arguments: str, environ: dict[str, str] | None = None) -> Told:
    """The command, run to its end."""
    with start_bench(*arguments, environ=environ) as process:
        try:
            out, err = process.communicate(timeout=WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    return Told(process.returncode, out, err)
