"""Where an engine's GPUs are looked at: what is taken, resolved, and refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.engines.config import EngineConfig
from mileage.engines.remote import resolve


def engine(**fields: Any) -> EngineConfig:
    return EngineConfig(kind="vllm", url="http://gpu-1:8000", name="big", **fields)


@pytest.mark.parametrize(
    ("url", "resolved"),
    [
        pytest.param("http://gpu-1:9400", "http://gpu-1:9400/metrics", id="the usual page"),
        pytest.param("http://gpu-1:9400/x?y=1", "http://gpu-1:9400/x?y=1", id="another page"),
        pytest.param("http://a:b@gpu-1:9400", "http://a:b@gpu-1:9400/metrics", id="a password"),
    ],
)
def test_the_exporters_page(url: str, resolved: str) -> None:
    remote = resolve(engine(dcgm_url=url, gpu_ids=("0", "GPU-5a/3")), {})
    assert (remote.dcgm_url, remote.gpu_ids, remote.nvml) == (resolved, ("0", "GPU-5a/3"), False)


def test_by_default_nobody_is_asked() -> None:
    remote = resolve(engine(), {})
    assert (remote.dcgm_url, remote.gpu_ids, remote.nvml) == (None, (), False)


@pytest.mark.parametrize(
    ("fields", "key", "part"),
    [
        pytest.param({"dcgm_url": "http://a", "nvml": True}, "engines.nvml", "one source",
                     id="two sources"),
        pytest.param({"gpu_ids": ("0",)}, "engines.gpu_ids", "dcgm_url or nvml", id="no source"),
        pytest.param({"nvml": True, "gpu_ids": ("all",)}, "engines.gpu_ids", "an index",
                     id="a word"),
        pytest.param({"nvml": True, "gpu_ids": ("-1",)}, "engines.gpu_ids", "an index",
                     id="a negative index"),
        pytest.param({"nvml": True, "gpu_ids": ("0/",)}, "engines.gpu_ids", "an index",
                     id="no instance"),
        pytest.param({"nvml": True, "gpu_ids": ("\u0663",)}, "engines.gpu_ids", "an index",
                     id="a digit of another script"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_by_name(fields: dict[str, Any], key: str, part: str) -> None:
    with pytest.raises(ConfigError, match=r"engine big") as refused:
        engine(**fields)
    assert refused.value.key == key
    assert part in refused.value.expected


def test_a_bad_page_is_refused_without_its_password() -> None:
    with pytest.raises(ConfigError, match="engine big") as refused:
        resolve(engine(dcgm_url="ftp://user:secret@gpu-1:9400"), {})
    assert refused.value.key == "engines.dcgm_url"
    assert "secret" not in str(refused.value)


def test_unknown_types_are_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"kind": "vllm", "url": "http://a", "gpu_ids": [0]}, EngineConfig)
