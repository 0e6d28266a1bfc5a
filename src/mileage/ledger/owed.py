"""Owed: whole GPU-nanoseconds per request of one window, before and after merged ones pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from mileage.core.timeline import RequestTimeline
from mileage.ledger.columns import Floats, Ints, whole_sums
from mileage.ledger.flights import Flights
from mileage.ledger.whole_parts import whole_parts
from mileage.ledger.window_shares import RequestShare

__all__ = ["Owed", "among_members"]

_NS: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Owed:
    """One row per request, each id once: see RequestShare."""

    ids: Ints
    gpu_ns: Ints
    prefill_ns: Ints
    recomputed_ns: Ints
    low_ns: Ints
    high_ns: Ints

    @classmethod
    def exact(cls, ids: Ints, gpu_ns: Ints, prefill_ns: Ints, recomputed_ns: Ints) -> Owed:
        """Of shares that are known; rows of one id are added up."""
        unique, rows = np.unique(ids, return_inverse=True)
        total = whole_sums(gpu_ns, rows, len(unique))
        prefill, again = (
            whole_sums(each, rows, len(unique)) for each in (prefill_ns, recomputed_ns)
        )
        return cls(unique, total, prefill, again, total, total)

    @classmethod
    def none(cls) -> Owed:
        """Nobody owes anything."""
        return cls(*(np.zeros(0, dtype=np.int64) for _ in range(6)))

    @classmethod
    def estimated(
        cls,
        ids: Ints,
        busy_ns: int,
        weights: Floats,
        prefill_ratio: Floats,
        recomputed_ratio: Floats,
        *,
        error_ratio: float,
        error_ns: int,
    ) -> Owed:
        """`busy_ns` in proportion to the weights, with the error that each may have. Ids are each
        there once, in order."""
        groups = np.zeros(len(ids), dtype=np.int64)
        gpu_ns = whole_parts(np.array([busy_ns], dtype=np.int64), groups, weights)
        prefill_ns = np.floor(gpu_ns * np.clip(prefill_ratio, 0.0, 1.0)).astype(np.int64)
        again_ns = np.floor(prefill_ns * np.clip(recomputed_ratio, 0.0, 1.0)).astype(np.int64)
        margin = np.ceil(gpu_ns * error_ratio).astype(np.int64)
        # Nor is one that had nothing, as it seems, off by more than what there was in all.
        margin = np.where(weights > 0.0, np.minimum(margin + error_ns, busy_ns), 0)
        low_ns = np.maximum(0, gpu_ns - margin)
        return cls(ids, gpu_ns, prefill_ns, again_ns, low_ns, gpu_ns + margin)

    @property
    def total_ns(self) -> int:
        """Of all requests."""
        return int(self.gpu_ns.sum())

    def limited(self, total_ns: int) -> Owed:
        """The same proportions of no more than `total_ns` in all."""
        total = self.total_ns
        if total <= total_ns:
            return self
        groups = np.zeros(len(self.ids), dtype=np.int64)
        amounts = np.array([max(0, total_ns)], dtype=np.int64)
        gpu_ns = whole_parts(amounts, groups, self.gpu_ns.astype(np.float64))
        # In floats, as the product of two whole figures may be beyond 64 bits.
        ratio = gpu_ns / np.maximum(self.gpu_ns, 1)
        prefill_ns = np.minimum(gpu_ns, np.floor(self.prefill_ns * ratio).astype(np.int64))
        recomputed_ns = np.floor(self.recomputed_ns * ratio).astype(np.int64)
        below = np.ceil((self.gpu_ns - self.low_ns) * ratio).astype(np.int64)
        above = np.ceil((self.high_ns - self.gpu_ns) * ratio).astype(np.int64)
        return Owed(
            self.ids,
            gpu_ns,
            prefill_ns,
            np.minimum(prefill_ns, recomputed_ns),
            np.maximum(0, gpu_ns - below),
            gpu_ns + above,
        )

    def shares(self) -> tuple[RequestShare, ...]:
        """Those of requests that have any, or might."""
        columns = (self.gpu_ns, self.prefill_ns, self.recomputed_ns, self.low_ns, self.high_ns)
        kept = (self.gpu_ns > 0) | (self.high_ns > 0)
        lists = (column[kept].tolist() for column in (self.ids, *columns))
        return tuple(map(RequestShare, *lists))


def among_members(owed: Owed, flights: Flights, length_s: float) -> Owed:
    """What a generation owes is paid by all that shared it, each by the time that it was with it
    in this window; of a batch of embeddings by its tokens. Rows of ids that no generation here has
    stay as they are. In the order of ids.
    """
    if flights.members is None:
        return owed
    shared = {
        int(flights.ids[row]): (row, members)
        for row, members in enumerate(flights.members)
        if len(members) > 1 or members[0].id != flights.ids[row]
    }
    ids: list[int] = []
    groups: list[int] = []
    weights: list[float] = []
    for number, identity in enumerate(owed.ids.tolist()):
        if identity in shared:
            row, members = shared[identity]
            ids.extend(member.id for member in members)
            groups.extend([number] * len(members))
            weights.extend(_presence(flights, row, members, length_s))
        else:
            ids.append(identity)
            groups.append(number)
            weights.append(1.0)
    at, parts = np.array(groups, dtype=np.int64), np.array(weights)
    # Split each part of it alone, so that these sum too.
    prompt = whole_parts(owed.prefill_ns - owed.recomputed_ns, at, parts)
    again = whole_parts(owed.recomputed_ns, at, parts)
    answer = whole_parts(owed.gpu_ns - owed.prefill_ns, at, parts)
    gpu_ns = prompt + again + answer
    below = whole_parts(owed.gpu_ns - owed.low_ns, at, parts)
    above = whole_parts(owed.high_ns - owed.gpu_ns, at, parts)
    columns = (gpu_ns, prompt + again, again, np.maximum(0, gpu_ns - below), gpu_ns + above)
    unique, rows = np.unique(np.array(ids, dtype=np.int64), return_inverse=True)
    return Owed(unique, *(whole_sums(column, rows, len(unique)) for column in columns))


def _presence(
    flights: Flights, row: int, members: Sequence[RequestTimeline], length_s: float
) -> list[float]:
    if members[0].endpoint == "embeddings":
        return [float(max(1, member.prompt_tokens or 0)) for member in members]
    begin = max(0.0, float(flights.start_s[row]))
    end = max(begin, min(length_s, float(flights.end_s[row])))
    owner = next((m for m in members if m.id == flights.ids[row]), members[0])
    found = []
    for member in members:
        after_s = (member.arrived_at_utc_ns - owner.arrived_at_utc_ns) * _NS
        came = float(flights.arrived_s[row]) + after_s
        left = member.finished_s if member.finished_s is not None else member.last_token_s
        gone = end if left is None else min(end, came + left)
        found.append(max(0.0, gone - max(begin, came)))
    return found
