"""Rules of room for keys and values."""

from __future__ import annotations

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.contrast import contrasts
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.machine import Machine
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.rule import Rule, rule
from mileage.doctor.rules.kv_room import (
    fits_few,
    full_length_fits,
    kv_at_ceiling,
    pool_tokens,
    requests_held_back,
    too_few_fit_for_load,
    wanted_in_flight,
)
from mileage.doctor.rules.slower_arm import any_slower, share_lost, smaller_than
from mileage.doctor.rules.some_arm import in_some_arm

__all__ = ["RULES"]

TOKENS_PER_SLOT_MIN = 128.0
"""Tokens of the pool for each slot of the batch below which hardly any request fits its slot: a
chat template and a one-line question take that much."""

POOL_OVER_WEIGHTS_MIN = 0.25
"""Pool over weights below which a step reads almost only weights, however full the pool is."""

RARE_SHARE = 0.01
"""Preempted share of the requests below which the repeated prefills do not matter."""

KV_NOT_FULL_RATIO = 0.8
"""Use of the cache at its highest below which nothing is preempted in the window: what a counter
since the start shows happened earlier."""

LOGGED_NO_ROOM = (
    r"no available memory for the cache blocks"
    r"|larger than the maximum number of tokens that can be stored in KV cache"
    r"|KV cache is needed, which is larger than the available KV cache memory"
    r"|try to increase --mem-fraction-static"
    r"|failed to find (a )?(free space|(memory|kv) slot)( in the KV cache)?"
    r"|cannot allocate .*kv ?cache"
)
"""Engines that start with no pool to speak of, or not at all (vLLM, SGLang, llama.cpp)."""

LOGGED_PREEMPTION = (
    r"is preempted by PreemptionMode"
    r"|Retract requests|#retracted[-_]reqs?: *[1-9]|Decode out of memory happened"
    r"|num(_cumulative)?_preemption(s)?[=: ]+[1-9]|Preemptions?: *[1-9]|preempting request"
    r"|Paused requests?\W+[1-9]|swapped out because"
)
"""vLLM (both generations), SGLang (retraction) and TensorRT-LLM (pause)."""


@rule(
    "KV001",
    cause="kv_room_too_small",
    needs=(
        "kv_max_concurrency",
        "kv_cache_capacity_tokens",
        "kv_cache_capacity_gib",
        "max_tokens_in_paged_kv_cache",
        "max_model_len",
        "kv_cache_usage_ratio",
        "requests_running",
        "requests_waiting",
        "logs",
        "comparisons",
    ),
    fires={"settings": {"max_model_len": 65536}, "signals": {"kv_max_concurrency": 0.9}},
    clear={
        "settings": {"max_model_len": 8192},
        "signals": {
            "kv_max_concurrency": 41,
            "kv_cache_usage_ratio": 0.4,
            "requests_running": 20,
            "requests_waiting": 0,
        },
    },
    silent={"settings": {"max_model_len": 65536}},
)
def kv_pool_too_small(e: Evidence) -> Opinion:
    """The KV cache cannot hold a batch that is worth its step.

    ## Why it costs money
    With room for one or two requests every decode step reads all weights for one or two tokens.

    ## How it is told
    The pool holds about one request of full length, or few of this load; or it is full while a
    handful run and others wait. A pool that is hardly used although requests wait is
    `kv_reservation_worst_case`; a running batch at its cap is `max_num_seqs_cap`; a full pool
    with a large batch and no preemption is healthy.

    ## What to do
    Give the pool more: vLLM `--gpu-memory-utilization`, SGLang `--mem-fraction-static`,
    TensorRT-LLM `kv_cache_config`; lower `--max-model-len` to what is asked for; store keys and
    values in 8 bits; quantise the weights; or spread them over more cards.

    ## Risk
    A higher memory share leaves less for activations and other processes of the card: the first
    long prompt may fail with out of memory instead of the start. A shorter `max_model_len` refuses
    requests that were served before; keys and values in 8 bits can cost quality on long contexts,
    so compare answers there.
    """
    case = Case()
    usage, running = e.number("kv_cache_usage_ratio"), e.number("requests_running")
    held, few = requests_held_back(e), too_few_fit_for_load(e)
    roomier = smaller_than(e, "gpu_memory_utilization")
    case.shows(in_some_arm(e, fits_few), 4.0)
    case.shows(few, 4.0)
    case.shows(in_some_arm(e, _full_with_few), 3.0)
    case.shows(both(held, _capped_pool(e)), 3.5)
    case.shows(
        both(kv_at_ceiling(e), _pool_is_dwarfed(e), e.number("requests_waiting").above(0)), 3
    )
    case.shows(e.logged(LOGGED_NO_ROOM), 4.0)
    case.shows(any_slower(roomier), 3.5)
    if few.truth is not True:
        case.refutes(_pool_carries_load(e))
    case.refutes(both(usage.any_below(0.5), running.any_above(0.0)))
    case.refutes(both(usage.all_below(0.5), e.number("requests_waiting").any_above(0.0)))
    case.sign(_replicated(e), yes=-2.5)
    case.sign(_weights_fill_card(e), yes=1.0)
    case.sign(_preempts(e), yes=-0.5)
    case.sign(e.number("max_tokens_in_paged_kv_cache").above(0.0), yes=0.5)
    fits = full_length_fits(e).value
    return case.opinion(
        advice=f"Make room for keys and values: {fits.shown()} requests of full length fit."
        if fits.bounded
        else "Make room for keys and values, or lower the longest request that is allowed.",
        changes=_roomier_settings(e),
        waste_ratio=share_lost(roomier),
    )


def _full_with_few(e: Evidence) -> Check:
    return both(kv_at_ceiling(e), requests_held_back(e))


def _capped_pool(e: Evidence) -> Check:
    """Is the pool capped by a setting to less than its slots could use?"""
    pool, cap = pool_tokens(e), e.number("max_num_seqs")
    per_slot = pool.value.over(cap.value) if pool.known and cap.known else None
    return either(
        Check(
            pool.key,
            pool.plain(),
            f"< {TOKENS_PER_SLOT_MIN:g} x max_num_seqs",
            None if per_slot is None else per_slot.below(TOKENS_PER_SLOT_MIN),
        ),
        both(
            e.number("max_tokens_in_paged_kv_cache").above(0.0),
            kv_at_ceiling(e),
        ),
    )


def _pool_is_dwarfed(e: Evidence) -> Check:
    pool, weights = e.number("kv_cache_capacity_gib"), Machine(e).weights_gib_per_gpu
    limit = f"< {POOL_OVER_WEIGHTS_MIN:g} x weights"
    if not pool.known or not weights.bounded or weights.low <= 0:
        return Check(pool.key, pool.plain(), limit, None)
    return Check(
        pool.key, pool.plain(), limit, pool.least.over(weights).below(POOL_OVER_WEIGHTS_MIN)
    )


def _pool_carries_load(e: Evidence) -> Check:
    """Does the pool hold all that want to run, though few of full length?"""
    pool, prompt, answer = pool_tokens(e), e.number("isl_tokens"), e.number("osl_tokens")
    wanted = wanted_in_flight(e)
    if not (pool.known and prompt.known and answer.known) or not wanted.bounded:
        return Check(pool.key, pool.plain(), "holds all that want to run", None)
    fits = pool.least.over(prompt.value.plus(answer.value))
    truth = wanted.exceeds(fits)
    return Check(
        pool.key, pool.plain(), "holds all that want to run", None if truth else truth is False
    )


def _replicated(e: Evidence) -> Check:
    """Does tensor parallelism hold a single KV head several times?"""
    single = either(e.includes("model.architecture", "mla"), e.number("model.kv_heads").at_most(1))
    return both(single, e.number("tensor_parallel_size").above(1.0))


def _weights_fill_card(e: Evidence) -> Check:
    machine = Machine(e)
    weights, memory = machine.weights_gib_per_gpu, machine.memory_gb
    known = weights.bounded and memory.bounded
    share = weights.times(exactly(1.0737)).over(memory) if known else None
    shown = None if share is None else share.plain()
    truth = None if share is None else share.above(0.75)
    return Check("model.weights_gib", shown, "> 0.75 of the card's memory", truth)


def _roomier_settings(e: Evidence) -> tuple[Change, ...]:
    changes = []
    share, capped = e.number("gpu_memory_utilization"), e.number("max_tokens_in_paged_kv_cache")
    if capped.known:
        changes.append(Change("max_tokens_in_paged_kv_cache", None))
    elif share.known and share.value.high < 0.92:
        changes.append(Change("gpu_memory_utilization", 0.92))
    if "8" not in (e.text("kv_cache_dtype") or ""):
        changes.append(Change("kv_cache_dtype", "fp8"))
    return tuple(changes)


def _preempts(e: Evidence) -> Check:
    return either(
        e.number("preemptions_per_s").any_above(0.0), e.number("preemptions_count").any_above(0.0)
    )


@rule(
    "KV002",
    cause="kv_preemption",
    needs=("preemptions_per_s", "preemptions_count", "kv_cache_usage_ratio", "logs"),
    fires={"signals": {"preemptions_per_s": 0.6, "kv_cache_usage_ratio": 0.98}},
    clear={"signals": {"preemptions_per_s": 0, "kv_cache_usage_ratio": 0.98}},
    silent={"signals": {"kv_cache_usage_ratio": 0.98}},
)
def requests_are_preempted(e: Evidence) -> Opinion:
    """Running requests are preempted because the KV cache is full.

    ## Why it costs money
    A preempted request gives its keys and values back and repeats its prefill later: the same
    tokens are paid for twice, and its reader waits in between.

    ## How it is told
    Requests are preempted (vLLM), retracted (SGLang), paused (TensorRT-LLM) or swapped out while
    the cache is full. A full cache without preemptions is healthy. Few preemptions since the
    start, with room now, are history. A policy that invites it is `scheduler_policy_overcommit`;
    one replica that is full while others idle is a matter of routing.

    ## What to do
    Admit fewer requests (vLLM `--max-num-seqs`, SGLang `--max-running-requests` and a higher
    `--schedule-conservativeness`), give the pool more memory, or store keys and values in 8 bits.

    ## Risk
    With fewer requests admitted those over the limit wait in the queue, so TTFT rises while the
    time between tokens falls; set too low, the cap leaves the card idle. Watch `requests_waiting`
    beside preemptions and take the highest cap that does not preempt.
    """
    case = Case()
    rate, count = e.number("preemptions_per_s"), e.number("preemptions_count")
    usage, logged = e.number("kv_cache_usage_ratio"), e.logged(LOGGED_PREEMPTION)
    waits = e.number("requests_waiting").any_above(0.0)
    case.shows(in_some_arm(e, lambda at: at.number(rate.key).any_above(0.0)), 4.5)
    counted = in_some_arm(e, lambda at: at.number(count.key).any_above(0.0))
    case.shows(counted, 4.0 if not rate.known else 0.5)
    case.shows(logged, 3.5 if not count.known and not rate.known else 0.5)
    case.shows(_slower_with_preemptions(e), 4.0)
    if not rate.known and not count.known:
        case.shows(both(usage.any_above(0.94), _shrinks(e), waits), 2.3)
    if logged.truth is None:
        case.refutes((rate if rate.known else count).all_below(1e-12).said("none"))
    case.sign(usage.any_above(0.9), yes=1.0)
    case.sign(usage.all_below(KV_NOT_FULL_RATIO), yes=-4.0)
    case.sign(_rare(e), yes=-4.0)
    case.sign(waits, yes=0.5)
    case.sign(_some_idle(e), yes=-2.0)
    running = e.number("requests_running").value
    fewer = int(0.8 * running.high) if running.bounded and running.high < 1e6 else 0
    return case.opinion(
        advice=f"Let about {fewer} requests run at once, or give the KV cache more room."
        if fewer
        else "Admit fewer requests at once, or give the KV cache more room.",
        changes=(Change("max_num_seqs", float(fewer)),) if fewer else (),
        waste_ratio=_prefill_repeated(e),
    )


def _shrinks(e: Evidence) -> Check:
    """Does the running batch fall by a third and rise again, or the other way round?"""
    running = e.number("requests_running")
    points = running.series
    swings = (
        any(points[0].high >= 1.5 * low.low < points[-1].high for low in points[1:-1])
        if len(points) >= 3
        else None
    )
    return Check(running.key, running.plain(), "falls by a third and rises again", swings)


def _rare(e: Evidence) -> Check:
    """Is it a negligible share of the requests that was preempted?"""
    done, count = e.number("requests_completed_count"), e.number("preemptions_count")
    rate, served = e.number("preemptions_per_s"), e.number("requests_per_s")
    uptime = e.number("process_uptime_s")
    if rate.known and served.known:
        return _share(rate.key, rate.total, served.total)
    if count.known and done.known:
        return _share(count.key, count.total, done.total)
    if count.known and uptime.known and served.known:
        return _share(count.key, count.total, uptime.value.times(served.total))
    return Check("preemptions_count", None, f"< {RARE_SHARE:g} of the requests", None)


def _share(key: str, part: Interval, whole: Interval) -> Check:
    share = part.over(whole)
    limit = f"< {RARE_SHARE:g} of the requests"
    return Check(key, part.plain(), limit, share.below(RARE_SHARE))


def _some_idle(e: Evidence) -> Check:
    """Do other replicas or ranks have room while one preempts?"""
    usage, rate = e.number("kv_cache_usage_ratio"), e.number("preemptions_per_s")
    return either(
        Check(
            usage.key,
            usage.plain(),
            "half empty on another unit",
            usage.least.below(0.5) if usage.units else None,
        ),
        Check(
            rate.key,
            rate.plain(),
            "none on another unit",
            rate.least.at_most(0.0) if rate.units else None,
        ),
    )


def _slower_with_preemptions(e: Evidence) -> Check:
    """Does an arm with preemptions do less than one without them?"""
    pairs = contrasts(
        e,
        lambda arm: (
            arm.number("preemptions_count").most.above(0.0) is True
            or arm.number("preemptions_per_s").most.above(0.0) is True
        ),
        lambda arm: (
            arm.number("preemptions_count").most.at_most(0.0) is True
            or arm.number("preemptions_per_s").most.at_most(0.0) is True
        ),
    )
    return any_slower(pairs)


def _prefill_repeated(e: Evidence) -> Interval | None:
    """Share of the prefill work that repeats what preempted requests had done."""
    rate, prompt = e.number("preemptions_per_s"), e.number("isl_tokens")
    done = e.number("prompt_tokens_per_s")
    if not (rate.known and prompt.known and done.known) or done.total.low <= 0:
        return None
    again = rate.total.times(prompt.value).over(done.total.plus(rate.total.times(prompt.value)))
    return again.clipped(0.0, 1.0)


RULES: tuple[Rule, ...] = (kv_pool_too_small, requests_are_preempted)
"""Rules of this family."""
