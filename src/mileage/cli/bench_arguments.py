"""Options of `mileage bench`: what every kind of run takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.model_options import SloTargets
from mileage.cli.trace import Columns, Format, KeepFailed, Spread, SpreadMax, TimeUnit

__all__ = ["LoadArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadArguments:
    """What is sent, how fast, and how it is judged: of all commands of `mileage bench`."""

    model: Annotated[
        str | None,
        typer.Option(help="Model to ask for. [default: the one that the endpoint serves]"),
    ] = None
    trace: Annotated[
        str | None,
        typer.Option(
            help="A file, a ledger's or journal's directory, -, synthetic:rate=..., or the name "
            "of a fetched data set (see mileage trace). In place of --rate."
        ),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(help="Requests per second, with --prompt-tokens and --output-tokens."),
    ] = None
    arrivals: Annotated[
        str,
        typer.Option(help="Of --rate: poisson, even, gamma:CV or weibull:CV."),
    ] = "poisson"
    prompt_tokens: Annotated[
        str,
        typer.Option(
            help="Of --rate: TOKENS, uniform:LOW:HIGH, lognormal:MEDIAN:SIGMA[:LOW:HIGH] or "
            "zipf:ALPHA:LOW:HIGH."
        ),
    ] = "512"
    output_tokens: Annotated[
        str,
        typer.Option(help="Of --rate: as --prompt-tokens."),
    ] = "128"
    shared_prefix_ratio: Annotated[
        float,
        typer.Option(
            help="Of --rate: share of each prompt that is the same for all. A trace tells itself "
            "what its prompts share."
        ),
    ] = 0.0
    rate_scale: Annotated[
        float,
        typer.Option(help="So many times as many arrivals per second as the trace has."),
    ] = 1.0
    window: Annotated[
        str | None,
        typer.Option(help="START:DURATION of the trace: only arrivals in it, such as 10m:1h."),
    ] = None
    format: Format = None
    columns: Columns = None
    time_unit: TimeUnit = None
    keep_failed: KeepFailed = False
    spread: Spread = "none"
    spread_max: SpreadMax = "3s"
    bad_lines_max: Annotated[
        int,
        typer.Option(
            min=0,
            help="So many records of the trace may be broken: they are left out, counted and "
            "named. One more is an error.",
        ),
    ] = 100
    keep_models: Annotated[
        bool,
        typer.Option("--keep-models", help="Requests of a trace that name models ask for them."),
    ] = False
    concurrency: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Closed loop: so many clients, each of which sends its next request when its "
            "last one was answered. [default: open loop, by the schedule]",
        ),
    ] = None
    think: Annotated[
        str,
        typer.Option(help="Closed loop: time between an answer and the client's next request."),
    ] = "0s"
    ramp: Annotated[
        str | None,
        typer.Option(
            help="START:END:TIME: the load changes evenly from one level to another, and stays "
            "there: 1:8:60s. Levels are requests per second of --rate, clients of a closed loop, "
            "and of a trace how many times as fast as it is."
        ),
    ] = None
    duration: Annotated[
        str | None,
        typer.Option(help="Measured time, such as 60s. [default: 30s; of a trace: all of it]"),
    ] = None
    requests: Annotated[
        int | None,
        typer.Option(min=1, help="At most so many requests; of a trace, after the warm-up."),
    ] = None
    warmup: Annotated[
        str | None,
        typer.Option(
            help="Time before the measured one: the same load with other text, counted in no "
            "figure. [default: 5s; 0s for a closed loop over a trace]"
        ),
    ] = None
    endpoint: Annotated[
        str | None,
        typer.Option(
            help="chat, completions or embeddings. [default: of the trace, else chat]",
        ),
    ] = None
    stream: Annotated[
        bool | None,
        typer.Option(
            help="Ask for streams, or for whole answers. [default: of the trace, else streams]"
        ),
    ] = None
    ignore_eos: Annotated[
        bool | None,
        typer.Option(
            help="Answers go on to their planned length. [default: where the server is known to "
            "be able to: vLLM, SGLang, TensorRT-LLM, llama.cpp]"
        ),
    ] = None
    body_field: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=JSON: a further field of every request's body, such as temperature=0.7. "
            "May be repeated."
        ),
    ] = None
    calibrate: Annotated[
        bool,
        typer.Option(
            help="Learn before the run how many tokens text becomes, by the server's tokenizer or "
            "three short requests."
        ),
    ] = True
    slo: SloTargets = None
    header: Annotated[
        list[str] | None,
        typer.Option(help="'NAME: VALUE' of every request; may be repeated. No keys here."),
    ] = None
    tenant_header: Annotated[
        str | None,
        typer.Option(help="Name of a header whose value is the tenant's name."),
    ] = None
    api_key_env: Annotated[
        str | None,
        typer.Option(
            help="Environment variable with the API key: keys on a command line are seen by all."
        ),
    ] = None
    api_key_file: Annotated[
        Path | None,
        typer.Option(help="File with the API key in its first line."),
    ] = None
    tenant_key: Annotated[
        list[str] | None,
        typer.Option(
            help="TENANT=VARIABLE: the API key of this tenant of the trace is in that environment "
            "variable. May be repeated."
        ),
    ] = None
    timeout: Annotated[
        str,
        typer.Option(help="Silence after which an answer is given up."),
    ] = "10m"
    give_up: Annotated[
        str,
        typer.Option(
            help="Without a byte from the endpoint for so long, while requests wait, the run ends."
        ),
    ] = "10m"
    drain: Annotated[
        str,
        typer.Option(help="Time that answers have after the last request was due."),
    ] = "60s"
    connect_timeout: Annotated[
        str,
        typer.Option(help="For a connection to be made."),
    ] = "10s"
    connections: Annotated[
        int,
        typer.Option(min=1, help="At most so many connections; a request beyond that is unsent."),
    ] = 4096
    cancel_ratio: Annotated[
        float,
        typer.Option(help="Share of requests whose client leaves before the answer is whole."),
    ] = 0.0
    cancel_after: Annotated[
        str,
        typer.Option(help="When it leaves: the mean of an exponential distribution."),
    ] = "1s"
    retries: Annotated[
        int,
        typer.Option(min=0, help="Times that a request that failed is sent again."),
    ] = 0
    seed: Annotated[
        int,
        typer.Option(help="Of all that is random here; a synthetic trace may have its own."),
    ] = 0
    config: Annotated[
        Path | None,
        typer.Option(help="A mileage.toml: its targets ([slo]) and prices ([costs])."),
    ] = None
    price: Annotated[
        float | None,
        typer.Option(
            "--price",
            "--gpu-price",
            help="USD for an hour of one GPU of the endpoint. [default: of the configuration]",
        ),
    ] = None
    gpus: Annotated[
        int,
        typer.Option(min=1, help="GPUs that serve the endpoint, for its cost."),
    ] = 1
