"""Kinds of engines: where each has its health, models and metrics, and which endpoints it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

import msgspec

from mileage.core.request import Endpoint
from mileage.engines.config import EngineKind

__all__ = ["KINDS", "MODELS_PATH", "Kind"]

MODELS_PATH = "/v1/models"


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kind of engine; paths are tried in order until one is there.

    `has`: endpoints of every release and set-up of it; `may`: those that depend on the release, the
    model or a flag; any other it has not. `json_metrics`: its metrics page may be JSON.
    `names_requests`: inside of it a request has the name that it came with (x-request-id).
    `cache_salt`: requests may have a field of this name, and find in its prefix cache only what was
    computed under the same.
    """

    title: str
    health_paths: tuple[str, ...] = ("/health", MODELS_PATH)
    metrics_paths: tuple[str, ...] = ("/metrics",)
    json_metrics: bool = False
    version_paths: tuple[str, ...] = ()
    version_field: str = "version"
    stream_usage: bool = True
    names_requests: bool = False
    cache_salt: bool = False
    has: tuple[Endpoint, ...] = ("chat", "completions")
    may: tuple[Endpoint, ...] = ("embeddings", "responses", "messages")

    @property
    def lacks(self) -> tuple[Endpoint, ...]:
        """Endpoints that it does not have in any release."""
        every: tuple[Endpoint, ...] = get_args(Endpoint)
        return tuple(name for name in every if name not in self.has and name not in self.may)


KINDS: Mapping[EngineKind, Kind] = {
    "vllm": Kind(title="vLLM", version_paths=("/version",), names_requests=True, cache_salt=True),
    "sglang": Kind(title="SGLang", version_paths=("/server_info", "/get_server_info")),
    "trtllm": Kind(
        title="TensorRT-LLM (trtllm-serve)",
        metrics_paths=("/prometheus/metrics", "/metrics"),
        json_metrics=True,
        version_paths=("/version",),
    ),
    "triton": Kind(
        title="Triton (its OpenAI frontend)",
        health_paths=("/health/ready", "/v2/health/ready", MODELS_PATH),
        version_paths=("/v2",),
        may=("embeddings",),
    ),
    "llamacpp": Kind(
        title="llama.cpp (llama-server)", version_paths=("/props",), version_field="build_info"
    ),
    "openai": Kind(
        title="any other OpenAI-compatible server",
        health_paths=(MODELS_PATH,),
        json_metrics=True,
        has=("chat",),
        may=("completions", "embeddings", "responses", "messages"),
    ),
}
