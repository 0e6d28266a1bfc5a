"""What is generated, read by the engines' own code: vLLM 0.32, and ONNX Runtime GenAI."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mileage.costmodel.catalogue import architecture
from mileage.engines.configuration.generate import ServedModel, configure
from mileage.engines.configuration.plan import EnginePlan
from mileage.engines.configuration.plan_parts import LoraPlan, OnnxPlan, SpeculationPlan

pytestmark = pytest.mark.heavy

_ROOT = Path(__file__).resolve().parents[3]
_VLLM = _ROOT / "tests" / "support" / "vllm_parser.py"
_GENAI = _ROOT / ".venvs" / "onnx-genai" / "bin" / "python"
_READ = "import sys, onnxruntime_genai; [onnxruntime_genai.Config(each) for each in sys.argv[1:]]"
_TIMEOUT_S = 300.0

_FULL = EnginePlan(
    model="/models/a b",
    served_name="llama",
    port=8100,
    tensor_parallel=2,
    pipeline_parallel=2,
    dtype="fp16",
    weights="fp8",
    kv_dtype="fp8",
    context_max_tokens=8192,
    running_max=64,
    step_tokens_max=4096,
    gpu_memory_ratio=0.85,
    block_tokens=32,
    prefix_caching=False,
    chunked_prefill=True,
    graph_sizes=(1, 2, 64),
    lora=LoraPlan(slots=3, rank_max=24, adapters={"sql": "/adapters/sql, v2"}),
    speculation=SpeculationPlan(method="draft", model="/models/draft", tokens=4),
)
_PLANS: tuple[EnginePlan, ...] = (
    _FULL,
    EnginePlan(model="m", graph_sizes=(), prefix_caching=True),
    EnginePlan(
        model="m",
        chunked_prefill=False,
        context_max_tokens=1024,
        step_tokens_max=2048,
        speculation=SpeculationPlan(method="ngram", tokens=2),
        lora=LoraPlan(),
    ),
    *(
        msgspec.structs.replace(_FULL, kv_dtype=kv, weights=weights, dtype=dtype)
        for kv, weights, dtype in (
            ("bf16", "awq", "bf16"),
            ("fp16", "gptq", "fp32"),
            ("int8", "fp4", None),
            ("int4", "int8", None),
            ("fp8_e5m2", None, None),
            ("fp4", None, None),
        )
    ),
)


@pytest.fixture(scope="module")
def read_by_vllm(
    vllm_python: Path, tmp_path_factory: pytest.TempPathFactory
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Of each plan, what vLLM makes of the command line and of the file."""
    directory = tmp_path_factory.mktemp("plans")
    lines: list[list[str]] = []
    for place, plan in enumerate(_PLANS):
        found = configure("vllm", plan)
        file = directory / f"{place}.yaml"
        file.write_text(found.files["config.yaml"])
        lines += [list(found.commands[0][2:]), ["--config", str(file)]]
    done = subprocess.run(
        [vllm_python, _VLLM],
        input=json.dumps(lines),
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    read = json.loads(done.stdout.splitlines()[-1])
    return list(zip(read[::2], read[1::2], strict=True))


def test_vllm_reads_line_and_file_alike(
    read_by_vllm: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    assert len(read_by_vllm) == len(_PLANS)
    for line, file in read_by_vllm:
        assert line == file


def test_vllm_reads_what_the_plan_says(
    read_by_vllm: list[tuple[dict[str, Any], dict[str, Any]]],
) -> None:
    full, eager, whole, *_ = (line for line, _ in read_by_vllm)
    assert full == {
        "model": "/models/a b",
        "max_model_len": 8192,
        "max_num_seqs": 64,
        "max_num_batched_tokens": 4096,
        "gpu_memory_utilization": 0.85,
        "kv_cache_dtype": "fp8_e4m3",
        "quantization": "fp8",
        "dtype": "float16",
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 2,
        "block_size": 32,
        "enable_prefix_caching": False,
        "enable_chunked_prefill": True,
        "cudagraph_capture_sizes": [1, 2, 64],
        "enforce_eager": False,
        "enable_lora": True,
        "max_loras": 3,
        "max_lora_rank": 32,
        "speculative_config": {
            "method": "draft_model",
            "model": "/models/draft",
            "num_speculative_tokens": 4,
        },
        "served_model_name": ["llama"],
        "host": "127.0.0.1",
        "port": 8100,
        "lora_modules": [["sql", "/adapters/sql, v2"]],
    }
    assert (eager["enforce_eager"], eager["enable_prefix_caching"]) == (True, True)
    assert (whole["enable_chunked_prefill"], whole["enable_lora"]) == (False, True)
    assert whole["speculative_config"] == {"method": "ngram", "num_speculative_tokens": 2}


def test_onnx_runtime_genai_reads_its_file(tmp_path: Path) -> None:
    if not _GENAI.exists():
        pytest.skip("no ONNX Runtime GenAI here: run scripts/setup-onnx-genai.sh")
    edge = EnginePlan(
        model="/m",
        context_max_tokens=2048,
        step_tokens_max=256,
        onnx=OnnxPlan(type="llama", eos_token_ids=(2, 3), threads=4),
    )
    directories = []
    for place, plan in enumerate(
        (
            edge,
            msgspec.structs.replace(edge, running_max=8, prefix_caching=True, gpu_memory_ratio=0.5),
            *(
                msgspec.structs.replace(
                    edge,
                    graph_sizes=(1,),
                    onnx=OnnxPlan(provider=provider, type="llama", eos_token_ids=(2,)),
                )
                for provider in ("cuda", "dml", "webgpu")
            ),
        )
    ):
        found = configure("onnx", plan, ServedModel(architecture=architecture("llama-3.1-8b")))
        directory = tmp_path / str(place)
        directory.mkdir()
        (directory / "genai_config.json").write_text(found.files["genai_config.json"])
        directories.append(str(directory))
    broken = tmp_path / "broken"
    broken.mkdir()
    text = (tmp_path / "0" / "genai_config.json").read_text()
    (broken / "genai_config.json").write_text(text.replace("chunk_size", "chunk_sizes"))
    read = (str(_GENAI), "-c", _READ)
    taken = subprocess.run([*read, *directories], capture_output=True, timeout=_TIMEOUT_S)
    refused = subprocess.run([*read, str(broken)], capture_output=True, timeout=_TIMEOUT_S)
    assert taken.returncode == 0, taken.stderr[-2000:]
    assert b"chunk_sizes" in refused.stderr
