"""What hardware could reach: closed forms, the cost model as an oracle, and what is not known."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mileage.costmodel.catalogue import architecture, gpu
from mileage.costmodel.layout import Layout
from mileage.costmodel.memory import kv_blocks
from mileage.doctor.evidence import Evidence
from mileage.doctor.facts import decode_facts
from mileage.doctor.interval import ANY, Interval, exactly
from mileage.doctor.machine import BANDWIDTH_REACHED, COMPUTE_REACHED, GIB, Machine


def machine(**facts: Any) -> Machine:
    return Machine(Evidence(decode_facts(facts)))


@pytest.mark.parametrize(
    ("hardware", "name"),
    [
        pytest.param({"gpu": "H100"}, "H100-SXM5-80GB", id="a short name"),
        pytest.param({"gpu": "NVIDIA H100 80GB HBM3"}, "H100-SXM5-80GB", id="the driver's name"),
        pytest.param(
            {"gpu": "A100", "memory_gb": 40}, "A100-40GB-SXM4", id="the memory tells the variant"
        ),
        pytest.param({"gpu": "A100-40G"}, "A100-40GB-SXM4", id="a size without its B"),
        pytest.param({"gpu": "MTT S5000"}, None, id="not in the catalogue"),
        pytest.param({"count": 2}, None, id="not said"),
    ],
)
def test_the_card(hardware: dict[str, Any], name: str | None) -> None:
    found = machine(hardware=hardware).gpu
    assert (found.name if found is not None else None) == name


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        pytest.param({"params_b": 7}, exactly(7), id="as stated"),
        pytest.param({"params_b": {"min": 7}}, Interval(7, inf), id="a bound"),
        pytest.param({"name": "my-finetune-13b-chat"}, exactly(13), id="by the name"),
        pytest.param({"name": "Thing-30B-A3B"}, exactly(30), id="the active part is not the size"),
        pytest.param({"name": "Thing-8x7B"}, ANY, id="experts times size is no size"),
        pytest.param({"name": "thing-70b-draft-1b"}, ANY, id="two sizes"),
        pytest.param({"name": "thing"}, ANY, id="none"),
    ],
)
def test_parameters(model: dict[str, Any], parameters: Interval) -> None:
    assert machine(model=model).parameters_b == parameters


def test_a_known_architecture_tells_its_size_whatever_its_format() -> None:
    exact = machine(model={"name": "Llama-3.1-8B"}).parameters_b
    quantised = machine(model={"name": "Llama-3.1-8B-AWQ"}).parameters_b
    assert exact == quantised == exactly(architecture("Llama-3.1-8B").parameters / 1e9)


@pytest.mark.parametrize(
    ("facts", "gib"),
    [
        pytest.param({"model": {"weights_gib": 15}}, exactly(15), id="as stated"),
        pytest.param(
            {"model": {"params_b": 8, "dtype": "bf16"}}, exactly(16e9 / GIB), id="16 bits"
        ),
        pytest.param(
            {"model": {"params_b": 8, "dtype": "fp8"}},
            Interval(8e9 / GIB, 8.8e9 / GIB),
            id="8 bits and scales",
        ),
        pytest.param(
            {"model": {"params_b": 8}, "settings": {"quantization": "gptq_marlin"}},
            Interval(4e9 / GIB, 5.2e9 / GIB),
            id="4 bits by the method",
        ),
        pytest.param(
            {"model": {"params_b": 8, "name": "x-8B-GPTQ-Int8"}},
            Interval(8e9 / GIB, 8.8e9 / GIB),
            id="bits before the method",
        ),
        pytest.param({"model": {"params_b": 8}}, Interval(4e9 / GIB, 16e9 / GIB), id="no format"),
        pytest.param({"model": {"dtype": "bf16"}}, ANY, id="no size"),
    ],
)
def test_weights(facts: dict[str, Any], gib: Interval) -> None:
    found = machine(**facts).weights_gib
    assert found.low == pytest.approx(gib.low)
    assert found.high == pytest.approx(gib.high)


@pytest.mark.parametrize(
    ("facts", "gpus"),
    [
        pytest.param({"settings": {"tensor_parallel_size": 4}}, exactly(4), id="width alone"),
        pytest.param(
            {"settings": {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}},
            exactly(8),
            id="width and stages",
        ),
        pytest.param({"hardware": {"count": 8}}, exactly(8), id="all cards"),
        pytest.param(
            {"hardware": {"count": 8}, "settings": {"data_parallel_size": 4}},
            exactly(2),
            id="all cards over ranks",
        ),
        pytest.param({}, ANY, id="not known"),
    ],
)
def test_cards_of_a_replica(facts: dict[str, Any], gpus: Interval) -> None:
    assert machine(**facts).gpus_per_replica == gpus


@pytest.mark.parametrize(
    ("params_b", "width", "fit"),
    [
        pytest.param(70, 1, False, id="140 GB on one card of 80 GB"),
        pytest.param(70, 2, True, id="on two"),
        pytest.param({"min": 30, "max": 60}, 1, None, id="it depends"),
    ],
)
def test_do_weights_fit(params_b: Any, width: int, fit: bool | None) -> None:
    found = machine(
        model={"params_b": params_b, "dtype": "bf16"},
        hardware={"gpu": "H100"},
        settings={"tensor_parallel_size": width},
    )
    assert found.weights_fit is fit


ON_H100 = {"hardware": {"gpu": "H100"}, "settings": {"tensor_parallel_size": 2}}


def test_a_decode_step_reads_the_active_weights_once() -> None:
    card = gpu("H100")
    model = {"params_b": 30, "active_params_b": 3, "dtype": "bf16"}
    step = machine(model=model, **ON_H100).decode_step_s
    seconds = 6e9 / (2 * card.bandwidth_gb_per_s * 1e9)
    assert step.low == pytest.approx(seconds / BANDWIDTH_REACHED.high)
    assert step.high == pytest.approx(seconds / BANDWIDTH_REACHED.low)


def test_output_is_a_token_of_each_running_request_a_step() -> None:
    found = machine(
        model={"params_b": 8, "dtype": "bf16"}, signals={"requests_running": 10}, **ON_H100
    )
    step, rate = found.decode_step_s, found.decode_tokens_per_s
    assert rate.low == pytest.approx(10 / step.high)
    assert rate.high == pytest.approx(10 / step.low)


def test_prefill_takes_two_operations_per_active_weight_and_token() -> None:
    rate = machine(model={"params_b": 8}, **ON_H100).prefill_tokens_per_s
    peak = 2 * gpu("H100").half_tflops * 1e12 / (2 * 8e9)
    assert rate.low == pytest.approx(peak * COMPUTE_REACHED.low)
    assert rate.high == pytest.approx(peak * COMPUTE_REACHED.high)


def test_the_ridge_is_the_rate_over_the_bandwidth() -> None:
    card = gpu("A100")
    ridge = machine(hardware={"gpu": "A100"}).ridge_requests
    assert ridge.exact
    assert ridge.low == pytest.approx(card.half_tflops * 1e3 / card.bandwidth_gb_per_s)


def test_bytes_of_a_token_are_those_of_all_layers() -> None:
    model = architecture("Llama-3.1-8B")
    per_layer = 2 * model.kv_heads * model.head_dim

    def per_token(**settings: Any) -> Interval:
        return machine(model={"name": "Llama-3.1-8B"}, settings=settings).kv_bytes_per_token

    assert per_token(kv_cache_dtype="auto") == exactly(2.0 * model.layers * per_layer)
    assert per_token(kv_cache_dtype="fp8_e4m3").low == 1.0 * model.layers * per_layer
    assert per_token() == Interval(1.0 * model.layers * per_layer, 2.0 * model.layers * per_layer)


@pytest.mark.parametrize(
    ("model", "card", "width", "weights"),
    [
        pytest.param("Llama-3.1-8B", "H100", 1, "bf16", id="8B on one card"),
        pytest.param("Llama-3.1-70B", "H100", 4, "bf16", id="70B on four"),
        pytest.param("Qwen2.5-7B", "L40S", 1, "fp8", id="7B in 8 bits"),
        pytest.param("Qwen3-30B-A3B", "A100-80GB-SXM4", 8, "bf16", id="four heads on eight cards"),
        pytest.param("DeepSeek-V3", "H200", 8, "fp8", id="MLA: every card keeps all"),
    ],
)
def test_the_cache_holds_what_the_cost_model_says(
    model: str, card: str, width: int, weights: Any
) -> None:
    layout = Layout(
        model=architecture(model), gpu=gpu(card), tensor_parallel=width, weights=weights
    )
    tokens = 16 * kv_blocks(layout, 16, 8192, 256)
    room = machine(
        model={"name": model, "dtype": weights},
        hardware={"gpu": card},
        settings={
            "tensor_parallel_size": width,
            "gpu_memory_utilization": 0.9,
            "kv_cache_dtype": "auto",
        },
    ).kv_capacity_tokens
    assert room.low <= tokens <= room.high, room.shown()


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({}, id="nothing"),
        pytest.param({"hardware": {"gpu": "H100", "count": 1}}, id="no model"),
        pytest.param({"model": {"name": "Llama-3.1-8B"}}, id="no card"),
        pytest.param(
            {"model": {"params_b": 0}, "hardware": {"gpu": "H100", "count": 0}}, id="zeros"
        ),
    ],
)
def test_what_is_not_known_has_no_bounds(facts: dict[str, Any]) -> None:
    found = machine(**facts)
    assert found.decode_tokens_per_s == ANY
    assert found.prefill_tokens_per_s == ANY
    assert found.kv_capacity_tokens == ANY
    assert found.weights_fit is None or facts["model"]["params_b"] == 0


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "params_b": st.floats(0, 1e12),
            "active_params_b": st.floats(0, 1e12),
            "weights_gib": st.floats(0, 1e12),
            "name": st.sampled_from(("Llama-3.1-8B", "DeepSeek-V3", "x-7b", "")),
            "dtype": st.sampled_from(("bf16", "int4", "fp8", "?")),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "gpu": st.sampled_from(("H100", "T4", "?", "")),
            "memory_gb": st.floats(0, 1e12),
            "count": st.floats(0, 1e6),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "tensor_parallel_size": st.floats(0, 1e6) | st.none(),
            "gpu_memory_utilization": st.floats(0, 1),
        },
    ),
)
def test_every_figure_is_an_interval_of_numbers(
    model: dict[str, Any], hardware: dict[str, Any], settings: dict[str, Any]
) -> None:
    found = machine(
        model=model, hardware=hardware, settings=settings, signals={"requests_running": 3}
    )
    for figure in (
        found.weights_gib_per_gpu,
        found.decode_step_s,
        found.decode_tokens_per_s,
        found.prefill_tokens_per_s,
        found.kv_bytes_per_token,
        found.kv_capacity_tokens,
        found.memory_gb,
    ):
        assert figure.low <= figure.high
