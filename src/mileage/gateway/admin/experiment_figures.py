"""ArmFigures: what one arm of an experiment did between two moments, out of the workers' totals."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mileage.measure.metrics import FamilySnapshot, quantile
from mileage.policy.experiment import ArmName
from mileage.policy.experiment_evidence import ArmCounts

__all__ = ["ARMS", "ZERO", "ArmFigures", "LatencyFigures", "figures_of", "minus", "plus"]

ARMS: tuple[ArmName, ArmName] = ("a", "b")
_PREFIX = "mileage_experiment_"


class LatencyFigures(msgspec.Struct, frozen=True):
    """Requests by bucket of seconds, and the sum of their times. Empty: nothing was seen."""

    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    sum_s: float = 0.0

    @property
    def mean_s(self) -> float | None:
        """Mean; None without any."""
        total = sum(self.counts)
        return self.sum_s / total if total else None

    def quantile_s(self, q: float) -> float | None:
        """Quantile `q`, linear inside a bucket; None without any."""
        return quantile(self.bounds, list(self.counts), q)


class ArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of one arm. `requests` by outcome, `errors` by kind; each request has one outcome."""

    requests: dict[str, int] = {}
    errors: dict[str, int] = {}
    targets: dict[str, int] = {}
    """`yes` met all their targets, `no` did not."""
    ttft: LatencyFigures = LatencyFigures()
    itl: LatencyFigures = LatencyFigures()
    e2e: LatencyFigures = LatencyFigures()
    prompt_tokens: float = 0.0
    output_tokens: float = 0.0
    gpu_s: float = 0.0
    cost_usd: float = 0.0

    @property
    def counted(self) -> int:
        """Requests that tell of the arm: all but those of a wash-out."""
        return sum(self.requests.values()) - self.requests.get("washout", 0)

    @property
    def failed(self) -> int:
        """Requests that the arm failed."""
        return sum(self.errors.values())

    @property
    def judged(self) -> int:
        """Requests of which it is known whether they met their targets."""
        return sum(self.targets.values())

    def counts(self) -> ArmCounts:
        """What the evidence goes by."""
        return ArmCounts(
            requests=self.counted,
            errors=self.failed,
            judged=self.judged,
            missed=self.targets.get("no", 0),
            ttft=self.ttft.counts,
            itl=self.itl.counts,
            e2e=self.e2e.counts,
        )


ZERO = ArmFigures()


def figures_of(families: Sequence[FamilySnapshot]) -> tuple[ArmFigures, ArmFigures]:
    """Both arms' totals since the start of the gateway."""
    found = {family.name: family for family in families if family.name.startswith(_PREFIX)}
    return _arm(found, "a"), _arm(found, "b")


def _arm(families: dict[str, FamilySnapshot], arm: ArmName) -> ArmFigures:
    def by_label(name: str) -> dict[str, int]:
        family = families.get(_PREFIX + name)
        numbers = {} if family is None else family.numbers
        return {labels[1]: int(n) for labels, n in numbers.items() if labels[0] == arm}

    def number(name: str) -> float:
        family = families.get(_PREFIX + name)
        return 0.0 if family is None else family.numbers.get((arm,), 0.0)

    def latency(name: str) -> LatencyFigures:
        family = families.get(_PREFIX + name)
        value = None if family is None else family.histograms.get((arm,))
        if family is None or value is None:
            return LatencyFigures()
        return LatencyFigures(family.bounds, tuple(value.counts), value.sum)

    return ArmFigures(
        requests=by_label("requests_total"),
        errors=by_label("errors_total"),
        targets=by_label("targets_total"),
        ttft=latency("time_to_first_token_seconds"),
        itl=latency("request_itl_p99_seconds"),
        e2e=latency("request_duration_seconds"),
        prompt_tokens=number("prompt_tokens_total"),
        output_tokens=number("output_tokens_total"),
        gpu_s=number("gpu_seconds_total"),
        cost_usd=number("cost_usd_total"),
    )


def minus(now: ArmFigures, before: ArmFigures) -> ArmFigures:
    """What came between two totals."""
    return _combined(now, before, -1)


def plus(one: ArmFigures, other: ArmFigures) -> ArmFigures:
    """Both together."""
    return _combined(one, other, 1)


def _combined(one: ArmFigures, other: ArmFigures, sign: int) -> ArmFigures:
    def table(mine: dict[str, int], its: dict[str, int]) -> dict[str, int]:
        return {key: mine.get(key, 0) + sign * its.get(key, 0) for key in {**its, **mine}}

    def latency(mine: LatencyFigures, its: LatencyFigures) -> LatencyFigures:
        if not its.counts:
            return mine
        counts = mine.counts or (0,) * len(its.counts)
        return LatencyFigures(
            its.bounds,
            tuple(m + sign * i for m, i in zip(counts, its.counts, strict=True)),
            mine.sum_s + sign * its.sum_s,
        )

    return ArmFigures(
        requests=table(one.requests, other.requests),
        errors=table(one.errors, other.errors),
        targets=table(one.targets, other.targets),
        ttft=latency(one.ttft, other.ttft),
        itl=latency(one.itl, other.itl),
        e2e=latency(one.e2e, other.e2e),
        prompt_tokens=one.prompt_tokens + sign * other.prompt_tokens,
        output_tokens=one.output_tokens + sign * other.output_tokens,
        gpu_s=one.gpu_s + sign * other.gpu_s,
        cost_usd=one.cost_usd + sign * other.cost_usd,
    )
