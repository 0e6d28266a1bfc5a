"""Who pays for which part of a shared GPU."""

from __future__ import annotations

import pytest

from mileage.measure.gpu_sample import GpuId, GpuOwner, GpuSample, Sharing
from mileage.measure.gpu_sharing import GpuPart, capacity_ratios, mig_part, parts_of

GIB = 2**30


@pytest.mark.parametrize(
    ("profile", "model", "total_gib", "part"),
    [
        pytest.param("3g.40gb", "NVIDIA A100-SXM4-80GB", 80, GpuPart(3 / 7, 0.5), id="A100"),
        pytest.param("1g.10gb", "NVIDIA H100 80GB HBM3", 79.6, GpuPart(1 / 7, 1 / 8), id="H100"),
        pytest.param("1g.10gb+me", None, 79.6, GpuPart(1 / 7, 1 / 8), id="with media engines"),
        pytest.param("1c.3g.40gb", None, None, GpuPart(3 / 7), id="a compute instance, no size"),
        pytest.param("1g.6gb", "NVIDIA A30", 24, GpuPart(0.25, 0.25), id="A30 has four slices"),
        pytest.param("7g.80gb", None, 79.6, GpuPart(1.0, 1.0), id="the whole"),
        pytest.param("1g.18gb", "NVIDIA H200", 139.8, GpuPart(1 / 7, 1 / 8), id="H200"),
        pytest.param("", None, 80, None, id="no profile"),
        pytest.param("0g.0gb", None, 80, None, id="nonsense"),
    ],
)
def test_the_part_of_a_profile(
    profile: str, model: str | None, total_gib: float | None, part: GpuPart | None
) -> None:
    total = None if total_gib is None else int(total_gib * GIB)
    assert mig_part(profile, model=model, memory_total_bytes=total) == part


@pytest.mark.parametrize(
    ("parts", "ratios"),
    [
        pytest.param([], (), id="nobody"),
        pytest.param([GpuPart(3 / 7, 0.5)] * 2, (0.5, 0.5), id="memory decides"),
        pytest.param([GpuPart(1 / 7, 1 / 8)], (1 / 7,), id="the rest is nobody's"),
        pytest.param([None] * 4, (0.25,) * 4, id="time-slicing: alike"),
        pytest.param([GpuPart(0.5), None, None], (0.5, 0.25, 0.25), id="what is left, alike"),
        pytest.param(
            [GpuPart(4 / 7, 0.5), GpuPart(3 / 7, 0.5)],
            (4 / 7.5, 3.5 / 7.5),
            id="more than the GPU: scaled",
        ),
    ],
)
def test_what_each_sharer_pays_for(parts: list[GpuPart | None], ratios: tuple[float, ...]) -> None:
    assert capacity_ratios(parts) == pytest.approx(ratios)


def test_parts_by_their_names() -> None:
    whole = GpuId(uuid="GPU-a", number="0")
    mig = [
        GpuSample(
            gpu=GpuId(uuid="GPU-a", number="0", instance=str(i)),
            at_s=0.0,
            sharing=Sharing("mig", profile="3g.40gb"),
        )
        for i in (1, 2)
    ]
    sliced = GpuSample(
        gpu=GpuId(number="1"),
        at_s=0.0,
        sharing=Sharing("time_slicing", 2),
        owners=(GpuOwner("n", "a", "c"), GpuOwner("n", "b", "c")),
    )
    total = GpuSample(gpu=whole, at_s=0.0, memory_total_bytes=80 * GIB)
    assert parts_of([total, *mig, sliced]) == {
        "0/1": 0.5,
        "0/2": 0.5,
        "1 n/a/c": 0.5,
        "1 n/b/c": 0.5,
    }
