"""Options of `mileage bench ab`, beside those of every kind of run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from mileage.cli.bench_arguments import LoadArguments
from mileage.cli.bench_options import AdminTokenEnv, AdminTokenFile, AsJson, Report

__all__ = ["AbArguments"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AbArguments(LoadArguments):
    """Of `mileage bench ab A [B]`."""

    a: Annotated[str, typer.Argument(metavar="A", help="The endpoint of arm a: http://HOST:PORT.")]
    b: Annotated[
        str | None,
        typer.Argument(
            metavar="[B]",
            help="That of arm b. [default: A, whose settings are changed: --set-a, --set-b, "
            "--command-a, --command-b]",
        ),
    ] = None
    mode: Annotated[
        str,
        typer.Option(
            help="interleaved: the arms take turns; mirrored: each request goes to both at once, "
            "for endpoints with hardware of their own; auto: mirrored for two endpoints on two "
            "hosts that are not this one, else interleaved."
        ),
    ] = "auto"
    slot: Annotated[str, typer.Option(help="Time of one arm's turn, its wash-out included.")] = (
        "30s"
    )
    wash_out: Annotated[
        str | None,
        typer.Option(
            help="Time at the beginning of each slot that counts in no figure. [default: 5s, and "
            "at most a sixth of the slot; closed loop: the first tenth of its requests]"
        ),
    ] = None
    slot_requests: Annotated[
        int | None,
        typer.Option(
            min=2, help="Closed loop: requests of a slot. [default: 20 for each of the clients]"
        ),
    ] = None
    max_duration: Annotated[
        str, typer.Option(help="The run ends at the latest after about this time.")
    ] = "15m"
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="A metric that decides, such as e2e_p99_s, goodput_rps or output_tokens_per_s. "
            "May be repeated: several share the chance of a false alarm. [default: ttft_p99_s; "
            "without streams e2e_p99_s]"
        ),
    ] = None
    effect: Annotated[
        float,
        typer.Option(
            help="The smallest change that matters, as a share: the run ends early where none "
            "larger is left possible, and tells how long it takes to see one of this size."
        ),
    ] = 0.05
    power: Annotated[
        float, typer.Option(help="Chance to see such a change, of the time that is told.")
    ] = 0.8
    alpha: Annotated[
        float,
        typer.Option(
            help="Chance that two equal arms are said to differ, over all looks at the run."
        ),
    ] = 0.05
    set_a: Annotated[
        list[str] | None,
        typer.Option(
            "--set-a",
            help="SECTION.KEY=VALUE of a Mileage gateway, in force during the slots of arm a, by "
            "its admin plane; as it was before at the end. May be repeated.",
        ),
    ] = None
    set_b: Annotated[list[str] | None, typer.Option("--set-b", help="The same for arm b.")] = None
    admin_url: Annotated[
        str, typer.Option(help="Of --set-a, --set-b: the gateway's admin plane.")
    ] = "http://127.0.0.1:8081"
    admin_token_env: AdminTokenEnv = None
    admin_token_file: AdminTokenFile = None
    command_a: Annotated[
        str | None,
        typer.Option(
            help="Run by the shell before each slot of arm a; the slot begins when it has ended "
            "and the endpoint answers."
        ),
    ] = None
    command_b: Annotated[str | None, typer.Option(help="The same for arm b.")] = None
    command_end: Annotated[
        str | None, typer.Option(help="Run at the end, however the run ended.")
    ] = None
    ready_timeout: Annotated[
        str, typer.Option(help="For a command to end, and for the endpoint to answer after it.")
    ] = "5m"
    same_prompts: Annotated[
        bool,
        typer.Option(
            "--same-prompts",
            help="One endpoint: send both arms the same text, though the second finds it in the "
            "prefix cache. [default: other text of the same lengths]",
        ),
    ] = False
    cache_is_the_effect: Annotated[
        bool,
        typer.Option(
            "--cache-is-the-effect",
            help="The arms are meant to differ in how much they find in their caches.",
        ),
    ] = False
    api_key_env_b: Annotated[
        str | None,
        typer.Option(help="Environment variable with B's API key. [default: as A's]"),
    ] = None
    dcgm_url: Annotated[
        str | None,
        typer.Option(help="Page of a DCGM exporter that has the GPUs of A (and B)."),
    ] = None
    gpu_id: Annotated[
        list[str] | None,
        typer.Option(help="A GPU of A, there or on this machine. May be repeated."),
    ] = None
    gpu_id_b: Annotated[
        list[str] | None,
        typer.Option(help="A GPU of B. May be repeated. [default: as those of A]"),
    ] = None
    engine_url: Annotated[
        list[str] | None,
        typer.Option(help="An engine behind A, where that is a gateway. May be repeated."),
    ] = None
    engine_url_b: Annotated[
        list[str] | None, typer.Option(help="An engine behind B. May be repeated.")
    ] = None
    price_b: Annotated[
        float | None,
        typer.Option(help="USD for an hour of one GPU of B. [default: as --price]"),
    ] = None
    gpus_b: Annotated[int | None, typer.Option(min=1, help="GPUs of B. [default: as --gpus]")] = (
        None
    )
    save: Annotated[
        Path | None,
        typer.Option(
            help="Write each arm as a run, for mileage bench diff: to this path with -a and -b "
            "before its suffix."
        ),
    ] = None
    report: Report = None
    as_json: AsJson = False
