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

engine = typer.Typer(help="Control inference engines: their limits while they run.")


@engine.callback()
def _engine() -> None:
    """Control inference engines: their limits while they run."""


engine.command()(config)
engine.command()(control)
engine.command()(graphs)
engine.command()(launch)
engine.command()(models)
engine.command()(sleep)
engine.command()(starts)
engine.command()(wake)
engine.add_typer(lora, name="lora")
