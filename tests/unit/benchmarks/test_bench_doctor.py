"""The benchmark of the doctor: what an answer is worth, what is hidden, where reports lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.doctor import main
from benchmarks.support.doctor_reports import (
    OWN,
    Expected,
    Report,
    given_directory,
    read_reports,
    without,
)
from benchmarks.support.doctor_score import Answer, hidden_figures, summary


def report(
    primary: str | None = "kv_preemption",
    *,
    acceptable: tuple[str, ...] = (),
    also_ok: tuple[str, ...] = (),
    must_not: tuple[str, ...] = (),
) -> Report:
    expected = Expected(primary, acceptable, also_ok)
    return Report(id="c-00000000", facts={}, expected=expected, must_not=must_not, source="built")


def told(of: Report, *causes: str, quiet: tuple[str, ...] = ()) -> Answer:
    loud = tuple(cause for cause in causes if cause not in quiet)
    return Answer(of, "finding" if causes else "clear", causes, loud)


@pytest.mark.parametrize(
    ("answer", "first"),
    [
        pytest.param(told(report(), "kv_preemption"), "right", id="the cause itself"),
        pytest.param(
            told(report(acceptable=("kv_room_too_small",)), "kv_room_too_small"),
            "right",
            id="an acceptable one",
        ),
        pytest.param(
            told(report(also_ok=("dp_imbalance",)), "dp_imbalance", "kv_preemption"),
            "true",
            id="true, but not what was asked for",
        ),
        pytest.param(told(report(), "dp_imbalance"), "wrong", id="another one"),
        pytest.param(
            told(report(), "idle_capacity", quiet=("idle_capacity",)),
            "undecided",
            id="for information only",
        ),
        pytest.param(told(report()), "undecided", id="nothing"),
    ],
)
def test_the_first_finding_is_judged(answer: Answer, first: str) -> None:
    assert answer.first == first


def test_harm_is_a_forbidden_cause_above_info_or_silence_where_that_is_the_harm() -> None:
    forbidding = report(must_not=("dp_imbalance", "no_finding"))
    assert told(forbidding, "kv_preemption", "dp_imbalance").harm == ("dp_imbalance",)
    quiet = told(forbidding, "kv_preemption", "dp_imbalance", quiet=("dp_imbalance",))
    assert quiet.harm == ()
    assert told(forbidding).harm == ("no_finding",)


def test_a_healthy_deployment_may_only_be_told_things_for_information() -> None:
    healthy = report(None, acceptable=("idle_capacity",))
    assert told(healthy, "thermal_throttle").false_alarm
    assert not told(healthy, "idle_capacity", quiet=("idle_capacity",)).false_alarm
    assert not told(report(), "thermal_throttle").false_alarm


def test_figures_are_shares_of_the_sick_and_counts_of_all() -> None:
    asked = [
        told(report(), "kv_preemption"),
        told(report(), "dp_imbalance", "kv_preemption"),
        told(report(), "dp_imbalance"),
        told(report()),
        told(report(None, must_not=("thermal_throttle",)), "thermal_throttle"),
    ]
    assert summary(asked) == {
        "cases": 4,
        "controls": 1,
        "top1": 0.25,
        "top2": 0.5,
        "wrong": 0.5,
        "harmful": 1,
        "false_alarms": 1,
    }


FACTS: dict[str, Any] = {
    "engine": {"name": "vllm"},
    "settings": {"max_num_seqs": 4},
    "signals": {"requests_running": 4, "requests_waiting": 2},
    "logs": ["a line"],
    "comparisons": [
        {
            "restarted_between_arms": True,
            "arms": [
                {"arm": "a", "signals": {"requests_running": 1}},
                {"arm": "b", "current": True, "settings": {"max_num_seqs": 8}},
            ],
        }
    ],
}


def test_hidden_facts_leave_the_document_and_its_arms() -> None:
    hidden = {"signals.requests_running", "settings.max_num_seqs", "restarted_between_arms"}
    assert without(FACTS, hidden.__contains__) == {
        "engine": {"name": "vllm"},
        "signals": {"requests_waiting": 2},
        "logs": ["a line"],
        "comparisons": [{"arms": [{"arm": "a"}, {"arm": "b", "current": True}]}],
    }


def test_nothing_hidden_is_the_same_document_and_all_hidden_is_none() -> None:
    assert without(FACTS, lambda _: False) == FACTS
    bare = without(FACTS, lambda _: True)
    assert bare == {"comparisons": [{"arms": [{"arm": "a"}, {"arm": "b", "current": True}]}]}


def test_hiding_is_the_same_for_the_same_seed() -> None:
    reports = read_reports(OWN)[:6]
    assert hidden_figures(reports, draws=1, seed=1) == hidden_figures(reports, draws=1, seed=1)


def test_reports_are_read_from_files_of_one_and_of_many(tmp_path: Path) -> None:
    document = {
        "id": "h-00000001",
        "facts": {},
        "expected": {"primary": None, "acceptable": [], "also_ok": [], "max_severity": "info"},
        "must_not": [],
        "source": "built",
    }
    (tmp_path / "controls").mkdir()
    (tmp_path / "controls" / "one.json").write_text(json.dumps(document))
    (tmp_path / "many.json").write_text(json.dumps([{**document, "id": "h-00000000"}]))
    (tmp_path / "facts.schema.json").write_text(json.dumps({"title": "no report"}))
    assert [each.id for each in read_reports(tmp_path)] == ["h-00000000", "h-00000001"]


def test_given_reports_lie_beside_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILEAGE_DATA_DIR", str(tmp_path / "data"))
    assert given_directory() is None
    (tmp_path / "doctor" / "cases").mkdir(parents=True)
    assert given_directory() == tmp_path / "doctor"


def test_without_given_reports_the_projects_own_stand_for_them_and_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    some = read_reports(OWN)[::6]
    monkeypatch.setattr("benchmarks.doctor.read_reports", lambda directory: some)
    monkeypatch.delenv("MILEAGE_DATA_DIR", raising=False)
    main(["--quick", "--json"])
    figures = json.loads(capsys.readouterr().out)
    assert figures["of"] == "the project's own reports"
    assert figures["top1"] == figures["reports_top1"]
    assert figures["held_out_cases"] < figures["reports_cases"]
    assert set(figures["hidden"]) == {"20%", "40%", "60%"}
