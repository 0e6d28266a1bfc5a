"""Goodput of an arm: requests per second that met all their targets, and how sure that is."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.support.calls import Call
from mileage.measure.quantiles import quantile

__all__ = ["Arm", "Interval", "Targets", "bootstrap_ratio", "light_targets"]

_RESAMPLES = 2000
_BLOCK_CALLS = 20


@dataclass(frozen=True, slots=True)
class Targets:
    """Time to first token from when the request was due, and inter-token latency.

    `itl_s` bounds the p99 of a request's own gaps, `itl_mean_s` their mean, which is the second
    definition.
    """

    ttft_s: float
    itl_s: float
    itl_mean_s: float

    def met(self, call: Call, *, by_mean: bool = False) -> bool:
        """Whether a request met both; one that has no whole answer did not."""
        ttft_s = call.ttft_s
        if call.status != 200 or not call.whole or ttft_s is None or ttft_s > self.ttft_s:
            return False
        if by_mean:
            return call.itl_mean_s is None or call.itl_mean_s <= self.itl_mean_s
        return call.itl_p99_s is None or call.itl_p99_s <= self.itl_s


def light_targets(calls: Sequence[Call], factor: float) -> Targets:
    """`factor` times the p95 of requests that were alone; raises ValueError without any."""
    answered = [call for call in calls if call.status == 200 and call.whole]
    ttft_s = quantile([t for call in answered if (t := call.ttft_s) is not None], 0.95)
    itl_s = quantile([t for call in answered if (t := call.itl_p99_s) is not None], 0.95)
    mean_s = quantile([t for call in answered if (t := call.itl_mean_s) is not None], 0.95)
    if ttft_s is None or itl_s is None or mean_s is None:
        raise ValueError("no request was answered under light load")
    return Targets(factor * ttft_s, factor * itl_s, factor * mean_s)


class Arm:
    """What one arm did in its rounds: the requests of each, in the order they were due."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rounds: list[list[Call]] = []
        self.seconds = 0.0

    def add(self, calls: Sequence[Call], seconds: float) -> None:
        """One round more: its requests, offered over so many seconds."""
        self.rounds.append(list(calls))
        self.seconds += seconds

    @property
    def calls(self) -> list[Call]:
        """Those of all rounds."""
        return [call for calls in self.rounds for call in calls]

    @property
    def completed(self) -> int:
        """Whole answers."""
        return sum(call.status == 200 and call.whole for call in self.calls)

    def met(self, targets: Targets, *, by_mean: bool = False) -> int:
        """Requests that met all targets."""
        return sum(targets.met(call, by_mean=by_mean) for call in self.calls)

    def goodput_per_s(self, targets: Targets, *, by_mean: bool = False) -> float:
        """Those per second of offered load."""
        return self.met(targets, by_mean=by_mean) / self.seconds

    def figures(self, targets: Targets) -> dict[str, float | int | None]:
        """As they stand in the result."""
        calls = self.calls
        answered = [call for call in calls if call.status == 200 and call.whole]
        e2e_s = [t for call in answered if (t := call.e2e_s) is not None]
        ttft_s = [t for call in answered if (t := call.ttft_s) is not None]
        itl_s = [t for call in answered if (t := call.itl_p99_s) is not None]
        return {
            "offered": len(calls),
            "completed": len(answered),
            "rejected_ratio": _rounded(sum(call.rejected for call in calls) / len(calls)),
            "goodput_per_s": _rounded(self.goodput_per_s(targets)),
            "goodput_by_mean_itl_per_s": _rounded(self.goodput_per_s(targets, by_mean=True)),
            "completed_per_s": _rounded(len(answered) / self.seconds),
            "ttft_p50_s": _rounded(quantile(ttft_s, 0.5)),
            "ttft_p95_s": _rounded(quantile(ttft_s, 0.95)),
            "itl_p95_s": _rounded(quantile(itl_s, 0.95)),
            "e2e_p99_s": _rounded(quantile(e2e_s, 0.99)),
        }

    def errors(self) -> list[str]:
        """What went wrong that is no refusal, and was not given up at the end."""
        return [
            f"{self.name}: {call.status or 'no answer'}: {call.error}"
            for call in self.calls
            if call.error is not None and call.error != "given up" and not call.rejected
        ]

    def lag_s(self) -> float:
        """The p99 of how late the load client itself sent."""
        return quantile([c.sent_s - c.due_s for c in self.calls if c.sent_s is not None], 0.99) or 0


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure with its 95 % interval."""

    value: float
    low: float
    high: float

    def rounded(self, digits: int = 3) -> dict[str, float]:
        """As it stands in the result."""
        return {
            "value": round(self.value, digits),
            "low": round(self.low, digits),
            "high": round(self.high, digits),
        }


def bootstrap_ratio(ours: Arm, theirs: Arm, targets: Targets, *, seed: int = 1) -> Interval:
    """Goodput of ours over that of theirs.

    Both got the same requests at the same times, and neighbours share their fate, so blocks of
    neighbours are drawn, the same ones for both arms. Where no request of theirs met its targets
    one is taken to have: the ratio is then what it is at least.
    """
    blocks = []
    for mine, other in zip(ours.rounds, theirs.rounds, strict=True):
        for at in range(0, max(len(mine), len(other)), _BLOCK_CALLS):
            end = at + _BLOCK_CALLS
            blocks.append(
                (sum(map(targets.met, mine[at:end])), sum(map(targets.met, other[at:end])))
            )
    scale = theirs.seconds / ours.seconds

    def ratio(drawn: Sequence[tuple[int, int]]) -> float:
        return scale * sum(mine for mine, _ in drawn) / max(1, sum(other for _, other in drawn))

    rng = random.Random(seed)
    ratios = sorted(ratio(rng.choices(blocks, k=len(blocks))) for _ in range(_RESAMPLES))
    low, high = ratios[round(0.025 * _RESAMPLES)], ratios[round(0.975 * _RESAMPLES) - 1]
    return Interval(ratio(blocks), low, high)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
