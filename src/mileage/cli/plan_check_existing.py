"""What is known of an existing deployment: by its engine plan, its facts, or what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from mileage.cli.bench_target import bearer_of, url_of
from mileage.cli.doctor_facts_file import decoded_facts
from mileage.cli.doctor_watch import WatchPlan, watch
from mileage.cli.plan_file import read_plan
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.costmodel.gpu_names import gpu_of_driver
from mileage.engines.configuration.plan import EnginePlan
from mileage.planner.candidate import Candidate, Sharing
from mileage.sim.engine_defaults import default_limits

__all__ = ["known_of_facts", "known_of_plan", "read_existing"]

_KEY: Final = "EXISTING"
_WINDOW_S: Final = 2.0
_WEIGHTS: Final = (
    ("nvfp4", "fp4"),
    ("fp4", "fp4"),
    ("fp8", "fp8"),
    ("awq", "int4"),
    ("gptq", "int4"),
    ("int4", "int4"),
    ("int8", "int8"),
    ("w8a8", "int8"),
    ("bf16", "bf16"),
    ("bfloat16", "bf16"),
    ("fp16", "bf16"),
    ("float16", "bf16"),
)
"""What is in a name -> the precision of the cost model; the first that is counts."""
_NUMBERS: Final = {
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
    "max_num_seqs": "running_max",
    "max_num_batched_tokens": "step_tokens_max",
}
_FLAGS: Final = {
    "enable_prefix_caching": "prefix_cache",
    "enable_chunked_prefill": "chunked_prefill",
}


def read_existing(
    existing: str, *, planned: Candidate, gpu: str | None, key_variable: str | None
) -> dict[str, Any]:
    """Fields of `Candidate` that are known. `existing`: an engine's URL, a file of an engine plan
    (TOML or JSON), or of facts (JSON with `settings`). `gpu`: its card, as it was told.

    Raises ConfigError, and EngineError where nothing answers at the URL.
    """
    card = None if gpu is None else _card(gpu)
    if existing.startswith(("http://", "https://")):
        url = url_of(existing, _KEY)
        key = bearer_of(key_variable, None, url)
        keys = {} if key is None else {url: key}
        seen = watch(WatchPlan(urls=(url,), window_s=_WINDOW_S, authorization=keys))
        return known_of_facts(seen.document, planned, card)
    path = Path(existing)
    if path.suffix == ".json":
        data = _bytes(path)
        if _has_settings(data):
            return known_of_facts(decoded_facts(data, key=_KEY, path=path), planned, card)
    return known_of_plan(read_plan(path), card)


def known_of_plan(plan: EnginePlan, card: str | None = None) -> dict[str, Any]:
    """What the plan says, and what vLLM does where it says nothing. Raises ConfigError for a GPU
    that the catalogue has not."""
    known: dict[str, Any] = {
        "tensor_parallel": plan.tensor_parallel,
        "pipeline_parallel": plan.pipeline_parallel,
        "prefix_cache": plan.prefix_caching is not False,
        "chunked_prefill": plan.chunked_prefill is not False,
        "graph_sizes": "default" if plan.graph_sizes is None else plan.graph_sizes or "none",
        "running_max": plan.running_max,
        "step_tokens_max": plan.step_tokens_max,
        "weights": _precision(plan.weights or plan.dtype),
        "kv": "bf16" if plan.kv_dtype is None else _kv(plan.kv_dtype),
        "gpu": card or (None if plan.gpu is None else _card(plan.gpu)),
    }
    if plan.instances > 1:
        known["sharing"] = Sharing(replicas=plan.instances)
    found = _told(known)
    if "gpu" in found:
        running, tokens = default_limits(known_gpu(found["gpu"]))
        found.setdefault("step_tokens_max", max(tokens, found.get("running_max", 1)))
        found.setdefault("running_max", min(running, found["step_tokens_max"]))
    if plan.speculation is None:
        found["speculation"] = None
    return found


def known_of_facts(
    document: Mapping[str, Any], planned: Candidate, card: str | None = None
) -> dict[str, Any]:
    """What was seen. A card that the catalogue has not is not known."""
    settings: Mapping[str, Any] = document.get("settings", {})
    known: dict[str, Any] = {"gpu": card or _seen_card(document.get("hardware", {}))}
    for name, field in _NUMBERS.items():
        value = settings.get(name)
        known[field] = int(value) if isinstance(value, int | float) and value >= 1 else None
    for name, field in _FLAGS.items():
        value = settings.get(name)
        known[field] = value if isinstance(value, bool) else None
    eager = settings.get("enforce_eager")
    if isinstance(eager, bool):
        known["graph_sizes"] = "none" if eager else "default"
    ranks = (known["tensor_parallel"] or 1) * (known["data_parallel"] or 1)
    spread = settings.get("enable_expert_parallel")
    if isinstance(spread, bool):
        known["expert_parallel"] = ranks if spread else 1
    asked = settings.get("quantization") or document.get("model", {}).get("dtype")
    known["weights"] = _precision(asked if isinstance(asked, str) else None)
    kv = settings.get("kv_cache_dtype")
    known["kv"] = _kv(kv) if isinstance(kv, str) else None
    drafts = settings.get("speculative.num_tokens")
    if isinstance(drafts, int) and drafts >= 1 and planned.speculation is not None:
        known["speculation"] = msgspec.structs.replace(planned.speculation, draft_tokens=drafts)
    return _told(known)


def _told(known: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in known.items() if value is not None}


def _precision(name: str | None) -> str | None:
    low = (name or "").lower()
    return next((precision for part, precision in _WEIGHTS if part in low), None)


def _kv(name: str) -> str | None:
    low = name.lower()
    if low.startswith("fp8"):
        return "fp8"
    return "bf16" if low in ("auto", "bf16", "bfloat16", "fp16", "float16") else None


def _card(name: str) -> str:
    try:
        return known_gpu(name).name
    except ConfigError as error:
        raise error.named("--gpu") from None


def _seen_card(hardware: Mapping[str, Any]) -> str | None:
    """By the name that its driver has for it; its memory tells variants apart."""
    name, memory_gb = hardware.get("gpu"), hardware.get("memory_gb")
    if not isinstance(name, str):
        return None
    size = round(memory_gb * 1e9) if isinstance(memory_gb, int | float) else None
    found = gpu_of_driver(name, memory_total_bytes=size)
    return None if found is None else found.name


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigError(_KEY, str(path), f"a file ({error.strerror or error})") from None


def _has_settings(data: bytes) -> bool:
    try:
        found = msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(found, dict) and "settings" in found
