"""Builder: memory, step times and replicas of a candidate."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.calibration import Calibration
from mileage.costmodel.catalogue import architecture, gpu
from mileage.planner.built import BLOCK_TOKENS, Builder
from mileage.planner.candidate import Candidate, Disaggregation, HostTier, Sharing
from mileage.sim.engine_features import SpeculationConfig

LLAMA = architecture("llama-3.1-8b")
H100 = gpu("h100").name


def test_memory_of_one_gpu_adds_up() -> None:
    built = Builder(model=LLAMA).build(Candidate(gpu=H100))
    use = built.memory
    assert use.total == pytest.approx(0.9 * gpu("h100").memory_bytes)
    parts = use.weights + use.activations + use.context + use.kv
    assert parts == pytest.approx(use.total)
    assert use.weights == pytest.approx(16.06e9, rel=0.01)
    token_bytes = 32 * 2 * 8 * 128 * 2
    assert built.kv_tokens == int(use.kv // (BLOCK_TOKENS * token_bytes)) * BLOCK_TOKENS


def test_limits_of_an_engine_are_those_of_all_its_ranks_and_stages() -> None:
    candidate = Candidate(
        gpu=H100, data_parallel=2, pipeline_parallel=2, running_max=64, step_tokens_max=1024
    )
    built = Builder(model=LLAMA).build(candidate)
    assert (built.engine.running_max, built.engine.step_tokens_max) == (128, 4096)
    assert built.engine.dp_ranks == 2
    assert built.table.requests_max >= 128
    assert built.fill is not None


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        pytest.param({"gpu": "T4"}, "tensor_parallel", id="does not fit"),
        pytest.param({"gpu": H100, "tensor_parallel": 5}, "tensor_parallel", id="heads left over"),
        pytest.param({"gpu": H100, "expert_parallel": 2}, "expert_parallel", id="no experts"),
        pytest.param(
            {"gpu": H100, "pipeline_parallel": 2, "chunked_prefill": False},
            "pipeline_parallel",
            id="a pipeline of whole prompts",
        ),
        pytest.param(
            {"gpu": H100, "data_parallel": 2, "speculation": SpeculationConfig()},
            "engine.dp_ranks",
            id="features that are not simulated together",
        ),
        pytest.param(
            {"gpu": H100, "running_max": 4096}, "engine.running_max", id="a step too short"
        ),
        pytest.param({"gpu": "no such card"}, "gpu", id="an unknown card"),
    ],
)
def test_what_cannot_be_built_is_named(fields: dict[str, Any], key: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Builder(model=LLAMA).build(Candidate(**fields))
    assert caught.value.key == key


def test_layouts_in_common_are_worked_out_once() -> None:
    builder = Builder(model=LLAMA)
    one, two = (builder.build(Candidate(gpu=H100, replicas=n)) for n in (1, 2))
    assert one.table is two.table
    assert builder.build(Candidate(gpu=H100, kv="fp8")).table is not one.table
    assert builder.build(Candidate(gpu=H100, graph_sizes="none")).table is not one.table


def test_a_calibration_scales_steps() -> None:
    plain = Builder(model=LLAMA).build(Candidate(gpu=H100)).table
    slow = Builder(model=LLAMA, calibrations={H100: Calibration(decode_ratio=1.5)}).build(
        Candidate(gpu=H100)
    )
    assert slow.table.lines[0].decode_s[1] == pytest.approx(1.5 * plain.lines[0].decode_s[1])


@pytest.mark.parametrize(
    ("sharing", "gpus", "together"),
    [
        pytest.param(Sharing(replicas=2), 0.5, True, id="slices of time"),
        pytest.param(
            Sharing(replicas=2, mode="mps", capacity_ratio=1.3), 0.5, True, id="overlapping kernels"
        ),
        pytest.param(Sharing(replicas=2, mode="mig"), 0.5, False, id="parts of the card"),
    ],
)
def test_replicas_that_share_a_gpu(sharing: Sharing, gpus: float, together: bool) -> None:
    built = Builder(model=LLAMA).build(Candidate(gpu=H100, replicas=4, sharing=sharing))
    specs = built.specs()
    assert [spec.gpus for spec in specs] == [gpus] * 4
    assert len({spec.shared_gpu for spec in specs}) == (2 if together else 1)
    assert specs[0].shared_capacity_ratio == sharing.capacity_ratio
    assert built.memory.total == pytest.approx(0.45 * gpu("h100").memory_bytes, rel=1e-3)


def test_a_part_of_a_card_is_as_much_slower() -> None:
    builder = Builder(model=LLAMA)
    whole = builder.build(Candidate(gpu=H100)).table.lines[0]
    half = builder.build(
        Candidate(gpu=H100, replicas=2, sharing=Sharing(replicas=2, mode="mig"))
    ).table.lines[0]
    assert half.kv_s == pytest.approx(2.0 * whole.kv_s)


def test_caches_move_over_the_links_between_engines() -> None:
    apart = Disaggregation(prefill_engines=1, decode_engines=2)
    built = Builder(model=LLAMA).build(Candidate(gpu=H100, disaggregation=apart))
    config = built.engine.disaggregation
    assert config is not None
    assert config.decode_engines == 2
    # 128 KiB a token over one direction of NVLink.
    assert config.transfer_token_s == pytest.approx(131072 / 450e9)
    assert built.specs()[0].gpus == 3
    far = Builder(model=LLAMA).build(
        Candidate(gpu=H100, disaggregation=Disaggregation(prefill_engines=4, decode_engines=8))
    )
    assert far.engine.disaggregation is not None
    assert far.engine.disaggregation.transfer_token_s == pytest.approx(131072 / 50e9)


def test_memory_behind_the_gpu_is_counted_in_blocks() -> None:
    built = Builder(model=LLAMA).build(
        Candidate(gpu=H100, kv_tiers=(HostTier(gb_per_gpu=100.0, gb_per_s=50.0),))
    )
    (tier,) = built.engine.kv_tiers
    block_bytes = 131072 * BLOCK_TOKENS
    assert tier.blocks == int(100e9 / block_bytes)
    assert tier.block_load_s == pytest.approx(block_bytes / 50e9)


def test_each_fine_tune_has_a_fleet() -> None:
    built = Builder(model=LLAMA).build(Candidate(gpu=H100, replicas=2, tuning="full"))
    specs = built.specs(("first", "second"))
    assert [spec.models for spec in specs] == [("first",), ("first",), ("second",), ("second",)]
    assert len({spec.name for spec in specs}) == 4
