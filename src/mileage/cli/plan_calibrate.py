"""`mileage plan calibrate`: how a real engine's steps differ from those that the model expects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from mileage.cli.calibration_file import CalibrationFile
from mileage.cli.model_options import KvDtype, WeightPrecision
from mileage.cli.plan_calibrate_source import Recorded, read_recorded
from mileage.cli.plan_calibrate_tables import show_calibration
from mileage.cli.simulate_arguments import RunArguments, taking
from mileage.cli.simulate_features import features_of
from mileage.cli.simulate_fitted import is_fitted
from mileage.cli.simulate_fleet import Fleet, fleet_of
from mileage.cli.whole_file import check_place, whole_file
from mileage.control.config import CostsConfig
from mileage.core.errors import ConfigError
from mileage.core.slo import SloConfig
from mileage.costmodel.efficiency_table import FITTED
from mileage.planner.calibrate import Calibrated, calibrate_steps
from mileage.planner.calibrate import calibrate as learned

__all__ = ["register_calibrate"]

_NOT_ENOUGH: Final = 3
_LAST: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrateArguments:
    """Of `mileage plan calibrate`: options of the deployment are spelled as in simulate."""

    source: Annotated[
        Path,
        typer.Argument(
            metavar="SOURCE",
            help="A run of mileage bench --save, a ledger's directory, or steps that vLLM's plugin "
            "wrote: a *.steps file, or a directory of them.",
        ),
    ]
    model: Annotated[
        str,
        typer.Option(
            help="What the engine serves: a known model, or the path of a Hugging Face config.json "
            "or a GGUF file."
        ),
    ]
    gpu: Annotated[str, typer.Option(help="Name of the GPU that it ran on: h100, l40s.")]
    tp: Annotated[int, typer.Option(min=1, help="Its tensor-parallel GPUs.")] = 1
    dp: Annotated[int, typer.Option(min=1, help="Its data-parallel attention ranks.")] = 1
    pp: Annotated[int, typer.Option(min=1, help="Its pipeline stages.")] = 1
    ep: Annotated[int, typer.Option(min=1, help="Ranks that experts are spread over.")] = 1
    precision: WeightPrecision = None
    kv_dtype: KvDtype = "bf16"
    engine: Annotated[str, typer.Option(help="vllm, sglang or trtllm.")] = "vllm"
    engine_max_seqs: Annotated[
        int | None,
        typer.Option(help="Requests that it runs at once. [default: vLLM's on that GPU]"),
    ] = None
    engine_tokens: Annotated[
        int | None, typer.Option(help="Tokens of its steps. [default: vLLM's on that GPU]")
    ] = None
    gpu_memory: Annotated[float, typer.Option(help="Share of the memory that it uses.")] = 0.9
    replica: Annotated[
        str | None,
        typer.Option(help="Of which engine, or target of the run. [default: with most answers]"),
    ] = None
    last: Annotated[
        int, typer.Option(min=1, max=1_000_000, help="Learn from so many of the latest answers.")
    ] = _LAST
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("calibration.json")
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False


@taking(CalibrateArguments)
def calibrate(context: typer.Context, arguments: CalibrateArguments) -> None:
    """Improve the step-time model by a real run of an engine, and show by how much.

    Writes multiples of the model's times into a file, which `simulate` takes as its calibration.
    Errors of TTFT and ITL are of the second half of the requests, by what the first half taught.
    Exits with 3 where there is too little to learn from.

    Example: mileage plan calibrate run.mlrun --model llama-3.1-8b --gpu h100 --out calibration.json
    """
    if arguments.out.suffix != ".json":
        raise ConfigError("--out", str(arguments.out), "a file that ends in .json")
    check_place(arguments.out, key="--out")
    fleet = _fleet(arguments)
    try:
        recorded = read_recorded(arguments.source, replica=arguments.replica, last=arguments.last)
        found = _learned(fleet, recorded)
    except ConfigError as error:
        if error.key != "samples":
            raise
        typer.echo(f"mileage: too little to learn from in {arguments.source}: {error}", err=True)
        raise typer.Exit(_NOT_ENOUGH) from None
    if recorded.others and arguments.replica is None:
        told = f"learned of {recorded.replica}, of {recorded.others + 1} engines"
        typer.echo(f"mileage: {told}", err=True)
    written = CalibrationFile(
        model=fleet.model,
        gpu=fleet.gpu,
        engine=arguments.engine,
        layout=fleet.layout,
        calibration=found.calibration,
    )
    with whole_file(arguments.out, key="--out") as file:
        file.write(msgspec.json.format(msgspec.json.encode(written), indent=2) + b"\n")
    if arguments.as_json:
        typer.echo(_document(arguments.out, recorded, written, found))
    else:
        show_calibration(arguments.out, recorded, written, found)


def register_calibrate(group: typer.Typer) -> None:
    """Add the subcommand."""
    group.command()(calibrate)


def _fleet(arguments: CalibrateArguments) -> Fleet:
    """One such engine. Raises ConfigError by option."""
    if is_fitted(arguments.engine):
        raise ConfigError("--engine", arguments.engine, "vllm, sglang or trtllm")
    run = RunArguments(
        model=arguments.model,
        dp=arguments.dp,
        pp=arguments.pp,
        ep=arguments.ep,
        precision=arguments.precision,
        kv_dtype=arguments.kv_dtype,
        engine=arguments.engine,
        engine_max_seqs=arguments.engine_max_seqs,
        engine_tokens=arguments.engine_tokens,
        gpu_memory=arguments.gpu_memory,
        prefix_cache=False,
    )
    (features,) = features_of(run)
    return fleet_of(run, arguments.gpu, arguments.tp, features, CostsConfig(), SloConfig())


def _learned(fleet: Fleet, recorded: Recorded) -> Calibrated:
    (spec,) = fleet.specs
    if recorded.samples is not None:
        return calibrate_steps(recorded.samples, fleet.table)
    return learned(
        recorded.served,
        spec,
        step_tokens_max=fleet.engine.step_tokens_max,
        first_token_s=FITTED.ttft_s,
        fill=fleet.fill,
    )


def _document(path: Path, recorded: Recorded, written: CalibrationFile, found: Calibrated) -> str:
    calibration = found.calibration
    before, after = found.before, found.after
    tree = {
        "file": str(path),
        "replica": recorded.replica,
        "answers": len(recorded.served) if recorded.samples is None else None,
        "kind": found.kind,
        **msgspec.to_builtins(written),
        "at_bound": found.calibration.at_bound,
        "errors": {
            "step": {
                "before": calibration.error_before_ratio,
                "after": calibration.error_after_ratio,
            },
            "ttft": {
                "before": None if before is None else before.ttft_ratio,
                "after": None if after is None else after.ttft_ratio,
            },
            "itl": {
                "before": None if before is None else before.itl_ratio,
                "after": None if after is None else after.itl_ratio,
            },
        },
        "compared_requests": None if before is None else before.requests,
    }
    return msgspec.json.encode(tree).decode()
