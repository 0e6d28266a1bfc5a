"""Several API servers of one engine: what one was asked holds in the others, soon."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.engine_control import CONTROL_OBSERVER
from mileage.vllm_plugin.policy_observer import POLICY_OBSERVER
from tests.support.control_site import SITE_TOKEN, ControlSite, engine, until

CHAT = "/v1/chat/completions"


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", SITE_TOKEN)
    yield
    engine_hook.unregister(CONTROL_OBSERVER)
    engine_hook.unregister(POLICY_OBSERVER)


class Clock:
    """The time of the servers."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 100.0
        clock = SimpleNamespace(monotonic=lambda: self.now_s)
        for module in ("control_app", "control_server"):
            monkeypatch.setattr(f"mileage.vllm_plugin.{module}.time", clock)


async def settled(site: ControlSite) -> None:
    """What was begun beside the request is over."""
    refreshing = site.middleware._refreshing
    if refreshing is not None:
        await asyncio.wait([refreshing])


@pytest.mark.parametrize("older", [False, True])
def test_a_server_that_was_never_asked_follows_what_another_one_was(
    monkeypatch: pytest.MonkeyPatch, older: bool
) -> None:
    async def main() -> None:
        clock, core = Clock(monkeypatch), engine()
        asked, other = (ControlSite(core, servers=2, older=older) for _ in range(2))
        await asked.ask("POST", document={"knobs": {"active_max": 2, "waiting_max": 2}})
        # Its first request has it look, and does not wait for what it hears.
        tasks = [asyncio.create_task(other.ask("POST", CHAT, headers={}))]
        await until(lambda: len(other.passed) == 1)
        await settled(other)
        assert other.client.calls == ["mileage_get"]
        # Each of the two lets in half of 2 + 2.
        tasks.append(asyncio.create_task(other.ask("POST", CHAT, headers={})))
        await until(lambda: len(other.passed) == 2)
        assert (await other.ask("POST", CHAT, headers={}))[0] == 503
        await asked.ask("POST", document={"knobs": {"waiting_max": 100}})
        assert (await other.ask("POST", CHAT, headers={}))[0] == 503
        clock.now_s += 1.0
        assert (await other.ask("POST", CHAT, headers={}))[0] == 503
        await settled(other)
        tasks.append(asyncio.create_task(other.ask("POST", CHAT, headers={})))
        await until(lambda: len(other.passed) == 3)
        other.end.set()
        assert [status for status, _, _ in await asyncio.gather(*tasks)] == [200] * 3

    asyncio.run(main())


def test_an_engine_that_cannot_be_asked_is_asked_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        clock, site = Clock(monkeypatch), ControlSite(servers=2)
        site.client.fault = RuntimeError("it is gone")
        site.end.set()
        for _ in range(3):
            for _ in range(5):
                assert (await site.ask("POST", CHAT, headers={}))[0] == 200
                await settled(site)
            clock.now_s += 1.0
        assert site.client.calls == ["mileage_get"] * 3

    asyncio.run(main())


def test_one_that_does_not_answer_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        clock, site = Clock(monkeypatch), ControlSite(servers=2)
        site.client.hold = asyncio.Event()
        site.end.set()
        for _ in range(5):
            assert (await site.ask("POST", CHAT, headers={}))[0] == 200
            await until(lambda: bool(site.client.calls))
            clock.now_s += 1.0
        assert site.client.calls == ["mileage_get"]
        site.client.hold.set()
        await settled(site)

    asyncio.run(main())


def test_one_server_has_all_of_the_limit_and_asks_nobody() -> None:
    async def main() -> None:
        site = ControlSite()
        tasks = [asyncio.create_task(site.ask("POST", CHAT, headers={})) for _ in range(5)]
        await until(lambda: len(site.passed) == 5)
        assert site.client.calls == []
        # Whatever its command line said: more of them would each let in a part.
        await site.ask("POST", document={"knobs": {"active_max": 2, "waiting_max": 4}})
        tasks.append(asyncio.create_task(site.ask("POST", CHAT, headers={})))
        await until(lambda: len(site.passed) == 6)
        assert (await site.ask("POST", CHAT, headers={}))[0] == 503
        site.end.set()
        assert {status for status, _, _ in await asyncio.gather(*tasks)} == {200}

    asyncio.run(main())
