"""Prompts: texts of so many words, equal where they are to be shared and nowhere else."""

from __future__ import annotations

import tracemalloc

import pytest

from mileage.loadgen.prompt_words import WORDS
from mileage.loadgen.prompts import WORDS_MAX, Prompts


def words_in_common(one: bytes, other: bytes) -> int:
    count = 0
    for left, right in zip(one.split(), other.split(), strict=False):
        if left != right:
            break
        count += 1
    return count


def test_words_are_many_different_and_plain() -> None:
    assert len(WORDS) == len(set(WORDS)) == 1024
    assert all(word.isalpha() and word.islower() and len(word) >= 4 for word in WORDS)


@pytest.mark.parametrize("count", [1, 2, 33, 500, 10_000])
def test_a_text_has_as_many_words_as_were_asked_for(count: int) -> None:
    assert len(Prompts().text(count, "a").split(b" ")) == count


def test_no_text_is_empty_and_none_longer_than_the_bound() -> None:
    prompts = Prompts()
    assert len(prompts.text(-5, "a").split()) == 1
    assert len(prompts.text(WORDS_MAX + 1, "a").split()) == WORDS_MAX


def test_equal_seeds_give_equal_texts_and_others_give_others() -> None:
    again, other = Prompts(7).text(200, "a"), Prompts(8).text(200, "a")
    assert Prompts(7).text(200, "a") == again != other
    assert words_in_common(again, other) <= 1


def test_the_texts_are_those_that_they_always_were() -> None:
    """A saved run is repeated with the same prompts, by whatever version and machine."""
    assert Prompts(1).text(6, "request 0") == b"cool late went duration mode round"
    assert (
        Prompts(1).text(6, "x", blocks=(9,), block_words=6)
        == b"users supported over blog cost grand"
    )


def test_each_owner_has_words_of_its_own() -> None:
    prompts = Prompts()
    assert words_in_common(prompts.text(300, "a"), prompts.text(300, "b")) <= 1


@pytest.mark.parametrize("size", [1, 16, 32, 33, 512])
def test_prompts_share_just_the_words_of_their_common_leading_blocks(size: int) -> None:
    prompts = Prompts(3)
    one = prompts.text(4 * size + 40, "a", blocks=(5, -6, 7, 8), block_words=size)
    other = prompts.text(4 * size + 40, "b", blocks=(5, -6, 70, 8), block_words=size)
    assert 2 * size <= words_in_common(one, other) <= 2 * size + 1


def test_a_block_that_is_cut_begins_as_the_whole_one() -> None:
    prompts = Prompts()
    whole = prompts.text(32, "a", blocks=(1, 2), block_words=16)
    assert whole.startswith(prompts.text(21, "b", blocks=(1, 2), block_words=16) + b" ")


def test_what_blocks_do_not_cover_is_the_owners() -> None:
    prompts = Prompts()
    one = prompts.text(40, "a", blocks=(1,), block_words=16)
    other = prompts.text(40, "b", blocks=(1,), block_words=16)
    assert 16 <= words_in_common(one, other) <= 17
    assert len(one.split()) == 40


def test_blocks_beyond_the_text_are_left_out() -> None:
    prompts = Prompts()
    assert prompts.text(16, "a", blocks=(1, 2, 3), block_words=16) == prompts.text(
        16, "b", blocks=(1,), block_words=16
    )


@pytest.mark.parametrize("shared", [1, 50, 99])
def test_shared_words_are_the_same_in_every_text(shared: int) -> None:
    prompts = Prompts()
    one = prompts.text(100, "a", shared_words=shared)
    other = prompts.text(120, "b", shared_words=shared)
    assert shared <= words_in_common(one, other) <= shared + 1
    assert len(one.split()) == 100


def test_fewer_shared_words_are_the_first_of_the_more() -> None:
    prompts = Prompts()
    few = prompts.text(10, "a", shared_words=10)
    assert prompts.text(50, "a", shared_words=50).startswith(few + b" ")
    assert prompts.text(10, "a", shared_words=10) == few


def test_a_cache_that_is_full_changes_no_text() -> None:
    kept, small = Prompts(), Prompts(cache_bytes_max=300)
    for block in (1, 2, 3, 1, 2, 3):
        blocks = (block, 4)
        assert kept.text(64, "a", blocks=blocks, block_words=32) == small.text(
            64, "a", blocks=blocks, block_words=32
        )


def test_the_memory_of_blocks_is_bounded() -> None:
    prompts = Prompts(cache_bytes_max=100_000)
    tracemalloc.start()
    try:
        for first in range(0, 40_000, 8):
            prompts.text(128, "a", blocks=range(first, first + 8), block_words=16)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000  # the text of all blocks is 4.5 MB
