"""The lines in which engines tell their load every few seconds, as signals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

import msgspec

from mileage.doctor.collect.facts_document import per_unit, whole
from mileage.doctor.collect.log_line import LogLine

__all__ = ["StatsLines"]

POINTS_MAX: Final = 10_000
SERIES_MAX: Final = 200
_NUMBER: Final = r"(-?\d+(?:\.\d+)?)"
_VLLM: Final[Mapping[str, tuple[re.Pattern[str], float]]] = {
    "prompt_tokens_per_s": (re.compile(rf"Avg prompt throughput: {_NUMBER} tokens/s"), 1),
    "output_tokens_per_s": (re.compile(rf"Avg generation throughput: {_NUMBER} tokens/s"), 1),
    "requests_running": (re.compile(r"Running: (\d+) req"), 1),
    "requests_waiting": (re.compile(r"(?:Waiting|Pending): (\d+) req"), 1),
    "kv_cache_usage_ratio": (re.compile(rf"(?:GPU )?KV cache usage: {_NUMBER}%"), 100),
    "prefix_cache_hit_ratio": (re.compile(rf"(?<!MM )Prefix cache hit rate: {_NUMBER}%"), 100),
    "mm_cache_hit_ratio": (re.compile(rf"MM cache hit rate: {_NUMBER}%"), 100),
}
_SGLANG: Final[Mapping[str, tuple[re.Pattern[str], float]]] = {
    "requests_running": (re.compile(r"#running-req: (\d+)"), 1),
    "requests_waiting": (re.compile(r"#queue-req: (\d+)"), 1),
    "kv_cache_usage_ratio": (
        re.compile(rf"(?:full token usage|(?<!swa )(?<!full )token usage): {_NUMBER}"),
        1,
    ),
    "output_tokens_per_s": (re.compile(rf"gen throughput \(token/s\): {_NUMBER}"), 1),
    "spec_mean_accepted_len": (re.compile(rf"accept len: {_NUMBER}"), 1),
    "spec_acceptance_ratio": (re.compile(rf"accept rate: {_NUMBER}"), 1),
}
_TRITON: Final[Mapping[str, tuple[re.Pattern[str], float]]] = {
    "requests_running": (re.compile(r'Active Request Count\\?":(\d+)'), 1),
    "max_num_seqs": (re.compile(r'Max Request Count\\?":(\d+)'), 1),
}
_V0_HIT_RATE: Final = re.compile(rf"Prefix cache hit rate: GPU: {_NUMBER}%")
_SPEC_RATE: Final = re.compile(rf"[Dd]raft acceptance rate: {_NUMBER}(%?)")
_SPEC_LENGTH: Final = re.compile(rf"Mean acceptance length: {_NUMBER}")
_PREFILL: Final = re.compile(r"#new-token: (\d+), #cached-token: (\d+)")
_PREEMPTIONS: Final = re.compile(r"Preemptions: (\d+)")
_GRAPH: Final = re.compile(r"cuda graph: (True|False)")
_RATIOS: Final = frozenset(
    {"kv_cache_usage_ratio", "prefix_cache_hit_ratio", "mm_cache_hit_ratio"}
    | {"spec_acceptance_ratio"}
)
_CUMULATIVE: Final = frozenset({"prefix_cache_hit_ratio", "mm_cache_hit_ratio"})
"""Means over the last thousand requests, by the engine's own count: the newest one counts."""


class _Point(msgspec.Struct, frozen=True):
    at_s: float | None
    values: dict[str, float]


class StatsLines:
    """Collects what the lines tell, by scheduler, over the time in which it had work."""

    def __init__(self) -> None:
        self._points: dict[str, list[_Point]] = {}
        self._workers: dict[str, str] = {}
        self._new_tokens = self._cached_tokens = 0
        self._graphs: list[bool] = []
        self._preemptions = 0
        self.max_num_seqs: int | None = None

    def take(self, line: LogLine) -> bool:
        """Read a line; False where it tells no load."""
        text = line.text
        if "Avg generation throughput" in text:
            values = _values(_VLLM, text)
            if (preempted := _PREEMPTIONS.search(text)) is not None:
                self._preemptions += int(preempted[1])
            if values.get("mm_cache_hit_ratio") == 0:  # also told where no request had media
                del values["mm_cache_hit_ratio"]
        elif "Decode batch" in text:
            values = _values(_SGLANG, text)
            if (graph := _GRAPH.search(text)) is not None:
                self._graphs.append(graph[1] == "True")
        elif "Prefill batch" in text:
            return self._take_prefill(text)
        elif (hit_rate := _V0_HIT_RATE.search(text)) is not None:
            values = {"prefix_cache_hit_ratio": float(hit_rate[1]) / 100}
        elif "SpecDecoding metrics" in text:
            values = _speculation(text)
        elif "Active Request Count" in text:
            values = _values(_TRITON, text)
            most = values.pop("max_num_seqs", None)
            self.max_num_seqs = int(most) if most else self.max_num_seqs
        else:
            return False
        self._put(line, values)
        return True

    def signals(self) -> dict[str, Any]:
        """Of one scheduler a series over time, of several the mean of each, by rank."""
        ranks = sorted(self._points, key=lambda rank: (len(rank), rank))
        busy = {rank: _busy(self._points[rank]) for rank in ranks}
        names = sorted({n for points in busy.values() for point in points for n in point.values})
        signals: dict[str, Any] = {}
        for name in names:
            found = [_parts(busy[rank], name) for rank in ranks]
            known = [parts for parts in found if parts]
            if name in _CUMULATIVE:
                signals[name] = per_unit([parts[-1][1] for parts in known])
            elif len(known) == 1:
                signals[name] = _series(known[0])
            else:
                means = [sum(value for _, value in parts) / len(parts) for parts in known]
                signals[name] = per_unit(means)
        running = [parts for r in ranks if (parts := _parts(busy[r], "requests_running"))]
        if len(running) > 1:
            most = [max(value for _, value in parts) for parts in running]
            signals["requests_running_max"] = per_unit(most)
        looked_up = self._new_tokens + self._cached_tokens
        if looked_up and "prefix_cache_hit_ratio" not in signals:
            signals["prefix_cache_queries_tokens"] = looked_up
            signals["prefix_cache_hits_tokens"] = self._cached_tokens
            signals["prefix_cache_hit_ratio"] = self._cached_tokens / looked_up
        if self._preemptions:  # each line tells those since the line before
            signals["preemptions_count"] = self._preemptions
        if self._graphs:
            signals["graph_replay_ratio"] = sum(self._graphs) / len(self._graphs)
        return signals

    def _take_prefill(self, text: str) -> bool:
        match = _PREFILL.search(text)
        if match is not None:
            self._new_tokens += int(match[1])
            self._cached_tokens += int(match[2])
        return match is not None

    def _put(self, line: LogLine, values: dict[str, float]) -> None:
        """Of tensor ranks that tell the same, the first one's lines count."""
        if not values or self._workers.setdefault(line.rank, line.worker) != line.worker:
            return
        points = self._points.setdefault(line.rank, [])
        if len(points) < POINTS_MAX:
            points.append(_Point(line.at_s, values))


def _values(table: Mapping[str, tuple[re.Pattern[str], float]], text: str) -> dict[str, float]:
    found = {
        name: float(match[1]) / divisor
        for name, (pattern, divisor) in table.items()
        if (match := pattern.search(text)) is not None
    }
    return {
        name: min(value, 1.0) if name in _RATIOS else value
        for name, value in found.items()
        if value >= 0 and not (name in _RATIOS and value > 1.01)
    }


def _speculation(text: str) -> dict[str, float]:
    values: dict[str, float] = {}
    if (rate := _SPEC_RATE.search(text)) is not None:
        ratio = float(rate[1]) / (100 if rate[2] else 1)
        if 0 <= ratio <= 1:
            values["spec_acceptance_ratio"] = ratio
    if (length := _SPEC_LENGTH.search(text)) is not None and float(length[1]) >= 1:
        values["spec_mean_accepted_len"] = float(length[1])
    return values


def _busy(points: Sequence[_Point]) -> Sequence[_Point]:
    """From the first to the last point at which there was work; all where there never was any."""
    at = [i for i, p in enumerate(points) if _has_work(p.values) is not False]
    worked = any(_has_work(point.values) for point in points)
    return points[at[0] : at[-1] + 1] if worked else points


def _has_work(values: Mapping[str, float]) -> bool | None:
    """None of a point that tells no load."""
    load = [values[n] for n in ("requests_running", "requests_waiting") if n in values]
    return any(load) if load else None


def _parts(points: Iterable[_Point], name: str) -> list[tuple[float | None, float]]:
    return [(point.at_s, point.values[name]) for point in points if name in point.values]


def _series(parts: Sequence[tuple[float | None, float]]) -> Any:
    """A value, or the last values over time, from the first of them on."""
    if len(parts) == 1:
        return whole(parts[0][1])
    last = parts[-SERIES_MAX:]
    first_s = last[0][0]
    timed = first_s is not None and all(
        b is not None and a is not None and b >= a for (a, _), (b, _) in pairwise(last)
    )
    return {
        "series": [
            {"t_s": at_s - first_s, "value": whole(value)}
            if timed and at_s is not None and first_s is not None
            else {"value": whole(value)}
            for at_s, value in last
        ]
    }
