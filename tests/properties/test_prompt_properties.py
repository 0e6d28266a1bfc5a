"""Prompts: as long as asked for, and alike exactly as far as their blocks are."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from mileage.loadgen.prompts import Prompts

block_lists = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6)
PROMPTS = Prompts(5)


@given(
    words=st.integers(1, 400),
    blocks=block_lists,
    block_words=st.integers(1, 70),
    shared_words=st.integers(0, 100),
)
def test_a_text_has_its_number_of_words(
    words: int, blocks: list[int], block_words: int, shared_words: int
) -> None:
    text = PROMPTS.text(
        words, "a", blocks=blocks, block_words=block_words, shared_words=shared_words
    )
    assert len(text.split(b" ")) == words
    assert b"" not in text.split(b" ")


@given(
    common=block_lists,
    one=block_lists,
    other=block_lists,
    block_words=st.integers(4, 70),
    tail=st.integers(0, 60),
)
def test_two_texts_are_alike_as_far_as_their_blocks(
    common: list[int], one: list[int], other: list[int], block_words: int, tail: int
) -> None:
    texts = [
        PROMPTS.text(
            (len(common) + len(own)) * block_words + tail + 8,
            owner,
            blocks=[*common, *own],
            block_words=block_words,
        ).split(b" ")
        for owner, own in (("a", one), ("b", other))
    ]
    alike = len(
        list(itertools.takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False)))
    )
    blocks = len(
        list(
            itertools.takewhile(
                lambda pair: pair[0] == pair[1],
                zip([*common, *one], [*common, *other], strict=False),
            )
        )
    )
    # Beyond what they share a word is the same by chance, one time in 1,024.
    assert blocks * block_words <= alike <= blocks * block_words + 2


@given(words=st.integers(1, 300), more=st.integers(0, 300), owner=st.text(max_size=5))
def test_a_shorter_text_is_the_beginning_of_a_longer_one(words: int, more: int, owner: str) -> None:
    short, long = PROMPTS.text(words, owner), PROMPTS.text(words + more, owner)
    assert long.split(b" ")[:words] == short.split(b" ")
