"""Tenants take turns, by the bytes of their prompts; places are for those that have fewest."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.gateway.counting_queue import CountingQueue


@dataclass
class Job:
    tenant: str
    size_bytes: int = 10
    waits: bool = field(default=False, compare=False)


def queue_of(*jobs: Job) -> CountingQueue[Job]:
    queue: CountingQueue[Job] = CountingQueue()
    for job in jobs:
        queue.put(job)
    return queue


def order(queue: CountingQueue[Job]) -> str:
    """The tenants, in the order in which their prompts are taken."""
    found = ""
    while (job := queue.take()) is not None:
        found += job.tenant
    return found


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        pytest.param([Job("a")] * 0, "", id="nobody"),
        pytest.param(
            [Job("a"), Job("a"), Job("a"), Job("b")], "abaa", id="the next tenant's first"
        ),
        pytest.param(
            [Job("a"), Job("a"), Job("b"), Job("c"), Job("b")], "abcab", id="all take turns"
        ),
        pytest.param(
            [Job("a", 30), Job("a", 30), *(Job("b", 10) for _ in range(4))],
            "abbbab",
            id="a long one is as much as three",
        ),
    ],
)
def test_turns(jobs: list[Job], expected: str) -> None:
    assert order(queue_of(*jobs)) == expected


def test_who_comes_one_at_a_time_is_behind_what_it_had() -> None:
    queue = queue_of(Job("a", 100), *(Job("b", 10) for _ in range(12)))
    taken = [queue.take()]
    queue.put(Job("a", 100))
    while (job := queue.take()) is not None:
        taken.append(job)
    assert "".join(job.tenant for job in taken if job) == "a" + "b" * 11 + "a" + "b"


def test_what_was_not_counted_is_not_held_against_its_tenant() -> None:
    queue = queue_of(*(Job("a", 1000) for _ in range(5)))
    for _, _, job in list(queue._heap):
        queue.drop(job)
    queue.put(Job("b", 20))
    queue.put(Job("a", 10))
    queue.put(Job("b", 20))
    queue.put(Job("a", 10))
    assert order(queue) == "baab"


def test_what_is_dropped_is_not_taken_and_leaves_nothing_behind() -> None:
    queue = queue_of(Job("b"))
    for _ in range(1000):
        job = Job("a")
        queue.put(job)
        assert queue.drop(job)
        assert not queue.drop(job)
    assert len(queue) == 1
    assert len(queue._heap) < 100
    assert order(queue) == "b"


def test_tenants_that_are_gone_are_forgotten_while_others_go_on() -> None:
    queue = queue_of(Job("0"), Job("1"))
    for number in range(2, 1000):
        queue.put(Job(str(number)))
        queue.take()
    assert len(queue) == 2
    assert len(queue._ends) < 100


def test_the_last_one_of_who_has_most_gives_its_place_up() -> None:
    many = [Job("a", size) for size in (1, 2, 3)]
    queue = queue_of(*many, Job("b"))
    assert queue.displaced("b") is many[2], "a has three, and b would have two"
    assert queue.displaced("b") is None
    assert queue.displaced("c") is many[1]
    assert queue.displaced("c") is None, "a has one, and c would have one, too"
    assert queue_of().displaced("a") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 50)), max_size=40))
def test_no_tenant_is_ahead_of_another_that_waits_by_more_than_one_prompt(
    asked: list[tuple[str, int]],
) -> None:
    queue = queue_of(*(Job(tenant, size) for tenant, size in asked))
    left = {tenant: sum(1 for each, _ in asked if each == tenant) for tenant in "abc"}
    had = dict.fromkeys("abc", 0)
    longest = max((size for _, size in asked), default=0)
    while (job := queue.take()) is not None:
        assert all(had[job.tenant] <= had[each] + longest for each in "abc" if left[each])
        had[job.tenant] += job.size_bytes
        left[job.tenant] -= 1
    assert not any(left.values())
