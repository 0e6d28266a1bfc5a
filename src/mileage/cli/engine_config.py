"""`mileage engine config`: what an engine is started with, out of a plan in no engine's words."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from mileage.cli.deploy_files import tell_files, write_files
from mileage.cli.plan_file import read_plan_document
from mileage.cli.planned_model import planned_model, with_tokens
from mileage.cli.terminal_text import safe_text
from mileage.core.errors import ConfigError
from mileage.engines.configuration.configuration import Configuration
from mileage.engines.configuration.generate import ENGINES, PlannedEngine, configure

__all__ = ["config"]

_GB: Final = 1e9


def config(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help=f"One of {', '.join(ENGINES)}.")],
    plan: Annotated[
        Path | None,
        typer.Argument(metavar="[PLAN]", help="The plan: a TOML file, or a JSON one (*.json)."),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="A key of the plan, over the file: running_max=64, lora.slots=4. A value is JSON, "
            "and text where it is none.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the files into this directory; the commands name them there. "
            "[default: print them]"
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 if the engine cannot be told all of it.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the command line and the files that start an engine as a plan says.

    One plan serves all engines. What an engine has no words for is told as a warning that names
    the plan's key; a value that it cannot have is an error. With a GPU in the plan the KV cache is
    computed, and whether the model fits.

    Exit code 1: --strict, and there are warnings; 2: a value, or a file, is none.

    Example: mileage engine config vllm --set model=Qwen/Qwen3-8B --set running_max=64
    """
    if engine not in ENGINES:
        raise ConfigError("ENGINE", engine, f"one of {', '.join(ENGINES)}")
    chosen: PlannedEngine = next(each for each in ENGINES if each == engine)
    document, asked = read_plan_document(plan, assignments or ())
    try:
        model = planned_model(chosen, asked)
        if chosen == "onnx":
            asked = with_tokens(asked)
        found = configure(chosen, asked, model, out)
    except ConfigError as error:
        raise document.placed(error) from None
    written = None
    if out is not None:
        written = write_files(out, {name: text.encode() for name, text in found.files.items()})
    if as_json:
        typer.echo(msgspec.json.encode(_document(found, written)))
    else:
        tell_files(written or (), as_json=False)
        _show(found, files=out is None)
    for warning in found.warnings:
        typer.echo(f"mileage: {warning.field}: {safe_text(warning.message)}", err=True)
    if strict and found.warnings:
        raise typer.Exit(1)


def _document(found: Configuration, written: list[str] | None) -> dict[str, Any]:
    """`files` by name, or the paths of those that were written."""
    return {
        "engine": found.engine,
        "commands": [{"argv": words, "line": _line(found, words)} for words in found.commands],
        "environment": found.environment,
        "files": found.files if written is None else written,
        "warnings": found.warnings,
        "kv_cache": found.kv_cache,
    }


def _line(found: Configuration, words: tuple[str, ...]) -> str:
    variables = [f"{name}={shlex.quote(value)}" for name, value in found.environment.items()]
    return " ".join([*variables, shlex.join(words)])


def _show(found: Configuration, *, files: bool) -> None:
    for words in found.commands:
        typer.echo(_line(found, words))
    if (cache := found.kv_cache) is not None:
        typer.echo(
            f"# KV cache: {cache.blocks:,} blocks of {cache.block_tokens} tokens, "
            f"{cache.bytes / _GB:.1f} GB of {cache.gpu_bytes / _GB:.1f} on each GPU, beside "
            f"{cache.weights_bytes / _GB:.1f} GB of weights"
        )
    if files:
        for name, text in found.files.items():
            typer.echo(f"# {name}\n{text}", nl=False)
