"""The control where something fails, or somebody leaves; what `waiting_max` counts."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

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


def test_an_open_socket_counts_as_a_request_and_is_refused_beyond_the_limit() -> None:
    async def main() -> None:
        site = ControlSite()
        await site.ask("POST", document={"knobs": {"active_max": 1, "waiting_max": 0}})
        first = asyncio.create_task(site.connect("/v1/realtime"))
        await until(lambda: len(site.passed) == 1)
        assert (await site.ask("POST", CHAT, headers={}))[0] == 503
        assert await site.connect("/v1/realtime") == 1013
        assert await site.connect("/v1/realtime", answers=True) == 503
        assert site.passed == ["/v1/realtime"]
        site.end.set()
        assert await site.connect("/another") == 1000
        assert await first == 1000
        assert await site.connect("/v1/realtime") == 1000

    asyncio.run(main())


def test_where_slots_are_not_known_there_is_no_queue_limit() -> None:
    async def main() -> None:
        unknown = engine(without=("max_num_active_reqs", "max_num_running_reqs", "max_num_seqs"))
        site = ControlSite(unknown)
        status, found, _ = await site.ask("POST", document={"knobs": {"waiting_max": 0}})
        assert (status, found["clamped"]["waiting_max"]["applied"]) == (200, None)
        site.end.set()
        assert (await site.ask("POST", CHAT, headers={}))[0] == 200

    asyncio.run(main())


def test_a_control_that_failed_in_one_rank_says_so_and_the_others_are_still_set() -> None:
    async def main() -> None:
        engines = [engine(rank, scheduler={"running": ["a"]}) for rank in range(2)]
        site = ControlSite(*engines)
        asked = {"knobs": {"active_max": 2, "waiting_max": 0}, "lease_s": None}
        await site.ask("POST", document=asked)
        for each in engines:
            each.step()
        failing = engines[1]
        control = engine_hook.CoreHook.of(failing).observer(CONTROL_OBSERVER)
        control.before_step = lambda core, now_s: 1 // 0  # type: ignore[union-attr, method-assign]
        failing.step()
        assert failing.scheduler.max_num_active_reqs == 64
        _, found, _ = await site.ask()
        assert found["failed"].startswith("ZeroDivisionError at test_control_faults.py:")
        assert [rank["failed"] for rank in found["ranks"]] == [None, found["failed"]]
        assert found["failed"] in found["capabilities"]["active_max"]
        # No queue limit goes by slots that nobody keeps.
        site.end.set()
        tasks = [site.ask("POST", CHAT, headers={}) for _ in range(200)]
        assert {status for status, _, _ in await asyncio.gather(*tasks)} == {200}
        back = {"knobs": {"active_max": None, "waiting_max": None}, "lease_s": None}
        status, found, _ = await site.ask("POST", document=back)
        assert status == 200
        engines[0].step()
        assert engines[0].scheduler.max_num_active_reqs == 64
        _, found, _ = await site.ask()
        assert found["version"] == found["applied_version"] == 2

    asyncio.run(main())


def test_a_failed_policy_is_told_and_the_control_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("what somebody asked")

    async def main() -> None:
        core = engine(scheduler={"running": ["a"], "requests": {}})
        site = ControlSite(core)
        policy = {"budget": "model", "itl_target_s": 0.1}
        await site.ask("POST", document={"policy": policy, "knobs": {"active_max": 3}})
        monkeypatch.setattr("mileage.vllm_plugin.policy_host.read_running", fail)
        core.step()
        _, found, _ = await site.ask()
        told = found["ranks"][0]["policy"]["failed"]
        assert told.startswith("budget=model: KeyError at test_control_faults.py:")
        assert (found["failed"], found["applied"]["active_max"]) == (None, 3)
        assert "somebody" not in str(found)

    asyncio.run(main())


@pytest.mark.parametrize(
    ("document", "param"),
    [
        pytest.param({"knobs": {"active_max": 10**30}}, "knobs.active_max", id="a long number"),
        pytest.param({"knobs": {"waiting_max": -(2**64)}}, "knobs.waiting_max", id="below"),
        pytest.param({"policy": {"budget": 10**30}}, "policy.budget", id="in a policy"),
        pytest.param(
            {"policy": {"budget": "fixed", "model": {"chunk_min_tokens": 10**30}}},
            "policy",
            id="deep in a policy",
        ),
        pytest.param({"policy": {"x": json.loads("[" * 400 + "]" * 400)}}, "policy.x", id="nested"),
    ],
)
def test_what_no_engine_can_take_is_refused_before_it_is_sent(document: Any, param: str) -> None:
    async def main() -> None:
        site = ControlSite()
        status, found, _ = await site.ask("POST", document=document)
        assert (status, found["error"]["param"]) == (400, param)
        assert len(found["error"]["message"]) < 1200
        assert site.client.calls == []

    asyncio.run(main())


def test_no_rank_begins_a_policy_while_the_control_of_another_has_failed() -> None:
    async def main() -> None:
        engines = [engine(rank, scheduler={"running": ["a"], "requests": {}}) for rank in range(2)]
        site = ControlSite(*engines)
        control = engine_hook.CoreHook.of(engines[1]).observer(CONTROL_OBSERVER)
        control.before_step = lambda core, now_s: 1 // 0  # type: ignore[union-attr, method-assign]
        engines[1].step()
        policy = {"budget": "model", "itl_target_s": 0.1}
        status, found, _ = await site.ask("POST", document={"policy": policy})
        assert (status, found["error"]["param"]) == (400, "policy")
        assert "has failed: ZeroDivisionError" in found["error"]["message"]
        _, found, _ = await site.ask()
        assert [rank["policy"] for rank in found["ranks"]] == [None, None]
        assert (await site.ask("POST", document={"policy": None}))[0] == 200

    asyncio.run(main())


def test_a_request_whose_sender_left_is_not_brought_along_by_the_next() -> None:
    async def main() -> None:
        site = ControlSite()
        await site.ask()
        site.client.hold = asyncio.Event()
        first = asyncio.create_task(site.ask("POST", document={"knobs": {"active_max": 9}}))
        await until(lambda: site.client.calls[-1] == "mileage_set")
        left = asyncio.create_task(site.ask("POST", document={"knobs": {"step_tokens_max": 77}}))
        await asyncio.sleep(0)
        left.cancel()
        await asyncio.wait([left])
        site.client.hold.set()
        await first
        _, found, _ = await site.ask("POST", document={"knobs": {"active_max": 8}})
        assert found["requested"]["step_tokens_max"] is None
        assert found["requested"]["active_max"] == 8

    asyncio.run(main())
