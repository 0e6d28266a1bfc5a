"""Pages of DCGM exporters: which GPUs count, what is no figure, and the failure that reads 0."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from mileage.core.errors import EngineError
from mileage.scrape.busy import busy_source
from mileage.scrape.target import PollTarget
from mileage.wire.fetch import FetchResponse


def sm_active(page: bytes, gpu_ids: tuple[str, ...] = (), *, status: int = 200) -> float | None:
    """What the replica's source tells of an exporter with this page."""

    async def fetch(url: str, **options: Any) -> FetchResponse:
        return FetchResponse(status, (), page)

    target = PollTarget(
        kind="vllm",
        name="a",
        url="http://a",
        health_urls=("http://a/health",),
        models_url="http://a/v1/models",
        dcgm_url="http://node:9400/metrics",
        gpu_ids=gpu_ids,
    )
    source = busy_source(target, fetch)
    assert source is not None
    return asyncio.run(source.read())


def series(name: str, value: str, **labels: str) -> str:
    inside = ",".join(f'{key}="{text}"' for key, text in labels.items())
    return f"{name}{{{inside}}} {value}\n"


def gpu(index: int, active: str, util: str | None = None, **labels: str) -> str:
    labels = {"gpu": str(index), "UUID": f"GPU-{index}", "Hostname": "a"} | labels
    page = series("DCGM_FI_PROF_SM_ACTIVE", active, **labels)
    return page + (series("DCGM_FI_DEV_GPU_UTIL", util, **labels) if util is not None else "")


NOTHING = r"has no figure .* of a GPU"
BLANK = "has no DCGM_FI_PROF_SM_ACTIVE of GPU a:0: blank, or not in the exporter's list"
THREE = gpu(0, "0.2") + gpu(1, "0.6") + gpu(2, "1.0")
MIG = "".join(
    gpu(g, value, GPU_I_PROFILE="1g.6gb", GPU_I_ID=instance)
    for g, instance, value in ((0, "3", "0.1"), (0, "4", "0.3"), (1, "3", "0.9"))
)


@pytest.mark.parametrize(
    ("page", "gpu_ids", "ratio"),
    [
        pytest.param(THREE, (), 0.6, id="all"),
        pytest.param(THREE, ("1",), 0.6, id="one, by its index"),
        pytest.param(THREE, ("GPU-0",), 0.2, id="one, by its UUID"),
        pytest.param(THREE, ("0", "GPU-2"), 0.6, id="two"),
        pytest.param(THREE, ("0", "GPU-0", "0"), 0.2, id="one named twice"),
        pytest.param(MIG, (), (0.1 + 0.3 + 0.9) / 3, id="all MIG instances"),
        pytest.param(MIG, ("0",), 0.2, id="all MIG instances of a GPU"),
        pytest.param(MIG, ("0/4",), 0.3, id="a MIG instance"),
        pytest.param(MIG, ("GPU-1/3",), 0.9, id="a MIG instance, by the GPU's UUID"),
        pytest.param(MIG + gpu(0, "0.25"), ("0",), 0.25, id="the whole and its instances"),
        pytest.param(
            gpu(0, "0.5", pod="x") + gpu(0, "0.5", pod="y") + gpu(1, "0.1"), (), 0.3,
            id="a GPU that two pods share",
        ),
        pytest.param(
            gpu(0, "NaN", pod="x") + gpu(0, "0.5", pod="y"), (), 0.5,
            id="a GPU that two pods share, one of which has a blank",
        ),
        pytest.param(
            series("dcgm_fi_prof_sm_active", "0.4", gpu="0", uuid="GPU-x"), ("GPU-x",), 0.4,
            id="names that a relay has rewritten",
        ),
        pytest.param(gpu(0, "0", "0"), (), 0.0, id="idle"),
        pytest.param(gpu(0, "0", "98"), (), 0.0, id="idle since a moment ago"),
        pytest.param(gpu(0, "0"), (), 0.0, id="0, and nothing that contradicts"),
        pytest.param(gpu(0, "0.004", "100"), (), 0.004, id="small kernels all the time"),
        pytest.param(gpu(0, "1.0000001"), (), 1.0, id="a rounding error above 1"),
    ],
)  # fmt: skip
def test_the_mean_over_the_gpus(page: str, gpu_ids: tuple[str, ...], ratio: float) -> None:
    assert sm_active(page.encode(), gpu_ids) == pytest.approx(ratio)


@pytest.mark.parametrize(
    ("page", "gpu_ids", "reason"),
    [
        pytest.param("", (), NOTHING, id="nothing"),
        pytest.param(
            series("DCGM_FI_DEV_GPU_UTIL", "55", gpu="0"), (), "has no DCGM_FI_PROF_SM_ACTIVE",
            id="GPU_UTIL is no substitute",
        ),
        pytest.param(
            series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "0.5", gpu="0"), (), NOTHING,
            id="neither is GR_ENGINE_ACTIVE",
        ),
        pytest.param(THREE, ("3",), "has no GPU 3; it has a:0, a:1, a:2",
                     id="a GPU that is not there"),
        pytest.param(THREE, ("0/1",), "has no GPU 0/1", id="an instance that is not there"),
        pytest.param(
            THREE + gpu(0, "0.1", UUID="GPU-9", Hostname="b"), ("0",), "of several machines",
            id="an index that two machines have",
        ),
        pytest.param(gpu(0, "0", "100"), (), "0 while gpu_util_ratio is 1.00: .*dcgmi",
                     id="profiling has stopped"),
        pytest.param(gpu(0, "0.000", "99") + gpu(1, "0.9", "99"), (), "of GPU a:0: 0 while",
                     id="profiling has stopped for one"),
        pytest.param(gpu(0, "9223372036854775794"), (), BLANK, id="DCGM's blank"),
        pytest.param(gpu(0, "140737488355328.0"), (), BLANK, id="the float's blank"),
        pytest.param(gpu(0, "NaN"), (), BLANK, id="NaN"),
        pytest.param(gpu(0, "-0.1"), (), BLANK, id="negative"),
        pytest.param(gpu(0, "91"), (), "91 is no share", id="a percentage"),
        pytest.param(gpu(0, "0.5") + gpu(1, "NaN"), (), BLANK.replace("a:0", "a:1"),
                     id="a part is missing"),
        pytest.param("<html>\n" * 20_000, (), "no usable page", id="no exporter at all"),
    ],
)  # fmt: skip
def test_what_is_not_known_is_not_0(page: str, gpu_ids: tuple[str, ...], reason: str) -> None:
    with pytest.raises(EngineError, match=reason):
        sm_active(page.encode(), gpu_ids)


def test_a_gpu_beside_the_chosen_ones_may_say_what_it_likes() -> None:
    page = THREE + gpu(3, "NaN") + gpu(4, "0", "100")
    assert sm_active(page.encode(), ("0",)) == 0.2


def test_an_exporter_that_fails_is_named() -> None:
    with pytest.raises(EngineError, match=r"node:9400.* answered 503"):
        sm_active(THREE.encode(), status=503)


def test_instances_count_where_their_gpu_tells_nothing_of_its_own() -> None:
    whole = series("DCGM_FI_DEV_GPU_UTIL", "55", gpu="0", UUID="GPU-0", Hostname="a")
    assert sm_active((whole + MIG).encode(), ("0",)) == pytest.approx(0.2)


def test_a_real_page_without_profiling_says_what_is_missing(data_dir: Path) -> None:
    page = (data_dir / "metrics" / "dcgm_t4_datadog_fixture.txt").read_bytes()
    with pytest.raises(EngineError, match="has no DCGM_FI_PROF_SM_ACTIVE"):
        sm_active(page)


def test_a_real_page_of_mig_instances(data_dir: Path) -> None:
    page = (data_dir / "metrics" / "dcgm_mig_a30_issue317.txt").read_bytes()
    page = page.replace(b"PIPE_TENSOR_ACTIVE", b"SM_ACTIVE")  # the same labels
    assert sm_active(page) == 0.0
    assert sm_active(page, ("GPU-a1/6", "0")) == 0.0
    with pytest.raises(EngineError, match="has no GPU 1/7"):
        sm_active(page, ("1/7",))
