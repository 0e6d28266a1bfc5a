"""The step engine conserves: every block comes back, every request gets exactly its tokens."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.support.step_core import CoreConfig, Sequence, StepCore
from benchmarks.support.step_model import MODELS

REQUESTS = st.lists(
    st.tuples(st.integers(1, 80), st.integers(1, 40), st.integers(0, 60), st.booleans()),
    min_size=1,
    max_size=30,
)
"""Prompt tokens, output tokens, the step before which it comes, whether its client leaves."""


@given(
    requests=REQUESTS,
    kv_blocks=st.integers(8, 40),
    running_max=st.integers(1, 20),
    step_tokens_max=st.integers(20, 200),
    batch_size=st.none() | st.integers(1, 20),
    leaving=st.integers(0, 2**32),
)
def test_blocks_and_tokens_are_conserved(
    requests: list[tuple[int, int, int, bool]],
    kv_blocks: int,
    running_max: int,
    step_tokens_max: int,
    batch_size: int | None,
    leaving: int,
) -> None:
    config = CoreConfig(
        model=MODELS["small"],
        running_max=running_max,
        step_tokens_max=step_tokens_max,
        kv_blocks=kv_blocks,
        batch_size=None if batch_size is None else min(batch_size, running_max),
        batch_delay_s=0.2,
    )
    core, chance = StepCore(config, Random(0)), Random(leaving)
    made = [(at, Sequence(p, n, 0.0), leaves) for p, n, at, leaves in requests]
    given_tokens: Counter[Sequence] = Counter()
    now_s = 0.0
    for number in range(100_000):
        for at, sequence, _ in made:
            if at == number:
                sequence.arrived_s = now_s
                core.add(sequence)
        step = core.begin(now_s)
        held = sum(s.blocks for s in core.running)
        assert core.blocks_free == kv_blocks - held >= 0
        assert len(core.running) <= running_max
        if step is None:
            now_s += 0.05
        else:
            now_s += step.duration_s
            tokens = len(step.decodes) + sum(chunk for _, chunk in step.prefills)
            assert 0 < tokens <= step_tokens_max
            for at, sequence, leaves in made:
                if leaves and at <= number and chance.random() < 0.1:
                    core.abort(sequence)
            given_tokens.update(core.end())
        if number > 60 and not core.waiting and not core.running:
            break
    else:
        raise AssertionError("it never ends")
    assert core.blocks_free == kv_blocks
    for _, sequence, leaves in made:
        if not leaves:
            assert sequence.done
            if config.batch_size is None:
                assert given_tokens[sequence] == sequence.output_tokens
            else:
                assert given_tokens[sequence] == 1
