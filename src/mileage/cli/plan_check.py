"""`mileage plan check`: what an existing deployment does otherwise than its plan, by its cost."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer
from rich.console import Console

from mileage.cli.model_source import model_source
from mileage.cli.plan_check_existing import read_existing
from mileage.cli.plan_check_plan import PlannedSetup, read_planned
from mileage.cli.plan_check_tables import show_check
from mileage.cli.simulate_arguments import RunArguments, taking
from mileage.cli.simulate_policy import policy_choice
from mileage.cli.simulate_price import price_of
from mileage.cli.simulate_workload import workload
from mileage.control.config import CostsConfig, GovernorConfig
from mileage.core.bounds import require_range
from mileage.core.errors import ConfigError
from mileage.costmodel.catalogue import gpu as known_gpu
from mileage.planner.built import Builder
from mileage.planner.candidate import Candidate
from mileage.planner.difference import Checked, CostOf, difference
from mileage.planner.evaluation import World
from mileage.planner.full_load import batch_cost, rate_cost
from mileage.planner.traffic import Traffic

__all__ = ["register_check"]

_BY: Final = ("rate", "batch")
_ENGINES: Final = ("vllm", "sglang", "trtllm")


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckArguments:
    """Of `mileage plan check`."""

    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="What mileage plan --json printed, in a file.")
    ]
    existing: Annotated[
        str,
        typer.Argument(
            metavar="EXISTING",
            help="The URL of an engine that runs, an engine plan (TOML), or facts (JSON) as "
            "mileage doctor reads them.",
        ),
    ]
    pick: Annotated[
        str,
        typer.Option(help="Of the plan: cheapest, low_latency, throughput, balanced."),
    ] = "cheapest"
    gpu: Annotated[
        str | None, typer.Option(help="The existing card, where EXISTING does not tell.")
    ] = None
    replicas: Annotated[
        int | None, typer.Option(min=1, help="Existing replicas. [default: as planned]")
    ] = None
    price: Annotated[
        float | None,
        typer.Option(
            help="USD for one existing GPU and hour. [default: of the plan, for another GPU the "
            "median of public prices]"
        ),
    ] = None
    by: Annotated[
        str,
        typer.Option(
            help="How costs are told: rate, of the highest rate of the trace within the targets, "
            "by simulation; batch, of full batches, by the step-time model."
        ),
    ] = "rate"
    trace: Annotated[
        str | None,
        typer.Option(help="Traffic, as of mileage simulate. [default: that of the plan]"),
    ] = None
    requests: Annotated[
        int | None,
        typer.Option("--requests", "--head", help="At most so many requests of the trace."),
    ] = None
    prompt_tokens: Annotated[int, typer.Option(min=1, help="Of a request, with --by batch.")] = 1024
    output_tokens: Annotated[int, typer.Option(min=1, help="Of a request, with --by batch.")] = 256
    gpu_memory: Annotated[
        float, typer.Option(help="Share of the memory that engines use (gpu_memory_utilization).")
    ] = 0.9
    api_key_env: Annotated[
        str | None,
        typer.Option(help="Environment variable with the key of the engine at the URL."),
    ] = None
    seed: Annotated[int, typer.Option(help="Of all that is random here.")] = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@taking(CheckArguments)
def check(context: typer.Context, arguments: CheckArguments) -> None:
    """Compare an existing deployment with its plan, and list the differences by money.

    Each difference is undone by itself; what that saves of the cost of a token is told in USD per
    hour of the existing fleet. Exits with 1 where something saves more than 1 %, with 3 where no
    difference could be priced.

    Example: mileage plan check plan.json http://127.0.0.1:8000 --replicas 4
    """
    if arguments.by not in _BY:
        raise ConfigError("--by", arguments.by, f"one of {', '.join(_BY)}")
    require_range("--gpu-memory", arguments.gpu_memory, 0.01, 1.0)
    planned = read_planned(arguments.plan, arguments.pick)
    known = read_existing(
        arguments.existing,
        planned=planned.candidate,
        gpu=arguments.gpu,
        key_variable=arguments.api_key_env,
    )
    if arguments.replicas is not None:
        known["replicas"] = arguments.replicas
    world, sources = _world(arguments, planned, known.get("gpu", planned.candidate.gpu))
    found = difference(known, planned.candidate, _cost_of(arguments, planned, world))
    if arguments.as_json:
        typer.echo(_document(arguments, planned, found, sources))
    else:
        show_check(arguments.by, arguments.pick, found, sources)
    _exit(found)


def register_check(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command()(check)


def _exit(found: Checked) -> None:
    savings = [each.saving_ratio for each in found.differences]
    told = [ratio for ratio in savings if ratio is not None]
    if any(ratio > 0.01 for ratio in told):
        raise typer.Exit(1)
    if savings and not told:
        raise typer.Exit(3)


def _world(
    arguments: CheckArguments, planned: PlannedSetup, card: str
) -> tuple[World, dict[str, str]]:
    """The goal of the plan, and the prices of both cards by whose word."""
    candidate = planned.candidate
    prices: dict[str, float | None] = {candidate.gpu: planned.usd_per_gpu_hour}
    sources = {candidate.gpu: "of the plan"}
    if arguments.price is not None or card not in prices:
        asked = RunArguments(price=arguments.price)
        prices[card], source = price_of(asked, CostsConfig(), known_gpu(card))
        sources[card] = source or "not known"
    governors = {}
    if candidate.policy != "off":
        policy = policy_choice(candidate.policy, GovernorConfig())
        governors[candidate.policy] = policy.governor
    world = World(
        goal=planned.goal, usd_per_gpu_hour=prices, governors=governors, seed=arguments.seed
    )
    return world, sources


def _cost_of(arguments: CheckArguments, planned: PlannedSetup, world: World) -> CostOf:
    if planned.engine not in _ENGINES:
        raise ConfigError("PLAN", planned.engine, f"an engine of {', '.join(_ENGINES)}")
    builder = Builder(
        model=model_source(planned.model).architecture,
        engine=planned.engine,  # type: ignore[arg-type]
        gpu_memory_ratio=arguments.gpu_memory,
    )
    if arguments.by == "batch":
        sizes = {
            "prompt_tokens": arguments.prompt_tokens,
            "output_tokens": arguments.output_tokens,
        }
        return lambda candidate: batch_cost(candidate, builder, world, **sizes)
    slo = planned.goal.slo
    if slo.ttft_s is None and slo.itl_s is None:
        raise ConfigError("--by", arguments.by, "batch: the plan has no targets to keep")
    trace = arguments.trace or planned.trace
    if trace is None:
        raise ConfigError("--trace", None, "traffic: the plan names none")
    read = RunArguments(trace=trace, requests=arguments.requests, seed=arguments.seed)
    console = Console(stderr=True, highlight=False)
    with workload(read, console, once=False) as work:
        traffic = Traffic.of(work.held)

    def cost_of(candidate: Candidate) -> Any:
        with console.status(f"simulating {candidate.label}"):
            return rate_cost(candidate, builder, traffic, world)

    return cost_of


def _document(
    arguments: CheckArguments, planned: PlannedSetup, found: Checked, sources: dict[str, str]
) -> str:
    tree = {
        "pick": arguments.pick,
        "by": arguments.by,
        "model": planned.model,
        "trace": (arguments.trace or planned.trace) if arguments.by == "rate" else None,
        "planned": msgspec.to_builtins(planned.candidate),
        **msgspec.to_builtins(found),
        "price_sources": sources,
    }
    return msgspec.json.encode(tree).decode()
