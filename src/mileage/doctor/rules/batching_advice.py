"""Rules of batches that are not filled, and of prompts that block those who read."""

from __future__ import annotations

from itertools import pairwise

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.slower_arm import NOISE_RATIO

__all__ = ["RULES"]

DRAINED_RATIO = 0.4
"""Share of its largest size to which a batch that is not refilled falls while others wait."""

LONG_PROMPT_TOKENS = 2048.0
"""Prompts from which on one prefill takes many decode steps on any card."""

STALL_RATIO = 5.0
"""Tail over median of the time between tokens that says that streams stood still."""

UNBATCHED = 0.8
"""Executions per request from which on nearly every request ran alone."""

LOGGED_STATIC = (
    r"gpt_model_type\W+V1\b|batching_(type|strategy)\W+(v1|static)\b"
    r"|static batching|continuous batching (is )?(disabled|off)|--no-cont-batching"
)


@rule(
    "BATADV001",
    cause="static_batching",
    needs=(
        "requests_running",
        "requests_waiting",
        "kv_cache_usage_ratio",
        "engine.variant",
        "logs",
    ),
    fires={
        "signals": {
            "requests_running": {
                "series": [{"value": 32}, {"value": 17}, {"value": 4}, {"value": 32}, {"value": 9}]
            },
            "requests_waiting": {"series": [{"value": 90}, {"value": 90}, {"value": 58}]},
            "kv_cache_usage_ratio": 0.3,
        }
    },
    clear={
        "signals": {
            "requests_running": {"series": [{"value": 32}, {"value": 31}, {"value": 32}]},
            "requests_waiting": 12,
            "kv_cache_usage_ratio": 0.3,
        }
    },
    silent={"signals": {"requests_running": 12, "requests_waiting": 12}},
)
def batch_is_not_refilled(e: Evidence) -> Opinion:
    """A batch runs until its last request ends, and those that wait start together after it.

    ## Why it costs money
    Answers differ in length. In a static batch the slots of short ones stand empty until the
    longest ends: most steps carry a fraction of the batch.

    ## How it is told
    The running batch shrinks while requests wait and the KV cache has room, then jumps to its full
    size; or the engine says that it batches statically. Preemptions shrink a batch as well, but
    with a full cache.

    ## What to do
    Use continuous (in-flight) batching: TensorRT-LLM backend `batching_strategy:
    inflight_fused_batching`, llama.cpp `--cont-batching`, or an engine that has it.

    ## Risk
    In-flight batching needs an engine or a backend built for it (a paged KV cache, packed inputs),
    so an old TensorRT engine has to be built anew. Answers may differ in the last digits, as
    batches are composed differently; latency of a single request rises a little when others join
    it.
    """
    case = Case()
    running, waiting = e.number("requests_running"), e.number("requests_waiting")
    drained = Check(
        running.key,
        running.plain(),
        f"falls below {DRAINED_RATIO:g} of its largest",
        running.least.over(running.most).below(DRAINED_RATIO) if len(running.series) >= 3 else None,
    )
    room = e.number("kv_cache_usage_ratio").all_below(0.8)
    refilled = _jumps(e)
    case.shows(both(drained, refilled, waiting.all_above(0.0), room), 3.5)
    static = either(e.logged(LOGGED_STATIC), e.contains("engine.variant", "static"))
    case.shows(static, 3.5)
    if static.truth is not True:
        case.refutes(drained.negated())
    case.refutes(e.number("preemptions_per_s").any_above(0.0))
    case.refutes(waiting.all_below(1e-9).said("none"))
    return case.opinion(
        advice="Let requests join the running batch when others leave it.",
    )


def _jumps(e: Evidence) -> Check:
    """Does the batch go from drained to nearly full between two points?"""
    running = e.number("requests_running")
    points, most = running.series, running.most.low
    jump = any(
        one.high <= DRAINED_RATIO * most and other.low >= 0.9 * most
        for one, other in pairwise(points)
    )
    return Check(running.key, running.plain(), "jumps to full", jump if len(points) >= 3 else None)


@rule(
    "BATADV002",
    cause="no_chunked_prefill",
    needs=("enable_chunked_prefill", "isl_tokens", "itl_p99_s", "itl_p50_s", "comparisons"),
    fires={
        "settings": {"enable_chunked_prefill": False},
        "workload": {"kind": "online", "isl_tokens": 12000},
        "signals": {"itl_p50_s": 0.02, "itl_p99_s": 0.9},
    },
    clear={
        "settings": {"enable_chunked_prefill": True},
        "workload": {"kind": "online", "isl_tokens": 12000},
        "signals": {"itl_p50_s": 0.02, "itl_p99_s": 0.05},
    },
    silent={"settings": {"enable_chunked_prefill": False}},
)
def long_prompts_block_decoding(e: Evidence) -> Opinion:
    """Long prompts are computed in one piece while everybody else's answer stands still.

    ## Why it costs money
    The time between tokens misses its target whenever a long prompt comes, and the usual answer
    is to buy replicas for the tail.

    ## How it is told
    Chunked prefill is off, prompts are long, and the tail of the time between tokens is many times
    its median; or an A/B. The same tail with preemptions is `kv_preemption`.

    ## What to do
    vLLM `--enable-chunked-prefill`, SGLang `--chunked-prefill-size 8192`, TensorRT-LLM
    `enable_chunked_prefill: true`; with a budget that keeps a step within the target.

    ## Risk
    A prompt that is computed in chunks among other requests has a longer time to its own first
    token, and total prefill work grows a little, since each chunk reads the keys and values before
    it again. Too small a budget turns one fault into the other: start at 2048 and watch TTFT p99.
    """
    case = Case()
    pairs = _whole_against_chunked(e)
    off, long = e.is_false("enable_chunked_prefill"), e.number("isl_tokens")
    stalls = e.number("itl_p99_s").exceeds(e.number("itl_p50_s"), STALL_RATIO)
    tails = [pair.ratio_of("itl_p99_s", "itl_p90_s").above(1.0 + NOISE_RATIO) for pair in pairs]
    worse = next((check for check in tails if check.truth is not None), None)
    missing = Check("comparisons", None, "longer tail than with chunks", None)
    case.shows(both(off, long.at_least(LONG_PROMPT_TOKENS), stalls), 3.5)
    case.shows(worse or missing, 3.5)
    case.refutes(e.is_true("enable_chunked_prefill"))
    case.refutes(e.is_one_of("kind", "offline"))
    case.sign(e.number("preemptions_per_s").any_above(0.0), yes=-2.0)
    case.sign(e.number("preemptions_count").any_above(0.0), yes=-1.5)
    return case.opinion(
        advice="Compute long prompts in chunks between the steps of the others.",
        changes=(Change("enable_chunked_prefill", True),),
    )


def _whole_against_chunked(e: Evidence) -> tuple[Contrast, ...]:
    pairs = contrasts(
        e,
        lambda arm: arm.get("enable_chunked_prefill") is False,
        lambda arm: arm.get("enable_chunked_prefill") is True,
        "enable_chunked_prefill",
        "max_num_batched_tokens",
    )
    return tuple(pair for pair in pairs if not pair.besides)


@rule(
    "BATADV003",
    cause="triton_single_instance",
    needs=(
        "engine.name",
        "triton_exec_infer_count",
        "requests_completed_count",
        "triton.dynamic_batching_delay_s",
        "requests_waiting",
    ),
    fires={
        "engine": {"name": "triton"},
        "settings": {"triton.dynamic_batching_delay_s": None, "triton.preferred_batch_size": None},
        "signals": {
            "triton_exec_infer_count": 9900,
            "requests_completed_count": 10000,
            "requests_waiting": 14,
        },
    },
    clear={
        "engine": {"name": "triton"},
        "signals": {
            "triton_exec_infer_count": 900,
            "requests_completed_count": 10000,
            "requests_waiting": 14,
        },
    },
    silent={"engine": {"name": "triton"}, "signals": {"requests_waiting": 14}},
)
def model_runs_one_request_at_a_time(e: Evidence) -> Opinion:
    """A Triton model executes once for each request while others queue.

    ## Why it costs money
    One execution with a batch of eight takes hardly longer than one with a batch of one. Without a
    dynamic batcher, or a second instance to overlap with, the card waits between executions.

    ## How it is told
    As many executions as requests, and a queue. Models that decode in flight execute once a step:
    more often than requests, and share each step. The detokeniser's queue is
    `ensemble_postprocessing`.

    ## What to do
    `config.pbtxt`: `dynamic_batching { max_queue_delay_microseconds: 500 }` and
    `instance_group [ { count: 2 } ]`, with `max_batch_size` above 1.

    ## Risk
    A request may wait for the queue delay although nobody else comes, and a model that was not
    exported with a batch dimension refuses to load with `max_batch_size` above 1. Each further
    instance holds its weights and workspaces once more: check the card's memory before.
    """
    case = Case()
    case.must(e.contains("engine.name", "triton"))
    runs = e.number("triton_exec_infer_count")
    alone = Check(
        runs.key,
        runs.plain(),
        f"{UNBATCHED:g} to 1.1 x requests_completed_count",
        _alone(e),
    )
    waits = either(e.number("requests_waiting").any_above(0.0), e.number("concurrency").above(1.0))
    case.shows(both(alone, waits), 3.0)
    case.sign(e.is_unset("triton.dynamic_batching_delay_s"), yes=1.0)
    case.sign(e.is_unset("triton.preferred_batch_size"), yes=0.5)
    case.refutes(e.is_true("triton.decoupled"))
    case.refutes(e.number("requests_running").any_above(1.0))
    return case.opinion(
        advice="Let Triton gather requests into a batch, and run two instances.",
        changes=(Change("triton.dynamic_batching_delay_s", 0.0005),),
    )


def _alone(e: Evidence) -> bool | None:
    runs = e.number("triton_exec_infer_count")
    done = e.number("requests_completed_count")
    if not runs.known or not done.known or done.total.low <= 0:
        return None
    each = runs.total.over(done.total)
    enough, many = each.at_least(UNBATCHED), each.above(1.1)
    return False if enough is False or many else (True if enough and many is False else None)


RULES: tuple[Rule, ...] = (
    batch_is_not_refilled,
    long_prompts_block_decoding,
    model_runs_one_request_at_a_time,
)
"""Rules of this family."""
