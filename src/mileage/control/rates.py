"""TenantGate: rates and concurrency of each tenant, held to at arrival."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from mileage.core.bounds import require_up_to
from mileage.core.request import Request
from mileage.policy.tenants import TenantLimits

__all__ = ["GateRefusal", "RateState", "TenantGate", "TenantRates"]

_MINUTE_S = 60.0
_LATE_S = 1.0
"""Events may be told this late, with times before the latest; a clock further back has jumped."""
_ROUNDING = 1e-6
"""What sums of floats may be off: who waits as long as told is admitted."""
_CONCURRENCY_RETRY_S = 1.0
"""When one of the tenant's requests ends is not known."""
_NO_LIMITS = TenantLimits()


class GateRefusal(msgspec.Struct, frozen=True, gc=False):
    """The tenant's own limit refuses the request; `retry_after_s` is when it would be admitted,
    were it alone. `detail` is for people, with the figures."""

    reason: Literal["rate_limited", "concurrency_limited"]
    retry_after_s: float
    detail: str


class RateState(msgspec.Struct, frozen=True, gc=False):
    """One rate as a client may know it: `limit` of the whole gateway per minute, `remaining` of
    this process's share, and the seconds until that is whole again."""

    limit: int
    remaining: int
    reset_s: float


class TenantRates(msgspec.Struct, frozen=True, gc=False):
    """The rates of one tenant; None where it has none."""

    requests: RateState | None
    tokens: RateState | None


class _Bucket:
    """A token bucket that holds a minute's worth, full at first; its level may be negative.

    What is larger than the bucket may go when the bucket is full, and leaves a debt: it could not
    go ever otherwise, and the average holds all the same.
    """

    __slots__ = ("_updated_s", "capacity", "level", "per_min", "per_s")

    def __init__(self, per_min: float, ratio: float) -> None:
        self.per_min = per_min
        self._updated_s: float | None = None
        self.capacity = self.level = per_min * ratio
        self.per_s = self.capacity / _MINUTE_S

    def fill(self, now_s: float) -> None:
        updated_s = self._updated_s
        if updated_s is None or updated_s - now_s > _LATE_S:
            self._updated_s = now_s
        elif now_s > updated_s:
            self.level = min(self.capacity, self.level + (now_s - updated_s) * self.per_s)
            self._updated_s = now_s

    def wait_s(self, amount: float) -> float:
        """Seconds until `amount` may be taken; 0 where it may be now. The bucket is filled."""
        missing = min(amount, self.capacity) - self.level
        return missing / self.per_s if missing > _ROUNDING else 0.0

    def resize(self, per_min: float, ratio: float, now_s: float) -> None:
        """Another rate or share: what is in it stays as far as it fits, and so does a debt."""
        self.fill(now_s)
        self.per_min, self.capacity = per_min, per_min * ratio
        self.per_s = self.capacity / _MINUTE_S
        self.level = min(self.level, self.capacity)

    def state(self, now_s: float) -> RateState:
        self.fill(now_s)
        reset_s = (self.capacity - self.level) / self.per_s
        return RateState(math.floor(self.per_min), max(0, math.floor(self.level)), reset_s)


class _Entry:
    """One tenant: what is in flight is counted also without limits, for a reload may bring some."""

    __slots__ = ("concurrency", "in_flight", "limited", "limits", "requests", "tokens")

    def __init__(self, limits: TenantLimits, ratio: float) -> None:
        self.in_flight = 0
        self.requests: _Bucket | None = None
        self.tokens: _Bucket | None = None
        self.configure(limits, ratio, 0.0)

    def configure(self, limits: TenantLimits, ratio: float, now_s: float) -> None:
        self.limits = limits
        self.requests = _resized(self.requests, limits.requests_per_min, ratio, now_s)
        self.tokens = _resized(self.tokens, limits.tokens_per_min, ratio, now_s)
        most = limits.concurrency_max
        self.concurrency = None if most is None else max(1, math.floor(most * ratio + 1e-9))
        self.limited = not (most is None and self.requests is None and self.tokens is None)


def _resized(
    bucket: _Bucket | None, per_min: float | None, ratio: float, now_s: float
) -> _Bucket | None:
    if per_min is None:
        return None
    if bucket is None:
        return _Bucket(per_min, ratio)
    bucket.resize(per_min, ratio, now_s)
    return bucket


class TenantGate:
    """Admits requests by the rates and the concurrency of their tenants.

    Of each request that was admitted `ended` is to be told exactly once. A tenant without limits
    costs one look-up. Clocks that jump are harmless: one that leaps ahead fills the buckets, one
    that falls back lets them go on from where they are.
    """

    def __init__(self, tenants: Mapping[str, TenantLimits]) -> None:
        self._ratio = 1.0
        self._tenants = dict(tenants)
        self._entries = {name: _Entry(limits, 1.0) for name, limits in tenants.items()}

    def admit(self, request: Request, tokens: int, now_s: float) -> GateRefusal | None:
        """Count the request in, and take `tokens`, what it may use, out of its tenant's rate.

        None where it may go on; a refusal has taken nothing.
        """
        entry = self._entries.get(request.tenant)
        if entry is None:
            entry = self._entries[request.tenant] = _Entry(_NO_LIMITS, self._ratio)
        if entry.limited:
            refusal = self._refusal(entry, request.tenant, tokens, now_s)
            if refusal is not None:
                return refusal
            if entry.requests is not None:
                entry.requests.level -= 1.0
            if entry.tokens is not None:
                entry.tokens.level -= tokens
        entry.in_flight += 1
        return None

    def refuses(self, tenant: str, now_s: float) -> bool:
        """Whether it would refuse even the least request of the tenant; takes nothing."""
        entry = self._entries.get(tenant)
        if entry is None or not entry.limited:
            return False
        return self._refusal(entry, tenant, 1, now_s) is not None

    def ended(
        self, tenant: str, reserved_tokens: int, used_tokens: int | None, now_s: float
    ) -> None:
        """A request that was admitted with `reserved_tokens` is over; None: what it used is not
        known, and what was reserved stays taken."""
        entry = self._entries.get(tenant)
        if entry is None:
            return
        entry.in_flight = max(0, entry.in_flight - 1)
        bucket = entry.tokens
        if bucket is not None and used_tokens is not None:
            bucket.fill(now_s)
            bucket.level = min(bucket.capacity, bucket.level + reserved_tokens - used_tokens)
        if not entry.in_flight and tenant not in self._tenants:
            del self._entries[tenant]

    def in_flight(self, tenant: str) -> int:
        """Requests of the tenant that were admitted and have not ended."""
        entry = self._entries.get(tenant)
        return 0 if entry is None else entry.in_flight

    def reconfigure(self, tenants: Mapping[str, TenantLimits], now_s: float) -> None:
        """Other limits from now on; what is left in the buckets stays, requests stay counted."""
        self._tenants = dict(tenants)
        for name, entry in list(self._entries.items()):
            if name not in tenants and not entry.in_flight:
                del self._entries[name]
            else:
                entry.configure(tenants.get(name, _NO_LIMITS), self._ratio, now_s)
        for name, limits in tenants.items():
            if name not in self._entries:
                self._entries[name] = _Entry(limits, self._ratio)

    def share(self, ratio: float, now_s: float) -> None:
        """This process may use `ratio` of every limit: it is one of several.

        Of a concurrency it may use one at least, as it could serve the tenant never otherwise.
        """
        require_up_to("ratio", ratio, 1.0)
        self._ratio = ratio
        for entry in self._entries.values():
            entry.configure(entry.limits, ratio, now_s)

    def rates(self, tenant: str, now_s: float) -> TenantRates | None:
        """How the tenant's rates stand; None where it has none."""
        entry = self._entries.get(tenant)
        if entry is None or (entry.requests is None and entry.tokens is None):
            return None
        return TenantRates(
            None if entry.requests is None else entry.requests.state(now_s),
            None if entry.tokens is None else entry.tokens.state(now_s),
        )

    def _refusal(self, entry: _Entry, tenant: str, tokens: int, now_s: float) -> GateRefusal | None:
        most = entry.concurrency
        if most is not None and entry.in_flight >= most:
            detail = (
                f"tenant '{tenant}' has {entry.in_flight} requests in the gateway; "
                f"it may have {_of_all(entry.limits.concurrency_max, most)} at once"
            )
            return GateRefusal("concurrency_limited", _CONCURRENCY_RETRY_S, detail)
        wait_s, bucket, amount, unit = 0.0, entry.requests, 1.0, "requests"
        if bucket is not None:
            bucket.fill(now_s)
            wait_s = bucket.wait_s(1.0)
        if entry.tokens is not None:
            entry.tokens.fill(now_s)
            wait_tokens_s = entry.tokens.wait_s(tokens)
            if wait_tokens_s > wait_s:
                wait_s, bucket, amount, unit = wait_tokens_s, entry.tokens, tokens, "tokens"
        if not wait_s or bucket is None:
            return None
        detail = (
            f"tenant '{tenant}' may use {_of_all(bucket.per_min, bucket.capacity)} {unit} per "
            f"minute: {max(0, math.floor(bucket.level))} are left, this request needs {amount:.10g}"
        )
        return GateRefusal("rate_limited", wait_s, detail)


def _of_all(limit: float | None, share: float) -> str:
    if limit is None or share >= limit:
        return f"{share:.10g}"
    return f"{limit:.10g} (this worker's share: {share:.10g})"
