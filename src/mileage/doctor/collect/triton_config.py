"""Triton's model repository: configurations of its models, as settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from mileage.doctor.collect.engine_arguments import argument_facts
from mileage.doctor.collect.facts_document import FactsDocument, bound, facts_document
from mileage.doctor.collect.merge_facts import overlay
from mileage.doctor.collect.protobuf_text import parse_message
from mileage.doctor.collect.setting_values import as_count, as_flag, as_number, as_text
from mileage.doctor.collect.triton_roles import Role, triton_roles

__all__ = [
    "TritonModel",
    "repository_models",
    "triton_config_facts",
    "triton_model",
    "triton_parts",
]

_CONFIG: Final = "config.pbtxt"
_VLLM_ARGUMENTS: Final = "model.json"
_US_PER_S: Final = 1e6
_FILES_MAX: Final = 1_000
_POLICIES: Final = ("guaranteed_no_evict", "max_utilization")


class TritonModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a model's configuration says that matters here; None where it says nothing."""

    name: str
    backend: str = ""
    """`ensemble` for one that has steps."""
    max_batch_size: int | None = None
    instances: int | dict[str, float] | None = None
    """A bound where each GPU of the machine has so many."""
    queue_delay_s: float | None = None
    preferred_batch_size: int | None = None
    decoupled: bool | None = None
    steps: tuple[str, ...] = ()
    parameters: dict[str, str] = {}
    engine_arguments: dict[str, Any] = {}
    """Of its engine, where they stand in a file of their own (vLLM's model.json)."""


def repository_models(files: Mapping[str, str]) -> tuple[TritonModel, ...]:
    """Models of a repository given as path -> text: `NAME/config.pbtxt`, `NAME/1/model.json`.

    Raises:
        ConfigError: a config.pbtxt is no protobuf text; names file and line.
    """
    models: list[TritonModel] = []
    for path in sorted(files)[:_FILES_MAX]:
        folder, _, name = path.replace("\\", "/").rpartition("/")
        if name != _CONFIG:
            continue
        message = parse_message(files[path], place=path)
        model = triton_model(folder.rpartition("/")[2], message)
        arguments = next(
            (
                files[other]
                for other in sorted(files, reverse=True)
                if other.startswith(f"{folder}/") and other.endswith(f"/{_VLLM_ARGUMENTS}")
            ),
            None,
        )
        if arguments is not None:
            model = msgspec.structs.replace(model, engine_arguments=_json_table(arguments))
        models.append(model)
    return tuple(models)


def triton_model(name: str, config: Mapping[str, Any]) -> TritonModel:
    """A model by its configuration: a message of the text format, or the JSON that Triton answers.

    `name` is for one that has none of its own.
    """
    batching = _one(config, "dynamic_batching")
    policy = _one(config, "model_transaction_policy")
    scheduling = _one(config, "ensemble_scheduling")
    steps = _many(scheduling, "step") if isinstance(scheduling, Mapping) else []
    named = (as_text(_one(step, "model_name")) for step in steps if isinstance(step, Mapping))
    backend = as_text(_one(config, "backend")) or as_text(_one(config, "platform")) or ""
    delay_us = _inner(batching, "max_queue_delay_microseconds", as_number)
    preferred = _many(batching, "preferred_batch_size") if isinstance(batching, Mapping) else []
    sizes = [size for size in map(as_count, preferred) if size]
    return TritonModel(
        name=as_text(_one(config, "name")) or name,
        backend="ensemble" if steps else backend,
        max_batch_size=as_count(_one(config, "max_batch_size")) or None,
        instances=_instances(_many(config, "instance_group")),
        queue_delay_s=None if delay_us is None else delay_us / _US_PER_S,
        preferred_batch_size=max(sizes, default=None),
        decoupled=_inner(policy, "decoupled", as_flag),
        steps=tuple(step for step in named if step is not None),
        parameters=_parameters(config),
    )


def triton_parts(models: Iterable[TritonModel]) -> dict[str, Role]:
    """Role by model."""
    known = list(models)
    steps = max((model.steps for model in known), key=len, default=())
    return triton_roles(
        [model.name for model in known],
        backends={model.name: model.backend for model in known},
        steps=steps,
    )


def triton_config_facts(models: Sequence[TritonModel]) -> FactsDocument:
    """Settings of the repository: of the detokeniser where it has them, else of the engine."""
    if not models:
        return {}
    roles = triton_parts(models)
    engine = _only(models, roles, "engine")
    post = _only(models, roles, "postprocess")
    front = _only(models, roles, "frame")
    settings: dict[str, Any] = {
        "triton.postprocessing_instances": post.instances if post is not None else None,
        "triton.decoupled": _first((engine, front), "decoupled"),
        "triton.dynamic_batching_delay_s": _first((post, engine), "queue_delay_s"),
        "triton.preferred_batch_size": _first((post, engine), "preferred_batch_size"),
    }
    if engine is not None:
        settings |= _engine_settings(engine)
    known = {name: value for name, value in settings.items() if value is not None}
    arguments = {} if engine is None else engine.engine_arguments
    inner = argument_facts("vllm", arguments) if arguments else {}
    return overlay(facts_document(engine={"name": "triton"}, settings=known), inner)


def _engine_settings(engine: TritonModel) -> dict[str, Any]:
    """Parameters of the TensorRT-LLM backend; `${name}` in a template that was not filled in is
    none."""
    parameters = engine.parameters
    policy = (as_text(parameters.get("batch_scheduler_policy")) or "").lower()
    pool = as_count(parameters.get("max_tokens_in_paged_kv_cache"))
    is_vllm = engine.backend == "vllm"
    return {
        "max_num_seqs": None if is_vllm else engine.max_batch_size,
        "max_tokens_in_paged_kv_cache": pool or None,
        "scheduler.policy": policy if policy in _POLICIES else None,
        "enable_prefix_caching": as_flag(parameters.get("enable_kv_cache_reuse")),
        "enable_chunked_prefill": as_flag(parameters.get("enable_chunked_context")),
    }


def _instances(groups: Sequence[Any]) -> int | dict[str, float] | None:
    """Instances of all groups. A group on GPUs has its count on each: those it names, or all that
    there are."""
    total, open_ended = 0, False
    for group in groups:
        if not isinstance(group, Mapping):
            return None
        count = as_count(_one(group, "count")) or 1
        gpus = _many(group, "gpus")
        on_gpus = _one(group, "kind") == "KIND_GPU"
        total += count * (len(gpus) if on_gpus and gpus else 1)
        open_ended = open_ended or (on_gpus and not gpus)
    if not total:
        return None
    return bound(low=total) if open_ended else total


def _parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """`parameters`: entries with key and value in the text format, a table in JSON."""
    found: dict[str, str] = {}
    given = config.get("parameters")
    if isinstance(given, Mapping):
        pairs: list[tuple[Any, Any]] = list(given.items())
    else:
        entries = [entry for entry in _many(config, "parameters") if isinstance(entry, Mapping)]
        pairs = [(_one(entry, "key"), _one(entry, "value")) for entry in entries]
    for key, value in pairs:
        text = _one(value, "string_value") if isinstance(value, Mapping) else value
        if isinstance(key, str) and isinstance(text, str) and "${" not in text:
            found[key] = text
    return found


def _only(
    models: Iterable[TritonModel], roles: Mapping[str, Role], role: Role
) -> TritonModel | None:
    found = [model for model in models if roles.get(model.name) == role]
    return found[0] if len(found) == 1 else None


def _first(models: Iterable[TritonModel | None], field: str) -> Any:
    values = (getattr(model, field) for model in models if model is not None)
    return next((value for value in values if value is not None), None)


def _many(message: Any, name: str) -> list[Any]:
    """Values of a field, also where JSON has one that is no list."""
    value = message.get(name) if isinstance(message, Mapping) else None
    return value if isinstance(value, list) else [] if value is None else [value]


def _one(message: Any, name: str) -> Any:
    """The last value of a field: in the text format it counts."""
    values = _many(message, name)
    return values[-1] if values else None


def _inner(message: Any, name: str, read: Any) -> Any:
    return read(_one(message, name)) if isinstance(message, Mapping) else None


def _json_table(text: str) -> dict[str, Any]:
    try:
        decoded = msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
    return decoded if isinstance(decoded, dict) else {}
