"""Runs: schedules, lanes, phases and limits, against a server on loopback."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from itertools import pairwise
from typing import Any

import pytest
import uvloop

from mileage.core.errors import ConfigError, TraceError
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import Ramp, RunOptions
from mileage.loadgen.target import Target
from mileage.measure.call_record import CallRecord
from tests.support.paced_server import PacedServer

pytestmark = pytest.mark.quiet


def calls(count: int, *, every_s: float = 0.0, **fields: Any) -> Iterator[PlannedCall]:
    """Calls for whole answers, evenly spaced."""
    usual: dict[str, Any] = {"path": b"/v1/chat/completions", "body": b"{}", "stream": False}
    for index in range(count):
        yield PlannedCall(index=index, scheduled_s=index * every_s, **{**usual, **fields})


def load(
    story: Callable[[PacedServer, Target], Coroutine[Any, Any, LoadRun]], **server: Any
) -> LoadRun:
    """Run a story beside a server, on the loop that load is generated on."""

    async def run() -> LoadRun:
        async with PacedServer(**server) as paced:
            return await story(paced, Target(url=paced.url))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


def outcomes(run: LoadRun) -> dict[str, int]:
    """Calls by outcome."""
    return dict(Counter(record.outcome for record in run.records))


def test_an_open_loop_keeps_its_schedule_while_answers_take_long() -> None:
    run = load(
        lambda server, target: run_load(calls(50, every_s=0.004), [target], RunOptions()),
        delay_s=0.3,
    )
    assert outcomes(run) == {"ok": 50}
    by_index = sorted(run.records, key=lambda record: record.index)
    assert [r.scheduled_s for r in by_index] == pytest.approx([n * 0.004 for n in range(50)])
    taken_s = [r.taken_s for r in by_index if r.taken_s is not None]
    assert len(taken_s) == 50
    assert all(t >= r.scheduled_s for t, r in zip(taken_s, by_index, strict=True))
    # Before the first answer came, all had left: nobody waited for anybody.
    assert max(taken_s) < min(r.ended_s or 0.0 for r in by_index)


def test_latency_counts_from_the_schedule_through_a_stall() -> None:
    async def story(server: PacedServer, target: Target) -> LoadRun:
        loop = asyncio.get_running_loop()
        loop.call_later(0.5, server.hold)
        loop.call_later(2.0, server.let_go)  # a slow start takes away from it
        return await run_load(calls(300, every_s=0.01), [target], RunOptions())

    run = load(story, delay_s=0.0)
    assert outcomes(run) == {"ok": 300}
    waits_s = {r.index: (r.ended_s or 0.0) - r.scheduled_s for r in run.records}
    assert max(waits_s.values()) > 0.4
    assert sum(wait > 0.05 for wait in waits_s.values()) >= 35
    stalled = [index for index, wait in waits_s.items() if wait > 0.05]
    assert waits_s[min(stalled)] > waits_s[max(stalled)]
    assert run.generator.lag_p50_s is not None
    assert run.generator.lag_p50_s < 0.01


def test_a_closed_loop_has_as_many_in_flight_as_lanes() -> None:
    async def story(server: PacedServer, target: Target) -> LoadRun:
        run = await run_load(calls(60), [target], RunOptions(mode="closed", concurrency=5))
        assert server.most_at_once == 5
        assert server.connections == 5
        return run

    run = load(story, delay_s=0.005)
    assert outcomes(run) == {"ok": 60}
    assert sorted(r.index for r in run.records) == list(range(60))
    assert run.generator.connections == 5


def test_a_ramp_opens_lanes_one_after_the_other() -> None:
    options = RunOptions(mode="closed", ramp=Ramp(start=0, end=4, over_s=0.4), duration_s=0.6)

    async def story(server: PacedServer, target: Target) -> LoadRun:
        run = await run_load(calls(100_000), [target], options)
        assert server.most_at_once == 4
        return run

    run = load(story, delay_s=0.01)
    begins = [r for r in run.records if r.scheduled_s < 0.1]
    assert not begins
    assert set(outcomes(run)) == {"ok"}


def test_the_warm_up_is_recorded_and_kept_apart() -> None:
    options = RunOptions(warmup_s=0.125, duration_s=0.25)
    run = load(lambda server, target: run_load(calls(1000, every_s=1 / 64), [target], options))
    phases = Counter(record.phase for record in run.records)
    assert phases == {"warmup": 8, "measured": 16}
    assert (run.start_s, run.end_s) == (0.125, 0.375)
    assert run.elapsed_s >= run.end_s
    assert run.generator.cpu_ratio is not None


def test_a_plan_that_is_shorter_than_the_window_leaves_it_as_long() -> None:
    options = RunOptions(duration_s=0.3)
    run = load(lambda server, target: run_load(calls(2), [target], options))
    assert run.end_s == pytest.approx(0.3)
    assert run.elapsed_s >= 0.3


def test_calls_that_find_no_connection_are_unsent() -> None:
    run = load(
        lambda server, target: run_load(calls(5), [target], RunOptions(connections_max=2)),
        delay_s=0.05,
    )
    assert outcomes(run) == {"ok": 2, "unsent": 3}
    (error,) = {record.error for record in run.records if record.outcome == "unsent"}
    assert error == "all 2 connections are in use"


def test_a_run_that_is_stopped_has_a_whole_result() -> None:
    async def story(server: PacedServer, target: Target) -> LoadRun:
        stop = asyncio.Event()

        def note(record: CallRecord) -> None:
            if record.index >= 9:
                stop.set()

        plan, options = calls(100_000, every_s=0.01), RunOptions(duration_s=60.0)
        return await run_load(plan, [target], options, stop=stop, on_record=note)

    run = load(story, delay_s=0.05)
    found = outcomes(run)
    assert run.stopped
    assert found["ok"] >= 10
    assert found["cancelled"] >= 1
    # One that came due as the run was stopped may not have left: on a busy machine it does not.
    assert {"ok", "cancelled"} <= set(found) <= {"ok", "cancelled", "unsent"}
    assert sorted(r.index for r in run.records) == list(range(len(run.records)))
    assert run.end_s == run.elapsed_s < 30.0


@pytest.mark.parametrize("stopped", [True, False], ids=["by its user", "by its drain"])
def test_a_plan_that_no_machine_keeps_up_with_ends_and_is_told(
    monkeypatch: pytest.MonkeyPatch, stopped: bool
) -> None:
    monkeypatch.setattr("mileage.loadgen.load_runner._DROP_S", 0.05)

    async def story(server: PacedServer, target: Target) -> LoadRun:
        stop = asyncio.Event()
        return await run_load(
            calls(10**12, every_s=1e-9),
            [target],
            RunOptions(duration_s=0.1, drain_s=10.0 if stopped else 0.1),
            on_record=(lambda _: stop.set()) if stopped else None,
            stop=stop,
        )

    run = load(story, delay_s=0.01)
    assert run.stopped == stopped
    assert len(run.records) < 1_000_000
    assert run.generator.limited
    assert "are not in the statistics" in (run.generator.reason or "")


def test_a_stop_before_the_start_gives_an_empty_result() -> None:
    async def story(server: PacedServer, target: Target) -> LoadRun:
        stop = asyncio.Event()
        stop.set()
        options = RunOptions(warmup_s=5.0)
        return await run_load(calls(3, every_s=1.0), [target], options, stop=stop)

    run = load(story)
    assert run.records == []
    assert run.start_s == run.end_s == 5.0
    assert run.generator.lag_p99_s is None


def test_failures_are_tried_again_only_when_asked_to() -> None:
    run = load(lambda server, target: run_load(calls(1), [target], RunOptions()), refuse=2)
    assert outcomes(run) == {"rejected": 1}
    options = RunOptions(retries=2, retry_pause_s=0.02)
    run = load(lambda server, target: run_load(calls(1), [target], options), refuse=2)
    (record,) = run.records
    assert (record.outcome, record.attempts) == ("ok", 3)
    assert record.scheduled_s == 0.0
    assert record.ended_s is not None
    assert record.ended_s >= 0.06
    run = load(lambda server, target: run_load(calls(1), [target], options), refuse=3)
    (record,) = run.records
    assert (record.outcome, record.attempts) == ("rejected", 3)


def test_a_connection_that_the_server_closed_meanwhile_is_no_failure() -> None:
    run = load(
        lambda server, target: run_load(calls(2, every_s=0.1), [target], RunOptions()),
        close_after_s=0.03,
    )
    assert outcomes(run) == {"ok": 2}


def test_a_plan_that_breaks_off_is_told() -> None:
    def broken() -> Iterator[PlannedCall]:
        yield from calls(3)
        raise TraceError("trace.csv", 4, "no number")

    run = load(lambda server, target: run_load(broken(), [target], RunOptions()))
    assert outcomes(run) == {"ok": 3}
    assert run.plan_error == "trace.csv:4: no number"


def test_an_empty_plan_gives_an_empty_result() -> None:
    run = load(lambda server, target: run_load([], [target], RunOptions()))
    assert run.records == []
    assert run.plan_error is None
    options = RunOptions(mode="closed", concurrency=2)
    assert load(lambda server, target: run_load([], [target], options)).records == []


def test_records_are_told_as_they_are_made() -> None:
    told: list[CallRecord] = []
    run = load(
        lambda server, target: run_load(calls(3), [target], RunOptions(), on_record=told.append)
    )
    assert told == run.records


def test_a_fault_in_who_listens_ends_the_run() -> None:
    def fail(record: CallRecord) -> None:
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        load(lambda server, target: run_load(calls(3), [target], RunOptions(), on_record=fail))


def test_garbage_is_collected_again_afterwards() -> None:
    load(lambda server, target: run_load(calls(1), [target], RunOptions()))
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_a_run_needs_a_target() -> None:
    async def none() -> LoadRun:
        return await run_load(calls(1), [], RunOptions())

    with pytest.raises(ConfigError) as caught:
        asyncio.run(none())
    assert caught.value.key == "targets"


def test_two_targets_get_their_own_calls() -> None:
    async def story(server: PacedServer, target: Target) -> LoadRun:
        async with PacedServer() as other:
            plan = [*calls(2), *calls(3, target=1)]
            run = await run_load(plan, [target, Target(url=other.url)], RunOptions())
            assert (server.requests, other.requests) == (2, 3)
            return run

    assert Counter(record.target for record in load(story).records) == {0: 2, 1: 3}


def test_a_lane_that_thinks_sends_less() -> None:
    options = RunOptions(mode="closed", concurrency=1, think_s=0.05, duration_s=0.3)
    run = load(lambda server, target: run_load(calls(1000), [target], options))
    assert 3 <= len(run.records) <= 6
    ordered = sorted(run.records, key=lambda record: record.index)
    for earlier, later in pairwise(ordered):
        assert earlier.ended_s is not None
        assert later.scheduled_s >= earlier.ended_s + 0.049


def test_the_least_busy_target_is_chosen_as_a_call_leaves_and_its_record_says_which() -> None:
    async def run() -> tuple[LoadRun, LoadRun]:
        async with PacedServer(delay_s=0.4) as slow, PacedServer(delay_s=0.01) as quick:
            targets = [Target(url=slow.url), Target(url=quick.url)]
            options = RunOptions(mode="closed", concurrency=4)
            least = await run_load(calls(60, target=None), targets, options)
            down = [Target(url="http://127.0.0.1:1"), targets[1]]
            again = await run_load(
                calls(20, target=None),
                down,
                RunOptions(mode="closed", concurrency=1, retries=1, retry_pause_s=0.001),
            )
            return least, again

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        least, again = runner.run(run())
    assert outcomes(least) == {"ok": 60}
    sent = Counter(record.target for record in least.records)
    # Two calls stay with the slow one; the others go round at the quick one.
    assert sent[1] >= 45
    assert sent[0] >= 2
    # What is sent again after a failure goes to the next one, and its record says where it was.
    assert outcomes(again) == {"ok": 20}
    assert {record.target for record in again.records} == {1}
