"""GPUs by their driver's name: the catalogue's entry, and none where that would be a guess."""

from __future__ import annotations

import pytest

from mileage.costmodel.gpu_names import gpu_of_driver, link_maxima

GIB = 2**30


@pytest.mark.parametrize(
    ("driver", "name"),
    [
        ("NVIDIA H100 80GB HBM3", "H100-SXM5-80GB"),
        ("NVIDIA H100 PCIe", "H100-PCIe-80GB"),
        ("NVIDIA H100 NVL", "H100-NVL-94GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-80GB-SXM4"),
        ("NVIDIA A100-SXM4-40GB", "A100-40GB-SXM4"),
        ("NVIDIA A100 80GB PCIe", "A100-80GB-PCIe"),
        ("NVIDIA A30", "A30"),
        ("NVIDIA L4", "L4"),
        ("NVIDIA L40S", "L40S"),
        ("NVIDIA L40", "L40"),
        ("Tesla T4", "T4"),
        ("Tesla V100-SXM2-32GB", "V100-SXM2-32GB"),
        ("NVIDIA H200", "H200-SXM-141GB"),
        ("NVIDIA GeForce RTX 4090", "RTX-4090"),
        ("NVIDIA RTX A6000", "RTX-A6000"),
        ("AMD Instinct MI300X", "MI300X"),
        ("A100 40G SXM4", "A100-40GB-SXM4"),
        ("H100 80 GB SXM5", "H100-SXM5-80GB"),
    ],
)
def test_names_of_drivers(driver: str, name: str) -> None:
    found = gpu_of_driver(driver)
    assert found is not None
    assert found.name == name


@pytest.mark.parametrize("driver", ["", "NVIDIA", "NVIDIA H200 NVL", "Tesla V100-SXM2-16GB", "x9"])
def test_what_is_not_in_the_catalogue_is_not_guessed(driver: str) -> None:
    assert gpu_of_driver(driver, memory_total_bytes=16 * GIB) is None


def test_links_are_told_in_one_direction_and_0_where_there_are_none() -> None:
    assert link_maxima(gpu_of_driver("NVIDIA H100 80GB HBM3")) == (450e9, 63e9)
    assert link_maxima(gpu_of_driver("Tesla T4")) == (0.0, 15.8e9)
    assert link_maxima(None) == (None, None)
