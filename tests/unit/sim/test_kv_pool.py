"""Blocks: what is taken, given back, found again and overwritten."""

from __future__ import annotations

from mileage.sim.kv_pool import KvPool
from mileage.sim.sequence import Sequence


def _run(pool: KvPool, sequence: Sequence, tokens: int | None = None) -> int:
    """Begin it and compute its prompt; the units that were found."""
    found = pool.found(sequence)
    pool.start(sequence, found)
    tokens = sequence.target if tokens is None else tokens
    pool.grow(sequence, tokens)
    sequence.computed = tokens
    pool.check()
    return found


def _prompt(*keys: int, tokens: int = 0, unit: int = 4) -> Sequence:
    return Sequence(0, tokens or len(keys) * unit + 1, 1, keys, unit)


def test_a_prompt_is_found_again_but_for_its_last_token() -> None:
    pool = KvPool(10, 4, caching=True)
    first = _prompt(1, 2, tokens=8)
    assert _run(pool, first) == 0
    pool.release(first, 8)
    again = _prompt(1, 2, tokens=8)
    assert _run(pool, again) == 1  # the last block holds the last token, which gives the answer
    assert again.owned == [1]
    assert pool.hit_tokens == 4
    assert pool.query_tokens == 16


def test_a_prefix_ends_at_the_first_unit_that_is_missing() -> None:
    pool = KvPool(10, 4, caching=True)
    _run(pool, _prompt(1, 2, 3))
    assert pool.found(_prompt(1, 9, 3)) == 1
    assert pool.found(_prompt(9, 2, 3)) == 0


def test_requests_share_the_blocks_of_a_prefix() -> None:
    pool = KvPool(10, 4, caching=True)
    one, other = _prompt(1, 2), _prompt(1, 2)
    _run(pool, one)
    assert pool.free == 10 - 3
    _run(pool, other)
    assert pool.free == 10 - 4  # only the last token's block is its own
    pool.release(one, 9)
    assert pool.free == 10 - 3
    pool.release(other, 9)
    assert pool.free == 10
    pool.check()


def test_the_least_recently_freed_is_overwritten_first_and_tails_before_heads() -> None:
    pool = KvPool(6, 4, caching=True)
    old, new = _prompt(1, 2, tokens=8), _prompt(3, 4, tokens=8)
    _run(pool, old)
    _run(pool, new)
    pool.release(old, 8)
    pool.release(new, 8)
    pool.take(3)  # two blocks are blank, and one more
    assert pool.found(_prompt(1, 2)) == 1
    pool.take(1)
    assert pool.found(_prompt(1, 2)) == 0
    assert pool.found(_prompt(3, 4)) == 2
    assert pool.evicted == 2


def test_a_unit_of_several_blocks_is_lost_as_a_whole() -> None:
    pool = KvPool(8, 4, caching=True)
    first = _prompt(1, 2, tokens=16, unit=8)
    _run(pool, first)
    pool.release(first, 16)
    pool.take(5)
    assert pool.found(_prompt(1, 2, tokens=17, unit=8)) == 1
    assert (pool.free, pool.blank) == (3, 1)
    pool.check()


def test_what_an_answer_has_written_is_kept_as_long_as_its_prompt() -> None:
    pool = KvPool(6, 4, caching=True)
    first = _prompt(1, tokens=4)
    _run(pool, first)
    pool.grow(first, 16)  # three blocks of an answer
    first.computed = 16
    pool.release(first, 16)
    assert (pool.free, pool.blank) == (6, 2)
    pool.take(5)  # the blank ones, then those of the answer, from the tail
    assert pool.found(_prompt(1)) == 1
    pool.take(1)
    assert pool.found(_prompt(1)) == 0


def test_a_prompt_that_two_compute_at_once_is_known_once() -> None:
    pool = KvPool(10, 4, caching=True)
    one, other = _prompt(1, 2), _prompt(1, 2)
    for sequence in (one, other):
        pool.start(sequence, 0)
    for sequence in (one, other):
        pool.grow(sequence, 9)
        sequence.computed = 9
    assert (one.owned, other.owned) == ([1, 2], [])
    assert pool.free == 4
    for sequence in (one, other):
        pool.release(sequence, 9)
    assert pool.free == 10
    pool.check()


def test_what_is_found_and_free_needs_room_too() -> None:
    pool = KvPool(4, 4, caching=True)
    first = _prompt(1, 2, tokens=8)
    _run(pool, first)
    pool.release(first, 8)
    again = _prompt(1, 2, tokens=17)
    assert pool.found(again) == 2
    assert pool.admits(again, 2, 16, 0)
    assert not pool.admits(again, 2, 17, 0)
    assert not pool.admits(again, 2, 16, 1)


def test_without_a_cache_nothing_is_found() -> None:
    pool = KvPool(10, 4, caching=False)
    first = _prompt(1, 2)
    _run(pool, first)
    pool.release(first, 9)
    assert pool.found(_prompt(1, 2)) == 0
    assert (pool.free, pool.blank) == (10, 10)
    assert pool.query_tokens == 0


def test_the_fewest_free_blocks_are_remembered() -> None:
    pool = KvPool(10, 4, caching=True)
    first = _prompt(1, 2)
    _run(pool, first)
    pool.release(first, 9)
    assert (pool.free, pool.free_min) == (10, 7)
