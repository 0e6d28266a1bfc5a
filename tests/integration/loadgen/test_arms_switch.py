"""Settings of a gateway on trial: how they are taken, renewed, and let go."""

from __future__ import annotations

import asyncio
import functools
import json
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.loadgen.arms_switch import ControlSwitch
from tests.support.loopback_server import Answer, LoopbackServer, http

SETTINGS: dict[Any, dict[str, Any]] = {"a": {"governor.mode": "off"}, "b": {"governor.mode": "act"}}
TAKEN = http(200, b'{"version": 7, "unconfirmed": []}')


def in_loop(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(story)
    def test(**arguments: Any) -> None:
        asyncio.run(story(**arguments))

    return test


def asked(server: LoopbackServer) -> list[tuple[Any, float]]:
    """What was to be set, and for how long."""
    bodies = [json.loads(seen.body) for seen in server.seen]
    return [(body["set"].get("governor.mode"), body["for_s"]) for body in bodies]


def switch(server: LoopbackServer, *, lease_s: float = 60.0, renewed: bool = True) -> ControlSwitch:
    return ControlSwitch(server.url, "secret", SETTINGS, lease_s=lease_s, renewed=renewed)


@in_loop
async def test_settings_are_on_trial_for_a_lease_and_put_back() -> None:
    async with LoopbackServer(lambda seen: TAKEN) as server:
        found = switch(server)
        assert await found.to("a") == "configuration 7"
        await found.to("b")
        await found.restore()
    assert asked(server) == [("off", 60.0), ("act", 60.0), (None, 1.0)]
    first = server.seen[0]
    assert (first.method, first.target) == ("POST", "/api/v1/config/trial")
    assert first.headers["authorization"] == "Bearer secret"


@in_loop
async def test_a_slot_that_lasts_longer_than_its_lease_keeps_its_settings() -> None:
    async with LoopbackServer(lambda seen: TAKEN) as server:
        found = switch(server, lease_s=1.0)
        await found.to("a")
        await server.until(lambda: len(server.seen) >= 4)
        await found.to("b")
        await server.until(lambda: asked(server)[-1][0] == "act" and len(server.seen) >= 6)
        await found.restore()
        settled = asked(server)
        await asyncio.sleep(0.5)  # longer than between two renewals
    modes = [mode for mode, _ in settled]
    assert modes == [*sorted(modes[:-1], key=["off", "act"].index), None]
    assert asked(server) == settled  # nothing is asked for any more


@in_loop
async def test_a_lease_is_not_renewed_where_nobody_wants_it() -> None:
    async with LoopbackServer(lambda seen: TAKEN) as server:
        found = switch(server, lease_s=0.05, renewed=False)
        await found.to("a")
        await asyncio.sleep(0.1)
        assert len(server.seen) == 1


@in_loop
async def test_settings_that_ran_out_in_a_slot_are_told_and_still_put_back() -> None:
    answers: dict[str, Answer] = {"now": TAKEN}
    async with LoopbackServer(lambda seen: answers["now"]) as server:
        found = switch(server, lease_s=0.1)
        await found.to("a")
        answers["now"] = http(500, b"")
        keeper = found._keeper
        assert keeper is not None
        await asyncio.wait({keeper}, timeout=60)
        answers["now"] = TAKEN
        with pytest.raises(EngineError, match="the settings of arm a ran out in its slot"):
            await found.to("b")
        await found.restore()
    assert asked(server)[-1] == (None, 1.0)


@in_loop
async def test_a_renewal_that_fails_once_is_no_harm() -> None:
    answers = iter([TAKEN, http(500, b"")])
    async with LoopbackServer(lambda seen: next(answers, TAKEN)) as server:
        found = switch(server, lease_s=3.0)
        await found.to("a")
        await server.until(lambda: len(server.seen) >= 4)
        await found.to("b")
        await found.restore()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        pytest.param(http(404), "is this a Mileage admin plane", id="no such path"),
        pytest.param(http(200, b"<html>"), "no answer of an admin plane", id="another server"),
        pytest.param(
            http(422, b'{"error": {"message": "no such key: governor.mood"}}'),
            "no such key: governor.mood",
            id="refused",
        ),
        pytest.param(
            http(200, b'{"version": 8, "unconfirmed": [12, 13]}'),
            "workers have not taken the settings: pid 12, 13",
            id="a worker that hangs",
        ),
    ],
)
@in_loop
async def test_settings_that_are_not_taken_are_told(answer: bytes, told: str) -> None:
    async with LoopbackServer(lambda seen: answer) as server:
        with pytest.raises(EngineError, match=told):
            await switch(server).to("a")
