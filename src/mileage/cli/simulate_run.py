"""Runs one arm of a scenario, with its progress, and takes its figures."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from mileage.cli.simulate_delays import delay_answers
from mileage.cli.simulate_scenario import Arm, Scenario
from mileage.cli.simulate_workload import Workload
from mileage.sim.simulation import Progress as OnProgress
from mileage.sim.simulation import SimResult, Simulation
from mileage.sim.step_log import Watcher
from mileage.sim.summary import Summary, summarise

__all__ = ["ArmRun", "run_arm"]


class ArmRun(msgspec.Struct, frozen=True, kw_only=True):
    """An arm, and what came of it. `wall_s`: the simulation alone, without reading the trace."""

    arm: Arm
    rate_scale: float
    path: str
    """fast or python."""
    path_reason: str | None
    """Why it is not fast."""
    result: SimResult
    summary: Summary
    wall_s: float

    @property
    def requests_per_s(self) -> float:
        """Simulated requests per second of the real time."""
        return self.summary.requests / self.wall_s if self.wall_s > 0.0 else 0.0


def run_arm(
    scenario: Scenario,
    arm: Arm,
    work: Workload,
    console: Console,
    *,
    rate_scale: float,
    label: str | None = None,
    watcher: Watcher | None = None,
) -> ArmRun:
    """Simulate one arm at that rate. Raises TraceError for a request that no trace may have."""
    refusal: str | None = "--path python" if watcher is None else "every step is looked at"
    if scenario.path != "python" and watcher is None:
        # Only here: importing the compiler takes longer than most commands.
        from mileage.cli.simulate_fast import fast_refusal, prepare, run_compiled

        refusal = fast_refusal(scenario, arm, work)
    if refusal is None:
        prepare(arm, work, console)
        started_s = time.perf_counter()
        result = run_compiled(scenario, arm, work, rate_scale=rate_scale)
    else:
        with _bar(console, label or arm.name, work.count) as progress:
            started_s = time.perf_counter()
            simulation = Simulation(
                arm.fleet.specs,
                control=scenario.control_of(arm),
                config=scenario.sim,
                watcher=watcher,
            )
            result = simulation.run(work.at(rate_scale), progress=progress)
    wall_s = time.perf_counter() - started_s
    delay_answers(result, arm.fleet)
    summary = summarise(
        result,
        slo=scenario.slo,
        usd_per_gpu_hour=arm.fleet.usd_per_gpu_hour,
        itl=scenario.gaps,
    )
    return ArmRun(
        arm=arm,
        rate_scale=rate_scale,
        path="fast" if refusal is None else "python",
        path_reason=refusal,
        result=result,
        summary=summary,
        wall_s=wall_s,
    )


@contextmanager
def _bar(console: Console, label: str, count: int | None) -> Iterator[OnProgress]:
    """A bar with the time that is left, on a terminal; elsewhere nothing."""
    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("requests"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with bar:
        task = bar.add_task(label, total=count)
        yield lambda done: bar.update(task, completed=done)
