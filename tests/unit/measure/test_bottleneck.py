"""What holds a GPU up: each rule at its thresholds, and what is said where figures are missing."""

from __future__ import annotations

from typing import Any

import pytest

from mileage.core.errors import ConfigError
from mileage.measure.bottleneck import Bottleneck, bottleneck
from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry

QUIET_HOST = {
    "thread_max_ratio": 0.3,
    "cpu_ratio": 0.2,
    "throttled_ratio": 0.0,
    "pressure_cpu_ratio": 0.0,
}
LINKS: dict[str, Any] = {"nvlink_bytes_per_s_max": 1e11, "nvlink_tx_bytes_per_s": 1e10}


def looks(
    count: int = 100,
    *,
    host: dict[str, Any] | None = None,
    load: dict[str, Any] | None = None,
    **figures: Any,
) -> Telemetry:
    """So many looks, 100 ms apart, that all see the same."""
    times = [i / 10 for i in range(count)]
    return Telemetry(
        samples=tuple(GpuSample(gpu=GpuId(number="0"), at_s=t, **figures) for t in times),
        hosts=() if host is None else tuple(HostMoment(at_s=t, **host) for t in times),
        loads=() if load is None else tuple(LoadMoment(at_s=t, **load) for t in times),
    )


def judged(telemetry: Telemetry, **config: Any) -> Bottleneck:
    return bottleneck(telemetry, BottleneckConfig(**config))


def bound(result: Bottleneck) -> list[str]:
    return [verdict.dimension for gpu in result.gpus for verdict in gpu.bound]


@pytest.mark.parametrize(
    ("figures", "dimensions"),
    [
        pytest.param(
            {"gpu_util_ratio": 0.86, "mem_copy_util_ratio": 0.39}, ["compute"], id="compute, plain"
        ),
        pytest.param({"gpu_util_ratio": 0.85, "mem_copy_util_ratio": 0.39}, [], id="85 % is not"),
        pytest.param({"gpu_util_ratio": 0.99, "mem_copy_util_ratio": 0.40}, [], id="nor 40 %"),
        pytest.param(
            {"gpu_util_ratio": 0.99, "mem_copy_util_ratio": 0.71, **LINKS},
            ["memory"],
            id="memory, plain",
        ),
        pytest.param(
            {
                "gpu_util_ratio": 0.99,
                "mem_copy_util_ratio": 0.99,
                **LINKS,
                "nvlink_rx_bytes_per_s": 0.9e11,
            },
            [],
            id="memory with links at 90 % is not",
        ),
        pytest.param(
            {"sm_active_ratio": 0.9, "dram_active_ratio": 0.2, **LINKS}, ["compute"], id="counters"
        ),
        pytest.param(
            {
                "gpu_util_ratio": 1.0,
                "mem_copy_util_ratio": 0.2,
                "sm_active_ratio": 0.15,
                "dram_active_ratio": 0.1,
                **LINKS,
            },
            [],
            id="GPU_UTIL is not asked where SM_ACTIVE is known: batch 1",
        ),
        pytest.param(
            {"sm_active_ratio": 0.95, "dram_active_ratio": 0.75, **LINKS}, ["memory"], id="decode"
        ),
        pytest.param(
            {
                "sm_active_ratio": 0.3,
                "dram_active_ratio": 0.1,
                "nvlink_bytes_per_s_max": 1e11,
                "nvlink_tx_bytes_per_s": 0.6e11,
            },
            ["interconnect"],
            id="busy links while all else idles",
        ),
        pytest.param(
            {
                "sm_active_ratio": 0.3,
                "dram_active_ratio": 0.1,
                "nvlink_bytes_per_s_max": 0.0,
                "pcie_bytes_per_s_max": 3e10,
                "pcie_rx_bytes_per_s": 2e10,
            },
            ["interconnect"],
            id="busy PCIe where there is no NVLink",
        ),
    ],
)
def test_the_rules_of_the_gpu(figures: dict[str, Any], dimensions: list[str]) -> None:
    assert bound(judged(looks(host=QUIET_HOST, load={"running": 8, "waiting": 0}, **figures))) == (
        dimensions
    )


HOST_GPU: dict[str, Any] = {
    "gpu_util_ratio": 0.5,
    "sm_active_ratio": 0.3,
    "dram_active_ratio": 0.2,
    **LINKS,
}


@pytest.mark.parametrize(
    ("host", "load", "dimensions"),
    [
        pytest.param({"thread_max_ratio": 0.97}, {"running": 8}, ["host"], id="a full thread"),
        pytest.param({"throttled_ratio": 0.1}, {"waiting": 1}, ["host"], id="a CPU quota"),
        pytest.param({"pressure_memory_ratio": 0.3}, {"running": 1}, ["host"], id="memory (PSI)"),
        pytest.param({"cpu_ratio": 0.99}, {"running": 1}, ["host"], id="all cores"),
        pytest.param(QUIET_HOST, {"running": 8}, [], id="gaps, but the host has room"),
        pytest.param(
            {"thread_max_ratio": 0.97}, {"running": 0, "waiting": 0}, [], id="nothing to do"
        ),
    ],
)
def test_the_rule_of_the_host(
    host: dict[str, Any], load: dict[str, Any], dimensions: list[str]
) -> None:
    assert bound(judged(looks(host=host, load=load, **HOST_GPU))) == dimensions


def test_a_host_at_its_limit_is_no_bottleneck_while_the_gpu_has_no_gaps() -> None:
    figures = HOST_GPU | {"gpu_util_ratio": 0.95}
    assert (
        bound(judged(looks(host={"thread_max_ratio": 1.0}, load={"running": 9}, **figures))) == []
    )


def test_full_links_need_a_latency_that_jumped() -> None:
    def seen(itl_full_s: float) -> Bottleneck:
        samples, loads = [], []
        for i in range(100):
            full = i >= 20
            rate = 0.95e11 if full else 0.2e11
            samples.append(
                GpuSample(
                    gpu=GpuId(number="0"),
                    at_s=i / 10,
                    sm_active_ratio=0.7,
                    dram_active_ratio=0.5,
                    nvlink_tx_bytes_per_s=rate,
                    nvlink_bytes_per_s_max=1e11,
                )
            )
            loads.append(LoadMoment(at_s=i / 10, running=9, itl_s=itl_full_s if full else 0.02))
        return judged(Telemetry(samples=tuple(samples), loads=tuple(loads)))

    assert bound(seen(0.03)) == ["interconnect"]
    assert bound(seen(0.021)) == []


def test_a_gpu_that_works_in_turns_is_judged_by_its_looks_not_by_its_mean() -> None:
    """Means of 0.78 and 0.55 would meet no rule."""
    turns = [(0.95, 0.2)] * 30 + [(0.7, 0.7)] * 70
    samples = tuple(
        GpuSample(
            gpu=GpuId(number="0"), at_s=i / 10, sm_active_ratio=sm, dram_active_ratio=dram, **LINKS
        )
        for i, (sm, dram) in enumerate(turns)
    )
    (gpu,) = judged(Telemetry(samples=samples)).gpus
    shares = {verdict.dimension: verdict.held_ratio for verdict in gpu.verdicts}
    assert [v.dimension for v in gpu.bound] == ["memory"]
    assert (shares["memory"], shares["compute"]) == (0.7, 0.3)


@pytest.mark.parametrize(
    ("telemetry", "unknown"),
    [
        pytest.param(
            looks(sm_active_ratio=0.9, **LINKS),
            {"dram_active_ratio"},
            id="memory unknown",
        ),
        pytest.param(
            looks(gpu_util_ratio=1.0, mem_copy_util_ratio=0.5),
            {"nvlink_ratio", "latency_ratio"},
            id="links unknown",
        ),
        pytest.param(
            looks(3, gpu_util_ratio=1.0, mem_copy_util_ratio=0.1), None, id="too few looks"
        ),
    ],
)
def test_what_is_missing_is_named(telemetry: Telemetry, unknown: set[str] | None) -> None:
    result = judged(telemetry)
    assert result.outcome == "not_enough_evidence"
    if unknown is not None:
        named = {f for gpu in result.gpus for verdict in gpu.verdicts for f in verdict.unknown}
        assert unknown <= named
    else:
        assert any("are needed" in n for v in result.gpus[0].verdicts for n in v.notes)


def test_without_a_look_nothing_is_said() -> None:
    result = judged(Telemetry(missing={"gpus": "no driver"}))
    assert (result.outcome, result.gpus) == ("not_enough_evidence", ())
    assert result.missing == {"gpus": "no driver"}


def test_looks_that_do_not_tell_decide_nothing() -> None:
    """40 of 100 held, 30 are unknown: it may have been 70."""
    ratios = [0.9] * 40 + [None] * 30 + [0.1] * 30
    samples = tuple(
        GpuSample(gpu=GpuId(number="0"), at_s=i / 10, sm_active_ratio=sm, dram_active_ratio=0.1)
        for i, sm in enumerate(ratios)
    )
    (gpu,) = judged(Telemetry(samples=samples)).gpus
    compute = next(v for v in gpu.verdicts if v.dimension == "compute")
    assert compute.held is None
    assert compute.held_ratio == pytest.approx(4 / 7)


def test_a_verdict_shows_its_evidence() -> None:
    result = judged(looks(gpu_util_ratio=0.9, mem_copy_util_ratio=0.2))
    verdict = result.gpus[0].bound[0]
    seen = {(e.figure, e.comparison, e.threshold): e for e in verdict.evidence}
    evidence = seen["gpu_util_ratio", ">", 0.85]
    assert evidence.mean == pytest.approx(0.9)
    assert (evidence.met_ratio, evidence.samples) == (1.0, 100)
    assert ("mem_copy_util_ratio", "<", 0.4) in seen
    assert (result.start_s, result.end_s) == (0.0, 9.9)
    assert any("single request" in note for note in verdict.notes)


@pytest.mark.parametrize(
    ("telemetry", "confidence"),
    [
        pytest.param(
            looks(sm_active_ratio=0.9, dram_active_ratio=0.2), "high", id="counters, many looks"
        ),
        pytest.param(
            looks(20, sm_active_ratio=0.9, dram_active_ratio=0.2), "medium", id="few looks"
        ),
        pytest.param(
            looks(gpu_util_ratio=0.9, mem_copy_util_ratio=0.2), "medium", id="shares of time"
        ),
        pytest.param(
            looks(20, gpu_util_ratio=0.9, mem_copy_util_ratio=0.8), "low", id="links unknown, too"
        ),
    ],
)
def test_confidence_falls_with_each_fault(telemetry: Telemetry, confidence: str) -> None:
    assert judged(telemetry).gpus[0].bound[0].confidence == confidence


def test_idle_tensor_cores_are_told() -> None:
    result = judged(looks(sm_active_ratio=0.9, dram_active_ratio=0.2, tensor_active_ratio=0.02))
    assert any("tensor cores" in note for note in result.gpus[0].bound[0].notes)


def test_a_processor_is_judged_by_its_cores() -> None:
    busy = looks(basis="cpu", sm_active_ratio=1.0, host=QUIET_HOST, load={"running": 1})
    result = judged(busy)
    assert result.outcome == "not_enough_evidence"
    assert result.gpus[0].verdicts[0].unknown == ("dram_active_ratio",)
    contended = looks(
        basis="cpu",
        gpu_util_ratio=0.4,
        sm_active_ratio=0.4,
        host={"thread_max_ratio": 1.0, "pressure_cpu_ratio": 0.5},
        load={"running": 1},
    )
    assert bound(judged(contended)) == ["host"]


def test_old_news_of_the_host_does_not_count() -> None:
    telemetry = looks(host=None, load={"running": 1}, **HOST_GPU)
    old = Telemetry(
        samples=telemetry.samples,
        loads=telemetry.loads,
        hosts=(HostMoment(at_s=-60.0, thread_max_ratio=1.0),),
    )
    host = next(v for v in judged(old).gpus[0].verdicts if v.dimension == "host")
    assert host.held is None
    assert "thread_max_ratio" in host.unknown


def test_thresholds_are_configurable_and_checked() -> None:
    telemetry = looks(gpu_util_ratio=0.6, mem_copy_util_ratio=0.2)
    assert bound(judged(telemetry)) == []
    assert bound(judged(telemetry, gpu_util_min=0.5)) == ["compute"]
    with pytest.raises(ConfigError, match=r"bottleneck\.gpu_util_min"):
        BottleneckConfig(gpu_util_min=85.0)
    with pytest.raises(ConfigError, match=r"bottleneck\.latency_jump"):
        BottleneckConfig(latency_jump=0.5)


def test_each_gpu_is_judged_alone_and_the_gravest_outcome_is_the_whole_s() -> None:
    one = looks(sm_active_ratio=0.9, dram_active_ratio=0.2)
    two = looks(sm_active_ratio=0.1, dram_active_ratio=0.1)
    moved = tuple(
        GpuSample(gpu=GpuId(number="1"), at_s=s.at_s, sm_active_ratio=0.1, dram_active_ratio=0.1)
        for s in two.samples
    )
    result = judged(Telemetry(samples=one.samples + moved))
    assert [gpu.outcome for gpu in result.gpus] == ["bound", "not_enough_evidence"]
    assert result.outcome == "bound"
