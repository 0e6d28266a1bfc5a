"""Merging: which requests share one generation (for one upstream call see `policy.batching`)."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from mileage.core.bounds import require_at_least, require_range
from mileage.core.request import Request

__all__ = ["MergeIndex", "MergingConfig", "SharedKey", "shared_key"]

SharedKey: TypeAlias = str | tuple[str, str]


class MergingConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section `[merging]`."""

    enabled: bool = True
    """Identical requests in flight share one generation: those that are deterministic, and others
    that ask for it with the header `x-mileage-merge: yes`."""
    across_tenants: bool = False
    """Also between tenants: one then learns, from the time it takes, what another has asked."""
    buffer_bytes_max: int = 1024 * 1024
    """Of an answer kept for those that join late; a longer one takes no more joiners."""
    batch_enabled: bool = True
    """Embedding requests that come close together go upstream as one call."""
    batch_window_max_s: float = 0.01
    """The longest that a request is held for company."""
    batch_load_min: int = 4
    """Requests of the kind in flight at a replica below which none is held."""
    batch_items_max: int = 64
    """Items of one upstream call."""

    def __post_init__(self) -> None:
        require_at_least("merging.buffer_bytes_max", self.buffer_bytes_max, 1024)
        require_range("merging.batch_window_max_s", self.batch_window_max_s, 0.0, 0.01)
        require_at_least("merging.batch_load_min", self.batch_load_min, 0)
        require_range("merging.batch_items_max", self.batch_items_max, 2, 2048)


def shared_key(key: str, tenant: str, config: MergingConfig) -> SharedKey:
    """What two requests must have in common to share anything: the tenant too, unless told so."""
    return key if config.across_tenants else (tenant, key)


class MergeIndex:
    """Generations that are held or in flight, and the requests that share each.

    A generation is known by the id of the request that began it, its leader, for as long as it
    lives: also when the leader's client has left and others wait on. Members of either kind of Join
    are kept, so that the last one to leave can be told; a request that shares nothing costs no
    entry. Past `leaders_max` generations, or `members_max` members of all of them together, the
    next ones are not shared.
    """

    def __init__(
        self, config: MergingConfig, *, leaders_max: int = 100_000, members_max: int = 100_000
    ) -> None:
        require_at_least("leaders_max", leaders_max, 1)
        require_at_least("members_max", members_max, 1)
        self.config = config
        """May be replaced; generations that were begun under another key take no more members."""
        self._leaders_max, self._members_max = leaders_max, members_max
        self._leaders: dict[SharedKey, int] = {}
        self._keys: dict[int, SharedKey] = {}
        self._members: dict[int, dict[int, None]] = {}  # by leader, in order of joining
        self._joined: dict[int, int] = {}  # leader of every member of a shared generation

    def find(self, request: Request) -> int | None:
        """The leader whose generation the request may join."""
        key = request.merge_key
        if key is None or not self.config.enabled or len(self._joined) >= self._members_max:
            return None
        return self._leaders.get(shared_key(key, request.tenant, self.config))

    def lead(self, request: Request) -> None:
        """The request begins a generation that others may join, if it has a merge key."""
        merge_key = request.merge_key
        if merge_key is None or not self.config.enabled or len(self._keys) >= self._leaders_max:
            return
        key = shared_key(merge_key, request.tenant, self.config)
        if key not in self._leaders and request.id not in self._keys:
            self._leaders[key] = request.id
            self._keys[request.id] = key

    def join(self, request_id: int, leader_id: int) -> None:
        """The request shares the leader's generation from now on, in either kind of Join."""
        members = self._members.get(leader_id)
        if members is None:
            members = self._members[leader_id] = {leader_id: None}
            self._joined[leader_id] = leader_id
        members[request_id] = None
        self._joined[request_id] = leader_id

    def leader_of(self, request_id: int) -> int:
        """The leader of the request's generation: itself where it shares none."""
        return self._joined.get(request_id, request_id)

    def members(self, leader_id: int) -> tuple[int, ...]:
        """The requests that still wait for the generation, in order of joining."""
        found = self._members.get(leader_id)
        return (leader_id,) if found is None else tuple(found)

    def leave(self, request_id: int) -> bool:
        """The request waits no more. True: it was the last one, so the generation is to end.

        The index then has forgotten that generation; `leader_of` has to be asked before.
        """
        leader_id = self._joined.pop(request_id, None)
        if leader_id is None:
            self._close(request_id)
            return True
        members = self._members[leader_id]
        del members[request_id]
        if members:
            return False
        del self._members[leader_id]
        self._close(leader_id)
        return True

    def ended(self, leader_id: int) -> tuple[int, ...]:
        """The generation is over: forget it. Returns the requests that waited for it."""
        self._close(leader_id)
        members = self._members.pop(leader_id, None)
        if members is None:
            return (leader_id,)
        for request_id in members:
            del self._joined[request_id]
        return tuple(members)

    def _close(self, leader_id: int) -> None:
        key = self._keys.pop(leader_id, None)
        if key is not None:
            del self._leaders[key]
