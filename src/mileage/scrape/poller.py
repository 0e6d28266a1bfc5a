"""Poller: health checks, model lists and metrics of all replicas, told as core events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from mileage.core.errors import ConfigError
from mileage.core.events import Event
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.policy.prefix_directory.warm_up_config import WarmUpConfig
from mileage.scrape.busy import BusySource, busy_source
from mileage.scrape.cache_warm_up import CacheWarmUp
from mileage.scrape.kv_cache import KvCache
from mileage.scrape.target import PollStatus, PollTarget
from mileage.scrape.watch import Watch
from mileage.wire.fetch import Fetch, fetch

__all__ = ["Poller"]


class Poller:
    """Watches replicas and calls `emit` with ReplicaUp, ReplicaDown and Observed.

    ReplicaUp comes when a replica is healthy after it was not, and when its models change;
    ReplicaDown once each time it goes down (also where it never was up). A replica is asked for its
    metrics only while it is up; that they fail makes no replica go down. One without metrics is
    asked less and less often, at last every minute. How busy its compute is comes from a source of
    its own (see `add`); what goes wrong there spoils nothing else. `clock` is monotonic, in
    seconds; `emit` must not block. No error of one replica ends the watching of it or of another.
    """

    def __init__(
        self,
        targets: Iterable[PollTarget] = (),
        *,
        emit: Callable[[Event], None],
        clock: Callable[[], float],
        rng: Random,
        fetch: Fetch = fetch,
    ) -> None:
        self._emit, self._clock, self._rng, self._fetch = emit, clock, rng, fetch
        self._running = False
        self.directory = BlockDirectory()
        """Which replicas hold which blocks of KV cache, of those that tell."""
        self.warm_up = WarmUpConfig()
        """Of replicas that are added from now on."""
        self._watches: dict[str, Watch] = {}
        self._warm_ups: dict[str, CacheWarmUp] = {}
        for target in targets:
            self.add(target)

    async def start(self) -> None:
        """Begin: the first checks are made at once."""
        assert not self._running
        self._running = True
        for watch in self._watches.values():
            watch.start()
        for warm_up in self._warm_ups.values():
            warm_up.start()

    async def stop(self) -> None:
        """End all watching; emits nothing. Returns when nothing runs any more."""
        self._running = False
        await asyncio.gather(*(warm_up.stop() for warm_up in self._warm_ups.values()))
        await asyncio.gather(*(watch.stop() for watch in self._watches.values()))

    def add(self, target: PollTarget, busy: BusySource | None = None) -> None:
        """Watch one more replica. Raises ConfigError for a name that is watched already.

        `busy` tells how busy its compute is; by default what the target names, if anything.
        """
        if target.name in self._watches:
            raise ConfigError("engines.name", target.name, "a name that no other engine has")
        url = target.kv_events_url
        warms = self.warm_up.enabled and url is not None and target.kv_events_ranks == 1
        memory = HotPrefixes(self.warm_up) if warms else None
        cache = None if url is None else KvCache(target, url, self.directory, memory)
        watch = Watch(
            target,
            emit=self._emit,
            clock=self._clock,
            rng=self._rng,
            fetch=self._fetch,
            busy=busy or busy_source(target, self._fetch),
            cache=cache,
        )
        self._watches[target.name] = watch
        if self._running:
            watch.start()
        if memory is not None and cache is not None:
            self._add_warm_up(target, watch, cache, memory)

    def _add_warm_up(
        self, target: PollTarget, watch: Watch, cache: KvCache, memory: HotPrefixes
    ) -> None:
        """Fill its prefix cache again after each restart."""
        warm_up = self._warm_ups[target.name] = CacheWarmUp(
            target,
            self.warm_up,
            memory,
            status=watch.status,
            restarts=lambda: cache.restarts,
            clock=self._clock,
        )
        if self._running:
            warm_up.start()

    async def remove(self, name: str) -> None:
        """Watch a replica no more; emits nothing about it from now on. KeyError if unknown."""
        watch, warm_up = self._watches.pop(name), self._warm_ups.pop(name, None)
        if warm_up is not None:
            await warm_up.stop()
        await watch.stop()
        self.directory.forget(name)

    def check_now(self, name: str) -> None:
        """Check a replica's health at once: it was just started, say. KeyError if unknown."""
        self._watches[name].check_now()

    def status(self) -> tuple[PollStatus, ...]:
        """All replicas, in the order in which they were added."""
        return tuple(watch.status() for watch in self._watches.values())

    def snapshot(self) -> tuple[Event, ...]:
        """The events that bring one who heard none of them up to date."""
        return tuple(event for watch in self._watches.values() for event in watch.events())
