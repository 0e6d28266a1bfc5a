"""LoadFailures: which adapters could not be loaded where, why, and when it is tried again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.policy.residency.adapters import LoraConfig

__all__ = ["LoadFailures", "NotLoaded"]


class NotLoaded(msgspec.Struct, frozen=True):
    """An adapter cannot be had now; `reason` is for people."""

    reason: str
    retry_after_s: float


class _Failure(msgspec.Struct):
    reason: str
    times: int
    retry_at_s: float


class LoadFailures:
    """Counts failures in a row; the pause before the next attempt doubles with each."""

    __slots__ = ("_config", "_failures")

    def __init__(self, config: LoraConfig) -> None:
        self._config = config
        self._failures: dict[tuple[str, str], _Failure] = {}
        """By adapter and replica."""

    def configure(self, config: LoraConfig) -> None:
        """Pauses as these from the next failure on."""
        self._config = config

    def failed(self, replica: str, adapter: str, reason: str, now_s: float) -> None:
        """A load failed."""
        before = self._failures.get((adapter, replica))
        times = 1 if before is None else before.times + 1
        config = self._config
        pause_s = min(config.retry_max_s, config.retry_s * 2.0 ** min(times - 1, 60))
        self._failures[adapter, replica] = _Failure(reason, times, now_s + pause_s)

    def forget(self, adapter: str, replica: str | None = None) -> None:
        """It was loaded there; None: it is another one now, everywhere."""
        for key in [key for key in self._failures if key[0] == adapter]:
            if replica in (None, key[1]):
                del self._failures[key]

    def may_try(self, replica: str, adapter: str, now_s: float) -> bool:
        """The pause after the last failure is over, or there was none."""
        failure = self._failures.get((adapter, replica))
        return failure is None or now_s >= failure.retry_at_s

    def reason(self, adapter: str) -> str | None:
        """Of the last failure anywhere."""
        found = [failure for key, failure in self._failures.items() if key[0] == adapter]
        return max(found, key=lambda each: each.retry_at_s).reason if found else None

    def refusal(self, adapter: str, replicas: Sequence[str], now_s: float) -> NotLoaded | None:
        """All of these have failed and are not to be tried yet; None where one may be."""
        failures = [self._failures.get((adapter, replica)) for replica in replicas]
        known = [each for each in failures if each is not None and each.retry_at_s > now_s]
        if not failures or len(known) < len(failures):
            return None
        first = min(known, key=lambda each: each.retry_at_s)
        return NotLoaded(first.reason, first.retry_at_s - now_s)
