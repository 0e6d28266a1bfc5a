"""Whatever a page, a /proc or a counter says: no parser raises, and no figure is impossible."""

from __future__ import annotations

import contextlib
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mileage.costmodel.gpu_names import gpu_of_driver
from mileage.measure.bottleneck import bottleneck
from mileage.measure.bottleneck_config import BottleneckConfig
from mileage.measure.counter_rates import CounterRates
from mileage.measure.gpu_checks import checked
from mileage.measure.gpu_sample import GpuId, GpuSample
from mileage.measure.gpu_sharing import GpuPart, capacity_ratios, mig_part, parts_of
from mileage.measure.measured_weights import measured_weights
from mileage.measure.serving_host import HostMoment, LoadMoment
from mileage.measure.telemetry import Telemetry
from mileage.scrape.cgroup import binding_of, cgroup_lines
from mileage.scrape.gpu_dcgm import _FIELDS, dcgm_samples
from mileage.scrape.throttle_reasons import reasons_of

FIELDS = sorted(_FIELDS)
FLOATS = st.floats(allow_nan=True, allow_infinity=True)
RATIO = st.none() | st.sampled_from([0.0, 0.2, 0.39, 0.4, 0.7, 0.71, 0.85, 0.86, 0.95, 1.0])
RATIOS = [name for name in GpuSample.__struct_fields__ if name.endswith("_ratio")]
VALUES = st.sampled_from(
    ["0", "1", "100", "0.5", "9223372036854775794", "140737488355328", "NaN", "-3", "1e300", "x"]
) | FLOATS.map(repr)
LABELS = st.dictionaries(
    st.sampled_from(["gpu", "UUID", "uuid", "GPU_I_ID", "GPU_I_PROFILE", "pod", "modelName"]),
    st.text(st.characters(exclude_characters='"\\\n', exclude_categories=["Cs"]), max_size=8),
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    name = draw(st.sampled_from(FIELDS))
    if draw(st.booleans()):
        name = name.lower()
    labels = ",".join(f'{key}="{value}"' for key, value in draw(LABELS).items())
    return f"{name}{{{labels}}} {draw(VALUES)}"


def require_possible(sample: GpuSample) -> None:
    for name in RATIOS:
        value = getattr(sample, name)
        assert value is None or 0.0 <= value <= 1.0
    for name in ("power_w", "energy_j", "nvlink_tx_bytes_per_s", "memory_used_bytes"):
        value = getattr(sample, name)
        assert value is None or (math.isfinite(value) and value >= 0)
    assert sample.link[1] is None or 0.0 <= sample.link[1] <= 1.0
    assert checked(sample) == sample


@given(st.lists(lines(), min_size=1, max_size=30))
def test_pages_of_odd_values(page: list[str]) -> None:
    try:
        samples = dcgm_samples("\n".join(page).encode(), at_s=1.0)
    except ValueError:
        return
    assert samples
    assert len({sample.gpu for sample in samples}) == len(samples)
    for sample in samples:
        require_possible(sample)
    parts = parts_of(samples)
    assert all(0.0 <= part <= 1.0 for part in parts.values())


@given(st.binary(max_size=300))
def test_pages_of_any_bytes(body: bytes) -> None:
    with contextlib.suppress(ValueError):
        dcgm_samples(body, at_s=0.0)


@given(st.fixed_dictionaries({name: st.none() | FLOATS for name in RATIOS}), FLOATS, FLOATS)
def test_what_is_checked_is_possible(ratios: dict[str, Any], rate: float, most: float) -> None:
    sample = GpuSample(
        gpu=GpuId(),
        at_s=0.0,
        nvlink_tx_bytes_per_s=rate,
        nvlink_bytes_per_s_max=most,
        power_w=rate,
        power_limit_w=most,
        **ratios,
    )
    require_possible(checked(sample))


@given(st.text(max_size=400))
def test_any_text_as_control_groups(text: str) -> None:
    found = binding_of(cgroup_lines(text))
    assert len(found.container_id) in (0, 64)


@given(st.text(max_size=40), st.none() | st.integers(0, 2**45))
def test_any_text_as_a_name_or_profile(text: str, memory_bytes: int | None) -> None:
    gpu_of_driver(text, memory_total_bytes=memory_bytes)
    part = mig_part(text, memory_total_bytes=memory_bytes)
    assert part is None or 0.0 < part.dominant_ratio <= 1.0


@given(st.none() | FLOATS)
def test_any_number_as_a_mask(mask: float | None) -> None:
    found = reasons_of(mask)
    assert found is None or len(found) <= 11


@given(
    st.lists(
        st.none() | st.builds(GpuPart, st.floats(0.01, 1), st.none() | st.floats(0.01, 1)),
        max_size=12,
    )
)
def test_nobody_pays_for_more_than_the_gpu(parts: list[GpuPart | None]) -> None:
    ratios = capacity_ratios(parts)
    assert len(ratios) == len(parts)
    assert all(0.0 <= ratio <= 1.0 for ratio in ratios)
    assert sum(ratios) <= 1.0 + 1e-9


@given(st.lists(st.tuples(st.none() | FLOATS, st.floats(0, 100)), max_size=20))
def test_rates_are_never_negative(totals: list[tuple[float | None, float]]) -> None:
    rates = CounterRates()
    for total, at_s in totals:
        rate = rates.rate("x", total, at_s)
        assert rate is None or rate >= 0.0


@given(
    st.lists(st.fixed_dictionaries(dict.fromkeys(RATIOS, RATIO)), max_size=40),
    st.fixed_dictionaries(
        {"thread_max_ratio": RATIO, "throttled_ratio": RATIO, "pressure_cpu_ratio": RATIO}
    ),
    st.sampled_from([{}, {"running": 3, "waiting": 0, "itl_s": 0.1}]),
    st.booleans(),
)
def test_a_verdict_that_holds_is_borne_out_by_its_evidence(
    looks: list[dict[str, Any]], host: dict[str, Any], load: dict[str, Any], links: bool
) -> None:
    maxima: dict[str, Any] = {"nvlink_bytes_per_s_max": 1.0, "nvlink_tx_bytes_per_s": 0.1}
    samples = tuple(
        GpuSample(gpu=GpuId(), at_s=i / 10, **ratios, **(maxima if links else {}))
        for i, ratios in enumerate(looks)
    )
    telemetry = Telemetry(
        samples=samples,
        hosts=tuple(HostMoment(at_s=s.at_s, **host) for s in samples),
        loads=tuple(LoadMoment(at_s=s.at_s, **load) for s in samples),
    )
    result = bottleneck(telemetry, BottleneckConfig())
    for gpu in result.gpus:
        assert (gpu.outcome == "bound") == bool(gpu.bound)
        for verdict in gpu.verdicts:
            assert (verdict.held is None) <= bool(verdict.unknown or verdict.notes)
            assert verdict.samples <= len(samples)
            if verdict.held:
                assert verdict.confidence is not None
                assert verdict.evidence
                assert all(e.met_ratio is None or e.met_ratio > 0.0 for e in verdict.evidence)


@given(st.lists(st.fixed_dictionaries(dict.fromkeys(RATIOS, RATIO)), max_size=40))
def test_weights_sum_to_1(looks: list[dict[str, Any]]) -> None:
    samples = [GpuSample(gpu=GpuId(), at_s=0.0, **ratios) for ratios in looks]
    weights = measured_weights(samples)
    if weights is not None:
        parts = weights.compute_ratio, weights.memory_ratio, weights.interconnect_ratio
        assert all(part >= 0.0 for part in parts)
        assert abs(sum(parts) - 1.0) < 1e-9
