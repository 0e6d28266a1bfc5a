"""Bounds: what no policy can change: a candidate is dropped only where nothing could save it.

They hold for every schedule that the simulator may come to, by what each step costs at least. Of a
step with x tokens in it, c of them of prompts, `StepTable` says m(x) + ... . Any line a + b x with
a >= 0 that lies nowhere above m holds for all steps, so that a prompt of u tokens, in chunks of at
most S, takes at least ceil(u / S) a + b u, however it is cut and whatever runs beside it; the
lines are those of m's lower convex hull. With a = 0 they add up over all requests of all steps.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Final, Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from mileage.costmodel.step_table import StepTable
from mileage.planner.built import Built
from mileage.planner.goal import Goal
from mileage.planner.traffic import Traffic

__all__ = ["Bounds", "OutOfReach"]

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Limit: TypeAlias = Literal["kv_room", "ttft", "itl", "load"]

_SLACK: Final = 1e-9
"""Of a bound: what rounding may be off by."""


class OutOfReach(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a candidate cannot keep the goal, whatever is done."""

    limit: Limit
    text: str


class _Floors(msgspec.Struct, frozen=True, kw_only=True):
    """Of one step table: what requests take at least, seconds each, by request."""

    table: StepTable
    """Kept, so that its identity is not another's."""
    ttft_s: Floats
    gap_s: Floats
    """Between two tokens."""
    prefill_s: Floats
    """Of an engine's time, of steps that are full."""
    decode_s: Floats


class Bounds:
    """Of one goal and traffic, for any candidate; what tables have in common is worked out once."""

    def __init__(self, traffic: Traffic, goal: Goal) -> None:
        self._traffic, self._goal = traffic, goal
        self._floors: dict[tuple[int, bool, int, int], _Floors] = {}

    def out_of_reach(self, built: Built) -> OutOfReach | None:
        """Why that candidate cannot keep the goal; None: it may."""
        floors, goal = self.floors(built), self._goal
        columns, most = self._traffic.columns, built.kv_tokens
        fits = columns.prompt_tokens + np.maximum(columns.output_tokens - 1, 0) <= most
        if (found := self._too_few(fits, "kv_room")) is not None:
            longest = int((columns.prompt_tokens + columns.output_tokens).max())
            text = f"{found} fit into the KV cache of {most:,} tokens (the longest has {longest:,})"
            return OutOfReach(limit="kv_room", text=text)
        quantile = goal.attainment_ratio
        for limit, seconds, target_s in (
            ("ttft", floors.ttft_s, goal.slo.ttft_s),
            ("itl", floors.gap_s, goal.slo.itl_s),
        ):
            if target_s is None:
                continue
            met = seconds * (1.0 - _SLACK) <= target_s
            if (found := self._too_few(met, limit)) is not None:
                least = float(np.quantile(seconds, quantile))
                text = f"{found} could: alone it takes {least:.3g} s at p{quantile * 100:g}"
                return OutOfReach(limit=limit, text=text)  # type: ignore[arg-type]
            fits &= met
        if (found := self._too_few(fits, "all")) is not None:
            return OutOfReach(limit="ttft", text=f"{found} could meet all targets")
        return self._overloaded(built, floors)

    def _too_few(self, met: Bools, name: str) -> str | None:
        share = float(met.mean())
        if share >= self._goal.attainment_ratio - _SLACK:
            return None
        return f"{share:.1%} of the requests"

    def load_ratio(self, built: Built) -> float:
        """The least work of all requests over the time that the fleet has until the last of them
        has come: above 1 it falls behind, whatever it does. 0 where all come at once."""
        floors, candidate = self.floors(built), built.candidate
        work_s = float((floors.prefill_s + floors.decode_s).sum())
        time_s = self._replicas(built) * candidate.engines * self._traffic.span_s
        return work_s / time_s if time_s else 0.0

    def _replicas(self, built: Built) -> float:
        """Those that compute at full speed at a time."""
        candidate, traffic = built.candidate, self._traffic
        fleets = len(traffic.adapters) if candidate.tuning == "full" and traffic.adapters else 1
        count = float(fleets * candidate.replicas)
        if candidate.sharing is not None and candidate.sharing.mode != "mig":
            count *= candidate.sharing.capacity_ratio / candidate.sharing.replicas
        return count

    def _overloaded(self, built: Built, floors: _Floors) -> OutOfReach | None:
        """Whether the least work of those requests that must be served is more than the fleet has
        time for, until it has to have caught up."""
        goal, candidate, traffic = self._goal, built.candidate, self._traffic
        time_s = traffic.span_s + goal.drain_s
        count = self._replicas(built)
        apart = candidate.disaggregation
        parts = [("engines", floors.prefill_s + floors.decode_s, count * candidate.engines)]
        if apart is not None:
            parts += [
                ("prefill engines", floors.prefill_s, count * apart.prefill_engines),
                ("decode engines", floors.decode_s, count * apart.decode_engines),
            ]
        must = math.ceil((goal.attainment_ratio - _SLACK) * len(traffic))
        for name, work_s, engines in parts:
            least_s = float(np.partition(work_s, must - 1)[:must].sum())
            if least_s * (1.0 - _SLACK) > engines * time_s:
                text = f"{least_s:.4g} s of work for {engines:g} {name} within {time_s:.4g} s"
                return OutOfReach(limit="load", text=text)
        return None

    def floors(self, built: Built) -> _Floors:
        """What each request takes at least with the steps of that candidate."""
        engine = built.engine
        drafts = 0 if engine.speculation is None else engine.speculation.draft_tokens
        key = (id(built.table), engine.prefix_cache, drafts, engine.step_tokens_max)
        found = self._floors.get(key)
        if found is None:
            found = self._floors[key] = self._worked_out(built, drafts)
        return found

    def _worked_out(self, built: Built, drafts: int) -> _Floors:
        line, columns = built.table.lines[0], self._traffic.columns
        prompts = columns.prompt_tokens
        computed = self._traffic.uncached_tokens if built.engine.prefix_cache else prompts
        mixed_s = np.array(line.mixed_s)
        mixed_s += min(0.0, line.request_s) * np.arange(len(mixed_s))
        decode_s = np.array(line.decode_s)[1:]
        pairs_s = line.pair_s * (computed * (prompts - computed) + computed * (computed + 1) / 2)
        steps = np.ceil(computed / built.engine.step_tokens_max)
        ttft_s = np.zeros(len(prompts))
        for start_s, token_s in _hull_lines(mixed_s):
            ttft_s = np.maximum(ttft_s, steps * start_s + token_s * computed)
        kv_s = line.kv_s / (drafts + 1)
        token_s = float((mixed_s[1:] / np.arange(1, len(mixed_s))).min())
        each_s = min(token_s + max(0.0, line.request_s), _least_per_row(decode_s))
        outputs = np.maximum(columns.output_tokens - 1, 0)
        read = outputs * prompts + outputs * np.maximum(outputs - 1, 0) / 2
        gap_s = min(float(decode_s.min()), float(mixed_s[2:].min(initial=math.inf)))
        return _Floors(
            table=built.table,
            ttft_s=ttft_s + pairs_s,
            gap_s=np.where(outputs > 0, gap_s + (kv_s * prompts if not drafts else 0.0), 0.0),
            prefill_s=token_s * computed + pairs_s,
            decode_s=each_s * outputs + kv_s * read,
        )


def _least_per_row(decode_s: Floats) -> float:
    """Seconds that a row of a step takes which only decodes, of the step that is best at it."""
    return float((decode_s / np.arange(1, len(decode_s) + 1)).min())


def _hull_lines(mixed_s: Floats) -> list[tuple[float, float]]:
    """Lines a + b x, with a >= 0 and b >= 0, that are nowhere above a step of x >= 1 tokens.

    Those that the lower convex hull consists of, by Andrew's monotone chain, and the steepest one
    through the origin.
    """
    hull: list[tuple[int, float]] = []
    for x, y in enumerate(mixed_s.tolist()[1:], start=1):
        while len(hull) > 1:
            (x0, y0), (x1, y1) = hull[-2:]
            if (y1 - y0) * (x - x0) < (y - y0) * (x1 - x0):
                break
            hull.pop()
        hull.append((x, y))
    found = [(0.0, min(y / x for x, y in hull)), (min(y for _, y in hull), 0.0)]
    for (x0, y0), (x1, y1) in pairwise(hull):
        slope = (y1 - y0) / (x1 - x0)
        start_s = y0 - slope * x0
        if start_s >= 0.0 and slope >= 0.0:
            found.append((start_s, slope))
    return found
