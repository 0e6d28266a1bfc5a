"""Judges the oracle's steps and the cost model's on the same measured rows.

The oracle knows no closed loop, so its steps are put into the cost model's: see
`mileage.costmodel.closed_loop` for what the formulas say. How many requests decode at once, and
what a first token takes besides steps, both take from the cost model, whose efficiencies are fitted
without the source class that a row is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.support.measured import Measured, classes
from benchmarks.support.oracle_client import Answer, Step, ask, query, seconds
from benchmarks.support.steptime_fit import Predictor, fit, thinned
from benchmarks.support.steptime_judge import SATURATED_RATIO
from mileage.costmodel.efficiency import Efficiency
from mileage.costmodel.operators import Array
from mileage.costmodel.rates import rates

__all__ = ["Judgement", "judge_rows", "loop_s", "ratios"]


@dataclass(frozen=True, slots=True)
class Judgement:
    """One row: predicted over measured, by either. None: not measured, or saturated."""

    row: Measured
    ours_tpot: float
    oracle_tpot: float
    ours_ttft: float | None
    oracle_ttft: float | None


@dataclass(frozen=True, slots=True)
class _Asked:
    row: Measured
    decoding: int
    ours_tpot_s: float
    ours_ttft_s: float | None
    """None: saturated."""
    efficiency: Efficiency


def judge_rows(rows: Sequence[Measured], tell: Callable[[str], None]) -> list[Judgement]:
    """Rows of models and GPUs that both know, some of each set-up."""
    asked = [each for name in classes(rows) for each in _class(rows, name, tell)]
    queries, places = _queries(asked)
    tell(f"asking the oracle for steps of {len(queries)} set-ups, for {len(asked)} rows")
    _, answers = ask(queries)
    return list(_judged(asked, answers, places))


def _class(rows: Sequence[Measured], name: str, tell: Callable[[str], None]) -> Iterator[_Asked]:
    known = [row for row in rows if row.source_class == name and _both_know(row)]
    if not known:
        return
    tell(f"fitting without {name}")
    known = thinned(known)
    efficiency = fit([row for row in rows if row.source_class != name])
    found = Predictor(known).latencies(efficiency)
    outputs = np.array([max(row.output_tokens - 1.0, 1.0) for row in known])
    share = outputs * found.tpot_s / (outputs * found.tpot_s + found.ttft_s)
    for i, row in enumerate(known):
        running = min(row.requests, row.running_max)
        saturated = found.prefill_share_ratio[i] > SATURATED_RATIO
        yield _Asked(
            row=row,
            decoding=max(1, round(float(share[i]) * running)),
            ours_tpot_s=float(found.tpot_s[i]),
            ours_ttft_s=None if saturated else float(found.ttft_s[i]),
            efficiency=efficiency,
        )


def _both_know(row: Measured) -> bool:
    deployment = row.deployment
    return (
        row.tpot_s is not None
        and deployment.data_parallel == 1
        and query(deployment, []) is not None
    )


def _steps(asked: _Asked) -> list[Step]:
    """A step that only decodes, and one with the prompt, or a chunk of it, beside it."""
    row = asked.row
    context = round(row.prompt_tokens + row.output_tokens / 2.0)
    decode = Step(asked.decoding, context)
    return [decode, decode._replace(prompt_tokens=round(_chunk(asked)))]


def _chunk(asked: _Asked) -> float:
    room = max(asked.row.step_tokens_max - asked.decoding, 1)
    return min(asked.row.prompt_tokens, room)


def _queries(asked: Sequence[_Asked]) -> tuple[list[dict[str, Any]], list[tuple[int, int]]]:
    """Steps of one layout in one query; of each row the query, and where its steps begin."""
    index: dict[str, int] = {}
    queries: list[dict[str, Any]] = []
    places = []
    for each in asked:
        own = query(each.row.deployment, _steps(each))
        assert own is not None
        key = repr({name: value for name, value in own.items() if name != "steps"})
        if key not in index:
            index[key] = len(queries)
            queries.append({**own, "steps": []})
        at = index[key]
        places.append((at, len(queries[at]["steps"])))
        queries[at]["steps"] += own["steps"]
    return queries, places


def _judged(
    asked: Sequence[_Asked], answers: Sequence[Answer], places: Sequence[tuple[int, int]]
) -> Iterator[Judgement]:
    for each, (at, first) in zip(asked, places, strict=True):
        decode, mixed = answers[at].steps[first : first + 2]
        if decode is None or mixed is None or each.row.tpot_s is None:
            continue
        tpot_s, ttft_s = loop_s(
            each.row, each.decoding, seconds(decode), seconds(mixed), each.efficiency
        )
        measured_s = each.row.ttft_s if each.ours_ttft_s is not None else None
        yield Judgement(
            row=each.row,
            ours_tpot=each.ours_tpot_s / each.row.tpot_s,
            oracle_tpot=tpot_s / each.row.tpot_s,
            ours_ttft=each.ours_ttft_s / measured_s if each.ours_ttft_s and measured_s else None,
            oracle_ttft=ttft_s / measured_s if measured_s else None,
        )


def loop_s(
    row: Measured, decoding: int, decode_s: float, mixed_s: float, efficiency: Efficiency
) -> tuple[float, float]:
    """TPOT and TTFT of the closed loop, with steps that take so long."""
    rate = rates(row.deployment, efficiency)
    running = min(row.requests, row.running_max)
    room = max(row.step_tokens_max - decoding, 1)
    chunks = row.prompt_tokens / min(row.prompt_tokens, room)
    prompt_s = chunks * max(mixed_s - decode_s, 0.0)
    others = max(running - 1.0, 0.0)
    group = min(running, max(room / row.prompt_tokens, 1.0))
    before = max(rate.clump_ratio / 2.0 * others, (group - 1.0) * row.same_length)
    tpot_s = decode_s + (others - before) * prompt_s / max(row.output_tokens - 1.0, 1.0)
    waiting_s = decode_s / 2.0 if running > 1.0 else 0.0
    return tpot_s, rate.ttft_s + waiting_s + chunks * mixed_s + before * prompt_s


def ratios(judged: Sequence[Judgement], name: str) -> Array:
    """All of one field that are known."""
    values = [getattr(each, name) for each in judged]
    return np.array([value for value in values if value is not None], dtype=np.float64)
