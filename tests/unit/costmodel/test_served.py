"""Served requests: what a ledger's records and a journal's events tell of an engine."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.actions import Action, Dispatch, Hold, Join
from mileage.core.events import Arrived, Cancelled, Event, Failed, Finished, FirstToken, ReplicaDown
from mileage.core.request import Request
from mileage.core.timeline import RequestTimeline
from mileage.costmodel.served import ServedRequest, served_of_events, served_of_timelines

UTC_NS = 1_764_428_000_000_000_000


def timeline(**changes: Any) -> RequestTimeline:
    fields: dict[str, Any] = {
        "id": 1,
        "tenant": "acme",
        "model": "small",
        "endpoint": "chat",
        "stream": True,
        "arrived_at_utc_ns": UTC_NS,
        "outcome": "ok",
        "status": 200,
        "replica": "gpu-a",
        "attempts": 1,
        "dispatched_s": 0.5,
        "first_token_s": 1.0,
        "last_token_s": 1.2,
        "finished_s": 1.21,
        "prompt_tokens": 90,
        "cached_tokens": 40,
        "output_tokens": 3,
        "token_times": (1_000_000, 1, 1_100_000, 1, 1_200_000, 1),
    }
    return RequestTimeline(**{**fields, **changes})


def test_a_record_tells_when_each_token_came() -> None:
    later = timeline(arrived_at_utc_ns=UTC_NS + 2_000_000_000)
    first, second = served_of_timelines([timeline(), later])
    assert first.token_times_s == pytest.approx((1.0, 1.1, 1.2))
    assert second.token_times_s == pytest.approx((3.0, 3.1, 3.2))
    assert (second.dispatched_s, second.first_s, second.last_s) == pytest.approx((2.5, 3.0, 3.2))
    assert (first.prompt_tokens, first.computed_tokens, first.output_tokens) == (90, 50, 3)


@pytest.mark.parametrize(
    "times",
    [
        pytest.param((1_000_000, 1, 1_200_000, 2), id="two tokens came at once"),
        pytest.param((1_000_000, 1, 1_200_000, 1), id="a token came without an event"),
        pytest.param((), id="not recorded"),
    ],
)
def test_gaps_that_are_no_steps_are_left_out(times: tuple[int, ...]) -> None:
    (found,) = served_of_timelines([timeline(token_times=times)])
    assert found.token_times_s == ()
    assert found.first_s == 1.0


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"outcome": "cancelled"}, id="the client left"),
        pytest.param({"outcome": "rejected", "replica": None}, id="it was refused"),
        pytest.param({"prompt_tokens": None}, id="its prompt was not counted"),
        pytest.param({"output_tokens": None, "output_tokens_counted": None}, id="nothing came"),
        pytest.param({"merged_into": 7}, id="it shared another's generation"),
        pytest.param({"attempts": 2}, id="another engine had it before"),
        pytest.param({"endpoint": "embeddings"}, id="it generates nothing"),
    ],
)
def test_a_record_that_tells_nothing_is_left_out(changes: dict[str, Any]) -> None:
    assert list(served_of_timelines([timeline(**changes)])) == []


def arrived(request_id: int, **fields: Any) -> Arrived:
    values = {"endpoint": "chat", "stream": True, **fields}
    return Arrived(
        Request(
            id=request_id,
            tenant="acme",
            model="small",
            arrived_s=0.0,
            prompt_tokens_estimate=80,
            **values,
        )
    )


Told = tuple[float, Event, tuple[Action, ...]]


def served(*told: Told) -> list[ServedRequest]:
    return list(served_of_events(told))


DONE = Finished(1, 90, 40, 11, 0.2, 0.1)


def test_an_answers_steps_are_between_its_first_token_and_its_last() -> None:
    (found,) = served(
        (0.0, arrived(1), (Hold(1),)),
        (1.0, Cancelled(9), (Dispatch(1, "gpu-a"),)),
        (2.0, FirstToken(1), ()),
        (3.5, DONE, ()),
    )
    assert (found.replica, found.dispatched_s, found.first_s) == ("gpu-a", 1.0, 2.0)
    assert found.last_s == pytest.approx(3.0)  # the rest of the time came no token
    assert (found.computed_tokens, found.output_tokens) == (50, 11)
    assert found.token_times_s == ()


def test_an_answer_in_one_piece_has_no_first_token() -> None:
    (found,) = served((0.0, arrived(1), (Dispatch(1, "gpu-a"),)), (3.0, Finished(1, 90, 0, 11), ()))
    assert (found.first_s, found.last_s) == (None, 3.0)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((1.0, Failed(1, "gpu-a", "broken", False), ()), id="its engine failed"),
        pytest.param((1.0, Cancelled(1), ()), id="its client left"),
        pytest.param((1.0, ReplicaDown("gpu-a", "health"), ()), id="its engine went down"),
        pytest.param((1.0, Finished(1, None, None, 11), ()), id="its prompt was not counted"),
    ],
)
def test_what_was_not_answered_tells_nothing(between: Told) -> None:
    assert served((0.0, arrived(1), (Dispatch(1, "gpu-a"),)), between, (3.0, DONE, ())) == []


def test_a_retry_counts_from_its_own_dispatch() -> None:
    (found,) = served(
        (0.0, arrived(1), (Dispatch(1, "gpu-a"),)),
        (1.0, Failed(1, "gpu-a", "connect", True), (Dispatch(1, "gpu-b"),)),
        (3.0, DONE, ()),
    )
    assert (found.replica, found.dispatched_s) == ("gpu-b", 1.0)


def test_a_call_with_the_items_of_several_tells_nothing_of_one() -> None:
    told = served(
        (0.0, arrived(1), (Hold(1),)),
        (0.1, arrived(2), (Join(2, 1, "batch"),)),
        (0.2, Cancelled(9), (Dispatch(1, "gpu-a"),)),
        (3.0, DONE, ()),
    )
    assert told == []
