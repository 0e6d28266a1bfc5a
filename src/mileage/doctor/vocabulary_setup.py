"""Names that say what runs where, and under what load."""

from __future__ import annotations

from mileage.doctor.fact_kind import Kind, flag, number, numbers, one_of, text, texts

__all__ = ["ENGINE", "HARDWARE", "MODEL", "TOPOLOGY", "WORKLOAD"]

ENGINE: dict[str, Kind] = {
    "name": text("the engine: vllm, sglang, tensorrt-llm, triton, llama.cpp, tgi, ..."),
    "version": text("its release, as it reports it"),
    "variant": text("a generation or fork that behaves differently: v0, v1, embedded, ascend"),
}

MODEL: dict[str, Kind] = {
    "name": text("the model that is served"),
    "params_b": number("1e9", "all parameters"),
    "active_params_b": number("1e9", "parameters that one token uses (mixture of experts)"),
    "architecture": texts(
        "words for its layers: dense, moe, mla, hybrid, swa, vlm, audio, embedding"
    ),
    "kv_heads": number("count", "heads of keys and values; 1: a single, latent one"),
    "dtype": text("how its weights are stored: bf16, fp16, fp8, int8, int4, nvfp4, q8"),
    "weights_gib": number("GiB", "size of its weight files"),
}

HARDWARE: dict[str, Kind] = {
    "gpu": text("the card's name"),
    "count": number("count", "cards of this deployment"),
    "memory_gb": number("GB", "memory of one card"),
    "interconnect": text(
        "what joins the cards: nvlink, pcie_p2p, pcie, roce, infiniband, ethernet"
    ),
    "cpus": number("count", "logical CPUs of the machine"),
    "nodes": number("count", "machines of one replica"),
    "mig_profile": text("profile of the MIG slice, where the card is cut"),
    "tdp_w": number("W", "power that the board is rated for"),
    "numa_nodes": number("count", "NUMA nodes of the machine"),
    "schedulable_gpus": number("count", "cards that the cluster could give to this service"),
}

WORKLOAD: dict[str, Kind] = {
    "kind": one_of(
        "online",
        "offline",
        "benchmark",
        "eval",
        "none",
        meaning="who asks; none: no traffic is expected",
    ),
    "isl_tokens": number("tokens", "length of a prompt"),
    "osl_tokens": number("tokens", "length of an answer"),
    "max_tokens": number("tokens", "most tokens that a request asks for"),
    "rate_rps": number("1/s", "requests that arrive"),
    "concurrency": number("count", "requests that the clients want in flight"),
    "num_requests": number("count", "requests of the whole job"),
    "arrivals": one_of(
        "steady", "poisson", "bursty", "closed_loop", meaning="how requests are spread over time"
    ),
    "n": number("count", "answers to one prompt"),
    "shared_prefix_tokens": number("tokens", "head that many prompts have in common"),
    "shared_prefix_ratio": number("ratio", "share of the prompt tokens that is in a common head"),
    "prefix_groups": number("count", "different common heads"),
    "multi_turn": flag("requests send a conversation again that grows"),
    "first_diff_token": number(
        "tokens", "place of the first token in which two prompts of one template differ"
    ),
    "identical_after_diff_ratio": number(
        "ratio", "share of the tokens behind that place that are alike again"
    ),
    "prefix_change_period_s": number("s", "time after which the common head changes"),
    "inter_turn_gap_s": number("s", "pause between two turns of a conversation"),
    "logprobs": number("count", "logprobs of each answer token"),
    "prompt_logprobs": number("count", "logprobs of each prompt token"),
    "sampling_penalties": flag("presence, frequency or repetition penalties are used"),
    "structured_output": one_of(
        "none", "json_schema", "grammar", "regex", meaning="what answers are held to"
    ),
    "schema_kb": number("KiB", "size of one schema"),
    "lora_adapters": number("count", "different adapters that were asked for"),
    "lora_ranks": numbers("rank", "ranks of the adapters in use"),
    "lora_adapter_mb": number("MB", "size of one adapter"),
    "mm_input": one_of("none", "image", "video", "audio", meaning="media in the prompts"),
    "images_per_request": number("count", "images of one request"),
    "image_pixels": number("px", "pixels of one image"),
    "video_frames": number("count", "frames of one request"),
    "payload_mb": number("MB", "size of a request's body"),
    "stream": flag("answers are streamed"),
    "slo_ttft_s": number("s", "time to first token that was agreed"),
    "slo_itl_s": number("s", "time between tokens that was agreed"),
}

TOPOLOGY: dict[str, Kind] = {
    "client": text("who sends: sdk, load_tool, gateway"),
    "proxies": texts("hops between client and engine, in order; an empty list: none"),
    "replicas": number("count", "engines of this deployment, each on its own"),
    "orchestrator": text("what runs them: kubernetes, slurm, none"),
}
