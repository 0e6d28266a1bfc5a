"""`mileage engine graphs`: what it reads, what it chooses, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import mileage.cli.graph_histogram as histograms
from mileage.cli.engine import engine
from mileage.core.errors import ConfigError
from mileage.ledger.engine_step import EngineStep, StepUse
from mileage.ledger.step_record import lost_record, step_record
from mileage.wire.fetch import FetchResponse

_PAGE = """\
# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="m"} 10
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="m"} 80
vllm:iteration_tokens_total_bucket{engine="0",le="16.0",model_name="m"} 80
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="m"} 81
vllm:iteration_tokens_total_bucket{engine="1",le="1.0",model_name="m"} 0
vllm:iteration_tokens_total_bucket{engine="1",le="8.0",model_name="m"} 7
vllm:iteration_tokens_total_bucket{engine="1",le="16.0",model_name="m"} 7
vllm:iteration_tokens_total_bucket{engine="1",le="+Inf",model_name="m"} 7
vllm:iteration_tokens_total_sum{engine="0",model_name="m"} 600
"""


def run(source: object, *words: str) -> Any:
    return CliRunner().invoke(engine, ["graphs", str(source), *words])


def document(source: object, *words: str) -> dict[str, Any]:
    result = run(source, *words, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def refused(source: object, *words: str) -> ConfigError:
    error = run(source, *words).exception
    assert isinstance(error, ConfigError), error
    return error


@pytest.fixture
def counted(tmp_path: Path) -> Path:
    path = tmp_path / "sizes.json"
    path.write_text('{"3": 40000, "7": 30000, "19": 20000, "130": 20, "700": 3}')
    return path


def _step(*uses: tuple[int, int]) -> bytes:
    made = tuple(StepUse(at, prefill, decode, 0) for at, (prefill, decode) in enumerate(uses))
    return step_record(EngineStep("r", 0, 1, made))


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Three decode steps of 2 rows, one of 5, and one of 40 with a prompt in it."""
    two, five = _step((0, 1), (0, 1)), _step(*[(0, 1)] * 5)
    idle, mixed = _step(), _step((38, 0), (0, 2))
    (tmp_path / "a.steps").write_bytes(2 * two + idle + lost_record("r", 1, 2, 9) + mixed)
    (tmp_path / "b.steps").write_bytes(two + five + mixed[:7])
    return tmp_path


def test_the_optimum_is_shown_beside_vllms_own_with_the_options_that_set_it(
    counted: Path,
) -> None:
    found = document(counted)
    default, optimal = found["default"], found["optimal"]
    assert optimal["sizes"] == [3, 7, 19, 130]
    assert (default["sizes"][:5], len(default["sizes"])) == ([1, 2, 4, 8, 16], 51)
    assert optimal["padding_ratio"] == 0.0 < default["padding_ratio"]
    assert optimal["memory_bytes"] == 4 * 26 * 2**20 < default["memory_bytes"]
    assert (optimal["eager_steps"], default["eager_steps"]) == (3, 3)
    assert optimal["total_ratio"] < default["total_ratio"]
    assert found["flags"] == {
        "vLLM 0.11.1 and later": "--cudagraph-capture-sizes 3 7 19 130",
        "vLLM 0.7 to 0.11.0": "--compilation-config '{\"cudagraph_capture_sizes\":[3,7,19,130]}'",
        "SGLang 0.5.23 and later": "--cuda-graph-bs-decode 3 7 19 130",
        "SGLang before 0.5.23": "--cuda-graph-bs 3 7 19 130",
    }
    shown = run(counted)
    assert shown.exit_code == 0
    assert "90,023 steps of 3 to 700 rows" in shown.stdout
    assert "  --cudagraph-capture-sizes 3 7 19 130\n" in shown.stdout
    assert "Approximate" not in shown.stdout


def test_limits_of_the_sizes(counted: Path) -> None:
    assert document(counted, "--sizes-max", "1")["optimal"]["sizes"] == [130]
    assert document(counted, "--cover", "256")["optimal"]["sizes"][-1] == 256
    assert document(counted, "--size-max", "700")["optimal"]["sizes"][-1] == 700
    rare = document(counted, "--cover", "0", "--memory-mib", "260")
    assert rare["optimal"]["sizes"][-1] == 19
    assert document(counted, "--max-num-seqs", "4")["default"]["sizes"] == [1, 2, 4, 8]


def test_times_of_a_model_on_a_gpu(counted: Path) -> None:
    found = document(counted, "--model", "llama-3.1-8b", "--gpu", "h100", "--context", "1024")
    assert "H100" in found["step_time"]
    assert 1e-3 < found["eager_extra_s"] < 1e-2
    assert found["size_cost"]["device_bytes"] > 80e9
    assert found["optimal"]["total_ratio"] < found["default"]["total_ratio"]
    without = document(counted, "--model", "llama-3.1-8b", "--gpu", "h100")
    assert found["default"]["padding_ratio"] < without["default"]["padding_ratio"]
    words = ("--cover", "600", "--size-max", "700", "--max-num-seqs", "1000000000")
    wide = document(counted, "--model", "llama-3.1-8b", "--gpu", "h100", *words)
    assert wide["optimal"]["sizes"][-1] == 700


def test_seconds_are_turned_into_steps(tmp_path: Path) -> None:
    path = tmp_path / "seconds.json"
    path.write_text('{"1": 10, "100": 20}')
    found = document(path, "--seconds", "--floor-ms", "10", "--row-us", "100")
    assert found["steps"] == pytest.approx(10 / 0.0101 + 20 / 0.02)


def test_step_files_are_counted_exactly(steps: Path) -> None:
    found = document(steps)
    assert (found["source"], found["steps"], found["note"]) == ("steps", 5, None)
    assert found["optimal"]["sizes"] == [2, 5, 40]
    assert document(steps, "--decode-only")["optimal"]["sizes"] == [2, 5]
    assert document(steps / "b.steps")["steps"] == 2
    (steps / "renamed").write_bytes((steps / "b.steps").read_bytes())
    assert document(steps / "renamed")["steps"] == 2


def test_buckets_of_a_metrics_page_are_spread_evenly(tmp_path: Path) -> None:
    path = tmp_path / "metrics.txt"
    path.write_text(_PAGE)
    found = document(path, "--memory-mib", "0", "--start-s", "0")
    assert (found["source"], found["steps"]) == ("metrics", 88)
    assert found["optimal"]["sizes"] == [*range(1, 9), 17]
    assert found["optimal"]["padding_ratio"] == 0.0
    assert "wide ranges" in found["note"]
    assert "Approximate: the metrics" in run(path).stdout


def test_a_page_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    status = 200

    async def fetch(url: str, *, timeout_s: float) -> FetchResponse:
        asked.append(url)
        return FetchResponse(status, (), _PAGE.encode())

    monkeypatch.setattr(histograms, "fetch", fetch)
    assert document("http://127.0.0.1:8000")["steps"] == 88
    assert document("http://127.0.0.1:8000/other")["steps"] == 88
    assert asked == ["http://127.0.0.1:8000/metrics", "http://127.0.0.1:8000/other"]
    status = 404
    assert "404" in refused("http://127.0.0.1:8000").expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("{}", "no step in it", id="empty object"),
        pytest.param('{"8": 0}', "no step in it", id="no steps"),
        pytest.param('{"eight": 1}', "JSON object of sizes", id="no number"),
        pytest.param('{"8": 1', "JSON object of sizes", id="cut off"),
        pytest.param('{"0": 1}', "a size of 1..", id="size 0"),
        pytest.param('{"8": -1}', "0 or more", id="negative"),
        pytest.param("# nothing\n", "no vllm:iteration_tokens_total_bucket", id="no histogram"),
        pytest.param(_PAGE.replace("1.0", "low"), "upper bound le", id="no bound"),
        pytest.param(_PAGE.replace("} 10\n", "} NaN\n"), "upper bound le", id="no count"),
        pytest.param("", "no vllm:iteration_tokens_total_bucket", id="nothing"),
    ],
)
def test_what_is_no_histogram_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "source"
    path.write_text(text)
    error = refused(path)
    assert error.key.startswith("SOURCE")
    assert said in error.expected


def test_files_that_cannot_be_read_are_refused(tmp_path: Path, steps: Path) -> None:
    assert "No such file" in refused(tmp_path / "missing").expected
    (tmp_path / "empty").mkdir()
    assert "*.steps" in refused(tmp_path / "empty").expected
    (steps / "c.steps").write_bytes(b"\xff\xff\xff\xff\x95")
    assert "no engine step" in refused(steps).expected


@pytest.mark.parametrize(
    ("words", "key"),
    [
        (("--model", "llama-3.1-8b"), "--model"),
        (("--model", "no-such-model", "--gpu", "h100"), "--model"),
        (("--model", "llama-3.1-8b", "--gpu", "abacus"), "--gpu"),
        (("--sizes-max", "0"), "--sizes-max"),
        (("--size-max", "0"), "--size-max"),
        (("--size-max", "1000000000000"), "--size-max"),
        (("--cover", "513"), "--cover"),
        (("--max-num-seqs", "0"), "--max-num-seqs"),
        (("--memory-mib", "-1"), "--memory-mib"),
        (("--start-s", "nan"), "--start-s"),
        (("--gpu-gb", "0"), "--gpu-gb"),
        (("--horizon-h", "0"), "--horizon-h"),
        (("--floor-ms", "-1"), "--floor-ms"),
        (("--floor-ms", "0", "--row-us", "0"), "--floor-ms"),
        (("--eager-extra-ms", "-1"), "--eager-extra-ms"),
    ],
)
def test_values_that_cannot_be_are_named(counted: Path, words: tuple[str, ...], key: str) -> None:
    assert refused(counted, *words).key == key


def test_options_of_another_source_are_refused(steps: Path, tmp_path: Path) -> None:
    page = tmp_path / "metrics.txt"
    page.write_text(_PAGE)
    assert refused(steps, "--seconds").key == "--seconds"
    assert refused(page, "--decode-only").key == "--decode-only"
