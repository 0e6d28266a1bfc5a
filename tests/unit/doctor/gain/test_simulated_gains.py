"""What a change brings by simulation: against closed forms, and where there is nothing to say."""

from __future__ import annotations

import math
from typing import Any

import pytest

from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.deployment import Deployment
from mileage.doctor.finding import Gain
from mileage.doctor.gain.speculation import acceptance_of
from mileage.doctor.opinion import Change
from tests.support.gain_facts import gain_of, why_not

MORE = Change("max_num_seqs", 64.0)
FOUR = {"max_num_seqs": 4}


def middle(gain: Gain) -> float:
    """Of the runs, without what the model may be off by (a factor on both sides)."""
    return math.sqrt(gain.low * gain.high)


def closed_form(requests: int, prompt: int = 500, output: int = 250) -> float:
    """Tokens per second of so many requests: each is decoded with the others, and its prompt makes
    one step longer."""
    deployment = Deployment(model=architecture("llama-3.1-8b"), gpu=gpu("h100"))
    table = deployment.step_table(64, 8192)
    context = requests * (prompt + output // 2)
    step_s = table.step_s(requests, context)
    mixed_s = table.step_s(requests - 1, context, prompt, prompt * (prompt + 1) / 2)
    return requests * output / ((output - 1) * step_s + requests * (mixed_s - step_s))


def test_a_larger_batch_yields_what_the_closed_form_says() -> None:
    gains = gain_of(MORE, settings=FOUR)
    expected = closed_form(64) / closed_form(4)
    assert expected > 8, "the step of four requests is bound by reading weights"
    assert middle(gains["throughput_ratio"]) == pytest.approx(expected, rel=0.12)
    assert gains["throughput_ratio"].low < expected < gains["throughput_ratio"].high
    assert gains["ttft_p99_ratio"].high < 0.1, "60 of 64 waited"
    assert gains["itl_p99_ratio"].low > 1.0, "which those who were served pay for"


def test_what_changes_nothing_gains_nothing() -> None:
    for gain in gain_of(Change("max_num_seqs", 512.0), settings={"max_num_seqs": 256}).values():
        assert (gain.low, gain.high) == (1.0, 1.0)


def test_bounds_of_the_load_are_bounds_of_the_gain() -> None:
    wide = gain_of(MORE, settings=FOUR, workload={"concurrency": {"min": 16, "max": 64}})
    narrow = gain_of(MORE, settings=FOUR)
    assert wide["throughput_ratio"].low < 0.6 * narrow["throughput_ratio"].low
    assert wide["throughput_ratio"].high == pytest.approx(narrow["throughput_ratio"].high, rel=0.1)


def test_fewer_bytes_of_weights_make_a_memory_bound_step_shorter() -> None:
    gains = gain_of(Change("quantization", "fp8"), workload={"concurrency": 4})
    assert 1.2 < middle(gains["throughput_ratio"]) < 2.0


def test_a_prefix_that_is_found_is_not_computed() -> None:
    gains = gain_of(
        Change("enable_prefix_caching", True),
        settings={"enable_prefix_caching": False},
        workload={"isl_tokens": 3000, "shared_prefix_tokens": 2500, "concurrency": 32},
    )
    assert gains["throughput_ratio"].low > 1.1
    assert gains["ttft_p99_ratio"].high < 0.8


def test_a_wider_pool_fills_the_batch() -> None:
    gains = gain_of(
        Change("client.max_connections", 64),
        signals={"client_requests_in_flight_max": 4},
    )
    expected = closed_form(64) / closed_form(4)
    assert middle(gains["throughput_ratio"]) == pytest.approx(expected, rel=0.12)
    assert "ttft_p99_ratio" not in gains, "what waits in the client is not seen"
    assert "afterwards 64 requests in flight" in gains["throughput_ratio"].basis


def test_narrower_replicas_keep_the_cards() -> None:
    gains = gain_of(
        Change("tensor_parallel_size", 1),
        Change("data_parallel_size", 4),
        hardware={"count": 4},
        settings={"tensor_parallel_size": 4},
        workload={"concurrency": 256},
    )
    assert 0.5 < gains["throughput_ratio"].low < gains["throughput_ratio"].high < 3.0
    assert "4 replicas" in gains["throughput_ratio"].basis


def test_a_queue_that_grows_has_no_ttft() -> None:
    gains = gain_of(MORE, settings=FOUR, workload={"concurrency": ..., "rate_rps": 6})
    assert "ttft_p99_ratio" not in gains
    assert gains["throughput_ratio"].low > 1.5


def test_what_was_measured_stands_in_the_basis() -> None:
    gains = gain_of(MORE, settings=FOUR, signals={"output_tokens_per_s": 480})
    assert "480 measured" in gains["throughput_ratio"].basis


DRAFTED = {"speculative.method": "ngram", "speculative.num_tokens": 4}
UNDRAFTED = Change("speculative.method", None)


def test_drafts_that_nobody_accepts_cost_and_those_that_all_accept_pay() -> None:
    load = {"concurrency": 48, "osl_tokens": 60}
    vain = gain_of(UNDRAFTED, settings=DRAFTED, workload=load, signals={"spec_acceptance_ratio": 0})
    assert vain["throughput_ratio"].low >= 1.0
    assert vain["throughput_ratio"].high > 1.0
    load = {"concurrency": 2, "osl_tokens": 40}
    good = gain_of(
        UNDRAFTED, settings=DRAFTED, workload=load, signals={"spec_acceptance_ratio": 0.9}
    )
    assert good["throughput_ratio"].high < 0.6, "each step gave more than four tokens"


@pytest.mark.parametrize(("ratio", "drafted"), [(0.0, 3), (0.35, 1), (0.6, 4), (1.0, 5)])
def test_the_chance_of_a_token_gives_back_the_share_that_engines_count(
    ratio: float, drafted: int
) -> None:
    chance = acceptance_of(ratio, drafted)
    accepted = sum(chance**power for power in range(1, drafted + 1))
    assert accepted / drafted == pytest.approx(ratio, abs=1e-6)


UNKNOWN: dict[str, tuple[str, tuple[Change, ...], dict[str, Any]]] = {
    "no model": ("model", (MORE,), {"model": {"name": "in-house-9b"}}),
    "no card": ("card", (MORE,), {"hardware": {"gpu": "MTT S5000"}}),
    "no engine": ("engine", (MORE,), {"engine": {"name": "tgi"}}),
    "the embedded engine": ("engine", (MORE,), {"engine": {"variant": "embedded"}}),
    "no prompt": ("prompts", (MORE,), {"workload": {"isl_tokens": ...}}),
    "no answer": ("answers", (MORE,), {"workload": {"osl_tokens": ...}}),
    "no load": ("in flight", (MORE,), {"workload": {"concurrency": ...}}),
    "one side of the load": ("in flight", (MORE,), {"workload": {"concurrency": {"min": 8}}}),
    "media": ("media", (MORE,), {"workload": {"mm_input": "image"}}),
    "no width": (
        "cards",
        (MORE,),
        {"settings": {"tensor_parallel_size": ...}, "hardware": {"count": 8}},
    ),
    "drafts of which nothing is counted": ("accepted", (MORE,), {"settings": DRAFTED}),
    "drafts of no number": ("drafted", (MORE,), {"settings": {"speculative.method": "ngram"}}),
    "a draft of no size": (
        "how large",
        (MORE,),
        {
            "settings": {**DRAFTED, "speculative.method": "draft_model"},
            "signals": {"spec_acceptance_ratio": 0.5},
        },
    ),
    "no drafts to switch off": ("speculative.method", (UNDRAFTED,), {}),
    "no settings": ("no setting", (), {}),
    "a setting of something else": ("env.OMP", (Change("env.OMP_NUM_THREADS", 4),), {}),
    "a kernel": ("quantization", (Change("quantization", None),), {}),
    "too large a model": (
        "fit",
        (MORE,),
        {"model": {"name": "Llama-3.1-405B-Instruct"}, "workload": {"concurrency": 8}},
    ),
    "too large a load": ("mileage simulate", (MORE,), {"workload": {"concurrency": 5000}}),
    "faster than it can be": (
        "reproduce",
        (MORE,),
        {"settings": FOUR, "signals": {"output_tokens_per_s": 3000}},
    ),
    "slower than it should be": (
        "reproduce",
        (MORE,),
        {"settings": FOUR, "signals": {"itl_mean_s": 0.2}},
    ),
    "preemptions of something else": (
        "reproduce",
        (MORE,),
        {"settings": FOUR, "signals": {"preemptions_per_s": 1}},
    ),
}


@pytest.mark.parametrize(
    ("why", "changes", "facts"), [pytest.param(*each, id=name) for name, each in UNKNOWN.items()]
)
def test_no_gain_without_what_it_rests_on(
    why: str, changes: tuple[Change, ...], facts: dict[str, Any]
) -> None:
    assert why in why_not(*changes, **facts)
