"""`mileage explain RULE`: the page of a rule of the doctor, in the terminal."""

from __future__ import annotations

from typing import Annotated

import msgspec
import typer
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from mileage.cli.bench_document import encoded
from mileage.cli.wide_console import wide_console
from mileage.core.errors import ConfigError
from mileage.doctor.rule import Rule
from mileage.doctor.rule_page import rule_page
from mileage.doctor.rules.all_rules import RULES

__all__ = ["explain"]


def explain(
    rule: Annotated[
        str | None,
        typer.Argument(metavar="[RULE]", help="ID, name or cause of a rule. [default: list all]"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Explain a rule of the doctor: why it costs money, how it is told, what to do.

    Example: mileage explain kv_preemption
    """
    if rule is None:
        _list(as_json)
        return
    found = _find(rule)
    if as_json:
        typer.echo(encoded(_document(found)))
        return
    wide_console().print(Markdown(rule_page(found)))


def _find(asked: str) -> Rule:
    wanted = asked.strip().lower()
    for each in RULES:
        if wanted in (each.id.lower(), each.name, each.cause):
            return each
    words = set(wanted.split("_"))
    near = [each.cause for each in RULES if words & set(each.cause.split("_"))][:4]
    hint = f" (nearest: {', '.join(near)})" if near else ""
    raise ConfigError("RULE", asked, f"a rule's id, name or cause{hint}")


def _document(found: Rule) -> dict[str, object]:
    fields = msgspec.structs.asdict(found)
    fields.pop("check")
    return fields


def _list(as_json: bool) -> None:
    if as_json:
        typer.echo(encoded({"rules": [_document(each) for each in RULES]}))
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("rule", "cause", "what it is"):
        table.add_column(name)
    for each in RULES:
        table.add_row(each.id, each.cause, Text(each.title))
    wide_console().print(table)
