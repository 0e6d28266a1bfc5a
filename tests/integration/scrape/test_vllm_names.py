"""The names that we read first are the ones that the installed vLLM exports."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mileage.measure.engine_aliases import ALIASES
from mileage.measure.page_expressions import Binary, Label


@pytest.fixture(scope="module")
def vllm_package(vllm_python: Path) -> Path:
    """The directory of the installed vLLM."""
    (package,) = vllm_python.parent.parent.glob("lib/python3.*/site-packages/vllm")
    return package


def test_vllm_exports_what_is_read_first(vllm_package: Path) -> None:
    source = (vllm_package / "v1" / "metrics" / "loggers.py").read_text("utf-8")
    exported = set(re.findall(r'"(vllm:\w+)"', source))
    first = {
        name.removesuffix("_total")  # the client library adds it to counters
        for figure, expressions in ALIASES["vllm"].items()
        if figure != "prefix_cache_hit_ratio"  # V0 had it, V1 has counters
        for name in expressions[0].names()
    }
    assert len(first) == 9
    assert first <= exported


def test_vllm_tells_the_size_of_its_cache_in_these_labels(vllm_package: Path) -> None:
    source = (vllm_package / "config" / "cache.py").read_text("utf-8")
    fields = set(re.findall(r"^    (\w+): ", source, re.MULTILINE))
    size, product = ALIASES["vllm"]["kv_tokens_max"]
    assert isinstance(product, Binary)
    for label in (size, product.left, product.right):
        assert isinstance(label, Label)
        assert label.label in fields
