"""Whatever a Prometheus answers or an exporter shows: facts that decode, or a ValueError."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from mileage.cli.doctor_prometheus import recorded_facts
from mileage.doctor.collect.merge_facts import merge_facts
from mileage.doctor.collect.prometheus_answers import PromSeries, matrix_of
from mileage.doctor.collect.prometheus_cluster import CLUSTER_NAMES
from mileage.doctor.facts import decode_facts
from mileage.scrape.doctor_gpu import dcgm_limits
from mileage.scrape.doctor_prometheus import Recorded

NAMES = (
    *CLUSTER_NAMES,
    *("vllm:num_requests_running", "vllm:generation_tokens_total", "vllm:cache_config_info"),
    *("vllm:time_to_first_token_seconds_bucket", "sglang:num_running_reqs", "nv_inference_count"),
    *("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_PROF_SM_ACTIVE", "DCGM_FI_DEV_FB_USED"),
    *("DCGM_FI_DEV_XID_ERRORS", "DCGM_FI_DEV_SLOWDOWN_TEMP", "process_start_time_seconds"),
)
LABELS = (
    *("pod", "container", "namespace", "instance", "exported_pod", "gpu", "UUID", "le", "phase"),
    *("resource", "horizontalpodautoscaler", "GPU_I_ID", "engine", "model_name", "finished"),
)
numbers = st.one_of(
    st.floats().map(str), st.integers(0, 100).map(str), st.sampled_from(("NaN", "+Inf", "", "x"))
)
labels = st.dictionaries(
    st.sampled_from(LABELS), st.one_of(st.text(max_size=5), st.integers(0, 2).map(str)), max_size=4
)


@st.composite
def series(draw: st.DrawFn) -> PromSeries:
    times = sorted(draw(st.lists(st.integers(0, 5), max_size=5, unique=True)))
    own = {**draw(labels), "__name__": draw(st.sampled_from(NAMES))}
    return PromSeries(own, [(float(at_s), draw(numbers)) for at_s in times])


@settings(max_examples=150, deadline=None)
@given(st.lists(series(), max_size=8))
def test_any_series_are_facts_that_decode(found: list[PromSeries]) -> None:
    parts = recorded_facts(Recorded(engines=found, gpus=found, cluster=found, notes={}))
    for part in parts:
        decode_facts(json.loads(json.dumps(part.document)))
    decode_facts(merge_facts(parts).document)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.sampled_from(("status", "data", "result", "metric", "values", "error")),
            inner,
            max_size=4,
        ),
    ),
    max_leaves=20,
)


@given(json_values)
def test_any_answer_is_series_or_an_error(answer: Any) -> None:
    with contextlib.suppress(ValueError):
        matrix_of(json.dumps(answer).encode())


@given(st.binary(max_size=200), st.sampled_from(NAMES), numbers)
def test_any_page_has_limits_or_none(noise: bytes, name: str, value: str) -> None:
    dcgm_limits(noise + f'\n{name}{{gpu="0"}} {value}\n'.encode() + noise)
