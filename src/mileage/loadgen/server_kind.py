"""ServerKind: what a server under test accepts beyond the OpenAI API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

__all__ = ["FULL_LENGTH_FIELDS", "OWNERS", "ServerKind"]

ServerKind = Literal["vllm", "sglang", "trtllm", "triton", "llamacpp", "mileage", "openai"]

OWNERS: Final[Mapping[str, ServerKind]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "Triton Inference Server": "triton",
    "llamacpp": "llamacpp",
    "mileage": "mileage",
}
"""Kinds by the `owned_by` of the models that they list."""

FULL_LENGTH_FIELDS: Final[Mapping[ServerKind, Mapping[str, Any]]] = {
    "vllm": {"ignore_eos": True},
    "sglang": {"ignore_eos": True},
    "trtllm": {"ignore_eos": True},
    "triton": {},
    "llamacpp": {"ignore_eos": True},
    "mileage": {"ignore_eos": True},
    "openai": {},
}
"""What makes an answer as long as `max_tokens`, of chat and completions; empty: nothing does, or
it would be refused as unknown. A gateway of Mileage passes it on to its engines."""
