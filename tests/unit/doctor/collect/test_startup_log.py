"""Engine logs as facts: configuration, phases of a start, load, troubles."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.collect.startup_log import log_facts
from tests.support.engine_pages import checked

V1_START = """
(APIServer pid=1) INFO 06-14 04:56:30 [api_utils.py:273] vLLM API server version 0.22.1
(APIServer pid=1) INFO 06-14 04:56:37 [u.py:1] non-default args: {'model': 'm', 'max_num_seqs': 8}
(EngineCore pid=32) INFO 06-14 04:57:02 [core.py:113] Initializing a V1 LLM engine (v0.22.1) \
with config: model='m', speculative_config=None, tokenizer_mode=auto, dtype=torch.bfloat16, \
max_seq_len=8192, tensor_parallel_size=2, pipeline_parallel_size=1, data_parallel_size=1, \
disable_custom_all_reduce=False, quantization=None, enforce_eager=False, kv_cache_dtype=auto, \
enable_prefix_caching=True, enable_chunked_prefill=True, \
compilation_config={'cudagraph_mode': <CUDAGraphMode.FULL_AND_PIECEWISE: (2, 1)>}
(Worker_TP0 pid=40) INFO 06-14 04:57:40 [l.py:1] Loading weights took 12.50 seconds
(Worker_TP1 pid=41) INFO 06-14 04:57:41 [l.py:1] Loading weights took 13.00 seconds
(Worker_TP0 pid=40) INFO 06-14 04:57:42 [g.py:1] Model loading took 7.50 GiB and 14.000000 seconds
(Worker_TP0 pid=40) INFO 06-14 04:58:00 [b.py:1] Dynamo bytecode transform time: 8.00 s
(Worker_TP0 pid=40) INFO 06-14 04:58:40 [b.py:1] Compiling a graph for dynamic shape takes 40.00 s
(Worker_TP0 pid=40) INFO 06-14 04:58:41 [m.py:1] torch.compile takes 48.00 s in total
(EngineCore pid=32) INFO 06-14 04:58:43 [k.py:1] GPU KV cache size: 100,000 tokens
(EngineCore pid=32) INFO 06-14 04:58:43 [k.py:1] Maximum concurrency for 8,192 tokens per request: \
12.21x
(Worker_TP0 pid=40) INFO 06-14 04:59:00 [g.py:1] Graph capturing finished in 17 secs, took 0.5 GiB
(EngineCore pid=32) INFO 06-14 04:59:01 [core.py:1] init engine (profile, create kv cache, \
warmup model) took 79.00 seconds
(APIServer pid=1) INFO:     Application startup complete.
(APIServer pid=1) INFO 06-14 04:59:05 [x.py:1] Application startup complete.
"""


def facts(text: str) -> dict[str, Any]:
    """Facts of a log's text."""
    return checked(log_facts(text.strip().splitlines()))


def test_a_start_of_vllm() -> None:
    document = facts(V1_START)
    assert document["engine"] == {"name": "vllm", "variant": "v1", "version": "0.22.1"}
    assert document["model"] == {"name": "m", "dtype": "bf16", "weights_gib": 15.0}
    assert document["hardware"] == {"count": 2}
    settings = document["settings"]
    assert settings["max_num_seqs"] == 8
    assert settings["max_model_len"] == 8192
    assert settings["tensor_parallel_size"] == 2
    assert settings["enable_prefix_caching"] is True
    assert settings["enforce_eager"] is False
    assert settings["quantization"] is None
    assert settings["speculative.method"] is None
    assert settings["storage.compile_cache"] == "empty"
    signals = document["signals"]
    assert signals["startup_weights_s"] == 14
    assert signals["startup_dynamo_s"] == 8
    assert signals["startup_compile_s"] == 40
    assert signals["startup_graph_capture_s"] == 17
    assert signals["startup_engine_init_s"] == 79
    assert signals["startup_total_s"] == {"min": 151.0}
    assert signals["startup_silent_s"] == 40
    assert signals["kv_cache_capacity_tokens"] == 100_000
    assert signals["kv_max_concurrency"] == 12.21
    assert signals["process_restarts_count"] == 0


def test_of_two_starts_the_newest_counts_and_the_restart_is_told() -> None:
    again = V1_START.replace(" 04:", " 05:").replace("100,000", "90,000").replace("13.00", "1.0")
    again = again.replace("12.50", "1.0").replace("14.000000", "1.5")
    signals = facts(V1_START + again)["signals"]
    assert signals["kv_cache_capacity_tokens"] == 90_000
    assert signals["startup_weights_s"] == 1.5
    assert signals["process_restarts_count"] == 1


def test_lines_of_recent_vllm() -> None:
    document = facts(
        "(Worker pid=1) INFO 11-30 08:08:22 [w.py:1] Filesystem type for checkpoints: NFS. "
        "Checkpoint size: 140.50 GiB. Available RAM: 21.36 GiB.\n"
        "(EngineCore pid=1) INFO 11-30 08:08:26 [k.py:1] XPU KV cache size: 23,296 tokens, "
        "Maximum concurrency for 2,048 tokens per request: 11.38x\n"
        "(Worker pid=1) INFO 11-30 08:08:27 [b.py:1] Dynamo bytecode transform time: 3.00 s\n"
        "(EngineCore pid=1) INFO 11-30 08:08:29 [c.py:1] init engine (profile, create kv cache, "
        "warmup model) took 22.71 s (compilation: 13.50 s)\n"
        "(APIServer pid=1) WARNING 11-30 08:08:29 [v.py:1] Enforce eager set, disabling "
        "torch.compile, CUDAGraphs, and JIT kernel warmup.\n"
        "(APIServer pid=1) INFO 11-30 08:08:40 [l.py:1] Engine 000: Avg prompt throughput: 1.0 "
        "tokens/s, Avg generation throughput: 2.0 tokens/s, Running: 3 reqs, Waiting: 4 reqs, "
        "Preemptions: 5, XPU KV cache usage: 99.0%"
    )
    assert document["model"] == {"weights_gib": 140.5}
    assert document["settings"] == {
        "storage.weights_fs": "nfs",
        "max_model_len": 2048,
        "enforce_eager": True,
    }
    signals = document["signals"]
    assert signals["kv_cache_capacity_tokens"] == 23_296
    assert signals["kv_max_concurrency"] == 11.38
    assert signals["startup_engine_init_s"] == 22.71
    assert signals["startup_compile_s"] == 10.5
    assert signals["preemptions_count"] == 5
    assert signals["kv_cache_usage_ratio"] == 0.99


def test_a_processor_is_no_accelerator() -> None:
    line = "Initializing a V1 LLM engine (v0.32.0) with config: tensor_parallel_size=2, {}"
    assert facts(line.format("device_config=cuda"))["hardware"] == {"count": 2}
    assert "hardware" not in facts(line.format("device_config=cpu"))


def test_api_servers_that_begin_together_are_one_start() -> None:
    line = (
        "(APIServer_{} pid=1) INFO 11-30 08:08:{:02d} [u.py:1] non-default args: {{'model': 'm'}}"
    )
    together = "\n".join(line.format(number, 20 + number) for number in range(4))
    assert facts(together)["signals"]["process_restarts_count"] == 0
    apart = f"{together}\n{line.format(0, 50)}"
    assert facts(apart)["signals"]["process_restarts_count"] == 1


def test_a_quantization_that_the_engine_came_to_is_not_one_that_was_asked_for() -> None:
    line = "Initializing a V1 LLM engine (v0.10.2) with config: model='m', quantization=awq_marlin"
    settings = facts(line)["settings"]
    assert "quantization" not in settings
    assert settings["quantization_kernel"] == "awq_marlin"


def test_a_forced_kernel_is_told_by_vllm() -> None:
    settings = facts(
        "INFO 01-01 10:00:00 awq_marlin.py:97] Detected that the model can run with awq_marlin, "
        "however you specified quantization=awq explicitly, so forcing awq."
    )["settings"]
    assert settings == {"quantization": "awq", "quantization_kernel": "awq"}


def test_graphs_may_be_off_without_the_flag() -> None:
    line = (
        "Initializing a V1 LLM engine (v0.11.0) with config: model='m', enforce_eager=False, "
        "compilation_config={'cudagraph_mode': <CUDAGraphMode.NONE: 0>}"
    )
    assert facts(line)["settings"]["enforce_eager"] is True


def test_v0_blocks_become_tokens_by_the_concurrency_it_tells() -> None:
    document = facts(
        "# GPU blocks: 1000, # CPU blocks: 20\n"
        "Maximum concurrency for 8000 tokens per request: 4.00x"
    )
    assert document["signals"]["kv_cache_capacity_tokens"] == 32_000


def test_v0_blocks_alone_have_no_size() -> None:
    assert "signals" not in facts("# GPU blocks: 1000, # CPU blocks: 20")


def test_load_of_one_scheduler_is_a_series_without_the_idle_ends() -> None:
    line = (
        "INFO 07-28 06:{}:00 [loggers.py:118] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: {}.0 tokens/s, Running: {} reqs, Waiting: 0 reqs, "
        "GPU KV cache usage: {}.0%, Prefix cache hit rate: {}.0%"
    )
    text = "\n".join(
        line.format(minute, 10 * running, running, running, 50 + minute)
        for minute, running in ((10, 0), (11, 4), (12, 0), (13, 8), (14, 0))
    )
    document = facts(text)
    assert document["engine"] == {"name": "vllm", "variant": "v1"}
    signals = document["signals"]
    assert signals["requests_running"] == {
        "series": [{"t_s": 0, "value": 4}, {"t_s": 60, "value": 0}, {"t_s": 120, "value": 8}]
    }
    assert signals["kv_cache_usage_ratio"]["series"][2]["value"] == 0.08
    assert signals["prefix_cache_hit_ratio"] == 0.63  # over the last requests: the newest counts


def test_load_of_several_schedulers_is_a_list_of_means() -> None:
    line = (
        "INFO 07-28 06:00:0{} [l.py:1] Engine 00{}: Avg prompt throughput: 0.0 tokens/s, "
        "Avg generation throughput: 10.0 tokens/s, Running: {} reqs, Waiting: 0 reqs"
    )
    text = "\n".join(line.format(t, rank, 10 * rank + t) for t in (1, 3) for rank in (0, 1))
    signals = facts(text)["signals"]
    assert signals["requests_running"] == [2, 12]
    assert signals["requests_running_max"] == [3, 13]


def test_a_media_cache_without_media_is_no_miss() -> None:
    line = "Engine 000: Avg generation throughput: 1.0 tokens/s, MM cache hit rate: {}%"
    assert "mm_cache_hit_ratio" not in facts(line.format("0.0"))["signals"]
    assert facts(line.format("40.0"))["signals"]["mm_cache_hit_ratio"] == 0.4


SGLANG = """
[2026-05-15 08:39:19] server_args=ServerArgs(model_path='m', tp_size=2, dp_size=1, \
mem_fraction_static=0.88, disable_radix_cache=False, quantization=None, page_size=64, \
speculative_algorithm=None, chunked_prefill_size=8192)
[2026-05-15 08:39:36 TP0] Load weight begin. avail mem=93.61 GB
[2026-05-15 08:39:36 TP1] Load weight begin. avail mem=93.56 GB
[2026-05-15 08:41:36 TP0] Load weight end. type=X, avail mem=29.01 GB, mem usage=64.0 GB.
[2026-05-15 08:41:46 TP1] Load weight end. type=X, avail mem=29.01 GB, mem usage=64.0 GB.
[2026-05-15 08:41:50 TP0] KV Cache is allocated. #tokens: 430913, K size: 13.15 GB, V size: 13.15 GB
[2026-05-15 08:42:20 TP0] Capture cuda graph end. Time elapsed: 30.25 s. avail mem=20 GB
[2026-05-15 08:42:21 TP0] max_total_num_tokens=430913, chunked_prefill_size=8192, \
max_prefill_tokens=16384, max_running_requests=2048, context_len=131072
[2026-05-15 08:42:30] The server is fired up and ready to roll!
[2026-05-15 08:43:00 TP0] Prefill batch. #new-seq: 1, #new-token: 100, #cached-token: 300, \
token usage: 0.00, #running-req: 0, #queue-req: 0
[2026-05-15 08:43:10 TP0] Decode batch. #running-req: 36, #token: 9, token usage: 0.96, \
accept len: 2.50, cuda graph: True, gen throughput (token/s): 400.0, #queue-req: 5
[2026-05-15 08:43:10 TP1] Decode batch. #running-req: 36, #token: 9, token usage: 0.96, \
accept len: 2.50, cuda graph: True, gen throughput (token/s): 400.0, #queue-req: 5
[2026-05-15 08:43:11 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 3, \
#new_token_ratio: 0.7 -> 0.9
"""


def test_a_start_of_sglang_and_its_load() -> None:
    document = facts(SGLANG)
    assert document["engine"] == {"name": "sglang"}
    settings = document["settings"]
    assert settings["max_num_seqs"] == 2048
    assert settings["max_model_len"] == 131_072
    assert settings["max_num_batched_tokens"] == 8192
    assert settings["block_size"] == 64
    assert settings["enable_prefix_caching"] is True
    assert settings["gpu_memory_utilization"] == 0.88
    assert settings["speculative.method"] is None
    signals = document["signals"]
    assert signals["startup_weights_s"] == 130  # the slowest of the ranks
    assert signals["startup_graph_capture_s"] == 30.25
    assert signals["startup_total_s"] == {"min": 191.0}
    assert signals["kv_cache_capacity_tokens"] == 430_913
    assert signals["kv_cache_capacity_gib"] == pytest.approx(26.3)
    assert signals["requests_running"] == 36  # tensor ranks say the same
    assert signals["requests_waiting"] == 5
    assert signals["kv_cache_usage_ratio"] == 0.96
    assert signals["spec_mean_accepted_len"] == 2.5
    assert signals["graph_replay_ratio"] == 1
    assert signals["prefix_cache_hit_ratio"] == 0.75
    assert signals["preemptions_count"] == 3


def test_a_window_of_sliding_attention_is_not_the_pool() -> None:
    line = (
        "[10:00:00 TP0] Decode batch, #running-req: 4, #full token: 9, full token usage: 0.92, "
        "#swa token: 1, swa token usage: 0.06, gen throughput (token/s): 24.33"
    )
    assert facts(line)["signals"]["kv_cache_usage_ratio"] == 0.92


def test_lines_of_tensorrt_llm() -> None:
    document = facts(
        "[TensorRT-LLM] TensorRT-LLM version: 0.17.0\n"
        "[TensorRT-LLM][INFO] TRTGptModel maxBatchSize: 64\n"
        "[TensorRT-LLM][INFO] TRTGptModel maxNumTokens: 8192\n"
        "[TensorRT-LLM][INFO] Capacity Scheduler Policy: MAX_UTILIZATION\n"
        "[TensorRT-LLM][INFO] Number of tokens per block: 32.\n"
        "[TensorRT-LLM][INFO] KV cache block reuse is disabled\n"
        "[TensorRT-LLM][INFO] [MemUsageChange] Allocated 5.00 GiB for max tokens in paged KV cache "
        "(40960)."
    )
    assert document["engine"] == {"name": "tensorrt-llm", "version": "0.17.0"}
    assert document["settings"] == {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 8192,
        "scheduler.policy": "max_utilization",
        "block_size": 32,
        "enable_prefix_caching": False,
    }
    assert document["signals"]["kv_cache_capacity_tokens"] == 40_960
    assert document["signals"]["kv_cache_capacity_gib"] == 5


def test_lines_of_llamacpp() -> None:
    document = facts(
        "build: 6123 (abcdef0) with cc\n"
        "print_info: model params     = 8.03 B\n"
        "print_info: file size   = 4.58 GiB (4.89 BPW)\n"
        "llama_context: n_seq_max     = 4\n"
        "llama_context: n_batch       = 2048\n"
        "llama_kv_cache: size = 1024.00 MiB (  8192 cells,  32 layers,  4/1 seqs), K (f16): 1 MiB\n"
        "prompt eval time =     100.00 ms /    50 tokens (    2.00 ms per token)\n"
        "       eval time =    2000.00 ms /   100 tokens (   20.00 ms per token)\n"
    )
    assert document["engine"] == {"name": "llama.cpp", "version": "6123"}
    assert document["model"] == {"params_b": 8.03, "weights_gib": 4.58}
    assert document["settings"] == {"max_num_seqs": 4, "max_num_batched_tokens": 2048}
    assert document["signals"]["kv_cache_capacity_tokens"] == 8192
    assert document["signals"]["kv_cache_capacity_gib"] == 1
    assert document["signals"]["itl_mean_s"] == pytest.approx(0.02)
    assert document["signals"]["output_tokens_per_s_per_request"] == pytest.approx(50)


def test_out_of_memory_in_decimal_gigabytes() -> None:
    signals = facts(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total "
        "capacity of 23.57 GiB of which 512.00 MiB is free."
    )["signals"]
    assert signals["oom_count"] == {"min": 1}
    assert signals["alloc_failed_gb"] == pytest.approx(2.147, abs=0.001)
    assert signals["gpu_mem_free_gb"] == pytest.approx(0.537, abs=0.001)


@pytest.mark.parametrize(
    ("text", "transport"),
    [
        pytest.param("a:1 [0] NCCL INFO Using network Socket", "socket", id="as it says"),
        pytest.param("a:1 [0] NCCL INFO Using network IB", "ib", id="InfiniBand or RoCE"),
        pytest.param(
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE\nNCCL INFO NET/Socket : Using [0]eth0",
            "ib",
            id="sockets are listed beside InfiniBand too",
        ),
        pytest.param(
            "NCCL INFO NET/IB : No device found.\nNCCL INFO NET/Socket : Using [0]eth0:1.2.3.4<0>",
            "socket",
            id="no card",
        ),
        pytest.param("NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0", "socket"),
    ],
)
def test_the_network_that_nccl_uses(text: str, transport: str) -> None:
    assert facts(text)["settings"]["nccl.net_transport"] == transport


def test_preemption_warned_of_by_v0() -> None:
    document = facts(
        "WARNING s.py: Sequence group 221 is preempted by PreemptionMode.RECOMPUTE mode because "
        "there is not enough KV cache space. total_num_cumulative_preemption=101"
    )
    assert document["settings"] == {"preemption_mode": "recompute"}
    assert document["signals"]["preemptions_count"] == {"min": 101}


def test_refused_requests_by_the_access_log() -> None:
    line = 'INFO:     1.2.3.4:5 - "POST /v1/completions HTTP/1.1" {}'
    probe = 'INFO:     1.2.3.4:5 - "GET /health HTTP/1.1" 503 Service Unavailable'
    text = "\n".join(
        [line.format("429 Too Many"), line.format("500 X"), line.format("200 OK"), probe]
    )
    signals = facts(text)["signals"]
    assert (signals["http_429_count"], signals["http_5xx_count"]) == (1, 1)


def test_a_clock_that_passes_midnight_goes_on() -> None:
    text = "\n".join(
        f"[{clock} TP0] Decode batch. #running-req: 1, token usage: 0.5, #queue-req: 0"
        for clock in ("23:59:50", "00:00:10", "00:00:30")
    )
    series = facts(text)["signals"]["requests_running"]["series"]
    assert [point["t_s"] for point in series] == [0, 20, 40]


def test_a_log_of_something_else_has_no_facts() -> None:
    assert facts("hello\nGET / 200\nerror: no such file") == {}
    assert log_facts([]) == {}
