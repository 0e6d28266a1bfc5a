"""Names that say what runs where, and under what load."""

from __future__ import annotations

from mileage.doctor.fact_kind import Kind, flag, number, numbers, one_of, text, texts

__all__ = ["ENGINE", "HARDWARE", "MODEL", "TOPOLOGY", "WORKLOAD"]

ENGINE: dict[str, Kind] = {
    "name": text(),
    "version": text(),
    "variant": text(),
}

MODEL: dict[str, Kind] = {
    "name": text(),
    "params_b": number("1e9"),
    "active_params_b": number("1e9"),
    "architecture": texts(),
    "kv_heads": number("count"),
    "dtype": text(),
    "weights_gib": number("GiB"),
}

HARDWARE: dict[str, Kind] = {
    "gpu": text(),
    "count": number("count"),
    "memory_gb": number("GB"),
    "interconnect": text(),
    "cpus": number("count"),
    "nodes": number("count"),
    "mig_profile": text(),
    "tdp_w": number("W"),
    "numa_nodes": number("count"),
    "schedulable_gpus": number("count"),
}

WORKLOAD: dict[str, Kind] = {
    "kind": one_of("online", "offline", "benchmark", "eval", "none"),
    "isl_tokens": number("tokens"),
    "osl_tokens": number("tokens"),
    "max_tokens": number("tokens"),
    "rate_rps": number("1/s"),
    "concurrency": number("count"),
    "num_requests": number("count"),
    "arrivals": one_of("steady", "poisson", "bursty", "closed_loop"),
    "n": number("count"),
    "shared_prefix_tokens": number("tokens"),
    "shared_prefix_ratio": number("ratio"),
    "prefix_groups": number("count"),
    "multi_turn": flag(),
    "first_diff_token": number("tokens"),
    "identical_after_diff_ratio": number("ratio"),
    "prefix_change_period_s": number("s"),
    "inter_turn_gap_s": number("s"),
    "logprobs": number("count"),
    "prompt_logprobs": number("count"),
    "sampling_penalties": flag(),
    "structured_output": one_of("none", "json_schema", "grammar", "regex"),
    "schema_kb": number("KiB"),
    "lora_adapters": number("count"),
    "lora_ranks": numbers("rank"),
    "lora_adapter_mb": number("MB"),
    "mm_input": one_of("none", "image", "video", "audio"),
    "images_per_request": number("count"),
    "image_pixels": number("px"),
    "video_frames": number("count"),
    "payload_mb": number("MB"),
    "stream": flag(),
    "slo_ttft_s": number("s"),
    "slo_itl_s": number("s"),
}

TOPOLOGY: dict[str, Kind] = {
    "client": text(),
    "proxies": texts(),
    "replicas": number("count"),
    "orchestrator": text(),
}
