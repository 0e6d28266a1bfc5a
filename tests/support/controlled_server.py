"""ControlledServer: answers a governing gateway over HTTP as a vLLM with Mileage's plugin does."""

from __future__ import annotations

import asyncio
import threading

from mileage.vllm_plugin.control_app import CONTROL_PATH
from tests.support.knob_site import KnobSite
from tests.support.stand_in import Asked, Reply, StandIn, json_reply

__all__ = ["ControlledServer"]


class ControlledServer(StandIn):
    """The site's engine behind a socket; it has one model, and answers no generations."""

    def __init__(self, site: KnobSite) -> None:
        super().__init__()
        self.site = site
        self._lock = threading.Lock()

    def reply(self, asked: Asked) -> Reply:
        """By its path."""
        if asked.path == CONTROL_PATH:
            headers = dict(asked.headers)
            with self._lock:
                done = self.site.site.ask(
                    asked.method, asked.path, headers=headers, body=asked.body
                )
                return json_reply(*asyncio.run(done)[:2])
        if asked.path == "/v1/models":
            return json_reply(200, {"object": "list", "data": [{"id": "llama", "object": "model"}]})
        if asked.path == "/health":
            return json_reply(200, {})
        return json_reply(404, {"detail": "Not Found"})
