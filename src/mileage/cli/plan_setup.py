"""PlanSetup: what the options of `mileage plan` ask for: a space, a model, a goal, and prices."""

from __future__ import annotations

from typing import Final, get_args

import msgspec

from mileage.cli.calibration_file import read_calibration
from mileage.cli.model_source import ModelSource, model_source
from mileage.cli.plan_arguments import PlanArguments
from mileage.cli.plan_spelling import (
    apart_of,
    counts_of,
    drafts_of,
    graphs_of,
    kv_of,
    listed,
    prices_of,
    sharings_of,
    tiers_of,
    yes_no_of,
)
from mileage.cli.simulate_arguments import RunArguments
from mileage.cli.simulate_policy import policy_choice, slo_of
from mileage.cli.simulate_price import price_of
from mileage.control.config import CostsConfig, GovernorConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.core.slo import Slo
from mileage.costmodel.calibration import Calibration
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.costmodel.layout import Engine
from mileage.costmodel.precision import Precision, precision
from mileage.planner.built import Builder
from mileage.planner.evaluation import World
from mileage.planner.goal import Goal
from mileage.planner.space import Space
from mileage.planner.traffic import Traffic
from mileage.sim.engine_features import AdaptersConfig
from mileage.workload.synthetic.spelling import seconds_of

__all__ = ["PlanSetup", "setup_of", "with_traffic", "workload_arguments"]

_KEYS: Final = {
    "attainment": "--attainment",
    "gaps": "--gaps",
    "drain_s": "--drain",
    "gpu": "--gpu",
    "model": "--model",
    "precision": "--precision",
}
_TUNINGS: Final = ("none", "lora", "full")


class PlanSetup(msgspec.Struct, frozen=True, kw_only=True):
    """All of it."""

    source: ModelSource
    space: Space
    builder: Builder
    world: World
    price_sources: dict[str, str | None]


def setup_of(arguments: PlanArguments) -> PlanSetup:
    """Checks all options. Raises ConfigError by option."""
    if arguments.model is None:
        raise ConfigError("--model", None, "a model, such as llama-3.1-8b")
    if arguments.gpu is None:
        raise ConfigError("--gpu", None, "GPUs to choose among, such as h100,l40s")
    require_range("--rate-scale", arguments.rate_scale, 1e-6, 1e6)
    try:
        source = model_source(arguments.model)
        cards = tuple(dict.fromkeys(known_gpu(n).name for n in listed("--gpu", arguments.gpu)))
        space = _space(arguments, source, cards)
        builder = Builder(
            model=source.architecture,
            engine=_engine(arguments.engine),
            gpu_memory_ratio=_memory(arguments.gpu_memory),
            calibrations=_calibrations(arguments, source, cards),
        )
        world, sources = _world(arguments, cards)
    except ConfigError as error:
        raise error.named(_KEYS.get(error.key, error.key)) from None
    return PlanSetup(
        source=source, space=space, builder=builder, world=world, price_sources=sources
    )


def with_traffic(setup: PlanSetup, traffic: Traffic) -> PlanSetup:
    """What the trace adds: how many fine-tunes its adapters are. Raises ConfigError where it has
    none, and they are asked for."""
    if setup.space.tuning != (("none", None),) and not traffic.adapters:
        expected = "none: no request of the trace asks for an adapter"
        raise ConfigError("--tuning", ",".join(name for name, _ in setup.space.tuning), expected)
    fine_tunes = max(1, len(traffic.adapters))
    return msgspec.structs.replace(
        setup, space=msgspec.structs.replace(setup.space, fine_tunes=fine_tunes)
    )


def workload_arguments(arguments: PlanArguments) -> RunArguments:
    """What reads the trace as `mileage simulate` does."""
    return RunArguments(
        trace=arguments.trace,
        window=arguments.window,
        requests=arguments.requests,
        tenant=arguments.tenant,
        format=arguments.format,
        columns=arguments.columns,
        time_unit=arguments.time_unit,
        keep_failed=arguments.keep_failed,
        spread=arguments.spread,
        spread_max=arguments.spread_max,
        seed=arguments.seed,
    )


def _space(arguments: PlanArguments, source: ModelSource, cards: tuple[str, ...]) -> Space:
    return Space(
        gpus=cards,
        gpus_max=arguments.gpus_max,
        tensor_parallel=counts_of("--tp", arguments.tp),
        pipeline_parallel=counts_of("--pp", arguments.pp) or (1,),
        data_parallel=counts_of("--dp", arguments.dp) or (1,),
        expert_parallel=counts_of("--ep", arguments.ep) or (1,),
        replicas=counts_of("--replicas", arguments.replicas),
        weights=_weights(arguments, source),
        kv=kv_of(arguments.kv_dtype),
        running_max=counts_of("--engine-max-seqs", arguments.engine_max_seqs),
        step_tokens_max=counts_of("--engine-tokens", arguments.engine_tokens),
        chunked_prefill=yes_no_of("--chunked-prefill", arguments.chunked_prefill),
        prefix_cache=yes_no_of("--prefix-cache", arguments.prefix_cache),
        graph_sizes=graphs_of(arguments.graph_sizes),
        speculation=drafts_of(arguments.speculation),
        disaggregation=apart_of(arguments.disaggregation),
        kv_tiers=tiers_of(arguments.kv_tier),
        sharing=sharings_of(arguments.share),
        policy=tuple(listed("--policy", arguments.policy)),
        tuning=_tuning(arguments),
    )


def _weights(arguments: PlanArguments, source: ModelSource) -> tuple[Precision, ...] | None:
    if arguments.precision is not None:
        names = listed("--precision", arguments.precision)
        return tuple(dict.fromkeys(precision(name) for name in names))
    # A file has the weights that it has.
    return (source.weights,) if arguments.model and arguments.model.endswith(".gguf") else None


def _tuning(arguments: PlanArguments) -> tuple[tuple[str, AdaptersConfig | None], ...]:
    names = listed("--tuning", arguments.tuning or "none")
    for name in names:
        if name not in _TUNINGS:
            raise ConfigError("--tuning", name, f"one of {', '.join(_TUNINGS)}")
    lora = AdaptersConfig(slots=arguments.adapter_slots)
    return tuple((name, lora if name == "lora" else None) for name in names)


def _engine(name: str) -> Engine:
    engines: dict[str, Engine] = {engine: engine for engine in get_args(Engine)}
    if name not in engines:
        raise ConfigError("--engine", name, f"one of {', '.join(engines)}")
    return engines[name]


def _memory(ratio: float) -> float:
    require_range("--gpu-memory", ratio, 0.01, 1.0)
    return ratio


def _calibrations(
    arguments: PlanArguments, source: ModelSource, cards: tuple[str, ...]
) -> dict[str, Calibration]:
    found = {}
    for path in arguments.calibration or ():
        read = read_calibration(path)
        wrong = (
            read.gpu not in cards
            or read.model != source.architecture.name
            or read.engine != arguments.engine
        )
        if wrong:
            expected = (
                f"one of {source.architecture.name} in {arguments.engine} on {', '.join(cards)}, "
                f"and not of {read.model} in {read.engine} on {read.gpu}"
            )
            raise ConfigError("--calibration", str(path), expected)
        found[read.gpu] = read.calibration
    return found


def _world(arguments: PlanArguments, cards: tuple[str, ...]) -> tuple[World, dict[str, str | None]]:
    given = prices_of(arguments.price)
    for name in given:
        if name not in cards:
            raise ConfigError("--price", name, f"of --gpu: {', '.join(cards)}")
    prices: dict[str, float | None] = {}
    sources: dict[str, str | None] = {}
    for name in cards:
        asked = RunArguments(price=given.get(name))
        prices[name], sources[name] = price_of(asked, CostsConfig(), known_gpu(name))
    slo = Slo() if arguments.slo is None else slo_of(arguments.slo)
    if arguments.gaps not in ("p99", "mean"):
        raise ConfigError("--gaps", arguments.gaps, "p99 or mean")
    goal = Goal(
        slo=Slo(ttft_s=slo.ttft_s, itl_s=slo.itl_s),
        attainment_ratio=arguments.attainment,
        gaps="p99" if arguments.gaps == "p99" else "mean",
        drain_s=seconds_of("--drain", arguments.drain),
    )
    world = World(
        goal=goal,
        usd_per_gpu_hour=prices,
        rank_by="gpu_hours" if None in prices.values() else "usd",
        governors={
            name: policy_choice(name, GovernorConfig()).governor
            for name in listed("--policy", arguments.policy)
        },
        seed=arguments.seed,
    )
    return world, sources
