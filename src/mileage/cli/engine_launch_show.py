"""What happens to a launched engine, as lines for people."""

from __future__ import annotations

import signal

import msgspec
from rich.console import Console

from mileage.cli.terminal_text import safe_text
from mileage.engines.launch.events import (
    Ended,
    LaunchEvent,
    Preload,
    Ready,
    Restarting,
    Started,
    Stopping,
    Up,
    Warmed,
)
from mileage.engines.launch.preload import Preloaded
from mileage.engines.launch.start_watch import StartTimes
from mileage.engines.launch.warm_up import WarmTook

__all__ = ["phase_words", "show_event"]

_TITLES = {
    "import_s": "program loaded",
    "engine_process_s": "engine process",
    "weights_s": "weights",
    "p2p_check_s": "links between GPUs",
    "dynamo_s": "tracing",
    "compile_s": "compiling",
    "kv_profile_s": "profiling memory",
    "graph_capture_s": "graph capture",
    "engine_init_s": "after the weights",
    "server_up_s": "server up",
    "first_token_s": "first token",
    "warm_up_s": "warm-up",
    "ready_s": "ready",
    "silent_s": "longest silence",
}


def show_event(console: Console, event: LaunchEvent, *, quiet: bool) -> None:
    """A line or a few. `quiet`: the engine's own output is not shown beside them."""
    for line in _lines(event, quiet=quiet):
        console.print(safe_text(f"mileage: {line}"), soft_wrap=True)


def phase_words(times: StartTimes) -> list[tuple[str, float]]:
    """Titles and seconds of the phases that were seen."""
    values = msgspec.structs.asdict(times)
    return [(title, values[name]) for name, title in _TITLES.items() if values[name] is not None]


def _lines(event: LaunchEvent, *, quiet: bool) -> list[str]:
    match event:
        case Started():
            attempt = f" (start {event.attempt})" if event.attempt > 1 else ""
            return [f"starting{attempt}: {' '.join(event.command)}"]
        case Preload():
            return [_preloaded(event.result)]
        case Up():
            return [f"its server is up after {event.after_s:.1f} s; waiting for a token"]
        case Warmed():
            return [_warmed(event.took)]
        case Ready():
            told = ", ".join(f"{title} {took:.1f} s" for title, took in phase_words(event.times))
            return [f"ready after {event.after_s:.1f} s: {told}"]
        case Ended():
            return _ended(event, quiet=quiet)
        case Restarting():
            of = f"{event.restart} of {event.restarts_max}"
            return [f"starting it again in {event.in_s:g} s (restart {of})"]
        case Stopping():
            return [f"stopping: it gets {event.drain_s:g} s; once more to stop at once"]


def _preloaded(found: Preloaded) -> str:
    read, total = found.bytes / 2**30, found.bytes_total / 2**30
    rate = f", {read / found.seconds:.2f} GiB/s" if found.seconds > 0 and found.bytes else ""
    line = f"preload: {read:.2f} of {total:.2f} GiB in {found.seconds:.1f} s{rate}"
    return line if found.stopped is None else f"{line}; {found.stopped}"


def _warmed(took: WarmTook) -> str:
    shape = f"warm-up {took.prompt_tokens} tokens x {took.batch}"
    if took.first_s is None or took.second_s is None:
        return f"{shape}: {took.failed}"
    return f"{shape}: {took.first_s:.3f} s, then {took.second_s:.3f} s"


def _ended(event: Ended, *, quiet: bool) -> list[str]:
    how = f"exit code {event.exit_code}" if event.exit_code >= 0 else _signal(-event.exit_code)
    if event.asked or (event.exit_code == 0 and event.cause is None):
        return [f"the engine has ended ({how})"]
    when = "" if event.ready else ", before it was ready"
    why = f": {event.why}" if event.why is not None else ""
    lines = [f"the engine failed after {event.after_s:.1f} s ({how}){when}{why}"]
    if quiet and event.tail:
        lines += ["its last lines:", *(f"  {line}" for line in event.tail)]
    return lines


def _signal(number: int) -> str:
    try:
        return f"killed by {signal.Signals(number).name}"
    except ValueError:
        return f"killed by signal {number}"
