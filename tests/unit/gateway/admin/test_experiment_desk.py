"""The one experiment of a gateway: how it begins, goes on, is decided, and outlives a restart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.control.experiment_config import ArmRouting, ExperimentConfig
from mileage.core.errors import ConfigError, MileageError
from tests.support.toy_arms import DeskSite, experiment

NONE = ExperimentConfig()
AB = experiment(mode="ab", ratio=0.3)


def begun(config: ExperimentConfig, **record: Any) -> DeskSite:
    site = DeskSite(**record)
    site.desk.configure(config)
    return site


def test_without_a_name_there_is_no_experiment() -> None:
    site = begun(NONE)
    site.seconds(3)
    assert site.desk.status().state == "none"
    assert site.told == []
    assert site.store.record is None


@pytest.mark.parametrize(
    ("config", "ratio", "step"),
    [
        pytest.param(AB, 0.3, None, id="an A/B test begins with its ratio"),
        pytest.param(experiment(), 0.2, 0, id="a canary begins with its first step"),
    ],
)
def test_what_the_file_has_begins(config: ExperimentConfig, ratio: float, step: int | None) -> None:
    site = begun(config)
    status = site.desk.status()
    assert (status.state, status.ratio, status.step) == ("running", ratio, step)
    assert status.from_file
    assert site.ratio == ratio
    plan = site.told[-1]
    assert plan is not None
    assert (plan.split.name, plan.split.slot_s, plan.split.began_s) == ("new", None, 100.0)
    assert plan.replicas == ("new",)


def test_a_reload_that_leaves_the_section_alone_leaves_the_experiment_alone() -> None:
    site = begun(experiment())
    site.seconds(40)
    step = site.desk.status().step
    assert step == 1
    before = len(site.told)
    site.desk.configure(experiment())
    assert site.desk.status().step == step
    assert len(site.told) == before


def test_another_section_is_another_experiment_and_none_is_the_end() -> None:
    site = begun(experiment())
    site.seconds(5)
    site.desk.configure(AB)
    status = site.desk.status()
    assert (status.state, status.ratio) == ("running", 0.3)
    assert status.a is not None
    assert status.a.requests == 0
    site.desk.configure(NONE)
    assert site.desk.status().state == "stopped"
    assert site.desk.status().reason == "not configured any more"
    assert site.ratio is None
    site.seconds(5)
    assert site.ratio is None


def test_what_was_counted_before_it_began_is_not_its_own() -> None:
    site = DeskSite()
    site.arms.serve("a", 1000, failed=500)
    site.desk.configure(AB)
    site.seconds(2, a=3, b=4)
    status = site.desk.status()
    assert status.a is not None
    assert status.b is not None
    assert (status.a.requests, status.b.requests) == (6, 8)
    assert status.a.error_ratio == 0.0


def test_a_good_canary_goes_up_and_is_promoted() -> None:
    site = begun(experiment())
    ratios = []
    for _ in range(70):
        site.seconds(1)
        ratios.append(site.ratio)
    assert set(ratios) == {0.2, 0.5}
    status = site.desk.status()
    assert (status.state, status.step, status.ratio) == ("promoted", 1, 0.5)
    assert status.rollbacks_total == 0
    assert site.store.record is not None
    assert site.store.record.state == "promoted"


def test_a_canary_that_fails_is_rolled_back_once_and_the_workers_are_told_first() -> None:
    site = begun(experiment())
    site.store.full = True  # the disk must not keep traffic on a bad arm
    site.seconds(20, failed=10)
    status = site.desk.status()
    assert (status.state, status.ratio, status.rollbacks_total) == ("rolled_back", 0.0, 1)
    assert status.reason is not None
    assert "more of its requests fail" in status.reason
    assert site.ratio == 0.0
    assert [plan is not None and plan.split.ratio for plan in site.told] == [0.2, 0.0]


@pytest.mark.parametrize(
    ("states", "rolled_back"),
    [
        pytest.param(["down", "open"], True, id="no worker can use it"),
        pytest.param(["down", "up"], False, id="one worker can"),
        pytest.param(["disabled", "down"], False, id="an operator took it away from one"),
        pytest.param([], False, id="no worker has told"),
    ],
)
def test_arm_b_is_down_where_no_worker_can_use_it(states: list[str], rolled_back: bool) -> None:
    site = begun(experiment())
    site.arms.states = ["up", "up"]
    site.seconds(1)
    site.arms.states = states
    site.seconds(1)
    assert (site.desk.status().state == "rolled_back") == rolled_back


def test_an_ab_test_is_never_decided_by_itself() -> None:
    site = begun(AB)
    site.arms.states = ["up"]
    site.seconds(30, failed=20)
    site.arms.states = ["down"]
    site.seconds(2, failed=20)
    status = site.desk.status()
    assert (status.state, status.ratio) == ("running", 0.3)
    assert status.evidence is not None
    assert status.evidence > 1000
    assert status.verdict == "worse"
    assert status.verdict_text is not None
    assert "answered_ratio: b is worse, -100.00 %" in status.verdict_text


def test_what_is_promoted_by_hand_stays_so_whatever_spoke_against_it() -> None:
    site = begun(experiment())
    site.arms.states = ["up"]
    site.seconds(20, failed=10)
    assert site.desk.status().state == "rolled_back"
    assert site.desk.promote().state == "promoted"
    assert site.ratio == 1.0
    site.seconds(30, a=0, failed=5)
    status = site.desk.status()
    assert (status.state, status.ratio, status.reason) == ("promoted", 1.0, "promoted by hand")
    site.arms.states = ["down"]
    site.seconds(1, a=0, b=0)
    assert site.desk.status().state == "rolled_back"
    assert site.desk.status().rollbacks_total == 2


def test_stop_ends_it_and_start_begins_it_anew() -> None:
    site = begun(experiment())
    site.seconds(40)
    assert site.desk.stop().state == "stopped"
    assert site.desk.status().ratio is None
    assert site.told[-1] is None
    for what in (site.desk.stop, site.desk.promote):
        with pytest.raises(MileageError, match="no experiment"):
            what()
    status = site.desk.start(None)
    assert (status.state, status.step, status.reason) == ("running", 0, "started by hand")
    other = site.desk.start(msgspec.structs.replace(AB, name="other"))
    assert (other.name, other.from_file) == ("other", False)


def test_what_has_no_name_cannot_be_started() -> None:
    site = begun(NONE)
    for config in (None, NONE):
        with pytest.raises(ConfigError) as raised:
            site.desk.start(config)
        assert raised.value.key == "experiment.name"
    assert site.told == []


# --- over a restart ---------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["running", "rolled_back", "promoted", "stopped"])
def test_a_gateway_that_starts_again_goes_on_where_it_was(state: str) -> None:
    site = begun(experiment())
    site.seconds(40)
    if state == "rolled_back":
        site.seconds(20, failed=10)
    elif state == "promoted":
        site.desk.promote()
    elif state == "stopped":
        site.desk.stop()
    before = site.desk.status()
    assert before.state == state
    again = begun(experiment(), record=site.store.record)
    after = again.desk.status()
    assert (after.state, after.ratio, after.reason) == (state, before.ratio, before.reason)
    assert after.step == before.step
    assert again.ratio == before.ratio
    again.seconds(3)
    assert again.desk.status().state == state


def test_where_the_file_was_changed_meanwhile_the_file_counts() -> None:
    site = begun(experiment())
    site.seconds(20, failed=10)
    again = begun(experiment(name="next"), record=site.store.record)
    assert (again.desk.status().name, again.desk.status().state) == ("next", "running")
    gone = begun(NONE, record=site.store.record)
    assert gone.desk.status().state == "none"
    assert gone.told == []


def test_what_was_started_by_hand_goes_on_after_a_restart() -> None:
    site = begun(NONE)
    site.desk.start(AB)
    again = begun(NONE, record=site.store.record)
    assert (again.desk.status().state, again.ratio) == ("running", 0.3)
    assert again.desk.status().from_file is False


def test_a_record_of_more_steps_than_there_are_does_no_harm() -> None:
    site = begun(experiment())
    assert site.store.record is not None
    record = msgspec.structs.replace(site.store.record, step=7, ratio=0.5)
    again = begun(experiment(), record=record)
    again.seconds(40)
    assert again.desk.status().state == "promoted"


def test_a_store_that_fails_does_not_stop_it(caplog: pytest.LogCaptureFixture) -> None:
    site = DeskSite()
    site.store.full = True
    site.desk.configure(experiment())
    site.seconds(1)
    assert site.desk.status().state == "running"
    assert "not kept over a restart: no space left" in caplog.text


# --- how it is judged -------------------------------------------------------------------------


def test_a_burst_of_errors_of_one_slot_or_tenant_is_one_event() -> None:
    """All 20 errors of a second in arm b: beyond chance by requests, and not by groups."""
    ends = {}
    ways: dict[str, dict[str, Any]] = {
        "request": {},
        "tenant": {"sticky": "tenant"},
        "prefix": {"sticky": "prefix"},
        "slots": {
            "replicas": (),
            "routing": ArmRouting(affinity=False),
            "slot_s": 1.0,
            "washout_s": 0.0,
        },
    }
    for name, changes in ways.items():
        site = begun(experiment(**changes))
        site.seconds(6)
        site.seconds(1, failed=20)
        site.seconds(6)
        ends[name] = site.desk.status().state
    assert ends == {
        "request": "rolled_back",
        "tenant": "running",
        "prefix": "running",
        "slots": "running",
    }


def test_a_tenants_arm_that_goes_on_failing_is_rolled_back_all_the_same() -> None:
    site = begun(experiment(sticky="tenant"))
    site.seconds(60, failed=2)
    assert site.desk.status().state == "rolled_back"


def test_blocks_of_arms_that_take_turns_hold_whole_cycles() -> None:
    config = experiment(
        mode="ab",
        replicas=(),
        routing=ArmRouting(affinity=False),
        ratio=0.25,
        slot_s=2.0,
        washout_s=0.0,
    )
    site = begun(config)
    site.seconds(33)
    assert site.desk.status().blocks == 4  # 8 s each: 4 slots
    plan = site.told[-1]
    assert plan is not None
    assert plan.split.slot_s == 2.0


def test_comparisons_are_made_once_a_block() -> None:
    site = begun(AB)
    site.seconds(12, took_s=0.3)
    first = site.desk.status()
    assert first.comparisons
    assert site.desk.status().comparisons is first.comparisons
    site.seconds(1)
    assert site.desk.status().comparisons is not first.comparisons
    ttft = {each.metric: each for each in first.comparisons}["ttft_mean_s"]
    assert ttft.a == pytest.approx(0.1)
    assert ttft.b == pytest.approx(0.3)
