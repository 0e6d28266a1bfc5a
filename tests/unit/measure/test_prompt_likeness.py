"""What prompts have in common: told from hashes of words alone."""

from __future__ import annotations

import random
import zlib

import pytest

from mileage.measure.prompt_likeness import (
    COMPARED,
    WORDS_MIN,
    Likeness,
    PromptLikeness,
    merged_likeness,
)


def number(word: str) -> int:
    return zlib.crc32(word.encode())


def words(rng: random.Random, count: int) -> str:
    return " ".join(f"w{rng.randrange(100_000)}" for _ in range(count))


def summary_of(prompts: list[str]) -> Likeness:
    likeness = PromptLikeness(number)
    for prompt in prompts:
        likeness.look(prompt)
    found = likeness.summary()
    assert found is not None
    return found


def test_a_time_at_the_head_is_a_first_difference_with_all_behind_it_alike() -> None:
    template = words(random.Random(1), 800)
    found = summary_of([f"It is 12:00:{n:02d}. {template}" for n in range(40)])
    assert found.alike_ratio == 1.0
    assert found.first_diff_token is not None
    assert found.first_diff_token < 4
    assert found.same_behind_ratio is not None
    assert found.same_behind_ratio > 0.95


def test_a_time_whose_length_changes_makes_no_difference_to_that() -> None:
    template = words(random.Random(2), 800)
    found = summary_of([f"It is {n} and {'so ' * (n % 3)} {template}" for n in range(40)])
    assert found.same_behind_ratio is not None
    assert found.same_behind_ratio > 0.9


def test_a_shared_head_with_questions_behind_it_has_nothing_alike_behind_the_difference() -> None:
    rng = random.Random(3)
    head = words(rng, 400)
    found = summary_of([f"{head} {words(rng, 200)}" for _ in range(40)])
    expected = (len(head) + 1) / 4
    assert found.head_tokens == pytest.approx(expected, rel=0.01)
    assert found.first_diff_token == pytest.approx(expected, rel=0.01)
    assert found.same_behind_ratio == pytest.approx(0.0, abs=0.05)
    assert found.head_ratio == pytest.approx(2 / 3, abs=0.05)


def test_prompts_like_no_other_share_nothing() -> None:
    rng = random.Random(4)
    found = summary_of([words(rng, 200) for _ in range(40)])
    assert (found.alike_ratio, found.head_tokens, found.head_ratio) == (0.0, 0.0, 0.0)
    assert found.first_diff_token is None
    assert found.continued_ratio is None


def test_turns_of_a_conversation_go_on_where_the_one_before_ends() -> None:
    rng = random.Random(5)
    turns = [words(rng, 60)]
    for _ in range(20):
        turns.append(f"{turns[-1]} {words(rng, 40)}")
    assert summary_of(turns).continued_ratio == 1.0


def test_templates_that_take_turns_are_each_compared_with_their_own() -> None:
    rng = random.Random(6)
    templates = [words(rng, 300) for _ in range(6)]
    found = summary_of([f"{templates[n % 6]} {words(rng, 30)}" for n in range(60)])
    assert found.alike_ratio > 0.8


def test_short_prompts_are_not_looked_at() -> None:
    likeness = PromptLikeness(number)
    for _ in range(5):
        likeness.look("one two three")
        likeness.look(" ".join(["word"] * (WORDS_MIN - 1)))
    assert likeness.summary() is None


def test_only_the_latest_count() -> None:
    rng = random.Random(7)
    likeness = PromptLikeness(number)
    for _ in range(COMPARED):
        likeness.look(words(rng, 100))
    fixed = words(rng, 100)
    for n in range(COMPARED + 1):
        likeness.look(f"{fixed} {n}")
    found = likeness.summary()
    assert found is not None
    assert (found.prompts, found.alike_ratio) == (COMPARED, 1.0)


def test_workers_are_weighted_by_what_they_saw() -> None:
    one = Likeness(prompts=30, alike_ratio=1.0, head_tokens=100.0)
    other = Likeness(prompts=10, alike_ratio=0.0)
    merged = merged_likeness([one, other])
    assert merged is not None
    assert (merged.prompts, merged.alike_ratio, merged.head_tokens) == (40, 0.75, 100.0)
    assert merged_likeness([]) is None
