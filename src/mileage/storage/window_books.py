"""WindowBooks: what one window of one replica adds to its requests and to the roll-ups."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol, TypeAlias

from mileage.core.errors import LedgerError
from mileage.core.timeline import RequestTimeline
from mileage.ledger.account_name import booked_text
from mileage.ledger.engine_step import EngineStep
from mileage.ledger.window_shares import RequestShare, WindowShares
from mileage.storage.record import FINISH_FIELDS
from mileage.storage.replica_times import Stretch
from mileage.storage.request_rows import (
    ATTRIBUTED_FIELDS,
    NS_PER_S,
    Row,
    bounded,
    ran_between,
    timeline_of,
)
from mileage.storage.usage_schema import CAPACITY_COLUMNS, USAGE_COLUMNS

__all__ = ["HOUR_S", "Sharing", "StepTotals", "UsageKey", "WindowBooks", "hour_of", "minute_of"]

UsageKey: TypeAlias = tuple[int, str, str, str, str, str, str]
"""Minute (seconds since 1970), then USAGE_TEXTS."""

HOUR_S: Final = 3600
_MINUTE_S: Final = 60
_BOOKED: Final = ATTRIBUTED_FIELDS.index("booked")
_SHARE: Final = ATTRIBUTED_FIELDS.index("attributed_ns")
_ARRIVED: Final = FINISH_FIELDS.index("arrived_at_utc_ns")
_REPLICA: Final = FINISH_FIELDS.index("replica")
_OUTCOME: Final = FINISH_FIELDS.index("outcome")
_PROMPT: Final = FINISH_FIELDS.index("prompt_tokens")
_CACHED: Final = FINISH_FIELDS.index("cached_tokens")
_OUTPUT: Final = FINISH_FIELDS.index("output_tokens")
_COUNTED: Final = FINISH_FIELDS.index("output_tokens_counted")
_TOKEN_TIMES: Final = FINISH_FIELDS.index("token_times")
_MERGED: Final = FINISH_FIELDS.index("merged_into")
_COST: Final = FINISH_FIELDS.index("cost_nano_usd")
_KEY: Final = FINISH_FIELDS.index("key")
_SUMS: Final = len(USAGE_COLUMNS)
_GPU: Final = USAGE_COLUMNS.index("gpu_ns")
_CAPACITY: Final = len(CAPACITY_COLUMNS)


class Sharing(Protocol):
    """Shares one replica's windows out, in order; see ledger.replica_attribution."""

    def window(
        self,
        start_at_utc_ns: int,
        end_at_utc_ns: int,
        *,
        gpus: float,
        up_ns: int,
        warmup_ns: int,
        requests: Sequence[RequestTimeline],
        steps: Sequence[EngineStep] = (),
        busy_ns: int | None = None,
        step_count: int | None = None,
    ) -> WindowShares:
        """The window's GPU time, all of it."""
        ...

    def state(self) -> bytes:
        """What was learned."""
        ...

    def restore(self, state: bytes, /) -> None:
        """Go on from what `state` gave."""
        ...


class StepTotals(NamedTuple):
    """What an engine told of its steps in a window: each one, or how many and how long."""

    steps: Sequence[EngineStep] = ()
    busy_ns: int | None = None
    step_count: int | None = None


class WindowBooks:
    """Collects what windows add, to be written in one transaction or shown as provisional.

    `usage` has the sums of USAGE_COLUMNS by UsageKey, then what was charged (None: no price);
    `capacity` those of CAPACITY_COLUMNS by minute and replica; `replicas` the GPU's name and the
    number of GPUs last seen in each minute; `requests` SHARE_FIELDS, `booked` and the id of each;
    `later` those SHARE_FIELDS that a request has of an hour after that in which it arrived, with
    its id, the start of that hour and the replica before them.
    Time of requests that are not on record (sent to the engine past the gateway, or not ended
    after the longest wait) has empty texts, save that of the replica.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.usage: dict[UsageKey, list[int | None]] = {}
        self.capacity: dict[tuple[int, str], list[int]] = {}
        self.replicas: dict[tuple[int, str], tuple[str, float]] = {}
        self.requests: list[tuple[int | None, ...]] = []
        self.later: list[tuple[int | str, ...]] = []

    def add(
        self,
        rows: Iterable[Row],
        *,
        replica: str,
        start_ns: int,
        end_ns: int,
        now_ns: int,
        stretch: Stretch,
        sharing: Sharing | None,
        totals: StepTotals | None = None,
    ) -> None:
        """Book one window of a replica, whose state is on record as `stretch` says.

        `rows`: its requests that are not booked yet and arrived before the end. A row that ran
        before the window and is seen for the first time is late: what of it lies in settled
        windows is counted, and given to nobody. One that seems to end after `now_ns` has ended all
        the same: its clock was set. `sharing` None: nobody held GPUs in the window. Raises
        LedgerError where the shares do not sum to the capacity.
        """
        running: list[tuple[Row, bool]] = []
        for row in rows:
            ran = ran_between(row)
            if ran is None:
                self._finish(row, row[_SHARE : _SHARE + 5])
                continue
            began_ns, ended_ns = ran
            if began_ns >= end_ns:
                continue  # waited in the gateway
            if row[_BOOKED] == 0 and began_ns < start_ns:
                self._late(replica, began_ns, min(ended_ns, start_ns) - began_ns)
            final = ended_ns <= end_ns or ended_ns > now_ns
            if began_ns < start_ns and ended_ns <= start_ns:
                self._finish(row, row[_SHARE : _SHARE + 5])
            else:
                running.append((row, final))
        shares: dict[int, RequestShare] = {}
        if sharing is not None and stretch.up_ns > 0:
            shares = self._share(running, replica, start_ns, end_ns, stretch, sharing, totals)
        elif stretch.observed_ns:
            self._capacity(minute_of(start_ns), replica, (0, 0, 0, stretch.observed_ns))
        if stretch.observed_ns:
            self.replicas[minute_of(start_ns), replica] = (stretch.gpu, stretch.last_gpus)
        for row, final in running:
            figures = row[_SHARE : _SHARE + 5]
            share = shares.get(row[0])
            if share is not None:
                more = _figures(share)
                figures = tuple((a or 0) + b for a, b in zip(figures, more, strict=True))
                hour = hour_of(start_ns // NS_PER_S)
                if row[_ARRIVED] < hour * NS_PER_S:
                    self.later.append((row[0], hour, replica, *more))
            elif stretch.up_ns and sharing is not None:
                figures = tuple(known or 0 for known in figures)
            if final:
                self._finish(row, figures)
            else:
                self.requests.append((*figures, 1, row[0]))

    def _share(
        self,
        running: Sequence[tuple[Row, bool]],
        replica: str,
        start_ns: int,
        end_ns: int,
        stretch: Stretch,
        sharing: Sharing,
        totals: StepTotals | None,
    ) -> dict[int, RequestShare]:
        """Share the window out, and book each share and what is left."""
        steps, busy_ns, step_count = totals or StepTotals()
        shares = sharing.window(
            start_ns,
            end_ns,
            gpus=stretch.gpus,
            up_ns=stretch.up_ns,
            warmup_ns=stretch.warmup_ns,
            requests=[self._timeline(row) for row, _ in running],
            steps=steps,
            busy_ns=busy_ns,
            step_count=step_count,
        )
        given_ns = sum(share.gpu_ns for share in shares.shares)
        if given_ns + shares.idle_ns + shares.warmup_ns != shares.capacity_ns:
            raise LedgerError(
                self._path,
                f"replica {replica}, window at {start_ns}: shares of {given_ns} ns, "
                f"{shares.idle_ns} idle and {shares.warmup_ns} of warm-up are not the "
                f"{shares.capacity_ns} that there were",
            )
        minute = minute_of(start_ns)
        observed_ns = stretch.observed_ns
        taken = (shares.capacity_ns, shares.idle_ns, shares.warmup_ns, observed_ns)
        self._capacity(minute, replica, taken)
        found = {row[0]: row for row, _ in running}
        for share in shares.shares:
            row = found.get(share.request_id)
            failed = row is not None and row[_OUTCOME] != "ok"
            sums = self._sums(_key(minute, replica, row))
            for place, value in enumerate(
                (
                    share.gpu_ns,
                    share.prefill_ns,
                    share.recomputed_ns,
                    share.gpu_ns if failed else 0,
                    share.low_ns,
                    share.high_ns,
                    share.gpu_ns if shares.saturated else 0,
                ),
                start=_GPU,
            ):
                sums[place] += value  # type: ignore[operator]
        return {share.request_id: share for share in shares.shares}

    def _timeline(self, row: Row) -> RequestTimeline:
        try:
            return timeline_of(row, self._path)
        except LedgerError:  # a damaged row: `mileage requests --verify` tells
            return timeline_of((*row[:_TOKEN_TIMES], None, *row[_TOKEN_TIMES + 1 :]), self._path)

    def _finish(self, row: Row, figures: Sequence[int | None]) -> None:
        """The request has been in all of its windows: count it, with its tokens."""
        self.requests.append((*figures, 2, row[0]))
        sums = self._sums(_key(minute_of(row[_ARRIVED]), row[_REPLICA] or "", row))
        own = row[_MERGED] is None  # else another record has the tokens
        output = row[_COUNTED] if row[_OUTPUT] is None else row[_OUTPUT]
        tokens = (row[_PROMPT], row[_CACHED], output) if own else (0, 0, 0)
        counts = (1, int(row[_OUTCOME] != "ok"), *map(bounded, tokens))
        for place, value in enumerate(counts):
            sums[place] += value  # type: ignore[operator]
        if row[_COST] is not None:
            sums[_SUMS] = (sums[_SUMS] or 0) + bounded(row[_COST])

    def _late(self, replica: str, began_ns: int, missed_ns: int) -> None:
        self._capacity(minute_of(began_ns), replica, (0, 0, 0, 0, 1, missed_ns))

    def _sums(self, key: UsageKey) -> list[int | None]:
        sums = self.usage.get(key)
        if sums is None:
            sums = self.usage[key] = [0] * _SUMS + [None]
        return sums

    def _capacity(self, minute: int, replica: str, values: Sequence[int]) -> None:
        sums = self.capacity.setdefault((minute, replica), [0] * _CAPACITY)
        for place, value in enumerate(values):
            sums[place] += value


def hour_of(utc_s: int) -> int:
    """Start of the hour, seconds since 1970."""
    return utc_s - utc_s % HOUR_S


def minute_of(utc_ns: int) -> int:
    """Start of the minute, seconds since 1970."""
    seconds = utc_ns // NS_PER_S
    return int(seconds - seconds % _MINUTE_S)


def _figures(share: RequestShare) -> tuple[int, int, int, int, int]:
    """In the order of SHARE_FIELDS."""
    return share.gpu_ns, share.low_ns, share.high_ns, share.prefill_ns, share.recomputed_ns


def _key(minute: int, replica: str, row: Row | None) -> UsageKey:
    if row is None:
        return (minute, replica, "", "", "", "", "")
    key, adapter, labels = row[_KEY : _KEY + 3]
    model, adapter, key = booked_text(row[2]), booked_text(adapter or ""), booked_text(key or "")
    return (minute, replica, row[1], model, adapter, key, labels or "")
