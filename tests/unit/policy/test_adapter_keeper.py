"""What the keeper of adapters loads and unloads, in virtual time."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.residency.adapters import AdapterConfig, LoraConfig, check_catalogue
from mileage.policy.residency.keeper import AdapterChange, AdapterKeeper

LOAD_S = 2.0


def adapter(name: str, *, pinned: bool = False, base: str = "m") -> AdapterConfig:
    return AdapterConfig(name=name, path=f"/{name}", base=base, pinned=pinned)


def keeper(
    *names: str, slots: int = 2, pinned: str = "", config: LoraConfig | None = None
) -> AdapterKeeper:
    made = AdapterKeeper(
        config or LoraConfig(prefetch=False), [adapter(n, pinned=n in pinned) for n in names]
    )
    made.replica_up("r", ("m",), (), slots, 0.0)
    return made


def make(it: AdapterKeeper, now_s: float, **errors: str) -> list[AdapterChange]:
    """Decide, and let it be done at once."""
    changes = it.decide(now_s)
    for change in changes:
        it.changed(change, errors, LOAD_S, now_s)
    return changes


def test_what_waits_is_loaded_into_a_free_slot() -> None:
    it = keeper("a", "b")
    it.demand({"a": 1}, {"a": 1}, 1.0)
    assert make(it, 1.0) == [AdapterChange("r", ("a",), (), "demand")]
    it.demand({}, {}, 3.0)
    assert make(it, 3.0) == []
    assert list(it.places["r"].resident) == ["a"]


def test_the_coldest_makes_room_when_it_has_stayed_as_long_as_its_load_took() -> None:
    it = keeper("a", "b", "c")
    it.demand({"a": 5, "b": 1}, {"a": 1, "b": 1}, 0.0)
    make(it, 0.0)
    it.demand({"c": 1}, {"c": 1}, 1.0)
    assert make(it, 1.0) == [], "b is too young, and a is not taken in its place"
    assert make(it, 2.5) == [AdapterChange("r", ("c",), ("b",), "demand")]


def test_a_hot_one_goes_only_when_others_have_waited_as_long_as_its_next_load() -> None:
    it = keeper("a", "b", slots=1)
    it.demand({"a": 500}, {"a": 1}, 0.0)
    make(it, 0.0)
    it.demand({"b": 1}, {"b": 1}, 10.0)
    assert make(it, 10.0) == []
    assert make(it, 11.0) == [], "one request has waited 1 s, a load takes 2"
    assert make(it, 12.5) == [AdapterChange("r", ("b",), ("a",), "demand")]


def test_a_failure_is_told_and_tried_again_later_and_nothing_made_room_for_it() -> None:
    it = keeper("a", "b", slots=1)
    it.demand({"a": 1}, {"a": 1}, 0.0)
    make(it, 0.0)
    it.demand({"b": 9}, {"b": 1}, 5.0)
    make(it, 5.0, b="no such file")
    assert list(it.places["r"].resident) == ["a"]
    refusal = it.refusal("b", 6.0)
    assert refusal is not None
    assert (refusal.reason, refusal.retry_after_s) == ("no such file", 4.0)
    assert it.failure("b") == "no such file"
    it.demand({}, {"b": 1}, 9.0)
    assert make(it, 9.0) == []
    assert it.refusal("b", 10.0) is None
    assert make(it, 10.0) == [AdapterChange("r", ("b",), ("a",), "demand")]
    assert it.failure("b") is None


def test_a_pinned_one_is_loaded_everywhere_and_never_goes() -> None:
    it = keeper("a", "b", slots=1, pinned="a")
    it.replica_up("s", ("m",), (), 1, 0.0)
    assert {(c.replica, c.load, c.reason) for c in make(it, 0.0)} == {
        ("r", ("a",), "pinned"),
        ("s", ("a",), "pinned"),
    }
    it.demand({"b": 50}, {"b": 50}, 1.0)
    assert make(it, 500.0) == []
    it.pin("a", False)
    assert len(make(it, 501.0)) == 1


def test_the_replica_with_a_free_slot_is_taken_then_the_one_with_the_colder_victim() -> None:
    it = keeper("a", "b", "c", "d", slots=1)
    it.replica_up("s", ("m",), (), 1, 0.0)
    it.demand({"a": 9}, {"a": 1}, 0.0)
    assert [c.replica for c in make(it, 0.0)] == ["r"]
    it.demand({"b": 1}, {"b": 1}, 0.1)
    assert [c.replica for c in make(it, 0.1)] == ["s"]
    it.demand({"c": 2}, {"c": 1}, 9.0)
    assert make(it, 9.0) == [AdapterChange("s", ("c",), ("b",), "demand")]


def test_one_is_not_loaded_where_its_base_is_not_served_and_says_so() -> None:
    it = AdapterKeeper(LoraConfig(), [adapter("a", base="other")])
    it.replica_up("r", ("m",), (), 2, 0.0)
    it.demand({"a": 1}, {"a": 1}, 0.0)
    assert make(it, 0.0) == []
    refusal = it.refusal("a", 0.0)
    assert refusal is not None
    assert "no replica that is up serves other" in refusal.reason


def test_prefetch_takes_a_slot_only_where_it_is_expected_to_save_a_load() -> None:
    it = keeper("a", "b", slots=1, config=LoraConfig())
    it.demand({"a": 2}, {}, 0.0)
    assert make(it, 0.0) == [AdapterChange("r", ("a",), (), "prefetch")]
    it.demand({"b": 2}, {}, 10.0)
    assert make(it, 10.0) == [], "as much wanted as the other"
    it.demand({"b": 2}, {}, 11.0)
    assert make(it, 11.0) == [AdapterChange("r", ("b",), ("a",), "prefetch")]


def test_what_nobody_uses_goes_and_what_is_asked_for_goes_and_comes() -> None:
    it = keeper("a", "b", config=LoraConfig(idle_unload_s=60.0, prefetch=False))
    it.ask_load("a")
    assert make(it, 0.0) == [AdapterChange("r", ("a",), (), "asked")]
    assert make(it, 59.0) == []
    assert make(it, 61.0) == [AdapterChange("r", (), ("a",), "idle")]
    it.ask_load("b")
    make(it, 70.0)
    it.ask_unload("b")
    assert make(it, 71.0) == [AdapterChange("r", (), ("b",), "asked")]
    with pytest.raises(KeyError):
        it.ask_load("zzz")


def test_an_adapter_that_is_asked_to_go_goes_though_its_last_use_is_reported_later() -> None:
    it = keeper("a", config=LoraConfig(prefetch=True))
    it.demand({"a": 5}, {"a": 5}, 0.0)
    make(it, 0.0)
    it.ask_unload("a")
    it.demand({"a": 5}, {"a": 1}, 1.0)  # of before: it has been there since
    assert make(it, 1.0) == []
    it.demand({"a": 1}, {}, 2.0)
    assert make(it, 2.0) == [AdapterChange("r", (), ("a",), "asked")]
    assert make(it, 3.0) == [], "it is hot, but is not loaded ahead of requests"
    it.demand({}, {"a": 1}, 4.0)
    assert make(it, 4.0) == [AdapterChange("r", ("a",), (), "demand")]


@pytest.mark.parametrize("again", ["ask_load", "pin"])
def test_what_is_asked_for_after_it_was_asked_to_go_stays(again: str) -> None:
    it = keeper("a")
    it.demand({}, {"a": 1}, 0.0)
    make(it, 0.0)
    it.demand({}, {}, 1.0)
    it.ask_unload("a")
    if again == "pin":
        it.pin("a", True)
    else:
        it.ask_load("a")
    assert make(it, 2.0) == []


def test_after_a_restart_only_what_the_replica_says_is_there() -> None:
    it = keeper("a")
    it.demand({"a": 1}, {"a": 1}, 0.0)
    make(it, 0.0)
    it.replica_down("r")
    it.demand({}, {"a": 1}, 1.0)
    assert make(it, 1.0) == []
    it.replica_up("r", ("m",), (), 2, 2.0)
    assert make(it, 2.0) == [AdapterChange("r", ("a",), (), "demand")]


MOVED = AdapterConfig(name="a", path="/elsewhere", base="m")


def test_what_is_another_one_by_configuration_is_unloaded_before_it_is_loaded_again() -> None:
    it = keeper("a", "b")
    it.demand({"a": 1, "b": 1}, {"a": 1, "b": 1}, 0.0)
    make(it, 0.0)
    it.configure(LoraConfig(prefetch=False), [MOVED])
    assert (list(it.places["r"].resident), it.places["r"].free) == ([], 0)
    it.demand({"a": 1}, {"a": 1}, 1.0)
    gone = AdapterChange("r", (), ("a", "b"), "changed")
    assert make(it, 1.0, a="is down", b="is down") == [gone]
    it.replica_up("r", ("m",), ("a", "b"), 2, 1.5)
    it.demand({}, {"a": 1}, 2.0)
    assert make(it, 2.0) == [], "not at once after it has failed, nor another of this name"
    assert make(it, 9.0) == [gone]
    assert make(it, 9.0) == [AdapterChange("r", ("a",), (), "demand")]


def test_what_was_loaded_from_the_path_before_is_not_taken_for_the_new_one() -> None:
    it = keeper("a")
    it.demand({"a": 1}, {"a": 1}, 0.0)
    (change,) = it.decide(0.0)
    it.configure(LoraConfig(prefetch=False), [MOVED])
    it.changed(change, {}, LOAD_S, 2.0)
    assert make(it, 2.0) == [AdapterChange("r", (), ("a",), "changed")]
    assert make(it, 2.0) == [AdapterChange("r", ("a",), (), "demand")]


def test_each_replica_that_loads_it_from_the_path_before_gives_it_up() -> None:
    it = keeper("a", pinned="a")
    it.replica_up("s", ("m",), (), 2, 0.0)
    first, second = it.decide(0.0)
    it.configure(LoraConfig(prefetch=False), [MOVED])
    for change in (first, second):
        assert it.places[change.replica].outdated == {"a"}
        it.changed(change, {}, LOAD_S, 2.0)
    assert make(it, 2.0) == [AdapterChange(each, (), ("a",), "changed") for each in ("r", "s")]


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"name": ""}, "adapters.name", id="no name"),
        pytest.param({"path": ""}, "adapters.path", id="no path"),
        pytest.param({"path": "hf:nope"}, "adapters.path", id="no hub id"),
        pytest.param({"base": "a"}, "adapters.base", id="an adapter of itself"),
    ],
)
def test_entries_that_cannot_be_are_refused(fields: dict[str, str], key: str) -> None:
    entry = {"name": "a", "path": "/a", "base": "m", **fields}
    with pytest.raises(ConfigError) as raised:
        AdapterConfig(name=entry["name"], path=entry["path"], base=entry["base"])
    assert raised.value.key == key


def test_two_of_one_name_are_refused() -> None:
    with pytest.raises(ConfigError, match="an alias has it"):
        check_catalogue((adapter("a"),), {"a": "an alias"})
    with pytest.raises(ConfigError, match="another adapter has it"):
        check_catalogue((adapter("a"), adapter("a")), {})
