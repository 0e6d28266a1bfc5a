"""What engines answer once about themselves: version, models, arguments, slots."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from mileage.doctor.collect.engine_arguments import argument_facts
from mileage.doctor.collect.facts_document import FactsDocument, facts_document
from mileage.doctor.collect.log_settings import effective_config
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.python_text import read_fields
from mileage.doctor.collect.setting_values import as_count, as_number, as_text
from mileage.doctor.collect.triton_config import TritonModel, triton_model
from mileage.measure.quantiles import quantile

__all__ = ["answer_facts", "triton_models"]

_GIB: Final = 1024.0**3
_OWNERS: Final = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llama.cpp"}
_TRITON_CONFIG: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/[^/]+)?/config")
_VERSION_MAX: Final = 100


def answer_facts(path: str, body: str) -> FactsDocument:
    """Facts of the answer at a path; of a path or a body that we do not know, none."""
    try:
        answer = msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    read = _READERS.get(path)
    return {} if read is None else read(answer)


def triton_models(answers: Mapping[str, str]) -> tuple[TritonModel, ...]:
    """Models by the configurations among the answers."""
    models: list[TritonModel] = []
    for path, body in answers.items():
        match = _TRITON_CONFIG.fullmatch(path)
        if match is None:
            continue
        try:
            config = msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            continue
        if isinstance(config, Mapping):
            models.append(triton_model(match[1], config))
    return tuple(models)


def _version(answer: Any) -> FactsDocument:
    """vLLM's and trtllm-serve's; which of them, it does not say."""
    return facts_document(engine={"version": _version_text(_get(answer, "version"))})


def _models(answer: Any) -> FactsDocument:
    """The first model that is no adapter of another."""
    listed = _get(answer, "data")
    models = [model for model in listed if isinstance(model, Mapping)] if _is_list(listed) else []
    base = next((model for model in models if model.get("parent") is None), None)
    if base is None:
        return {}
    meta = base.get("meta")
    parameters, size = as_number(_get(meta, "n_params")), as_number(_get(meta, "size"))
    longest = as_count(base.get("max_model_len"))
    return facts_document(
        engine={"name": _OWNERS.get(str(base.get("owned_by")))},
        model={
            "name": as_text(base.get("id")),
            "params_b": None if parameters is None else parameters / 1e9,
            "weights_gib": None if size is None else size / _GIB,
        },
        settings={"max_model_len": longest} if longest else {},
    )


def _sglang(answer: Any) -> FactsDocument:
    """SGLang's arguments as they came to be, and what it allocated."""
    if not isinstance(answer, Mapping) or not ({"model_path", "internal_states"} & answer.keys()):
        return _vllm(answer)
    states = answer.get("internal_states")
    state = states[0] if _is_list(states) and states else {}
    memory = _get(state, "memory_usage")
    capacity = as_count(_get(memory, "token_capacity")) or as_count(
        answer.get("max_total_num_tokens")
    )
    most = as_count(_get(state, "effective_max_running_requests_per_dp"))
    return overlay(
        facts_document(
            engine={"name": "sglang", "version": _version_text(answer.get("version"))},
            settings={"max_num_seqs": most} if most else {},
            signals={
                "kv_cache_capacity_tokens": capacity or None,
                "kv_cache_capacity_gib": as_number(_get(memory, "kvcache")),
            },
        ),
        argument_facts("sglang", answer),
    )


def _vllm(answer: Any) -> FactsDocument:
    """vLLM's configuration, printed or as a table; only its development mode tells it."""
    config = _get(answer, "vllm_config")
    if isinstance(config, str):
        return effective_config(read_fields(config))
    if not isinstance(config, Mapping):
        return {}
    flat: dict[str, Any] = {}
    for name, part in config.items():
        flat[name] = part
        if isinstance(part, Mapping):  # model_config, cache_config, parallel_config, ...
            flat |= {inner: value for inner, value in part.items() if inner not in flat}
    return effective_config(flat)


def _props(answer: Any) -> FactsDocument:
    """llama-server's: the context is that of one slot."""
    slots = as_count(_get(answer, "total_slots"))
    context = as_count(_get(_get(answer, "default_generation_settings"), "n_ctx"))
    build = as_text(_get(answer, "build_info"))
    settings = {"max_num_seqs": slots or None, "max_model_len": context or None}
    if build is None and slots is None:
        return {}
    path = as_text(_get(answer, "model_alias")) or as_text(_get(answer, "model_path"))
    return facts_document(
        engine={"name": "llama.cpp", "version": _build(build)},
        model={"name": None if path is None else path.rpartition("/")[2]},
        settings={name: value for name, value in settings.items() if value is not None},
    )


def _slots(answer: Any) -> FactsDocument:
    """llama-server's slots: how many there are."""
    slots = [slot for slot in answer if isinstance(slot, Mapping)] if _is_list(answer) else []
    contexts = {as_count(slot.get("n_ctx")) for slot in slots} - {None, 0}
    settings: dict[str, Any] = {"max_num_seqs": len(slots)} if slots else {}
    if len(contexts) == 1:
        settings["max_model_len"] = contexts.pop()
    return facts_document(settings=settings)


def _triton(answer: Any) -> FactsDocument:
    if _get(answer, "name") != "triton":
        return {}
    version = _version_text(_get(answer, "version"))
    return facts_document(engine={"name": "triton", "version": version})


def _tgi(answer: Any) -> FactsDocument:
    """text-generation-inference; Triton's OpenAI frontend and others have an `/info` too."""
    longest = as_count(_get(answer, "max_total_tokens"))
    if longest is None or as_text(_get(answer, "model_id")) is None:
        return {}
    return facts_document(
        engine={"name": "tgi", "version": _version_text(_get(answer, "version"))},
        model={"name": as_text(_get(answer, "model_id"))},
        settings={"max_model_len": longest},
    )


def _perf_metrics(answer: Any) -> FactsDocument:
    """trtllm-serve's times of single requests, in seconds on its own clock: exact quantiles."""
    times: dict[str, list[float]] = {"ttft": [], "e2e": [], "queue_time": []}
    for entry in answer if _is_list(answer) else []:
        timing = _get(_get(entry, "perf_metrics"), "timing_metrics")
        arrived = as_number(_get(timing, "arrival_time"))
        if arrived is None:
            continue
        for kind, name in (
            ("ttft", "first_token_time"),
            ("e2e", "last_token_time"),
            ("queue_time", "first_scheduled_time"),
        ):
            at = as_number(_get(timing, name))
            if at is not None and at >= arrived:
                times[kind].append(at - arrived)
    signals: dict[str, Any] = {}
    for kind, values in times.items():
        if values:
            signals[f"{kind}_mean_s"] = sum(values) / len(values)
            for word, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
                signals[f"{kind}_{word}_s"] = quantile(values, q)
    return facts_document(signals=signals)


_READERS: Final[Mapping[str, Callable[[Any], FactsDocument]]] = {
    "/version": _version,
    "/v1/models": _models,
    "/get_server_info": _sglang,
    "/server_info": _sglang,
    "/props": _props,
    "/slots": _slots,
    "/v2": _triton,
    "/info": _tgi,
    "/perf_metrics": _perf_metrics,
}


def _get(table: Any, key: str) -> Any:
    return table.get(key) if isinstance(table, Mapping) else None


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _version_text(value: Any) -> str | None:
    text = as_text(value)
    if text is None or len(text) > _VERSION_MAX or not text.isprintable():
        return None
    return text.removeprefix("v")


def _build(text: str | None) -> str | None:
    """`b6123-abcdef0` is build 6123; `b0-unknown` is one that was not numbered."""
    match = re.match(r"b?(\d+)(?:-|$)", text or "")
    if match is None:
        return _version_text(text)
    return match[1] if int(match[1]) else None
