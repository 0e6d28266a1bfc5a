"""Events before a change, capacity, and what is to be done."""

from __future__ import annotations

import pytest

from mileage.doctor.rca.analyse import analyse
from mileage.doctor.rca.config_change import change_text, changed_keys
from mileage.doctor.rca.events import Event, precedents, replica_events
from mileage.doctor.rca.series import History, Series
from mileage.ledger.replica_time import ReplicaTime
from tests.support.rca_histories import ONSET, START_UTC_S, STEP_S, fleet_history, overflow

S = 1_000_000_000


def stretch(start: int, end: int, state: str, gpus: float = 1.0, gpu: str = "h100") -> ReplicaTime:
    """Of replica a, in seconds."""
    return ReplicaTime("a", start * S, end * S, gpus, gpu, state)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        pytest.param(stretch(0, 9, "up"), stretch(9, 20, "down"), ["replica_down"], id="down"),
        pytest.param(stretch(0, 9, "down"), stretch(9, 20, "up"), ["replica_up"], id="up"),
        pytest.param(stretch(0, 9, "up"), stretch(9, 20, "warmup"), ["restart"], id="anew"),
        pytest.param(stretch(0, 9, "down"), stretch(9, 20, "warmup"), [], id="not up yet"),
        pytest.param(stretch(0, 9, "up"), stretch(9, 20, "up", 2.0), ["deploy"], id="more GPUs"),
        pytest.param(stretch(0, 9, "up"), stretch(9, 20, "up"), [], id="no change"),
        pytest.param(stretch(0, 9, "up"), stretch(900, 950, "down"), [], id="nobody looked"),
    ],
)
def test_events_of_replicas(before: ReplicaTime, after: ReplicaTime, kinds: list[str]) -> None:
    assert [each.kind for each in replica_events([after, before])] == kinds


def test_events_before_a_change_come_with_their_lead_and_chance() -> None:
    events = [
        Event(at_utc_s=at, kind="config", node="gateway", detail="d")
        for at in (100.0, 880.0, 990.0)
    ]
    found = precedents(events, 1000.0, span_s=36_000.0, step_s=10.0, before_s=500.0)
    assert [each.lead_s for each in found] == [10.0, 120.0]
    # Three in ten hours, and a window of half a minute.
    assert found[0].chance_ratio == pytest.approx(3 * 30 / 36_000, rel=0.01)


def test_keys_that_differ_are_named() -> None:
    before = '{"a": {"b": 1, "c": [1]}, "d": 2}'
    assert changed_keys(before, '{"a": {"b": 2, "c": [2]}, "e": 1}') == ["a.b", "a.c", "d", "e"]
    assert changed_keys(before, before) == []
    assert changed_keys(before, "no JSON") == []
    assert change_text([]) == "the configuration changed"
    assert change_text(list("abcdefgh")).endswith("and 2 more changed")


def test_a_replica_that_went_down_before_its_trouble_is_to_be_restarted() -> None:
    at_utc_s = START_UTC_S + ONSET * STEP_S - 30
    down = Event(at_utc_s=at_utc_s, kind="replica_down", node="replica:a", detail="went down")
    analysis = analyse(fleet_history(1, overflow, events=[down]), libraries=False)
    assert [(each.kind, each.node) for each in analysis.actions] == [("restart", "replica:a")]


def test_replicas_that_a_lasting_fall_of_load_leaves_idle_may_go() -> None:
    def change(node: str, figure: str, at: int) -> float:
        return 0.3 if figure == "load" and at >= 300 else 1.0

    history = fleet_history(1, change, points=2000, first=300)
    analysis = analyse(history, libraries=False)
    assert analysis.roots == ()
    assert [(each.kind, each.replicas) for each in analysis.actions] == [("remove_replicas", 2)]


def test_a_replica_whose_speed_falls_with_its_memory_is_to_be_restarted() -> None:
    history = fleet_history(1)
    memory = [0.1 + 0.001 * (at % 240) + 0.02 * (at % 7) / 7 for at in range(480)]
    speed = [50.0 - 60.0 * part for part in memory]
    rows = (
        Series(node="replica:a", name="kv_fragmentation_ratio", values=tuple(memory)),
        Series(node="replica:a", name="decode_tokens_per_s", values=tuple(speed)),
    )
    worn = History(
        start_utc_s=history.start_utc_s,
        step_s=history.step_s,
        since_utc_s=history.since_utc_s,
        series=(*history.series, *rows),
    )
    analysis = analyse(worn, libraries=False)
    assert analysis.relations[0].found == "related"
    assert [each.kind for each in analysis.actions] == ["restart"]
