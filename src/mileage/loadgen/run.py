"""run_load(): offer a plan of calls to servers, and tell what became of each."""

from __future__ import annotations

import asyncio
import datetime
import gc
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec

from mileage.core.errors import ConfigError
from mileage.loadgen.feed import Feed
from mileage.loadgen.file_room import file_room
from mileage.loadgen.generator_use import GeneratorUse
from mileage.loadgen.load_runner import LoadRunner
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from mileage.measure.call_record import CallRecord

__all__ = ["LoadRun", "run_load"]

_AHEAD_S = 1.0
"""Spent on the plan's first calls before the run begins."""
_LEAD_S = 0.02


class LoadRun(msgspec.Struct, frozen=True, kw_only=True):
    """What a run gave. All `*_s` but `zero_monotonic_s` are seconds since it began."""

    records: list[CallRecord]
    """One for every call that came due, in the order in which they ended."""
    generator: GeneratorUse
    started_at_utc: str
    """ISO 8601, of the run's zero."""
    zero_monotonic_s: float
    """The run's zero on time.monotonic(): what other samples of this machine are aligned by."""
    start_s: float
    """The measured window; empty (end = start) where the run was stopped before it."""
    end_s: float
    elapsed_s: float
    """Until the last answer, or until the run was stopped."""
    stopped: bool = False
    """It was stopped before its end; its calls so far are recorded as they were."""
    plan_error: str | None = None
    """The plan broke off with this error; the calls before it were sent."""
    given_up: str | None = None
    """It ended before its time, as no target said anything any more."""


async def run_load(
    calls: Iterable[PlannedCall],
    targets: Sequence[Target],
    options: RunOptions,
    *,
    on_record: Callable[[CallRecord], None] | None = None,
    stop: asyncio.Event | None = None,
) -> LoadRun:
    """Send the calls to their targets as `options` say, and record every one of them.

    Runs on the calling thread's event loop, which should be uvloop's and have nothing else of
    weight to do; the garbage collector rests meanwhile. `on_record` is called for each record as
    it is made. When `stop` is set, what is in flight is recorded as `cancelled`, what was due and
    never left as `unsent`, and the result is complete up to there. Nothing that a server does
    raises: it is an outcome. Raises ConfigError without a target.
    """
    if not targets:
        raise ConfigError("targets", [], "at least one")
    connections_max = min(options.connections_max, max(1, file_room() // len(targets)))
    feed = Feed(calls)
    with _no_collection():
        feed.fill(_AHEAD_S)
        zero_s = time.monotonic() + _LEAD_S
        started_at = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=_LEAD_S)
        runner = LoadRunner(
            feed,
            targets,
            options,
            zero_s=zero_s,
            connections_max=connections_max,
            on_record=on_record,
        )
        runner.start()
        try:
            stopped = await _over_or_stopped(runner, stop)
            elapsed_s = max(0.0, runner.now_s())
        finally:
            runner.stop()
    start_s = options.warmup_s
    end_s = elapsed_s if options.duration_s is None else start_s + options.duration_s
    return LoadRun(
        records=runner.records,
        generator=_told_of(runner, options),
        started_at_utc=started_at.isoformat(timespec="milliseconds"),
        zero_monotonic_s=zero_s,
        start_s=start_s,
        end_s=max(start_s, min(end_s, elapsed_s)),
        elapsed_s=elapsed_s,
        stopped=stopped,
        plan_error=feed.error,
        given_up=runner.given_up,
    )


def _told_of(runner: LoadRunner, options: RunOptions) -> GeneratorUse:
    """What the generator used, and whether it could keep up with the plan at all."""
    use = runner.gauge.use(runner.records, closed=options.mode == "closed")
    if runner.unrecorded_from_s is None:
        return use
    text = (
        f"it was so far behind the plan that calls due after {runner.unrecorded_from_s:.3g} s "
        "were never sent, and are not in the statistics: ask for less load"
    )
    return msgspec.structs.replace(use, limited=True, reason=text)


async def _over_or_stopped(runner: LoadRunner, stop: asyncio.Event | None) -> bool:
    """Wait for the run's end; True where it was stopped before."""
    if stop is None:
        await runner.done
        return False
    stopping = asyncio.ensure_future(stop.wait())
    waited: set[asyncio.Future[Any]] = {runner.done, stopping}
    try:
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if stopped := not runner.done.done():
            runner.give_up()
    finally:
        stopping.cancel()
    await runner.done
    return stopped


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection meanwhile, which would delay what is due, and none of what is old."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
