"""What a cache of whole blocks can find again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import Interval, exactly
from mileage.doctor.prefix_reuse import block_tokens, cached_share, caching_off, shares_a_prefix

TOKENS = st.integers(1, 20_000)


def evidence(facts: dict[str, Any]) -> Evidence:
    return Evidence(decode_facts(facts))


@given(prompt=TOKENS, shared=TOKENS, block=TOKENS)
def test_the_share_is_that_of_blocks_counted_one_by_one(
    prompt: int, shared: int, block: int
) -> None:
    found = 0
    while found + block <= min(prompt, shared):
        found += block
    assert cached_share(prompt, shared, block) == found / prompt


@pytest.mark.parametrize(
    ("facts", "block"),
    [
        pytest.param({"settings": {"block_size": 48}}, exactly(48), id="set"),
        pytest.param(
            {"logs": ["Setting attention block size to 1600 tokens to ensure that ..."]},
            exactly(1600),
            id="logged",
        ),
        pytest.param(
            {
                "engine": {"name": "vllm"},
                "model": {"architecture": ["dense"]},
                "settings": {"block_size": None},
            },
            exactly(16),
            id="not set: the engine's default",
        ),
        pytest.param({"model": {"architecture": ["moe"]}}, Interval(1, 128), id="usual blocks"),
        pytest.param(
            {"model": {"architecture": ["hybrid"]}}, Interval(1, 16384), id="recurrent state"
        ),
    ],
)
def test_a_block_has(facts: dict[str, Any], block: Interval) -> None:
    assert block_tokens(evidence(facts)) == block


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"settings": {"enable_prefix_caching": False}}, id="by its setting"),
        pytest.param({"logs": ["config: enable_prefix_caching=False, seed=0"]}, id="vLLM's log"),
        pytest.param({"logs": ["ServerArgs(disable_radix_cache=True)"]}, id="SGLang's log"),
        pytest.param({"logs": ["enable_block_reuse: false"]}, id="TensorRT-LLM's options"),
        pytest.param(
            {"signals": {"prefix_cache_queries_tokens": 0, "prompt_tokens_per_s": 900}},
            id="prompts and no look-up",
        ),
    ],
)
def test_the_cache_is_off(facts: dict[str, Any]) -> None:
    assert caching_off(evidence(facts)).truth is True


def test_a_log_that_says_it_is_on_does_not_say_it_is_off() -> None:
    logs = ["enable_prefix_caching=True", "disable_radix_cache=False"]
    assert caching_off(evidence({"logs": logs})).truth is None


@pytest.mark.parametrize(
    ("workload", "shares"),
    [
        pytest.param({"multi_turn": True}, True, id="conversations"),
        pytest.param({"shared_prefix_tokens": 900, "isl_tokens": 1000}, True, id="most of it"),
        pytest.param({"shared_prefix_tokens": 40, "isl_tokens": 9000}, None, id="a small part"),
        pytest.param({"isl_tokens": 9000}, None, id="not told"),
    ],
)
def test_prompts_share(workload: dict[str, Any], shares: bool | None) -> None:
    assert shares_a_prefix(evidence({"workload": workload})).truth is shares
