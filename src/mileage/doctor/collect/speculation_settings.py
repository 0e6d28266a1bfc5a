"""Speculative decoding as an engine was told to do it: the method, tokens for each draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from mileage.doctor.collect.setting_values import as_count, as_text

__all__ = ["speculation_settings"]

_METHOD: Final = "speculative.method"
_TOKENS: Final = "speculative.num_tokens"
_SGLANG: Final = {
    "EAGLE": "eagle",
    "EAGLE3": "eagle",
    "NEXTN": "mtp",
    "NGRAM": "ngram",
    "STANDALONE": "draft_model",
}


def speculation_settings(engine: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Its settings; a method of None where the arguments say that there is none."""
    if engine == "vllm":
        return _vllm(arguments)
    if engine == "sglang":
        return _sglang(arguments)
    if engine == "llama.cpp":
        return _llamacpp(arguments)
    return {}


def _vllm(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`speculative_config`; before 0.8 there were arguments of their own. vLLM prints the object as
    `SpeculativeConfig(method='ngram', model=None, num_spec_tokens=3)`."""
    config = arguments.get("speculative_config")
    if isinstance(config, Mapping):
        tokens = as_count(config.get("num_speculative_tokens", config.get("num_spec_tokens")))
        method = as_text(config.get("method"))
        model = as_text(config.get("model", config.get("draft_model")))
        return _settings(_vllm_method(method, model), tokens)
    model = as_text(arguments.get("speculative_model"))
    if model is not None:
        tokens = as_count(arguments.get("num_speculative_tokens"))
        return _settings(_vllm_method(None, model), tokens)
    return {_METHOD: None} if "speculative_config" in arguments and config is None else {}


def _vllm_method(method: str | None, model: str | None) -> str | None:
    word = (method or "").lower()
    if "ngram" in word or "suffix" in word or model in ("ngram", "[ngram]"):
        return "ngram"
    if "mtp" in word:
        return "mtp"
    if "eagle" in word or (not word and "eagle" in (model or "").lower()):
        return "eagle"
    return "draft_model" if word == "draft_model" or (not word and model is not None) else None


def _sglang(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """A chain (top k of 1) drafts one token a step; a tree is verified by its number of nodes."""
    name = "speculative_algorithm"
    algorithm = as_text(arguments.get(name))
    if algorithm is None:
        return {_METHOD: None} if name in arguments else {}
    is_chain = as_count(arguments.get("speculative_eagle_topk")) in (None, 1)
    key = "speculative_num_steps" if is_chain else "speculative_num_draft_tokens"
    return _settings(_SGLANG.get(algorithm.upper()), as_count(arguments.get(key)))


def _llamacpp(arguments: Mapping[str, Any]) -> dict[str, Any]:
    if as_text(arguments.get("model_draft")) is None:
        return {}
    return _settings("draft_model", as_count(arguments.get("draft_max")))


def _settings(method: str | None, tokens: int | None) -> dict[str, Any]:
    found = {_METHOD: method, _TOKENS: tokens or None}
    return {name: value for name, value in found.items() if value is not None}
