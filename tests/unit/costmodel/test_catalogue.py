"""The catalogue: every entry is found by each of its names, and its figures are plausible."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.costmodel.architecture import Architecture
from mileage.costmodel.architecture_table import ARCHITECTURES
from mileage.costmodel.catalogue import GPUS, architecture, gpu
from mileage.costmodel.gpu import Gpu


@pytest.mark.parametrize("model", ARCHITECTURES, ids=lambda each: each.name)
def test_the_shape_has_as_many_parameters_as_was_published(model: Architecture) -> None:
    assert model.parameters_b is not None
    assert model.parameters / 1e9 == pytest.approx(model.parameters_b, rel=0.005)
    if model.active_b is not None:
        assert model.active_parameters / 1e9 == pytest.approx(model.active_b, rel=0.02)


@pytest.mark.parametrize("model", ARCHITECTURES, ids=lambda each: each.name)
def test_a_model_is_found_by_each_of_its_names(model: Architecture) -> None:
    for name in (model.name, model.name.split("/")[-1], model.name.upper(), *model.aliases):
        assert architecture(name) is model


@pytest.mark.parametrize("each", GPUS, ids=lambda each: each.name)
def test_a_gpu_is_found_by_each_of_its_names_and_tells_its_source(each: Gpu) -> None:
    for name in (each.name, each.name.lower().replace("-", " "), *each.aliases):
        assert gpu(name) is each
    assert each.source
    assert set(each.unverified) <= set(each.__struct_fields__)


@pytest.mark.parametrize("each", GPUS, ids=lambda each: each.name)
def test_figures_of_a_gpu_are_plausible(each: Gpu) -> None:
    flops_per_byte = each.half_tflops * 1e3 / each.bandwidth_gb_per_s
    assert 30 < flops_per_byte < 450
    assert 0.9 < each.memory_bytes / (each.memory_gb * 2**30) <= 1.0 + 2e-2
    for faster in (each.fp8_tflops, each.int8_tops):
        assert faster is None or 1.9 < faster / each.half_tflops < 4.1
    assert each.nvlink_gb_per_s is None or each.nvlink_gb_per_s > each.pcie_gb_per_s


def test_the_catalogue_has_the_gpus_that_people_have() -> None:
    assert len(GPUS) >= 33
    assert gpu("h100").name == "H100-SXM5-80GB"
    assert gpu("a100-80gb").name == "A100-80GB-SXM4"
    assert gpu("NVIDIA A10").name == "A10"


def test_an_unknown_gpu_is_told_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match=r"gpu: got 'h201'.*nearest: .*H200-SXM-141GB"):
        gpu("h201")


def test_an_unknown_model_is_told_with_the_nearest_names() -> None:
    with pytest.raises(ConfigError, match=r"model: got 'qwen3-33b'.*Qwen/Qwen3-32B"):
        architecture("qwen3-33b")
