"""`mileage engine`: what an inference engine can be told while it runs, and before."""

from __future__ import annotations

import typer

from mileage.cli.engine_config import config
from mileage.cli.engine_control import control
from mileage.cli.engine_graphs import graphs
from mileage.cli.engine_launch import launch
from mileage.cli.engine_lora import lora
from mileage.cli.engine_models import models, sleep, wake
from mileage.cli.engine_starts import starts

__all__ = ["engine"]

engine = typer.Typer()


@engine.callback()
def _engine() -> None:
    """Inference engines: configured, started, and steered while they run.

    Before: config, graphs. On this machine: launch, starts. While one runs: control. Through a
    running gateway: models, sleep, wake, lora.

    Example: mileage engine launch vllm --model Qwen/Qwen3-8B --ready-port 9000
    """


engine.command(short_help="What an engine is started with, out of a plan.")(config)
engine.command(short_help="A running vLLM's limits: show or change them.")(control)
engine.command(short_help="The sizes of CUDA graphs that lose least.")(graphs)
engine.command(short_help="Start an engine, warm it, keep it running.")(launch)
engine.command(short_help="A gateway's models that can sleep.")(models)
engine.command(short_help="Unload a model now.")(sleep)
engine.command(short_help="How long the last starts took.")(starts)
engine.command(short_help="Load a model now.")(wake)
engine.add_typer(lora, name="lora", short_help="A gateway's LoRA adapters: list, load, pin.")
