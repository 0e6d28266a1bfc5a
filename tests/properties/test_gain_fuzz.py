"""Simulated gains under any facts: no error, no endless run, and an interval that is one."""

from __future__ import annotations

from math import isfinite
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.gain.simulated import simulated_gains
from mileage.doctor.gain.simulator import Simulator
from mileage.doctor.gain.unsimulated import Unsimulated
from mileage.doctor.opinion import Change
from tests.support.gain_facts import gain_facts

SIZES = st.sampled_from([1, 2, 3, 7, 16, 100, 1000, 5000, 10**6, 10**9, 10**15, 10**200])
SHARES = st.sampled_from([0.0, 1e-9, 0.3, 0.92, 1.0])
BOUNDS = st.tuples(SIZES, SIZES).map(lambda ends: {"min": min(ends), "max": max(ends)})
NUMBERS = SIZES | BOUNDS

FACTS = st.fixed_dictionaries(
    {},
    optional={
        "engine": st.fixed_dictionaries({"name": st.sampled_from(["vllm", "sglang", "trtllm"])}),
        "model": st.fixed_dictionaries(
            {"name": st.sampled_from(["Qwen3-0.6B", "gpt-oss-20b", "DeepSeek-V3", "gemma-3-27b"])},
            optional={"dtype": st.sampled_from(["fp8", "int4", "bf16", "fp32"])},
        ),
        "hardware": st.fixed_dictionaries(
            {"gpu": st.sampled_from(["T4", "L40S", "H20", "B200"]), "count": SIZES},
            optional={"interconnect": st.just("pcie"), "memory_gb": SIZES},
        ),
        "settings": st.fixed_dictionaries(
            {},
            optional={
                "tensor_parallel_size": SIZES,
                "pipeline_parallel_size": SIZES,
                "data_parallel_size": SIZES,
                "max_num_seqs": NUMBERS,
                "max_num_batched_tokens": NUMBERS,
                "gpu_memory_utilization": SHARES,
                "enable_chunked_prefill": st.booleans(),
                "enforce_eager": st.booleans(),
                "max_tokens_in_paged_kv_cache": SIZES,
                "speculative.method": st.sampled_from(["ngram", "eagle", "draft_model"]),
                "speculative.num_tokens": SIZES,
                "speculative.draft_params_b": SIZES,
            },
        ),
        "workload": st.fixed_dictionaries(
            {},
            optional={
                "isl_tokens": NUMBERS,
                "osl_tokens": NUMBERS,
                "concurrency": NUMBERS | st.just(...),
                "rate_rps": NUMBERS | SHARES,
                "shared_prefix_tokens": NUMBERS,
                "shared_prefix_ratio": SHARES,
                "prefix_groups": NUMBERS,
            },
        ),
        "signals": st.fixed_dictionaries(
            {},
            optional={
                "kv_cache_capacity_tokens": NUMBERS,
                "requests_running": NUMBERS,
                "requests_waiting": NUMBERS,
                "client_requests_in_flight_max": NUMBERS,
                "output_tokens_per_s": NUMBERS,
                "preemptions_per_s": SHARES,
                "spec_acceptance_ratio": SHARES,
            },
        ),
    },
)
CHANGES = st.lists(
    st.builds(
        Change,
        st.sampled_from(
            [
                "max_num_seqs",
                "max_num_batched_tokens",
                "tensor_parallel_size",
                "data_parallel_size",
                "client.max_connections",
                "max_tokens_in_paged_kv_cache",
            ]
        ),
        SIZES | st.none(),
    )
    | st.just(Change("speculative.method", None))
    | st.builds(Change, st.just("gpu_memory_utilization"), SHARES)
    | st.builds(Change, st.sampled_from(["quantization", "kv_cache_dtype"]), st.just("fp8"))
    | st.builds(Change, st.sampled_from(["enable_prefix_caching", "enforce_eager"]), st.booleans()),
    min_size=1,
    max_size=3,
)


@settings(max_examples=60, deadline=None)
@given(FACTS, CHANGES)
def test_any_facts_have_gains_or_a_reason(facts: dict[str, Any], changes: list[Change]) -> None:
    evidence = Evidence(decode_facts(gain_facts(**facts)))
    found = simulated_gains(evidence, changes, Simulator())
    if isinstance(found, Unsimulated):
        assert found.why
        return
    for gain in found:
        assert 0.0 < gain.low <= gain.high
        assert isfinite(gain.high)
