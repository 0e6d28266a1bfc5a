"""Rules of the host's memory."""

from __future__ import annotations

from itertools import pairwise

from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

GROWTH_MIN_GB_PER_H = 0.005
"""Growth below 5 MB an hour is a tenth of a gigabyte a day: allocators drift by as much, and any
roll-out ends it."""

SETTLED_S = 3600.0
"""Age from which caches and pools that fill at first are full."""

RISE_MIN = 0.05
"""Rise over the first value from which a series rises at all."""

RISE_FAR = 1.2
"""Rise over the first value that needs no third value to be believed."""

STEPS_UP = 0.75
"""Share of steps that go up where memory leaks; garbage collection takes some back."""

SECOND_HALF = 0.25
"""Share of the rise that falls into the second half: where memory only fills a cache the curve
bends and the second half adds little."""

KILLED_LOGGED = r"out of memory: killed process|oomkilled|memory cgroup out of memory"


@rule(
    "LEAK001",
    cause="host_memory_leak",
    needs=("host_rss_growth_gb_per_h", "host_rss_gb", "process_uptime_s", "logs"),
    fires={
        "engine": {"name": "vllm", "version": "0.11.0"},
        "signals": {"host_rss_growth_gb_per_h": 0.6, "process_uptime_s": 86400},
    },
    clear={"signals": {"host_rss_growth_gb_per_h": 0, "process_uptime_s": 86400}},
    silent={"signals": {"host_rss_gb": 41, "process_uptime_s": 86400}},
)
def memory_grows(e: Evidence) -> Opinion:
    """The serving processes' memory on the host grows without bound.

    ## Why it costs money
    The process slows down as it swaps or collects garbage, and in the end the kernel kills it:
    requests in flight are lost, and a start of minutes is paid for with an idle card.

    ## How it is told
    Resident memory that keeps rising for hours at a steady load. A rise right after the start
    that bends and ends is caches that fill (prefix offload, adapters, media); one that follows a
    rising load is work. Device memory that runs out is `oom_memory_headroom`.

    ## What to do
    Upgrade the engine, and turn off caches on the host one by one to find which grows (media
    processor cache, `--swap-space`, KV offload, statistics per request). Until then set a memory
    limit with a margin and restart replicas in turn before they reach it; `MALLOC_ARENA_MAX=2`
    or jemalloc where fragmentation is the cause.

    ## Risk
    Restarting replicas in turn loses each one's KV cache and adds cold seconds, so one more replica
    than the load needs must be there. A memory limit that is set too tight kills the engine in the
    middle of requests; an upgrade may change defaults beside the leak.
    """
    case = Case()
    growth, uptime = e.number("host_rss_growth_gb_per_h"), e.number("process_uptime_s")
    rss, killed = e.number("host_rss_gb"), e.logged(KILLED_LOGGED)
    grows, settled = growth.any_above(GROWTH_MIN_GB_PER_H), uptime.at_least(SETTLED_S)
    rises = _rises(rss, uptime)
    case.shows(either(grows, rises, _arm_grows(e), _later_arm_larger(e)), 2.8)
    case.shows(both(killed, e.number("process_restarts_count").above(0.0), rises), 1.0)
    case.sign(both(either(grows, rises), settled), yes=1.0)
    case.sign(both(grows, uptime.below(SETTLED_S)), yes=-2.0)
    case.sign(both(grows, killed), yes=1.5)
    case.sign(both(grows, _material(growth, rss)), yes=0.5)
    case.sign(_load_rises(e), yes=-2.0)
    case.refutes(growth.where("steady", lambda slope: slope.at_most(GROWTH_MIN_GB_PER_H)))
    case.refutes(rises.negated())
    lost = killed.truth is True
    return case.opinion(
        "critical" if lost else "warning",
        advice=_advice(growth, rss),
    )


def _rises(rss: Quantity, uptime: Quantity) -> Check:
    """Does the series rise in most of its steps, and still in its second half?

    Three values are the least that can tell a bend from a slope.
    """
    parts = rss.series
    truth: bool | None = None
    times = [time for time in rss.times_s if time is not None]
    hours = len(times) < 2 or times[-1] - times[0] >= SETTLED_S
    if len(parts) >= 2 and not (len(parts) >= 3 and all(part.exact for part in parts)):
        # Two values, or bounds, cannot show a bend: they have to lie far apart, and long.
        apart = parts[-1].exceeds(parts[0].times(Interval(RISE_FAR, RISE_FAR)))
        long = hours and (len(times) >= 2 or uptime.at_least(SETTLED_S).truth is True)
        truth = True if apart and long else None
    elif len(parts) >= 3 and all(part.exact for part in parts):
        values = [part.low for part in parts]
        steps = [after - before for before, after in pairwise(values)]
        rise = values[-1] - values[0]
        late = values[-1] - values[len(values) // 2]
        ups = sum(step > 0 for step in steps) / len(steps)
        enough = values[0] > 0 and rise >= RISE_MIN * values[0]
        if enough and ups >= STEPS_UP and late >= SECOND_HALF * rise:
            truth = True if hours else None
        else:
            truth = False
    return Check(rss.key, rss.plain() if parts else None, "keeps rising", truth)


def _arm_grows(e: Evidence) -> Check:
    """Does one arm's memory grow, where the deployment as such says nothing of it?"""
    key = "host_rss_growth_gb_per_h"
    if not e.known(key):
        for comparison in e.comparisons:
            for arm in comparison.arms:
                slope = arm.number(key)
                if slope.any_above(GROWTH_MIN_GB_PER_H).truth:
                    return Check(f"comparisons.{key}", slope.plain(), "grows", truth=True)
    return Check("comparisons", None, "grows", None)


def _later_arm_larger(e: Evidence) -> Check:
    """Is the process far larger in a later arm of the same setup?"""
    for comparison in e.comparisons:
        ratio = comparison.ratio("host_rss_gb", comparison.last, comparison.first)
        if (
            ratio.known
            and not comparison.varied()
            and comparison.restarted_between_arms is not True
        ):
            return ratio.above(RISE_FAR)
    return Check("comparisons", None, "larger later", None)


def _material(growth: Quantity, rss: Quantity) -> Check:
    """Does a day of it add a tenth to the process?"""
    truth = None
    if growth.known and rss.known and growth.value.low > 0:
        truth = growth.value.times(Interval(24.0, 24.0)).over(rss.value).at_least(0.1)
    return Check(growth.key, growth.plain(), "a tenth of host_rss_gb in a day", truth)


def _load_rises(e: Evidence) -> Check:
    """Does the load rise over the same time by a half?"""
    asked = []
    for key in ("requests_running", "requests_per_s", "requests_per_s_arriving"):
        load = e.number(key)
        if load.series:
            before, after = load.series[0], load.series[-1]
            truth = after.exceeds(before.times(Interval(1.5, 1.5)))
            asked.append(Check(key, load.plain(), "rises by half", truth))
    return either(*asked) if asked else Check("requests_running", None, "rises by half", None)


def _advice(growth: Quantity, rss: Quantity) -> str:
    said = "Upgrade the engine or switch off host caches one by one; restart replicas in turn"
    if growth.known and growth.value.exact and growth.value.low > 0:
        doubled = f"; {growth.value.shown()} GB are added per hour"
        if rss.known and rss.value.exact:
            doubled += f", as much as now in {rss.value.low / growth.value.low:.3g} h"
        said += doubled
    return f"{said}."


RULES: tuple[Rule, ...] = (memory_grows,)
"""Rules of this family."""
