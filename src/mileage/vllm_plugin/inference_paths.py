"""Which paths of vLLM's API server add requests to its engines: those that `waiting_max` bounds."""

from __future__ import annotations

from typing import Any, Final

__all__ = ["INFERENCE_POSTS", "INFERENCE_SOCKETS", "inference_posts"]

INFERENCE_POSTS: Final = frozenset(
    {
        "/classify",
        "/cohere/v2/chat",
        "/generative_scoring",
        "/inference/v1/generate",
        "/invocations",
        "/pooling",
        "/rerank",
        "/score",
        "/v1/audio/transcriptions",
        "/v1/audio/translations",
        "/v1/chat/completions",
        "/v1/chat/completions/batch",
        "/v1/completions",
        "/v1/embeddings",
        "/v1/messages",
        "/v1/rerank",
        "/v1/responses",
        "/v1/score",
        "/v1/systemone",
        "/v2/embed",
        "/v2/rerank",
    }
)
"""By POST, of all versions. Others (health, metrics, models, tokens counted) are never refused."""

_COUNTED_ONLY: Final = frozenset({"/v1/messages/count_tokens"})
"""vLLM counts them as its load, but no engine has anything of them."""
_LOAD_MARK: Final = "enable_server_load_tracking"
"""What vLLM's wrapper (`load_aware_call`) of the calls that it counts as its load looks up."""

INFERENCE_SOCKETS: Final = frozenset({"/v1/realtime"})
"""WebSockets: each counts as one request for as long as it is open."""


def inference_posts(app: Any) -> frozenset[str]:
    """Those of this server (a Starlette application): also of a version that is newer than we are,
    where vLLM counts the calls as its load."""
    counted = {
        path
        for route in getattr(app, "routes", None) or ()
        if isinstance(path := getattr(route, "path", None), str)
        and "POST" in (getattr(route, "methods", None) or ())
        and "{" not in path  # of one answer, by its id: it is read, or ended
        and _is_counted(getattr(route, "endpoint", None))
    }
    return (INFERENCE_POSTS | counted) - _COUNTED_ONLY


def _is_counted(endpoint: Any) -> bool:
    seen: set[int] = set()
    while endpoint is not None and id(endpoint) not in seen:
        seen.add(id(endpoint))
        if _LOAD_MARK in getattr(getattr(endpoint, "__code__", None), "co_consts", ()):
            return True
        endpoint = getattr(endpoint, "__wrapped__", None)
    return False
