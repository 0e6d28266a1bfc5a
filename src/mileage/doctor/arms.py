"""Comparisons: arms of before and after, of one setting and another, of one load and more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mileage.doctor.check import Check
from mileage.doctor.facts import Value
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.quantity import Quantity
from mileage.doctor.vocabulary import KEYS, SECTIONS

__all__ = ["LATENCIES", "THROUGHPUTS", "UNKNOWN_RATIO", "Arm", "Comparison", "Ratio"]

THROUGHPUTS = (
    "throughput_rel",
    "output_tokens_per_s",
    "client_output_tokens_per_s",
    "total_tokens_per_s",
    "requests_per_s",
    "client_requests_per_s",
    "prompt_tokens_per_s",
    "output_tokens_per_s_per_request",
    "audio_s_per_s",
)
"""Signals of which more is better, the most telling first."""

LATENCIES = (
    "latency_rel",
    "total_job_s",
    "itl_mean_s",
    "itl_p50_s",
    "itl_p90_s",
    "itl_p99_s",
    "client_itl_mean_s",
    "ttft_mean_s",
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "client_ttft_mean_s",
    "e2e_mean_s",
    "e2e_p50_s",
    "e2e_p90_s",
    "e2e_p99_s",
    "client_e2e_mean_s",
    "step_time_s",
)
"""Signals of which less is better, the most telling first."""


class Ratio(msgspec.Struct, frozen=True):
    """How many times one arm's signal is another's; `signal` is "" where no signal tells."""

    signal: str
    value: Interval

    @property
    def known(self) -> bool:
        """Do both arms tell it?"""
        return self.signal != ""

    def above(self, limit: float) -> Check:
        """Is the ratio more than `limit`?"""
        return self._check(f"ratio > {limit:g}", self.value.above(limit))

    def at_least(self, limit: float) -> Check:
        """Is the ratio `limit` or more?"""
        return self._check(f"ratio >= {limit:g}", self.value.at_least(limit))

    def below(self, limit: float) -> Check:
        """Is the ratio less than `limit`?"""
        return self._check(f"ratio < {limit:g}", self.value.below(limit))

    def at_most(self, limit: float) -> Check:
        """Is the ratio `limit` or less?"""
        return self._check(f"ratio <= {limit:g}", self.value.at_most(limit))

    def _check(self, limit: str, truth: bool | None) -> Check:
        if not self.known:
            return Check("comparisons", None, limit, None)
        return Check(f"comparisons.{self.signal}", self.value.plain(), limit, truth)


UNKNOWN_RATIO = Ratio("", Interval())


class Arm(msgspec.Struct, frozen=True):
    """One arm: `values` with the rest of the document under it, `own` what it says itself."""

    name: str
    current: bool
    values: Mapping[str, Value]
    own: Mapping[str, Value]

    def number(self, key: str) -> Quantity:
        """A numeric fact of the arm, or of the document under it."""
        section, name = KEYS[key]
        value = self.values.get(key)
        return value if isinstance(value, Quantity) else Quantity(key, SECTIONS[section][name].unit)

    def get(self, key: str) -> Any:
        """Any other fact (text in lower case, flag, texts); None where absent or not set."""
        assert key in KEYS, key
        value = self.values.get(key)
        return value.lower() if isinstance(value, str) else value

    def has(self, key: str) -> bool:
        """Does the arm itself say something of it, be it "not set"?"""
        assert key in KEYS, key
        return key in self.own

    def setup(self) -> dict[str, Value]:
        """What the arm itself says that is no signal."""
        return {key: value for key, value in self.own.items() if KEYS[key][0] != "signals"}


class Comparison(msgspec.Struct, frozen=True):
    """Arms in the order of the document (of time, or of load)."""

    arms: tuple[Arm, ...]
    restarted_between_arms: bool | None = None

    @property
    def first(self) -> Arm:
        """The first arm."""
        return self.arms[0]

    @property
    def last(self) -> Arm:
        """The last arm."""
        return self.arms[-1]

    @property
    def current(self) -> Arm | None:
        """The arm that is the deployment as it runs now, where one is marked."""
        return next((arm for arm in self.arms if arm.current), None)

    def varied(self) -> frozenset[str]:
        """Keys, no signals, that arms state with different values (one may not state it)."""
        keys = {key for arm in self.arms for key in arm.setup()}
        absent = object()
        return frozenset(
            key
            for key in keys
            if any(
                arm.values.get(key, absent) != self.arms[0].values.get(key, absent)
                for arm in self.arms
            )
        )

    def varies_only(self, *keys: str) -> bool:
        """Is what the arms differ in among `keys`, and one of these at least?"""
        varied = self.varied()
        return bool(varied) and varied <= set(keys)

    def arms_where(self, key: str, value: object) -> tuple[Arm, ...]:
        """Arms whose fact `key` is `value` (text in lower case)."""
        return tuple(arm for arm in self.arms if arm.get(key) == value)

    def pairs(self) -> tuple[tuple[Arm, Arm], ...]:
        """Every two arms, the earlier one first."""
        return tuple(
            (one, other) for n, one in enumerate(self.arms) for other in self.arms[n + 1 :]
        )

    def ratio(self, signal: str, of: Arm, to: Arm) -> Ratio:
        """`of`'s value of a signal over `to`'s; a `_rel` signal is 1 in the first arm."""
        above, below = self._value(signal, of), self._value(signal, to)
        if above is None or below is None:
            return UNKNOWN_RATIO
        return Ratio(signal, above.over(below))

    def throughput(self, of: Arm, to: Arm) -> Ratio:
        """How many times `to`'s throughput `of` has, by the first signal that both tell."""
        return self._first(THROUGHPUTS, of, to)

    def latency(self, of: Arm, to: Arm) -> Ratio:
        """How many times `to`'s latency (or time of a job) `of` has."""
        return self._first(LATENCIES, of, to)

    def speed(self, of: Arm, to: Arm) -> Ratio:
        """How many times faster `of` is than `to`: by throughput, else by latency turned over."""
        ratio = self.throughput(of, to)
        if ratio.known:
            return ratio
        slower = self.latency(of, to)
        return Ratio(slower.signal, exactly(1.0).over(slower.value)) if slower.known else slower

    def _first(self, signals: tuple[str, ...], of: Arm, to: Arm) -> Ratio:
        for signal in signals:
            ratio = self.ratio(signal, of, to)
            if ratio.known:
                return ratio
        return UNKNOWN_RATIO

    def _value(self, signal: str, arm: Arm) -> Interval | None:
        value = arm.own.get(signal)
        if isinstance(value, Quantity) and value.known:
            return value.value
        if signal.endswith("_rel") and arm is self.arms[0]:
            return exactly(1.0) if any(signal in other.own for other in self.arms[1:]) else None
        return None
