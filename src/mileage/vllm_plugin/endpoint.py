"""Entry point `mileage` of vllm.endpoint_plugins: puts /mileage/control into the API server."""

from __future__ import annotations

from typing import Any

from mileage.vllm_plugin.control_app import ControlMiddleware

__all__ = ["ControlEndpoint"]


class ControlEndpoint:
    """What vLLM calls where `VLLM_PLUGINS` names mileage."""

    name = "mileage"
    required_tasks = None

    def attach_router(self, app: Any) -> None:
        """Add the middleware: it answers the path and counts the requests that pass it."""
        app.add_middleware(ControlMiddleware)

    async def init_state(self, engine_client: Any, state: Any, args: Any) -> None:
        """The middleware finds the engine where vLLM keeps it, in the state of the app."""
