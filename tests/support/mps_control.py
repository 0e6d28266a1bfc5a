"""Stands in for NVIDIA's MPS control program: -d starts it, commands come on standard input.

It is up while `control.pid` is in CUDA_MPS_PIPE_DIRECTORY. What it was asked is kept in `commands`
of CUDA_MPS_LOG_DIRECTORY. A directory `broken` beside the pipes makes its start fail.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    pipe = Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
    log = Path(os.environ["CUDA_MPS_LOG_DIRECTORY"])
    running = pipe / "control.pid"
    if sys.argv[1:] == ["-d"]:
        if (pipe / "broken").exists():
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        if running.exists():
            sys.stderr.write("An instance of this daemon is already running\n")
            return 1
        running.write_text(str(os.getpid()))
        return 0
    if not running.exists():
        sys.stderr.write("Cannot find MPS control daemon process\n")
        return 1
    for line in sys.stdin:
        with (log / "commands").open("a") as file:
            file.write(line)
        if line.strip() == "quit":
            running.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
