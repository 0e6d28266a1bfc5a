"""Options of `mileage plan`: what is searched, on which traffic, for which targets."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.model_options import (
    Head,
    KnownModel,
    MemoryShare,
    RateScale,
    Seed,
    Tenants,
    TraceSource,
    Window,
)
from mileage.cli.trace import Columns, Format, KeepFailed, Spread, SpreadMax, TimeUnit

__all__ = ["PlanArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanArguments:
    """Lists are separated by commas; each value is combined with every other one."""

    model: KnownModel = None
    trace: TraceSource = None
    gpu: Annotated[str | None, typer.Option(help="GPUs to choose among: h100,a100-80gb,l40s.")] = (
        None
    )
    slo: Annotated[
        str | None,
        typer.Option(help="Latency targets, such as ttft=500ms,itl=60ms. [default: to keep up]"),
    ] = None
    attainment: Annotated[
        float, typer.Option(help="Share of all requests that must meet their targets.")
    ] = 0.95
    gaps: Annotated[
        str,
        typer.Option(
            help="What of a request's gaps between tokens has to meet the ITL target: p99 or mean."
        ),
    ] = "p99"
    drain: Annotated[
        str,
        typer.Option(help="Time after the last arrival by which a fleet must have caught up."),
    ] = "5m"
    price: Annotated[
        list[str] | None,
        typer.Option(
            help="GPU=USD: for one GPU and hour; may be repeated. [default: the median of public "
            "prices]"
        ),
    ] = None
    gpus_max: Annotated[int, typer.Option(min=1, max=4096, help="GPUs of a fleet.")] = 16
    tp: Annotated[str | None, typer.Option(help="Tensor-parallel GPUs. [default: 1, 2, 4, 8]")] = (
        None
    )
    pp: Annotated[str, typer.Option(help="Pipeline stages.")] = "1"
    dp: Annotated[str, typer.Option(help="Data-parallel attention ranks.")] = "1"
    ep: Annotated[str, typer.Option(help="Ranks that experts are spread over.")] = "1"
    replicas: Annotated[
        str | None, typer.Option(help="Replicas. [default: as many as --gpus-max allows]")
    ] = None
    precision: Annotated[
        str | None,
        typer.Option(
            help="Of the weights: bf16, fp8, int8, int4, fp4. [default: bf16, what the GPU "
            "multiplies in of 8 bits, and int4; of a GGUF file: as it is]"
        ),
    ] = None
    kv_dtype: Annotated[
        str | None,
        typer.Option(help="Of the KV cache: bf16, fp8. [default: both where the GPU has FP8]"),
    ] = None
    engine_max_seqs: Annotated[
        str | None,
        typer.Option(
            help="Requests that an engine, or each of its --dp ranks, runs at once (max_num_seqs). "
            "[default: 64,256]"
        ),
    ] = None
    engine_tokens: Annotated[
        str | None,
        typer.Option(
            help="Tokens of one step (max_num_batched_tokens). [default: 512, 2048, and vLLM's on "
            "that GPU]"
        ),
    ] = None
    chunked_prefill: Annotated[str, typer.Option(help="Prompts may be cut: yes, no.")] = "yes"
    prefix_cache: Annotated[
        str, typer.Option(help="Find blocks of earlier prompts again: yes, no.")
    ] = "yes"
    graph_sizes: Annotated[
        list[str] | None,
        typer.Option(
            help="default, none, or batch sizes with a CUDA graph, such as 1,2,4,8; may be "
            "repeated. [default: default]"
        ),
    ] = None
    speculation: Annotated[
        str | None,
        typer.Option(
            help="none, or DRAFTED:ACCEPTED[:TIME], such as none,3:0.7:2ms: tokens proposed, the "
            "share that is accepted, and the time that proposing one adds. For MTP without a time."
        ),
    ] = None
    disaggregation: Annotated[
        str | None,
        typer.Option(help="none, or PREFILL+DECODE engines, such as none,1+1,1+3."),
    ] = None
    kv_tier: Annotated[
        str | None,
        typer.Option(
            help="none, or GB[:GB/S] behind each GPU for the KV cache, such as none,64:25."
        ),
    ] = None
    share: Annotated[
        str | None,
        typer.Option(
            help="none, or REPLICAS[:MODE[:RATIO]] on each GPU, such as none,2:time,2:mps:1.3,"
            "4:mig."
        ),
    ] = None
    policy: Annotated[
        str, typer.Option(help="off (the engines alone), or policies of mileage simulate.")
    ] = "off"
    tuning: Annotated[
        str | None,
        typer.Option(
            help="What serves the adapters of a trace: none, lora, full (a fine-tune each with "
            "replicas of its own). [default: none]"
        ),
    ] = None
    adapter_slots: Annotated[
        int, typer.Option(min=1, help="With --tuning lora: adapters on a GPU (max_loras).")
    ] = 4
    engine: Annotated[str, typer.Option(help="Whose step times: vllm, sglang, trtllm.")] = "vllm"
    calibration: Annotated[
        list[Path] | None,
        typer.Option(help="A file of mileage plan calibrate, for its GPU; may be repeated."),
    ] = None
    gpu_memory: MemoryShare = 0.9
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
    seed: Seed = 0
    on: Annotated[
        str,
        typer.Option(
            help="Where it is simulated: cores, of this machine; ray, a Ray cluster (RAY_ADDRESS, "
            "else one that is started here); ray=ADDRESS."
        ),
    ] = "cores"
    processes: Annotated[
        int | None,
        typer.Option(min=1, help="With --on cores: those that simulate. [default: one a core]"),
    ] = None
    report: Annotated[Path | None, typer.Option(help="Write an HTML report to this file.")] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False
