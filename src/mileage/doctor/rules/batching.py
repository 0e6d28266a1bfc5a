"""Rules of how many requests and tokens a step takes."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import Contrast, contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.batch_cap import (
    at_the_cap,
    below_the_cap,
    cap_of,
    kv_is_full,
    kv_room,
    latency_targets_met,
    nobody_waits,
    plateau_at_cap,
    requests_wait,
    wanted_above_cap,
)
from mileage.doctor.rules.kv_memory import LOGGED_PREEMPTION
from mileage.doctor.rules.slower_arm import any_slower, larger_than, share_lost, smaller_than
from mileage.doctor.rules.some_arm import in_some_arm

__all__ = ["RULES"]

LONG_PROMPT_CHUNKS = 4.0
"""Chunks per prompt from which on a job pays for chunking: each chunk costs a step of its own and
reads again the keys and values of all chunks before it."""

FULL_CHUNK_TOKENS = 8192.0
"""A chunk that keeps the tensor cores of any card busy for far longer than a step's fixed cost:
from here on more tokens per step gain nothing worth naming."""

DEFAULT_CHUNK_TOKENS = Interval(512.0, FULL_CHUNK_TOKENS - 1.0)
"""Budgets that apply where none is set, by version and card: a job's engine has the smaller."""

SM_FULL = 0.95
"""Share of the time with work on the SMs at which no step waits for the host or for requests."""

TAIL_OVER_MEDIAN = 5.0
"""Tail over median of the time between tokens that steady decoding does not reach: steps differ by
a prefill chunk, two or three times; a multiple beyond is a request that was put aside."""


@rule(
    "BAT001",
    cause="max_num_seqs_cap",
    needs=(
        "max_num_seqs",
        "requests_running",
        "requests_running_max",
        "requests_waiting",
        "kv_cache_usage_ratio",
        "concurrency",
        "comparisons",
    ),
    fires={
        "settings": {"max_num_seqs": 32},
        "signals": {"requests_running": 32, "requests_waiting": 70, "kv_cache_usage_ratio": 0.31},
    },
    clear={
        "settings": {"max_num_seqs": 32},
        "signals": {"requests_running": 20, "requests_waiting": 0, "kv_cache_usage_ratio": 0.31},
    },
    silent={"settings": {"max_num_seqs": 32}, "signals": {"requests_running": 32}},
)
def batch_cap_reached(e: Evidence) -> Opinion:
    """The running batch is at its configured cap while requests wait.

    ## Why it costs money
    A decode step reads all weights once, however many requests share it. Requests that wait
    although their keys and values would fit make every step carry fewer tokens than it could.

    ## How it is told
    As many requests run as the cap allows, others wait at the engine, and the KV cache is not
    full. Fewer running than the cap: something else holds them back (KV room, a proxy, the
    client). KV full: a higher cap would preempt. A cap that keeps a latency target is no fault.

    ## What to do
    vLLM `--max-num-seqs`, SGLang `--max-running-requests`, TensorRT-LLM `--max_batch_size`,
    llama.cpp `--parallel`: raise it until the KV cache is nearly full or the time between tokens
    reaches its target.

    ## Risk
    A larger batch makes each step longer: the time between tokens grows, and keys and values of
    more requests must fit, or requests are preempted and their prompts computed twice. Watch
    `kv_cache_usage_ratio`, preemptions and the ITL p99, and raise the cap in steps; more captured
    graph sizes take some memory as well.
    """
    case = Case()
    cap, reached = cap_of(e), at_the_cap(e)
    smaller = smaller_than(e, "max_num_seqs")
    case.shows(in_some_arm(e, lambda at: both(at_the_cap(at), requests_wait(at))), 4.0)
    case.shows(both(wanted_above_cap(e), kv_room(e)), 2.0 if reached.truth is None else 0.5)
    case.shows(plateau_at_cap(e), 3.5)
    case.shows(any_slower(smaller), 4.0)
    if any_slower(smaller).truth is not True:
        case.refutes(below_the_cap(e))
        case.refutes(nobody_waits(e))
    case.refutes(kv_is_full(e))
    case.refutes(latency_targets_met(e))
    case.sign(kv_room(e), yes=1.0)
    case.sign(e.number("preemptions_count").above(0.0), yes=-1.5)
    case.sign(e.number("preemptions_per_s").above(0.0), yes=-2.0)
    case.sign(_compute_bound(e), yes=-1.5)
    case.sign(both(_compute_bound(e), _all_sms_at_work(e)), yes=-2.5)
    case.sign(_scaler_waits(e), yes=-1.5)
    to = _roomier(e, cap)
    return case.opinion(
        advice=f"Raise the cap from {cap.shown()} to about {to}, step by step, while the "
        "time between tokens allows it."
        if cap.bounded and to is not None
        else "Raise the cap of the running batch until the KV cache is nearly full.",
        changes=(Change("max_num_seqs", float(to)),) if to is not None else (),
        waste_ratio=share_lost(smaller) or _batch_forgone(e, cap),
    )


def _compute_bound(e: Evidence) -> Check:
    """Tensor cores at half of their peak are about as busy as kernels keep them."""
    return e.number("tensor_active_ratio").above(0.5)


def _all_sms_at_work(e: Evidence) -> Check:
    """With tensor cores at their peak, too: a larger batch takes longer, and gains nothing."""
    return e.number("sm_active_ratio").at_least(SM_FULL)


def _scaler_waits(e: Evidence) -> Check:
    """The autoscaler waits for more running requests than the cap lets run."""
    target = e.number("hpa.target").exceeds(e.number("max_num_seqs"))
    return both(e.contains("hpa.metric", "running"), target)


def _roomier(e: Evidence, cap: Interval) -> int | None:
    """The cap at which those that wait would run, as far as the KV cache has room for them."""
    if not cap.bounded or not 1.0 <= cap.high < 1e6:
        return None
    waiting, usage = e.number("requests_waiting").most, e.number("kv_cache_usage_ratio").most
    wanted = cap.high + waiting.low if waiting.bounded else 2.0 * cap.high
    fitting = 0.9 * cap.high / usage.high if 0.0 < usage.high <= 1.0 else 4.0 * cap.high
    return int(max(cap.high + 1.0, min(wanted, fitting, 4.0 * cap.high)))


def _batch_forgone(e: Evidence, cap: Interval) -> Interval | None:
    """Share of the throughput that a batch of all that could run would add, at the most."""
    to = _roomier(e, cap)
    return None if to is None else Interval(0.0, 1.0 - cap.high / to)


@rule(
    "BAT002",
    cause="chunk_too_small_offline",
    needs=(
        "kind",
        "isl_tokens",
        "max_num_batched_tokens",
        "enable_chunked_prefill",
        "comparisons",
    ),
    fires={
        "workload": {"kind": "offline", "isl_tokens": 12000},
        "settings": {"enable_chunked_prefill": True, "max_num_batched_tokens": 1024},
    },
    clear={
        "workload": {"kind": "online", "isl_tokens": 12000},
        "settings": {"enable_chunked_prefill": True, "max_num_batched_tokens": 1024},
    },
    silent={
        "workload": {"isl_tokens": 12000},
        "settings": {"enable_chunked_prefill": True, "max_num_batched_tokens": 1024},
    },
)
def chunks_too_small_for_job(e: Evidence) -> Opinion:
    """A throughput job with long prompts is cut into small prefill chunks.

    ## Why it costs money
    Chunks keep the time between tokens even for people who watch. A job without people pays for
    it: every chunk is a step with its fixed cost, reads the weights again, and reads again the
    keys and values of the chunks before it.

    ## How it is told
    Offline work whose prompts are many times the token budget of a step; or an A/B of chunked
    prefill, or of its budget, where the small chunks are slower. Online the same setting is a
    choice, not a fault.

    ## What to do
    vLLM `--max-num-batched-tokens` (or `--no-enable-chunked-prefill` where the version allows),
    SGLang `--chunked-prefill-size`, TensorRT-LLM `--max_num_tokens`: 8192 or more for such jobs.

    ## Risk
    A step with 8192 prompt tokens takes a few hundred milliseconds on a large model, in which every
    answer of the same engine stands still: fine for a job, not beside people. Activations of the
    larger step take memory from the KV cache, and the start fails where there is none left.
    """
    case = Case()
    offline = e.is_one_of("kind", "offline", "benchmark", "eval")
    budget, prompt = _budget(e), e.number("isl_tokens")
    many = both(prompt.exceeds(budget, LONG_PROMPT_CHUNKS), budget.below(FULL_CHUNK_TOKENS))
    chunked, small = _chunked_against_whole(e), smaller_than(e, "max_num_batched_tokens")
    case.must(either(offline, _many_steps(prompt)))
    case.shows(either(any_slower(chunked), any_slower(small)), 4.0)
    case.shows(both(offline, many), 3.0)
    case.refutes(e.is_one_of("kind", "online", "none"))
    case.refutes(e.is_false("enable_chunked_prefill"))
    case.sign(e.is_one_of("kind", "offline"), yes=0.5)
    case.sign(e.is_true("enable_chunked_prefill"), yes=0.5)
    case.sign(budget.at_most(2048.0), yes=0.5)
    case.sign(many, yes=0.5)
    case.sign(e.number("tensor_active_ratio").above(0.5), yes=-2.0)
    case.sign(e.number("kv_cache_usage_ratio").at_least(0.95), yes=-1.0)
    lost = share_lost((*chunked, *small))
    return case.opinion(
        advice=f"Let a step take {FULL_CHUNK_TOKENS:g} tokens or more: nobody waits for the "
        "tokens between the chunks of this job.",
        changes=(Change("max_num_batched_tokens", FULL_CHUNK_TOKENS),),
        waste_ratio=lost,
    )


def _budget(e: Evidence) -> Quantity:
    """Tokens of a step; where it is known to be not set, between the defaults of vLLM."""
    budget = e.number("max_num_batched_tokens")
    if not budget.unset or "vllm" not in (e.text("engine.name") or ""):
        return budget
    return Quantity(budget.key, "tokens", "one", (DEFAULT_CHUNK_TOKENS,))


def _many_steps(prompt: Quantity) -> Check:
    """Prompts that fill a step of any usual budget alone: chunks matter to them whoever asks."""
    return prompt.above(FULL_CHUNK_TOKENS)


def _chunked_against_whole(e: Evidence) -> tuple[Contrast, ...]:
    pairs = contrasts(
        e,
        lambda arm: arm.get("enable_chunked_prefill") is True,
        lambda arm: arm.get("enable_chunked_prefill") is False,
        "enable_chunked_prefill",
        "max_num_batched_tokens",
    )
    return tuple(pair for pair in pairs if not pair.besides)


@rule(
    "BAT003",
    cause="scheduler_policy_overcommit",
    explains=("kv_preemption",),
    needs=(
        "scheduler.policy",
        "scheduler.admission",
        "preemptions_count",
        "preemptions_per_s",
        "itl_p99_s",
        "comparisons",
    ),
    fires={
        "engine": {"name": "tensorrt-llm"},
        "settings": {"scheduler.policy": "max_utilization"},
        "signals": {"preemptions_per_s": 0.8, "kv_cache_usage_ratio": 0.99},
    },
    clear={
        "settings": {"scheduler.policy": "guaranteed_no_evict"},
        "signals": {"preemptions_per_s": 0},
    },
    silent={"settings": {"scheduler.policy": "max_utilization"}},
)
def admission_overcommits(e: Evidence) -> Opinion:
    """The scheduler admits more requests than their keys and values will fit.

    ## Why it costs money
    Requests that were admitted evict each other when they grow: an evicted one repeats its
    prefill, and its reader sees the stream stand still.

    ## How it is told
    A policy that reserves nothing for what a request will need (`max_utilization`, admission per
    chunk), and the harm of it: preemptions, a collapse above some concurrency or prompt length, a
    tail of the time between tokens far above its median, or an A/B of the policy. The same harm
    without such a policy is `kv_preemption`.

    ## What to do
    TensorRT-LLM `scheduler_config.capacity_scheduler_policy: GUARANTEED_NO_EVICT`; vLLM: admit by
    the full prompt and lower `--max-num-seqs`; or cap the concurrency at the gateway.

    ## Risk
    Admitting by the worst case runs fewer requests at once, so that those that wait do so longer:
    TTFT rises where the cache was not really short. If throughput falls and nothing was evicted
    before, take the old policy back; it needs a restart.
    """
    case = Case()
    pairs = (
        *_overcommit_pairs(e, "scheduler.policy", "max_utilization"),
        *_overcommit_pairs(e, "scheduler.admission", "per_chunk"),
    )
    loose = either(
        e.is_one_of("scheduler.policy", "max_utilization"),
        e.is_one_of("scheduler.admission", "per_chunk"),
    )
    harm = any_slower(pairs)
    evicts = either(
        e.number("preemptions_per_s").any_above(0.0),
        e.number("preemptions_count").any_above(0.0),
        e.logged(LOGGED_PREEMPTION),
    )
    stalls = e.number("itl_p99_s").exceeds(e.number("itl_p50_s"), TAIL_OVER_MEDIAN)
    case.shows(harm, 5.0)
    case.shows(both(loose, evicts), 4.0)
    case.shows(both(loose, _collapse(e)), 4.0)
    case.shows(both(loose, stalls), 3.0)
    case.sign(e.number("kv_cache_usage_ratio").any_above(0.95), yes=0.5)
    case.sign(both(evicts.negated(), harm.negated()), yes=-3.0)
    if harm.truth is not True and loose.truth is not True:
        for check in loose.parts:
            case.refutes(check.negated())
    by_policy = e.text("scheduler.admission") != "per_chunk"
    return case.opinion(
        advice="Reserve the keys and values that admitted requests will need, or admit fewer.",
        changes=(
            Change("scheduler.policy", "guaranteed_no_evict")
            if by_policy
            else Change("scheduler.admission", "full_prompt"),
        ),
        waste_ratio=share_lost(pairs),
    )


def _overcommit_pairs(e: Evidence, key: str, loose: str) -> tuple[Contrast, ...]:
    pairs = contrasts(
        e,
        lambda arm: arm.get(key) == loose,
        lambda arm: arm.get(key) not in (None, loose),
        key,
    )
    return tuple(pair for pair in pairs if not pair.besides)


def _collapse(e: Evidence) -> Check:
    """More load or longer requests, and less throughput, or a tail many times as long."""
    about = ("concurrency", "rate_rps", "num_requests")
    busier = tuple(pair for key in about[:2] for pair in larger_than(e, key, *about))
    longer = tuple(
        pair for key in ("isl_tokens", "osl_tokens") for pair in larger_than(e, key, *about)
    )
    less = any_slower(pair for pair in (*busier, *longer) if pair.throughput.known)
    tails = [pair.ratio_of("itl_p99_s", "itl_p90_s") for pair in busier]
    return either(less, *(tail.above(TAIL_OVER_MEDIAN) for tail in tails if tail.known))


RULES: tuple[Rule, ...] = (batch_cap_reached, chunks_too_small_for_job, admission_overcommits)
"""Rules of this family."""
