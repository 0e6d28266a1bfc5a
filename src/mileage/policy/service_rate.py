"""Service rates: how fast the replicas of a fleet serve one request, and how much at once."""

from __future__ import annotations

__all__ = ["FleetRates", "ServiceRate"]

_PARALLEL_ASSUMED = 8.0
_SPEED_ASSUMED = 50.0
_WORK_ASSUMED_TOKENS = 200.0
_GAIN = 0.3
_ALONE_MAX = 2.0
_SPEED_DECAY = 0.01


class ServiceRate:
    """What one replica showed, by Little's law: tokens per second = in flight * speed of each.

    `speed` is what a request gets when nothing slows it down, `rate` the most that the replica gave
    in all: both in tokens of a request alone (see `ReplicaLoad`) per second, and None until seen.
    While requests are not slowed down, the throughput is only what was asked for: it may raise
    `rate` and never lowers it. Once each gets less than half of `speed`, or the engine says that
    requests wait, throughput is capacity: the replica is `saturated`, `rate` follows both ways.
    """

    __slots__ = ("free_s", "rate", "running_max", "s_per_token", "saturated", "speed")

    def __init__(self) -> None:
        self.speed: float | None = None
        self.rate: float | None = None
        self.saturated = False
        self.running_max: int | None = None
        """Requests that the engine runs at once, where it tells."""
        self.s_per_token = 0.0
        """Seconds that one token of work in flight keeps the replica busy."""
        self.free_s = 0.0
        """Seconds of work in flight that keep nobody waiting: below that there is room."""

    def forget(self) -> None:
        """Start afresh: behind the name there may be another engine now."""
        self.speed = self.rate = None
        self.saturated = False

    def sample(self, in_flight: float, speed: float, *, queueing: bool) -> None:
        """Learn from a while with `in_flight` requests (mean) that got `speed` tokens/s each."""
        if in_flight <= 0 or speed <= 0:
            return
        if self.speed is None:
            self.speed = speed
        elif speed > self.speed or in_flight < _ALONE_MAX:
            self.speed += _GAIN * (speed - self.speed)
        else:
            # What is slow in company may have become slow alone: forget the old speed in time.
            self.speed += _SPEED_DECAY * (speed - self.speed)
        rate = in_flight * speed
        full = queueing or (in_flight >= _ALONE_MAX and speed < self.speed / 2)
        if self.rate is None:
            self.rate = rate
        elif full or rate > self.rate:
            self.rate += _GAIN * (rate - self.rate)
        self.saturated = self.saturated or full


class FleetRates:
    """What the replicas' figures say about those that have not shown theirs.

    A replica that was never full is not taken for weak because it was asked for little: router and
    estimate would then confirm each other, and the busiest replica would get ever more. Its
    capacity is its speed times the number of requests that the fleet was seen to serve side by
    side, and at first 8; its speed, where unknown, is the mean of the others'.
    """

    __slots__ = ("_gain", "_members", "parallel", "speed", "work_per_token", "work_tokens")

    def __init__(self) -> None:
        self._members: list[ServiceRate] = []
        self._gain = 1.0
        self.parallel = _PARALLEL_ASSUMED
        self.speed = _SPEED_ASSUMED
        self.work_tokens = _WORK_ASSUMED_TOKENS
        """Expected work of a request, as it is on average over those in flight."""
        self.work_per_token = 1.0
        """Work done for each token of a request alone: above 1 where prompts are long."""

    def join(self) -> ServiceRate:
        """A new member's rate."""
        member = ServiceRate()
        self._members.append(member)
        self.refresh()
        return member

    def leave(self, member: ServiceRate) -> None:
        """The member is of this fleet no longer."""
        self._members.remove(member)
        self.refresh()

    def worked(self, work_tokens: float, work_per_token: float) -> None:
        """Learn the make-up of requests from a window: a plain mean at first, then an EWMA."""
        gain = self._gain
        self.work_tokens += gain * (work_tokens - self.work_tokens)
        self.work_per_token += gain * (work_per_token - self.work_per_token)
        self._gain = max(_GAIN, gain / (1.0 + gain))

    def refresh(self) -> None:
        """Work out every member's `s_per_token` and `free_s` from what all have shown."""
        speeds = [m.speed for m in self._members if m.speed is not None]
        self.speed = sum(speeds) / len(speeds) if speeds else _SPEED_ASSUMED
        full = [m.rate / m.speed for m in self._members if m.saturated and m.rate and m.speed]
        seen = [m.rate / m.speed for m in self._members if m.rate and m.speed]
        self.parallel = sum(full) / len(full) if full else max(_PARALLEL_ASSUMED, *seen, 0.0)
        for member in self._members:
            alone = member.speed or self.speed
            speed = alone * self.work_per_token
            capacity = self._capacity(member, alone) * self.work_per_token
            member.s_per_token = 1.0 / capacity
            # Response time is max(unloaded, work in flight / capacity): the asymptotic bounds of
            # operational analysis (Denning and Buzen 1978). One request more must fit as well.
            member.free_s = max(0.0, self.work_tokens * (1.0 / speed - 1.0 / capacity))

    def _capacity(self, member: ServiceRate, speed: float) -> float:
        """Tokens per second that the member gives at most."""
        if member.saturated and member.rate:
            return member.rate
        parallel = self.parallel
        if member.running_max is not None:
            parallel = min(parallel, member.running_max)
        return max(member.rate or 0.0, parallel * speed)
