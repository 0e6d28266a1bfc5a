"""Triton's model repository as settings, and the text format it is written in."""

from __future__ import annotations

import pytest

from mileage.core.errors import ConfigError
from mileage.doctor.collect.protobuf_text import parse_message
from mileage.doctor.collect.triton_config import (
    repository_models,
    triton_config_facts,
    triton_model,
    triton_parts,
)
from tests.support.engine_pages import checked

ENSEMBLE = """
name: "front"  # what clients call
platform: "ensemble"
max_batch_size: 64
ensemble_scheduling {
  step [
    { model_name: "a" model_version: -1 input_map { key: "IN" value: "in" } },
    { model_name: "b", model_version: -1; },
    { model_name: "c" model_version: -1 }
  ]
}
"""
ENGINE = """
backend: "tensorrtllm"
max_batch_size: 32
model_transaction_policy { decoupled: true }
dynamic_batching { preferred_batch_size: [ 8, 16 ] max_queue_delay_microseconds: 1000 }
instance_group [ { count: 1 kind: KIND_CPU } ]
parameters: { key: "max_tokens_in_paged_kv_cache" value: { string_value: "2560" } }
parameters: { key: "batch_scheduler_policy" value: { string_value: "max_utilization" } }
parameters: { key: "enable_chunked_context" value: { string_value: "${enable_chunked_context}" } }
parameters: { key: "enable_kv_cache_reuse" value: { string_value: "true" } }
"""
POST = """
name: "c"
backend: "python"
instance_group [ { count: 2 kind: KIND_CPU }, { count: 1 kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching { max_queue_delay_microseconds: 600 }
"""
REPOSITORY = {
    "models/front/config.pbtxt": ENSEMBLE,
    "models/a/config.pbtxt": 'backend: "python"',
    "models/b/config.pbtxt": ENGINE,
    "models/c/config.pbtxt": POST,
}


def test_settings_of_a_repository() -> None:
    models = repository_models(REPOSITORY)
    assert triton_parts(models) == {
        "front": "frame",
        "a": "preprocess",
        "b": "engine",
        "c": "postprocess",
    }
    document = checked(triton_config_facts(models))
    assert document["engine"] == {"name": "triton"}
    assert document["settings"] == {
        "triton.postprocessing_instances": 4,
        "triton.decoupled": True,
        "triton.dynamic_batching_delay_s": 0.0006,
        "triton.preferred_batch_size": 16,
        "max_num_seqs": 32,
        "max_tokens_in_paged_kv_cache": 2560,
        "scheduler.policy": "max_utilization",
        "enable_prefix_caching": True,
    }


def test_the_json_that_triton_answers_says_the_same() -> None:
    model = triton_model(
        "x",
        {
            "name": "postprocessing",
            "backend": "python",
            "instance_group": [{"count": 3, "kind": "KIND_CPU", "gpus": []}],
            "dynamic_batching": {"max_queue_delay_microseconds": 500},
            "parameters": {"tokenizer_dir": {"string_value": "/t"}},
        },
    )
    assert (model.name, model.instances, model.queue_delay_s) == ("postprocessing", 3, 0.0005)
    assert model.parameters == {"tokenizer_dir": "/t"}


def test_instances_on_every_gpu_are_at_least_so_many() -> None:
    config = parse_message("instance_group { count: 2 kind: KIND_GPU }", place="x")
    assert triton_model("m", config).instances == {"min": 2}


def test_vllm_has_its_arguments_in_a_file_of_its_own() -> None:
    files = {
        "llm/config.pbtxt": 'backend: "vllm" model_transaction_policy { decoupled: true }',
        "llm/1/model.json": '{"model": "m", "max_num_seqs": 8, "enforce_eager": true}',
    }
    document = checked(triton_config_facts(repository_models(files)))
    assert document["engine"] == {"name": "triton"}
    assert document["settings"]["max_num_seqs"] == 8
    assert document["settings"]["enforce_eager"] is True


def test_the_text_format() -> None:
    text = """
    a: 1 a: 2, b: "x" 'y'; c { d: -1.5e3 } e < f: true > g: [1, 2] h [ { i: KIND } { i: OTHER } ]
    j: 0x10 k: "q\\"\\n\\x41\\101" l: .5f m: []  # the end
    """
    assert parse_message(text, place="x") == {
        "a": [1, 2],
        "b": ["xy"],
        "c": [{"d": [-1500.0]}],
        "e": [{"f": [True]}],
        "g": [1, 2],
        "h": [{"i": ["KIND"]}, {"i": ["OTHER"]}],
        "j": [16],
        "k": ['q"\nAA'],
        "l": [0.5],
        "m": [],
    }


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("a: 1\nb: {", 2, id="a message that does not end"),
        pytest.param("a 1", 1, id="no colon"),
        pytest.param("a: 1\n}", 2, id="a bracket too many"),
        pytest.param("a: 1\n\nb: \x00", 3, id="no token"),
        pytest.param('a: "x', 1, id="a text that does not end"),
        pytest.param("a: [1, 2", 1, id="a list that does not end"),
        pytest.param("a {" * 200, 1, id="too deep"),
    ],
)
def test_what_is_no_message_is_named_with_its_line(text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"^m/config\.pbtxt:{line}: "):
        parse_message(text, place="m/config.pbtxt")
