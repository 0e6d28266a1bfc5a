"""LedgerHistory: series of the gateway, its replicas, tenants and models out of requests."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

from mileage.core.timeline import RequestTimeline
from mileage.doctor.rca.events import Event
from mileage.doctor.rca.series import POINTS_MIN, History, Series
from mileage.doctor.rca.topology import GATEWAY

__all__ = ["LedgerHistory", "step_for"]

_STEPS_S: Final = (10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
_POINTS_SEARCHED: Final = 400
_REQUESTS_PER_POINT: Final = 5
_NODES_MAX: Final = 16
_CLOCK_BACK_S: Final = 5.0
_ONE_JUMP_S: Final = 600.0
_WORKER_BITS: Final = 6
_ID_MASK: Final = (1 << 57) - 1
"""An id without the number of its gateway."""
_NS: Final = 1e9
_SAMPLES_MIN: Final = 3
"""Requests of a point below which it has no median."""


def step_for(searched_s: float, requests: int) -> float:
    """Seconds per point: the finest with at most 400 points in the time that is searched and, as
    far as there are 24 points then, five requests in each."""
    for step_s in _STEPS_S:
        if searched_s / step_s > _POINTS_SEARCHED:
            continue
        sparse = requests * step_s / max(searched_s, 1.0) < _REQUESTS_PER_POINT
        longer = searched_s / (step_s * 2) >= 2 * POINTS_MIN
        if not (sparse and longer):
            return step_s
    return _STEPS_S[-1]


class _Cell:
    """The requests of one node and point."""

    __slots__ = ("bad", "decode", "ended", "output", "prompt", "requests", "ttft")

    def __init__(self) -> None:
        self.requests = self.ended = self.bad = 0
        self.prompt = self.output = 0
        self.ttft: list[float] = []
        self.decode: list[float] = []


class LedgerHistory:
    """Takes requests in the order of arrival, and makes the series of them.

    A request counts at the point in which it arrived: then a slow one does not make later ones look
    slow. Latencies are medians of a point's requests that ended well.
    """

    def __init__(self, start_utc_s: float, until_utc_s: float, step_s: float) -> None:
        self._start_s, self._step_s = start_utc_s, step_s
        self._points = max(0, math.floor((until_utc_s - start_utc_s) / step_s))
        self._cells: dict[str, dict[int, _Cell]] = {}
        self._events: list[Event] = []
        self._requests = 0
        self._first: int | None = None
        self._last = -1

    def add(self, request: RequestTimeline) -> None:
        """Take one."""
        self._watch_clock(request)
        place = math.floor((request.arrived_at_utc_ns / _NS - self._start_s) / self._step_s)
        if not 0 <= place < self._points:
            return
        self._requests += 1
        self._first = place if self._first is None else min(self._first, place)
        self._last = max(self._last, place)
        nodes = [GATEWAY, f"tenant:{request.tenant}"]
        if request.replica is not None:
            nodes.append(f"replica:{request.replica}")
        for node in nodes:
            cells = self._cells.setdefault(node, {})
            cell = cells.get(place)
            if cell is None:
                cell = cells[place] = _Cell()
            _count(cell, request)

    def history(
        self,
        *,
        since_utc_s: float,
        series: Iterable[Series] = (),
        events: Iterable[Event] = (),
        links: Iterable[tuple[str, str]] = (),
        notes: Iterable[str] = (),
    ) -> History:
        """The history so far, with what else is known: of the busiest nodes, 16 of a kind."""
        told = list(notes)
        rows: list[Series] = []
        for kind in (GATEWAY, "replica:", "tenant:"):
            named = [node for node in self._cells if node.startswith(kind)]
            named.sort(key=lambda node: (-self._count(node), node))
            if len(named) > _NODES_MAX:
                told.append(f"{len(named) - _NODES_MAX} {kind[:-1]}s of few requests left out")
            for node in sorted(named[:_NODES_MAX]):
                rows += self._series(node)
        clock = [event for event in self._events if event.kind == "clock"]
        if clock:
            told.append(f"the clock was set back {len(clock)} times")
        return History(
            start_utc_s=self._start_s,
            step_s=self._step_s,
            since_utc_s=since_utc_s,
            series=(*rows, *series),
            events=tuple(sorted([*self._events, *events], key=lambda each: each.at_utc_s)),
            links=tuple(links),
            notes=tuple(told),
        )

    @property
    def requests(self) -> int:
        """Requests of the time so far."""
        return self._requests

    def _count(self, node: str) -> int:
        return sum(cell.requests for cell in self._cells[node].values())

    def _series(self, node: str) -> list[Series]:
        cells = self._cells[node]
        columns: dict[str, list[float | None]] = {}
        # Before the first request and after the last nobody knows whether a gateway ran.
        known = range(self._first or 0, self._last + 1)
        for place in range(self._points):
            figures = _figures(cells.get(place), self._step_s) if place in known else {}
            for name in _NAMES:
                columns.setdefault(name, []).append(figures.get(name))
        return [
            Series(node=node, name=name, values=tuple(values))
            for name, values in columns.items()
            if any(value is not None for value in values)
        ]

    def _watch_clock(self, request: RequestTimeline) -> None:
        """An id begins with the microseconds of the clock, and is always above the one before: of
        a clock that was set back it runs ahead."""
        ahead_s = ((request.id & _ID_MASK) >> _WORKER_BITS) / 1e6 - request.arrived_at_utc_ns / _NS
        at_utc_s = request.arrived_at_utc_ns / _NS
        near = self._events and at_utc_s - self._events[-1].at_utc_s < _ONE_JUMP_S
        if ahead_s > _CLOCK_BACK_S and not near:
            detail = f"the clock was set back by {ahead_s:.0f} s or so"
            self._events.append(Event(at_utc_s=at_utc_s, kind="clock", node=GATEWAY, detail=detail))


_NAMES: Final = (
    "requests_per_s",
    "failed_ratio",
    "prompt_tokens_per_s",
    "prompt_tokens_mean",
    "output_tokens_per_s",
    "ttft_p50_s",
    "decode_tokens_per_s",
)


def _count(cell: _Cell, request: RequestTimeline) -> None:
    cell.requests += 1
    cell.ended += request.outcome != "cancelled"
    cell.bad += request.outcome in ("failed", "lost", "rejected")
    if request.merged_into is None:
        cell.prompt += request.prompt_tokens or 0
        cell.output += request.output_tokens or request.output_tokens_counted or 0
    if request.outcome == "ok" and request.first_token_s is not None:
        cell.ttft.append(request.first_token_s)
        if request.itl_mean_s:
            cell.decode.append(1.0 / request.itl_mean_s)


def _figures(cell: _Cell | None, step_s: float) -> dict[str, float]:
    """The figures of a point in which the gateway was there."""
    if cell is None:
        return {"requests_per_s": 0.0, "prompt_tokens_per_s": 0.0, "output_tokens_per_s": 0.0}
    figures = {
        "requests_per_s": cell.requests / step_s,
        "prompt_tokens_per_s": cell.prompt / step_s,
        "output_tokens_per_s": cell.output / step_s,
        "prompt_tokens_mean": cell.prompt / cell.requests,
    }
    if cell.ended:
        figures["failed_ratio"] = cell.bad / cell.ended
    if len(cell.ttft) >= _SAMPLES_MIN:
        figures["ttft_p50_s"] = _median(cell.ttft)
    if len(cell.decode) >= _SAMPLES_MIN:
        figures["decode_tokens_per_s"] = _median(cell.decode)
    return figures


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2
