"""CachedPrefixes: what a replica's cache is thought to hold, and how the guess is corrected."""

from __future__ import annotations

from collections.abc import Sequence

import hypothesis.strategies as st
import pytest
from hypothesis import given

from mileage.policy.cached_prefixes import HEAT_HALF_LIFE_S, CachedPrefixes

ROOT = (1, 2, 3)


def branch(number: int, blocks: int = 4) -> tuple[int, ...]:
    """A prompt behind the common beginning."""
    return (*ROOT, *range(100 * number, 100 * number + blocks))


def test_a_prompt_matches_as_far_as_one_like_it_was_sent() -> None:
    cached = CachedPrefixes()
    assert cached.match(branch(1)) == 0
    cached.sent(branch(1))
    assert cached.match(branch(1)) == 7
    assert cached.match(branch(2)) == 3
    assert cached.match(()) == 0


def test_blocks_are_forgotten_by_age_and_from_the_end_of_their_prompt() -> None:
    cached = CachedPrefixes(blocks_max=32)
    cached.room(20 * 16, 16)
    for number in range(1, 6):
        cached.sent(branch(number))
    # 23 blocks are new: the first prompt's own are the oldest, the common ones are always young.
    assert cached.match(branch(1)) == 7
    cached.sent(branch(6))
    cached.sent(branch(7))
    assert cached.match(branch(1)) == 3
    assert cached.match(branch(7)) == 7


def test_the_room_shrinks_to_the_age_of_what_was_missing() -> None:
    cached = CachedPrefixes(blocks_max=1000)
    cached.sent(branch(1))
    cached.sent(tuple(range(10_000, 10_600)))
    before = cached.capacity
    guess = cached.sent(branch(1))
    assert (guess.hit, guess.hit_age) == (7, 600)
    cached.answered(guess, 3)
    assert 600 < cached.capacity < before
    for _ in range(200):
        cached.answered(guess, 3)
    assert cached.capacity <= 600


def test_what_is_too_young_to_be_evicted_says_nothing_when_it_is_missing() -> None:
    cached = CachedPrefixes(blocks_max=1000)
    cached.sent(branch(1))
    guess = cached.sent(branch(1))  # while the first one is still computed
    cached.answered(guess, 0)
    assert cached.capacity == 1000


def test_the_room_grows_where_older_blocks_are_still_there() -> None:
    cached = CachedPrefixes(blocks_max=1000)
    cached.room(100 * 16, 16)
    cached.sent(branch(1))
    cached.sent(tuple(range(10_000, 10_300)))
    guess = cached.sent(branch(1))
    assert (guess.hit, guess.known, guess.known_age) == (0, 7, 300)
    cached.answered(guess, 7)
    assert cached.capacity > 100
    cached.room(100 * 16, 16)  # told again with every scrape
    assert cached.capacity > 100
    cached.room(50 * 16, 16)
    assert cached.capacity == 50


def test_nothing_is_left_of_a_cache_that_was_emptied() -> None:
    cached = CachedPrefixes()
    cached.sent(branch(1))
    cached.clear()
    assert cached.match(branch(1)) == 0
    assert len(cached) == 0


def test_heat_halves() -> None:
    cached = CachedPrefixes()
    cached.worked(100.0, 5.0)
    assert cached.heat(5.0) == 100.0
    assert cached.heat(5.0 + HEAT_HALF_LIFE_S) == pytest.approx(50.0)
    cached.worked(100.0, 5.0 + HEAT_HALF_LIFE_S)
    assert cached.heat(5.0 + HEAT_HALF_LIFE_S) == pytest.approx(150.0)


prompts = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=8), max_size=40)


def chain(path: Sequence[int]) -> tuple[int, ...]:
    """Blocks that stand for all before them."""
    found, at = [], 1
    for step in path:
        at = at * 5 + step + 1
        found.append(at)
    return tuple(found)


@given(prompts, st.integers(1, 40), st.lists(st.integers(0, 8), max_size=40))
def test_a_match_is_what_a_look_at_each_block_finds(
    paths: list[list[int]], room: int, answers: list[int]
) -> None:
    cached = CachedPrefixes(blocks_max=64)
    cached.room(room, 1)
    for number, path in enumerate(paths):
        guess = cached.sent(chain(path))
        assert 0 <= guess.hit <= guess.known <= len(path)
        assert cached.match(chain(path)) == min(len(path), len(cached))
        if number < len(answers):
            cached.answered(guess, answers[number])
        assert 16 <= cached.capacity <= 64
        assert len(cached) <= 64
        for other in paths:
            blocks = chain(other)
            depths = [cached.match(blocks[:depth]) for depth in range(len(blocks) + 1)]
            # A block counts only with all before it, so that a part of a prompt matches as far.
            assert depths == [min(depth, depths[-1]) for depth in range(len(blocks) + 1)]
