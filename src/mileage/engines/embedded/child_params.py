"""What the parent tells the child, as one line of JSON on its stdin, and what comes back."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

__all__ = ["ChildParams", "ChildReport", "Failed", "Ready"]


class ChildParams(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of one llama.cpp server. They hold its key, so they never go into argv."""

    parent_pid: int
    model: str
    served_name: str
    port: int
    api_key: str
    slots: int
    context_tokens: int
    """Of each slot."""
    threads: int
    http_threads: int
    cache_type_k: str
    cache_type_v: str
    lora: tuple[str, ...] = ()
    """Adapters that all requests use."""
    adapters: tuple[str, ...] = ()
    """Adapters that only those requests use that name them: by number, after those of `lora`."""
    kv_bytes: int | None = None
    """Memory that the KV cache will take."""
    own_pooling: bool = False
    """The model says how its embeddings are pooled; else the last token's is taken."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The server listens and the model is loaded."""


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """The server could not start; the child ends."""

    reason: str


ChildReport: TypeAlias = Ready | Failed
