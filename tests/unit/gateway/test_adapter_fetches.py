"""AdapterFetches: a file that could not be fetched once can be fetched later."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mileage.gateway.adapter_fetches import AdapterFetches
from mileage.policy.residency.adapters import AdapterConfig
from tests.support.adapter_site import WAIT_S, adapter


def test_where_no_thread_is_to_be_had_it_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[AdapterConfig] = []
    wanted = adapter("a")

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def story() -> None:
        fetches = AdapterFetches(fetched.append)
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", start)
            with pytest.raises(RuntimeError):
                await fetches.fetch(wanted, WAIT_S)
        await fetches.fetch(wanted, WAIT_S)

    asyncio.run(story())
    assert fetched == [wanted]
