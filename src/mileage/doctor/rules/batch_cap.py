"""The cap of the running batch: how large it is, whether it is reached, whether it matters."""

from __future__ import annotations

from mileage.doctor.arms import Arm, Comparison
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.quantity import Quantity
from mileage.doctor.rules.slower_arm import NOISE_RATIO

__all__ = [
    "KV_FULL_RATIO",
    "at_the_cap",
    "below_the_cap",
    "cap_of",
    "kv_is_full",
    "kv_room",
    "latency_targets_met",
    "nobody_waits",
    "plateau_at_cap",
    "requests_wait",
    "wanted_above_cap",
]

REACHED_RATIO = 0.95
"""Share of the cap that the mean of a batch at its cap keeps: a slot stays empty for the step in
which its request ends, until the next step's admission."""

HARDLY_RATIO = 0.1
"""Waiting requests over the cap below which their slots would add a tenth to the batch at most."""

MOSTLY_RATIO = 0.7
"""Share of the cap that the mean keeps where the largest batch stood at it."""

KV_FULL_RATIO = 0.9
"""Use of the KV cache above which a higher cap would gain a tenth at most before it preempts."""

QUEUE_SHARE_OF_TTFT = 0.5
"""A request that spends half of its time to first token in the queue waits for a slot."""

QUEUE_MIN_S = 0.5
"""A free slot is taken between two steps; nothing that waits longer than any step found one."""

TARGET_NEAR = 0.5
"""A time between tokens above half of its target leaves no room to double the batch."""

DEFAULT_CAPS = {"vllm": (128.0, 256.0, 1024.0), "llama.cpp": (1.0, 4.0), "sglang": ()}
"""Caps that apply where none is set, by engine: vLLM's depend on version and card."""


def cap_of(e: Evidence) -> Interval:
    """Requests that may run together, all ranks and replicas that the count is of."""
    cap = e.number("max_num_seqs")
    if cap.known:
        return cap.value.times(exactly(_shared_by(e, cap.value)))
    return _default_cap(e)


def at_the_cap(e: Evidence) -> Check:
    """Do as many requests run as the cap allows, on every unit that is known?

    Where the largest batch stood at the cap, a mean that is a little lower will do: short requests
    leave slots empty for a larger share of the time.
    """
    cap, limit = cap_of(e), f">= max_num_seqs ({cap_of(e).shown()})"
    running, most = e.number("requests_running"), e.number("requests_running_max")
    if not running.known:
        return _check(most, limit, _reached(_each(most), cap))
    mean = _check(running, limit, _reached(_each(running), cap))
    if mean.truth is True or not most.known:
        return mean
    mostly = _check(running, f">= {MOSTLY_RATIO:g} x {cap.shown()}", _mostly(running, cap))
    return either(mean, both(_check(most, limit, _reached(_each(most), cap)), mostly))


def _each(quantity: Quantity) -> Interval:
    """The mean over time, or the least of the units."""
    return quantity.least if quantity.units else quantity.value


def _mostly(running: Quantity, cap: Interval) -> bool | None:
    return None if cap == ANY else _each(running).at_least(MOSTLY_RATIO * cap.high)


def below_the_cap(e: Evidence) -> Check:
    """Do fewer requests run than the cap allows, or do fewer even come?"""
    cap = cap_of(e)
    most = e.number("requests_running_max")
    seen = most if most.known else e.number("requests_running")
    comes = (e.number("client_requests_in_flight_max"), e.number("proxy_requests_in_flight_max"))
    return either(
        _check(
            seen,
            f"< max_num_seqs ({cap.shown()})",
            _missed(seen.least if seen.units else seen.most, cap),
        ),
        *(
            _check(each, f"< max_num_seqs ({cap.shown()})", _missed(each.total, cap))
            for each in comes
            if each.known
        ),
    )


def _missed(running: Interval, cap: Interval) -> bool | None:
    reached = _reached(running, cap) if cap.bounded else None
    return None if reached is None else not reached


def requests_wait(e: Evidence) -> Check:
    """Do requests wait at the engine for a slot?"""
    waits = either(
        nobody_waits(e).negated().said("some wait"),
        *(
            e.number(f"queue_time_{which}_s").exceeds(
                e.number(f"ttft_{which}_s"), QUEUE_SHARE_OF_TTFT
            )
            for which in ("mean", "p50", "p99")
        ),
        *(
            e.number(f"queue_time_{which}_s").above(QUEUE_MIN_S)
            for which in ("mean", "p50", "p90", "p99")
        ),
    )
    return either(waits, wanted_above_cap(e)) if waits.truth is None else waits


def nobody_waits(e: Evidence) -> Check:
    """Does none, or hardly ever one, wait: on the mean less than one and a tenth of the batch?

    In a closed loop of as many clients as slots a request comes just before a slot is free.
    """
    waiting, cap = e.number("requests_waiting"), cap_of(e)
    hardly = min(1.0, HARDLY_RATIO * cap.low) if cap.bounded else 0.0
    none = waiting.value.at_most(0.0)
    if none is not True:
        none = waiting.value.below(hardly)
    return _check(waiting, f"hardly any (< {hardly:.2g})" if hardly else "none", none)


def wanted_above_cap(e: Evidence) -> Check:
    """Do clients want more requests in flight than may run on all replicas together?"""
    wanted, cap = e.number("concurrency"), e.number("max_num_seqs")
    if not wanted.known or not cap.known:
        return wanted.where("> max_num_seqs of all replicas", lambda _: None)
    every = cap.value.times(exactly(_replicas(e)))
    truth = wanted.value.exceeds(every.times(exactly(1.0 / REACHED_RATIO)))
    return _check(wanted, f"> max_num_seqs of all replicas ({every.shown()})", truth)


def kv_room(e: Evidence) -> Check:
    """Is there room in the KV cache for more requests?"""
    usage = e.number("kv_cache_usage_ratio")
    if usage.known:
        return _check(usage, f"<= {KV_FULL_RATIO:g}", usage.most.at_most(KV_FULL_RATIO))
    capacity, cap = e.number("kv_cache_capacity_tokens"), e.number("max_num_seqs")
    prompt, answer = e.number("isl_tokens"), e.number("osl_tokens")
    if not (capacity.known and cap.known and prompt.known and answer.known):
        return usage.where("room", lambda _: None)
    fitting = capacity.value.over(prompt.value.plus(answer.value))
    return _check(capacity, "fits more than max_num_seqs requests", fitting.exceeds(cap.value))


def kv_is_full(e: Evidence) -> Check:
    """Is the KV cache full, so that a higher cap gains nothing?"""
    usage = e.number("kv_cache_usage_ratio")
    return _check(usage, f"> {KV_FULL_RATIO:g}", usage.value.above(KV_FULL_RATIO))


def latency_targets_met(e: Evidence) -> Check:
    """Is a latency target stated that the cap may keep, and is none of those stated missed?

    A time between tokens far below its target leaves room for a larger batch, so that it does not
    excuse the queue; a time to first token within its target does.
    """
    first = _met(e, "slo_ttft_s", ("ttft_p99_s", "ttft_p90_s", "ttft_mean_s"), 1.0)
    between = _met(e, "slo_itl_s", ("itl_p99_s", "itl_p90_s", "itl_mean_s"), 1.0)
    near = _met(e, "slo_itl_s", ("itl_p99_s", "itl_p90_s", "itl_mean_s"), TARGET_NEAR)
    if first.truth is not None:
        return first if between.truth is None else both(first, between)
    return both(between, near.negated())


def plateau_at_cap(e: Evidence) -> Check:
    """Does throughput grow with concurrency up to the cap, and not beyond it?"""
    for comparison in e.comparisons:
        if comparison.varies_only("concurrency", "rate_rps", "num_requests"):
            check = _plateau(comparison)
            if check is not None:
                return check
    return Check("comparisons", None, "flat above max_num_seqs", None)


def _plateau(comparison: Comparison) -> Check | None:
    below: list[Arm] = []
    above: list[Arm] = []
    for arm in comparison.arms:
        cap, load = arm.number("max_num_seqs").value, arm.number("concurrency").value
        if not cap.bounded:
            return None
        if load.at_most(cap.low):
            below.append(arm)
        elif load.above(cap.high):
            above.append(arm)
    if len(below) < 2 or not above:
        return None
    grown = comparison.throughput(below[-1], below[0])
    flat = comparison.throughput(above[-1], below[-1])
    if not grown.known or not flat.known:
        return None
    truth = _all(grown.value.above(1.0 + NOISE_RATIO), flat.value.at_most(1.0 + NOISE_RATIO))
    limit = "grows up to max_num_seqs, flat above it"
    return Check(f"comparisons.{flat.signal}", flat.value.plain(), limit, truth)


def _met(e: Evidence, target: str, signals: tuple[str, ...], share: float) -> Check:
    bound = e.number(target)
    seen = next((e.number(key) for key in signals if e.known(key)), e.number(signals[0]))
    truth = None
    if seen.known and bound.known:
        missed = seen.value.exceeds(bound.value.times(exactly(share)))
        truth = None if missed is None else not missed
    return _check(seen, f"<= {share:g} x {target}", truth)


def _all(*truths: bool | None) -> bool | None:
    return False if False in truths else (None if None in truths else True)


def _reached(running: Interval, cap: Interval) -> bool | None:
    if cap == ANY or running == ANY:
        return None
    if running.low >= REACHED_RATIO * cap.high:
        return True
    return False if running.high < REACHED_RATIO * cap.low else None


def _shared_by(e: Evidence, cap: Interval) -> float:
    """1, or the ranks and replicas where the count of running requests is clearly of them all."""
    most = e.number("requests_running_max")
    running = most if most.known else e.number("requests_running")
    if running.shape == "units" or not running.known or not cap.bounded:
        return 1.0
    over = running.value.low > cap.high / REACHED_RATIO
    return _replicas(e) if over else 1.0


def _replicas(e: Evidence) -> float:
    count = 1.0
    for key in ("topology.replicas", "data_parallel_size"):
        value = e.number(key).value
        if value.exact and value.low >= 1.0:
            count *= value.low
    return count


def _default_cap(e: Evidence) -> Interval:
    """The engine's default that the batch stands at exactly, where the cap is not known."""
    most = e.number("requests_running_max")
    seen = (most if most.known else e.number("requests_running")).least
    engine = e.text("engine.name") or ""
    defaults = next((caps for name, caps in DEFAULT_CAPS.items() if name in engine), ())
    return exactly(seen.low) if seen.exact and seen.low in defaults else ANY


def _check(quantity: Quantity, limit: str, truth: bool | None) -> Check:
    return Check(quantity.key, quantity.plain(), limit, truth if quantity.known else None)
