"""AdapterView: what workers are to know of the adapters of each replica."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from mileage.core.events import Event, Loadable, ReplicaUp
from mileage.core.replica import Adapter
from mileage.policy.residency.adapters import AdapterConfig
from mileage.policy.residency.keeper import AdapterKeeper

__all__ = ["AdapterView", "without_paths"]

_log = logging.getLogger(__name__)


class AdapterView:
    """Hides what is being unloaded, or is not what is configured under its name; and all that
    nobody has configured: whose it is is not known, so nobody may use it.

    `deliver` tells all workers an event; the keeper is told what replicas hold.
    """

    def __init__(self, keeper: AdapterKeeper, deliver: Callable[[Event], None]) -> None:
        self._keeper, self._deliver = keeper, deliver
        self._catalogue: Mapping[str, AdapterConfig] = {}
        self._going: dict[str, frozenset[str]] = {}
        """By replica: what is unloaded, or about to be, and still told to be there, or will be."""
        self._withheld: frozenset[str] = frozenset()
        self._loadable: dict[str, tuple[str, ...]] = {}
        self._unknown: dict[str, frozenset[str]] = {}

    # --- other adapters -----------------------------------------------------------------------

    def withhold(self, catalogue: Mapping[str, AdapterConfig]) -> None:
        """From now on what is another adapter in this catalogue, or none, is hidden everywhere."""
        self._withheld = frozenset(
            name
            for name, old in self._catalogue.items()
            if (new := catalogue.get(name)) is None or (new.path, new.base) != (old.path, old.base)
        )

    def configure(self, catalogue: Mapping[str, AdapterConfig], replicas: Collection[str]) -> None:
        """The keeper goes by this catalogue now; only these replicas load adapters."""
        self._catalogue, self._withheld = catalogue, frozenset()
        for name, places in self._keeper.places.items():
            if name not in replicas:
                self._keeper.replica_down(name)
                self._going.pop(name, None)
                self._unknown.pop(name, None)
                self.tell_loadable(name, ())
            else:
                self.hide(name, places.stale | places.outdated)
                # Those that wait for what one loads that is down are to know, too.
                self.tell_loadable(name, places.base_models)

    # --- what goes and comes ------------------------------------------------------------------

    def hide(self, replica: str, names: Iterable[str]) -> None:
        """These go, too."""
        self._going[replica] = self._going.get(replica, frozenset()) | frozenset(names)

    def change(self, replica: str, load: Iterable[str], unload: Iterable[str]) -> None:
        """A change begins: these go, and those come."""
        outdated = self._keeper.places[replica].outdated  # by a reload a moment ago
        going = self._going.get(replica, frozenset()) - frozenset(load)
        self._going[replica] = going | outdated | frozenset(unload)

    def stay(self, replica: str) -> None:
        """Nothing goes but what is not to be used at all."""
        self._going[replica] = frozenset(self._keeper.places[replica].stale)

    # --- what is told -------------------------------------------------------------------------

    def up(self, event: ReplicaUp, slots: int, now_s: float) -> ReplicaUp:
        """A replica with so many slots is up: the event as workers are to hear it."""
        replica, models = event.replica, frozenset(event.models)
        places = self._keeper.places.get(replica)
        going = self._going.get(replica, frozenset()) & models
        stale: Collection[str] = frozenset()
        if places is not None:  # hidden before it is there, so that nobody ever sees it
            going |= places.outdated
            stale = places.stale
        unknown = self._unknown_of(event, stale)
        hidden = going - frozenset(stale)
        held = [each for each in event.adapters if each.model not in hidden | unknown]
        self._keeper.replica_up(
            replica,
            [name for name in event.models if name not in unknown],
            [each.model for each in held],
            slots,
            now_s,
            others=[each.model for each in held if self._is_another(each)],
        )
        places = self._keeper.places[replica]
        self._going[replica] = going | (places.stale & models)
        self.tell_loadable(replica, event.models)
        return without_paths(_without(event, self._going[replica] | unknown | self._withheld))

    def tell_loadable(self, replica: str, models: Collection[str]) -> None:
        """Tell the workers which adapters a replica that serves these loads when asked, where that
        has changed."""
        names = tuple(each.name for each in self._catalogue.values() if each.base in models)
        if self.loadable(replica) != names:
            self._loadable[replica] = names
            self._deliver(Loadable(replica, names))

    def loadable(self, replica: str) -> tuple[str, ...]:
        """What workers were told that it loads when asked."""
        return self._loadable.get(replica, ())

    def _unknown_of(self, event: ReplicaUp, stale: Collection[str]) -> frozenset[str]:
        """Adapters that it holds and nobody has configured, but for those that are unloaded."""
        known = self._catalogue
        unknown = frozenset(
            each.model
            for each in event.adapters
            # One with the name of its base is started with the engine, and part of all requests.
            if each.model != each.base and each.model not in known and each.model not in stale
        )
        if unknown != self._unknown.get(event.replica, frozenset()):
            self._unknown[event.replica] = unknown
            if unknown:
                _log.warning(
                    "engine %s holds adapters that are not in [[adapters]]: nobody is let to use "
                    "%s; add them there, or unload them at the engine",
                    event.replica,
                    ", ".join(sorted(unknown)),
                )
        return unknown

    def _is_another(self, held: Adapter) -> bool:
        """The engine says that it has read it from elsewhere than is configured."""
        configured = self._catalogue.get(held.model)
        if configured is None or held.path is None:
            return False
        return held.path.rstrip("/") != configured.path.removeprefix("hf:").rstrip("/")


def without_paths(event: ReplicaUp) -> ReplicaUp:
    """Where adapters were read is no business of the data plane's."""
    if all(each.path is None for each in event.adapters):
        return event
    told = tuple(Adapter(each.model, each.name, each.base) for each in event.adapters)
    return ReplicaUp(event.replica, event.models, told)


def _without(event: ReplicaUp, hidden: Collection[str]) -> ReplicaUp:
    return ReplicaUp(
        event.replica,
        tuple(name for name in event.models if name not in hidden),
        tuple(each for each in event.adapters if each.model not in hidden),
    )
