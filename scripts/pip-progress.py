"""Runs pip install and shows its progress as one line; shows pip's own output only if it fails.

Usage: PYTHON scripts/pip-progress.py PIP_INSTALL_ARGUMENTS...
"""

from __future__ import annotations

import io
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator

BEAT_TTY_S = 0.2
BEAT_LOG_S = 10.0  # a log gets a sign of life, not an animation


class Progress:
    """What pip has done so far, read off its lines."""

    def __init__(self) -> None:
        self.doing = "resolving"
        self.packages: set[str] = set()
        self.bytes_done = 0
        self._bytes_now = 0
        self.result = ""

    def feed(self, line: str) -> None:
        """Take one line of `pip install --progress-bar raw`."""
        if match := re.match(r"Progress (\d+) of (\d+)", line):
            self._bytes_now = int(match[1])
        elif match := re.match(r"(?:Collecting|Requirement already satisfied:) ([\w.-]+)", line):
            self.packages.add(match[1].lower())
            self.doing = f"resolving {match[1]}"
        elif match := re.match(r"Processing (\S+)\.whl", line):
            name = match[1].rpartition("/")[2].partition("-")[0]
            self.packages.add(name.lower())
            self.doing = f"resolving {name}"
        elif match := re.match(r"\s*(?:Downloading|Using cached) (\S+)", line):
            self.bytes_done += self._bytes_now
            self._bytes_now = 0
            self.doing = f"downloading {match[1].rpartition('/')[2].partition('-')[0]}"
        elif line.startswith("Building "):
            self.doing = "building"
        elif match := re.match(r"Installing collected packages: (.*)", line):
            self.doing = f"installing {packages(match[1].count(',') + 1)}"
        elif match := re.match(r"Successfully installed (.*)", line):
            self.result = f"{packages(len(match[1].split()))} installed"

    def line(self, seconds: float) -> str:
        """The state in words."""
        megabytes = (self.bytes_done + self._bytes_now) / 1e6
        return f"{self.doing} ({len(self.packages)} found, {megabytes:.0f} MB, {seconds:.0f} s)"


def packages(count: int) -> str:
    """The count in words."""
    return f"{count} package{'' if count == 1 else 's'}"


def lines_of(stream: io.BufferedReader, beat_s: float) -> Iterator[str | None]:
    """The stream's lines as they come, and None whenever none came for `beat_s`."""
    with selectors.DefaultSelector() as ready:
        ready.register(stream, selectors.EVENT_READ)
        rest = b""
        while True:
            if not ready.select(timeout=beat_s):
                yield None
                continue
            data = stream.read1(65536)
            if not data:
                break
            *lines, rest = (rest + data).split(b"\n")
            yield from (line.decode(errors="replace") for line in lines)
    yield rest.decode(errors="replace")


def main(arguments: list[str]) -> int:
    """Run pip; returns its exit status."""
    command = [sys.executable, "-m", "pip", "install", "--no-input", "--progress-bar", "raw"]
    progress = Progress()
    tail: deque[str] = deque(maxlen=60)
    animated = sys.stdout.isatty()
    beat_s = BEAT_TTY_S if animated else BEAT_LOG_S
    start_s = shown_s = time.monotonic()
    with subprocess.Popen(
        [*command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as pip:
        assert isinstance(pip.stdout, io.BufferedReader)
        for line in lines_of(pip.stdout, beat_s):
            if line is not None:
                progress.feed(line)
                if not line.startswith("Progress "):
                    tail.append(line)
            now_s = time.monotonic()
            if now_s - shown_s >= beat_s:
                shown_s = now_s
                show(progress.line(now_s - start_s), animated)
    if pip.returncode != 0:
        show("", animated)
        print("\n".join(tail), file=sys.stderr)
        print(f"error: pip install failed (exit {pip.returncode})", file=sys.stderr)
        return pip.returncode
    seconds = time.monotonic() - start_s
    show(f"{progress.result or 'nothing new to install'} ({seconds:.0f} s)", animated)
    if animated:
        print()
    return 0


def show(text: str, animated: bool) -> None:
    """Print the line; on a terminal in place of the last one."""
    if animated:
        print(f"\r\033[K    {text}"[:110], end="", flush=True)
    elif text:
        print(f"    {text}", flush=True)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:  # pip got it too and is ending
        sys.exit(130)
