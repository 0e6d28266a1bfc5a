"""Judging an A/B run: its slots as blocks, what stands against a verdict, and how long it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Final, Literal

import msgspec

from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.loadgen.arms_run import ArmsRun
from mileage.loadgen.arms_slot import Slot
from mileage.loadgen.arms_slots import Arm, Mode
from mileage.measure.ab_guards import AbFacts
from mileage.measure.ab_test import AbResult, ab_result_of_figures
from mileage.measure.arm_slot import METRICS, ArmSlot, SlotFigures, slot_figures
from mileage.measure.comparison import BLOCKS_MIN
from mileage.measure.power import block_sd, blocks_needed
from mileage.measure.sequential import SequentialPlan

__all__ = ["Judge", "Outlook", "Sharing", "arm_slot", "deciding_metrics"]

Sharing = Literal["nothing", "machine", "endpoint"]
"""What the arms have in common: the endpoint, or the machine that both of theirs run on."""

_HOUR_S: Final = 3600.0
_LIMITED_MAX: Final = 0.25
"""Share of pairs that may be left out: a generator that is late more often meets its own limit."""
_LIMITED_ALWAYS: Final = 0.5
"""Share of pairs, at least `BLOCKS_MIN`, at which a run is given up: it is no passing trouble."""
_FEW_FOR_P99: Final = 100
_ARMS: Final[tuple[Arm, Arm]] = ("a", "b")


class Outlook(msgspec.Struct, frozen=True, kw_only=True):
    """How long a run has to be to see an effect, by how much its pairs differed so far."""

    metric: str
    effect_ratio: float
    """The change that is to be seen, as a share."""
    power: float
    pairs: int | None
    """None: more than any run has."""
    duration_s: float | None


def deciding_metrics(names: Sequence[str]) -> tuple[str, ...]:
    """The metrics that decide; by default TTFT p99, and E2E p99 where nothing is streamed.

    Raises ConfigError for a name that is none, or a metric without a better side.
    """
    judged = [name for name, metric in METRICS.items() if metric.better is not None]
    for name in names:
        if name not in judged:
            raise ConfigError("--metric", name, f"one of {', '.join(judged)}")
    return tuple(dict.fromkeys(names))


def arm_slot(slot: Slot, usd_per_hour: float | None) -> ArmSlot | None:
    """The slot as one arm's side of a block; None where it has no measured window."""
    load, use = slot.load, slot.use
    if load.end_s <= load.start_s:
        return None
    extra: dict[str, float | None] = {}
    records = [record for record in load.records if record.phase == "measured"]
    lasting = [record for record in records if record.outcome != "cancelled"]
    failed = sum(record.outcome != "ok" for record in lasting)
    extra["failed_ratio"] = failed / len(lasting) if lasting else None
    if use is not None:
        extra["utilisation_ratio"] = use.utilisation_ratio
        extra["memory_bytes"] = use.memory_bytes
        extra["energy_j"] = use.energy_j
    extra["usd_per_hour"] = usd_per_hour
    return ArmSlot(
        block=slot.pair,
        arm=slot.arm,
        order=slot.order,
        start_s=load.start_s,
        end_s=load.end_s,
        records=load.records,
        extra=extra,
    )


class Judge:
    """Judges a run after each pair; the figures of a slot are made once.

    `usd_per_hour` is what the arms' servers cost.
    """

    def __init__(
        self,
        plan: SequentialPlan,
        *,
        slo: Slo,
        metrics: Sequence[str] = (),
        usd_per_hour: Mapping[Arm, float | None] | None = None,
        cache_is_the_effect: bool = False,
    ) -> None:
        self.plan, self._slo = plan, slo
        self._metrics = deciding_metrics(metrics)
        self._usd_per_hour = usd_per_hour or {}
        self._cache_is_the_effect = cache_is_the_effect
        self._figures: dict[tuple[int, Arm], SlotFigures] = {}

    def shorten(self, pairs: int) -> None:
        """Let the plan end after so many pairs, as time allows no more than these.

        For the clock alone to decide, and never what was found: then the looks before have spent
        less than their part, the last one spends the rest, and the chance of a false alarm is kept.
        A plan that were left as it is would keep nearly all of it for a look that never comes.
        """
        self.plan = _shorter(self.plan, pairs)

    def is_enough(self, run: ArmsRun) -> bool:
        """Whether a run has nothing more to tell."""
        return run.pairs >= BLOCKS_MIN and self.result(run).stop

    def result(self, run: ArmsRun) -> AbResult:
        """What the run shows so far. One that broke off without a stop by its user, or that could
        not put settings back, is `invalid`, whatever it shows."""
        limited = _limited_pairs(run)
        kept, plan = run.slots, self.plan
        if len(limited) <= _LIMITED_MAX * run.pairs:
            kept = _without(run, limited)
            if run.pairs >= plan.blocks_max:  # none comes in place of those that are left out
                plan = _shorter(plan, run.pairs - len(limited))
        figures = [found for slot in kept if (found := self._figures_of(slot)) is not None]
        streamed = any(each.figures.ttft_s.count for each in figures)
        deciding = self._metrics or (("ttft_p99_s",) if streamed else ("e2e_p99_s",))
        result = ab_result_of_figures(figures, plan=plan, facts=self._facts(run), deciding=deciding)
        if run.error is not None:
            text = f"No verdict: the run broke off: {run.error}"
            return msgspec.structs.replace(result, verdict="invalid", text=text, stop=True)
        if self._may_recover(run, result, len(limited)):
            return msgspec.structs.replace(result, stop=False)
        return result

    def outlook(
        self, run: ArmsRun, result: AbResult, *, effect_ratio: float, power: float
    ) -> list[Outlook]:
        """For each metric that decides; the spread over blocks is that of the run so far."""
        found = []
        for name in result.deciding:
            interval = result.comparisons[name].ci95_alone
            if interval is None or interval[0] <= 0.0:
                continue
            sd = max(1e-6, block_sd(interval, result.comparisons[name].blocks))
            pairs = blocks_needed(1.0 + effect_ratio, sd, power_min=power)
            found.append(
                Outlook(
                    metric=name,
                    effect_ratio=effect_ratio,
                    power=power,
                    pairs=None if pairs is None else max(BLOCKS_MIN, pairs),
                    duration_s=None if pairs is None else max(BLOCKS_MIN, pairs) * _pair_s(run),
                )
            )
        return found

    def notes(self, run: ArmsRun, *, mode: Mode, sharing: Sharing) -> list[str]:
        """What is to be known beside the verdict and its guards."""
        found = []
        if mode == "mirrored" and sharing != "nothing":
            found.append(
                "both arms ran at the same time on this machine, and took it from each other:"
                " compare them interleaved"
            )
        limited = _limited_pairs(run)
        if 0 < len(limited) <= _LIMITED_MAX * run.pairs:
            found.append(
                f"{len(limited)} of {run.pairs} pairs are left out, as the load generator was the"
                f" limit: {next(iter(limited.values()))}"
            )
        if failures := _failures(run.slots):
            found.append(f"requests failed: {failures}")
        counts = [each.figures.requests for each in self._figures.values()]
        if counts and min(counts) < _FEW_FOR_P99:
            found.append(
                f"slots had {min(counts)} requests and more: a p99 of fewer than {_FEW_FOR_P99} is"
                " the slowest of them, and steadier in longer slots"
            )
        if run.rounds:
            found.append(f"the workload came to its end and began anew, {run.rounds} times")
        if run.restore_error is not None:
            found.append(f"the settings from before were NOT put back: {run.restore_error}")
        return found

    def _may_recover(self, run: ArmsRun, result: AbResult, limited: int) -> bool:
        """Whether nothing but the load generator is in the way, and it may not be so for long:
        with enough pairs to come, those in which it was the limit can still be left out."""
        fatal = {guard.name for guard in result.guards if guard.invalid}
        if "generator_limited" not in fatal or "restart" in fatal:
            return False
        most = self.plan.blocks_max
        is_over = run.pairs >= most or limited > _LIMITED_MAX * most
        return not (is_over or (limited >= BLOCKS_MIN and limited > _LIMITED_ALWAYS * run.pairs))

    def _figures_of(self, slot: Slot) -> SlotFigures | None:
        key = slot.pair, slot.arm
        if key not in self._figures:
            found = arm_slot(slot, self._usd_per_hour.get(slot.arm))
            if found is None:
                return None
            self._figures[key] = _priced(slot_figures(found, self._slo))
        return self._figures[key]

    def _facts(self, run: ArmsRun) -> AbFacts:
        limited, reason = _limited_pairs(run), None
        if len(limited) > _LIMITED_MAX * run.pairs:
            reason = f"in {len(limited)} of {run.pairs} pairs: {next(iter(limited.values()))}"
        return AbFacts(
            restarts=tuple(
                f"the server of arm {slot.arm}, in pair {slot.pair + 1},"
                for slot in run.slots
                if slot.use is not None and slot.use.restarted
            ),
            generator_limited=reason,
            cache_is_the_effect=self._cache_is_the_effect,
        )


def _shorter(plan: SequentialPlan, pairs: int) -> SequentialPlan:
    most = max(BLOCKS_MIN, pairs)
    if most >= plan.blocks_max:
        return plan
    first = min(plan.blocks_first, most)
    return msgspec.structs.replace(plan, blocks_max=most, blocks_first=first)


def _limited_pairs(run: ArmsRun) -> dict[int, str]:
    """Pairs in which the load generator was the limit, and why."""
    return {
        slot.pair: slot.load.generator.reason or "it was too slow"
        for slot in run.slots
        if slot.load.generator.limited
    }


def _without(run: ArmsRun, pairs: Container[int]) -> list[Slot]:
    return [slot for slot in run.slots if slot.pair not in pairs]


def _priced(slot: SlotFigures) -> SlotFigures:
    """Energy and money by what came out."""
    figures, extra = slot.figures, dict(slot.extra)
    energy_j, usd_per_hour = extra.pop("energy_j", None), extra.pop("usd_per_hour", None)
    tokens_per_s = figures.output_tokens_per_s
    if tokens_per_s:
        if energy_j is not None:
            extra["energy_j_per_token"] = energy_j / (tokens_per_s * figures.window_s)
        if usd_per_hour is not None:
            extra["usd_per_million_tokens"] = usd_per_hour / _HOUR_S / tokens_per_s * 1e6
    return msgspec.structs.replace(slot, extra=extra)


def _failures(slots: Sequence[Slot]) -> str:
    """Per arm the share that failed, and how; empty where none did."""
    told, any_failed = [], False
    for arm in _ARMS:
        outcomes = Counter(
            record.outcome
            for slot in slots
            if slot.arm == arm
            for record in slot.load.records
            if record.phase == "measured" and record.outcome != "cancelled"
        )
        total, ok = outcomes.total(), outcomes.pop("ok", 0)
        failed = total - ok
        any_failed = any_failed or failed > 0
        classes = ", ".join(f"{number} {name}" for name, number in outcomes.most_common(3))
        share = failed / total if total else 0.0
        told.append(f"arm {arm} {share:.2%}{f' ({classes})' if classes else ''}")
    return "; ".join(told) if any_failed else ""


def _pair_s(run: ArmsRun) -> float:
    """Seconds from one pair to the next."""
    if not run.slots:
        return 0.0
    began_s = min(slot.began_s for slot in run.slots)
    ended_s = max(slot.began_s + slot.load.elapsed_s for slot in run.slots)
    return (ended_s - began_s) / max(1, run.pairs)
