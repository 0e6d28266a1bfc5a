"""What each engine can be told of a mix: the cheapest of its own settings within the budget.

No engine takes a format for each layer and side. llama.cpp has one type for all keys and one for
all values; vLLM one type for both, and layers that stay as they are; TensorRT-LLM and LMDeploy one
type for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from mileage.quant.offered import LLAMA_CPP
from mileage.quant.search import Search

__all__ = ["ENGINE_FORMATS", "Expressed", "expressed"]

_PLAIN: Final = "f16"
_FP8: Final = "e4m3"
"""With scales of 1, as where the checkpoint has none."""

_INT8, _INT4 = "int8-token", "int4-token-g64"
"""Of each token's head."""

_INT8_FIXED: Final = "int8-tensor"

_VLLM: Final = (
    (_INT8, "int8_per_token_head", "needs vLLM's Triton attention"),
    (_FP8, "fp8_e4m3", "scales of a calibrated checkpoint may do better"),
)
_WHOLE: Final[dict[str, tuple[tuple[str, tuple[str, ...]], ...]]] = {
    "tensorrt-llm": (
        (_FP8, ("kv_cache_config.dtype=fp8",)),
        (_INT8_FIXED, ("kv_cache_config.dtype=int8",)),
    ),
    "lmdeploy": ((_INT4, ("--quant-policy", "4")), (_INT8, ("--quant-policy", "8"))),
}
"""Fewest bits first."""

ENGINE_FORMATS: Final[tuple[str, ...]] = (*LLAMA_CPP, _FP8, _INT8, _INT4, _INT8_FIXED)
"""All that an engine knows."""


class Expressed(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's best setting within a KL budget."""

    engine: str
    k: str
    v: str
    bits_per_value: float
    kl: float
    """Estimated: the sum of the slots' own."""

    flags: tuple[str, ...]
    """Of its command line; none where the cache stays as it is."""

    skipped_layers: tuple[int, ...] = ()
    """Those that stay as they are."""

    note: str | None = None


def expressed(search: Search, kl_max: float) -> tuple[Expressed, ...]:
    """One setting for each engine: the fewest bits whose estimated KL is within the budget."""
    return (
        _llama_cpp(search, kl_max),
        _vllm(search, kl_max),
        _one_of(search, kl_max, "tensorrt-llm"),
        _one_of(search, kl_max, "lmdeploy"),
    )


def _llama_cpp(search: Search, kl_max: float) -> Expressed:
    pairs = search.pairs(16.0)
    own = [p for p in pairs if p.k in LLAMA_CPP and p.v in LLAMA_CPP and p.kl <= kl_max]
    if not own:
        return _as_it_is("llama.cpp")
    best = min(own, key=lambda pair: (pair.bits_per_value, pair.kl))
    flags = ("--cache-type-k", best.k, "--cache-type-v", best.v)
    # llama.cpp has kernels for quantised values in flash attention only.
    flash = () if best.v == _PLAIN else ("--flash-attn", "on")
    return Expressed(
        engine="llama.cpp",
        k=best.k,
        v=best.v,
        bits_per_value=best.bits_per_value,
        kl=best.kl,
        flags=(*flags, *flash),
    )


def _vllm(search: Search, kl_max: float) -> Expressed:
    own = (_vllm_type(search, kl_max, *each) for each in _VLLM)
    within = [each for each in own if each is not None]
    if not within:
        return _as_it_is("vllm")
    return min(within, key=lambda each: (each.bits_per_value, each.kl))


def _vllm_type(search: Search, kl_max: float, name: str, word: str, note: str) -> Expressed | None:
    """Of layers that stay as they are those go first that cost most: each saves the same bits."""
    costs = _layer_costs(search, name)
    if costs is None:
        return None
    order = sorted(range(len(costs)), key=lambda layer: -costs[layer])
    kept = 0
    while kept < len(order) and sum(costs[layer] for layer in order[kept:]) > kl_max:
        kept += 1
    if kept == len(order):
        return None
    skipped = tuple(sorted(order[:kept]))
    bits = search.format_bits(name)
    return Expressed(
        engine="vllm",
        k=name,
        v=name,
        bits_per_value=(bits * (len(order) - kept) + 16.0 * kept) / len(order),
        kl=sum(costs[layer] for layer in order[kept:]),
        flags=(
            "--kv-cache-dtype",
            word,
            *(("--kv-cache-dtype-skip-layers", *map(str, skipped)) if kept else ()),
        ),
        skipped_layers=skipped,
        note=note,
    )


def _one_of(search: Search, kl_max: float, engine: str) -> Expressed:
    for name, flags in _WHOLE[engine]:
        costs = _layer_costs(search, name)
        if costs is not None and sum(costs) <= kl_max:
            bits = search.format_bits(name)
            return Expressed(
                engine=engine, k=name, v=name, bits_per_value=bits, kl=sum(costs), flags=flags
            )
    return _as_it_is(engine)


def _layer_costs(search: Search, name: str) -> Sequence[float] | None:
    """Keys and values of each layer in that format; None where it is not known of all."""
    layers = max(slot.layer for slot in search.slots) + 1
    costs = [0.0] * layers
    for slot in search.slots:
        cost = search.kl(slot, name)
        if cost is None:
            return None
        costs[slot.layer] += cost
    return costs


def _as_it_is(engine: str) -> Expressed:
    return Expressed(
        engine=engine,
        k=_PLAIN,
        v=_PLAIN,
        bits_per_value=16.0,
        kl=0.0,
        flags=(),
        note="none of its types is within the budget: leave the cache as it is",
    )
