"""Assumptions: what a plan takes for granted, in sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mileage.costmodel.efficiency_table import TPOT_INTERVAL, TTFT_INTERVAL
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate
from mileage.planner.evaluation import World
from mileage.planner.traffic import Traffic

__all__ = ["assumptions"]


def assumptions(
    builder: Builder,
    traffic: Traffic,
    world: World,
    candidates: Sequence[Candidate],
    price_sources: Mapping[str, str | None],
) -> tuple[str, ...]:
    """Of a plan over those candidates."""
    return (
        *_traffic(traffic, world),
        *_steps(builder),
        *_prices(world, candidates, price_sources),
        *_features(candidates),
    )


def _traffic(traffic: Traffic, world: World) -> list[str]:
    share = world.goal.attainment_ratio
    return [
        f"The traffic is the trace's {len(traffic):,} requests over {traffic.span_s / 60:.4g} min, "
        "as they came. The network costs no time.",
        f"{share:.4g} of all requests have to meet all targets, and the fleet has to be done "
        f"{world.goal.drain_s:g} s after the last arrival. Latencies are told at the same "
        "quantile; intervals are of this trace's own ups and downs.",
    ]


def _steps(builder: Builder) -> list[str]:
    (tpot_low, tpot_high), (ttft_low, ttft_high) = TPOT_INTERVAL, TTFT_INTERVAL
    found = [
        "Step times are the fitted roofline model's: of measured deployments four of five TPOTs "
        f"were within {tpot_low:g} to {tpot_high:g} times, unqueued TTFTs within {ttft_low:g} to "
        f"{ttft_high:g} times the predicted ones. `mileage plan calibrate` narrows that."
    ]
    found += [
        f"Those of {name} are calibrated on {each.samples:,} steps of a real engine."
        for name, each in builder.calibrations.items()
    ]
    used = f"{builder.engine} and uses {builder.gpu_memory_ratio:.0%} of the memory"
    return [*found, f"The engine is {used}."]


def _prices(
    world: World, candidates: Sequence[Candidate], sources: Mapping[str, str | None]
) -> list[str]:
    found = []
    for name in dict.fromkeys(each.gpu for each in candidates):
        usd = world.usd_per_gpu_hour.get(name)
        if usd is None:
            found.append(f"No price of {name} is known: give one with --price {name}=USD.")
        else:
            by = sources.get(name)
            found.append(f"{name}: {usd:g} USD per GPU and hour{f' ({by})' if by else ''}.")
    if world.rank_by == "gpu_hours":
        found.append("Set-ups are ranked by GPU-hours, as not all cards have a price.")
    return found


def _features(candidates: Sequence[Candidate]) -> list[str]:
    found = []
    for is_used, text in (
        (
            len({each.weights for each in candidates}) > 1 or any(_is_quantised(candidates)),
            "What fewer bits do to answers is not judged here: `mileage quant` measures it.",
        ),
        (
            any(each.speculation is not None for each in candidates),
            "Proposed tokens are accepted as often as was said, alike for all requests; memory of "
            "a draft model is not counted.",
        ),
        (
            any(each.disaggregation is not None for each in candidates),
            "KV caches go from engine to engine at the full rate of the links, and disturb nobody.",
        ),
        (
            any(each.sharing is not None and each.sharing.mode == "mig" for each in candidates),
            "MIG cuts compute, memory and bandwidth of a card into equal parts.",
        ),
        (
            any(each.kv_tiers for each in candidates),
            "The memory behind a GPU is there, and its link is used by nothing else.",
        ),
        (
            any(each.tuning == "full" for each in candidates),
            "A full fine-tune takes as much memory and time as the base model.",
        ),
    ):
        if is_used:
            found.append(text)
    return found


def _is_quantised(candidates: Sequence[Candidate]) -> list[bool]:
    return [each.weights != "bf16" or each.kv != "bf16" for each in candidates]
