"""Real runs of the embedded engine behind `mileage serve`: to learn from, and to be predicted."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support.calls import Call, Mix, bursty_times, poisson_times
from benchmarks.support.governed import GovernedStack
from benchmarks.support.load_client import Loop, run_loops, run_schedule
from benchmarks.support.machine import pinned
from benchmarks.support.output import Output
from benchmarks.support.processes import NotReadyError
from benchmarks.support.watch import GATEWAY_CORE, LOAD_CORE

__all__ = ["FreshRun", "fresh_run", "learning_run", "run_mileage"]

MODEL = "smollm2"
SLOTS, WEIGHTS = 8, "q4_0"
EMBEDDED = {"slots": SLOTS, "threads": 1, "weights": WEIGHTS}
LEARNT = Mix(model=MODEL, prompt_tokens=(12, 300), output_tokens=(6, 72), words=True)
FRESH = Mix(model=MODEL, prompt_tokens=(24, 160), output_tokens=(12, 48), words=True)
WARMING = Mix(model=MODEL, prompt_tokens=(12, 48), output_tokens=(6, 18), words=True)
CLIENTS = (1, 2, 4, 8)
RATES_PER_S = (0.35, 0.7)
FRESH_RATE_PER_S = 1.0
FRESH_VARIATION = 1.5
"""Coefficient of variation of the gaps between arrivals: they come in bursts."""
SETTLE_S = 2.0
_DRAIN_S = 60.0
_PROGRAM = str(Path(sys.executable).parent / "mileage")


def _stack(directory: Path) -> GovernedStack:
    return GovernedStack(
        directory,
        core=GATEWAY_CORE,
        sections={"embedded": EMBEDDED},
        engine_core=LOAD_CORE,
        model=MODEL,
    )


def _warm(port: int) -> None:
    """Every slot has seen a prompt, and with it what all prompts begin with."""
    run_loops(port, [Loop(WARMING.endless(1), 2 * SLOTS)], duration_s=SETTLE_S, drain_s=_DRAIN_S)


def learning_run(directory: Path, output: Output, *, seconds: float, seed: int) -> list[Call]:
    """Varied load, as over a day: few clients and many, then arrivals by chance at two rates."""
    calls: list[Call] = []
    part_s = seconds / (len(CLIENTS) + len(RATES_PER_S))
    with pinned(GATEWAY_CORE), _stack(directory) as stack:
        port = stack.chat_port
        _warm(port)
        for clients in CLIENTS:
            endless = LEARNT.endless(seed + clients)
            calls += run_loops(port, [Loop(endless, clients)], duration_s=part_s, drain_s=_DRAIN_S)
            output.say(f"learning: {clients} clients, {len(calls)} answers so far")
        for number, rate in enumerate(RATES_PER_S):
            times = poisson_times(seed + 20 + number, rate, part_s)
            some = LEARNT.calls(seed + 30 + number, times)
            run_schedule(port, some, drain_s=_DRAIN_S)
            calls += some
            output.say(f"learning: {rate:g} requests/s, {len(calls)} answers so far")
        time.sleep(SETTLE_S)  # until the ledger has all of them
    return calls


@dataclass(frozen=True, slots=True)
class FreshRun:
    """What clients saw. `begin_s`: from the first arrival that is in the ledger to this load's."""

    calls: Sequence[Call]
    begin_s: float


def fresh_run(directory: Path, output: Output, *, seconds: float, seed: int) -> FreshRun:
    """Another engine process, other lengths, bursts, at about half of what it can do."""
    with pinned(GATEWAY_CORE), _stack(directory) as stack:
        started_s = time.monotonic()
        _warm(stack.chat_port)
        time.sleep(SETTLE_S)
        times = bursty_times(seed, FRESH_RATE_PER_S, seconds, variation=FRESH_VARIATION)
        calls = FRESH.calls(seed + 1, times)
        begin_s = time.monotonic() - started_s
        output.say(f"fresh run: {len(calls)} requests over {seconds:.0f} s")
        run_schedule(stack.chat_port, calls, drain_s=_DRAIN_S)
        time.sleep(SETTLE_S)
    # A little earlier: the first arrival of all was a little after the start.
    return FreshRun(calls, begin_s - SETTLE_S / 2)


def run_mileage(*arguments: str) -> dict[str, Any]:
    """The JSON document of a command; raises NotReadyError with what it said instead."""
    done = subprocess.run(
        [_PROGRAM, *arguments, "--json"], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        raise NotReadyError(f"mileage {arguments[0]} failed: {done.stderr[-500:]}")
    document: dict[str, Any] = json.loads(done.stdout)
    return document
