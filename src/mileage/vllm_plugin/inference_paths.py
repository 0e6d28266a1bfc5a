"""Which paths of vLLM's API server add requests to its engines: those that `waiting_max` bounds."""

from __future__ import annotations

from typing import Final

__all__ = ["INFERENCE_POSTS", "INFERENCE_SOCKETS"]

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

INFERENCE_SOCKETS: Final = frozenset({"/v1/realtime"})
"""WebSockets: each counts as one request for as long as it is open."""
