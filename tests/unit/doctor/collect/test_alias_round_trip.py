"""Every spelling of the alias table, of every engine, comes out as the fact that it means."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from mileage.doctor.collect.engine_facts import engine_facts
from mileage.doctor.collect.engine_record import EngineRecord, RecordedPage
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.measure.engine_aliases import ALIASES, Figure, KnownKind
from mileage.measure.page_expressions import Binary, Expression, Label, Percent, Series
from tests.support.engine_pages import checked

FACTS: dict[Figure, str] = {
    "running": "signals.requests_running",
    "waiting": "signals.requests_waiting",
    "running_max": "settings.max_num_seqs",
    "kv_cache_usage_ratio": "signals.kv_cache_usage_ratio",
    "kv_tokens_max": "signals.kv_cache_capacity_tokens",
    "prefix_cache_hit_ratio": "signals.prefix_cache_hit_ratio",
    "preemptions_total": "signals.preemptions_count",
    "prompt_tokens_total": "signals.prompt_tokens_per_s",
    "output_tokens_total": "signals.output_tokens_per_s",
}
"""Figures that a fact has by itself; of hits and lookups there are two to each fact."""
FIRST_S, LAST_S = 100.0, 110.0


def series(expression: Expression, value: float) -> dict[str, tuple[str, float]]:
    """Lines of a page on which the expression has this value: text before the number, number."""
    match expression:
        case Series(name=name, label=label, value=labelled, help_word=word):
            labels = f'{{{label}="{labelled}"}}' if label else ""
            help_line = f"# HELP {name} in {word}s\n" if word else ""
            return {name: (f"{help_line}{name}{labels}", value)}
        case Label(name=name, label=label):
            return {name: (f'{name}{{{label}="{value:g}"}}', 1.0)}
        case Percent(of=of, beside=beside):
            found = series(of, value * 100)
            return {**found, beside: (beside, 0.0)} if beside else found
        case Binary(left=left, operator=operator, right=right):
            a, b = {"×": (value / 2, 2), "÷": (value * 4, 4), "+": (value - 1, 1)}[operator]
            if isinstance(left, Label) and isinstance(right, Label):
                text = f'{left.name}{{{left.label}="{a:g}",{right.label}="{b:g}"}}'
                return {left.name: (text, 1.0)}
            one, other = series(left, a), series(right, b)
            if left.name == right.name:
                return {left.name: one[left.name], f"{left.name} ": other[right.name]}
            return {**one, **other}
    raise AssertionError(expression)


def cases() -> Iterator[Any]:
    """One for each expression of the table."""
    for kind, table in ALIASES.items():
        for figure in FACTS:
            for expression in table.get(figure, ()):
                yield pytest.param(kind, figure, expression, id=f"{kind} {figure}: {expression}")


def page(kind: KnownKind, expression: Expression, value: float) -> str:
    """As the engine would write it: text, or JSON where the names are paths."""
    lines = series(expression, value)
    if any(name[0].islower() and any(char.isupper() for char in name) for name in lines):
        record: dict[str, Any] = {}
        for name, (_, number) in lines.items():
            outer, dot, inner = name.partition(".")
            if dot:
                record.setdefault(outer, {})[inner] = number
            else:
                record[name] = number
        return msgspec.json.encode([record]).decode()
    marks = {"vllm": "vllm:x 0", "sglang": "sglang:x 0", "trtllm": "trtllm_x 0"}
    marks |= {"triton": "nv_x 0", "llamacpp": "llamacpp:x 0"}
    return "\n".join([marks[kind], *(f"{text} {number}" for text, number in lines.values())])


@pytest.mark.parametrize(("kind", "figure", "expression"), list(cases()))
def test_each_expression_gives_its_fact(
    kind: KnownKind, figure: Figure, expression: Expression
) -> None:
    is_total, is_ratio = figure.endswith("_total"), figure.endswith("_ratio")
    first, last = (0.25, 0.25) if is_ratio else (40.0, 80.0) if is_total else (80.0, 80.0)
    record = EngineRecord(
        url="http://engine",
        pages=tuple(
            RecordedPage(at_s=at_s, at_utc_s=at_s, path="/metrics", text=page(kind, expression, v))
            for at_s, v in ((FIRST_S, first), (LAST_S, last))
        ),
    )
    document = checked(merge_facts(engine_facts(record)).document)
    section, _, name = FACTS[figure].partition(".")
    expected = {"signals.preemptions_count": 40.0}.get(FACTS[figure], 4.0 if is_total else last)
    assert document[section][name] == pytest.approx(expected)


@pytest.mark.parametrize("kind", list(ALIASES))
def test_hits_and_lookups_give_the_ratio(kind: KnownKind) -> None:
    table = ALIASES[kind]
    hits, queries = (
        table.get(figure, ())
        for figure in ("prefix_cache_hit_tokens_total", "prefix_cache_query_tokens_total")
    )
    for hit, query in zip(hits, queries, strict=False):
        if isinstance(hit, Binary) or isinstance(query, Binary):
            continue  # they share series, or their labels: other tests have them
        texts = [f"{page(kind, hit, a)}\n{page(kind, query, b)}" for a, b in ((10, 100), (40, 200))]
        record = EngineRecord(
            url="http://engine",
            pages=tuple(
                RecordedPage(at_s=at_s, at_utc_s=at_s, path="/metrics", text=text)
                for at_s, text in zip((FIRST_S, LAST_S), texts, strict=True)
            ),
        )
        signals = checked(merge_facts(engine_facts(record)).document)["signals"]
        assert signals["prefix_cache_hit_ratio"] == pytest.approx(0.3)
        assert signals["prefix_cache_hits_tokens"] == 30
        assert signals["prefix_cache_queries_tokens"] == 100
