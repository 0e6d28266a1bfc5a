"""What each engine is told of a plan: values, read back by its parser, and what is warned of."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.costmodel.memory import memory_use
from mileage.engines.configuration.configuration import Configuration
from mileage.engines.configuration.generate import PlannedEngine, ServedModel, configure
from mileage.engines.configuration.llama_server import llama_server_arguments
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import (
    LoraPlan,
    OnnxPlan,
    SpeculationPlan,
    TritonPlan,
    TrtllmPlan,
)
from mileage.engines.configuration.vllm import vllm_arguments
from tests.support.engine_plans import check_sglang, check_triton, check_trtllm, check_vllm
from tests.support.option_table import parse_options

PLAN = EnginePlan(
    model="/models/llama",
    served_name="llama",
    tensor_parallel=2,
    context_max_tokens=8192,
    running_max=64,
    step_tokens_max=4096,
    gpu_memory_ratio=0.9,
    kv_dtype="fp8",
    block_tokens=32,
    prefix_caching=True,
    chunked_prefill=True,
    graph_sizes=(1, 2, 4),
    lora=LoraPlan(slots=4, rank_max=20, adapters={"sql": "/adapters/sql"}),
)
LLAMA = ServedModel(architecture=architecture("llama-3.1-8b"))
SIZED = msgspec.structs.replace(LLAMA, gpu=gpu("h100"))


def plan(**fields: Any) -> EnginePlan:
    return msgspec.structs.replace(PLAN, **fields)


def warned(found: Configuration) -> dict[str, str]:
    return {warning.field: warning.message for warning in found.warnings}


def test_vllm() -> None:
    (read,) = check_vllm(configure("vllm", PLAN))
    assert json.loads(read["--lora-modules"][0]) == {"name": "sql", "path": "/adapters/sql"}
    assert {name: read[name] for name in read if name not in ("--lora-modules", "--host")} == {
        "--served-model-name": ["llama"],
        "--port": 8000,
        "--tensor-parallel-size": 2,
        "--kv-cache-dtype": "fp8_e4m3",
        "--max-model-len": "8192",
        "--max-num-seqs": 64,
        "--max-num-batched-tokens": "4096",
        "--gpu-memory-utilization": 0.9,
        "--block-size": 32,
        "--enable-prefix-caching": True,
        "--enable-chunked-prefill": True,
        "--cudagraph-capture-sizes": [1, 2, 4],
        "--enable-lora": True,
        "--max-loras": 4,
        "--max-lora-rank": 32,  # the next that it takes
    }
    assert warned(configure("vllm", PLAN)) == {}


def test_vllm_without_graphs_is_eager() -> None:
    read = parse_options("vllm", vllm_arguments(plan(graph_sizes=(), prefix_caching=False)))
    assert read["--enforce-eager"]
    assert read["--no-enable-prefix-caching"]
    assert "--cudagraph-capture-sizes" not in read


def test_each_instance_has_its_port_and_its_part_of_the_memory() -> None:
    found = check_vllm(configure("vllm", plan(instances=3)))
    assert [read["--port"] for read in found] == [8000, 8001, 8002]
    assert {read["--gpu-memory-utilization"] for read in found} == {0.3}


def test_sglang() -> None:
    found = configure("sglang", plan(speculation=SpeculationPlan(method="draft", model="/d")))
    (read,) = check_sglang(found)
    assert read["--max-loras-per-batch"] == 5  # one is for requests without
    assert read["--mem-fraction-static"] == 0.9
    assert (read["--chunked-prefill-size"], read["--kv-cache-dtype"]) == (4096, "fp8_e4m3")
    assert read["--speculative-num-draft-tokens"] == read["--speculative-num-steps"] + 1
    assert warned(found).keys() == {"gpu_memory_ratio", "step_tokens_max"}


def test_sglang_is_told_what_weights_and_cache_take_of_the_card() -> None:
    found = configure("sglang", PLAN, SIZED)
    assert found.kv_cache is not None
    (read,) = check_sglang(found)
    share = (found.kv_cache.bytes + found.kv_cache.weights_bytes) / found.kv_cache.gpu_bytes
    assert share - 0.001 <= read["--mem-fraction-static"] <= share < 0.9
    assert "gpu_memory_ratio" not in warned(found)


def test_each_instance_of_sglang_has_its_share_of_what_those_before_it_leave() -> None:
    two = plan(instances=2, tensor_parallel=1)
    found = configure("sglang", two, SIZED)
    cache = found.kv_cache
    assert cache is not None
    first, second = (read["--mem-fraction-static"] for read in check_sglang(found))
    static = cache.bytes + cache.weights_bytes
    taken = 0.45 * cache.gpu_bytes
    for share, free in ((first, cache.gpu_bytes), (second, cache.gpu_bytes - taken)):
        assert share * free == pytest.approx(static, rel=0.005)
    assert "start them in turn" in warned(found)["instances"]
    shares = [read["--mem-fraction-static"] for read in check_sglang(configure("sglang", two))]
    assert shares == [0.45, 0.818]


def test_pages_of_tensorrt_llm_are_those_of_the_cost_model() -> None:
    found = configure("trtllm", PLAN, SIZED)
    cache = check_trtllm(found)["kv_cache_config"]
    assert LLAMA.architecture is not None
    deployment = Deployment(model=LLAMA.architecture, gpu=gpu("h100"), tensor_parallel=2, kv="fp8")
    use = memory_use(deployment, 4096, 64)
    # 8 KV heads of 128 on two GPUs, keys and values of one byte, in 32 layers.
    block_bytes = 32 * 32 * 2 * 8 * 128 // 2
    assert cache["max_tokens"] == use.kv // block_bytes * 32
    free = gpu("h100").memory_bytes - use.weights - use.activations - use.context
    assert 0 <= use.kv / free - cache["free_gpu_memory_fraction"] < 0.001
    assert cache | {"max_tokens": 0, "free_gpu_memory_fraction": 0} == {
        "enable_block_reuse": True,
        "dtype": "fp8",
        "tokens_per_block": 32,
        "max_tokens": 0,
        "free_gpu_memory_fraction": 0,
    }


def test_an_engine_is_built_before_it_is_served() -> None:
    built = plan(trtllm=TrtllmPlan(backend="tensorrt", engine_dir="/e"), pipeline_parallel=2)
    found = configure("trtllm", built)
    check_trtllm(found)
    build, serve = found.commands
    read = parse_options("trtllm", build[1:], "build")
    assert read["--workers"] == 4
    assert (read["--max_seq_len"], read["--max_input_len"]) == (8192, 8192)
    assert (read["--kv_cache_type"], read["--tokens_per_block"]) == ("paged", 32)
    assert serve[:2] == ("trtllm-serve", "/e")
    assert warned(found).keys() >= {"kv_dtype", "graph_sizes", "tensor_parallel", "served_name"}


def test_triton_batches_requests_of_a_python_model() -> None:
    found = configure(
        "triton",
        EnginePlan(
            model="/m/reranker",
            running_max=32,
            instances=2,
            queue_delay_ms=1.5,
            preferred_batch_sizes=(8, 32),
            kv_dtype="fp8",
            triton=TritonPlan(backend="python", gpus=(0, 1)),
        ),
    )
    message = check_triton(found)
    assert (message.name, message.backend, message.max_batch_size) == ("reranker", "python", 32)
    (group,) = message.instance_group
    assert (group.count, list(group.gpus)) == (2, [0, 1])
    assert list(message.dynamic_batching.preferred_batch_size) == [8, 32]
    assert message.dynamic_batching.max_queue_delay_microseconds == 1500
    assert warned(found) == {"kv_dtype": "not told to Triton: it has no such setting"}


def test_triton_tells_tensorrt_llm_of_its_cache() -> None:
    found = configure("triton", plan(prefix_caching=False), SIZED)
    message = check_triton(found)
    values = {key: value.string_value for key, value in message.parameters.items()}
    assert found.kv_cache is not None
    assert values["max_tokens_in_paged_kv_cache"] == str(found.kv_cache.tokens)
    assert (values["enable_kv_cache_reuse"], values["enable_chunked_context"]) == ("false", "true")
    assert {tensor.name for tensor in message.input if not tensor.optional} == {
        "input_ids",
        "input_lengths",
        "request_output_len",
    }


@pytest.mark.parametrize(
    ("fields", "count", "devices"),
    [
        pytest.param({"instances": 2, "tensor_parallel": 1}, 8, "0;1;2;3;0;1;2;3", id="one each"),
        pytest.param({"tensor_parallel": 2}, 2, "0,1;2,3", id="two each"),
        pytest.param({"tensor_parallel": 2, "pipeline_parallel": 2}, 1, "0,1,2,3", id="one of all"),
    ],
)
def test_triton_shares_gpus_out_to_instances_of_tensorrt_llm(
    fields: dict[str, Any], count: int, devices: str
) -> None:
    found = configure("triton", plan(**fields, triton=TritonPlan(gpus=(0, 1, 2, 3))))
    message = check_triton(found)
    (group,) = message.instance_group
    assert (group.count, list(group.gpus)) == (count, [])
    assert message.parameters["gpu_device_ids"].string_value == devices
    assert found.environment == {"TRTLLM_ORCHESTRATOR": "1"}


def test_no_port_of_triton_is_open_to_all() -> None:
    (words,) = configure("triton", plan(host="10.0.0.5", port=9000)).commands
    assert words[2:] == (
        "--http-address=10.0.0.5",
        "--http-port=9000",
        "--grpc-address=10.0.0.5",
        "--grpc-port=9001",
        "--metrics-port=9002",
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm", "triton", "llamacpp"])
def test_servers_are_of_this_machine_alone_unless_told(engine: PlannedEngine) -> None:
    for words in configure(engine, EnginePlan(model="m.gguf")).commands:
        assert "127.0.0.1" in " ".join(words)
        assert "0.0.0.0" not in " ".join(words)


def test_one_gpu_of_triton_needs_no_processes_of_its_own() -> None:
    found = configure("triton", plan(tensor_parallel=1, triton=TritonPlan(gpus=(3,))))
    assert check_triton(found).parameters["gpu_device_ids"].string_value == "3"
    assert found.environment == {}


def test_llama_cpp_divides_its_context_among_slots() -> None:
    words = llama_server_arguments(plan(model="/m.gguf", kv_dtype="int8"))
    assert words[words.index("--ctx-size") + 1] == str(8192 * 64)
    assert words[words.index("--cache-type-v") + 1] == "q8_0"
    assert words[words.index("--flash-attn") + 1] == "on"
    assert words[words.index("--ubatch-size") + 1] == "512"


def test_onnx_of_an_edge_device() -> None:
    edge = EnginePlan(
        model="/m",
        context_max_tokens=2048,
        step_tokens_max=256,
        onnx=OnnxPlan(provider="webgpu", type="llama", eos_token_ids=(2, 3), threads=4),
    )
    found = configure("onnx", edge, LLAMA)
    document = json.loads(found.files["genai_config.json"])
    assert document["search"] == {
        "max_length": 2048,
        "do_sample": False,
        "past_present_share_buffer": True,
        "chunk_size": 256,
    }
    model = document["model"]
    assert (model["eos_token_id"], model["pad_token_id"], model["vocab_size"]) == (
        [2, 3],
        2,
        128256,
    )
    assert model["decoder"]["session_options"] == {
        "log_id": "onnxruntime-genai",
        "intra_op_num_threads": 4,
        "provider_options": [{"WebGPU": {}}],
    }
    assert "engine" not in document
    assert found.warnings == ()


@pytest.mark.parametrize(
    ("engine", "fields", "key"),
    [
        pytest.param("llamacpp", {}, "kv_dtype", id="llama.cpp has no FP8 cache"),
        pytest.param("llamacpp", {"kv_dtype": None, "running_max": 500}, "running_max", id="slots"),
        pytest.param("sglang", {"kv_dtype": "int8"}, "kv_dtype", id="SGLang has no INT8 cache"),
        pytest.param("trtllm", {"block_tokens": 48}, "block_tokens", id="no power of two"),
        pytest.param("vllm", {"block_tokens": 24}, "block_tokens", id="no multiple of 16"),
        pytest.param("triton", {"port": 65_534}, "port", id="no room for gRPC and metrics"),
        pytest.param("vllm", {"lora": LoraPlan(rank_max=600)}, "lora.rank_max", id="rank"),
        pytest.param("triton", {"served_name": "a/b"}, "served_name", id="no directory's name"),
        pytest.param(
            "triton", {"triton": TritonPlan(gpus=(0, 1, 2))}, "triton.gpus", id="half an instance"
        ),
        pytest.param("onnx", {"context_max_tokens": None}, "context_max_tokens", id="no context"),
        pytest.param("onnx", {}, "onnx.type", id="no family"),
    ],
)
def test_an_engine_refuses_what_it_has_not(
    engine: PlannedEngine, fields: dict[str, Any], key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        configure(engine, plan(**fields), LLAMA)
    assert refused.value.key == key


@pytest.mark.parametrize(
    ("fields", "model", "key"),
    [
        pytest.param({"tensor_parallel": 3}, SIZED, "tensor_parallel", id="heads cannot be cut"),
        pytest.param(
            {"instances": 8, "tensor_parallel": 1}, SIZED, "tensor_parallel", id="no room for 8"
        ),
        pytest.param(
            {"context_max_tokens": 1 << 23}, SIZED, "context_max_tokens", id="a context too long"
        ),
    ],
)
def test_what_does_not_fit_the_card_is_refused(
    fields: dict[str, Any], model: ServedModel, key: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        configure("vllm", plan(**fields), model)
    assert refused.value.key == key


def test_more_requests_than_the_cache_holds_are_warned_of() -> None:
    found = configure("vllm", plan(running_max=256, context_max_tokens=32768), SIZED)
    assert found.kv_cache is not None
    assert f"room for {found.kv_cache.contexts} of them" in warned(found)["running_max"]


def test_a_shape_that_genai_cannot_have() -> None:
    latent: Architecture = architecture("deepseek-v3")
    edge = EnginePlan(model="/m", context_max_tokens=2048)
    with pytest.raises(ConfigError, match="latent attention"):
        configure("onnx", edge, ServedModel(architecture=latent))


def test_onnx_asks_for_the_shape() -> None:
    with pytest.raises(ConfigError) as refused:
        configure("onnx", PLAN)
    assert refused.value.key == "architecture"
