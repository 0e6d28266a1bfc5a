"""Lines that are found by plain text first are the lines that are found by trying each."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator

import pytest

from mileage.doctor.log_text import ALIKE_MAX, LogText, needed_texts
from mileage.doctor.rules.all_rules import RULES


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("preempted", ("preempted",)),
        (r"Out of Memory|CUDA error: \d+", ("out of memory", "cuda error: ")),
        (r"jit.{0,20}compil", ("compil",)),
        (r"colou?r is red", ("r is red",)),
        (r"abc(def)?ghij", ("ghij",)),
        (r"ab{2,3}cdef", ("cdef",)),
        (r"loaded\s+in 3\.5 s", ("in 3.5 s",)),
        (r"[|)]+ memory \(bytes\)", (" memory (bytes)",)),
        (r"(a|b) x", None),
        (r"\bnvcc\b|\d+", None),
        (r"\x41bcdef", None),
        ("", None),
    ],
)
def test_what_a_match_needs(pattern: str, texts: tuple[str, ...] | None) -> None:
    assert needed_texts(pattern) == texts


def patterns() -> Iterator[re.Pattern[str]]:
    """All that the rules look for in logs: texts and patterns of their modules."""
    seen: set[str] = set()
    for rule in RULES:
        for value in rule.check.__globals__.values():
            text = value.pattern if isinstance(value, re.Pattern) else value
            if not isinstance(text, str) or text in seen or not re.search(r"[|\\]", text):
                continue
            seen.add(text)
            try:
                yield value if isinstance(value, re.Pattern) else re.compile(text, re.IGNORECASE)
            except re.error:
                continue


def lines_for(pattern: str, dice: random.Random) -> list[str]:
    """Some that are likely to match, and some that nearly do."""
    words = [word for word in re.split(r"[|()?]+", pattern) if word]
    found = []
    for word in words:
        plain = re.sub(r"\\[dw][+*]?", "7", re.sub(r"\\s[+*]?", " ", word)).replace("\\", "")
        plain = re.sub(r"\.[*+]|\.\{[\d,]+\}", " x ", plain)
        found += [plain, plain.upper(), f"INFO {plain} 12", plain[:-1]]
    found += [" ".join(dice.sample(words, min(len(words), 3))) for _ in range(4)]
    dice.shuffle(found)
    return found


def test_every_pattern_of_the_rules_finds_what_trying_each_line_finds() -> None:
    dice = random.Random(4)
    looked_for, hits = 0, 0
    for pattern in patterns():
        lines = lines_for(pattern.pattern, dice)
        text = LogText(lines)
        wanted = [found.group() for line in lines if (found := pattern.search(line))]
        assert [found.group() for found in text.matches(pattern)] == wanted, pattern.pattern
        backwards = [found.group() for found in text.matches(pattern, last_first=True)]
        assert backwards == wanted[::-1], pattern.pattern
        looked_for, hits = looked_for + 1, hits + bool(wanted)
    assert looked_for > 30
    assert hits > looked_for / 2


def test_lines_that_differ_in_numbers_alone_are_tried_a_few_times() -> None:
    lines = [f"12:00:{n % 60:02} Running: {n} reqs" for n in range(100)]
    text = LogText(lines)
    assert text.first_unlike(re.compile(f"Running: {ALIKE_MAX - 1} reqs")) == lines[ALIKE_MAX - 1]
    assert text.first_unlike(re.compile("Running: 99 reqs")) is None


def test_letters_of_other_alphabets_do_not_hide_a_line() -> None:
    (found,) = LogText(["Straße \u017fystem \u212aill\nnext"]).matches(
        re.compile("system kill", re.IGNORECASE)
    )
    assert found.start() == 7


def test_no_lines() -> None:
    assert list(LogText([]).matches(re.compile("abcdef"))) == []
