"""Mileage's own records as traces: rows of a ledger, events of a journal."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.actions import Action, Dispatch, Hold, Join, Reject
from mileage.core.events import Arrived, Cancelled, Event, Failed, Finished, FirstToken
from mileage.core.timeline import RequestTimeline
from mileage.workload.read_options import ReadOptions, ReadTally
from mileage.workload.readers.events import Handling, event_rows
from mileage.workload.readers.timelines import timeline_rows
from mileage.workload.trace_request import TraceRequest
from tests.support.journals import request
from tests.support.ledger_records import timeline


def of_ledger(*lines: RequestTimeline, **options: Any) -> list[TraceRequest]:
    rows = timeline_rows(lines, ReadOptions(**options), ReadTally())
    return [row[2] for row in rows]


def test_a_served_request_of_a_ledger() -> None:
    line = timeline(0, tenant="acme", prompt_tokens=50, output_tokens=7, stream=True)
    later = timeline(1500, prompt_tokens=60, output_tokens=None, output_tokens_counted=9)
    first, second = of_ledger(line, later)
    assert first == TraceRequest(
        arrived_s=0.0, prompt_tokens=50, output_tokens=7, tenant="acme", model=line.model
    )
    assert (second.arrived_s, second.output_tokens) == (1.5, 9)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"outcome": "rejected", "prompt_tokens": None}, id="refused"),
        pytest.param({"outcome": "failed"}, id="failed"),
        pytest.param({"prompt_tokens": None}, id="no prompt counted"),
        pytest.param({"output_tokens": None, "output_tokens_counted": None}, id="no output"),
    ],
)
def test_what_was_not_served_is_left_out(fields: dict[str, Any]) -> None:
    assert of_ledger(timeline(0, **fields)) == []
    kept = of_ledger(timeline(0, **fields), keep_failed=True)
    assert len(kept) == (fields.get("prompt_tokens", 1) is not None)


def test_requests_that_shared_a_generation_have_one_content() -> None:
    leader = timeline(0, merged_members=2, prompt_tokens=5, output_tokens=5)
    member = timeline(1, merged_into=leader.id, merged_members=2, prompt_tokens=5, output_tokens=5)
    apart = timeline(2, prompt_tokens=5, output_tokens=5)
    contents = [r.content_id for r in of_ledger(leader, member, apart)]
    assert contents == [leader.id, leader.id, None]


def handling(now_s: float, event: Event, *actions: Action) -> Handling:
    return now_s, event, actions


def of_journal(*handlings: Handling, **options: Any) -> list[TraceRequest]:
    rows = event_rows(handlings, ReadOptions(**options), ReadTally())
    return [row[2] for row in rows]


def arrived(number: int, now_s: float, *actions: Action, **fields: Any) -> Handling:
    return handling(now_s, Arrived(request(number, **fields)), *actions)


def test_requests_come_in_the_order_of_arrival_whatever_ends_first() -> None:
    found = of_journal(
        arrived(1, 100.0, Dispatch(1, "a")),
        arrived(2, 100.5, Hold(2)),
        handling(101.0, FirstToken(1)),
        handling(101.5, Finished(2, 60, None, 6)),
        handling(102.0, Finished(1, 50, None, 5)),
    )
    assert [(r.arrived_s, r.prompt_tokens, r.output_tokens) for r in found] == [
        (0.0, 50, 5),
        (0.5, 60, 6),
    ]
    assert found[0].tenant == "acme"


@pytest.mark.parametrize(
    ("ending", "kept"),
    [
        pytest.param(handling(2.0, Cancelled(1, 3)), 3, id="cancelled"),
        pytest.param(handling(2.0, Failed(1, "a", "broken", False)), 1, id="failed"),
        pytest.param(handling(2.0, FirstToken(9), Reject(1, "deadline")), 1, id="refused"),
        pytest.param(handling(2.0, FirstToken(1)), 1, id="never ended"),
    ],
)
def test_what_was_not_finished_is_left_out(ending: Handling, kept: int) -> None:
    told = [arrived(1, 1.0, Dispatch(1, "a")), ending]
    assert of_journal(*told) == []
    assert [r.output_tokens for r in of_journal(*told, keep_failed=True)] == [kept]


def test_a_failure_that_is_tried_again_is_no_end() -> None:
    found = of_journal(
        arrived(1, 1.0, Dispatch(1, "a")),
        handling(2.0, Failed(1, "a", "busy", True), Dispatch(1, "b")),
        handling(3.0, Finished(1, 50, None, 5)),
    )
    assert [r.output_tokens for r in found] == [5]


def test_those_that_joined_have_their_leaders_end_also_when_it_left() -> None:
    found = of_journal(
        arrived(1, 1.0, Dispatch(1, "a"), merge_key="k"),
        arrived(2, 1.5, Join(2, 1, "same"), merge_key="k"),
        handling(2.0, Cancelled(1, 2)),
        handling(3.0, Finished(1, 50, None, 5)),
    )
    assert [(r.arrived_s, r.output_tokens) for r in found] == [(0.5, 5)]
    both = of_journal(
        arrived(1, 1.0, Dispatch(1, "a"), merge_key="k"),
        arrived(2, 1.5, Join(2, 1, "same"), merge_key="k"),
        handling(3.0, Finished(1, 50, None, 5)),
    )
    assert len(both) == 2
    assert both[0].content_id == both[1].content_id is not None


def test_a_call_for_several_counts_each_by_its_own_estimate() -> None:
    embedding = {"endpoint": "embeddings", "stream": False, "batch_key": "b"}
    found = of_journal(
        arrived(1, 1.0, Hold(1), prompt_tokens_estimate=30, **embedding),
        arrived(2, 1.1, Join(2, 1, "batch"), prompt_tokens_estimate=40, **embedding),
        handling(2.0, Finished(1, 71, None, 0)),
    )
    assert [(r.prompt_tokens, r.output_tokens) for r in found] == [(30, 0), (40, 0)]
