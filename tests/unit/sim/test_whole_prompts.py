"""Engines without chunked prefill: a prompt waits until all of it fits into one step."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.policy.prefill import PrefillConfig
from mileage.sim.engine_config import EngineConfig
from mileage.sim.engine_features import KvTierConfig, StaticBatchConfig
from mileage.sim.sequence import Sequence
from tests.support.engine_host import linear_table, run_engine

_TABLE = linear_table((1.0, 0.0, 0.0, 0.01, 0.0))
"""A step takes 1 s, and 10 ms for each prompt token."""
_WHOLE = EngineConfig(
    kv_blocks=1000, running_max=8, step_tokens_max=100, block_tokens=1, chunked_prefill=False
)


def test_a_prompt_that_does_not_fit_beside_another_waits_for_the_next_step() -> None:
    first, second = Sequence(1, 60, 1), Sequence(2, 50, 1)
    run_engine(_WHOLE, _TABLE, [(0.0, first), (0.0, second)])
    assert first.finished_s == pytest.approx(1.6)
    assert second.finished_s == pytest.approx(1.6 + 1.5)
    first, second = Sequence(1, 60, 1), Sequence(2, 50, 1)
    cut = EngineConfig(kv_blocks=1000, running_max=8, step_tokens_max=100, block_tokens=1)
    run_engine(cut, _TABLE, [(0.0, first), (0.0, second)])
    assert first.finished_s == pytest.approx(2.0), "40 tokens of the second one beside it"
    assert second.finished_s == pytest.approx(2.0 + 1.1)


def test_requests_that_decode_leave_less_room() -> None:
    running, whole = Sequence(1, 10, 5), Sequence(2, 100, 1)
    run_engine(_WHOLE, _TABLE, [(0.0, running), (0.5, whole)])
    # Five tokens of the first one, the last of them 1.1 + 4 s after it came.
    assert running.finished_s == pytest.approx(5.1)
    assert whole.finished_s == pytest.approx(5.1 + 2.0)


def test_what_gave_way_begins_again() -> None:
    """The engine ends, although an answer adds to what is computed anew."""
    tight = EngineConfig(
        kv_blocks=60, running_max=8, step_tokens_max=60, block_tokens=1, chunked_prefill=False
    )
    requests = [Sequence(i, 20, 30) for i in range(4)]
    engine = run_engine(tight, _TABLE, [(0.0, each) for each in requests], check=True)
    assert engine.preemptions > 0
    assert engine.finished == 4


def test_a_context_of_more_tokens_than_a_step_is_refused() -> None:
    engine = run_engine(_WHOLE, _TABLE, [])
    assert engine.fits(Sequence(1, 100, 1))
    assert not engine.fits(Sequence(2, 101, 1))
    assert not engine.fits(Sequence(3, 90, 12)), "it could not begin again where it gave way"


@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"long_prefill_tokens_max": 10}, id="with chunks of a length"),
        pytest.param({"prefill": PrefillConfig()}, id="with a step budget of its own"),
        pytest.param({"static_batch": StaticBatchConfig()}, id="with static batches"),
        pytest.param(
            {"kv_tiers": (KvTierConfig(blocks=1, block_load_s=0.0),)}, id="with loaded prefixes"
        ),
    ],
)
def test_it_is_refused_beside_what_cuts_prompts(other: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"engine\.chunked_prefill"):
        EngineConfig(kv_blocks=100, chunked_prefill=False, **other)  # type: ignore[arg-type]
