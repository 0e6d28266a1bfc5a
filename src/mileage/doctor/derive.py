"""Facts that follow from others: ratios of counts, sums of parts, the usual name of an engine."""

from __future__ import annotations

from mileage.doctor.facts import Value
from mileage.doctor.interval import Interval
from mileage.doctor.quantity import Quantity

__all__ = ["derived"]

SPELLINGS = {
    "sgl": "sglang",
    "llamacpp": "llama.cpp",
    "llamaserver": "llama.cpp",
    "trt": "tensorrt-llm",
    "trtllm": "tensorrt-llm",
    "tensorrt": "tensorrt-llm",
    "tensorrtllm": "tensorrt-llm",
    "textgenerationinference": "tgi",
}
"""Other names of engines, without signs between their letters, to the vocabulary's."""

RATIOS = (("prefix_cache_hit_ratio", "prefix_cache_hits_tokens", "prefix_cache_queries_tokens"),)
"""Ratio, of what, to what; only where the ratio itself is not known."""


def derived(values: dict[str, Value]) -> dict[str, Value]:
    """The values with what follows from them; what is there stays as it is."""
    result = dict(values)
    engine = values.get("engine.name")
    if isinstance(engine, str):
        bare = "".join(sign for sign in engine.lower() if sign.isalnum())
        result["engine.name"] = SPELLINGS.get(bare, engine)
    for name, above, below in RATIOS:
        top, bottom = values.get(above), values.get(below)
        if name in values or not isinstance(top, Quantity) or not isinstance(bottom, Quantity):
            continue
        if top.known and bottom.known and bottom.total.low > 0:
            ratio = top.total.over(bottom.total).clipped(0.0, 1.0)
            result[name] = Quantity(name, "ratio", "one", (ratio,))
    running = values.get("requests_running")
    if isinstance(running, Quantity) and running.series and "requests_running_max" not in values:
        most = Interval(running.most.low, running.most.high)
        result["requests_running_max"] = Quantity("requests_running_max", "count", "one", (most,))
    return result
