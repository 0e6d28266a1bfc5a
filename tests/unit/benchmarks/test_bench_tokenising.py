"""The arms of the tokenising benchmark count the same, and no prompt of it was seen before."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from benchmarks.support.tokenising_arms import LoopWatch, Prompts, make_arm
from mileage.gateway.prompt_counter import PromptCounter
from mileage.gateway.tokenizer_file import load_tokenizer
from tests.support.tokenizer_files import words_tokenizer


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return words_tokenizer(tmp_path_factory.mktemp("tokenizer") / "tokenizer.json")


def test_prompts_have_the_tokens_that_are_asked_for_and_are_unlike(place: Path) -> None:
    prompts = Prompts(1)
    counter = PromptCounter(load_tokenizer("key", str(place)))
    prompts.calibrate(counter)
    bodies = [prompts.body(300) for _ in range(3)]
    assert [counter.count("chat", body) for body in bodies] == [300] * 3
    assert len(set(bodies)) == 3


@pytest.mark.parametrize(("name", "count"), [("in_loop", 50), ("threads", 50), ("estimate", None)])
def test_an_arm_counts(place: Path, name: str, count: int | None) -> None:
    async def main() -> int | None:
        arm, watch = make_arm(name, place), LoopWatch()
        watch.start()
        try:
            async with asyncio.timeout(30):
                return await arm.count(Prompts(1).body(50))
        finally:
            watch.stop()
            arm.close()

    assert asyncio.run(main()) == count
