"""The policies as vLLM's CachePolicy: what they keep, what goes first, and all or nothing."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from mileage.vllm_plugin.kv_offload_policy import (
    POLICIES,
    LruKHeatCachePolicy,
    ReturnAwareCachePolicy,
    add_policies,
)

CLASSES = (ReturnAwareCachePolicy, LruKHeatCachePolicy)
NOBODY: set[bytes] = set()


class Chunk:
    """As vLLM's ChunkStatus: -1 readers while it is being stored."""

    def __init__(self, ref_cnt: int = -1) -> None:
        self.ref_cnt = ref_cnt


def key(number: int) -> bytes:
    return number.to_bytes(32, "little") + bytes(4)


def store(policy: Any, *numbers: int) -> None:
    """Store chunks of one request, and end it."""
    for number in numbers:
        policy.insert(key(number), chunk := Chunk())
        chunk.ref_cnt = 0
        policy.mark_evictable(key(number))
    use(policy, *numbers)


def use(policy: Any, *numbers: int) -> None:
    keys = [key(number) for number in numbers]
    policy.on_request_finished([keys], NOBODY, set(keys), None)


def evicted(policy: Any, n: int, protected: set[bytes] = NOBODY) -> list[int] | None:
    found = policy.evict(n, protected)
    return None if found is None else [int.from_bytes(k[:32], "little") for k, _ in found]


@pytest.mark.parametrize("cls", CLASSES)
def test_what_is_used_again_outlives_what_is_not_and_ends_go_before_beginnings(cls: Any) -> None:
    policy = cls(100)
    store(policy, 1, 2, 3)
    store(policy, 11, 12, 13)
    for _ in range(3):
        use(policy, 1, 2, 3)
    assert evicted(policy, 3) == [13, 12, 11]
    assert evicted(policy, 2) == [3, 2]
    assert policy.get(key(1)) is not None
    assert policy.get(key(2)) is None


@pytest.mark.parametrize("cls", CLASSES)
def test_chunks_that_are_read_stored_or_protected_stay(cls: Any) -> None:
    policy = cls(100)
    store(policy, 1, 2, 3)
    policy.insert(key(4), Chunk())
    policy.get(key(1)).ref_cnt = 1
    policy.mark_non_evictable(key(1))
    assert evicted(policy, 2, {key(2)}) is None
    assert all(policy.get(key(number)) is not None for number in (1, 2, 3, 4))
    assert evicted(policy, 1, {key(2)}) == [3]
    assert evicted(policy, 1) == [2]
    assert evicted(policy, 1) is None
    policy.get(key(1)).ref_cnt = 0
    policy.mark_evictable(key(1))
    assert evicted(policy, 1) == [1]
    assert evicted(policy, 0) == []


@pytest.mark.parametrize("cls", CLASSES)
def test_what_a_running_request_has_stored_goes_last(cls: Any) -> None:
    policy = cls(100)
    policy.insert(key(1), chunk := Chunk())
    chunk.ref_cnt = 0
    policy.mark_evictable(key(1))
    store(policy, 2)
    assert evicted(policy, 1) == [2]
    policy.remove(key(1))
    policy.remove(key(1))
    assert policy.get(key(1)) is None
    store(policy, 5)
    policy.clear()
    assert evicted(policy, 1) is None


def test_they_are_registered_once_and_those_of_others_are_left_alone() -> None:
    class Factory:
        def __init__(self) -> None:
            self.known: dict[str, str] = {}

        def register_cache_policy(self, name: str, module: str, class_name: str) -> None:
            if name in self.known:
                raise ValueError(name)
            self.known[name] = class_name

    factory = Factory()
    factory.known["return_aware"] = "of another"
    for _ in range(2):
        add_policies(factory)
    assert factory.known == {**POLICIES, "return_aware": "of another"}
    assert list(POLICIES) == [cls.policy for cls in CLASSES]
    assert list(POLICIES.values()) == [cls.__name__ for cls in CLASSES]


operations = st.lists(
    st.tuples(
        st.sampled_from(["store", "use", "evict", "pin", "unpin", "remove"]),
        st.lists(st.integers(0, 20), min_size=1, max_size=5, unique=True),
    ),
    max_size=80,
)


@pytest.mark.parametrize("cls", CLASSES)
@settings(max_examples=60)
@given(operations=operations)
def test_it_has_exactly_what_was_stored_and_not_evicted(
    cls: Any, operations: list[tuple[str, list[int]]]
) -> None:
    policy = cls(16)
    held: dict[int, Chunk] = {}
    for kind, numbers in operations:
        if kind == "store":
            new = [number for number in numbers if number not in held]
            store(policy, *new)
            held |= {number: policy.get(key(number)) for number in new}
        elif kind == "use":
            use(policy, *numbers)
        elif kind == "evict":
            protected = {key(numbers[0])}
            free = [n for n, chunk in held.items() if not chunk.ref_cnt and n != numbers[0]]
            found = evicted(policy, len(numbers), protected)
            if len(free) < len(numbers):
                assert found is None
            else:
                assert found is not None
                assert len(set(found)) == len(numbers)
                assert set(found) <= set(free)
                for number in found:
                    del held[number]
        else:
            for number in set(numbers) & set(held):
                chunk = held[number]
                if kind == "pin":
                    chunk.ref_cnt += 1
                    if chunk.ref_cnt == 1:
                        policy.mark_non_evictable(key(number))
                elif kind == "unpin" and chunk.ref_cnt:
                    chunk.ref_cnt -= 1
                    if not chunk.ref_cnt:
                        policy.mark_evictable(key(number))
                elif kind == "remove" and not chunk.ref_cnt:
                    policy.remove(key(number))
                    del held[number]
        for number in range(21):
            assert policy.get(key(number)) is held.get(number)
