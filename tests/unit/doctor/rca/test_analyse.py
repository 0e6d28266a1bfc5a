"""analyse(): histories whose root cause is known."""

from __future__ import annotations

import math
import random

import pytest

from mileage.doctor.rca.analyse import analyse
from mileage.doctor.rca.events import Event
from mileage.doctor.rca.series import History, Series
from tests.support.rca_histories import (
    ONSET,
    START_UTC_S,
    STEP_S,
    Change,
    config_change,
    fleet_history,
    no_change,
    overflow,
    tenant_burst,
)

SEEDS = 200


def _config(version: int, before_s: float) -> Event:
    at_utc_s = START_UTC_S + ONSET * STEP_S - before_s
    return Event(
        at_utc_s=at_utc_s, kind="config", node="gateway", detail="governor.policy", version=version
    )


@pytest.mark.parametrize("libraries", [True, False])
@pytest.mark.parametrize(
    ("change", "node"),
    [
        pytest.param(overflow, "replica:a", id="the replica that slowed first, not its neighbours"),
        pytest.param(config_change, "gateway", id="what all replicas have in common"),
        pytest.param(tenant_burst, "tenant:x", id="the tenant whose burst it is"),
    ],
)
def test_the_root_is_named(change: Change, node: str, libraries: bool) -> None:
    for seed in range(1 if libraries else 8):
        analysis = analyse(fleet_history(seed, change), libraries=libraries)
        assert analysis.verdict == "finding"
        assert analysis.roots[0].node == node, seed
        assert analysis.roots[0].tied_with == ()


def test_the_first_replica_explains_all_others_with_their_leads() -> None:
    root = analyse(fleet_history(1, overflow), libraries=False).roots[0]
    leads = {each.node: each.lead_steps for each in root.effects}
    assert set(leads) == {"gateway", "tenant:x", "tenant:y", "replica:b", "replica:c"}
    assert leads["replica:b"] == pytest.approx(3, abs=1)
    assert sum(value for _, value in root.parts) == pytest.approx(root.score)
    assert root.start == pytest.approx(ONSET, abs=1)


def test_a_configuration_before_a_step_is_to_be_rolled_back() -> None:
    analysis = analyse(fleet_history(1, config_change, events=[_config(7, 60.0)]), libraries=False)
    assert [(each.kind, each.version) for each in analysis.actions] == [("roll_back", 7)]
    assert analysis.before[0].lead_s == pytest.approx(60.0, abs=STEP_S)
    assert analysis.before[0].chance_ratio < 0.05


@pytest.mark.parametrize(
    "events",
    [
        pytest.param([_config(7, -600.0)], id="one that came after the change"),
        pytest.param([_config(7, 7200.0)], id="one two hours before"),
        pytest.param(
            [_config(n, 300.0 * (n - 20)) for n in range(60)], id="one every five minutes"
        ),
    ],
)
def test_another_configuration_is_not_blamed(events: list[Event]) -> None:
    analysis = analyse(fleet_history(1, config_change, events=events), libraries=False)
    assert "roll_back" not in [each.kind for each in analysis.actions]


def test_a_configuration_is_not_blamed_for_a_tenants_burst() -> None:
    events = [_config(7, 60.0)]
    analysis = analyse(fleet_history(1, tenant_burst, events=events), libraries=False)
    kinds = [each.kind for each in analysis.actions]
    assert kinds == ["talk_to_tenant", "add_replicas"]
    # Three times the load of three replicas that have served their part in time: nine.
    assert analysis.actions[1].replicas == pytest.approx(5, abs=1)


def test_a_replica_is_quarantined_while_others_serve() -> None:
    action = analyse(fleet_history(1, overflow), libraries=False).actions[0]
    assert (action.kind, action.node) == ("quarantine", "replica:a")


def test_noise_alone_gives_one_false_alarm_in_200_at_most() -> None:
    alarms = sum(
        bool(analyse(fleet_history(seed, no_change), libraries=False).anomalies)
        for seed in range(SEEDS)
    )
    assert alarms <= 1


def test_noise_that_lingers_gives_four_false_alarms_in_200_at_most() -> None:
    alarms = 0
    for seed in range(SEEDS):
        random_, level = random.Random(seed), 0.0
        values = []
        for _ in range(480):
            level = 0.8 * level + random_.gauss(0, 0.1)
            values.append(0.2 * math.exp(level))
        series = Series(node="gateway", name="ttft_p50_s", values=tuple(values))
        history = History(
            start_utc_s=0.0, step_s=STEP_S, since_utc_s=120 * STEP_S, series=(series,)
        )
        alarms += bool(analyse(history, libraries=False).anomalies)
    assert alarms <= 4


def test_noise_gives_no_alarm_with_the_libraries_either() -> None:
    assert analyse(fleet_history(3, no_change)).verdict == "clear"


def test_equal_histories_give_equal_answers() -> None:
    history = fleet_history(5, overflow)
    assert analyse(history, seed=1) == analyse(history, seed=1)


@pytest.mark.parametrize(
    ("history", "missing"),
    [
        pytest.param(
            History(start_utc_s=0.0, step_s=60.0, series=()), "any record", id="an empty record"
        ),
        pytest.param(
            fleet_history(1, points=30, first=0), "24 points", id="too short to know the usual"
        ),
    ],
)
def test_too_little_is_said_to_be(history: History, missing: str) -> None:
    analysis = analyse(history)
    assert analysis.verdict == "not_enough_evidence"
    assert missing in analysis.missing[0]
    assert (analysis.roots, analysis.actions) == ((), ())
