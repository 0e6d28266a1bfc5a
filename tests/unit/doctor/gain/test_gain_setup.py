"""The simulated deployment of some facts: the one that `mileage simulate` makes of its options."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.gain.load import Load, load_of
from mileage.doctor.gain.setup import Setup, engine_of, kv_blocks_of, setup_of
from mileage.doctor.gain.weight_format import kv_format, weight_format
from mileage.doctor.interval import Interval, exactly
from tests.support.gain_facts import gain_facts
from tests.support.simulate_cli import document


def load(**sections: dict[str, Any]) -> Load:
    found = load_of(Evidence(decode_facts(gain_facts(**sections))))
    assert isinstance(found, Load), found
    return found


def setup(**sections: dict[str, Any]) -> Setup:
    evidence = Evidence(decode_facts(gain_facts(**sections)))
    found = setup_of(evidence, load(**sections))
    assert isinstance(found, Setup), found
    return found


@pytest.mark.parametrize(
    ("sections", "options"),
    [
        pytest.param({}, ("--gpu", "h100"), id="defaults"),
        pytest.param(
            {"settings": {"max_num_seqs": 96, "max_num_batched_tokens": 4096}},
            ("--gpu", "h100", "--engine-max-seqs", "96", "--engine-tokens", "4096"),
            id="limits",
        ),
        pytest.param(
            {
                "hardware": {"gpu": "L40S", "count": 2},
                "settings": {"tensor_parallel_size": 2, "kv_cache_dtype": "fp8_e4m3"},
                "model": {"dtype": "fp8"},
            },
            ("--gpu", "l40s", "--tp", "2", "--precision", "fp8", "--kv-dtype", "fp8"),
            id="two cards, 8 bits",
        ),
        pytest.param(
            {"settings": {"gpu_memory_utilization": 0.8}},
            ("--gpu", "h100", "--gpu-memory", "0.8"),
            id="less of the memory",
        ),
    ],
)
def test_it_is_the_engine_that_the_command_simulates(
    sections: dict[str, Any], options: tuple[str, ...]
) -> None:
    trace = ("--trace", "synthetic:rate=2,duration=2s", "--model", "llama-3.1-8b")
    engine = document(*trace, *options, "--policy", "off")["assumptions"]["engine"]
    made = setup(**sections)
    blocks = kv_blocks_of(made)
    assert isinstance(blocks, int)
    ours = engine_of(made, blocks)
    assert ours.kv_blocks == engine["kv_blocks"]
    assert (ours.running_max, ours.step_tokens_max) == (
        engine["running_max"],
        engine["step_tokens_max"],
    )


def test_the_engine_s_own_word_of_its_cache_counts() -> None:
    made = setup(signals={"kv_cache_capacity_tokens": 160_000})
    assert kv_blocks_of(made) == 10_000


def test_a_change_adds_to_the_cache_that_the_engine_has() -> None:
    before = setup(
        settings={"gpu_memory_utilization": 0.8}, signals={"kv_cache_capacity_tokens": 160_000}
    )
    after = setup(
        settings={"gpu_memory_utilization": 0.9}, signals={"kv_cache_capacity_tokens": 160_000}
    )
    plain = [
        kv_blocks_of(setup(settings={"gpu_memory_utilization": share})) for share in (0.8, 0.9)
    ]
    assert kv_blocks_of(after, before) == 10_000 + int(plain[1]) - int(plain[0])  # type: ignore[arg-type]


def test_lengths_follow_from_rates() -> None:
    found = load(
        workload={"isl_tokens": ..., "osl_tokens": ...},
        signals={"requests_per_s": 2, "prompt_tokens_per_s": 1000, "output_tokens_per_s": 500},
    )
    assert (found.prompt_tokens, found.output_tokens) == (exactly(500.0), exactly(250.0))


@pytest.mark.parametrize(
    ("sections", "in_flight", "rate"),
    [
        pytest.param({}, exactly(64.0), None, id="what clients want"),
        pytest.param(
            {
                "workload": {"concurrency": ...},
                "signals": {"requests_running": [8, 7], "requests_waiting": [20, 5]},
            },
            exactly(40.0),
            None,
            id="a queue: what is there",
        ),
        pytest.param(
            {
                "workload": {"concurrency": ..., "rate_rps": 3},
                "signals": {"requests_running": 8, "requests_waiting": 5},
            },
            None,
            exactly(3.0),
            id="a rate",
        ),
        pytest.param(
            {
                "workload": {"concurrency": ...},
                "signals": {
                    "requests_running": 8,
                    "requests_waiting": 0,
                    "requests_per_s": {"min": 1, "max": 2},
                },
            },
            None,
            Interval(1.0, 2.0),
            id="no queue: what is answered comes",
        ),
    ],
)
def test_the_load(sections: dict[str, Any], in_flight: Interval | None, rate: Interval) -> None:
    found = load(**sections)
    assert (found.in_flight, found.rate_rps) == (in_flight, rate)


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        pytest.param(("awq_marlin", "float16"), "int4", id="quantisation comes first"),
        pytest.param((None, "bf16", "qwen2.5-72b-awq"), "bf16", id="then the dtype"),
        pytest.param((None, None, "qwen2.5-72b-instruct-awq"), "int4", id="then the name"),
        pytest.param((None, "fp8"), "fp8", id="8 bits"),
        pytest.param(("w8a8",), "int8", id="8-bit integers"),
        pytest.param((None, None, "llama-3.1-8b"), None, id="nothing is said"),
    ],
)
def test_the_format_of_weights(said: tuple[str | None, ...], kind: str | None) -> None:
    assert weight_format(*said) == kind


def test_the_format_of_a_cache() -> None:
    assert [kv_format(each) for each in (None, "auto", "bfloat16")] == ["bf16"] * 3
    assert [kv_format(each) for each in ("fp8", "fp8_e5m2")] == ["fp8"] * 2
    assert kv_format("q4_0") is None
