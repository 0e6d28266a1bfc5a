"""How fast prompts go alone, out of those that were not."""

from __future__ import annotations

import math
from random import Random

import pytest

from mileage.control.prompt_speed import PromptSpeed


def test_the_fastest_of_a_length_tells_what_it_takes_alone() -> None:
    speed, random = PromptSpeed(), Random(1)
    for _ in range(300):
        tokens = 1000 * 2 ** random.uniform(0.0, 6.0)
        alone_s = 1e-4 * tokens
        speed.learn(tokens, alone_s * random.uniform(1.0, 5.0))
    assert speed.alone_s(20_000) == pytest.approx(2.0, rel=0.15)
    assert speed.alone_s(2_000) == pytest.approx(0.2, rel=0.15)


def test_a_length_that_was_not_seen_is_like_the_nearest_that_was() -> None:
    speed = PromptSpeed()
    assert speed.alone_s(1000) == 0.0
    speed.learn(1000, 0.1)
    speed.learn(64_000, 16.0)
    assert speed.alone_s(2000) == pytest.approx(0.2)
    assert speed.alone_s(100_000) == pytest.approx(25.0)


def test_a_replica_that_has_become_slower_is_found_out() -> None:
    speed = PromptSpeed()
    speed.learn(1000, 0.1)
    for _ in range(1000):
        speed.learn(1000, 0.3)
    assert speed.alone_s(1000) == pytest.approx(0.3, rel=0.01)


@pytest.mark.parametrize(
    ("tokens", "took_s"),
    [(100.0, 0.001), (1000.0, 0.0), (1000.0, -1.0), (math.nan, 1.0), (math.inf, 1.0), (2e9, 1.0)],
)
def test_figures_that_say_nothing_are_left_out(tokens: float, took_s: float) -> None:
    speed = PromptSpeed()
    speed.learn(tokens, took_s)
    assert speed.alone_s(1000) == 0.0
    assert speed.alone_s(tokens) == 0.0
