"""`mileage quant`: how few bits a model needs."""

from __future__ import annotations

import typer

from mileage.cli.bench_document import encoded
from mileage.cli.quant_arguments import KvArguments
from mileage.cli.quant_document import kv_document, show_kv
from mileage.cli.quant_kv import search_kv
from mileage.cli.simulate_arguments import taking
from mileage.cli.usage import show_usage

__all__ = ["quant"]

quant = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Find how few bits a model's KV cache needs, and what engines can be told of it.",
)


@quant.callback()
def group() -> None:
    """Find how few bits a model's KV cache needs, and what engines can be told of it."""


@quant.command()
@taking(KvArguments)
def kv(context: typer.Context, arguments: KvArguments) -> None:
    """Choose a number format for the keys and the values of each layer, within a KL budget.

    Runs the model in float32 on this machine's CPU: what each format does to attention, what each
    layer's keys and values cost alone, the exact best mix of them, and its KL on text that had no
    part in the choice. Then each engine's own best setting within the same budget. Needs
    mileage[quant]. Exits with 1 where the budget is not met on the held-out text.

    Example: mileage quant kv SmolLM2-135M-Instruct.Q4_1.gguf --budget-kl 0.005
    """
    if arguments.path is None:
        show_usage(context, "PATH", as_json=arguments.as_json)
    result = search_kv(arguments.path, arguments)
    if arguments.as_json:
        typer.echo(encoded(kv_document(result)))
    else:
        show_kv(result)
    if result.budget_met is False:
        raise typer.Exit(1)
