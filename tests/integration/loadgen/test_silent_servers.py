"""Servers that accept and say nothing, as stopped processes do: every run against them ends."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Iterator

import pytest
import uvloop

from mileage.core.errors import ConfigError
from mileage.loadgen.planned_call import PlannedCall
from mileage.loadgen.run import LoadRun, run_load
from mileage.loadgen.run_options import RunOptions
from mileage.loadgen.target import Target
from tests.support.engine import Behaviour, ScriptedEngine

SILENCE_S = 0.4
WITHIN_S = 60.0


@pytest.fixture
def silent() -> Iterator[Target]:
    """The kernel makes its connections; nobody reads from them."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listening:
        yield Target(url=f"http://127.0.0.1:{listening.getsockname()[1]}")


def calls(count: int, *, every_s: float = 0.0) -> list[PlannedCall]:
    path, body = b"/v1/chat/completions", b'{"model":"toy","stream":true,"messages":[]}'
    return [
        PlannedCall(index=n, scheduled_s=n * every_s, path=path, body=body) for n in range(count)
    ]


def load(plan: list[PlannedCall], target: Target, options: RunOptions) -> LoadRun:
    async def run() -> LoadRun:
        async with asyncio.timeout(WITHIN_S):
            return await run_load(plan, [target], options)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run())


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(
            RunOptions(mode="closed", concurrency=2, silence_max_s=SILENCE_S),
            id="a closed loop through a whole plan, which would take ten minutes a call",
        ),
        pytest.param(
            RunOptions(
                mode="closed", concurrency=2, silence_max_s=SILENCE_S, response_timeout_s=0.1
            ),
            id="calls that end by their own timeout end no silence",
        ),
        pytest.param(
            RunOptions(duration_s=3600.0, silence_max_s=SILENCE_S), id="an hour of an open loop"
        ),
    ],
)
def test_a_run_that_nobody_answers_is_given_up(silent: Target, options: RunOptions) -> None:
    run = load(calls(100_000, every_s=0.05), silent, options)
    assert run.given_up is not None
    assert "nothing came from the server for 0.4 s" in run.given_up
    assert SILENCE_S <= run.elapsed_s < SILENCE_S + 30.0  # and not ten minutes, or an hour
    assert not run.stopped
    found = Counter(record.outcome for record in run.records)
    assert found["timeout"] > 0
    assert set(found) <= {"timeout", "unsent"}


def test_long_answers_are_no_silence() -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=8, first_token_s=0.1, token_s=0.4)  # above the limit
        options = RunOptions(mode="closed", concurrency=1, silence_max_s=2.0)
        run = load(calls(1), Target(url=engine.url), options)
    assert [record.outcome for record in run.records] == ["ok"]
    assert run.given_up is None


def test_a_server_that_falls_silent_ends_a_run_with_what_it_has_seen() -> None:
    with ScriptedEngine() as engine:
        engine.behaviour = Behaviour(tokens=4, hold_at=2)
        engine.following.extend([Behaviour(tokens=2)] * 3)
        options = RunOptions(mode="closed", concurrency=1, silence_max_s=SILENCE_S)
        run = load(calls(1000), Target(url=engine.url), options)
        engine.release()
    assert [record.outcome for record in run.records] == ["ok"] * 3 + ["timeout"]
    assert sum(run.records[-1].token_events) == 2
    assert run.given_up is not None


def test_a_limit_of_no_time_is_refused() -> None:
    with pytest.raises(ConfigError, match="silence_max_s"):
        RunOptions(silence_max_s=0.0)
