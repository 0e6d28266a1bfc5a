"""docs/reference/metrics.md out of the places in the code that define metric families."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

__all__ = ["Metric", "families_in", "families_under", "render"]

INTRO = """\
# Metrics

<!-- Written by `make docs` from the code; change the help texts there. -->

The admin plane serves these at `/metrics`, in the Prometheus text format, summed over the worker
processes. Units are base units: seconds, bytes, tokens, ratios of 0 to 1. Every label has bounded
values; past a family's bound further series are counted under `other`. A figure that an engine
does not report is absent, never 0.

| Metric | Kind | Labels | Meaning |
|---|---|---|---|
"""
PREFIXES = ("mileage_", "llm_")
KINDS = {"Counter": "counter", "Gauge": "gauge", "Histogram": "histogram"}


class Metric(NamedTuple):
    """One metric family as its constructor is called."""

    name: str
    kind: str
    labels: tuple[str, ...]
    help: str


def render(metrics: Iterable[Metric]) -> str:
    """The page, sorted by name."""
    rows = []
    for metric in sorted(metrics):
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        rows.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |\n")
    return INTRO + "".join(rows)


def families_under(directory: Path) -> list[Metric]:
    """Every family that a module below the directory defines."""
    return [
        metric
        for path in sorted(directory.rglob("*.py"))
        for metric in families_in(path.read_text("utf-8"))
    ]


def families_in(text: str) -> list[Metric]:
    """Every `Counter`, `Gauge` or `Histogram` made with a literal name of ours, or OpenCost's for
    language models."""
    if not any(kind in text for kind in KINDS):
        return []  # most modules: not worth a syntax tree
    tree = ast.parse(text)
    tuples = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name) and isinstance(node.value, ast.Tuple)
    }
    found = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute)):
            continue
        kind = KINDS.get(node.func.id if isinstance(node.func, ast.Name) else node.func.attr)
        given: dict[str, ast.expr] = dict(
            zip(("name", "help", "labels"), node.args, strict=False)
        ) | {k.arg: k.value for k in node.keywords if k.arg}
        match given.get("name"):
            case ast.Constant(value=str(name)) if kind and name.startswith(PREFIXES):
                labels = given.get("labels", ast.Tuple([], ast.Load()))
                if isinstance(labels, ast.Name):
                    labels = tuples[labels.id]
                found.append(
                    Metric(
                        name,
                        kind,
                        tuple(ast.literal_eval(labels)),
                        ast.literal_eval(given["help"]),
                    )
                )
    return found
