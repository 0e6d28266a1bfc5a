"""`mileage doctor profile --run`: run the plan in a directory of its own; which files it made."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Final

from rich.console import Console

from mileage.core.errors import ConfigError, EngineError
from mileage.doctor.profile_plan import ProfilePlan
from mileage.scrape.engine_profile import profile_engine
from mileage.scrape.profiler_process import run_profiler

__all__ = ["run_plan"]

_TRACES: Final = ("*.json", "*.json.gz")
_MISSING: Final = {
    "py-spy": ("--pid", "the process to look at"),
    "torch": ("--url", "the engine to profile"),
    "nsys": ("--command", "the engine's command line, which nsys starts"),
    "ncu": ("--command", "the engine's command line, which ncu starts"),
}


def run_plan(
    plan: ProfilePlan,
    directory: Path,
    *,
    for_s: float,
    url: str | None = None,
    trace_dir: Path | None = None,
) -> list[Path]:
    """Run it; the files to read. The directory is made anew, so that nothing is overwritten.

    Raises:
        ConfigError: something is not known that it needs, or the directory is there already.
        EngineError: the profiler is not installed, fails, or leaves nothing.
    """
    if not plan.is_whole:
        key, expected = _MISSING[plan.tool]
        raise ConfigError(key, None, expected)
    if plan.tool == "torch":
        assert url is not None
        return _of_engine(url, directory, for_s, trace_dir)
    program = plan.commands[0][0]
    if shutil.which(program) is None:
        raise EngineError(program, f"is not installed; to get it: {plan.install}")
    _make(directory)
    log, result = directory / "log.txt", Path(plan.result)
    Console(stderr=True).print(f"{program}: {plan.cost}", highlight=False)
    for number, words in enumerate(plan.commands):
        is_last = number == len(plan.commands) - 1
        prints = is_last and str(result) not in words
        printed = result if prints else directory / "output.txt"
        try:
            run_profiler(words, stdout=printed, log=log, timeout_s=plan.timeout_s)
        except EngineError:
            # A profiler passes on how the engine ended, which it was told to end itself.
            made = any(directory.glob("run.*")) if not is_last else _holds(result)
            if not made:
                raise
    if not _holds(result):
        raise EngineError(program, f"left nothing in {result}: see {log}")
    return [result]


def _of_engine(url: str, directory: Path, for_s: float, trace_dir: Path | None) -> list[Path]:
    if trace_dir is not None and not trace_dir.is_dir():
        raise ConfigError("--trace-dir", str(trace_dir), "a directory")
    before = _traces(trace_dir) if trace_dir is not None else set()
    _make(directory)
    with Console(stderr=True).status(f"profiling for {for_s:g} s"):
        told = asyncio.run(profile_engine(url, directory=str(directory.absolute()), for_s=for_s))
    place = directory if told else trace_dir
    if place is None:
        raise EngineError(
            url,
            "was profiled; its traces are in the directory that it was started with, on its "
            "machine: give them with --read (or, on this machine, name it with --trace-dir)",
        )
    found = sorted(_traces(place) - before)
    if not found:
        raise EngineError(url, f"was profiled, but there is no new trace in {place}")
    return found


def _traces(directory: Path) -> set[Path]:
    return {path for pattern in _TRACES for path in directory.rglob(pattern)}


def _holds(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True)
    except OSError as error:
        expected = f"a directory that is not there yet ({error.strerror})"
        raise ConfigError("--to", str(directory), expected) from None
