"""Which pairs of slots end an A/B run, and what is said of them."""

from __future__ import annotations

import pytest

from mileage.loadgen.arms_fault import fault_of
from mileage.loadgen.arms_slot import Slot, washed
from mileage.measure.call_record import CallRecord
from tests.support.ab_slots import Records, answers, nothing_but, slot
from tests.support.bench_runs import failed, load_run, stream

GOOD = answers(0.1)


def pair(a: Records, b: Records, number: int = 0) -> list[Slot]:
    return [slot("a", a(number), pair=number), slot("b", b(number), pair=number, order=1)]


def test_arms_that_answer_go_on() -> None:
    slots = pair(GOOD, GOOD)
    assert fault_of(slots, slots) is None


@pytest.mark.parametrize(
    ("outcome", "told"),
    [
        pytest.param("connect", "arm b was never reached", id="a wrong port"),
        pytest.param("client_error", "arm b refused every request", id="a wrong model"),
        pytest.param("malformed", "arm b answers something else", id="another kind of server"),
    ],
)
def test_an_arm_that_was_never_there_ends_the_run(outcome: str, told: str) -> None:
    slots = pair(GOOD, nothing_but(outcome, "no such thing"))
    fault = fault_of(slots, slots)
    assert fault is not None
    assert fault.startswith(told)
    assert fault.endswith(f"20 of 20 requests: {outcome}: no such thing")


@pytest.mark.parametrize("outcome", ["timeout", "broken", "cut", "rejected", "server_error"])
def test_an_arm_that_is_there_and_fails_is_judged_by_its_failures(outcome: str) -> None:
    slots = pair(GOOD, nothing_but(outcome, "so bad"))
    assert fault_of(slots, slots) is None


def test_an_arm_that_answered_before_is_judged_by_its_failures() -> None:
    first, second = pair(GOOD, GOOD), pair(GOOD, nothing_but("connect", "refused"), 1)
    assert fault_of(second, first + second) is None


def test_a_mix_of_failures_is_not_how_an_arm_is_set_up() -> None:
    def mixed(pair: int) -> list[CallRecord]:
        return [failed(n / 10, "timeout" if n == 5 else "connect", index=n) for n in range(10)]

    slots = pair(GOOD, mixed)
    assert fault_of(slots, slots) is None


def test_nobody_answers() -> None:
    slots = pair(nothing_but("timeout", "silence"), nothing_but("rejected", "full"), 3)
    assert fault_of(slots, pair(GOOD, GOOD) + slots) == (
        "neither arm answered any request of pair 4: "
        "arm a: 20 of 20 requests: timeout: silence; arm b: 20 of 20 requests: rejected: full"
    )


def test_requests_that_their_client_left_say_nothing_about_an_arm() -> None:
    slots = pair(GOOD, nothing_but("cancelled", "left"))
    assert fault_of(slots, slots) is None


def test_a_stretch_without_requests_says_nothing_about_an_arm() -> None:
    slots = pair(lambda _: [], lambda _: [])
    assert fault_of(slots, slots) is None


def test_a_plan_that_breaks_off_ends_the_run() -> None:
    broken = slot("a", GOOD(0))
    slots = [
        Slot(
            pair=0,
            arm="a",
            order=0,
            began_s=0.0,
            load=load_run(broken.load.records, plan_error="trace.jsonl: line 7"),
            planned=20,
        ),
        slot("b", GOOD(0)),
    ]
    assert fault_of(slots, slots) == "trace.jsonl: line 7"


def test_the_wash_out_of_a_closed_loop_is_its_first_requests() -> None:
    ended_in_disorder = [stream(n / 10, index=n) for n in (1, 0, 3, 2, 5, 4)]
    load = washed(load_run(ended_in_disorder), 2)
    assert [(r.index, r.phase) for r in load.records] == [
        (0, "warmup"),
        (1, "warmup"),
        *((n, "measured") for n in (2, 3, 4, 5)),
    ]
    assert (load.start_s, load.end_s) == (0.2, 10.0)


def test_a_slot_of_wash_out_alone_has_no_window() -> None:
    load = washed(load_run([stream(0.0, index=0)]), 2)
    assert load.start_s == load.end_s
