"""Lanes: several arms side by side, each with a step engine and a gateway of its own.

A step engine and a gateway at these rates use a few percent of a core, so that four pairs do not
disturb each other; that the engines kept their step times is checked all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from benchmarks.support.calls import Call
from benchmarks.support.goodput import Arm
from benchmarks.support.governor_part import LAG_MAX_S, Part, Surroundings
from benchmarks.support.load_client import run_schedule
from benchmarks.support.step_upstream import StepUpstream, late_steps
from benchmarks.support.watch import LOAD_CORE

__all__ = ["Lane", "run_lanes"]

LANES = 4


@dataclass(slots=True)
class Lane:
    """One arm: `sections` of its gateway, None where clients call the engine straight.

    Afterwards `calls` tell what became of them, and `stats` what its engine did.
    """

    name: str
    calls: list[Call]
    sections: Mapping[str, Any] | None = None
    engine: Mapping[str, Any] = field(default_factory=dict)
    stats: dict[str, Any] = field(default_factory=dict)


def run_lanes(
    around: Surroundings,
    lanes: Sequence[Lane],
    part: Part,
    *,
    drain_s: float,
    lag_max_s: float = LAG_MAX_S,
) -> None:
    """Run all of them, four at a time; what went wrong goes to `part`."""
    for at in range(0, len(lanes), LANES):
        wave = lanes[at : at + LANES]
        around.output.say(f"running {', '.join(lane.name for lane in wave)}")
        with ExitStack() as up:
            _run_wave(around, wave, up, drain_s)
        for lane in wave:
            _check(lane, part, lag_max_s)


def _run_wave(around: Surroundings, wave: Sequence[Lane], up: ExitStack, drain_s: float) -> None:
    engines, ports = [], []
    for lane in wave:
        directory = around.new_directory(lane.name)
        engine = up.enter_context(StepUpstream(directory, core=LOAD_CORE, **lane.engine))
        engines.append(engine)
        if lane.sections is None:
            ports.append(engine.port)
            continue
        stack = around.gateway(
            directory, sections=lane.sections, engine_url=engine.url, engine_slots=engine.slots
        )
        ports.append(up.enter_context(stack).chat_port)
    for engine in engines:
        engine.reset_lags()
    with ThreadPoolExecutor(len(wave)) as threads:
        runs = [
            threads.submit(run_schedule, port, lane.calls, drain_s=drain_s)
            for port, lane in zip(ports, wave, strict=True)
        ]
        for run in runs:
            run.result()
    for lane, engine in zip(wave, engines, strict=True):
        lane.stats = engine.stats()


def _check(lane: Lane, part: Part, lag_max_s: float) -> None:
    arm = Arm(lane.name)
    arm.add(lane.calls, 1.0)
    part.note_lag(lane.name, arm.lag_s(), lag_max_s)
    part.failures += arm.errors()[:1]
    late = late_steps(lane.stats["lags"])
    if late is not None:
        part.doubts.append(f"{lane.name}: {late}")
