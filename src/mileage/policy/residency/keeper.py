"""AdapterKeeper: which LoRA adapters each replica is to load and unload, and when."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec

from mileage.policy.residency.adapters import AdapterConfig, LoraConfig
from mileage.policy.residency.demand import AdapterDemand
from mileage.policy.residency.load_failures import LoadFailures, NotLoaded
from mileage.policy.residency.places import AdapterPlaces
from mileage.policy.residency.wishes import AdapterWishes

__all__ = ["AdapterChange", "AdapterKeeper", "ChangeReason"]

ChangeReason: TypeAlias = Literal["demand", "pinned", "asked", "prefetch", "idle", "changed"]
_LN_2 = math.log(2.0)
_RETRY_S = 1.0
_PINNED_RETRY_S = 5.0


class AdapterChange(msgspec.Struct, frozen=True):
    """Load these adapters on the replica, after these were unloaded from it."""

    replica: str
    load: tuple[str, ...]
    unload: tuple[str, ...]
    reason: ChangeReason


class AdapterKeeper:
    """Loads what requests wait for, where it is there soonest; keeps what is wanted most.

    A slot that is free is taken first, then that of the coldest adapter. That one goes when the
    requests that wait for the other have together waited as long as its own next load is expected
    to take, which is the load's measured time by how likely it is wanted while the other stays: as
    for skis, to rent until the rent has reached the price costs at most twice what the best choice
    in hindsight would. An adapter stays `residence_ratio` loads at least. What is loaded ahead of
    requests takes another's slot only where it is expected to save a load more than that.

    Knows no clock: `now_s` is monotonic. One change at a time for each replica.
    """

    def __init__(self, config: LoraConfig, adapters: Iterable[AdapterConfig] = ()) -> None:
        self._config = config
        self._catalogue: dict[str, AdapterConfig] = {}
        self._wishes = AdapterWishes()
        self._places: dict[str, AdapterPlaces] = {}
        self._demand = AdapterDemand(config.half_life_s)
        self._failures = LoadFailures(config)
        self.fetching: set[str] = set()
        """Paths of files that are on their way here: their adapters are not loaded yet."""
        self.configure(config, adapters)

    # --- what is told -------------------------------------------------------------------------

    def configure(self, config: LoraConfig, adapters: Iterable[AdapterConfig]) -> None:
        """Decide by these; what is known of adapters that stay, stays."""
        self._demand.configure(config.half_life_s)
        before, self._config = self._catalogue, config
        self._catalogue = {adapter.name: adapter for adapter in adapters}
        for name, old in before.items():
            new = self._catalogue.get(name)
            if new != old:
                self._failures.forget(name)  # perhaps it was put right
                self._wishes.forget_pin(name)
            if new is None or (new.path, new.base) != (old.path, old.base):
                self._wishes.forget(name)
                for places in self._places.values():
                    places.outdate(name)
        self._failures.configure(config)

    def replica_up(
        self,
        name: str,
        models: Iterable[str],
        adapters: Iterable[str],
        slots: int,
        now_s: float,
        *,
        others: Iterable[str] = (),
    ) -> None:
        """The replica serves `models`, and holds `adapters` in its `slots`, of which the `others`
        were read from elsewhere than is configured."""
        places = self._places.get(name)
        if places is None:
            places = self._places[name] = AdapterPlaces(name, slots, self._config.load_assumed_s)
        known = self._catalogue
        held = [each for each in adapters if each in known or each in places.stale]
        bases = (each for each in models if each not in known)
        places.came_up(bases, held, slots, now_s, others=others)

    def replica_down(self, name: str) -> None:
        """The replica is not to be used; what it held is looked at when it is back."""
        if (places := self._places.get(name)) is not None:
            places.up = False

    def demand(self, used: Mapping[str, int], waiting: Mapping[str, int], now_s: float) -> None:
        """So many requests came for adapters since the last call; and so many wait now, in all."""
        known = self._catalogue
        self._demand.told(
            {name: times for name, times in used.items() if name in known},
            {name: count for name, count in waiting.items() if name in known},
            now_s,
        )
        for name in self._demand.waiting:
            # Reports are late: of one that is there they tell what was before it was asked to go.
            if not self._copies(name):
                self._wishes.welcome(name)

    def changed(
        self, change: AdapterChange, errors: Mapping[str, str], took_s: float, now_s: float
    ) -> None:
        """A change was made, but for what `errors` tells of; `took_s` is that of each load. Where
        nothing was loaded of what was to be, what was to make room has stayed. An error of one
        that was to be unloaded counts for those that are `stale`: they are tried again."""
        places = self._places[change.replica]
        places.busy = False
        stayed = bool(change.load) and all(name in errors for name in change.load)
        for name in () if stayed else change.unload:
            places.resident.pop(name, None)
            if name not in errors:
                places.stale.discard(name)
            elif name in places.stale:
                places.stale_retry_s = now_s + self._config.retry_s
            if not self._copies(name):
                self._wishes.unload.discard(name)
        for name in change.load:
            outdated = name in places.outdated
            places.outdated.discard(name)
            places.coming.discard(name)
            self._wishes.load.pop(name, None)
            if outdated:
                places.stale |= {name} - errors.keys()
            elif name in errors:
                self._failures.failed(change.replica, name, errors[name], now_s)
            else:
                self._failures.forget(name, change.replica)
                places.resident[name] = now_s
        if any(name not in errors for name in change.load):
            places.measured(took_s)

    def put_off(self, change: AdapterChange, paths: Iterable[str]) -> None:
        """A change is not made now: these of its files are fetched first."""
        places = self._places[change.replica]
        places.busy = False
        places.coming.difference_update(change.load)
        self.fetching.update(paths)

    def fetched(
        self, replica: str, adapter: AdapterConfig, error: str | None, now_s: float
    ) -> None:
        """The file of an adapter has come for this replica, or did not: why."""
        self.fetching.discard(adapter.path)
        if error is not None and self._catalogue.get(adapter.name) == adapter:
            self._wishes.load.pop(adapter.name, None)
            self._failures.failed(replica, adapter.name, error, now_s)

    def ask_load(self, name: str) -> None:
        """Load it now, for nobody who waits. KeyError where it is not in the catalogue."""
        self._catalogue[name]
        self._failures.forget(name)
        self._wishes.ask_load(name)

    def ask_unload(self, name: str) -> None:
        """Unload it wherever it is; a request for it loads it again. KeyError likewise."""
        self._catalogue[name]
        self._wishes.ask_unload(name)

    def pin(self, name: str, pinned: bool) -> None:
        """Pin it, or no longer, whatever is configured. KeyError if not in the catalogue."""
        self._catalogue[name]
        self._wishes.pin(name, pinned)

    # --- what is asked ------------------------------------------------------------------------

    def refusal(self, name: str, now_s: float) -> NotLoaded | None:
        """Why requests for it are not to wait: no replica that could load it is left to try."""
        adapter = self._catalogue.get(name)
        if adapter is None or self._is_coming(name) or self._copies(name):
            return None
        fit = [each for each in self._places.values() if self._may_hold(each, adapter)]
        if not fit:
            return NotLoaded(
                f"no replica that is up serves {adapter.base} and loads adapters", _RETRY_S
            )
        room = [each.name for each in fit if not self._is_full_of_pins(each)]
        return self._failures.refusal(name, room, now_s) if room else self.crowded_out(name)

    def crowded_out(self, name: str) -> NotLoaded | None:
        """Why requests for it would wait for nothing: what never goes takes every slot."""
        adapter = self._catalogue.get(name)
        if adapter is None or self._is_coming(name) or self._copies(name):
            return None
        fit = [each for each in self._places.values() if self._may_hold(each, adapter)]
        if not fit or not all(map(self._is_full_of_pins, fit)):
            return None
        said = "all slots of the replicas that could load it are taken by pinned adapters"
        return NotLoaded(said, _PINNED_RETRY_S)

    def _is_full_of_pins(self, places: AdapterPlaces) -> bool:
        held = places.resident.keys() | places.coming
        return sum(map(self.is_pinned, held)) >= places.slots

    def is_pinned(self, name: str) -> bool:
        """As asked for, else as configured."""
        adapter, asked = self._catalogue.get(name), self._wishes.pinned(name)
        return asked if asked is not None else adapter is not None and adapter.pinned

    def heat(self, name: str, now_s: float) -> float:
        """Uses, each faded by its age."""
        return self._demand.heat.heat(name, now_s)

    def failure(self, name: str) -> str | None:
        """Why its last load failed; None where none has since it was loaded."""
        return self._failures.reason(name)

    def holders(self, name: str) -> list[str]:
        """Replicas that have it loaded."""
        return [each.name for each in self._places.values() if each.up and name in each.resident]

    @property
    def waiting(self) -> Mapping[str, int]:
        """Requests that wait, by adapter."""
        return self._demand.waiting

    @property
    def places(self) -> Mapping[str, AdapterPlaces]:
        """What each replica holds."""
        return self._places

    # --- what is decided ----------------------------------------------------------------------

    def decide(self, now_s: float) -> list[AdapterChange]:
        """What is to be changed now; `changed` is to be told of each, however it ends."""
        self._demand.count(now_s)
        idle = [p for p in self._places.values() if p.up and not p.busy and p.slots > 0]
        changes = []
        for places in sorted(idle, key=lambda each: each.name):
            change = self._change(places, idle, now_s)
            if change is not None:
                places.busy = True
                places.coming.update(change.load)
                changes.append(change)
        return changes

    def _change(
        self, places: AdapterPlaces, idle: list[AdapterPlaces], now_s: float
    ) -> AdapterChange | None:
        """What this replica is to do next, the most urgent reason first."""
        if places.stale and now_s >= places.stale_retry_s:
            return AdapterChange(places.name, (), tuple(sorted(places.stale)), "changed")
        load: list[str] = []
        unload: list[str] = []
        reason: ChangeReason = "demand"
        wanted: list[tuple[ChangeReason, str]] = [
            *(("demand", name) for name in self._demand.longest_first()),
            *(("asked", name) for name in self._wishes.load),
            *(("pinned", name) for name in self._catalogue if self.is_pinned(name)),
        ]
        for why, name in wanted:
            if not self._wants(places, name, why, now_s) or name in load:
                continue
            if why == "demand" and not self._is_best(places, idle, name, now_s):
                continue
            if places.free + len(unload) <= len(load):
                victim = self._victim(places, unload, now_s, young=why != "demand")
                if victim is None or (
                    why == "demand"
                    and not self._pays(places, name, victim, now_s, first=not unload)
                ):
                    continue
                unload.append(victim)
            reason = reason if load else why
            load.append(name)
        if load:
            return AdapterChange(places.name, tuple(load), tuple(unload), reason)
        if self._demand.waiting:
            return None
        gone = tuple(name for name in places.resident if name in self._wishes.unload)
        if gone:
            return AdapterChange(places.name, (), gone, "asked")
        return self._unused(places, now_s) or self._ahead(places, now_s)

    def _wants(self, places: AdapterPlaces, name: str, why: ChangeReason, now_s: float) -> bool:
        """The replica may load it now, and it is not there, or for all but pins anywhere, yet."""
        adapter = self._catalogue.get(name)
        if adapter is None or not self._may_hold(places, adapter) or places.holds(name):
            return False
        if adapter.path in self.fetching:
            return False
        if why != "pinned" and (self._is_coming(name) or self._copies(name)):
            return False
        return self._failures.may_try(places.name, name, now_s)

    def _may_hold(self, places: AdapterPlaces, adapter: AdapterConfig) -> bool:
        return places.up and places.slots > 0 and adapter.base in places.base_models

    def _is_best(
        self, places: AdapterPlaces, idle: list[AdapterPlaces], name: str, now_s: float
    ) -> bool:
        """No other replica has more free slots, or, where none has any, a colder victim."""

        def cost(each: AdapterPlaces) -> tuple[float, str]:
            if each.free > 0:
                return -float(each.free), each.name
            victim = self._victim(each, (), now_s)
            return (math.inf if victim is None else self._worth(victim, now_s)), each.name

        fit = [each for each in idle if not each.busy and self._wants(each, name, "demand", now_s)]
        return min(fit, key=cost) is places

    def _victim(
        self, places: AdapterPlaces, gone: Iterable[str], now_s: float, *, young: bool = False
    ) -> str | None:
        """The coldest adapter. None: it has not been there for long enough, and rather than a
        warmer one nothing goes; `young`: also before its time."""
        may_go = [name for name in places.resident if not self.is_pinned(name) and name not in gone]
        if not may_go:
            return None
        heat = self._demand.heat
        coldest = min(may_go, key=lambda n: (self._worth(n, now_s), heat.last_use_s(n) or 0.0))
        stay_s = 0.0 if young else self._config.residence_ratio * places.load_s
        return coldest if now_s - places.resident[coldest] >= stay_s else None

    def _worth(self, name: str, now_s: float) -> float:
        """Its heat, of which each replica that holds it has a part."""
        return self.heat(name, now_s) / max(1, self._copies(name))

    def _pays(
        self, places: AdapterPlaces, name: str, victim: str, now_s: float, *, first: bool
    ) -> bool:
        """The one that comes is wanted more; or, for the `first` that goes in a change, those who
        wait have waited as long as the victim's next load would keep others waiting."""
        if self.heat(name, now_s) >= self._worth(victim, now_s):
            return True
        if not first:
            return False
        rate = self._worth(victim, now_s) * _LN_2 / self._config.half_life_s
        again = -math.expm1(-rate * self._config.residence_ratio * places.load_s)
        return self._demand.waited_s(name) >= again * places.load_s

    def _unused(self, places: AdapterPlaces, now_s: float) -> AdapterChange | None:
        """What nobody has used for long goes."""
        idle_s = self._config.idle_unload_s
        if idle_s is None:
            return None
        gone = tuple(
            name
            for name, since_s in places.resident.items()
            if not self.is_pinned(name)
            and now_s - max(since_s, self._demand.heat.last_use_s(name) or since_s) >= idle_s
        )
        return AdapterChange(places.name, (), gone, "idle") if gone else None

    def _ahead(self, places: AdapterPlaces, now_s: float) -> AdapterChange | None:
        """What will probably be asked for is loaded before it is."""
        if not self._config.prefetch:
            return None
        best, uses = None, 1.0
        for name in self._catalogue:
            copies = self._copies(name)
            if self._is_coming(name) or (copies and places.free <= 0):
                continue
            expected = self.heat(name, now_s) / (1 + copies)
            if expected > uses and self._wants_ahead(places, name, now_s):
                best, uses = name, expected
        if best is None:
            return None
        if places.free > 0:
            return AdapterChange(places.name, (best,), (), "prefetch")
        victim = self._victim(places, (), now_s)
        # Loads that it saves within a half-life, more than the one that leaves does: heat / ln 2
        # is how many uses of a steady demand that are.
        if victim is None or uses - self._worth(victim, now_s) < _LN_2:
            return None
        return AdapterChange(places.name, (best,), (victim,), "prefetch")

    def _wants_ahead(self, places: AdapterPlaces, name: str, now_s: float) -> bool:
        adapter = self._catalogue[name]
        return (
            self._may_hold(places, adapter)
            and not places.holds(name)
            and adapter.path not in self.fetching
            and name not in self._wishes.left_out
            and self._failures.may_try(places.name, name, now_s)
        )

    def _is_coming(self, name: str) -> bool:
        return any(name in places.coming for places in self._places.values())

    def _copies(self, name: str) -> int:
        return len(self.holders(name))
