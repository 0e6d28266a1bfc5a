"""Stacks of `py-spy record --format raw` -> where Python spends its time."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from mileage.core.errors import TraceError
from mileage.doctor.collect.profile_reading import ProfileReading

__all__ = ["TOOL", "py_spy_reading"]

TOOL: Final = "py-spy"
_LINE: Final = re.compile(r"(?P<stack>\S.*) (?P<count>\d{1,15})")
_OPENED: Final = re.compile(r'process \d+:"')
_PROCESSES: Final = re.compile(r'(?:process \d+:".*?";)+', re.DOTALL)
_COMMAND_LINES_MAX: Final = 1000
_FRAME: Final = re.compile(r"\s*(?P<name>.+?) \((?P<file>[^()]*?)(?::\d+)?\)$")
_THREAD: Final = re.compile(r"\s*thread \(?[\w.-]+\)?.*", re.IGNORECASE)
_WORK: Final = {
    "tokenising": re.compile(r"tokeniz|encode_batch|apply_chat_template", re.IGNORECASE),
    "detokenising": re.compile(r"detokeniz|decode_stream|convert_ids", re.IGNORECASE),
    "scheduling": re.compile(r"schedul", re.IGNORECASE),
    "sampling": re.compile(r"sampl|logits_process", re.IGNORECASE),
    "grammars": re.compile(r"xgrammar|outlines|llguidance|grammar|structured_output", re.I),
    "media": re.compile(r"multimodal|image_process|\bPIL\b|torchvision", re.IGNORECASE),
    "serialising": re.compile(r"msgpack|msgspec|pickle|serial|json", re.IGNORECASE),
    "HTTP": re.compile(r"uvicorn|starlette|fastapi|httptools|h11|aiohttp", re.IGNORECASE),
}
_FUNCTIONS_MAX: Final = 20


def py_spy_reading(text: str, *, place: str) -> ProfileReading:
    """Figures: samples, the busiest thread's share, and by what work (the innermost that is known).

    py-spy leaves out threads that wait, so shares are of the time in which something ran.

    Raises:
        TraceError: a line is no stack with its number of samples.
    """
    functions: Counter[str] = Counter()
    work: Counter[str] = Counter()
    threads: Counter[str] = Counter()
    for number, line in _records(text, place):
        match = _LINE.fullmatch(line)
        if match is None:
            raise TraceError(place, number, "expected frames with ; between them and their samples")
        frames, count = match["stack"].split(";"), int(match["count"])
        functions[_function(frames[-1])] += count
        work[_work(frames)] += count
        if _THREAD.fullmatch(frames[0]):
            threads[frames[0]] += count
    total = sum(functions.values())
    figures = {"samples_count": float(total)}
    if threads and total:
        figures["threads_count"] = float(len(threads))
        figures["busiest_thread_ratio"] = max(threads.values()) / total
    if total:
        figures |= {f"{name}_ratio": count / total for name, count in work.most_common() if name}
    top = functions.most_common(_FUNCTIONS_MAX)
    return ProfileReading(
        tool=TOOL,
        place=place,
        facts={},
        figures=figures,
        functions=tuple((name, count / total) for name, count in top if total),
        notes=() if total else ("no samples: nothing ran while it watched",),
    )


def _records(text: str, place: str) -> Iterator[tuple[int, str]]:
    """Lines with the number of their first one, without the command lines of processes.

    A command line, which may have several lines, stands before the frames as it was written.
    """
    lines = text.splitlines()
    at = 0
    while at < len(lines):
        first, record = at, lines[at]
        at += 1
        if _OPENED.match(record):
            while (whole := _PROCESSES.match(record)) is None:
                if at >= len(lines) or at - first > _COMMAND_LINES_MAX:
                    raise TraceError(place, first + 1, "the command line of a process has no end")
                record, at = f"{record}\n{lines[at]}", at + 1
            record = record[whole.end() :]
        if record.strip():
            yield first + 1, record


def _function(frame: str) -> str:
    match = _FRAME.fullmatch(frame)
    if match is None:
        return frame.strip()
    return f"{match['name']} ({match['file']})"


def _work(frames: list[str]) -> str:
    """Which work the innermost frame that is known is of; empty where none is."""
    for frame in reversed(frames):
        for name, pattern in _WORK.items():
            if pattern.search(frame):
                return name
    return ""
