"""Command lines and environments as settings."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.launch_arguments import engine_of_command, launch_facts
from tests.support.engine_pages import checked


def settings_of(command: str, **keywords: Any) -> dict[str, Any]:
    """Settings that a command line gives."""
    facts = launch_facts(command.split(" "), **keywords)
    checked(facts.configured)
    checked(facts.defaults)
    settings: dict[str, Any] = facts.configured.get("settings", {})
    return settings


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        pytest.param(
            "vllm serve m --tensor-parallel-size 2 --enforce-eager --max-num-seqs=64",
            {"tensor_parallel_size": 2, "enforce_eager": True, "max_num_seqs": 64},
            id="vllm: words and equals signs",
        ),
        pytest.param(
            "python3 -m vllm.entrypoints.openai.api_server --model m -tp 8 -q awq",
            {"tensor_parallel_size": 8, "quantization": "awq"},
            id="vllm: the module, short names",
        ),
        pytest.param(
            "vllm serve m --no-enable-prefix-caching --enable-chunked-prefill false",
            {"enable_prefix_caching": False, "enable_chunked_prefill": False},
            id="vllm: flags that are off",
        ),
        pytest.param(
            "vllm serve m --max-model-len 32k --max-num-batched-tokens 8K",
            {"max_model_len": 32_000, "max_num_batched_tokens": 8192},
            id="vllm: thousands and kibi",
        ),
        pytest.param(
            "vllm serve m --speculative-config.method ngram "
            "--speculative-config.num_speculative_tokens 4",
            {"speculative.method": "ngram", "speculative.num_tokens": 4},
            id="vllm: a configuration by its parts",
        ),
        pytest.param(
            'vllm serve m --speculative-config {"method":"eagle3","num_speculative_tokens":3}',
            {"speculative.method": "eagle", "speculative.num_tokens": 3},
            id="vllm: a configuration as JSON",
        ),
        pytest.param(
            'vllm serve m --kv-transfer-config {"kv_connector":"N","kv_role":"kv_producer"}',
            {"disaggregation_mode": "prefill"},
            id="vllm: a role",
        ),
        pytest.param(
            "python -m sglang.launch_server --model-path m --tp 8 --disable-radix-cache "
            "--disable-cuda-graph --mem-fraction-static 0.85 --max-running-requests 256",
            {
                "tensor_parallel_size": 8,
                "enable_prefix_caching": False,
                "enforce_eager": True,
                "gpu_memory_utilization": 0.85,
                "max_num_seqs": 256,
            },
            id="sglang: what is disabled",
        ),
        pytest.param(
            "python -m sglang.launch_server --model-path m --chunked-prefill-size -1",
            {"enable_chunked_prefill": False},
            id="sglang: no chunks",
        ),
        pytest.param(
            "python -m sglang.launch_server --model-path m --speculative-algorithm EAGLE "
            "--speculative-num-steps 5 --speculative-eagle-topk 8 "
            "--speculative-num-draft-tokens 64",
            {"speculative.method": "eagle", "speculative.num_tokens": 64},
            id="sglang: a tree of drafts",
        ),
        pytest.param(
            "trtllm-serve m --tp_size 4 --max_batch_size 64 --max_num_tokens 8192",
            {"tensor_parallel_size": 4, "max_num_seqs": 64, "max_num_batched_tokens": 8192},
            id="trtllm-serve",
        ),
        pytest.param(
            "llama-server -m m.gguf -np 4 -c 16384 --no-cache-prompt",
            {"max_num_seqs": 4, "max_model_len": 4096, "enable_prefix_caching": False},
            id="llama-server: the context is shared by the slots",
        ),
    ],
)
def test_settings_by_engine(command: str, settings: dict[str, Any]) -> None:
    assert settings_of(command) == settings


def test_a_shell_is_looked_through() -> None:
    script = "cd /app && exec vllm serve \\\n  m --max-num-seqs 8 --served-model-name 'a b'"
    facts = launch_facts(["/bin/bash", "-lc", "-c", script])
    assert facts.engine == "vllm"
    assert facts.configured["settings"] == {"max_num_seqs": 8}
    assert facts.configured["model"] == {"name": "a b"}


def test_a_whole_line_in_one_word_is_split() -> None:
    assert launch_facts(["vllm serve m --block-size 32"]).configured["settings"] == {
        "block_size": 32
    }


def test_accelerators_are_the_product_of_the_ranks() -> None:
    facts = launch_facts(["vllm", "serve", "m", "-tp", "4", "-pp", "2", "-dp", "2"])
    assert facts.configured["hardware"] == {"count": 16}
    attention = "python -m sglang.launch_server --model-path m --tp 8 --dp 8 --enable-dp-attention"
    assert launch_facts(attention.split()).configured["hardware"] == {"count": 8}


def test_defaults_are_what_the_line_leaves_out() -> None:
    defaults = launch_facts(["vllm", "serve", "m", "-tp", "2"]).defaults["settings"]
    assert "tensor_parallel_size" not in defaults
    assert defaults["pipeline_parallel_size"] == 1
    assert defaults["enforce_eager"] is False
    assert defaults["quantization"] is None
    assert "enable_prefix_caching" not in defaults  # V1 decides by the model
    assert "max_num_seqs" not in defaults  # and this by the card


def test_v0_has_defaults_that_v1_has_not() -> None:
    old = launch_facts(["vllm", "serve", "m"], version="0.6.3").defaults["settings"]
    assert (old["max_num_seqs"], old["enable_prefix_caching"], old["block_size"]) == (
        256,
        False,
        16,
    )
    chosen = launch_facts(["vllm", "serve", "m"], {"VLLM_USE_V1": "0"}, version="0.8.5")
    assert chosen.configured["engine"]["variant"] == "v0"
    assert chosen.defaults["settings"]["max_num_seqs"] == 256


def test_a_file_of_arguments_may_hold_anything() -> None:
    assert launch_facts(["vllm", "serve", "m", "--config", "f.yaml"]).defaults == {}
    assert launch_facts(["trtllm-serve", "m", "--extra_llm_api_options", "f.yaml"]).defaults == {}


def test_the_environment_tells_what_is_set_and_where_it_is_whole_what_is_not() -> None:
    command = ["vllm", "serve", "m"]
    some = launch_facts(command, {"NCCL_P2P_DISABLE": "1"}).configured["settings"]
    assert some == {"env.NCCL_P2P_DISABLE": 1}
    whole = launch_facts(command, {"NCCL_P2P_DISABLE": "1"}, environment_is_whole=True)
    assert whole.configured["settings"] == {
        "env.NCCL_P2P_DISABLE": 1,
        "env.OMP_NUM_THREADS": None,
        "env.VLLM_SKIP_P2P_CHECK": None,
    }


@pytest.mark.parametrize(
    ("command", "engine"),
    [
        ("vllm serve m", "vllm"),
        ("/opt/venv/bin/vllm serve m", "vllm"),
        ("python /x/vllm/entrypoints/openai/api_server.py", "vllm"),
        ("python -m sglang.launch_server", "sglang"),
        ("sglang serve m", "sglang"),
        ("trtllm-serve m", "tensorrt-llm"),
        ("tritonserver --model-repository /m", "triton"),
        ("/app/llama-server -m x", "llama.cpp"),
        ("text-generation-launcher --model-id m", "tgi"),
        ("python train.py", None),
        ("grep vllm-serving.txt", None),
        ("", None),
    ],
)
def test_the_engine_of_a_command(command: str, engine: str | None) -> None:
    assert engine_of_command(command.split()) == engine


def test_a_value_that_is_none_is_no_setting() -> None:
    assert settings_of("vllm serve m --max-num-seqs many --gpu-memory-utilization 90") == {}
