"""LockedVllm: a vLLM's pages, for those who have the key: metrics, a version, and nothing else."""

from __future__ import annotations

from tests.support.stand_in import Asked, Reply, StandIn

__all__ = ["KEY", "LockedVllm"]

KEY = "engine-key-1234567890"


class LockedVllm(StandIn):
    """Its metrics are `page`."""

    def __init__(self, page: str) -> None:
        self._page = page
        super().__init__()

    def reply(self, asked: Asked) -> Reply:
        """By its key, then by its path."""
        if asked.headers.get("authorization") != f"Bearer {KEY}":
            return Reply(401)
        pages = {"/metrics": self._page, "/version": '{"version": "0.10.1"}'}
        page = pages.get(asked.path)
        return Reply(404) if page is None else Reply(200, page.encode())
