"""Knobs of a running engine: clamped and told, and requests that are read or refused by field."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from mileage.core.errors import ConfigError
from mileage.policy.engine_knobs import (
    KNOBS,
    EngineKnobs,
    clamp,
    decode_control_request,
    merge_knobs,
)

BOUNDS = {
    "active_max": (1, 64),
    "step_tokens_max": (5, 2048),
    "long_prefill_tokens_max": (5, 4096),
    "waiting_max": (0, 1000),
}
ALL = dict.fromkeys(KNOBS, True)
GRAPHS = (1, 2, 4, 8, 16, 24, 32)


@pytest.mark.parametrize(
    ("asked", "applied", "reason"),
    [
        pytest.param({"active_max": 10}, 10, "", id="within: as asked"),
        pytest.param({"active_max": 0}, 1, "out of 1..64", id="below: the lowest"),
        pytest.param({"active_max": 10**12}, 64, "out of 1..64", id="above: the highest"),
        pytest.param({"step_tokens_max": -3}, 5, "out of 5..2048", id="negative: the lowest"),
        pytest.param({"long_prefill_tokens_max": 0}, 0, "", id="0 switches the threshold off"),
        pytest.param({"long_prefill_tokens_max": -1}, 0, "out of 5..4096", id="below 0: off"),
        pytest.param({"long_prefill_tokens_max": 2}, 5, "out of 5..4096", id="too small a chunk"),
        pytest.param({"waiting_max": 0}, 0, "", id="no one waits"),
    ],
)
def test_values_are_clamped_and_told(asked: dict[str, int], applied: int, reason: str) -> None:
    ((name, value),) = asked.items()
    taken, changed = clamp(EngineKnobs(**asked), BOUNDS, ALL)
    assert getattr(taken, name) == applied
    told = {n: (c.asked, c.applied, c.reason) for n, c in changed.items()}
    assert told == ({name: (value, applied, reason)} if reason else {})


@pytest.mark.parametrize(
    ("asked", "applied"),
    [
        pytest.param(16, 16, id="a graph's size"),
        pytest.param(23, 16, id="between two: the lower, whose graph it fills"),
        pytest.param(33, 33, id="beyond the last there is no graph to fill"),
        pytest.param(90, 64, id="clamped first"),
        pytest.param(1, 1, id="the smallest"),
    ],
)
def test_the_cap_snaps_to_cuda_graphs(asked: int, applied: int) -> None:
    taken, changed = clamp(EngineKnobs(active_max=asked), BOUNDS, ALL, GRAPHS)
    assert taken.active_max == applied
    assert ("active_max" in changed) == (asked != applied)


def test_a_cap_below_every_graph_stays() -> None:
    taken, changed = clamp(EngineKnobs(active_max=3), BOUNDS, ALL, (4, 8))
    assert (taken.active_max, changed) == (3, {})


def test_what_an_engine_cannot_do_is_told_with_the_reason() -> None:
    can: dict[str, bool | str] = {**ALL, "active_max": "this vLLM's scheduler has no such limit"}
    taken, changed = clamp(EngineKnobs(active_max=3, step_tokens_max=96), BOUNDS, can)
    assert taken == EngineKnobs(step_tokens_max=96)
    assert changed["active_max"].applied is None
    assert changed["active_max"].reason == can["active_max"]


def test_changes_leave_what_they_do_not_name() -> None:
    before = EngineKnobs(active_max=4, step_tokens_max=96)
    after = merge_knobs(before, {"active_max": None, "waiting_max": 7})
    assert after == EngineKnobs(step_tokens_max=96, waiting_max=7)


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({"knobs": {"max_num_seqs": 4}}, "knobs.max_num_seqs", id="unknown knob"),
        pytest.param({"knobs": {"active_max": "4"}}, "knobs", id="text for a number"),
        pytest.param({"knobs": {"active_max": 4.5}}, "knobs", id="a fraction"),
        pytest.param({"knobs": {"active_max": True}}, "knobs", id="a truth value"),
        pytest.param({"knobs": [1]}, "knobs", id="a list"),
        pytest.param({"lease_s": -1}, "lease_s", id="a lease of less than no time"),
        pytest.param({"lease_s": 0}, "lease_s", id="a lease of no time"),
        pytest.param({"lease_s": 1e9}, "lease_s", id="a lease without end, almost"),
        pytest.param({"lease_s": "long"}, "lease_s", id="a lease in words"),
        pytest.param({"wait_s": -1}, "wait_s", id="a negative wait"),
        pytest.param({"wait_s": 61}, "wait_s", id="a wait for ever, almost"),
        pytest.param({"policy": "model"}, "policy", id="a policy by name"),
        pytest.param({"knob": {}}, "body", id="an unknown field"),
        pytest.param([], "body", id="no object"),
    ],
)
def test_a_bad_request_is_refused_by_field(document: Any, field: str) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_control_request(json.dumps(document).encode())
    assert caught.value.key.startswith(field)


@pytest.mark.parametrize("body", [b"{", b"\xff", b"[" * 100_000, b"null", b'{"lease_s": NaN}'])
def test_a_body_that_is_no_document_is_refused(body: bytes) -> None:
    with pytest.raises(ConfigError) as caught:
        decode_control_request(body)
    assert caught.value.key == "body"


def test_an_empty_request_renews_the_lease_only() -> None:
    request = decode_control_request(b"")
    assert (request.knobs, request.lease_s, request.wait_s) == ({}, 10.0, 0.0)
    assert request.policy is msgspec.UNSET
    assert decode_control_request(b'{"lease_s": null, "policy": null}').policy is None
