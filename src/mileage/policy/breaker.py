"""Circuit breaker: when a failing replica is left alone, and when it is tried again."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least, require_up_to

__all__ = ["Breaker", "BreakerConfig", "BreakerState"]

BreakerState = Literal["closed", "open", "half_open"]


class BreakerConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[breaker]`."""

    failures_max: int = 5
    """Failures in a row that open the breaker."""
    open_s: float = 1.0
    """First time it stays open; doubles with each failed probe."""
    open_max_s: float = 30.0
    """The longest time it stays open."""

    def __post_init__(self) -> None:
        require_at_least("breaker.failures_max", self.failures_max, 1)
        require_up_to("breaker.open_s", self.open_s, self.open_max_s)


class Breaker:
    """Opens after `failures_max` failures in a row; later lets one probe through at a time.

    Every attempt carries the ticket that `admit` gave. Opening makes all older tickets void, so
    that what was sent before the replica was found broken, and settles long after, neither closes
    the breaker nor opens it again.

    A probe's first token closes the breaker *on trial*: waiting for its last token would keep the
    replica shut for a whole generation. On trial one failure opens it again, for twice as long, so
    a replica that breaks every stream half-way is not taken for healthy; the first answer that is
    complete ends the trial. `failures` is 0 exactly when there is nothing to heal, so that a caller
    can skip `succeeded` for it.

    The methods that report what happened return whether `admits` has changed.
    """

    __slots__ = (
        "_open_s",
        "_probing",
        "config",
        "failures",
        "retry_at_s",
        "state",
        "ticket",
    )

    def __init__(self, config: BreakerConfig) -> None:
        self.config = config
        """May be replaced; the state stays."""
        self._open_s = config.open_s
        self._probing = False
        self.failures = 0
        self.retry_at_s = math.inf
        """When an open breaker becomes half-open; infinite unless it is open."""
        self.state: BreakerState = "closed"
        self.ticket = 0

    @property
    def admits(self) -> bool:
        """Whether a request may be sent now."""
        return self.state == "closed" or (self.state == "half_open" and not self._probing)

    def tick(self, now_s: float) -> bool:
        """Become half-open when the time has come."""
        if self.state != "open" or now_s < self.retry_at_s:
            return False
        self.state = "half_open"
        self.retry_at_s = math.inf
        return True

    def admit(self) -> int:
        """The ticket for one attempt; call only when `admits`. Half-open, it is the only one."""
        assert self.admits, f"a breaker that is {self.state} admits nothing"
        self._probing = self.state == "half_open"
        return self.ticket

    def first_token(self, ticket: int) -> bool:
        """The attempt was answered: a probe's answer closes the breaker on trial."""
        if ticket != self.ticket or self.state != "half_open":
            return False
        self.state = "closed"
        self._probing = False
        self.failures = self.config.failures_max
        return True

    def succeeded(self, ticket: int) -> bool:
        """The attempt's answer is complete."""
        if ticket != self.ticket:
            return False
        changed = self.state != "closed"
        self.state = "closed"
        self._probing = False
        self.failures = 0
        self._open_s = self.config.open_s
        return changed

    def failed(self, ticket: int, now_s: float) -> bool:
        """The attempt failed."""
        if ticket != self.ticket:
            return False
        self.failures += 1
        if self.state == "closed" and self.failures < self.config.failures_max:
            return False
        if self.state == "half_open" or self.failures > self.config.failures_max:
            self._open_s = min(2 * self._open_s, self.config.open_max_s)
        self.failures = self.config.failures_max
        self.state = "open"
        self._probing = False
        self.retry_at_s = now_s + self._open_s
        self.ticket += 1
        return True

    def released(self, ticket: int) -> bool:
        """The attempt ended and says nothing about the replica: a probe's slot is free again."""
        if ticket != self.ticket or not self._probing:
            return False
        self._probing = False
        return True

    def reset(self) -> bool:
        """The replica was replaced or restarted: start afresh; what was sent before is void."""
        changed = not self.admits
        self.state = "closed"
        self.failures = 0
        self._open_s = self.config.open_s
        self._probing = False
        self.retry_at_s = math.inf
        self.ticket += 1
        return changed
