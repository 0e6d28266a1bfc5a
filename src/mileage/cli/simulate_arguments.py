"""Options of `mileage simulate`: what each command takes, and what is said about them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_type_hints

import typer

from mileage.cli.model_options import (
    Head,
    KnownModel,
    KvDtype,
    MemoryShare,
    RateScale,
    SloTargets,
    Tenants,
    TraceSource,
    WeightPrecision,
    Window,
)
from mileage.cli.trace import Columns, Format, KeepFailed, Spread, SpreadMax, TimeUnit

__all__ = ["CapacityArguments", "CompareArguments", "OneRunArguments", "RunArguments", "taking"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunArguments:
    """Of every command; `compare` and `capacity` take lists where `run` takes one."""

    trace: TraceSource = None
    model: KnownModel = None
    gpu: Annotated[
        str | None,
        typer.Option(help="Name of a GPU: h100, a100-80gb, l40s."),
    ] = None
    tp: Annotated[str, typer.Option(help="Tensor-parallel GPUs of a replica.")] = "1"
    dp: Annotated[
        int,
        typer.Option(
            min=1,
            help="Data-parallel attention ranks: each has requests and a KV cache of its own.",
        ),
    ] = 1
    pp: Annotated[
        int,
        typer.Option(
            min=1, help="Pipeline stages of a replica: more requests at a time, none sooner."
        ),
    ] = 1
    ep: Annotated[
        int,
        typer.Option(min=1, help="Ranks that experts are spread over."),
    ] = 1
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="Replicas.")] = 1
    precision: WeightPrecision = None
    kv_dtype: KvDtype = "bf16"
    price: Annotated[
        float | None,
        typer.Option(
            help="USD for one GPU and hour. [default: of the configuration, else the median of "
            "public prices]"
        ),
    ] = None
    engine: Annotated[
        str,
        typer.Option(
            help="Whose step times: vllm, sglang or trtllm, or a file of mileage simulate fit in "
            "place of --model and --gpu."
        ),
    ] = "vllm"
    calibration: Annotated[
        Path | None,
        typer.Option(
            help="A file of mileage plan calibrate: step times as they were measured on such an "
            "engine and GPU."
        ),
    ] = None
    engine_max_seqs: Annotated[
        int | None,
        typer.Option(
            help="Requests that an engine, or each of its --dp ranks, runs at once (max_num_seqs). "
            "[default: vLLM's on that GPU]"
        ),
    ] = None
    engine_tokens: Annotated[
        int | None,
        typer.Option(
            help="Tokens of one step (max_num_batched_tokens), of each --dp rank and --pp stage. "
            "[default: vLLM's on that GPU]"
        ),
    ] = None
    long_prefill: Annotated[
        int | None,
        typer.Option(
            help="The most prompt tokens of one request in one step (long_prefill_token_threshold)."
        ),
    ] = None
    prefix_cache: Annotated[
        bool | None,
        typer.Option(help="Find blocks of earlier prompts again. [default: yes]"),
    ] = None
    engine_option: Annotated[
        list[str] | None,
        typer.Option(
            help="KEY=VALUE: any key of an engine: kv_layout=contiguous, static_batch.size=8, "
            "speculation.draft_tokens=3, disaggregation.decode_engines=2, adapters.slots=4, "
            "chunked_prefill=false. May be repeated. All keys: docs/reference/scenario.md."
        ),
    ] = None
    scenario: Annotated[
        Path | None,
        typer.Option(
            help="A TOML file with the tables [engine], [scaling] and [sharing]; options go "
            "before it."
        ),
    ] = None
    graph_sizes: Annotated[
        str | None,
        typer.Option(
            help="Batch sizes with a CUDA graph, such as 1,2,4,8,16; or none. "
            "[default: those that vLLM captures]"
        ),
    ] = None
    schedule: Annotated[
        str | None,
        typer.Option(
            help="Replicas that are wanted from a time on: 0s:1,10m:4. [default: all, always]"
        ),
    ] = None
    cold_start: Annotated[
        str | None,
        typer.Option(help="Time from asking for a replica to its first request. [default: 60s]"),
    ] = None
    share: Annotated[
        str | None,
        typer.Option(
            help="REPLICAS[:RATIO] on each GPU, which take turns: 2; under MPS they get RATIO "
            "times as much done together: 2:1.3. Each has an equal part of the memory."
        ),
    ] = None
    gpu_memory: MemoryShare = 0.9
    noise: Annotated[
        float | None,
        typer.Option(
            help="Standard deviation of a step's time over its mean. [default: 0; of a fitted "
            "engine: as seen]"
        ),
    ] = None
    policy: Annotated[
        str | None,
        typer.Option(
            help="off (the engines alone), static[:LIMIT], aimd, volatility, utilisation, "
            "tail_memory, mixture or model; with +wait it refuses nobody for being late. "
            "[default: that of the configuration: model]"
        ),
    ] = None
    slo: SloTargets = None
    gaps: Annotated[
        str,
        typer.Option(
            help="What of a request's gaps between tokens has to meet the ITL target: p99 or mean. "
            "The gateway's policies go by the p99 in any case."
        ),
    ] = "p99"
    routing: Annotated[
        str | None,
        typer.Option(
            help="affinity: prefer the replica that may hold a prompt's prefix; load: do not. "
            "[default: of the configuration: affinity]"
        ),
    ] = None
    config: Annotated[
        Path | None,
        typer.Option(
            help="A mileage.toml: its governor, targets, tenants, routing, merging and prices."
        ),
    ] = None
    patience: Annotated[
        str | None,
        typer.Option(help="Clients leave that have no token after so long. [default: all wait]"),
    ] = None
    rate_scale: RateScale = 1.0
    window: Window = None
    requests: Head = None
    tenant: Tenants = None
    format: Format = None
    columns: Columns = None
    time_unit: TimeUnit = None
    keep_failed: KeepFailed = False
    spread: Spread = "none"
    spread_max: SpreadMax = "3s"
    seed: Annotated[
        int,
        typer.Option(help="Of all that is random here; a synthetic trace may have its own."),
    ] = 0
    path: Annotated[
        str,
        typer.Option(
            help="python: the very objects of the gateway; fast: compiled, the same results; "
            "auto: fast where it can."
        ),
    ] = "auto"
    report: Annotated[
        Path | None,
        typer.Option(help="Write an HTML report to this file."),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OneRunArguments(RunArguments):
    """Of `mileage simulate` itself."""

    steps: Annotated[
        Path | None,
        typer.Option(
            help="Write every step of the engines to this file, with what it computed of each "
            "request: mileage trace perfetto reads it. Not with --path fast."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompareArguments(RunArguments):
    """Of `compare`: `--gpu`, `--tp` and `--policy` are lists, separated by commas; `--variant` adds
    engines with other options."""

    gpu: Annotated[
        str | None,
        typer.Option(help="GPUs, separated by commas: h100,a100-80gb."),
    ] = None
    tp: Annotated[
        str,
        typer.Option(help="Tensor-parallel GPUs of a replica; several, separated by commas."),
    ] = "1"
    policy: Annotated[
        str | None,
        typer.Option(
            help="Policies as of mileage simulate, separated by commas. [default: that of the "
            "configuration: model]"
        ),
    ] = None
    variant: Annotated[
        list[str] | None,
        typer.Option(
            help="'NAME KEY=VALUE ...': the same engine with those options besides, as a "
            "simulation of its own: 'static static_batch.size=8'. May be repeated."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityArguments(CompareArguments):
    """Of `capacity`: `--rate-scale` is where the search begins."""

    attainment: Annotated[
        float,
        typer.Option(help="Share of all requests that must meet their targets."),
    ] = 0.95
    decile_min: Annotated[
        float | None,
        typer.Option(
            help="And so must this share of each tenth of them, by prompt length: long prompts "
            "are not given up for short ones."
        ),
    ] = None
    tolerance: Annotated[
        float,
        typer.Option(help="The search ends when the rate is known to this share."),
    ] = 0.01


def taking(
    arguments: type[T],
) -> Callable[[Callable[[typer.Context, T], None]], Callable[..., None]]:
    """Makes a command of a function that takes a context and all of its options as one value.

    The command's signature has an option for each field of `arguments`, a dataclass.
    """
    hints = get_type_hints(arguments, include_extras=True)
    parameters = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if field.default is MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in fields(arguments)  # type: ignore[arg-type]
    ]
    context = inspect.Parameter(
        "context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context
    )

    def decorate(run: Callable[[typer.Context, T], None]) -> Callable[..., None]:
        def command(context: typer.Context, **options: Any) -> None:
            run(context, arguments(**options))

        command.__name__, command.__doc__ = run.__name__, run.__doc__
        command.__annotations__ = {p.name: p.annotation for p in (context, *parameters)}
        command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [context, *parameters]
        )
        return command

    return decorate
