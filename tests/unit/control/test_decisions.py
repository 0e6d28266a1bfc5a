"""The governor's last decisions, for people."""

from __future__ import annotations

from mileage.control.decisions import Decision, Decisions


def limit(at_s: float) -> Decision:
    return Decision(at_s=at_s, kind="limit", subject="a", reason="because", limit=3)


def test_refusals_of_a_kind_within_a_second_are_one_entry() -> None:
    decisions = Decisions()
    for i in range(50):
        decisions.refused("t", "deadline", f"number {i}", i * 0.01)
    decisions.refused("t", "queue_full", None, 0.2)
    decisions.refused("t", "deadline", "later", 1.2)
    found = decisions.latest()
    assert [(d.reason, d.count, d.detail) for d in found] == [
        ("deadline", 50, "number 49"),
        ("queue_full", 1, None),
        ("deadline", 1, "later"),
    ]


def test_they_are_in_order_and_bounded() -> None:
    decisions = Decisions()
    for i in range(500):
        decisions.add(limit(float(i)))
        decisions.refused(f"tenant-{i}", "deadline", None, i + 0.5)
    found = decisions.latest()
    assert [d.kind for d in found].count("limit") == 50
    assert len(found) == 100
    assert found == sorted(found, key=lambda d: d.at_s)
    assert found[-1].subject == "tenant-499"
