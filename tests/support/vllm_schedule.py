"""Runs requests through vLLM's own scheduler, without a model: to be run by vLLM's Python.

Reads one JSON document from stdin: `config` (kv_blocks, running_max, step_tokens_max, block_tokens,
long_prefill_tokens_max, prefix_cache), and `requests` as [the step before which it comes, prompt
token ids, output tokens]. Every step computes what the scheduler says; each token that comes out is
one that no other request has. Prints a JSON list: of each request the count of steps after which
each of its tokens was there, its cached tokens, and how often it was preempted.
"""

# mypy: disable-error-code="import-not-found"
from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["MODEL", "make_scheduler"]

_TOKENS_MAX = 100_000
MODEL = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "vocab_size": 1 << 30,
    "max_position_embeddings": _TOKENS_MAX,
}


def make_scheduler(
    config: dict[str, Any], model: Path, build: Callable[..., Any] | None = None
) -> Any:
    """A scheduler of vLLM, or what `build` makes of the same, for the model in this directory."""
    import torch
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig
    from vllm.v1.core.sched.scheduler import Scheduler
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.structured_output import StructuredOutputManager

    block_tokens = config["block_tokens"]
    blocks = config["kv_blocks"] + 1  # it keeps one for itself
    cache = CacheConfig(block_size=block_tokens, enable_prefix_caching=config["prefix_cache"])
    cache.num_gpu_blocks = blocks
    vllm_config = VllmConfig(
        model_config=ModelConfig(model=str(model), skip_tokenizer_init=True, dtype="float32"),
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
        scheduler_config=SchedulerConfig(
            max_num_seqs=config["running_max"],
            max_num_batched_tokens=config["step_tokens_max"],
            max_model_len=_TOKENS_MAX,
            long_prefill_token_threshold=config["long_prefill_tokens_max"] or 0,
            enable_chunked_prefill=True,
            async_scheduling=False,
            is_encoder_decoder=False,
        ),
    )
    spec = FullAttentionSpec(
        block_size=block_tokens, num_kv_heads=1, head_size=64, dtype=torch.float32
    )
    return (build or Scheduler)(
        vllm_config=vllm_config,
        kv_cache_config=KVCacheConfig(
            num_blocks=blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], spec)],
        ),
        structured_output_manager=StructuredOutputManager(vllm_config),
        block_size=block_tokens,
        log_stats=True,
    )


def _run(document: dict[str, Any], model: Path) -> list[dict[str, Any]]:
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import sha256
    from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
    from vllm.v1.outputs import ModelRunnerOutput
    from vllm.v1.request import Request

    config = document["config"]
    scheduler = make_scheduler(config, model)
    init_none_hash(sha256)
    hasher = get_request_block_hasher(config["block_tokens"], sha256)
    coming = list(enumerate(document["requests"]))
    found: list[dict[str, Any]] = [
        {"tokens_at": [], "cached_tokens": 0, "preemptions": 0} for _ in coming
    ]
    requests: dict[str, Any] = {}
    steps, fresh = 0, 1 << 29
    while coming or scheduler.has_requests():
        if not scheduler.has_requests():
            steps = max(steps, coming[0][1][0])
        while coming and coming[0][1][0] <= steps:
            index, (_, prompt, output) = coming.pop(0)
            request = Request(
                request_id=str(index),
                prompt_token_ids=prompt,
                sampling_params=SamplingParams(max_tokens=output, ignore_eos=True),
                pooling_params=None,
                block_hasher=hasher,
            )
            requests[str(index)] = request
            scheduler.add_request(request)
        scheduled = scheduler.schedule()
        for new in scheduled.scheduled_new_reqs:
            found[int(new.req_id)]["cached_tokens"] = new.num_computed_tokens
        ids = list(scheduled.num_scheduled_tokens)
        steps += bool(ids)
        sampled = []
        for request_id in ids:
            request = requests[request_id]
            complete = request.num_computed_tokens >= request.num_tokens
            fresh += 1
            sampled.append([fresh] if complete else [])
            if complete:
                found[int(request_id)]["tokens_at"].append(steps)
        scheduler.update_from_output(
            scheduled,
            ModelRunnerOutput(
                req_ids=ids,
                req_id_to_index={each: i for i, each in enumerate(ids)},
                sampled_token_ids=sampled,
            ),
        )
    for request_id, request in requests.items():
        found[int(request_id)]["preemptions"] = request.num_preemptions
    return found


def main() -> None:
    """Read a list of documents, print a list of results on the last line."""
    with tempfile.TemporaryDirectory() as directory:
        model = Path(directory)
        (model / "config.json").write_text(json.dumps(MODEL))
        results = [_run(document, model) for document in json.load(sys.stdin)]
    print(json.dumps(results))


if __name__ == "__main__":
    main()
