"""Phases of a start by lines of real engines, with the seconds at which they came."""

from __future__ import annotations

import msgspec
import pytest

from mileage.engines.launch.start_watch import StartWatch

VLLM_032_CPU = (
    (18.0, "(APIServer pid=1) INFO 11-30 20:19:57 [api_utils.py:347]  version 0.32.0"),
    (
        18.5,
        "(APIServer pid=1) INFO 11-30 20:19:57 [api_utils.py:286] non-default args: "
        "{'model': '/m/tiny', 'max_model_len': 4096, 'max_num_batched_tokens': 2048, "
        "'max_num_seqs': 16}",
    ),
    (18.6, "(APIServer pid=1) INFO 11-30 20:19:57 [model.py:2152] Using max model len 4096"),
    (
        49.0,
        "(EngineCore pid=2) INFO 11-30 20:20:28 [core.py:133] Initializing a V1 LLM engine "
        "(v0.32.0) with config: model='/m/tiny', dtype=torch.float32, max_seq_len=4096, "
        "tensor_parallel_size=1",
    ),
    (
        75.0,
        "(Worker pid=3) INFO 11-30 20:20:54 [cpu_model_runner.py:68] Starting to load model "
        "/m/tiny...",
    ),
    (
        76.5,
        "(Worker pid=3) INFO 11-30 20:20:55 [default_loader.py:420] Loading weights took 0.41 "
        "seconds",
    ),
    (
        77.0,
        "(Worker pid=3) INFO 11-30 20:20:56 [cpu_model_runner.py:87] Warming up model for the "
        "compilation...",
    ),
    (155.0, "(Worker pid=3) INFO 11-30 20:22:14 [cpu_model_runner.py:91] Warming up done."),
    (
        155.2,
        "(EngineCore pid=2) INFO 11-30 20:22:14 [kv_cache_utils.py:2327] CPU KV cache size: "
        "2,097,152 tokens, Maximum concurrency for 4,096 tokens per request: 512.00x",
    ),
    (
        160.0,
        "(EngineCore pid=2) INFO 11-30 20:22:19 [core.py:402] init engine (profile, create kv "
        "cache, warmup model) took 82.10 s",
    ),
    (166.0, "INFO:     Application startup complete."),
)

LLAMACPP = (
    (0.1, "0.00.003.987 I srv          init: build_info: b0-unknown"),
    (0.2, "0.00.006.118 I srv    load_model: loading model 'm.gguf'"),
    (
        4.2,
        "0.04.149.021 I srv    load_model: initializing, n_slots = 1, n_ctx_slot = 512",
    ),
    (4.3, "0.04.168.515 I srv          init: listening on http://127.0.0.1:8080"),
)

SGLANG = (
    (9.0, "[2026-11-30 10:00:00] server_args=ServerArgs(model_path='m', max_running_requests=32)"),
    (20.0, "[2026-11-30 10:00:11 TP0] Load weight begin. avail mem=78.00 GB"),
    (32.5, "[2026-11-30 10:00:23 TP0] Load weight end. type=Llama, avail mem=60 GB"),
    (
        40.0,
        "[2026-11-30 10:00:31 TP0] Capture cuda graph end. Time elapsed: 6.50 s. mem usage=1 GB",
    ),
    (44.0, "[2026-11-30 10:00:35] The server is fired up and ready to roll!"),
)


def watched(lines: tuple[tuple[float, str], ...]) -> StartWatch:
    watch = StartWatch(1000.0)
    for after_s, text in lines:
        watch.take(text, 1000.0 + after_s)
    return watch


def seen(watch: StartWatch) -> dict[str, float]:
    values = msgspec.structs.asdict(watch.times())
    return {name: took for name, took in values.items() if took is not None}


def test_a_start_of_vllm() -> None:
    watch = watched(VLLM_032_CPU)
    assert watch.version() == "0.32.0"
    assert watch.setting("max_num_seqs") == 16
    assert watch.setting("max_num_batched_tokens") == 2048
    assert watch.phase() == "its server is up"
    assert seen(watch) == pytest.approx(
        {
            "import_s": 18.5,
            "engine_process_s": 30.5,
            "weights_s": 0.41,
            "compile_s": 78.0,
            "engine_init_s": 82.1,
            "silent_s": 78.0,
        }
    )


def test_a_start_of_llamacpp_whose_lines_have_no_date() -> None:
    watch = watched(LLAMACPP)
    assert watch.setting("max_num_seqs") == 1
    assert watch.setting("max_model_len") == 512
    assert seen(watch) == pytest.approx({"import_s": 0.1, "weights_s": 4.0, "silent_s": 4.0})


def test_a_start_of_sglang() -> None:
    watch = watched(SGLANG)
    assert watch.setting("max_num_seqs") == 32
    assert seen(watch) == pytest.approx(
        {"import_s": 9.0, "weights_s": 12.5, "graph_capture_s": 6.5, "silent_s": 12.5}
    )


def test_what_was_not_seen_is_none_and_what_was_reached_is_told() -> None:
    watch = watched(((1.0, "hello"), (2.0, "what is this?")))
    assert seen(watch) == {}
    assert watch.phase() == "starting its program"
    watch.reached("server_up", 1003.0)
    watch.reached("first_token", 1003.5)
    watch.reached("ready", 1005.0)
    watch.reached("ready", 1009.0)
    assert seen(watch) == pytest.approx(
        {"server_up_s": 3.0, "first_token_s": 3.5, "ready_s": 5.0, "warm_up_s": 2.0}
    )
