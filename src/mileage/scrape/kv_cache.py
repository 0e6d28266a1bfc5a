"""KvCache: what the cache events of all ranks of a replica add to its views."""

from __future__ import annotations

import asyncio
from typing import Final
from urllib.parse import urlsplit

import msgspec

from mileage.core.errors import ConfigError
from mileage.core.replica import ReplicaView
from mileage.policy.prefix_directory.directory import BlockDirectory
from mileage.policy.prefix_directory.hot_prefixes import HotPrefixes
from mileage.scrape.kv_events import KvEvents, import_zmq
from mileage.scrape.target import PollTarget
from mileage.wire.url import display_url

__all__ = ["KvCache", "check_cache_events"]

_PORT_MAX: Final = 65_535


class KvCache:
    """Listens to every rank of the replica; rank r publishes at the port of the address plus r.

    Raises ConfigError for an address that is none, and where pyzmq is not installed.
    """

    def __init__(
        self,
        target: PollTarget,
        url: str,
        directory: BlockDirectory,
        memory: HotPrefixes | None = None,
    ) -> None:
        replay_url = target.kv_events_replay_url
        self._ranks = [
            KvEvents(
                _of_rank("engines.kv_events_url", url, rank),
                None
                if replay_url is None
                else _of_rank("engines.kv_events_replay_url", replay_url, rank),
                directory,
                replica=target.name,
                rank=rank,
                memory=memory,
            )
            for rank in range(target.kv_events_ranks)
        ]

    @property
    def restarts(self) -> int:
        """How often the events of a rank began anew."""
        return sum(rank.totals.restarts for rank in self._ranks)

    def start(self) -> None:
        """Begin, in a running event loop."""
        for rank in self._ranks:
            rank.start()

    async def stop(self) -> None:
        """End."""
        await asyncio.gather(*(rank.stop() for rank in self._ranks))

    def complete(self, view: ReplicaView) -> ReplicaView:
        """The view, with what the cache holds, where it is full, and how often it was emptied."""
        feeds = [rank.feed for rank in self._ranks]
        full = all(feed.evicting for feed in feeds)
        return msgspec.structs.replace(
            view,
            kv_stored_tokens=sum(feed.stored_tokens for feed in feeds) if full else None,
            kv_cleared_total=sum(feed.cleared_total for feed in feeds),
        )


def check_cache_events(target: PollTarget) -> None:
    """Raise ConfigError for what KvCache could not be made of."""
    if target.kv_events_url is None:
        return
    import_zmq()
    last = target.kv_events_ranks - 1
    _of_rank("engines.kv_events_url", target.kv_events_url, last)
    if target.kv_events_replay_url is not None:
        _of_rank("engines.kv_events_replay_url", target.kv_events_replay_url, last)


def _of_rank(key: str, url: str, rank: int) -> str:
    """The address of one rank."""
    try:
        split = urlsplit(url)
        port = split.port
    except ValueError:
        port = None
    if port is not None and port + rank > _PORT_MAX:
        expected = f"a port up to {_PORT_MAX - rank}: there are {rank + 1} ranks"
        raise ConfigError(key, display_url(url), expected)
    if port is None or split.scheme != "tcp" or not split.hostname:
        expected = "tcp://host:port, the endpoint of the engine's event publisher"
        raise ConfigError(key, display_url(url), expected)
    return f"{url[: url.rindex(':')]}:{port + rank}"
