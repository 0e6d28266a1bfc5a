"""Rules of the client's pool of connections."""

from __future__ import annotations

from math import inf

from mileage.doctor.arms import Comparison
from mileage.doctor.case import Case
from mileage.doctor.check import Check, both, either
from mileage.doctor.connection_pool import Pool, is_pool_size, pool_of, stops_at_pool, varies_pool
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import exactly
from mileage.doctor.opinion import Change, Opinion
from mileage.doctor.quantity import Quantity
from mileage.doctor.request_path import (
    at_the_engine,
    client_sees_more,
    direct_path,
    engine_slots,
    held_at_one_number,
    nothing_waits,
    open_loop,
    proxied_path,
    requests_wait,
    short_of,
)
from mileage.doctor.rule import Rule, rule

__all__ = ["RULES"]

CORE_BUSY = 0.85
"""Of one core: an event loop that is this busy has no time left when several answers come."""

FAR_SHORT = 0.7
"""Share of the wanted requests below which those in flight are not merely between two requests."""

SWEEP_GROWTH = 1.3
"""A load point with this many times the concurrency should have more requests in flight."""

BETTER = 1.15
"""Ratio of two throughputs that is no noise of one run of a benchmark each."""


@rule(
    "CLI001",
    cause="client_connection_limit",
    needs=(
        "concurrency",
        "client_requests_in_flight_max",
        "requests_running_max",
        "requests_running",
        "requests_waiting",
        "client.max_connections",
        "client.http_library",
        "comparisons",
        "logs",
    ),
    fires={
        "settings": {"client.http_library": "httpx", "client.max_connections": None},
        "workload": {"concurrency": 300},
        "signals": {"client_requests_in_flight_max": 100, "requests_waiting": 0},
    },
    clear={
        "settings": {"client.http_library": "httpx", "client.max_connections": 400},
        "workload": {"concurrency": 300},
        "signals": {"client_requests_in_flight_max": 300, "requests_waiting": 0},
    },
    silent={"signals": {"requests_running_max": 100}},
)
def client_pool_full(e: Evidence) -> Opinion:
    """The client's connection pool lets fewer requests out than it wants to have in flight.

    ## Why it costs money
    A GPU reads its weights once per step for all requests of the batch: a batch that a client
    keeps small costs nearly the same time and yields fewer tokens. The requests that wait do so
    in the client, where no metric of the server shows them.

    ## How it is told
    Requests in flight stop at the size of a pool (100 for aiohttp and httpx where nothing is
    set) while more are wanted and none waits at the engine. With requests that wait at the engine
    it is the engine's limit (`max_num_seqs_cap`); with a proxy on the way it may be the proxy's
    pool (`proxy_concurrency_cap`); a load tool whose process is out of CPU is
    `load_generator_bound`. A closed loop whose users are all in flight is at its limit by intent.

    ## What to do
    Raise the pool above the concurrency that is wanted: `aiohttp.TCPConnector(limit=...)`,
    `httpx.Limits(max_connections=...)`, `OpenAI(http_client=httpx.AsyncClient(limits=...))`; share
    one client object in the process, or start more client processes.

    ## Risk
    More requests at once may pass the limits of what lies between: a proxy's pool, a rate limit
    with 429, the server's file descriptors. If the engine then queues, latency rises and throughput
    does not: stop there. Retries of a larger pool hit an overloaded server all at once, so keep
    back-off with jitter.
    """
    case = Case()
    wanted, opened = e.number("concurrency"), e.number("client_requests_in_flight_max")
    running = at_the_engine(e)
    in_flight = opened if opened.known else running
    pool = pool_of(e, "client")
    waits, direct = nothing_waits(e), direct_path(e)
    few, stops = short_of(running, wanted), stops_at_pool(running, pool)
    case.shows(_opens_too_few(opened, wanted, pool), 3.6)
    case.shows(both(few, stops, direct, either(waits, _slots_left(e, running))), 2.6)
    case.shows(_pool_too_small(pool, wanted, in_flight), 3.2)
    case.shows(_full_and_idle(e, pool, in_flight, waits, direct), 2.4)
    case.shows(both(held_at_one_number(e), waits, direct, client_sees_more(e)), 3.4)
    case.shows(_larger_pool_helps(e), 4.0)
    case.shows(_flat_over_load(e), 3.2)
    case.shows(e.logged(r"PoolTimeout|connection pool (is )?(exhausted|timeout)"), 2.6)
    case.refutes(requests_wait(e))
    case.refutes(_all_in_flight(e, in_flight, wanted))
    case.refutes(_engine_is_full(e, running))
    case.refutes(both(open_loop(e), _not_full(pool, in_flight)))
    case.sign(is_pool_size(in_flight), yes=0.7, no=-0.4 if opened.known else -0.7)
    case.sign(_full(pool, in_flight), yes=1.2)
    case.sign(proxied_path(e), yes=0.0 if opened.known else -0.8)
    case.sign(e.number("client_process_cpu_ratio").any_above(CORE_BUSY), yes=-2.0, no=0.3)
    case.sign(e.number("frontend_process_cpu_ratio").any_above(CORE_BUSY), yes=-2.0)
    return case.opinion(
        advice=_pool_advice(in_flight, wanted),
        changes=_larger_pool(wanted, e),
    )


def _opens_too_few(opened: Quantity, wanted: Quantity, pool: Pool | None) -> Check:
    """Has the client fewer requests open than it wants: far fewer, or as many as a pool holds?"""
    few = both(short_of(opened, wanted), stops_at_pool(opened, pool))
    return either(few, short_of(opened, wanted, FAR_SHORT))


def _pool_too_small(pool: Pool | None, wanted: Quantity, in_flight: Quantity) -> Check:
    """By its settings the pool holds fewer than are wanted, and no more were seen in flight."""
    if pool is None or not pool.certain:
        return Check("client.max_connections", None, "< concurrency", None)
    unseen = Check(in_flight.key, None, "no more in flight than the pool holds", True)
    return both(pool.below(wanted), pool.full(in_flight) if in_flight.known else unseen)


def _full(pool: Pool | None, in_flight: Quantity) -> Check:
    if pool is None:
        return Check("client.max_connections", None, "its pool is full", None)
    return pool.full(in_flight)


def _not_full(pool: Pool | None, in_flight: Quantity) -> Check:
    full = _full(pool, in_flight)
    return Check(full.signal, full.value, "not known to be full", full.truth is not True)


def _full_and_idle(
    e: Evidence, pool: Pool | None, in_flight: Quantity, waits: Check, direct: Check
) -> Check:
    """The pool is full and the engine has slots left: more would run if they came."""
    room = _slots_left(e, in_flight)
    certain = None if pool is None or not pool.certain else True
    known = Check("client.max_connections", None, "its size is known", certain)
    return both(_full(pool, in_flight), known, waits, direct, room)


def _slots_left(e: Evidence, in_flight: Quantity) -> Check:
    """Has the engine slots for more than is in flight?"""
    slots = engine_slots(e)
    room = Check("max_num_seqs", None, "more slots than in flight", None)
    if slots is None or not in_flight.known:
        return room
    return Check("max_num_seqs", slots.plain(), room.limit, slots.exceeds(in_flight.total))


def _larger_pool_helps(e: Evidence) -> Check:
    """Arms that differ in the pool alone: the larger one has more in flight, or more done."""
    truth: bool | None = None
    shown: object = None
    for comparison in e.comparisons:
        if not varies_pool(comparison):
            continue
        for one, other in comparison.pairs():
            ratio = comparison.throughput(other, one)
            if not ratio.known:
                ratio = comparison.ratio("requests_running_max", other, one)
            if ratio.known:
                helps = either(ratio.at_least(BETTER), ratio.at_most(1 / BETTER)).truth
                truth, shown = (True, ratio.value.plain()) if helps else (truth, shown)
                truth = helps if truth is None else truth
    return Check("comparisons", shown, "another client pool changes the throughput", truth)


def _flat_over_load(e: Evidence) -> Check:
    """Load points: more is wanted, and in flight at client or engine stay the same."""
    waits, direct = nothing_waits(e), direct_path(e)
    for comparison in e.comparisons:
        if "concurrency" not in comparison.varied():
            continue
        for key in ("client_requests_in_flight_max", "requests_running_max", "requests_running"):
            truth = _stays(comparison, key)
            if truth is None:
                continue
            flat = Check(f"comparisons.{key}", None, "the same though more is wanted", truth)
            return flat if key.startswith("client") else both(flat, waits, direct)
    return Check("comparisons", None, "in flight stay the same though more is wanted", None)


def _stays(comparison: Comparison, key: str) -> bool | None:
    """Does the signal stay the same, below what is wanted, between the two heaviest points?"""
    arms = sorted(
        (arm for arm in comparison.arms if arm.number(key).known and arm.has(key)),
        key=lambda arm: arm.number("concurrency").value.middle,
    )
    if len(arms) < 2:
        return None
    low, high = arms[-2], arms[-1]
    wanted = comparison.ratio("concurrency", high, low).at_least(SWEEP_GROWTH).truth
    if not wanted:
        return None
    waiting = high.number("requests_waiting")
    if waiting.known and waiting.total.at_least(1):
        return False
    grown = comparison.ratio(key, high, low).above(1.05).truth
    short = short_of(high.number(key), high.number("concurrency")).truth
    if grown is None or short is None:
        return None
    return short and not grown


def _all_in_flight(e: Evidence, in_flight: Quantity, wanted: Quantity) -> Check:
    """All that are wanted are in flight, or all that there are."""
    requests = e.number("num_requests")
    short = short_of(in_flight, wanted)
    if requests.known and in_flight.known and requests.value.at_most(in_flight.total.high * 1.05):
        return Check("num_requests", requests.plain(), "all of them in flight", True)
    return short.negated().said("all that are wanted are in flight")


def _engine_is_full(e: Evidence, running: Quantity) -> Check:
    """Do as many run as the engine has slots, so that others may wait there?"""
    slots = engine_slots(e)
    truth: bool | None = None
    if slots is not None and running.known and nothing_waits(e).truth is not True:
        truth = running.total.at_least(slots.high * 0.98)
    return Check(running.key, running.plain(), "all slots of the engine run", truth)


def _larger_pool(wanted: Quantity, e: Evidence) -> tuple[Change, ...]:
    processes = e.number("client.processes")
    share = wanted.value.over(processes.value if processes.known else exactly(1))
    if not share.exact or not 0 < share.low < inf:
        return ()
    return (Change("client.max_connections", int(-(-share.low // 1))),)


def _pool_advice(in_flight: Quantity, wanted: Quantity) -> str:
    if not in_flight.known or not wanted.known:
        return ""
    return (
        f"{in_flight.total.shown()} requests are in flight and {wanted.total.shown()} are wanted: "
        "raise the connection limit of the client's HTTP library, or use more client processes."
    )


RULES: tuple[Rule, ...] = (client_pool_full,)
"""Rules of this family."""
