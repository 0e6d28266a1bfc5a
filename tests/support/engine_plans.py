"""Plans of engines as Hypothesis makes them, and readers of what is generated from them."""

from __future__ import annotations

import importlib.util
import json
from functools import cache
from importlib.metadata import distribution
from typing import Any

import yaml
from hypothesis import assume
from hypothesis import strategies as st

from mileage.core.errors import ConfigError
from mileage.engines.configuration.configuration import Configuration
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import (
    LoraPlan,
    OnnxPlan,
    SpeculationPlan,
    TritonPlan,
    TrtllmPlan,
)
from tests.support.option_table import parse_options, recorded

__all__ = ["check_sglang", "check_triton", "check_trtllm", "check_vllm", "plans"]

_TEXT = st.text("abcXYZ019 ._/-'\"\\$é,:={}[]", min_size=1, max_size=12).filter(
    lambda text: text.strip() and text[0] != "-"
)
_NAMES = st.text("abcXYZ019._-", min_size=1, max_size=8).map(lambda text: f"a{text}")
_SIZES = st.lists(st.integers(1, 512), max_size=4, unique=True).map(lambda x: tuple(sorted(x)))


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


_FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "served_name": _maybe(_NAMES),
    "host": st.sampled_from(["127.0.0.1", "0.0.0.0", "::1"]),
    "port": st.integers(1, 65_000),
    "tensor_parallel": st.sampled_from([1, 2, 8]),
    "pipeline_parallel": st.sampled_from([1, 1, 4]),
    "instances": st.integers(1, 3),
    "dtype": _maybe(st.sampled_from(["bf16", "fp16", "fp32"])),
    "weights": _maybe(st.sampled_from(["fp8", "int8", "awq", "gptq", "fp4"])),
    "kv_dtype": _maybe(st.sampled_from(["bf16", "fp16", "fp8", "fp8_e5m2", "int8", "int4", "fp4"])),
    "context_max_tokens": _maybe(st.integers(1, 1 << 17)),
    "running_max": _maybe(st.integers(1, 256)),
    "step_tokens_max": _maybe(st.integers(1, 1 << 17)),
    "gpu_memory_ratio": _maybe(st.floats(0.01, 1.0)),
    "block_tokens": _maybe(st.sampled_from([1, 16, 32, 64, 256])),
    "prefix_caching": _maybe(st.booleans()),
    "chunked_prefill": _maybe(st.booleans()),
    "graph_sizes": _maybe(_SIZES),
    "queue_delay_ms": _maybe(st.floats(0, 1000)),
    "preferred_batch_sizes": _SIZES,
    "lora": _maybe(
        st.builds(
            LoraPlan,
            slots=st.integers(1, 64),
            rank_max=st.integers(1, 512),
            adapters=st.dictionaries(_NAMES, _TEXT, max_size=2),
        )
    ),
    "speculation": _maybe(
        st.builds(SpeculationPlan, method=st.just("ngram"), tokens=st.integers(1, 8))
        | st.builds(SpeculationPlan, method=st.just("draft"), model=st.just("/m/draft.gguf"))
    ),
    "trtllm": st.builds(TrtllmPlan, backend=st.sampled_from(["pytorch", "tensorrt"])),
    "triton": st.builds(
        TritonPlan,
        backend=st.sampled_from(["tensorrt_llm", "python", "onnxruntime"]),
        gpus=st.sampled_from([(), (0,), (1, 3)]),
    ),
    "onnx": st.builds(
        OnnxPlan,
        provider=st.sampled_from(["cpu", "cuda", "dml", "webgpu"]),
        threads=_maybe(st.integers(1, 8)),
        type=st.just("llama"),
        bos_token_id=_maybe(st.just(1)),
        eos_token_ids=st.sampled_from([(2,), (2, 3)]),
    ),
}


@st.composite
def plans(draw: st.DrawFn, model: st.SearchStrategy[str] = _TEXT) -> EnginePlan:
    """Valid plans: each field is left out as often as not."""
    fields = {name: draw(strategy) for name, strategy in _FIELDS.items() if draw(st.booleans())}
    try:
        return EnginePlan(model=draw(model), **fields)
    except ConfigError:
        assume(False)
        raise AssertionError from None


def check_vllm(found: Configuration) -> list[dict[str, Any]]:
    """Options of each command as vLLM's parser reads them; AssertionError where it would not."""
    read = []
    for program, command, _, *words in found.commands:
        assert (program, command) == ("vllm", "serve")
        read.append(parse_options("vllm", words))
    document = yaml.safe_load(found.files["config.yaml"])
    first = {name.removeprefix("--"): value for name, value in read[0].items()}
    assert {name: str(value) for name, value in document.items() if name != "model"} == {
        name.removeprefix("no-"): str(not name.startswith("no-") if value is True else value)
        if not isinstance(document.get(name), dict)
        else str(json.loads(value))
        for name, value in first.items()
    }
    return read


def check_sglang(found: Configuration) -> list[dict[str, Any]]:
    """Options of each command as SGLang's parser reads them."""
    return [parse_options("sglang", words[3:]) for words in found.commands]


def check_trtllm(found: Configuration) -> dict[str, Any]:
    """The YAML; commands and keys are those that TensorRT-LLM takes."""
    document: dict[str, Any] = yaml.safe_load(found.files["config.yaml"])
    known = recorded("trtllm")["config"]
    backend = ""
    for program, *words in found.commands:
        if program == "trtllm-build":
            parse_options("trtllm", words, "build")
        else:
            backend = parse_options("trtllm", words[1:], "serve")["--backend"]
    assert set(document) <= set(known[backend])
    for name in ("kv_cache_config", "cuda_graph_config", "lora_config"):
        assert set(document.get(name) or {}) <= set(known[name])
    if speculation := document.get("speculative_config"):
        assert set(speculation) <= set(known[speculation["decoding_type"]])
    return document


@cache
def _model_config() -> Any:
    """Triton's own message, from the package of its client; its gRPC part is not needed."""
    path = distribution("tritonclient").locate_file("tritonclient/grpc/model_config_pb2.py")
    spec = importlib.util.spec_from_file_location("triton_model_config_pb2", str(path))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.ModelConfig


def check_triton(found: Configuration) -> Any:
    """config.pbtxt as Triton's own message."""
    from google.protobuf import text_format

    ((name, text),) = found.files.items()
    message = text_format.Parse(text, _model_config()())
    assert name == f"model_repository/{message.name}/config.pbtxt"
    return message
