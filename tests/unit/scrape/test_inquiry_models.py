"""What an engine serves by configuration and by its own list, adapters among it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from mileage.core.replica import Adapter
from mileage.scrape.inquiry import Inquiry
from mileage.scrape.model_list import ModelList
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import FetchResponse

URL = "http://e:8000"
LISTED = [
    {"id": "base", "root": "/models/base", "parent": None},
    {"id": "unsaid", "parent": None},
    {"id": "sums", "root": "/adapters/sums", "parent": "base"},
]


def asked(models: tuple[str, ...], slots: int, status: int = 200) -> tuple[ModelList, str | None]:
    async def fetch(url: str, **options: Any) -> FetchResponse:
        if url == f"{URL}/health":
            return FetchResponse(200, (), b"")
        return FetchResponse(status, (), json.dumps({"data": LISTED}).encode())

    target = PollTarget(
        kind="vllm",
        name="e",
        url=URL,
        health_urls=(f"{URL}/health",),
        models_url=f"{URL}/v1/models",
        models=models,
        lora_slots=slots,
    )
    return asyncio.run(Inquiry(target, fetch).models(None))


SUMS = Adapter("sums", "sums", "base", "/adapters/sums")


@pytest.mark.parametrize(
    ("models", "slots", "names", "adapters"),
    [
        pytest.param((), 0, ("base", "unsaid", "sums"), (SUMS,), id="its own list"),
        pytest.param(("base",), 0, ("base",), (), id="what is configured is all"),
        pytest.param(("base",), 2, ("base", "sums"), (SUMS,), id="and what it has loaded"),
        pytest.param(("sums",), 2, ("sums",), (), id="a model that is called as an adapter is"),
    ],
)
def test_what_is_served(
    models: tuple[str, ...], slots: int, names: tuple[str, ...], adapters: tuple[Adapter, ...]
) -> None:
    assert asked(models, slots) == (ModelList(names, adapters), None)


def test_without_a_list_what_is_configured_is_served_and_the_failure_told() -> None:
    found, problem = asked(("base",), 2, status=500)
    assert found == ModelList(("base",))
    assert "answered 500" in (problem or "")
