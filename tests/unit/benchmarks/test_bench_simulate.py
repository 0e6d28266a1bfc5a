"""The simulator's benchmark: its figures, and what shows that arms did other work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks.simulate import ARMS, REQUESTS, as_mooncake, figures, find_trace, wrong


def one(**changes: Any) -> dict[str, Any]:
    return {
        "requests": REQUESTS,
        "answered": REQUESTS,
        "output_tokens": 1000,
        "slo_attainment_ratio": 0.9,
        "ttft_p99_s": 0.2,
        "duration_s": 3500.0,
        "total_s": 2.0,
        "wall_s": 1.0,
        "memory_mb": 100.0,
        **changes,
    }


def runs_of(**arms: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    return {name: [one(), one(), one()] for name in ARMS} | arms


def test_rates_are_medians_with_and_without_reading() -> None:
    found = figures(runs_of(fast=[one(wall_s=s, total_s=2 * s) for s in (0.5, 9.0, 1.0)]))
    assert found["requests_per_s_fast"] == REQUESTS
    assert found["requests_per_s_fast_with_reading"] == REQUESTS // 2
    assert found["memory_mb"] == 100


def test_the_ratio_is_that_of_each_round() -> None:
    found = figures(
        runs_of(
            fast=[one(total_s=s) for s in (1.0, 2.0, 4.0)],
            dynamo=[one(total_s=s) for s in (10.0, 10.0, 36.0)],
        )
    )
    assert (found["ratio_dynamo"], found["ratio_dynamo_low"]) == (9.0, 5.0)
    assert found["requests_per_s_dynamo"] == round(REQUESTS / 10.0)


def test_without_dynamo_its_figures_are_null() -> None:
    found = figures(runs_of())
    assert found["ratio_dynamo"] is None
    assert found["requests_per_s_dynamo"] is None


@pytest.mark.parametrize(
    ("arms", "told"),
    [
        pytest.param({}, [], id="all the same"),
        pytest.param(
            {"python": [one(ttft_p99_s=0.3)]}, ["fast and python differ"], id="another figure"
        ),
        pytest.param({"dynamo": [one(requests=7)]}, ["dynamo simulated 7"], id="fewer requests"),
        pytest.param({"dynamo": [one(output_tokens=7)]}, ["Dynamo generated"], id="other tokens"),
    ],
)
def test_arms_that_did_other_work_are_a_failure(
    arms: dict[str, list[dict[str, Any]]], told: list[str]
) -> None:
    found = wrong(runs_of(**arms))
    assert len(found) == len(told)
    assert all(text.startswith(start) for text, start in zip(found, told, strict=True))


def test_dynamo_reads_the_same_requests(tmp_path: Path) -> None:
    trace, path = tmp_path / "trace.jsonl", tmp_path / "mooncake.jsonl"
    trace.write_text(
        '{"arrived_s":0.0,"prompt_tokens":513,"output_tokens":5}\n'
        '{"arrived_s":1.5,"prompt_tokens":512,"output_tokens":6}\n'
    )
    as_mooncake(trace, path)
    records = [msgspec.json.decode(line) for line in path.read_text().splitlines()]
    assert [r["timestamp"] for r in records] == [0.0, 1500.0]
    assert [r["hash_ids"] for r in records] == [[0, 1], [2]], "no prompt shares a block"
    assert [(r["input_length"], r["output_length"]) for r in records] == [(513, 5), (512, 6)]


def test_the_trace_is_looked_for_where_data_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("MILEAGE_DATA_DIR", str(tmp_path))
    assert find_trace(None) is None
    (tmp_path / "traces").mkdir()
    path = tmp_path / "traces" / "azure_conv_2023.csv.gz"
    path.touch()
    assert find_trace(None) == path
    assert find_trace(tmp_path) == tmp_path
