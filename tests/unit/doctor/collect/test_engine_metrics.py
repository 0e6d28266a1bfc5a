"""Facts out of metrics pages: windows, units, restarts, several schedulers."""

from __future__ import annotations

import pytest

from tests.support.engine_pages import facts_of

BEFORE = """
vllm:num_requests_running{engine="0",model_name="m"} 4
vllm:num_requests_waiting{engine="0",model_name="m"} 0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.2
vllm:prompt_tokens_total{engine="0",model_name="m"} 1000
vllm:generation_tokens_total{engine="0",model_name="m"} 500
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 1000
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 900
vllm:num_preemptions_total{engine="0",model_name="m"} 7
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 10
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 1
"""
AFTER = """
vllm:num_requests_running{engine="0",model_name="m"} 8
vllm:num_requests_waiting{engine="0",model_name="m"} 6
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.4
vllm:prompt_tokens_total{engine="0",model_name="m"} 3000
vllm:generation_tokens_total{engine="0",model_name="m"} 1500
vllm:prefix_cache_queries_total{engine="0",model_name="m"} 3000
vllm:prefix_cache_hits_total{engine="0",model_name="m"} 1000
vllm:num_preemptions_total{engine="0",model_name="m"} 9
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} 30
vllm:request_success_total{engine="0",finished_reason="abort",model_name="m"} 2
"""


def test_gauges_are_means_and_counters_are_what_came_in_the_window() -> None:
    document = facts_of(BEFORE, AFTER, step_s=10.0)
    assert document["engine"] == {"name": "vllm", "variant": "v1"}
    assert document["model"] == {"name": "m"}
    signals = document["signals"]
    assert signals["requests_running"] == 6
    assert signals["requests_running_max"] == 8
    assert signals["requests_waiting"] == 3
    assert signals["kv_cache_usage_ratio"] == pytest.approx(0.3)
    assert signals["prompt_tokens_per_s"] == 200
    assert signals["output_tokens_per_s"] == 100
    assert signals["total_tokens_per_s"] == 300
    assert signals["preemptions_count"] == 2
    assert signals["preemptions_per_s"] == pytest.approx(0.2)
    assert signals["prefix_cache_queries_tokens"] == 2000
    assert signals["prefix_cache_hits_tokens"] == 100
    assert signals["prefix_cache_hit_ratio"] == pytest.approx(0.05)
    assert signals["requests_completed_count"] == 20
    assert signals["requests_per_s"] == 2
    assert signals["process_restarts_count"] == 0


def test_what_arrives_is_what_ended_and_what_was_added() -> None:
    signals = facts_of(BEFORE, AFTER, step_s=10.0)["signals"]
    assert signals["requests_per_s_arriving"] == pytest.approx((20 + 1 + 4 + 6) / 10)


def test_arrivals_are_unknown_where_aborted_requests_are_not_counted() -> None:
    without = [
        "\n".join(line for line in page.splitlines() if "abort" not in line)
        for page in (BEFORE, AFTER)
    ]
    assert "requests_per_s_arriving" not in facts_of(*without)["signals"]


def test_one_page_tells_ratios_since_the_start_and_no_rate() -> None:
    signals = facts_of(AFTER)["signals"]
    assert signals["prefix_cache_hit_ratio"] == pytest.approx(1 / 3)
    assert signals["preemptions_count"] == 9
    assert not [name for name in signals if name.endswith("_per_s")]
    assert "requests_running_max" not in signals
    assert "process_restarts_count" not in signals


def test_an_engine_that_began_anew_counts_from_zero_and_is_told() -> None:
    anew = AFTER.replace(" 3000", " 40").replace(" 1500", " 20").replace(" 1000", " 10")
    signals = facts_of(BEFORE, anew, step_s=10.0)["signals"]
    assert signals["process_restarts_count"] == 1
    assert signals["prompt_tokens_per_s"] == 4
    assert signals["output_tokens_per_s"] == 2


def test_a_start_time_tells_of_a_restart_that_no_counter_shows() -> None:
    started = "process_start_time_seconds {}\n"
    pages = (BEFORE + started.format(1_000_000), AFTER + started.format(1_000_300))
    assert facts_of(*pages)["signals"]["process_restarts_count"] == 1
    same = (BEFORE + started.format(1_000_000), AFTER + started.format(1_000_000.4))
    assert facts_of(*same)["signals"]["process_restarts_count"] == 0


def test_data_parallel_ranks_are_lists_in_the_order_of_their_numbers() -> None:
    page = "\n".join(
        f'vllm:num_requests_running{{engine="{rank}",model_name="m"}} {rank * 3}\n'
        f'vllm:kv_cache_usage_perc{{engine="{rank}",model_name="m"}} 0.5'
        for rank in (10, 2, 0)
    )
    signals = facts_of(page)["signals"]
    assert signals["requests_running"] == [0, 6, 30]
    assert signals["kv_cache_usage_ratio"] == [0.5, 0.5, 0.5]


def test_old_vllm_counted_blocks_of_the_prefix_cache() -> None:
    help_line = (
        "# HELP vllm:gpu_prefix_cache_{} GPU prefix cache, in terms of number of {} blocks.\n"
    )
    page = (
        help_line.format("queries_total", "queried")
        + 'vllm:gpu_prefix_cache_queries_total{model_name="m"} 100\n'
        + help_line.format("hits_total", "cached")
        + 'vllm:gpu_prefix_cache_hits_total{model_name="m"} 25\n'
        + 'vllm:cache_config_info{block_size="16",num_gpu_blocks="573"} 1\n'
    )
    document = facts_of(page)
    assert document["signals"]["prefix_cache_queries_tokens"] == 1600
    assert document["signals"]["prefix_cache_hits_tokens"] == 400
    assert document["signals"]["kv_cache_capacity_tokens"] == 573 * 16
    assert document["settings"]["block_size"] == 16


def test_settings_stand_in_the_labels_of_the_cache() -> None:
    page = (
        'vllm:cache_config_info{block_size="32",cache_dtype="fp8",cpu_offload_gb="0",'
        'enable_prefix_caching="False",gpu_memory_utilization="0.82",num_gpu_blocks="10",'
        'swap_space_bytes="4294967296",kv_cache_max_concurrency="1.5"} 1\n'
    )
    document = facts_of(page)
    assert document["settings"] == {
        "block_size": 32,
        "kv_cache_dtype": "fp8",
        "cpu_offload_gb": 0,
        "enable_prefix_caching": False,
        "gpu_memory_utilization": 0.82,
        "swap_space": 4,
    }
    assert document["signals"]["kv_max_concurrency"] == 1.5


def test_a_setting_that_the_page_calls_none_is_not_known() -> None:
    page = 'vllm:cache_config_info{block_size="16",enable_prefix_caching="None"} 1\n'
    assert facts_of(page)["settings"] == {"block_size": 16}


def test_sglang_of_2024_gave_its_hit_rate_in_percent() -> None:
    page = 'sglang:queue_req{name="m"} 0\nsglang:cache_hit_rate{name="m"} 87.5\n'
    document = facts_of(page)
    assert document["signals"]["prefix_cache_hit_ratio"] == pytest.approx(0.875)
    assert document["model"] == {"name": "m"}


def test_tensor_parallel_ranks_are_one_scheduler() -> None:
    page = "\n".join(
        f'sglang:num_running_reqs{{model_name="m",tp_rank="{rank}",dp_rank="{dp}"}} {5 + dp}'
        for rank in (0, 1)
        for dp in (0, 1)
    )
    assert facts_of(page)["signals"]["requests_running"] == [5, 6]


def test_sglang_gives_the_transfer_in_milliseconds_and_start_up_in_seconds() -> None:
    page = (
        "sglang:num_running_reqs 1\nsglang:kv_transfer_latency_ms 250\n"
        "sglang:engine_startup_time 90\nsglang:engine_load_weights_time 60\n"
        'sglang:cuda_graph_passes_total{mode="decode_cuda_graph"} 30\n'
        'sglang:cuda_graph_passes_total{mode="decode_none"} 10\n'
        'sglang:cuda_graph_passes_total{mode="prefill_none"} 500\n'
    )
    signals = facts_of(page)["signals"]
    assert signals["kv_transfer_s"] == 0.25
    assert signals["startup_total_s"] == 90
    assert signals["startup_weights_s"] == 60
    assert signals["graph_replay_ratio"] == 0.75


def test_a_zero_gauge_of_what_the_engine_does_not_do_is_no_fact() -> None:
    page = (
        "sglang:num_running_reqs 1\nsglang:spec_accept_length 0\nsglang:kv_transfer_latency_ms 0\n"
    )
    signals = facts_of(page)["signals"]
    assert "spec_mean_accepted_len" not in signals
    assert "kv_transfer_s" not in signals


def test_steps_are_timed_while_the_engine_runs_without_a_pause() -> None:
    page = (
        'vllm:num_requests_running{{engine="0"}} {}\n'
        'vllm:iteration_tokens_total_count{{engine="0"}} {}\n'
        'vllm:iteration_tokens_total_sum{{engine="0"}} {}\n'
    )
    busy = facts_of(page.format(3, 100, 5000), page.format(2, 300, 9000), step_s=10.0)
    assert busy["signals"]["step_time_s"] == pytest.approx(0.05)
    paused = facts_of(page.format(3, 100, 5000), page.format(0, 300, 9000), step_s=10.0)
    assert "step_time_s" not in paused["signals"]


def test_speculation_is_counted_with_the_bonus_token() -> None:
    names = ("num_drafts", "num_draft_tokens", "num_accepted_tokens")
    first, last = (
        "vllm:num_requests_running 1\n"
        + "".join(
            f"vllm:spec_decode_{name}_total {value}\n"
            for name, value in zip(names, values, strict=True)
        )
        for values in ((0, 0, 0), (100, 300, 120))
    )
    document = facts_of(first, last)
    assert document["signals"]["spec_acceptance_ratio"] == pytest.approx(0.4)
    assert document["signals"]["spec_mean_accepted_len"] == pytest.approx(2.2)
    assert document["settings"]["speculative.num_tokens"] == 3


def test_llamacpp_tells_the_speed_that_one_request_sees() -> None:
    page = "llamacpp:tokens_predicted_total {}\nllamacpp:tokens_predicted_seconds_total {}\n"
    document = facts_of(page.format(100, 10), page.format(300, 50), step_s=20.0)
    assert document["engine"] == {"name": "llama.cpp"}
    assert document["signals"]["output_tokens_per_s_per_request"] == 5
    assert document["signals"]["itl_mean_s"] == pytest.approx(0.2)
    assert document["signals"]["output_tokens_per_s"] == 10


@pytest.mark.parametrize(
    ("running", "tokens"),
    [
        pytest.param("llamacpp:requests_processing", "llamacpp:tokens_predicted_total", id="l"),
        pytest.param("sglang:num_running_reqs", "sglang:generation_tokens_total", id="sglang"),
        pytest.param("trtllm_num_requests_running", "trtllm_generation_tokens_total", id="trtllm"),
    ],
)
def test_a_rate_is_not_known_while_requests_run_and_none_ends(running: str, tokens: str) -> None:
    page = f"{running} 2\n{tokens} 100\n"
    assert "output_tokens_per_s" not in facts_of(page, page)["signals"]
    idle = page.replace(" 2\n", " 0\n")
    assert facts_of(idle, idle)["signals"]["output_tokens_per_s"] == 0


def test_vllm_counts_each_step_so_that_none_is_none() -> None:
    page = "vllm:num_requests_running 2\nvllm:generation_tokens_total 100\n"
    assert facts_of(page, page)["signals"]["output_tokens_per_s"] == 0


def test_llamacpp_counts_its_steps() -> None:
    page = "llamacpp:requests_processing 1\nllamacpp:n_decode_total {}\n"
    signals = facts_of(page.format(50), page.format(150), step_s=10.0)["signals"]
    assert signals["step_time_s"] == pytest.approx(0.1)


def test_the_api_server_of_vllm_has_a_process_of_its_own() -> None:
    page = (
        "vllm:kv_cache_usage_perc 0\n"
        "process_cpu_seconds_total {}\n"
        "process_start_time_seconds 1000\n"
    )
    signals = facts_of(page.format(5), page.format(14), step_s=10.0, first_utc_s=4600.0)["signals"]
    assert signals["frontend_process_cpu_ratio"] == pytest.approx(0.9)
    assert signals["process_uptime_s"] == pytest.approx(3610)
    assert "host_rss_gb" not in signals


def test_memory_has_a_slope_only_over_a_long_window() -> None:
    page = "vllm:kv_cache_usage_perc 0\nprocess_resident_memory_bytes {}\n"
    pages = [page.format(1e9 + 1e8 * index) for index in range(4)]
    long_signals = facts_of(*pages, step_s=600.0)["signals"]
    assert long_signals["host_rss_growth_gb_per_h"] == pytest.approx(0.6)
    assert "host_rss_growth_gb_per_h" not in facts_of(*pages, step_s=10.0)["signals"]


def test_memory_of_two_processes_has_no_slope() -> None:
    page = (
        "vllm:kv_cache_usage_perc 0\nprocess_resident_memory_bytes {}\n"
        "process_start_time_seconds {}\n"
    )
    pages = [page.format(1e9 + 1e8 * index, 1_000 + 500 * (index > 1)) for index in range(4)]
    assert "host_rss_growth_gb_per_h" not in facts_of(*pages, step_s=600.0)["signals"]


def test_adapters_of_the_window_are_counted_and_those_of_yesterday_are_not() -> None:
    page = """
vllm:num_requests_running 1
vllm:lora_requests_info{max_lora="4",running_lora_adapters="old",waiting_lora_adapters=""} 1000
vllm:lora_requests_info{max_lora="4",running_lora_adapters="a,b",waiting_lora_adapters=""} 90002
vllm:lora_requests_info{max_lora="4",running_lora_adapters="b",waiting_lora_adapters="c"} 90004
"""
    document = facts_of(page, first_utc_s=90_000.0)
    assert document["workload"]["lora_adapters"] == 3
    assert document["settings"]["max_loras"] == 4
    assert document["settings"]["enable_lora"] is True


@pytest.mark.parametrize(
    ("statuses", "rejected", "broken"),
    [
        pytest.param({"200": 9, "429": 3, "503": 2}, 3, 2, id="each status by itself"),
        pytest.param({"2xx": 9, "5xx": 1}, 0, 1, id="in groups, none of the fours"),
        pytest.param({"2xx": 9, "4xx": 4}, None, 0, id="in groups, some of the fours: not known"),
    ],
)
def test_http_statuses(statuses: dict[str, int], rejected: int | None, broken: int) -> None:
    page = "vllm:num_requests_running 1\n" + "".join(
        f'http_requests_total{{handler="/v1/completions",status="{status}"}} {count}\n'
        f'http_requests_total{{handler="/health",status="503"}} 50\n'
        for status, count in statuses.items()
    )
    signals = facts_of(page)["signals"]
    assert signals.get("http_429_count") == rejected
    assert signals["http_5xx_count"] == broken


def test_requests_that_vllm_turned_away_for_load_are_told_apart_from_bad_ones() -> None:
    page = (
        "vllm:num_requests_running 1\n"
        'http_requests_total{handler="/v1/completions",status="4xx"} 9\n'
        'vllm:admission_rejections_total{reason="max_num_queued_reqs"} 7\n'
    )
    assert facts_of(page)["signals"]["http_429_count"] == 7


def test_a_page_of_no_known_engine_has_no_facts() -> None:
    assert facts_of("http_requests_total 5\n") == {}
    assert facts_of("") == {}


def test_impossible_values_are_no_facts() -> None:
    page = (
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting -3\n"
        "vllm:kv_cache_usage_perc 87\nvllm:generation_tokens_total +Inf\n"
    )
    document = facts_of(page, page)
    assert not set(document.get("signals", {})) & {
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
        "output_tokens_per_s",
    }
