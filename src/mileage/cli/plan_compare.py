"""`mileage plan compare`: models and ways to serve them side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from mileage.cli.config import load_config
from mileage.cli.model_options import Seed, SloTargets
from mileage.cli.plan_compare_cards import FilledCard, filled_cards
from mileage.cli.plan_compare_file import read_comparison
from mileage.cli.plan_compare_rate import rate_finder
from mileage.cli.plan_compare_tables import show_comparison
from mileage.cli.plan_spelling import counts_of
from mileage.cli.simulate_arguments import CapacityArguments, taking
from mileage.cli.simulate_workload import workload
from mileage.core.errors import ConfigError
from mileage.planner.comparison import ComparedDeployment, compare_deployments

__all__ = ["register_compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanCompareArguments:
    """Of `mileage plan compare`."""

    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A TOML file with a table [[deployments]] for each of them."
        ),
    ]
    trace: Annotated[
        str | None,
        typer.Option(
            help="Traffic to find each one's rate for, as of mileage simulate. [default: rates "
            "are those of the file]"
        ),
    ] = None
    slo: SloTargets = None
    gaps: Annotated[
        str,
        typer.Option(
            help="What of a request's gaps between tokens has to meet the ITL target: p99 or mean."
        ),
    ] = "p99"
    attainment: Annotated[
        float, typer.Option(help="Share of all requests that must meet their targets.")
    ] = 0.95
    policy: Annotated[
        str, typer.Option(help="Of the gateway before them, as of mileage simulate.")
    ] = "off"
    scale_out: Annotated[
        str | None,
        typer.Option(
            help="Numbers of replicas, such as 1,2,4,8, to find the rate of each for: how it "
            "grows, and its knee."
        ),
    ] = None
    requests: Annotated[
        int | None,
        typer.Option("--requests", "--head", help="At most so many requests of the trace."),
    ] = None
    config: Annotated[Path | None, typer.Option(help="A mileage.toml: its targets and prices.")] = (
        None
    )
    seed: Seed = 0
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@taking(PlanCompareArguments)
def compare(context: typer.Context, arguments: PlanCompareArguments) -> None:
    """Put deployments side by side: memory, score, requests per card and day, cost per task.

    A laptop with a GGUF file, vLLM on rented cards, ONNX INT4 at the edge. What the file does not
    say is filled from the catalogue and the cost model where they know it, and with --trace from
    simulations; what nobody knows stays empty.

    Example: mileage plan compare deployments.toml --trace azure-conv-2023 --slo ttft=2s,itl=60ms
    """
    document, told = read_comparison(arguments.file)
    costs = load_config(arguments.config, {}).costs
    replicas = counts_of("--scale-out", arguments.scale_out) or ()
    if arguments.trace is None:
        if arguments.slo is not None:
            raise ConfigError("--slo", arguments.slo, "a --trace that is to meet it")
        if replicas:
            raise ConfigError("--scale-out", arguments.scale_out, "a --trace to find rates for")
        filled = filled_cards(document, told, costs, None)
    else:
        asked = CapacityArguments(
            trace=arguments.trace,
            slo=arguments.slo,
            gaps=arguments.gaps,
            attainment=arguments.attainment,
            policy=arguments.policy,
            requests=arguments.requests,
            config=arguments.config,
            seed=arguments.seed,
        )
        console = Console(stderr=True, highlight=False)
        with workload(asked, console, once=False) as work:
            rate_of = rate_finder(asked, work, console)
            filled = filled_cards(document, told, costs, rate_of, replicas)
    compared = compare_deployments([each.card for each in filled])
    if arguments.as_json:
        typer.echo(_document(arguments, filled, compared))
    else:
        show_comparison(filled, compared)


def register_compare(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command()(compare)


def _document(
    arguments: PlanCompareArguments,
    filled: Sequence[FilledCard],
    compared: Sequence[ComparedDeployment],
) -> str:
    tree: dict[str, Any] = {
        "deployments": [
            {
                **msgspec.to_builtins(result.card),
                **{k: v for k, v in msgspec.to_builtins(result).items() if k != "card"},
                "memory": msgspec.to_builtins(each.memory),
                "sources": each.sources,
                "scale_out": msgspec.to_builtins(each.scale_out),
            }
            for each, result in zip(filled, compared, strict=True)
        ],
        "trace": arguments.trace,
        "slo": arguments.slo,
        "itl_of_gaps": arguments.gaps,
        "attainment": arguments.attainment,
        "policy": arguments.policy,
    }
    return msgspec.json.encode(tree).decode()
