"""Connection pools: how many requests a client or a proxy can have open at once."""

from __future__ import annotations

from math import log2
from typing import Literal

import msgspec

from mileage.doctor.arms import Comparison
from mileage.doctor.check import Check, either
from mileage.doctor.evidence import Evidence
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.quantity import Quantity

__all__ = ["Pool", "is_pool_size", "pool_default", "pool_of", "stops_at_pool", "varies_pool"]

POOL_DEFAULTS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("openai", "anthropic"), 1000),
    (("aiohttp",), 100),
    (("httpx", "httpcore"), 100),
    (("okhttp",), 64),
    (("apache", "httpclient5", "httpclient4"), 25),
    (("reactor", "webclient"), 500),
    (("anyio", "starlette", "fastapi"), 40),
)
"""Library -> connections that its pool opens if nothing is set; more requests wait for one.

aiohttp `TCPConnector(limit=100)`, httpx `Limits(max_connections=100)`, the SDKs of OpenAI and
Anthropic 1000, OkHttp's dispatcher 64, Apache HttpClient 25, Reactor Netty 500, AnyIO's threads
for synchronous handlers 40. Libraries whose pool only keeps connections and opens as many as are
asked for (requests and urllib3, Go's net/http, curl, reqwest, Node) cap nothing, and are not here.
"""

COMMON_DEFAULT = 100
"""Of aiohttp and httpx, on which nearly all Python clients and load tools are built."""

AT_CAP = Interval(0.95, 1.01)
"""In flight over the pool's size where the pool is full: a gauge read every few seconds misses a
request or two that has just been replaced."""

SMALL_POOL = 10
"""Below ten nearly every number is a round one: it says nothing."""


class Pool(msgspec.Struct, frozen=True):
    """`size` of the pool, all processes together."""

    size: Interval
    certain: bool
    """It is set, or known to be not set with a library whose default is known."""
    said: str

    def full(self, in_flight: Quantity) -> Check:
        """Are as many requests in flight as the pool has connections?"""
        value = in_flight.total
        truth: bool | None = None
        if in_flight.known:
            low, high = self.size.low * AT_CAP.low, self.size.high * AT_CAP.high
            if value.low >= low and value.high <= high:
                truth = True
            elif value.low > high or value.high < low:
                truth = False
        return Check(in_flight.key, in_flight.plain(), f"at the pool of {self.said}", truth)

    def below(self, wanted: Quantity) -> Check:
        """Is the pool smaller than what is wanted?"""
        truth = wanted.total.exceeds(self.size) if wanted.known else None
        return Check(wanted.key, wanted.plain(), f"> the pool of {self.said}", truth)


def pool_of(e: Evidence, side: Literal["client", "proxy"]) -> Pool | None:
    """The pool of the client, or of the proxy towards the engine; None where nothing tells it."""
    stated = e.number(f"{side}.max_connections")
    copies = _copies(e, side)
    if stated.known:
        size = stated.value.times(copies)
        return Pool(size, True, f"{size.shown()} connections")
    library = e.text(f"{side}.http_library")
    said = library or e.text("client.tool" if side == "client" else "proxy.kind")
    default = pool_default(said)
    if default is None:
        return None
    size = exactly(default).times(copies)
    certain = stated.unset and library is not None
    return Pool(size, certain, f"{size.shown()} connections ({said}'s default)")


def pool_default(library: str | None) -> int | None:
    """The pool size of a library where none is set; None where it has none or is not known."""
    if library is None:
        return None
    return next(
        (size for names, size in POOL_DEFAULTS if any(name in library for name in names)), None
    )


def stops_at_pool(in_flight: Quantity, pool: Pool | None) -> Check:
    """Do requests in flight stop at the size of the pool, or of a usual one?

    A mean of a gauge is a round number by chance as well: it must be that of the pool, or the
    default of the libraries that most clients are written with.
    """
    full = Check(in_flight.key, in_flight.plain(), "at the size of the pool", None)
    if pool is not None:
        full = pool.full(in_flight)
    if in_flight.key != "requests_running":
        return either(full, is_pool_size(in_flight))
    common = Pool(exactly(COMMON_DEFAULT), False, f"{COMMON_DEFAULT} connections")
    return either(full, common.full(in_flight) if in_flight.value.exact else full)


def varies_pool(comparison: Comparison) -> bool:
    """Do the arms differ in the size of the client's pool alone, by setting or by library?"""
    if not comparison.varies_only("client.max_connections", "client.http_library"):
        return False
    if "client.max_connections" in comparison.varied():
        return True
    defaults = {pool_default(arm.get("client.http_library")) for arm in comparison.arms}
    return len(defaults) > 1


def is_pool_size(in_flight: Quantity) -> Check:
    """Is it a number that people and libraries choose for a pool (50, 64, 100, 256, 500)?"""
    value = in_flight.total
    truth: bool | None = None
    if in_flight.known and value.exact:
        count = value.low
        truth = count >= SMALL_POOL and (_power_of_two(count) or _round(count))
    return Check(in_flight.key, in_flight.plain(), "a usual pool size", truth)


def _copies(e: Evidence, side: str) -> Interval:
    """Pools side by side: one in each process."""
    if side == "client":
        processes = e.number("client.processes")
        return processes.value if processes.known else exactly(1)
    workers, replicas = e.number("proxy.workers"), e.number("proxy.replicas")
    count = workers.value if workers.known else exactly(1)
    return count.times(replicas.value) if replicas.known else count


def _power_of_two(count: float) -> bool:
    return log2(count).is_integer()


def _round(count: float) -> bool:
    while count >= 100 and count % 10 == 0:
        count /= 10
    return count in (10, 15, 20, 25, 30, 40, 50, 60, 80)
