"""What one vLLM engine can change while it runs: found by looking, not by its version's number.

A knob that is not there, or that would stop this engine's requests, is told with the reason.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mileage.policy.engine_knobs import EngineKnobs

__all__ = ["EngineFacts", "probe", "probe_calls"]

WAITING_MAX = 1_000_000


class EngineFacts(NamedTuple):
    """What an engine started with, and what of it can change; `decode_tokens`: a request's step.

    `prompt_block`: tokens of the blocks at which prompts are cut, so that a step with less room
    goes on with none of them; 0: they are cut anywhere.
    """

    start: EngineKnobs
    bounds: dict[str, tuple[int, int]]
    capabilities: dict[str, bool | str]
    graph_sizes: tuple[int, ...]
    decode_tokens: int
    prompt_block: int = 0


def probe(core: Any) -> EngineFacts:
    """Look at an EngineCore that has not been changed yet."""
    scheduler, config = core.scheduler, core.vllm_config
    limits = getattr(scheduler, "scheduler_config", None)
    slots = _number(scheduler, "max_num_running_reqs") or _number(limits, "max_num_seqs")
    active = _number(scheduler, "max_num_active_reqs")
    tokens = _number(scheduler, "max_num_scheduled_tokens")
    long = _number(limits, "long_prefill_token_threshold")
    decode_tokens = 1 + (_number(scheduler, "num_spec_tokens") or 0)
    low = decode_tokens + (_number(scheduler, "num_prefill_lookahead") or 0)
    whole = _whole_prompts(core)
    block = _prompt_block(scheduler)
    low += block
    can: dict[str, bool | str] = {
        "active_max": _has(active is not None and slots is not None, "max_num_active_reqs"),
        "step_tokens_max": whole or _has(tokens is not None, "max_num_scheduled_tokens"),
        "long_prefill_tokens_max": whole
        or _has(long is not None, "scheduler_config.long_prefill_token_threshold"),
        "waiting_max": _has(slots is not None, "max_num_running_reqs"),
    }
    bounds = {"waiting_max": (0, WAITING_MAX)}
    if slots is not None:
        bounds["active_max"] = (1, slots)
    if tokens is not None:
        bounds["step_tokens_max"] = (min(low, tokens), tokens)
    if long is not None:
        longest = _number(getattr(config, "model_config", None), "max_model_len")
        bounds["long_prefill_tokens_max"] = (low, max(low, longest or tokens or low))
    start = EngineKnobs(active_max=active, step_tokens_max=tokens, long_prefill_tokens_max=long)
    sizes = _graph_sizes(config, decode_tokens)
    return EngineFacts(start, bounds, can, sizes, decode_tokens, block)


def probe_calls(engine_client: Any) -> str | None:
    """Why the API server cannot call its engines' own methods; None where it can."""
    core = getattr(engine_client, "engine_core", None)
    if core is None:
        return f"{type(engine_client).__name__} has no engine_core"
    if not callable(getattr(core, "call_utility_async", None)):
        return f"{type(core).__name__} has no call_utility_async"
    return None


def _number(owner: Any, name: str) -> int | None:
    value = getattr(owner, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _prompt_block(scheduler: Any) -> int:
    """Where the state of Mamba layers is cached at the ends of blocks, prompts are cut there.

    vLLM 0.32 cuts within a block only where the budget of a step is smaller than one: beside 300
    that decode, a budget of 500 has no room for a block of 256, and no prompt goes on.
    """
    if not getattr(scheduler, "need_mamba_block_aligned_split", False):
        return 0
    return _number(getattr(scheduler, "cache_config", None), "block_size") or 0


def _has(there: bool, name: str) -> bool | str:
    return True if there else f"this vLLM's scheduler has no {name}"


def _whole_prompts(core: Any) -> str | None:
    """Why prompts, or parts of them, have to fit into a step whole; None where they do not."""
    limits = getattr(core.scheduler, "scheduler_config", None)
    if not getattr(limits, "enable_chunked_prefill", True):
        return "chunked prefill is off: a prompt has to fit into a step whole"
    model = getattr(core.vllm_config, "model_config", None)
    multimodal = getattr(model, "is_multimodal_model", False)
    if multimodal and getattr(limits, "disable_chunked_mm_input", False):
        return "disable_chunked_mm_input is on: an image has to fit into a step whole"
    return None


def _graph_sizes(config: Any, decode_tokens: int) -> tuple[int, ...]:
    """Requests of each CUDA graph of a decode step, ascending; none where graphs are off."""
    compilation = getattr(config, "compilation_config", None)
    mode = getattr(compilation, "cudagraph_mode", None)
    off = getattr(getattr(config, "model_config", None), "enforce_eager", False)
    if off or mode is None or getattr(mode, "name", str(mode)) == "NONE":
        return ()
    sizes = getattr(compilation, "cudagraph_capture_sizes", None) or ()
    whole = {int(s) // decode_tokens for s in sizes if int(s) > 0 and int(s) % decode_tokens == 0}
    return tuple(sorted(whole))
