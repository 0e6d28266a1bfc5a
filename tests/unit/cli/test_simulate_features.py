"""mileage simulate: what engines have besides, by options and by a scenario's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.simulate_cli import document, error_of, simulate

TRACE = "synthetic:rate=20,duration=20s,prompt=uniform:100:2000,output=uniform:10:100"
FLEET = ("--trace", TRACE, "--model", "llama-3.1-8b", "--gpu", "h100", "--policy", "off")


def options(*pairs: str) -> list[str]:
    return [word for pair in pairs for word in ("--engine-option", pair)]


@pytest.mark.parametrize(
    ("option", "key"),
    [
        pytest.param("chunked_prefill=false", "chunked_prefill", id="prompts in one piece"),
        pytest.param('kv_tiers={"blocks":9000,"block_load_s":1e-4}', "kv_tiers", id="a KV tier"),
        pytest.param("adapters.slots=2", "adapters", id="LoRA slots"),
        pytest.param("static_batch.size=16", "static_batch", id="static batches"),
        pytest.param("speculation.draft_tokens=2", "speculation", id="speculation"),
        pytest.param("disaggregation.decode_engines=2", "disaggregation", id="disaggregation"),
        pytest.param("eviction.policy=lru_k_heat", "eviction", id="eviction"),
        pytest.param("prefill.ordering=shortest", "prefill", id="an order of prompts"),
    ],
)
def test_every_feature_is_simulated_in_python_and_says_so(option: str, key: str) -> None:
    found = document(*FLEET, *options(option))
    assert found["answered"] == found["requests"]
    assert found["assumptions"]["engine"][key] not in (None, [], True)
    assert found["assumptions"]["path"] == "python"
    shown = simulate(*FLEET, *options(option)).stdout
    assert "Path    in Python, not compiled: " in shown
    assert any(line.startswith("Engine") and key in line for line in shown.splitlines())
    assert "--path" in error_of(*FLEET, *options(option), "--path", "fast")


def test_contiguous_caches_hold_fewer_requests_than_paged_ones() -> None:
    few = options("kv_blocks=4000")
    paged = document(*FLEET, *few)
    room = options("kv_layout=contiguous", "context_tokens_max=16000")
    contiguous = document(*FLEET, *few, *room)
    assert contiguous["ttft_s"]["p95"] > 2 * paged["ttft_s"]["p95"]
    assert contiguous["prefix_cache_hit_ratio"] is None


def test_costs_are_of_all_engines_of_a_replica() -> None:
    one = document(*FLEET, "--price", "2")
    apart = ("disaggregation.prefill_engines=1", "disaggregation.decode_engines=3")
    four = document(*FLEET, "--price", "2", *options(*apart), "--replicas", "2", "--tp", "2")
    assert one["assumptions"]["gpus"] == 1
    assert four["assumptions"]["gpus"] == 2 * (1 + 3) * 2
    assert four["assumptions"]["engines_per_replica"] == 4
    usd = 2.0 * 16 * four["duration_s"] / 3600
    tokens = four["output_tokens_per_s"] * four["duration_s"]
    assert four["usd_per_mtok"] == pytest.approx(usd / tokens * 1e6)


def test_step_tables_have_a_row_for_each_token_that_may_be_accepted() -> None:
    drafts = options("speculation.draft_tokens=7", "speculation.acceptance_ratio=1.0")
    found = document(*FLEET, *drafts)
    engine = found["assumptions"]["engine"]
    assert engine["running_max"] * 8 <= engine["step_tokens_max"], "limits give way to each other"
    plain = document(*FLEET)
    assert found["itl_mean_s"]["p50"] < plain["itl_mean_s"]["p50"]


def test_attention_ranks_are_those_of_the_layout() -> None:
    found = document(*FLEET, "--dp", "2", "--engine-max-seqs", "64", "--engine-tokens", "1024")
    engine = found["assumptions"]["engine"]
    assert engine["dp_ranks"] == 2
    assert (engine["running_max"], engine["step_tokens_max"]) == (128, 2048), "of both together"
    assert found["assumptions"]["gpus"] == 2
    assert "--dp 2" in error_of(*FLEET, *options("dp_ranks=2"))


def test_a_lone_prompt_is_not_split_over_attention_ranks() -> None:
    lone = ("--trace", "synthetic:rate=0.2,duration=60s,prompt=4000,output=2", *FLEET[2:])
    one = document(*lone, "--engine-tokens", "8192")
    two = document(*lone, "--engine-tokens", "8192", "--dp", "2")
    assert two["ttft_s"]["p50"] >= one["ttft_s"]["p50"]


def test_a_report_has_arms_with_different_features(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "report.html"
    variants = ("--variant", "apart disaggregation.decode_engines=3", "--replicas", "2")
    scaled = ("--schedule", "0s:1,5s:2", "--cold-start", "2s")
    result = simulate("compare", *FLEET, *variants, *scaled, "--report", str(page))
    assert result.exit_code == 0, result.output
    text = page.read_text("utf-8")
    assert "engine.disaggregation.decode_engines" in text
    assert "disaggregation={decode_engines: 3}" in text


def test_replicas_on_one_gpu_have_parts_of_it() -> None:
    alone = document(*FLEET, "--replicas", "2")
    turns = document(*FLEET, "--replicas", "2", "--share", "2")
    both = document(*FLEET, "--replicas", "2", "--share", "2:1.5")
    assert (alone["assumptions"]["gpus"], turns["assumptions"]["gpus"]) == (2, 1)
    assert turns["assumptions"]["kv_tokens"] < alone["assumptions"]["kv_tokens"] / 2
    assert alone["e2e_s"]["p50"] < both["e2e_s"]["p50"] < turns["e2e_s"]["p50"]
    assert "--replicas" in error_of(*FLEET, "--replicas", "3", "--share", "2")
    assert "--share" in error_of(*FLEET, "--share", "two")
    apart = options("disaggregation.decode_engines=1")
    assert "--share" in error_of(*FLEET, *apart, "--replicas", "2", "--share", "2")


def test_replicas_start_by_a_schedule_and_are_paid_for_from_then_on() -> None:
    two = ("--replicas", "2", "--price", "2")
    always = document(*FLEET, *two)
    later = document(*FLEET, *two, "--schedule", "0s:1,10s:2", "--cold-start", "2s")
    assert later["usd_per_mtok"] < always["usd_per_mtok"]
    assert later["assumptions"]["scaling"] == {
        "start_s": 2.0,
        "schedule": [[0.0, 1], [10.0, 2]],
        "interval_s": 10.0,
    }
    late = document(*FLEET, *two, "--schedule", "0s:0,1s:2", "--cold-start", "5s")
    assert sum(late["rejected"].values()) > 10, "nobody is there yet"
    assert late["answered"] > 100
    assert "--schedule" in error_of(*FLEET, "--schedule", "0s:2")
    assert "--schedule" in error_of(*FLEET, "--schedule", "0s")
    assert "--schedule" in error_of(*FLEET, "--schedule", "10s:1,5s:1")
    assert "--schedule" in error_of(*FLEET, "--cold-start", "5s")


def test_steps_take_as_long_as_those_of_the_next_captured_batch() -> None:
    usual, none = document(*FLEET), document(*FLEET, "--graph-sizes", "none")
    assert none["itl_mean_s"]["p50"] > usual["itl_mean_s"]["p50"]
    coarse = document(*FLEET, "--graph-sizes", "256")
    assert coarse["itl_mean_s"]["p50"] > usual["itl_mean_s"]["p50"]
    assert "--graph-sizes" in error_of(*FLEET, "--graph-sizes", "1,two")


def test_a_scenario_has_all_of_it_and_options_go_before_it(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(
        "graph_sizes = [1, 8, 64]\n[engine]\nrunning_max = 32\nstep_tokens_max = 512\n"
        "watermark_ratio = 0.01\nadapters = {slots = 2}\n[scaling]\nschedule = [[0.0, 2]]\n"
        "[sharing]\nreplicas = 2\n"
    )
    of_file = ("--scenario", str(file), "--replicas", "2")
    found = document(*FLEET, *of_file, *options("adapters.slots=5"), "--engine-max-seqs", "16")
    engine = found["assumptions"]["engine"]
    assert (engine["running_max"], engine["step_tokens_max"]) == (16, 512)
    assert engine["adapters"]["slots"] == 5
    assert engine["watermark_ratio"] == 0.01
    assert found["assumptions"]["replicas_per_gpu"] == 2
    assert found["assumptions"]["scaling"]["start_s"] == 60.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        pytest.param("[engine]\n\nadapters = {slots = 0}\n", "adapters.slots", id="a value"),
        pytest.param("[engine]\n\nadaptors = {slots = 1}\n", "such as adapters", id="a key"),
        pytest.param("[scaling]\n\nstart_s = -1.0\n", "scaling.start_s", id="of the fleet"),
        pytest.param("[engine]\n\nkv_blocks = \n", "TOML", id="no TOML"),
        pytest.param("# 1\n\n[engines]\nx = 1\n", "such as engine; see", id="no such table"),
        pytest.param(
            "[scaling]\n\nstrat_s = 1.0\n", "such as start_s; see docs/reference/scenario", id="key"
        ),
        pytest.param(
            "[scaling]\n\nschedule = [[0.0, 9]]\n",
            "scaling.schedule: got 9, expected at most --replicas (1)",
            id="a schedule of more than there are",
        ),
        pytest.param("\n\ngraph_sizes = [0]\n", "graph_sizes: got 0", id="a batch of none"),
    ],
)
def test_faults_of_a_scenario_are_told_with_their_line(
    tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "scenario.toml"
    file.write_text(text)
    message = error_of(*FLEET, "--scenario", str(file))
    assert told in message
    assert f"{file}:3" in message


@pytest.mark.parametrize(
    ("option", "told"),
    [
        pytest.param("speculatoin.draft_tokens=1", "such as speculation", id="nearest key"),
        pytest.param("speculation.drafts=1", "draft_tokens", id="nearest key of a part"),
        pytest.param("adapters.slots=0", "--engine-option adapters.slots", id="a value"),
        pytest.param("kv_tiers.blocks=100", "block_load_s", id="a key that is required"),
        pytest.param("kv_layout=contiguous", "context_tokens_max", id="what it needs besides"),
        pytest.param("noise_ratio", "KEY=VALUE", id="no value"),
        pytest.param("running_max=0", "--engine-option running_max", id="a limit"),
        pytest.param("running_max=1000000000", "..4000000", id="a table that fills the memory"),
        pytest.param("step_tokens_max=1000000000", "..4000000", id="the other one"),
        pytest.param("prefill.slo.itl_s=-1", "prefill.slo.itl_s", id="deep inside"),
    ],
)
def test_errors_name_the_option_and_the_nearest_keys(option: str, told: str) -> None:
    message = error_of(*FLEET, *options(option))
    assert "--engine-option" in message
    assert told in message


def test_variants_of_an_engine_stand_beside_it() -> None:
    variants = (
        *("--variant", "batched static_batch.size=8", "--variant"),
        "apart disaggregation.decode_engines=1",
    )
    found = document("compare", *FLEET, *variants)
    assert [arm["name"] for arm in found["arms"]] == ["plain", "batched", "apart"]
    plain, batched, apart = found["arms"]
    assert batched["ttft_s"]["p50"] > plain["ttft_s"]["p50"]
    assert (plain["assumptions"]["gpus"], apart["assumptions"]["gpus"]) == (1, 2)
    alone = document(*FLEET, *options("static_batch.size=8"))
    assert batched["ttft_s"] == alone["ttft_s"]
    many = document("compare", *FLEET[:-1], "off,static:4", *variants[:2])
    assert [arm["name"] for arm in many["arms"]] == [
        "plain off",
        "plain static:4",
        "batched off",
        "batched static:4",
    ]
    for text in ("static_batch.size=8", "batched", "a x=1 y"):
        assert "--variant" in error_of("compare", *FLEET, "--variant", text) or text == "a x=1 y"
    assert "KEY=VALUE" in error_of("compare", *FLEET, "--variant", "a x=1 y")
    twice = ("--variant", "a kv_blocks=99", "--variant", "a kv_blocks=98")
    assert "names that differ" in error_of("compare", *FLEET, *twice)


def test_pipeline_stages_serve_more_and_none_sooner() -> None:
    lone = ("--trace", "synthetic:rate=0.2,duration=60s,prompt=1000,output=20", *FLEET[2:])
    limits = ("--engine-tokens", "2048")
    one, two = (document(*lone, *limits, "--pp", stages) for stages in ("1", "2"))
    for key in ("ttft_s", "itl_mean_s", "e2e_s"):
        assert one[key]["p50"] <= two[key]["p50"] < 1.05 * one[key]["p50"]
    assert two["assumptions"]["engine"]["step_tokens_max"] == 2 * 2048, "of a batch in each stage"
    whole = options("chunked_prefill=false")
    assert "--pp" in error_of(*lone, *limits, "--pp", "2", *whole)
    full = ("--trace", "synthetic:rate=60,duration=10s,prompt=1000,output=100", *FLEET[2:])
    one, two = (document(*full, *limits, "--pp", stages) for stages in ("1", "2"))
    assert two["duration_s"] < one["duration_s"] / 1.3
