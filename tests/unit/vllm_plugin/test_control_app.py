"""/mileage/control over engines that are called as vLLM calls them; the token; the queue limit."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from mileage.vllm_plugin import engine_hook
from mileage.vllm_plugin.control_app import CONTROL_PATH, ControlMiddleware
from mileage.vllm_plugin.engine_control import CONTROL_OBSERVER
from mileage.vllm_plugin.general import add_control
from mileage.vllm_plugin.policy_observer import POLICY_OBSERVER
from tests.support.asgi import scope_of
from tests.support.scheduler_versions import core_of

TOKEN = "a-token-of-sixteen-characters"
BEARER = {"authorization": f"Bearer {TOKEN}"}


@pytest.fixture(autouse=True)
def _token(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", TOKEN)
    yield
    engine_hook.unregister(CONTROL_OBSERVER)
    engine_hook.unregister(POLICY_OBSERVER)


def engine(rank: int = 0, **options: Any) -> Any:
    """One engine core with Mileage's methods, as the general plugin leaves it."""
    core = core_of(**options)

    class EngineCore:
        def __init__(self) -> None:
            self.scheduler, self.vllm_config = core.scheduler, core.vllm_config
            self.engine_index = rank

        def step(self) -> None:
            self.scheduler.update_from_output(self.scheduler.schedule(), None)

    assert add_control(EngineCore) is None
    return EngineCore()


class Client:
    """vLLM's client of its engines: calls their methods by name; `calls` counts the rounds."""

    def __init__(self, *engines: Any) -> None:
        self.engines = engines
        self.calls: list[str] = []

    async def call_utility_all_async(self, method: str, *arguments: Any) -> list[Any]:
        self.calls.append(method)
        await asyncio.sleep(0)
        # As over a socket: plain values only.
        plain = msgspec.msgpack.decode(msgspec.msgpack.encode(arguments))
        return [getattr(each, method)(*plain) for each in self.engines]

    async def call_utility_async(self, method: str, *arguments: Any) -> Any:
        return (await self.call_utility_all_async(method, *arguments))[0]


class Site:
    """A server of these engines, whose inference requests end when they are told to."""

    def __init__(self, *engines: Any, servers: int = 1) -> None:
        self.client = Client(*(engines or (engine(),)))
        state = SimpleNamespace(
            engine_client=SimpleNamespace(engine_core=self.client),
            args=SimpleNamespace(api_server_count=servers),
        )
        self.app = SimpleNamespace(state=state)
        self.middleware = ControlMiddleware(self._serve)
        self.passed: list[str] = []
        self.end = asyncio.Event()

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        self.passed.append(scope["path"])
        if scope["method"] == "POST":
            await self.end.wait()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    async def ask(
        self,
        method: str = "GET",
        path: str = CONTROL_PATH,
        document: Any = None,
        headers: Mapping[str, str] = BEARER,
        body: bytes = b"",
    ) -> tuple[int, Any, dict[str, str]]:
        """One request; status, document and headers of the answer."""
        sent = msgspec.json.encode(document) if document is not None else body
        messages: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: Any) -> None:
            messages.append(message)

        scope = scope_of(method, path, headers)
        scope["app"] = self.app
        await self.middleware(scope, receive, send)
        told = {k.decode(): v.decode() for k, v in messages[0]["headers"]}
        return messages[0]["status"], msgspec.json.decode(messages[1]["body"]), told


async def until(condition: Callable[[], bool]) -> None:
    """Let the others run until it holds."""
    while not condition():  # noqa: ASYNC110 -- what is waited for tells nobody
        await asyncio.sleep(0)


def test_values_are_set_in_all_ranks_and_told() -> None:
    async def main() -> None:
        engines = [engine(rank) for rank in range(3)]
        site = Site(*engines)
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
        site = Site(idle, busy)
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
        pytest.param({"authorization": f"Bearer {TOKEN}x"}, id="a wrong one"),
        pytest.param({"authorization": f"Basic {TOKEN}"}, id="another scheme"),
        pytest.param({"authorization": "Bearer "}, id="an empty one"),
    ],
)
def test_without_the_token_nothing_is_told_or_changed(headers: dict[str, str]) -> None:
    async def main() -> None:
        site = Site()
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
        site = Site()
        found = await site.ask(method, body=body)
        assert (found[0], found[1]["error"]["param"]) == (status, field)
        _, document, _ = await site.ask()
        assert document["version"] == 0

    asyncio.run(main())


def test_requests_that_come_together_are_one_call_to_the_engines() -> None:
    async def main() -> None:
        site = Site()
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
        one, other = Site(*engines), Site(*engines)
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
        site = Site()
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
        site = Site()
        site.app.state.engine_client = None
        assert (await site.ask())[0] == 503
        site.app.state.engine_client = SimpleNamespace(engine_core=SimpleNamespace())
        status, found, _ = await site.ask()
        assert (status, found["error"]["code"]) == (503, "engine_error")
        assert "call_utility_async" in found["error"]["message"]

    asyncio.run(main())


def test_without_a_token_in_the_environment_everything_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MILEAGE_CONTROL_TOKEN")

    async def main() -> None:
        site = Site()
        assert (await site.ask())[0] == 200
        assert site.passed == [CONTROL_PATH]

    asyncio.run(main())
