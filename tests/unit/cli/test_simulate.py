"""mileage simulate: the document, the tables and the exit codes of the three commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mileage.cli.whole_command import app
from mileage.core.errors import TraceError
from tests.support.simulate_cli import document, error_of, simulate

TRACE = "synthetic:rate=4,duration=20s,prompt=uniform:100:2000,output=uniform:10:100"
FLEET = ("--model", "llama-3.1-8b", "--gpu", "h100")
TARGETS = ("--slo", "ttft=2s,itl=250ms")


def test_the_document_has_the_figures_and_what_was_assumed() -> None:
    found = document("--trace", TRACE, *FLEET, *TARGETS, "--policy", "off", "--price", "2")
    assert found["requests"] > 50
    assert found["wall_s"] > 0.0
    assert found["requests_per_s"] == pytest.approx(found["requests"] / found["wall_s"])
    for key in ("ttft_s", "itl_s", "e2e_s"):
        assert 0.0 < found[key]["p50"] <= found[key]["p95"] <= found[key]["p99"]
    assert 0.0 <= found["slo_attainment_ratio"] <= 1.0
    assert 0.0 < found["gpu_busy_ratio"] <= 1.0
    assert found["goodput_rps"] > 0.0
    assert found["preemptions"] == 0
    usd = 2.0 * found["duration_s"] / 3600
    tokens = found["output_tokens_per_s"] * found["duration_s"]
    assert found["usd_per_mtok"] == pytest.approx(usd / tokens * 1e6)
    assumed = found["assumptions"]
    assert assumed["gpu"] == "H100-SXM5-80GB"
    assert assumed["price_source"] == "--price"
    assert assumed["kv_tokens"] == assumed["engine"]["kv_blocks"] * 16 > 100_000
    assert (assumed["seed"], assumed["policy"]) == (0, "off")


def test_the_price_is_the_median_of_public_ones_and_says_of_which() -> None:
    found = document("--trace", TRACE, *FLEET, "--policy", "off")
    assert found["usd_per_mtok"] > 0.0
    assert found["assumptions"]["price_source"].startswith("median of ")


def test_no_price_is_no_cost() -> None:
    found = document("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h20-96gb")
    assert found["usd_per_mtok"] is None
    assert found["assumptions"]["price_source"] is None


def test_a_model_is_read_from_its_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    shape = {"hidden_size": 1024, "num_attention_heads": 16, "num_hidden_layers": 8}
    rest = {"intermediate_size": 4096, "vocab_size": 32000, "model_type": "llama"}
    config.write_text(json.dumps({**shape, **rest}))
    for path in (config, tmp_path):
        found = document("--trace", TRACE, "--model", str(path), "--gpu", "t4")
        assert found["assumptions"]["model"] == tmp_path.name
    config.write_text(json.dumps({**shape, "model_type": "llama"}))
    message = error_of("--trace", TRACE, "--model", str(config), "--gpu", "t4")
    assert f"{config}: intermediate_size" in message


def test_equal_seeds_give_equal_figures() -> None:
    options = ("--trace", TRACE, *FLEET, *TARGETS, "--noise", "0.1", "--seed", "3")
    first, second = document(*options), document(*options)
    for key in ("wall_s", "requests_per_s", "read_s"):
        del first[key], second[key]
    assert first == second


def test_the_seed_is_that_of_a_synthetic_trace_too() -> None:
    plain = ("--trace", TRACE, *FLEET, "--policy", "off")
    first, second = document(*plain, "--seed", "3"), document(*plain, "--seed", "4")
    assert first["ttft_s"] != second["ttft_s"]
    own = ("--trace", f"{TRACE},seed=3", *FLEET, "--policy", "off")
    assert document(*own, "--seed", "4")["ttft_s"] == first["ttft_s"]


def test_more_replicas_share_the_load() -> None:
    one = document("--trace", TRACE, *FLEET, "--policy", "off", "--rate-scale", "8")
    four = document(
        "--trace", TRACE, *FLEET, "--policy", "off", "--rate-scale", "8", "--replicas", "4"
    )
    assert four["ttft_s"]["p95"] < one["ttft_s"]["p95"]
    assert four["assumptions"]["gpus"] == 4


def test_people_are_shown_a_table_and_one_line_that_says_it() -> None:
    shown = simulate("--trace", TRACE, *FLEET, *TARGETS, "--policy", "off").stdout
    assert "time to first token" in shown
    assert "of requests met their targets" in shown.strip().splitlines()[-1]
    without = simulate("--trace", TRACE, *FLEET, "--policy", "off").stdout
    assert "requests were answered" in without.strip().splitlines()[-1]


def test_figures_within_targets_go_by_the_gaps_that_are_asked_for() -> None:
    options = ("--trace", TRACE, *FLEET, "--policy", "off", "--slo", "itl=20ms")
    by_p99, by_mean = document(*options), document(*options, "--gaps", "mean")
    assert by_p99["slo_attainment_ratio"] < by_mean["slo_attainment_ratio"]
    assert by_mean["slo_attainment_ratio"] == by_p99["slo_attainment_itl_mean_ratio"]
    assert by_mean["goodput_rps"] > by_p99["goodput_rps"]


def test_the_policy_and_targets_of_a_configuration_hold(tmp_path: Path) -> None:
    config = tmp_path / "mileage.toml"
    config.write_text(
        '[governor]\npolicy = "static"\nstatic = {limit = 2}\n[slo]\nttft_s = 1.5\n'
        "[costs]\nusd_per_gpu_hour = 4.0\n"
    )
    options = ("--trace", TRACE, *FLEET, "--config", str(config), "--rate-scale", "4")
    found = document(*options)
    assert found["assumptions"]["policy"] == "static"
    assert found["assumptions"]["ttft_target_s"] == 1.5
    assert found["assumptions"]["usd_per_gpu_hour"] == 4.0
    assert found["rejected"]["deadline"] > 0, "two at once are too few"
    assert document(*options, "--policy", "off")["rejected"] == {}


def test_whoever_the_trace_was_for_it_is_for_the_simulated_model(tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(
        '{"arrived_s":0.0,"prompt_tokens":10,"output_tokens":5,"model":"gpt-9"}\n'
        '{"arrived_s":0.5,"prompt_tokens":10,"output_tokens":5}\n'
    )
    assert document("--trace", str(trace), *FLEET)["answered"] == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(("--trace", TRACE), "--model", id="no model"),
        pytest.param(("--model", "llama-3.1-8b"), "--gpu", id="no GPU"),
        pytest.param(FLEET, "--trace", id="no trace"),
        pytest.param(
            ("--trace", TRACE, "--model", "lama3.1 8b", "--gpu", "h100"),
            "Llama-3.1-8B",
            id="an unknown model: the nearest names",
        ),
        pytest.param(
            ("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h1000"),
            "H100-SXM5-80GB",
            id="an unknown GPU: the nearest names",
        ),
        pytest.param(
            ("--trace", TRACE, "--model", "llama-3.1-70b", "--gpu", "h100"),
            "tensor_parallel=2 or B200-SXM-180GB would do",
            id="a model that does not fit: what would",
        ),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--tp", "3"), "divisor of 32 heads", id="heads not divided"
        ),
        pytest.param(("--trace", TRACE, *FLEET, "--tp", "two"), "--tp", id="no number"),
        pytest.param(("--trace", TRACE, *FLEET, "--tp", "1,2"), "compare", id="several"),
        pytest.param(("--trace", TRACE, *FLEET, "--slo", "ttft=2"), "with its unit", id="no unit"),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--slo", "tpot=2s"), "ttft=TIME", id="no such target"
        ),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--slo", "itl=1ms"),
            "the shortest step",
            id="a target that nothing can meet",
        ),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--policy", "modell"), "nearest: model", id="no policy"
        ),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--policy", "static:5000"),
            "at most 1024",
            id="a limit above the engine's own",
        ),
        pytest.param(("--trace", TRACE, *FLEET, "--policy", "aimd:5"), "static:LIMIT", id="limit"),
        pytest.param(("--trace", TRACE, *FLEET, "--kv-dtype", "fp2"), "--kv-dtype", id="KV dtype"),
        pytest.param(("--trace", TRACE, *FLEET, "--engine", "tgi"), "sglang", id="engine"),
        pytest.param(
            ("--trace", TRACE, "--model", "gone.json", "--gpu", "h100"), "gone.json", id="file"
        ),
        pytest.param(("--trace", TRACE, *FLEET, "--precision", "fp2"), "--precision", id="dtype"),
        pytest.param(("--trace", TRACE, *FLEET, "--gaps", "p95"), "p99, mean", id="gaps"),
        pytest.param(("--trace", TRACE, *FLEET, "--path", "slow"), "python", id="path"),
        pytest.param(("--trace", TRACE, *FLEET, "--routing", "random"), "affinity", id="routing"),
        pytest.param(("--trace", TRACE, *FLEET, "--price", "-1"), "--price", id="price"),
        pytest.param(("--trace", TRACE, *FLEET, "--rate-scale", "0"), "--rate-scale", id="rate"),
        pytest.param(("--trace", TRACE, *FLEET, "--requests", "0"), "--requests", id="none"),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--window", "10h:1m"),
            "at least one request",
            id="zero requests",
        ),
        pytest.param(
            ("--trace", TRACE, *FLEET, "--engine-tokens", "100", "--engine-max-seqs", "200"),
            "--engine-max-seqs",
            id="an engine that cannot be",
        ),
        pytest.param(("--trace", "nowhere.csv", *FLEET), "nowhere.csv", id="no such trace"),
        pytest.param(("--policy", "off", "compare"), "behind `compare`", id="options too early"),
        pytest.param(("--trace", TRACE, *FLEET, "--patience", "0s"), "--patience", id="patience"),
        pytest.param(("--trace", TRACE, *FLEET, "--policy", "static:0"), "--policy", id="limit 0"),
        pytest.param(
            ("--trace", "synthetic:rate=0,duration=1m", *FLEET), "synthetic:rate:", id="no rate"
        ),
    ],
)
def test_bad_input_gets_one_error_that_names_the_option(
    arguments: tuple[str, ...], told: str
) -> None:
    message = error_of(*arguments)
    assert told in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("line", "field"),
    [
        pytest.param('{"arrived_s":1.0,"output_tokens":5}', "prompt_tokens", id="missing"),
        pytest.param(
            '{"arrived_s":1.0,"prompt_tokens":-4,"output_tokens":5}', "prompt_tokens", id="negative"
        ),
    ],
)
def test_a_bad_record_of_a_trace_is_told_with_its_line(
    tmp_path: Path, line: str, field: str
) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text(f'{{"arrived_s":0.0,"prompt_tokens":10,"output_tokens":5}}\n{line}\n')
    result = simulate("--trace", str(trace), *FLEET)
    assert isinstance(result.exception, TraceError)
    assert f"{trace}:2: " in str(result.exception)
    assert field in str(result.exception)
    assert result.stdout == ""


def test_without_options_it_shows_how_it_is_used() -> None:
    result = simulate()
    assert result.exit_code == 2
    assert "compare" in result.output
    assert "--trace" in result.output


def test_an_option_before_a_command_is_told_as_it_was_spelled() -> None:
    result = CliRunner().invoke(app, ["simulate", "--json", "compare", *FLEET])
    assert str(result.exception) == "--json: got True, expected it behind `compare`"


def test_a_trace_that_is_not_there_is_told_by_its_option() -> None:
    result = CliRunner().invoke(app, ["simulate", *FLEET, "--trace", "nowhere"])
    assert str(result.exception).startswith("--trace: got 'nowhere'")
