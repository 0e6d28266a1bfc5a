"""/mileage/control over engines that are called as vLLM calls them; the token; the queue limit."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.control_app import CONTROL_PATH
from mileage.vllm_plugin.engine_control import CONTROL_OBSERVER
from mileage.vllm_plugin.policy_observer import POLICY_OBSERVER
from tests.support.control_site import SITE_TOKEN, ControlSite, engine, until


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", SITE_TOKEN)
    yield
    engine_hook.unregister(CONTROL_OBSERVER)
    engine_hook.unregister(POLICY_OBSERVER)


def test_values_are_set_in_all_ranks_and_told() -> None:
    async def main() -> None:
        engines = [engine(rank) for rank in range(3)]
        site = ControlSite(*engines)
        status, found, _ = await site.ask(
            "POST", document={"knobs": {"active_max": 2, "step_tokens_max": 1}, "lease_s": 5}
        )
        assert status == 200
        assert (found["version"], found["applied_version"]) == (1, 1)
        assert [rank["applied"]["active_max"] for rank in found["ranks"]] == [2, 2, 2]
        assert [each.scheduler.max_num_active_reqs for each in engines] == [2, 2, 2]
        assert found["requested"]["step_tokens_max"] == 1
        assert found["start"]["active_max"] == 64
        assert found["bounds"]["active_max"] == [1, 64]
        assert 0 < found["lease_left_s"] <= 5
        assert found["capabilities"].pop("metering").startswith("MILEAGE_STEPS_DIR is not set")
        assert found["capabilities"] == dict.fromkeys(found["capabilities"], True)
        status, again, _ = await site.ask()
        assert (status, again["version"], again["boot"]) == (200, 1, found["boot"])

    asyncio.run(main())


def test_a_rank_in_a_long_step_holds_back_the_acknowledgement() -> None:
    async def main() -> None:
        idle, busy = engine(0), engine(1, scheduler={"running": ["a"]})
        site = ControlSite(idle, busy)
        _, found, _ = await site.ask("POST", document={"knobs": {"active_max": 2}})
        assert (found["version"], found["applied_version"]) == (1, 0)
        assert found["applied"]["active_max"] == 64
        waiting = asyncio.create_task(
            site.ask("POST", document={"knobs": {"active_max": 3}, "wait_s": 60})
        )
        # It has been set, and is asked for since.
        await until(lambda: site.client.calls[-2:] == ["mileage_set", "mileage_get"])
        busy.step()
        _, found, _ = await waiting
        assert (found["version"], found["applied_version"]) == (2, 2)
        assert found["applied"]["active_max"] == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({}, id="none"),
        pytest.param({"authorization": f"Bearer {SITE_TOKEN}x"}, id="a wrong one"),
        pytest.param({"authorization": f"Basic {SITE_TOKEN}"}, id="another scheme"),
        pytest.param({"authorization": "Bearer "}, id="an empty one"),
    ],
)
def test_without_the_token_nothing_is_told_or_changed(headers: dict[str, str]) -> None:
    async def main() -> None:
        site = ControlSite()
        for method in ("GET", "POST", "DELETE"):
            status, found, _ = await site.ask(method, document={"knobs": {}}, headers=headers)
            assert (status, found["error"]["code"]) == (401, "wrong_token")
        assert site.client.calls == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("method", "body", "status", "field"),
    [
        pytest.param("POST", b'{"knobs": {"max_num_seqs": 1}}', 400, "knobs.max_num_seqs", id="k"),
        pytest.param("POST", b'{"knobs": {"active_max": "x"}}', 400, "knobs[...]", id="type"),
        pytest.param("POST", b"{", 400, "body", id="no JSON"),
        pytest.param("POST", b" " * 70_000, 400, "body", id="too large"),
        pytest.param("POST", b'{"policy": {"budget": "x"}}', 400, "policy.budget", id="policy"),
        pytest.param("DELETE", b"", 405, None, id="method"),
    ],
)
def test_a_bad_request_names_its_field(
    method: str, body: bytes, status: int, field: str | None
) -> None:
    async def main() -> None:
        site = ControlSite()
        found = await site.ask(method, body=body)
        assert (found[0], found[1]["error"]["param"]) == (status, field)
        _, document, _ = await site.ask()
        assert document["version"] == 0

    asyncio.run(main())


def test_requests_that_come_together_are_one_call_to_the_engines() -> None:
    async def main() -> None:
        site = ControlSite()
        caps = [{"knobs": {"active_max": cap}} for cap in range(1, 41)]
        budget: list[Any] = [{"knobs": {"step_tokens_max": 96}}]
        answers = await asyncio.gather(
            *(site.ask("POST", document=document) for document in budget + caps)
        )
        assert [status for status, _, _ in answers] == [200] * 41
        assert site.client.calls.count("mileage_set") < 10
        _, found, _ = await site.ask()
        assert (found["applied"]["active_max"], found["applied"]["step_tokens_max"]) == (40, 96)
        before = len(site.client.calls)
        await asyncio.gather(*(site.ask() for _ in range(20)))
        assert len(site.client.calls) - before < 5

    asyncio.run(main())


def test_two_server_processes_lose_no_change() -> None:
    async def main() -> None:
        engines = [engine(rank) for rank in range(2)]
        one, other = ControlSite(*engines), ControlSite(*engines)
        await asyncio.gather(one.ask(), other.ask())
        for cap in range(1, 11):
            await asyncio.gather(
                one.ask("POST", document={"knobs": {"active_max": cap}}),
                other.ask("POST", document={"knobs": {"step_tokens_max": 90 + cap}}),
            )
            _, found, _ = await one.ask()
            assert found["applied"]["active_max"] == cap
            assert found["applied"]["step_tokens_max"] == 90 + cap
            assert found["ranks"][0]["version"] == found["ranks"][1]["version"]

    asyncio.run(main())


def test_beyond_the_queue_limit_requests_are_refused_with_a_time_to_come_back() -> None:
    async def main() -> None:
        site = ControlSite()
        await site.ask("POST", document={"knobs": {"active_max": 2, "waiting_max": 1}})
        path = "/v1/chat/completions"
        tasks = [asyncio.create_task(site.ask("POST", path, headers={})) for _ in range(3)]
        await until(lambda: len(site.passed) == 3)
        status, found, headers = await site.ask("POST", path, headers={})
        assert (status, found["error"]["code"]) == (503, "queue_full")
        assert int(headers["retry-after"]) >= 1
        assert (await site.ask("GET", "/metrics", headers={}))[0] == 200
        assert (await site.ask("GET", "/health", headers={}))[0] == 200
        site.end.set()
        assert [status for status, _, _ in await asyncio.gather(*tasks)] == [200] * 3
        assert (await site.ask("POST", path, headers={}))[0] == 200
        await site.ask("POST", document={"knobs": {"waiting_max": None}})
        site.end.clear()
        many = [asyncio.create_task(site.ask("POST", path, headers={})) for _ in range(50)]
        await asyncio.sleep(0)
        site.end.set()
        assert {status for status, _, _ in await asyncio.gather(*many)} == {200}

    asyncio.run(main())


def test_a_server_without_an_engine_or_calls_says_so() -> None:
    async def main() -> None:
        site = ControlSite()
        site.app.state.engine_client = None
        assert (await site.ask())[0] == 503
        site.app.state.engine_client = SimpleNamespace(engine_core=SimpleNamespace())
        status, found, _ = await site.ask()
        assert (status, found["error"]["code"]) == (503, "engine_error")
        assert "call_utility_async" in found["error"]["message"]

    asyncio.run(main())


def test_an_engine_that_was_started_anew_says_so() -> None:
    async def main() -> None:
        before = ControlSite(engine())
        await before.ask("POST", document={"knobs": {"active_max": 2}, "lease_s": None})
        _, old, _ = await before.ask()
        after = ControlSite(engine())
        _, new, _ = await after.ask()
        assert old["boot"] != new["boot"]
        assert (new["version"], new["applied"]) == (0, new["start"])

    asyncio.run(main())


def test_a_rank_that_joins_later_holds_the_version_back_until_it_is_asked() -> None:
    async def main() -> None:
        first = engine(0)
        site = ControlSite(first)
        await site.ask("POST", document={"knobs": {"active_max": 2}, "lease_s": None})
        joined = engine(1)
        site.client.engines = (first, joined)
        _, found, _ = await site.ask()
        assert (found["version"], found["applied_version"]) == (1, 0)
        await site.ask("POST", document={})
        _, found, _ = await site.ask()
        assert found["version"] == found["applied_version"] == 2
        assert joined.scheduler.max_num_active_reqs == 2

    asyncio.run(main())


def test_without_a_token_in_the_environment_everything_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MILEAGE_CONTROL_TOKEN")

    async def main() -> None:
        site = ControlSite()
        assert (await site.ask())[0] == 200
        assert site.passed == [CONTROL_PATH]

    asyncio.run(main())
