"""Batching: how long a small request is held so that others can go upstream in one call with it."""

from __future__ import annotations

import heapq
import math
from typing import Literal

import msgspec

from mileage.core.bounds import require_at_least
from mileage.core.request import Request
from mileage.policy.merging import MergingConfig, SharedKey, shared_key

__all__ = ["BatchVerdict", "BatchWindow"]

_GAP_ALPHA = 0.2
_GAP_WINDOWS_MAX = 4.0
"""Of longest windows: what a gap counts at most, so that a burst after a pause is seen as one."""
_RECOVERY = 1.25


class BatchVerdict(msgspec.Struct, frozen=True, gc=False):
    """What becomes of a request: `send` it now, `hold` it, or `join` it to `leader_id`.

    `due_s`: when a held one is to be sent at the latest. `release`: a leader that is full, and is
    to be sent now: the one joined, or an earlier one that had no room for this request.
    """

    kind: Literal["send", "hold", "join"]
    leader_id: int | None = None
    due_s: float | None = None
    release: int | None = None


_SEND = BatchVerdict("send")


class _Open(msgspec.Struct, gc=False):
    """A leader that others may join. `due_s`: inf where it waits for something else than them."""

    leader_id: int
    items: int
    members: int
    due_s: float


class _Key(msgspec.Struct, gc=False):
    """What is known of one key: `gap_s` between its requests, and how well waiting has paid."""

    last_s: float
    gap_s: float
    patience: float = 1.0
    open: _Open | None = None


class BatchWindow:
    """Holds the first request of a batch key for a moment when company is likely.

    Below `batch_load_min` requests in flight nothing is held: an engine with time to spare answers
    sooner than a batch would fill. Above it the window is the time in which the batch would fill at
    the present rate of arrivals (an exponential average of the gaps), at most `batch_window_max_s`;
    nothing is held where not even one more is expected within it. A window that ends alone was in
    vain: it halves those to come; one that brought company doubles them again, up to the full one.

    A leader takes joiners until it is full, or closed: when it is sent, or when all have left.
    (Each is to be closed in the end.) One that the governor keeps in its queue past its window
    goes on collecting, which costs it nothing and is what makes a burst cheap. Past `keys_max` keys
    the one heard of least recently and with nothing open is forgotten; where all are open, a new
    key is not held.
    """

    def __init__(self, config: MergingConfig, *, keys_max: int = 1024) -> None:
        require_at_least("keys_max", keys_max, 1)
        self.config = config
        """May be replaced; what is held keeps the window that it was given."""
        self._keys_max = keys_max
        self._keys: dict[SharedKey, _Key] = {}
        self._leaders: dict[int, _Key] = {}
        self._filled: dict[int, None] = {}  # of those that were released, until they are closed
        self._timers: list[tuple[float, int]] = []  # a heap; closed leaders are skipped

    @property
    def next_due_s(self) -> float:
        """When `due` has the next leader to send; inf: nothing is held for company."""
        timers = self._timers
        while timers and not self._timed(*timers[0]):
            heapq.heappop(timers)
        return timers[0][0] if timers else math.inf

    def offer(self, request: Request, in_flight: int, now_s: float) -> BatchVerdict:
        """A request with a batch key arrived; `in_flight` requests of its kind run or wait ahead.

        A `send` that cannot be dispatched at once can still be made a leader with `open`.
        """
        config = self.config
        if request.batch_key is None or not config.batch_enabled:
            return _SEND
        key = self._heard(shared_key(request.batch_key, request.tenant, config), now_s)
        if key is None:
            return _SEND
        release = None
        leader = key.open
        if leader is not None:
            items = leader.items + request.batch_items
            if items <= config.batch_items_max:
                leader.items = items
                leader.members += 1
                full = items == config.batch_items_max
                if full:
                    self._fill(leader.leader_id)
                release = leader.leader_id if full else None
                return BatchVerdict("join", leader.leader_id, release=release)
            release = leader.leader_id
            self._fill(release)
        window_s = 0.0
        if in_flight >= config.batch_load_min:
            window_s = self._window_s(key, request.batch_items)
        if window_s <= 0.0:
            return _SEND if release is None else BatchVerdict("send", release=release)
        due_s = now_s + window_s
        self._open(key, request, due_s)
        return BatchVerdict("hold", due_s=due_s, release=release)

    def open(self, request: Request) -> None:
        """The request waits for something else than company: others may join it meanwhile."""
        config = self.config
        if request.batch_key is None or not config.batch_enabled or request.id in self._filled:
            return
        key = self._keys.get(shared_key(request.batch_key, request.tenant, config))
        if key is not None and key.open is None and request.batch_items < config.batch_items_max:
            self._open(key, request, math.inf)

    def due(self, now_s: float) -> list[int]:
        """Leaders whose window has ended: to be sent now. Until closed they still take joiners."""
        due: list[int] = []
        while self.next_due_s <= now_s:
            _, leader_id = heapq.heappop(self._timers)
            due.append(leader_id)
            self._settle(self._leaders[leader_id])
        return due

    def left(self, leader_id: int, items: int) -> None:
        """A member with so many items left the leader's batch before that was sent."""
        key = self._leaders.get(leader_id)
        if key is not None and key.open is not None:
            key.open.items = max(0, key.open.items - items)

    def close(self, leader_id: int) -> None:
        """The leader takes no more joiners: it is sent, or gone. Unknown ones are ignored."""
        self._filled.pop(leader_id, None)
        self._shut(leader_id)

    def _fill(self, leader_id: int) -> None:
        """The leader has no room for more, and will have none while it waits to be sent."""
        self._filled[leader_id] = None
        self._shut(leader_id)

    def _shut(self, leader_id: int) -> None:
        key = self._leaders.pop(leader_id, None)
        if key is not None:
            self._settle(key)
            key.open = None

    def _open(self, key: _Key, request: Request, due_s: float) -> None:
        key.open = _Open(request.id, request.batch_items, 1, due_s)
        self._leaders[request.id] = key
        if due_s < math.inf:
            heapq.heappush(self._timers, (due_s, request.id))

    def _timed(self, due_s: float, leader_id: int) -> bool:
        key = self._leaders.get(leader_id)
        return key is not None and key.open is not None and key.open.due_s == due_s

    def _settle(self, key: _Key) -> None:
        """Learn from a window that has ended, once."""
        leader = key.open
        if leader is not None and leader.due_s < math.inf:
            leader.due_s = math.inf
            key.patience = min(1.0, key.patience * (2.0 if leader.members > 1 else 0.5))

    def _heard(self, name: SharedKey, now_s: float) -> _Key | None:
        """The state of the key, with this arrival counted; None where there is no room for it."""
        longest_s = self.config.batch_window_max_s
        key = self._keys.pop(name, None)
        if key is None:
            if len(self._keys) >= self._keys_max and not self._make_room():
                return None
            key = _Key(now_s, _GAP_WINDOWS_MAX * longest_s)
        else:
            gap_s = min(max(0.0, now_s - key.last_s), _GAP_WINDOWS_MAX * longest_s)
            key.gap_s += _GAP_ALPHA * (gap_s - key.gap_s)
            if key.open is None and gap_s <= longest_s:
                # A window would have brought this one.
                key.patience = min(1.0, key.patience * _RECOVERY)
            key.last_s = now_s
        self._keys[name] = key  # the last one is the one heard of last
        return key

    def _make_room(self) -> bool:
        for name, key in self._keys.items():
            if key.open is None:
                del self._keys[name]
                return True
        return False

    def _window_s(self, key: _Key, items: int) -> float:
        """How long to hold a request with so many items; 0: not at all."""
        config = self.config
        room = config.batch_items_max - items
        longest_s = min(config.batch_window_max_s, key.gap_s * room) * key.patience
        # Less than one more is expected: waiting is likelier in vain than not.
        return longest_s if longest_s >= key.gap_s else 0.0
