"""Engine cores with the attributes that several versions and settings of vLLM have."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

__all__ = ["core_of", "output_of"]


class _Scheduler(SimpleNamespace):
    """The methods that every version has."""

    def schedule(self) -> Any:
        """A step in which nothing is scheduled."""
        return output_of({})

    def update_from_output(self, scheduler_output: Any, model_output: Any) -> dict[int, Any]:
        """Nothing comes of it."""
        return {}

    def has_requests(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.running or self.waiting)


def core_of(
    *,
    scheduler: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    compilation: dict[str, Any] | None = None,
    without: tuple[str, ...] = (),
) -> Any:
    """An engine core of vLLM 0.32 with 64 slots and 2048 tokens a step, but for what is given;
    `without` names attributes of the scheduler, or of its configuration, that it lacks."""
    config = {
        "max_num_seqs": 64,
        "max_num_batched_tokens": 2048,
        "long_prefill_token_threshold": 0,
        "enable_chunked_prefill": True,
        **(limits or {}),
    }
    attributes = {
        "max_num_running_reqs": 64,
        "max_num_active_reqs": 64,
        "max_num_scheduled_tokens": 2048,
        "num_spec_tokens": 0,
        "num_prefill_lookahead": 0,
        "need_mamba_block_aligned_split": False,
        "cache_config": SimpleNamespace(block_size=16),
        "running": [],
        "waiting": [],
        **(scheduler or {}),
    }
    for name in without:
        config.pop(name, None)
        attributes.pop(name, None)
    attributes["scheduler_config"] = SimpleNamespace(**config)
    vllm_config = SimpleNamespace(
        model_config=SimpleNamespace(
            **{"max_model_len": 4096, "enforce_eager": False, **(model or {})}
        ),
        compilation_config=SimpleNamespace(**(compilation or {})),
        parallel_config=SimpleNamespace(data_parallel_rank=0),
    )
    return SimpleNamespace(scheduler=_Scheduler(**attributes), vllm_config=vllm_config)


def output_of(
    new: dict[str, int], cached: dict[str, tuple[int, int]] | None = None, *, counts: bool = True
) -> Any:
    """A step's plan: tokens of each new request; tokens and generated tokens of each known one.
    Without `counts` it does not tell what was generated, as older versions do not."""
    known = cached or {}
    tokens = {**new, **{name: count for name, (count, _) in known.items()}}
    requests = SimpleNamespace(req_ids=list(known))
    if counts:
        requests.num_output_tokens = [generated for _, generated in known.values()]
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_new_reqs=[SimpleNamespace(req_id=name) for name in new],
        scheduled_cached_reqs=requests,
    )
