"""An engine with policies inside loses no request, no token and no block, whatever comes."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given, settings

from mileage.core.slo import Slo
from mileage.policy.budget.choose import BUDGET_POLICIES
from mileage.policy.ordering.choose import ORDERING_POLICIES
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.ordered_engine import OrderedEngine
from mileage.sim.sequence import Sequence
from tests.support.engine_host import linear_table, run_engine

TABLE = linear_table((0.01, 1e-4, 1e-6, 2e-4, 1e-8), requests_max=32, tokens_max=512)
BLOCKS, BLOCK_TOKENS = 40, 4
jobs = st.lists(
    st.tuples(
        st.floats(0.0, 0.5),
        st.integers(1, 100),
        st.integers(1, 50),
        st.integers(0, 3),
    ),
    max_size=40,
)
prefills = st.builds(
    PrefillConfig,
    ordering=st.sampled_from(sorted(ORDERING_POLICIES)),
    budget=st.sampled_from(sorted(BUDGET_POLICIES)),
    slo=st.builds(
        Slo,
        ttft_s=st.none() | st.floats(0.01, 5.0),
        itl_s=st.none() | st.floats(0.005, 0.1),
        ttft_unloaded_ratio=st.none() | st.floats(1.0, 5.0),
    ),
)


@settings(max_examples=150, deadline=None)
@given(prefills, jobs, st.integers(1, 8), st.integers(8, 64), st.booleans())
def test_all_that_comes_is_served_once_and_gives_back_what_it_took(
    prefill: PrefillConfig,
    jobs: list[tuple[float, int, int, int]],
    running_max: int,
    step_tokens: int,
    caching: bool,
) -> None:
    config = EngineConfig(
        kv_blocks=BLOCKS,
        running_max=running_max,
        step_tokens_max=step_tokens,
        block_tokens=BLOCK_TOKENS,
        prefix_cache=caching,
        noise_ratio=0.03,
        prefill=prefill,
    )
    requests, at_s = [], 0.0
    for number, (gap_s, prompt, output, talk) in enumerate(jobs):
        at_s += gap_s
        keys = tuple((talk, i) for i in range(prompt // 8)) if talk else ()
        sequence = Sequence(number, prompt, output, keys, 8 if keys else 0)
        sequence.arrived_s = at_s
        requests.append((at_s, sequence))
    ended: list[int] = []
    engine = run_engine(
        config,
        TABLE,
        requests,
        check=True,
        ended=lambda sequence: ended.append(sequence.id),
        make=OrderedEngine,
    )
    assert sorted(ended) == list(range(len(jobs)))
    assert engine.pool.free == BLOCKS
    assert not engine.running
    assert not engine.waiting
    assert engine.output_tokens == sum(output for _, _, output, _ in jobs)
    for arrived_s, sequence in requests:
        assert arrived_s < sequence.first_token_s <= sequence.finished_s
