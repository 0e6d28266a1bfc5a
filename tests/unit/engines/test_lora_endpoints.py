"""Adapters of remote engines: loaded, verified, and never unloaded for one that does not come."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Literal

import msgspec
import pytest

from mileage.core.adapter_loader import AdapterFile
from mileage.core.errors import EngineError
from mileage.engines.lora_endpoints import LoraEndpoints
from mileage.wire.fetch import FetchResponse

A, B = AdapterFile("a", "/a"), AdapterFile("b", "/b")


class Engine:
    """Answers like vLLM; what it says of loads can be scripted."""

    def __init__(self, *held: str) -> None:
        self.held = list(held)
        self.says: dict[str, tuple[int, bytes]] = {}
        self.calls: list[str] = []
        self.list: bytes | None = None

    async def __call__(
        self,
        url: str,
        *,
        method: Literal["GET", "POST"] = "GET",
        headers: Sequence[tuple[str, str]] = (),
        body: bytes = b"",
        timeout_s: float,
    ) -> FetchResponse:
        assert ("authorization", "Bearer k") in headers
        path = url.removeprefix("http://e")
        if path == "/v1/models":
            data = [{"id": name} for name in ("m", *self.held)]
            answer = msgspec.json.encode({"data": data})
            return FetchResponse(200, (), self.list or answer)
        fields = msgspec.json.decode(body)
        self.calls.append(f"{path.rpartition('/')[2]} {fields['lora_name']}")
        if "unload" in path:
            self.held.remove(fields["lora_name"])
            return FetchResponse(200, (), b"Success")
        if fields["lora_name"] in self.says:
            status, said = self.says[fields["lora_name"]]
            return FetchResponse(status, (), said)
        self.held.append(fields["lora_name"])
        return FetchResponse(200, (), b"Success")


def change(
    engine: Engine, load: Sequence[AdapterFile], unload: Sequence[str] = (), kind: str = "vllm"
) -> dict[str, str]:
    loader = LoraEndpoints(kind, "http://e", "Bearer k", slots=2, timeout_s=5.0, fetch=engine)
    return dict(asyncio.run(loader.change(load, unload)))


def test_loads_then_unloads_what_makes_room() -> None:
    engine = Engine("a")
    assert change(engine, [B], ["a"]) == {}
    assert engine.held == ["b"]
    assert engine.calls == ["load_lora_adapter b", "unload_lora_adapter a"]


def test_sglang_has_room_for_no_more_than_its_slots() -> None:
    engine = Engine("a")
    assert change(engine, [B], ["a"], kind="sglang") == {}
    assert engine.calls == ["unload_lora_adapter a", "load_lora_adapter b"]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        pytest.param((200, b"Success"), "does not list it", id="200 without being there"),
        pytest.param(
            (404, b'{"error":{"message":"No adapter found for /b"}}'),
            "404: No adapter found for /b",
            id="no such path",
        ),
        pytest.param((404, b'{"detail":"Not Found"}'), "--enable-lora", id="no such endpoint"),
        pytest.param(
            (500, b'{"error":{"message":"rank 64 is greater than max_lora_rank 16"}}'),
            "rank 64 is greater",
            id="wrong rank",
        ),
    ],
)
def test_what_does_not_come_is_told_and_nothing_goes_for_it(
    said: tuple[int, bytes], why: str
) -> None:
    engine = Engine("a")
    engine.says["b"] = said
    errors = change(engine, [B], ["a"])
    assert why in errors["b"]
    assert engine.held == ["a"]


def test_what_is_there_already_is_not_loaded_again() -> None:
    engine = Engine("a")
    assert change(engine, [A], ["gone"]) == {}
    assert engine.calls == []


def test_an_engine_that_lists_nothing_readable_is_an_error() -> None:
    engine = Engine("a")
    engine.list = b"<html>"
    with pytest.raises(EngineError, match="no model list"):
        change(engine, [A])
