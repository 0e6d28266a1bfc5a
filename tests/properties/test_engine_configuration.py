"""Any plan gives what the engine's parser takes, and each of its fields is told or warned of."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import architecture, gpu
from mileage.engines.configuration.configuration import Configuration, set_fields
from mileage.engines.configuration.generate import (
    ENGINES,
    PlannedEngine,
    ServedModel,
    configure,
)
from mileage.engines.configuration.plan import EnginePlan
from tests.support.engine_plans import (
    check_sglang,
    check_triton,
    check_trtllm,
    check_vllm,
    plans,
)
from tests.support.llama_parser import LlamaParser

_MODEL = ServedModel(architecture=architecture("llama-3.1-8b"))
_SIZED = msgspec.structs.replace(_MODEL, gpu=gpu("h200"))
_SETTINGS = settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
_CHECKS: dict[str, Callable[[Configuration], Any]] = {
    "vllm": check_vllm,
    "sglang": check_sglang,
    "trtllm": check_trtllm,
    "triton": check_triton,
    "onnx": lambda found: json.loads(found.files["genai_config.json"]),
}


def _configured(engine: PlannedEngine, plan: EnginePlan, model: ServedModel) -> Configuration:
    """What is generated; a refusal names a field that there is."""
    if engine == "onnx" and plan.context_max_tokens is None:
        plan = msgspec.structs.replace(plan, context_max_tokens=2048)
    try:
        return configure(engine, plan, model)
    except ConfigError as error:
        assume(error.key.partition(".")[0] not in EnginePlan.__struct_fields__)
        raise AssertionError(f"a refusal of {error.key}, which is no field") from error


@pytest.mark.parametrize("engine", sorted(_CHECKS))
@given(plan=plans(), sized=st.booleans())
@_SETTINGS
def test_the_engine_takes_what_is_generated(
    engine: PlannedEngine, plan: EnginePlan, sized: bool
) -> None:
    _CHECKS[engine](_configured(engine, plan, _SIZED if sized else _MODEL))


@pytest.fixture(scope="module")
def llama_parser() -> Iterator[LlamaParser]:
    with LlamaParser() as parser:
        yield parser


@given(plan=plans(model=st.just("/m/a b.gguf")))
@_SETTINGS
def test_llama_cpp_takes_what_is_generated(llama_parser: LlamaParser, plan: EnginePlan) -> None:
    found = _configured("llamacpp", plan, _MODEL)
    assert len(found.commands) == plan.instances
    for instance, (program, *words) in enumerate(found.commands):
        assert program == "llama-server"
        read = llama_parser.parse(words)
        assert read["port"] == plan.port + instance
        assert read["model"] == plan.model
        if plan.context_max_tokens is not None:
            assert read["n_ctx"] == plan.context_max_tokens * (plan.running_max or 1)
        if plan.lora is not None:
            assert read["lora"] == list(plan.lora.adapters.values())


def _said(found: Configuration) -> tuple[object, ...]:
    return (found.commands, found.files, found.environment)


@pytest.mark.parametrize("engine", ENGINES)
@given(plan=plans(model=st.just("/m/a.gguf")))
@_SETTINGS
def test_no_field_is_dropped_in_silence(engine: PlannedEngine, plan: EnginePlan) -> None:
    """Each field that is set changes what the engine is told, or has a warning with its name."""
    if engine == "onnx":
        onnx = msgspec.structs.replace(plan.onnx, type="llama", eos_token_ids=(2,))
        plan = msgspec.structs.replace(plan, context_max_tokens=2048, onnx=onnx)
    found = _configured(engine, plan, _MODEL)
    warned = {warning.field for warning in found.warnings}
    for name in set_fields(plan):
        if name in warned or name == "model":
            continue
        try:
            without = configure(engine, _without(plan, name), _MODEL)
        except ConfigError:
            continue  # without it nothing can be started: so it was told
        same = _said(without) == _said(found)
        assert not same or _as_it_comes(engine, plan, name), f"{name} was dropped"


def _without(plan: EnginePlan, name: str) -> EnginePlan:
    """The plan with this field as it comes; of an optional table, without the table."""
    table, _, inner = name.partition(".")
    default = _default(plan, table)
    if inner and default is not None:
        part = getattr(plan, table)
        default = msgspec.structs.replace(part, **{inner: _default(part, inner)})
    return msgspec.structs.replace(plan, **{table: default})


def _default(struct: msgspec.Struct, name: str) -> Any:
    return next(each.default for each in msgspec.structs.fields(struct) if each.name == name)


def _as_it_comes(engine: PlannedEngine, plan: EnginePlan, name: str) -> bool:
    """The engine does so without being told: what it would be told is what it does anyway."""
    return (engine, name, getattr(plan, name.partition(".")[0])) in {
        ("sglang", "prefix_caching", True),
        ("sglang", "chunked_prefill", True),
        ("llamacpp", "chunked_prefill", True),
        ("onnx", "chunked_prefill", True),
        ("onnx", "chunked_prefill", False),
        ("onnx", "running_max", 1),
        ("llamacpp", "running_max", 1),
    }
