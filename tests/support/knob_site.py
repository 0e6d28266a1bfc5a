"""An engine's control as the governor meets it: Mileage's own, and what can go wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from mileage.engines.vllm_control import ControlAccess, VllmControl
from mileage.vllm_plugin import engine_hook, general
from mileage.wire.fetch import FetchError, FetchResponse
from tests.support.control_site import SITE_TOKEN, ControlSite, engine

__all__ = ["KnobSite", "knob_site"]

URL = "http://engine:8000"


class KnobSite:
    """A server that answers as vLLM with the plugin does; its engine's clock is `now_s`."""

    def __init__(self, **options: Any) -> None:
        self.now_s = 100.0
        self.fault: FetchResponse | FetchError | None = None
        """What it answers instead."""
        self.lost: FetchError | None = None
        """What the client has in place of an answer, of a request that the engine took."""
        self.asked: list[dict[str, Any] | None] = []
        """Bodies of the requests that came; None: only looked."""
        self.token = SITE_TOKEN
        self.start(**options)

    def start(self, *engines: Any, **options: Any) -> None:
        """The engine starts, perhaps anew, perhaps with other settings."""
        self.site = ControlSite(*(engines or (engine(**options),)))

    def control(self, **access: Any) -> VllmControl:
        """A client of it."""
        found = {"token": self.token, "token_file": None, **access}
        return VllmControl(ControlAccess(url=URL, lease_s=10.0, **found), send=self.send)

    @property
    def scheduler(self) -> Any:
        """What the first engine's scheduler reads."""
        return self.site.client.engines[0].scheduler

    async def send(
        self, url: str, *, method: str, headers: Sequence[tuple[str, str]], body: bytes, **_: Any
    ) -> FetchResponse:
        """As `fetch`."""
        self.asked.append(json.loads(body) if body else None)
        if isinstance(self.fault, FetchError):
            raise self.fault
        if self.fault is not None:
            return self.fault
        path = url.removeprefix(URL)
        status, document, _ = await self.site.ask(method, path, headers=dict(headers), body=body)
        if self.lost is not None:
            raise self.lost
        return FetchResponse(status, (), json.dumps(document).encode())


@contextmanager
def knob_site(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Iterator[KnobSite]:
    """One, until the block ends."""
    monkeypatch.setenv("MILEAGE_CONTROL_TOKEN", SITE_TOKEN)
    site = KnobSite(**options)
    monkeypatch.setattr(general, "time", SimpleNamespace(monotonic=lambda: site.now_s))
    yield site
    for name in ("control", "policy"):
        engine_hook.unregister(name)
