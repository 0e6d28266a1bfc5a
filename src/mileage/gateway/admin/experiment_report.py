"""ExperimentReport: both arms side by side, block by block, with intervals and a verdict."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from mileage.gateway.admin.experiment_figures import ArmFigures, minus, plus
from mileage.measure.comparison import BLOCKS_MIN, Comparison, compare

__all__ = ["ArmReport", "BlockLog", "ExperimentVerdict", "arm_report"]

ExperimentVerdict: TypeAlias = Literal["better", "worse", "mixed", "no_difference", "not_yet"]
_BLOCKS_MAX = 512
_FIRST_LOOK = 2 * BLOCKS_MIN
_ALPHA = 0.05


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _share_answered(arm: ArmFigures) -> float | None:
    return _ratio(arm.counted - arm.failed, arm.counted)


def _share_met(arm: ArmFigures) -> float | None:
    return _ratio(arm.targets.get("yes", 0), arm.judged)


class _Metric(NamedTuple):
    """A figure of one arm in one block."""

    name: str
    better: Literal["lower", "higher"]
    figure: Callable[[ArmFigures], float | None]


# Shares of what went well and not of what failed: often nothing fails in arm a, and there is no
# ratio to 0.
_METRICS = (
    _Metric("answered_ratio", "higher", _share_answered),
    _Metric("target_met_ratio", "higher", _share_met),
    _Metric("ttft_mean_s", "lower", lambda arm: arm.ttft.mean_s),
    _Metric("itl_p99_mean_s", "lower", lambda arm: arm.itl.mean_s),
    _Metric("e2e_mean_s", "lower", lambda arm: arm.e2e.mean_s),
    _Metric(
        "gpu_s_per_output_token", "lower", lambda arm: _ratio(arm.gpu_s, arm.output_tokens) or None
    ),
)


class ArmReport(msgspec.Struct, frozen=True, kw_only=True):
    """One arm since the experiment began. None: nothing was seen."""

    requests: int
    """All but those of a wash-out."""
    outcomes: dict[str, int]
    errors: dict[str, int]
    error_ratio: float | None
    target_met_ratio: float | None
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    itl_p99_mean_s: float | None
    e2e_p50_s: float | None
    e2e_p99_s: float | None
    prompt_tokens: int
    output_tokens: int
    gpu_s: float | None
    cost_usd: float | None


def arm_report(arm: ArmFigures) -> ArmReport:
    """The arm's figures for people."""
    return ArmReport(
        requests=arm.counted,
        outcomes={name: count for name, count in arm.requests.items() if count},
        errors={kind: count for kind, count in arm.errors.items() if count},
        error_ratio=_ratio(arm.failed, arm.counted),
        target_met_ratio=_share_met(arm),
        ttft_p50_s=arm.ttft.quantile_s(0.5),
        ttft_p99_s=arm.ttft.quantile_s(0.99),
        itl_p99_mean_s=arm.itl.mean_s,
        e2e_p50_s=arm.e2e.quantile_s(0.5),
        e2e_p99_s=arm.e2e.quantile_s(0.99),
        prompt_tokens=int(arm.prompt_tokens),
        output_tokens=int(arm.output_tokens),
        gpu_s=arm.gpu_s or None,
        cost_usd=arm.cost_usd or None,
    )


class BlockLog:
    """Blocks of time, each with what both arms did in it: the unit of comparison.

    Requests that share a queue are alike, so blocks are what is independent, not requests. At
    512 blocks each two neighbours become one. A block is over after `block_s`, once each arm has
    `requests_min` in it.

    The verdict is read at looks of its own, at 8, 16, 32, ... blocks. The k-th look has 0.05 / 2^k
    for all metrics together, equally shared, so that all looks for ever have 5 %: figures may be
    watched, and a verdict is as sure as it says.
    """

    def __init__(self, *, block_s: float, requests_min: int) -> None:
        self._block_s, self._requests_min = block_s, requests_min
        self._last: tuple[ArmFigures, ArmFigures] | None = None
        self._last_s = 0.0
        self._blocks: list[tuple[ArmFigures, ArmFigures]] = []
        self._closed = 0
        self._looks = 0
        self.verdict: ExperimentVerdict = "not_yet"
        self.verdict_text = f"{_FIRST_LOOK} blocks of time are needed for the first look"

    def update(self, a: ArmFigures, b: ArmFigures, now_s: float) -> None:
        """Take in both arms' totals."""
        if self._last is None:
            self._last, self._last_s = (a, b), now_s
            return
        if now_s - self._last_s < self._block_s:
            return
        block = minus(a, self._last[0]), minus(b, self._last[1])
        if min(arm.counted for arm in block) < self._requests_min:
            return
        self._last, self._last_s = (a, b), now_s
        self._blocks.append(block)
        self._closed += 1
        if len(self._blocks) == _BLOCKS_MAX:
            pairs = zip(self._blocks[::2], self._blocks[1::2], strict=True)
            self._blocks = [(plus(x[0], y[0]), plus(x[1], y[1])) for x, y in pairs]
        if self._closed == _FIRST_LOOK << self._looks:
            self._looks += 1
            self._judge()

    def comparisons(self, level: float = _ALPHA) -> list[Comparison]:
        """Each metric of b against a as it stands; `level` is that of a single look at it."""
        found = []
        for name, better, figure in _METRICS:
            values = [[figure(block[place]) for block in self._blocks] for place in (0, 1)]
            if any(value is not None for arm in values for value in arm):
                found.append(compare(name, *values, better=better, level=level))
        return found

    def _judge(self) -> None:
        """Once it has been found better or worse it stays so, unless a later look adds to it."""
        found = self.comparisons(_ALPHA / 2**self._looks / len(_METRICS))
        better = [each for each in found if each.verdict == "better"]
        worse = [each for each in found if each.verdict == "worse"]
        if better and worse:
            self.verdict = "mixed"
        elif better or worse:
            self.verdict = "better" if better else "worse"
        elif self.verdict == "not_yet":
            self.verdict = "no_difference"
        else:
            return
        told = [each.text for each in [*worse, *better]] or ["no metric differs at this power"]
        self.verdict_text = f"after {self._closed} blocks: " + " ".join(told)
