"""ServeGen clients: rates as their files say, lengths from their tables, faults by file and key."""

from __future__ import annotations

import json
import math
from collections import Counter
from statistics import fmean, pvariance
from typing import Any

import pytest

from mileage.core.errors import TraceError
from mileage.workload.readers.servegen import ServeGenClient, servegen_requests
from tests.support.traces import CLIENT_DATASET, CLIENT_TRACE


def client(
    number: int = 0, trace: bytes = CLIENT_TRACE, dataset: Any = CLIENT_DATASET
) -> ServeGenClient:
    return ServeGenClient(
        number=number,
        trace_path="chunk-trace.csv",
        trace=trace.split(b"\n"),
        dataset_path="chunk-dataset.json",
        dataset=dataset if isinstance(dataset, bytes) else json.dumps(dataset).encode(),
    )


def test_windows_have_their_rates_and_lengths() -> None:
    made = list(servegen_requests([client()], seed=1))
    windows = Counter(int(r.arrived_s // 600) for r in made)
    assert set(windows) == {0, 2}
    assert abs(windows[0] - 1200) < 4 * math.sqrt(1200)
    early = [r for r in made if r.arrived_s < 600]
    assert Counter(r.prompt_tokens for r in early).keys() == {10, 30}
    assert fmean(r.prompt_tokens == 30 for r in early) == pytest.approx(0.75, abs=0.05)
    assert {(r.prompt_tokens, r.output_tokens) for r in made if r.arrived_s >= 600} == {(700, 8)}


def test_bursty_windows_have_their_rate_without_bias() -> None:
    trace = b"0,0.15,4.0,Gamma,0.0604,103.65\n600,0,0,,0,0"
    counts = [len(list(servegen_requests([client(trace=trace)], seed=s))) for s in range(600)]
    assert abs(fmean(counts) - 90) < 4 * math.sqrt(pvariance(counts) / len(counts))


def test_clients_are_merged_and_seeds_tell_runs_apart() -> None:
    made = [list(servegen_requests([client(3), client(8)], seed=s)) for s in (1, 1, 2)]
    assert made[0] == made[1] != made[2]
    assert {r.tenant for r in made[0]} == {"client-3", "client-8"}
    times = [r.arrived_s for r in made[0]]
    assert times == sorted(times)


def test_a_part_is_that_part_of_the_whole() -> None:
    whole = list(servegen_requests([client()], seed=4))
    part = list(servegen_requests([client()], seed=4, start_s=300.0, duration_s=1000.0))
    cut = [r for r in whole if 300.0 <= r.arrived_s < 1300.0]
    assert [r.arrived_s + 300.0 for r in part] == pytest.approx([r.arrived_s for r in cut])
    assert [r.prompt_tokens for r in part] == [r.prompt_tokens for r in cut]


def test_images_are_added_to_the_text() -> None:
    fields = {"text_tokens": "{10: 1}", "image_tokens": "{100: 1}", "output_tokens": "{5: 1}"}
    request = next(servegen_requests([client(dataset={"0": fields})]))
    assert (request.prompt_tokens, request.image_patches) == (110, 400)


@pytest.mark.parametrize(
    ("trace", "dataset", "message"),
    [
        pytest.param(b"0,1,1,Gamma,1", CLIENT_DATASET, "has 5 fields", id="a field less"),
        pytest.param(b"0,1,1,Normal,1,1", CLIENT_DATASET, "family", id="unknown family"),
        pytest.param(b"0,x,1,Gamma,1,1", CLIENT_DATASET, "numbers", id="no number"),
        pytest.param(b"0,nan,1,Gamma,1,1", CLIENT_DATASET, "at least 0", id="nan"),
        pytest.param(b"0,1,1,Gamma,0,1", CLIENT_DATASET, "shape above 0", id="no shape"),
        pytest.param(
            CLIENT_TRACE + b"\n5,1,1,Gamma,1,1", CLIENT_DATASET, "start: got 5", id="time goes back"
        ),
        pytest.param(b"", CLIENT_DATASET, "is empty", id="no windows"),
        pytest.param(CLIENT_TRACE, b"[1]", "got an array, expected an object", id="no object"),
        pytest.param(CLIENT_TRACE, b"{", "expected one JSON object", id="cut off"),
        pytest.param(CLIENT_TRACE, {}, "has no window", id="no lengths"),
        pytest.param(CLIENT_TRACE, {"x": {}}, "starts of windows", id="no start"),
        pytest.param(
            CLIENT_TRACE, {"0": {"input_tokens": "{1: 1}"}}, "output_tokens", id="no output"
        ),
        pytest.param(
            CLIENT_TRACE,
            {"0": {"input_tokens": "{1: __import__('os')}", "output_tokens": "{1: 1}"}},
            "0.input_tokens",
            id="no number, and not run",
        ),
        pytest.param(
            CLIENT_TRACE,
            {"0": {"input_tokens": "{}", "output_tokens": "{1: 1}"}},
            "0.input_tokens",
            id="no lengths inside",
        ),
    ],
)
def test_a_fault_is_told(trace: bytes, dataset: Any, message: str) -> None:
    with pytest.raises(TraceError) as caught:
        list(servegen_requests([client(trace=trace, dataset=dataset)]))
    assert message in str(caught.value)
    assert caught.value.path.startswith("chunk-")
