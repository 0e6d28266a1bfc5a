"""Which gain a finding tells: simulated, else by its waste, else why there is none."""

from __future__ import annotations

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.gain.expected import expected_gains
from mileage.doctor.gain.simulator import Simulator
from mileage.doctor.interval import Interval
from mileage.doctor.opinion import Change, Opinion, Severity
from mileage.doctor.rule import Rule
from mileage.doctor.rules.all_rules import RULES
from mileage.doctor.run import diagnose
from mileage.doctor.takes_effect import takes_effect
from tests.support.gain_facts import gain_facts

EVIDENCE = Evidence(decode_facts(gain_facts(settings={"max_num_seqs": 4})))
MORE = (Change("max_num_seqs", 16.0),)


def opinion(
    waste: Interval | None = None,
    *,
    severity: Severity = "warning",
    changes: tuple[Change, ...] = (),
) -> Opinion:
    return Opinion("finding", 1.0, (), (), severity=severity, changes=changes, waste_ratio=waste)


def test_a_simulated_gain_comes_first() -> None:
    gains, why = expected_gains(opinion(Interval(0.1, 0.5), changes=MORE), EVIDENCE, Simulator())
    assert [gain.metric for gain in gains] == [
        "throughput_ratio",
        "ttft_p99_ratio",
        "itl_p99_ratio",
    ]
    assert why is None


def test_else_the_waste_bounds_it() -> None:
    (gain,), why = expected_gains(opinion(Interval(0.1, 0.5)), EVIDENCE, Simulator())
    assert (gain.metric, gain.low, gain.high) == ("cost_ratio", 0.5, 0.9)
    assert "at most" in gain.basis
    assert why is None


def test_a_share_beyond_the_whole_saves_the_whole() -> None:
    (gain,), _ = expected_gains(opinion(Interval(-0.2, 1.5)), EVIDENCE, None)
    assert (gain.low, gain.high) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("found", "simulator", "said"),
    [
        pytest.param(opinion(changes=MORE), None, "was not simulated", id="not asked for"),
        pytest.param(opinion(), Simulator(), "no setting", id="nothing to simulate"),
        pytest.param(
            opinion(severity="critical", changes=MORE), Simulator(), "does not serve", id="down"
        ),
        pytest.param(opinion(Interval(low=0.1)), None, "share", id="a share without an end"),
    ],
)
def test_no_gain_says_why(found: Opinion, simulator: Simulator | None, said: str) -> None:
    gains, why = expected_gains(found, EVIDENCE, simulator)
    assert gains == ()
    assert why is not None
    assert said in why


@pytest.mark.parametrize("rule", [pytest.param(each, id=each.id) for each in RULES])
def test_each_finding_has_a_gain_or_says_why_and_so_has_its_loss(rule: Rule) -> None:
    for found in diagnose(decode_facts(rule.fires), simulate=True).findings:
        assert (found.expected_gain is None) == (found.gain_unknown_because is not None)
        assert (found.loss_usd_per_month is None) == (found.loss_unknown_because is not None)
        assert found.risk
        assert all(change.takes_effect for change in found.changes)


def test_a_diagnosis_is_the_same_each_time_and_findings_are_those_without_simulation() -> None:
    facts = decode_facts(
        gain_facts(
            settings={"max_num_seqs": 4},
            signals={"requests_running": 4, "requests_waiting": 60, "kv_cache_usage_ratio": 0.1},
        )
    )
    first = diagnose(facts, simulate=True)
    assert first == diagnose(facts, simulate=True)
    plain = diagnose(facts)
    assert [each.rule for each in plain.findings] == [each.rule for each in first.findings]
    assert first.findings[0].expected_gain is not None


@pytest.mark.parametrize(
    ("change", "cause", "said"),
    [
        pytest.param(Change("max_num_seqs", 16.0), "max_num_seqs_cap", "restart", id="a raise"),
        pytest.param(Change("max_num_seqs", 2.0), "x", "plugin", id="the plugin lowers it"),
        pytest.param(Change("max_num_seqs", 2.0), "kv_preemption", "--fix", id="the gateway, too"),
        pytest.param(Change("kv_cache_dtype", "fp8"), "x", "engine", id="a flag of the engine"),
        pytest.param(Change("keda.polling_s", 15.0), "x", "no pod restarts", id="an autoscaler"),
        pytest.param(Change("client.max_connections", 9), "x", "client", id="a client"),
        pytest.param(Change("router.policy", "kv_aware"), "x", "Mileage routes", id="a router"),
    ],
)
def test_when_a_change_takes_effect(change: Change, cause: str, said: str) -> None:
    assert said in takes_effect(change, cause, EVIDENCE)
