"""Merging and batching against plain models: nobody is lost, mixed up, or held too long."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from mileage.policy.batching import BatchWindow
from mileage.policy.merging import MergeIndex, MergingConfig
from tests.support.controllers import request

TENANTS = st.sampled_from(("acme", "umbrella"))
KEYS = st.sampled_from((None, "k", "l"))


@given(
    across=st.booleans(),
    steps=st.lists(st.tuples(st.sampled_from("aaaaale"), TENANTS, KEYS, st.integers(0, 9))),
)
def test_the_index_agrees_with_a_list_of_groups(
    across: bool, steps: list[tuple[str, str, str | None, int]]
) -> None:
    """Arrivals, leavers and ends at random; a model keeps each generation as a plain list."""
    merging = MergeIndex(MergingConfig(across_tenants=across))
    groups: dict[int, list[int]] = {}
    keys: dict[int, tuple[str, str] | str | None] = {}
    for request_id, (step, tenant, merge_key, pick) in enumerate(steps):
        if step == "a":
            arrived = request(request_id, tenant=tenant, merge_key=merge_key)
            key = None if merge_key is None else merge_key if across else (tenant, merge_key)
            expected = next((i for i in groups if key is not None and keys[i] == key), None)
            assert merging.find(arrived) == expected
            if expected is None:
                merging.lead(arrived)
                groups[request_id], keys[request_id] = [request_id], key
            else:
                merging.join(request_id, expected)
                groups[expected].append(request_id)
        elif groups:
            leader_id = list(groups)[pick % len(groups)]
            members = groups[leader_id]
            assert merging.members(leader_id) == tuple(members)
            if step == "e":
                assert merging.ended(leader_id) == tuple(members)
                members.clear()
            else:
                member = members.pop(pick % len(members))
                assert merging.leader_of(member) == leader_id
                assert merging.leave(member) == (not members)
            if not members:
                del groups[leader_id]
    for leader_id, members in groups.items():
        assert merging.ended(leader_id) == tuple(members)
    assert merging.find(request(10_000, merge_key="k")) is None


@given(
    window_max_s=st.sampled_from((0.0, 0.002, 0.01)),
    items_max=st.integers(2, 8),
    arrivals=st.lists(
        st.tuples(
            st.floats(0, 0.012),
            TENANTS,
            KEYS,
            st.integers(1, 9),
            st.integers(0, 9),
            st.booleans(),
        ),
        max_size=60,
    ),
)
def test_every_request_is_sent_once_and_in_time(
    window_max_s: float,
    items_max: int,
    arrivals: list[tuple[float, str, str | None, int, int, bool]],
) -> None:
    """Each one is sent alone, or in one batch of its own key that is not too large or too late."""
    batch = BatchWindow(MergingConfig(batch_window_max_s=window_max_s, batch_items_max=items_max))
    now_s = 0.0
    waiting: dict[int, tuple[tuple[str, str | None], float, list[int]]] = {}
    sent = 0
    for request_id, (gap_s, tenant, key, items, in_flight, punctual) in enumerate(arrivals):
        now_s += gap_s
        if punctual:  # else the host is late: nothing may be lost by it
            for leader_id in batch.due(now_s):
                sent += len(waiting.pop(leader_id)[2])
                batch.close(leader_id)
        arrived = request(request_id, tenant=tenant, batch_key=key, batch_items=items)
        verdict = batch.offer(arrived, in_flight, now_s)
        if verdict.kind == "join":
            assert verdict.leader_id is not None
            of, _, members = waiting[verdict.leader_id]
            assert of == (tenant, key)
            members.append(items)
            assert sum(members) <= items_max
            assert (verdict.release is not None) == (sum(members) == items_max)
        if verdict.release is not None:
            sent += len(waiting.pop(verdict.release)[2])
        if verdict.kind == "hold":
            assert verdict.due_s is not None
            assert now_s < verdict.due_s <= now_s + window_max_s
            assert in_flight >= 4
            waiting[request_id] = ((tenant, key), verdict.due_s, [items])
        elif verdict.kind == "send":
            sent += 1
        assert batch.next_due_s == min(
            (due_s for _, due_s, _ in waiting.values()), default=float("inf")
        )
    last = batch.due(now_s + 1.0)
    assert last == sorted(last, key=lambda leader_id: waiting[leader_id][1])
    assert set(last) == set(waiting)
    assert sent + sum(len(members) for _, _, members in waiting.values()) == len(arrivals)


@given(gaps=st.lists(st.floats(0, 0.05), min_size=1, max_size=200))
def test_a_steady_lack_of_company_ends_the_waiting(gaps: list[float]) -> None:
    """However the gaps before were: requests 50 ms apart are held twice at most, then no more."""
    batch = BatchWindow(MergingConfig())
    now_s = 0.0
    for request_id, gap_s in enumerate(gaps):
        now_s += gap_s
        batch.offer(request(request_id, batch_key="k"), 100, now_s)
    verdicts = []
    for request_id in range(1000, 1020):
        now_s += 0.05
        for leader_id in batch.due(now_s):
            batch.close(leader_id)
        verdicts.append(batch.offer(request(request_id, batch_key="k"), 100, now_s).kind)
    runs = [(kind, len(list(run))) for kind, run in groupby(verdicts)]
    assert runs[-1][0] == "send"
    assert verdicts.count("hold") <= 2
