"""The way of a request: is a proxy on it, and how many requests get through to the engine?"""

from __future__ import annotations

from collections.abc import Sequence

from mileage.doctor.arms import Arm
from mileage.doctor.check import Check, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.quantity import Quantity

__all__ = [
    "at_the_engine",
    "client_sees_more",
    "direct_path",
    "engine_slots",
    "first_known",
    "held_at_one_number",
    "nothing_waits",
    "open_loop",
    "proxied_path",
    "requests_wait",
    "short_of",
]

PROXY_SETTINGS = (
    *("proxy.kind", "proxy.workers", "proxy.max_parallel_requests", "proxy.version"),
    *("proxy.max_connections", "proxy.http_library", "proxy.cpus", "proxy.replicas"),
    *("proxy_requests_in_flight_max", "proxy_process_cpu_ratio"),
)
"""Each of them can be known only where there is a proxy."""

WAITING_NOISE = 0.02
"""Share of the running requests that may wait without a queue: a request that arrives during a
step is counted as waiting until the next one."""

SERIES_MIN = 3
"""Readings from which "it stays the same" says something."""

HELD = 0.9
"""Smallest over largest reading of a number that is held: a reading may miss a request or two."""

SHORT = 0.95
"""Requests in flight below this share of those wanted are short of it: a closed loop keeps all
its users' requests in flight, but for those between two requests."""

CLIENT_OVER_SERVER = 1.5
"""Client's latency over the server's own that a network path does not explain."""

NETWORK_S = 0.05
"""A long round trip: what the client may see on top of the server's own time without a fault."""


def proxied_path(e: Evidence) -> Check:
    """Is there a proxy, router or gateway between client and engine?"""
    hops = e.words("topology.proxies")
    if hops is not None:
        return Check("topology.proxies", list(hops), "a proxy on the way", bool(hops))
    for key in PROXY_SETTINGS:
        if e.known(key):
            shown = e.text(key) or e.number(key).plain()
            return Check(key, shown, "a proxy on the way", True)
    return Check("topology.proxies", None, "a proxy on the way", None)


def direct_path(e: Evidence) -> Check:
    """Is there no proxy on the way, as far as is known?"""
    proxied = proxied_path(e)
    return Check(proxied.signal, proxied.value, "no proxy on the way", not proxied.truth)


def first_known(e: Evidence | Arm, keys: Sequence[str]) -> Quantity:
    """The first of the numbers that is known; the first of all where none is."""
    found = [e.number(key) for key in keys]
    return next((quantity for quantity in found if quantity.known), found[0])


def at_the_engine(e: Evidence) -> Quantity:
    """The most requests that ran at once, in all replicas.

    One number beside several replicas or ranks may be of one of them: it is then a bound.
    """
    running = first_known(e, ("requests_running_max", "requests_running"))
    if not running.known or running.units:
        return running
    copies = exactly(1.0)
    for key in ("topology.replicas", "data_parallel_size"):
        number = e.number(key)
        copies = copies.times(number.value) if number.known else copies
    if copies.high <= 1.0:
        return running
    most = running.most
    return Quantity(
        running.key, running.unit, "one", (Interval(most.low, most.high * copies.high),)
    )


def nothing_waits(e: Evidence) -> Check:
    """Does no request wait at the engine?"""
    waiting = e.number("requests_waiting")
    running = first_known(e, ("requests_running_max", "requests_running"))
    noise = max(0.5, WAITING_NOISE * running.total.low) if running.known else 0.5
    truth = waiting.total.below(noise) if waiting.known else None
    return Check("requests_waiting", waiting.plain(), "none waits", truth)


def open_loop(e: Evidence) -> Check:
    """Do requests come at times of their own, so that concurrency is a limit and no demand?"""
    return e.is_one_of("arrivals", "poisson", "steady", "bursty")


def requests_wait(e: Evidence) -> Check:
    """Do requests wait at the engine?"""
    return nothing_waits(e).negated().said("requests wait at the engine")


def engine_slots(e: Evidence) -> Interval | None:
    """Requests that the engine would run at once: `max_num_seqs` of all replicas and ranks."""
    slots = e.number("max_num_seqs")
    if not slots.known:
        return None
    copies = exactly(1)
    for key in ("data_parallel_size", "topology.replicas"):
        number = e.number(key)
        copies = copies.times(number.value) if number.known else copies
    return slots.value.times(copies)


def held_at_one_number(e: Evidence) -> Check:
    """Does the number of running requests stay the same over time, as behind a full pool?"""
    running = e.number("requests_running")
    truth: bool | None = None
    if len(running.series) >= SERIES_MIN:
        truth = running.least.low >= HELD * running.most.high > 0
    return Check(running.key, running.plain(), "held at one number", truth)


def short_of(in_flight: Quantity, wanted: Quantity, share: float = SHORT) -> Check:
    """Are fewer requests in flight than `share` of those that are wanted?"""
    truth: bool | None = None
    if in_flight.known and wanted.known:
        truth = wanted.total.times(exactly(share)).exceeds(in_flight.total)
    shown = wanted.value.shown() if wanted.known else "unknown"
    return Check(in_flight.key, in_flight.plain(), f"< {wanted.key} ({shown})", truth)


def client_sees_more(e: Evidence) -> Check:
    """Is the client's latency far above the server's own, now or in an arm of a comparison?"""
    sources: list[Evidence | Arm] = [e]
    sources += [arm for comparison in e.comparisons for arm in comparison.arms]
    return either(*(_sees_more(source) for source in sources))


def _sees_more(e: Evidence | Arm) -> Check:
    return either(
        *(
            _more(e, f"client_{name}_mean_s", tuple(f"{name}_{form}_s" for form in forms))
            for name, forms in (
                ("ttft", ("mean", "p50", "p90", "p99")),
                ("itl", ("mean", "p50", "p90", "p99")),
                ("e2e", ("mean", "p50", "p90", "p99")),
            )
        )
    )


def _more(e: Evidence | Arm, client_key: str, server_keys: tuple[str, ...]) -> Check:
    client, server = e.number(client_key), first_known(e, server_keys)
    truth: bool | None = None
    if client.known and server.known:
        floor = 0.0 if "itl" in client_key else NETWORK_S
        allowed = server.value.times(exactly(CLIENT_OVER_SERVER)).plus(exactly(floor))
        truth = client.value.exceeds(allowed)
    limit = f"> {CLIENT_OVER_SERVER:g} x {server.key} ({server.value.shown()})"
    return Check(client_key, client.plain(), limit, truth)
