"""What a proxy does to speed and latency: arms with it beside arms without it."""

from __future__ import annotations

from mileage.doctor.arms import Arm, Comparison, Ratio
from mileage.doctor.check import Check
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import ANY, Interval

__all__ = ["costs_little", "engine_requests_left", "proxy_itl", "proxy_loss", "proxy_slows"]

RATES = (
    "client_requests_per_s",
    "requests_per_s",
    "client_output_tokens_per_s",
    "output_tokens_per_s",
    "total_tokens_per_s",
    "throughput_rel",
)
"""Of these the whole load's throughput is meant, not what one request sees."""

WAITS = ("client_ttft_mean_s", "ttft_mean_s", "ttft_p50_s", "client_e2e_mean_s", "e2e_mean_s")

LOST = 0.93
"""Throughput through the proxy over that without it: a hop costs latency, not throughput."""

SLOW = 1.3
"""Latency through the proxy over that without it, together with `HOP_S`."""

HOP_S = 0.05
"""What a proxy may add to a request without being out of anything."""


LOADS = ("rate_rps", "concurrency")


def _pairs(e: Evidence, *, load_may_fall: bool = False) -> tuple[tuple[Comparison, Arm, Arm], ...]:
    """Comparison, arm through a proxy, and arm without: of those that differ in it alone.

    `load_may_fall`: also where less load comes through the proxy. A request that takes longer
    under less load tells more, not less; how much is done then tells nothing.
    """
    found = []
    for comparison in e.comparisons:
        if "topology.proxies" not in comparison.varied():
            continue
        ours = {"topology.proxies"} | {key for key in comparison.varied() if "proxy." in key}
        if not comparison.varies_only(*ours, *(LOADS if load_may_fall else ())):
            continue
        for one, other in comparison.pairs():
            hops = [arm.get("topology.proxies") for arm in (one, other)]
            if None in hops or bool(hops[0]) == bool(hops[1]):
                continue
            via, direct = (one, other) if hops[0] else (other, one)
            if any(via.number(k).value.exceeds(direct.number(k).value) for k in LOADS):
                continue
            found.append((comparison, via, direct))
    return tuple(found)


def proxy_slows(e: Evidence) -> Check:
    """Is less done, or does a request wait clearly longer, through the proxy than without it?"""
    rate, wait = _worst_rate(e), _latency(e)
    truths = [rate.below(LOST).truth, wait.truth]
    truth = True if True in truths else (False if False in truths else None)
    shown = rate if rate.known else None
    signal = f"comparisons.{rate.signal}" if shown else wait.signal
    value = rate.value.plain() if shown else wait.value
    return Check(signal, value, f"through the proxy < {LOST:g} x direct, or later", truth)


def costs_little(e: Evidence) -> Check:
    """Is it known that the proxy takes little, of throughput and of latency?"""
    slows = proxy_slows(e)
    truth = None if slows.truth is None else not slows.truth
    return Check(slows.signal, slows.value, "about the same through the proxy", truth)


def _latency(e: Evidence) -> Check:
    """Does the client wait clearly longer through the proxy?"""
    for comparison, via, direct in _pairs(e, load_may_fall=True):
        for key in WAITS:
            late, early = via.own.get(key), direct.own.get(key)
            if late is None or early is None:
                continue
            ratio = comparison.ratio(key, via, direct)
            slow = ratio.above(SLOW).truth
            longer = via.number(key).value.minus(direct.number(key).value).above(HOP_S)
            truth = False if False in (slow, longer) else (None if None in (slow, longer) else True)
            return Check(f"comparisons.{key}", ratio.value.plain(), f"> {SLOW:g} x direct", truth)
        ratio = comparison.ratio("latency_rel", via, direct)
        if ratio.known:
            return ratio.above(SLOW)
    return Check("comparisons", None, f"> {SLOW:g} x direct", None)


def engine_requests_left(e: Evidence) -> Interval:
    """Requests past the proxy's queue, by Little's law, in a closed loop through it.

    Of `concurrency` requests, rate x (TTFT through the proxy - TTFT without it) wait in the
    proxy; the others are at the engine. `ANY` where a figure is not known.
    """
    for _, via, direct in _pairs(e):
        wanted, rate = via.number("concurrency"), via.number("client_requests_per_s")
        late, early = via.number("client_ttft_mean_s"), direct.number("client_ttft_mean_s")
        if all(quantity.known for quantity in (wanted, rate, late, early)):
            waiting = rate.value.times(late.value.minus(early.value).clipped(0.0, float("inf")))
            return wanted.value.minus(waiting).clipped(0.0, float("inf"))
    return ANY


def proxy_itl(e: Evidence) -> Ratio:
    """Time between tokens through the proxy over that without it.

    A cap makes the engine's batch smaller and tokens no slower; a full event loop delays each.
    """
    for comparison, via, direct in _pairs(e):
        for key in ("client_itl_mean_s", "itl_mean_s", "itl_p50_s", "itl_p99_s"):
            ratio = comparison.ratio(key, via, direct)
            if ratio.known:
                return ratio
    return Ratio("", Interval())


def proxy_loss(e: Evidence) -> Interval | None:
    """Share of the throughput that the proxy takes; None where no arms tell."""
    rate = _worst_rate(e)
    if not rate.known:
        return None
    left = rate.value.clipped(0.0, 1.0)
    return Interval(1.0 - left.high, 1.0 - left.low)


def _worst_rate(e: Evidence) -> Ratio:
    found = []
    for comparison, via, direct in _pairs(e):
        known = [comparison.ratio(key, via, direct) for key in RATES]
        found += [ratio for ratio in known if ratio.known][:1]
    return min(found, key=lambda ratio: ratio.value.middle, default=Ratio("", Interval()))
